//! The checks of a call and its operands, before anything is queued.

use super::call::{Call, Kind, Reduction};
use super::operand::Operand;
use super::peer::{Algorithm, Plan, format};
use crate::error::{Error, Result};
use crate::memory::same_length;
use crate::tensor::{DType, TensorError};

/// The call of a rank with these operands, if they fit it. Without an input, the output is the input.
pub(super) fn call(
    kind: Kind,
    rank: u32,
    ranks: u32,
    input: Option<&Operand<'_>>,
    output: Option<&Operand<'_>>,
) -> Result<Call> {
    let operation = kind.operation();
    match kind {
        Kind::Broadcast { root } => is_rank(operation, "root", root, ranks)?,
        Kind::Send { to, .. } if input.is_some() => is_other_rank(operation, "to", to, rank, ranks)?,
        Kind::Send { from, .. } => is_other_rank(operation, "from", from, rank, ranks)?,
        _ => {}
    }
    let Some(read) = input.or(output) else { return Ok(Call::new(kind, DType::U8, 0)) };
    if let Kind::AllReduce(reduction) | Kind::ReduceScatter(reduction) = kind {
        combines(operation, read.dtype, reduction)?;
    }
    // Elements of the result, and those that the call counts.
    let (result, count) = match kind {
        Kind::ReduceScatter(_) => {
            let each = part_of(operation, read.count, ranks)?;
            (each, each)
        }
        Kind::AllGather => (read.count.saturating_mul(ranks as usize), read.count),
        Kind::AllToAll => {
            part_of(operation, read.count, ranks)?;
            (read.count, read.count)
        }
        _ => (read.count, read.count),
    };
    if let (Some(input), Some(output)) = (input, output) {
        fits(operation, input, output, result)?;
    }
    Ok(Call::new(kind, read.dtype, count))
}

/// A plan that was asked for, if it can do the call.
pub(super) fn plan(call: &Call, plan: Plan, candidates: &[Plan], room: u32) -> Result<Plan> {
    let is_known = candidates.iter().any(|known| known.algorithm == plan.algorithm);
    let has_none = matches!(plan.algorithm, Algorithm::Local | Algorithm::Nccl);
    let has_blocks = has_none || (1..=room).contains(&plan.blocks);
    if is_known && has_blocks {
        return Ok(plan);
    }
    Err(Error::InvalidArgument {
        operation: call.kind.operation(),
        argument: "the plan",
        got: plan.to_string(),
        wanted: format!("one of `candidates`, with 1 to {room} blocks"),
        hint: "take a plan of `Communicator::candidates`; its number of blocks may be changed",
    })
}

/// Whether elements of a type are combined like that.
fn combines(operation: &'static str, dtype: DType, reduction: Reduction) -> Result<()> {
    let is_known = format(dtype).is_some() && (reduction != Reduction::Mean || dtype.is_float());
    if is_known {
        return Ok(());
    }
    let wanted = if reduction == Reduction::Mean { "a float type for the mean" } else { "a number type" };
    let (wanted, hint) = (wanted.to_owned(), "convert the operand first (`ops::convert`)");
    Err(TensorError::DType { operation, what: "the buffer", got: dtype, wanted, hint }.into())
}

/// Whether an output has the type of the input and so many elements, and lies elsewhere.
fn fits(operation: &'static str, input: &Operand<'_>, output: &Operand<'_>, count: usize) -> Result<()> {
    if output.dtype != input.dtype {
        let wanted = format!("{}, as the input", input.dtype);
        let hint = "convert one of them (`ops::convert`)";
        return Err(
            TensorError::DType { operation, what: "the output", got: output.dtype, wanted, hint }.into()
        );
    }
    same_length(operation, "the output", count, output.count)?;
    if input.overlaps(output) {
        return Err(Error::InvalidArgument {
            operation,
            argument: "the output",
            got: "memory that the input lies in".to_owned(),
            wanted: "memory of its own".to_owned(),
            hint: "give it a buffer of its own; `all_reduce` and `broadcast` work in place",
        });
    }
    Ok(())
}

/// One of as many equal parts of the input as there are ranks.
fn part_of(operation: &'static str, count: usize, ranks: u32) -> Result<usize> {
    let ranks = ranks as usize;
    if count.is_multiple_of(ranks) {
        return Ok(count / ranks);
    }
    Err(Error::InvalidArgument {
        operation,
        argument: "the input",
        got: format!("{count} elements"),
        wanted: format!("a multiple of {ranks}, the number of ranks"),
        hint: "pad it: parts are of the same length",
    })
}

pub(super) fn is_rank(operation: &'static str, argument: &'static str, rank: u32, ranks: u32) -> Result<()> {
    if rank < ranks {
        return Ok(());
    }
    Err(Error::InvalidArgument {
        operation,
        argument,
        got: rank.to_string(),
        wanted: format!("a rank below {ranks}"),
        hint: "ranks are counted from 0",
    })
}

fn is_other_rank(
    operation: &'static str,
    argument: &'static str,
    other: u32,
    rank: u32,
    ranks: u32,
) -> Result<()> {
    is_rank(operation, argument, other, ranks)?;
    if other != rank {
        return Ok(());
    }
    Err(Error::InvalidArgument {
        operation,
        argument,
        got: format!("{rank}, the rank itself"),
        wanted: "another rank".to_owned(),
        hint: "copy the buffer (`copy_from_device`)",
    })
}
