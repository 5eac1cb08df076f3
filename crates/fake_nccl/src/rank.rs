//! A rank: its connections to the hub, and the calls that it has queued.

use std::collections::HashSet;
use std::ffi::c_void;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use crate::hub::{self, Head, JOIN, LEAVE, RECEIVE, SEND};
use crate::{IN_PROGRESS, REMOTE_ERROR, SUCCESS, SYSTEM_ERROR};

/// `ncclComm_t`.
pub type RankPtr = *mut Rank;

/// A communicator.
pub struct Rank {
    pub ranks: u32,
    line: Arc<Line>,
    /// By it ranks connect: to all others before the first call of a kind, or to one.
    connects: Arc<Line>,
    /// Kinds of calls whose ranks are connected, with the other rank of a pair.
    connected: Mutex<HashSet<(u32, i32)>>,
    /// The thread that connects, or has connected.
    connecting: Mutex<Option<JoinHandle<()>>>,
    pub graphs: Arc<Graphs>,
    /// Calls that streams and graphs have the addresses of.
    jobs: Mutex<Vec<Arc<Job>>>,
}

/// The number of graphs' holds on a communicator.
#[derive(Default)]
pub struct Graphs {
    count: Mutex<usize>,
    changed: Condvar,
}

impl Graphs {
    fn count(&self) -> MutexGuard<'_, usize> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more. For [`leave_graph`].
    pub fn enter(self: &Arc<Self>) -> *mut c_void {
        *self.count() += 1;
        Arc::into_raw(self.clone()).cast_mut().cast()
    }

    /// Waits until there is none.
    fn wait(&self) {
        let count = self.changed.wait_while(self.count(), |count| *count > 0);
        drop(count.unwrap_or_else(PoisonError::into_inner));
    }
}

/// A graph has gone: the destructor of a user object.
///
/// # Safety
/// `graphs` comes from [`Graphs::enter`], once.
pub unsafe extern "C" fn leave_graph(graphs: *mut c_void) {
    // SAFETY: the caller's promise.
    let graphs = unsafe { Arc::from_raw(graphs.cast::<Graphs>()) };
    *graphs.count() -= 1;
    graphs.changed.notify_all();
}

/// A connection to the hub.
struct Line {
    /// `None` before the rank has joined.
    connection: Mutex<Option<TcpStream>>,
    /// The same, for whoever aborts while another thread waits.
    to_abort: Mutex<Option<TcpStream>>,
    state: AtomicI32,
}

/// A call: the numbers of bytes that the rank gives and gets, and their addresses.
#[derive(Clone, Copy)]
pub struct Call {
    pub kind: u32,
    pub dtype: i32,
    pub operator: i32,
    pub peer: i32,
    pub from: usize,
    pub to: usize,
    pub given: usize,
    pub got: usize,
}

struct Job {
    call: Call,
    line: Arc<Line>,
}

impl Line {
    /// Begins to join the group of an id.
    fn join(line: hub::Line, id: [u8; 128], rank: u32, ranks: u32) -> Arc<Self> {
        let own = Arc::new(Line {
            connection: Mutex::default(),
            to_abort: Mutex::default(),
            state: AtomicI32::new(IN_PROGRESS),
        });
        let joining = own.clone();
        thread::spawn(move || {
            let connected =
                hub::connect(&id).and_then(|connection| Ok((connection.try_clone()?, connection)));
            let Ok((copy, connection)) = connected else {
                return joining.state.store(SYSTEM_ERROR, Ordering::Release);
            };
            *locked(&joining.to_abort) = Some(copy);
            *locked(&joining.connection) = Some(connection);
            let (operator, peer) = (ranks.cast_signed(), rank.cast_signed());
            if joining.ask(Head { kind: JOIN, dtype: line as i32, operator, peer }, &[]).is_ok() {
                joining.state.store(SUCCESS, Ordering::Release);
            }
        });
        own
    }

    fn state(&self) -> i32 {
        self.state.load(Ordering::Acquire)
    }

    /// Ends whatever waits for an answer.
    fn abort(&self) {
        if let Some(connection) = &*locked(&self.to_abort) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    /// Sends a request and waits for its answer. A failure is the communicator's.
    fn ask(&self, head: Head, given: &[u8]) -> Result<Vec<u8>, i32> {
        let mut connection = locked(&self.connection);
        let failed = |code: i32| {
            self.state.store(code, Ordering::Release);
            Err(code)
        };
        let Some(connection) = &mut *connection else { return failed(SYSTEM_ERROR) };
        match hub::send(connection, head, given).and_then(|()| hub::answered(connection)) {
            Ok(Ok(bytes)) => Ok(bytes),
            Ok(Err(code)) => failed(code),
            Err(_) => failed(REMOTE_ERROR),
        }
    }
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Rank {
    /// Begins to join the group of an id.
    pub fn join(id: [u8; 128], rank: u32, ranks: u32) -> Self {
        let [line, connects] =
            [hub::Line::Calls, hub::Line::Connects].map(|line| Line::join(line, id, rank, ranks));
        Rank {
            ranks,
            line,
            connects,
            connected: Mutex::default(),
            connecting: Mutex::default(),
            graphs: Arc::default(),
            jobs: Mutex::default(),
        }
    }

    /// `ncclSuccess`, `ncclInProgress`, or what went wrong.
    pub fn state(&self) -> i32 {
        // The thread says what went wrong before it ends.
        let is_connecting = locked(&self.connecting).as_ref().is_some_and(|thread| !thread.is_finished());
        match [self.line.state(), self.connects.state()].into_iter().find(|&state| state != SUCCESS) {
            Some(state) => state,
            None if is_connecting => IN_PROGRESS,
            None => SUCCESS,
        }
    }

    /// Does `queue` when the ranks of a call are connected: at once, or, the first time, on a thread that
    /// waits until they all make the call.
    pub fn when_connected(&self, call: &Call, queue: impl FnOnce() -> i32 + Send + 'static) -> i32 {
        let is_pair = matches!(call.kind, SEND | RECEIVE);
        let peer = if is_pair { call.peer } else { 0 };
        if self.ranks == 1 || !locked(&self.connected).insert((call.kind, peer)) {
            return queue();
        }
        let connects = self.connects.clone();
        let head = Head { kind: call.kind, dtype: 1, operator: 0, peer };
        let connect = move || {
            if connects.ask(head, &[]).is_ok() {
                let code = queue();
                connects.state.store(code, Ordering::Release);
            }
        };
        *locked(&self.connecting) = Some(thread::spawn(connect));
        IN_PROGRESS
    }

    /// Waits for the thread that connects.
    fn finish(&self) {
        if let Some(thread) = locked(&self.connecting).take() {
            // It does not panic.
            let _ = thread.join();
        }
    }

    /// Keeps a call for a stream or a graph; its address.
    pub fn keep(&self, call: Call) -> *mut c_void {
        let job = Arc::new(Job { call, line: self.line.clone() });
        let address = Arc::as_ptr(&job);
        locked(&self.jobs).push(job);
        address.cast_mut().cast()
    }

    /// The end of a rank whose calls are done. Waits for graphs that have some, then for the other ranks.
    pub fn leave(&self) {
        self.finish();
        self.graphs.wait();
        // Ranks that have gone in another way are waited for no more.
        let _ = self.line.ask(Head { kind: LEAVE, dtype: 0, operator: 0, peer: 0 }, &[]);
    }

    /// Ends all that waits. Calls that are still queued find no connection. Then waits for graphs, as NCCL
    /// does.
    pub fn abort(&self) {
        self.line.abort();
        self.connects.abort();
        self.finish();
        self.graphs.wait();
        // Streams and graphs may still have their addresses.
        locked(&self.jobs).drain(..).for_each(std::mem::forget);
    }
}

/// Does a call: a host function in a stream.
///
/// # Safety
/// `job` is what [`Rank::keep`] returned; the call's buffers live.
pub unsafe extern "C" fn run(job: *mut c_void) {
    // SAFETY: the caller's promise.
    let Job { call, line } = unsafe { &*job.cast::<Job>() };
    if line.state() != SUCCESS {
        return;
    }
    let Call { kind, dtype, operator, peer, from, to, given, got } = *call;
    let given = if given == 0 {
        &[]
    } else {
        // SAFETY: the caller's promise; the software driver's addresses are the host's.
        unsafe { std::slice::from_raw_parts(from as *const u8, given) }
    };
    if let Ok(bytes) = line.ask(Head { kind, dtype, operator, peer }, given)
        && bytes.len() == got
        && got > 0
    {
        // SAFETY: as above; nothing else uses the buffer before the call is done.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to as *mut u8, got) };
    }
}
