//! 8-bit products with factors for blocks: of A one for each row and 128 elements of k, of B one for each 128
//! columns and 128 elements of k, as 8-bit models are trained and stored.
//!
//! The tensor cores sum a block of k; its sum times the factors is added to a sum in f32 registers, which
//! also keeps the bits that the tensor cores' own sums of 8-bit numbers lose. That is a multiply-add for each
//! accumulator and block, in which the warpgroup's own products go on, in another set of accumulators:
//!
//! ```text
//!   products   | k 0 even | k 1 odd | k 2 even | k 3 odd |
//!   additions             | even    | odd      | even    |
//! ```
//! With one set, and the other warpgroup's products meanwhile, it takes 25 % longer, even in tiles of 256 x
//! 128 10 % (H200, 4096 and 8192 cubed). Factors are read into registers four blocks or more before they are
//! wanted, so that nothing waits for memory.

use cuda_std::{fastmath, warp, wgmma};
use primitives::pipeline::PipelineState;
use primitives::unroll;

use super::config::{Config, EpiloguePlan, Of};
use super::epilogue::{Output, OutputFlag, store_with};
use super::fusion::StandardFusion;
use super::grouped::GroupScheduler;
use super::instances::{GemmArguments, Inputs};
use super::mainloop::{Mainloop, Task, run};
use super::operands::{AccumulatorTile, Operands};
use super::tile_scheduler::{PersistentScheduler, TileScheduler};
use crate::epilogue::EpilogueParams;
use crate::groups::Groups;

/// Elements of k, and columns of B, that have a factor in common.
pub const BLOCK: u32 = 128;

/// Where the factors lie.
#[derive(Clone, Copy, Debug)]
pub struct BlockScales {
    /// Of A: `[k / 128][a_pitch]`, a row of the matrix beside the next.
    pub a: *const f32,
    /// Of B: `[matrices of B][n / 128][k / 128]`.
    pub b: *const f32,
    /// From a block of k to the next in those of A, at least m.
    pub a_pitch: u32,
}

impl<C: Config<Stored = <C as Config>::Tile>> Mainloop<C> for BlockScales {
    #[inline(always)]
    unsafe fn accumulate(self, task: Task<C>, state: &mut PipelineState<Of<C>>) -> C::Stored {
        const {
            assert!(
                <C::Operands as Operands>::BLOCK_K == BLOCK,
                "a stage is a block of factors: 8-bit types"
            );
            assert!(C::BLOCK_N == BLOCK, "a tile has one factor of B");
            assert!(
                C::Tile::GROUPS == 1 && !C::PING_PONG,
                "registers for two sets of accumulators beside the sums"
            );
        };
        // SAFETY: the caller's contract: stages come, and blocks of factors that there are.
        unsafe {
            let mut factors = Factors::new(self, &task);
            let (mut even, mut odd, mut sums) = (C::Tile::zero(), C::Tile::zero(), C::Tile::zero());
            task.multiply(&mut even, *state, false);
            // Stages whose products have not been issued.
            let mut left = task.k_tiles - 1;
            while left >= 2 {
                let first = factors.next();
                add_beside(&task, state, &mut sums, &mut even, first, &mut odd);
                let second = factors.next();
                add_beside(&task, state, &mut sums, &mut odd, second, &mut even);
                left -= 2;
            }
            let last = factors.next();
            if left == 1 {
                add_beside(&task, state, &mut sums, &mut even, last, &mut odd);
                let last = factors.next();
                add_last(&task, state, &mut sums, &mut odd, last);
            } else {
                add_last(&task, state, &mut sums, &mut even, last);
            }
            sums
        }
    }
}

/// Issues the next stage's products as `next`, and meanwhile adds those at `state`, `part`, times their
/// factors.
///
/// # Safety
/// As for [`Mainloop::accumulate`]; the products at `state` have been issued.
#[inline(always)]
unsafe fn add_beside<C: Config>(
    task: &Task<C>,
    state: &mut PipelineState<Of<C>>,
    sums: &mut C::Tile,
    part: &mut C::Tile,
    factors: [f32; 2],
    next: &mut C::Tile,
) {
    let stage = state.stage;
    *state = state.next();
    // SAFETY: the caller's contract; a stage is released after the products that read it.
    unsafe {
        task.multiply(next, *state, false);
        wgmma::wait_group::<1>();
        part.fence();
        task.block.release(stage, task.thread);
    }
    add(sums, part, factors);
}

/// Adds the last products, those at `state`.
///
/// # Safety
/// As for [`add_beside`].
#[inline(always)]
unsafe fn add_last<C: Config>(
    task: &Task<C>,
    state: &mut PipelineState<Of<C>>,
    sums: &mut C::Tile,
    part: &mut C::Tile,
    factors: [f32; 2],
) {
    // SAFETY: the caller's contract.
    unsafe {
        wgmma::wait_group::<0>();
        part.fence();
        task.block.release(state.stage, task.thread);
    }
    *state = state.next();
    add(sums, part, factors);
}

/// Adds `part` times the factors of the thread's two rows.
#[inline(always)]
fn add<T: AccumulatorTile>(sums: &mut T, part: &T, factors: [f32; 2]) {
    unroll!(STEP in 0..16, {
        const { assert!(T::COLUMNS == BLOCK) };
        unroll!(REGISTER in 0..4, {
            let index = 4 * STEP + REGISTER;
            let sum = fastmath::fma(part.get(0, index), factors[REGISTER / 2], sums.get(0, index));
            sums.set(0, index, sum);
        });
    });
}

/// Blocks of k whose factors a quad reads at a time.
const QUAD: u32 = 4;

/// Reads the factors of a thread's rows and of the tile's columns, a block of k after the other.
///
/// The four lanes of a quad have the same rows: each reads the factors of every fourth block and multiplies
/// them, and the others get the product by a shuffle. So no factor is read twice, and each four blocks or
/// more before it is wanted. (Nor are addresses the same in all lanes: ptxas would move what is read there
/// into uniform registers at once, and so wait for it.)
struct Factors {
    from: BlockScales,
    /// The thread's first row, and A's last one.
    row: u32,
    last_row: u32,
    /// Where the tile's columns have their factors.
    columns: usize,
    /// The block whose factors the lane reads next, and the last one.
    ahead: u32,
    last: u32,
    /// The block that is wanted next.
    block: u32,
    /// Products of the factors of the lane's one of the four blocks that are wanted.
    here: [f32; 2],
    /// Factors of the rows and of the columns in its one of the next four.
    rows: [f32; 2],
    column: f32,
}

impl Factors {
    /// From the first block on. The whole warp calls it.
    ///
    /// # Safety
    /// The whole warp calls it. `from` is valid for reads of a factor for each block of both operands.
    #[inline(always)]
    unsafe fn new<C: Config>(from: BlockScales, task: &Task<C>) -> Self {
        let (lane, warp) = (task.thread % 32, task.thread / 32);
        let across = task.shape.n.div_ceil(BLOCK) * task.tile.group;
        let mut factors = Self {
            from,
            row: task.tile.row + warp * 16 + lane / QUAD,
            last_row: task.shape.m - 1,
            columns: (across + task.tile.column / BLOCK) as usize * task.k_tiles as usize,
            ahead: lane % QUAD,
            last: task.k_tiles - 1,
            block: 0,
            here: [0.0; 2],
            rows: [0.0; 2],
            column: 0.0,
        };
        // SAFETY: the caller's contract.
        unsafe {
            factors.read();
            factors.advance();
        }
        factors
    }

    /// Reads those of the lane's next block; behind the last one its again. What is computed of rows that A
    /// does not have goes nowhere, so they take the last one's.
    ///
    /// # Safety
    /// The factors that [`Factors::new`] was given are still valid for reads.
    #[inline(always)]
    unsafe fn read(&mut self) {
        let block = if self.ahead < self.last { self.ahead } else { self.last } as usize;
        let rows = self.from.a.wrapping_add(block * self.from.a_pitch as usize);
        // SAFETY: blocks and rows that there are.
        unsafe {
            self.column = self.from.b.add(self.columns + block).read();
            unroll!(HALF in 0..2, {
                let row = self.row + HALF as u32 * 8;
                let row = if row < self.last_row { row } else { self.last_row };
                self.rows[HALF] = rows.add(row as usize).read();
            });
        }
        self.ahead += QUAD;
    }

    /// Goes to the next four blocks.
    ///
    /// # Safety
    /// As for [`Factors::read`].
    #[inline(always)]
    unsafe fn advance(&mut self) {
        let column = self.column;
        self.here = self.rows.map(|row| row * column);
        // SAFETY: the caller's contract.
        unsafe { self.read() }
    }

    /// The products of the next block. The whole warp calls it, once for each block.
    ///
    /// # Safety
    /// The whole warp calls it, and the factors are still valid for reads.
    #[inline(always)]
    unsafe fn next(&mut self) -> [f32; 2] {
        let lane = self.block % QUAD;
        let of_quad = |own: f32| {
            // SAFETY: the whole warp is here.
            unsafe { warp::warp_shuffle_idx(warp::FULL_MASK, own, lane, QUAD).0 }
        };
        let products = self.here.map(of_quad);
        self.block += 1;
        if self.block.is_multiple_of(QUAD) {
            // SAFETY: the caller's contract.
            unsafe { self.advance() }
        }
        products
    }
}

/// A product with factors for blocks. The epilogue's inputs are not looked at.
///
/// # Safety
/// As [`run`], with what the arguments describe, and one product in the batch.
#[inline(always)]
pub(super) unsafe fn block_scaled<C: Config<Stored = <C as Config>::Tile, EpiloguePlan = EpiloguePlan<C>>>(
    inputs: Inputs<'_>,
) {
    let scheduler = PersistentScheduler::new::<C>(&inputs.arguments.shape);
    // SAFETY: the caller's contract.
    unsafe { scaled::<C, _>(inputs, scheduler) }
}

/// The same for [groups](crate::groups) of rows, with a matrix of B and its factors for each.
///
/// # Safety
/// As there.
#[inline(always)]
pub(super) unsafe fn block_scaled_grouped<
    C: Config<Stored = <C as Config>::Tile, EpiloguePlan = EpiloguePlan<C>>,
>(
    inputs: Inputs<'_>,
) {
    let GemmArguments { shape, groups, .. } = inputs.arguments;
    let scheduler = GroupScheduler::new::<C>(shape, Groups::new(inputs.offsets, groups, shape.m));
    // SAFETY: the caller's contract.
    unsafe { scaled::<C, _>(inputs, scheduler) }
}

/// # Safety
/// As [`block_scaled`].
#[inline(always)]
unsafe fn scaled<
    C: Config<Stored = <C as Config>::Tile, EpiloguePlan = EpiloguePlan<C>>,
    S: TileScheduler<C>,
>(
    inputs: Inputs<'_>,
    scheduler: S,
) {
    let Inputs { maps, arguments, data, read: [a, b], .. } = inputs;
    let GemmArguments { shape, output, scales_pitch, .. } = arguments;
    let output = Output::limited(data, output, &[OutputFlag::Paired, OutputFlag::ByTma, OutputFlag::Plain]);
    let scales = BlockScales { a, b, a_pitch: *scales_pitch };
    let fusion: StandardFusion<'_, <C::Operands as Operands>::Element16> =
        StandardFusion::new(&EpilogueParams::NONE, output);
    // SAFETY: the caller's contract.
    unsafe { run::<C, _, _, _>(maps, *shape, scheduler, scales, store_with(maps, *shape, output, fusion)) }
}
