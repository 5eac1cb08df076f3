//! A rank of a group that works through NCCL.

use std::ffi::c_int;
use std::sync::Arc;

use collective::tick::{Mark, tick};
use driver::nccl::{Config, library};

use super::id::UniqueId;
use super::issue::{Addresses, issue};
use super::shared::{Failure, JOIN, Seat, Shared};
use super::watch::Watch;
use crate::device::Device;
use crate::error::{Error, ParallelError, Result};
use crate::launch::{LaunchConfig, launch};
use crate::memory::DeviceBuffer;
use crate::parallel::call::{Call, Kind};
use crate::parallel::group::{GroupOptions, all_of};
use crate::parallel::operand::{Input, Operand, Output, local};
use crate::parallel::peer::{Algorithm, Plan};
use crate::stream::Stream;
use crate::tensor::DType;

/// A rank's hold on its group.
pub struct Member {
    shared: Arc<Shared>,
    /// Goes when no call is under way any more, before NCCL's communicator.
    watch: Arc<Watch>,
    /// Why ranks do not reach each other's memory, if they have tried.
    pub why: Option<String>,
}

/// By which the failures of a rank's other ways reach it, and the other way round.
pub struct Link {
    failure: Arc<Failure>,
    seat: Seat,
}

impl Link {
    /// Tells a failure.
    pub fn tell(&self, reason: String) {
        self.failure.tell(self.seat, reason);
    }

    /// The first failure, as this process knows it.
    pub fn failure(&self) -> Option<String> {
        self.failure.check(self.seat).err().map(|error| error.to_string())
    }
}

/// A rank among others, some of them of this process.
pub struct Place {
    pub seat: Seat,
    pub ranks: u32,
    pub failure: Arc<Failure>,
}

impl Place {
    /// How failures get to the rank, and from it, also while it joins.
    pub fn link(&self) -> Link {
        Link { failure: self.failure.clone(), seat: self.seat }
    }
}

impl Member {
    /// Joins a group. Waits for all ranks; those of this process hear at once when this one fails.
    #[track_caller]
    pub fn join(device: &Device, place: Place, id: &UniqueId, options: GroupOptions) -> Result<Self> {
        let (seat, failure) = (place.seat, place.failure.clone());
        let tell = |error: &Error| failure.tell(seat, format!("rank {} could not join: {error}", seat.whole));
        Self::joined(device, place, id, options).inspect_err(tell)
    }

    #[track_caller]
    fn joined(device: &Device, place: Place, id: &UniqueId, options: GroupOptions) -> Result<Self> {
        let library = library().map_err(ParallelError::NoNccl)?;
        let Place { seat, ranks, failure } = place;
        let (id, mut config) = (id.0, Config::NON_BLOCKING);
        let numbers = (number("the number of ranks", ranks)?, number("the rank", seat.rank)?);
        let shared = Shared::open(library, device, (seat, ranks), options.timeout, failure, |comm| {
            // SAFETY: a place that lives until the communicator is made; the config is copied.
            unsafe { (library.comm_init_rank_config)(comm, numbers.0, id, numbers.1, &mut config) }
        })?;
        let shared = Arc::new(shared);
        let watch = Arc::new(Watch::start(&shared)?);
        let member = Member { shared, watch, why: None };
        member.connect()?;
        Ok(member)
    }

    /// Has the ranks reach each other. NCCL connects them when a call first needs it, and only then queues
    /// the call: its rank waits for the others in it. So they make one here, where they wait anyway.
    #[track_caller]
    fn connect(&self) -> Result<()> {
        if self.ranks() == 1 {
            return Ok(());
        }
        let stream = self.shared.device.pooled_stream()?;
        self.queue_part(&stream, JOIN, Call::new(Kind::Barrier, DType::U8, 0), None, None)?;
        stream.synchronize()?;
        Ok(self.check()?)
    }

    /// A rank for each device, in this process.
    #[track_caller]
    pub fn all(devices: &[Device], options: GroupOptions) -> Result<Vec<Self>> {
        let (id, failure) = (UniqueId::new()?, Arc::<Failure>::default());
        let ranks = devices.len() as u32;
        let join = |(rank, device): (u32, &Device)| {
            let seat = Seat { rank, whole: rank };
            Self::join(device, Place { seat, ranks, failure: failure.clone() }, &id, options)
        };
        // Each waits for the others.
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..).zip(devices).map(|rank| scope.spawn(move || join(rank))).collect();
            let joined = threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            all_of(joined.collect::<Vec<_>>())
        })
    }

    /// With the reason why ranks do not reach each other's memory.
    pub fn because(self, why: Option<String>) -> Self {
        Member { why, ..self }
    }

    /// How failures get to it, and from it.
    pub fn link(&self) -> Link {
        Link { failure: self.shared.failure.clone(), seat: self.shared.seat }
    }

    pub fn rank(&self) -> u32 {
        self.shared.seat.rank
    }

    pub fn ranks(&self) -> u32 {
        self.shared.ranks
    }

    pub fn device(&self) -> &Device {
        &self.shared.device
    }

    /// Tells a failure of this rank to the others of this process. The rank waits for its calls when both the
    /// member and this have gone.
    pub fn teller(&self) -> Box<dyn Fn(String) + Send> {
        let watch = self.watch.clone();
        Box::new(move |reason| watch.shared.failure.tell(watch.shared.seat, reason))
    }

    /// Whether the group is sound, as far as is known without a wait.
    pub fn check(&self) -> Result<(), ParallelError> {
        self.shared.look()
    }

    /// Queues the rank's part of a call.
    #[track_caller]
    pub fn queue(
        &mut self,
        stream: &Stream,
        plan: Plan,
        call: Call,
        input: Option<Operand<'_>>,
        output: Option<Operand<'_>>,
    ) -> Result<()> {
        // With its thread: the graph may be replayed when the communicator has gone.
        if let Some(capture) = stream.capture()? {
            capture.keep_alive(self.watch.clone());
        }
        let sequence = self.shared.enter(call);
        if plan.algorithm == Algorithm::Local {
            return local(stream, input, output);
        }
        // The others may already wait for it.
        let Seat { whole, .. } = self.shared.seat;
        let tell =
            |error: &Error| self.shared.failure.tell(self.shared.seat, format!("rank {whole}: {error}"));
        self.queue_part(stream, sequence, call, input, output).inspect_err(tell)
    }

    /// Queues the rank's part of a call of this number, between marks.
    #[track_caller]
    fn queue_part(
        &self,
        stream: &Stream,
        sequence: u32,
        call: Call,
        input: Option<Operand<'_>>,
        output: Option<Operand<'_>>,
    ) -> Result<()> {
        let shared = &self.shared;
        let reading = input.map(|input| input.within.begin(stream, false)).transpose()?;
        let writing = output.map(|output| output.within.begin(stream, true)).transpose()?;
        let given = input.or(output).map_or(0, |operand| operand.address());
        let gets = output.map_or(0, |operand| operand.address());
        let number = shared.counts.as_ptr().raw() + size_of::<u32>() as u64;
        let at = Addresses { input: given, output: gets, number };
        self.mark(stream, sequence)?;
        let queued = shared.with(sequence, |comm| {
            let comm = (comm, shared.seat.rank, shared.ranks);
            // SAFETY: the communicator is the rank's, and lives while `with` has it; the operands have been
            // checked, and their uses begun; the stream is one of the device.
            stream.call(|stream| Ok(unsafe { issue(shared.nccl, comm, stream, call, at) }))
        });
        // Also when it failed: it may have been queued, and be on its way until the communicator is aborted.
        reading.into_iter().chain(writing).for_each(|it| it.commit(stream));
        queued?;
        self.mark(stream, sequence)
    }

    /// Marks the begin or the end of a call. Marks are uses of the counts: calls on several streams stay in
    /// order.
    #[track_caller]
    fn mark(&self, stream: &Stream, sequence: u32) -> Result<()> {
        let mark = Mark { seen: self.shared.mark_address(), sequence };
        let counts = self.shared.counts.view().within();
        // SAFETY: one thread; the word and the count live as long as `shared`, which waits for their uses.
        unsafe { launch::<tick>(stream, LaunchConfig::new([1, 1, 1], [1, 1, 1]), (mark, counts)) }
    }

    /// The rank's part of a split; `None` without a color. Ranks tell each other their parts, then the first
    /// of each new group an id for it.
    #[track_caller]
    pub fn split(&mut self, color: Option<u32>, key: i64) -> Result<Option<Self>> {
        let own = [color.map_or(-1, i64::from), key].map(i64::to_le_bytes).concat();
        let all = self.gather(&own)?;
        let number = |bytes: &[u8]| i64::from_le_bytes(std::array::from_fn(|at| bytes[at]));
        let part = |rank: usize| &all[rank * own.len()..][..own.len()];
        let mut members: Vec<(i64, usize)> = (0..self.ranks() as usize)
            .filter(|&rank| number(part(rank)) == number(&own))
            .map(|rank| (number(&part(rank)[size_of::<i64>()..]), rank))
            .collect();
        members.sort_unstable();
        let is_first = color.is_some() && members[0].1 == self.rank() as usize;
        // The others come to the meeting also when there is no id.
        let made = if is_first { UniqueId::new() } else { Ok(UniqueId::NONE) };
        let own_id = *made.as_ref().unwrap_or(&UniqueId::NONE);
        let ids = self.gather(own_id.as_bytes())?;
        made?;
        if color.is_none() {
            return Ok(None);
        }
        let (first, each) = (members[0].1, own_id.as_bytes().len());
        let id = UniqueId::from_bytes(&ids[first * each..][..each])?;
        if id == UniqueId::NONE {
            let first = format!("rank {first} got no id from NCCL for a part of the group");
            return Err(ParallelError::Aborted { rank: self.rank(), first }.into());
        }
        let rank = members.iter().position(|&(_, rank)| rank == self.rank() as usize).unwrap_or(0);
        let seat = Seat { rank: rank as u32, whole: self.shared.seat.whole };
        let place = Place { seat, ranks: members.len() as u32, failure: self.shared.failure.clone() };
        let options = GroupOptions { timeout: self.shared.limit, ..GroupOptions::default() };
        Self::join(&self.shared.device, place, &id, options).map(Some)
    }

    /// The bytes of all ranks behind each other; waits for them.
    #[track_caller]
    fn gather(&mut self, own: &[u8]) -> Result<Vec<u8>> {
        let call = Call::new(Kind::AllGather, DType::U8, own.len());
        let (operation, ranks) = (Kind::Split.operation(), self.ranks());
        let stream = self.shared.device.pooled_stream()?;
        let given = DeviceBuffer::from_slice(&stream, own)?;
        let mut all = DeviceBuffer::<u8>::zeroed(&stream, own.len() * ranks as usize)?;
        let (input, output) = (given.input(operation)?, all.view_mut().output(operation)?);
        self.queue(&stream, Plan::by_nccl(&call, ranks), call, Some(input), Some(output))?;
        let all = all.to_vec(&stream)?;
        self.check()?;
        Ok(all)
    }
}

/// A number as NCCL takes it.
fn number<N: TryInto<c_int> + Copy + std::fmt::Display>(argument: &'static str, of: N) -> Result<c_int> {
    of.try_into().map_err(|_| Error::InvalidArgument {
        operation: "Communicator",
        argument,
        got: of.to_string(),
        wanted: format!("at most {}", c_int::MAX),
        hint: "NCCL counts in 32 bits",
    })
}
