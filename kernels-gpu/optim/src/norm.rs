//! The norm of all gradients, and the factor that clips it: `torch.nn.utils.clip_grad_norm_`, without a wait.
//!
//! Block `b` adds up the squares of chunks `b`, `b + blocks`, ..: in f32 within a thread's part of a chunk,
//! in f64 beyond. The number of blocks depends on the number of chunks alone, and one block adds up what they
//! leave, in order. So the norm repeats bit for bit, on every device.

use crate::THREADS;
use crate::step::Norm;
use crate::table::{Chunk, Entry, Format};
use cuda_std::{GpuFloat, fastmath, kernel, shared, shared_array, thread};
use half::{bf16, f16};
use primitives::block;
use primitives::element::Element;
use primitives::op::Sum;
use primitives::{access, grid::begin};

/// Most blocks of a sum of squares: several for each place that a device has for one, so that they end
/// together.
pub const MAX_BLOCKS: u32 = 4096;
/// Blocks of a multiprocessor, at least: their loads keep memory busy.
pub(crate) const RESIDENT: u32 = 4;
/// Warps of a block.
pub(crate) const WARPS: usize = block::slots(THREADS);

/// Blocks that sum up the squares of so many chunks.
pub const fn blocks(chunks: u32) -> u32 {
    if chunks < MAX_BLOCKS { chunks } else { MAX_BLOCKS }
}

/// Writes the sum of the squares of each block's chunks to `partials`.
///
/// # Safety
/// The gradients of the table's `count` chunks are as its entries say; `partials` has a place for each block.
/// Blocks of [`THREADS`] threads, [`blocks`] of them.
#[kernel(launch_bounds(THREADS, RESIDENT))]
pub unsafe fn sum_squares(tensors: *const Entry, chunks: *const Chunk, count: u32, partials: *mut f64) {
    let slots = shared_array![f64; WARPS];
    let (block, blocks) = begin(|| (thread::block_idx_x(), thread::grid_dim_x()));
    let (mut number, mut sum) = (block, 0.0);
    // SAFETY: the caller's promise; all threads of the block come to the reduction.
    unsafe {
        while number < count {
            let chunk = *chunks.add(number as usize);
            sum += of_chunk(chunk, &*tensors.add(chunk.tensor as usize));
            number += blocks;
        }
        let sum = block::reduce(Sum, sum, shared::generic(slots));
        if thread::thread_idx_x() == 0 {
            *partials.add(block as usize) = sum;
        }
    }
}

/// The calling thread's part of a chunk's sum.
///
/// # Safety
/// The gradient is as the entry says.
#[inline(always)]
pub(crate) unsafe fn of_chunk(chunk: Chunk, entry: &Entry) -> f64 {
    // SAFETY: the caller's promise.
    unsafe {
        match entry.format {
            Format::Bf16 | Format::F32WithBf16 => squares::<bf16, 8>(chunk, entry),
            Format::F16 => squares::<f16, 8>(chunk, entry),
            Format::F32 | Format::Bf16WithF32 | Format::F16WithF32 => squares::<f32, 4>(chunk, entry),
        }
    }
}

/// # Safety
/// As above; the gradient's elements are `G`s.
#[inline(always)]
unsafe fn squares<G: Element<Wide = f32>, const N: usize>(chunk: Chunk, entry: &Entry) -> f64 {
    let ((start, length), thread) = (chunk.range(entry), thread::thread_idx_x());
    let gradient = (entry.gradient as *const G).wrapping_add(start as usize);
    let whole = if entry.is_aligned != 0 { length - length % N as u32 } else { 0 };
    let mut sums = [0.0f32; N];
    // SAFETY: elements of the chunk; vectors begin at multiples of N.
    unsafe {
        let stride = THREADS * N as u32;
        let load = |at: u32| access::load::<G, N>(gradient.add(at as usize));
        let mut add = |vector: [G; N]| {
            let values = G::widen(vector);
            for i in 0..N {
                sums[i] = fastmath::fma(values[i], values[i], sums[i]);
            }
        };
        let mut at = thread * N as u32;
        while at + 3 * stride < whole {
            let vectors = [load(at), load(at + stride), load(at + 2 * stride), load(at + 3 * stride)];
            for i in 0..4 {
                add(vectors[i]);
            }
            at += 4 * stride;
        }
        while at < whole {
            add(load(at));
            at += stride;
        }
        let mut at = whole + thread;
        while at < length {
            let [value] = G::widen([*gradient.add(at as usize)]);
            sums[0] = fastmath::fma(value, value, sums[0]);
            at += THREADS;
        }
    }
    let mut sum = f64::from(sums[0]);
    for i in 1..N {
        sum += f64::from(sums[i]);
    }
    sum
}

/// The uses of a norm.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct Clip {
    /// The norm that gradients are clipped to; infinity: they are not.
    pub max_norm: f64,
    /// 1 when a norm that is not finite skips the step, else 0.
    pub skips: u32,
}

/// Added to the norm that the largest one is divided by, as PyTorch does.
const EPS: f64 = 1e-6;

/// Adds up `count` partial sums, and writes the norm, the factor `min(1, max_norm / (norm + 1e-6))`, and
/// whether to skip the step. With a loss scale the norm is that of the gradients without it, and the factor
/// takes it out.
///
/// # Safety
/// `partials` holds `count`; `loss_scale` is readable or null; `result` is writable. One block of [`THREADS`]
/// threads.
#[kernel(launch_bounds(THREADS))]
pub unsafe fn finish_norm(
    clip: Clip,
    count: u32,
    partials: *const f64,
    loss_scale: *const f32,
    result: *mut Norm,
) {
    let slots = shared_array![f64; WARPS];
    let thread = begin(thread::thread_idx_x);
    let (mut at, mut sum) = (thread, 0.0);
    // SAFETY: the caller's promise; all threads of the block come to the reduction.
    unsafe {
        while at < count {
            sum += *partials.add(at as usize);
            at += THREADS;
        }
        let sum: f64 = block::reduce(Sum, sum, shared::generic(slots));
        if thread != 0 {
            return;
        }
        let scale = if loss_scale.is_null() { 1.0 } else { f64::from(*loss_scale) };
        let norm = GpuFloat::sqrt(sum) / scale;
        let ratio = clip.max_norm / (norm + EPS);
        // A NaN stays one; infinity over infinity clips nothing.
        let ratio = if ratio >= 1.0 || clip.max_norm == f64::INFINITY { 1.0 } else { ratio };
        let (norm, factor) = (norm as f32, (ratio / scale) as f32);
        // As f32s: what is infinite there would be in the moments for good, and the loss scale goes by it.
        let skip = clip.skips != 0 && !(norm.is_finite() && factor.is_finite());
        *result = Norm { norm, factor, skip: if skip { 1.0 } else { 0.0 } };
    }
}
