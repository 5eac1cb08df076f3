//! Rows that blocks draw, one after the other, from a counter that all of a launch share: whoever is done
//! first gets the next one, and no last blocks have more rows than others.
//!
//! The block's first thread says which row comes, and a row that does not exist ends the block. It draws
//! early: a block has drawn its next row when it begins one, and a cluster, whose first block draws for all,
//! has drawn the next two. That block tells the others beside what they exchange for a row anyway.
//!
//! A cluster's blocks know the row behind the next one before there is room for it. In 16 bits they ask for
//! it to be brought into L2.
//!
//! The counter is 0 again at the end: the launch's draws are counted, and the last one puts 0 in.

use super::{Kind, Worker};
use crate::plan::CLUSTER_PLACES;
use crate::sm90::turns;
use cuda_std::atomic::intrinsics::atomic_fetch_inc_relaxed_u32_device;
use cuda_std::{cluster, mbarrier, thread, tma};
use primitives::access::VECTOR_BYTES;
use primitives::element::InF32;
use primitives::unroll;
use primitives::warp::{Exchange, From};

/// Rows that come next, as the block's first thread knows them.
#[derive(Default)]
pub struct Queue {
    /// The next row to copy.
    ahead: u32,
    /// The one behind it, which the cluster's first block tells the others.
    drawn: u32,
}

impl<T: InF32, Q: Kind> Worker<'_, T, Q> {
    /// All rows that the block draws.
    ///
    /// # Safety
    /// As for [`super::run`].
    #[inline(always)]
    pub unsafe fn drawn<const N: usize, const VECTORS: usize>(&self) {
        let plan = self.plan;
        let number = thread::block_idx_x() >> plan.cluster.trailing_zeros();
        let mut queue = Queue { ahead: number, drawn: 0 };
        // SAFETY: the caller's contract.
        unsafe {
            if Q::HAS_SHARED && self.member.thread == 0 {
                self.copy_shared();
            }
            self.feed(&mut queue);
            if plan.cluster > 1 {
                queue.ahead = number + plan.step;
                if self.member.thread == 0 && self.member.rank == 0 {
                    queue.drawn = self.draw_behind(queue.ahead);
                }
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
                self.row::<N, VECTORS>([row, turn, 0], &mut queue);
                turn += 1;
            }
            if plan.cluster > 1 {
                turns::leave(turn, CLUSTER_PLACES);
            }
        }
    }

    /// Begins to copy the row behind this one, where the block has one.
    ///
    /// # Safety
    /// All threads call it, when all have read the row before.
    #[inline(always)]
    pub unsafe fn next(&self, [row, end]: [u32; 2], queue: &mut Queue) {
        // SAFETY: the caller's contract.
        unsafe {
            if Q::DRAWS {
                self.feed(queue);
            } else {
                self.fill(row + 1, end);
            }
        }
    }

    /// Says which row comes next, and begins to copy it.
    ///
    /// # Safety
    /// As for [`next`](Self::next).
    #[inline(always)]
    unsafe fn feed(&self, queue: &mut Queue) {
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
            if plan.cluster == 1 {
                queue.ahead = plan.step + self.draw();
            }
        }
    }

    /// Begins to copy weight and bias: they come with the first row.
    ///
    /// # Safety
    /// One thread calls it, before it begins to copy the first row.
    #[inline(always)]
    unsafe fn copy_shared(&self) {
        let (full, bytes) = (self.member.full(), self.piece * VECTOR_BYTES as u32);
        for (which, of) in [self.function.weight, self.function.bias].into_iter().enumerate() {
            if !of.is_null() {
                let from = of.cast::<T>().wrapping_add(self.begin as usize);
                // SAFETY: both are as long as a row.
                unsafe {
                    mbarrier::expect_tx(full, bytes);
                    tma::bulk_load(self.shared(which as u32), from, bytes, full);
                }
            }
        }
    }

    /// Where the weight lies in shared memory, 0, or the bias, 1.
    #[inline(always)]
    pub fn shared(&self, which: u32) -> u32 {
        self.row + (self.plan.inputs + which) * self.plan.part_bytes
    }

    /// The next number.
    ///
    /// # Safety
    /// As for [`super::run`].
    #[inline(always)]
    unsafe fn draw(&self) -> u32 {
        // SAFETY: the launch's counter.
        unsafe { atomic_fetch_inc_relaxed_u32_device(self.counter, self.plan.tiles) }
    }

    /// The cluster's row behind this one, none if this one does not exist. A cluster's first two rows are
    /// given.
    ///
    /// # Safety
    /// As for [`super::run`].
    #[inline(always)]
    unsafe fn draw_behind(&self, row: u32) -> u32 {
        if row >= self.plan.rows as u32 {
            return row;
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
        if !Q::DRAWS || self.plan.cluster == 1 || self.member.rank != 0 {
            return 0.0;
        }
        // SAFETY: the caller's contract.
        f32::from_bits(unsafe { queue.drawn.exchange(From::Lane(0)) })
    }

    /// Takes the word of the cluster's first block.
    ///
    /// # Safety
    /// All threads of a cluster call it once a row.
    #[inline(always)]
    pub unsafe fn hear(&self, queue: &mut Queue, word: f32) {
        if !Q::DRAWS || self.member.thread != 0 {
            return;
        }
        queue.ahead = word.to_bits();
        // SAFETY: the caller's word.
        unsafe {
            if prefetches::<T>() {
                self.prefetch(queue.ahead);
            }
            if self.member.rank == 0 {
                queue.drawn = self.draw_behind(queue.drawn);
            }
        }
    }

    /// Asks for the block's part of a row to be brought into L2, where the row exists.
    ///
    /// # Safety
    /// As for [`super::run`].
    #[inline(always)]
    unsafe fn prefetch(&self, row: u32) {
        if row >= self.plan.rows as u32 {
            return;
        }
        unroll!(INPUT in 0..2, {
            if (INPUT as u32) < self.plan.inputs {
                // SAFETY: vectors of the row.
                unsafe { tma::bulk_prefetch_l2(self.part(INPUT, row), self.bytes()) }
            }
        });
    }
}

/// Whether the row behind the next one is brought into L2: of 16 bits. In f32 that takes longer
/// (`plan/drawn.rs`).
const fn prefetches<T>() -> bool {
    size_of::<T>() == size_of::<u16>()
}
