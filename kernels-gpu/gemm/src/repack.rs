//! Copies of a batch of matrices whose rows the copy engine or 16-byte loads cannot reach, to rows that begin
//! at 16-byte boundaries.
//!
//! ```text
//! y[b][r][c] = x[b][r][c]        x: any row, column and matrix strides        y: rows of `pitch` elements, a multiple of 16 bytes
//! ```
//! | x's elements that lie side by side | a block |
//! |---|---|
//! | of a row ([`RepackShape::column`] is 1) | 4 rows of 64 units: each thread gathers 16 bytes of `y` from neighbouring elements, by one load where they begin at a 16-byte boundary, and stores them at once |
//! | of a column, or none | a tile of 64 x 64 through shared memory, read along columns and written along rows |
//!
//! The kernel does not write `y` behind the last column of a row, and no code may read there. Each element
//! size has an entry. A launch copies two matrices, both operands of a product: a second launch would wait
//! for the first.

use cuda_std::{grid, kernel, shared, shared_array, thread, vector};
use layout::UNIT_BYTES;

/// Threads of a block.
pub const THREADS: u32 = 256;
/// Rows and columns of a tile of the transposing copy.
pub const TILE: u32 = 64;
/// Units of a row, and rows, of a block of the straight copy.
const BLOCK_UNITS: u32 = 64;
const BLOCK_ROWS: u32 = THREADS / BLOCK_UNITS;
/// Words between two lines of a tile in shared memory: lines of a column lie in different banks.
const TILE_PITCH: u32 = TILE + 1;
const WORD: u32 = size_of::<u32>() as u32;

/// Shape and strides, in elements.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct RepackShape {
    /// Rows of each matrix.
    pub rows: u32,
    /// Columns of each matrix.
    pub columns: u32,
    /// Matrices.
    pub batch: u32,
    /// From a row of x to the next.
    pub row: u64,
    /// From a column of x to the next.
    pub column: u64,
    /// From a matrix of x to the next.
    pub matrix: u64,
    /// From a row of y to the next: a multiple of 16 bytes.
    pub pitch: u64,
}

impl RepackShape {
    /// Of no matrix.
    pub const NONE: Self = Self { rows: 0, columns: 0, batch: 0, row: 0, column: 1, matrix: 0, pitch: 0 };

    /// Blocks along x, for elements of `bytes` bytes.
    pub const fn blocks(&self, bytes: u32) -> u64 {
        if self.column == 1 {
            let width = UNIT_BYTES / bytes * BLOCK_UNITS;
            self.rows.div_ceil(BLOCK_ROWS) as u64 * self.columns.div_ceil(width) as u64
        } else {
            self.rows.div_ceil(TILE) as u64 * self.columns.div_ceil(TILE) as u64
        }
    }
}

/// An element: bits that travel.
trait Element: Copy {
    fn to_word(self) -> u32;
    fn from_word(word: u32) -> Self;
}

macro_rules! element {
    ($($ty:ty),*) => { $(
        impl Element for $ty {
            #[inline(always)]
            fn to_word(self) -> u32 {
                self as u32
            }
            #[inline(always)]
            fn from_word(word: u32) -> Self {
                word as $ty
            }
        }
    )* };
}
element!(u8, u16, u32);

/// The two matrices of a launch, of which one may have no rows.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct RepackPair {
    /// The first one, which the first blocks along x copy.
    pub first: RepackShape,
    /// The second one.
    pub second: RepackShape,
}

/// Repacks two matrices of elements of one byte.
///
/// # Safety
/// What the strides reach from `x` is readable; `y` begins at a 16-byte boundary, holds `batch * rows *
/// pitch` elements, and is apart from `x`; the same of `other_x` and `other_y` and the second matrix. A
/// matrix without rows has no elements at either. [`RepackShape::blocks`] blocks of both along x, at least
/// one along z, of [`THREADS`] threads.
#[kernel(launch_bounds(THREADS))]
pub unsafe fn gemm_repack_b8(
    pair: RepackPair,
    x: *const u8,
    y: *mut u8,
    other_x: *const u8,
    other_y: *mut u8,
) {
    // SAFETY: the caller's contract.
    unsafe { repack(pair, [x, other_x], [y, other_y], tile()) }
}

/// Repacks two matrices of elements of 2 bytes.
///
/// # Safety
/// As [`gemm_repack_b8`](fn@gemm_repack_b8).
#[kernel(launch_bounds(THREADS))]
pub unsafe fn gemm_repack_b16(
    pair: RepackPair,
    x: *const u16,
    y: *mut u16,
    other_x: *const u16,
    other_y: *mut u16,
) {
    // SAFETY: the caller's contract.
    unsafe { repack(pair, [x, other_x], [y, other_y], tile()) }
}

/// Repacks two matrices of elements of 4 bytes.
///
/// # Safety
/// As [`gemm_repack_b8`](fn@gemm_repack_b8).
#[kernel(launch_bounds(THREADS))]
pub unsafe fn gemm_repack_b32(
    pair: RepackPair,
    x: *const u32,
    y: *mut u32,
    other_x: *const u32,
    other_y: *mut u32,
) {
    // SAFETY: the caller's contract.
    unsafe { repack(pair, [x, other_x], [y, other_y], tile()) }
}

/// The block's tile, a word an element.
#[inline(always)]
fn tile() -> u32 {
    shared::address_of(shared_array![u32; (TILE * TILE_PITCH) as usize])
}

/// Copies the block's part of its matrix, of all matrices of the batch, one after the other.
///
/// # Safety
/// As for the kernels above. `tile` is the shared address of the block's tile.
#[inline(always)]
unsafe fn repack<T: Element>(pair: RepackPair, x: [*const T; 2], y: [*mut T; 2], tile: u32) {
    grid::wait_dependencies();
    grid::launch_dependents();
    let blocks = pair.first.blocks(size_of::<T>() as u32) as u32;
    let block = thread::block_idx_x();
    let (problem, x, y, block) = if block < blocks {
        (pair.first, x[0], y[0], block)
    } else {
        (pair.second, x[1], y[1], block - blocks)
    };
    let mut index = thread::block_idx_z();
    while index < problem.batch {
        let from = x.wrapping_add((u64::from(index) * problem.matrix) as usize);
        let to = y.wrapping_add((u64::from(index) * u64::from(problem.rows) * problem.pitch) as usize);
        // SAFETY: the caller's contract, for one matrix.
        unsafe {
            if problem.column == 1 {
                gather_unit(problem, from, to, block);
            } else {
                turn_tile(problem, from, to, block, tile);
            }
        }
        index += thread::grid_dim_z();
    }
}

/// Copies this thread's 16 bytes of `y`, of the matrix's block of this number.
///
/// # Safety
/// `x` is valid for reads of one matrix with neighbouring columns, `y` for writes of one with a pitch of
/// whole units, at a 16-byte boundary.
#[inline(always)]
unsafe fn gather_unit<T: Element>(problem: RepackShape, x: *const T, y: *mut T, block: u32) {
    let RepackShape { rows, columns, row: stride, pitch, .. } = problem;
    let width = UNIT_BYTES / size_of::<T>() as u32;
    // Blocks that there are have a row; `max` is for the compiler, which sees a division by 0.
    let down = rows.div_ceil(BLOCK_ROWS).max(1);
    let (block_row, block_column) = (block % down, block / down);
    let row = u64::from(block_row * BLOCK_ROWS + thread::thread_idx_x() / BLOCK_UNITS);
    let column = (block_column * BLOCK_UNITS + thread::thread_idx_x() % BLOCK_UNITS) * width;
    if row >= u64::from(rows) || column >= columns {
        return;
    }
    let from = x.wrapping_add((row * stride) as usize + column as usize);
    let to = y.wrapping_add((row * pitch) as usize + column as usize);
    if column + width <= columns {
        if (from as usize).is_multiple_of(UNIT_BYTES as usize) {
            // SAFETY: within the rows, at 16-byte boundaries both.
            return unsafe { vector::store_v4(to.cast::<u32>(), vector::load_v4(from.cast::<u32>())) };
        }
        let per_word = WORD / size_of::<T>() as u32;
        let mut words = [0; (UNIT_BYTES / WORD) as usize];
        for (i, word) in words.iter_mut().enumerate() {
            for j in 0..per_word {
                // SAFETY: within the row.
                let element = unsafe { *from.add(i * per_word as usize + j as usize) };
                *word |= element.to_word() << (j * u8::BITS * size_of::<T>() as u32);
            }
        }
        // SAFETY: within the row of y, at a 16-byte boundary since pitch, column and y are.
        unsafe { vector::store_v4(to.cast::<u32>(), words) };
    } else {
        for i in 0..(columns - column) as usize {
            // SAFETY: within the rows.
            unsafe { *to.add(i) = *from.add(i) };
        }
    }
}

/// Copies the tile of the matrix's block of this number, read with neighbouring threads along x's columns,
/// written with them along y's rows.
///
/// # Safety
/// * `x` is valid for reads of one matrix, `y` for writes of one.
/// * All threads of the block call it with the same `tile`: the shared address of `TILE * TILE_PITCH` words
///   for it alone.
#[inline(always)]
unsafe fn turn_tile<T: Element>(problem: RepackShape, x: *const T, y: *mut T, block: u32, tile: u32) {
    let RepackShape { rows, columns, row: stride, column: step, pitch, .. } = problem;
    let down = rows.div_ceil(TILE).max(1);
    let (first_row, first_column) = (block % down * TILE, block / down * TILE);
    let (line, along) = (thread::thread_idx_x() / TILE, thread::thread_idx_x() % TILE);
    let mut within = line;
    while within < TILE {
        let (row, column) = (first_row + along, first_column + within);
        if row < rows && column < columns {
            let place = u64::from(row) * stride + u64::from(column) * step;
            // SAFETY: inside of the matrix; the place in the tile is this thread's.
            unsafe {
                let element = *x.add(place as usize);
                vector::store_shared(tile + (along * TILE_PITCH + within) * WORD, element.to_word());
            }
        }
        within += THREADS / TILE;
    }
    thread::sync_threads();
    within = line;
    while within < TILE {
        let (row, column) = (first_row + within, first_column + along);
        if row < rows && column < columns {
            let place = u64::from(row) * pitch + u64::from(column);
            // SAFETY: the same element was stored there before the barrier; inside of y.
            unsafe {
                let word: u32 = vector::load_shared(tile + (within * TILE_PITCH + along) * WORD);
                *y.add(place as usize) = T::from_word(word);
            }
        }
        within += THREADS / TILE;
    }
    // Before the next matrix's tile is written.
    thread::sync_threads();
}
