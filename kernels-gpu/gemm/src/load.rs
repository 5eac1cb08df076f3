//! Copies of operand tiles from global to shared memory for [`crate::gemm_f32`].
//!
//! `A` is stored by columns (`[k][row]`), because the threads read neighbouring rows of one column at a time;
//! each element is copied on its own, which does the transposing and asks for no alignment. `B` is stored as
//! it lies (`[k][column]`), 16 bytes at a time when its rows are aligned. What lies outside of the matrices
//! becomes 0.

use crate::block::{DenseShape, ELEMENT, Shape, VECTOR, has_units};
use core::marker::PhantomData;
use cuda_std::{async_copy, thread};
use layout::UNIT_BYTES;

/// Neighbouring elements of a row of `A` that neighbouring threads copy: one 32-byte sector, and with four
/// rows a warp no two lanes store to the same bank.
const A_RUN: u32 = 8;

/// The copies of one block, tile after tile.
pub(crate) struct Loader<S> {
    pub problem: DenseShape,
    /// First row of the block in `A`.
    row: u32,
    /// First column of the block in `B`.
    column: u32,
    /// Column of `A`, row of `B`, that comes next.
    k: u32,
    /// The first elements of the next whole tiles that this thread copies.
    a: *const f32,
    b: *const f32,
    /// No row or column of the block lies outside of the matrices.
    interior: bool,
    /// Rows of `B` are aligned to 16 bytes.
    b_units: bool,
    shape: PhantomData<S>,
}

impl<S: Shape> Loader<S> {
    /// Rows of `A` that the block copies at a time.
    const A_ROWS: u32 = S::THREADS / A_RUN;
    /// 16-byte units of a row of `B`.
    const B_UNITS: u32 = S::COLUMNS / VECTOR;
    /// Rows of `B` that the block copies at a time, by units.
    const B_ROWS: u32 = S::THREADS / Self::B_UNITS;

    /// For the block whose tile of `C` begins at `(row, column)`.
    #[inline(always)]
    pub fn new(problem: DenseShape, row: u32, column: u32) -> Self {
        const { assert!(S::DEPTH.is_multiple_of(A_RUN) && S::ROWS.is_multiple_of(Self::A_ROWS)) };
        const { assert!(S::DEPTH.is_multiple_of(Self::B_ROWS) && S::THREADS.is_multiple_of(S::COLUMNS)) };
        let DenseShape { m, n, k, a, b } = problem;
        let ((run, a_row), (unit, b_row)) = (Self::place_in_a(), Self::place_in_b());
        Self {
            problem,
            row,
            column,
            k: 0,
            a: a.wrapping_add((row + a_row) as usize * k as usize + run as usize),
            b: b.wrapping_add(b_row as usize * n as usize + (column + unit * VECTOR) as usize),
            interior: row + S::ROWS <= m && column + S::COLUMNS <= n,
            b_units: has_units(b, n),
            shape: PhantomData,
        }
    }

    /// Element within a run, and row, of the first element of `A` that this thread copies.
    #[inline(always)]
    fn place_in_a() -> (u32, u32) {
        (thread::thread_idx_x() % A_RUN, thread::thread_idx_x() / A_RUN)
    }

    /// Unit and row of the first unit of `B` that this thread copies.
    #[inline(always)]
    fn place_in_b() -> (u32, u32) {
        (thread::thread_idx_x() % Self::B_UNITS, thread::thread_idx_x() / Self::B_UNITS)
    }

    /// Starts the copies of the next tiles, if there are any.
    ///
    /// # Safety
    /// `stage` is the shared address of a stage that no thread uses.
    #[inline(always)]
    pub unsafe fn start(&mut self, stage: u32) {
        if self.k < self.problem.k {
            let whole = self.interior && self.problem.k - self.k >= S::DEPTH;
            let b = stage + S::B_OFFSET;
            // SAFETY: the whole forms are for tiles inside the matrices, the others guard each copy.
            unsafe {
                if whole {
                    self.a_whole(stage);
                } else {
                    self.a_guarded(stage);
                }
                match (self.b_units, whole) {
                    (true, true) => self.b_whole(b),
                    (true, false) => self.b_guarded::<VECTOR>(b),
                    (false, _) => self.b_guarded::<1>(b),
                }
            }
            self.k += S::DEPTH;
            self.a = self.a.wrapping_add(S::DEPTH as usize);
            self.b = self.b.wrapping_add(S::DEPTH as usize * self.problem.n as usize);
        }
    }

    /// Copies this thread's part of a tile of `A` that lies inside of it.
    ///
    /// # Safety
    /// The tile lies inside of `A`. `tile` is the shared address of a tile that no thread uses.
    #[inline(always)]
    unsafe fn a_whole(&self, tile: u32) {
        let (run, first) = Self::place_in_a();
        let stride = Self::A_ROWS as usize * self.problem.k as usize;
        let to = tile + (run * S::A_PITCH + first) * ELEMENT;
        let mut row = self.a;
        for i in 0..S::ROWS / Self::A_ROWS {
            for j in 0..S::DEPTH / A_RUN {
                let to = to + (j * A_RUN * S::A_PITCH + i * Self::A_ROWS) * ELEMENT;
                // SAFETY: inside A, by the caller's word.
                unsafe { async_copy::copy_ca::<ELEMENT, f32>(to, row.add((j * A_RUN) as usize)) };
            }
            row = row.wrapping_add(stride);
        }
    }

    /// Copies this thread's part of a tile of `A`, zeros for what lies outside.
    ///
    /// # Safety
    /// `tile` is the shared address of a tile that no thread uses.
    #[inline(always)]
    unsafe fn a_guarded(&self, tile: u32) {
        let DenseShape { m, k: length, a, .. } = self.problem;
        let (run, first) = Self::place_in_a();
        let mut copy = 0;
        while copy < S::ROWS / Self::A_ROWS * (S::DEPTH / A_RUN) {
            let row = first + copy % (S::ROWS / Self::A_ROWS) * Self::A_ROWS;
            let column = run + copy / (S::ROWS / Self::A_ROWS) * A_RUN;
            let inside = self.row + row < m && self.k + column < length;
            let place = (self.row + row) as usize * length as usize + (self.k + column) as usize;
            // SAFETY: guarded; outside, nothing is read.
            unsafe {
                copy_or_zero::<ELEMENT>(tile + (column * S::A_PITCH + row) * ELEMENT, a, place, inside)
            };
            copy += 1;
        }
    }

    /// Copies this thread's part of a tile of `B` that lies inside of it and has 16-byte units.
    ///
    /// # Safety
    /// The tile lies inside of `B`, whose rows have whole units. `tile` is the shared address of a tile that
    /// no thread uses.
    #[inline(always)]
    unsafe fn b_whole(&self, tile: u32) {
        let (unit, first) = Self::place_in_b();
        let stride = Self::B_ROWS as usize * self.problem.n as usize;
        let to = tile + (first * S::COLUMNS + unit * VECTOR) * ELEMENT;
        let mut row = self.b;
        for i in 0..S::DEPTH / Self::B_ROWS {
            // SAFETY: inside B, by the caller's word, and aligned.
            unsafe { async_copy::copy_cg(to + i * Self::B_ROWS * S::COLUMNS * ELEMENT, row) };
            row = row.wrapping_add(stride);
        }
    }

    /// Copies `WIDTH` elements at a time; rows are a multiple of that long.
    ///
    /// # Safety
    /// `tile` is the shared address of a tile that no thread uses.
    #[inline(always)]
    unsafe fn b_guarded<const WIDTH: u32>(&self, tile: u32) {
        let DenseShape { n: length, k: rows, b, .. } = self.problem;
        let units = S::COLUMNS / WIDTH;
        let column = thread::thread_idx_x() % units * WIDTH;
        let mut row = thread::thread_idx_x() / units;
        while row < S::DEPTH {
            let inside = self.k + row < rows && self.column + column < length;
            let place = (self.k + row) as usize * length as usize + (self.column + column) as usize;
            let to = tile + (row * S::COLUMNS + column) * ELEMENT;
            // SAFETY: guarded; outside, nothing is read.
            unsafe {
                if WIDTH == VECTOR {
                    copy_or_zero::<UNIT_BYTES>(to, b, place, inside);
                } else {
                    copy_or_zero::<ELEMENT>(to, b, place, inside);
                }
            }
            row += S::THREADS / units;
        }
    }
}

/// Starts a copy of `BYTES` bytes from element `place` of `from`, or of zeros.
///
/// # Safety
/// * If `inside`, `from` is valid for reads of `BYTES` bytes at element `place`, aligned to `BYTES`.
/// * `to` is the shared address of as many bytes, aligned likewise, that no thread uses.
#[inline(always)]
unsafe fn copy_or_zero<const BYTES: u32>(to: u32, from: *const f32, place: usize, inside: bool) {
    let (place, bytes) = if inside { (place, BYTES) } else { (0, 0) };
    // SAFETY: inside, the caller vouches for the place; else no byte is read.
    unsafe { async_copy::copy_ca_zfill::<BYTES, f32>(to, from.add(place), bytes) };
}
