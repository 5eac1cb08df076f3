//! Events: marks in streams.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::sys::CUevent;

use crate::device::{Device, NO_TIMING};
use crate::error::{DriverError, Error, Result};
use crate::raw;

/// `CU_EVENT_DEFAULT`: with timing.
const WITH_TIMING: u32 = 0;

/// A mark in a stream, reached when the work before it is done.
pub struct Event {
    handle: CUevent,
    device: Device,
    recorded: AtomicBool,
    /// Whether it marks a place in a graph: it was recorded last on a stream that was being captured.
    captured: AtomicBool,
}

// SAFETY: an event handle may be used from any thread.
unsafe impl Send for Event {}
// SAFETY: as above; CUDA's driver API is thread-safe.
unsafe impl Sync for Event {}

impl Drop for Event {
    fn drop(&mut self) {
        // A drop cannot return an error; the context frees the event at its end.
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
        Ok(Event {
            handle,
            device: device.clone(),
            recorded: AtomicBool::new(false),
            captured: AtomicBool::new(false),
        })
    }

    /// Waits until the event is reached; returns at once when it was never recorded.
    ///
    /// # Errors
    /// [`Error::NotCapturable`] when it was recorded inside a capture, or the driver's error, also of work
    /// queued before the event.
    pub fn synchronize(&self) -> Result<()> {
        self.must_not_be_captured("Event::synchronize")?;
        // SAFETY: the handle is alive.
        self.device.call(|| unsafe { raw::event_synchronize(self.handle) })
    }

    /// Whether the event has been reached. True when it was never recorded.
    ///
    /// # Errors
    /// [`Error::NotCapturable`] when it was recorded inside a capture, or the driver's error, also of work
    /// queued before the event.
    pub fn is_reached(&self) -> Result<bool> {
        self.must_not_be_captured("Event::is_reached")?;
        // SAFETY: the handle is alive.
        self.device.call(|| unsafe { raw::event_query(self.handle) })
    }

    /// Milliseconds from `start` to `end`; waits for `end`. Resolution about half a microsecond on a GPU.
    ///
    /// # Errors
    /// [`Error::EventNotRecorded`], [`Error::DeviceMismatch`], [`Error::NotCapturable`] when one was recorded
    /// inside a capture, or the driver's error (one of them is untimed).
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

    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    /// After an error of a wait for the event, which may be of the waiting stream's context or of the
    /// event's: if the latter died, its device remembers that, and the other one does not.
    pub(super) fn blame(&self, error: &DriverError) -> Result<()> {
        if !error.is_sticky() {
            return Ok(());
        }
        // SAFETY: the handle is alive.
        match self.device.call(|| unsafe { raw::event_query(self.handle) }) {
            Err(died @ Error::Sticky { .. }) => Err(died),
            _ => Ok(()),
        }
    }

    pub(super) fn now_recorded(&self, captured: bool) {
        self.recorded.store(true, Ordering::Release);
        self.captured.store(captured, Ordering::Release);
    }

    /// An error if the event was recorded inside a capture: the driver would abort the whole capture.
    fn must_not_be_captured(&self, operation: &'static str) -> Result<()> {
        if !self.captured.load(Ordering::Acquire) {
            return Ok(());
        }
        Err(Error::NotCapturable {
            operation,
            reason: "an event recorded inside a capture marks a place in the graph, which no stream reaches before a replay",
            hint: "record the event again, on a stream that is not captured",
        })
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
