//! The work of a block: a tile of [`crate::gemm_f32`], for any number of warps beside each other and along k.

use crate::any::{Epilogue, StridedGemm, Sums, TileCoord};
use crate::element::{Layout, Type};
use crate::epilogue::{Activation, EpilogueParams, GroupInputs};
use crate::load::{Lines, Loader, Tile};
use cuda_std::{async_copy, fastmath, grid, thread, vector};
use layout::{UNIT_BYTES, grouped_tile, interleaved_lane};
use primitives::pipeline::{CopyPipeline, Stages};
use primitives::unroll;
use primitives::warp::LANES;

/// Bytes of an element.
pub(crate) const ELEMENT: u32 = size_of::<f32>() as u32;
/// Elements of a 16-byte access.
pub(crate) const VECTOR: u32 = UNIT_BYTES / ELEMENT;
/// Rows and columns of a warp's lanes.
const LANE_ROWS: u32 = 8;
const LANE_COLUMNS: u32 = LANES / LANE_ROWS;
/// Rows, and columns, between a thread's two groups of four.
const ROW_GROUP: u32 = LANE_ROWS * VECTOR;
const COLUMN_GROUP: u32 = LANE_COLUMNS * VECTOR;
/// Rows and columns of C of a warp.
const WARP_ROWS: u32 = 2 * ROW_GROUP;
const WARP_COLUMNS: u32 = 2 * COLUMN_GROUP;
/// Rows of blocks of a band.
const BAND: u32 = 16;
/// Columns of the `A` tile between two jumps of the inner loop.
const STEPS: u32 = 8;
/// 16-byte units of a thread's part of C, and those of one group of its rows (columns).
const UNITS: u32 = 16;
const GROUP_UNITS: u32 = UNITS / 2;

/// A block of `ACROSS` warps beside each other, as many for each of `SLICES` parts of a tile's k, with
/// `STAGES` tiles of `DEPTH` columns of `A` and rows of `B` in shared memory.
pub(crate) struct Block<const ACROSS: u32, const SLICES: u32, const DEPTH: u32, const STAGES: u32>;

/// The rows of A of a block.
pub(crate) struct RowsOf<B>(B);
/// The columns of B of a block.
pub(crate) struct ColumnsOf<B>(B);

impl<const ACROSS: u32, const SLICES: u32, const DEPTH: u32, const STAGES: u32> Tile
    for RowsOf<Block<ACROSS, SLICES, DEPTH, STAGES>>
{
    const LINES: u32 = WARP_ROWS;
    const DEPTH: u32 = DEPTH;
    const THREADS: u32 = ACROSS * SLICES * LANES;
}

impl<const ACROSS: u32, const SLICES: u32, const DEPTH: u32, const STAGES: u32> Tile
    for ColumnsOf<Block<ACROSS, SLICES, DEPTH, STAGES>>
{
    const LINES: u32 = ACROSS * WARP_COLUMNS;
    const DEPTH: u32 = DEPTH;
    const THREADS: u32 = ACROSS * SLICES * LANES;
}

/// A thread's part of `C`: groups of rows, rows, groups of columns, columns.
type Accumulators = [[[[f32; 4]; 2]; 4]; 2];

/// A thread's part of a column of the `A` tile and of a row of the `B` tile, by groups of four.
#[derive(Clone, Copy)]
struct Fragment {
    a: [[f32; 4]; 2],
    b: [[f32; 4]; 2],
}

/// Where a thread's part of a tile begins.
#[derive(Clone, Copy)]
struct Corner {
    row: u32,
    column: u32,
}

/// The product of a kernel.
#[derive(Clone, Copy)]
pub(crate) struct Product<'a> {
    pub gemm: &'a StridedGemm,
    pub epilogue: &'a EpilogueParams,
    pub a: *const f32,
    pub b: *const f32,
    pub c: *mut u8,
    /// Of k in each part, where the batch is the parts of one product; 0: it is a batch.
    pub part: u32,
}

impl<const ACROSS: u32, const SLICES: u32, const DEPTH: u32, const STAGES: u32>
    Block<ACROSS, SLICES, DEPTH, STAGES>
{
    /// Rows of `C`.
    pub const ROWS: u32 = WARP_ROWS;
    /// Columns of `C`.
    pub const COLUMNS: u32 = ACROSS * WARP_COLUMNS;
    /// Columns of `A` in shared memory at a time.
    pub const DEPTH: u32 = DEPTH;
    /// Threads of the block.
    pub const THREADS: u32 = ACROSS * SLICES * LANES;
    /// Tiles of A and B in shared memory at a time.
    pub const STAGES: u32 = STAGES;
    /// Distance between columns of the `A` tile, and between rows of the `B` tile.
    const A_PITCH: u32 = <RowsOf<Self> as Tile>::PITCH;
    const B_PITCH: u32 = <ColumnsOf<Self> as Tile>::PITCH;
    /// Bytes from the `A` tile to the `B` tile behind it, and of both.
    const B_OFFSET: u32 = <RowsOf<Self> as Tile>::BYTES;
    const STAGE_BYTES: u32 = Self::B_OFFSET + <ColumnsOf<Self> as Tile>::BYTES;
    /// 16-byte units of shared memory.
    pub const SHARED_UNITS: usize = (STAGES * Self::STAGE_BYTES / UNIT_BYTES) as usize;
    /// Floats from a row of sums in shared memory to the next.
    const SUMS_PITCH: u32 = Self::COLUMNS + VECTOR;
    /// Units that a thread finishes.
    const OWN_UNITS: u32 = UNITS / SLICES;

    /// Blocks for an `m x n` result.
    pub const fn count(m: u32, n: u32) -> u64 {
        m.div_ceil(Self::ROWS) as u64 * n.div_ceil(Self::COLUMNS) as u64
    }

    /// Computes this block's tile, with the stages at the shared address `stages`.
    ///
    /// # Safety
    /// The operands are those of the kernel; the block calls it together, with [`Self::SHARED_UNITS`] of
    /// shared memory.
    #[inline(always)]
    pub unsafe fn run(product: Product<'_>, stages: u32) {
        const {
            assert!(DEPTH.is_multiple_of(SLICES * STEPS));
            assert!(STAGES * Self::STAGE_BYTES >= Self::ROWS * Self::SUMS_PITCH * ELEMENT);
            assert!(STAGES * Self::STAGE_BYTES >= UNITS * UNIT_BYTES * Self::THREADS || SLICES == 1);
        }
        let Product { gemm, a, b, part, .. } = product;
        let StridedGemm { m, n, k, a: a_layout, b: b_layout, .. } = *gemm;
        let TileCoord { batch, row, column } = Self::coord(gemm, 0);
        let k = if part == 0 { k } else { part.min(k - batch * part) };
        let of = |base: *const f32, layout: Layout| {
            base.wrapping_add((u64::from(batch) * layout.batch) as usize)
        };
        let rows = Lines { base: of(a, a_layout), line: a_layout.row, step: a_layout.column, count: m };
        let columns = Lines { base: of(b, b_layout), line: b_layout.column, step: b_layout.row, count: n };
        // SAFETY: the caller's word for the operands; the loaders and the epilogue guard what lies outside of
        // them.
        unsafe {
            let loaders = (Loader::new(rows, row), Loader::new(columns, column));
            grid::wait_dependencies();
            grid::launch_dependents();
            let (accumulators, done) = Self::multiply(loaders, k, stages, Self::corner(0));
            // Places are computed again behind the main loop, by way of what the compiler does not know to be
            // nothing: in its registers there is no room for them. k is below 2^31.
            let nothing = done >> 31;
            let (coord, corner) = (Self::coord(gemm, nothing), Self::corner(nothing));
            Self::finish(product, coord, corner, &accumulators, stages);
        }
    }

    /// The part of k of this warp.
    #[inline(always)]
    fn slice() -> u32 {
        thread::thread_idx_x() / LANES / ACROSS
    }

    /// The block's tile. `nothing` is 0.
    #[inline(always)]
    fn coord(gemm: &StridedGemm, nothing: u32) -> TileCoord {
        let (tiles_down, tiles_across) = (gemm.m.div_ceil(Self::ROWS), gemm.n.div_ceil(Self::COLUMNS));
        let (row, column) = grouped_tile(thread::block_idx_x() + nothing, tiles_down, tiles_across, BAND);
        let batch = thread::block_idx_z() + nothing;
        TileCoord { batch, row: row * Self::ROWS, column: column * Self::COLUMNS }
    }

    /// Where this thread's part of the tile begins. `nothing` is 0.
    #[inline(always)]
    fn corner(nothing: u32) -> Corner {
        let thread = thread::thread_idx_x() + nothing;
        let (lane_row, lane_column) = interleaved_lane(thread % LANES);
        let across = thread / LANES % ACROSS;
        Corner { row: lane_row * VECTOR, column: across * WARP_COLUMNS + lane_column * VECTOR }
    }

    /// The main loop: this thread's part of `A B`, and k rounded up to whole tiles.
    ///
    /// # Safety
    /// All threads of the block call it. `stages` is the shared address of `STAGES` stages that nothing else
    /// uses.
    #[inline(always)]
    unsafe fn multiply(
        (mut of_a, mut of_b): (Loader<RowsOf<Self>>, Loader<ColumnsOf<Self>>),
        k: u32,
        stages: u32,
        corner: Corner,
    ) -> (Accumulators, u32) {
        // SAFETY: all-zero bytes are f32 zeros. (An array expression would be filled by a loop, in local
        // memory.)
        let mut accumulators: Accumulators = unsafe { core::mem::zeroed() };
        let mut pipeline: CopyPipeline<Stages<STAGES>> = CopyPipeline::new(Stages, Self::STAGE_BYTES);
        let (mut copied, mut done, mut ahead) = (0, 0, 0);
        // The first rounds only copy: so the code of the copies, a way for each order, is there once.
        while done < k {
            let is_primed = ahead == pipeline.prologue();
            let stage = if is_primed { stages + pipeline.wait() } else { stages };
            if copied < k {
                let next = stages + pipeline.stage_to_load();
                // SAFETY: the matrices have `k - copied` of k left; all threads have left the stage.
                unsafe {
                    of_a.start(next, copied, k - copied);
                    of_b.start(next + Self::B_OFFSET, copied, k - copied);
                }
                copied += DEPTH;
            }
            pipeline.commit();
            if is_primed {
                // SAFETY: the stage's copies have been waited for; it is written again after the next wait.
                unsafe { Self::multiply_tile(&mut accumulators, stage, corner) };
                pipeline.release();
                done += DEPTH;
            } else {
                ahead += 1;
            }
        }
        (accumulators, done)
    }

    /// Adds the product of this warp's part of a stage's tiles.
    ///
    /// # Safety
    /// `stage` is the shared address of a stage that is written, and `corner` the thread's in the tile.
    #[inline(always)]
    unsafe fn multiply_tile(accumulators: &mut Accumulators, stage: u32, corner: Corner) {
        let first = Self::slice() * (DEPTH / SLICES);
        let mut a = stage + (first * Self::A_PITCH + corner.row) * ELEMENT;
        let mut b = stage + Self::B_OFFSET + (first * Self::B_PITCH + corner.column) * ELEMENT;
        let mut step = 0;
        while step < DEPTH / SLICES {
            // SAFETY: STEPS columns from here are in the stage.
            let mut fragment = unsafe { Self::fragment(a, b, 0) };
            unroll!(STEP in 0..7, {
                // SAFETY: as above.
                let next = unsafe { Self::fragment(a, b, STEP as u32 + 1) };
                fragment.multiply(accumulators);
                fragment = next;
            });
            fragment.multiply(accumulators);
            a += STEPS * Self::A_PITCH * ELEMENT;
            b += STEPS * Self::B_PITCH * ELEMENT;
            step += STEPS;
        }
    }

    /// The fragment `step` columns after the one at `a` and `b`.
    ///
    /// # Safety
    /// `a` and `b` are shared addresses of this thread's elements of written tiles, at least `step + 1`
    /// columns before their ends.
    #[inline(always)]
    unsafe fn fragment(a: u32, b: u32, step: u32) -> Fragment {
        let a = a + step * Self::A_PITCH * ELEMENT;
        let b = b + step * Self::B_PITCH * ELEMENT;
        // SAFETY: the caller's word.
        unsafe {
            Fragment {
                a: [vector::load_shared_v4(a), vector::load_shared_v4(a + ROW_GROUP * ELEMENT)],
                b: [vector::load_shared_v4(b), vector::load_shared_v4(b + COLUMN_GROUP * ELEMENT)],
            }
        }
    }

    /// Adds the sums of the warps along k, and takes this thread's part of them through the epilogue.
    ///
    /// # Safety
    /// As for [`Self::run`]; all threads are done with the stages but for the last one that was read.
    #[inline(always)]
    unsafe fn finish(
        product: Product<'_>,
        coord: TileCoord,
        corner: Corner,
        accumulators: &Accumulators,
        stages: u32,
    ) {
        let Product { gemm, epilogue, c, .. } = product;
        let plain = Plain::of(gemm, epilogue, c);
        // SAFETY: the caller's contract; barriers part the uses of the stages.
        unsafe {
            let Some(plain) = plain else {
                async_copy::wait_all();
                thread::sync_threads();
                if SLICES > 1 {
                    let sums = Self::add_slices::<false>(accumulators, stages);
                    thread::sync_threads();
                    Self::stage(&sums, corner, stages);
                } else {
                    Self::stage(&Self::units::<false>(accumulators), corner, stages);
                }
                thread::sync_threads();
                let sums = Sums {
                    address: stages,
                    rows: Self::ROWS,
                    columns: Self::COLUMNS,
                    pitch: Self::SUMS_PITCH,
                    threads: Self::THREADS,
                };
                return Epilogue::new(gemm, c, epilogue, GroupInputs::first(epilogue)).store(sums, coord);
            };
            let corner = Corner { row: coord.row + corner.row, column: coord.column + corner.column };
            let to = PlainStore { plain, product, batch: coord.batch, corner };
            if SLICES > 1 {
                async_copy::wait_all();
                thread::sync_threads();
            }
            match (SLICES > 1, plain.by_columns) {
                (false, false) => Self::store::<false>(to, &Self::units::<false>(accumulators)),
                (false, true) => Self::store::<true>(to, &Self::units::<true>(accumulators)),
                (true, false) => Self::store::<false>(to, &Self::add_slices::<false>(accumulators, stages)),
                (true, true) => Self::store::<true>(to, &Self::add_slices::<true>(accumulators, stages)),
            }
        }
    }

    /// The thread's part of C in units along rows, or along columns.
    #[inline(always)]
    fn units<const BY_COLUMNS: bool>(accumulators: &Accumulators) -> Units {
        let mut units = [[0.0; 4]; UNITS as usize];
        unroll!(I in 0..16, {
            // Groups of lines, lines, groups along a line.
            let (group, line, along) = (I / 8, I / 2 % 4, I % 2);
            unroll!(J in 0..4, {
                units[I][J] = if BY_COLUMNS {
                    accumulators[along][J][group][line]
                } else {
                    accumulators[group][line][along][J]
                };
            });
        });
        units
    }

    /// The first unit that this thread finishes.
    #[inline(always)]
    fn first_unit() -> u32 {
        Self::slice() * Self::OWN_UNITS
    }

    /// Writes the units of this thread to the sums at the shared address `sums`.
    ///
    /// # Safety
    /// They are this thread's, and nothing reads them before the next barrier.
    #[inline(always)]
    unsafe fn stage(units: &Units, corner: Corner, sums: u32) {
        unroll!(I in 0..16, {
            if (I as u32) < Self::OWN_UNITS {
                let (row, column) = place::<false>(Self::first_unit() + I as u32, corner);
                let to = sums + (row * Self::SUMS_PITCH + column) * ELEMENT;
                // SAFETY: inside of the sums.
                unsafe { vector::store_shared_v4(to, units[I]) };
            }
        });
    }

    /// Writes the units of this thread to C.
    ///
    /// # Safety
    /// As for [`PlainStore::store`].
    #[inline(always)]
    unsafe fn store<const BY_COLUMNS: bool>(to: PlainStore<'_>, units: &Units) {
        unroll!(I in 0..16, {
            if (I as u32) < Self::OWN_UNITS {
                // SAFETY: the caller's contract.
                unsafe { to.store::<BY_COLUMNS>(Self::first_unit() + I as u32, units[I]) };
            }
        });
    }

    /// The sums of the units that this thread finishes, of all warps along k in their order.
    ///
    /// # Safety
    /// All threads of the block call it, and none uses the memory at `stages` meanwhile.
    #[inline(always)]
    unsafe fn add_slices<const BY_COLUMNS: bool>(accumulators: &Accumulators, stages: u32) -> Units {
        let lane = stages + thread::thread_idx_x() % (ACROSS * LANES) * UNIT_BYTES;
        let (of_unit, of_slice) = (ACROSS * LANES * UNIT_BYTES, UNITS * ACROSS * LANES * UNIT_BYTES);
        let units = Self::units::<BY_COLUMNS>(accumulators);
        let mut sums = [[0.0f32; 4]; UNITS as usize];
        // SAFETY: a unit for each thread and each of its units, parted by barriers from other uses.
        unsafe {
            unroll!(I in 0..16, {
                let to = lane + Self::slice() * of_slice + I as u32 * of_unit;
                vector::store_shared_v4(to, units[I]);
            });
            thread::sync_threads();
            unroll!(I in 0..16, {
                if (I as u32) < Self::OWN_UNITS {
                    unroll!(SLICE in 0..4, {
                        if (SLICE as u32) < SLICES {
                            let unit = Self::first_unit() + I as u32;
                            let from = lane + SLICE as u32 * of_slice + unit * of_unit;
                            let part: [f32; 4] = vector::load_shared_v4(from);
                            unroll!(J in 0..4, { sums[I][J] += part[J]; });
                        }
                    });
                }
            });
        }
        sums
    }
}

/// A thread's part of C, or what it finishes of it.
type Units = [[f32; 4]; UNITS as usize];

/// Row and column of a unit of the thread at `corner`, in units along rows or along columns.
#[inline(always)]
fn place<const BY_COLUMNS: bool>(unit: u32, corner: Corner) -> (u32, u32) {
    let (group, line, along) = (unit / GROUP_UNITS, unit / 2 % 4, unit % 2);
    if BY_COLUMNS {
        (corner.row + along * ROW_GROUP, corner.column + group * COLUMN_GROUP + line)
    } else {
        (corner.row + group * ROW_GROUP + line, corner.column + along * COLUMN_GROUP)
    }
}

impl Fragment {
    /// Adds the outer product.
    #[inline(always)]
    fn multiply(&self, accumulators: &mut Accumulators) {
        unroll!(ROW in 0..8, {
            let a = self.a[ROW / 4][ROW % 4];
            unroll!(COLUMN in 0..8, {
                let sum = &mut accumulators[ROW / 4][ROW % 4][COLUMN / 4][COLUMN % 4];
                *sum = fastmath::fma(a, self.b[COLUMN / 4][COLUMN % 4], *sum);
            });
        });
    }
}

/// An epilogue of alpha and beta alone, on f32 whose rows or columns lie in one piece.
#[derive(Clone, Copy)]
struct Plain {
    by_columns: bool,
    /// All units that are whole begin at 16-byte boundaries.
    has_units: bool,
}

impl Plain {
    #[inline(always)]
    fn of(gemm: &StridedGemm, params: &EpilogueParams, c: *const u8) -> Option<Self> {
        let Layout { ty, row, column, batch } = gemm.c;
        let is_plain = params.activation == Activation::None as u32
            && params.bias.is_null()
            && params.residual.is_null()
            && params.scale_a.is_null()
            && params.scale_b.is_null()
            && params.scale_c.is_null()
            && params.amax.is_null();
        if !is_plain || ty != Type::F32 as u32 || (row != 1 && column != 1) {
            return None;
        }
        let by_columns = column != 1;
        let line = if by_columns { column } else { row };
        let has_units = (line | batch).is_multiple_of(u64::from(VECTOR))
            && (c as usize).is_multiple_of(UNIT_BYTES as usize);
        Some(Self { by_columns, has_units })
    }
}

/// Where a thread's part of C goes.
#[derive(Clone, Copy)]
struct PlainStore<'a> {
    plain: Plain,
    product: Product<'a>,
    batch: u32,
    /// In the product.
    corner: Corner,
}

impl PlainStore<'_> {
    /// Writes the elements of a unit that are in C.
    ///
    /// # Safety
    /// As for the kernel; no other thread has them.
    #[inline(always)]
    unsafe fn store<const BY_COLUMNS: bool>(self, unit: u32, values: [f32; 4]) {
        let Self { plain, product, batch, corner } = self;
        let StridedGemm { m, n, c, .. } = *product.gemm;
        let EpilogueParams { alpha, beta, .. } = *product.epilogue;
        let (row, column) = place::<BY_COLUMNS>(unit, corner);
        if row >= m || column >= n {
            return;
        }
        let (line, along, left) = if BY_COLUMNS { (column, row, m - row) } else { (row, column, n - column) };
        let pitch = if BY_COLUMNS { c.column } else { c.row };
        let place = u64::from(batch) * c.batch + u64::from(line) * pitch + u64::from(along);
        let to = product.c.cast::<f32>().wrapping_add(place as usize);
        let scale = |value: f32, old: f32| fastmath::fma(beta, old, alpha * value);
        // SAFETY: `left` elements from there on are in C, in one piece.
        unsafe {
            if plain.has_units && left >= VECTOR {
                let old: [f32; 4] = if beta == 0.0 { [0.0; 4] } else { vector::load_v4(to.cast_const()) };
                vector::store_v4(to, [0, 1, 2, 3].map(|i| scale(values[i], old[i])));
            } else {
                unroll!(I in 0..4, {
                    if (I as u32) < left {
                        let to = to.add(I);
                        let old = if beta == 0.0 { 0.0 } else { *to };
                        *to = scale(values[I], old);
                    }
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ColumnsOf, LANES, RowsOf, Tile, VECTOR, interleaved_lane};
    use crate::gemm_f32::{Large, Small};
    use layout::banks::{wavefronts_4, wavefronts_16};

    #[test]
    fn fragments_and_copies_are_free_of_conflicts() {
        for quarter in 0..4 {
            let lane = |index: usize| interleaved_lane(quarter * 8 + index as u32);
            let a: [u32; 8] = std::array::from_fn(|index| lane(index).0 * VECTOR * 4);
            let b: [u32; 8] = std::array::from_fn(|index| lane(index).1 * VECTOR * 4);
            assert_eq!((wavefronts_16(&a), wavefronts_16(&b)), (1, 1));
        }
        let of_small = [<RowsOf<Small> as Tile>::PITCH, <ColumnsOf<Small> as Tile>::PITCH];
        for pitch in of_small.into_iter().chain([<RowsOf<Large> as Tile>::PITCH, <ColumnsOf<Large> as Tile>::PITCH]) {
            let copies: [u32; LANES as usize] =
                std::array::from_fn(|lane| (lane as u32 % 8 * pitch + lane as u32 / 8) * 4);
            assert_eq!(wavefronts_4(&copies), 1);
        }
    }
}
