//! Page-locked host memory, which the device copies from and to while the host goes on.

use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::sys::CUstream;
use arena::Failure;
use bytemuck::Pod;

use super::allocator::{Kind, Lease, Mark, Mode, PORTABLE, Source, device_is_settled};
use super::{ALIGNMENT, byte_size};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::raw::{self, RawResult};
use crate::stream::Stream;

/// An array of `T` in page-locked host memory.
///
/// Copies between it and device memory are queued; the buffer knows which are under way, and waits for them
/// before the host reads (`as_slice`) or changes (`as_mut_slice`) it. When it is dropped, its memory is kept
/// for later buffers, which get it once those copies are done.
pub struct PinnedBuffer<T> {
    /// Null when the buffer has no bytes.
    address: *mut c_void,
    /// The block of the pool that it lies in; `None` for an allocation of the driver's own.
    lease: Option<Lease>,
    len: usize,
    device: Device,
    /// Copies that may be under way, at most one for each stream and direction: the latest stands for the
    /// earlier ones.
    transfers: Mutex<Vec<Transfer>>,
    element: PhantomData<T>,
}

struct Transfer {
    stream_id: u64,
    /// Whether the device writes the host's memory.
    writes: bool,
    /// `None` when the driver failed to set the mark: then the host waits for all work of the device.
    done: Option<Mark>,
    /// The stream's device, whose mark it is.
    device: Device,
}

impl Transfer {
    /// Lets later work of `stream` begin only when the transfer is done.
    fn hold_back(&self, stream: &Stream) -> Result<()> {
        self.done.as_ref().map_or_else(|| self.device.synchronize(), |done| done.hold_back(stream))
    }

    /// Waits until the transfer is done.
    fn wait(&self) -> Result<()> {
        self.done.as_ref().map_or_else(|| self.device.synchronize(), |done| done.synchronize(&self.device))
    }

    /// Waits, for clean-up, until the transfer is done or nothing of its device runs any more. False when
    /// neither can be had.
    fn settle(&self) -> bool {
        self.done.as_ref().map_or_else(|| device_is_settled(&self.device), |done| done.settle(&self.device))
    }

    /// Recycles the mark of a transfer that is done.
    fn end(self) {
        if let Some(done) = self.done {
            self.device.allocator().recycle(done);
        }
    }
}

// SAFETY: it owns plain memory of a Send type; what the device does with it goes through `transfers`.
unsafe impl<T: Send> Send for PinnedBuffer<T> {}
// SAFETY: as above; `&self` gives shared access alone.
unsafe impl<T: Sync> Sync for PinnedBuffer<T> {}

impl<T: Pod> PinnedBuffer<T> {
    /// `len` elements with all bits zero. Types that are aligned to more than 256 bytes do not compile.
    ///
    /// # Errors
    /// [`crate::Error::SizeOverflow`], or the driver's error.
    #[track_caller]
    pub fn zeroed(device: &Device, len: usize) -> Result<Self> {
        const { assert!(align_of::<T>() <= ALIGNMENT, "elements are aligned to at most 256 bytes") };
        let bytes = byte_size::<T>(len)?;
        let (address, lease) =
            if bytes == 0 { (std::ptr::null_mut(), None) } else { allocate(device, bytes)? };
        if bytes > 0 {
            // SAFETY: `bytes` bytes lie there, and no other code has the address.
            unsafe { address.cast::<u8>().write_bytes(0, bytes) };
        }
        let (device, transfers) = (device.clone(), Mutex::new(Vec::new()));
        Ok(PinnedBuffer { address, lease, len, device, transfers, element: PhantomData })
    }

    /// A copy of `from`.
    ///
    /// # Errors
    /// As [`PinnedBuffer::zeroed`].
    #[track_caller]
    pub fn from_slice(device: &Device, from: &[T]) -> Result<Self> {
        let mut buffer = Self::zeroed(device, from.len())?;
        buffer.as_mut_slice()?.copy_from_slice(from);
        Ok(buffer)
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements, once copies to them are done.
    ///
    /// # Errors
    /// The driver's error, also of work queued before those copies.
    pub fn as_slice(&self) -> Result<&[T]> {
        self.wait(|transfer| transfer.writes)?;
        // SAFETY: `len` initialised elements of a Pod type, aligned as `zeroed` has checked; the device no
        // longer writes them, and a copy that would needs `&mut self`.
        Ok(unsafe { std::slice::from_raw_parts(self.elements(), self.len) })
    }

    /// The elements, once copies from and to them are done.
    ///
    /// # Errors
    /// The driver's error, also of work queued before those copies.
    pub fn as_mut_slice(&mut self) -> Result<&mut [T]> {
        self.wait(|_| true)?;
        // SAFETY: as in `as_slice`, and `&mut self` makes it the only access.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.elements(), self.len) })
    }

    /// The address of the elements for kernels, whose accesses the buffer does not know.
    pub(crate) fn device_address(&self) -> u64 {
        self.address as u64
    }

    /// Where the elements begin; a dangling pointer when they have no bytes.
    fn elements(&self) -> *mut T {
        if self.address.is_null() { std::ptr::dangling_mut() } else { self.address.cast() }
    }

    /// Queues on `stream` a copy that reads this buffer.
    pub(super) fn device_reads(
        &self,
        stream: &Stream,
        copy: impl FnOnce(*const c_void, CUstream) -> RawResult,
    ) -> Result<()> {
        self.transfer(stream, false, |address, stream| copy(address, stream))
    }

    /// Queues on `stream` a copy that writes this buffer.
    pub(super) fn device_writes(
        &mut self,
        stream: &Stream,
        copy: impl FnOnce(*mut c_void, CUstream) -> RawResult,
    ) -> Result<()> {
        self.transfer(stream, true, copy)
    }

    fn transfer(
        &self,
        stream: &Stream,
        writes: bool,
        copy: impl FnOnce(*mut c_void, CUstream) -> RawResult,
    ) -> Result<()> {
        if self.address.is_null() {
            return Ok(());
        }
        stream.must_not_be_captured(
            "a copy from or to page-locked memory",
            "a replay would use the host's memory at a time that the host cannot know",
            "upload inputs before the graph is replayed and download outputs after it",
        )?;
        // Made before the copy, so that once a copy is queued only the record can fail.
        let done = stream.device().new_mark()?;
        let mut transfers = self.transfers();
        let mut lost = false;
        let queued = (|| {
            for earlier in transfers.iter().filter(|t| t.stream_id != stream.id() && (writes || t.writes)) {
                earlier.hold_back(stream)?;
            }
            stream.call(|stream| copy(self.address, stream))?;
            // SAFETY: the stream is alive, and `ask` makes its context current.
            match stream.ask(|stream| unsafe { done.record(stream) }) {
                Ok(()) => Ok(()),
                // There is no mark to wait for later, so wait for the copy now.
                Err(error) => {
                    lost = !stream.drain();
                    Err(error)
                }
            }
        })();
        let mut transfer =
            Transfer { stream_id: stream.id(), writes, done: Some(done), device: stream.device().clone() };
        if queued.is_err() && !lost {
            transfer.end();
            return queued;
        }
        if lost {
            transfer.done.take().into_iter().for_each(|unset| stream.device().allocator().recycle(unset));
        }
        let replaced = |t: &mut Transfer| t.stream_id == stream.id() && t.writes == writes;
        transfers.extract_if(.., replaced).for_each(Transfer::end);
        transfers.push(transfer);
        queued
    }

    fn wait(&self, matters: impl Fn(&Transfer) -> bool) -> Result<()> {
        let mut transfers = self.transfers();
        for transfer in transfers.iter().filter(|t| matters(t)) {
            transfer.wait()?;
        }
        transfers.extract_if(.., |t| matters(t)).for_each(Transfer::end);
        Ok(())
    }
}

/// Page-locked memory: a block of the pool, or a driver allocation when the cache is off.
#[track_caller]
fn allocate(device: &Device, bytes: usize) -> Result<(*mut c_void, Option<Lease>)> {
    let allocator = device.allocator();
    if allocator.mode == Mode::PassThrough {
        let mut address = std::ptr::null_mut();
        // SAFETY: a place to write to.
        device.call(|| unsafe { raw::mem_host_alloc(&mut address, bytes, PORTABLE) })?;
        return Ok((address, None));
    }
    device.alive()?;
    let source = Source { device, kind: Kind::Pinned };
    let lease = (allocator.pinned)
        .allocate(&source, &allocator.pinned_heap, bytes as u64, Location::caller())
        .map_err(|failure| match failure {
            Failure::OutOfMemory => Error::PinnedMemory { requested: bytes },
            Failure::Backend(error) => error,
        })?;
    Ok((std::ptr::with_exposed_provenance_mut(lease.address() as usize), Some(lease)))
}

impl<T> PinnedBuffer<T> {
    fn transfers(&self) -> MutexGuard<'_, Vec<Transfer>> {
        self.transfers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Drop for PinnedBuffer<T> {
    fn drop(&mut self) {
        if self.address.is_null() {
            return;
        }
        let transfers = std::mem::take(&mut *self.transfers());
        let Some(lease) = self.lease.take() else { return self.free(transfers) };
        let own = |t: &Transfer| t.device == self.device && t.done.is_some();
        let (own, others): (Vec<_>, Vec<_>) = transfers.into_iter().partition(own);
        // This device's pool cannot use the marks of other devices.
        let settled = others.iter().all(Transfer::settle);
        others.into_iter().for_each(Transfer::end);
        if settled {
            let marks = own.into_iter().filter_map(|transfer| transfer.done).collect();
            let allocator = self.device.allocator();
            allocator.pinned.free_after(&allocator.pinned_heap, lease, marks);
        }
    }
}

impl<T> PinnedBuffer<T> {
    /// Frees an allocation of the driver's own. Memory that a copy may still write is leaked: better than a
    /// stray write.
    fn free(&self, transfers: Vec<Transfer>) {
        let settled = transfers.iter().all(Transfer::settle);
        transfers.into_iter().for_each(Transfer::end);
        if settled {
            // SAFETY: the address came from cuMemHostAlloc, is freed once, and no copy is under way.
            let _ = self.device.clean_up(|| unsafe { raw::mem_free_host(self.address) });
        }
    }
}

impl<T> fmt::Debug for PinnedBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (element, len, address) = (std::any::type_name::<T>(), self.len, self.address);
        write!(f, "PinnedBuffer<{element}>({len} elements at {address:p})")
    }
}
