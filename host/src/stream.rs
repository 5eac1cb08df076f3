//! Streams, the queues of a device, and events, marks in them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cust_raw::{CUevent, CUstream};

use crate::device::Device;
use crate::error::{Error, Result};
use crate::raw::{self, RawResult};

/// `CU_STREAM_NON_BLOCKING`: no implicit order with the legacy default stream.
const NON_BLOCKING: u32 = 1;
/// `CU_EVENT_DEFAULT`: with timing.
const WITH_TIMING: u32 = 0;
/// `CU_EVENT_DISABLE_TIMING`: cheaper to record.
const NO_TIMING: u32 = 2;

/// A queue of device work, done in order. Cheap to clone; clones are the same queue.
#[derive(Clone)]
pub struct Stream {
    inner: Arc<StreamInner>,
}

struct StreamInner {
    id: u64,
    handle: CUstream,
    device: Device,
}

// SAFETY: a stream handle may be used from any thread.
unsafe impl Send for StreamInner {}
// SAFETY: as above; CUDA's driver API is thread-safe.
unsafe impl Sync for StreamInner {}

impl Drop for StreamInner {
    fn drop(&mut self) {
        // A failure has nobody to go to: the stream goes with its context.
        // SAFETY: this is the last handle; the driver finishes queued work before it destroys the stream.
        let _ = self.device.clean_up(|| unsafe { raw::stream_destroy(self.handle) });
    }
}

impl Stream {
    pub(crate) fn new(device: &Device) -> Result<Stream> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let mut handle = std::ptr::null_mut();
        // SAFETY: a place to write to.
        device.call(|| unsafe { raw::stream_create(&mut handle, NON_BLOCKING) })?;
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        Ok(Stream { inner: Arc::new(StreamInner { id, handle, device: device.clone() }) })
    }

    /// The device that the stream belongs to.
    pub fn device(&self) -> &Device {
        &self.inner.device
    }

    /// Waits until everything queued so far is done.
    ///
    /// # Errors
    /// The driver's error, also of work queued earlier.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: the handle is alive.
        self.call(|stream| unsafe { raw::stream_synchronize(stream) })
    }

    /// Is everything queued so far done?
    ///
    /// # Errors
    /// The driver's error, also of work queued earlier.
    pub fn is_idle(&self) -> Result<bool> {
        // SAFETY: the handle is alive.
        self.call(|stream| unsafe { raw::stream_query(stream) })
    }

    /// Marks the work queued so far with `event`.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`], or the driver's error.
    pub fn record(&self, event: &Event) -> Result<()> {
        self.same_device("the event", &event.device)?;
        // SAFETY: both handles are alive, of one device.
        self.call(|stream| unsafe { raw::event_record(event.handle, stream) })?;
        event.recorded.store(true, Ordering::Release);
        Ok(())
    }

    /// Lets later work of this stream begin only when `event` has been reached. The event may be another device's.
    ///
    /// # Errors
    /// The driver's error.
    pub fn wait(&self, event: &Event) -> Result<()> {
        // SAFETY: both handles are alive.
        self.call(|stream| unsafe { raw::stream_wait_event(stream, event.handle, 0) })
    }

    /// Lets later work of this stream begin only when everything queued on `other` so far is done.
    ///
    /// # Errors
    /// The driver's error.
    pub fn wait_for(&self, other: &Stream) -> Result<()> {
        if self == other {
            return Ok(());
        }
        // SAFETY: both handles are alive.
        other.call(|first| unsafe { order(first, self.raw()) })
    }

    /// As `wait_for`, for clean-up: when it cannot be had, waits here for `other`. False when that fails too. `other` is of
    /// the same device.
    pub(crate) fn settle_behind(&self, other: &Stream) -> bool {
        // SAFETY: both handles are alive.
        let ordered = self.device().clean_up(|| unsafe { order(other.raw(), self.raw()) });
        self == other || ordered.is_ok() || other.drain()
    }

    /// Waits, for clean-up, until nothing of the stream runs any more. A dead context runs nothing.
    pub(crate) fn drain(&self) -> bool {
        // SAFETY: the handle is alive.
        is_settled(self.device().clean_up(|| unsafe { raw::stream_synchronize(self.raw()) }))
    }

    /// The driver's handle, for calls that ironwarp does not make. It lives as long as a clone of this stream.
    pub fn raw(&self) -> CUstream {
        self.inner.handle
    }

    pub(crate) fn id(&self) -> u64 {
        self.inner.id
    }

    pub(crate) fn call<T>(&self, calls: impl FnOnce(CUstream) -> RawResult<T>) -> Result<T> {
        self.inner.device.call(|| calls(self.inner.handle))
    }

    pub(crate) fn same_device(&self, what: &'static str, device: &Device) -> Result<()> {
        if *device == self.inner.device {
            return Ok(());
        }
        Err(Error::DeviceMismatch { what, expected: self.inner.device.ordinal(), got: device.ordinal() })
    }
}

impl PartialEq for Stream {
    fn eq(&self, other: &Stream) -> bool {
        self.inner.id == other.inner.id
    }
}

impl Eq for Stream {}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({} on device {})", self.inner.id, self.inner.device.ordinal())
    }
}

/// Lets later work of `then` begin only when what is queued on `first` is done.
///
/// # Safety
/// Both streams are alive, and the context of `first` is current.
unsafe fn order(first: CUstream, then: CUstream) -> RawResult {
    let mut event = std::ptr::null_mut();
    // SAFETY: a place to write to, and live handles. The driver keeps an event for the waits that are queued on it.
    unsafe {
        raw::event_create(&mut event, NO_TIMING)?;
        let ordered = raw::event_record(event, first).and_then(|()| raw::stream_wait_event(then, event, 0));
        let destroyed = raw::event_destroy(event);
        ordered.and(destroyed)
    }
}

/// After a wait that came to this: does nothing run any more?
fn is_settled(wait: RawResult) -> bool {
    wait.map_or_else(|error| error.is_sticky(), |()| true)
}

/// A mark in a stream, reached when the work before it is done.
pub struct Event {
    handle: CUevent,
    device: Device,
    recorded: AtomicBool,
}

// SAFETY: an event handle may be used from any thread.
unsafe impl Send for Event {}
// SAFETY: as above; CUDA's driver API is thread-safe.
unsafe impl Sync for Event {}

impl Drop for Event {
    fn drop(&mut self) {
        // A failure has nobody to go to: the event goes with its context.
        // SAFETY: this is the last use; the driver keeps what pending waits need.
        let _ = self.device.clean_up(|| unsafe { raw::event_destroy(self.handle) });
    }
}

impl Event {
    /// An event that takes the time when it is reached.
    ///
    /// # Errors
    /// The driver's error.
    pub fn new(device: &Device) -> Result<Event> {
        Self::with_flags(device, WITH_TIMING)
    }

    /// An event for order alone: cheaper, and useless for [`Event::elapsed_ms`].
    ///
    /// # Errors
    /// The driver's error.
    pub fn untimed(device: &Device) -> Result<Event> {
        Self::with_flags(device, NO_TIMING)
    }

    fn with_flags(device: &Device, flags: u32) -> Result<Event> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: a place to write to.
        device.call(|| unsafe { raw::event_create(&mut handle, flags) })?;
        Ok(Event { handle, device: device.clone(), recorded: AtomicBool::new(false) })
    }

    /// Waits until the event is reached; returns at once when it was never recorded.
    ///
    /// # Errors
    /// The driver's error, also of work queued before the event.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: the handle is alive.
        self.device.call(|| unsafe { raw::event_synchronize(self.handle) })
    }

    /// Waits, for clean-up, until the event is reached or nothing of its device runs any more. False when neither can be had.
    pub(crate) fn settle(&self) -> bool {
        // SAFETY: the handle is alive.
        let reached = self.device.clean_up(|| unsafe { raw::event_synchronize(self.handle) });
        // SAFETY: takes no arguments.
        is_settled(reached) || is_settled(self.device.clean_up(|| unsafe { raw::ctx_synchronize() }))
    }

    /// Has the event been reached? True when it was never recorded.
    ///
    /// # Errors
    /// The driver's error, also of work queued before the event.
    pub fn is_reached(&self) -> Result<bool> {
        // SAFETY: the handle is alive.
        self.device.call(|| unsafe { raw::event_query(self.handle) })
    }

    /// Milliseconds from `start` to `end`; waits for `end`. Resolution about half a microsecond on a GPU.
    ///
    /// # Errors
    /// [`Error::EventNotRecorded`], [`Error::DeviceMismatch`], or the driver's error (one of them is untimed).
    pub fn elapsed_ms(start: &Event, end: &Event) -> Result<f32> {
        for (event, which) in [(start, "start"), (end, "end")] {
            if !event.recorded.load(Ordering::Acquire) {
                return Err(Error::EventNotRecorded { which });
            }
        }
        if start.device != end.device {
            return Err(Error::DeviceMismatch {
                what: "the end event",
                expected: start.device.ordinal(),
                got: end.device.ordinal(),
            });
        }
        start.synchronize()?;
        end.synchronize()?;
        let mut milliseconds = 0.0;
        // SAFETY: a place to write to and two live events.
        end.device.call(|| unsafe { raw::event_elapsed(&mut milliseconds, start.handle, end.handle) })?;
        Ok(milliseconds)
    }

    /// The driver's handle, alive as long as this event.
    pub fn raw(&self) -> CUevent {
        self.handle
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Event(device {}, recorded: {})",
            self.device.ordinal(),
            self.recorded.load(Ordering::Relaxed)
        )
    }
}
