//! Captures under way: which streams belong to one, and what its work uses.

use std::ffi::c_int;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use cust_raw::CUgraph;

use super::alone;

use crate::device::Device;
use crate::error::{DriverError, Error, Result};
use crate::launch::LaunchSite;
use crate::memory::{CapturedUses, Diversion, GraphUse, PrivatePool};
use crate::module::ModuleInner;
use crate::raw::{self, RawResult};
use crate::stream::{Entered, Stream};

/// `CU_STREAM_CAPTURE_MODE_RELAXED`: other calls are neither forbidden nor spoil the capture, on this thread or any other.
/// What must not happen inside a capture is refused by the calls themselves.
const RELAXED: c_int = 2;

/// `CU_STREAM_CAPTURE_STATUS_ACTIVE`.
const ACTIVE: c_int = 1;
/// `CU_STREAM_CAPTURE_STATUS_INVALIDATED`.
const INVALIDATED: c_int = 2;
/// `CUDA_ERROR_STREAM_CAPTURE_INVALIDATED`.
const CAPTURE_INVALIDATED: i32 = 901;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The captures of a device that are under way.
#[derive(Default)]
pub(crate) struct Captures {
    /// How many, so that streams need no look while there are none.
    count: AtomicUsize,
    state: Mutex<State>,
    gate: Gate,
}

/// Keeps captures from beginning while streams are put in order: a mark must not land in a capture that has just begun.
#[derive(Default)]
struct Gate {
    /// Threads that put streams in order now.
    inside: Mutex<usize>,
    left: Condvar,
}

impl Gate {
    fn pass<R>(&self, work: impl FnOnce() -> R) -> R {
        *locked(&self.inside) += 1;
        let _leaving = Leaving(self);
        work()
    }

    /// Waits until nobody is inside, and lets nobody in before the returned guard is dropped.
    fn close(&self) -> MutexGuard<'_, usize> {
        let mut inside = locked(&self.inside);
        while *inside > 0 {
            inside = self.left.wait(inside).unwrap_or_else(PoisonError::into_inner);
        }
        inside
    }
}

/// Leaves a gate when dropped, after a panic too.
struct Leaving<'g>(&'g Gate);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        *locked(&self.0.inside) -= 1;
        self.0.left.notify_all();
    }
}

#[derive(Default)]
struct State {
    list: Vec<Arc<Capture>>,
    /// What has to wait for the end of all captures.
    deferred: Vec<Deferred>,
}

type Deferred = Box<dyn FnOnce() + Send>;

impl Captures {
    /// Is any stream of the device being captured?
    pub(crate) fn any(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    /// Does `work` when no stream of the device is being captured: now, or at the end of the last capture. For frees, which
    /// have to put streams in order: a captured stream cannot be asked, waited for or marked.
    pub(crate) fn outside(&self, work: impl FnOnce() + Send + 'static) {
        self.between_beginnings(|| {
            if self.any() {
                let mut state = locked(&self.state);
                if !state.list.is_empty() {
                    return state.deferred.push(Box::new(work));
                }
            }
            work();
        });
    }

    /// Does `work` while no capture begins: what it has seen of captures under way stays so.
    pub(crate) fn between_beginnings<R>(&self, work: impl FnOnce() -> R) -> R {
        self.gate.pass(work)
    }

    fn add(&self, capture: Arc<Capture>) {
        let mut state = locked(&self.state);
        state.list.push(capture);
        self.count.store(state.list.len(), Ordering::Release);
    }

    fn remove(&self, capture: &Arc<Capture>) {
        let mut state = locked(&self.state);
        state.list.retain(|other| !Arc::ptr_eq(other, capture));
        self.count.store(state.list.len(), Ordering::Release);
        let due = if state.list.is_empty() { std::mem::take(&mut state.deferred) } else { Vec::new() };
        drop(state);
        // Each is looked at anew: another capture may have begun.
        due.into_iter().for_each(|work| self.outside(work));
    }

    fn find(&self, id: u64) -> Option<Arc<Capture>> {
        locked(&self.state).list.iter().find(|capture| capture.id == id).cloned()
    }
}

impl Stream {
    /// The capture that takes this stream's work, if it is being captured.
    pub(crate) fn capture(&self) -> Result<Option<Arc<Capture>>> {
        if !self.device().captures().any() {
            return Ok(None);
        }
        let (mut status, mut id) = (0, 0);
        // SAFETY: a live stream and two places to write to.
        self.ask(|stream| unsafe { raw::stream_capture_info(stream, &mut status, &mut id) })?;
        match status {
            ACTIVE => Ok(self.device().captures().find(id)),
            INVALIDATED => {
                Err(Error::Driver(DriverError::new("cuStreamGetCaptureInfo", CAPTURE_INVALIDATED)))
            }
            _ => Ok(None),
        }
    }

    /// Keeps the stream, should it now be captured, until the capture ends: nobody else may get it from the pool before.
    pub(crate) fn keep_while_captured(&self) -> Result<()> {
        if let Some(capture) = self.capture()? {
            capture.keep(self);
        }
        Ok(())
    }

    pub(crate) fn must_not_be_captured(
        &self,
        operation: &'static str,
        reason: &'static str,
        hint: &'static str,
    ) -> Result<()> {
        match self.capture()? {
            None => Ok(()),
            Some(_) => Err(Error::NotCapturable { operation, reason, hint }),
        }
    }

    pub(crate) fn must_not_be_waited_for(&self, operation: &'static str) -> Result<()> {
        self.must_not_be_captured(
            operation,
            "the stream's work is not done before the graph is replayed",
            "keep results on the device inside the capture, and read the graph's outputs after a replay",
        )
    }
}

/// What was captured so far.
pub(crate) struct Capture {
    id: u64,
    /// Memory for what the captured streams allocate.
    pool: Arc<PrivatePool>,
    /// Allocates for them where buffers come from no pool.
    memory_stream: OnceLock<Stream>,
    uses: CapturedUses,
    launches: Mutex<Vec<LaunchSite>>,
    /// The code of captured launches, where it is not the device's to keep.
    modules: Mutex<Vec<Arc<ModuleInner>>>,
    /// The streams, each with its buffers diverted to the pool.
    streams: Mutex<Vec<(Stream, Diversion)>>,
}

impl Capture {
    /// Of a stream that is about to be captured; the driver's number is not known yet.
    fn new(stream: &Stream) -> Self {
        let pool = PrivatePool::new(stream.device());
        let diversion = pool.divert(stream);
        Capture {
            id: 0,
            pool,
            memory_stream: OnceLock::new(),
            uses: CapturedUses::default(),
            launches: Mutex::default(),
            modules: Mutex::default(),
            streams: Mutex::new(vec![(stream.clone(), diversion)]),
        }
    }

    /// A stream to allocate on that is not captured itself.
    pub(crate) fn memory_stream(&self) -> Result<Stream> {
        match self.memory_stream.get() {
            Some(stream) => Ok(stream.clone()),
            None => {
                let stream = self.pool.device().pooled_stream()?;
                Ok(self.memory_stream.get_or_init(|| stream).clone())
            }
        }
    }

    /// The allocations that captured work uses.
    pub(crate) fn uses(&self) -> &CapturedUses {
        &self.uses
    }

    pub(crate) fn note_launch(&self, site: LaunchSite) {
        locked(&self.launches).push(site);
    }

    /// Keeps the code of a launch that was captured.
    pub(crate) fn keep_code(&self, module: &Arc<ModuleInner>) {
        let mut modules = locked(&self.modules);
        if !modules.iter().any(|known| Arc::ptr_eq(known, module)) {
            modules.push(module.clone());
        }
    }

    fn keep(&self, stream: &Stream) {
        let mut streams = locked(&self.streams);
        if !streams.iter().any(|(known, _)| known == stream) {
            streams.push((stream.clone(), self.pool.divert(stream)));
        }
    }
}

/// Runs `work` with a stream that is being captured; gives the graph and what it uses. Nothing is left behind when anything
/// fails. The stream is the capture's own: no other thread can reach it, unless `work` hands it over. The device and the priority are
/// those of `like`. It is current in this thread while `work` runs.
pub(super) fn record<R>(
    like: &Stream,
    work: impl FnOnce(&Stream) -> Result<R>,
) -> Result<(RawGraph, Captured, R)> {
    like.must_not_be_captured(
        "a capture inside a capture",
        "one stream records into one graph at a time",
        "end the outer capture first, or capture both parts as one graph",
    )?;
    let stream = like.device().pooled_stream_with_priority(like.priority())?;
    let mut under_way = UnderWay::begin(&stream)?;
    let result = {
        let _current = Entered::new(&stream);
        work(&stream)?
    };
    let graph = under_way.end()?;
    let captured = under_way.captured();
    Ok((graph, captured, result))
}

/// What a graph keeps, and its launches.
pub(super) struct Captured {
    pub(super) uses: Vec<GraphUse>,
    pub(super) launches: Vec<LaunchSite>,
    /// The code of launches, where it is not the device's to keep.
    pub(super) modules: Vec<Arc<ModuleInner>>,
    /// Where the memory is from that was allocated inside the capture. After the uses, which give theirs back to it.
    _pool: Arc<PrivatePool>,
}

/// A capture that ends with this value at the latest.
struct UnderWay<'s> {
    stream: &'s Stream,
    capture: Arc<Capture>,
    ended: bool,
}

impl<'s> UnderWay<'s> {
    fn begin(stream: &'s Stream) -> Result<Self> {
        let capture = Arc::new(Capture::new(stream));
        let captures = stream.device().captures();
        let closed = captures.gate.close();
        // SAFETY: a live stream.
        alone(|| stream.call(|stream| unsafe { raw::stream_begin_capture(stream, RELAXED) }))?;
        let mut under_way = UnderWay { stream, capture, ended: false };
        let (mut status, mut id) = (0, 0);
        // SAFETY: a live stream and two places to write to. On an error the drop ends the capture.
        stream.ask(|stream| unsafe { raw::stream_capture_info(stream, &mut status, &mut id) })?;
        if let Some(capture) = Arc::get_mut(&mut under_way.capture) {
            capture.id = id;
        }
        captures.add(under_way.capture.clone());
        drop(closed);
        Ok(under_way)
    }

    fn end(&mut self) -> Result<RawGraph> {
        let mut graph = std::ptr::null_mut();
        // SAFETY: a live stream and a place to write to. On an error the drop tries once more.
        alone(|| self.stream.call(|stream| unsafe { raw::stream_end_capture(stream, &mut graph) }))?;
        self.ended = true;
        self.stream.device().captures().remove(&self.capture);
        Ok(RawGraph { handle: graph, device: self.stream.device().clone() })
    }

    fn captured(&self) -> Captured {
        let uses = self.capture.uses.end();
        let launches = std::mem::take(&mut *locked(&self.capture.launches));
        let modules = std::mem::take(&mut *locked(&self.capture.modules));
        Captured { uses, launches, modules, _pool: self.capture.pool.clone() }
    }
}

impl Drop for UnderWay<'_> {
    /// After an error or a panic: the stream is a usual one again, and the graph is nobody's.
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let end = || -> RawResult {
            let mut graph = std::ptr::null_mut();
            // SAFETY: a live stream and a place to write to.
            unsafe { raw::stream_end_capture(self.stream.handle(), &mut graph)? };
            // SAFETY: it came from the call before, and nobody else has it.
            unsafe { raw::graph_destroy(graph) }
        };
        // Tried twice, since a stream that stays captured is of no use. The error or the panic that led here is the one to tell.
        let _ = alone(|| self.stream.device().clean_up(|| end().or_else(|_| end())));
        self.stream.device().captures().remove(&self.capture);
    }
}

/// A graph that is not executable yet.
pub(super) struct RawGraph {
    handle: CUgraph,
    device: Device,
}

// SAFETY: a graph handle may be used from any thread, by one at a time: `&self` only reads the number.
unsafe impl Send for RawGraph {}

impl RawGraph {
    pub(super) fn handle(&self) -> CUgraph {
        self.handle
    }
}

impl Drop for RawGraph {
    fn drop(&mut self) {
        // A failure has nobody to go to: the graph is a little host memory.
        // SAFETY: this is the only handle.
        let _ = alone(|| self.device.clean_up(|| unsafe { raw::graph_destroy(self.handle) }));
    }
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capture").field("id", &self.id).finish_non_exhaustive()
    }
}
