//! The current stream of each device: where tensor methods and operators queue their work.
//!
//! Each thread has a stack of streams that [`Stream::scope`] entered. The current stream of a device is the
//! innermost of them that belongs to it. With none it is the device's default stream.
//!
//! The default stream is one per device, shared by all threads, as in PyTorch:
//!
//! * Work of several threads needs no order across streams, so handing a tensor to another thread costs
//!   nothing.
//! * Memory that one thread frees serves another at once: both use one heap of the allocator.
//! * A short-lived thread makes no stream.
//!
//! Threads that should run beside each other enter streams of their own; [`Stream::parallel`] does so.
//! Buffers keep their uses in order across streams, so no choice of streams changes a result.
//!
//! The registry holds the default stream weakly. A strong handle would keep the device open for ever. Handles
//! and buffers keep the stream; with none left it goes back to the pool, and the next call takes one from
//! there.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::{Stream, StreamInner};
use crate::device::Device;
use crate::error::Result;

thread_local! {
    /// Streams entered by this thread, the innermost last.
    static ENTERED: RefCell<Vec<Stream>> = const { RefCell::new(Vec::new()) };
}

/// Default streams by the ordinals of their devices.
static DEFAULTS: Mutex<BTreeMap<u32, Weak<StreamInner>>> = Mutex::new(BTreeMap::new());

impl Device {
    /// The stream that tensor methods and operators on this device use in this thread: the innermost one that
    /// [`Stream::scope`] entered, else the device's default stream, which all threads share.
    ///
    /// # Errors
    /// The driver's error, when the default stream has to be made.
    pub fn current_stream(&self) -> Result<Stream> {
        // The stack of a thread that is ending is gone: then no stream is entered.
        let entered = ENTERED.try_with(|streams| {
            streams.borrow().iter().rev().find(|stream| stream.device() == self).cloned()
        });
        entered.ok().flatten().map_or_else(|| default_stream(self), Ok)
    }
}

fn default_stream(device: &Device) -> Result<Stream> {
    let mut defaults = DEFAULTS.lock().unwrap_or_else(PoisonError::into_inner);
    // A stream keeps its device open, and a device is open once: a live entry is this device's.
    if let Some(inner) = defaults.get(&device.ordinal()).and_then(Weak::upgrade) {
        return Ok(Stream::again(inner));
    }
    let stream = device.pooled_stream()?;
    defaults.insert(device.ordinal(), Arc::downgrade(&stream.inner));
    Ok(stream)
}

/// A stream that is current in this thread for as long as this value lives. Values go in the reverse order of
/// their making.
pub(crate) struct Entered {
    /// It stays in its thread.
    _local: PhantomData<*const ()>,
}

impl Entered {
    pub(crate) fn new(stream: &Stream) -> Self {
        ENTERED.with(|streams| streams.borrow_mut().push(stream.clone()));
        Entered { _local: PhantomData }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        // Dropped after the borrow is over.
        let _stream = ENTERED.try_with(|streams| streams.borrow_mut().pop());
    }
}

/// Where new tensors are made: a [`Stream`], or a [`Device`], which stands for its current stream.
pub trait On: sealed::Sealed {
    /// The stream.
    ///
    /// # Errors
    /// As [`Device::current_stream`].
    fn stream(self) -> Result<Stream>;
}

impl On for &Stream {
    fn stream(self) -> Result<Stream> {
        Ok(self.clone())
    }
}

impl On for &Device {
    fn stream(self) -> Result<Stream> {
        self.current_stream()
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for &super::Stream {}
    impl Sealed for &super::Device {}
}
