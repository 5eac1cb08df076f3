//! The result of a convolution, and the gradient of its input, on the tensor cores of sm_80 and later: one
//! product of matrices that are gathered while they are multiplied.
//!
//! ```text
//!                 k: taps (r, s), and for each the channels              a block: 128 rows by 128 (64) columns
//!               +-----------+-----------+-----------+
//!   row (n,p,q) | x at tap  | x at tap  |  ...      |   by   B[k, column] = filter[column, r, s, channel]
//!               |  (0, 0)   |  (0, 1)   |           |   (backward: = filter[k's channel, r, s, column])
//!               +-----------+-----------+-----------+
//! ```
//! * **A** is never written. A row is a position of the result; a unit of 16 bytes of it is 16 bytes of
//!   channels of one position of the input, copied by `cp.async` straight from there, or zeros where the
//!   window hangs over the edge. A thread copies a unit of two rows a piece; where a row's window begins is
//!   computed once, and the tap counts on from piece to piece ([`Odometer`]): no division.
//! * **Backward**, rows are positions of the input, and what they read is the result's gradient. Positions of
//!   one residue class modulo the strides meet the same taps, at successive positions of the result
//!   ([`Walk::backward`]): each class is a product of its own, with its taps alone. Blocks along z take them.
//! * **Channels** of a group are whole units; the host pads others with zeros.
//! * **Epilogue**: `activation(sum + bias)`, rounded once, 16 bytes a store where rows allow.
//!
//! | a block | registers a thread | bytes of shared memory | a piece of 64 bytes of k |
//! |---|---|---|---|
//! | 128 x 128 ([`Tile::Wide`]), 8 warps of 64 x 32 | 64 sums, 24 fragments | 69,632 (4 stages of 16 KiB; the sums) | 8 + 8 KiB, 64 instructions a warp |
//! | 128 x 64 ([`Tile::Narrow`]), 8 warps of 32 x 32 | 32 sums, 16 fragments | 49,152 | 8 + 4 KiB, 16 a warp for each 16 of k |
//!
//! Two blocks share a multiprocessor. Sums are f32, taps in their order, channels ascending: the bits do not
//! depend on the grid. f32 is read as tf32, 19 of its 32 bits.

use cuda_std::{kernel, shared, thread, vector};
use half::{bf16, f16};
use layout::grouped_tile;
use primitives::access;
use primitives::activation::{Activation, Fast};
use primitives::element::Element as _;
use primitives::mma::stage::{UNITS, place_across, place_along};
use primitives::mma::{Bf16, Block, Element, F16, Tf32};
use primitives::unroll;

use crate::element::{Multiplied, copy_unit};
use crate::problem::{Convolution, Odometer, Pass, Walk};

/// Tiles of a raster group: blocks walk down so many before they go to the next column of tiles.
const RASTER_GROUP: u32 = 8;
/// Rows of A of which a thread copies a unit a piece.
const ROWS: usize = 2;
/// Bytes of a sum.
const F32: u32 = size_of::<f32>() as u32;
/// Elements that a thread finishes at a time.
const FINISHED: usize = 4;

type Wide = Block<2, 4, 4, 2>;
type Narrow = Block<4, 2, 2, 2>;

/// Which block computes a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tile {
    /// 128 x 128.
    Wide,
    /// 128 x 64.
    Narrow,
}

impl Tile {
    /// Rows of a block.
    pub const ROWS: u32 = Wide::HEIGHT;
    /// Threads of a block.
    pub const THREADS: u32 = Wide::THREADS;

    /// Columns of a block.
    pub const fn columns(self) -> u32 {
        match self {
            Self::Wide => Wide::WIDTH,
            Self::Narrow => Narrow::WIDTH,
        }
    }

    /// Dynamic shared memory of a block, bytes.
    pub const fn shared_bytes(self) -> u32 {
        match self {
            Self::Wide => Wide::SHARED_BYTES,
            Self::Narrow => Narrow::SHARED_BYTES,
        }
    }
}

const _: () = assert!(Narrow::HEIGHT == Tile::ROWS && Narrow::THREADS == Tile::THREADS);
const _: () =
    assert!(Tile::ROWS * UNITS == Tile::THREADS * ROWS as u32, "a thread copies so many rows' units");

/// A gather: which convolution, which way, and what is applied at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Gather {
    /// The convolution. Channels and filters of a group, as they lie in memory, are whole units of 16 bytes
    /// where a tap sums over them, and channels are where filters are read by columns (backward).
    pub problem: Convolution,
    /// Columns of a group that are computed: its filters or, backward, its channels, without padding.
    pub columns: u32,
    /// A [`Pass`].
    pub pass: u32,
    /// An [`Activation`] of one column, applied at the end.
    pub activation: u32,
    /// 1 when there is a bias, else 0.
    pub has_bias: u32,
}

impl Gather {
    /// Classes of positions, along the height and the width: products of their own.
    pub const fn classes(&self) -> [u32; 2] {
        if self.is_forward() { [1, 1] } else { [self.problem.height.classes(), self.problem.width.classes()] }
    }

    /// Blocks along x, for the class with the most rows.
    pub const fn blocks(&self, tile: Tile) -> u64 {
        let (height, width) = self.walks([0, 0]);
        let rows = self.problem.images as u64 * height.count as u64 * width.count as u64;
        rows.div_ceil(Tile::ROWS as u64) * self.columns.div_ceil(tile.columns()) as u64
    }

    /// Products: blocks along z take every `gridDim.z`-th.
    pub const fn products(&self) -> u64 {
        let [down, across] = self.classes();
        down as u64 * across as u64 * self.problem.groups as u64
    }

    /// Whether it computes results.
    #[inline(always)]
    pub const fn is_forward(&self) -> bool {
        self.pass == Pass::Forward as u32
    }

    #[inline(always)]
    pub(crate) const fn walks(&self, class: [u32; 2]) -> (Walk, Walk) {
        let Convolution { height, width, .. } = &self.problem;
        if self.is_forward() {
            (Walk::forward(height), Walk::forward(width))
        } else {
            (Walk::backward(height, class[0]), Walk::backward(width, class[1]))
        }
    }
}

macro_rules! kernels {
    ($($name:ident: $block:ident, $element:ident, $stored:ident, $doc:literal;)*) => { $(
        #[doc = $doc]
        /// See the module.
        ///
        /// # Safety
        /// `read` and `filter` begin at whole units and are valid for reads of what the problem says: the
        /// input or, backward, the result's gradient, and the filters; `bias`, if there is one, of a number
        /// for each column of every group. `result` is valid for writes of the columns of every position,
        /// apart from all else. [`Gather::blocks`] blocks along x, at least one along z, of
        /// [`Tile::THREADS`] threads with [`Tile::shared_bytes`] of dynamic shared memory.
        #[kernel(launch_bounds(Tile::THREADS, $block::RESIDENT))]
        pub unsafe fn $name(
            gather: Gather,
            read: *const $stored,
            filter: *const $stored,
            bias: *const $stored,
            result: *mut $stored,
        ) {
            // SAFETY: the caller's contract.
            unsafe { Operands::<$element> { gather: &gather, read, filter, bias, result }.run::<$block>() }
        }
    )* };
}

kernels! {
    conv_gather_f16: Wide, F16, f16, "f16, 128 x 128 a block.";
    conv_gather_bf16: Wide, Bf16, bf16, "bf16, 128 x 128 a block.";
    conv_gather_tf32: Wide, Tf32, f32, "f32 as tf32, 128 x 128 a block.";
    conv_gather_f16_narrow: Narrow, F16, f16, "f16, 128 x 64 a block.";
    conv_gather_bf16_narrow: Narrow, Bf16, bf16, "bf16, 128 x 64 a block.";
    conv_gather_tf32_narrow: Narrow, Tf32, f32, "f32 as tf32, 128 x 64 a block.";
}

/// The shape of a block, as far as the gather asks.
trait Shape {
    const WIDTH: u32;
    const A_BYTES: u32;
    const PITCH: u32;
    /// Lines of B, or rows of k where it lies across, of which a thread copies a unit a piece.
    const B_ROWS: usize;

    /// # Safety
    /// As for [`Block::products`].
    unsafe fn products<E: Element, const B_ACROSS: bool>(base: u32, pieces: u32, copy: impl FnMut(u32));
}

impl<const DOWN: u32, const ACROSS: u32, const HIGH: usize, const PAIRS: usize> Shape
    for Block<DOWN, ACROSS, HIGH, PAIRS>
{
    const WIDTH: u32 = Self::WIDTH;
    const A_BYTES: u32 = Self::A_BYTES;
    const PITCH: u32 = Self::PITCH;
    const B_ROWS: usize = (Self::WIDTH * UNITS / Self::THREADS) as usize;

    #[inline(always)]
    unsafe fn products<E: Element, const B_ACROSS: bool>(base: u32, pieces: u32, mut copy: impl FnMut(u32)) {
        // SAFETY: the caller's contract is the same.
        unsafe { Self::products::<E, false, B_ACROSS>(base, pieces, |stage, _| copy(stage)) }
    }
}

/// The operands of a gather.
struct Operands<'a, E: Multiplied> {
    gather: &'a Gather,
    read: *const E::Stored,
    filter: *const E::Stored,
    bias: *const E::Stored,
    result: *mut E::Stored,
}

/// A product: the walks along both axes, and a group.
#[derive(Clone, Copy)]
struct Product {
    height: Walk,
    width: Walk,
    group: u32,
    /// Channels of a group that a tap sums over.
    depth: u32,
    /// Columns of a group.
    columns: u32,
    /// The block's first row and column.
    row: u32,
    column: u32,
}

impl Product {
    /// Rows of A.
    #[inline(always)]
    const fn rows(&self, images: u32) -> u32 {
        images * self.height.count * self.width.count
    }

    /// Columns of A.
    #[inline(always)]
    const fn k(&self) -> u32 {
        self.height.taps * self.width.taps * self.depth
    }
}

impl<E: Multiplied> Operands<'_, E> {
    /// The block's tile of every product that falls to it.
    ///
    /// # Safety
    /// As the kernels.
    #[inline(always)]
    unsafe fn run<S: Shape>(&self) {
        let Convolution { images, groups, .. } = self.gather.problem;
        let [_, across] = self.gather.classes();
        let groups = groups.max(1);
        let mut index = thread::block_idx_z();
        let products = self.gather.products() as u32;
        while index < products {
            let (class, group) = (index / groups, index % groups);
            let (height, width) = self.gather.walks([class / across.max(1), class % across.max(1)]);
            let Gather { columns, problem: Convolution { channels, filters, .. }, .. } = *self.gather;
            let depth = if self.gather.is_forward() { channels } else { filters };
            let mut product = Product { height, width, group, depth, columns, row: 0, column: 0 };
            let rows = product.rows(images);
            let down = rows.div_ceil(Tile::ROWS);
            // A class of few rows has fewer tiles than there are blocks.
            if thread::block_idx_x() < down * columns.div_ceil(S::WIDTH) {
                let tile =
                    grouped_tile(thread::block_idx_x(), down, columns.div_ceil(S::WIDTH), RASTER_GROUP);
                (product.row, product.column) = (tile.0 * Tile::ROWS, tile.1 * S::WIDTH);
                // SAFETY: the caller's contract.
                unsafe { self.tile::<S>(&product) }
            }
            index += thread::grid_dim_z();
        }
    }

    /// A tile of a product.
    ///
    /// # Safety
    /// As the kernels; the whole block calls it.
    #[inline(always)]
    unsafe fn tile<S: Shape>(&self, product: &Product) {
        let base = shared::address_of(shared::dynamic_shared_mem::<u8>());
        let problem = &self.gather.problem;
        let pieces = product.k().div_ceil(E::DEPTH);
        let pitch = problem.groups * product.depth;
        let read = self.read.wrapping_add((product.group * product.depth) as usize);
        let mut windows: Windows<E> = Windows::new(read, pitch, product, problem.images);
        // SAFETY: the caller's contract; a barrier parts the reads of the sums from the next copies.
        unsafe {
            if self.gather.is_forward() {
                let mut lines: Filters<E> = Filters::new::<S>(self.filter, problem, product);
                S::products::<E, false>(base, pieces, |stage| {
                    windows.copy(stage);
                    lines.copy::<S>(stage + S::A_BYTES);
                });
            } else {
                let mut taps: Taps<E> = Taps::new::<S>(self.filter, problem, product);
                S::products::<E, true>(base, pieces, |stage| {
                    windows.copy(stage);
                    taps.copy::<S>(stage + S::A_BYTES);
                });
            }
            self.store::<S>(base, product);
            thread::sync_threads();
        }
    }

    /// Stores the tile whose sums are in shared memory at `base`.
    ///
    /// # Safety
    /// As the kernels; the whole block calls it, behind the barrier after which all sums are there.
    #[inline(always)]
    unsafe fn store<S: Shape>(&self, base: u32, product: &Product) {
        let Convolution { images, groups, height, width, .. } = self.gather.problem;
        let (across, down) = if self.gather.is_forward() {
            (width.output, height.output)
        } else {
            (width.input, height.input)
        };
        let activation = Activation::from_code(self.gather.activation);
        let rows = product.rows(images);
        let units = S::WIDTH / FINISHED as u32;
        let pitch = u64::from(groups) * u64::from(product.columns);
        let (unit, mut line) = (thread::thread_idx_x() % units, thread::thread_idx_x() / units);
        let column = product.column + unit * FINISHED as u32;
        let left = product.columns.saturating_sub(column).min(FINISHED as u32);
        let first = u64::from(product.group) * u64::from(product.columns) + u64::from(column);
        let is_wide = left == FINISHED as u32
            && (self.result as u64 | ((pitch | first) * size_of::<E::Stored>() as u64))
                .is_multiple_of((FINISHED * size_of::<E::Stored>()) as u64);
        // SAFETY: columns and rows of the result, which are the block's alone; sums of the block.
        unsafe {
            let bias = self.bias(first, left);
            while line < Tile::ROWS && product.row + line < rows {
                let at = Odometer::new(product.row + line, product.height.count, product.width.count);
                let y = product.height.first + at.middle * product.height.step;
                let x = product.width.first + at.low * product.width.step;
                let place = u64::from((at.high * down + y) * across + x) * pitch + first;
                let sums: [f32; FINISHED] =
                    vector::load_shared_v4(base + (line * S::PITCH + unit * FINISHED as u32) * F32);
                let mut values = [0.0; FINISHED];
                unroll!(I in 0..4, { values[I] = activation.apply::<Fast>(sums[I] + bias[I]); });
                let to = self.result.add(place as usize);
                let narrow = E::Stored::narrow(values);
                let [a, b, c, d, ..] = access::to_wide(narrow);
                if is_wide && E::BYTES == 2 {
                    vector::store_v2(to.cast(), [a, b]);
                } else if is_wide {
                    vector::store_v4(to.cast(), [a, b, c, d]);
                } else {
                    unroll!(I in 0..4, {
                        if (I as u32) < left { *to.add(I) = narrow[I]; }
                    });
                }
                line += Tile::THREADS / units;
            }
        }
    }

    /// The bias of the thread's columns.
    ///
    /// # Safety
    /// As the kernels.
    #[inline(always)]
    unsafe fn bias(&self, first: u64, count: u32) -> [f32; FINISHED] {
        let mut bias = [0.0; FINISHED];
        if self.gather.has_bias != 0 {
            unroll!(I in 0..4, {
                if (I as u32) < count {
                    // SAFETY: a column of the result, and the bias has one for each.
                    let [wide] = E::Stored::widen([unsafe { *self.bias.add(first as usize + I) }]);
                    bias[I] = wide;
                }
            });
        }
        bias
    }
}

/// Where a row of A begins: the place of its window's corner, which may be outside of the image.
#[derive(Clone, Copy)]
struct Corner {
    position: u32,
    y: i32,
    x: i32,
}

/// A thread's part of A: a unit of two rows a piece.
struct Windows<E: Multiplied> {
    base: *const E::Stored,
    /// Elements from a position to the next.
    pitch: u32,
    corners: [Corner; ROWS],
    /// Tap and channel of the unit's first element, the next piece's.
    at: Odometer,
    /// The digits that a piece adds to them.
    piece: [u32; 3],
    taps: u32,
    advance: [i32; 2],
    limits: [u32; 2],
}

impl<E: Multiplied> Windows<E> {
    #[inline(always)]
    fn new(base: *const E::Stored, pitch: u32, product: &Product, images: u32) -> Self {
        let Product { height, width, depth, row, .. } = *product;
        let rows = product.rows(images);
        let (unit, line) = (thread::thread_idx_x() % UNITS, thread::thread_idx_x() / UNITS);
        let mut corners = [Corner { position: 0, y: i32::MIN / 2, x: 0 }; ROWS];
        unroll!(I in 0..2, {
            let row = row + line + I as u32 * (Tile::ROWS / ROWS as u32);
            // Rows behind the last have windows outside.
            if row < rows {
                let at = Odometer::new(row, height.count, width.count);
                let y = (at.middle * height.multiply) as i32 + height.from;
                let x = (at.low * width.multiply) as i32 + width.from;
                let line = (at.high * height.limit).wrapping_add(y as u32);
                corners[I] = Corner { position: line.wrapping_mul(width.limit).wrapping_add(x as u32), y, x };
            }
        });
        Self {
            base,
            pitch,
            corners,
            at: Odometer::new(unit * E::UNIT, width.taps, depth),
            piece: Odometer::new(E::DEPTH, width.taps, depth).digits(),
            taps: height.taps,
            advance: [height.advance, width.advance],
            limits: [height.limit, width.limit],
        }
    }

    /// The place of a row's unit, if there is one.
    #[inline(always)]
    fn place(&self, corner: Corner) -> Option<u64> {
        let at = &self.at;
        let down = (at.high as i32).wrapping_mul(self.advance[0]);
        let across = (at.middle as i32).wrapping_mul(self.advance[1]);
        let inside = at.high < self.taps
            && (corner.y.wrapping_add(down) as u32) < self.limits[0]
            && (corner.x.wrapping_add(across) as u32) < self.limits[1];
        let tap = (down as u32).wrapping_mul(self.limits[1]).wrapping_add(across as u32);
        let position = corner.position.wrapping_add(tap);
        inside.then_some(u64::from(position) * u64::from(self.pitch) + u64::from(at.low))
    }

    /// Starts this thread's copies of the next piece into the stage at the shared address `stage`.
    ///
    /// # Safety
    /// Nobody uses the stage; the block calls it together.
    #[inline(always)]
    unsafe fn copy(&mut self, stage: u32) {
        let (unit, line) = (thread::thread_idx_x() % UNITS, thread::thread_idx_x() / UNITS);
        unroll!(I in 0..2, {
            let to = stage + place_along(line + I as u32 * (Tile::ROWS / ROWS as u32), unit);
            let place = self.place(self.corners[I]);
            // SAFETY: a unit of what is read, by the caller's word, or none; its place is this thread's.
            unsafe { copy_unit(to, self.base, place) };
        });
        self.at.add(self.piece);
    }
}

/// A thread's part of B for the forward pass: lines are filters.
struct Filters<E: Multiplied> {
    base: *const E::Stored,
    /// The unit's place in the first line, the next piece's, and elements from a line of the thread to the
    /// next.
    place: u64,
    lines: u64,
    /// The unit's first element of k, the next piece's, and all of k.
    k: u32,
    length: u32,
    /// Lines from the thread's first one on.
    left: u32,
}

impl<E: Multiplied> Filters<E> {
    #[inline(always)]
    fn new<S: Shape>(base: *const E::Stored, problem: &Convolution, product: &Product) -> Self {
        let (unit, line) = (thread::thread_idx_x() % UNITS, thread::thread_idx_x() / UNITS);
        let (k, length) = (unit * E::UNIT, product.k());
        let line = product.column + line;
        let first = u64::from(product.group) * u64::from(problem.filters) + u64::from(line);
        Self {
            base,
            place: first * u64::from(length) + u64::from(k),
            lines: u64::from(Tile::THREADS / UNITS) * u64::from(length),
            k,
            length,
            left: problem.filters.saturating_sub(line),
        }
    }

    /// As [`Windows::copy`].
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    unsafe fn copy<S: Shape>(&mut self, stage: u32) {
        const LINES: u32 = Tile::THREADS / UNITS;
        let (unit, line) = (thread::thread_idx_x() % UNITS, thread::thread_idx_x() / UNITS);
        unroll!(I in 0..2, { if I < S::B_ROWS {
            let to = stage + place_along(line + I as u32 * LINES, unit);
            let has = self.k < self.length && I as u32 * LINES < self.left;
            let place = if has { Some(self.place + I as u64 * self.lines) } else { None };
            // SAFETY: a unit of a filter, or none; its place is this thread's.
            unsafe { copy_unit(to, self.base, place) };
        } });
        self.k += E::DEPTH;
        self.place += u64::from(E::DEPTH);
    }
}

/// A thread's part of B for the backward pass, `filter[k's channel, r, s, column]`: lying across.
struct Taps<E: Multiplied> {
    base: *const E::Stored,
    /// Elements of a filter, and from a tap to the next along both axes.
    strides: [u32; 3],
    /// Taps and filters of the rows of k, the next piece's.
    at: [Odometer; ROWS],
    piece: [u32; 3],
    /// Taps along the height; none where there is no such column.
    taps: u32,
}

impl<E: Multiplied> Taps<E> {
    #[inline(always)]
    fn new<S: Shape>(filter: *const E::Stored, problem: &Convolution, product: &Product) -> Self {
        let Product { height, width, group, depth, column, .. } = *product;
        let channels = problem.channels;
        let units = S::WIDTH / E::UNIT;
        let (unit, line) = (thread::thread_idx_x() % units, thread::thread_idx_x() / units);
        let column = column + unit * E::UNIT;
        let (row, length) = (problem.width.filter * channels, problem.filter_elements());
        let first = u64::from(group) * u64::from(depth) * u64::from(length)
            + u64::from(height.filter_first * row + width.filter_first * channels)
            + u64::from(column);
        let number = |i: u32| line + i * (Tile::THREADS / units);
        Self {
            base: filter.wrapping_add(first as usize),
            strides: [length, height.filter_step * row, width.filter_step * channels],
            at: [Odometer::new(number(0), width.taps, depth), Odometer::new(number(1), width.taps, depth)],
            piece: Odometer::new(E::DEPTH, width.taps, depth).digits(),
            taps: if column < channels { height.taps } else { 0 },
        }
    }

    /// As [`Windows::copy`].
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    unsafe fn copy<S: Shape>(&mut self, stage: u32) {
        let units = S::WIDTH / E::UNIT;
        let (unit, line) = (thread::thread_idx_x() % units, thread::thread_idx_x() / units);
        unroll!(I in 0..2, { if I < S::B_ROWS {
            let Odometer { high, middle, low, .. } = self.at[I];
            let [filter, down, across] = self.strides;
            let place = u64::from(low) * u64::from(filter) + u64::from(high * down + middle * across);
            let k = line + I as u32 * (Tile::THREADS / units);
            let to = stage + place_across::<E>(k, unit, S::WIDTH);
            // SAFETY: a unit of a filter, or none; its place is this thread's.
            unsafe { copy_unit(to, self.base, if high < self.taps { Some(place) } else { None }) };
            self.at[I].add(self.piece);
        } });
    }
}
