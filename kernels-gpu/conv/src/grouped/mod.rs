//! Convolutions of groups of 2, 4, 8 or 16 channels and as many filters, of up to 9 taps, in 16 bits: results
//! and inputs' gradients ([`gather`]), filters' gradients ([`weight`]).
//!
//! ```text
//!   a block   a slab of 16, 32 or 64 channels; tiles of positions, one after the other
//!             shared memory: what the tile's windows meet, twice (one is multiplied, one is on its way)
//!   a warp    16 channels, 16 positions at a time: at each tap one product on the tensor cores of
//!             16 positions x 16 channels by 16 x 16, which is block-diagonal:
//!                                                       w w . .
//!               x at the tap, 16 positions by           w w . .     groups of 8 channels: half are zeros,
//!               16 channels (`ldmatrix`)                . . w w     of 2: seven of eight
//!                                                       . . w w
//! ```
//! * The zeros cost nothing: the products of a tile take less time than its bytes.
//! * Each element is read once by a tile that meets it, by `cp.async`; tiles that share an edge meet in L2.
//! * A zero times NaN or infinity is NaN, so sums that are not finite are computed again, from their own
//!   group alone: special numbers stay in their group.
//! * Taps are added in their order, and within a tap as the tensor cores add 16 numbers: the bits do not
//!   depend on the grid.

pub mod gather;
pub mod weight;

use cuda_std::{thread, vector, warp};
use primitives::unroll;

use crate::element::{Multiplied, copy_unit};
use crate::gather::Gather;
use crate::problem::{Odometer, Walk};

/// Threads of a block.
pub const THREADS: u32 = 256;
/// Blocks that share a multiprocessor.
pub const RESIDENT: u32 = 2;
/// Taps that a position meets, at most: their filters stay in registers.
pub const MOST_TAPS: u32 = 9;
/// Channels of a product, and positions of one.
pub const BLOCK: u32 = 16;
/// Channels of a slab, at most.
pub const MOST_SLAB: u32 = 64;
/// Positions along an axis of a tile are below this.
pub const MOST_SIDE: u32 = 1 << 12;
/// Tiles that are under way or there.
const STAGES: u32 = 2;
/// Bytes of an element, and elements of a unit of 16 bytes.
const ELEMENT: u32 = 2;
const UNIT: u32 = 8;
/// Bytes of a position's entry in the table.
const ENTRY: u32 = 8;
/// Row and column of a position behind the tile's last.
const NOWHERE: u32 = u32::MAX;
/// Warps of a block.
const WARPS: u32 = THREADS / 32;
/// All lanes.
const ALL: u32 = u32::MAX;

/// A convolution in groups, and how it is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Grouped {
    /// The convolution, of as many filters as channels.
    pub gather: Gather,
    /// Rows and columns of a tile of positions.
    pub tile: [u32; 2],
    /// Channels of a slab: 16, 32 or 64.
    pub slab: u32,
}

impl Grouped {
    /// Channels of all groups.
    pub const fn channels(&self) -> u32 {
        self.gather.problem.groups * self.gather.problem.channels
    }

    /// Blocks along x.
    pub const fn slabs(&self) -> u32 {
        self.channels().div_ceil(at_least_1(self.slab))
    }

    /// Blocks along z: classes of positions.
    pub const fn classes(&self) -> u32 {
        let [down, across] = self.gather.classes();
        down * across
    }

    /// The axes of the class with the most positions and taps.
    pub const fn spans(&self) -> [Span; 2] {
        let Gather { problem, .. } = self.gather;
        let (height, width) = self.gather.walks([0, 0]);
        [Span::new(height, problem.height.filter), Span::new(width, problem.width.filter)]
    }

    /// Tiles of the class with the most.
    pub const fn tiles(&self) -> u64 {
        let [down, across] = self.spans();
        self.gather.problem.images as u64 * down.tiles(self.tile[0]) * across.tiles(self.tile[1])
    }

    /// Positions of a tile: whole products of them.
    pub const fn positions(&self) -> u64 {
        (self.tile[0] as u64 * self.tile[1] as u64).next_multiple_of(BLOCK as u64)
    }

    /// Positions that a tile meets, of the class with the most taps.
    pub const fn met(&self) -> u64 {
        let [down, across] = self.spans();
        down.met(self.tile[0]) * across.met(self.tile[1])
    }

    /// Bytes from a position to the next in shared memory: an odd number of units, so that rows of a product
    /// meet all banks.
    pub const fn pitch(&self) -> u32 {
        self.slab * ELEMENT + UNIT * ELEMENT
    }

    /// Elements of a slab's filters, one behind the other.
    pub const fn slab_filters(&self) -> u32 {
        self.slab * self.gather.problem.filter_elements()
    }

    /// Bytes of a stage for results: what a tile meets, so many positions. The second one has the slab's
    /// filters first.
    const fn stage_bytes(&self, met: u64) -> u64 {
        let (met, filters) = (met * self.pitch() as u64, (self.slab_filters() * ELEMENT) as u64);
        if met > filters { met } else { filters }
    }

    /// Bytes of dynamic shared memory for results, of tiles that meet so many positions: both stages and the
    /// table.
    pub const fn shared_bytes(&self, met: u64) -> u64 {
        STAGES as u64 * self.stage_bytes(met) + self.positions() * ENTRY as u64
    }
}

/// An axis that is cut into tiles.
#[derive(Clone, Copy)]
pub struct Span {
    walk: Walk,
    /// Taps of a position, at most.
    taps: u32,
}

impl Span {
    #[inline(always)]
    const fn new(walk: Walk, filter: u32) -> Self {
        Self { walk, taps: filter.div_ceil(at_least_1(walk.filter_step)) }
    }

    /// Positions.
    pub const fn count(&self) -> u32 {
        self.walk.count
    }

    /// Tiles of so many positions.
    pub const fn tiles(&self, side: u32) -> u64 {
        self.walk.count.div_ceil(at_least_1(side)) as u64
    }

    /// Positions that such a tile meets.
    pub const fn met(&self, side: u32) -> u64 {
        met_along(&self.walk, self.taps, side)
    }
}

const fn at_least_1(x: u32) -> u32 {
    if x == 0 { 1 } else { x }
}

/// Positions along an axis that so many of a walk meet at so many taps.
#[inline(always)]
const fn met_along(walk: &Walk, taps: u32, count: u32) -> u64 {
    if taps == 0 {
        return 0;
    }
    let last = (count.saturating_sub(1)) as u64 * walk.multiply as u64;
    last + (taps - 1) as u64 * walk.advance.unsigned_abs() as u64 + 1
}

/// A block's own: what does not change from tile to tile.
#[derive(Clone, Copy)]
struct Slab {
    height: Walk,
    width: Walk,
    /// Rows and columns of a tile, and of what it meets.
    tile: [u32; 2],
    met: [u32; 2],
    /// From what a tile's first position meets at the walk's first tap back to the first of what it meets.
    before: [i32; 2],
    /// The first channel, those of the slab and those of all groups.
    first: u32,
    slab: u32,
    channels: u32,
    /// Bytes from a position to the next in shared memory.
    pitch: u32,
}

/// A tile: its image, and its first row and column.
#[derive(Clone, Copy)]
struct Place {
    image: u32,
    row: u32,
    column: u32,
}

impl Slab {
    #[inline(always)]
    fn new(grouped: &Grouped) -> Self {
        let [_, across] = grouped.gather.classes();
        let class = thread::block_idx_z();
        let (height, width) = grouped.gather.walks([class / across.max(1), class % across.max(1)]);
        let before = |walk: &Walk| {
            let reach = walk.taps.saturating_sub(1) as i32 * walk.advance;
            if reach < 0 { -reach } else { 0 }
        };
        let tile = grouped.tile;
        Self {
            before: [before(&height), before(&width)],
            met: [
                met_along(&height, height.taps, tile[0]) as u32,
                met_along(&width, width.taps, tile[1]) as u32,
            ],
            height,
            width,
            tile,
            first: thread::block_idx_x() * grouped.slab,
            slab: grouped.slab,
            channels: grouped.channels(),
            pitch: grouped.pitch(),
        }
    }

    /// Taps of a position.
    #[inline(always)]
    const fn taps(&self) -> u32 {
        self.height.taps * self.width.taps
    }

    /// Positions of a tile.
    #[inline(always)]
    const fn positions(&self) -> u32 {
        self.tile[0] * self.tile[1]
    }

    /// Tiles down and across, and all of them.
    #[inline(always)]
    fn tiles(&self, images: u32) -> [u32; 3] {
        let down = self.height.count.div_ceil(at_least_1(self.tile[0]));
        let across = self.width.count.div_ceil(at_least_1(self.tile[1]));
        [down, across, images * down * across]
    }

    #[inline(always)]
    fn place(&self, tile: u32, [down, across, _]: [u32; 3]) -> Place {
        let at = Odometer::new(tile, down, across);
        Place { image: at.high, row: at.middle * self.tile[0], column: at.low * self.tile[1] }
    }

    /// The tap `down` rows and `across` columns on in the walks: its place behind what a position meets
    /// first, in bytes of a stage.
    #[inline(always)]
    fn tap(&self, down: u32, across: u32) -> u32 {
        let y = (self.before[0] + down as i32 * self.height.advance) as u32;
        let x = (self.before[1] + across as i32 * self.width.advance) as u32;
        (y * self.met[1] + x) * self.pitch
    }

    /// All taps, in their order.
    #[inline(always)]
    fn all_taps(&self) -> [u32; MOST_TAPS as usize] {
        let mut taps = [0; MOST_TAPS as usize];
        let mut at = Odometer::new(0, self.height.taps, self.width.taps);
        unroll!(TAP in 0..16, { if TAP < MOST_TAPS as usize {
            taps[TAP] = self.tap(at.middle, at.low);
            at.add([0, 0, 1]);
        } });
        taps
    }

    /// Writes the table at the shared address `table`: for each position of a tile what it meets first, in
    /// bytes of a stage, and its row and column.
    ///
    /// # Safety
    /// The block calls it together; the table has an [`ENTRY`] for each of so many `positions`, unused.
    #[inline(always)]
    unsafe fn tabulate(&self, table: u32, positions: u32) {
        let mut index = thread::thread_idx_x();
        while index < positions {
            let at = Odometer::new(index, u32::MAX, self.tile[1]);
            let met = at.middle * self.height.multiply * self.met[1] + at.low * self.width.multiply;
            let entry = if index < self.positions() {
                [met * self.pitch, at.middle << 16 | at.low]
            } else {
                [0, NOWHERE]
            };
            // SAFETY: the thread's entry, by the caller's word.
            unsafe { vector::store_shared_v2(table + index * ENTRY, entry) }
            index += THREADS;
        }
    }

    /// Starts the copies of what a tile meets to the stage at this shared address; zeros where that is
    /// outside of the image, or there are no such channels.
    ///
    /// # Safety
    /// The block calls it together; the stage has [`Grouped::met`] positions, which nobody uses. `read` is
    /// valid for reads of the images, and begins at a whole unit.
    #[inline(always)]
    unsafe fn copy_met<T>(&self, read: *const T, stage: u32, place: Place) {
        let y = (place.row * self.height.multiply) as i32 + self.height.from - self.before[0];
        let x = (place.column * self.width.multiply) as i32 + self.width.from - self.before[1];
        let limits = [self.height.limit, self.width.limit];
        // SAFETY: the caller's word.
        unsafe { self.copy(read, stage, place.image, [y, x], self.met, limits) }
    }

    /// Starts the copies of so many rows and columns from `first` on, of images of the sides `limits`.
    ///
    /// # Safety
    /// As [`copy_met`](Self::copy_met); the stage has those positions.
    #[inline(always)]
    unsafe fn copy<T>(
        &self,
        read: *const T,
        stage: u32,
        image: u32,
        first: [i32; 2],
        [rows, columns]: [u32; 2],
        limits: [u32; 2],
    ) {
        let units = at_least_1(self.slab / UNIT);
        let (unit, own) = (thread::thread_idx_x() % units, thread::thread_idx_x() / units);
        let channel = self.first + unit * UNIT;
        let step = THREADS / units;
        let mut at = Odometer::new(own, u32::MAX, columns);
        let digits = Odometer::new(step, u32::MAX, columns).digits();
        let mut to = stage + own * self.pitch + unit * UNIT * ELEMENT;
        while at.middle < rows && columns > 0 {
            let y = first[0].wrapping_add(at.middle as i32) as u32;
            let x = first[1].wrapping_add(at.low as i32) as u32;
            let position = (image * limits[0]).wrapping_add(y).wrapping_mul(limits[1]).wrapping_add(x);
            let element = u64::from(position) * u64::from(self.channels) + u64::from(channel);
            let is_there = (y < limits[0]) & (x < limits[1]) & (channel < self.channels);
            // SAFETY: a unit of the image, or none; its place is this thread's.
            unsafe { copy_unit(to, read, if is_there { Some(element) } else { None }) }
            to += step * self.pitch;
            at.add(digits);
        }
    }
}

/// A warp's part of a slab.
#[derive(Clone, Copy)]
struct Share {
    /// The block of channels within the slab.
    block: u32,
    /// Which of the warps with that block, and how many there are.
    split: u32,
    splits: u32,
}

impl Share {
    #[inline(always)]
    fn new(slab: u32) -> Self {
        let (warp, blocks) = (thread::thread_idx_x() / 32, at_least_1(slab / BLOCK));
        Self { block: warp % blocks, split: warp / blocks, splits: WARPS / blocks }
    }
}

/// 16 positions by 16 channels, multiplied by 16 x 16, added to two sums of 8 columns.
///
/// # Safety
/// The warp is here together.
#[inline(always)]
unsafe fn multiply<E: Multiplied>(a: [u32; 4], b: [u32; 4], sums: &mut [[f32; 4]; 2]) {
    // SAFETY: the caller's word.
    unsafe {
        sums[0] = E::mma(a, [b[0], b[1]], sums[0]);
        sums[1] = E::mma(a, [b[2], b[3]], sums[1]);
    }
}

/// The address of this lane's row for `ldmatrix`: the row `lane % 16` of a table, the left or right unit.
#[inline(always)]
fn unit_of_lane() -> u32 {
    warp::lane_id() / 16 * UNIT * ELEMENT
}
