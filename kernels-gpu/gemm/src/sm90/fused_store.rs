//! The way of a tile through a fusion: in a loop over chunks of 64 rows and 32 columns, sixteen accumulators
//! of a thread; half of that next to 192 accumulators, where there is no room.
//!
//! A jump picks them, since registers have no index; so the fusion is there once, whatever it does. The
//! results go over a subtile in shared memory, or, where the copy engine cannot store them, from the
//! registers to global memory. What is added to each element (source C, a residual) can come the same way:
//! the copy engine brings it to the subtile that the results will leave by, where each thread reads its
//! elements' before it writes them. With two places for subtiles ([`Config::PLACES`]):
//!
//! ```text
//!   products of the tile | subtile 0   | subtile 1   | subtile 2   | subtile 3
//!   load 0, 1            |             |     load 2  |     load 3  |             a subtile is loaded when the one before it in
//!                        |     store 0 |     store 1 |     store 2 |     store 3 its place has left
//! ```
//! Four places get four subtiles at once.
//!
//! Of kernels that store the transpose, neighbours in a row of the result are in neighbouring lanes: those
//! change one of two before the fusion.

use cuda_std::{convert, mbarrier, misc, tma, vector};
use primitives::shared_plan::SharedType;
use primitives::unroll;

use super::config::{Config, ELEMENT16_BYTES, EpiloguePlan, Subtile};
use super::epilogue::{Output, OutputFlag, OutputFormat, OutputType, Place, StoreEpilogue, in_result};
use super::fusion::{FragmentCoord, Fusion, Pairs, aligned, each_pair};
use super::operands::{AccumulatorTile, Element16, Operands};
use super::subtile::{Slots, Spot, chunk, exchange};
use super::tile_scheduler::TileCoord;

impl OutputType {
    /// Bytes of an element.
    #[inline(always)]
    #[must_use]
    pub const fn bytes(self) -> u32 {
        match self {
            Self::F32 => 4,
            Self::Element16 => 2,
            Self::E4m3 | Self::E5m2 => 1,
        }
    }

    /// Rounds pairs, of types of at most 16 bits: the first one's bits are the lower ones.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn pack<H: Element16, const N: usize>(self, x: &Pairs<N>) -> [u32; N] {
        let mut bits = [0; N];
        match self {
            Self::E4m3 => each_pair!(PAIR of N {
                bits[PAIR] = convert::e4m3x2_from_f32(x[PAIR][0], x[PAIR][1]).into();
            }),
            Self::E5m2 => each_pair!(PAIR of N {
                bits[PAIR] = convert::e5m2x2_from_f32(x[PAIR][0], x[PAIR][1]).into();
            }),
            Self::Element16 | Self::F32 => {
                each_pair!(PAIR of N { bits[PAIR] = H::pack(x[PAIR][0], x[PAIR][1]); })
            }
        }
        bits
    }
}

impl<C: Config<EpiloguePlan = EpiloguePlan<C>>, F: Fusion> StoreEpilogue<'_, C, F> {
    /// Does the copy engine bring what is added to the tile?
    #[inline(always)]
    pub(super) fn has_source(&self, tile: TileCoord) -> bool {
        self.output.format().has(OutputFlag::SourceByTma) && self.is_whole(tile)
    }

    /// Has what is added to the tile's subtile of this number brought to where it will be stored from.
    ///
    /// # Safety
    /// One thread calls it, once for each subtile; what the place held before has been read.
    #[inline(always)]
    pub(super) unsafe fn load_source(&self, place: Place<C>, tile: TileCoord, index: u32) {
        let at = in_result::<C>(tile, index / Self::SUBTILES, index % Self::SUBTILES * C::STORE_COLUMNS);
        let full = place.source.subtile(index % C::PLACES);
        // SAFETY: the caller's contract; a box is as long as a subtile, also where it lies outside of the
        // matrix in part.
        unsafe {
            mbarrier::arrive_expect_tx(full, Subtile::<C>::BYTES);
            let coords = [at.column as i32, at.row as i32, at.batch as i32];
            tma::load_3d(Self::subtile(place, index), self.maps.source, full, coords);
        }
    }

    /// Waits until what is added to the tile's subtile of this number has come.
    ///
    /// # Safety
    /// The barrier of that place is made, and a load of the subtile has been asked for or will be.
    #[inline(always)]
    pub(super) unsafe fn wait_source(&self, place: Place<C>, index: u32) {
        let full = place.source.subtile(index % C::PLACES);
        // SAFETY: it has been asked for, or will be.
        unsafe { mbarrier::wait_parity(full, index / C::PLACES % 2) }
    }

    /// Makes the phases of each place's barrier an even number, so that each tile's first one is an even one:
    /// next to the accumulators there is no room to count them.
    ///
    /// # Safety
    /// All threads of the consumer call it when they have waited for every subtile of the tile.
    #[inline(always)]
    pub(super) unsafe fn even_out(&self, place: Place<C>) {
        if place.thread != 0 {
            return;
        }
        let mut subtile = 0;
        while subtile < C::PLACES {
            let phases = (Self::TILE_SUBTILES + C::PLACES - 1 - subtile) / C::PLACES;
            if phases % 2 == 1 {
                // SAFETY: the barrier's phases are over, and all threads have seen that.
                unsafe { mbarrier::arrive(place.source.subtile(subtile)) }
            }
            subtile += 1;
        }
    }

    /// Loads what is added to the next subtile into the place of the one before the tile's subtile of this
    /// number, once that has left.
    ///
    /// # Safety
    /// All threads of the consumer call it, for subtiles in order, when they have read the subtile before and
    /// its copy to C is committed. The map of the source describes memory that is valid for reads.
    #[inline(always)]
    pub(super) unsafe fn load_source_behind(&self, place: Place<C>, tile: TileCoord, index: u32) {
        if index == 0 || index - 1 + C::PLACES >= Self::TILE_SUBTILES {
            return;
        }
        // SAFETY: the caller's contract; the last copies were those of the subtile before.
        unsafe {
            place.by_one(|| {
                tma::wait_group_read::<0>();
                self.load_source(place, tile, index - 1 + C::PLACES);
            });
        }
    }

    /// Stores what the fusion makes of the product, chunk by chunk.
    ///
    /// # Safety
    /// * All threads of the consumer call it, each with its sums of the tile.
    /// * What the fusion and the output point to is valid for the tile, and no other block has the tile. If
    ///   `by_tma`, so is what the map of C describes.
    #[inline(always)]
    pub(super) unsafe fn store_fused<const N: usize>(
        &self,
        sums: &C::Stored,
        mut fusion: F,
        tile: TileCoord,
        by_tma: bool,
    ) {
        const { assert!(C::STORE_COLUMNS.is_multiple_of(C::CHUNK_COLUMNS), "a chunk is of one subtile") };
        let mut number = 0;
        while number < C::Stored::GROUPS as u32 * Self::CHUNKS {
            // Next to the accumulators there is no room for what could be computed ahead of the loop, or kept
            // over the epilogue.
            let tile = TileCoord { batch: misc::opaque(tile.batch), ..tile };
            // SAFETY: the whole warpgroup is here; elements of the product, places in the subtile.
            unsafe {
                let (at, slots) = self.begin_chunk(tile, number);
                let mut x = chunk::<C, N>(sums, number);
                if C::TRANSPOSED {
                    const { assert!(!C::TRANSPOSED || C::CHUNK_STEPS == 2, "chunks of two rows of two pairs") };
                    exchange(&mut x, self.place().thread);
                }
                fusion.apply(at, &mut x);
                number = misc::opaque(number);
                if by_tma {
                    self.end_chunk(tile, number, slots, &x);
                } else if self.is_by_rows() {
                    self.put_rows(tile, number, &x);
                } else {
                    self.output.write::<<C::Operands as Operands>::Element16, N>(at, &x);
                }
            }
            number += 1;
        }
        // SAFETY: the whole warpgroup is here.
        unsafe {
            if self.has_source(tile) {
                self.even_out(self.place());
            }
            fusion.finish();
        }
    }

    /// Chunks of a group.
    const CHUNKS: u32 = C::STORED_N / C::CHUNK_COLUMNS;

    #[inline(always)]
    pub(super) fn step(&self, number: u32) -> Step<C> {
        // There are fewer chunks than 2^16. The assembler does not know, so what follows from the thread is
        // not computed ahead of the loop, and kept.
        let nothing = if C::CROWDED { misc::opaque(number) >> 16 } else { 0 };
        let place = self.place_of(self.thread + nothing);
        let (group, column) = (number / Self::CHUNKS, number % Self::CHUNKS * C::CHUNK_COLUMNS);
        let index = number * C::CHUNK_COLUMNS / C::STORE_COLUMNS;
        let spot = Spot::new::<C>(place.thread);
        Step {
            place,
            spot,
            group,
            column,
            along: column % C::STORE_COLUMNS,
            index,
            subtile: Self::subtile(place, index),
        }
    }

    /// Where the thread's pairs of the tile's chunk of this number are, in the result and in their subtile.
    /// What is added to them has come.
    ///
    /// # Safety
    /// All threads of the consumer call it. If the tile has a source, loads of its subtiles have been asked
    /// for or will be.
    #[inline(always)]
    unsafe fn begin_chunk(&self, tile: TileCoord, number: u32) -> (FragmentCoord, Slots) {
        let step = self.step(number);
        let Step { place, spot, group, column, along, index, .. } = step;
        let has_source = self.has_source(tile);
        if has_source && along == 0 {
            // SAFETY: it has been asked for, or will be.
            unsafe { self.wait_source(place, index) }
        }
        let first = in_result::<C>(tile, 0, 0).column;
        let from = in_result::<C>(tile, group, column);
        let (row, column) = (from.row + spot.row, from.column + spot.column);
        let slots = step.slots(ELEMENT16_BYTES);
        let at = FragmentCoord {
            batch: from.batch,
            row,
            column,
            sides: self.sides(from),
            width: 2,
            vector: place.shared.column_vector(0) + (column - first) * size_of::<f32>() as u32,
            source: if has_source { Some(slots) } else { None },
        };
        (at, slots)
    }

    /// Makes room for the pairs of the tile's chunk of this number in their subtile, writes them, and has it
    /// copied when it is full.
    ///
    /// # Safety
    /// * All threads of the consumer call it, for chunks in order, with `slots` of [`Self::begin_chunk`].
    /// * The map of C describes memory that is valid for writes, and no other block has the tile.
    #[inline(always)]
    unsafe fn end_chunk<const N: usize>(&self, tile: TileCoord, number: u32, slots: Slots, x: &Pairs<N>) {
        let step = self.step(number);
        let Step { place, group, column, along, index, subtile, .. } = step;
        // SAFETY: the caller's contract.
        unsafe {
            if along == 0 && !self.output.format().has(OutputFlag::SourceByTma) {
                self.begin_subtile(place, index);
            }
            self.output.write_subtile::<<C::Operands as Operands>::Element16, N>(slots, || step.slots(1), x);
            if along == 0 && self.output.format().has(OutputFlag::SourceByTma) {
                self.load_source_behind(place, tile, index);
            }
            if along + C::CHUNK_COLUMNS == C::STORE_COLUMNS {
                self.copy_subtile(self.maps.c, place, subtile, in_result::<C>(tile, group, column - along));
            }
        }
    }
}

/// A chunk of a tile, as a thread sees it.
#[derive(Clone, Copy)]
pub(super) struct Step<C: Config> {
    pub place: Place<C>,
    /// Where the thread's pairs begin in the chunk.
    spot: Spot,
    /// Where the chunk begins in the tile.
    pub group: u32,
    pub column: u32,
    /// The same in its subtile.
    along: u32,
    /// Number of the subtile in the tile, and its address.
    index: u32,
    subtile: u32,
}

impl<C: Config> Step<C> {
    /// Where the thread's pairs are in the subtile, half of each of which takes `bytes`.
    #[inline(always)]
    fn slots(self, bytes: u32) -> Slots {
        let Self { spot, along, subtile, .. } = self;
        Slots::new::<C>(subtile, if C::TRANSPOSED { spot.below(along) } else { spot.beside(along) }, bytes)
    }
}

impl OutputFormat {
    /// Bytes of half of what a pair becomes, where the copy engine stores it.
    #[inline(always)]
    const fn element_bytes(self) -> u32 {
        let bytes = self.element().bytes();
        if self.has(OutputFlag::Halved) { bytes / 2 } else { bytes }
    }
}

impl Output<'_> {
    /// Writes the thread's pairs of a chunk into its subtile.
    ///
    /// # Safety
    /// `slots`, or what `of_bytes` gives for elements of a byte, are shared addresses in a subtile that
    /// nothing reads, and this thread alone has them.
    #[inline(always)]
    unsafe fn write_subtile<H: Element16, const N: usize>(
        self,
        slots: Slots,
        of_bytes: impl Fn() -> Slots,
        x: &Pairs<N>,
    ) {
        let format = self.format();
        let bits = format.element().pack::<H, N>(x);
        // SAFETY: the caller's contract: places in the subtile, this thread's alone.
        unsafe {
            if format.element_bytes() == 1 {
                let slots = of_bytes();
                each_pair!(PAIR of N { vector::store_shared_b16(slots.address(PAIR), bits[PAIR] as u16); });
            } else {
                each_pair!(PAIR of N { vector::store_shared(slots.address(PAIR), bits[PAIR]); });
            }
        }
    }

    /// Stores the pairs' elements of the result.
    ///
    /// # Safety
    /// The elements at `at` that it counts are inside of the result, and no other thread touches them.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    unsafe fn write<H: Element16, const N: usize>(self, at: FragmentCoord, x: &Pairs<N>) {
        let format = self.format();
        let at = if format.has(OutputFlag::Halved) { at.halved() } else { at };
        let paired = format.has(OutputFlag::Paired);
        // SAFETY: the caller's contract.
        unsafe {
            match format.element() {
                OutputType::F32 => each_pair!(PAIR of N {
                    let both = x[PAIR].map(f32::to_bits);
                    self.put(at, PAIR, paired, both, u64::from(both[0]) | u64::from(both[1]) << u32::BITS);
                }),
                OutputType::Element16 => {
                    let bits = format.element().pack::<H, N>(x);
                    each_pair!(PAIR of N {
                        let both = bits[PAIR];
                        self.put(at, PAIR, paired, [both as u16, (both >> u16::BITS) as u16], both);
                    });
                }
                OutputType::E4m3 | OutputType::E5m2 => {
                    let bits = format.element().pack::<H, N>(x);
                    each_pair!(PAIR of N {
                        let both = bits[PAIR] as u16;
                        self.put(at, PAIR, paired, [both as u8, (both >> u8::BITS) as u8], both);
                    });
                }
            }
        }
    }

    /// Stores a pair, as far as it is of the result: `both` at once where that is possible.
    ///
    /// # Safety
    /// * As for [`Output::write`]. `One` has the size of an element, `Two` of two.
    /// * If `paired`, both elements lie at a boundary of their common size.
    #[inline(always)]
    unsafe fn put<One, Two>(
        self,
        at: FragmentCoord,
        pair: usize,
        paired: bool,
        [low, high]: [One; 2],
        both: Two,
    ) {
        let index = u64::from(at.batch) * self.params.matrix
            + u64::from(at.row(pair)) * self.params.row
            + u64::from(at.column(pair));
        let count = at.count(pair);
        // SAFETY: elements of the result, aligned as `paired` says.
        unsafe {
            let to = self.data.cast::<One>().add(index as usize);
            if paired && count == 2 {
                aligned(to.cast::<Two>()).write(both);
            } else {
                if count > 0 {
                    to.write(low);
                }
                if count > 1 {
                    to.add(1).write(high);
                }
            }
        }
    }
}
