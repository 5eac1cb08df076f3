//! All-reduces with the step that follows them: a norm, or gradients in f32.

use super::call::{Call, Kind, Reduction};
use super::communicator::{Communicator, Member};
use super::operand::{Input, Output};
use crate::error::Result;
use crate::memory::same_length;
use crate::ops::convert::convert;
use crate::ops::elementwise::{copy, copy_into};
use crate::ops::gemm::Activation;
use crate::ops::row::{Norm, NormKind, Normed, alike, check_eps, check_shared, last_columns};
use crate::stream::Stream;
use crate::tensor::{DType, Tensor, TensorError, TensorMut};

/// Bytes at whose multiples the fused norm takes its rows.
const LINE: usize = 8;

impl Communicator {
    /// The sum of `x` of all ranks and of `residual`, and its RMS norm: the end of a tensor-parallel layer.
    /// Residual and weight are the same on all ranks. The result has [`Normed::sum`].
    ///
    /// Few rows take one kernel and one way over the link. More rows, and all calls through NCCL, take an
    /// all-reduce and a [`Norm`](crate::ops::row::Norm).
    ///
    /// # Errors
    /// As [`Communicator::all_reduce`] and [`Norm::add_and_run`](crate::ops::row::Norm::add_and_run).
    #[track_caller]
    pub fn all_reduce_norm(
        &mut self,
        stream: &Stream,
        x: &Tensor,
        residual: &Tensor,
        weight: &Tensor,
        eps: f64,
    ) -> Result<Normed> {
        const OPERATION: &str = "Communicator::all_reduce_norm";
        // All that could fail later: a call that fails when it has begun fails the group.
        let is_float = matches!(x.dtype(), DType::F32 | DType::F16 | DType::BF16);
        of_type(OPERATION, "x", x.dtype(), is_float || x.dtype() == DType::F64, "f64, f32, f16 or bf16")?;
        alike(OPERATION, "residual", residual, x)?;
        let width = last_columns(OPERATION, x)?;
        check_shared(OPERATION, "weight", weight, x, width)?;
        check_eps(OPERATION, eps)?;
        for (what, tensor) in [("x", x), ("the residual", residual), ("the weight", weight)] {
            stream.same_device(what, tensor.device())?;
        }
        let call = Call::new(Kind::AllReduceNorm { width }, x.dtype(), x.elements());
        let fits = is_float && (width * x.dtype().size()).is_multiple_of(LINE);
        let is_fused = fits && matches!(&self.member, Member::Peer(member) if member.is_low_latency(&call));
        if is_fused {
            self.tell_listener(&call);
        }
        if let Member::Peer(member) = &mut self.member
            && is_fused
        {
            let tensors = [x, residual, weight].map(|tensor| aligned(stream, tensor));
            let [x, residual, weight] = tensors;
            return member.all_reduce_norm(stream, call, [&x?, &residual?, &weight?], eps);
        }
        let mut sum = copy(stream, x)?;
        self.all_reduce(stream, Reduction::Sum, sum.view_mut()?)?;
        let (kind, activation) = (NormKind::Rms, Activation::None);
        let norm = Norm { kind, weight: Some(weight), bias: None, eps, activation };
        norm.add_and_run(stream, &sum, residual, false)
    }

    /// Writes `scale` times the sum of `x` of all ranks (f32, f16 or bf16) to `into`, in f32. Returns the sum
    /// of the squares of that, one element, for an optimiser that clips by the norm. The same bits on all
    /// ranks.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce_into`]: `into` is f32, as long as `x`.
    #[track_caller]
    pub fn all_reduce_scaled(
        &mut self,
        stream: &Stream,
        x: &Tensor,
        scale: f32,
        mut into: TensorMut<'_>,
    ) -> Result<Tensor> {
        const OPERATION: &str = "Communicator::all_reduce_scaled";
        let is_float = matches!(x.dtype(), DType::F32 | DType::F16 | DType::BF16);
        of_type(OPERATION, "x", x.dtype(), is_float, "f32, f16 or bf16")?;
        of_type(OPERATION, "the result", into.dtype(), into.dtype() == DType::F32, "f32")?;
        same_length(OPERATION, "the result", x.elements(), into.layout().elements())?;
        stream.same_device("x", x.device())?;
        stream.same_device("the result", into.device())?;
        let call = Call::new(Kind::AllReduceScaled { bits: scale.to_bits() }, x.dtype(), x.elements());
        let is_fused =
            matches!(&self.member, Member::Peer(member) if member.sums_gradients()) && x.elements() > 0;
        if is_fused {
            self.tell_listener(&call);
        }
        if let Member::Peer(member) = &mut self.member
            && is_fused
        {
            return member.all_reduce_scaled(
                stream,
                call,
                scale,
                x.input(OPERATION)?,
                into.output(OPERATION)?,
            );
        }
        let mut sum =
            if x.dtype() == DType::F32 { copy(stream, x)? } else { convert(stream, x, DType::F32)? };
        self.all_reduce(stream, Reduction::Sum, sum.view_mut()?)?;
        // Methods of tensors queue on the current stream.
        stream.scope(|_| {
            let sum = sum.mul(scale)?;
            copy_into(stream, &sum.view_as(into.shape())?, into.view_mut())?;
            sum.mul(&sum)?.sum_all()?.view_as(&[1])
        })
    }
}

fn of_type(
    operation: &'static str,
    what: &'static str,
    got: DType,
    is_right: bool,
    wanted: &str,
) -> Result<()> {
    if is_right {
        return Ok(());
    }
    let (wanted, hint) = (wanted.to_owned(), "convert it first (`ops::convert`)");
    Err(TensorError::DType { operation, what, got, wanted, hint }.into())
}

/// The tensor, contiguous and at a boundary of [`LINE`] bytes: the same one, or a copy.
fn aligned(stream: &Stream, tensor: &Tensor) -> Result<Tensor> {
    let is_aligned = tensor.is_contiguous()
        && tensor.input("Communicator::all_reduce_norm")?.address().is_multiple_of(LINE as u64);
    if is_aligned { tensor.view_as(tensor.shape()) } else { copy(stream, tensor) }
}
