//! Recording work into a graph.

use std::ffi::c_int;
use std::sync::Arc;

use crate::sys::CUgraph;

use crate::device::Device;
use crate::error::{Error, LaunchSite, Result};
use crate::memory::{GraphUse, PrivatePool};
use crate::raw::{self, RawResult, one_graph_at_a_time};
use crate::stream::{Capture, Entered, Kept, Stream};

/// `CU_STREAM_CAPTURE_MODE_RELAXED`: other calls, on this thread or any other, are neither forbidden nor
/// invalidate the capture. Calls that must not happen inside a capture return an error themselves.
const RELAXED: c_int = 2;

/// Runs `work` with a stream that is being captured. Returns the graph and the memory and code that it uses.
/// After a failure nothing is left behind. The stream is the capture's own: no other thread can reach it,
/// unless `work` hands it over. The device and the priority are those of `like`. It is current in this thread
/// while `work` runs.
pub(super) fn record<R>(
    like: &Stream,
    work: impl FnOnce(&Stream) -> Result<R>,
) -> Result<(RawGraph, Captured, R)> {
    like.must_not_be_captured(
        "a capture inside a capture",
        "one stream records into one graph at a time",
        "end the outer capture first, or capture both parts as one graph",
    )?;
    like.device().recover_graph_memory()?;
    let stream = like.device().pooled_stream_with_priority(like.priority())?;
    let mut under_way = UnderWay::begin(&stream)?;
    let result = {
        let _current = Entered::new(&stream);
        work(&stream)?
    };
    let graph = under_way.end()?;
    let captured = under_way.captured();
    Ok((graph, captured, result))
}

/// The memory and code that a graph keeps alive, and its launches.
#[derive(Default)]
pub(super) struct Captured {
    pub(super) uses: Vec<GraphUse>,
    pub(super) launches: Vec<LaunchSite>,
    /// Other values that the graph keeps alive, such as the code of launches.
    kept: Vec<Kept>,
    /// The pool of the memory that was allocated inside the capture. It is dropped after the uses, which give
    /// their memory back to it.
    pool: Option<Arc<PrivatePool>>,
}

impl Captured {
    /// Drops it while replays may run: the code is leaked, which is better than to drop it now. The memory
    /// goes back after a wait for all work.
    pub(super) fn leave_running(self) {
        let Captured { kept, pool, .. } = self;
        std::mem::forget(kept);
        if let Some(pool) = pool {
            pool.expect_replays();
        }
    }
}

/// A capture that ends with this value at the latest.
struct UnderWay<'s> {
    stream: &'s Stream,
    capture: Arc<Capture>,
    ended: bool,
}

impl<'s> UnderWay<'s> {
    fn begin(stream: &'s Stream) -> Result<Self> {
        let under_way = UnderWay { stream, capture: Arc::new(Capture::new(stream)), ended: false };
        // On an error the drop ends the capture, even if it did not begin.
        stream.device().captures().add(&under_way.capture, || {
            one_graph_at_a_time(|| {
                // SAFETY: a live stream.
                stream.call(|stream| unsafe { raw::stream_begin_capture(stream, RELAXED) })
            })?;
            let (mut status, mut id) = (0, 0);
            // SAFETY: a live stream and two places to write to.
            stream.ask(|stream| unsafe { raw::stream_capture_info(stream, &mut status, &mut id) })?;
            Ok::<_, Error>(id)
        })?;
        Ok(under_way)
    }

    fn end(&mut self) -> Result<RawGraph> {
        let mut graph = std::ptr::null_mut();
        // On an error the drop tries once more.
        one_graph_at_a_time(|| {
            // SAFETY: a live stream and a place to write to.
            self.stream.call(|stream| unsafe { raw::stream_end_capture(stream, &mut graph) })
        })?;
        self.ended = true;
        self.stream.device().captures().remove(&self.capture);
        Ok(RawGraph { handle: graph, device: self.stream.device().clone() })
    }

    fn captured(&self) -> Captured {
        let memory = self.capture.memory();
        let (launches, kept) = self.capture.take();
        Captured { uses: memory.uses().end(), launches, kept, pool: Some(memory.pool().clone()) }
    }
}

impl Drop for UnderWay<'_> {
    /// After an error or a panic: the stream is a usual one again, and the graph is destroyed.
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let end = || -> RawResult {
            let mut graph = std::ptr::null_mut();
            // SAFETY: a live stream and a place to write to.
            unsafe { raw::stream_end_capture(self.stream.handle(), &mut graph)? };
            // SAFETY: it came from the call before, and this is the only handle.
            unsafe { raw::graph_destroy(graph) }
        };
        // Tried twice, since a stream that stays captured is useless. The error or panic that led here is the
        // one to report.
        let _ = one_graph_at_a_time(|| self.stream.device().clean_up(|| end().or_else(|_| end())));
        self.stream.device().captures().remove(&self.capture);
    }
}

/// A graph that is not executable yet.
pub(super) struct RawGraph {
    handle: CUgraph,
    device: Device,
}

// SAFETY: a graph handle may be used from any thread, by one at a time: `&self` only reads the number.
unsafe impl Send for RawGraph {}

impl RawGraph {
    pub(super) fn handle(&self) -> CUgraph {
        self.handle
    }
}

impl Drop for RawGraph {
    fn drop(&mut self) {
        // A drop cannot return an error; only a little host memory is lost.
        // SAFETY: this is the only handle.
        let _ = one_graph_at_a_time(|| self.device.clean_up(|| unsafe { raw::graph_destroy(self.handle) }));
    }
}
