//! The product itself in f32, by the copy engine: a subtile has as many bytes as one of 16-bit elements, so
//! half of the columns.
//!
//! ```text
//!               rows of the tile are lines      columns are (the transpose is stored)
//!   subtile     64 lines, at most 32 columns    two boxes of 32 rows each, a line for each column
//!   a thread    two elements at a time          one element at a time
//! ```
//! Lines have the copy engine's swizzle. A warp that stores by itself writes 32 bytes of eight lines with an
//! instruction: half as many bytes a microsecond.

use cuda_std::vector;
use layout::UNIT_BYTES;
use layout::wgmma::Swizzle;
use primitives::tma::LINE_BYTES;
use primitives::unroll;

use super::config::{Config, ELEMENT16_BYTES, EpiloguePlan};
use super::epilogue::{StoreEpilogue, in_result};
use super::fusion::Fusion;
use super::operands::{AccumulatorTile, GROUP_ROWS};
use super::subtile::{STEP_COLUMNS, Slots, Spot};
use super::tile_scheduler::TileCoord;

/// Bytes of an element.
pub(super) const F32_BYTES: u32 = 4;
/// Rows of the tile in a box of the transpose.
pub(super) const F32_ROWS: u32 = GROUP_ROWS / 2;

impl<C: Config<EpiloguePlan = EpiloguePlan<C>>, F: Fusion> StoreEpilogue<'_, C, F> {
    /// Columns of the tile in a subtile.
    const F32_COLUMNS: u32 = C::STORE_COLUMNS * ELEMENT16_BYTES / F32_BYTES;
    /// Bytes from a box of the transpose to the other one.
    pub(super) const F32_HALF: u32 = Self::F32_COLUMNS * F32_ROWS * F32_BYTES;
    /// Subtiles of 64 rows.
    const F32_SUBTILES: u32 = C::STORED_N / Self::F32_COLUMNS;

    /// Stores the product itself in f32. All of it is unrolled.
    ///
    /// # Safety
    /// * All threads of the consumer call it, each with its sums of the tile.
    /// * The map of C describes memory that is valid for writes, and no other block has the tile.
    #[inline(always)]
    pub(super) unsafe fn store_plain_f32(&self, sums: &C::Stored, tile: TileCoord) {
        const { assert!(Self::F32_SUBTILES <= 32, "counted out") };
        let place = self.place();
        let spot = Spot::of_tile(place.thread);
        unroll!(GROUP in 0..2, { if GROUP < C::Stored::GROUPS {
            unroll!(SUBTILE in 0..32, {
                if (SUBTILE as u32) < Self::F32_SUBTILES {
                    let index = GROUP as u32 * Self::F32_SUBTILES + SUBTILE as u32;
                    let to = Self::subtile(place, index);
                    let at = in_result::<C>(tile, GROUP as u32, SUBTILE as u32 * Self::F32_COLUMNS);
                    // SAFETY: the caller's contract; what was in the subtile's place has left.
                    unsafe {
                        self.begin_subtile(place, index);
                        Self::write_f32(sums, (GROUP, SUBTILE), spot, to);
                        self.copy_elements::<{ F32_BYTES }>(self.maps.c, place, to, at);
                    }
                }
            });
        } });
    }

    /// Writes the thread's elements of a group's subtile.
    ///
    /// # Safety
    /// The subtile is this consumer's, and nothing reads it; `spot` is the thread's.
    #[inline(always)]
    unsafe fn write_f32(sums: &C::Stored, (group, subtile): (usize, usize), spot: Spot, to: u32) {
        let steps = (Self::F32_COLUMNS / STEP_COLUMNS) as usize;
        let by_rows = Slots::in_lines(to, spot, Self::F32_COLUMNS, F32_BYTES);
        let (half, row) = (spot.row / F32_ROWS, spot.row % F32_ROWS);
        let line = spot.column * LINE_BYTES + row * F32_BYTES;
        let transposed = to + half * Self::F32_HALF + Swizzle::of_span(LINE_BYTES).apply(line);
        unroll!(STEP in 0..4, { if STEP < steps {
            let first = 4 * (subtile * steps + STEP);
            // Rows 0 and 8, of two columns each.
            unroll!(DOWN in 0..2, {
                let [left, right] = [0, 1].map(|column| sums.get(group, first + 2 * DOWN + column));
                // SAFETY: the caller's contract; places in the subtile, this thread's alone.
                unsafe {
                    if C::TRANSPOSED {
                        // Two units on, 8 steps of lines on; the next line's units change places.
                        let lines = STEP as u32 * STEP_COLUMNS * LINE_BYTES;
                        let place = (transposed ^ (DOWN as u32 * 2 * UNIT_BYTES)) + lines;
                        vector::store_shared(place, left);
                        vector::store_shared((place ^ UNIT_BYTES) + LINE_BYTES, right);
                    } else {
                        vector::store_shared_v2(by_rows.address(2 * STEP + DOWN), [left, right]);
                    }
                }
            });
        } });
    }
}
