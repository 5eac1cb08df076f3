//! Norms whose results are e4m3, with a scale and their largest magnitude.

use half::{bf16, f16};
use rows::kernels;
use rows::norm_to_e4m3::{NormOfDropoutToE4m3Args, NormToE4m3Args, ToE4m3, ToE4m3Args};
use rows::sm90::kernels as held;

use cuda_std::kernel::Value;

use super::alike;
use super::launch::launched;
use super::norm::{Norm, Normed};
use super::norm_of_dropout::NormOfDropout;
use crate::error::Result;
use crate::launch::Arg;
use crate::memory::{DeviceView, DeviceViewMut, same_length};
use crate::ops::elementwise::made;
use crate::stream::Stream;
use crate::tensor::{DType, Tensor, TensorMut};

/// A norm whose result is e4m3, for a product of 8-bit operands: [`Norm::to_e4m3`].
///
/// ```
/// use ironwarp::ops::gemm::Activation;
/// use ironwarp::ops::row::{Norm, NormKind};
/// use ironwarp::{DType, Device, DeviceBuffer, Tensor};
///
/// # fn main() -> ironwarp::Result<()> {
/// let stream = Device::open(0)?.stream()?;
/// let x = Tensor::from_slice(&stream, &[1, 2], &[3.0f32, 1.0])?;
/// let scale = DeviceBuffer::from_slice(&stream, &[8.0f32])?;
/// let mut amax = DeviceBuffer::zeroed(&stream, 1)?;
///
/// let kind = NormKind::Layer;
/// let norm = Norm { kind, weight: None, bias: None, eps: 0.0, activation: Activation::None };
/// let y = norm.to_e4m3().scale_result(&scale).amax(&mut amax).run(&stream, &x)?.y;
/// assert_eq!(y.dtype(), DType::F8E4M3);
/// assert_eq!(y.to(DType::F32)?.to_vec::<f32>(&stream)?, [8.0, -8.0]);
/// // From this comes the scale of a later step.
/// assert_eq!(amax.to_vec(&stream)?, [1.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use]
pub struct NormToE4m3<'a> {
    norm: Norm<'a>,
    target: Target<'a>,
}

/// A norm of `dropout(x) + residual` whose result is e4m3: [`NormOfDropout::to_e4m3`].
#[derive(Debug)]
#[must_use]
pub struct NormOfDropoutToE4m3<'a> {
    of: NormOfDropout<'a>,
    target: Target<'a>,
}

/// Scale and amax of a result in e4m3.
#[derive(Debug, Default)]
struct Target<'a> {
    scale: Option<DeviceView<'a, f32>>,
    amax: Option<DeviceViewMut<'a, f32>>,
}

impl<'a> Target<'a> {
    fn check(&self, operation: &'static str) -> Result<()> {
        let lengths = [
            ("scale_result", self.scale.as_ref().map(DeviceView::len)),
            ("amax", self.amax.as_ref().map(DeviceViewMut::len)),
        ];
        lengths
            .into_iter()
            .try_for_each(|(what, elements)| same_length(operation, what, 1, elements.unwrap_or(1)))
    }

    /// The kernel's arguments, for such a result.
    fn pass<'t>(
        self,
        stream: &Stream,
        y: &'t TensorMut<'_>,
    ) -> Result<impl Arg<Value<ToE4m3>> + use<'a, 't>> {
        let amax = self.amax.map(|amax| amax.bytes().cast::<u32>());
        Ok(ToE4m3Args { y: y.write::<u8>(stream)?, scale: self.scale, amax }.pass())
    }
}

/// Methods of both.
macro_rules! targets {
    () => {
        /// A factor of the result, on the device: of one element; 1 unless given.
        pub fn scale_result(mut self, scale: impl Into<DeviceView<'a, f32>>) -> Self {
            self.target.scale = Some(scale.into());
            self
        }

        /// One element that is raised to the largest magnitude of the result before that factor and before
        /// rounding (NaN if there is one). It is not lowered, so fill it with zero first.
        pub fn amax(mut self, amax: impl Into<DeviceViewMut<'a, f32>>) -> Self {
            self.target.amax = Some(amax.into());
            self
        }
    };
}

impl<'a> Norm<'a> {
    /// The same norm with a result in e4m3: rounded once, from f32, to the nearest, ties to even. What is
    /// beyond the range, infinity included, becomes the largest number; NaN stays NaN. Sums are as
    /// before, and so are moments but for rounding.
    pub fn to_e4m3(self) -> NormToE4m3<'a> {
        NormToE4m3 { norm: self, target: Target::default() }
    }
}

impl<'a> NormToE4m3<'a> {
    targets!();

    /// The norm of `x`, as [`Norm::run`].
    ///
    /// # Errors
    /// As there, but that f64 is refused too, and [`crate::Error::Length`] for a scale or an amax that is not
    /// one element.
    #[track_caller]
    pub fn run(self, stream: &Stream, x: &Tensor) -> Result<Normed> {
        self.forward(stream, x, None, false)
    }

    /// The norm of `x`, and what its gradient needs, as [`Norm::run_for_gradient`].
    ///
    /// # Errors
    /// As [`run`](Self::run).
    #[track_caller]
    pub fn run_for_gradient(self, stream: &Stream, x: &Tensor) -> Result<Normed> {
        self.forward(stream, x, None, true)
    }

    /// The norm of `x + residual`, as [`Norm::add_and_run`]; the sum is of their type.
    ///
    /// # Errors
    /// As [`run`](Self::run), and as there.
    #[track_caller]
    pub fn add_and_run(
        self,
        stream: &Stream,
        x: &Tensor,
        residual: &Tensor,
        with_moments: bool,
    ) -> Result<Normed> {
        alike(self.norm.kind.name(), "residual", residual, x)?;
        self.forward(stream, x, Some(residual), with_moments)
    }

    #[track_caller]
    fn forward(
        self,
        stream: &Stream,
        x: &Tensor,
        residual: Option<&Tensor>,
        with_moments: bool,
    ) -> Result<Normed> {
        let Self { norm, target } = self;
        let operation = norm.kind.name();
        target.check(operation)?;
        let mut operands = norm.operands(stream, x, residual, with_moments)?;
        let y = made(stream, x.shape(), DType::F8E4M3, |y| {
            let (job, shared, moments) = operands.job(stream, None)?;
            let norm = norm.function(&job, shared, &moments)?;
            let function = NormToE4m3Args { norm, to: target.pass(stream, &y)? };
            // SAFETY: all tensors have the same rows, and what rows share is as long as a row; there is a
            // place for the moments of each row; scale and amax are one element each.
            unsafe {
                launched!(job, function.pass(), x.dtype(), operation, {
                    F32(f32) => kernels::norm_to_e4m3_f32, held::norm_to_e4m3_held_f32;
                    F16(f16) => kernels::norm_to_e4m3_f16, held::norm_to_e4m3_held_f16;
                    BF16(bf16) => kernels::norm_to_e4m3_bf16, held::norm_to_e4m3_held_bf16;
                })
            }
        })?;
        Ok(operands.normed(y))
    }
}

impl<'a> NormOfDropout<'a> {
    /// The same norm with a result in e4m3, as [`Norm::to_e4m3`]. The sum and the moments are as before.
    pub fn to_e4m3(self) -> NormOfDropoutToE4m3<'a> {
        NormOfDropoutToE4m3 { of: self, target: Target::default() }
    }
}

impl<'a> NormOfDropoutToE4m3<'a> {
    targets!();

    /// The norm of `dropout(x) + residual`, as [`NormOfDropout::add_and_run`].
    ///
    /// # Errors
    /// As there, and [`crate::Error::Length`] for a scale or an amax that is not one element.
    #[track_caller]
    pub fn add_and_run(
        self,
        stream: &Stream,
        x: &Tensor,
        residual: &Tensor,
        with_moments: bool,
    ) -> Result<Normed> {
        let Self { of, target } = self;
        let operation = of.norm.kind.name();
        target.check(operation)?;
        let mut operands = of.operands(stream, x, residual, with_moments)?;
        let y = made(stream, x.shape(), DType::F8E4M3, |y| {
            let (job, shared, moments) = operands.job(stream, None)?;
            let of = of.function(&job, shared, &moments)?;
            let function = NormOfDropoutToE4m3Args { of, to: target.pass(stream, &y)? };
            // SAFETY: all tensors have the same rows, and what rows share is as long as a row; there is a
            // place for the moments of each row, and one for the sum; a generator has a state; scale and amax
            // are one element each.
            unsafe {
                launched!(job, function.pass(), x.dtype(), operation, {
                    F32(f32) =>
                        kernels::norm_of_dropout_to_e4m3_f32, held::norm_of_dropout_to_e4m3_held_f32;
                    F16(f16) =>
                        kernels::norm_of_dropout_to_e4m3_f16, held::norm_of_dropout_to_e4m3_held_f16;
                    BF16(bf16) =>
                        kernels::norm_of_dropout_to_e4m3_bf16, held::norm_of_dropout_to_e4m3_held_bf16;
                })
            }
        })?;
        Ok(operands.normed(y))
    }
}
