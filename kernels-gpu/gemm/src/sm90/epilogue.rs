//! The epilogue: from the accumulators to global memory.
//!
//! A consumer's part of a tile leaves in one of two ways:
//!
//! * **plain**, in this file: rounded to 16 bits, `stmatrix` into a subtile of 64 rows in shared memory. TMA
//!   stores it while the next subtile fills, and skips elements outside of the result. All of it is unrolled.
//!   f32 is not rounded, and goes by `f32_store`, in subtiles of half of the columns.
//! * **through a [fusion](super::fusion)**, in `fused_store`.

use cuda_std::tma::TensorMap;
use cuda_std::{fence, misc, tma, vector, warp};
use layout::UNIT_BYTES;
use layout::wgmma::Swizzle;
use primitives::unroll;
use primitives::warp::{LANES, uniform};

use super::barriers::Barrier;
use super::config::{
    Block, Config, ELEMENT16_BYTES, EpiloguePlan, MOST_PLACES, SUBTILES, SourceBarriers, WARPGROUP, WARPS,
};
use super::f32_store::{F32_BYTES, F32_ROWS};
use super::fusion::{Columns, Fusion};
use super::mainloop::Maps;
use super::operands::{AccumulatorTile, GROUP_ROWS};
pub use super::output::{Output, OutputFlag, OutputFormat, OutputParams, OutputType};
use super::subtile::Lines;
use super::tile_scheduler::{GemmShape, TileCoord};

/// Takes a consumer's part of each tile.
///
/// # Safety of its functions
/// The whole warpgroup is here, for the same tile.
pub trait Epilogue<C: Config> {
    /// Called before the products of the tile.
    ///
    /// # Safety
    /// See [`Epilogue`].
    unsafe fn prepare(&mut self, tile: TileCoord);

    /// Takes the sums of the tile that [`prepare`](Epilogue::prepare) announced.
    ///
    /// # Safety
    /// See [`Epilogue`].
    unsafe fn store(&mut self, sums: &C::Stored, tile: TileCoord);

    /// Called last, once.
    ///
    /// # Safety
    /// See [`Epilogue`].
    unsafe fn finish(&mut self);
}

/// The [`Epilogue`] that stores the product, through a fusion.
pub struct StoreEpilogue<'a, C: Config, F> {
    pub(super) fusion: F,
    pub(super) maps: Maps,
    pub(super) shape: GemmShape,
    pub(super) output: Output<'a>,
    pub(super) block: Block<C>,
    /// Number of the thread among all consumers.
    pub(super) thread: u32,
    /// Number of its warp, [the same for all lanes](uniform).
    pub(super) warp: u32,
}

/// A thread's place at a store.
#[derive(Clone, Copy)]
pub(super) struct Place<C: Config> {
    pub consumer: u32,
    /// The consumer's shared memory.
    pub shared: EpiloguePlan<C>,
    /// The barriers of what is added.
    pub source: SourceBarriers,
    /// Number of the thread in its warpgroup.
    pub thread: u32,
    /// Number of its warp there.
    warp: u32,
}

impl<C: Config> Place<C> {
    /// All threads of the consumer meet.
    ///
    /// # Safety
    /// All threads of the consumer call it.
    #[inline(always)]
    pub unsafe fn sync(self) {
        // SAFETY: the caller says that they are here, and the barrier is theirs.
        unsafe { Barrier::Consumer(self.consumer).sync() }
    }

    /// Has one thread of the consumer, the same one each time, copy and wait for copies. It is elected: as of
    /// the producer's, the assembler knows of it that it is alone, since the branch asks for nothing else.
    ///
    /// # Safety
    /// All threads of the consumer call it.
    #[inline(always)]
    pub unsafe fn by_one(self, copy: impl FnOnce()) {
        // SAFETY: the first warp is whole here.
        if self.warp == 0 && unsafe { warp::elect() } {
            copy();
        }
    }
}

/// Makes the [`StoreEpilogue`] of a thread.
///
/// # Safety
/// Maps and output are valid for the result of `shape`, and the fusion for its elements.
#[inline(always)]
pub unsafe fn store_with<'a, C: Config<EpiloguePlan = EpiloguePlan<C>>, F: Fusion>(
    maps: Maps,
    shape: GemmShape,
    output: Output<'a>,
    fusion: F,
) -> impl FnOnce(Block<C>, u32) -> StoreEpilogue<'a, C, F> {
    move |block, thread| {
        // SAFETY: all threads of the consumers are here, and the maps are what the format says.
        let warp = unsafe {
            let warp = uniform(thread / LANES);
            if warp == 0 && warp::elect() {
                prefetch(maps, output.format());
            }
            warp
        };
        StoreEpilogue { fusion, maps, shape, output, block, thread, warp }
    }
}

/// Fetches the maps that the copy engine will ask for at the end of the first tile, or before it: else a tile
/// that is done would wait for its map.
///
/// # Safety
/// They are maps where the format says that they are looked at.
#[inline(always)]
unsafe fn prefetch(maps: Maps, format: OutputFormat) {
    // SAFETY: the caller's contract.
    unsafe {
        if format.has(OutputFlag::ByTma) {
            tma::prefetch(maps.c);
        }
        if format.has(OutputFlag::SourceByTma) {
            tma::prefetch(maps.source);
        }
    }
}

impl<C: Config<EpiloguePlan = EpiloguePlan<C>>, F: Fusion> Epilogue<C> for StoreEpilogue<'_, C, F> {
    /// Prepares the fusion.
    #[inline(always)]
    unsafe fn prepare(&mut self, tile: TileCoord) {
        if self.output.format().has(OutputFlag::Plain) && !tile.is_bounded {
            return;
        }
        let place = self.place();
        let [_, end] = self.sides(tile);
        let first = in_result::<C>(tile, 0, 0).column;
        let vector = place.shared.column_vector(0);
        let columns = Columns { first, count: C::RESULT_COLUMNS, end, vector };
        let mut fusion = self.fusion;
        // SAFETY: the caller's contract. No thread reads the vector between barriers. Subtiles are stored.
        unsafe {
            if self.has_source(tile) {
                place.by_one(|| {
                    tma::wait_group_read::<0>();
                    let mut index = 0;
                    while index < C::PLACES && index < Self::TILE_SUBTILES {
                        self.load_source(place, tile, index);
                        index += 1;
                    }
                });
            }
            place.sync();
            fusion.enter(tile.group);
            fusion.prepare(columns, place.thread);
            place.sync();
        }
    }

    /// Stores it.
    #[inline(always)]
    unsafe fn store(&mut self, sums: &C::Stored, tile: TileCoord) {
        let is_whole = self.is_whole(tile);
        // SAFETY: the caller's contract.
        unsafe {
            if self.output.format().has(OutputFlag::Plain) && is_whole {
                if C::STORES_F32 && self.output.format().element() == OutputType::F32 {
                    self.store_plain_f32(sums, tile);
                } else {
                    self.store_plain(sums, tile);
                }
            } else if self.is_plain_narrow() && is_whole {
                self.store_plain_narrow(sums, tile);
            } else {
                let mut fusion = self.fusion;
                fusion.enter(tile.group);
                if is_whole && self.is_by_column(tile) {
                    return self.store_by_column(sums, fusion, tile);
                }
                let by_tma = self.output.format().has(OutputFlag::ByTma) && is_whole;
                if C::CHUNK_STEPS == 4 {
                    self.store_fused::<8>(sums, fusion, tile, by_tma);
                } else {
                    self.store_fused::<4>(sums, fusion, tile, by_tma);
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn finish(&mut self) {
        // The shared memory must outlive the copies out of it.
        // SAFETY: all threads of the consumer are here.
        unsafe { self.place().by_one(|| tma::wait_group_read::<0>()) }
    }
}

impl<C: Config<EpiloguePlan = EpiloguePlan<C>>, F: Fusion> StoreEpilogue<'_, C, F> {
    /// Subtiles of 64 rows of a consumer's tile, and of all of its rows.
    pub(super) const SUBTILES: u32 = C::STORED_N / C::STORE_COLUMNS;
    pub(super) const TILE_SUBTILES: u32 = C::Stored::GROUPS as u32 * Self::SUBTILES;

    /// Whether the copy engine may store the tile. It would write rows behind the product's last one too.
    #[inline(always)]
    pub(super) fn is_whole(&self, tile: TileCoord) -> bool {
        !tile.is_bounded || tile.row + C::CONSUMER_ROWS <= tile.end
    }

    /// Rows and columns of the result.
    #[inline(always)]
    pub(super) fn sides(&self, tile: TileCoord) -> [u32; 2] {
        let GemmShape { m, n, .. } = self.shape;
        if C::TRANSPOSED { [n, m] } else { [tile.end, tile.right] }
    }

    /// The thread's place. What is derived from it takes no registers beside the accumulators.
    #[inline(always)]
    pub(super) fn place(&self) -> Place<C> {
        self.place_of(self.thread)
    }

    #[inline(always)]
    pub(super) fn place_of(&self, thread: u32) -> Place<C> {
        let (thread, shared) = (misc::opaque(thread), self.block.opaque().shared);
        // Beside many accumulators a tile leaves in a loop over chunks: one chain of latencies, which are
        // longer for what a warp computes once.
        let consumer = if C::CROWDED || C::SPARES { thread / WARPGROUP } else { self.warp / WARPS };
        Place {
            consumer,
            shared: shared.epilogue(consumer),
            source: shared.source(consumer),
            thread: thread % WARPGROUP,
            warp: self.warp % WARPS,
        }
    }

    /// Stores the product itself.
    ///
    /// # Safety
    /// * All threads of the consumer call it, each with its sums of the tile.
    /// * The map of C describes memory that is valid for writes, and no other block has the tile.
    #[inline(always)]
    unsafe fn store_plain(&self, sums: &C::Stored, tile: TileCoord) {
        let place = self.place();
        let lines = Lines::new::<C>(place.thread);
        unroll!(GROUP in 0..2, { if GROUP < C::Stored::GROUPS {
            unroll!(SUBTILE in 0..32, {
                if (SUBTILE as u32) < Self::SUBTILES {
                    // SAFETY: the caller's contract.
                    unsafe {
                        let index = GROUP as u32 * Self::SUBTILES + SUBTILE as u32;
                        let to = Self::subtile(place, index);
                        self.begin_subtile(place, index);
                        lines.write::<C>(sums, GROUP, SUBTILE, to);
                        let at = in_result::<C>(tile, GROUP as u32, SUBTILE as u32 * C::STORE_COLUMNS);
                        self.copy_subtile(self.maps.c, place, to, at);
                    }
                }
            });
        } });
    }

    /// Where the tile's subtile of this number is.
    #[inline(always)]
    pub(super) fn subtile(place: Place<C>, index: u32) -> u32 {
        place.shared.subtile(index % C::PLACES)
    }

    /// Waits until the copy engine no longer reads the place of the tile's subtile of this number.
    ///
    /// # Safety
    /// All threads of the consumer call it, with the same `index`, for a tile's subtiles in order from 0 on.
    /// Each is copied before the next one but `PLACES - 1` begins.
    #[inline(always)]
    pub(super) unsafe fn begin_subtile(&self, place: Place<C>, index: u32) {
        const { assert!(C::PLACES == SUBTILES || C::PLACES == MOST_PLACES) };
        // At 0 all places were found free. (Two places ask again: without that barrier kernels of one
        // consumer take more registers.)
        if C::PLACES == MOST_PLACES && index > 0 && index < C::PLACES {
            return;
        }
        // SAFETY: at 0 all copies of the tile before are done; later ones may be under way, but for the one
        // that was first of so many, whose place this is.
        unsafe {
            place.by_one(|| {
                if index == 0 {
                    tma::wait_group_read::<0>();
                } else if C::PLACES == SUBTILES {
                    tma::wait_group_read::<{ SUBTILES - 1 }>();
                } else {
                    tma::wait_group_read::<{ MOST_PLACES - 1 }>();
                }
            });
            place.sync();
        }
    }

    /// Copies the subtile, of which each thread has written its part, to a map's matrix from element `at` on.
    ///
    /// # Safety
    /// * All threads of the consumer call it, with the same arguments, when they have written `subtile`.
    /// * The map describes memory that is valid for writes, and no other block has those elements.
    #[inline(always)]
    pub(super) unsafe fn copy_subtile(
        &self,
        map: *const TensorMap,
        place: Place<C>,
        subtile: u32,
        at: TileCoord,
    ) {
        // SAFETY: the caller's contract. (8-bit elements are never a part of a tile.)
        unsafe { self.copy_elements::<{ ELEMENT16_BYTES }>(map, place, subtile, at) }
    }

    /// The same of a subtile whose elements have so many bytes; its lines are as long.
    ///
    /// # Safety
    /// As for [`copy_subtile`](Self::copy_subtile).
    #[inline(always)]
    pub(super) unsafe fn copy_elements<const BYTES: u32>(
        &self,
        map: *const TensorMap,
        place: Place<C>,
        subtile: u32,
        at: TileCoord,
    ) {
        let column = if self.output.format().has(OutputFlag::Halved) { at.column / 2 } else { at.column };
        let (row, column, batch) = (at.row as i32, column as i32, at.batch as i32);
        // SAFETY: the fence and the barrier order the writes before the copy.
        unsafe {
            fence::proxy_async_shared();
            place.sync();
            let columns = C::STORE_COLUMNS * ELEMENT16_BYTES / BYTES;
            let is_whole = !C::NARROWS || at.column + columns <= at.right || at.right == self.shape.n;
            if !is_whole {
                self.store_part::<BYTES>(place, subtile, at);
                // The next source may come to its place.
                place.sync();
            }
            place.by_one(|| {
                if is_whole {
                    tma::store_3d(map, subtile, [column, row, batch]);
                    if C::TRANSPOSED && BYTES == F32_BYTES {
                        let (second, below) = (Self::F32_HALF, F32_ROWS as i32);
                        tma::store_3d(map, subtile + second, [column + below, row, batch]);
                    }
                }
                tma::commit_group();
            });
        }
    }

    /// Stores the tile's columns of a subtile, of elements of so many bytes, if it has any: what is behind
    /// them is another tile's.
    ///
    /// # Safety
    /// As for [`copy_subtile`](Self::copy_subtile), when all have written.
    #[inline(always)]
    unsafe fn store_part<const BYTES: u32>(&self, place: Place<C>, subtile: u32, at: TileCoord) {
        let (params, line_bytes) = (self.output.params, C::STORE_COLUMNS * ELEMENT16_BYTES);
        let mut behind = place.thread * UNIT_BYTES;
        while behind < GROUP_ROWS * line_bytes {
            let (row, along) = (behind / line_bytes, behind % line_bytes);
            if at.row + row < at.end && at.column + along / BYTES < at.right {
                let from = subtile + Swizzle::of_span(line_bytes).apply(behind);
                let element = u64::from(at.batch) * params.matrix
                    + u64::from(at.row + row) * params.row
                    + u64::from(at.column + along / BYTES);
                let to = self.output.data.wrapping_add((element * u64::from(BYTES)) as usize);
                // SAFETY: the caller's contract; a unit of the result.
                unsafe {
                    let unit: [u32; 4] = vector::load_shared_v4(from);
                    vector::store_v4(to.cast::<u32>(), unit);
                }
            }
            behind += WARPGROUP * UNIT_BYTES;
        }
    }
}

/// The first element, in the result, of a chunk or a subtile at this column of a group of `tile`.
#[inline(always)]
pub(super) fn in_result<C: Config>(tile: TileCoord, group: u32, column: u32) -> TileCoord {
    let (row, column) = (tile.row + group * GROUP_ROWS, tile.column + column);
    let (row, column) = if C::TRANSPOSED { (column, row) } else { (row, column) };
    TileCoord { row, column, ..tile }
}
