//! Sum and maximum of the f32 elements of a buffer, without a tensor. The same bits in every run and on every
//! device.

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
#[track_caller]
pub fn buffer_sum<'x>(stream: &Stream, x: impl Into<DeviceView<'x, f32>>) -> Result<f32> {
    to_host(stream, |out| buffer_sum_into(stream, x, out))
}

/// The maximum of `x`, minus infinity when it is empty, NaN when there is one in it; waits for it.
///
/// # Errors
/// As [`buffer_sum`].
#[track_caller]
pub fn buffer_amax<'x>(stream: &Stream, x: impl Into<DeviceView<'x, f32>>) -> Result<f32> {
    to_host(stream, |out| buffer_amax_into(stream, x, out))
}

/// Queues [`buffer_sum`] with the result written to the one element of `out`.
///
/// # Errors
/// As [`buffer_sum`], and [`crate::Error::Length`] when `out` does not have one element.
#[track_caller]
pub fn buffer_sum_into<'x, 'o>(
    stream: &Stream,
    x: impl Into<DeviceView<'x, f32>>,
    out: impl Into<DeviceViewMut<'o, f32>>,
) -> Result<()> {
    reduce::<kernel::reduce_sum>(stream, "reduce::buffer_sum", x.into(), out.into())
}

/// Queues [`buffer_amax`] with the result written to the one element of `out`.
///
/// # Errors
/// As [`buffer_sum_into`].
#[track_caller]
pub fn buffer_amax_into<'x, 'o>(
    stream: &Stream,
    x: impl Into<DeviceView<'x, f32>>,
    out: impl Into<DeviceViewMut<'o, f32>>,
) -> Result<()> {
    reduce::<kernel::reduce_max>(stream, "reduce::buffer_amax", x.into(), out.into())
}

#[track_caller]
fn to_host(stream: &Stream, reduce: impl FnOnce(&mut DeviceBuffer<f32>) -> Result<()>) -> Result<f32> {
    let mut out = DeviceBuffer::zeroed(stream, 1)?;
    reduce(&mut out)?;
    let mut value = [0.0];
    out.copy_into(stream, &mut value)?;
    Ok(value[0])
}

#[track_caller]
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
