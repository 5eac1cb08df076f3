//! Interoperation with cust, the feature `cust`: takes over its device buffers and lends ours to it without a
//! copy; converts its pointers and errors.

use std::mem::ManuallyDrop;
use std::ops::Deref;

use bytemuck::Pod;
use cust::error::CudaError;
use cust::memory::{DeviceCopy, DevicePointer};

use crate::error::{DriverError, Error, Result};
use crate::memory::{DeviceBuffer, DevicePtr};
use crate::stream::Stream;

impl From<CudaError> for Error {
    /// cust keeps the code of a failed call, but not its name.
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
    /// ```no_run
    /// # fn f(stream: &ironwarp::Stream, buffer: cust::memory::DeviceBuffer<f32>) -> ironwarp::Result<()> {
    /// use ironwarp::{DeviceBuffer, Tensor};
    /// // SAFETY: allocated in this device's primary context, with no work pending on other streams.
    /// let buffer = unsafe { DeviceBuffer::from_cust(stream, buffer) };
    /// let x = Tensor::from_buffer(buffer, &[16, 16])?;
    /// let back: cust::memory::DeviceBuffer<f32> = x.into_buffer::<f32>()?.into_cust()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Safety
    /// It was allocated in the primary context of `stream`'s device, and work on it by other streams is done.
    pub unsafe fn from_cust(stream: &Stream, buffer: cust::memory::DeviceBuffer<T>) -> Self {
        let buffer = ManuallyDrop::new(buffer);
        let len = buffer.as_slice().len();
        let address = if len * size_of::<T>() == 0 { 0 } else { buffer.as_slice().as_device_ptr().as_raw() };
        // SAFETY: cust does not free it, so this is the memory's one owner; the rest is the caller's promise.
        unsafe { DeviceBuffer::from_raw(stream, address, len) }
    }

    /// The buffer as one of cust's, for as long as the returned value lives; no element moves. Waits for the
    /// work that uses it. Work that cust queues on it has to be done before the loan ends.
    /// [`CustLoan::get_mut`] lets cust write it.
    ///
    /// # Errors
    /// The driver's error, also of work queued earlier.
    pub fn lend_to_cust(&mut self) -> Result<CustLoan<'_, T>> {
        self.synchronize()?;
        let pointer = DevicePointer::from_raw(self.as_ptr().raw());
        // SAFETY: `len` elements lie there, exclusively borrowed; `ManuallyDrop` keeps cust from freeing
        // them.
        let theirs = unsafe { cust::memory::DeviceBuffer::from_raw_parts(pointer, self.len()) };
        Ok(CustLoan { theirs: ManuallyDrop::new(theirs), _ours: self })
    }

    /// Hands the elements to cust, which then owns and frees them. An allocation that came from cust is
    /// handed over as it is. Other memory belongs to the device's pool, and cust must not free it, so cust
    /// gets a copy ([`DeviceBuffer::lend_to_cust`] copies nothing). Waits for the work that uses them.
    ///
    /// # Errors
    /// [`Error::NotCapturable`] while a capture is under way and a capture or graph uses the buffer, or the
    /// driver's error, also of work queued earlier. The buffer is freed then.
    #[track_caller]
    pub fn into_cust(self) -> Result<cust::memory::DeviceBuffer<T>> {
        let len = self.len();
        let address = self.into_raw()?;
        // SAFETY: `len` elements lie there, without another owner, and no work on them is pending.
        Ok(unsafe { cust::memory::DeviceBuffer::from_raw_parts(DevicePointer::from_raw(address), len) })
    }
}

/// A buffer of ours as one of cust's: shared by default, exclusive with [`CustLoan::get_mut`].
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
    /// Only its elements may be written. Do not put another buffer in its place (`std::mem::swap`, an
    /// assignment): that would move our memory out and free it.
    pub unsafe fn get_mut(&mut self) -> &mut cust::memory::DeviceBuffer<T> {
        &mut self.theirs
    }
}
