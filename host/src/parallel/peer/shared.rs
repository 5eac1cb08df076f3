//! Shared by the ranks of a group: the memory that their kernels write to each other, and the ledger.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use collective::team::{Reason, Report, Team, state_bytes};
use collective::{MAX_BLOCKS, MAX_RANKS};

use super::plan::{Plan, Reach};
use crate::device::Device;
use crate::error::{Error, ParallelError, Result};
use crate::memory::{DeviceBuffer, PinnedBuffer};
use crate::parallel::call::Call;
use crate::parallel::group::GroupOptions;
use crate::parallel::ledger::{Answer, Calls, Ledger, Reported};
use crate::parallel::process::{Book, Seat};
use crate::raw;

/// `CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED`.
const ALREADY_ENABLED: i32 = 704;
/// Words between the ones that different ranks write: a cache line.
pub(in crate::parallel) const LINE: usize = 8;

/// A group: as all of its ranks see it, or as one does that is a process.
pub(in crate::parallel) struct Shared {
    pub options: GroupOptions,
    ranks: u32,
    /// Calls of the ranks, compared.
    pub calls: Arc<dyn Calls>,
    /// Where each rank's state is, as kernels of this process see it.
    signals: [u64; MAX_RANKS],
    /// The abort word, and behind it a report for each rank, a line each: as the host sees them, and as
    /// devices do.
    words: (u64, u64),
    /// Blocks that every device has room for at once.
    room: u32,
    reach: Reach,
    pub place: Place,
}

/// Where the ranks are, and the memory that they write to each other.
pub(in crate::parallel) enum Place {
    /// In this process.
    Threads(Threads),
    /// Each in a process of its own.
    Process {
        /// This one's.
        seat: Seat,
        book: Arc<Book>,
    },
}

/// The ranks of a group in this process.
pub(in crate::parallel) struct Threads {
    devices: Vec<Device>,
    pub ledger: Arc<Ledger>,
    /// Flags and slots of each rank, on its device.
    states: Vec<DeviceBuffer<u8>>,
    /// Keeps the words.
    _words: PinnedBuffer<u64>,
    /// Groups that were split off, until all of their ranks have taken them.
    children: Mutex<Vec<Child>>,
}

struct Child {
    answer: Answer,
    /// Or why it could not be made.
    shared: Result<Arc<Shared>, String>,
    taken: u32,
}

impl Shared {
    #[track_caller]
    pub fn open(devices: &[Device], options: GroupOptions) -> Result<Arc<Self>> {
        if devices.len() > MAX_RANKS {
            return Err(Error::InvalidArgument {
                operation: "Group::open",
                argument: "the number of devices",
                got: devices.len().to_string(),
                wanted: format!("{MAX_RANKS} at most"),
                hint: "`Backend::Nccl` takes any number",
            });
        }
        for device in devices {
            devices.iter().filter(|peer| *peer != device).try_for_each(|peer| reach(device, peer))?;
        }
        let states: Vec<_> =
            devices.iter().map(|device| state(device, devices.len())).collect::<Result<_>>()?;
        let room = devices.iter().map(|device| device.properties().sm_count).min().unwrap_or(1);
        let words = PinnedBuffer::zeroed(&devices[0], LINE * (1 + devices.len()))?;
        let ledger = Arc::new(Ledger::new(devices.len() as u32));
        let mut signals = [0; MAX_RANKS];
        for (place, state) in signals.iter_mut().zip(&states) {
            *place = state.as_ptr().raw();
        }
        Ok(Arc::new(Shared {
            options,
            ranks: devices.len() as u32,
            calls: ledger.clone(),
            signals,
            words: (words.device_address(), words.device_address()),
            room: room.min(MAX_BLOCKS as u32),
            reach: Reach::Buffers,
            place: Place::Threads(Threads {
                devices: devices.to_vec(),
                ledger,
                states,
                _words: words,
                children: Mutex::default(),
            }),
        }))
    }

    /// A group of processes, as one of them has it.
    pub fn of_processes(
        seat: Seat,
        book: Arc<Book>,
        signals: [u64; MAX_RANKS],
        (ranks, room): (u32, u32),
        options: GroupOptions,
        has_nccl: bool,
    ) -> Arc<Self> {
        Arc::new(Shared {
            options,
            ranks,
            calls: book.clone(),
            signals,
            words: book.words.reports(),
            room,
            reach: Reach::Stages { has_nccl },
            place: Place::Process { seat, book },
        })
    }

    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// Blocks that every device has room for at once.
    pub fn room(&self) -> u32 {
        self.room
    }

    /// Whether kernels reach the buffers of all ranks.
    pub fn reaches_buffers(&self) -> bool {
        self.reach == Reach::Buffers
    }

    /// The plan for a call.
    pub fn plan(&self, call: &Call) -> Plan {
        Plan::of(call, self.ranks, self.room, self.reach)
    }

    /// Every plan for a call.
    pub fn plans(&self, call: &Call) -> Vec<Plan> {
        Plan::candidates(call, self.ranks, self.room, self.reach)
    }

    /// The device of a rank of this process.
    pub fn device(&self, rank: u32) -> &Device {
        match &self.place {
            Place::Threads(threads) => &threads.devices[rank as usize],
            Place::Process { seat, .. } => &seat.device,
        }
    }

    /// Flags and slots of a rank of this process.
    pub fn state(&self, rank: u32) -> &DeviceBuffer<u8> {
        match &self.place {
            Place::Threads(threads) => &threads.states[rank as usize],
            Place::Process { seat, .. } => seat.memory(),
        }
    }

    /// The team of a launch; the launch has still to fill in what it is.
    pub fn team(&self, rank: u32) -> Team {
        let limit = u64::try_from(self.options.timeout.as_nanos()).unwrap_or(u64::MAX);
        Team {
            signals: self.signals,
            report: address_of(self.words.1, 1 + rank),
            abort: address_of(self.words.1, 0),
            limit,
            rank,
            ranks: self.ranks,
            members: (1 << self.ranks) - 1,
            is_pairwise: 0,
            call: 0,
            sequence: 0,
            staged: [0; 2],
        }
    }

    /// Lets all kernels of the group that wait stop.
    pub fn abort(&self) {
        // SAFETY: a word of the group's page-locked memory, which lives as long as `self`; everyone reaches
        // it by atomic operations.
        unsafe { AtomicU32::from_ptr(address_of(self.words.0, 0) as *mut u32) }.store(1, Ordering::Release);
    }

    /// The report of a rank's kernels, if there is one.
    fn report(&self, rank: u32) -> Option<Report> {
        // SAFETY: as for `abort`.
        let word = unsafe { AtomicU64::from_ptr(address_of(self.words.0, 1 + rank) as *mut u64) };
        Report::from_word(word.load(Ordering::Acquire))
    }

    /// Whether the group is sound, as far as a rank can know without a wait.
    ///
    /// # Errors
    /// [`ParallelError`].
    pub fn check(&self, rank: u32) -> Result<(), ParallelError> {
        let reports = (0..self.ranks()).filter_map(|reporter| Some((reporter, self.report(reporter)?)));
        for (reporter, report) in reports {
            let error = self.explain(reporter, report);
            self.calls.fail(error.to_string());
            if reporter == rank {
                return Err(error);
            }
        }
        match self.calls.failure() {
            Some(first) => Err(ParallelError::Aborted { rank, first }),
            None => Ok(()),
        }
    }

    fn explain(&self, rank: u32, report: Report) -> ParallelError {
        let Report { reason, peer, sequence } = report;
        let reported = Reported::from_word(sequence);
        let (call, sequence) = (self.calls.name_of(rank, reported, peer), u64::from(reported.number));
        match reason {
            Reason::OtherCall => ParallelError::OtherCall { rank, sequence, call, other: peer },
            Reason::Absent | Reason::Stuck => ParallelError::Missing {
                rank,
                sequence,
                call,
                missing: peer,
                began: reason == Reason::Stuck,
                limit_seconds: self.options.timeout.as_secs_f64(),
            },
        }
    }

    /// Fails the group, for a reason that the other ranks are told.
    pub fn fail(&self, reason: String) {
        self.calls.fail(reason);
        self.abort();
    }

    /// The group of the ranks in an answer: the same for all of them. If the first that comes cannot make it,
    /// the others hear why, and do not make one in which it is missing.
    #[track_caller]
    pub fn child(&self, rank: u32, threads: &Threads, answer: &Answer) -> Result<Arc<Shared>> {
        let mut children = threads.children.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it =
            |child: &Child| child.answer.number == answer.number && child.answer.members == answer.members;
        let mut own = None;
        let at = match children.iter().position(is_it) {
            Some(at) => at,
            None => {
                let devices: Vec<Device> =
                    answer.members.iter().map(|&rank| threads.devices[rank as usize].clone()).collect();
                let shared = Shared::open(&devices, self.options).map_err(|error| {
                    let first = format!("rank {rank}: {error}");
                    own = Some(error);
                    first
                });
                children.push(Child { answer: answer.clone(), shared, taken: 0 });
                children.len() - 1
            }
        };
        let child = &mut children[at];
        child.taken += 1;
        let (shared, is_last) = (child.shared.clone(), child.taken as usize == answer.members.len());
        if is_last {
            children.remove(at);
        }
        shared.map_err(|first| own.unwrap_or_else(|| ParallelError::Aborted { rank, first }.into()))
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // Kernels of any rank may still write to any rank's state, or look at the words.
        for state in &self.states {
            // A drop cannot return an error; a context that has failed runs nothing.
            let _ = state.synchronize();
        }
    }
}

/// Address of a line of the words.
fn address_of(words: u64, line: u32) -> u64 {
    words + u64::from(line) * (LINE * size_of::<u64>()) as u64
}

/// A rank's flags and slots, all zero.
#[track_caller]
fn state(device: &Device, ranks: usize) -> Result<DeviceBuffer<u8>> {
    let stream = device.pooled_stream()?;
    let state = DeviceBuffer::zeroed(&stream, state_bytes(ranks))?;
    // Peers write there as soon as they like.
    stream.synchronize()?;
    Ok(state)
}

/// Why devices cannot work over peer memory, if they cannot: they are too many, or one does not reach the
/// memory of another.
pub(in crate::parallel) fn hindrance(devices: &[Device]) -> Result<Option<String>> {
    if devices.len() > MAX_RANKS {
        return Ok(Some(format!(
            "there are {} devices, and kernels reach {MAX_RANKS} at most",
            devices.len()
        )));
    }
    for device in devices {
        for peer in devices.iter().filter(|peer| *peer != device) {
            if !can_reach(device, peer)? {
                let (from, to) = (device.ordinal(), peer.ordinal());
                return Ok(Some(format!("device {from} cannot reach the memory of device {to}")));
            }
        }
    }
    Ok(None)
}

fn can_reach(device: &Device, peer: &Device) -> Result<bool> {
    let mut can: c_int = 0;
    let (from, to) = (device.ordinal() as c_int, peer.ordinal() as c_int);
    // SAFETY: a place to write to. The numbers of open devices are `int`s, and those of the driver.
    device.call(|| unsafe { raw::device_can_access_peer(&mut can, from, to) })?;
    Ok(can != 0)
}

/// Lets kernels of a device reach a peer's memory.
fn reach(device: &Device, peer: &Device) -> Result<()> {
    if !can_reach(device, peer)? {
        return Err(ParallelError::NoPeerAccess { from: device.ordinal(), to: peer.ordinal() }.into());
    }
    // SAFETY: the peer's context lives as long as `peer`, which the group keeps.
    match device.call(|| unsafe { raw::ctx_enable_peer_access(peer.context(), 0) }) {
        Err(Error::Driver(error)) if error.code == ALREADY_ENABLED => Ok(()),
        result => result,
    }
}
