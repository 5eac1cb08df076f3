//! Layer norm and RMS norm, fused with what is before and behind them.

use half::{bf16, f16};
use primitives::access::VECTOR_BYTES;
use primitives::activation::Activation;
use rows::kernels;
use rows::norm::{Norm as Function, NormArgs};
use rows::plan::{Drawing, KeptNorm};

use cuda_std::kernel::Value;

use super::launch::{Job, as_rows, written};
use super::normable::Normable;
use super::{alike, argument, last_columns, same_type};
use crate::error::Result;
use crate::launch::Arg;
use crate::memory::Within;
use crate::ops::dispatch::by_dtype;
use crate::ops::elementwise::{contiguous, made};
use crate::stream::Stream;
use crate::tensor::{DType, Shape, Tensor, TensorError, TensorMut};

/// Which norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormKind {
    /// `(x - mean) / sqrt(variance + eps)`; the variance is the population's (Ba et al. 2016).
    Layer,
    /// `x / sqrt(mean of x^2 + eps)` (Zhang and Sennrich 2019).
    Rms,
}

impl NormKind {
    /// Its name, which is PyTorch's in `torch.nn.functional`.
    pub const fn name(self) -> &'static str {
        match self {
            NormKind::Layer => "layer_norm",
            NormKind::Rms => "rms_norm",
        }
    }
}

/// A norm of the last axis, with what is fused to it.
#[derive(Clone, Copy, Debug)]
pub struct Norm<'a> {
    /// Which.
    pub kind: NormKind,
    /// A factor a column: of one dimension, as long as a row, of the tensor's type.
    pub weight: Option<&'a Tensor>,
    /// A term a column, after the factor, of the same shape and type.
    pub bias: Option<&'a Tensor>,
    /// Added to the variance or the mean square before the root. Not negative.
    pub eps: f64,
    /// A function of the result: of one value, so none that takes two. In f16 and bf16 GELU by tanh and SiLU
    /// of minus infinity are NaN, as PyTorch's are; in f32 they are 0.
    pub activation: Activation,
}

/// The results of a norm.
#[derive(Debug)]
pub struct Normed {
    /// The result, of the shape of `x` and its type unless another was asked for, contiguous.
    pub y: Tensor,
    /// The rounded sum that was normalised, where a residual was added.
    pub sum: Option<Tensor>,
    /// For the gradient: the mean of each row, then the inverse of each row's deviation, f32.
    pub moments: Option<Tensor>,
}

impl Norm<'_> {
    /// The norm of `x`.
    ///
    /// # Errors
    /// [`TensorError::Axis`] for a number, [`TensorError::DType`] for integers, bool and 8-bit floats and for
    /// a weight or bias of another type, [`TensorError::Shape`] for one of another shape than a row's,
    /// [`crate::Error::InvalidArgument`] for an epsilon that is negative or NaN, and for an activation of two
    /// values, [`TensorError::TooLarge`] for a row of 2^32 elements or more,
    /// [`crate::Error::DeviceMismatch`], [`crate::Error::OutOfMemory`], or the driver's error.
    #[track_caller]
    pub fn run(&self, stream: &Stream, x: &Tensor) -> Result<Normed> {
        self.forward(stream, x, None, false)
    }

    /// The norm of `x`, and what its gradient needs.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    #[track_caller]
    pub fn run_for_gradient(&self, stream: &Stream, x: &Tensor) -> Result<Normed> {
        self.forward(stream, x, None, true)
    }

    /// The norm of `x + residual`, rounded to their type; the sum is kept. `with_moments` when a gradient is
    /// wanted.
    ///
    /// # Errors
    /// As [`run`](Self::run), and [`TensorError::Shape`] or [`TensorError::DType`] for a residual of another
    /// shape or type.
    #[track_caller]
    pub fn add_and_run(
        &self,
        stream: &Stream,
        x: &Tensor,
        residual: &Tensor,
        with_moments: bool,
    ) -> Result<Normed> {
        alike(self.kind.name(), "residual", residual, x)?;
        self.forward(stream, x, Some(residual), with_moments)
    }

    #[track_caller]
    fn forward(
        &self,
        stream: &Stream,
        x: &Tensor,
        residual: Option<&Tensor>,
        with_moments: bool,
    ) -> Result<Normed> {
        let mut operands = self.operands(stream, x, residual, with_moments)?;
        let y = made(stream, x.shape(), x.dtype(), |y| {
            let (job, shared, moments) = operands.job(stream, Some(y))?;
            let function = self.function(&job, shared, &moments)?;
            // SAFETY: all tensors have the same rows, and what rows share is as long as a row; there is a
            // place for the moments of each row.
            unsafe {
                by_dtype!(x.dtype(), (self.kind.name(), "x", None), {
                    F64 => job.direct::<kernels::norm_f64, _, f64>(function),
                    F32 => self.of_type::<f32, _>(&job, shared, function),
                    F16 => self.of_type::<f16, _>(&job, shared, function),
                    BF16 => self.of_type::<bf16, _>(&job, shared, function),
                })
            }
        })?;
        Ok(operands.normed(y))
    }

    /// Queues the norm of rows of `T`: by the engine that has rows in registers where that is the faster one,
    /// else by one of the other two.
    ///
    /// # Safety
    /// As for [`Job::run`].
    unsafe fn of_type<T: Normable, A: Arg<Value<Function>>>(
        &self,
        job: &Job<'_>,
        shared: &Shared,
        function: A,
    ) -> Result<()> {
        let (size, norm) = (size_of::<T>(), self.in_registers(job, shared));
        // SAFETY: the caller's promise; the plan is one for the kernel.
        unsafe {
            match norm.and_then(|norm| job.drawn(size, norm)) {
                Some((plan, Drawing::Plain)) => return job.by_draws::<T::Drawn, _, T>(&plan, function),
                Some((plan, Drawing::Shared)) => {
                    return job.by_draws::<T::DrawnShared, _, T>(&plan, function);
                }
                None => {}
            }
            match norm.and_then(|norm| job.kept(size, norm)) {
                Some(plan) if plan.has_fewer(size) => job.planned::<T::KeptFewer, _, T>(&plan, function),
                Some(plan) if plan.is_full(size) => job.planned::<T::Kept, _, T>(&plan, function),
                Some(plan) => job.planned::<T::KeptPart, _, T>(&plan, function),
                None => job.run::<T::Direct, T::Held, _, T>(function),
            }
        }
    }

    /// The norm, as far as the engine that has rows in registers asks, where it has kernels for it.
    fn in_registers(&self, job: &Job<'_>, shared: &Shared) -> Option<KeptNorm> {
        let is_whole = |shared: &Tensor| shared.address().is_multiple_of(VECTOR_BYTES as u64);
        if job.rows() == 0 || !shared.all().all(is_whole) {
            return None;
        }
        Some(KeptNorm {
            is_centered: self.kind == NormKind::Layer,
            has_weight: shared.weight.is_some(),
            has_bias: shared.bias.is_some(),
            has_activation: self.activation != Activation::None,
        })
    }

    /// Checks the operands of a pass, and makes what is written beside its result.
    pub(super) fn operands(
        &self,
        stream: &Stream,
        x: &Tensor,
        residual: Option<&Tensor>,
        with_moments: bool,
    ) -> Result<Operands> {
        let operation = self.kind.name();
        let columns = last_columns(operation, x)?;
        check_eps(operation, self.eps)?;
        check_activation(operation, self.activation)?;
        let shared = Shared {
            weight: shared_by_rows(stream, operation, "weight", self.weight, x, columns)?,
            bias: shared_by_rows(stream, operation, "bias", self.bias, x, columns)?,
        };
        let rows = x.elements() / columns.max(1);
        // SAFETY: the launch writes all of both, or fails, and then they go.
        let (sum, moments) = unsafe {
            let new = |shape, dtype| Tensor::uninit(stream, shape, dtype);
            let sum = residual.map(|_| new(x.shape().clone(), x.dtype())).transpose()?;
            (sum, with_moments.then(|| new(Shape::new(&[2, rows])?, DType::F32)).transpose()?)
        };
        let residual = residual.map(|residual| as_rows(stream, residual, columns)).transpose()?;
        Ok(Operands { columns, x: as_rows(stream, x, columns)?, residual, shared, sum, moments })
    }

    /// The function of a job.
    pub(super) fn function<'t>(
        &self,
        job: &Job<'_>,
        shared: &'t Shared,
        moments: &'t Option<TensorMut<'_>>,
    ) -> Result<impl Arg<Value<Function>> + use<'t>> {
        let function = NormArgs {
            weight: bytes(job.stream, shared.weight.as_ref())?,
            bias: bytes(job.stream, shared.bias.as_ref())?,
            moments: written::<f32>(job.stream, moments)?,
            rows: job.rows(),
            eps: self.eps,
            is_centered: (self.kind == NormKind::Layer).into(),
            has_residual: job.inputs[1].is_some().into(),
            activation: self.activation as u32,
            rest: 0,
        };
        Ok(function.pass())
    }
}

/// The operands of a pass, checked and as rows, and what is written beside its result.
pub(super) struct Operands {
    columns: usize,
    x: Tensor,
    residual: Option<Tensor>,
    shared: Shared,
    sum: Option<Tensor>,
    moments: Option<Tensor>,
}

impl Operands {
    /// The pass, with a result of the rows' type if one is given; beside it what rows share, and a place for
    /// the moments.
    pub(super) fn job<'t>(
        &'t mut self,
        stream: &'t Stream,
        y: Option<TensorMut<'t>>,
    ) -> Result<(Job<'t>, &'t Shared, Option<TensorMut<'t>>)> {
        let inputs = [Some(&self.x), self.residual.as_ref(), None];
        let outputs = [y, self.sum.as_mut().map(Tensor::view_mut).transpose()?];
        let shared = self.shared.all().count() as u32;
        let moments = self.moments.as_mut().map(Tensor::view_mut).transpose()?;
        Ok((Job { stream, columns: self.columns, shared, inputs, outputs }, &self.shared, moments))
    }

    /// The results of the pass.
    pub(super) fn normed(self, y: Tensor) -> Normed {
        Normed { y, sum: self.sum, moments: self.moments }
    }
}

/// A weight and a bias, checked and contiguous.
pub(super) struct Shared {
    weight: Option<Tensor>,
    bias: Option<Tensor>,
}

impl Shared {
    /// Those that there are.
    fn all(&self) -> impl Iterator<Item = &Tensor> {
        [&self.weight, &self.bias].into_iter().flatten()
    }
}

/// The address of elements whose type the kernel knows.
pub(super) fn bytes<'t>(stream: &Stream, tensor: Option<&'t Tensor>) -> Result<Option<Within<'t, u8>>> {
    tensor.map(|tensor| tensor.read::<u8>(stream)).transpose()
}

/// An epsilon of at least 0.
pub(crate) fn check_eps(operation: &'static str, eps: f64) -> Result<()> {
    if eps.is_nan() || eps < 0.0 {
        let (wanted, hint) = ("0 or more".to_owned(), "PyTorch's default for layer norms is 1e-5");
        return Err(argument(operation, "eps", eps.to_string(), wanted, hint));
    }
    Ok(())
}

/// An activation of one value.
pub(super) fn check_activation(operation: &'static str, activation: Activation) -> Result<()> {
    if activation.columns() != 1 {
        let (got, wanted) = (activation.name().to_owned(), "an activation of one value".to_owned());
        let hint = "take the norm without it, and the activation behind it";
        return Err(argument(operation, "activation", got, wanted, hint));
    }
    Ok(())
}

/// A weight or a bias, checked and contiguous.
pub(super) fn shared_by_rows(
    stream: &Stream,
    operation: &'static str,
    what: &'static str,
    given: Option<&Tensor>,
    x: &Tensor,
    columns: usize,
) -> Result<Option<Tensor>> {
    let Some(given) = given else { return Ok(None) };
    check_shared(operation, what, given, x, columns)?;
    contiguous(stream, given).map(Some)
}

/// A weight or a bias: an element of the type of `x` for each column.
pub(crate) fn check_shared(
    operation: &'static str,
    what: &'static str,
    given: &Tensor,
    x: &Tensor,
    columns: usize,
) -> Result<()> {
    if given.shape().sides() != [columns] {
        let (got, wanted) = (given.shape().clone(), format!("[{columns}], one for each element of a row"));
        let hint = "take the row's part of it, or flatten it (`reshape`)";
        return Err(TensorError::Shape { operation, what, got, wanted, hint }.into());
    }
    same_type(operation, what, given, x)
}
