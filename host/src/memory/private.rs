//! Memory of a captured graph.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::allocator::Heap;
use crate::device::Device;
use crate::stream::Stream;

/// The memory that a graph's buffers were captured with. Whoever replays the graph keeps it: until it is dropped nobody else
/// gets that memory, also when no buffer is left.
///
/// Drop it when no replay is queued any more, or none whose results matter: what it held goes back to the system after a
/// wait for all work, when memory runs short or [`Device::trim_pool`] is called.
pub(crate) struct PrivatePool {
    device: Device,
    /// A heap a stream, by the stream's number.
    heaps: Mutex<Vec<(u64, Heap)>>,
}

impl PrivatePool {
    pub(crate) fn new(device: &Device) -> Arc<Self> {
        Arc::new(PrivatePool { device: device.clone(), heaps: Mutex::default() })
    }

    /// From now until the returned value is dropped, buffers of `stream` get their memory from this pool. Begin before the
    /// capture, end after it; a capture that spreads over several streams diverts each.
    ///
    /// While any diversion lasts, nothing of the device is waited for: buffers that several streams use are freed when it ends.
    pub(crate) fn divert(self: &Arc<Self>, stream: &Stream) -> Diversion {
        let mut heaps = self.heaps();
        let known = heaps.iter().find(|(id, _)| *id == stream.id()).map(|(_, heap)| heap.clone());
        let heap = known.unwrap_or_else(|| {
            let heap = self.device.allocator().device.private_heap();
            heaps.push((stream.id(), heap.clone()));
            heap
        });
        drop(heaps);
        self.device.allocator().begin_capture();
        let before = stream.divert_heap(Some(heap));
        Diversion { stream: stream.clone(), before, _pool: self.clone() }
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    fn heaps(&self) -> MutexGuard<'_, Vec<(u64, Heap)>> {
        self.heaps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PrivatePool {
    fn drop(&mut self) {
        for (_, heap) in self.heaps().drain(..) {
            self.device.allocator().device.disown(&heap);
        }
    }
}

/// Buffers of a stream come from a private pool while this lives.
#[must_use = "the diversion ends when this is dropped"]
pub(crate) struct Diversion {
    stream: Stream,
    before: Option<Heap>,
    /// Keeps the heap private.
    _pool: Arc<PrivatePool>,
}

impl Drop for Diversion {
    fn drop(&mut self) {
        self.stream.divert_heap(self.before.take());
        self.stream.device().allocator().end_capture(self.stream.device());
    }
}
