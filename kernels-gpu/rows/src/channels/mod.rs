//! Norms of channels: group norm and batch norm, forward and backward, wherever the channels are.
//!
//! ```text
//!   sums     each part of the positions, each channel: mean and squares, or the sums of dy and dy (x - mean)
//!   finish   each group: those of all its parts, in the order of their numbers
//!   map      y = (x - mean) factor weight + bias, or the gradient by x
//! ```
//! | memory | threads of a block | a thread has |
//! |---|---|---|
//! | `[images, channels, positions]` | teams of some lanes, a part of a channel each | vectors along the positions |
//! | `[images, positions, channels]` | columns by rows, a part of some channels together | one vector of channels, all of its row's positions |
//!
//! Batch norm takes the images' parts together. With the channels last it has one image, of all positions.
//! Parts depend on shapes alone, so results are the same to the bit on all devices.

pub mod finish;
pub mod map;
pub mod sums;

use primitives::access::{self, Plain, VECTOR_BYTES, Words};
use primitives::element::InF32;

/// Threads of a block.
pub const THREADS: u32 = 256;
/// Vectors that a thread has under way.
pub const UNROLL: usize = 4;
/// Bytes of a part of a channel, where its positions are neighbours: four vectors for each lane, twice.
const PART_BYTES: u64 = 8 << 10;
/// Blocks where channels come last, at most, unless the channels need more: three on each of 132
/// multiprocessors, twice. A few more than that would run alone in the end.
const BLOCKS: u64 = 2 * 3 * 132;
/// Positions that a thread has at least, where there are as many and channels come last.
const LEAST_ROWS: u64 = 8;
/// Threads side by side along the channels, at least: so few rows are added up in turn.
const LEAST_COLUMNS: u64 = 8;
/// Most positions of an image, and most parts of all channels: their numbers, and those of the places a few
/// behind them, take 32 bits.
const MAX: u64 = 1 << 30;

/// Elements, and how they are shared out.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Channels {
    /// Images.
    pub images: u32,
    /// Channels of an image.
    pub channels: u32,
    /// Positions of a channel.
    pub positions: u32,
    /// Neighbouring channels that are normalised together.
    pub group: u32,
    /// 1 when all images are normalised together, else 0.
    pub is_joined: u32,
    /// 1 when the channels of a position are neighbours, else 0: then the positions of a channel are.
    pub is_last: u32,
    /// 1 when vectors of channels begin at boundaries, where they are neighbours.
    pub is_wide: u32,
    /// Positions of a part.
    pub part: u32,
    /// Parts of a channel of an image.
    pub parts: u32,
    /// Threads side by side: along the positions, or along the channels. A power of two.
    pub team: u32,
    /// Blocks.
    pub blocks: u32,
    /// Nothing.
    pub rest: u32,
}

/// A tensor of channels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sides {
    /// Images.
    pub images: u64,
    /// Channels of an image.
    pub channels: u64,
    /// Positions of a channel.
    pub positions: u64,
}

/// How it is normalised, and how it lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Way {
    /// Bytes of an element.
    pub size: usize,
    /// Neighbouring channels that are normalised together, a divisor of the channels.
    pub group: u64,
    /// Whether all images are normalised together.
    pub is_joined: bool,
    /// Whether the channels of a position are neighbours.
    pub is_last: bool,
    /// Whether all tensors begin at 16-byte boundaries.
    pub is_aligned: bool,
}

impl Channels {
    /// A plan; `None` for tensors without an element, and for those whose numbers do not fit.
    pub const fn new(sides: &Sides, way: &Way) -> Option<Self> {
        let Sides { images, channels, positions } = *sides;
        if images == 0 || channels == 0 || positions == 0 || way.group == 0 {
            return None;
        }
        // With the channels last the images of a joint norm are one.
        let (images, positions) = if way.is_joined && way.is_last {
            (1, images.saturating_mul(positions))
        } else {
            (images, positions)
        };
        let lanes = (VECTOR_BYTES / way.size) as u64;
        let is_wide = way.is_last && way.is_aligned && channels.is_multiple_of(lanes);
        let unit = if is_wide { lanes } else { 1 };
        let (part, team, of_block) = if way.is_last {
            let team = power(channels.div_ceil(unit), LEAST_COLUMNS, THREADS as u64);
            let (slabs, rows) = (channels.div_ceil(team * unit), THREADS as u64 / team);
            let parts = BLOCKS / slabs.saturating_mul(images);
            let part = positions.div_ceil(if parts == 0 { 1 } else { parts });
            (if part < LEAST_ROWS * rows { LEAST_ROWS * rows } else { part }, team, slabs)
        } else {
            let most = PART_BYTES / way.size as u64;
            let part = if positions < most { positions } else { most };
            (part, power(part.div_ceil(lanes * UNROLL as u64), 1, 32), 0)
        };
        let part = if part > positions { positions } else { part };
        let parts = positions.div_ceil(part);
        let all = images.saturating_mul(channels).saturating_mul(parts);
        if positions > MAX || all > MAX {
            return None;
        }
        let blocks =
            if way.is_last { images * parts * of_block } else { all.div_ceil(THREADS as u64 / team) };
        Some(Self {
            images: images as u32,
            channels: channels as u32,
            positions: positions as u32,
            group: way.group as u32,
            is_joined: way.is_joined as u32,
            is_last: way.is_last as u32,
            is_wide: is_wide as u32,
            part: part as u32,
            parts: parts as u32,
            team: team as u32,
            blocks: blocks as u32,
            rest: 0,
        })
    }

    /// Groups of an image.
    #[inline(always)]
    pub const fn of_image(&self) -> u32 {
        divided(self.channels, self.group)[0]
    }

    /// Groups that have a mean and a deviation each.
    #[inline(always)]
    pub const fn groups(&self) -> u32 {
        let of_image = self.of_image();
        if self.is_joined == 0 { self.images * of_image } else { of_image }
    }

    /// Numbers of each of the two that are left of the parts.
    pub const fn partials(&self) -> usize {
        self.images as usize * self.parts as usize * self.channels as usize
    }

    /// Positions of the part with this number.
    #[inline(always)]
    pub const fn len(&self, part: u32) -> u32 {
        let left = self.positions - part * self.part;
        if left < self.part { left } else { self.part }
    }

    /// The group of a channel of an image.
    #[inline(always)]
    pub const fn group_of(&self, image: u32, channel: u32) -> u32 {
        let group = divided(channel, self.group)[0];
        if self.is_joined == 0 { image * self.of_image() + group } else { group }
    }
}

/// Quotient and rest; the divisor is not 0.
#[inline(always)]
pub(crate) const fn divided(number: u32, by: u32) -> [u32; 2] {
    // The compiler would keep a panic for 0.
    let by = if by == 0 { 1 } else { by };
    [number / by, number % by]
}

/// The least power of two that is not below, within two others.
const fn power(number: u64, least: u64, most: u64) -> u64 {
    let power = number.next_power_of_two();
    if power < least {
        least
    } else if power > most {
        most
    } else {
        power
    }
}

/// How many of `len` places one has that takes every `2^bits`-th from `first` on.
#[inline(always)]
pub(crate) const fn count(len: u32, first: u32, bits: u32) -> u32 {
    if first < len { ((len - first - 1) >> bits) + 1 } else { 0 }
}

/// The words of `N` neighbours, all that a vector has or one. Arrays of elements may end up in local memory.
///
/// # Safety
/// They are readable, and begin at a boundary of theirs.
#[inline(always)]
pub(crate) unsafe fn load<T: Plain, const N: usize>(from: *const T) -> Words {
    // SAFETY: the caller's promise.
    access::words(unsafe { if N == 1 { access::first(*from) } else { access::load_wide::<T, N>(from) } })
}

/// The numbers in them.
#[inline(always)]
pub(crate) fn widen<T: InF32, const N: usize>([a, b, c, d]: Words) -> [f32; N] {
    // SAFETY: every bit pattern is a number.
    T::widen(unsafe { access::from_wide::<T, N>([a, b, c, d, 0, 0, 0, 0]) })
}

/// A thread's places in a block's part, where channels come last.
#[derive(Clone, Copy)]
pub(crate) struct Columns {
    pub image: u32,
    pub part: u32,
    /// The first of the block's channels.
    pub slab: u32,
    /// The thread's first channel.
    pub channel: u32,
    /// The thread's row, of so many.
    pub row: u32,
    pub rows: u32,
}

impl Columns {
    /// That of the calling thread, of which each has so many channels.
    #[inline(always)]
    pub fn of(plan: &Channels, [block, thread]: [u32; 2], unit: u32) -> Self {
        let of_block = plan.team * unit;
        let [slabs, _] = divided(plan.channels + of_block - 1, of_block);
        let [number, slab] = divided(block, slabs);
        let [image, part] = divided(number, plan.parts);
        let (bits, row) = (plan.team.trailing_zeros(), thread >> plan.team.trailing_zeros());
        let slab = slab * of_block;
        let channel = slab + (thread & (plan.team - 1)) * unit;
        Self { image, part, slab, channel, row, rows: THREADS >> bits }
    }

    /// Elements before the thread's first position.
    #[inline(always)]
    pub const fn first(&self, plan: &Channels) -> u64 {
        let position = self.part as u64 * plan.part as u64 + self.row as u64;
        (self.image as u64 * plan.positions as u64 + position) * plan.channels as u64 + self.channel as u64
    }
}

/// A team's part of a channel, where positions are neighbours.
#[derive(Clone, Copy)]
pub(crate) struct Strip {
    pub image: u32,
    pub part: u32,
    pub channel: u32,
    /// The thread's number in the team.
    pub member: u32,
    /// Elements of the part; none, where the team has no part.
    pub len: u32,
    /// Elements before them.
    pub first: u64,
}

impl Strip {
    /// That of the calling thread's team.
    #[inline(always)]
    pub fn of(plan: &Channels, [block, thread]: [u32; 2]) -> Self {
        let (bits, member) = (plan.team.trailing_zeros(), thread & (plan.team - 1));
        let number = block * (THREADS >> bits) + (thread >> bits);
        let all = plan.images * plan.channels * plan.parts;
        let (exists, number) = (number < all, if number < all { number } else { 0 });
        let [cell, part] = divided(number, plan.parts);
        let [image, channel] = divided(cell, plan.channels);
        let len = if exists { plan.len(part) } else { 0 };
        let first = cell as u64 * plan.positions as u64 + part as u64 * plan.part as u64;
        Self { image, part, channel, member, len, first }
    }
}

#[cfg(test)]
mod tests {
    use super::{Channels, MAX, Sides, THREADS, Way};

    #[test]
    fn parts_make_up_all_positions() {
        for (images, channels, positions) in
            [(1, 1, 1), (2, 3, 5), (32, 64, 12_544), (64, 2048, 49), (3, 6000, 7), (1, 30, 1 << 20)]
        {
            for (size, is_last, is_joined) in
                [(2, false, false), (2, true, false), (2, false, true), (2, true, true), (4, true, true)]
            {
                let way = Way { size, group: 1, is_joined, is_last, is_aligned: true };
                let plan = Channels::new(&Sides { images, channels, positions }, &way).expect("it fits");
                let of_image: u32 = (0..plan.parts).map(|part| plan.len(part)).sum();
                assert_eq!(of_image, plan.positions, "{plan:?}");
                assert_eq!(u64::from(plan.positions) * u64::from(plan.images), images * positions);
                assert!(plan.team.is_power_of_two() && plan.team <= THREADS, "{plan:?}");
                // A vector at a boundary of one part is at one of the next.
                assert!(is_last || plan.parts == 1 || (plan.part as usize * size).is_multiple_of(16));
            }
        }
    }

    #[test]
    fn what_does_not_fit_has_no_plan() {
        let way = Way { size: 4, group: 1, is_joined: true, is_last: true, is_aligned: true };
        let none = |sides| assert_eq!(Channels::new(&sides, &way), None);
        none(Sides { images: 0, channels: 1, positions: 1 });
        none(Sides { images: u64::MAX, channels: 1, positions: 2 });
        none(Sides { images: 2, channels: 1, positions: MAX });
        none(Sides { images: 1, channels: 2 * MAX, positions: 1 });
    }
}
