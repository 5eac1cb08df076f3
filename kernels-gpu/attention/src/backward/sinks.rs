//! The gradients of sinks: `dz = -sum of e^(z - L) D` over all rows of a head, of the numbers that
//! [`prepare`](super::prepare) has written. A sink `z` is the score of one more key, whose value is zero: its
//! weight is `e^(z - L)`, and the gradient of that weight is 0.

use cuda_std::fastmath::{ex2_approx, fma};
use cuda_std::{grid, thread};
use primitives::block;
use primitives::op::Sum;

use crate::problem::{AttentionParams, Packing};

/// Threads of a block.
pub const THREADS: u32 = 256;
/// Slots for the sums of a block's warps.
pub const SLOTS: usize = block::slots(THREADS);

/// The arguments of a launch.
#[derive(Clone, Copy)]
pub struct Arguments<'a> {
    /// The problem.
    pub params: &'a AttentionParams,
    /// Where packed sequences begin.
    pub packing: Packing,
    /// L in base 2, f32 in padded rows.
    pub logarithms: *const f32,
    /// D, f32 in padded rows.
    pub deltas: *const f32,
    /// A number for each head of queries.
    pub sinks: *const f32,
    /// As many.
    pub gradients: *mut f32,
    /// Queries of a tile of the backward pass, to which rows are padded.
    pub tile: u32,
}

/// The sum of one head a block, in a fixed order.
///
/// # Safety
/// The arguments are as [`Arguments`] says; the launch has a block of [`THREADS`] threads for each head of
/// queries. `slots` is shared memory for [`SLOTS`] numbers.
#[inline(always)]
pub unsafe fn run(arguments: Arguments<'_>, slots: *mut f32) {
    let Arguments { params, packing, logarithms, deltas, sinks, gradients, tile } = arguments;
    grid::wait_dependencies();
    grid::launch_dependents();
    let (head, thread) = (thread::block_idx_x(), thread::thread_idx_x());
    // SAFETY: the caller's contract; rows of the head's sequences, which have been written.
    unsafe {
        let sink = *sinks.add(head as usize) * core::f32::consts::LOG2_E;
        let mut sum = 0.0;
        let mut batch = 0;
        while batch < params.batch {
            let sequence = params.sequence(packing, batch);
            let first = params.padded_row(packing, batch, head, tile);
            let mut row = thread;
            while row < sequence.queries {
                let at = first + row as usize;
                sum = fma(ex2_approx(sink - *logarithms.add(at)), *deltas.add(at), sum);
                row += THREADS;
            }
            batch += 1;
        }
        let total = block::reduce(Sum, sum, slots);
        if thread == 0 {
            *gradients.add(head as usize) = 0.0 - total;
        }
    }
}
