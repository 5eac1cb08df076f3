//! Tiles of rows in shared memory, which a block copies by `cp.async` and multiplies warp by warp: lines of
//! units of 16 bytes in the pattern of [`swizzle_units`]. A warp owns 16 lines of a tile.

use cuda_std::warp::{FULL_MASK, sync_warp};
use cuda_std::{async_copy, matrix, misc, thread, vector};
use layout::{UNIT_BYTES, swizzle_units};
use primitives::unroll;
use primitives::warp::LANES;

use super::config::{STEP_KEYS, WARP_ROWS};
use crate::decode::config::{Element, UNIT};
use crate::lines::Lines;
use crate::problem::{AttentionParams, Sequence, Strides, Visible};
use crate::softmax::{Scores, steps};

/// A thread's scores, or its sums.
///
/// # Safety
/// The type is an array of f32: all zero bits are a value of it.
pub unsafe trait Registers: Scores + Copy {
    /// Zeros.
    #[inline(always)]
    #[must_use]
    fn zero() -> Self {
        // SAFETY: the trait's contract.
        unsafe { core::mem::zeroed() }
    }
}

// SAFETY: it is one.
unsafe impl<const N: usize> Registers for [f32; N] {}

/// Number of the thread's warp, and of the thread in it.
#[inline(always)]
pub(super) fn place() -> (u32, u32) {
    let thread = thread::thread_idx_x();
    (thread / LANES, thread % LANES)
}

/// The tiles of a kernel. Constants with values follow from the others.
pub trait Shape: Copy + 'static {
    /// The element type.
    type Element: Element;
    /// Columns of a line: the largest head size.
    const HEAD: u32;
    /// Threads of a block, which copy.
    const THREADS: u32;
    /// Warps that share 16 lines.
    const SHARERS: u32 = 1;

    /// Bytes of a line.
    const BYTES: u32 = Self::HEAD * 2;
    /// Units of 16 bytes of it.
    const UNITS: u32 = Self::HEAD / UNIT;
    /// Lines that the block copies at a time.
    const ROWS: u32 = Self::THREADS / Self::UNITS;
}

/// Tiles in shared memory.
pub trait Height {
    /// Lines of each of them.
    const LINES: u32;
}

/// Checks that tiles can be copied and multiplied; called in a constant.
pub const fn check<S: Shape, H: Height>() {
    assert!(S::UNITS >= 8 && S::HEAD <= 256, "the swizzle has eight units; loops are counted out");
    assert!(H::LINES.is_multiple_of(S::ROWS) && H::LINES <= 16 * S::ROWS, "copies, counted out");
    assert!(H::LINES.is_multiple_of(STEP_KEYS), "whole steps");
}

/// The first line of a warp.
#[inline(always)]
pub(super) const fn first_line<S: Shape>(warp: u32) -> u32 {
    warp / S::SHARERS * WARP_ROWS
}

/// Rows of a head, from the first of a tile on.
#[derive(Clone, Copy)]
pub(super) struct Source {
    /// The first one.
    pub first: *const u16,
    /// Elements from a row to the next.
    pub stride: u64,
    /// How many there are, at least one.
    pub rows: u32,
}

/// Starts the thread's copies of a tile: one unit of 16 bytes of every `S::ROWS`-th line. Those of rows
/// behind the last one, and of columns behind the head's, are zeros.
///
/// # Safety
/// All threads of the block call it. The rows are readable; nobody reads where they come to.
#[inline(always)]
pub(super) unsafe fn copy<S: Shape, H: Height>(params: &AttentionParams, to: u32, from: Source) {
    // Opaque, so that each block computes these numbers anew and keeps none in registers.
    let thread = misc::opaque(thread::thread_idx_x());
    let (row, unit) = (thread / S::UNITS, thread % S::UNITS);
    let has_column = unit * UNIT < params.head_size;
    let column = if has_column { unit * UNIT } else { 0 };
    unroll!(I in 0..16, {
        if (I as u32) < H::LINES / S::ROWS {
            let line = row + I as u32 * S::ROWS;
            let (is_there, at) = (line < from.rows, line.min(from.rows - 1));
            let source = from.first.wrapping_add((u64::from(at) * from.stride) as usize + column as usize);
            let place = to + line * S::BYTES + swizzle_units(unit, line) * UNIT_BYTES;
            let bytes = if is_there && has_column { UNIT_BYTES } else { 0 };
            // SAFETY: a unit of a row that there is; this thread's place.
            unsafe { async_copy::copy_cg_zfill(place, source, bytes) }
        }
    });
}

/// Where rows of a head begin in tensors, and how many there are.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// First row.
    pub row: u32,
    /// Head.
    pub head: u32,
    /// Matrix of the batch.
    pub matrix: u32,
    /// Rows, at least one.
    pub rows: u32,
}

/// Starts copies of the rows of two tensors, such as K and V, one tile behind the other.
///
/// # Safety
/// As for [`copy`].
#[inline(always)]
pub(super) unsafe fn copy_pair<S: Shape, H: Height>(
    params: &AttentionParams,
    to: u32,
    pair: [(*const u16, Strides); 2],
    at: Place,
) {
    let Place { row, head, matrix, rows } = at;
    unroll!(WHICH in 0..2, {
        let (data, strides) = pair[WHICH];
        let first = data.wrapping_add(strides.at(row, head, matrix));
        let from = Source { first, stride: strides.row, rows };
        let to = to + WHICH as u32 * (H::LINES * S::BYTES);
        // SAFETY: the caller's contract.
        unsafe { copy::<S, H>(params, to, from) }
    });
}

/// `X Y^T` of the warp's lines of X, and of Y.
///
/// # Safety
/// The whole warp calls it; the lines lie there.
#[inline(always)]
pub(super) unsafe fn products<S: Shape, R: Registers>(x: u32, y: u32) -> R {
    let (warp, lane) = place();
    // Matrices: rows 0.. and 8.., unit 0; then unit 1.
    let line = first_line::<S>(warp) + lane % 16;
    let rows = Lines::of_tile(x, S::BYTES, line, lane / 16);
    // Matrices: keys 0.., unit 0 and unit 1; then keys 8...
    let columns = Lines::of_tile(y, S::BYTES, lane / 16 * 8 + lane % 8, lane / 8 % 2);
    let mut scores = R::zero();
    let sums = scores.as_mut();
    unroll!(STEP in 0..16, {
        if STEP < (S::HEAD / 16) as usize {
            // SAFETY: units of X; the whole warp is here.
            let a = unsafe { matrix::ldmatrix_x4(rows.at(STEP)) };
            unroll!(GROUP in 0..8, {
                if GROUP < groups::<R>() {
                    let at = columns.at(STEP) + GROUP as u32 * (STEP_KEYS * S::BYTES);
                    // SAFETY: units of Y; the whole warp is here.
                    unsafe {
                        let b = matrix::ldmatrix_x4(at);
                        multiply::<S::Element>(sums, 8 * GROUP, a, [b[0], b[1]]);
                        multiply::<S::Element>(sums, 8 * GROUP + 4, a, [b[2], b[3]]);
                    }
                }
            });
        }
    });
    scores
}

/// `R += W Y` of a warp's numbers `W`, rounded, which are 16 by the lines of Y.
///
/// # Safety
/// As for [`products`].
#[inline(always)]
pub(super) unsafe fn add_product<S: Shape, W: Scores, R: Scores>(result: &mut R, weights: &W, y: u32) {
    let (_, lane) = place();
    // Matrices: keys 0.. and 8.., unit 0; then unit 1.
    let lines = Lines::of_tile(y, S::BYTES, lane % 16, lane / 16);
    let (x, result) = (weights.as_ref(), result.as_mut());
    unroll!(GROUP in 0..8, {
        if GROUP < groups::<W>() {
            let a = rounded::<S::Element>(x, GROUP);
            unroll!(PAIR in 0..16, {
                if PAIR < (S::HEAD / 16) as usize {
                    let at = lines.at(PAIR) + GROUP as u32 * (STEP_KEYS * S::BYTES);
                    // SAFETY: units of Y; the whole warp is here.
                    unsafe {
                        let b = matrix::ldmatrix_x4_trans(at);
                        multiply::<S::Element>(result, 8 * PAIR, a, [b[0], b[1]]);
                        multiply::<S::Element>(result, 8 * PAIR + 4, a, [b[2], b[3]]);
                    }
                }
            });
        }
    });
}

/// Groups of 16 columns of an array of scores.
#[inline(always)]
pub(super) const fn groups<S: Scores>() -> usize {
    steps::<S>() / 2
}

/// The scores of 16 columns as a left operand.
#[inline(always)]
pub(super) fn rounded<E: Element>(scores: &[f32], group: usize) -> [u32; 4] {
    let pack = |at: usize| E::pack(scores[8 * group + at], scores[8 * group + at + 1]);
    [pack(0), pack(2), pack(4), pack(6)]
}

/// Sets scores to minus infinity that are not among those that each of the thread's rows shows. The thread's
/// first score is that of this column.
#[inline(always)]
pub(super) fn hide<S: Scores>(scores: &mut S, rows: [Visible; 2], column: u32) {
    let x = scores.as_mut();
    unroll!(STEP in 0..16, {
        if STEP < steps::<S>() {
            unroll!(I in 0..4, {
                let column = column + 8 * STEP as u32 + (I % 2) as u32;
                let Visible { first, end } = rows[I / 2];
                if column < first || column >= end {
                    x[4 * STEP + I] = f32::NEG_INFINITY;
                }
            });
        }
    });
}

/// The same of keys that a query does not see: of the warp's queries in a tile from `first_row` on, and of
/// keys from `first_key` on.
#[inline(always)]
pub(super) fn hide_keys<S: Shape, R: Scores>(
    params: &AttentionParams,
    scores: &mut R,
    sequence: Sequence,
    first_row: u32,
    first_key: u32,
) {
    let (warp, lane) = place();
    let band = params.band;
    let row = first_row + first_line::<S>(warp) + lane / 4;
    let diagonal = band.diagonal(sequence.queries, sequence.keys) + row as i32;
    let rows = [band.visible(diagonal, sequence.keys), band.visible(diagonal + 8, sequence.keys)];
    hide(scores, rows, first_key + lane % 4 * 2);
}

/// The rows of a result, by the lines of a tile.
pub(super) trait Target: Copy {
    /// The first element of the head.
    fn first(self) -> *mut u16;
    /// Whether the sequence has the line's row.
    fn has(self, line: u32) -> bool;
    /// Elements from the first one to that row.
    fn row(self, line: u32) -> usize;
}

/// The rows of a tensor.
#[derive(Clone, Copy)]
pub(super) struct TensorRows {
    /// First element.
    pub data: *mut u16,
    /// Where rows begin.
    pub strides: Strides,
    /// Matrix of the batch.
    pub matrix: u32,
    /// Head.
    pub head: u32,
    /// First row of the sequence among all rows.
    pub sequence: u32,
    /// First row of the tile in the sequence.
    pub tile: u32,
    /// Rows of the sequence.
    pub end: u32,
}

impl Target for TensorRows {
    #[inline(always)]
    fn first(self) -> *mut u16 {
        self.data.wrapping_add(self.strides.at(0, self.head, self.matrix))
    }

    #[inline(always)]
    fn has(self, line: u32) -> bool {
        self.tile + line < self.end
    }

    #[inline(always)]
    fn row(self, line: u32) -> usize {
        (self.sequence + self.tile + line) as usize * self.strides.row as usize
    }
}

/// Stores the sums of the warp's lines, through the place of these lines of a tile, 16 bytes a lane.
///
/// # Safety
/// The whole warp calls it, and nobody reads the place any more; the rows are the warp's.
#[inline(always)]
pub(super) unsafe fn store<S: Shape, R: Scores>(
    params: &AttentionParams,
    through: u32,
    sums: &R,
    target: impl Target,
) {
    let (warp, lane) = place();
    let at = |line: u32, unit| through + line * S::BYTES + swizzle_units(unit, line) * UNIT_BYTES;
    let first = first_line::<S>(warp);
    let values = sums.as_ref();
    // SAFETY: places of the warp's lines; rows of the sequence.
    unsafe {
        unroll!(STEP in 0..32, {
            if STEP < S::UNITS as usize {
                unroll!(HALF in 0..2, {
                    let to = at(first + lane / 4 + 8 * HALF as u32, STEP as u32) + lane % 4 * 4;
                    let at = 4 * STEP + 2 * HALF;
                    vector::store_shared(to, S::Element::pack(values[at], values[at + 1]));
                });
            }
        });
        sync_warp(FULL_MASK);
        let to = target.first();
        let mut index = lane;
        while index < WARP_ROWS * S::UNITS {
            let (line, unit) = (first + index / S::UNITS, index % S::UNITS);
            if target.has(line) && unit * UNIT < params.head_size {
                let words: [u32; 4] = vector::load_shared_v4(at(line, unit));
                let row = target.row(line);
                vector::store_v4(to.wrapping_add(row + (unit * UNIT) as usize).cast::<u32>(), words);
            }
            index += LANES;
        }
    }
}

/// Adds a product to four of a thread's sums, from `at` on.
///
/// # Safety
/// The whole warp calls it.
#[inline(always)]
unsafe fn multiply<E: Element>(sums: &mut [f32], at: usize, a: [u32; 4], b: [u32; 2]) {
    let four = [sums[at], sums[at + 1], sums[at + 2], sums[at + 3]];
    // SAFETY: the caller's contract.
    let four = unsafe { E::multiply(a, b, four) };
    unroll!(I in 0..4, { sums[at + I] = four[I]; });
}
