//! The word from which the blocks of a launch draw the numbers of their tiles, or of their rows.
//!
//! It is 0 between launches: each puts 0 in again. So launches of a stream, one behind the other, share a
//! word that is cleared once. Cleared before each launch, it would keep the launch from overlapping with the
//! one before. No two launches draw from a word at once:
//!
//! * A stream's launches follow each other, those of several threads too. A kernel that begins before the end
//!   of the one before it waits for that end before it draws.
//! * A graph may be replayed beside launches of the stream, so a captured launch has a word of its own, which
//!   the graph keeps and clears. Replays of one graph follow each other, on whatever streams.
//! * A capture that a program begins by the driver's own calls is unknown here, and would take the stream's
//!   word into its graph: launches of attention and of norms do not belong in one.
//! * While one stream is captured, others draw from their words as always: they are not part of the graph.
//! * A stream that goes frees its word behind its work. Its queue may be another stream's afterwards, which
//!   makes a word of its own.
//! * A launch that the driver refuses draws nothing, so the word is 0 still. A kernel that ends by a fault
//!   may leave anything in it, but takes the context along, and all words with it.

use std::sync::{Mutex, PoisonError};

use cuda_std::kernel::PtrMut;

use crate::device::Device;
use crate::error::Result;
use crate::launch::{Arg, Parameters};
use crate::memory::{DeviceBuffer, DevicePtr};
use crate::raw;
use crate::stream::Stream;
use crate::sys::{CUdeviceptr, CUstream};

/// The counter of a launch.
pub enum Counter {
    /// That of the stream.
    Shared(DevicePtr<u32>),
    /// Of one launch.
    Own(DeviceBuffer<u32>),
}

impl Counter {
    /// For a launch on the stream.
    pub fn new(stream: &Stream) -> Result<Self> {
        if stream.capture()?.is_some() {
            return Counter::own(stream);
        }
        let kept = stream.extension(Mutex::<Option<Word>>::default);
        // Who waits here queues its launch behind the clearing.
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        let word = match kept.take() {
            Some(word) => word,
            None => match Word::new(stream) {
                Ok(word) => word.cleared(stream)?,
                // Memory is short, or the device has none in the order of streams. A buffer gets memory
                // elsewhere too, and says what is wrong if there is none.
                Err(_) => return Counter::own(stream),
            },
        };
        let address = kept.insert(word).address;
        Ok(Counter::Shared(DevicePtr::from_raw(address)))
    }

    fn own(stream: &Stream) -> Result<Self> {
        Ok(Counter::Own(DeviceBuffer::zeroed(stream, 1)?))
    }
}

// SAFETY: the parameters of a pointer.
unsafe impl<'a> Arg<PtrMut<u32>> for &'a mut Counter {
    type Packed = <&'a mut DeviceBuffer<u32> as Arg<PtrMut<u32>>>::Packed;

    fn pack(self, stream: &Stream) -> Result<Self::Packed> {
        match self {
            // The stream keeps it, and only the stream's launches use it.
            Counter::Shared(address) => Arg::<PtrMut<u32>>::pack(*address, stream),
            Counter::Own(word) => Arg::<PtrMut<u32>>::pack(word, stream),
        }
    }

    fn list(packed: &Self::Packed, to: &mut Parameters) {
        <&'a mut DeviceBuffer<u32> as Arg<PtrMut<u32>>>::list(packed, to);
    }

    fn commit(packed: Self::Packed, stream: &Stream) {
        <&'a mut DeviceBuffer<u32> as Arg<PtrMut<u32>>>::commit(packed, stream);
    }
}

/// A word that a stream keeps. No buffer: that would keep the stream.
struct Word {
    address: CUdeviceptr,
    device: Device,
    /// The stream's, which outlives what the stream keeps.
    queue: CUstream,
}

// SAFETY: the driver takes a stream's handle on every thread.
unsafe impl Send for Word {}

impl Word {
    fn new(stream: &Stream) -> Result<Self> {
        let mut address = 0;
        // SAFETY: a place to write to.
        stream.call(|queue| unsafe { raw::mem_alloc_async(&mut address, size_of::<u32>(), queue) })?;
        Ok(Word { address, device: stream.device().clone(), queue: stream.handle() })
    }

    /// With 0 in it, behind the stream's work so far.
    fn cleared(self, stream: &Stream) -> Result<Self> {
        // SAFETY: the word is in an allocation of its own.
        stream.call(|queue| unsafe { raw::memset_d8_async(self.address, 0, size_of::<u32>(), queue) })?;
        Ok(self)
    }
}

impl Drop for Word {
    /// Behind the stream's work. A drop cannot return an error; the context frees the word at its end.
    fn drop(&mut self) {
        // SAFETY: allocated on the stream, which is alive, and freed once.
        let _ = self.device.clean_up(|| unsafe { raw::mem_free_async(self.address, self.queue) });
    }
}
