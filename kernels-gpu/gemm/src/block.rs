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
/// Rows, and columns, between a thread's groups of four.
const ROW_GROUP: u32 = LANE_ROWS * VECTOR;
const COLUMN_GROUP: u32 = LANE_COLUMNS * VECTOR;
/// Rows of C of a warp.
const WARP_ROWS: u32 = 2 * ROW_GROUP;
/// Rows of blocks of a band.
const BAND: u32 = 16;
/// Columns of the `A` tile between two jumps of the inner loop.
const STEPS: u32 = 8;
/// A block of `ACROSS` warps beside each other, as many for each of `SLICES` parts of a tile's k.
///
/// A thread has 8 rows and `COLUMN_GROUPS` times 4 columns of C. `STAGES` tiles of `DEPTH` columns of `A` and
/// rows of `B` are in shared memory.
pub(crate) struct Block<
    const COLUMN_GROUPS: usize,
    const ACROSS: u32,
    const SLICES: u32,
    const DEPTH: u32,
    const STAGES: u32,
>;

/// The rows of A of a block.
pub(crate) struct RowsOf<B>(B);
/// The columns of B of a block.
pub(crate) struct ColumnsOf<B>(B);

impl<const COLUMN_GROUPS: usize, const ACROSS: u32, const SLICES: u32, const DEPTH: u32, const STAGES: u32>
    Tile for RowsOf<Block<COLUMN_GROUPS, ACROSS, SLICES, DEPTH, STAGES>>
{
    const LINES: u32 = Block::<COLUMN_GROUPS, ACROSS, SLICES, DEPTH, STAGES>::ROWS;
    const DEPTH: u32 = DEPTH;
    const THREADS: u32 = Block::<COLUMN_GROUPS, ACROSS, SLICES, DEPTH, STAGES>::THREADS;
}

impl<const COLUMN_GROUPS: usize, const ACROSS: u32, const SLICES: u32, const DEPTH: u32, const STAGES: u32>
    Tile for ColumnsOf<Block<COLUMN_GROUPS, ACROSS, SLICES, DEPTH, STAGES>>
{
    const LINES: u32 = Block::<COLUMN_GROUPS, ACROSS, SLICES, DEPTH, STAGES>::COLUMNS;
    const DEPTH: u32 = DEPTH;
    const THREADS: u32 = Block::<COLUMN_GROUPS, ACROSS, SLICES, DEPTH, STAGES>::THREADS;
}

/// A thread's part of `C`: groups of rows, rows, groups of columns, columns.
type Accumulators<const COLUMN_GROUPS: usize> = [[[[f32; 4]; COLUMN_GROUPS]; 4]; 2];

/// A thread's part of a column of the `A` tile and of a row of the `B` tile, by groups of four.
#[derive(Clone, Copy)]
struct Fragment<const COLUMN_GROUPS: usize> {
    a: [[f32; 4]; 2],
    b: [[f32; 4]; COLUMN_GROUPS],
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

impl<const COLUMN_GROUPS: usize, const ACROSS: u32, const SLICES: u32, const DEPTH: u32, const STAGES: u32>
    Block<COLUMN_GROUPS, ACROSS, SLICES, DEPTH, STAGES>
{
    /// Rows of `C`.
    pub const ROWS: u32 = WARP_ROWS;
    /// Columns of `C`.
    pub const COLUMNS: u32 = ACROSS * COLUMN_GROUPS as u32 * COLUMN_GROUP;
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
    /// 16-byte units of a thread's part of C, and of them those that it finishes.
    const UNITS: u32 = 8 * COLUMN_GROUPS as u32;
    const OWN_UNITS: u32 = Self::UNITS / SLICES;

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
            assert!(COLUMN_GROUPS <= 4 && SLICES <= 4, "the loops below count them out");
            assert!(Self::UNITS.is_multiple_of(SLICES), "a thread finishes whole units");
            // The sums, in rows or in columns, and those of all warps along k.
            assert!(STAGES * Self::STAGE_BYTES >= Self::ROWS * (Self::COLUMNS + VECTOR) * ELEMENT);
            assert!(STAGES * Self::STAGE_BYTES >= Self::COLUMNS * (Self::ROWS + VECTOR) * ELEMENT);
            assert!(STAGES * Self::STAGE_BYTES >= Self::UNITS * UNIT_BYTES * Self::THREADS || SLICES == 1);
        }
        let Product { gemm, a, b, part, .. } = product;
        let StridedGemm { m, n, k, a: a_layout, b: b_layout, .. } = *gemm;
        let TileCoord { batch, row, column } = Self::coord(gemm, 0);
        let k = if part == 0 { k } else { part.min(k - batch * part) };
        let of =
            |base: *const f32, layout: Layout| base.wrapping_add((u64::from(batch) * layout.batch) as usize);
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
            Self::finish(product, coord, corner, &released(accumulators, nothing), stages);
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
        Corner {
            row: lane_row * VECTOR,
            column: across * COLUMN_GROUPS as u32 * COLUMN_GROUP + lane_column * VECTOR,
        }
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
    ) -> (Accumulators<COLUMN_GROUPS>, u32) {
        // SAFETY: all-zero bytes are f32 zeros. (An array expression would be filled by a loop, in local
        // memory.)
        let mut accumulators: Accumulators<COLUMN_GROUPS> = unsafe { core::mem::zeroed() };
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
                    of_a.start(next, k - copied);
                    of_b.start(next + Self::B_OFFSET, k - copied);
                }
                copied += DEPTH;
            }
            pipeline.commit();
            if is_primed {
                // SAFETY: the stage's copies have been waited for; it is written again after the next wait.
                unsafe { Self::multiply_tile(&mut accumulators, stage, corner, k - done) };
                pipeline.release();
                done += DEPTH;
            } else {
                ahead += 1;
            }
        }
        (accumulators, done)
    }

    /// Adds the product of this warp's part of a stage's tiles, of which so much of k is left.
    ///
    /// # Safety
    /// `stage` is the shared address of a stage that is written, and `corner` the thread's in the tile.
    #[inline(always)]
    unsafe fn multiply_tile(
        accumulators: &mut Accumulators<COLUMN_GROUPS>,
        stage: u32,
        corner: Corner,
        left: u32,
    ) {
        let first = Self::slice() * (DEPTH / SLICES);
        let mut a = stage + (first * Self::A_PITCH + corner.row) * ELEMENT;
        let mut b = stage + Self::B_OFFSET + (first * Self::B_PITCH + corner.column) * ELEMENT;
        let mut step = 0;
        while step < DEPTH / SLICES && first + step < left {
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
    unsafe fn fragment(a: u32, b: u32, step: u32) -> Fragment<COLUMN_GROUPS> {
        let a = a + step * Self::A_PITCH * ELEMENT;
        let b = b + step * Self::B_PITCH * ELEMENT;
        let mut fragment = Fragment { a: [[0.0; 4]; 2], b: [[0.0; 4]; COLUMN_GROUPS] };
        unroll!(GROUP in 0..4, {
            // SAFETY: the caller's word.
            unsafe {
                if GROUP < 2 {
                    fragment.a[GROUP] = vector::load_shared_v4(a + GROUP as u32 * ROW_GROUP * ELEMENT);
                }
                if GROUP < COLUMN_GROUPS {
                    fragment.b[GROUP] = vector::load_shared_v4(b + GROUP as u32 * COLUMN_GROUP * ELEMENT);
                }
            }
        });
        fragment
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
        accumulators: &Accumulators<COLUMN_GROUPS>,
        stages: u32,
    ) {
        let Product { gemm, epilogue, c, .. } = product;
        let plain = Plain::of(product, coord.batch);
        // SAFETY: the caller's contract; barriers part the uses of the stages.
        unsafe {
            async_copy::wait_all();
            thread::sync_threads();
            let Some(plain) = plain else {
                Self::stage::<false>(accumulators, corner, stages);
                thread::sync_threads();
                let sums = Sums {
                    address: stages,
                    rows: Self::ROWS,
                    columns: Self::COLUMNS,
                    pitch: Self::COLUMNS + VECTOR,
                    threads: Self::THREADS,
                };
                return Epilogue::new(gemm, c, epilogue, GroupInputs::first(epilogue)).store(sums, coord);
            };
            if plain.by_columns {
                Self::store_plain::<true>(plain, [coord.column, coord.row], accumulators, corner, stages);
            } else {
                Self::store_plain::<false>(plain, [coord.row, coord.column], accumulators, corner, stages);
            }
        }
    }

    /// Writes the block's part of C, whose lines (rows, or columns) begin at `first`.
    ///
    /// # Safety
    /// As for [`Self::finish`].
    #[inline(always)]
    unsafe fn store_plain<const BY_COLUMNS: bool>(
        plain: Plain,
        first: [u32; 2],
        accumulators: &Accumulators<COLUMN_GROUPS>,
        corner: Corner,
        stages: u32,
    ) {
        // SAFETY: the caller's contract.
        unsafe {
            if plain.has_units {
                let units = Self::sums::<BY_COLUMNS>(accumulators, stages);
                unroll!(I in 0..32, {
                    if (I as u32) < Self::OWN_UNITS {
                        let [line, along] = Self::place::<BY_COLUMNS>(Self::first_unit() + I as u32, corner);
                        plain.store_unit([first[0] + line, first[1] + along], units[I]);
                    }
                });
                return;
            }
            Self::stage::<BY_COLUMNS>(accumulators, corner, stages);
            thread::sync_threads();
            // A warp a line, so that lanes write neighbours.
            let lines = if BY_COLUMNS { Self::COLUMNS } else { Self::ROWS };
            let length = if BY_COLUMNS { Self::ROWS } else { Self::COLUMNS };
            let thread = thread::thread_idx_x();
            let mut line = thread / LANES;
            while line < lines {
                let mut along = thread % LANES;
                while along < length {
                    let sum = vector::load_shared(stages + (line * (length + VECTOR) + along) * ELEMENT);
                    plain.store([first[0] + line, first[1] + along], sum);
                    along += LANES;
                }
                line += Self::THREADS / LANES;
            }
        }
    }

    /// The thread's part of C in units along rows, or along columns.
    #[inline(always)]
    fn units<const BY_COLUMNS: bool>(accumulators: &Accumulators<COLUMN_GROUPS>) -> Units {
        let mut units = [[0.0; 4]; MOST_UNITS];
        unroll!(I in 0..32, {
            if (I as u32) < Self::UNITS {
                let along_line = if BY_COLUMNS { 2 } else { COLUMN_GROUPS };
                let (group, line, along) = (I / (4 * along_line), I / along_line % 4, I % along_line);
                unroll!(J in 0..4, {
                    units[I][J] = if BY_COLUMNS {
                        accumulators[along][J][group][line]
                    } else {
                        accumulators[group][line][along][J]
                    };
                });
            }
        });
        units
    }

    /// Where a unit of the thread at `corner` begins in the tile: line, and place along it.
    #[inline(always)]
    fn place<const BY_COLUMNS: bool>(unit: u32, corner: Corner) -> [u32; 2] {
        let along_line = if BY_COLUMNS { 2 } else { COLUMN_GROUPS as u32 };
        let (group, line, along) = (unit / (4 * along_line), unit / along_line % 4, unit % along_line);
        if BY_COLUMNS {
            [corner.column + group * COLUMN_GROUP + line, corner.row + along * ROW_GROUP]
        } else {
            [corner.row + group * ROW_GROUP + line, corner.column + along * COLUMN_GROUP]
        }
    }

    /// The first unit that this thread finishes.
    #[inline(always)]
    fn first_unit() -> u32 {
        Self::slice() * Self::OWN_UNITS
    }

    /// Writes the sums of the block to shared memory, line behind line.
    ///
    /// # Safety
    /// All threads of the block call it, and none uses the memory at `stages` meanwhile.
    #[inline(always)]
    unsafe fn stage<const BY_COLUMNS: bool>(
        accumulators: &Accumulators<COLUMN_GROUPS>,
        corner: Corner,
        stages: u32,
    ) {
        let pitch = if BY_COLUMNS { Self::ROWS } else { Self::COLUMNS } + VECTOR;
        // SAFETY: inside of the stages, whose other use a barrier parts from this one.
        unsafe {
            let units = Self::sums::<BY_COLUMNS>(accumulators, stages);
            if SLICES > 1 {
                thread::sync_threads();
            }
            unroll!(I in 0..32, {
                if (I as u32) < Self::OWN_UNITS {
                    let [line, along] = Self::place::<BY_COLUMNS>(Self::first_unit() + I as u32, corner);
                    vector::store_shared_v4(stages + (line * pitch + along) * ELEMENT, units[I]);
                }
            });
        }
    }

    /// The sums of the units that this thread finishes, of all warps along k in their order.
    ///
    /// # Safety
    /// As for [`Self::stage`].
    #[inline(always)]
    unsafe fn sums<const BY_COLUMNS: bool>(accumulators: &Accumulators<COLUMN_GROUPS>, stages: u32) -> Units {
        let units = Self::units::<BY_COLUMNS>(accumulators);
        if SLICES == 1 {
            return units;
        }
        let lane = stages + thread::thread_idx_x() % (ACROSS * LANES) * UNIT_BYTES;
        let of_unit = ACROSS * LANES * UNIT_BYTES;
        let of_slice = Self::UNITS * of_unit;
        let mut sums = [[0.0f32; 4]; MOST_UNITS];
        // SAFETY: a place for each thread and each of its units; barriers part it from other uses.
        unsafe {
            unroll!(I in 0..32, {
                if (I as u32) < Self::UNITS {
                    let to = lane + Self::slice() * of_slice + I as u32 * of_unit;
                    vector::store_shared_v4(to, units[I]);
                }
            });
            thread::sync_threads();
            unroll!(I in 0..32, {
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

/// The same sums in registers of their own: stores want four neighbours in aligned ones, as loads of B do, so
/// that every accumulator would be in the bank of its element of B. `nothing` is 0.
#[inline(always)]
fn released<const COLUMN_GROUPS: usize>(
    accumulators: Accumulators<COLUMN_GROUPS>,
    nothing: u32,
) -> Accumulators<COLUMN_GROUPS> {
    let mut sums = accumulators;
    unroll!(ROW in 0..8, {
        unroll!(COLUMN in 0..16, {
            if COLUMN / 4 < COLUMN_GROUPS {
                let sum = &mut sums[ROW / 4][ROW % 4][COLUMN / 4][COLUMN % 4];
                *sum = f32::from_bits(sum.to_bits() ^ nothing);
            }
        });
    });
    sums
}

/// 16-byte units of a thread's part of C, at most.
const MOST_UNITS: usize = 32;
/// Units of a thread.
type Units = [[f32; 4]; MOST_UNITS];

impl<const COLUMN_GROUPS: usize> Fragment<COLUMN_GROUPS> {
    /// Adds the outer product, row by row, there and back: each multiply-add but the first reads its element
    /// of A or of B again, which takes no port of a register bank.
    #[inline(always)]
    fn multiply(&self, accumulators: &mut Accumulators<COLUMN_GROUPS>) {
        unroll!(ROW in 0..8, {
            let a = self.a[ROW / 4][ROW % 4];
            unroll!(INDEX in 0..16, {
                if INDEX / 4 < COLUMN_GROUPS {
                    let column = if ROW % 2 == 0 { INDEX } else { 4 * COLUMN_GROUPS - 1 - INDEX };
                    let sum = &mut accumulators[ROW / 4][ROW % 4][column / 4][column % 4];
                    *sum = fastmath::fma(a, self.b[column / 4][column % 4], *sum);
                }
            });
        });
    }
}

/// An epilogue of alpha and beta alone, on f32 whose rows or columns, the lines, lie in one piece.
#[derive(Clone, Copy)]
struct Plain {
    alpha: f32,
    beta: f32,
    by_columns: bool,
    /// Lines are whole units, and begin at 16-byte boundaries.
    has_units: bool,
    /// The matrix of the batch.
    c: *mut f32,
    lines: u32,
    length: u32,
    /// Elements from a line to the next.
    pitch: u64,
}

impl Plain {
    #[inline(always)]
    fn of(product: Product<'_>, index: u32) -> Option<Self> {
        let Product { gemm, epilogue: params, c, .. } = product;
        let StridedGemm { m, n, c: Layout { ty, row, column, batch }, .. } = *gemm;
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
        let (lines, length, pitch) = if by_columns { (n, m, column) } else { (m, n, row) };
        let c = c.cast::<f32>().wrapping_add((u64::from(index) * batch) as usize);
        let has_units = pitch.is_multiple_of(u64::from(VECTOR))
            && length.is_multiple_of(VECTOR)
            && (c as usize).is_multiple_of(UNIT_BYTES as usize);
        let EpilogueParams { alpha, beta, .. } = *params;
        Some(Self { alpha, beta, by_columns, has_units, c, lines, length, pitch })
    }

    /// The element of C there, if there is one.
    #[inline(always)]
    fn element(self, [line, along]: [u32; 2]) -> Option<*mut f32> {
        let place = u64::from(line) * self.pitch + u64::from(along);
        (line < self.lines && along < self.length).then_some(self.c.wrapping_add(place as usize))
    }

    /// Writes four elements of a line, if they are in C.
    ///
    /// # Safety
    /// As for the kernel; no other thread has them; there are units, of which this is one.
    #[inline(always)]
    unsafe fn store_unit(self, place: [u32; 2], sums: [f32; 4]) {
        if let Some(to) = self.element(place) {
            // SAFETY: a unit of C.
            unsafe {
                let old: [f32; 4] =
                    if self.beta == 0.0 { [0.0; 4] } else { vector::load_v4(to.cast_const()) };
                vector::store_v4(to, [0, 1, 2, 3].map(|i| self.scale(sums[i], old[i])));
            }
        }
    }

    /// Writes an element, if it is in C.
    ///
    /// # Safety
    /// As for the kernel; no other thread has it.
    #[inline(always)]
    unsafe fn store(self, place: [u32; 2], sum: f32) {
        if let Some(to) = self.element(place) {
            // SAFETY: an element of C.
            unsafe {
                let old = if self.beta == 0.0 { 0.0 } else { *to };
                *to = self.scale(sum, old);
            }
        }
    }

    #[inline(always)]
    fn scale(self, sum: f32, old: f32) -> f32 {
        fastmath::fma(self.beta, old, self.alpha * sum)
    }
}

#[cfg(test)]
mod tests;
