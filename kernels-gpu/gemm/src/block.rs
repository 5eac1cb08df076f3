//! The work of a block: a tile of [`crate::gemm_f32`], for any size of the tile.

use crate::load::Loader;
use cuda_std::{fastmath, thread, vector};
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
/// Rows between a thread's groups of four.
const ROW_GROUP: u32 = LANE_ROWS * VECTOR;
/// Columns between a thread's groups of four.
const COLUMN_GROUP: u32 = LANE_COLUMNS * VECTOR;
/// Rows of blocks of a band.
const BAND: u32 = 16;
/// Columns of the `A` tile between two jumps of the inner loop.
const STEPS: u32 = 8;

/// Shape and operands.
#[derive(Clone, Copy)]
pub(crate) struct DenseShape {
    pub m: u32,
    pub n: u32,
    pub k: u32,
    pub a: *const f32,
    pub b: *const f32,
}

/// The size of a block's tile.
pub(crate) trait Shape {
    /// Rows of `C`.
    const ROWS: u32;
    /// Columns of `C`.
    const COLUMNS: u32;
    /// Columns of `A` in shared memory at a time.
    const DEPTH: u32;
    /// Threads of the block.
    const THREADS: u32;
    /// Distance between columns of the `A` tile: the padding spreads a column's copies over the banks.
    const A_PITCH: u32 = Self::ROWS + VECTOR;
    /// Bytes from the `A` tile to the `B` tile behind it.
    const B_OFFSET: u32 = Self::DEPTH * Self::A_PITCH * ELEMENT;
    /// Bytes of both tiles.
    const STAGE_BYTES: u32 = Self::B_OFFSET + Self::DEPTH * Self::COLUMNS * ELEMENT;
}

/// A block of `DOWN x ACROSS` warps whose threads hold `ROW_GROUPS x COLUMN_GROUPS` squares of 4 x 4 elements
/// of `C`, with `STAGES` tiles of `DEPTH` columns of `A` and rows of `B` in shared memory.
pub(crate) struct Block<
    const ROW_GROUPS: usize,
    const COLUMN_GROUPS: usize,
    const DOWN: u32,
    const ACROSS: u32,
    const DEPTH: u32,
    const STAGES: u32,
>;

impl<
    const ROW_GROUPS: usize,
    const COLUMN_GROUPS: usize,
    const DOWN: u32,
    const ACROSS: u32,
    const DEPTH: u32,
    const STAGES: u32,
> Shape for Block<ROW_GROUPS, COLUMN_GROUPS, DOWN, ACROSS, DEPTH, STAGES>
{
    const ROWS: u32 = DOWN * Self::WARP_ROWS;
    const COLUMNS: u32 = ACROSS * Self::WARP_COLUMNS;
    const DEPTH: u32 = DEPTH;
    const THREADS: u32 = DOWN * ACROSS * LANES;
}

/// A thread's part of `C`: groups of rows, rows, groups of columns, columns.
type Accumulators<const ROW_GROUPS: usize, const COLUMN_GROUPS: usize> =
    [[[[f32; 4]; COLUMN_GROUPS]; 4]; ROW_GROUPS];

/// A thread's part of a column of the `A` tile and of a row of the `B` tile, by groups of four.
#[derive(Clone, Copy)]
struct Fragment<const ROW_GROUPS: usize, const COLUMN_GROUPS: usize> {
    a: [[f32; 4]; ROW_GROUPS],
    b: [[f32; 4]; COLUMN_GROUPS],
}

/// Where a thread's part of a tile begins.
#[derive(Clone, Copy)]
struct Corner {
    row: u32,
    column: u32,
}

/// The epilogue of the product.
#[derive(Clone, Copy)]
pub(crate) struct Epilogue {
    pub alpha: f32,
    pub beta: f32,
    pub c: *mut f32,
}

impl<
    const ROW_GROUPS: usize,
    const COLUMN_GROUPS: usize,
    const DOWN: u32,
    const ACROSS: u32,
    const DEPTH: u32,
    const STAGES: u32,
> Block<ROW_GROUPS, COLUMN_GROUPS, DOWN, ACROSS, DEPTH, STAGES>
{
    const WARP_ROWS: u32 = ROW_GROUPS as u32 * ROW_GROUP;
    const WARP_COLUMNS: u32 = COLUMN_GROUPS as u32 * COLUMN_GROUP;
    /// Threads of the block.
    pub const THREADS: u32 = <Self as Shape>::THREADS;
    /// Tiles of A and B in shared memory at a time.
    pub const STAGES: u32 = STAGES;
    /// 16-byte units of shared memory.
    pub const SHARED_UNITS: usize = (STAGES * Self::STAGE_BYTES / UNIT_BYTES) as usize;

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
    pub unsafe fn run(problem: DenseShape, epilogue: Epilogue, stages: u32) {
        const { assert!(ROW_GROUPS <= 2 && COLUMN_GROUPS <= 2, "the loops below count them out") };
        const { assert!(DEPTH.is_multiple_of(STEPS)) };
        let DenseShape { m, n, .. } = problem;
        let (tile_row, tile_column) =
            grouped_tile(thread::block_idx_x(), m.div_ceil(Self::ROWS), n.div_ceil(Self::COLUMNS), BAND);
        let (row, column) = (tile_row * Self::ROWS, tile_column * Self::COLUMNS);
        let corner = Self::corner();
        // SAFETY: the caller's word for the operands; the loader and the epilogue guard what lies outside of
        // them.
        unsafe {
            let loader = Loader::<Self>::new(problem, row, column);
            let accumulators = Self::multiply(loader, stages, corner);
            let corner = Corner { row: row + corner.row, column: column + corner.column };
            Self::store(problem, corner, &accumulators, epilogue);
        }
    }

    #[inline(always)]
    fn corner() -> Corner {
        let thread = thread::thread_idx_x();
        let warp = thread / LANES;
        let (lane_row, lane_column) = interleaved_lane(thread % LANES);
        Corner {
            row: warp / ACROSS * Self::WARP_ROWS + lane_row * VECTOR,
            column: warp % ACROSS * Self::WARP_COLUMNS + lane_column * VECTOR,
        }
    }

    /// The main loop: this thread's part of `A B`.
    ///
    /// # Safety
    /// All threads of the block call it. `stages` is the shared address of `STAGES` stages that nothing else
    /// uses.
    #[inline(always)]
    unsafe fn multiply(
        mut loader: Loader<Self>,
        stages: u32,
        corner: Corner,
    ) -> Accumulators<ROW_GROUPS, COLUMN_GROUPS> {
        // SAFETY: all-zero bytes are f32 zeros. (An array expression would be filled by a loop, in local
        // memory.)
        let mut accumulators: Accumulators<ROW_GROUPS, COLUMN_GROUPS> = unsafe { core::mem::zeroed() };
        let mut pipeline: CopyPipeline<Stages<STAGES>> = CopyPipeline::new(Stages, Self::STAGE_BYTES);
        let mut done = 0;
        // SAFETY: a stage is read after the wait for its copies, and written again after the next wait.
        unsafe {
            let mut ahead = 0;
            while ahead < pipeline.prologue() {
                loader.start(stages + pipeline.stage_to_load());
                pipeline.commit();
                ahead += 1;
            }
            while done < loader.problem.k {
                let stage = stages + pipeline.wait();
                loader.start(stages + pipeline.stage_to_load());
                pipeline.commit();
                Self::multiply_tile(&mut accumulators, stage, corner);
                pipeline.release();
                done += DEPTH;
            }
        }
        accumulators
    }

    /// Adds the product of a stage's tiles.
    ///
    /// # Safety
    /// `stage` is the shared address of a stage that is written, and `corner` the thread's in the tile.
    #[inline(always)]
    unsafe fn multiply_tile(
        accumulators: &mut Accumulators<ROW_GROUPS, COLUMN_GROUPS>,
        stage: u32,
        corner: Corner,
    ) {
        let mut a = stage + corner.row * ELEMENT;
        let mut b = stage + Self::B_OFFSET + corner.column * ELEMENT;
        let mut step = 0;
        while step < DEPTH {
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
            b += STEPS * Self::COLUMNS * ELEMENT;
            step += STEPS;
        }
    }

    /// The fragment `step` columns after the one at `a` and `b`.
    ///
    /// # Safety
    /// `a` and `b` are shared addresses of this thread's elements of written tiles, at least `step + 1`
    /// columns before their ends.
    #[inline(always)]
    unsafe fn fragment(a: u32, b: u32, step: u32) -> Fragment<ROW_GROUPS, COLUMN_GROUPS> {
        let a = a + step * Self::A_PITCH * ELEMENT;
        let b = b + step * Self::COLUMNS * ELEMENT;
        let mut fragment = Fragment { a: [[0.0; 4]; ROW_GROUPS], b: [[0.0; 4]; COLUMN_GROUPS] };
        unroll!(GROUP in 0..2, {
            // SAFETY: the caller's word.
            unsafe {
                if GROUP < ROW_GROUPS {
                    fragment.a[GROUP] = vector::load_shared_v4(a + GROUP as u32 * ROW_GROUP * ELEMENT);
                }
                if GROUP < COLUMN_GROUPS {
                    fragment.b[GROUP] = vector::load_shared_v4(b + GROUP as u32 * COLUMN_GROUP * ELEMENT);
                }
            }
        });
        fragment
    }

    /// Writes this thread's part of `C`, which begins at `corner`.
    ///
    /// # Safety
    /// `epilogue.c` is valid for reads and writes of `m * n` elements, and no other thread has those of
    /// `corner`.
    #[inline(always)]
    unsafe fn store(
        problem: DenseShape,
        corner: Corner,
        accumulators: &Accumulators<ROW_GROUPS, COLUMN_GROUPS>,
        epilogue: Epilogue,
    ) {
        let units = has_units(epilogue.c, problem.n);
        unroll!(ROW in 0..8, {
            if ROW / 4 < ROW_GROUPS {
                let row = corner.row + ROW as u32 / 4 * ROW_GROUP + ROW as u32 % 4;
                unroll!(GROUP in 0..2, {
                    if GROUP < COLUMN_GROUPS {
                        let column = corner.column + GROUP as u32 * COLUMN_GROUP;
                        let values = accumulators[ROW / 4][ROW % 4][GROUP];
                        if row < problem.m && column < problem.n {
                            let place = row as usize * problem.n as usize + column as usize;
                            // SAFETY: guarded.
                            unsafe {
                                if units {
                                    epilogue.store_unit(place, values);
                                } else {
                                    epilogue.store_elements(place, values, problem.n - column);
                                }
                            }
                        }
                    }
                });
            }
        });
    }
}

impl<const ROW_GROUPS: usize, const COLUMN_GROUPS: usize> Fragment<ROW_GROUPS, COLUMN_GROUPS> {
    /// Adds the outer product.
    #[inline(always)]
    fn multiply(&self, accumulators: &mut Accumulators<ROW_GROUPS, COLUMN_GROUPS>) {
        unroll!(ROW in 0..8, {
            if ROW / 4 < ROW_GROUPS {
                let a = self.a[ROW / 4][ROW % 4];
                unroll!(COLUMN in 0..8, {
                    if COLUMN / 4 < COLUMN_GROUPS {
                        let sum = &mut accumulators[ROW / 4][ROW % 4][COLUMN / 4][COLUMN % 4];
                        *sum = fastmath::fma(a, self.b[COLUMN / 4][COLUMN % 4], *sum);
                    }
                });
            }
        });
    }
}

impl Epilogue {
    /// Four elements of `C` from element `place` on.
    ///
    /// # Safety
    /// Elements `place..place + 4` are inside of C, at a 16-byte boundary, and no other thread touches them.
    #[inline(always)]
    unsafe fn store_unit(self, place: usize, values: [f32; 4]) {
        // SAFETY: the caller has an aligned unit inside C.
        unsafe {
            let to = self.c.add(place);
            let old: [f32; 4] = if self.beta == 0.0 { [0.0; 4] } else { vector::load_v4(to.cast_const()) };
            vector::store_v4(to, [0, 1, 2, 3].map(|i| self.scale(values[i], old[i])));
        }
    }

    /// The first `left` of the four values.
    ///
    /// # Safety
    /// Elements `place..place + left` are inside of C, and no other thread touches them.
    #[inline(always)]
    unsafe fn store_elements(self, place: usize, values: [f32; 4], left: u32) {
        unroll!(I in 0..4, {
            if (I as u32) < left {
                // SAFETY: the caller has `left` elements inside C.
                unsafe {
                    let to = self.c.add(place + I);
                    let old = if self.beta == 0.0 { 0.0 } else { *to };
                    *to = self.scale(values[I], old);
                }
            }
        });
    }

    #[inline(always)]
    fn scale(self, value: f32, old: f32) -> f32 {
        if self.beta == 0.0 { self.alpha * value } else { fastmath::fma(self.alpha, value, self.beta * old) }
    }
}

/// Whether rows of `length` elements can be accessed 16 bytes at a time.
#[inline(always)]
pub(crate) fn has_units(pointer: *const f32, length: u32) -> bool {
    length.is_multiple_of(VECTOR) && (pointer as usize).is_multiple_of(UNIT_BYTES as usize)
}

#[cfg(test)]
mod tests {
    use super::{LANES, Shape, VECTOR, interleaved_lane};
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
        for pitch in [Large::A_PITCH, Small::A_PITCH] {
            let copies: [u32; LANES as usize] =
                std::array::from_fn(|lane| (lane as u32 % 8 * pitch + lane as u32 / 8) * 4);
            assert_eq!(wavefronts_4(&copies), 1);
        }
    }
}
