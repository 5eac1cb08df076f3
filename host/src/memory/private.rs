//! Memory of a captured graph.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arena::Backend;

use super::allocator::{Heap, Kind, Source};
use crate::device::Device;
use crate::error::Result;
use crate::stream::Stream;

/// The memory that a graph's buffers were captured with. The graph keeps this pool: until it is dropped no
/// other buffer gets that memory, even when no buffer of the graph is left.
///
/// Drop it when no replay is queued any more, and after the allocations that the graph kept. Then the next
/// capture gets the memory. It goes back to the system when memory runs short or [`Device::trim_pool`] is
/// called. After [`PrivatePool::expect_replays`], that is the only way that it goes.
pub(crate) struct PrivatePool {
    device: Device,
    /// The heap of each stream, by the stream's number.
    heaps: Mutex<Vec<(u64, Heap)>>,
    /// Whether replays may be queued when it is dropped.
    may_run: AtomicBool,
}

impl PrivatePool {
    pub(crate) fn new(device: &Device) -> Arc<Self> {
        let (device, heaps) = (device.clone(), Mutex::default());
        Arc::new(PrivatePool { device, heaps, may_run: AtomicBool::new(false) })
    }

    /// The heap for a captured stream.
    pub(super) fn heap_of(&self, stream: &Stream) -> Heap {
        let mut heaps = self.heaps();
        if let Some((_, heap)) = heaps.iter().find(|(id, _)| *id == stream.id()) {
            return heap.clone();
        }
        let heap = self.device.allocator().device.private_heap();
        heaps.push((stream.id(), heap.clone()));
        heap
    }

    /// Replays may still be queued when this is dropped: it was not possible to wait for them.
    pub(crate) fn expect_replays(&self) {
        self.may_run.store(true, Ordering::Relaxed);
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
            let cache = &self.device.allocator().device;
            if self.may_run.load(Ordering::Relaxed) { cache.abandon(&heap) } else { cache.disown(heap) }
        }
    }
}

impl Device {
    /// Before a capture: it may have the memory of graphs that are gone.
    ///
    /// # Errors
    /// The driver's error, also of work queued earlier.
    pub(crate) fn recover_graph_memory(&self) -> Result<()> {
        let source = Source { device: self, kind: Kind::Device };
        self.captures().between_beginnings(|| {
            if source.may_wait() { self.allocator().device.poll_disowned(&source) } else { Ok(()) }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::PoisonError;

    use super::super::ONE_TEST_AT_A_TIME;
    use crate::graph::Graph;
    use crate::{Device, DeviceBuffer, Result, Stream};

    const BYTES: usize = 5000;

    fn address(stream: &Stream) -> Result<u64> {
        Ok(DeviceBuffer::<u8>::zeroed(stream, BYTES)?.as_ptr().raw())
    }

    #[test]
    fn a_graphs_memory_is_its_own() -> Result<()> {
        let _alone = ONE_TEST_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let device = Device::open(0)?;
        let (stream, other) = (device.stream()?, device.stream()?);
        let ordinary = address(&stream)?;

        let mut graph = Graph::capture(&stream, None, |stream, kept| {
            *kept = Some(DeviceBuffer::<u8>::zeroed(stream, BYTES)?);
            let private = address(stream)?;
            assert_ne!(private, ordinary);
            assert_eq!(address(stream)?, private, "used again within the capture");
            // The other stream is not captured.
            assert!(![private, ordinary].contains(&address(&other)?));
            Ok(())
        })?;

        // After the capture the stream uses its own memory again. The pool's memory stays, even when memory
        // is given back.
        assert_eq!(address(&stream)?, ordinary);
        device.trim_pool()?;
        let private = |device: &Device| {
            let held = device.memory_snapshot().heaps;
            held.iter().filter(|heap| heap.private && !heap.segments.is_empty()).count()
        };
        assert_eq!(private(&device), 1);
        graph.replay(&stream)?;
        let kept = graph.inputs_mut().take().expect("put there by the capture");

        // When the graph is dropped, the memory that its buffers still hold stays, and the rest goes back.
        drop(graph);
        device.trim_pool()?;
        let stats = device.memory_stats();
        assert_eq!((stats.live_blocks, stats.segments), (1, 1), "{stats:?}");
        assert_eq!(kept.to_vec(&stream)?, [0; BYTES]);
        drop(kept);
        device.trim_pool()?;
        assert_eq!(device.memory_stats().reserved, 0);
        Ok(())
    }
}
