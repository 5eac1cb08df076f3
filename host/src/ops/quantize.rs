//! Matrices in e4m3 with a factor for each part of them: the operands of
//! [`BlockScaled`](super::gemm::BlockScaled).
//!
//! 8-bit numbers have little range. So activations get a factor for each row and 128 columns
//! ([`quantize_tiles`]), weights one for each 128 rows and 128 columns ([`quantize_blocks`]), as in
//! DeepSeek-V3 (technical report, 2024, section 3.3.2). The last part of a row or of a column may be smaller.
//!
//! A factor is the largest magnitude of its part by 448, the largest number of e4m3, in f32. A number is
//! `x / factor` in f32, rounded to the nearest, ties to even: the same bits on every device and in every run.
//!
//! | in a part | factor | numbers |
//! |---|---|---|
//! | zeros alone | 1 | zeros |
//! | NaN | that of the other elements | NaN there; the others as if it were 0 |
//! | an infinity | as if it were the largest f32 | 448 with its sign; what is below 7.4e32 becomes 0 |
//! | magnitudes below 5.3e-36 alone | the least normal f32, 1.2e-38 | as ever; below 1.1e-41 they become 0 |
//!
//! ```
//! use ironwarp::ops::quantize::{quantize_blocks, quantize_tiles};
//! use ironwarp::{DType, Device, Tensor};
//!
//! # fn main() -> ironwarp::Result<()> {
//! let stream = Device::open(0)?.stream()?;
//! let x = Tensor::from_slice(&stream, &[2, 2], &[448.0f32, 3.0, 0.0, -7.0])?;
//! let tiles = quantize_tiles(&stream, &x)?;
//! assert_eq!(tiles.factors.to_vec::<f32>(&stream)?, [1.0, 7.0 / 448.0]);
//! assert_eq!(tiles.numbers.to(DType::F32)?.to_vec::<f32>(&stream)?, [448.0, 3.0, 0.0, -448.0]);
//! let blocks = quantize_blocks(&stream, &x)?;
//! assert_eq!(blocks.factors.to_vec::<f32>(&stream)?, [1.0]);
//! assert_eq!(blocks.numbers.to(DType::F32)?.to_vec::<f32>(&stream)?, [448.0, 3.0, 0.0, -7.0]);
//! # Ok(())
//! # }
//! ```

use cuda_std::kernel::{Kernel, Ptr, PtrMut, Value};
use half::{bf16, f16};
use layout::Divisor;
use num::E4M3;
use primitives::access::VECTOR_BYTES;
use tensor::quantize::{
    BLOCK, Cut, quantize_blocks_bf16, quantize_blocks_f16, quantize_blocks_f32, quantize_tiles_bf16,
    quantize_tiles_f16, quantize_tiles_f32, threads,
};

use super::dispatch::by_dtype;
use super::elementwise::{contiguous, made};
use crate::error::Result;
use crate::launch::{LaunchConfig, launch};
use crate::stream::Stream;
use crate::tensor::{DType, Shape, Tensor, TensorError, TensorMut};

/// A matrix with a factor for each row and 128 columns: [`quantize_tiles`].
#[derive(Debug, Clone)]
pub struct QuantizedTiles {
    /// e4m3, of the shape of the matrix, contiguous.
    pub numbers: Tensor,
    /// f32, `[columns / 128 rounded up, rows]`, contiguous: factors of the same columns lie side by side.
    pub factors: Tensor,
}

/// Matrices with a factor for each 128 rows and 128 columns: [`quantize_blocks`].
#[derive(Debug, Clone)]
pub struct QuantizedBlocks {
    /// e4m3, of the shape of the matrices, contiguous.
    pub numbers: Tensor,
    /// f32, `[rows / 128 rounded up, columns / 128 rounded up]` for each matrix, contiguous.
    pub factors: Tensor,
}

/// `x`, `[rows, columns]` in f32, f16 or bf16, as e4m3 with a factor for each row and 128 columns: the left
/// operand of [`BlockScaled`](super::gemm::BlockScaled).
///
/// Any number of columns will do here; the product wants a multiple of 16. A large `x` is read and written at
/// the speed of memory where its rows begin at multiples of 16 bytes, and have a multiple of 8 columns (of 4
/// in f32). Columns that are no neighbours are copied first.
///
/// # Errors
/// [`TensorError::Shape`] for another number of dimensions, [`TensorError::DType`],
/// [`TensorError::TooLarge`] for 2^31 blocks of 128 x 128, rows or columns, [`crate::Error::DeviceMismatch`],
/// [`crate::Error::OutOfMemory`], or the driver's error.
#[track_caller]
pub fn quantize_tiles(stream: &Stream, x: &Tensor) -> Result<QuantizedTiles> {
    let operation = "quantize_tiles";
    let &[rows, columns] = x.shape().sides() else {
        let (what, got, wanted) = ("x", x.shape().clone(), "[rows, columns]".to_owned());
        let hint = "merge the other dimensions into the rows with `view_as`";
        return Err(TensorError::Shape { operation, what, got, wanted, hint }.into());
    };
    let job = Job::new(stream, operation, x, [1, rows, columns])?;
    let (numbers, factors) = job.made(&[job.blocks[1], rows], |y, factors| {
        by_dtype!(x.dtype(), (operation, "x", None), {
            F32 => job.run::<quantize_tiles_f32, f32>(y, factors),
            F16 => job.run::<quantize_tiles_f16, f16>(y, factors),
            BF16 => job.run::<quantize_tiles_bf16, bf16>(y, factors),
        })
    })?;
    Ok(QuantizedTiles { numbers, factors })
}

/// `x`, `[rows, columns]` or `[matrices, rows, columns]` in f32, f16 or bf16, as e4m3 with a factor for each
/// 128 rows and 128 columns: the right operand of [`BlockScaled`](super::gemm::BlockScaled). Its groups have
/// a matrix each.
///
/// It is as fast as [`quantize_tiles`], for the same `x`.
///
/// # Errors
/// As [`quantize_tiles`].
#[track_caller]
pub fn quantize_blocks(stream: &Stream, x: &Tensor) -> Result<QuantizedBlocks> {
    let operation = "quantize_blocks";
    let sides = match *x.shape().sides() {
        [rows, columns] => [1, rows, columns],
        [matrices, rows, columns] => [matrices, rows, columns],
        _ => {
            let wanted = "[rows, columns] or [matrices, rows, columns]".to_owned();
            let (what, got, hint) = ("x", x.shape().clone(), "merge the first dimensions with `view_as`");
            return Err(TensorError::Shape { operation, what, got, wanted, hint }.into());
        }
    };
    let job = Job::new(stream, operation, x, sides)?;
    let [down, across] = job.blocks;
    let shape = [sides[0], down, across];
    let (numbers, factors) = job.made(&shape[shape.len() - x.rank()..], |y, factors| {
        by_dtype!(x.dtype(), (operation, "x", None), {
            F32 => job.run::<quantize_blocks_f32, f32>(y, factors),
            F16 => job.run::<quantize_blocks_f16, f16>(y, factors),
            BF16 => job.run::<quantize_blocks_bf16, bf16>(y, factors),
        })
    })?;
    Ok(QuantizedBlocks { numbers, factors })
}

/// Matrices whose columns are neighbours, and how they are cut.
struct Job<'a> {
    stream: &'a Stream,
    x: Tensor,
    cut: Cut,
    /// Blocks of a column and of a row.
    blocks: [usize; 2],
    /// Those of all matrices.
    count: u32,
}

impl<'a> Job<'a> {
    /// Matrices of so many rows and columns.
    #[track_caller]
    fn new(stream: &'a Stream, operation: &'static str, x: &Tensor, sides: [usize; 3]) -> Result<Self> {
        stream.same_device("the tensor", x.device())?;
        let [matrices, rows, columns] = sides;
        let blocks = [rows, columns].map(|side| side.div_ceil(BLOCK as usize));
        let too_large = || TensorError::TooLarge { operation, shape: x.shape().to_vec() };
        let within = |side: usize| u32::try_from(side).ok().filter(|&side| side <= Divisor::MAX);
        let count = blocks.iter().try_fold(matrices, |all, &blocks| all.checked_mul(blocks));
        let count = count.and_then(within).ok_or_else(too_large)?;
        let [rows, columns] = [within(rows).ok_or_else(too_large)?, within(columns).ok_or_else(too_large)?];
        let are_neighbours = columns <= 1 || x.layout().strides()[x.rank() - 1] == 1;
        let x = if are_neighbours { x.clone() } else { contiguous(stream, x)? };
        // Elements to the next along an axis, counted from the innermost; 0 where there is no next.
        let stride = |axis: usize| match x.rank().checked_sub(1 + axis) {
            Some(axis) if x.shape()[axis] > 1 => x.layout().strides()[axis],
            _ => 0,
        };
        let vector = VECTOR_BYTES / x.dtype().size();
        let is_wide = x.address().is_multiple_of(VECTOR_BYTES as u64)
            && [columns as usize, stride(1), stride(2)].iter().all(|places| places.is_multiple_of(vector));
        // Of a matrix without elements there is no block to find.
        let [down, across] = blocks.map(|blocks| Divisor::new(within(blocks).unwrap_or(Divisor::MAX)));
        let (row, matrix, is_wide) = (stride(1) as u64, stride(2) as u64, is_wide.into());
        let cut = Cut { matrix, row, rows, columns, across, down, is_wide };
        Ok(Job { stream, x, cut, blocks, count })
    }

    /// Numbers and factors, by a launch that writes them.
    #[track_caller]
    fn made(
        &self,
        factors: &[usize],
        launch: impl FnOnce(TensorMut<'_>, TensorMut<'_>) -> Result<()>,
    ) -> Result<(Tensor, Tensor)> {
        // SAFETY: the launch writes all factors, or fails, and then they go.
        let mut factors = unsafe { Tensor::uninit(self.stream, Shape::new(factors)?, DType::F32)? };
        let numbers =
            made(self.stream, self.x.shape(), DType::F8E4M3, |numbers| launch(numbers, factors.view_mut()?))?;
        Ok((numbers, factors))
    }

    /// By a block of threads for each of the matrices' blocks.
    fn run<K, T>(&self, numbers: TensorMut<'_>, factors: TensorMut<'_>) -> Result<()>
    where
        K: Kernel<Params = (Value<Cut>, Ptr<T>, PtrMut<E4M3>, PtrMut<f32>)>,
    {
        if self.x.is_empty() {
            return Ok(());
        }
        let stream = self.stream;
        let threads = threads(self.x.dtype().size());
        let config = LaunchConfig::new([self.count, 1, 1], [threads, 1, 1]).overlapping_previous();
        let x = self.x.read::<T>(stream)?;
        let (numbers, factors) = (numbers.write(stream)?, factors.write(stream)?);
        // SAFETY: the operand holds the rows; there is a number for each of its elements and a factor for
        // each part, both exclusively borrowed; rows are wide where that was found.
        unsafe { launch::<K>(stream, config, (self.cut, x, numbers, factors)) }
    }
}
