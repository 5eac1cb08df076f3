//! The source of the memory of buffers: caches of device memory and of page-locked host memory, over the
//! driver.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::sys::{CUevent, CUstream};
use arena::{Backend, Cache};

use super::uses::Uses;
use crate::device::{AllocatorOptions, Device, NO_TIMING, Queue};
use crate::error::{DriverError, Error, Overrun, Result};
use crate::raw::{self, RawResult};
use crate::stream::{Stream, is_settled};

/// `CU_MEMHOSTALLOC_PORTABLE`: page-locked for every device's context.
pub(super) const PORTABLE: u32 = 1;
/// `CU_STREAM_CAPTURE_STATUS_NONE`.
const NOT_CAPTURED: i32 = 0;
/// Events kept for later.
const SPARE_EVENTS: usize = 256;

/// A mark in a stream, of the allocator's own: unlike [`crate::Event`] it has no handle to its device, which
/// owns it.
pub(crate) struct Mark(CUevent);

// SAFETY: an event handle may be used from any thread.
unsafe impl Send for Mark {}

// SAFETY: as above; CUDA's driver API is thread-safe.
unsafe impl Sync for Mark {}

impl Mark {
    /// Moves the mark behind what is queued on the stream.
    ///
    /// # Safety
    /// The stream is alive, of the mark's device, whose context is current.
    pub(super) unsafe fn record(&self, stream: CUstream) -> RawResult {
        // SAFETY: the caller's promise; marks are destroyed by `recycle` and `close` alone.
        unsafe { raw::event_record(self.0, stream) }
    }

    /// Lets later work of the stream begin only when the mark has been reached.
    pub(super) fn hold_back(&self, stream: &Stream) -> Result<()> {
        // SAFETY: both handles are alive.
        stream.call(|stream| unsafe { raw::stream_wait_event(stream, self.0, 0) })
    }

    /// Waits, for clean-up, until the mark is reached or nothing of its device runs any more. False when
    /// neither can be had.
    pub(super) fn settle(&self, device: &Device) -> bool {
        // SAFETY: the handle is alive.
        let reached = device.clean_up(|| unsafe { raw::event_synchronize(self.0) });
        is_settled(reached) || device_is_settled(device)
    }

    /// Waits until the mark is reached.
    pub(super) fn synchronize(&self, device: &Device) -> Result<()> {
        // SAFETY: the handle is alive.
        device.call(|| unsafe { raw::event_synchronize(self.0) })
    }
}

/// Waits, for clean-up, until nothing of the device runs any more. False when that cannot be had.
pub(super) fn device_is_settled(device: &Device) -> bool {
    // SAFETY: takes no arguments.
    is_settled(device.clean_up(|| unsafe { raw::ctx_synchronize() }))
}

pub(crate) type Heap = Arc<arena::StreamHeap<Mark>>;
pub(super) use arena::Lease;

/// How buffers get their memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Blocks cut from segments that are kept.
    Caching,
    /// A driver allocation for each buffer, for tools that watch those.
    PassThrough,
}

/// The kind of memory that a cache holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Device,
    Pinned,
}

impl Kind {
    fn reserve(self, bytes: u64) -> RawResult<u64> {
        let bytes = bytes as usize;
        match self {
            Kind::Device => {
                let mut address = 0;
                // SAFETY: a place to write to.
                unsafe { raw::mem_alloc(&mut address, bytes)? };
                Ok(address)
            }
            Kind::Pinned => {
                let mut address = std::ptr::null_mut();
                // SAFETY: a place to write to.
                unsafe { raw::mem_host_alloc(&mut address, bytes, PORTABLE)? };
                Ok(address.expose_provenance() as u64)
            }
        }
    }

    fn release(self, address: u64) -> RawResult {
        // SAFETY: the address came from `reserve` of the same kind and is freed once; no work on it is
        // pending.
        unsafe {
            match self {
                Kind::Device => raw::mem_free(address),
                Kind::Pinned => raw::mem_free_host(std::ptr::with_exposed_provenance_mut(address as usize)),
            }
        }
    }
}

/// The memory of one device.
pub(crate) struct Allocator {
    pub(super) mode: Mode,
    /// Red zones around blocks, and NaN bytes in them.
    pub(super) guarded: bool,
    pub(super) device: Cache<Mark>,
    pub(super) pinned: Cache<Mark>,
    pub(super) pinned_heap: Heap,
    spare: Mutex<Vec<Mark>>,
    /// The heaps of streams, by their numbers, with the queues of these streams.
    owners: Mutex<Vec<(u64, Queue)>>,
    /// The first overrun that a free has found.
    pub(super) overrun: Mutex<Option<Overrun>>,
}

impl Allocator {
    fn new(options: AllocatorOptions) -> Self {
        let pinned = Cache::new();
        Allocator {
            mode: if options.passthrough { Mode::PassThrough } else { Mode::Caching },
            guarded: options.guarded,
            device: Cache::new(),
            pinned_heap: pinned.new_heap(),
            pinned,
            spare: Mutex::default(),
            owners: Mutex::default(),
            overrun: Mutex::default(),
        }
    }

    fn owners(&self) -> MutexGuard<'_, Vec<(u64, Queue)>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spare(&self) -> MutexGuard<'_, Vec<Mark>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A mark that was not recorded yet. The context is current.
    fn new_mark(&self) -> RawResult<Mark> {
        // The lock is released before the driver is called.
        let spare = self.spare().pop();
        spare.map_or_else(
            || {
                let mut event = std::ptr::null_mut();
                // SAFETY: a place to write to.
                unsafe { raw::event_create(&mut event, NO_TIMING)? };
                Ok(Mark(event))
            },
            Ok,
        )
    }

    /// A mark behind what is queued on the stream.
    ///
    /// # Safety
    /// The stream is alive, and its context is current.
    unsafe fn mark(&self, stream: CUstream) -> RawResult<Mark> {
        let mark = self.new_mark()?;
        // SAFETY: the caller's promise.
        match unsafe { mark.record(stream) } {
            Ok(()) => Ok(mark),
            Err(error) => {
                self.recycle(mark);
                Err(error)
            }
        }
    }

    pub(super) fn recycle(&self, mark: Mark) {
        let mut spare = self.spare();
        if spare.len() < SPARE_EVENTS {
            return spare.push(mark);
        }
        drop(spare);
        // SAFETY: alive until now; the driver keeps what pending waits need. The error of the record is the
        // one to return.
        let _ = unsafe { raw::event_destroy(mark.0) };
    }

    /// Marks behind what is queued on the streams, for clean-up. If a stream cannot be marked, the host waits
    /// for it instead; `None` when that fails too.
    fn marks<'s>(&self, streams: impl Iterator<Item = &'s Stream>) -> Option<Vec<Mark>> {
        let mut marks = Vec::new();
        for stream in streams {
            // SAFETY: the stream is alive, and `clean_up` makes the context current.
            match stream.device().clean_up(|| unsafe { self.mark(stream.handle()) }) {
                Ok(mark) => marks.push(mark),
                Err(_) if stream.drain() => {}
                Err(_) => {
                    marks.into_iter().for_each(|mark| self.recycle(mark));
                    return None;
                }
            }
        }
        Some(marks)
    }

    /// Gives a block of a stream's own heap back to it. The streams of `uses` have used it.
    pub(super) fn free(&self, heap: &Heap, lease: Lease, uses: &Uses) {
        if uses.is_at_home() {
            return self.device.free(heap, lease);
        }
        let (home, users) = (uses.home(), uses.streams());
        // The heap's own stream need not wait for streams that it comes after anyway.
        self.free_after(heap, lease, users.iter().filter(|user| !home.comes_after(user)));
    }

    /// Gives a block of a graph's heap back to it. The heap has no stream of its own: the next graph that
    /// gets it may be replayed on any stream.
    pub(super) fn free_private(&self, heap: &Heap, lease: Lease, uses: &Uses) {
        self.free_after(heap, lease, uses.streams().iter());
    }

    /// Frees a block once `streams` have reached the end of what is queued there. Without marks the block is
    /// leaked, since some stream may still write it.
    fn free_after<'s>(&self, heap: &Heap, lease: Lease, streams: impl Iterator<Item = &'s Stream>) {
        if let Some(marks) = self.marks(streams) {
            self.device.free_after(heap, lease, marks);
        }
    }

    /// The heap for a new stream.
    pub(crate) fn heap(&self, device: &Device) -> Heap {
        self.device.heap(&Source { device, kind: Kind::Device })
    }

    /// Before a stream is destroyed: when its work is done, another stream may have its memory.
    ///
    /// # Safety
    /// The stream is alive.
    pub(crate) unsafe fn retire(&self, device: &Device, heap: Heap, stream: CUstream) {
        // SAFETY: the caller's promise, and `clean_up` makes the context current.
        let mark = device.clean_up(|| unsafe { self.mark(stream) });
        // Without a mark no stream gets the heap; its memory goes back to the system when memory runs short.
        if let Ok(mark) = mark {
            self.device.retire(heap, vec![mark]);
        }
    }

    /// Gives everything back when nothing of the device is in use any more. Errors are ignored: the memory
    /// goes with the context.
    ///
    /// The device's context is current.
    fn close(&self) {
        let _ = self.device.close(&Closing { allocator: self, kind: Kind::Device });
        let _ = self.pinned.close(&Closing { allocator: self, kind: Kind::Pinned });
        for mark in self.spare().drain(..) {
            // SAFETY: alive until now, and unused.
            let _ = unsafe { raw::event_destroy(mark.0) };
        }
    }
}

impl Drop for Allocator {
    /// The device drops the values of other layers while its context is current.
    fn drop(&mut self) {
        self.close();
    }
}

/// The heap of a stream, while it has its queue.
struct OwnHeap {
    heap: Heap,
    queue: Queue,
    device: Device,
}

impl Drop for OwnHeap {
    fn drop(&mut self) {
        let allocator = self.device.allocator();
        // Waits for those who wait for the stream.
        allocator.owners().retain(|(heap, _)| *heap != self.heap.id());
        // SAFETY: a stream drops the values of other layers while its queue is alive.
        unsafe { allocator.retire(&self.device, self.heap.clone(), self.queue.stream) };
    }
}

impl Stream {
    /// The heap of the stream's buffers outside captures.
    pub(super) fn own_heap(&self) -> &Heap {
        let make = || {
            let (device, queue) = (self.device().clone(), *self.queue());
            let heap = device.allocator().heap(&device);
            device.allocator().owners().push((heap.id(), queue));
            OwnHeap { heap, queue, device }
        };
        &self.extension(make).heap
    }
}

impl Device {
    /// The source of its buffers' memory.
    pub(crate) fn allocator(&self) -> &Allocator {
        self.extension(|| Allocator::new(self.allocator_options()))
    }

    /// A mark that was not recorded yet; it goes back with [`Allocator::recycle`].
    pub(super) fn new_mark(&self) -> Result<Mark> {
        self.call(|| self.allocator().new_mark())
    }
}

/// Whether a stream is being captured, or its capture has failed.
///
/// # Safety
/// The stream is alive, and its context is current.
unsafe fn is_captured(stream: CUstream) -> RawResult<bool> {
    let (mut status, mut id) = (0, 0);
    // SAFETY: the caller's promise, and two places to write to.
    unsafe { raw::stream_capture_info(stream, &mut status, &mut id)? };
    Ok(status != NOT_CAPTURED)
}

/// The driver, for a cache.
pub(super) struct Source<'d> {
    pub device: &'d Device,
    pub kind: Kind,
}

impl Backend for Source<'_> {
    type Event = Mark;
    type Error = Error;

    fn reserve(&self, bytes: u64) -> Result<Option<u64>> {
        match self.device.call(|| self.kind.reserve(bytes)) {
            Err(error) if error.driver_error().is_some_and(DriverError::is_out_of_memory) => Ok(None),
            done => done.map(Some),
        }
    }

    fn release(&self, address: u64, _bytes: u64) -> Result<()> {
        self.device.call(|| self.kind.release(address))
    }

    fn settle(&self) -> Result<bool> {
        match self.device.synchronize() {
            // A capture may have begun on any thread.
            Err(Error::NotCapturable { .. }) => Ok(false),
            done => done.map(|()| true),
        }
    }

    fn settle_heap(&self, heap: u64) -> Result<bool> {
        // While this is locked no owner's stream is destroyed.
        let owners = self.device.allocator().owners();
        let Some((_, queue)) = owners.iter().find(|(owned, _)| *owned == heap) else { return Ok(false) };
        // SAFETY: the stream is alive.
        if self.device.call(|| unsafe { is_captured(queue.stream) })? {
            return Ok(false);
        }
        // SAFETY: as above.
        self.device.call(|| unsafe { raw::stream_synchronize(queue.stream) })?;
        Ok(true)
    }

    fn is_reached(&self, mark: &Mark) -> Result<bool> {
        // SAFETY: marks are destroyed by `recycle` and `close` alone.
        self.device.call(|| unsafe { raw::event_query(mark.0) })
    }

    fn recycle(&self, mark: Mark) {
        self.device.allocator().recycle(mark);
    }

    fn may_wait(&self) -> bool {
        // A stream that is being captured cannot be waited for.
        !self.device.captures().any()
    }
}

/// The driver, for a cache whose device is being dropped. Its context is still current.
struct Closing<'a> {
    allocator: &'a Allocator,
    kind: Kind,
}

impl Backend for Closing<'_> {
    type Event = Mark;
    type Error = Box<DriverError>;

    fn reserve(&self, bytes: u64) -> RawResult<Option<u64>> {
        self.kind.reserve(bytes).map(Some)
    }

    fn release(&self, address: u64, _bytes: u64) -> RawResult {
        self.kind.release(address)
    }

    fn settle(&self) -> RawResult<bool> {
        // SAFETY: takes no arguments.
        unsafe { raw::ctx_synchronize() }.map(|()| true)
    }

    fn settle_heap(&self, _heap: u64) -> RawResult<bool> {
        Ok(false)
    }

    fn is_reached(&self, mark: &Mark) -> RawResult<bool> {
        // SAFETY: marks are destroyed by `recycle` and `close` alone.
        unsafe { raw::event_query(mark.0) }
    }

    fn recycle(&self, mark: Mark) {
        self.allocator.recycle(mark);
    }

    fn may_wait(&self) -> bool {
        true
    }
}
