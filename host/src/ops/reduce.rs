//! Sum and maximum of a vector, the same bits in every run and on every device.

use basic::reduce as kernel;
use cuda_std::kernel::{Kernel, PtrMut, Slice};

use crate::error::Result;
use crate::launch::{LaunchConfig, launch};
use crate::memory::{DeviceBuffer, DeviceView, DeviceViewMut, same_length};
use crate::stream::Stream;

/// The sum of `x`, 0 when it is empty; waits for it. NaN and infinities follow IEEE 754.
///
/// # Errors
/// [`crate::Error::DeviceMismatch`], [`crate::Error::OutOfMemory`], or the driver's error.
pub fn sum<'x>(stream: &Stream, x: impl Into<DeviceView<'x, f32>>) -> Result<f32> {
    to_host(stream, |out| sum_into(stream, x, out))
}

/// The maximum of `x`, minus infinity when it is empty, NaN when there is one in it; waits for it.
///
/// # Errors
/// As [`sum`].
pub fn max<'x>(stream: &Stream, x: impl Into<DeviceView<'x, f32>>) -> Result<f32> {
    to_host(stream, |out| max_into(stream, x, out))
}

/// Queues [`sum`] with the result written to the one element of `out`.
///
/// # Errors
/// As [`sum`], and [`crate::Error::Length`] when `out` does not have one element.
pub fn sum_into<'x, 'o>(
    stream: &Stream,
    x: impl Into<DeviceView<'x, f32>>,
    out: impl Into<DeviceViewMut<'o, f32>>,
) -> Result<()> {
    reduce::<kernel::reduce_sum>(stream, "reduce::sum", x.into(), out.into())
}

/// Queues [`max`] with the result written to the one element of `out`.
///
/// # Errors
/// As [`sum_into`].
pub fn max_into<'x, 'o>(
    stream: &Stream,
    x: impl Into<DeviceView<'x, f32>>,
    out: impl Into<DeviceViewMut<'o, f32>>,
) -> Result<()> {
    reduce::<kernel::reduce_max>(stream, "reduce::max", x.into(), out.into())
}

fn to_host(stream: &Stream, reduce: impl FnOnce(&mut DeviceBuffer<f32>) -> Result<()>) -> Result<f32> {
    let mut out = DeviceBuffer::zeroed(stream, 1)?;
    reduce(&mut out)?;
    let mut value = [0.0];
    out.copy_into(stream, &mut value)?;
    Ok(value[0])
}

fn reduce<K: Kernel<Params = (Slice<f32>, PtrMut<f32>)>>(
    stream: &Stream,
    operation: &'static str,
    x: DeviceView<'_, f32>,
    out: DeviceViewMut<'_, f32>,
) -> Result<()> {
    same_length(operation, "out", 1, out.len())?;
    let config = |blocks: u32| LaunchConfig::new([blocks, 1, 1], [kernel::THREADS, 1, 1]);
    let partials = kernel::partials(x.len());
    if partials == 1 {
        // SAFETY: one block writes one element, and out is exclusively borrowed.
        return unsafe { launch::<K>(stream, config(1), (x, out)) };
    }
    // SAFETY: stage 1 writes every element before stage 2 reads it.
    let mut workspace = unsafe { DeviceBuffer::uninit(stream, partials as usize)? };
    // SAFETY: `partials` blocks write as many elements; then one block writes one.
    unsafe {
        launch::<K>(stream, config(partials), (x, &mut workspace))?;
        launch::<K>(stream, config(1), (&workspace, out))
    }
}
