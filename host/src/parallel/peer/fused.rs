//! The launches of sums with what follows them.

use collective::gradients::{Scaled, reduce_scaled, sum_squares};
use collective::norm::{Rows, all_reduce_norm};
use collective::reduce::share;

use super::launches::format;
use super::{Algorithm, Member, Plan};
use crate::error::Result;
use crate::launch::{LaunchConfig, launch};
use crate::ops::row::Normed;
use crate::parallel::call::Call;
use crate::parallel::operand::{Input, Operand, Output};
use crate::stream::Stream;
use crate::tensor::Tensor;

impl Member {
    /// Whether gradients are added up and converted at once: kernels reach the buffers of all ranks.
    pub fn sums_gradients(&self) -> bool {
        self.shared.ranks() > 1 && self.shared.reaches_buffers()
    }

    /// Whether a call travels with its flags.
    pub fn is_low_latency(&self, call: &Call) -> bool {
        self.shared.plan(call).algorithm == Algorithm::LowLatency
    }

    /// The norm of the rows of all ranks: `x`, the residual and the weight are contiguous and aligned.
    #[track_caller]
    pub fn all_reduce_norm(
        &mut self,
        stream: &Stream,
        call: Call,
        [x, residual, weight]: [&Tensor; 3],
        eps: f64,
    ) -> Result<Normed> {
        let operation = call.kind.operation();
        // SAFETY: the kernel writes all elements of both. Where the group fails instead, their values are
        // unknown, as the group's documentation says: floats, for which all bits are some number.
        let made = || unsafe { Tensor::uninit(stream, x.shape().clone(), x.dtype()) };
        let (given, mut sum, mut y) = (x.input(operation)?, made()?, made()?);
        let width = weight.elements() as u32;
        let rows = (call.count / weight.elements()) as u32;
        let (others, outputs) = (
            [residual.input(operation)?, weight.input(operation)?],
            [sum.view_mut()?.output(operation)?, y.view_mut()?.output(operation)?],
        );
        self.queue_fused(stream, call, given, |member, plan, order| {
            let shared = &member.shared;
            let plan = Plan { blocks: rows.min(shared.room()), ..plan };
            let team = shared.team_of(member.rank, order);
            let (config, signals, input, _) = shared.arguments(member.rank, plan, order);
            let of = Rows { rows, width, format: of_call(&order.call), eps: eps as f32 };
            let [residual, weight] = others.map(|operand| operand.within);
            let [sums, normed] = outputs.map(|operand| operand.within);
            // SAFETY: the ledger sees to it that all ranks launch the same; the slots have room by the plan;
            // the buffers hold the rows, at boundaries that `fused` has seen to.
            unsafe {
                launch::<all_reduce_norm>(
                    stream,
                    config,
                    (team, of, signals, input, residual, weight, sums, normed),
                )
            }
        })?;
        Ok(Normed { y, sum: Some(sum), moments: None })
    }

    /// The scaled sum of all ranks, and the sum of its squares.
    #[track_caller]
    pub fn all_reduce_scaled(
        &mut self,
        stream: &Stream,
        call: Call,
        scale: f32,
        input: Operand<'_>,
        output: Operand<'_>,
    ) -> Result<Tensor> {
        let mut squares = Tensor::zeros(stream, &[1], crate::tensor::DType::F32)?;
        let sum = squares.view_mut()?.output(call.kind.operation())?.within.cast::<f32>();
        self.queue_fused(stream, call, input, |member, plan, order| {
            let (shared, rank) = (&member.shared, member.rank);
            let (count, size) = (call.count as u64, call.dtype.size() as u64);
            let (start, length) = share(count, size, rank.into(), shared.ranks().into());
            let part = Scaled { start, length, format: of_call(&call), scale };
            let team = shared.team_of(rank, order);
            let (config, signals, input, _) = shared.arguments(rank, plan, order);
            let one = LaunchConfig::new([1, 1, 1], [32, 1, 1]);
            // SAFETY: the ledger and the call's number see to it that all ranks launch the same; parts of
            // different ranks do not overlap; the buffers hold the elements of the call. The second one is
            // behind the first, since both are uses of the signals.
            unsafe {
                launch::<reduce_scaled>(
                    stream,
                    config,
                    (team, part, signals, input, output.within.cast::<f32>()),
                )?;
                launch::<sum_squares>(stream, one, (shared.ranks(), plan.blocks, signals, sum))
            }
        })?;
        Ok(squares)
    }
}

/// The element type, which has been checked.
fn of_call(call: &Call) -> collective::number::Format {
    format(call.dtype).unwrap_or(collective::number::Format::F32)
}
