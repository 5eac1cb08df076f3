//! The driver's stream behind a [`Stream`](crate::Stream), and the idle streams of a device's pool.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::sys::{CUevent, CUstream};

use super::Device;
use crate::error::{Error, Result};
use crate::raw::{self, RawResult};

/// `CU_STREAM_NON_BLOCKING`: no implicit order with the legacy default stream.
const NON_BLOCKING: u32 = 1;
/// `CU_EVENT_DISABLE_TIMING`: cheaper to record.
pub(crate) const NO_TIMING: u32 = 2;
/// Queues that a device keeps for later users of its pool.
const KEPT: usize = 32;

/// A stream of the driver with an event to put other streams behind it. The owner calls [`Queue::destroy`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Queue {
    pub(crate) stream: CUstream,
    /// Marks the end of the queue, whenever another stream is to wait for it.
    pub(crate) mark: CUevent,
    pub(crate) level: u32,
}

// SAFETY: stream and event handles may be used from any thread; CUDA's driver API is thread-safe.
unsafe impl Send for Queue {}
// SAFETY: as above.
unsafe impl Sync for Queue {}

impl Queue {
    /// Creates the stream and the event.
    pub(crate) fn create(device: &Device, level: u32) -> Result<Self> {
        let priority = priority_of(device, level)?;
        device.call(|| {
            let mut queue = Queue { stream: std::ptr::null_mut(), mark: std::ptr::null_mut(), level };
            // SAFETY: places to write to; the stream is fresh and its own.
            unsafe {
                raw::stream_create(&mut queue.stream, NON_BLOCKING, priority)?;
                if let Err(error) = raw::event_create(&mut queue.mark, NO_TIMING) {
                    // The first error is reported. If this call fails too, the stream goes with its context.
                    let _ = raw::stream_destroy(queue.stream);
                    return Err(error);
                }
            }
            Ok(queue)
        })
    }

    /// Destroys the stream and the event. The driver finishes queued work first, and keeps what pending waits
    /// need.
    ///
    /// # Safety
    /// The context is current, and the handles are not used after this.
    pub(crate) unsafe fn destroy(self) -> RawResult {
        // SAFETY: the caller's promise.
        unsafe { raw::event_destroy(self.mark).and(raw::stream_destroy(self.stream)) }
    }

    /// Lets later work of `then` begin only when the work queued here is done.
    ///
    /// # Safety
    /// Both streams are alive, and this one's context is current.
    pub(crate) unsafe fn order_before(&self, then: CUstream) -> RawResult {
        // A wait takes the last record, so a record by another thread in between makes it wait for more,
        // never for less.
        // SAFETY: the caller's promise.
        unsafe {
            raw::event_record(self.mark, self.stream)?;
            raw::stream_wait_event(then, self.mark, 0)
        }
    }
}

/// The driver's number of a priority level.
fn priority_of(device: &Device, level: u32) -> Result<c_int> {
    if level == 0 {
        return Ok(0); // the driver's default, and the least
    }
    let levels = device.priority_levels()?;
    match c_int::try_from(level) {
        Ok(number) if level < levels => Ok(-number),
        _ => Err(Error::InvalidArgument {
            operation: "stream_with_priority",
            argument: "the level",
            got: level.to_string(),
            wanted: format!("0 to {}", levels - 1),
            hint: "0 is the normal priority; `Device::priority_levels` says how many there are",
        }),
    }
}

impl Device {
    /// The number of priorities that streams of the device can have. 0 is the normal one, and each higher
    /// level goes before the lower ones.
    ///
    /// # Errors
    /// The driver's error.
    pub fn priority_levels(&self) -> Result<u32> {
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: two places to write to.
        self.call(|| unsafe { raw::ctx_priority_range(&mut least, &mut greatest) })?;
        Ok((least - greatest).unsigned_abs() + 1)
    }
}

/// Idle queues of a device's pool.
#[derive(Default)]
pub(crate) struct IdleQueues {
    queues: Mutex<VecDeque<Queue>>,
}

impl IdleQueues {
    /// The queue of that level that has been idle longest, if its work is done.
    pub(crate) fn take(&self, device: &Device, level: u32) -> Result<Option<Queue>> {
        let Some(queue) = self.remove(level) else { return Ok(None) };
        // SAFETY: it was not destroyed.
        let idle = device.call(|| unsafe { raw::stream_query(queue.stream) });
        if let Ok(true) = idle {
            return Ok(Some(queue));
        }
        // There is room: one was just taken. One queue too many would do no harm.
        self.queues().push_back(queue);
        idle.map(|_| None)
    }

    fn remove(&self, level: u32) -> Option<Queue> {
        let mut queues = self.queues();
        let position = queues.iter().position(|queue| queue.level == level)?;
        queues.remove(position)
    }

    /// Keeps a queue for the next user. False when there are enough.
    pub(crate) fn put(&self, queue: Queue) -> bool {
        let mut queues = self.queues();
        if queues.len() >= KEPT {
            return false;
        }
        queues.push_back(queue);
        true
    }

    /// Destroys all idle queues. The context is current.
    pub(crate) fn destroy_all(&self) {
        for queue in self.queues().drain(..) {
            // A drop cannot return an error; the context frees its streams at its end.
            // SAFETY: the context is current by this function's contract, and idle queues have no other user.
            let _ = unsafe { queue.destroy() };
        }
    }

    fn queues(&self) -> MutexGuard<'_, VecDeque<Queue>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
