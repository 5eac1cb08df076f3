//! Sends chunks of host data through the device, with copies under way while kernels run.
//!
//! ```text
//!  slot 0   upload 0 | compute 0 | download 0 |          upload 3 | compute 3 | ..
//!  slot 1            | upload 1  | compute 1  | download 1 |        upload 4  | ..
//!  slot 2                        | upload 2   | compute 2  | download 2 | ..
//! ```
//! Each slot has a stream of the device's pool and page-locked memory of its own. Uploads, kernels and
//! downloads of different slots use different engines of the device, so with three slots all of them are
//! busy.

use bytemuck::Pod;

use super::{DeviceBuffer, PinnedBuffer};
use crate::error::{Error, Result};
use crate::stream::{Scope, Stream};

/// The stream and buffers of one chunk under way.
struct Slot<T, U> {
    stream: Stream,
    from: PinnedBuffer<T>,
    to: PinnedBuffer<U>,
    /// Whether `to` holds, or will get, a result that was not handed on.
    busy: bool,
}

impl<T: Pod, U: Pod> Slot<T, U> {
    fn new(scope: &Scope<'_>) -> Result<Self> {
        let stream = scope.fork()?;
        let from = PinnedBuffer::zeroed(stream.device(), 0)?;
        let to = PinnedBuffer::zeroed(stream.device(), 0)?;
        Ok(Slot { stream, from, to, busy: false })
    }

    /// Queues the upload, the computation and the download of a chunk.
    fn start(
        &mut self,
        chunk: &[T],
        compute: &mut impl FnMut(&Stream, &DeviceBuffer<T>) -> Result<DeviceBuffer<U>>,
    ) -> Result<()> {
        fit(&mut self.from, &self.stream, chunk.len())?;
        self.from.as_mut_slice()?.copy_from_slice(chunk);
        let input = DeviceBuffer::from_pinned(&self.stream, &self.from)?;
        let output = compute(&self.stream, &input)?;
        fit(&mut self.to, &self.stream, output.len())?;
        output.copy_into_pinned(&self.stream, &mut self.to)?;
        self.busy = true;
        Ok(())
    }

    /// Waits for the result, if there is one, and hands it on.
    fn finish(&mut self, sink: &mut impl FnMut(&[U]) -> Result<()>) -> Result<()> {
        if !std::mem::take(&mut self.busy) {
            return Ok(());
        }
        sink(self.to.as_slice()?)
    }
}

/// Makes a buffer of `len` elements, unless it already has that length.
fn fit<E: Pod>(buffer: &mut PinnedBuffer<E>, stream: &Stream, len: usize) -> Result<()> {
    if buffer.len() != len {
        *buffer = PinnedBuffer::zeroed(stream.device(), len)?;
    }
    Ok(())
}

impl Stream {
    /// Sends `chunks` of host memory through `compute` and their results, in order, to `sink`, with up to
    /// `slots` chunks on their way at once: while one is computed, the next is uploaded and the one before is
    /// downloaded. 3 slots keep all engines busy; with 1 the steps run one after the other.
    ///
    /// Chunks may differ in length, but then each new length allocates page-locked memory again. The whole
    /// work begins after the work queued on this stream, and this stream continues after it. `compute` gets
    /// the stream that it must use.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for 0 slots, the errors of `compute` and `sink`, or the driver's error.
    pub fn overlap<T: Pod, U: Pod>(
        &self,
        slots: usize,
        chunks: impl IntoIterator<Item = impl AsRef<[T]>>,
        mut compute: impl FnMut(&Stream, &DeviceBuffer<T>) -> Result<DeviceBuffer<U>>,
        mut sink: impl FnMut(&[U]) -> Result<()>,
    ) -> Result<()> {
        if slots == 0 {
            return Err(Error::InvalidArgument {
                operation: "Stream::overlap",
                argument: "slots",
                got: "0".to_owned(),
                wanted: "at least 1".to_owned(),
                hint: "3 keep uploads, kernels and downloads going at once",
            });
        }
        self.scope(|scope| {
            // The oldest chunk's slot is at the front.
            let mut ring = std::collections::VecDeque::new();
            for chunk in chunks {
                let mut slot = if ring.len() < slots { None } else { ring.pop_front() }
                    .map_or_else(|| Slot::new(scope), Ok)?;
                slot.finish(&mut sink)?;
                slot.start(chunk.as_ref(), &mut compute)?;
                ring.push_back(slot);
            }
            ring.iter_mut().try_for_each(|slot| slot.finish(&mut sink))
        })
    }
}
