//! Streams that are being captured, and the values that a capture keeps.

use std::any::Any;
use std::ffi::c_int;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Stream;
use crate::device::Device;
use crate::error::{DriverError, Error, LaunchSite, Result};
use crate::extensions::Extensions;
use crate::raw;

/// `CU_STREAM_CAPTURE_STATUS_ACTIVE`.
const ACTIVE: c_int = 1;
/// `CU_STREAM_CAPTURE_STATUS_INVALIDATED`.
const INVALIDATED: c_int = 2;
/// `CUDA_ERROR_STREAM_CAPTURE_INVALIDATED`.
const CAPTURE_INVALIDATED: i32 = 901;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// If the stream is being captured, keeps it until the capture ends: the pool must not give it out
    /// before.
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

/// Something that a graph keeps for as long as it lives.
pub(crate) type Kept = Arc<dyn Any + Send + Sync>;

/// The state of a capture so far.
pub(crate) struct Capture {
    device: Device,
    launches: Mutex<Vec<LaunchSite>>,
    kept: Mutex<Vec<Kept>>,
    /// The captured streams.
    streams: Mutex<Vec<Stream>>,
    extensions: Extensions,
}

impl Capture {
    /// The state for a stream that is about to be captured.
    pub(crate) fn new(stream: &Stream) -> Self {
        Capture {
            device: stream.device().clone(),
            launches: Mutex::default(),
            kept: Mutex::default(),
            streams: Mutex::new(vec![stream.clone()]),
            extensions: Extensions::default(),
        }
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// The value of type `T` that another layer keeps with the capture.
    pub(crate) fn extension<T: Any + Send + Sync>(&self, make: impl Fn() -> T) -> &T {
        self.extensions.get(make)
    }

    pub(crate) fn note_launch(&self, site: LaunchSite) {
        locked(&self.launches).push(site);
    }

    /// Adds something for the graph to keep, such as the code of a launch.
    pub(crate) fn keep_alive(&self, kept: Kept) {
        let mut all = locked(&self.kept);
        if !all.iter().any(|known| Arc::ptr_eq(known, &kept)) {
            all.push(kept);
        }
    }

    fn keep(&self, stream: &Stream) {
        let mut streams = locked(&self.streams);
        if !streams.contains(stream) {
            streams.push(stream.clone());
        }
    }

    /// Takes, at the end of the capture, the launches and everything that the graph keeps.
    pub(crate) fn take(&self) -> (Vec<LaunchSite>, Vec<Kept>) {
        (std::mem::take(&mut *locked(&self.launches)), std::mem::take(&mut *locked(&self.kept)))
    }
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Capture of {:?}", locked(&self.streams))
    }
}
