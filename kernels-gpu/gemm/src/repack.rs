//! Copies of a batch of matrices whose rows the copy engine or 16-byte loads cannot reach, to rows that begin
//! at 16-byte boundaries.
//!
//! ```text
//! y[b][r][c] = x[b][r][c]        x: any row, column and matrix strides        y: rows of `pitch` elements, a multiple of 16 bytes
//! ```
//! | x's elements that lie side by side | a block |
//! |---|---|
//! | of a row ([`RepackShape::column`] is 1) | whole rows of [`SPAN`] units, or so many units of one |
//! | of a column, or none | a tile of 64 x 64, by way of shared memory |
//!
//! Along rows each thread reads four units, all of them under way at a time, and stores them. A tile is read
//! by units along columns and written by units along rows.
//!
//! A unit is 16 bytes of `y`. It lies in two aligned units of `x` (see `unit`). Where x's lines leave no gap,
//! all between the first and the last element of a matrix may be read; else the line alone.
//!
//! The kernel writes whole units of `y`: what it writes behind the last column of a row may be anything, and
//! no code may read there. Each element size has an entry. A launch copies two matrices, both operands of a
//! product: a second launch would wait for the first.

mod unit;

use cuda_std::{grid, kernel, shared, shared_array, thread, vector};
use layout::UNIT_BYTES;
use primitives::grid::wait_behind;
use primitives::unroll;
use unit::{Element, Fetched, MOST, WORDS, fetch, gather};

/// Threads of a block.
pub const THREADS: u32 = 256;
/// Blocks side by side on a multiprocessor, which the units of all of them keep busy.
const RESIDENT: u32 = 3;
/// The same of bytes, whose ends take more registers.
const RESIDENT_B8: u32 = 2;
/// Rows and columns of a tile of the transposing copy.
pub const TILE: u32 = 64;
/// Units of a thread of the straight copy, and of its block.
const UNITS: u32 = 4;
/// Units of a block of the straight copy.
pub const SPAN: u32 = UNITS * THREADS;
const WORD: u32 = size_of::<u32>() as u32;
/// Words from a line of a tile to the next in shared memory, for elements of so many bytes: an odd number, so
/// that lines lie in different banks.
const fn tile_pitch(bytes: u32) -> u32 {
    TILE * bytes / WORD + 1
}
/// Words of a tile.
const TILE_WORDS: u32 = TILE * tile_pitch(WORD);
/// Neighbouring units, and words of a line, that a warp reads from a tile: without conflicts for 2 bytes.
const TURNED_UNITS: u32 = 4;
const TURNED_WORDS: u32 = 8;

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
            let units = self.columns.div_ceil(UNIT_BYTES / bytes);
            self.rows.div_ceil(rows_of_block(units)) as u64 * units.div_ceil(SPAN) as u64
        } else {
            self.rows.div_ceil(TILE) as u64 * self.columns.div_ceil(TILE) as u64
        }
    }
}

/// Rows of a block of the straight copy, of so many units each.
const fn rows_of_block(units: u32) -> u32 {
    match SPAN.checked_div(units) {
        None | Some(0) => 1,
        Some(rows) => rows,
    }
}

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
/// All that the strides reach from `x` is readable; `y` begins at a 16-byte boundary, holds `batch * rows *
/// pitch` elements, and is apart from `x`; the same of `other_x` and `other_y` and the second matrix. A
/// matrix without rows has no elements at either. [`RepackShape::blocks`] blocks of both along x, at least
/// one along z, of [`THREADS`] threads.
#[kernel(launch_bounds(THREADS, RESIDENT_B8))]
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
#[kernel(launch_bounds(THREADS, RESIDENT))]
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
#[kernel(launch_bounds(THREADS, RESIDENT))]
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
    shared::address_of(shared_array![u32; TILE_WORDS as usize])
}

/// Copies the block's part of its matrix, of all matrices of the batch, one after the other.
///
/// # Safety
/// As for the kernels above. `tile` is the shared address of the block's tile.
#[inline(always)]
unsafe fn repack<T: Element>(pair: RepackPair, x: [*const T; 2], y: [*mut T; 2], tile: u32) {
    grid::launch_dependents();
    let blocks = pair.first.blocks(T::BYTES) as u32;
    let block = thread::block_idx_x();
    let (problem, x, y, block) = if block < blocks {
        (pair.first, x[0], y[0], block)
    } else {
        (pair.second, x[1], y[1], block - blocks)
    };
    // A loop for each way: in one, all threads would compute the places of both.
    if problem.column == 1 {
        // This needs no memory, so it is computed while earlier grids end.
        let units = Units::new::<T>(&problem, block);
        if units.count == 0 {
            return;
        }
        wait_behind(units.known());
        // SAFETY: the caller's contract, for one matrix.
        each_matrix(&problem, (x, y), |x, y| unsafe { copy_units(problem, x, y, &units) });
    } else {
        grid::wait_dependencies();
        // SAFETY: as above.
        each_matrix(&problem, (x, y), |x, y| unsafe { turn_tile(problem, x, y, block, tile) });
    }
}

/// Visits the matrices of the batch that fall to the block, by where they are and where they go.
#[inline(always)]
fn each_matrix<T: Element>(
    problem: &RepackShape,
    (x, y): (*const T, *mut T),
    mut visit: impl FnMut(*const T, *mut T),
) {
    let mut index = thread::block_idx_z();
    while index < problem.batch {
        let from = x.wrapping_add((u64::from(index) * problem.matrix) as usize);
        let to = y.wrapping_add((u64::from(index) * u64::from(problem.rows) * problem.pitch) as usize);
        visit(from, to);
        index += thread::grid_dim_z();
    }
}

/// This thread's units of a matrix; behind them there are none.
#[derive(Clone, Copy)]
struct Units {
    /// Elements before the unit's line.
    lines: [usize; UNITS as usize],
    /// The line, and the unit's first column.
    rows: [u32; UNITS as usize],
    columns: [u32; UNITS as usize],
    count: u32,
}

impl Units {
    /// Those in the matrix's block of this number.
    #[inline(always)]
    fn new<T: Element>(problem: &RepackShape, block: u32) -> Self {
        // Blocks that there are have a row; `max` is for the compiler, which sees a division by 0.
        let units = problem.columns.div_ceil(T::UNIT).max(1);
        let parts = units.div_ceil(SPAN).max(1);
        let most = rows_of_block(units);
        let first_row = block / parts * most;
        let behind = most.min(problem.rows.saturating_sub(first_row)) * units;
        let index = block % parts * SPAN + thread::thread_idx_x();
        let (mut row, mut unit) = (first_row + index / units, index % units);
        let (rows_on, units_on) = (THREADS / units, THREADS % units);
        let count = behind.saturating_sub(index).div_ceil(THREADS).min(UNITS);
        let none = [0; UNITS as usize];
        let mut these = Self { lines: [0; UNITS as usize], rows: none, columns: none, count };
        const { assert!(UNITS == 4, "counted out") };
        unroll!(I in 0..4, {
            these.lines[I] = (u64::from(row) * problem.row) as usize;
            (these.rows[I], these.columns[I]) = (row, unit * T::UNIT);
            let has_next = unit + units_on < units;
            row += if has_next { rows_on } else { rows_on + 1 };
            unit = if has_next { unit + units_on } else { unit + units_on - units };
        });
        these
    }

    /// A number that is known when all are.
    #[inline(always)]
    fn known(&self) -> u32 {
        let mut known = 0;
        unroll!(I in 0..4, { known ^= self.lines[I] as u32 ^ self.columns[I]; });
        known
    }
}

/// Bytes that may be read for a line of a matrix: its own, or, where lines leave no gap, those of all.
#[derive(Clone, Copy)]
struct Readable {
    all: [usize; 2],
    has_gaps: bool,
    bytes: usize,
}

impl Readable {
    #[inline(always)]
    fn new<T: Element>(x: *const T, lines: u32, length: u32, stride: u64) -> Self {
        let (first, bytes) = (x as usize, length as usize * size_of::<T>());
        let behind = first + (u64::from(lines - 1) * stride * u64::from(T::BYTES)) as usize + bytes;
        Self { all: [first, behind], has_gaps: stride > u64::from(length), bytes }
    }

    /// Of a line, by its first element.
    #[inline(always)]
    fn of_line<T: Element>(self, line: *const T) -> [usize; 2] {
        if self.has_gaps { [line as usize, line as usize + self.bytes] } else { self.all }
    }
}

/// Copies this thread's units.
///
/// # Safety
/// `x` is valid for reads of one matrix with neighbouring columns, `y` for writes of one with a pitch of
/// whole units, at a 16-byte boundary; the units are of it.
#[inline(always)]
unsafe fn copy_units<T: Element>(problem: RepackShape, x: *const T, y: *mut T, these: &Units) {
    let RepackShape { rows, columns, row: stride, pitch, .. } = problem;
    let readable = Readable::new(x, rows, columns, stride);
    let mut fetched = [Fetched::NONE; UNITS as usize];
    unroll!(I in 0..4, {
        if (I as u32) < these.count {
            let column = these.columns[I];
            let line = x.wrapping_add(these.lines[I]);
            let count = (columns - column).min(T::UNIT);
            // SAFETY: within the row, and within what may be read.
            fetched[I] =
                unsafe { fetch(line.wrapping_add(column as usize), count, readable.of_line(line)) };
        }
    });
    unroll!(I in 0..4, {
        if (I as u32) < these.count {
            let place = u64::from(these.rows[I]) * pitch + u64::from(these.columns[I]);
            let to = y.wrapping_add(place as usize).cast::<u32>();
            // SAFETY: a unit of the row of y, at a 16-byte boundary since pitch and y are.
            unsafe { vector::store_v4(to, fetched[I].unit::<T>()) };
        }
    });
}

/// Copies the tile of the matrix's block of this number, read with neighbouring threads along x's columns,
/// written with them along y's rows.
///
/// # Safety
/// * `x` is valid for reads of one matrix, `y` for writes of one.
/// * All threads of the block call it with the same `tile`: the shared address of [`TILE_WORDS`] words for it
///   alone.
#[inline(always)]
unsafe fn turn_tile<T: Element>(problem: RepackShape, x: *const T, y: *mut T, block: u32, tile: u32) {
    let down = problem.rows.div_ceil(TILE).max(1);
    let corner = [block % down * TILE, block / down * TILE];
    // SAFETY: the caller's contract; barriers part the writes of the tile from the reads, and these from the
    // writes of the next matrix's.
    unsafe {
        read_tile(problem, x, corner, tile);
        thread::sync_threads();
        write_tile(problem, y, corner, tile);
        thread::sync_threads();
    }
}

/// Reads a tile, from this row and column of the matrix on, by units along its columns. What lies
/// outside of the matrix may be anything.
///
/// # Safety
/// As for [`turn_tile`]; no thread reads the tile.
#[inline(always)]
unsafe fn read_tile<T: Element>(
    problem: RepackShape,
    x: *const T,
    [first_row, first_column]: [u32; 2],
    tile: u32,
) {
    let RepackShape { rows, columns, row: along, column: step, .. } = problem;
    let readable = Readable::new(x, columns, rows, step);
    let units = TILE / T::UNIT;
    let place = |i: usize| {
        let unit = i as u32 * THREADS + thread::thread_idx_x();
        (unit / units, unit % units)
    };
    let mut fetched = [Fetched::NONE; WORD as usize];
    unroll!(I in 0..4, {
        if (I as u32) < T::BYTES {
            let (line, unit) = place(I);
            let (row, column) = (first_row + unit * T::UNIT, first_column + line);
            if row < rows && column < columns {
                let from = x.wrapping_add((u64::from(column) * step) as usize);
                let at = from.wrapping_add((u64::from(row) * along) as usize);
                let count = (rows - row).min(T::UNIT);
                // SAFETY: within the column, and, where its elements are neighbours, within what may be read.
                fetched[I] = unsafe {
                    if along == 1 { fetch(at, count, readable.of_line(from)) } else { gather(at, along, count) }
                };
            }
        }
    });
    unroll!(I in 0..4, {
        if (I as u32) < T::BYTES {
            let (line, unit) = place(I);
            let to = tile + (line * tile_pitch(T::BYTES)) * WORD + unit * UNIT_BYTES;
            let words = fetched[I].unit::<T>();
            // SAFETY: this thread's words of the tile.
            unroll!(J in 0..4, { unsafe { vector::store_shared(to + J as u32 * WORD, words[J]) }; });
        }
    });
}

/// Writes a tile, to this row and column of the matrix and on, by units along its rows.
///
/// # Safety
/// As for [`turn_tile`]; the tile has been read before a barrier.
#[inline(always)]
unsafe fn write_tile<T: Element>(
    problem: RepackShape,
    y: *mut T,
    [first_row, first_column]: [u32; 2],
    tile: u32,
) {
    let RepackShape { rows, columns, pitch, .. } = problem;
    // A thread turns a word of as many lines as a unit has elements.
    let (across, down) = (TILE / T::UNIT, TILE / T::PER_WORD);
    let mut item = thread::thread_idx_x();
    while item < across * down {
        let (within, group) = (item % (TURNED_UNITS * TURNED_WORDS), item / (TURNED_UNITS * TURNED_WORDS));
        let groups = across / TURNED_UNITS;
        let unit = group % groups * TURNED_UNITS + within % TURNED_UNITS;
        let word = group / groups * TURNED_WORDS + within / TURNED_UNITS;
        item += THREADS;
        let mut lines = [0; MOST];
        unroll!(I in 0..16, {
            if (I as u32) < T::UNIT {
                let line = unit * T::UNIT + I as u32;
                // SAFETY: a word of the tile.
                lines[I] = unsafe { vector::load_shared(tile + (line * tile_pitch(T::BYTES) + word) * WORD) };
            }
        });
        let turned: [[u32; WORDS]; WORDS] = T::turn(lines);
        let column = first_column + unit * T::UNIT;
        unroll!(I in 0..4, {
            let row = first_row + word * T::PER_WORD + I as u32;
            if (I as u32) < T::PER_WORD && row < rows && column < columns {
                let place = (u64::from(row) * pitch + u64::from(column)) as usize;
                // SAFETY: a unit of the row of y, at a 16-byte boundary since pitch and y are.
                unsafe { vector::store_v4(y.wrapping_add(place).cast::<u32>(), turned[I]) };
            }
        });
    }
}
