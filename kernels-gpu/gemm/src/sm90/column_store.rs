//! The way of a tile through a fusion that asks for nothing but the element, its column, and what the copy
//! engine has brought for it: factors, a bias, an activation, source C or a residual. A warp is alone on its
//! part of a multiprocessor, so what an epilogue takes is the latency of its instructions; here they are few,
//! and thirty-two elements of a thread at a time hide each other's.
//!
//! A jump picks the accumulators of a subtile. The rest is as for the plain product: `stmatrix`, and the copy
//! engine stores. Of 8-bit operands the result may have 8 bits too: a thread then writes its pairs to the
//! subtile, two bytes each, which takes shared memory as long as `stmatrix` takes it for 16 bits.

use cuda_std::tma::TensorMap;
use cuda_std::{convert, vector};
use primitives::unroll;

use super::config::{Config, EpiloguePlan};
use super::epilogue::{OutputFlag, OutputType, Place, StoreEpilogue, in_result};
use super::fusion::{Fusion, Pairs};
use super::operands::{AccumulatorTile, Element16, Operands};
use super::subtile::{Lines, STEP_COLUMNS, Slots, Spot};
use super::tile_scheduler::TileCoord;

/// Columns of a subtile, of two pairs of a thread in each step of eight.
pub const WIDE_COLUMNS: u32 = 64;
/// Pairs of a thread in a subtile.
pub const WIDE_PAIRS: usize = (WIDE_COLUMNS / STEP_COLUMNS * 2) as usize;

/// Repeats a block for each of the pairs of a subtile.
macro_rules! each_wide_pair {
    ($pair:ident $body:block) => {{ unroll!($pair in 0..16, $body); }};
}
pub(super) use each_wide_pair;

impl<C: Config<EpiloguePlan = EpiloguePlan<C>>, F: Fusion> StoreEpilogue<'_, C, F> {
    /// Does a whole tile go through the fusion in this file's way? One that counts elements gets those of the
    /// result alone.
    #[inline(always)]
    pub(super) fn is_by_column(&self, tile: TileCoord) -> bool {
        let format = self.output.format();
        let is_possible = C::BY_COLUMN && F::BY_COLUMN && (Self::NARROW || format.element().bytes() > 1);
        let is_for_all = !Self::NARROW || !self.fusion.counts() || self.is_inside(tile);
        let is_taken = F::TAKES_SOURCE || !format.has(OutputFlag::SourceByTma);
        is_possible && format.has(OutputFlag::ByColumn) && is_for_all && is_taken
    }

    const NARROW: bool = C::NARROW && F::NARROW;

    /// Has the result all elements of the tile?
    #[inline(always)]
    fn is_inside(&self, tile: TileCoord) -> bool {
        let [rows, columns] = self.sides(tile);
        tile.row + C::CONSUMER_ROWS <= rows && tile.column + C::STORED_N <= columns
    }

    /// Does the result have 8 bits, and the kernel this file's way for it?
    #[inline(always)]
    fn is_narrow(&self) -> bool {
        Self::NARROW && self.output.format().element().bytes() == 1
    }

    /// Is it the product itself in 8 bits, by the copy engine?
    #[inline(always)]
    pub(super) fn is_plain_narrow(&self) -> bool {
        let format = self.output.format();
        self.is_narrow() && format.has(OutputFlag::ByColumn) && format.has(OutputFlag::Identity)
    }

    /// Stores the product itself in 8 bits. All of it is unrolled.
    ///
    /// # Safety
    /// As for [`Self::store_by_column`].
    #[inline(always)]
    pub(super) unsafe fn store_plain_narrow(&self, sums: &C::Stored, tile: TileCoord) {
        let place = self.place();
        let spot = Spot::new::<C>(place.thread);
        unroll!(GROUP in 0..2, { if GROUP < C::Stored::GROUPS {
            unroll!(SUBTILE in 0..4, { if (SUBTILE as u32) < Self::SUBTILES {
                let index = GROUP as u32 * Self::SUBTILES + SUBTILE as u32;
                let at = in_result::<C>(tile, GROUP as u32, SUBTILE as u32 * WIDE_COLUMNS);
                // SAFETY: the caller's contract.
                unsafe { self.store_narrow(place, spot, (index, at), &subtile_of::<C>(sums, index)) }
            } });
        } });
    }

    /// Stores what the fusion makes of the product, subtile by subtile.
    ///
    /// # Safety
    /// * All threads of the consumer call it, each with its sums of the tile.
    /// * What the fusion points to is valid for the tile. The map of C describes memory that is valid for
    ///   writes, and no other block has the tile.
    #[inline(always)]
    pub(super) unsafe fn store_by_column(&self, sums: &C::Stored, mut fusion: F, tile: TileCoord) {
        let place = self.place();
        let (lines, spot) = (Lines::new::<C>(place.thread), Spot::new::<C>(place.thread));
        // SAFETY: the caller's contract.
        let factor = unsafe { fusion.factor() };
        let mut index = 0;
        while index < Self::TILE_SUBTILES {
            let (group, column) = (index / Self::SUBTILES, index % Self::SUBTILES * WIDE_COLUMNS);
            let mut x = subtile_of::<C>(sums, index);
            let vector = place.shared.column_vector(column + spot.column);
            let to = Self::subtile(place, index);
            // SAFETY: the whole warpgroup is here, with elements of the product. What is added has been asked
            // for, and a warp's lines of a subtile are its own; else what was in its place has left.
            unsafe {
                fusion.apply_by_column(factor, vector, &mut x, || {
                    self.wait_source(place, index);
                    lines.read_pairs::<<C::Operands as Operands>::Element16>(to)
                });
                let at = in_result::<C>(tile, group, column);
                if self.is_narrow() {
                    fusion.narrow(&mut x);
                    self.store_narrow(place, spot, (index, at), &x);
                } else {
                    if !self.is_brought(tile) {
                        self.begin_subtile(place, index);
                    }
                    lines.write_pairs::<<C::Operands as Operands>::Element16>(&x, to);
                    if self.is_brought(tile) {
                        self.load_source_behind(place, tile, index);
                    }
                    self.copy_subtile(self.maps.c, place, to, at);
                }
            }
            index += 1;
        }
        // SAFETY: the whole warpgroup is here, and has waited for every subtile.
        unsafe {
            if self.is_brought(tile) {
                self.even_out(place);
            }
            if self.is_narrow() {
                fusion.finish();
            }
        }
    }

    /// Does the copy engine bring what is added, and the fusion take it? Asked anew each time: of an answer
    /// that it knows the compiler would make two ways, each with all that lies between.
    #[inline(always)]
    fn is_brought(&self, tile: TileCoord) -> bool {
        F::TAKES_SOURCE && self.has_source(tile)
    }
}

impl<C: Config<EpiloguePlan = EpiloguePlan<C>>, F: Fusion> StoreEpilogue<'_, C, F> {
    /// Stores a subtile, of this number among the tile's, to a map's matrix from element `at` on.
    ///
    /// # Safety
    /// All threads of the consumer call it, for stores in order, each with its pairs. The map describes
    /// memory that is valid for writes, and no other block has those elements.
    #[inline(always)]
    pub(super) unsafe fn store_wide<H: Element16>(
        &self,
        map: *const TensorMap,
        place: Place<C>,
        lines: Lines,
        (number, at): (u32, TileCoord),
        x: &Pairs<WIDE_PAIRS>,
    ) {
        let to = Self::subtile(place, number);
        // SAFETY: the caller's contract; what was in the subtile's place has left.
        unsafe {
            self.begin_subtile(place, number);
            lines.write_pairs::<H>(x, to);
            self.copy_subtile(map, place, to, at);
        }
    }
}

impl<C: Config<EpiloguePlan = EpiloguePlan<C>>, F: Fusion> StoreEpilogue<'_, C, F> {
    /// Stores a subtile of a result of 8 bits, of this number among the tile's, from element `at` on.
    ///
    /// # Safety
    /// As for [`Self::store_wide`], with the map of C and the thread's `spot`.
    #[inline(always)]
    unsafe fn store_narrow(
        &self,
        place: Place<C>,
        spot: Spot,
        (number, at): (u32, TileCoord),
        x: &Pairs<WIDE_PAIRS>,
    ) {
        let to = Self::subtile(place, number);
        let slots = Slots::new::<C>(to, spot, 1);
        // SAFETY: the caller's contract; what was in the subtile's place has left; the pairs' places in it.
        unsafe {
            self.begin_subtile(place, number);
            if self.output.format().element() == OutputType::E5m2 {
                write_narrow(slots, x, |[low, high]| convert::e5m2x2_from_f32(low, high));
            } else {
                write_narrow(slots, x, |[low, high]| convert::e4m3x2_from_f32(low, high));
            }
            self.copy_subtile(self.maps.c, place, to, at);
        }
    }
}

/// Writes a thread's pairs to a subtile, two bytes each.
///
/// # Safety
/// The pairs' places are in the subtile, and this thread's alone.
#[inline(always)]
unsafe fn write_narrow(slots: Slots, x: &Pairs<WIDE_PAIRS>, round: impl Fn([f32; 2]) -> u16) {
    each_wide_pair!(PAIR {
        // SAFETY: the caller's contract.
        unsafe { vector::store_shared_b16(slots.address(PAIR), round(x[PAIR])) }
    });
}

/// The accumulators of the tile's subtile of this number.
#[inline(always)]
pub(super) fn subtile_of<C: Config>(tile: &C::Stored, number: u32) -> Pairs<WIDE_PAIRS> {
    let subtiles = (C::STORED_N / WIDE_COLUMNS) as usize;
    let mut x = [[0.0; 2]; WIDE_PAIRS];
    unroll!(GROUP in 0..2, { if GROUP < C::Stored::GROUPS {
        unroll!(INDEX in 0..4, {
            if INDEX < subtiles && number == (GROUP * subtiles + INDEX) as u32 {
                each_wide_pair!(PAIR {
                    let first = 2 * (WIDE_PAIRS * INDEX + PAIR);
                    x[PAIR] = [tile.get(GROUP, first), tile.get(GROUP, first + 1)];
                });
                return x;
            }
        });
    } });
    x
}

impl Lines {
    /// Writes the warp's lines of a subtile of rows of [`WIDE_COLUMNS`].
    ///
    /// # Safety
    /// As for [`Lines::write`].
    #[inline(always)]
    pub(super) unsafe fn write_pairs<H: Element16>(self, x: &Pairs<WIDE_PAIRS>, to: u32) {
        unroll!(PART in 0..4, {
            let bits = [0, 1, 2, 3].map(|index| {
                let [low, high] = x[4 * PART + index];
                H::pack(low, high)
            });
            // SAFETY: the caller's contract; lines of the subtile.
            unsafe { self.write_four(PART as u32, bits, to) }
        });
    }

    /// Reads the pairs that [`Lines::write_pairs`] writes.
    ///
    /// # Safety
    /// The whole warp calls it. `from` is the shared address of a subtile, aligned to its swizzle, that no
    /// thread writes.
    #[inline(always)]
    pub(super) unsafe fn read_pairs<H: Element16>(self, from: u32) -> Pairs<WIDE_PAIRS> {
        let mut x = [[0.0; 2]; WIDE_PAIRS];
        unroll!(PART in 0..4, {
            // SAFETY: the caller's contract; lines of the subtile.
            let bits = unsafe { self.read_four(PART as u32, from) };
            unroll!(INDEX in 0..4, { x[4 * PART + INDEX] = H::unpack(bits[INDEX]); });
        });
        x
    }
}
