//! Pipelines between the threads that load stages of shared memory and those that use them.
//!
//! A pipeline has STAGES stages, used round and round. A stage's turn has a *phase*: the parity of the round.
//!
//! ```text
//!   [`Pipeline`]: one thread loads by TMA, or several by themselves; mbarriers say what is full, what empty
//!     producer   acquire 0, copy | acquire 1, copy | acquire 2, copy | acquire 0 ...
//!     consumer                     wait 0, use, release 0 | wait 1, use, release 1 | ...
//!
//!   [`CopyPipeline`]: all threads of a block or a warp load by `cp.async`; groups say what is full
//!     thread     copy 0 | copy 1 | copy 2 | wait 0, copy 3, use, release 0 | wait 1, copy 0, use 1 | ...
//! ```
//! A pipeline knows nothing of what the stages hold.

use core::marker::PhantomData;

use cuda_std::{async_copy, thread, warp};

#[cfg(any(not(target_arch = "nvptx64"), ironwarp_sm = "90a"))]
pub use tma::Pipeline;

/// How many stages a pipeline has.
pub trait Depth {
    /// Stages, at least 2.
    const STAGES: u32;
}

/// So many stages.
#[derive(Debug, Clone, Copy)]
pub struct Stages<const STAGES: u32>;

impl<const STAGES: u32> Depth for Stages<STAGES> {
    const STAGES: u32 = STAGES;
}

/// A place in a pipeline: which stage, and in which phase. Producer and consumers have one each.
pub struct PipelineState<D> {
    /// The stage.
    pub stage: u32,
    /// Parity of the round.
    pub phase: u32,
    depth: PhantomData<fn() -> D>,
}

impl<D> Clone for PipelineState<D> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<D> Copy for PipelineState<D> {}

impl<D: Depth> PipelineState<D> {
    /// Where both sides begin.
    pub const START: Self = Self { stage: 0, phase: 0, depth: PhantomData };

    /// One stage on.
    #[inline(always)]
    #[must_use]
    pub const fn next(self) -> Self {
        if self.stage + 1 == D::STAGES {
            Self { stage: 0, phase: self.phase ^ 1, ..self }
        } else {
            Self { stage: self.stage + 1, ..self }
        }
    }

    /// `stages` stages on.
    #[inline(always)]
    #[must_use]
    pub const fn skip(self, stages: u32) -> Self {
        let stage = self.stage + stages;
        Self { stage: stage % D::STAGES, phase: self.phase ^ ((stage / D::STAGES) & 1), ..self }
    }
}

#[cfg(any(not(target_arch = "nvptx64"), ironwarp_sm = "90a"))]
mod tma {
    use cuda_std::{cluster, mbarrier};

    use super::{Depth, PipelineState};
    use crate::cluster::{Cluster, Coord};
    use crate::shared_plan::Mbarrier;

    crate::shared_plan! {
        /// The barriers of a pipeline whose producer copies by TMA, or whose threads copy by themselves, as a
        /// part of a plan of shared memory.
        ///
        /// `full` counts the bytes that have come, or the threads whose copies are over; `empty` counts the
        /// consumers that have left.
        pub struct Pipeline<D: Depth> {
            /// Says that a stage has been filled.
            full[D::STAGES]: Mbarrier,
            /// Says that a stage may be filled.
            empty[D::STAGES]: Mbarrier,
        }
    }

    impl<D: Depth> Pipeline<D> {
        /// Makes the barriers, for so many releases of a stage a round. One thread calls it; a fence
        /// ([`mbarrier::fence_init`]) and a barrier of the block (or cluster) follow.
        ///
        /// # Safety
        /// The shared memory is the pipeline's, and nothing uses it yet.
        #[inline(always)]
        pub unsafe fn init(self, releases: u32) {
            // SAFETY: the caller's contract.
            unsafe { self.init_for(1, releases) }
        }

        /// The same for so many arrivals that say that a stage is full: of threads that copy by themselves.
        ///
        /// # Safety
        /// As there.
        #[inline(always)]
        pub unsafe fn init_for(self, arrivals: u32, releases: u32) {
            let mut stage = 0;
            while stage < D::STAGES {
                // SAFETY: the barriers' own places, and the caller says that they are unused.
                unsafe {
                    mbarrier::init(self.full(stage), arrivals);
                    mbarrier::init(self.empty(stage), releases);
                }
                stage += 1;
            }
        }

        /// Waits until the stage is empty and says how many bytes will come. The address of the barrier for
        /// the copies.
        ///
        /// # Safety
        /// The barriers have been made, one thread calls it, with the producer's state, and so many bytes
        /// come.
        #[inline(always)]
        pub unsafe fn producer_acquire(self, state: PipelineState<D>, bytes: u32) -> u32 {
            // SAFETY: the caller's contract.
            unsafe {
                self.producer_wait(state);
                self.producer_expect(state, bytes)
            }
        }

        /// Waits until the stage is empty: the first half of [`producer_acquire`](Self::producer_acquire),
        /// for producers that write to it themselves, before they expect copies or instead.
        ///
        /// # Safety
        /// The barriers have been made. Each thread that will arrive at `full` calls it, with the producer's
        /// state.
        #[inline(always)]
        pub unsafe fn producer_wait(self, state: PipelineState<D>) {
            // In the first round all stages are empty: the phase before the first counts as over.
            // SAFETY: an initialised barrier of this block. What other blocks did to the stage was
            // asynchronous.
            unsafe { mbarrier::wait_parity(self.empty(state.stage), state.phase ^ 1) }
        }

        /// The same where consumers of other blocks have written to the stage
        /// ([`consumer_release_written`](Self::consumer_release_written)).
        ///
        /// # Safety
        /// As there.
        #[inline(always)]
        pub unsafe fn producer_wait_written(self, state: PipelineState<D>) {
            // SAFETY: an initialised barrier of this block.
            unsafe { mbarrier::wait_parity_cluster(self.empty(state.stage), state.phase ^ 1) }
        }

        /// Says how many bytes will come: the second half.
        ///
        /// # Safety
        /// As [`producer_acquire`](Self::producer_acquire); the stage is empty.
        #[inline(always)]
        pub unsafe fn producer_expect(self, state: PipelineState<D>, bytes: u32) -> u32 {
            let full = self.full(state.stage);
            // SAFETY: an initialised barrier of this block.
            unsafe { mbarrier::arrive_expect_tx(full, bytes) }
            full
        }

        /// Waits until the stage has been filled.
        ///
        /// # Safety
        /// The barriers have been made, and `state` is the consumer's.
        #[inline(always)]
        pub unsafe fn consumer_wait(self, state: PipelineState<D>) {
            // SAFETY: an initialised barrier of this block.
            unsafe { mbarrier::wait_parity(self.full(state.stage), state.phase) }
        }

        /// Tells the blocks whose copies fill the stage that the consumer has left it. All threads of the
        /// consumer call it, with their numbers in it.
        ///
        /// # Safety
        /// The barriers have been made; all reads of the stage are over, and a consumer releases a stage once
        /// for each wait. Blocks of a cluster live until all have released.
        #[inline(always)]
        pub unsafe fn consumer_release<S: Cluster>(self, stage: u32, thread: u32, at: Coord<S>) {
            let empty = self.empty(stage);
            // SAFETY: initialised barriers, in all blocks; those live, by the caller's word.
            unsafe {
                if S::IS_ALONE || at.cluster.peers() == 1 {
                    if thread == 0 {
                        mbarrier::arrive(empty);
                    }
                } else if thread < at.cluster.peers() {
                    mbarrier::arrive_remote_async(cluster::map_shared(empty, at.peer(thread)));
                }
            }
        }

        /// The same for a consumer that has also written to the stage, in a cluster: copies of other blocks
        /// come after it ([`producer_wait_written`](Self::producer_wait_written)).
        ///
        /// # Safety
        /// As there; the writers of each warp have met since.
        #[inline(always)]
        pub unsafe fn consumer_release_written<S: Cluster>(self, stage: u32, thread: u32, at: Coord<S>) {
            // SAFETY: initialised barriers, in all blocks; those live, by the caller's word.
            unsafe {
                if thread < at.cluster.peers() {
                    mbarrier::arrive_remote(cluster::map_shared(self.empty(stage), at.peer(thread)));
                }
            }
        }
    }
}

/// How many stages a [`CopyPipeline`] has: [`Stages`], which the compiler knows, or a number of the launch.
pub trait StageCount: Copy {
    /// Stages, two to eight.
    fn stages(self) -> u32;
}

impl<const STAGES: u32> StageCount for Stages<STAGES> {
    #[inline(always)]
    fn stages(self) -> u32 {
        const { assert!(STAGES >= 2 && STAGES <= 8, "two to eight stages") };
        STAGES
    }
}

impl StageCount for u32 {
    #[inline(always)]
    fn stages(self) -> u32 {
        self
    }
}

/// The threads of a block share the [`CopyPipeline`].
#[derive(Debug, Clone, Copy)]
pub enum Block {}

/// The lanes of a warp share it.
#[derive(Debug, Clone, Copy)]
pub enum Warp {}

/// A pipeline whose threads all load, by `cp.async` (or by themselves), and all use what has come. `S` says
/// which threads share it: [`Block`] or [`Warp`].
///
/// Places are offsets in bytes from the first stage. All but one of the stages are under way while that one
/// is used.
#[derive(Debug, Clone, Copy)]
pub struct CopyPipeline<C, S = Block> {
    count: C,
    /// Bytes from a stage to the next.
    stride: u32,
    /// The stage to be loaded next.
    load: u32,
    /// The stage to be used next.
    consume: u32,
    sharers: PhantomData<S>,
}

impl<C: StageCount, S> CopyPipeline<C, S> {
    /// The pipeline of stages that lie so many bytes apart.
    #[inline(always)]
    #[must_use]
    pub const fn new(count: C, stride: u32) -> Self {
        Self { count, stride, load: 0, consume: 0, sharers: PhantomData }
    }

    /// Loads of the prologue: those that come before the first wait.
    #[inline(always)]
    #[must_use]
    pub fn prologue(&self) -> u32 {
        self.count.stages() - 1
    }

    /// Where the next stage to be loaded begins.
    #[inline(always)]
    #[must_use]
    pub const fn stage_to_load(&self) -> u32 {
        self.load
    }

    /// Closes the copies of that stage into a group. A thread calls it once for each stage, also where it had
    /// nothing to copy.
    #[inline(always)]
    #[track_caller]
    pub fn commit(&mut self) {
        async_copy::commit_group();
        // In the prologue. Later, each release says which stage is next.
        self.load += self.stride;
    }

    /// Waits for this thread's copies of the oldest stage.
    #[inline(always)]
    #[track_caller]
    fn wait_for_copies(&self) {
        match self.count.stages() {
            2 => async_copy::wait_group::<0>(),
            3 => async_copy::wait_group::<1>(),
            4 => async_copy::wait_group::<2>(),
            5 => async_copy::wait_group::<3>(),
            6 => async_copy::wait_group::<4>(),
            7 => async_copy::wait_group::<5>(),
            _ => async_copy::wait_group::<6>(),
        }
    }

    /// The thread has used the stage that it waited for last. That stage is the next to be loaded, after the
    /// next wait.
    #[inline(always)]
    pub fn release(&mut self) {
        self.load = self.consume;
        let last = (self.count.stages() - 1) * self.stride;
        self.consume = if self.load == last { 0 } else { self.load + self.stride };
    }
}

impl<C: StageCount> CopyPipeline<C, Block> {
    /// Waits for the oldest stage, and with the whole block. Then every thread sees that stage. All threads
    /// have released the one before it, so it can be loaded, once. Returns where the oldest stage begins.
    ///
    /// All threads of the block call it together, with [`prologue`](Self::prologue) stages committed that
    /// have not been waited for.
    #[inline(always)]
    #[track_caller]
    pub fn wait(&self) -> u32 {
        self.wait_for_copies();
        thread::sync_threads();
        self.consume
    }
}

impl<C: StageCount> CopyPipeline<C, Warp> {
    /// As the block's, for the lanes of a warp.
    ///
    /// # Safety
    /// The whole warp calls it together.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn wait(&self) -> u32 {
        self.wait_for_copies();
        // SAFETY: all lanes are here, by the caller's word.
        unsafe { warp::sync_warp(warp::FULL_MASK) };
        self.consume
    }
}

#[cfg(test)]
mod tests {
    use super::{PipelineState, Stages};

    #[test]
    fn skipping_is_many_steps() {
        let mut state = PipelineState::<Stages<5>>::START;
        for steps in 0..23 {
            let skipped = PipelineState::<Stages<5>>::START.skip(steps);
            assert_eq!((skipped.stage, skipped.phase), (state.stage, state.phase), "{steps}");
            assert_eq!(state.phase, steps / 5 % 2);
            state = state.next();
        }
    }
}
