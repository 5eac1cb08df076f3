//! Beside cust: its device buffers taken over and ours lent to it without a copy, its pointers and errors.

use std::mem::ManuallyDrop;
use std::ops::Deref;

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
        let buffer = ManuallyDrop::new(buffer);
        let len = buffer.as_slice().len();
        let address = if len * size_of::<T>() == 0 { 0 } else { buffer.as_slice().as_device_ptr().as_raw() };
        // SAFETY: cust's own free is forgone, so this is the memory's one owner; the rest is the caller's promise.
        unsafe { DeviceBuffer::adopt(stream, address, len) }
    }

    /// The buffer as one of cust's, for as long as the returned value lives; no element moves. Waits for the work that uses it.
    /// Work that cust queues on it has to be done before the loan ends. [`CustLoan::get_mut`] lets cust write it.
    ///
    /// # Errors
    /// The driver's error, also of work queued earlier.
    pub fn lend_to_cust(&mut self) -> Result<CustLoan<'_, T>> {
        self.wait()?;
        let pointer = DevicePointer::from_raw(self.as_ptr().raw());
        // SAFETY: `len` elements lie there, exclusively borrowed; `ManuallyDrop` keeps cust from freeing them.
        let theirs = unsafe { cust::memory::DeviceBuffer::from_raw_parts(pointer, self.len()) };
        Ok(CustLoan { theirs: ManuallyDrop::new(theirs), _ours: self })
    }

    /// Hands the elements to cust for good, which frees them by itself: an allocation that came from cust as it is, else a copy,
    /// since the memory of the device's pool is not cust's to free ([`DeviceBuffer::lend_to_cust`] copies nothing). Waits
    /// for the work that uses them.
    ///
    /// # Errors
    /// [`Error::NotCapturable`] while a capture is under way and a capture or graph uses the buffer, or the driver's
    /// error, also of work queued earlier. The buffer is freed then.
    pub fn into_cust(self) -> Result<cust::memory::DeviceBuffer<T>> {
        let len = self.len();
        let address = self.release()?;
        // SAFETY: `len` elements lie there, owned by nobody else now, and no work on them is pending.
        Ok(unsafe { cust::memory::DeviceBuffer::from_raw_parts(DevicePointer::from_raw(address), len) })
    }
}

/// A buffer of ours as cust sees it: shared by itself, exclusive with [`CustLoan::get_mut`].
#[must_use = "the loan ends when this is dropped"]
pub struct CustLoan<'b, T: Pod + DeviceCopy> {
    theirs: ManuallyDrop<cust::memory::DeviceBuffer<T>>,
    _ours: &'b mut DeviceBuffer<T>,
}

impl<T: Pod + DeviceCopy> Deref for CustLoan<'_, T> {
    type Target = cust::memory::DeviceBuffer<T>;

    fn deref(&self) -> &Self::Target {
        &self.theirs
    }
}

impl<T: Pod + DeviceCopy> CustLoan<'_, T> {
    /// The buffer, for cust to write.
    ///
    /// # Safety
    /// Its elements are written, and nothing else: a buffer that is put in the place of this one (`std::mem::swap`, an assignment)
    /// would take our memory with it, and free it.
    pub unsafe fn get_mut(&mut self) -> &mut cust::memory::DeviceBuffer<T> {
        &mut self.theirs
    }
}
