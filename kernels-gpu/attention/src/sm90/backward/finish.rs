//! After the backward pass: dQ from its sums.

use cuda_std::{grid, thread, vector};
use primitives::unroll;
use primitives::wgmma::Element16;

use super::config::Config;
use super::prepare::Strides;
use crate::problem::{AttentionParams, Packing};
use crate::sm90::config::WARPGROUP;
use crate::sm90::fragments::steps;

/// Threads of a block: those of both consumers.
pub const THREADS: u32 = 2 * WARPGROUP;

/// The arguments of a launch.
#[derive(Clone, Copy)]
pub struct Arguments<'a> {
    /// Sums of dQ, as the backward pass adds them.
    pub sums: *const f32,
    /// The problem.
    pub params: &'a AttentionParams,
    /// Where packed sequences begin.
    pub packing: Packing,
    /// dQ, 16 bits an element.
    pub gradient: *mut u16,
    /// Where its rows begin.
    pub strides: Strides,
}

/// A tile of queries a block: x counts tiles of a sequence, y heads, z sequences.
///
/// # Safety
/// The arguments are as [`Arguments`] says; the launch has a block of [`THREADS`] threads for each tile.
#[inline(always)]
pub unsafe fn run<C: Config>(arguments: Arguments<'_>) {
    let Arguments { sums, params, packing, gradient, strides } = arguments;
    let (head, batch) = (thread::block_idx_y(), thread::block_idx_z());
    let first_row = thread::block_idx_x() * C::BLOCK_M;
    // SAFETY: the caller's contract; the places of a thread's registers are those of the backward pass.
    unsafe {
        grid::wait_dependencies();
        grid::launch_dependents();
        let sequence = params.sequence(packing, batch);
        if first_row >= sequence.queries {
            return;
        }
        let padded = params.padded_row(packing, batch, head, C::BLOCK_M) + first_row as usize;
        let (consumer, thread) = (thread::thread_idx_x() / WARPGROUP, thread::thread_idx_x() % WARPGROUP);
        let half = consumer * (C::BLOCK_M / 2 * C::HEAD);
        let from = sums.add(padded * C::HEAD as usize + (half + thread * 4) as usize);
        let (row, column) = if C::BLOCK_M == 128 { (consumer * 64, 0) } else { (0, consumer * C::HEAD / 2) };
        let row = first_row + row + thread / 32 * 16 + thread % 32 / 4;
        let column = column + thread % 4 * 2;
        unroll!(STEP in 0..16, {
            if STEP < steps::<C::QueryGradient>() {
                let values: [f32; 4] = vector::load_v4(from.add(STEP * 4 * WARPGROUP as usize));
                let column = column + 8 * STEP as u32;
                unroll!(ROW in 0..2, {
                    let query = row + 8 * ROW as u32;
                    if query < sequence.queries && column < params.head_size {
                        let [low, high] = [values[2 * ROW], values[2 * ROW + 1]].map(|x| x * params.scale);
                        let at = strides.at(sequence.first_query + query, head, sequence.matrix);
                        let to = gradient.add(at + column as usize).cast::<u32>();
                        vector::store(to, C::Element::pack(low, high));
                    }
                });
            }
        });
    }
}
