//! Reports on a device's memory, and limits for it.

use arena::{Snapshot, Stats};

use super::allocator::{Kind, Source};
use crate::device::Device;
use crate::error::{Error, Result};

impl Device {
    /// Counts and bytes of the memory that its buffers hold. With `IRONWARP_ALLOCATOR=passthrough` nothing is
    /// cached, and all numbers are 0.
    pub fn memory_stats(&self) -> Stats {
        self.allocator().device.stats()
    }

    /// The same for page-locked host memory.
    pub fn pinned_stats(&self) -> Stats {
        self.allocator().pinned.stats()
    }

    /// Starts the peaks of [`Device::memory_stats`] and [`Device::pinned_stats`] again from the present
    /// values.
    pub fn reset_memory_peaks(&self) {
        self.allocator().device.reset_peaks();
        self.allocator().pinned.reset_peaks();
    }

    /// Every segment and block of its buffers, for [`Snapshot::to_json`] and [`Snapshot::to_svg`].
    ///
    /// ```
    /// # use ironwarp::{Device, DeviceBuffer};
    /// # fn main() -> ironwarp::Result<()> {
    /// # let device = Device::open(0)?;
    /// # let stream = device.stream()?;
    /// let weights = DeviceBuffer::<f32>::zeroed(&stream, 1 << 20)?;
    /// let snapshot = device.memory_snapshot();
    /// assert!(snapshot.holders(1)[0].bytes >= 4 << 20); // more where blocks are rounded up, or have gaps
    /// let picture = snapshot.to_svg(); // for a browser: each block's size and line under the pointer
    /// # Ok(())
    /// # }
    /// ```
    pub fn memory_snapshot(&self) -> Snapshot {
        self.allocator().device.snapshot()
    }

    /// Lets buffers take at most `bytes` bytes from the device, with the memory kept for later buffers;
    /// `None` means no limit. Memory that was already taken stays.
    pub fn set_memory_limit(&self, bytes: Option<usize>) {
        self.allocator().device.set_limit(bytes.map(|bytes| bytes as u64));
    }

    /// Waits for the device and gives back the memory that is kept for later buffers, except that of captured
    /// graphs. While a stream of the device is being captured, it waits for the others one by one.
    ///
    /// # Errors
    /// The driver's error, also of work queued earlier.
    pub fn trim_pool(&self) -> Result<()> {
        self.allocator().device.release_idle(&Source { device: self, kind: Kind::Device })?;
        self.allocator().pinned.release_idle(&Source { device: self, kind: Kind::Pinned })?;
        self.trim_driver_pool()
    }
}

/// Calls `step` with a batch size. While memory runs out, it halves the size, down to 1. Before each further
/// call it gives back the memory that is kept for later. Returns the size that worked, and the result of
/// `step`.
///
/// ```no_run
/// # use ironwarp::{Device, DeviceBuffer, with_oom_retry};
/// # fn main() -> ironwarp::Result<()> {
/// # let device = Device::open(0)?;
/// # let stream = device.stream()?;
/// let (batch, buffer) =
///     with_oom_retry(&device, 4096, |batch| DeviceBuffer::<f32>::zeroed(&stream, batch << 20))?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`Error::OutOfMemory`] when a batch of 1 does not fit, or another error of `step`.
pub fn with_oom_retry<T>(
    device: &Device,
    batch: usize,
    mut step: impl FnMut(usize) -> Result<T>,
) -> Result<(usize, T)> {
    let mut batch = batch;
    loop {
        match step(batch) {
            Err(Error::OutOfMemory(_)) if batch > 1 => batch /= 2,
            done => return done.map(|value| (batch, value)),
        }
        device.trim_pool()?;
    }
}
