//! Norms of a sum whose first term is dropped out.

use half::{bf16, f16};
use primitives::dropout::Rate;
use rows::kernels;
use rows::norm_of_dropout::{NormOfDropout as Function, NormOfDropoutArgs};
use rows::sm90::kernels as held;

use cuda_std::kernel::Value;

use super::alike;
use super::launch::{Job, launched};
use super::norm::{Norm, Normed, Operands, Shared};
use crate::error::Result;
use crate::launch::Arg;
use crate::ops::dropout::{Generator, check};
use crate::ops::elementwise::made;
use crate::stream::Stream;
use crate::tensor::{Tensor, TensorMut};

/// A norm of `dropout(x) + residual`: [`Norm::dropout`].
///
/// ```
/// use ironwarp::ops::dropout::{Generator, dropout};
/// use ironwarp::ops::gemm::Activation;
/// use ironwarp::ops::row::{Norm, NormKind};
/// use ironwarp::{DType, Device, Tensor};
///
/// # fn main() -> ironwarp::Result<()> {
/// let stream = Device::open(0)?.stream()?;
/// let generator = Generator::new(&stream, 42)?;
/// let x = Tensor::from_slice(&stream, &[2, 4], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])?;
/// let residual = Tensor::zeros(&stream, &[2, 4], DType::F32)?;
///
/// let (kind, weight) = (NormKind::Layer, None);
/// let norm = Norm { kind, weight, bias: None, eps: 1e-5, activation: Activation::None };
/// let normed = norm.dropout(0.25, &generator, 0).add_and_run(&stream, &x, &residual, true)?;
/// let (sum, moments) = (normed.sum.expect("a residual was added"), normed.moments.expect("asked for"));
/// let dropped = dropout(&stream, &x, 0.25, &generator, 0)?;
/// assert_eq!(sum.to_vec::<f32>(&stream)?, dropped.to_vec::<f32>(&stream)?);
///
/// // The gradient by the sum is the residual's; that by `x` has the same mask.
/// let dy = Tensor::from_slice(&stream, &[2, 4], &[1.0f32; 8])?;
/// let of_residual = norm.backward(&sum, &dy, &moments).run(&stream)?.x;
/// let of_x = dropout(&stream, &of_residual, 0.25, &generator, 0)?;
/// # assert_eq!(of_x.shape(), sum.shape());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use]
pub struct NormOfDropout<'a> {
    pub(super) norm: Norm<'a>,
    probability: f64,
    generator: &'a Generator,
    call: u32,
}

impl<'a> Norm<'a> {
    /// The same norm of a sum whose first term is dropped out, as by
    /// [`dropout`](crate::ops::dropout::dropout) with these arguments: the same elements are 0. In 16 bits
    /// the sum is rounded once, and its first term not before that.
    pub fn dropout(self, probability: f64, generator: &'a Generator, call: u32) -> NormOfDropout<'a> {
        NormOfDropout { norm: self, probability, generator, call }
    }
}

impl NormOfDropout<'_> {
    /// The norm of `dropout(x) + residual`, rounded to their type; the sum is kept. `with_moments` when a
    /// gradient is wanted.
    ///
    /// The generator's state is read on the device: replays of a captured step that advances it draw anew.
    ///
    /// # Errors
    /// As [`Norm::add_and_run`], but that f64 is refused too, [`crate::Error::InvalidArgument`] for a
    /// probability that is not from 0 to 1, and [`crate::TensorError::TooLarge`] for 2^35 elements or more.
    #[track_caller]
    pub fn add_and_run(
        &self,
        stream: &Stream,
        x: &Tensor,
        residual: &Tensor,
        with_moments: bool,
    ) -> Result<Normed> {
        let Self { norm, .. } = *self;
        let operation = norm.kind.name();
        let mut operands = self.operands(stream, x, residual, with_moments)?;
        let y = made(stream, x.shape(), x.dtype(), |y| {
            let (job, shared, moments) = operands.job(stream, Some(y))?;
            let function = self.function(&job, shared, &moments)?;
            // SAFETY: all tensors have the same rows, and what rows share is as long as a row; there is a
            // place for the moments of each row, and one for the sum; a generator has a state.
            unsafe {
                launched!(job, function, x.dtype(), operation, {
                    F32(f32) => kernels::norm_of_dropout_f32, held::norm_of_dropout_held_f32;
                    F16(f16) => kernels::norm_of_dropout_f16, held::norm_of_dropout_held_f16;
                    BF16(bf16) => kernels::norm_of_dropout_bf16, held::norm_of_dropout_held_bf16;
                })
            }
        })?;
        Ok(operands.normed(y))
    }

    /// The operands of a pass, checked.
    pub(super) fn operands(
        &self,
        stream: &Stream,
        x: &Tensor,
        residual: &Tensor,
        with_moments: bool,
    ) -> Result<Operands> {
        let operation = self.norm.kind.name();
        alike(operation, "residual", residual, x)?;
        check(operation, x, self.probability)?;
        self.norm.operands(stream, x, Some(residual), with_moments)
    }

    /// The function of a job.
    pub(super) fn function<'t>(
        &'t self,
        job: &Job<'_>,
        shared: &'t Shared,
        moments: &'t Option<TensorMut<'_>>,
    ) -> Result<impl Arg<Value<Function>> + use<'t>> {
        let Rate { threshold, scale } = Rate::new(self.probability);
        let function = NormOfDropoutArgs {
            norm: self.norm.function(job, shared, moments)?,
            state: self.generator.state(),
            call: self.call,
            threshold,
            scale,
            columns: job.columns as u32,
        };
        Ok(function.pass())
    }
}
