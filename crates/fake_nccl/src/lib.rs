//! A library with NCCL's functions, for tests without a GPU. It works: ranks of several threads or processes
//! combine their buffers, through a hub in the process that made the id.
//!
//! A rank has a connection to the hub (`hub`). A call is a host function in its stream, which sends what
//! the rank gives, waits for the answer, and writes it to the buffer. So calls are done in the order of the
//! stream, and in graphs, and wait for ranks that do not come until somebody aborts the communicator. The
//! driver's functions are handed over by [`fake_nccl_use`], since a library cannot see those of the program.
//!
//! As with NCCL, ranks are connected by the first call that needs it: a thread waits until all of them make
//! it, or both of a pair, and queues the call then. Until it has, the communicator is in progress.
//!
//! As with NCCL, a communicator ends, and an abort returns, when no graph has its calls any more: a user
//! object of each graph tells when that is. And it ends together with those of the other ranks: whoever
//! destroys one waits until all do, or until a rank aborts or dies.
//!
//! The functions check what NCCL checks: the config's head, arguments, and that a communicator is used by one
//! thread at a time.

mod combine;
mod hub;
mod rank;

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use rank::{Call, Rank, RankPtr};

/// `ncclResult_t`.
type Code = c_int;
pub(crate) const SUCCESS: Code = 0;
const CUDA_ERROR: Code = 1;
pub(crate) const SYSTEM_ERROR: Code = 2;
const INVALID_ARGUMENT: Code = 4;
const INVALID_USAGE: Code = 5;
pub(crate) const REMOTE_ERROR: Code = 6;
const IN_PROGRESS: Code = 7;

/// The variable with the version that the library says it has.
const VERSION_VARIABLE: &str = "FAKE_NCCL_VERSION";
const VERSION: c_int = 22_809;
/// The variable with the number of ids that the library makes in this process, and no more.
const IDS_VARIABLE: &str = "FAKE_NCCL_IDS";

type Callback = unsafe extern "C" fn(*mut c_void);

/// Functions of the driver.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Driver {
    /// `cuLaunchHostFunc`.
    pub launch: unsafe extern "C" fn(*mut c_void, Callback, *mut c_void) -> c_int,
    /// `cuStreamGetCaptureInfo_v2`.
    pub capture_info: unsafe extern "C" fn(
        *mut c_void,
        *mut c_int,
        *mut u64,
        *mut *mut c_void,
        *mut *const *mut c_void,
        *mut usize,
    ) -> c_int,
    /// `cuUserObjectCreate`.
    pub create_object: unsafe extern "C" fn(*mut *mut c_void, *mut c_void, Callback, c_uint, c_uint) -> c_int,
    /// `cuGraphRetainUserObject`.
    pub retain_object: unsafe extern "C" fn(*mut c_void, *mut c_void, c_uint, c_uint) -> c_int,
    /// `cuCtxGetCurrent`.
    pub get_current: unsafe extern "C" fn(*mut *mut c_void) -> c_int,
    /// `cuCtxSetCurrent`.
    pub set_current: unsafe extern "C" fn(*mut c_void) -> c_int,
}

static DRIVER: OnceLock<Driver> = OnceLock::new();

/// `CU_STREAM_CAPTURE_STATUS_ACTIVE`.
const CAPTURING: c_int = 1;
/// `CU_USER_OBJECT_NO_DESTRUCTOR_SYNC`.
const NO_DESTRUCTOR_SYNC: c_uint = 1;
/// `CU_GRAPH_USER_OBJECT_MOVE`.
const MOVE: c_uint = 1;

/// `ncclUniqueId`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct UniqueId([u8; 128]);

/// The head of `ncclConfig_t`.
#[repr(C)]
pub struct Config {
    size: usize,
    magic: u32,
    version: c_int,
    blocking: c_int,
}

/// Hands over the driver's functions. To be called before any collective.
#[unsafe(no_mangle)]
pub extern "C" fn fake_nccl_use(driver: Driver) {
    // Every caller hands over the same.
    let _ = DRIVER.set(driver);
}

/// # Safety
/// `version` is a place to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetVersion(version: *mut c_int) -> Code {
    let own = std::env::var(VERSION_VARIABLE).ok();
    // SAFETY: the caller's promise.
    unsafe { *version = own.and_then(|own| own.parse().ok()).unwrap_or(VERSION) };
    SUCCESS
}

/// # Safety
/// `id` is a place to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetUniqueId(id: *mut UniqueId) -> Code {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let most = std::env::var(IDS_VARIABLE).ok().and_then(|most| most.parse().ok());
    if MADE.fetch_add(1, Ordering::Relaxed) >= most.unwrap_or(u32::MAX) {
        return SYSTEM_ERROR;
    }
    let Ok(address) = hub::start() else { return SYSTEM_ERROR };
    // SAFETY: the caller's promise.
    unsafe { (*id).0 = address };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetErrorString(code: Code) -> *const c_char {
    let words = match code {
        SUCCESS => c"no error",
        SYSTEM_ERROR => c"unhandled system error",
        INVALID_ARGUMENT => c"invalid argument",
        INVALID_USAGE => c"invalid usage",
        REMOTE_ERROR => c"remote process exited or there was a network error",
        IN_PROGRESS => c"NCCL operation in progress",
        _ => c"unknown result code",
    };
    words.as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetLastError(_: *mut c_void) -> *const c_char {
    c"".as_ptr()
}

/// # Safety
/// `comm` is a place to write to, `config` a config.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitRankConfig(
    comm: *mut RankPtr,
    ranks: c_int,
    id: UniqueId,
    rank: c_int,
    config: *const Config,
) -> Code {
    // SAFETY: the caller's promise.
    let config = unsafe { &*config };
    let is_config = config.magic == 0xcafe_beef && config.size >= size_of::<Config>();
    if !is_config || config.version < 22_800 || config.blocking != 0 || !(0..ranks).contains(&rank) {
        return INVALID_ARGUMENT;
    }
    let made = Rank::join(id.0, rank as u32, ranks as u32);
    // SAFETY: the caller's promise.
    unsafe { *comm = Box::into_raw(Box::new(made)) };
    IN_PROGRESS
}

/// # Safety
/// `comm` is a live communicator, which is used no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommDestroy(comm: RankPtr) -> Code {
    // SAFETY: the caller's promise. Nothing has the rank when its thread has ended.
    unsafe {
        (*comm).leave();
        drop(Box::from_raw(comm));
    }
    SUCCESS
}

/// # Safety
/// As for [`ncclCommDestroy`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommAbort(comm: RankPtr) -> Code {
    // SAFETY: as for `ncclCommDestroy`.
    unsafe {
        (*comm).abort();
        drop(Box::from_raw(comm));
    }
    SUCCESS
}

/// # Safety
/// `comm` is a live communicator, `code` a place to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommGetAsyncError(comm: RankPtr, code: *mut Code) -> Code {
    // SAFETY: the caller's promise.
    unsafe { *code = (*comm).state() };
    SUCCESS
}

/// Queues a call: bytes are those that the rank gives, and gets.
///
/// # Safety
/// `comm` is a live communicator; the buffers live until the call is done; the stream is one of the driver.
unsafe fn queue(comm: RankPtr, call: Call, stream: *mut c_void) -> Code {
    let Some(driver) = DRIVER.get() else { return INVALID_USAGE };
    let mut context = null_mut();
    // SAFETY: a place to write to.
    if unsafe { (driver.get_current)(&mut context) } != 0 {
        return CUDA_ERROR;
    }
    let place = Place { comm, stream, context };
    let queue = move || {
        let Place { comm, stream, context } = place.get();
        // SAFETY: the communicator is not freed before the thread that connects it has ended; the rest is the
        // caller's promise, who waits until the communicator is no more in progress, or aborts it.
        unsafe {
            match (driver.set_current)(context) {
                0 => launch(driver, comm, call, stream),
                _ => CUDA_ERROR,
            }
        }
    };
    // SAFETY: the caller's promise.
    unsafe { (*comm).when_connected(&call, queue) }
}

/// Where a call goes.
#[derive(Clone, Copy)]
struct Place {
    comm: RankPtr,
    stream: *mut c_void,
    context: *mut c_void,
}

// SAFETY: the driver's handles are any thread's, and so is a communicator, by one at a time.
unsafe impl Send for Place {}

impl Place {
    /// All of it: a closure that named its fields would capture these.
    fn get(self) -> Self {
        self
    }
}

/// Queues a call of ranks that are connected.
///
/// # Safety
/// As for [`queue`], whose context is current.
unsafe fn launch(driver: &Driver, comm: RankPtr, call: Call, stream: *mut c_void) -> Code {
    // SAFETY: the caller's promise.
    let job = unsafe { (*comm).keep(call) };
    // SAFETY: the job lives as long as the communicator, which the caller destroys when its calls are done.
    match unsafe { (driver.launch)(stream, rank::run, job) } {
        // SAFETY: the caller's promise.
        0 => unsafe { note_capture(driver, comm, stream) },
        _ => CUDA_ERROR,
    }
}

/// Notes a graph that captures a call of the stream, until it and its executables are gone.
///
/// # Safety
/// As for `queue`.
unsafe fn note_capture(driver: &Driver, comm: RankPtr, stream: *mut c_void) -> Code {
    let (mut status, mut id, mut graph, mut nodes, mut count) = (0, 0, null_mut(), std::ptr::null(), 0);
    // SAFETY: a live stream, and places to write to.
    let asked =
        unsafe { (driver.capture_info)(stream, &mut status, &mut id, &mut graph, &mut nodes, &mut count) };
    if asked != 0 || status != CAPTURING {
        return if asked == 0 { SUCCESS } else { CUDA_ERROR };
    }
    let mut object = null_mut();
    // SAFETY: the communicator lives. The object has a count of its own, which its destructor takes back.
    // The graph is the one that the stream is captured into, and gets the only reference.
    let told = unsafe {
        let graphs = (*comm).graphs.enter();
        match (driver.create_object)(&mut object, graphs, rank::leave_graph, 1, NO_DESTRUCTOR_SYNC) {
            0 => (driver.retain_object)(graph, object, 1, MOVE),
            code => code,
        }
    };
    if told == 0 { SUCCESS } else { CUDA_ERROR }
}

const NO_OPERATOR: c_int = -1;

macro_rules! collectives {
    ($($name:ident ($kind:expr): |$from:ident, $to:ident, $count:ident, $dtype:ident $(, $extra:ident)?; $ranks:ident|
        $given:expr, $got:expr, $operator:expr, $peer:expr;)*) => { $(
        /// # Safety
        /// As for `queue`; buffers of as many elements as the call says.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $from: *const c_void,
            $to: *mut c_void,
            $count: usize,
            $dtype: c_int,
            $($extra: c_int,)?
            comm: RankPtr,
            stream: *mut c_void,
        ) -> Code {
            let Some(size) = combine::size_of_type($dtype) else { return INVALID_ARGUMENT };
            // SAFETY: the caller's promise.
            let $ranks = unsafe { (*comm).ranks } as usize;
            let (given, got) = ($given * size, $got * size);
            let (from, to) = ($from as usize, $to as usize);
            let call = Call { kind: $kind, dtype: $dtype, operator: $operator, peer: $peer, from, to, given, got };
            // SAFETY: the caller's promise.
            unsafe { queue(comm, call, stream) }
        }
    )* };
}

collectives! {
    ncclAllReduce (hub::ALL_REDUCE): |from, to, count, dtype, by; _ranks| count, count, by, 0;
    ncclReduceScatter (hub::REDUCE_SCATTER): |from, to, count, dtype, by; ranks| count * ranks, count, by, 0;
    ncclAllGather (hub::ALL_GATHER): |from, to, count, dtype; ranks| count, count * ranks, NO_OPERATOR, 0;
    ncclBroadcast (hub::BROADCAST): |from, to, count, dtype, root; _ranks| count, count, NO_OPERATOR, root;
    ncclAlltoAll (hub::ALL_TO_ALL): |from, to, count, dtype; ranks| count * ranks, count * ranks, NO_OPERATOR, 0;
}

/// # Safety
/// As for `queue`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclSend(
    from: *const c_void,
    count: usize,
    dtype: c_int,
    peer: c_int,
    comm: RankPtr,
    stream: *mut c_void,
) -> Code {
    let Some(size) = combine::size_of_type(dtype) else { return INVALID_ARGUMENT };
    let (from, given) = (from as usize, count * size);
    let call = Call { kind: hub::SEND, dtype, operator: NO_OPERATOR, peer, from, to: 0, given, got: 0 };
    // SAFETY: the caller's promise.
    unsafe { queue(comm, call, stream) }
}

/// # Safety
/// As for `queue`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclRecv(
    to: *mut c_void,
    count: usize,
    dtype: c_int,
    peer: c_int,
    comm: RankPtr,
    stream: *mut c_void,
) -> Code {
    let Some(size) = combine::size_of_type(dtype) else { return INVALID_ARGUMENT };
    let (to, got) = (to as usize, count * size);
    let call = Call { kind: hub::RECEIVE, dtype, operator: NO_OPERATOR, peer, from: 0, to, given: 0, got };
    // SAFETY: the caller's promise.
    unsafe { queue(comm, call, stream) }
}
