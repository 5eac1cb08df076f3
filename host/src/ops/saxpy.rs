//! `y = a x + y`.

use basic::saxpy as kernel;

use crate::error::Result;
use crate::launch::{LaunchConfig, launch};
use crate::memory::{DeviceView, DeviceViewMut, same_length};
use crate::stream::Stream;

/// Queues `y[i] = a * x[i] + y[i]`, each element rounded once. Any length and alignment; nothing to do for
/// empty vectors.
///
/// # Errors
/// [`crate::Error::Length`] when the lengths differ, [`crate::Error::DeviceMismatch`], or the driver's error.
pub fn saxpy<'x, 'y>(
    stream: &Stream,
    a: f32,
    x: impl Into<DeviceView<'x, f32>>,
    y: impl Into<DeviceViewMut<'y, f32>>,
) -> Result<()> {
    let (x, y) = (x.into(), y.into());
    same_length("saxpy", "y", x.len(), y.len())?;
    if x.is_empty() {
        return Ok(());
    }
    // More blocks than a grid holds become an error of the launch.
    let blocks = u32::try_from(kernel::blocks(x.len())).unwrap_or(u32::MAX);
    let config = LaunchConfig::new([blocks, 1, 1], [kernel::THREADS, 1, 1]).overlapping_previous();
    // SAFETY: equal lengths, y is exclusively borrowed, and grid and block are what the kernel asks for.
    unsafe { launch::<kernel::saxpy>(stream, config, (a, x, y)) }
}
