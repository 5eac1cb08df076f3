//! Embeddings: rows of a table by their numbers, and the gradient of that.
//!
//! The forward direction is [`gather`](super::index::gather) along dimension 0.

use bytemuck::Pod;
use cuda_std::kernel::{Kernel, Ptr, PtrMut, Value};
use half::{bf16, f16};
use tensor::THREADS;
use tensor::embedding::sort::{
    DIGIT_BITS, DIGITS, Pair, blocks as sort_blocks, count_digits, scatter_digits,
};
use tensor::embedding::sums::{
    PARTS, Sums, embedding_runs_bf16, embedding_runs_f16, embedding_runs_f32, embedding_tiles_bf16,
    embedding_tiles_f16, embedding_tiles_f32,
};

use super::dispatch::by_dtype;
use super::elementwise::contiguous;
use super::index::Indices;
use crate::error::Result;
use crate::launch::{LaunchConfig, launch};
use crate::memory::{DeviceBuffer, DevicePtr, Within};
use crate::stream::Stream;
use crate::tensor::{Element, Tensor, TensorError, TensorMut};

/// Bytes of the units that rows move in where they can.
const UNIT: usize = primitives::access::VECTOR_BYTES;

/// The gradient of a table of `rows` rows of which the rows `tokens` were taken, `gradient` being that of
/// the taken rows, `[tokens, width]`: PyTorch's `embedding_dense_backward`.
///
/// `[rows, width]`, of the gradient's type: row `r` is the sum of the gradient's rows `i` with `tokens[i] ==
/// r`, or zeros. Sums are in f32, rounded once, in an order that the tokens determine: they repeat bit for
/// bit.
///
/// # Errors
/// [`TensorError::DType`] for other types than f32, bf16 and f16, [`TensorError::Shape`] when the gradient is
/// not of two dimensions with a row for each token, [`TensorError::Index`] when the bound of the tokens is
/// beyond the rows, [`TensorError::TooLarge`] for 2^31 tokens or more, [`crate::Error::DeviceMismatch`],
/// [`crate::Error::OutOfMemory`], or the driver's error.
#[track_caller]
pub fn embedding_backward(
    stream: &Stream,
    gradient: &Tensor,
    tokens: &Indices,
    rows: usize,
) -> Result<Tensor> {
    let operation = "embedding_backward";
    let wanted = |got| {
        let wanted = format!("[{}, width], a row for each token", tokens.len());
        let hint = "flatten all dimensions but the last of the gradient, and all of the tokens (`reshape`)";
        TensorError::Shape { operation, what: "the gradient", got, wanted, hint }
    };
    let &[count, width] = gradient.shape().sides() else {
        return Err(wanted(gradient.shape().clone()).into());
    };
    if count != tokens.len() {
        return Err(wanted(gradient.shape().clone()).into());
    }
    if tokens.bound() > rows && count > 0 {
        let index = i64::try_from(tokens.bound() - 1).unwrap_or(i64::MAX);
        return Err(TensorError::Index { operation, index, bound: rows }.into());
    }
    if i32::try_from(count).is_err() || u32::try_from(rows).is_err() {
        return Err(TensorError::TooLarge { operation, shape: vec![count, rows] }.into());
    }
    // Both fit, as was asked.
    let job = Job { stream, gradient, tokens, bits: (rows.max(1) as u32 - 1).max(1).ilog2() + 1 };
    by_dtype!(gradient.dtype(), (operation, "the gradient", None), {
        F32 => job.run::<embedding_tiles_f32, embedding_runs_f32, f32>(rows, width),
        F16 => job.run::<embedding_tiles_f16, embedding_runs_f16, f16>(rows, width),
        BF16 => job.run::<embedding_tiles_bf16, embedding_runs_bf16, bf16>(rows, width),
    })
}

struct Job<'a> {
    stream: &'a Stream,
    gradient: &'a Tensor,
    tokens: &'a Indices,
    /// Bits of the largest token.
    bits: u32,
}

impl Job<'_> {
    #[track_caller]
    fn run<Tiles, Runs, T: Element + Pod>(&self, rows: usize, width: usize) -> Result<Tensor>
    where
        Tiles: Kernel<Params = (Value<Sums>, Ptr<Pair>, Ptr<T>, PtrMut<f32>, PtrMut<T>)>,
        Runs: Kernel<Params = (Value<Sums>, Ptr<Pair>, Ptr<f32>, PtrMut<T>)>,
    {
        let stream = self.stream;
        let mut sums = Tensor::zeros(stream, &[rows, width], T::DTYPE)?;
        if self.gradient.is_empty() {
            stream.same_device("the gradient", self.gradient.device())?;
            return Ok(sums);
        }
        let gradient = contiguous(stream, self.gradient)?;
        let sorted = self.sort()?;
        let pairs = sorted.view().within();
        let out: TensorMut<'_> = sums.view_mut()?;
        let alignment = gradient.address() | out.address() | (width * size_of::<T>()) as u64;
        let wide = alignment.is_multiple_of(UNIT as u64);
        let shape = Sums::new(self.tokens.len() as u32, width as u64, size_of::<T>(), wide);
        let parts = shape.tiles() as usize * PARTS as usize;
        // SAFETY: the second launch reads the parts that the first writes: of runs that cross tiles.
        let parts = unsafe { DeviceBuffer::<f32>::uninit(stream, parts.saturating_mul(width))? };
        let (parts, config) = (parts.view().within(), grid(shape.blocks()));
        let (from, to) = (gradient.read::<T>(stream)?, out.write::<T>(stream)?);
        // SAFETY: the pairs are those of the tokens, which are below the rows; the gradient has a row for
        // each; the sums are exclusively borrowed.
        unsafe {
            launch::<Tiles>(stream, config, (shape, pairs, from, parts, to))?;
            launch::<Runs>(stream, config, (shape, pairs, parts, to))?;
        }
        Ok(sums)
    }

    /// The tokens with their places, sorted by token, then by place. There is one at least.
    #[track_caller]
    fn sort(&self) -> Result<DeviceBuffer<Pair>> {
        let (stream, n) = (self.stream, self.tokens.len());
        let blocks = sort_blocks(n as u32);
        let config = grid(blocks.into());
        // SAFETY: each pass writes its counts, and a pair to each place, before they are read.
        let (mut from, mut to, counts) = unsafe {
            let counts = DeviceBuffer::<u32>::uninit(stream, blocks as usize * DIGITS as usize)?;
            (DeviceBuffer::uninit(stream, n)?, DeviceBuffer::uninit(stream, n)?, counts)
        };
        let counts = counts.view().within();
        for shift in (0..self.bits).step_by(DIGIT_BITS as usize) {
            let pairs: Within<'_, Pair> = from.view().within();
            let sorted: Within<'_, Pair> = to.view().within();
            let n = n as u32;
            // SAFETY: the first pass reads the tokens, others the pairs of the pass before; `to` is another
            // buffer.
            unsafe {
                if shift == 0 {
                    let (tokens, none) = (self.tokens.read(stream)?, DevicePtr::null());
                    launch::<count_digits>(stream, config, (n, shift, tokens, none, counts))?;
                    launch::<scatter_digits>(stream, config, (n, shift, tokens, none, counts, sorted))?;
                } else {
                    let none = DevicePtr::null();
                    launch::<count_digits>(stream, config, (n, shift, none, pairs, counts))?;
                    launch::<scatter_digits>(stream, config, (n, shift, none, pairs, counts, sorted))?;
                }
            }
            std::mem::swap(&mut from, &mut to);
        }
        Ok(from)
    }
}

fn grid(blocks: u64) -> LaunchConfig {
    // More blocks than a grid holds become an error of the launch.
    LaunchConfig::new([u32::try_from(blocks).unwrap_or(u32::MAX), 1, 1], [THREADS, 1, 1])
        .overlapping_previous()
}
