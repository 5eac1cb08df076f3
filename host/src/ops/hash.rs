//! Hashes of tensors: whether two of them have the same bits, without copying them anywhere.

use basic::hash as kernel;

use crate::error::Result;
use crate::launch::{LaunchConfig, launch};
use crate::memory::DeviceBuffer;
use crate::stream::Stream;
use crate::tensor::{Tensor, TensorError};

/// Queues a hash of each tensor's bytes, 64 bits as an i64 each, in their order. Tensors of the same bytes
/// have the same hash, on every device and in every run; others have another one but for one case in 2^64,
/// unless somebody chose the bytes for that. Shapes and types do not count, lengths do.
///
/// # Errors
/// [`TensorError::NotContiguous`], [`crate::Error::DeviceMismatch`], [`crate::Error::OutOfMemory`], or the
/// driver's error.
#[track_caller]
pub fn hash_bytes(stream: &Stream, tensors: &[&Tensor]) -> Result<DeviceBuffer<i64>> {
    let mut hashes = DeviceBuffer::<i64>::zeroed(stream, tensors.len())?;
    for (number, tensor) in tensors.iter().enumerate() {
        if !tensor.is_contiguous() {
            let (shape, strides) = (tensor.shape().clone(), tensor.layout().strides().to_vec());
            return Err(TensorError::NotContiguous { operation: "hash_bytes", shape, strides }.into());
        }
        let bytes = tensor.span_bytes()?;
        let config = LaunchConfig::new([kernel::blocks(bytes.len()), 1, 1], [kernel::THREADS, 1, 1]);
        let out = hashes.view_mut().slice_mut(number..=number)?.into_view();
        // SAFETY: the grid and block that the kernel asks for; `out` is one zero of a buffer of our own, of
        // the size of a u64.
        unsafe { launch::<kernel::hash_bytes>(stream, config, (bytes, out.within().cast::<u64>()))? };
    }
    Ok(hashes)
}
