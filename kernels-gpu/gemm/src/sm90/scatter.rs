//! The epilogue of results whose rows lie anywhere, in 16 bits.
//!
//! ```text
//!   accumulators --stmatrix--> subtile of 64 rows x 64 columns --16 bytes a thread--> row of the result
//!                              one is written while others read the other              wherever `Rows` says
//! ```
//! Eight threads store the 128 bytes of a subtile's row: whole sectors, and all of one line of memory.

use cuda_std::{misc, vector};
use layout::UNIT_BYTES;
use layout::wgmma::Swizzle;
use primitives::unroll;
use primitives::warp::uniform;

use super::barriers::Barrier;
use super::config::{Block, Config, ELEMENT16_BYTES, EpiloguePlan, SUBTILES, WARPGROUP};
use super::epilogue::Epilogue;
use super::operands::{AccumulatorTile, GROUP_ROWS};
use super::subtile::Lines;
use super::tile_scheduler::TileCoord;

/// Elements of a unit of 16 bytes.
const UNIT: u32 = UNIT_BYTES / ELEMENT16_BYTES;
/// Bytes of a line of a subtile, and units.
const LINE_BYTES: u32 = primitives::tma::LINE_BYTES;
const LINE_UNITS: u32 = LINE_BYTES / UNIT_BYTES;
/// Lines that a consumer reads at once, and how often it does for a subtile.
const LINES: u32 = WARPGROUP / LINE_UNITS;
const TURNS: usize = (GROUP_ROWS / LINES) as usize;

/// Says that a row is not stored.
pub const NOWHERE: u32 = u32::MAX;

/// Where the rows of a product lie.
pub trait Rows: Copy {
    /// Numbers, among the result's rows, of the product's rows `first`, `first + step` and so on, which
    /// belong to `tile`; [`NOWHERE`] for those that are not stored.
    fn places<const N: usize>(&self, tile: TileCoord, first: u32, step: u32) -> [u32; N];
}

/// The [`Epilogue`] that stores the product, rounded to 16 bits, row by row.
pub struct ScatterEpilogue<C: Config, R> {
    rows: R,
    /// Elements of a row of the result.
    columns: u32,
    result: *mut u16,
    block: Block<C>,
    /// Number of the thread among all consumers.
    thread: u32,
    /// Number of its consumer, [the same for all lanes](uniform).
    consumer: u32,
}

/// Makes the [`ScatterEpilogue`] of a thread, for rows of so many elements.
///
/// # Safety
/// `result` is valid for writes of the rows that `rows` names, and begins at a multiple of 16 bytes. No other
/// block has them.
#[inline(always)]
pub unsafe fn scatter_with<C: Config<EpiloguePlan = EpiloguePlan<C>>, R: Rows>(
    rows: R,
    columns: u32,
    result: *mut u16,
) -> impl FnOnce(Block<C>, u32) -> ScatterEpilogue<C, R> {
    move |block, thread| {
        // SAFETY: all threads of the consumers are here.
        let consumer = unsafe { uniform(thread / WARPGROUP) };
        ScatterEpilogue { rows, columns, result, block, thread, consumer }
    }
}

impl<C: Config<EpiloguePlan = EpiloguePlan<C>>, R: Rows> Epilogue<C> for ScatterEpilogue<C, R> {
    #[inline(always)]
    unsafe fn prepare(&mut self, _: TileCoord) {}

    #[inline(always)]
    unsafe fn store(&mut self, sums: &C::Stored, tile: TileCoord) {
        const { assert!(SUBTILES == 2 && TURNS == 4 && C::STORE_COLUMNS * ELEMENT16_BYTES == LINE_BYTES) };
        const { assert!(!C::TRANSPOSED && (C::Stored::GROUPS as u32 * Self::SUBTILES).is_multiple_of(2)) };
        let (thread, shared) = (misc::opaque(self.thread), self.block.opaque().shared);
        let consumer = self.consumer;
        let (thread, shared) = (thread % WARPGROUP, shared.epilogue(consumer));
        let lines = Lines::new::<C>(thread);
        let (unit, line) = (thread % LINE_UNITS, thread / LINE_UNITS);
        // Lines 16 apart are swizzled alike.
        let from = Swizzle::B128.apply(line * LINE_BYTES + unit * UNIT_BYTES);
        unroll!(GROUP in 0..2, { if GROUP < C::Stored::GROUPS {
            let places: [u32; TURNS] =
                self.rows.places(tile, tile.row + GROUP as u32 * GROUP_ROWS + line, LINES);
            unroll!(SUBTILE in 0..4, { if (SUBTILE as u32) < Self::SUBTILES {
                let subtile = shared.subtile((GROUP as u32 * Self::SUBTILES + SUBTILE as u32) % SUBTILES);
                let column = tile.column + SUBTILE as u32 * C::STORE_COLUMNS + unit * UNIT;
                // SAFETY: the caller's contract: the whole warpgroup is here. Everyone has read what this
                // subtile had before: the barrier of the other one lies between.
                unsafe {
                    lines.write::<C>(sums, GROUP, SUBTILE, subtile);
                    Barrier::Consumer(consumer).sync();
                    unroll!(TURN in 0..4, {
                        let from = subtile + from + TURN as u32 * LINES * LINE_BYTES;
                        self.put(places[TURN], column, vector::load_shared_v4(from));
                    });
                }
            } });
        } });
    }

    #[inline(always)]
    unsafe fn finish(&mut self) {}
}

impl<C: Config<EpiloguePlan = EpiloguePlan<C>>, R: Rows> ScatterEpilogue<C, R> {
    /// Subtiles of 64 rows of a consumer's tile.
    const SUBTILES: u32 = C::STORED_N / C::STORE_COLUMNS;

    /// Stores a unit, as far as the result has its columns.
    ///
    /// # Safety
    /// The row is one of the result, this thread's at these columns, or [`NOWHERE`].
    #[inline(always)]
    unsafe fn put(&self, row: u32, column: u32, unit: [u32; 4]) {
        if row == NOWHERE || column >= self.columns {
            return;
        }
        let to = self.result.wrapping_add(row as usize * self.columns as usize + column as usize);
        // SAFETY: columns of that row; where rows are whole units, so are their beginnings.
        unsafe {
            if self.columns.is_multiple_of(UNIT) {
                vector::store_v4(to.cast::<u32>(), unit);
            } else {
                unroll!(I in 0..8, {
                    if column + (I as u32) < self.columns {
                        *to.add(I) = (unit[I / 2] >> (I as u32 % 2 * u16::BITS)) as u16;
                    }
                });
            }
        }
    }
}
