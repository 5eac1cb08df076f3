//! Rows that blocks draw, one after the other, from a counter that all share.

use super::desk::{BETWEEN, LATER};
use super::{SHARED, Worker, draws};
use cuda_std::atomic::intrinsics::atomic_fetch_inc_relaxed_u32_device;
use cuda_std::{cluster, mbarrier, thread, tma};
use primitives::access::VECTOR_BYTES;
use primitives::element::InF32;
use primitives::warp::{Exchange, From};

/// Rows that come next, as the block's first thread knows them.
#[derive(Clone, Copy, Default)]
pub struct Queue {
    /// The next row to copy.
    ahead: u32,
    /// The one behind it, which the cluster's first block tells the others.
    drawn: u32,
}

impl<T: InF32, const IS_FULL: bool, const MODE: u8> Worker<'_, T, IS_FULL, MODE> {
    /// All rows that the block draws.
    ///
    /// # Safety
    /// As for [`super::run`].
    #[inline(always)]
    pub unsafe fn drawn<const N: usize, const VECTORS: usize>(&self) {
        let plan = self.plan;
        let number = thread::block_idx_x() >> plan.cluster.trailing_zeros();
        let mut queue = Queue { ahead: number * plan.tile, drawn: 0 };
        // SAFETY: the caller's contract.
        unsafe {
            if MODE == SHARED && self.member.thread == 0 {
                self.copy_shared();
            }
            self.feed(&mut queue);
            if plan.cluster > 1 {
                queue.ahead = number + plan.step;
                if self.member.thread == 0 && self.member.rank == 0 {
                    queue.drawn = self.draw_of_cluster(queue.ahead);
                }
                cluster::wait();
            }
            let mut turn = 0;
            loop {
                mbarrier::wait_parity(self.member.full(), turn & 1);
                let row = self.member.published();
                if row >= plan.rows as u32 {
                    break;
                }
                self.row::<N, VECTORS>([row, turn, 0], &mut queue);
                turn += 1;
            }
            if plan.cluster > 1 && plan.slots == 0 && (turn % BETWEEN > LATER || turn > 0 && turn % BETWEEN == 0) {
                cluster::wait();
            }
        }
    }

    /// The row behind that, where all have read it.
    ///
    /// # Safety
    /// As for [`Worker::fill`].
    #[inline(always)]
    pub unsafe fn next(&self, [row, end]: [u32; 2], queue: &mut Queue) {
        // SAFETY: the caller's contract.
        unsafe {
            if draws(MODE) {
                self.feed(queue);
            } else {
                self.fill(row + 1, end);
            }
        }
    }

    /// Says which row comes next, and begins to copy it.
    ///
    /// # Safety
    /// As for [`Worker::fill`].
    #[inline(always)]
    unsafe fn feed(&self, queue: &mut Queue) {
        if self.member.thread != 0 {
            return;
        }
        let (plan, row, rows) = (self.plan, queue.ahead, self.plan.rows as u32);
        // SAFETY: the caller's contract.
        unsafe {
            self.member.publish(row);
            if row >= rows {
                mbarrier::arrive(self.member.full());
                return;
            }
            self.copy(row);
            if plan.cluster == 1 {
                let next = row + 1;
                let is_new = next & (plan.tile - 1) == 0 || next >= rows;
                queue.ahead = if is_new { self.draw(row) } else { next };
            }
        }
    }

    /// Begins to copy weight and bias.
    #[inline(always)]
    unsafe fn copy_shared(&self) {
        let (plan, full) = (self.plan, self.member.full());
        let bytes = self.piece * VECTOR_BYTES as u32;
        let mut to = self.row + plan.inputs * plan.part_bytes;
        for of in [self.function.weight, self.function.bias] {
            if !of.is_null() {
                // SAFETY: a row of both.
                unsafe {
                    mbarrier::expect_tx(full, bytes);
                    tma::bulk_load(to, of.cast::<T>().wrapping_add(self.begin as usize), bytes, full);
                }
            }
            to += plan.part_bytes;
        }
    }

    /// The counter, or null.
    #[inline(always)]
    fn counter(&self) -> *mut u32 {
        self.plan.input_strides[2] as usize as *mut u32
    }

    /// The first row of the next ticket.
    #[inline(always)]
    unsafe fn draw(&self, row: u32) -> u32 {
        let (plan, counter) = (self.plan, self.counter());
        if counter.is_null() {
            return (row & !(plan.tile - 1)) + plan.step * plan.tile;
        }
        // SAFETY: the launch's counter.
        (plan.step + unsafe { atomic_fetch_inc_relaxed_u32_device(counter, plan.tiles) }) * plan.tile
    }

    /// The same of a cluster, whose first two rows are given.
    #[inline(always)]
    unsafe fn draw_of_cluster(&self, row: u32) -> u32 {
        let (plan, counter) = (self.plan, self.counter());
        if row >= plan.rows as u32 || counter.is_null() {
            return row + plan.step;
        }
        // SAFETY: the launch's counter.
        2 * plan.step + unsafe { atomic_fetch_inc_relaxed_u32_device(counter, plan.tiles) }
    }

    /// A word to the cluster: the row that comes two rows later.
    #[inline(always)]
    pub unsafe fn word(&self, queue: &Queue) -> f32 {
        if !draws(MODE) || self.plan.cluster == 1 || self.member.rank != 0 {
            return 0.0;
        }
        // SAFETY: all lanes call it.
        f32::from_bits(unsafe { queue.drawn.exchange(From::Lane(0)) })
    }

    /// Takes the word of the cluster's first block.
    #[inline(always)]
    pub unsafe fn hear(&self, queue: &mut Queue, word: f32) {
        if !draws(MODE) || self.member.thread != 0 {
            return;
        }
        queue.ahead = word.to_bits();
        if self.member.rank == 0 && queue.drawn < self.plan.rows as u32 {
            // SAFETY: one thread of the cluster.
            queue.drawn = unsafe { self.draw_of_cluster(queue.drawn) };
        }
    }
}
