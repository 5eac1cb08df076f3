//! The handle of a rank on its group.

use std::fmt::{self, Display};
use std::sync::{Arc, Weak};

use super::call::{Call, Kind, Reduction};
use super::group::{Backend, GroupOptions};
use super::nccl::UniqueId;
use super::operand::{Input, Operand, Output};
use super::peer::{Explanation, Plan};
use super::{check, nccl, peer, process};
use crate::device::Device;
use crate::error::{ParallelError, Result};
use crate::stream::Stream;
use crate::tensor::DType;

/// A rank of a [`Group`](super::Group). One thread at a time drives it.
///
/// Functions queue work on a stream of the rank's device and return at once. Through NCCL a call may connect
/// ranks first ([`Backend::Nccl`]). Calls of one communicator may use different streams: they stay in order.
/// Buffers may have any length and begin anywhere.
///
/// A group stays failed after a failed call: every later call returns [`crate::Error::Parallel`]. The
/// contents of buffers of calls under way are then unknown.
pub struct Communicator {
    pub(super) member: Member,
    /// Hears of calls.
    listener: Option<Listener>,
}

/// Hears of a call, in words.
type Listener = Box<dyn FnMut(&str) + Send>;

/// A rank, by the way in which it reaches the others.
pub(super) enum Member {
    Peer(peer::Member),
    Nccl(nccl::Member),
}

impl Communicator {
    pub(super) fn new(member: Member) -> Self {
        Communicator { member, listener: None }
    }

    /// Joins a group whose ranks are processes, and waits for all of them. Ranks of one machine reach each
    /// other's memory if the driver allows it; all others use NCCL, and [`Communicator::explain`] says why.
    /// For ranks in one process take a [`Group`](super::Group).
    ///
    /// `exchange` lets all ranks exchange bytes. It takes a name for the exchange and the bytes of this rank,
    /// and returns the bytes of all ranks, in their order.
    ///
    /// ```no_run
    /// use ironwarp::Device;
    /// use ironwarp::parallel::{Communicator, GroupOptions};
    /// use ironwarp_rendezvous::{Client, Options, World};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let world = World::from_env()?; // `ironwarp launch -n 4 -- program`, torchrun, Slurm, ..
    /// let client = Client::join(&world, &Options::default())?;
    /// let device = Device::open(world.local_rank)?;
    /// let exchange = |name: &str, own: &[u8]| client.gather(name, own);
    /// let mut rank =
    ///     Communicator::join(&device, world.rank, world.size, exchange, GroupOptions::default())?;
    /// # let _ = &mut rank;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ParallelError::Exchange`] when `exchange` fails; [`ParallelError::NoPeerMemory`] or
    /// [`ParallelError::NoNccl`] where neither is possible; [`crate::Error::InvalidArgument`] for a rank
    /// that is none, or options that differ; [`ParallelError::TimedOut`] when a rank does not come,
    /// [`ParallelError::Nccl`], [`crate::Error::OutOfMemory`], or the driver's error.
    #[track_caller]
    pub fn join<E: Display>(
        device: &Device,
        rank: u32,
        ranks: u32,
        mut exchange: impl FnMut(&str, &[u8]) -> Result<Vec<Vec<u8>>, E>,
        options: GroupOptions,
    ) -> Result<Self> {
        check::is_rank("Communicator::join", "the rank", rank, ranks)?;
        let mut exchange = |what: &str, own: &[u8]| {
            exchange(what, own).map_err(|error| {
                let (what, words) = (what.to_owned(), error.to_string());
                ParallelError::Exchange { rank, what, words }.into()
            })
        };
        Ok(Self::new(process::join(device, (rank, ranks), &mut exchange, options)?))
    }

    /// Joins a group of ranks in any processes, on any machines, through NCCL alone, and waits for all of
    /// them. One rank makes the `id` and passes it to the others.
    ///
    /// # Errors
    /// [`ParallelError::NoNccl`] says what to install; [`crate::Error::InvalidArgument`] for a rank that is
    /// none; [`ParallelError::TimedOut`] when a rank does not come, [`ParallelError::Nccl`], or the
    /// driver's error.
    #[track_caller]
    pub fn join_by_id(
        device: &Device,
        rank: u32,
        ranks: u32,
        id: &UniqueId,
        options: GroupOptions,
    ) -> Result<Self> {
        check::is_rank("Communicator::join_by_id", "the rank", rank, ranks)?;
        let place = nccl::Place { seat: nccl::Seat { rank, whole: rank }, ranks, failure: Arc::default() };
        Ok(Self::new(Member::Nccl(nccl::Member::join(device, place, id, options)?)))
    }

    /// Tells a failure to the other ranks of this process, also when the communicator has gone. Until this
    /// has gone too, the rank does not wait for calls that are under way.
    pub(super) fn teller(&self) -> Box<dyn Fn(String) + Send> {
        match &self.member {
            Member::Peer(member) => {
                let shared = member.shared.clone();
                Box::new(move |reason| shared.fail(reason))
            }
            Member::Nccl(member) => member.teller(),
        }
    }

    /// Calls `listener` with a description of each collective before it is queued, for instance to note it in
    /// a flight record. Calls of a graph are reported at the capture. [`split`](Self::split) is not reported,
    /// and a part of the group needs a listener of its own.
    ///
    /// ```no_run
    /// # fn f(client: &ironwarp_rendezvous::Client, rank: &mut ironwarp::parallel::Communicator) {
    /// let recorder = client.recorder().clone();
    /// rank.on_call(move |call| recorder.begin("collective", call).done());
    /// # }
    /// ```
    pub fn on_call(&mut self, listener: impl FnMut(&str) + Send + 'static) {
        self.listener = Some(Box::new(listener));
    }

    pub(super) fn tell_listener(&mut self, call: &Call) {
        if let Some(listener) = &mut self.listener {
            listener(&call.to_string());
        }
    }

    /// Returns a function by which any thread fails the group while it lives. Ranks that wait then stop, and
    /// those that this rank reaches get the reason. So the failure of a job ends waits on devices:
    ///
    /// ```no_run
    /// # fn f(client: &ironwarp_rendezvous::Client, rank: &ironwarp::parallel::Communicator) {
    /// let fail = rank.failer();
    /// client.on_failure(move |failure| fail(&failure.to_string()));
    /// # }
    /// ```
    pub fn failer(&self) -> impl Fn(&str) + Send + 'static + use<> {
        let (shared, link) = match &self.member {
            Member::Peer(member) => (Some(Arc::downgrade(&member.shared)), None),
            Member::Nccl(member) => (None, Some(member.link())),
        };
        move |reason| {
            if let Some(shared) = shared.as_ref().and_then(Weak::upgrade) {
                shared.fail(reason.to_owned());
            }
            if let Some(link) = &link {
                link.tell(reason.to_owned());
            }
        }
    }

    /// Its number in the group.
    pub fn rank(&self) -> u32 {
        match &self.member {
            Member::Peer(member) => member.rank,
            Member::Nccl(member) => member.rank(),
        }
    }

    /// Ranks of the group.
    pub fn ranks(&self) -> u32 {
        match &self.member {
            Member::Peer(member) => member.shared.ranks(),
            Member::Nccl(member) => member.ranks(),
        }
    }

    /// Its device.
    pub fn device(&self) -> &Device {
        match &self.member {
            Member::Peer(member) => member.shared.device(member.rank),
            Member::Nccl(member) => member.device(),
        }
    }

    /// How it reaches the other ranks.
    pub fn backend(&self) -> Backend {
        match &self.member {
            Member::Peer(_) => Backend::PeerMemory,
            Member::Nccl(_) => Backend::Nccl,
        }
    }

    /// Combines the buffers of all ranks, in place: each buffer gets the result.
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

    /// Concatenates the inputs of all ranks, in the order of ranks, into the output of each rank.
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

    /// Copies the buffer of rank `root` to the buffers of all other ranks.
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
        let kind = Kind::Send { from: self.rank(), to };
        self.call(stream, kind, None, Some(buffer.input(kind.operation())?), None)
    }

    /// Receives what rank `from` sends.
    ///
    /// # Errors
    /// As [`Communicator::send`].
    #[track_caller]
    pub fn receive<'a>(&mut self, stream: &Stream, from: u32, buffer: impl Output<'a>) -> Result<()> {
        let kind = Kind::Send { from, to: self.rank() };
        self.call(stream, kind, None, None, Some(buffer.output(kind.operation())?))
    }

    /// A barrier of streams: later work of the stream begins when the streams of all ranks have come here.
    /// The host does not wait.
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
    /// A split that fails on one rank over peer memory fails the group on all of them. Through NCCL the group
    /// stays sound if a part gets no id from NCCL, and fails if ranks cannot join a part.
    ///
    /// # Errors
    /// [`crate::Error::Parallel`], also when a rank does not come in time; [`crate::Error::OutOfMemory`], or
    /// the driver's error.
    #[track_caller]
    pub fn split(&mut self, color: Option<u32>, key: i64) -> Result<Option<Communicator>> {
        self.check()?;
        Ok(match &mut self.member {
            Member::Peer(member) => member.split(color, key)?.map(Member::Peer),
            Member::Nccl(member) => member.split(color, key)?.map(Member::Nccl),
        }
        .map(Self::new))
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
        Ok(match &self.member {
            Member::Peer(member) => member.check(),
            Member::Nccl(member) => member.check(),
        }?)
    }

    /// How an all-reduce of `count` elements is done, and why ranks have no peer memory, or no NCCL.
    pub fn explain(&self, count: usize, dtype: DType) -> Explanation {
        let plan = self.plan(&Call::new(Kind::AllReduce(Reduction::Sum), dtype, count));
        let (reason, no_nccl) = match &self.member {
            Member::Peer(member) => (None, member.no_nccl.clone()),
            Member::Nccl(member) => (member.why.clone(), None),
        };
        Explanation { plan, reason, no_nccl }
    }

    /// Every way in which an all-reduce of `count` elements can be done.
    pub fn candidates(&self, count: usize, dtype: DType) -> Vec<Plan> {
        self.plans(&Call::new(Kind::AllReduce(Reduction::Sum), dtype, count))
    }

    fn plan(&self, call: &Call) -> Plan {
        match &self.member {
            Member::Peer(member) => member.shared.plan(call),
            Member::Nccl(_) => Plan::by_nccl(call, self.ranks()),
        }
    }

    fn plans(&self, call: &Call) -> Vec<Plan> {
        match &self.member {
            Member::Peer(member) => member.shared.plans(call),
            Member::Nccl(_) => vec![Plan::by_nccl(call, self.ranks())],
        }
    }

    /// Blocks that every device has room for at once.
    fn room(&self) -> u32 {
        match &self.member {
            Member::Peer(member) => member.shared.room(),
            Member::Nccl(_) => 0,
        }
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

    /// Checks a call, and queues the rank's part.
    #[track_caller]
    fn call(
        &mut self,
        stream: &Stream,
        kind: Kind,
        plan: Option<Plan>,
        input: Option<Operand<'_>>,
        output: Option<Operand<'_>>,
    ) -> Result<()> {
        let checked = check::call(kind, self.rank(), self.ranks(), input.as_ref(), output.as_ref())?;
        let call = Call { plan, ..checked };
        stream.same_device("the communicator", self.device())?;
        for (what, operand) in [("the input", &input), ("the output", &output)] {
            if let Some(operand) = operand {
                stream.same_device(what, operand.device)?;
            }
        }
        let plan = match plan {
            Some(plan) => check::plan(&call, plan, &self.plans(&call), self.room())?,
            None => self.plan(&call),
        };
        self.check()?;
        self.tell_listener(&call);
        match &mut self.member {
            Member::Peer(member) => member.queue(stream, plan, call, input, output),
            Member::Nccl(member) => member.queue(stream, plan, call, input, output),
        }
    }
}

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Communicator(rank {} of {} on {:?})", self.rank(), self.ranks(), self.device())
    }
}
