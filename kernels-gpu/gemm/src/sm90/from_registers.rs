//! Products of tf32 whose A is contiguous along m: the tensor cores read tf32 in shared memory along k alone,
//! but A may come in registers, where each thread puts its elements together by loads of 32 bits.
//!
//! ```text
//!   a box of A in a stage            32 elements of m side by side, 32 of k below each other; units of 16 bytes
//!                                    change places as the swizzle of 128 bytes has it
//!   a thread, each 8 elements of k   rows g, g + 8 of the warp's 16; columns q, q + 4; g = lane / 4, q = lane % 4
//! ```
//! At the same four columns, the rows of a warp would meet in half of the banks. So lanes of odd q load
//! column q + 4 first, which lies in the other half, and put the two in order.
//!
//! The threads meet before one of them releases a stage, since each has read A by itself.
//!
//! Each instruction is a group of its own. It waits for the one four before it, whose registers it takes:
//! three are under way while a thread loads.

use cuda_std::{vector, wgmma};
use layout::wgmma::{Swizzle, units};
use primitives::pipeline::PipelineState;
use primitives::tma::{LINE_BYTES, Major};
use primitives::unroll;

use super::barriers::Barrier;
use super::config::{Config, Of, Stage};
use super::mainloop::{Mainloop, Task};
use super::operands::{AccumulatorTile, GROUP_ROWS, Operands, STEPS, SharedOperand};

/// Elements of a line of a box, and lines of the box.
const BOX: u32 = LINE_BYTES / size_of::<u32>() as u32;
/// Elements of k of an instruction, which are lines of the box: as many as the swizzle's pattern has.
const STEP_LINES: u32 = BOX / STEPS as u32;
/// Bytes from one instruction's lines to the next one's.
const STEP_BYTES: u32 = STEP_LINES * LINE_BYTES;
/// Bytes from one group of rows to the next.
const GROUP_BYTES: u32 = GROUP_ROWS * LINE_BYTES;
/// Rows of a warp.
const WARP_ROWS: u32 = 16;

/// In the accumulators, with A in registers.
#[derive(Clone, Copy)]
pub struct FromRegisters;

impl<C: Config<Stored = <C as Config>::Tile>> Mainloop<C> for FromRegisters {
    #[inline(always)]
    unsafe fn accumulate(self, task: Task<C>, state: &mut PipelineState<Of<C>>) -> C::Stored {
        const { assert!(<C::Operands as Operands>::BLOCK_K == BOX, "elements of 32 bits") };
        let mut tile = C::Tile::zero();
        let place = Place::new(task.thread, task.first_row);
        let mut previous = state.stage;
        let mut k_tile = 0;
        // At least once, as in `Task::sum`.
        loop {
            // SAFETY: the whole warpgroup is here, and the stages come. Registers of A are written when the
            // instruction before in their place is over, and a stage is released after those that read it.
            unsafe {
                let shared = task.block.shared;
                shared.pipeline().consumer_wait(*state);
                let stage: Stage<C> = shared.stage(state.stage);
                let b = SharedOperand::new(Major::K, units(stage.b()), 0, 0);
                let from = place.within(stage.a());
                unroll!(STEP in 0..4, {
                    const { assert!(STEPS == 4) };
                    wgmma::wait_group::<3>();
                    if STEP == 3 {
                        // By every thread, in the first turn too: with a branch around it the assembler would
                        // have each product wait for the one before.
                        Barrier::Consumer(task.order.consumer).sync();
                        if k_tile > 0 {
                            task.block.release(previous, task.thread);
                        }
                    }
                    let mut a = from.fragments(STEP as u32, C::Tile::GROUPS);
                    wgmma::fence_operand(&mut a[0]);
                    if C::Tile::GROUPS > 1 {
                        wgmma::fence_operand(&mut a[1]);
                    }
                    if STEP == 0 {
                        tile.fence();
                    }
                    wgmma::fence();
                    let (b, accumulate) = (b.at(STEP, 0), STEP != 0 || k_tile > 0);
                    tile.multiply_registers::<C::Operands>(0, &a[0], b, accumulate);
                    if C::Tile::GROUPS > 1 {
                        tile.multiply_registers::<C::Operands>(1, &a[1], b, accumulate);
                    }
                    wgmma::commit_group();
                });
            }
            previous = state.stage;
            *state = state.next();
            k_tile += 1;
            if k_tile >= task.k_tiles {
                break;
            }
        }
        // SAFETY: as above.
        unsafe {
            task.order.arrive::<C>();
            wgmma::wait_group::<0>();
            tile.fence();
            Barrier::Consumer(task.order.consumer).sync();
            task.block.release(previous, task.thread);
        }
        tile
    }
}

/// Where a thread's elements of an instruction are.
#[derive(Clone, Copy)]
struct Place {
    /// Bytes from the beginning of A's tile to the first row's element in the column that is loaded first,
    /// then its shared address.
    first: u32,
    /// The column loaded first is the second one.
    is_odd: bool,
}

impl Place {
    #[inline(always)]
    fn new(thread: u32, first_row: u32) -> Self {
        let (warp, lane) = (thread / 32, thread % 32);
        let row = first_row + warp * WARP_ROWS + lane / 4;
        let is_odd = lane % 2 == 1;
        let line = lane % 4 + if is_odd { 4 } else { 0 };
        let plain = row / BOX * (BOX * LINE_BYTES) + line * LINE_BYTES + row % BOX * size_of::<u32>() as u32;
        Self { first: Swizzle::B128.apply(plain), is_odd }
    }

    /// The same in a tile that begins at a shared address.
    #[inline(always)]
    fn within(self, tile: u32) -> Self {
        Self { first: tile + self.first, ..self }
    }

    /// The elements of an instruction, for one or two groups of rows.
    ///
    /// # Safety
    /// The tile of A is full.
    #[inline(always)]
    unsafe fn fragments(self, step: u32, groups: usize) -> [[u32; 4]; 2] {
        // 8 rows on are two units on, 4 columns on four lines: bits that are not set, or the swizzle flips.
        const BELOW: u32 = 8 * size_of::<u32>() as u32;
        const BESIDE: u32 = Swizzle::B128.apply(4 * LINE_BYTES);
        let mut fragments = [[0; 4]; 2];
        unroll!(GROUP in 0..2, { if GROUP < groups {
            let behind = step * STEP_BYTES + GROUP as u32 * GROUP_BYTES;
            unroll!(HALF in 0..2, {
                let from = self.first ^ (HALF as u32 * BELOW);
                // SAFETY: elements of the tile.
                let (x, y): (u32, u32) = unsafe {
                    (vector::load_shared(from + behind), vector::load_shared((from ^ BESIDE) + behind))
                };
                fragments[GROUP][HALF] = if self.is_odd { y } else { x };
                fragments[GROUP][HALF + 2] = if self.is_odd { x } else { y };
            });
        } });
        fragments
    }
}
