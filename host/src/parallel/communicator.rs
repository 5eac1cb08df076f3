//! A rank's hold on its group.

use std::fmt;
use std::sync::Arc;

use super::call::{Call, Kind, Reduction};
use super::check;
use super::operand::{Input, Operand, Output};
use super::peer::{Algorithm, Order, Plan, Shared};
use crate::device::Device;
use crate::error::{Error, ParallelError, Result};
use crate::stream::Stream;
use crate::tensor::DType;

/// A rank of a [`Group`](super::Group). One thread at a time drives it.
///
/// Functions queue work on a stream of the rank's device and return at once. Calls of one communicator may be
/// on different streams: they stay in order. Buffers may be of any length, and begin anywhere.
///
/// A group in which a call has failed stays failed: every later call returns [`crate::Error::Parallel`]. The
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
    /// [`crate::Error::Parallel`], [`crate::TensorError::DType`] for types that are not combined,
    /// [`crate::Error::DeviceMismatch`], or the driver's error.
    #[track_caller]
    pub fn all_reduce<'a>(
        &mut self,
        stream: &Stream,
        reduction: Reduction,
        buffer: impl Output<'a>,
    ) -> Result<()> {
        let kind = Kind::AllReduce(reduction);
        self.call(stream, kind, None, None, Some(buffer.output(kind.operation())?))
    }

    /// As [`Communicator::all_reduce`], by a plan of [`Communicator::candidates`], the same on all ranks.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce`], and [`crate::Error::InvalidArgument`] for a plan that cannot do it.
    #[track_caller]
    pub fn all_reduce_with<'a>(
        &mut self,
        stream: &Stream,
        reduction: Reduction,
        buffer: impl Output<'a>,
        plan: Plan,
    ) -> Result<()> {
        let kind = Kind::AllReduce(reduction);
        self.call(stream, kind, Some(plan), None, Some(buffer.output(kind.operation())?))
    }

    /// As [`Communicator::all_reduce`], from one buffer into another of the same length.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce`], and [`crate::Error::Length`].
    #[track_caller]
    pub fn all_reduce_into<'a, 'b>(
        &mut self,
        stream: &Stream,
        reduction: Reduction,
        input: impl Input<'a>,
        output: impl Output<'b>,
    ) -> Result<()> {
        self.exchange(stream, Kind::AllReduce(reduction), input, output)
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
        self.exchange(stream, Kind::ReduceScatter(reduction), input, output)
    }

    /// Puts the inputs of all ranks one behind the other, in the order of ranks, into each one's output.
    ///
    /// # Errors
    /// [`crate::Error::Parallel`], [`crate::Error::Length`], [`crate::TensorError::DType`],
    /// [`crate::Error::DeviceMismatch`], or the driver's error.
    #[track_caller]
    pub fn all_gather<'a, 'b>(
        &mut self,
        stream: &Stream,
        input: impl Input<'a>,
        output: impl Output<'b>,
    ) -> Result<()> {
        self.exchange(stream, Kind::AllGather, input, output)
    }

    /// Copies the buffer of rank `root` to the others'.
    ///
    /// # Errors
    /// [`crate::Error::Parallel`], [`crate::Error::InvalidArgument`] for a rank that is none,
    /// [`crate::Error::DeviceMismatch`], or the driver's error.
    #[track_caller]
    pub fn broadcast<'a>(&mut self, stream: &Stream, root: u32, buffer: impl Output<'a>) -> Result<()> {
        let kind = Kind::Broadcast { root };
        self.call(stream, kind, None, None, Some(buffer.output(kind.operation())?))
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
        self.exchange(stream, Kind::AllToAll, input, output)
    }

    /// Sends a buffer to rank `to`, which receives it ([`Communicator::receive`]). Both wait for each other,
    /// and for no other rank: of two that exchange buffers, one sends first, the other receives first.
    ///
    /// # Errors
    /// As [`Communicator::broadcast`].
    #[track_caller]
    pub fn send<'a>(&mut self, stream: &Stream, to: u32, buffer: impl Input<'a>) -> Result<()> {
        let kind = Kind::Send { from: self.rank, to };
        self.call(stream, kind, None, Some(buffer.input(kind.operation())?), None)
    }

    /// Receives what rank `from` sends.
    ///
    /// # Errors
    /// As [`Communicator::send`].
    #[track_caller]
    pub fn receive<'a>(&mut self, stream: &Stream, from: u32, buffer: impl Output<'a>) -> Result<()> {
        let kind = Kind::Send { from, to: self.rank };
        self.call(stream, kind, None, None, Some(buffer.output(kind.operation())?))
    }

    /// Lets later work of the stream begin only when all ranks' streams have come here. The host does not
    /// wait.
    ///
    /// # Errors
    /// [`crate::Error::Parallel`], [`crate::Error::DeviceMismatch`], or the driver's error.
    #[track_caller]
    pub fn barrier(&mut self, stream: &Stream) -> Result<()> {
        self.call(stream, Kind::Barrier, None, None, None)
    }

    /// Groups of the ranks with the same `color`, each in the order of `key`, then of ranks. A rank without a
    /// color is in none. Waits for all ranks.
    ///
    /// # Errors
    /// [`crate::Error::Parallel`], also when a rank does not come in time; [`crate::Error::OutOfMemory`], or
    /// the driver's error.
    #[track_caller]
    pub fn split(&mut self, color: Option<u32>, key: i64) -> Result<Option<Communicator>> {
        self.check()?;
        let call = Call::new(Kind::Split, DType::U8, 0);
        self.enter(call)?;
        let answer = self.shared.ledger.split(self.rank, color, key, self.shared.options.timeout)?;
        let Some(answer) = answer else { return Ok(None) };
        // The others wait for it in the new group.
        let child = self.shared.child(&answer).inspect_err(|error| self.fail(error))?;
        let rank = answer.members.iter().position(|&rank| rank == self.rank).unwrap_or(0);
        Ok(Some(Communicator::new(child, rank as u32)))
    }

    /// Waits until everything queued on the stream is done, and checks the group.
    ///
    /// # Errors
    /// [`crate::Error::Parallel`] when a collective has failed, or the driver's error.
    pub fn synchronize(&mut self, stream: &Stream) -> Result<()> {
        stream.synchronize()?;
        self.check()
    }

    /// Whether the group is sound, as far as is known without a wait.
    ///
    /// # Errors
    /// [`crate::Error::Parallel`].
    pub fn check(&self) -> Result<()> {
        Ok(self.shared.check(self.rank)?)
    }

    /// How an all-reduce of `count` elements is done.
    pub fn explain(&self, count: usize, dtype: DType) -> Plan {
        let call = Call::new(Kind::AllReduce(Reduction::Sum), dtype, count);
        Plan::of(&call, self.ranks(), self.shared.room)
    }

    /// Every way in which an all-reduce of `count` elements can be done.
    pub fn candidates(&self, count: usize, dtype: DType) -> Vec<Plan> {
        let call = Call::new(Kind::AllReduce(Reduction::Sum), dtype, count);
        Plan::candidates(&call, self.ranks(), self.shared.room)
    }

    /// Enters a call in the ledger; its number. A call that does not fit fails the group.
    fn enter(&self, call: Call) -> Result<u64, ParallelError> {
        self.shared.ledger.enter(self.rank, call).inspect_err(|_| self.shared.abort())
    }

    /// A call from one buffer into another.
    #[track_caller]
    fn exchange<'a, 'b>(
        &mut self,
        stream: &Stream,
        kind: Kind,
        input: impl Input<'a>,
        output: impl Output<'b>,
    ) -> Result<()> {
        let operation = kind.operation();
        self.call(stream, kind, None, Some(input.input(operation)?), Some(output.output(operation)?))
    }

    /// Checks a call, enters it in the ledger, and queues the rank's part.
    #[track_caller]
    fn call(
        &mut self,
        stream: &Stream,
        kind: Kind,
        plan: Option<Plan>,
        input: Option<Operand<'_>>,
        output: Option<Operand<'_>>,
    ) -> Result<()> {
        let checked = check::call(kind, self.rank, self.ranks(), input.as_ref(), output.as_ref())?;
        let call = Call { plan, ..checked };
        stream.same_device("the communicator", self.device())?;
        for (what, operand) in [("the input", &input), ("the output", &output)] {
            if let Some(operand) = operand {
                stream.same_device(what, operand.device)?;
            }
        }
        let usual = Plan::of(&call, self.ranks(), self.shared.room);
        let plan = match plan {
            Some(plan) => check::plan(&call, plan, self.ranks(), self.shared.room)?,
            None => usual,
        };
        self.check()?;
        let capture = stream.capture()?;
        let sequence = self.enter(call)?;
        if let Some(capture) = capture {
            capture.keep_alive(self.shared.clone());
        }
        if usual.algorithm == Algorithm::Local {
            return local(stream, input, output);
        }
        let order = Order { call, sequence, input, output };
        // The others may already wait for it.
        self.shared.launch(self.rank, stream, plan, &order).inspect_err(|error| self.fail(error))
    }

    /// The group has failed by this rank's error.
    fn fail(&self, error: &Error) {
        self.shared.fail(format!("rank {}: {error}", self.rank));
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

/// A collective of one rank, or of nothing.
fn local(stream: &Stream, input: Option<Operand<'_>>, output: Option<Operand<'_>>) -> Result<()> {
    let (Some(input), Some(output)) = (input, output) else { return Ok(()) };
    input.copy_to(stream, &output)
}
