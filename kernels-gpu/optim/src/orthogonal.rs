//! Muon beside its matrix products: each direction over its Frobenius norm.
//!
//! ```text
//!   chunk_squares   a block a chunk: its sum of squares
//!   normalize       a block a chunk: adds up the sums of its tensor, in order, and divides its elements
//! ```
//! So each block of a tensor has the same norm, to the bit, and no launch stands between.

use crate::THREADS;
use crate::norm::{RESIDENT, WARPS, of_chunk};
use crate::table::{Chunk, Entry};
use cuda_std::{GpuFloat, kernel, shared, shared_array, thread};
use half::bf16;
use primitives::access;
use primitives::block;
use primitives::element::{Element, map};
use primitives::grid::begin;
use primitives::op::Sum;

/// bf16 elements of a vector.
const N: usize = 8;

/// Writes the sum of the squares of each chunk's gradient to `partials`.
///
/// # Safety
/// The table's gradients are as its entries say; `partials` has a place for each chunk. Blocks of [`THREADS`]
/// threads, one for each chunk.
#[kernel(launch_bounds(THREADS, RESIDENT))]
pub unsafe fn chunk_squares(tensors: *const Entry, chunks: *const Chunk, partials: *mut f64) {
    let slots = shared_array![f64; WARPS];
    let block = begin(thread::block_idx_x) as usize;
    // SAFETY: the caller's promise; all threads of the block come to the reduction.
    unsafe {
        let chunk = *chunks.add(block);
        let sum = of_chunk(chunk, &*tensors.add(chunk.tensor as usize));
        let sum = block::reduce(Sum, sum, shared::generic(slots));
        if thread::thread_idx_x() == 0 {
            *partials.add(block) = sum;
        }
    }
}

/// Divides each tensor's parameter, which is bf16, by its norm, or by `eps` if that is larger. `partials` is
/// what [`chunk_squares()`] has written.
///
/// # Safety
/// The table's parameters are bf16, writable, and as its entries say; `partials` holds a sum for each chunk.
/// Blocks of [`THREADS`] threads, one for each chunk.
#[kernel(launch_bounds(THREADS, RESIDENT))]
pub unsafe fn normalize(eps: f32, tensors: *const Entry, chunks: *const Chunk, partials: *const f64) {
    let slots = shared_array![f64; WARPS];
    let (block, thread) = begin(|| (thread::block_idx_x(), thread::thread_idx_x()));
    // SAFETY: the caller's promise; all threads of the block come to the reduction; an element has one
    // thread, and vectors begin at multiples of N.
    unsafe {
        let chunk = *chunks.add(block as usize);
        let entry = *tensors.add(chunk.tensor as usize);
        let (mut number, mut sum) = (thread, 0.0);
        while u64::from(number) < entry.chunks() {
            sum += *partials.add(entry.first_chunk as usize + number as usize);
            number += THREADS;
        }
        let norm = GpuFloat::sqrt(block::reduce(Sum, sum, shared::generic(slots))) as f32;
        // A NaN stays one.
        let factor = 1.0 / if norm < eps { eps } else { norm };
        let (start, length) = chunk.range(&entry);
        let x = (entry.parameter as *mut bf16).add(start as usize);
        let whole = if entry.is_aligned != 0 { length - length % N as u32 } else { 0 };
        let mut at = thread * N as u32;
        while at < whole {
            scale::<N>(x.add(at as usize), factor);
            at += THREADS * N as u32;
        }
        let mut at = whole + thread;
        while at < length {
            scale::<1>(x.add(at as usize), factor);
            at += THREADS;
        }
    }
}

/// # Safety
/// `M` elements at `x` are the calling thread's, and aligned to their size.
#[inline(always)]
unsafe fn scale<const M: usize>(x: *mut bf16, factor: f32) {
    // SAFETY: the caller's promise.
    unsafe { access::store(x, bf16::narrow(map(bf16::widen(access::load::<bf16, M>(x)), |x| x * factor))) }
}
