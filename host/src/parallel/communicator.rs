//! A rank's hold on its group.

use std::fmt;
use std::sync::Arc;

use super::call::{Call, Kind, Reduction};
use super::operand::{Input, Operand, Output};
use super::peer::{Algorithm, Order, Plan, Shared, format};
use crate::device::Device;
use crate::error::{Error, ParallelError, Result};
use crate::stream::Stream;
use crate::tensor::{DType, TensorError};

/// A rank of a [`Group`](super::Group). One thread at a time drives it.
///
/// Functions queue work on a stream of the rank's device and return at once. Calls of one communicator may be
/// on different streams: they stay in order. Buffers may be of any length, and begin anywhere.
///
/// A group in which a call has failed stays failed: every later call returns [`Error::Parallel`]. The
/// contents of buffers that were on their way are then unknown.
pub struct Communicator {
    shared: Arc<Shared>,
    rank: u32,
}

impl Communicator {
    pub(super) fn new(shared: Arc<Shared>, rank: u32) -> Self {
        Communicator { shared, rank }
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Its number in the group.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Ranks of the group.
    pub fn ranks(&self) -> u32 {
        self.shared.ranks()
    }

    /// Its device.
    pub fn device(&self) -> &Device {
        &self.shared.devices[self.rank as usize]
    }

    /// Combines the buffers of all ranks; each gets the result in its place.
    ///
    /// # Errors
    /// [`Error::Parallel`], [`TensorError::DType`] for types that are not combined,
    /// [`Error::DeviceMismatch`], or the driver's error.
    #[track_caller]
    pub fn all_reduce<'a>(
        &mut self,
        stream: &Stream,
        reduction: Reduction,
        buffer: impl Output<'a>,
    ) -> Result<()> {
        self.all_reduce_by(stream, reduction, buffer, None)
    }

    /// As [`Communicator::all_reduce`], by a plan of [`Communicator::candidates`], the same on all ranks.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce`], and [`Error::InvalidArgument`] for a plan that cannot do it.
    #[track_caller]
    pub fn all_reduce_with<'a>(
        &mut self,
        stream: &Stream,
        reduction: Reduction,
        buffer: impl Output<'a>,
        plan: Plan,
    ) -> Result<()> {
        self.all_reduce_by(stream, reduction, buffer, Some(plan))
    }

    #[track_caller]
    fn all_reduce_by<'a>(
        &mut self,
        stream: &Stream,
        reduction: Reduction,
        buffer: impl Output<'a>,
        plan: Option<Plan>,
    ) -> Result<()> {
        let operation = "Communicator::all_reduce";
        let output = buffer.output(operation)?;
        combines(operation, output.dtype, reduction)?;
        let call = Call { kind: Kind::AllReduce(reduction), dtype: output.dtype, count: output.count };
        self.queue(stream, call, plan, None, Some(output))
    }

    /// As [`Communicator::all_reduce`], from one buffer into another of the same length.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce`], and [`Error::Length`].
    #[track_caller]
    pub fn all_reduce_into<'a, 'b>(
        &mut self,
        stream: &Stream,
        reduction: Reduction,
        input: impl Input<'a>,
        output: impl Output<'b>,
    ) -> Result<()> {
        let operation = "Communicator::all_reduce_into";
        let (input, output) = (input.input(operation)?, output.output(operation)?);
        combines(operation, input.dtype, reduction)?;
        fits(operation, &input, &output, input.count)?;
        let call = Call { kind: Kind::AllReduce(reduction), dtype: input.dtype, count: input.count };
        self.queue(stream, call, None, Some(input), Some(output))
    }

    /// Combines the inputs of all ranks; rank `r` gets the `r`th of as many equal parts.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce_into`]: the input is as long as all outputs together.
    #[track_caller]
    pub fn reduce_scatter<'a, 'b>(
        &mut self,
        stream: &Stream,
        reduction: Reduction,
        input: impl Input<'a>,
        output: impl Output<'b>,
    ) -> Result<()> {
        let operation = "Communicator::reduce_scatter";
        let (input, output) = (input.input(operation)?, output.output(operation)?);
        combines(operation, input.dtype, reduction)?;
        let each = self.part_of(operation, "the input", input.count)?;
        fits(operation, &input, &output, each)?;
        let call = Call { kind: Kind::ReduceScatter(reduction), dtype: input.dtype, count: each };
        self.queue(stream, call, None, Some(input), Some(output))
    }

    /// Puts the inputs of all ranks one behind the other, in the order of ranks, into each one's output.
    ///
    /// # Errors
    /// [`Error::Parallel`], [`Error::Length`], [`TensorError::DType`], [`Error::DeviceMismatch`], or the
    /// driver's error.
    #[track_caller]
    pub fn all_gather<'a, 'b>(
        &mut self,
        stream: &Stream,
        input: impl Input<'a>,
        output: impl Output<'b>,
    ) -> Result<()> {
        let operation = "Communicator::all_gather";
        let (input, output) = (input.input(operation)?, output.output(operation)?);
        let all = input.count.checked_mul(self.ranks() as usize);
        fits(operation, &input, &output, all.unwrap_or(usize::MAX))?;
        let call = Call { kind: Kind::AllGather, dtype: input.dtype, count: input.count };
        self.queue(stream, call, None, Some(input), Some(output))
    }

    /// Copies the buffer of rank `root` to the others'.
    ///
    /// # Errors
    /// [`Error::Parallel`], [`Error::InvalidArgument`] for a rank that is none, [`Error::DeviceMismatch`], or
    /// the driver's error.
    #[track_caller]
    pub fn broadcast<'a>(&mut self, stream: &Stream, root: u32, buffer: impl Output<'a>) -> Result<()> {
        let operation = "Communicator::broadcast";
        let buffer = buffer.output(operation)?;
        self.is_rank(operation, "root", root)?;
        let call = Call { kind: Kind::Broadcast { root }, dtype: buffer.dtype, count: buffer.count };
        self.queue(stream, call, None, None, Some(buffer))
    }

    /// Sends the `r`th of equal parts of the input to rank `r`; each rank gets the parts in the order of
    /// their senders.
    ///
    /// # Errors
    /// As [`Communicator::all_gather`]; input and output are of the same length, a multiple of the ranks.
    #[track_caller]
    pub fn all_to_all<'a, 'b>(
        &mut self,
        stream: &Stream,
        input: impl Input<'a>,
        output: impl Output<'b>,
    ) -> Result<()> {
        let operation = "Communicator::all_to_all";
        let (input, output) = (input.input(operation)?, output.output(operation)?);
        self.part_of(operation, "the input", input.count)?;
        fits(operation, &input, &output, input.count)?;
        let call = Call { kind: Kind::AllToAll, dtype: input.dtype, count: input.count };
        self.queue(stream, call, None, Some(input), Some(output))
    }

    /// Sends a buffer to rank `to`, which receives it ([`Communicator::receive`]). Both wait for each other,
    /// and for no other rank: of two that exchange buffers, one sends first, the other receives first.
    ///
    /// # Errors
    /// As [`Communicator::broadcast`].
    #[track_caller]
    pub fn send<'a>(&mut self, stream: &Stream, to: u32, buffer: impl Input<'a>) -> Result<()> {
        let operation = "Communicator::send";
        let buffer = buffer.input(operation)?;
        self.is_other_rank(operation, "to", to)?;
        let call =
            Call { kind: Kind::Send { from: self.rank, to }, dtype: buffer.dtype, count: buffer.count };
        self.queue(stream, call, None, Some(buffer), None)
    }

    /// Receives what rank `from` sends.
    ///
    /// # Errors
    /// As [`Communicator::send`].
    #[track_caller]
    pub fn receive<'a>(&mut self, stream: &Stream, from: u32, buffer: impl Output<'a>) -> Result<()> {
        let operation = "Communicator::receive";
        let buffer = buffer.output(operation)?;
        self.is_other_rank(operation, "from", from)?;
        let call =
            Call { kind: Kind::Send { from, to: self.rank }, dtype: buffer.dtype, count: buffer.count };
        self.queue(stream, call, None, None, Some(buffer))
    }

    /// Lets later work of the stream begin only when all ranks' streams have come here. The host does not
    /// wait.
    ///
    /// # Errors
    /// [`Error::Parallel`], [`Error::DeviceMismatch`], or the driver's error.
    #[track_caller]
    pub fn barrier(&mut self, stream: &Stream) -> Result<()> {
        let call = Call { kind: Kind::Barrier, dtype: DType::U8, count: 0 };
        self.queue(stream, call, None, None, None)
    }

    /// Groups of the ranks with the same `color`, each in the order of `key`, then of ranks. A rank without a
    /// color is in none. Waits for all ranks.
    ///
    /// # Errors
    /// [`Error::Parallel`], also when a rank does not come in time; [`Error::OutOfMemory`], or the driver's
    /// error.
    #[track_caller]
    pub fn split(&mut self, color: Option<u32>, key: i64) -> Result<Option<Communicator>> {
        self.check()?;
        let call = Call { kind: Kind::Split, dtype: DType::U8, count: 0 };
        self.enter(call)?;
        let answer = self.shared.ledger.split(self.rank, color, key, self.shared.options.timeout)?;
        let Some(answer) = answer else { return Ok(None) };
        let child = self.shared.child(&answer)?;
        let rank = answer.members.iter().position(|&rank| rank == self.rank).unwrap_or(0);
        Ok(Some(Communicator::new(child, rank as u32)))
    }

    /// Waits until everything queued on the stream is done, and checks the group.
    ///
    /// # Errors
    /// [`Error::Parallel`] when a collective has failed, or the driver's error.
    pub fn synchronize(&mut self, stream: &Stream) -> Result<()> {
        stream.synchronize()?;
        self.check()
    }

    /// Whether the group is sound, as far as is known without a wait.
    ///
    /// # Errors
    /// [`Error::Parallel`].
    pub fn check(&self) -> Result<()> {
        Ok(self.shared.check(self.rank)?)
    }

    /// How an all-reduce of `count` elements is done.
    pub fn explain(&self, count: usize, dtype: DType) -> Plan {
        let call = Call { kind: Kind::AllReduce(Reduction::Sum), dtype, count };
        Plan::of(&call, self.ranks(), self.shared.room)
    }

    /// Every way in which an all-reduce of `count` elements can be done.
    pub fn candidates(&self, count: usize, dtype: DType) -> Vec<Plan> {
        let call = Call { kind: Kind::AllReduce(Reduction::Sum), dtype, count };
        Plan::candidates(&call, self.ranks(), self.shared.room)
    }

    /// Enters a call in the ledger; its number. A call that does not fit fails the group.
    fn enter(&self, call: Call) -> Result<u64, ParallelError> {
        self.shared.ledger.enter(self.rank, call).inspect_err(|_| self.shared.abort())
    }

    #[track_caller]
    fn queue(
        &mut self,
        stream: &Stream,
        call: Call,
        plan: Option<Plan>,
        input: Option<Operand<'_>>,
        output: Option<Operand<'_>>,
    ) -> Result<()> {
        let operation = call.operation();
        stream.same_device("the communicator", self.device())?;
        for (what, operand) in [("the input", &input), ("the output", &output)] {
            if let Some(operand) = operand {
                stream.same_device(what, operand.device)?;
            }
        }
        let usual = Plan::of(&call, self.ranks(), self.shared.room);
        let plan = match plan {
            Some(plan) => self.allowed(operation, &call, plan)?,
            None => usual,
        };
        self.check()?;
        let sequence = self.enter(call)?;
        if let Some(capture) = stream.capture()? {
            capture.keep_alive(self.shared.clone());
        }
        if usual.algorithm == Algorithm::Local {
            return local(stream, input, output);
        }
        let queued = self.shared.launch(self.rank, stream, plan, &Order { call, sequence, input, output });
        if let Err(error) = &queued {
            // The others may already wait for it.
            self.shared.fail(format!("rank {}: {error}", self.rank));
        }
        queued
    }

    /// A plan that was asked for, if it can do the call.
    fn allowed(&self, operation: &'static str, call: &Call, plan: Plan) -> Result<Plan> {
        let candidates = Plan::candidates(call, self.ranks(), self.shared.room);
        let is_known = candidates.iter().any(|known| known.algorithm == plan.algorithm);
        let has_blocks = plan.algorithm == Algorithm::Local || (1..=self.shared.room).contains(&plan.blocks);
        if is_known && has_blocks {
            return Ok(plan);
        }
        Err(Error::InvalidArgument {
            operation,
            argument: "the plan",
            got: plan.to_string(),
            wanted: format!("one of `candidates`, with 1 to {} blocks", self.shared.room),
            hint: "take a plan of `Communicator::candidates`; its number of blocks may be changed",
        })
    }

    fn part_of(&self, operation: &'static str, argument: &'static str, count: usize) -> Result<usize> {
        let ranks = self.ranks() as usize;
        if count.is_multiple_of(ranks) {
            return Ok(count / ranks);
        }
        Err(Error::InvalidArgument {
            operation,
            argument,
            got: format!("{count} elements"),
            wanted: format!("a multiple of {ranks}, the number of ranks"),
            hint: "pad it: parts are of the same length",
        })
    }

    fn is_rank(&self, operation: &'static str, argument: &'static str, rank: u32) -> Result<()> {
        if rank < self.ranks() {
            return Ok(());
        }
        Err(Error::InvalidArgument {
            operation,
            argument,
            got: rank.to_string(),
            wanted: format!("a rank below {}", self.ranks()),
            hint: "ranks are counted from 0",
        })
    }

    fn is_other_rank(&self, operation: &'static str, argument: &'static str, rank: u32) -> Result<()> {
        self.is_rank(operation, argument, rank)?;
        if rank != self.rank {
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
}

impl Drop for Communicator {
    fn drop(&mut self) {
        if self.shared.ledger.leave(self.rank) {
            self.shared.fail(format!("rank {} has dropped its communicator; others wait for it", self.rank));
        }
    }
}

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Communicator(rank {} of {} on {:?})", self.rank, self.ranks(), self.device())
    }
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
    crate::memory::same_length(operation, "the output", count, output.count)?;
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

/// A collective of one rank, or of nothing.
fn local(stream: &Stream, input: Option<Operand<'_>>, output: Option<Operand<'_>>) -> Result<()> {
    let (Some(input), Some(output)) = (input, output) else { return Ok(()) };
    input.copy_to(stream, &output)
}
