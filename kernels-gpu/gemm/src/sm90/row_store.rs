//! Rows of the result that the copy engine cannot store, because they are no multiple of 16 bytes, or because
//! a group ends inside of the tile: from a subtile in shared memory, a row of it by neighbouring lanes.
//!
//! From the registers a lane has two elements of a row, and a warp's store touches eight rows. From a subtile
//! a warp's store is of one row, 128 bytes side by side.

use cuda_std::vector;
use cuda_std::warp::{FULL_MASK, warp_shuffle_up};

use super::config::{Config, ELEMENT16_BYTES, EpiloguePlan, WARPGROUP};
use super::epilogue::{OutputFlag, OutputType, Place, StoreEpilogue};
use super::fusion::{Fusion, aligned};
use super::operands::GROUP_ROWS;
use super::subtile::{Slots, Spot};
use super::tile_scheduler::TileCoord;

/// The way of a tile's elements to global memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Over a subtile, from which the copy engine stores.
    CopyEngine,
    /// Over a subtile, from which threads store row by row: elements of 16 bits.
    Rows,
    /// From the registers.
    Registers,
}

/// Elements of a word.
const WORD: u32 = 2;

impl<C: Config<EpiloguePlan = EpiloguePlan<C>>, F: Fusion> StoreEpilogue<'_, C, F> {
    /// The way of the tile.
    #[inline(always)]
    pub(super) fn way(&self, tile: TileCoord) -> Way {
        let format = self.output.format();
        if format.has(OutputFlag::ByTma) && self.is_whole(tile) {
            Way::CopyEngine
        } else if format.element() == OutputType::Element16 && !format.has(OutputFlag::Halved) {
            Way::Rows
        } else {
            Way::Registers
        }
    }

    /// Stores the subtile, of which each thread has written its part, to the result from element `at` on.
    ///
    /// # Safety
    /// * All threads of the consumer call it, with the same arguments, when they have written `subtile`.
    /// * The output is valid for writes of the result, and no other block has those elements.
    #[inline(always)]
    pub(super) unsafe fn store_rows(&self, place: Place<C>, subtile: u32, at: TileCoord) {
        let (length, lines) =
            if C::TRANSPOSED { (GROUP_ROWS, C::STORE_COLUMNS) } else { (C::STORE_COLUMNS, GROUP_ROWS) };
        let words = length / WORD;
        let word = place.thread % words;
        let [rows, columns] = self.sides(at);
        let count = columns.saturating_sub(at.column);
        // SAFETY: all threads of the consumer are here.
        unsafe { place.sync() }
        // Each warp has whole steps.
        let mut line = place.thread / words;
        while line < lines {
            let spot = Spot { row: line, column: WORD * word };
            // SAFETY: a word of the subtile; the whole warp is here.
            let (bits, before) = unsafe {
                let bits: u32 =
                    vector::load_shared(Slots::new::<C>(subtile, spot, ELEMENT16_BYTES).address(0));
                (bits, warp_shuffle_up(FULL_MASK, bits, 1, words).0)
            };
            if at.row + line < rows {
                // SAFETY: the row is of the result, and so are `count` elements from the subtile's first.
                unsafe { self.store_word(at, line, word, count, [before, bits]) }
            }
            line += WARPGROUP / words;
        }
    }

    /// Stores a word of a row: the lane's, or where words of the result begin at odd elements the one that
    /// ends with the lane's first element.
    ///
    /// # Safety
    /// Row `line` from `at` is of the result, and so are `count` elements of it. No other thread has the word.
    #[inline(always)]
    unsafe fn store_word(&self, at: TileCoord, line: u32, word: u32, count: u32, [before, bits]: [u32; 2]) {
        let length = if C::TRANSPOSED { GROUP_ROWS } else { C::STORE_COLUMNS };
        let params = self.output.params;
        let index = u64::from(at.batch) * params.matrix
            + u64::from(at.row + line) * params.row
            + u64::from(at.column);
        // SAFETY: in the result, or right behind it.
        let row = unsafe { self.output.data.cast::<u16>().add(index as usize) };
        let is_odd = row as usize % size_of::<u32>() != 0;
        let first = WORD * word;
        let (start, pair) = if is_odd {
            // Of the first lane there is no element before.
            (first.wrapping_sub(1), before >> u16::BITS | bits << u16::BITS)
        } else {
            (first, bits)
        };
        let (has_low, has_high) = (start < count, start.wrapping_add(1) < count);
        // SAFETY: elements of the row; words begin at multiples of their size.
        unsafe {
            let to = row.wrapping_add(start as usize);
            if has_low && has_high {
                aligned(to.cast::<u32>()).write(pair);
            } else if has_low {
                to.write(pair as u16);
            } else if has_high {
                row.add(start.wrapping_add(1) as usize).write((pair >> u16::BITS) as u16);
            }
            if is_odd && first + WORD == length && first + 1 < count {
                row.add(first as usize + 1).write((bits >> u16::BITS) as u16);
            }
        }
    }
}
