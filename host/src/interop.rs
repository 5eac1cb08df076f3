//! Beside cust: its device buffers taken over and handed out without a copy, its pointers and errors.

use bytemuck::Pod;
use cust::error::CudaError;
use cust::memory::{DeviceCopy, DevicePointer};

use crate::error::{DriverError, Error, Result};
use crate::memory::{DeviceBuffer, DevicePtr};
use crate::stream::Stream;

impl From<CudaError> for Error {
    /// cust keeps the code of a failed call and not its name.
    fn from(error: CudaError) -> Self {
        Error::Driver(DriverError::new("a call through cust", error as i32))
    }
}

impl<T: DeviceCopy> From<DevicePointer<T>> for DevicePtr<T> {
    fn from(pointer: DevicePointer<T>) -> Self {
        DevicePtr::from_raw(pointer.as_raw())
    }
}

impl<T: Pod + DeviceCopy> DeviceBuffer<T> {
    /// Takes over a buffer of cust's; no element moves.
    ///
    /// # Safety
    /// It was allocated in the primary context of `stream`'s device, and work on it by other streams is done.
    pub unsafe fn from_cust(stream: &Stream, buffer: cust::memory::DeviceBuffer<T>) -> Self {
        let buffer = std::mem::ManuallyDrop::new(buffer);
        let len = buffer.as_slice().len();
        let address = if len * size_of::<T>() == 0 { 0 } else { buffer.as_slice().as_device_ptr().as_raw() };
        // SAFETY: cust's own free is forgone, so this is the memory's one owner; the rest is the caller's promise.
        unsafe { DeviceBuffer::adopt(stream, address, len) }
    }

    /// Hands the elements to cust, in an allocation of their own: one that came from cust as it is, else a copy. Waits for the work
    /// that uses them.
    ///
    /// # Errors
    /// The driver's error, also of work queued earlier. The buffer is freed then.
    pub fn into_cust(self) -> Result<cust::memory::DeviceBuffer<T>> {
        let len = self.len();
        let address = self.release()?;
        // SAFETY: `len` elements lie there, owned by nobody else now, and no work on them is pending.
        Ok(unsafe { cust::memory::DeviceBuffer::from_raw_parts(DevicePointer::from_raw(address), len) })
    }
}
