//! How a consumer sums the products of a tile's stages.

use cuda_std::{barrier, wgmma};

use super::config::{Config, WARPGROUP};
use super::operands::{BOX_BYTES, BOX_ELEMENTS, Operands, ROW_BYTES, STEPS, Source, Tile};
use super::pipeline::{Position, Ring};
use super::problem::{Corner, Problem};
use crate::unroll::unrolled;

/// Barrier at which the first consumer waits for its turn; the other's follows. Those before are of the block and of
/// the consumers' stores.
const FIRST_TURN_BARRIER: u32 = 3;

/// A tile to be summed, as one thread of a consumer sees it.
#[derive(Clone, Copy)]
pub struct Task<C> {
    /// The stages.
    pub ring: Ring<C>,
    /// Where the consumer's part of the tile begins in the product.
    pub corner: Corner,
    /// Where it begins in the stage's rows of A.
    pub first_row: u32,
    /// Stages of the tile, at least 1.
    pub k_tiles: u32,
    /// The product.
    pub problem: Problem,
    /// Number of the thread in its warpgroup.
    pub thread: u32,
    /// When others may multiply.
    pub turn: Turn,
    /// Parity of the number of the consumer's tiles before this one.
    pub parity: u32,
}

/// A way to sum.
pub trait Sum<C: Config>: Copy {
    /// What the consumer stores of a tile, whose first stage is at `position`. After that `position` is behind the tile, and the
    /// turn has been passed on.
    ///
    /// # Safety
    /// The whole warpgroup is here, with the same task but for the thread, and the stages come.
    unsafe fn tile(self, task: Task<C>, position: &mut Position) -> C::Stored;
}

/// In the tensor cores' accumulators from the first stage to the last: one group of products in flight while the next stage is
/// waited for.
#[derive(Clone, Copy)]
pub struct Whole;

impl<C: Config<Stored = <C as Config>::Tile>> Sum<C> for Whole {
    #[inline(always)]
    unsafe fn tile(self, task: Task<C>, position: &mut Position) -> C::Stored {
        // SAFETY: the caller's contract is the same.
        unsafe { task.sum(position) }
    }
}

impl<C: Config> Task<C> {
    /// The sums of all stages.
    ///
    /// # Safety
    /// As for [`Sum::tile`].
    #[inline(always)]
    pub(super) unsafe fn sum(&self, position: &mut Position) -> C::Tile {
        let mut tile = C::Tile::zero();
        let mut previous = position.stage;
        let mut k_tile = 0;
        // At least once: where nothing is multiplied, the assembler would find other instructions between a product and its wait.
        loop {
            // SAFETY: the caller's contract; a stage is released after the products that read it.
            unsafe {
                self.multiply(&mut tile, *position, k_tile > 0);
                wgmma::wait_group::<1>();
                tile.fence();
                if k_tile > 0 {
                    self.ring.release(previous, self.thread);
                }
            }
            previous = position.stage;
            *position = position.next::<C>();
            k_tile += 1;
            if k_tile >= self.k_tiles {
                break;
            }
        }
        // SAFETY: as above.
        unsafe {
            self.turn.pass::<C>();
            wgmma::wait_group::<0>();
            tile.fence();
            self.ring.release(previous, self.thread);
        }
        tile
    }

    /// Waits for the stage and issues its products as one group, after `tile`'s fence.
    ///
    /// # Safety
    /// The whole warpgroup is here, and the stage comes.
    #[inline(always)]
    pub(super) unsafe fn multiply(&self, tile: &mut C::Tile, position: Position, accumulate: bool) {
        // SAFETY: the caller's contract; the stage is full.
        unsafe {
            self.ring.wait_full(position);
            let a = source(<C::Operands as Operands>::TRANS_A, self.ring.a(position.stage), self.first_row);
            let b = source(<C::Operands as Operands>::TRANS_B, self.ring.b(position.stage), 0);
            tile.fence();
            wgmma::fence();
            unrolled!(STEP in [0 1 2 3] {
                const { assert!(STEPS == 4) };
                tile.multiply::<C::Operands>(STEP, a, b, STEP != 0 || accumulate);
            });
            wgmma::commit_group();
        }
    }
}

/// Whose turn it is to multiply, with [`Config::PING_PONG`].
///
/// Without turns, a consumer that has nothing left to store would wait for a stage while the other one goes round the ring: a barrier
/// tells the parity of its phase, so it takes one two rounds early for its own.
#[derive(Clone, Copy)]
pub struct Turn {
    /// Which consumer.
    pub consumer: u32,
    /// A tile comes after this one: somebody waits.
    pub is_passed: bool,
}

impl Turn {
    /// Waits until the other consumer has issued its products. Not before the first tile of all.
    ///
    /// # Safety
    /// The whole warpgroup is here.
    #[inline(always)]
    pub unsafe fn wait<C: Config>(consumer: u32, is_first: bool) {
        if C::PING_PONG && !is_first {
            // SAFETY: the other consumer passes its turn to the next tile's, as often as tiles follow.
            unsafe { barrier::sync(FIRST_TURN_BARRIER + consumer, 2 * WARPGROUP) }
        }
    }

    /// Lets the other consumer multiply.
    ///
    /// # Safety
    /// As for [`Turn::wait`], once a tile.
    #[inline(always)]
    pub(super) unsafe fn pass<C: Config>(self) {
        if C::PING_PONG && self.is_passed {
            // SAFETY: as above.
            unsafe { barrier::arrive(FIRST_TURN_BARRIER + 1 - self.consumer, 2 * WARPGROUP) }
        }
    }
}

/// The operand's rows from `first_row` on, a multiple of 64, in a stage that begins at `address`.
#[inline(always)]
fn source(trans: u32, address: u32, first_row: u32) -> Source {
    if trans == 0 {
        Source::k_major(address + first_row * ROW_BYTES)
    } else {
        Source::mn_major(address + first_row / BOX_ELEMENTS * BOX_BYTES)
    }
}
