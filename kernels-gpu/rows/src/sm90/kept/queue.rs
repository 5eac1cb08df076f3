//! Which rows a block takes: those that it has, or those that it draws from a counter that all share.
//!
//! The block's first thread says which row comes, and a row that does not exist ends the block. It draws
//! early: a block has drawn its next row when it begins one, and a cluster, whose first block draws for all,
//! has drawn the next two. That block tells the others beside what they exchange for a row.
//!
//! The counter is 0 again at the end: the launch's draws are counted, and the last one puts 0 in.

use super::Worker;
use super::desk::owes_wait;
use cuda_std::atomic::intrinsics::atomic_fetch_inc_relaxed_u32_device;
use cuda_std::{cluster, mbarrier, thread, tma};
use primitives::access::VECTOR_BYTES;
use primitives::element::InF32;
use primitives::warp::{Exchange, From};

/// No row has this number.
const NONE: u32 = u32::MAX;

/// Rows that come next, as the block's first thread knows them.
pub struct Queue {
    /// The next row to copy.
    ahead: u32,
    /// Where rows are drawn, the one behind it, which the cluster's first block knows; else the end of the
    /// block's rows.
    behind: u32,
}

impl<T: InF32, const IS_FULL: bool, const HAS_SHARED: bool> Worker<'_, T, IS_FULL, HAS_SHARED> {
    /// All rows of the block.
    ///
    /// # Safety
    /// As for [`super::run`].
    #[inline(always)]
    pub unsafe fn rows<const N: usize, const VECTORS: usize>(&self) {
        let plan = self.plan;
        // SAFETY: the caller's contract.
        unsafe {
            if HAS_SHARED && self.member.thread == 0 {
                self.copy_shared();
            }
            let mut queue = self.begin();
            if plan.cluster > 1 {
                // The others' barriers are ready.
                cluster::wait();
            }
            let mut turn = 0;
            loop {
                mbarrier::wait_parity(self.member.full(), turn & 1);
                let row = self.member.published();
                if row >= plan.rows as u32 {
                    break;
                }
                self.row::<N, VECTORS>([row, turn], &mut queue);
                turn += 1;
            }
            if plan.cluster > 1 && owes_wait(turn) {
                cluster::wait();
            }
        }
    }

    /// The queue, behind the first row, which is on its way.
    ///
    /// # Safety
    /// As for [`feed`](Self::feed).
    #[inline(always)]
    unsafe fn begin(&self) -> Queue {
        let number = thread::block_idx_x() >> self.plan.cluster.trailing_zeros();
        let [first, end] = if self.counter.is_null() { self.turns() } else { [number, NONE] };
        let mut queue = Queue { ahead: first, behind: end };
        // SAFETY: the caller's contract.
        unsafe {
            self.feed(&mut queue);
            if self.draws_for_cluster() {
                queue.ahead = number + self.plan.step;
                if self.member.rank == 0 {
                    queue.behind = self.draw_behind(queue.ahead);
                }
            }
        }
        queue
    }

    /// Says which row comes next, and begins to copy it.
    ///
    /// # Safety
    /// All threads call it, when all have read the row before.
    #[inline(always)]
    pub unsafe fn feed(&self, queue: &mut Queue) {
        if self.member.thread != 0 {
            return;
        }
        let (plan, row) = (self.plan, queue.ahead);
        // SAFETY: the caller's contract.
        unsafe {
            self.member.publish(row);
            if row >= plan.rows as u32 {
                mbarrier::arrive(self.member.full());
                return;
            }
            self.copy(row);
            if self.counter.is_null() {
                queue.ahead = if row + 1 < queue.behind { row + 1 } else { NONE };
            } else if plan.cluster == 1 {
                queue.ahead = plan.step + self.draw();
            }
        }
    }

    /// Begins to copy weight and bias.
    ///
    /// # Safety
    /// One thread calls it, before it begins to copy the first row.
    #[inline(always)]
    unsafe fn copy_shared(&self) {
        let (plan, full) = (self.plan, self.member.full());
        let bytes = self.piece * VECTOR_BYTES as u32;
        let mut to = self.row + plan.inputs * plan.part_bytes;
        for of in [self.function.weight, self.function.bias] {
            if !of.is_null() {
                // SAFETY: both are as long as a row.
                unsafe {
                    mbarrier::expect_tx(full, bytes);
                    tma::bulk_load(to, of.cast::<T>().wrapping_add(self.begin as usize), bytes, full);
                }
            }
            to += plan.part_bytes;
        }
    }

    /// Whether this is the thread of a cluster's block that has to do with draws.
    #[inline(always)]
    fn draws_for_cluster(&self) -> bool {
        self.plan.cluster > 1 && self.member.thread == 0 && !self.counter.is_null()
    }

    /// The next number.
    ///
    /// # Safety
    /// There is a counter.
    #[inline(always)]
    unsafe fn draw(&self) -> u32 {
        // SAFETY: the launch's counter.
        unsafe { atomic_fetch_inc_relaxed_u32_device(self.counter, self.plan.tiles) }
    }

    /// The cluster's row behind this one: none if there is not even this. The first two rows are given.
    ///
    /// # Safety
    /// There is a counter.
    #[inline(always)]
    unsafe fn draw_behind(&self, row: u32) -> u32 {
        if row >= self.plan.rows as u32 {
            return NONE;
        }
        // SAFETY: the caller's word.
        2 * self.plan.step + unsafe { self.draw() }
    }

    /// The word of this block to the cluster, with its part of a row: from the first one, the row behind the
    /// next.
    ///
    /// # Safety
    /// All lanes call it.
    #[inline(always)]
    pub unsafe fn word(&self, queue: &Queue) -> f32 {
        if self.counter.is_null() || self.member.rank != 0 {
            return 0.0;
        }
        // SAFETY: the caller's contract.
        f32::from_bits(unsafe { queue.behind.exchange(From::Lane(0)) })
    }

    /// Takes the word of the cluster's first block.
    ///
    /// # Safety
    /// All threads call it once for each row of a cluster.
    #[inline(always)]
    pub unsafe fn hear(&self, queue: &mut Queue, word: f32) {
        if !self.draws_for_cluster() {
            return;
        }
        queue.ahead = word.to_bits();
        if self.member.rank == 0 {
            // SAFETY: there is a counter.
            queue.behind = unsafe { self.draw_behind(queue.behind) };
        }
    }
}
