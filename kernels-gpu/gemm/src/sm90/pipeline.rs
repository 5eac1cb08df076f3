//! The ring of stages between the warp that copies and the warpgroups that multiply.

use core::marker::PhantomData;

use cuda_std::{cluster, mbarrier};

use super::config::Config;

/// This block's ring, and its place in the cluster.
pub struct Ring<C> {
    base: u32,
    /// Row of the block in its cluster.
    pub cluster_row: u32,
    /// Column of the block in its cluster.
    pub cluster_column: u32,
    /// Which share of k is the block's.
    pub cluster_share: u32,
    config: PhantomData<C>,
}

impl<C> Clone for Ring<C> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<C> Copy for Ring<C> {}

/// A place in the ring: which stage, and the parity of its round.
#[derive(Clone, Copy)]
pub struct Position {
    /// Which stage.
    pub stage: u32,
    /// Parity of the round.
    pub parity: u32,
}

impl Position {
    /// Where both sides begin.
    pub const START: Self = Self { stage: 0, parity: 0 };

    /// One stage on.
    #[inline(always)]
    pub const fn next<C: Config>(self) -> Self {
        if self.stage + 1 == C::STAGES {
            Self { stage: 0, parity: self.parity ^ 1 }
        } else {
            Self { stage: self.stage + 1, ..self }
        }
    }

    /// `stages` stages on.
    #[inline(always)]
    pub const fn skip<C: Config>(self, stages: u32) -> Self {
        let stage = self.stage + stages;
        Self { stage: stage % C::STAGES, parity: self.parity ^ ((stage / C::STAGES) & 1) }
    }
}

impl<C: Config> Ring<C> {
    /// The ring in the shared memory from `base` on.
    #[inline(always)]
    pub fn new(base: u32) -> Self {
        let rank = if C::CLUSTER > 1 { cluster::block_rank() } else { 0 };
        Self {
            base,
            cluster_row: rank % C::CLUSTER_M,
            cluster_column: rank / C::CLUSTER_M % C::CLUSTER_N,
            cluster_share: rank / (C::CLUSTER_M * C::CLUSTER_N),
            config: PhantomData,
        }
    }

    /// Makes the barriers. One thread does it; a fence and a barrier of the cluster follow.
    ///
    /// # Safety
    /// The shared memory is this ring's, and nothing uses it yet.
    #[inline(always)]
    pub unsafe fn init(self) {
        let consumers = if C::PING_PONG { 1 } else { C::CONSUMERS };
        let mut stage = 0;
        while stage < C::STAGES {
            // SAFETY: the barriers' own places, and the caller says that they are unused.
            unsafe {
                mbarrier::init(self.full(stage), 1);
                mbarrier::init(self.empty(stage), consumers * Self::WRITERS);
            }
            stage += 1;
        }
        let mut piece = 0;
        while piece < C::FETCH_BARRIERS {
            // SAFETY: as above.
            unsafe { mbarrier::init(self.full(2 * C::STAGES + piece), 1) };
            piece += 1;
        }
    }

    /// Blocks whose copies write this block's stages, itself included: those of its row and of its column.
    pub const WRITERS: u32 = C::CLUSTER_M + C::CLUSTER_N - 1;

    /// The barrier that tells that a stage has been filled.
    #[inline(always)]
    pub fn full(self, stage: u32) -> u32 {
        self.base + C::BARRIERS + stage * mbarrier::BYTES
    }

    /// The barrier that tells that a stage may be filled.
    #[inline(always)]
    fn empty(self, stage: u32) -> u32 {
        self.full(C::STAGES + stage)
    }

    /// The barrier that tells that what the consumer's epilogue adds has come to this one of its pieces.
    #[inline(always)]
    pub fn fetched(self, consumer: u32, piece: u32) -> u32 {
        self.full(2 * C::STAGES + consumer * C::STORE_BUFFERS + piece)
    }

    /// Where A of a stage begins; B follows it.
    #[inline(always)]
    pub fn a(self, stage: u32) -> u32 {
        self.base + stage * C::STAGE_BYTES
    }

    /// Where B of a stage begins.
    #[inline(always)]
    pub fn b(self, stage: u32) -> u32 {
        self.a(stage) + C::A_BYTES
    }

    /// Where the consumer gets the sums of the other share of k.
    #[inline(always)]
    pub fn inbox(self, consumer: u32) -> u32 {
        self.base + C::INBOXES + consumer * C::INBOX_BYTES
    }

    /// The barrier that tells that all of them have come.
    #[inline(always)]
    pub fn inbox_full(self, consumer: u32) -> u32 {
        self.inbox(C::CONSUMERS) + consumer * mbarrier::BYTES
    }

    /// The barrier that tells that the other block's consumer of this number may be sent more.
    #[inline(always)]
    pub fn other_empty(self, consumer: u32) -> u32 {
        self.inbox_full(C::CONSUMERS + consumer)
    }

    /// Where the consumer's pieces of the result begin.
    #[inline(always)]
    pub fn output(self, consumer: u32) -> u32 {
        self.base + C::OUTPUT + consumer * C::CONSUMER_BYTES
    }

    /// Where the numbers of the consumer's epilogue begin.
    #[inline(always)]
    pub fn numbers(self, consumer: u32) -> u32 {
        self.output(consumer) + C::STORE_BUFFERS * C::STORE_BYTES
    }

    /// Waits until all blocks that read what this one's copies write have left the stage.
    ///
    /// # Safety
    /// The ring has been initialised, and `position` is the copying thread's.
    #[inline(always)]
    pub unsafe fn wait_empty(self, position: Position) {
        // In the first round all stages are empty: the phase before the first counts as over.
        let parity = position.parity ^ 1;
        // SAFETY: an initialised barrier of this block. What other blocks did to the stage was asynchronous.
        unsafe { mbarrier::wait_parity(self.empty(position.stage), parity) }
    }

    /// Waits until the stage has been filled.
    ///
    /// # Safety
    /// The ring has been initialised, and `position` is the consumer's.
    #[inline(always)]
    pub unsafe fn wait_full(self, position: Position) {
        // SAFETY: an initialised barrier of this block.
        unsafe { mbarrier::wait_parity(self.full(position.stage), position.parity) }
    }

    /// Tells all blocks whose copies fill the stage that the consumer has left it. All threads of the warpgroup call it.
    ///
    /// # Safety
    /// The warpgroup's products that read the stage are finished, and it releases each stage that it waited for once.
    #[inline(always)]
    pub unsafe fn release(self, stage: u32, thread: u32) {
        let empty = self.empty(stage);
        // SAFETY: initialised barriers; the other blocks live until all have met at the end of the kernel.
        unsafe {
            if Self::WRITERS == 1 {
                if thread == 0 {
                    mbarrier::arrive(empty);
                }
            } else if thread < Self::WRITERS {
                mbarrier::arrive_remote_async(cluster::map_shared(empty, self.writer(thread)));
            }
        }
    }

    /// Rank of the `index`-th block of this one's column, then of its row without itself.
    #[inline(always)]
    fn writer(self, index: u32) -> u32 {
        let (row, column) = if index < C::CLUSTER_M {
            (index, self.cluster_column)
        } else {
            let other = index - C::CLUSTER_M;
            (self.cluster_row, if other < self.cluster_column { other } else { other + 1 })
        };
        row + column * C::CLUSTER_M
    }

    /// The blocks of this one's row: they share its rows of A.
    #[inline(always)]
    pub fn row_mask(self) -> u16 {
        let mut mask = 0;
        let mut column = 0;
        while column < C::CLUSTER_N {
            mask |= 1 << (self.cluster_row + column * C::CLUSTER_M);
            column += 1;
        }
        mask
    }

    /// The blocks of this one's column: they share its columns of B.
    #[inline(always)]
    pub fn column_mask(self) -> u16 {
        ((1 << C::CLUSTER_M) - 1) << (self.cluster_column * C::CLUSTER_M)
    }
}
