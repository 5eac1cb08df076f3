//! Groups: a rank for each device, and a thread for each rank.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use super::communicator::{Communicator, Member};
use super::peer::{Shared, hindrance};
use super::{nccl, peer};
use crate::device::Device;
use crate::error::{Error, ParallelError, Result};

/// How ranks reach each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backend {
    /// Ironwarp's kernels read and write the memory of peers: up to 8 devices of one machine. Processes reach
    /// memory that each of them allocates for this, and buffers pass through it.
    PeerMemory,
    /// NVIDIA's library: any number of devices, processes and machines. NCCL chooses the order of sums,
    /// rounds sums of small floats at each rank, and may lose a NaN in [`Max`](super::Reduction::Max). It
    /// does not compare calls: ranks whose calls differ get a [`TimedOut`](crate::ParallelError::TimedOut),
    /// or wrong numbers. A group and its parts fail together. NCCL frees the memory of a failed communicator
    /// once the graphs that captured its calls are gone; nothing else waits for them. It frees the memory of
    /// a sound communicator when all ranks of the machine have dropped theirs: each drop waits for that, 5
    /// seconds at most. A call that connects ranks first, such as the first send to a rank, returns when all
    /// of its ranks have made it.
    Nccl,
}

/// Settings of a group.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GroupOptions {
    /// How long a collective waits for a missing rank. 30 seconds unless set. It has to be far above the time
    /// that the largest call takes: a rank also waits so long for peers that are still moving data, and then
    /// leaves, while they may still write to its buffers.
    pub timeout: Duration,
    /// How ranks reach each other. Unless set: over peer memory if all of up to 8 devices reach each other,
    /// else through NCCL. Processes then use both, if there is NCCL: large calls, which NCCL does faster, go
    /// through it.
    pub backend: Option<Backend>,
}

impl Default for GroupOptions {
    fn default() -> Self {
        GroupOptions { timeout: Duration::from_secs(30), backend: None }
    }
}

/// A rank for each of several devices of this machine.
pub struct Group {
    communicators: Vec<Communicator>,
}

impl Group {
    /// A group with a rank for each device, in this order.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for no device, or one twice; [`ParallelError::NoNccl`] where it is needed,
    /// [`Error::OutOfMemory`], or the driver's error.
    #[track_caller]
    pub fn open(devices: &[Device]) -> Result<Self> {
        Self::with_options(devices, GroupOptions::default())
    }

    /// As [`Group::open`], with settings.
    ///
    /// # Errors
    /// As [`Group::open`]. With [`Backend::PeerMemory`] also [`Error::InvalidArgument`] for more than 8
    /// devices, and [`ParallelError::NoPeerAccess`]; with [`Backend::Nccl`], [`ParallelError::Nccl`].
    #[track_caller]
    pub fn with_options(devices: &[Device], options: GroupOptions) -> Result<Self> {
        are_different(devices)?;
        let (backend, why) = match options.backend {
            Some(backend) => (backend, None),
            None => match hindrance(devices)? {
                None => (Backend::PeerMemory, None),
                why => (Backend::Nccl, why),
            },
        };
        let members: Vec<Member> = match backend {
            Backend::PeerMemory => {
                let shared = Shared::open(devices, options)?;
                let member = |rank| peer::Member { shared: shared.clone(), rank, large: None, no_nccl: None };
                (0..shared.ranks()).map(member).map(Member::Peer).collect()
            }
            Backend::Nccl => {
                let member = |member: nccl::Member| Member::Nccl(member.because(why.clone()));
                nccl::Member::all(devices, options)?.into_iter().map(member).collect()
            }
        };
        Ok(Group { communicators: members.into_iter().map(Communicator::new).collect() })
    }

    /// Its ranks.
    pub fn ranks(&self) -> u32 {
        self.communicators.len() as u32
    }

    /// The ranks' communicators, for threads of the program's own.
    pub fn into_communicators(self) -> Vec<Communicator> {
        self.communicators
    }

    /// Runs `work` for each rank, on a thread of its own, and returns the results in the order of ranks.
    ///
    /// When a rank fails or panics, its communicator goes, and the others' next calls return errors.
    ///
    /// # Errors
    /// The error of a rank: the first that is not merely about another rank's failure.
    ///
    /// # Panics
    /// When a rank panics, with its panic, after all ranks have ended.
    pub fn run<R: Send>(self, work: impl Fn(Communicator) -> Result<R> + Sync) -> Result<Vec<R>> {
        let run = |communicator: Communicator| {
            let (tell, rank) = (communicator.teller(), communicator.rank());
            let outcome = catch_unwind(AssertUnwindSafe(|| work(communicator)));
            match &outcome {
                Err(panic) => tell(format!("rank {rank} panicked: {}", text_of(&**panic))),
                Ok(Err(error)) => tell(format!("rank {rank} returned an error: {error}")),
                Ok(Ok(_)) => {}
            }
            // Here `tell` goes, and the rank waits for its calls: the others know already.
            outcome
        };
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                self.communicators.into_iter().map(|rank| scope.spawn(|| run(rank))).collect();
            // `run` catches panics.
            threads.into_iter().map(|thread| thread.join().and_then(|outcome| outcome)).collect()
        });
        let results: std::thread::Result<Vec<_>> = outcomes.into_iter().collect();
        all_of(results.unwrap_or_else(|panic| resume_unwind(panic)))
    }
}

/// The results of all ranks.
///
/// # Errors
/// The error of a rank: the first that is not merely about another rank's failure.
pub(super) fn all_of<R>(results: Vec<Result<R>>) -> Result<Vec<R>> {
    let is_second_hand = |error: &Error| matches!(error, Error::Parallel(error) if matches!(**error, ParallelError::Aborted { .. }));
    let (mut all, mut first) = (Vec::with_capacity(results.len()), None::<Error>);
    for result in results {
        match result {
            Ok(result) => all.push(result),
            Err(error) if first.as_ref().is_none_or(is_second_hand) => first = Some(error),
            Err(_) => {}
        }
    }
    first.map_or(Ok(all), Err)
}

/// Whether there are devices, each once.
fn are_different(devices: &[Device]) -> Result<()> {
    let again = devices.iter().enumerate().find(|(number, device)| devices[..*number].contains(device));
    let (got, hint) = match again {
        Some((_, device)) => (
            format!("device {} twice", device.ordinal()),
            "kernels of two ranks on one device would wait for each other for ever",
        ),
        None if devices.is_empty() => ("none".to_owned(), "a group has a rank for each device"),
        None => return Ok(()),
    };
    let wanted = "at least one device, each once".to_owned();
    Err(Error::InvalidArgument { operation: "Group::open", argument: "devices", got, wanted, hint })
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let owned = panic.downcast_ref::<String>().map(String::as_str);
    owned.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}
