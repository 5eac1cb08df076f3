//! dQ where one block, or a pair of them, computes all parts of a row, one after the other
//! ([`whole`](super::whole)): the first part is stored, the next ones are added, and the last one, with what
//! lies there, is rounded and stored as dQ.

use cuda_std::{vector, wgmma};
use primitives::pipeline::{Depth, PipelineState};
use primitives::unroll;

use super::config::{Barrier, Config, Of};
use super::consumer::Consumer;
use super::finish::{Rows, store_rows};
use super::work::Work;
use crate::sm90::config::WARPGROUP;
use crate::sm90::fragments::{Fragment, steps, zero};

/// Where a turn's part of dQ goes. A consumer needs it a turn later, when the turn's stage may hold another
/// tile of queries.
#[derive(Clone, Copy)]
pub(super) struct Part {
    /// The first row of the sums.
    pub row: u32,
    /// The tile of queries.
    pub block: u32,
    /// The head of queries.
    pub head: u32,
    /// Whether no part is there yet.
    pub is_first: bool,
    /// Whether no part follows.
    pub is_last: bool,
}

impl Part {
    /// Which one of those in shared memory is that of the turn in this state of the pipeline.
    #[inline(always)]
    pub const fn number<C: Config>(state: PipelineState<Of<C>>) -> u32 {
        state.phase * <Of<C> as Depth>::STAGES + state.stage
    }

    /// That of the turn before.
    #[inline(always)]
    const fn number_before<C: Config>(state: PipelineState<Of<C>>) -> u32 {
        (Self::number(state) + C::TOLD_PARTS - 1) % C::TOLD_PARTS
    }

    /// Writes it to shared memory.
    ///
    /// # Safety
    /// The address is that of [`TicketWords`](super::config::TicketWords) that nobody reads.
    #[inline(always)]
    pub unsafe fn tell(self, to: u32) {
        let Self { row, block, head, is_first, is_last } = self;
        let flags = u32::from(is_first) << 1 | u32::from(is_last);
        // SAFETY: the caller's contract.
        unsafe { vector::store_shared_v4(to, [row, block, head, flags]) }
    }

    /// Reads it there.
    ///
    /// # Safety
    /// It has been told, and its stage has been full since.
    #[inline(always)]
    unsafe fn told(from: u32) -> Self {
        // SAFETY: the caller's contract.
        let [row, block, head, flags]: [u32; 4] = unsafe { vector::load_shared_v4(from) };
        Self { row, block, head, is_first: flags & 2 != 0, is_last: flags & 1 != 0 }
    }
}

impl<C: Config> Consumer<'_, C> {
    /// Leaves the consumer's part of dQ of the turn before this state of the pipeline, when its turn has come
    /// and all but `PENDING` groups of products are over. Those parts that a last one is added to are under
    /// way meanwhile.
    ///
    /// # Safety
    /// The whole warpgroup is here, once a turn, and so it is; the part's products have been started. Where
    /// blocks share heads out a warp [gives turns](super::heads::give_turns).
    #[inline(always)]
    pub(super) unsafe fn leave_part<const PENDING: u32>(
        self,
        part: &mut C::QueryGradient,
        state: PipelineState<Of<C>>,
    ) {
        // SAFETY: the caller's contract. The parts before are this block's; or the warp that gives the turn
        // has seen that they are there, and takes the news of this one on.
        unsafe {
            let told = Part::told(self.shared.parts(Part::number_before(state)));
            if C::SHARERS > 1 {
                Barrier::Turn(self.consumer).sync();
            }
            self.leave_told::<PENDING>(part, told);
            if C::SHARERS > 1 {
                Barrier::Added(self.consumer).arrive();
            }
        }
    }

    /// Leaves the part where it was told.
    ///
    /// # Safety
    /// As for [`leave_part`](Self::leave_part), and it is the part's turn.
    #[inline(always)]
    unsafe fn leave_told<const PENDING: u32>(self, part: &mut C::QueryGradient, told: Part) {
        // SAFETY: the caller's contract. The sums are this thread's, whose stores, additions and loads of an
        // address stay in the program's order; and those of the thread of its number in the other block,
        // whose turn it is not.
        unsafe {
            let sums = self.sums(told.row as usize);
            // In one branch, or what is loaded would be live in all turns.
            if told.is_last && !told.is_first {
                let sum: C::QueryGradient = load(sums);
                wait::<PENDING, _>(part);
                add(part, &sum);
                self.store_queries(part, told);
                return;
            }
            wait::<PENDING, _>(part);
            if told.is_last {
                self.store_queries(part, told);
            } else if told.is_first {
                for_quads(part, |at, values| vector::store_v4(sums.add(at), values));
            } else {
                for_quads(part, |at, values| vector::red_add_v4(sums.add(at), values));
            }
        }
    }

    /// Stores dQ of the part's queries.
    ///
    /// # Safety
    /// As for [`leave_part`](Self::leave_part).
    #[inline(always)]
    unsafe fn store_queries(self, part: &C::QueryGradient, Part { block, head, .. }: Part) {
        let x = part.as_ref();
        // SAFETY: the caller's contract; the work has been told.
        unsafe {
            let Work { sequence, .. } = self.work();
            let rows =
                Rows { params: self.arguments.params, results: self.arguments.queries, sequence, head };
            let quad = |step: usize| [x[4 * step], x[4 * step + 1], x[4 * step + 2], x[4 * step + 3]];
            store_rows::<C>(rows, block * C::BLOCK_M, [self.consumer, self.thread], quad);
        }
    }
}

/// Waits until all but `PENDING` groups of products are over, among the others those of the part.
///
/// # Safety
/// The whole warpgroup is here.
#[inline(always)]
unsafe fn wait<const PENDING: u32, F: Fragment>(part: &mut F) {
    // SAFETY: the caller's contract.
    unsafe { wgmma::wait_group::<PENDING>() }
    wgmma::fence_registers(part);
}

/// The thread's numbers at `sums`.
///
/// # Safety
/// They are the thread's.
#[inline(always)]
unsafe fn load<F: Fragment>(sums: *const f32) -> F {
    let mut sum: F = zero();
    let x = sum.as_mut();
    unroll!(STEP in 0..16, {
        if STEP < steps::<F>() {
            // SAFETY: the caller's contract.
            let values: [f32; 4] = unsafe { vector::load_l2_v4(sums.add(STEP * 4 * WARPGROUP as usize)) };
            unroll!(I in 0..4, { x[4 * STEP + I] = values[I]; });
        }
    });
    sum
}

/// Adds one to the other.
#[inline(always)]
fn add<F: Fragment>(to: &mut F, sum: &F) {
    let (x, sum) = (to.as_mut(), sum.as_ref());
    unroll!(STEP in 0..16, {
        if STEP < steps::<F>() {
            unroll!(I in 0..4, { x[4 * STEP + I] += sum[4 * STEP + I]; });
        }
    });
}

/// Gives four numbers after the other to `leave`, with their place among the sums.
#[inline(always)]
fn for_quads<F: Fragment>(part: &F, leave: impl Fn(usize, [f32; 4])) {
    let x = part.as_ref();
    unroll!(STEP in 0..16, {
        if STEP < steps::<F>() {
            let at = 4 * STEP;
            leave(at * WARPGROUP as usize, [x[at], x[at + 1], x[at + 2], x[at + 3]]);
        }
    });
}
