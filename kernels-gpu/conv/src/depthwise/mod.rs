//! Convolutions of each channel by a filter of its own ("depthwise"): results, inputs' gradients, and in
//! [`weight`] filters' gradients. No tensor cores: such a convolution is as fast as memory.
//!
//! ```text
//!   a thread     a unit of channels (16 bytes, or one) at 4 positions side by side, a strip
//!                for each row of taps, three taps at a time:     x x x x x x     read once
//!                                                                w w w           times filter, to 4 sums:
//!                                                                  w w w
//!                                                                    w w w       of channels side by side
//!                                                                      w w w
//!   a block      some units side by side by many strips; their filters and biases, as f32, in shared memory
//! ```
//! * Where successive positions do not meet successive ones of what is read (strides, dilations), taps go one
//!   by one, and caches have what is read again.
//! * **Backward** is the same walk over the result's gradient, for each class of positions ([`Walk`]): blocks
//!   along z.
//! * Sums are f32, in an order that the shape alone determines.
//!
//! Bytes: each element of the input and of the result once; the rows that strips above each other share come
//! from the L2 cache.

pub mod sliding;
pub mod weight;

use cuda_std::fastmath::fma;
use cuda_std::{kernel, misc, shared, thread, vector};
use half::{bf16, f16};
use primitives::activation::{Activation, Fast};
use primitives::element::Element;
use primitives::unroll;

use crate::gather::Gather;
use crate::problem::{Convolution, Odometer, Walk};

/// Threads of a block.
pub const THREADS: u32 = 256;
/// Positions of a strip.
pub const STRIP: usize = 4;
/// Taps that a strip meets at a time, where they are side by side.
const TAPS: usize = 3;
/// Positions that they meet.
const MET: usize = STRIP + TAPS - 1;
/// Taps of a filter, at most: those of a block's channels are in shared memory.
pub const MOST_TAPS: u32 = 128;
/// Bytes of a sum.
const F32: u32 = size_of::<f32>() as u32;

/// A convolution with groups of one channel and one filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Depthwise {
    /// The convolution: groups are the channels.
    pub gather: Gather,
    /// Units of channels side by side in a block, from 1 to [`THREADS`].
    pub units: u32,
    /// Channels of a unit: 16 bytes of them where all are such units and aligned, else 1.
    pub unit: u32,
}

impl Depthwise {
    /// Channels of a block.
    pub const fn slab(&self) -> u32 {
        self.units * self.unit
    }

    /// Blocks along x.
    pub const fn slabs(&self) -> u32 {
        self.gather.problem.groups.div_ceil(self.slab())
    }

    /// Strips of which a block has one a thread at a time.
    pub const fn lines(&self) -> u32 {
        THREADS / if self.units == 0 { 1 } else { self.units }
    }

    /// Strips of the class with the most.
    pub const fn strips(&self) -> u64 {
        let (height, width) = self.gather.walks([0, 0]);
        self.gather.problem.images as u64 * height.count as u64 * width.count.div_ceil(STRIP as u32) as u64
    }

    /// Dynamic shared memory of a block, bytes: filters and bias.
    pub const fn shared_bytes(&self) -> u32 {
        (self.taps() + 1) * self.slab() * F32
    }

    const fn taps(&self) -> u32 {
        self.gather.problem.height.filter * self.gather.problem.width.filter
    }
}

macro_rules! kernels {
    ($($name:ident: $stored:ident, $doc:literal;)*) => { $(
        #[doc = $doc]
        /// See the module.
        ///
        /// # Safety
        /// `read` is valid for reads of what the gather's problem says, which has elements: the input or,
        /// backward, the result's gradient. So are `filter` of its filters, at most [`MOST_TAPS`] taps each,
        /// and `bias`, if there is one, of a number for each channel. `result` is valid for writes of all
        /// positions, apart from all else. Where units are of 16 bytes, all of them are aligned.
        /// [`Depthwise::slabs`] blocks along x, any number along y, one for each class along z, of
        /// [`THREADS`] threads with [`Depthwise::shared_bytes`] of dynamic shared memory.
        #[kernel(launch_bounds(THREADS, 2))]
        pub unsafe fn $name(
            depthwise: Depthwise,
            read: *const $stored,
            filter: *const $stored,
            bias: *const $stored,
            result: *mut $stored,
        ) {
            const WIDE: usize = layout::UNIT_BYTES as usize / size_of::<$stored>();
            let operands = Operands { depthwise: &depthwise, read, filter, bias, result };
            // SAFETY: the caller's contract.
            unsafe {
                if depthwise.unit == 1 { operands.run::<1>() } else { operands.run::<WIDE>() }
            }
        }
    )* };
}

kernels! {
    conv_depthwise_f16: f16, "f16.";
    conv_depthwise_bf16: bf16, "bf16.";
    conv_depthwise_f32: f32, "f32, with all of its bits.";
}

struct Operands<'a, T> {
    depthwise: &'a Depthwise,
    read: *const T,
    filter: *const T,
    bias: *const T,
    result: *mut T,
}

/// A unit of channels, or zeros where there is no such position: loads under way together need that without
/// branches, so what is read instead, at `other`, goes through a mask that the compiler cannot branch on.
///
/// # Safety
/// `N` elements at `place`, if it `is_there`, or else at `other`, are readable, and aligned as a whole.
#[inline(always)]
unsafe fn unit<T: Element<Wide = f32>, const N: usize>(
    base: *const T,
    is_there: bool,
    place: u64,
    other: u32,
) -> [f32; N] {
    let at = if is_there { place } else { other.into() };
    // SAFETY: the caller's word; every bit pattern is a number.
    let mut values = T::widen(unsafe { vector::load_array(base.add(at as usize)) });
    let mask = misc::opaque(u32::from(is_there).wrapping_neg());
    unroll!(C in 0..8, { if C < N {
        values[C] = f32::from_bits(values[C].to_bits() & mask);
    } });
    values
}

/// The numbers of a block's channels at this address of shared memory.
///
/// # Safety
/// There are `N`, aligned as a whole up to 16 bytes.
#[inline(always)]
unsafe fn of_slab<const N: usize>(address: u32) -> [f32; N] {
    let mut values = [0.0; N];
    // SAFETY: the caller's word.
    unsafe {
        if N == 1 {
            values[0] = f32::from_bits(vector::load_shared(address));
        } else {
            unroll!(I in 0..2, { if I * 4 < N {
                let four: [f32; 4] = vector::load_shared_v4(address + I as u32 * 4 * F32);
                unroll!(J in 0..4, { values[I * 4 + J] = four[J]; });
            } });
        }
    }
    values
}

/// The walks of a thread, and its channels.
struct Lines {
    height: Walk,
    width: Walk,
    /// The first channel of the thread's unit.
    channel: u32,
    /// Shared address of the unit's numbers at the first tap.
    filters: u32,
}

impl<T: Element<Wide = f32>> Operands<'_, T> {
    /// The block's strips.
    ///
    /// # Safety
    /// As the kernels.
    #[inline(always)]
    unsafe fn run<const N: usize>(&self) {
        let Depthwise { gather, units, .. } = *self.depthwise;
        let Convolution { images, groups, .. } = gather.problem;
        let [_, across] = gather.classes();
        let class = thread::block_idx_z();
        let (height, width) = gather.walks([class / across.max(1), class % across.max(1)]);
        let base = shared::address_of(shared::dynamic_shared_mem::<u8>());
        // SAFETY: the caller's contract.
        unsafe { self.stage(base) }
        thread::sync_threads();
        let units = units.max(1);
        let (unit, line, lines) =
            (thread::thread_idx_x() % units, thread::thread_idx_x() / units, self.depthwise.lines());
        let channel = thread::block_idx_x() * units * N as u32 + unit * N as u32;
        if line >= lines || channel >= groups {
            return;
        }
        let lines_of = Lines { height, width, channel, filters: base + unit * N as u32 * F32 };
        let strips_across = width.count.div_ceil(STRIP as u32);
        let strips = images * height.count * strips_across;
        let step = thread::grid_dim_y() * lines;
        let mut number = thread::block_idx_y() * lines + line;
        let mut at = Odometer::new(number, height.count, strips_across);
        let digits = Odometer::new(step, height.count, strips_across).digits();
        while number < strips {
            // SAFETY: a strip of the class; the caller's contract.
            unsafe { self.strip::<N>(&lines_of, &at) }
            at.add(digits);
            number += step;
        }
    }

    /// Brings the filters and biases of the block's channels to shared memory, the taps outermost.
    ///
    /// # Safety
    /// As the kernels; the whole block calls it.
    #[inline(always)]
    unsafe fn stage(&self, base: u32) {
        let Depthwise { gather, .. } = self.depthwise;
        let (slab, taps) = (self.depthwise.slab(), self.depthwise.taps().max(1));
        let first = thread::block_idx_x() * slab;
        let left = gather.problem.groups.saturating_sub(first);
        let channels = if slab < left { slab } else { left };
        let mut index = thread::thread_idx_x();
        // SAFETY: filters of the block's channels, one behind the other; places of its shared memory.
        unsafe {
            while index < channels * taps {
                let (channel, tap) = (index / taps, index % taps);
                let from = u64::from(first) * u64::from(taps) + u64::from(index);
                let [value] = T::widen([*self.filter.add(from as usize)]);
                vector::store_shared(base + (tap * slab + channel) * F32, value.to_bits());
                index += thread::block_dim_x();
            }
            let mut channel = thread::thread_idx_x();
            while channel < channels {
                let mut value = 0.0;
                if gather.has_bias != 0 {
                    [value] = T::widen([*self.bias.add((first + channel) as usize)]);
                }
                vector::store_shared(base + (taps * slab + channel) * F32, value.to_bits());
                channel += thread::block_dim_x();
            }
        }
    }

    /// Computes a strip.
    ///
    /// # Safety
    /// As the kernels; `at` is a strip of the class: image, row, and strip of the row.
    #[inline(always)]
    unsafe fn strip<const N: usize>(&self, lines: &Lines, at: &Odometer) {
        let Lines { height, width, .. } = lines;
        let mut sums = [[0.0; N]; STRIP];
        let y = (at.middle * height.multiply) as i32 + height.from;
        let x = (at.low * STRIP as u32 * width.multiply) as i32 + width.from;
        let slides = width.multiply == 1 && (width.advance == 1 || width.advance == -1);
        for down in 0..height.taps {
            let y = y + down as i32 * height.advance;
            let row = ((y as u32) < height.limit, (at.high * height.limit).wrapping_add(y as u32));
            let tap = (height.filter_first + down * height.filter_step)
                * self.depthwise.gather.problem.width.filter;
            let mut across = 0;
            // SAFETY: taps of the walk; the caller's contract.
            unsafe {
                while across < width.taps {
                    if slides && across + TAPS as u32 <= width.taps {
                        self.meet::<N, TAPS>(lines, &mut sums, row, [x, across as i32], tap);
                        across += TAPS as u32;
                    } else {
                        self.meet::<N, 1>(lines, &mut sums, row, [x, across as i32], tap);
                        across += 1;
                    }
                }
            }
        }
        // SAFETY: the strip's own positions.
        unsafe { self.store(lines, at, sums) }
    }

    /// Adds the products of `K` taps from the walk's tap `across` on, of a row of taps that begins with
    /// `tap`, with a row of what is read.
    ///
    /// # Safety
    /// As the kernels; there are those taps, and for more than one the walk slides.
    #[inline(always)]
    unsafe fn meet<const N: usize, const K: usize>(
        &self,
        lines: &Lines,
        sums: &mut [[f32; N]; STRIP],
        (has_row, row): (bool, u32),
        [x, across]: [i32; 2],
        tap: u32,
    ) {
        let Lines { width, channel, filters, .. } = *lines;
        let Depthwise { gather, .. } = self.depthwise;
        let turned = K > 1 && width.advance < 0;
        // Taps by ascending positions.
        let lowest = if turned { across + K as i32 - 1 } else { across };
        let x = x + lowest * width.advance;
        let distance = if K > 1 { 1 } else { width.multiply };
        let mut met = [[0.0; N]; MET];
        let mut filter = [[0.0; N]; TAPS];
        // SAFETY: a unit of channels of a position, or of the first one; taps of the block's filters.
        unsafe {
            unroll!(I in 0..6, { if I < STRIP + K - 1 {
                // Behind the last position it may be any number.
                let x = x.wrapping_add((I as u32).wrapping_mul(distance) as i32);
                let is_there = has_row & ((x as u32) < width.limit);
                let position = row.wrapping_mul(width.limit).wrapping_add(x as u32);
                let place = u64::from(position) * u64::from(gather.problem.groups) + u64::from(channel);
                met[I] = unit(self.read, is_there, place, channel);
            } });
            unroll!(I in 0..3, { if I < K {
                let across = if turned { lowest - I as i32 } else { lowest + I as i32 };
                let tap = tap + width.filter_first + across as u32 * width.filter_step;
                filter[I] = of_slab(filters + tap * self.depthwise.slab() * F32);
            } });
        }
        unroll!(I in 0..3, { if I < K {
            unroll!(J in 0..4, {
                unroll!(C in 0..8, { if C < N {
                    sums[J][C] = fma(filter[I][C], met[I + J][C], sums[J][C]);
                } });
            });
        } });
    }

    /// Stores a strip's results.
    ///
    /// # Safety
    /// As the kernels; the positions are the thread's alone.
    #[inline(always)]
    unsafe fn store<const N: usize>(&self, lines: &Lines, at: &Odometer, mut sums: [[f32; N]; STRIP]) {
        let Lines { height, width, channel, filters, .. } = *lines;
        let Depthwise { gather, .. } = self.depthwise;
        let Convolution { groups, height: down, width: across, .. } = gather.problem;
        let [rows, columns] =
            if gather.is_forward() { [down.output, across.output] } else { [down.input, across.input] };
        let row = at.high * rows + height.first + at.middle * height.step;
        let activation = Activation::from_code(gather.activation);
        let mut index = at.low * STRIP as u32;
        // Not unrolled, and no index into the sums: the functions are long.
        let end = index + misc::opaque(STRIP as u32);
        // SAFETY: a bias of the block's channels; a unit of a position of the result.
        unsafe {
            let bias: [f32; N] = of_slab(filters + self.depthwise.taps() * self.depthwise.slab() * F32);
            while index < end {
                if index < width.count {
                    let position = row * columns + width.first + index * width.step;
                    let mut values = [0.0; N];
                    unroll!(C in 0..8, { if C < N {
                        values[C] = activation.apply::<Fast>(sums[0][C] + bias[C]);
                    } });
                    let to = u64::from(position) * u64::from(groups) + u64::from(channel);
                    vector::store_array(self.result.add(to as usize), T::narrow(values));
                }
                sums = [sums[1], sums[2], sums[3], sums[0]];
                index += 1;
            }
        }
    }
}
