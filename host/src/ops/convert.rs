//! Tensors in another element type.
//!
//! | to | from a float | from an integer or bool |
//! |---|---|---|
//! | float | the nearest value, ties to even; beyond the range infinity, of the 8-bit floats the largest number; NaN stays NaN | as from a float |
//! | integer | toward zero; out of range the nearest end, NaN 0 | the low bits: wraps around |
//! | bool | is it not 0? NaN is true | is it not 0? |
//!
//! Every conversion rounds once, also from 64 bits to 8.

use cuda_std::kernel::{Kernel, Ptr, PtrMut, Value};
use half::{bf16, f16};
use num::{E4M3, E5M2};
use tensor::THREADS;
use tensor::convert::{
    Target, UNITS, blocks, convert_bf16, convert_bool, convert_e4m3, convert_e5m2, convert_f16, convert_f32,
    convert_f64, convert_i32, convert_i64, convert_u8,
};

use super::elementwise::{contiguous, copy, made};
use crate::error::Result;
use crate::launch::{LaunchConfig, launch};
use crate::memory::Within;
use crate::stream::Stream;
use crate::tensor::{DType, Tensor, TensorError, TensorMut};

/// A copy of `x` in the type `to`, contiguous.
///
/// # Errors
/// [`crate::Error::DeviceMismatch`], [`crate::Error::OutOfMemory`], or the driver's error.
#[track_caller]
pub fn convert(stream: &Stream, x: &Tensor, to: DType) -> Result<Tensor> {
    if to == x.dtype() {
        return copy(stream, x);
    }
    made(stream, x.shape(), to, |out| convert_into(stream, x, out))
}

/// [`convert`] to the type of `out`, which is another, contiguous, and of the shape of `x`. An `x` that is
/// not contiguous is copied first.
///
/// # Errors
/// [`TensorError::Shape`], [`TensorError::NotContiguous`], or as [`convert`]; [`TensorError::DType`] when
/// both types are the same.
#[track_caller]
pub fn convert_into(stream: &Stream, x: &Tensor, out: TensorMut<'_>) -> Result<()> {
    let operation = "convert";
    if out.dtype() == x.dtype() {
        // The error that says so: `copy_into` is the way.
        let (what, got, wanted) = ("out", out.dtype(), "another type than that of x".to_owned());
        return Err(TensorError::DType {
            operation,
            what,
            got,
            wanted,
            hint: "use `ops::elementwise::copy_into`",
        }
        .into());
    }
    if out.shape() != x.shape() {
        let (what, got, wanted) = ("out", out.shape().clone(), x.shape().to_string());
        let hint = "the output has the shape of the input";
        return Err(TensorError::Shape { operation, what, got, wanted, hint }.into());
    }
    if !out.layout().is_contiguous() {
        let (shape, strides) = (out.shape().clone(), out.layout().strides().to_vec());
        return Err(TensorError::NotContiguous { operation, shape, strides }.into());
    }
    if x.is_empty() {
        return Ok(());
    }
    let x = contiguous(stream, x)?;
    let job = Job { stream, x: &x, to: target(out.dtype()), out_size: out.dtype().size() };
    let y = out.write(stream)?;
    match x.dtype() {
        DType::F64 => job.run::<convert_f64, f64>(y),
        DType::F32 => job.run::<convert_f32, f32>(y),
        DType::F16 => job.run::<convert_f16, f16>(y),
        DType::BF16 => job.run::<convert_bf16, bf16>(y),
        DType::F8E4M3 => job.run::<convert_e4m3, E4M3>(y),
        DType::F8E5M2 => job.run::<convert_e5m2, E5M2>(y),
        DType::I64 => job.run::<convert_i64, i64>(y),
        DType::I32 => job.run::<convert_i32, i32>(y),
        DType::U8 => job.run::<convert_u8, u8>(y),
        DType::Bool => job.run::<convert_bool, u8>(y),
    }
}

struct Job<'a> {
    stream: &'a Stream,
    x: &'a Tensor,
    to: Target,
    out_size: usize,
}

impl Job<'_> {
    fn run<K, T>(&self, y: Within<'_, u8>) -> Result<()>
    where
        K: Kernel<Params = (Value<Target>, Value<u32>, Value<u64>, Ptr<T>, PtrMut<u8>)>,
    {
        let n = self.x.elements() as u64;
        // More blocks than a grid holds become an error of the launch.
        let blocks = u32::try_from(blocks(n, size_of::<T>(), self.out_size)).unwrap_or(u32::MAX);
        let config = LaunchConfig::new([blocks, 1, 1], [THREADS, 1, 1]).overlapping_previous();
        let x = self.x.read::<T>(self.stream)?;
        // SAFETY: both hold n elements; y is exclusively borrowed, and what is written shares its memory with
        // no other tensor.
        unsafe { launch::<K>(self.stream, config, (self.to, UNITS, n, x, y)) }
    }
}

fn target(dtype: DType) -> Target {
    match dtype {
        DType::F64 => Target::F64,
        DType::F32 => Target::F32,
        DType::F16 => Target::F16,
        DType::BF16 => Target::Bf16,
        DType::F8E4M3 => Target::E4m3,
        DType::F8E5M2 => Target::E5m2,
        DType::I64 => Target::I64,
        DType::I32 => Target::I32,
        DType::U8 => Target::U8,
        DType::Bool => Target::Bool,
    }
}
