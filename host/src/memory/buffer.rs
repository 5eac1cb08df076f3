//! Owned arrays in device memory.

use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::panic::Location;

use crate::sys::CUdeviceptr;
use bytemuck::Pod;

use super::allocation::Allocation;
use super::pinned::PinnedBuffer;
use super::view::{DevicePtr, DeviceView, DeviceViewMut};
use super::{ALIGNMENT, byte_size, same_length};
use crate::device::Device;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::stream::Stream;

/// An array of `T` in device memory.
///
/// It belongs to the device of the stream that it was made with, and may be used with any stream of that
/// device: when it moves to another stream, that stream waits for earlier work on the buffer. When it is
/// dropped, its memory goes back to the stream that made it, for later buffers: at once if no other stream
/// has used it, else when those streams are done with it. Lengths of 0 are allowed everywhere.
pub struct DeviceBuffer<T> {
    allocation: Allocation,
    len: usize,
    element: PhantomData<T>,
}

impl<T: Pod> DeviceBuffer<T> {
    /// `len` elements of unknown contents. Types that are aligned to more than 256 bytes do not compile.
    ///
    /// # Safety
    /// The elements are written before anything reads them.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::SizeOverflow`], or the driver's error.
    #[track_caller]
    pub unsafe fn uninit(stream: &Stream, len: usize) -> Result<Self> {
        const { assert!(align_of::<T>() <= ALIGNMENT, "elements are aligned to at most 256 bytes") };
        let allocation = Allocation::new(stream, byte_size::<T>(len)?, Location::caller())?;
        Ok(DeviceBuffer { allocation, len, element: PhantomData })
    }

    /// `len` elements with all bits zero.
    ///
    /// # Errors
    /// As [`DeviceBuffer::uninit`].
    #[track_caller]
    pub fn zeroed(stream: &Stream, len: usize) -> Result<Self> {
        // SAFETY: filled on the same stream before any other use.
        let mut buffer = unsafe { Self::uninit(stream, len)? };
        buffer.fill_zero(stream)?;
        Ok(buffer)
    }

    /// A copy of `from`, which is free again when this returns.
    ///
    /// # Errors
    /// As [`DeviceBuffer::uninit`], and [`Error::NotCapturable`] on a stream that is being captured.
    #[track_caller]
    pub fn from_slice(stream: &Stream, from: &[T]) -> Result<Self> {
        // SAFETY: filled before any other use.
        let mut buffer = unsafe { Self::uninit(stream, from.len())? };
        buffer.copy_from_slice(stream, from)?;
        Ok(buffer)
    }

    /// A copy of `from`, queued; see [`DeviceBuffer::copy_from_pinned`].
    ///
    /// # Errors
    /// As [`DeviceBuffer::uninit`], and [`Error::NotCapturable`] on a stream that is being captured.
    #[track_caller]
    pub fn from_pinned(stream: &Stream, from: &PinnedBuffer<T>) -> Result<Self> {
        // SAFETY: filled on the same stream before any other use.
        let mut buffer = unsafe { Self::uninit(stream, from.len())? };
        buffer.copy_from_pinned(stream, from)?;
        Ok(buffer)
    }

    /// Takes over `len` elements at `address`, for instance from another library: the buffer frees them with
    /// `cuMemFree`. Without bytes the address is 0.
    ///
    /// # Safety
    /// They lie there, valid, in an allocation of their own in the primary context of `stream`'s device. No
    /// other code frees it, and no work on it is pending on other streams.
    pub unsafe fn from_raw(stream: &Stream, address: CUdeviceptr, len: usize) -> Self {
        // SAFETY: the caller's promise.
        let allocation = unsafe { Allocation::adopt(stream, address) };
        DeviceBuffer { allocation, len, element: PhantomData }
    }

    /// Gives the elements up, as an allocation of the driver's own with no work pending on it; 0 without
    /// bytes. The caller frees it with `cuMemFree`. What [`DeviceBuffer::from_raw`] took over comes back as
    /// it is; other memory belongs to the device's pool and is copied.
    ///
    /// # Errors
    /// [`Error::NotCapturable`](crate::Error::NotCapturable) while a capture is under way and a capture or
    /// graph uses the buffer, or the driver's error, also of work queued earlier. The buffer is freed then.
    #[track_caller]
    pub fn into_raw(self) -> Result<CUdeviceptr> {
        self.allocation.release(self.len * size_of::<T>(), Location::caller())
    }

    /// The same bytes as elements of another type. Bytes at the end that make no whole element cannot be
    /// reached.
    pub(crate) fn cast<U: Pod>(self) -> DeviceBuffer<U> {
        // An allocation is aligned for every element type, and every bit pattern is a value of a Pod type.
        let len = self.len * size_of::<T>() / size_of::<U>().max(1);
        DeviceBuffer { allocation: self.allocation, len, element: PhantomData }
    }

    /// Waits for the work that uses it.
    ///
    /// # Errors
    /// The driver's error, also of work queued earlier.
    pub fn synchronize(&self) -> Result<()> {
        self.allocation.uses().wait()
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The device that holds it.
    pub fn device(&self) -> &Device {
        self.allocation.device()
    }

    /// Address of its first element; null when it has no bytes.
    pub fn as_ptr(&self) -> DevicePtr<T> {
        DevicePtr::from_raw(self.allocation.address())
    }

    /// All of it, shared.
    pub fn view(&self) -> DeviceView<'_, T> {
        DeviceView::whole(&self.allocation, self.len)
    }

    /// All of it, exclusive.
    pub fn view_mut(&mut self) -> DeviceViewMut<'_, T> {
        DeviceViewMut::whole(&mut self.allocation, self.len)
    }

    /// A part of it, shared.
    ///
    /// # Errors
    /// [`Error::Range`].
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<DeviceView<'_, T>> {
        self.view().slice(range)
    }

    /// A part of it, exclusive.
    ///
    /// # Errors
    /// [`Error::Range`].
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> Result<DeviceViewMut<'_, T>> {
        self.view_mut().slice_mut(range)
    }

    /// The elements; waits for `stream` and for earlier users of the buffer.
    ///
    /// # Errors
    /// As [`DeviceView::to_vec`].
    pub fn to_vec(&self, stream: &Stream) -> Result<Vec<T>> {
        self.view().to_vec(stream)
    }

    /// Copies the elements to `out`; done when it returns.
    ///
    /// # Errors
    /// [`Error::Length`], [`Error::DeviceMismatch`], [`Error::NotCapturable`] on a stream that is being
    /// captured, or the driver's error.
    pub fn copy_into(&self, stream: &Stream, out: &mut [T]) -> Result<()> {
        self.view().copy_into(stream, out)
    }

    /// Queues a copy to page-locked memory; see [`DeviceView::copy_into_pinned`].
    ///
    /// # Errors
    /// [`Error::Length`], [`Error::DeviceMismatch`], [`Error::NotCapturable`] on a stream that is being
    /// captured, or the driver's error.
    pub fn copy_into_pinned(&self, stream: &Stream, out: &mut PinnedBuffer<T>) -> Result<()> {
        self.view().copy_into_pinned(stream, out)
    }

    /// Copies from host memory, which is free again when this returns.
    ///
    /// # Errors
    /// [`Error::Length`], [`Error::DeviceMismatch`], [`Error::NotCapturable`] on a stream that is being
    /// captured, or the driver's error.
    pub fn copy_from_slice(&mut self, stream: &Stream, from: &[T]) -> Result<()> {
        self.view_mut().copy_from_slice(stream, from)
    }

    /// Queues a copy from page-locked memory; see [`DeviceViewMut::copy_from_pinned`].
    ///
    /// # Errors
    /// [`Error::Length`], [`Error::DeviceMismatch`], [`Error::NotCapturable`] on a stream that is being
    /// captured, or the driver's error.
    pub fn copy_from_pinned(&mut self, stream: &Stream, from: &PinnedBuffer<T>) -> Result<()> {
        self.view_mut().copy_from_pinned(stream, from)
    }

    /// Queues a copy of another buffer of the same device.
    ///
    /// # Errors
    /// [`Error::Length`], [`Error::DeviceMismatch`], or the driver's error.
    pub fn copy_from_device(&mut self, stream: &Stream, from: &DeviceBuffer<T>) -> Result<()> {
        self.view_mut().copy_from_device(stream, from.view())
    }

    /// Queues setting every byte to 0.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`], or the driver's error.
    pub fn fill_zero(&mut self, stream: &Stream) -> Result<()> {
        self.view_mut().fill_zero(stream)
    }

    /// `len == self.len()`, or [`Error::Length`] naming the argument `what` of `operation`. For ops.
    ///
    /// # Errors
    /// [`Error::Length`].
    pub fn expect_len(&self, operation: &'static str, what: &'static str, len: usize) -> Result<()> {
        same_length(operation, what, len, self.len)
    }
}

impl<'a, T: Pod> From<&'a DeviceBuffer<T>> for DeviceView<'a, T> {
    fn from(buffer: &'a DeviceBuffer<T>) -> Self {
        buffer.view()
    }
}

impl<'a, T: Pod> From<&'a mut DeviceBuffer<T>> for DeviceViewMut<'a, T> {
    fn from(buffer: &'a mut DeviceBuffer<T>) -> Self {
        buffer.view_mut()
    }
}

impl<T> fmt::Debug for DeviceBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (element, len, address) = (std::any::type_name::<T>(), self.len, self.allocation.address());
        write!(f, "DeviceBuffer<{element}>({len} elements at {address:#x})")
    }
}
