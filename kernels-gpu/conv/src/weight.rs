//! The gradient of a convolution's filters, on the tensor cores of sm_80 and later: a product whose k is the
//! positions of the result.
//!
//! ```text
//!   dW[filter, (r, s, channel)] = sum over positions (n, p, q) of dY[(n, p, q), filter] * x at tap (r, s)
//!
//!              filters            taps and channels
//!            +---------+        +-------------------+
//!   position |   dY    |        |  gathered from x  |     both lie across: for each position the filters,
//!   k        |         |        |                   |     or the channels of a tap, side by side
//!            +---------+        +-------------------+
//! ```
//! * A column of B has one tap; a thread's unit of 16 bytes belongs to the same tap and channels in every
//!   piece, and only its position counts on ([`Odometer`]).
//! * Filters are few and positions many, so positions are cut into parts (blocks along y), whose sums go to
//!   memory in f32. [`conv_sum_parts`](fn@conv_sum_parts) adds them in ascending order and rounds once: no
//!   atomics, and the same bits in every run.
//! * Channels and filters of a group are whole units; the host pads others with zeros, which
//!   [`conv_sum_parts`](fn@conv_sum_parts) leaves out.
//!
//! | a block | sums a thread | bytes of shared memory |
//! |---|---|---|
//! | 128 filters x 128 columns ([`Tile::Tall`]), 8 warps of 64 x 32 | 64 | 69,632 |
//! | 64 x 128 ([`Tile::Flat`]), 8 warps of 32 x 32 | 32 | 49,152 |

use cuda_std::{grid, kernel, shared, thread, vector};
use half::{bf16, f16};
use layout::grouped_tile;
use primitives::access;
use primitives::activation::{Activation, Fast};
use primitives::element::{Element as _, map, zip};
use primitives::mma::stage::{UNITS, place_across};
use primitives::mma::{Bf16, Block, Element, F16, Tf32};
use primitives::unroll;

use crate::element::{Multiplied, copy_unit};
use crate::problem::{Convolution, Odometer};

/// Tiles of a raster group: blocks walk down so many before they go to the next column of tiles.
const RASTER_GROUP: u32 = 8;
/// Positions of which a thread copies a unit of B a piece.
const ROWS: usize = 2;
/// Bytes of a sum.
const F32: u32 = size_of::<f32>() as u32;
/// Sums that a thread stores at a time.
const STORED: u32 = 4;
/// Positions of a part are a multiple of this: whole pieces of every type.
pub const POSITIONS: u32 = F16::DEPTH;
/// Threads of a block of [`conv_sum_parts`](fn@conv_sum_parts).
pub const SUM_THREADS: u32 = 256;
/// Dynamic shared memory of such a block, bytes: the sums of each thread.
pub const SUM_SHARED_BYTES: u32 = SUM_THREADS * STORED * F32;
/// Parts whose loads are under way at a time.
const UNDER_WAY: u32 = 8;

type Tall = Block<2, 4, 4, 2>;
type Flat = Block<2, 4, 2, 2>;

/// Which block computes a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tile {
    /// 128 filters by 128 columns.
    Tall,
    /// 64 filters by 128 columns.
    Flat,
}

impl Tile {
    /// Columns of a block: elements of a filter.
    pub const COLUMNS: u32 = Tall::WIDTH;
    /// Threads of a block.
    pub const THREADS: u32 = Tall::THREADS;

    /// Filters of a block.
    pub const fn rows(self) -> u32 {
        match self {
            Self::Tall => Tall::HEIGHT,
            Self::Flat => Flat::HEIGHT,
        }
    }

    /// Dynamic shared memory of a block, bytes.
    pub const fn shared_bytes(self) -> u32 {
        match self {
            Self::Tall => Tall::SHARED_BYTES,
            Self::Flat => Flat::SHARED_BYTES,
        }
    }
}

const _: () = assert!(Flat::WIDTH == Tile::COLUMNS && Flat::THREADS == Tile::THREADS);
const _: () = assert!(Tile::COLUMNS * UNITS == Tile::THREADS * ROWS as u32, "a thread copies so many units");

/// Filters' gradients, in parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Weights {
    /// The convolution. Channels and filters of a group, as they lie in memory, are whole units of 16 bytes.
    pub problem: Convolution,
    /// Positions of a part, a multiple of [`POSITIONS`], at least that.
    pub part: u32,
}

impl Weights {
    /// Blocks along x.
    pub const fn blocks(&self, tile: Tile) -> u64 {
        let Convolution { filters, .. } = self.problem;
        filters.div_ceil(tile.rows()) as u64 * self.problem.filter_elements().div_ceil(Tile::COLUMNS) as u64
    }

    /// Parts: blocks along y.
    pub const fn parts(&self) -> u32 {
        self.problem.outputs().div_ceil(if self.part == 0 { 1 } else { self.part })
    }

    /// Elements of a part's sums: of all filters.
    pub const fn sums(&self) -> u64 {
        self.problem.groups as u64 * self.problem.filters as u64 * self.problem.filter_elements() as u64
    }
}

macro_rules! kernels {
    ($($name:ident: $block:ident, $element:ident, $stored:ident, $doc:literal;)*) => { $(
        #[doc = $doc]
        /// See the module.
        ///
        /// # Safety
        /// `gradient` and `input` are valid for reads of what the problem says, the result's gradient and the
        /// input. `sums` is valid for writes of [`Weights::sums`] numbers for each part, apart from all else.
        /// [`Weights::blocks`] blocks along x, [`Weights::parts`] along y, at least one along z, of
        /// [`Tile::THREADS`] threads with [`Tile::shared_bytes`] of dynamic shared memory.
        #[kernel(launch_bounds(Tile::THREADS, $block::RESIDENT))]
        pub unsafe fn $name(
            weights: Weights,
            gradient: *const $stored,
            input: *const $stored,
            sums: *mut f32,
        ) {
            // SAFETY: the caller's contract.
            unsafe { Operands::<$element> { weights: &weights, gradient, input, sums }.run::<$block>() }
        }
    )* };
}

kernels! {
    conv_weight_f16: Tall, F16, f16, "f16, 128 filters a block.";
    conv_weight_bf16: Tall, Bf16, bf16, "bf16, 128 filters a block.";
    conv_weight_tf32: Tall, Tf32, f32, "f32 as tf32, 128 filters a block.";
    conv_weight_f16_flat: Flat, F16, f16, "f16, 64 filters a block.";
    conv_weight_bf16_flat: Flat, Bf16, bf16, "bf16, 64 filters a block.";
    conv_weight_tf32_flat: Flat, Tf32, f32, "f32 as tf32, 64 filters a block.";
}

/// The element type of a result that is stored as its number says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Stored {
    /// f32.
    F32 = 0,
    /// f16.
    F16 = 1,
    /// bf16.
    Bf16 = 2,
}

/// Sums in parts, and the result without padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Parts {
    /// Elements of a part.
    pub sums: u64,
    /// Parts.
    pub parts: u32,
    /// A [`Stored`].
    pub stored: u32,
    /// An activation, of the sum and the bias.
    pub activation: u32,
    /// Groups.
    pub groups: u32,
    /// Filters of a group in the result, and in a part.
    pub filters: [u32; 2],
    /// Taps.
    pub taps: u32,
    /// Channels of a group in the result, and in a part.
    pub channels: [u32; 2],
}

impl Parts {
    /// Elements of the result.
    pub const fn elements(&self) -> u64 {
        self.groups as u64 * self.filters[0] as u64 * self.taps as u64 * self.channels[0] as u64
    }

    /// Neighbours that a thread adds: as many as a vector has, where channels are whole vectors and there are
    /// so many elements that all multiprocessors have threads enough.
    pub const fn width(&self) -> u32 {
        const MANY: u64 = 1 << 17;
        let [of_result, of_part] = self.channels;
        let is_whole = of_result.is_multiple_of(STORED) && of_part.is_multiple_of(STORED);
        if is_whole && self.elements() >= MANY { STORED } else { 1 }
    }

    /// Threads of a block that have elements. The more parts, the fewer: a thread adds about `UNDER_WAY` of
    /// them, and the fewest fill a sector.
    pub const fn across(&self) -> u32 {
        const FEWEST: u32 = 8;
        let mut across = SUM_THREADS;
        while across > FEWEST && self.parts > SUM_THREADS / across * UNDER_WAY {
            across /= 2;
        }
        across
    }

    /// Blocks of [`conv_sum_parts`](fn@conv_sum_parts).
    pub const fn blocks(&self) -> u64 {
        self.elements().div_ceil((self.across() * self.width()) as u64)
    }
}

/// Adds the parts of each element and its channel's bias, if there is one, applies the activation, and rounds
/// to the [`Stored`] type. The first threads of a block have an element each, or [`Parts::width`] neighbours,
/// and as many behind them further parts of the same ones, again and again: each adds its own in ascending
/// order, and the first adds theirs.
///
/// # Safety
/// `sums` is valid for reads of all parts, `bias`, if not null, for those of a number of the type for each
/// channel, `result` for writes of [`Parts::elements`] elements of the type, below 2^32, apart from all else;
/// sums and result begin at whole vectors. The grid has [`Parts::blocks`] of [`SUM_THREADS`] threads with
/// [`SUM_SHARED_BYTES`] of dynamic shared memory.
#[kernel(launch_bounds(SUM_THREADS))]
pub unsafe fn conv_sum_parts(shape: Parts, sums: *const f32, bias: *const u8, result: *mut u8) {
    grid::launch_dependents();
    grid::wait_dependencies();
    // SAFETY: the caller's contract.
    unsafe {
        if shape.width() == 1 {
            add_parts::<1>(&shape, sums, bias, result);
        } else {
            add_parts::<{ STORED as usize }>(&shape, sums, bias, result);
        }
    }
}

/// # Safety
/// As [`conv_sum_parts`](fn@conv_sum_parts), where a thread has `N` neighbours.
#[inline(always)]
unsafe fn add_parts<const N: usize>(shape: &Parts, sums: *const f32, bias: *const u8, result: *mut u8) {
    let Parts { parts, filters, taps, channels, .. } = *shape;
    let across = shape.across();
    let (split, own) = (thread::thread_idx_x() / across, thread::thread_idx_x() % across);
    let splits = SUM_THREADS / across;
    let place = (thread::block_idx_x() * across + own) * N as u32;
    let is_there = u64::from(place) < shape.elements();
    let channel = Odometer::new(place, taps, channels[0]);
    let filter = Odometer::new(channel.high, 1, filters[0]);
    let row = u64::from(filter.high) * u64::from(filters[1]) + u64::from(filter.low);
    let first =
        (row * u64::from(taps) + u64::from(channel.middle)) * u64::from(channels[1]) + u64::from(channel.low);
    let mut sum = [0.0; N];
    let mut part = split;
    let first = sums.wrapping_add(first as usize);
    while part < parts {
        let mut few = [[0.0; N]; UNDER_WAY as usize];
        unroll!(I in 0..8, {
            let part = part + I as u32 * splits;
            let at = first.wrapping_add((u64::from(part) * shape.sums) as usize);
            // SAFETY: a part's numbers at this place, if there are both.
            few[I] = unsafe { load_if(at, is_there & (part < parts)) };
        });
        unroll!(I in 0..8, { sum = zip(sum, few[I], |sum, part| sum + part); });
        part += UNDER_WAY * splits;
    }
    let base = shared::address_of(shared::dynamic_shared_mem::<u8>());
    // SAFETY: the thread's places, and those of others that have parts of the same elements; elements of the
    // result, which are this thread's.
    unsafe {
        if splits > 1 {
            let at = base + thread::thread_idx_x() * N as u32 * F32;
            for i in 0..N {
                vector::store_shared(at + i as u32 * F32, sum[i].to_bits());
            }
            thread::sync_threads();
        }
        if split > 0 || !is_there {
            return;
        }
        let mut other = 1;
        while other < splits {
            let at = base + (other * across + own) * N as u32 * F32;
            for i in 0..N {
                sum[i] += f32::from_bits(vector::load_shared(at + i as u32 * F32));
            }
            other += 1;
        }
        finish(shape, sum, bias, channel.low as usize, result, place as usize);
    }
}

/// `N` numbers, or zeros.
///
/// # Safety
/// They are there, at a whole vector, if `is_there`.
#[inline(always)]
unsafe fn load_if<const N: usize>(at: *const f32, is_there: bool) -> [f32; N] {
    // SAFETY: the caller's promise.
    unsafe {
        if N == 1 {
            [vector::load_if(at, is_there); N]
        } else if is_there {
            access::load(at)
        } else {
            [0.0; N]
        }
    }
}

/// Stores the results of `N` channels.
///
/// # Safety
/// As [`conv_sum_parts`](fn@conv_sum_parts); they begin at this channel, and at this place of the result.
#[inline(always)]
unsafe fn finish<const N: usize>(
    shape: &Parts,
    mut sum: [f32; N],
    bias: *const u8,
    channel: usize,
    result: *mut u8,
    place: usize,
) {
    let stored = shape.stored;
    // SAFETY: the caller's promise.
    unsafe {
        if !bias.is_null() {
            for i in 0..N {
                sum[i] += bias_of(stored, bias, channel + i);
            }
        }
        let activation = Activation::from_code(shape.activation);
        let sum = map(sum, |sum| activation.apply::<Fast>(sum));
        if stored == Stored::F32 as u32 {
            access::store(result.cast::<f32>().add(place), sum);
        } else if stored == Stored::F16 as u32 {
            access::store(result.cast::<f16>().add(place), f16::narrow(sum));
        } else {
            access::store(result.cast::<bf16>().add(place), bf16::narrow(sum));
        }
    }
}

/// The bias of a channel.
///
/// # Safety
/// There is one of the [`Stored`] type.
#[inline(always)]
unsafe fn bias_of(stored: u32, bias: *const u8, channel: usize) -> f32 {
    // SAFETY: the caller's promise.
    unsafe {
        if stored == Stored::F32 as u32 {
            *bias.cast::<f32>().add(channel)
        } else if stored == Stored::F16 as u32 {
            let [wide] = f16::widen([*bias.cast::<f16>().add(channel)]);
            wide
        } else {
            let [wide] = bf16::widen([*bias.cast::<bf16>().add(channel)]);
            wide
        }
    }
}

/// The shape of a block, as far as this product asks.
trait Shape {
    const HEIGHT: u32;
    const A_BYTES: u32;
    const PITCH: u32;
    /// Positions of which a thread copies a unit of A a piece.
    const A_ROWS: usize;

    /// # Safety
    /// As for [`Block::products`].
    unsafe fn products<E: Element>(base: u32, pieces: u32, copy: impl FnMut(u32));
}

impl<const DOWN: u32, const ACROSS: u32, const HIGH: usize, const PAIRS: usize> Shape
    for Block<DOWN, ACROSS, HIGH, PAIRS>
{
    const HEIGHT: u32 = Self::HEIGHT;
    const A_BYTES: u32 = Self::A_BYTES;
    const PITCH: u32 = Self::PITCH;
    const A_ROWS: usize = (Self::HEIGHT * UNITS / Self::THREADS) as usize;

    #[inline(always)]
    unsafe fn products<E: Element>(base: u32, pieces: u32, mut copy: impl FnMut(u32)) {
        // SAFETY: the caller's contract is the same.
        unsafe { Self::products::<E, true, true>(base, pieces, |stage, _| copy(stage)) }
    }
}

struct Operands<'a, E: Multiplied> {
    weights: &'a Weights,
    gradient: *const E::Stored,
    input: *const E::Stored,
    sums: *mut f32,
}

impl<E: Multiplied> Operands<'_, E> {
    /// The block's tile and part of every group that falls to it.
    ///
    /// # Safety
    /// As the kernels.
    #[inline(always)]
    unsafe fn run<S: Shape>(&self) {
        let Weights { problem, part } = *self.weights;
        let Convolution { groups, channels, filters, .. } = problem;
        let (down, across) = (filters.div_ceil(S::HEIGHT), problem.filter_elements().div_ceil(Tile::COLUMNS));
        let (row, column) = grouped_tile(thread::block_idx_x(), down, across, RASTER_GROUP);
        let (row, column) = (row * S::HEIGHT, column * Tile::COLUMNS);
        let first = thread::block_idx_y() * part;
        let end = problem.outputs().min(first + part);
        let base = shared::address_of(shared::dynamic_shared_mem::<u8>());
        let mut group = thread::block_idx_z();
        while group < groups {
            let gradient = self.gradient.wrapping_add((group * filters) as usize);
            let mut positions: Positions<E> = Positions::new::<S>(gradient, &problem, row, [first, end]);
            let input = self.input.wrapping_add((group * channels) as usize);
            let mut patches: Patches<E> = Patches::new(input, &problem, column, [first, end]);
            // SAFETY: the caller's contract; a barrier parts the reads of the sums from the next copies.
            unsafe {
                S::products::<E>(base, (end - first).div_ceil(E::DEPTH), |stage| {
                    positions.copy::<S>(stage);
                    patches.copy(stage + S::A_BYTES);
                });
                self.store::<S>(base, group, row, column);
                thread::sync_threads();
            }
            group += thread::grid_dim_z();
        }
    }

    /// Stores the sums in shared memory at `base`.
    ///
    /// # Safety
    /// As the kernels; the whole block calls it, behind the barrier after which all sums are there.
    #[inline(always)]
    unsafe fn store<S: Shape>(&self, base: u32, group: u32, row: u32, column: u32) {
        const UNITS: u32 = Tile::COLUMNS / STORED;
        let Convolution { filters, .. } = self.weights.problem;
        let length = self.weights.problem.filter_elements();
        let (unit, mut line) = (thread::thread_idx_x() % UNITS, thread::thread_idx_x() / UNITS);
        let column = column + unit * STORED;
        let part = u64::from(thread::block_idx_y()) * self.weights.sums();
        // SAFETY: filters and columns of the part, which are the block's alone; sums of the block.
        unsafe {
            while line < S::HEIGHT && row + line < filters {
                let filter = u64::from(group) * u64::from(filters) + u64::from(row + line);
                let to = self.sums.add((part + filter * u64::from(length) + u64::from(column)) as usize);
                let sums: [f32; 4] = vector::load_shared_v4(base + (line * S::PITCH + unit * STORED) * F32);
                // Buffers begin at whole units, and lines are some.
                if column < length {
                    vector::store_v4(to, sums);
                }
                line += Tile::THREADS / UNITS;
            }
        }
    }
}

/// A thread's part of A: a unit of filters of some positions a piece.
struct Positions<E: Multiplied> {
    base: *const E::Stored,
    /// The unit's place at the thread's first position, the next piece's, and from a position to the next.
    place: u64,
    pitch: u32,
    /// That position, and the one behind the last; none where there is no such filter.
    next: u32,
    end: u32,
}

impl<E: Multiplied> Positions<E> {
    #[inline(always)]
    fn new<S: Shape>(
        base: *const E::Stored,
        problem: &Convolution,
        row: u32,
        [first, end]: [u32; 2],
    ) -> Self {
        let units = S::HEIGHT / E::UNIT;
        let (unit, line) = (thread::thread_idx_x() % units, thread::thread_idx_x() / units);
        let (filter, next) = (row + unit * E::UNIT, first + line);
        let pitch = problem.groups * problem.filters;
        Self {
            base,
            place: u64::from(next) * u64::from(pitch) + u64::from(filter),
            pitch,
            next,
            end: if filter < problem.filters { end } else { 0 },
        }
    }

    /// Starts this thread's copies of the next piece into the stage at the shared address `stage`.
    ///
    /// # Safety
    /// Nobody uses the stage; the block calls it together.
    #[inline(always)]
    unsafe fn copy<S: Shape>(&mut self, stage: u32) {
        let units = S::HEIGHT / E::UNIT;
        let (unit, line, at_once) =
            (thread::thread_idx_x() % units, thread::thread_idx_x() / units, Tile::THREADS / units);
        unroll!(I in 0..2, { if I < S::A_ROWS {
            let k = I as u32 * at_once;
            let to = stage + place_across::<E>(line + k, unit, S::HEIGHT);
            let place = self.place + u64::from(k) * u64::from(self.pitch);
            // SAFETY: a unit of a position, or none; its place is this thread's.
            unsafe { copy_unit(to, self.base, if self.next + k < self.end { Some(place) } else { None }) };
        } });
        self.next += E::DEPTH;
        self.place += u64::from(E::DEPTH) * u64::from(self.pitch);
    }
}

/// A thread's part of B: a unit of channels at one tap, of two positions a piece.
struct Patches<E: Multiplied> {
    base: *const E::Stored,
    /// Elements from a position of the input to the next.
    pitch: u32,
    /// The unit's channel.
    channel: u32,
    /// Where the tap of the first position is: before the input's first row and column, if padding is.
    corner: [u32; 2],
    strides: [u32; 2],
    limits: [u32; 2],
    /// Images and positions, the next piece's.
    at: [Odometer; ROWS],
    piece: [u32; 3],
    /// The next piece's first position of the thread, and the one behind the last; none where there is no
    /// such column.
    next: u32,
    end: u32,
}

impl<E: Multiplied> Patches<E> {
    /// Units of a position.
    const UNITS: u32 = Tile::COLUMNS / E::UNIT;
    /// Positions of which the block copies units at once.
    const AT_ONCE: u32 = Tile::THREADS / Self::UNITS;

    #[inline(always)]
    fn new(base: *const E::Stored, problem: &Convolution, column: u32, [first, end]: [u32; 2]) -> Self {
        let Convolution { groups, channels, height, width, .. } = *problem;
        let (unit, line) = (thread::thread_idx_x() % Self::UNITS, thread::thread_idx_x() / Self::UNITS);
        let column = column + unit * E::UNIT;
        let at = |number: u32| Odometer::new(number, height.output, width.output);
        let tap = Odometer::new(column, width.filter, channels);
        let next = first + line;
        Self {
            base,
            pitch: groups * channels,
            channel: tap.low,
            corner: [
                (tap.high * height.dilation).wrapping_sub(height.padding),
                (tap.middle * width.dilation).wrapping_sub(width.padding),
            ],
            strides: [height.stride, width.stride],
            limits: [height.input, width.input],
            at: [at(next), at(next + Self::AT_ONCE)],
            piece: at(E::DEPTH).digits(),
            next,
            end: if column < problem.filter_elements() { end } else { 0 },
        }
    }

    /// The place of a position's unit, if there is one.
    #[inline(always)]
    fn place(&self, at: &Odometer) -> Option<u64> {
        let y = (at.middle * self.strides[0]).wrapping_add(self.corner[0]);
        let x = (at.low * self.strides[1]).wrapping_add(self.corner[1]);
        let [down, across] = self.limits;
        let inside = y < down && x < across;
        let position = at.high.wrapping_mul(down).wrapping_add(y).wrapping_mul(across).wrapping_add(x);
        inside.then_some(u64::from(position) * u64::from(self.pitch) + u64::from(self.channel))
    }

    /// As [`Positions::copy`].
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    unsafe fn copy(&mut self, stage: u32) {
        let (unit, line) = (thread::thread_idx_x() % Self::UNITS, thread::thread_idx_x() / Self::UNITS);
        unroll!(I in 0..2, {
            let k = I as u32 * Self::AT_ONCE;
            let to = stage + place_across::<E>(line + k, unit, Tile::COLUMNS);
            let place = if self.next + k < self.end { self.place(&self.at[I]) } else { None };
            // SAFETY: a unit of the input, or none; its place is this thread's.
            unsafe { copy_unit(to, self.base, place) };
            self.at[I].add(self.piece);
        });
        self.next += E::DEPTH;
    }
}
