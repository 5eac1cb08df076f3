//! Rows by their numbers: gathered, scattered, added up.
//!
//! Tensors are taken as `[outer, places, inner]`; the indices name places along the middle axis. They are
//! trusted: the host has checked them.
//!
//! Everything repeats bit for bit, also where several indices are the same. Of rows scattered to one place
//! the last one stays: a first launch marks it, by a maximum of numbers that comes out the same in any order.
//! Rows are added to a place in the order of their indices: a block owns some places, looks through all
//! indices, and does what it finds for them in that order. Where there are many indices a first launch counts
//! how many name each place; rows that are alone then go as in a scatter, and the blocks look for others.

use crate::access::{self, Plain};
use crate::{THREADS, VECTOR_BYTES};
use core::sync::atomic::{AtomicU64, Ordering};
use cuda_std::{kernel, shared_array, thread, warp};
use layout::Divisor;
use primitives::grid::begin;

/// Lanes of a warp, as indices count them.
const LANES: u64 = primitives::warp::LANES as u64;
/// Warps of a block.
const WARPS: usize = THREADS as usize / LANES as usize;
/// Destinations that a block of the additions owns, at least: fewer blocks look through the indices then.
const LEAST_OWNED: u64 = 4;
/// Blocks of the additions that fit a multiprocessor at once: registers are better spent than saved there.
const ADDING_BLOCKS: u32 = 4;
/// Blocks that keep every device busy.
const ENOUGH: u64 = 1024;
/// Units of a thread that moves rows: all their indices, then all their values are under way at a time.
const UNITS: u32 = 4;

/// The shape of a gather or a scatter, of which a launch does the rows from `first` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Moves {
    /// Places of the indexed axis.
    pub places: u64,
    /// Indices.
    pub indices: u64,
    /// The launch's first row, of all `outer * indices`.
    pub first: u64,
    /// The launch's rows.
    pub rows: u32,
    /// Units of a row. Together with the rows below 2^31.
    pub inner: u32,
    /// Division by `inner`.
    pub by_inner: Divisor,
}

impl Moves {
    /// Blocks, of [`THREADS`] threads.
    pub const fn blocks(&self) -> u64 {
        (self.rows as u64 * self.inner as u64).div_ceil(THREADS as u64 * UNITS as u64)
    }
}

/// A unit of the calling thread: where it lies.
#[derive(Clone, Copy)]
struct Unit {
    /// Is there such a unit? If not it stands for the last one, which may be read but is another's to write.
    exists: bool,
    /// The index of its row.
    index: usize,
    /// Its place on the dense side, and in its row.
    dense: usize,
    unit: usize,
    /// Its row's outer place.
    outer: u64,
}

impl Unit {
    /// Its place on the indexed side, where its row is `place`.
    #[inline(always)]
    fn indexed(self, moves: &Moves, place: i64) -> usize {
        (self.outer * moves.places + place.cast_unsigned()) as usize * moves.inner as usize + self.unit
    }
}

/// The calling thread's units. There is one at least in all.
#[inline(always)]
fn units(moves: &Moves) -> [Unit; UNITS as usize] {
    let count = moves.rows * moves.inner;
    let first =
        begin(|| thread::block_idx_x().wrapping_mul(THREADS * UNITS).wrapping_add(thread::thread_idx_x()));
    [0, 1, 2, 3].map(|i| {
        let number = first.wrapping_add(i * THREADS);
        let (row, unit) = moves.by_inner.divide(number.min(count.wrapping_sub(1)));
        let row = moves.first + u64::from(row);
        let indices = moves.indices.max(1);
        let (outer, index) = if row < indices { (0, row) } else { (row / indices, row % indices) };
        let dense = row as usize * moves.inner as usize + unit as usize;
        Unit { exists: number < count, index: index as usize, dense, unit: unit as usize, outer }
    })
}

/// Sixteen bytes.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub struct Unit16([u32; 4]);

/// An entry point for each size of units.
macro_rules! moves {
    ($($gather:ident, $scatter:ident: $ty:ident;)*) => { $(
        #[doc = concat!("`y[outer, i, ..] = x[outer, indices[i], ..]`, in units of the size of ", stringify!($ty), ".")]
        ///
        /// # Safety
        /// `x` and `y` hold what the shape says, `indices` as many as it says, all of them places of `x`; `y`
        /// overlaps neither. Blocks of [`THREADS`] threads, [`Moves::blocks`] of them.
        #[kernel(launch_bounds(THREADS))]
        pub unsafe fn $gather(moves: Moves, indices: *const i64, x: *const $ty, y: *mut $ty) {
            // SAFETY: the caller's promise; each thread writes units of its own.
            unsafe {
                let units = units(&moves);
                let places = units.map(|unit| *indices.add(unit.index));
                let values: [[$ty; 1]; UNITS as usize] =
                    core::array::from_fn(|i| access::load(x.add(units[i].indexed(&moves, places[i]))));
                for i in 0..UNITS as usize {
                    if units[i].exists {
                        access::store(y.add(units[i].dense), values[i]);
                    }
                }
            }
        }

        #[doc = concat!("`y[outer, indices[i], ..] = x[outer, i, ..]`, in units of the size of ", stringify!($ty), ".")]
        ///
        /// # Safety
        /// As for the gather, with `x` and `y` exchanged; `last` holds, for every place that is named, one
        /// more than the number of the last index that names it.
        #[kernel(launch_bounds(THREADS))]
        pub unsafe fn $scatter(moves: Moves, indices: *const i64, last: *const u64, x: *const $ty, y: *mut $ty) {
            // SAFETY: the caller's promise; one index for each place passes, so each thread writes units of
            // its own.
            unsafe {
                let units = units(&moves);
                let values: [[$ty; 1]; UNITS as usize] = units.map(|unit| access::load(x.add(unit.dense)));
                let places = units.map(|unit| *indices.add(unit.index));
                let lasts = places.map(|place| *last.add(place as usize));
                for i in 0..UNITS as usize {
                    if units[i].exists && lasts[i] == units[i].index as u64 + 1 {
                        access::store(y.add(units[i].indexed(&moves, places[i])), values[i]);
                    }
                }
            }
        }
    )* };
}

moves! {
    gather_b16, scatter_b16: Unit16;
    gather_b8, scatter_b8: u64;
    gather_b4, scatter_b4: u32;
    gather_b2, scatter_b2: u16;
    gather_b1, scatter_b1: u8;
}

/// Leaves in `last`, zeros before, for every place that is named one more than the number of the last index
/// that names it.
///
/// # Safety
/// `indices` holds `n`, all of them places of `last`. Blocks of [`THREADS`] threads, one for each index.
#[kernel(launch_bounds(THREADS))]
pub unsafe fn mark_last(n: u64, indices: *const i64, last: *mut u64) {
    let number =
        begin(|| u64::from(thread::block_idx_x()) * u64::from(THREADS) + u64::from(thread::thread_idx_x()));
    if number >= n {
        return;
    }
    // SAFETY: a place of `last`, reached by atomic instructions only.
    unsafe {
        let place = *indices.add(number as usize) as usize;
        AtomicU64::from_ptr(last.add(place)).fetch_max(number + 1, Ordering::Relaxed);
    }
}

/// Adds to `counts`, zeros before, for every place how many indices name it.
///
/// # Safety
/// `indices` holds `n`, all of them places of `counts`. Blocks of [`THREADS`] threads, one for each index.
#[kernel(launch_bounds(THREADS))]
pub unsafe fn count_indices(n: u64, indices: *const i64, counts: *mut u64) {
    let number =
        begin(|| u64::from(thread::block_idx_x()) * u64::from(THREADS) + u64::from(thread::thread_idx_x()));
    if number >= n {
        return;
    }
    // SAFETY: a place of `counts`, reached by atomic instructions only.
    unsafe {
        let place = *indices.add(number as usize) as usize;
        AtomicU64::from_ptr(counts.add(place)).fetch_add(1, Ordering::Relaxed);
    }
}

/// The shape of an addition of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Additions {
    /// Tensors, one behind the other.
    pub outer: u64,
    /// Places of the indexed axis.
    pub places: u64,
    /// Indices.
    pub indices: u64,
    /// Elements of a row.
    pub inner: u64,
    /// Places that a block owns.
    pub owned: u64,
}

impl Additions {
    /// How the places are dealt out.
    pub const fn new(outer: u64, places: u64, indices: u64, inner: u64) -> Self {
        let owned = places.div_ceil(ENOUGH);
        let owned = if owned < LEAST_OWNED { LEAST_OWNED } else { owned };
        Self { outer, places, indices, inner, owned }
    }

    /// Blocks, of [`THREADS`] threads.
    pub const fn blocks(&self) -> u64 {
        self.outer * self.places.div_ceil(self.owned)
    }
}

/// A type whose elements are added up.
trait Sum: Plain {
    fn plus(self, other: Self) -> Self;
}

macro_rules! sums {
    ($($ty:ident: |$a:ident, $b:ident| $sum:expr;)*) => { $(
        impl Sum for $ty {
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                let ($a, $b) = (self, other);
                $sum
            }
        }
    )* };
}

sums! {
    f64: |a, b| a + b;
    f32: |a, b| a + b;
    i64: |a, b| a.wrapping_add(b);
    i32: |a, b| a.wrapping_add(b);
}

/// `y[outer, indices[i], ..] += x[outer, i, ..]` for the indices that name a place alone, by units of `N`
/// elements.
///
/// # Safety
/// As the entries below.
#[inline(always)]
unsafe fn add_alone<T: Sum, const N: usize>(
    moves: &Moves,
    indices: *const i64,
    counts: *const u64,
    x: *const T,
    y: *mut T,
) {
    let units = units(moves);
    // SAFETY: the caller's promise; no other index names the place, so each thread writes units of its own.
    unsafe {
        let values = units.map(|unit| access::load::<T, N>(x.add(unit.dense * N)));
        let places = units.map(|unit| *indices.add(unit.index));
        let counts = places.map(|place| *counts.add(place as usize));
        let to: [*mut T; UNITS as usize] =
            core::array::from_fn(|i| y.add(units[i].indexed(moves, places[i]) * N));
        let is_alone = |i: usize| units[i].exists && counts[i] == 1;
        let old: [[T; N]; UNITS as usize] =
            core::array::from_fn(|i| if is_alone(i) { access::load(to[i]) } else { values[i] });
        for i in 0..UNITS as usize {
            if is_alone(i) {
                access::store(to[i], core::array::from_fn::<T, N, _>(|j| old[i][j].plus(values[i][j])));
            }
        }
    }
}

/// Does a place that the block owns, from `low` to `high`, have several rows?
///
/// # Safety
/// Every thread of the block calls it; `counts` has the places.
#[inline(always)]
unsafe fn has_several(lane: u64, [low, high]: [u64; 2], counts: *const u64) -> bool {
    let (mut place, mut several) = (low + lane, false);
    while place < high {
        // SAFETY: the caller's promise.
        several |= unsafe { *counts.add(place as usize) } > 1;
        place += u64::from(THREADS);
    }
    thread::sync_threads_or(several.into()) != 0
}

/// `y[outer, indices[i], ..] += x[outer, i, ..]`, `i` ascending; with `counts` only to places of several
/// rows.
///
/// # Safety
/// As the entries below.
#[inline(always)]
unsafe fn add_rows<T: Sum>(
    shape: &Additions,
    indices: *const i64,
    counts: *const u64,
    x: *const T,
    y: *mut T,
) {
    let (lane, block) = (u64::from(thread::thread_idx_x()), u64::from(thread::block_idx_x()));
    let blocks = shape.places.div_ceil(shape.owned.max(1)).max(1);
    let (outer, part) = (block / blocks, block % blocks);
    let (low, high) = (part * shape.owned, ((part + 1) * shape.owned).min(shape.places));
    // SAFETY: the whole block asks.
    if !counts.is_null() && !unsafe { has_several(lane, [low, high], counts) } {
        return;
    }
    let (found, marks) = (shared_array![u64; THREADS as usize], shared_array![u32; WARPS]);
    let mut start = 0;
    while start < shape.indices {
        let count = (shape.indices - start).min(THREADS.into());
        // SAFETY: an index of the part; one slot a thread. Every thread of the block comes here as often.
        unsafe {
            let place =
                if lane < count { (*indices.add((start + lane) as usize)).cast_unsigned() } else { u64::MAX };
            let is_owned =
                place >= low && place < high && (counts.is_null() || *counts.add(place as usize) > 1);
            *found.add(lane as usize) = place;
            let mark = warp::warp_vote_ballot(warp::FULL_MASK, is_owned);
            if lane % LANES == 0 {
                *marks.add((lane / LANES) as usize) = mark;
            }
            if thread::sync_threads_or(u32::from(is_owned)) != 0 {
                for warp in 0..WARPS {
                    let mut mark = *marks.add(warp);
                    while mark != 0 {
                        let number = warp as u64 * LANES + u64::from(mark.trailing_zeros());
                        mark &= mark - 1;
                        let place = *found.add(number as usize);
                        add_row(
                            shape,
                            lane,
                            [outer * shape.indices + start + number, outer * shape.places + place],
                            x,
                            y,
                        );
                    }
                }
                thread::sync_threads();
            }
        }
        start += u64::from(THREADS);
    }
}

/// Adds row `from` of `x` to row `to` of `y`. A thread keeps to its own columns, so what it adds is in order.
///
/// # Safety
/// There are such rows.
#[inline(always)]
unsafe fn add_row<T: Sum>(shape: &Additions, lane: u64, [from, to]: [u64; 2], x: *const T, y: *mut T) {
    // SAFETY: elements of the rows.
    unsafe {
        let (x, y) = (x.add((from * shape.inner) as usize), y.add((to * shape.inner) as usize));
        let mut column = lane;
        while column < shape.inner {
            let to = y.add(column as usize);
            *to = (*to).plus(*x.add(column as usize));
            column += u64::from(THREADS);
        }
    }
}

/// An entry point for each element type.
macro_rules! additions {
    ($($rows:ident, $alone:ident: $ty:ident;)*) => { $(
        #[doc = concat!("`y[outer, indices[i], ..] += x[outer, i, ..]`, `i` ascending, for ", stringify!($ty), ".")]
        ///
        /// With `counts`, of how many indices name each place, only for places of several.
        ///
        /// # Safety
        /// `x` and `y` hold what the shape says, `indices` as many as it says, all of them places of `y`,
        /// which overlaps neither; `counts` is null or those of all places. Blocks of [`THREADS`] threads,
        /// [`Additions::blocks`] of them.
        #[kernel(launch_bounds(THREADS, ADDING_BLOCKS))]
        pub unsafe fn $rows(
            shape: Additions,
            indices: *const i64,
            counts: *const u64,
            x: *const $ty,
            y: *mut $ty,
        ) {
            begin(|| ());
            // SAFETY: the caller's contract is the same.
            unsafe { add_rows(&shape, indices, counts, x, y) }
        }

        #[doc = concat!("`y[outer, indices[i], ..] += x[outer, i, ..]` for places that one index names, for ", stringify!($ty), ".")]
        ///
        /// # Safety
        /// As above; units of the shape are 16 bytes, to which `x` and `y` are aligned, when `wide` is not 0,
        /// else elements. Blocks of [`THREADS`] threads, [`Moves::blocks`] of them.
        #[kernel(launch_bounds(THREADS))]
        pub unsafe fn $alone(
            moves: Moves,
            wide: u32,
            indices: *const i64,
            counts: *const u64,
            x: *const $ty,
            y: *mut $ty,
        ) {
            // SAFETY: the caller's contract is the same.
            unsafe {
                if wide != 0 {
                    add_alone::<$ty, { VECTOR_BYTES / size_of::<$ty>() }>(&moves, indices, counts, x, y)
                } else {
                    add_alone::<$ty, 1>(&moves, indices, counts, x, y)
                }
            }
        }
    )* };
}

additions! {
    add_rows_f64, add_alone_f64: f64;
    add_rows_f32, add_alone_f32: f32;
    add_rows_i64, add_alone_i64: i64;
    add_rows_i32, add_alone_i32: i32;
}
