//! New tensors. Each is made on a stream, or on the current stream of a device.

use super::number::filled;
use super::stream_of;
use crate::error::{Error, Result};
use crate::ops::convert::convert;
use crate::ops::elementwise::copy_into;
use crate::ops::{elementwise, fill};
use crate::stream::{On, Stream};
use crate::tensor::promote::Scalar;
use crate::tensor::{DType, Named, Tensor, TensorError};

/// New tensors.
impl Tensor {
    /// A tensor of ones (`true`), contiguous.
    ///
    /// # Errors
    /// As [`Tensor::zeros`].
    #[track_caller]
    pub fn ones(on: impl On, shape: &[usize], dtype: DType) -> Result<Tensor> {
        Tensor::full(on, shape, 1, dtype)
    }

    /// A tensor with `value` everywhere, contiguous.
    ///
    /// # Errors
    /// As [`Tensor::zeros`]; [`Error::InvalidArgument`] for a number that the integer type `dtype` does not
    /// have.
    #[track_caller]
    pub fn full(on: impl On, shape: &[usize], value: impl Into<Scalar>, dtype: DType) -> Result<Tensor> {
        filled("full", &on.stream()?, shape, value.into(), dtype)
    }

    /// `start, start + step, ..` up to `end`, which is left out: `ceil((end - start) / step)` numbers.
    ///
    /// Numbers are computed as f64, or as i64 where `dtype` is an integer, and then rounded. Of integers
    /// their count is exact too. For an integer `dtype` a float start and step are cut to whole numbers.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a step of 0 (also one that becomes 0 as an integer) or one that leads
    /// away from `end`, or as [`Tensor::zeros`].
    #[track_caller]
    pub fn arange(
        on: impl On,
        start: impl Into<Scalar>,
        end: impl Into<Scalar>,
        step: impl Into<Scalar>,
        dtype: DType,
    ) -> Result<Tensor> {
        let [start, end, step] = [start.into(), end.into(), step.into()];
        let Some(len) = steps([start, end, step], dtype) else {
            return Err(Error::InvalidArgument {
                operation: "arange",
                argument: "step",
                got: format!("{step} from {start} to {end}, as {dtype}"),
                wanted: "a step that leads from start to end".to_owned(),
                hint: "the step is not 0, and negative when the end is below the start",
            });
        };
        let stream = on.stream()?;
        if dtype.is_float() {
            return fill::arange(&stream, start.as_f64(), step.as_f64(), len, dtype);
        }
        fill::whole_numbers(&stream, start.as_i64(), step.as_i64(), len, dtype)
    }

    /// Numbers uniform in `[0, 1)`, below 1 in every type. The same seed gives the same numbers on every
    /// device.
    ///
    /// # Errors
    /// [`TensorError::DType`] for a type that is no float, or as [`Tensor::zeros`].
    #[track_caller]
    pub fn rand(on: impl On, shape: &[usize], dtype: DType, seed: u64) -> Result<Tensor> {
        let digits = match dtype {
            DType::F8E5M2 => 3,
            DType::F8E4M3 => 4,
            DType::BF16 => 8,
            DType::F16 => 11,
            DType::F64 | DType::F32 => f32::MANTISSA_DIGITS as i32,
            got => return Err(no_float("rand", got)),
        };
        // The least number that the type would round up to 1; in f32 numbers are below 1 by themselves.
        let high = if digits == f32::MANTISSA_DIGITS as i32 { 1.0 } else { 1.0 - 0.5f32.powi(digits + 1) };
        let stream = on.stream()?;
        in_type(&stream, fill::uniform(&stream, shape, 0.0, high, seed).named("rand")?, dtype)
    }

    /// Normal numbers of mean 0 and deviation 1. The same seed gives the same numbers on every device.
    ///
    /// # Errors
    /// As [`Tensor::rand`].
    #[track_caller]
    pub fn randn(on: impl On, shape: &[usize], dtype: DType, seed: u64) -> Result<Tensor> {
        if !dtype.is_float() {
            return Err(no_float("randn", dtype));
        }
        let stream = on.stream()?;
        in_type(&stream, fill::normal(&stream, shape, 0.0, 1.0, seed).named("randn")?, dtype)
    }

    /// The `n` by `n` matrix with ones on the diagonal.
    ///
    /// # Errors
    /// As [`Tensor::zeros`].
    #[track_caller]
    pub fn eye(on: impl On, n: usize, dtype: DType) -> Result<Tensor> {
        let stream = on.stream()?;
        let places = fill::arange(&stream, 0.0, 1.0, n, DType::I64).named("eye")?;
        let (equal, rows) = (elementwise::CompareOp::Eq, places.unsqueeze(1)?);
        in_type(&stream, elementwise::compare(&stream, equal, &rows, &places).named("eye")?, dtype)
    }

    /// A tensor of zeros of this one's shape and type.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], or the driver's error.
    #[track_caller]
    pub fn zeros_like(&self) -> Result<Tensor> {
        Tensor::zeros(&stream_of(self)?, self.shape(), self.dtype())
    }

    /// A tensor of ones of this one's shape and type.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], or the driver's error.
    #[track_caller]
    pub fn ones_like(&self) -> Result<Tensor> {
        self.full_like(1)
    }

    /// A tensor of this one's shape and type with `value` everywhere.
    ///
    /// # Errors
    /// As [`Tensor::full`].
    #[track_caller]
    pub fn full_like(&self, value: impl Into<Scalar>) -> Result<Tensor> {
        filled("full_like", &stream_of(self)?, self.shape(), value.into(), self.dtype())
    }

    /// Writes `value` everywhere.
    ///
    /// # Errors
    /// [`TensorError::Shared`], [`TensorError::Overlapping`], or as [`Tensor::full`].
    #[track_caller]
    pub fn fill_(&mut self, value: impl Into<Scalar>) -> Result<()> {
        let stream = stream_of(self)?;
        let value = filled("fill_", &stream, &[], value.into(), self.dtype())?;
        copy_into(&stream, &value, self.view_mut().named("fill_")?)
    }

    /// Writes `source`, which broadcasts to the tensor, in the tensor's type.
    ///
    /// # Errors
    /// [`TensorError::Shared`], [`TensorError::Overlapping`], [`TensorError::Broadcast`],
    /// [`Error::DeviceMismatch`], or the driver's error.
    #[track_caller]
    pub fn copy_(&mut self, source: &Tensor) -> Result<()> {
        let operation = "copy_";
        super::binary::fits_into(operation, source.shape(), self.shape())?;
        let stream = stream_of(self)?;
        let out = self.view_mut().named(operation)?;
        if source.dtype() == out.dtype() {
            return copy_into(&stream, source, out);
        }
        copy_into(&stream, &convert(&stream, source, out.dtype())?, out)
    }
}

/// How many steps lead from `start` to `end`, which is left out; none where the step leads elsewhere. More
/// than a usize holds are its largest number, which no shape has.
fn steps(numbers: [Scalar; 3], dtype: DType) -> Option<usize> {
    let is_whole = numbers.iter().all(|number| !matches!(number, Scalar::Float(_)));
    if dtype.is_float() || !is_whole {
        let [start, end, step] = numbers.map(Scalar::as_f64);
        let step_of_type = if dtype.is_float() { step } else { step.trunc() };
        let steps = ((end - start) / step).ceil();
        return (step_of_type != 0.0 && steps.is_finite() && steps >= 0.0).then_some(steps as usize);
    }
    let [start, end, step] = numbers.map(|number| i128::from(number.as_i64()));
    let (way, step) = ((end - start) * step.signum(), step.unsigned_abs());
    let steps = u128::try_from(way).ok().filter(|_| step > 0)?.div_ceil(step);
    Some(usize::try_from(steps).unwrap_or(usize::MAX))
}

#[track_caller]
fn in_type(stream: &Stream, x: Tensor, dtype: DType) -> Result<Tensor> {
    if x.dtype() == dtype { Ok(x) } else { convert(stream, &x, dtype) }
}

fn no_float(operation: &'static str, got: DType) -> Error {
    let (what, wanted, hint) = ("dtype", "a float type".to_owned(), "make floats and convert them with `to`");
    TensorError::DType { operation, what, got, wanted, hint }.into()
}
