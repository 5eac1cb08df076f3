//! Borrowed parts of device buffers.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

use crate::sys::CUdeviceptr;
use bytemuck::Pod;

use super::allocation::{Allocation, Use};
use super::pinned::PinnedBuffer;
use super::same_length;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::raw;
use crate::stream::Stream;

/// An address in device memory, for kernels that take pointers. Nothing keeps what it points to alive.
#[derive(Debug)]
pub struct DevicePtr<T> {
    address: CUdeviceptr,
    element: PhantomData<*mut T>,
}

impl<T> Clone for DevicePtr<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for DevicePtr<T> {}

// SAFETY: a number; launches promise how they use it.
unsafe impl<T> Send for DevicePtr<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for DevicePtr<T> {}

impl<T> DevicePtr<T> {
    /// The pointer to address `address` of device memory; 0 is the null pointer.
    pub fn from_raw(address: u64) -> Self {
        DevicePtr { address, element: PhantomData }
    }

    /// The null pointer.
    pub fn null() -> Self {
        Self::from_raw(0)
    }

    /// The address.
    pub fn raw(self) -> u64 {
        self.address
    }
}

/// Elements `start..end` of an allocation.
struct Part<'a, T> {
    allocation: &'a Allocation,
    start: usize,
    len: usize,
    element: PhantomData<T>,
}

impl<T> Clone for Part<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Part<'_, T> {}

impl<T> Part<'_, T> {
    /// In bytes. Does not overflow: the allocation's size did not.
    fn bytes(self) -> usize {
        self.len * size_of::<T>()
    }

    fn address(self) -> CUdeviceptr {
        self.allocation.address() + (self.start * size_of::<T>()) as CUdeviceptr
    }
}

impl<'a, T: Pod> Part<'a, T> {
    /// The same memory as bytes.
    fn as_bytes(self) -> Part<'a, u8> {
        let start = self.start * size_of::<T>();
        Part { allocation: self.allocation, start, len: self.bytes(), element: PhantomData }
    }
}

impl<'a> Part<'a, u8> {
    /// The bytes as elements of another type. Begins at a multiple of its size, if there is an element; bytes
    /// behind the last whole one are left out.
    fn cast<U: Pod>(self) -> Part<'a, U> {
        let size = size_of::<U>();
        debug_assert!(self.start.is_multiple_of(size) || self.len < size);
        Part {
            allocation: self.allocation,
            start: self.start / size,
            len: self.len / size,
            element: PhantomData,
        }
    }
}

impl<'a, T: Pod> Part<'a, T> {
    fn whole(allocation: &'a Allocation, len: usize) -> Self {
        Part { allocation, start: 0, len, element: PhantomData }
    }

    fn slice(self, range: impl RangeBounds<usize>) -> Result<Self> {
        let start = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&last) => last.saturating_add(1),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => self.len,
        };
        if start > end || end > self.len {
            return Err(Error::Range { start, end, len: self.len });
        }
        Ok(Part { start: self.start + start, len: end - start, ..self })
    }

    fn copy_to_host(self, stream: &Stream, out: &mut [T]) -> Result<()> {
        same_length("copy to the host", "the host slice", self.len, out.len())?;
        // SAFETY: `out` has as many elements.
        unsafe { self.copy_to_address(stream, out.as_mut_ptr()) }
    }

    /// As [`Part::copy_to_host`].
    ///
    /// # Safety
    /// At `out` is room for the elements, for this call alone.
    unsafe fn copy_to_address(self, stream: &Stream, out: *mut T) -> Result<()> {
        // The copy is done when this returns, so the use is not committed.
        let _use = self.allocation.begin(stream, false)?;
        // The stream is drained first and the copy is synchronous, so no queue ever holds the address of
        // `out`.
        stream.synchronize()?;
        if self.bytes() == 0 {
            return Ok(());
        }
        // SAFETY: the caller's promise; T is Pod, and the range lies in the allocation.
        stream.ask(|_| unsafe { raw::memcpy_dtoh(out.cast(), self.address(), self.bytes()) })
    }
}

/// An address within an allocation, for a kernel's pointer argument where a view does not fit. Each launch
/// with it is a use of the whole allocation.
pub struct Within<'a, T> {
    allocation: &'a Allocation,
    address: CUdeviceptr,
    element: PhantomData<*mut T>,
}

impl<T> Clone for Within<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Within<'_, T> {}

impl<'a, T> Within<'a, T> {
    pub(crate) fn address(self) -> DevicePtr<T> {
        DevicePtr::from_raw(self.address)
    }

    /// The same address, of elements of another type.
    pub(crate) fn cast<U>(self) -> Within<'a, U> {
        self.at(self.address)
    }

    /// Another address of the same allocation, for elements of another type.
    pub(crate) fn at<U>(self, address: u64) -> Within<'a, U> {
        Within { allocation: self.allocation, address, element: PhantomData }
    }

    /// Begins a use by a kernel; see [`Use`].
    pub(crate) fn begin(self, stream: &Stream, writes: bool) -> Result<Use<'a>> {
        self.allocation.begin(stream, writes)
    }
}

/// A shared view of elements on the device.
pub struct DeviceView<'a, T>(Part<'a, T>);

impl<T> Clone for DeviceView<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for DeviceView<'_, T> {}

/// An exclusive view of elements on the device.
pub struct DeviceViewMut<'a, T>(Part<'a, T>);

impl<'a> DeviceView<'a, u8> {
    /// The bytes as elements of another type. The view begins at a multiple of its size, unless it has no
    /// element; bytes behind the last whole one are left out.
    pub(crate) fn cast<U: Pod>(self) -> DeviceView<'a, U> {
        DeviceView(self.0.cast())
    }
}

impl<'a> DeviceViewMut<'a, u8> {
    /// As [`DeviceView::cast`].
    pub(crate) fn cast<U: Pod>(self) -> DeviceViewMut<'a, U> {
        DeviceViewMut(self.0.cast())
    }
}

impl<'a, T: Pod> DeviceView<'a, T> {
    pub(super) fn whole(allocation: &'a Allocation, len: usize) -> Self {
        DeviceView(Part::whole(allocation, len))
    }

    /// Elements in the view.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// A part of the view.
    ///
    /// # Errors
    /// [`Error::Range`].
    pub fn slice(self, range: impl RangeBounds<usize>) -> Result<DeviceView<'a, T>> {
        self.0.slice(range).map(DeviceView)
    }

    /// The device that holds it.
    pub fn device(&self) -> &'a Device {
        self.0.allocation.device()
    }

    /// Address of its first element.
    pub fn as_ptr(&self) -> DevicePtr<T> {
        DevicePtr::from_raw(self.0.address())
    }

    /// Copies the elements to `out`, after the work that `stream` and earlier users of the buffer have
    /// queued; done when it returns.
    ///
    /// # Errors
    /// [`Error::Length`], [`Error::DeviceMismatch`], [`Error::NotCapturable`] on a stream that is being
    /// captured, or the driver's error.
    pub fn copy_into(&self, stream: &Stream, out: &mut [T]) -> Result<()> {
        self.0.copy_to_host(stream, out)
    }

    /// The elements, as [`DeviceView::copy_into`] copies them.
    ///
    /// # Errors
    /// [`Error::HostMemory`], [`Error::DeviceMismatch`], [`Error::NotCapturable`] on a stream that is being
    /// captured, or the driver's error.
    pub fn to_vec(&self, stream: &Stream) -> Result<Vec<T>> {
        let mut room = Vec::new();
        let made = room.try_reserve_exact(self.len());
        made.map_err(|_| Error::HostMemory { bytes: self.0.bytes() })?;
        self.to_vec_in(stream, room)
    }

    /// [`DeviceView::to_vec`] in a vector that has room for the elements.
    pub(crate) fn to_vec_in(self, stream: &Stream, mut room: Vec<T>) -> Result<Vec<T>> {
        room.clear();
        room.reserve_exact(self.len());
        // SAFETY: there is room for the elements, and all of them have been copied when the length is set.
        unsafe {
            self.0.copy_to_address(stream, room.as_mut_ptr())?;
            room.set_len(self.len());
        }
        Ok(room)
    }

    /// Queues a copy to page-locked memory and returns at once; `out` waits for it by itself when it is read.
    ///
    /// # Errors
    /// [`Error::Length`], [`Error::DeviceMismatch`], [`Error::NotCapturable`] on a stream that is being
    /// captured, or the driver's error.
    pub fn copy_into_pinned(&self, stream: &Stream, out: &mut PinnedBuffer<T>) -> Result<()> {
        same_length("copy to pinned memory", "the pinned buffer", self.len(), out.len())?;
        let reading = self.begin(stream)?;
        let (from, bytes) = (self.0.address(), self.0.bytes());
        // SAFETY: both sides have `bytes` bytes; `out` keeps itself alive and untouched until the copy is
        // done.
        let queued = out
            .device_writes(stream, |to, stream| unsafe { raw::memcpy_dtoh_async(to, from, bytes, stream) });
        // The copy may be under way after an error too.
        reading.commit(stream);
        queued
    }

    /// The same memory as bytes.
    pub(crate) fn bytes(self) -> DeviceView<'a, u8> {
        DeviceView(self.0.as_bytes())
    }

    /// Begins a read; see [`Use`].
    pub(crate) fn begin(self, stream: &Stream) -> Result<Use<'a>> {
        self.0.allocation.begin(stream, false)
    }

    /// The address of its first element, for kernels that take it as a pointer.
    pub(crate) fn within(self) -> Within<'a, T> {
        Within { allocation: self.0.allocation, address: self.0.address(), element: PhantomData }
    }
}

impl<'a, T: Pod> DeviceViewMut<'a, T> {
    pub(super) fn whole(allocation: &'a mut Allocation, len: usize) -> Self {
        DeviceViewMut(Part::whole(allocation, len))
    }

    /// Elements in the view.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// The same elements, shared.
    pub fn view(&self) -> DeviceView<'_, T> {
        DeviceView(self.0)
    }

    /// The same elements, shared for as long as they were exclusive.
    pub(crate) fn into_view(self) -> DeviceView<'a, T> {
        DeviceView(self.0)
    }

    /// Two views of the elements, which share them out.
    ///
    /// # Safety
    /// What is written through one view is neither read nor written through the other.
    pub(crate) unsafe fn twins(self) -> [Self; 2] {
        [DeviceViewMut(self.0), DeviceViewMut(self.0)]
    }

    /// The same elements, for a shorter time.
    pub fn view_mut(&mut self) -> DeviceViewMut<'_, T> {
        DeviceViewMut(self.0)
    }

    /// A part of the view. This consumes the view; call `view_mut()` first to keep it.
    ///
    /// # Errors
    /// [`Error::Range`].
    pub fn slice_mut(self, range: impl RangeBounds<usize>) -> Result<DeviceViewMut<'a, T>> {
        self.0.slice(range).map(DeviceViewMut)
    }

    /// Elements `..mid` and `mid..`.
    ///
    /// # Errors
    /// [`Error::Range`] when `mid` is beyond the end.
    pub fn split_at_mut(self, mid: usize) -> Result<(DeviceViewMut<'a, T>, DeviceViewMut<'a, T>)> {
        Ok((DeviceViewMut(self.0.slice(..mid)?), DeviceViewMut(self.0.slice(mid..)?)))
    }

    /// The device that holds it.
    pub fn device(&self) -> &'a Device {
        self.0.allocation.device()
    }

    /// Address of its first element.
    pub fn as_ptr(&self) -> DevicePtr<T> {
        DevicePtr::from_raw(self.0.address())
    }

    /// The elements, copied as [`DeviceView::copy_into`] does.
    ///
    /// # Errors
    /// As [`DeviceView::to_vec`].
    pub fn to_vec(&self, stream: &Stream) -> Result<Vec<T>> {
        self.view().to_vec(stream)
    }

    /// Copies from host memory, which is free again when this returns.
    ///
    /// # Errors
    /// [`Error::Length`], [`Error::DeviceMismatch`], [`Error::NotCapturable`] on a stream that is being
    /// captured, or the driver's error.
    pub fn copy_from_slice(&mut self, stream: &Stream, from: &[T]) -> Result<()> {
        same_length("copy from a slice", "the slice", self.len(), from.len())?;
        let (to, bytes) = (self.0.address(), self.0.bytes());
        let writing = self.view_mut().begin(stream)?;
        if bytes == 0 {
            return Ok(());
        }
        // Drain the stream, copy synchronously on the legacy stream, and wait for that one: no queue ever
        // holds the address of `from`, and later work on `stream` sees the copy, which the driver may have
        // staged.
        stream.synchronize()?;
        // SAFETY: both sides have `bytes` bytes and T is Pod; a null stream is the legacy stream.
        stream.ask(|_| unsafe {
            raw::memcpy_htod(to, from.as_ptr().cast(), bytes)?;
            raw::stream_synchronize(std::ptr::null_mut())
        })?;
        writing.commit(stream);
        Ok(())
    }

    /// Queues a copy from page-locked memory and returns at once; `from` waits for it by itself before it is
    /// written or freed.
    ///
    /// # Errors
    /// [`Error::Length`], [`Error::DeviceMismatch`], [`Error::NotCapturable`] on a stream that is being
    /// captured, or the driver's error.
    pub fn copy_from_pinned(&mut self, stream: &Stream, from: &PinnedBuffer<T>) -> Result<()> {
        same_length("copy from pinned memory", "the pinned buffer", self.len(), from.len())?;
        let (to, bytes) = (self.0.address(), self.0.bytes());
        let writing = self.view_mut().begin(stream)?;
        // SAFETY: both sides have `bytes` bytes; `from` keeps itself alive and unchanged until the copy is
        // done.
        let queued = from
            .device_reads(stream, |from, stream| unsafe { raw::memcpy_htod_async(to, from, bytes, stream) });
        // The copy may be under way after an error too.
        writing.commit(stream);
        queued
    }

    /// Queues a copy from memory of the same device.
    ///
    /// # Errors
    /// [`Error::Length`], [`Error::DeviceMismatch`], or the driver's error.
    pub fn copy_from_device(&mut self, stream: &Stream, from: DeviceView<'_, T>) -> Result<()> {
        same_length("copy from device memory", "the source", self.len(), from.len())?;
        let (to, source, bytes) = (self.0.address(), from.0.address(), self.0.bytes());
        let (reading, writing) = (from.begin(stream)?, self.view_mut().begin(stream)?);
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: both ranges lie in live allocations, and do not overlap: one is borrowed exclusively.
        stream.call(|stream| unsafe { raw::memcpy_dtod_async(to, source, bytes, stream) })?;
        reading.commit(stream);
        writing.commit(stream);
        Ok(())
    }

    /// Queues setting every byte to 0.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`], or the driver's error.
    pub fn fill_zero(&mut self, stream: &Stream) -> Result<()> {
        let (to, bytes) = (self.0.address(), self.0.bytes());
        let writing = self.view_mut().begin(stream)?;
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the range lies in the allocation, and all bits zero is a value of a Pod type.
        stream.call(|stream| unsafe { raw::memset_d8_async(to, 0, bytes, stream) })?;
        writing.commit(stream);
        Ok(())
    }

    /// The same memory as bytes.
    pub(crate) fn bytes(self) -> DeviceViewMut<'a, u8> {
        DeviceViewMut(self.0.as_bytes())
    }

    /// Begins a write; see [`Use`].
    pub(crate) fn begin(self, stream: &Stream) -> Result<Use<'a>> {
        self.0.allocation.begin(stream, true)
    }
}

impl<T> Part<'_, T> {
    fn describe(self, what: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{what}<{}>({} elements at {:#x})", std::any::type_name::<T>(), self.len, self.address())
    }
}

impl<T> fmt::Debug for DeviceView<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.describe("DeviceView", f)
    }
}

impl<T> fmt::Debug for DeviceViewMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.describe("DeviceViewMut", f)
    }
}
