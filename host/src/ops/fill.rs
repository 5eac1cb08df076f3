//! Tensors made from nothing: constants, progressions, random numbers.
//!
//! Random numbers are a function of the seed and the element's number alone (Philox4x32-10): the same on
//! every device.

use primitives::philox::keys;
use tensor::THREADS;
use tensor::fill::{
    RANDOM_UNITS, Range, UNITS, blocks, fill_words, progression_f64, progression_i64, random_normal,
    random_uniform,
};

use super::convert::convert;
use super::elementwise::{copy_into, made};
use crate::error::{Error, Result};
use crate::launch::{LaunchConfig, launch};
use crate::stream::Stream;
use crate::tensor::{DType, Element, Shape, Tensor, TensorMut};

/// Bytes of the words that memory is filled with.
const WORD: usize = size_of::<u64>();

/// A tensor with `value` everywhere, contiguous.
///
/// # Errors
/// [`crate::TensorError::Rank`], [`crate::TensorError::TooLarge`], [`crate::Error::OutOfMemory`], or the
/// driver's error.
#[track_caller]
pub fn full<T: Element>(stream: &Stream, shape: &[usize], value: T) -> Result<Tensor> {
    if shape.is_empty() {
        return single(stream, value);
    }
    made(stream, &Shape::of("full", shape)?, T::DTYPE, |out| fill(stream, out, value))
}

/// One element without dimensions, by one launch: as many as a word holds, of which one is shown.
#[track_caller]
fn single<T: Element>(stream: &Stream, value: T) -> Result<Tensor> {
    full(stream, &[WORD / size_of::<T>()], value)?.select(0, 0)
}

/// Writes `value` everywhere. Kernels do it, whatever the length and the layout: a graph can capture it.
///
/// # Errors
/// [`crate::TensorError::DType`] when the elements are no `T`, [`crate::Error::DeviceMismatch`], or the
/// driver's error.
#[track_caller]
pub fn fill<T: Element>(stream: &Stream, out: TensorMut<'_>, value: T) -> Result<()> {
    out.expect_dtype::<T>("fill")?;
    let bytes = out.layout().elements() * size_of::<T>();
    let words = out.layout().is_contiguous()
        && bytes.is_multiple_of(WORD)
        && out.address().is_multiple_of(WORD as u64);
    if !words {
        return copy_into(stream, &single(stream, value)?, out);
    }
    if bytes == 0 {
        return Ok(());
    }
    let element = bytemuck::bytes_of(&value);
    let word = u64::from_le_bytes(std::array::from_fn(|i| element[i % element.len()]));
    let (n, y) = ((bytes / WORD) as u64, out.write(stream)?);
    // SAFETY: y holds n words, exclusively borrowed; every word is whole elements.
    unsafe { launch::<fill_words>(stream, config::<u64>(n, UNITS), (word, n, y)) }
}

/// `start, start + step, ..`: `len` numbers of the type `dtype`, integers wrapping around.
///
/// Floats are computed in f64 and rounded to the type.
///
/// # Errors
/// As [`full`].
#[track_caller]
pub fn arange(stream: &Stream, start: f64, step: f64, len: usize, dtype: DType) -> Result<Tensor> {
    if !dtype.is_float() {
        return whole_numbers(stream, start as i64, step as i64, len, dtype);
    }
    let (shape, n) = (Shape::of("arange", &[len])?, len as u64);
    let wide = made(stream, &shape, DType::F64, |out| {
        let y = out.write(stream)?;
        // SAFETY: y holds n elements, exclusively borrowed.
        unsafe { launch::<progression_f64>(stream, config::<f64>(n, UNITS), (start, step, n, y)) }
    })?;
    if dtype == DType::F64 { Ok(wide) } else { convert(stream, &wide, dtype) }
}

/// [`arange`] of integers.
#[track_caller]
pub(crate) fn whole_numbers(
    stream: &Stream,
    start: i64,
    step: i64,
    len: usize,
    dtype: DType,
) -> Result<Tensor> {
    let (shape, n) = (Shape::of("arange", &[len])?, len as u64);
    let wide = made(stream, &shape, DType::I64, |out| {
        let y = out.write(stream)?;
        // SAFETY: y holds n elements, exclusively borrowed.
        unsafe { launch::<progression_i64>(stream, config::<i64>(n, UNITS), (start, step, n, y)) }
    })?;
    if dtype == DType::I64 { Ok(wide) } else { convert(stream, &wide, dtype) }
}

/// Numbers uniform in `[low, high)`, f32; `low` alone where both are the same. Convert them for another type.
///
/// # Errors
/// As [`full`], and [`Error::InvalidArgument`] when `low` is above `high`, or `high - low` is not finite.
#[track_caller]
pub fn uniform(stream: &Stream, shape: &[usize], low: f32, high: f32, seed: u64) -> Result<Tensor> {
    if !(low <= high && (high - low).is_finite()) {
        let wanted = format!("low <= high, no further apart than {:e}", f32::MAX);
        let hint = "the range is `[low, high)`: ask for a shorter one, and scale";
        return Err(invalid("uniform", "the range", format!("{low:e} to {high:e}"), wanted, hint));
    }
    made(stream, &Shape::of("uniform", shape)?, DType::F32, |out| {
        let (n, y) = (out.layout().elements() as u64, out.write(stream)?);
        // SAFETY: y holds n elements, exclusively borrowed.
        unsafe {
            launch::<random_uniform>(
                stream,
                config::<f32>(n, RANDOM_UNITS),
                (keys(seed), Range::new(low, high), n, y),
            )
        }
    })
}

/// Normal numbers, f32. Convert them for another type.
///
/// # Errors
/// As [`full`], and [`Error::InvalidArgument`] when the mean is not finite, or the deviation is negative or
/// not finite.
#[track_caller]
pub fn normal(stream: &Stream, shape: &[usize], mean: f32, deviation: f32, seed: u64) -> Result<Tensor> {
    if !(mean.is_finite() && deviation.is_finite() && deviation >= 0.0) {
        let got = format!("mean {mean:e}, deviation {deviation:e}");
        let wanted = "finite numbers, the deviation at least 0".to_owned();
        let hint = "a deviation is the square root of a variance";
        return Err(invalid("normal", "the distribution", got, wanted, hint));
    }
    made(stream, &Shape::of("normal", shape)?, DType::F32, |out| {
        let (n, y) = (out.layout().elements() as u64, out.write(stream)?);
        // SAFETY: y holds n elements, exclusively borrowed.
        unsafe {
            launch::<random_normal>(stream, config::<f32>(n, UNITS), (keys(seed), mean, deviation, n, y))
        }
    })
}

fn invalid(
    operation: &'static str,
    argument: &'static str,
    got: String,
    wanted: String,
    hint: &'static str,
) -> Error {
    Error::InvalidArgument { operation, argument, got, wanted, hint }
}

/// For `n` elements of type `T`, `units` of 16 bytes a thread.
fn config<T>(n: u64, units: u64) -> LaunchConfig {
    // More blocks than a grid holds become an error of the launch. Without elements there are none, which is
    // no launch at all.
    let blocks = u32::try_from(blocks(n, size_of::<T>(), units)).unwrap_or(u32::MAX);
    LaunchConfig::new([blocks, 1, 1], [THREADS, 1, 1]).overlapping_previous()
}
