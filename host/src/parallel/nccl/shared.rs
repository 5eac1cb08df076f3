//! Shared by a rank, its watchdog and captured graphs: NCCL's communicator, and what marks say.

use std::collections::VecDeque;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, sleep, yield_now};
use std::time::{Duration, Instant};

use driver::nccl::{Code, Comm, IN_PROGRESS, Library, SUCCESS};

use crate::device::Device;
use crate::error::{Error, ParallelError, Result};
use crate::memory::{DeviceBuffer, PinnedBuffer};
use crate::parallel::call::Call;
use crate::parallel::thread;

/// The number of the call by which ranks join each other. Those of the program count from 0.
pub const JOIN: u32 = u32::MAX;
/// Its name in reports.
const JOIN_NAME: &str = "join";
/// Calls that are remembered for reports.
const REMEMBERED: usize = 256;
/// How long a thread that waits for NCCL keeps looking before it sleeps between looks.
const EAGER: Duration = Duration::from_millis(1);
/// The sleep between looks.
const NAP: Duration = Duration::from_micros(200);
/// How long a call that has failed waits for its communicator's abort, which ends what NCCL still does with
/// the call's buffers. Without graphs it takes less.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long a rank that could not join waits for it: no rank is left whose end would, and errors are to come
/// within two seconds of the limit.
const JOIN_PATIENCE: Duration = Duration::from_millis(1500);
/// How long the end of a rank waits for its communicator's end: a process that ends while NCCL still aborts
/// has crashed in it. A graph with calls of the communicator holds up the abort for as long as it lives, and
/// ranks of the machine that have not dropped theirs hold up both.
const LAST_PATIENCE: Duration = Duration::from_secs(5);

/// The first failure among the ranks of a group that this process has.
#[derive(Default)]
pub struct Failure(Mutex<Option<First>>);

/// A rank in its group, and in the group that was opened, of which the former may be a part: parts number
/// their ranks anew.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Seat {
    pub rank: u32,
    pub whole: u32,
}

struct First {
    seat: Seat,
    /// `None`: the program told the text.
    error: Option<ParallelError>,
    text: String,
}

impl Failure {
    fn first(&self) -> MutexGuard<'_, Option<First>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a failure that a rank has found. The first one counts.
    fn found(&self, seat: Seat, error: &ParallelError) {
        let Seat { rank, whole } = seat;
        let text = if rank == whole {
            error.to_string()
        } else {
            format!("rank {whole}, in a part of the group: {error}")
        };
        self.first().get_or_insert_with(|| First { seat, error: Some(error.clone()), text });
    }

    /// Records a failure in the program's words.
    pub fn tell(&self, seat: Seat, text: String) {
        self.first().get_or_insert(First { seat, error: None, text });
    }

    /// Whether the group is sound, as far as this process knows.
    pub fn check(&self, seat: Seat) -> Result<(), ParallelError> {
        match &*self.first() {
            None => Ok(()),
            Some(First { seat: finder, error: Some(error), .. }) if *finder == seat => Err(error.clone()),
            Some(First { text, .. }) => Err(ParallelError::Aborted { rank: seat.rank, first: text.clone() }),
        }
    }
}

/// A communicator of NCCL.
#[derive(Clone, Copy)]
struct Handle(Comm);

impl Handle {
    fn comm(self) -> Comm {
        self.0
    }
}

// SAFETY: NCCL's communicators may be used from any thread, by one at a time.
unsafe impl Send for Handle {}

/// See the module.
pub struct Shared {
    pub nccl: &'static Library,
    pub device: Device,
    pub seat: Seat,
    pub ranks: u32,
    pub limit: Duration,
    /// `None` once it ends: it was aborted, then there is a failure, or the rank is dropped.
    handle: Mutex<Option<Handle>>,
    ending: Ending,
    pub failure: Arc<Failure>,
    /// Of marks; then a number for barriers.
    pub counts: DeviceBuffer<u32>,
    /// Where marks write for the host.
    seen: PinnedBuffer<u64>,
    /// The latest calls, and the number of the next.
    calls: Mutex<(VecDeque<(u32, Call)>, u32)>,
}

/// An error in NCCL's words.
pub fn said(library: &Library, rank: u32, call: &str, code: Code) -> ParallelError {
    let (words, last) = (library.words(code), library.last_error());
    ParallelError::Nccl { rank, call: call.to_owned(), code, words, last }
}

/// Waits until a communicator has done what it was told, for `limit` at most.
///
/// # Errors
/// NCCL's code, or [`IN_PROGRESS`] when the time is up or the group has failed.
fn settle(library: &Library, comm: Comm, told: Code, limit: Duration, failure: &Failure) -> Result<(), Code> {
    let (begun, mut code) = (Instant::now(), told);
    while code == IN_PROGRESS {
        // SAFETY: a live communicator, and a place to write to.
        let asked = unsafe { (library.comm_get_async_error)(comm, &mut code) };
        code = if asked == SUCCESS { code } else { asked };
        let waited = begun.elapsed();
        if code == IN_PROGRESS && (waited > limit || failure.first().is_some()) {
            return Err(IN_PROGRESS);
        }
        if waited < EAGER { yield_now() } else { sleep(NAP) }
    }
    if code == SUCCESS { Ok(()) } else { Err(code) }
}

/// How NCCL ends a communicator.
#[derive(Clone, Copy)]
enum End {
    /// Its calls have ended.
    Destroy,
    /// Stops all that it has queued, at once.
    Abort,
}

/// The thread that ends a communicator. NCCL returns when no graph has calls of it any more, and when the
/// other ranks of the machine end theirs, which may first wait for something that this rank does next. So a
/// thread of its own waits, which keeps nothing of the rank but the device. It is there before the
/// communicator: without it a rank would have to wait itself.
struct Ending {
    comm: Sender<(Handle, End)>,
    thread: JoinHandle<()>,
}

impl Ending {
    fn start(library: &'static Library, device: &Device) -> Result<Self> {
        let (comm, ends) = channel::<(Handle, End)>();
        let device = device.clone();
        let thread = thread::start("ironwarp-nccl-end", "a thread that ends communicators", move || {
            // An error: there was no communicator.
            let Ok((comm, how)) = ends.recv() else { return };
            let function = match how {
                End::Destroy => library.comm_destroy,
                End::Abort => library.comm_abort,
            };
            // SAFETY: a live communicator, which nobody gets any more. `End::Destroy` is for one whose calls
            // have ended. The context may be dead; what has failed is reported.
            let _ = device.clean_up(|| Ok(unsafe { function(comm.comm()) }));
        })?;
        Ok(Ending { comm, thread })
    }

    /// Begins the end of the communicator.
    fn begin(&self, comm: Handle, how: End) {
        // The thread waits for this.
        let _ = self.comm.send((comm, how));
    }

    /// Waits until the communicator has ended.
    fn wait(&self, limit: Duration) {
        let begun = Instant::now();
        while !self.thread.is_finished() && begun.elapsed() < limit {
            sleep(NAP);
        }
    }
}

/// Asks NCCL, also when the context is dead.
fn settled(device: &Device, ask: impl FnOnce() -> Result<(), Code>) -> Result<Result<(), Code>> {
    device.clean_up(|| Ok(ask())).map_err(Error::Driver)
}

impl Shared {
    /// Makes a rank's communicator by `create`, which starts it, and waits for it.
    #[track_caller]
    pub fn open(
        library: &'static Library,
        device: &Device,
        (seat, ranks): (Seat, u32),
        limit: Duration,
        failure: Arc<Failure>,
        create: impl FnOnce(&mut Comm) -> Code,
    ) -> Result<Self> {
        let stream = device.pooled_stream()?;
        let counts = DeviceBuffer::zeroed(&stream, 2)?;
        stream.synchronize()?;
        let seen = PinnedBuffer::zeroed(device, 1)?;
        let mut place = Box::new(null_mut());
        let ending = Ending::start(library, device)?;
        let told = device.call(|| Ok(create(&mut place)))?;
        let comm = *place;
        let ended = settled(device, || settle(library, comm, told, limit, &failure))?;
        if let Err(code) = ended {
            let error = match code {
                IN_PROGRESS => late(seat.rank, 0, JOIN_NAME.to_owned(), limit),
                code => said(library, seat.rank, JOIN_NAME, code),
            };
            failure.found(seat, &error);
            if !comm.is_null() {
                ending.begin(Handle(comm), End::Abort);
                ending.wait(JOIN_PATIENCE);
            }
            // NCCL may not have heard of it yet, and still write there.
            Box::leak(place);
            // Another rank's failure may have come first.
            failure.check(seat)?;
            return Err(error.into());
        }
        Ok(Shared {
            nccl: library,
            device: device.clone(),
            seat,
            ranks,
            limit,
            handle: Mutex::new(Some(Handle(comm))),
            ending,
            failure,
            counts,
            seen,
            calls: Mutex::default(),
        })
    }

    fn handle(&self) -> MutexGuard<'_, Option<Handle>> {
        self.handle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has NCCL do a call, and waits until it has done so: until a collective is queued, not until it ends.
    ///
    /// # Errors
    /// [`ParallelError`], then the communicator is aborted; or the driver's error.
    pub fn with(&self, sequence: u32, act: impl FnOnce(Comm) -> Result<Code>) -> Result<()> {
        let handle = self.handle();
        self.failure.check(self.seat)?;
        let Some(Handle(comm)) = *handle else {
            let first = "its communicator has been aborted".to_owned();
            return Err(ParallelError::Aborted { rank: self.seat.rank, first }.into());
        };
        let told = act(comm)?;
        let ended = settled(&self.device, || settle(self.nccl, comm, told, self.limit, &self.failure))?;
        let Err(code) = ended else { return Ok(()) };
        let error = match code {
            IN_PROGRESS => self.late(sequence),
            code => said(self.nccl, self.seat.rank, &self.name_of(sequence), code),
        };
        // Another rank's failure may have come first.
        self.failure.found(self.seat, &error);
        self.abort(handle);
        self.ending.wait(PATIENCE);
        Ok(self.failure.check(self.seat)?)
    }

    /// Stops all that the communicator has queued, after a failure. Nobody waits for the handle meanwhile.
    fn abort(&self, handle: MutexGuard<'_, Option<Handle>>) {
        self.end(handle, End::Abort);
    }

    /// Begins the end of the communicator, if it has not begun.
    fn end(&self, mut handle: MutexGuard<'_, Option<Handle>>, how: End) {
        let comm = handle.take();
        drop(handle);
        if let Some(comm) = comm {
            self.ending.begin(comm, how);
        }
    }

    /// Fails the group by an error that this rank has found.
    pub fn fail(&self, error: ParallelError) -> ParallelError {
        self.failure.found(self.seat, &error);
        self.abort(self.handle());
        error
    }

    /// Looks for failures: of NCCL, of the rank's device, or of other ranks of this process.
    ///
    /// # Errors
    /// [`ParallelError`]; then the communicator is aborted.
    pub fn look(&self) -> Result<(), ParallelError> {
        let handle = self.handle();
        let mut code = SUCCESS;
        if let Some(Handle(comm)) = *handle {
            // SAFETY: a live communicator, and a place to write to.
            let asked = unsafe { (self.nccl.comm_get_async_error)(comm, &mut code) };
            code = if asked == SUCCESS { code } else { asked };
        }
        if !matches!(code, SUCCESS | IN_PROGRESS) {
            self.failure.found(self.seat, &said(self.nccl, self.seat.rank, "a call that was queued", code));
        }
        if let Err(error) = self.device.alive() {
            self.failure.tell(self.seat, format!("rank {}: {error}", self.seat.whole));
        }
        self.failure.check(self.seat).inspect_err(|_| self.abort(handle))
    }

    fn calls(&self) -> MutexGuard<'_, (VecDeque<(u32, Call)>, u32)> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a call; its number.
    pub fn enter(&self, call: Call) -> u32 {
        let mut calls = self.calls();
        let (latest, next) = &mut *calls;
        let sequence = *next;
        *next = next.wrapping_add(1);
        latest.push_back((sequence, call));
        if latest.len() > REMEMBERED {
            latest.pop_front();
        }
        sequence
    }

    /// Marks so far, and the number of the last one's call.
    pub fn marks(&self) -> (u32, u32) {
        // SAFETY: a word of page-locked memory, which lives as long as `self`; everyone reaches it by atomic
        // operations.
        let word = unsafe { AtomicU64::from_ptr(self.mark_address() as *mut u64) }.load(Ordering::Acquire);
        (word as u32, (word >> 32) as u32)
    }

    /// Where marks write.
    pub fn mark_address(&self) -> u64 {
        self.seen.device_address()
    }

    fn name_of(&self, sequence: u32) -> String {
        if sequence == JOIN {
            return JOIN_NAME.to_owned();
        }
        let found =
            self.calls().0.iter().rev().find(|(number, _)| *number == sequence).map(|(_, call)| *call);
        found.map_or_else(|| "a call in a graph".to_owned(), |call| call.to_string())
    }

    /// The error of a call that does not end.
    pub fn late(&self, sequence: u32) -> ParallelError {
        let number = if sequence == JOIN { 0 } else { sequence };
        late(self.seat.rank, number, self.name_of(sequence), self.limit)
    }
}

fn late(rank: u32, sequence: u32, call: String, limit: Duration) -> ParallelError {
    ParallelError::TimedOut { rank, sequence: sequence.into(), call, limit_seconds: limit.as_secs_f64() }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // A drop cannot return an error; a context that has failed runs nothing.
        let _ = self.counts.synchronize();
        // The calls of a failed group may never end: then it aborts the communicator.
        let _ = self.look();
        self.end(self.handle(), End::Destroy);
        self.ending.wait(LAST_PATIENCE);
    }
}
