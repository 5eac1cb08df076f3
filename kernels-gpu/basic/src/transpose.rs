//! The transpose of a row-major f32 matrix: `x: [rows, columns]` to `y: [columns, rows]`.
//!
//! ```text
//!   x, a 64 x 64 tile             shared, already transposed           y
//!   16 x 16 threads, each        line = column of x, 16 units       each thread: 4 rows of y,
//!   a 4 x 4 square:              of 16 bytes, places swizzled       16 bytes of each
//!   4 x 16-byte loads      ->    4 x 16-byte stores   | barrier |   4 x 16-byte loads   ->   4 x 16-byte stores
//!      (a square is transposed in registers: its four columns are the four units stored)
//! ```
//! 64 bytes a thread are under way; every access, global or shared, is 16 bytes wide, half a warp covers 256
//! consecutive bytes of global memory, and the swizzle leaves no bank conflict on either side.
//!
//! Where a side is not a multiple of 4, or a pointer not aligned to 16 bytes, the tile goes by elements
//! instead: a warp reads 32 neighbours of a row of `x` and writes 32 of a row of `y`, with a swizzle of
//! single words between.
//!
//! Tiles are taken down the columns of `x`, in bands of up to 256: blocks that run together write
//! neighbouring parts of few rows of `y`, and lines of `x` that two tiles share stay in the L2 cache. Loads
//! go through L1, which keeps the sectors that a row's end splits. See `benches/NOTES.md`.
//!
//! Limits: [`tiles`]`(rows, columns) < 2^31`, sides at most [`MAX_SIDE`]; blocks of [`THREADS`] threads.

use crate::{VECTOR, is_aligned};
use cuda_std::{kernel, shared, shared_array, thread, vector};
use layout::{UNIT_BYTES, grouped_tile, swizzle_units};

/// Threads of a block: one for every 4 x 4 square.
pub const THREADS: u32 = UNITS * UNITS;
/// Rows and columns of a tile.
pub const TILE: u32 = 64;
/// 16-byte units of a line of the tile.
const UNITS: u32 = TILE / VECTOR;
/// Units of the tile.
const TILE_UNITS: usize = (TILE * UNITS) as usize;
/// Lines between two units that a thread copies out.
const LINES_APART: u32 = THREADS / UNITS;
/// Elements of a thread.
const ELEMENTS: usize = (TILE * TILE / THREADS) as usize;
/// Banks of shared memory, of four bytes each.
const BANKS: u32 = 32;
/// Rows of tiles of a band.
const BAND: u32 = 256;

/// Largest `rows` or `columns`: leaves room to round up to whole tiles in 32 bits.
pub const MAX_SIDE: u32 = u32::MAX - 2 * TILE;

/// A 16-byte unit of shared memory.
#[repr(C, align(16))]
struct Unit([f32; VECTOR as usize]);

/// Blocks for a `rows x columns` matrix.
pub const fn tiles(rows: u32, columns: u32) -> u64 {
    rows.div_ceil(TILE) as u64 * columns.div_ceil(TILE) as u64
}

/// `y[c][r] = x[r][c]`.
///
/// # Safety
/// `x` holds `rows * columns` elements and `y` is valid for writes of as many; they do not overlap. Sides at
/// most [`MAX_SIDE`]; [`tiles`] blocks of [`THREADS`] threads.
#[kernel(launch_bounds(THREADS))]
pub unsafe fn transpose(rows: u32, columns: u32, x: &[f32], y: *mut f32) {
    const { assert!(VECTOR == 4 && TILE.is_multiple_of(LINES_APART) && TILE / LINES_APART == 4) };
    const { assert!(UNITS.is_multiple_of(8)) };
    let (tile_row, tile_column) =
        grouped_tile(thread::block_idx_x(), rows.div_ceil(TILE), columns.div_ceil(TILE), BAND);
    let (row, column) = (tile_row * TILE, tile_column * TILE);
    let tile = shared::address_of(shared_array![Unit; TILE_UNITS]);
    let input = Side { pointer: x.as_ptr().cast_mut(), lines: rows, length: columns };
    let output = Side { pointer: y, lines: columns, length: rows };
    // SAFETY: loads and stores are guarded by the matrix's bounds; shared places of different threads are
    // apart before and after the barrier.
    unsafe {
        if input.has_units() && output.has_units() {
            let square = load_square(input, row, column);
            store_transposed(tile, square);
            thread::sync_threads();
            store_lines(tile, output, column, row);
        } else {
            let elements = load_elements(input, row, column);
            for (index, value) in elements.into_iter().enumerate() {
                let (line, position) = element(index as u32);
                vector::store_shared(tile + element_offset(line, position), value);
            }
            thread::sync_threads();
            store_elements(tile, output, column, row);
        }
    }
}

/// A row-major matrix in global memory.
#[derive(Clone, Copy)]
struct Side {
    pointer: *mut f32,
    lines: u32,
    length: u32,
}

impl Side {
    #[inline(always)]
    fn place(self, line: u32, position: u32) -> usize {
        line as usize * self.length as usize + position as usize
    }

    /// Whether units of 16 bytes that begin at multiples of 4 elements are aligned and never cross the end of
    /// a line.
    #[inline(always)]
    fn has_units(self) -> bool {
        self.length.is_multiple_of(VECTOR) && is_aligned(self.pointer)
    }
}

/// This thread's 4 x 4 square of the tile at `(row, column)`; what lies outside of the matrix is 0.
///
/// # Safety
/// `x` is valid for reads of its lines, and [`Side::has_units`].
#[inline(always)]
unsafe fn load_square(x: Side, row: u32, column: u32) -> [[f32; 4]; 4] {
    let first = row + thread::thread_idx_x() / UNITS * VECTOR;
    let position = column + thread::thread_idx_x() % UNITS * VECTOR;
    // SAFETY: guarded; a unit that begins inside a line ends inside it.
    [0, 1, 2, 3].map(|i| unsafe {
        if first + i < x.lines && position < x.length {
            vector::load_v4(x.pointer.add(x.place(first + i, position)).cast_const())
        } else {
            [0.0; 4]
        }
    })
}

/// Byte offset in shared memory of a unit of a line of the transposed tile.
///
/// Neighbouring threads write four lines apart, so it is the line's group of four that picks the swizzle.
#[inline(always)]
fn shared_offset(line: u32, unit: u32) -> u32 {
    (line * UNITS + swizzle_units(unit, line / VECTOR)) * UNIT_BYTES
}

/// Writes this thread's square to shared memory, transposed.
///
/// # Safety
/// `tile` is the address of a whole tile in shared memory, which no other thread reads meanwhile.
#[inline(always)]
unsafe fn store_transposed(tile: u32, square: [[f32; 4]; 4]) {
    let unit = thread::thread_idx_x() / UNITS;
    let line = thread::thread_idx_x() % UNITS * VECTOR;
    for j in 0..4 {
        let column = square.map(|row| row[j as usize]);
        // SAFETY: line + j < TILE and unit < UNITS, so the place is in the tile.
        unsafe { vector::store_shared_v4(tile + shared_offset(line + j, unit), column) };
    }
}

/// Copies this thread's four units of the transposed tile to `y`, whose tile begins at `(line, position)`.
///
/// # Safety
/// * `tile` is the address of a whole tile in shared memory that all threads have written, with a barrier
///   since.
/// * `y` is valid for writes of its lines, and [`Side::has_units`]. No other block has its tile.
#[inline(always)]
unsafe fn store_lines(tile: u32, y: Side, line: u32, position: u32) {
    let unit = thread::thread_idx_x() % UNITS;
    let first = thread::thread_idx_x() / UNITS;
    let start = position + unit * VECTOR;
    for i in 0..4 {
        let within = first + i * LINES_APART;
        // SAFETY: the place is in the tile.
        let values: [f32; 4] = unsafe { vector::load_shared_v4(tile + shared_offset(within, unit)) };
        if line + within >= y.lines || start >= y.length {
            continue;
        }
        // SAFETY: guarded; a unit that begins inside a line ends inside it.
        unsafe { vector::store_v4(y.pointer.add(y.place(line + within, start)), values) };
    }
}

/// Line and position within the tile of this thread's element `index`: neighbouring threads have neighbouring
/// positions.
#[inline(always)]
fn element(index: u32) -> (u32, u32) {
    let thread = thread::thread_idx_x();
    (thread / TILE + index * (THREADS / TILE), thread % TILE)
}

/// Byte offset in shared memory of an element of a tile that goes by elements, before it is transposed. The
/// swizzle lets 32 neighbours of a line, and 32 lines of a position, meet all banks.
#[inline(always)]
fn element_offset(line: u32, position: u32) -> u32 {
    (line * TILE + (position ^ (line % BANKS))) * size_of::<f32>() as u32
}

/// This thread's elements of the tile at `(row, column)`; what lies outside of the matrix is 0.
///
/// # Safety
/// `x` is valid for reads of its lines.
#[inline(always)]
unsafe fn load_elements(x: Side, row: u32, column: u32) -> [f32; ELEMENTS] {
    let mut elements = [0.0; ELEMENTS];
    for (index, value) in elements.iter_mut().enumerate() {
        let (line, position) = element(index as u32);
        if row + line < x.lines && column + position < x.length {
            // SAFETY: guarded.
            *value =
                unsafe { vector::load(x.pointer.add(x.place(row + line, column + position)).cast_const()) };
        }
    }
    elements
}

/// Writes this thread's elements of the transposed tile to `y`, whose tile begins at `(line, position)`.
///
/// # Safety
/// * `tile` is the address of a whole tile in shared memory that all threads have written, with a barrier
///   since.
/// * `y` is valid for writes of its lines. No other block has its tile.
#[inline(always)]
unsafe fn store_elements(tile: u32, y: Side, line: u32, position: u32) {
    for index in 0..ELEMENTS as u32 {
        let (within, along) = element(index);
        // SAFETY: the place is in the tile; the store is guarded.
        unsafe {
            let value: f32 = vector::load_shared(tile + element_offset(along, within));
            if line + within < y.lines && position + along < y.length {
                vector::store(y.pointer.add(y.place(line + within, position + along)), value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        BANKS, LINES_APART, THREADS, TILE, TILE_UNITS, UNITS, VECTOR, element_offset, shared_offset,
    };
    use layout::UNIT_BYTES;
    use layout::banks::{wavefronts_4, wavefronts_16};

    #[test]
    fn a_quarter_of_a_warp_never_meets_in_a_bank() {
        for first in (0..THREADS).step_by(8) {
            for step in 0..4 {
                let stores: [u32; 8] = std::array::from_fn(|lane| {
                    let thread = first + lane as u32;
                    shared_offset(thread % UNITS * VECTOR + step, thread / UNITS)
                });
                let loads: [u32; 8] = std::array::from_fn(|lane| {
                    let thread = first + lane as u32;
                    shared_offset(thread / UNITS + step * LINES_APART, thread % UNITS)
                });
                assert_eq!(
                    (wavefronts_16(&stores), wavefronts_16(&loads)),
                    (1, 1),
                    "thread {first}, step {step}"
                );
            }
        }
    }

    #[test]
    fn a_warp_of_elements_never_meets_in_a_bank() {
        for other in 0..TILE {
            for first in (0..TILE).step_by(BANKS as usize) {
                let along: [u32; 32] = std::array::from_fn(|lane| element_offset(other, first + lane as u32));
                let across: [u32; 32] =
                    std::array::from_fn(|lane| element_offset(first + lane as u32, other));
                assert_eq!((wavefronts_4(&along), wavefronts_4(&across)), (1, 1));
            }
        }
    }

    #[test]
    fn every_unit_has_its_own_place() {
        let mut seen = [false; TILE_UNITS];
        for line in 0..super::TILE {
            for unit in 0..UNITS {
                let place = (shared_offset(line, unit) / UNIT_BYTES) as usize;
                assert!(!std::mem::replace(&mut seen[place], true));
            }
        }
    }
}
