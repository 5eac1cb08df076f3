//! Launches of kernels that take a plan by value, tensors and, some of them, sums in f32.

use cuda_std::kernel::{Kernel, Ptr, PtrMut, Value};

use crate::error::Result;
use crate::launch::{LaunchConfig, launch};
use crate::memory::DeviceBuffer;
use crate::stream::Stream;
use crate::tensor::{Element, Tensor, TensorMut};

/// As [`gathers`].
type Gathers<P> =
    unsafe fn(&Stream, LaunchConfig, P, [&Tensor; 2], Option<&Tensor>, TensorMut<'_>) -> Result<()>;
/// As [`sums`].
type Sums<P> = unsafe fn(&Stream, LaunchConfig, P, [&Tensor; 2], &DeviceBuffer<f32>) -> Result<()>;

/// The launches of an element type's kernels that take plans `P`.
#[derive(Clone, Copy)]
pub(super) struct Launches<P> {
    pub gathers: Gathers<P>,
    pub sums: Sums<P>,
}

/// Queues a kernel that makes results, or the input's gradient, from what is read, filters and a bias.
///
/// # Safety
/// Plan, configuration and tensors are as the kernel `K` wants them.
pub(super) unsafe fn gathers<P: Copy, T: Element, K>(
    stream: &Stream,
    config: LaunchConfig,
    plan: P,
    [read, filters]: [&Tensor; 2],
    bias: Option<&Tensor>,
    out: TensorMut<'_>,
) -> Result<()>
where
    K: Kernel<Params = (Value<P>, Ptr<T>, Ptr<T>, Ptr<T>, PtrMut<T>)>,
{
    let (read, filters) = (read.read::<T>(stream)?, filters.read::<T>(stream)?);
    let bias = bias.map(|bias| bias.read::<T>(stream)).transpose()?;
    let out = out.write::<T>(stream)?;
    // SAFETY: the caller's promise; the result is exclusively borrowed.
    unsafe { launch::<K>(stream, config, (plan, read, filters, bias, out)) }
}

/// Queues a kernel that makes sums of the filters' gradient, in parts, from the input and the result's
/// gradient.
///
/// # Safety
/// Plan, configuration, tensors and sums are as the kernel `K` wants them.
pub(super) unsafe fn sums<P: Copy, T: Element, K>(
    stream: &Stream,
    config: LaunchConfig,
    plan: P,
    [x, gradient]: [&Tensor; 2],
    sums: &DeviceBuffer<f32>,
) -> Result<()>
where
    K: Kernel<Params = (Value<P>, Ptr<T>, Ptr<T>, PtrMut<f32>)>,
{
    let (x, gradient) = (x.read::<T>(stream)?, gradient.read::<T>(stream)?);
    // SAFETY: the caller's promise.
    unsafe { launch::<K>(stream, config, (plan, gradient, x, sums.view().within())) }
}
