//! Stream capture: work goes into a graph instead of a queue.

use super::{
    api,
    graph::Graph,
    handle::Handle,
    put, put_some,
    queue::Command,
    state::{Driver, Outcome},
    take,
    user_object::References,
};
use crate::code;
use core::ffi::c_uint;
use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    thread::ThreadId,
};

/// `CU_STREAM_CAPTURE_MODE_*`: which threads may not make unsafe calls during a capture.
mod mode {
    /// All threads.
    pub(crate) const GLOBAL: u32 = 0;
    /// The capturing thread.
    pub(crate) const THREAD_LOCAL: u32 = 1;
    /// No thread.
    pub(crate) const RELAXED: u32 = 2;
}

/// `CU_STREAM_CAPTURE_STATUS_*`.
mod status {
    pub(crate) const NONE: u32 = 0;
    pub(crate) const ACTIVE: u32 = 1;
    pub(crate) const INVALIDATED: u32 = 2;
}

pub(super) struct Capture {
    /// The stream that began the capture.
    pub origin: Handle,
    graph: Handle,
    mode: u32,
    thread: ThreadId,
    invalidated: bool,
    /// For each participating stream: the nodes that its next node depends on.
    frontiers: BTreeMap<Handle, Vec<Handle>>,
}

impl Capture {
    pub(super) fn frontier(&self, stream: Handle) -> Vec<Handle> {
        self.frontiers.get(&stream).cloned().unwrap_or_default()
    }

    fn status(&self) -> u32 {
        if self.invalidated { status::INVALIDATED } else { status::ACTIVE }
    }
}

thread_local! {
    /// The mode set by `cuThreadExchangeStreamCaptureMode`.
    static THREAD_MODE: Cell<u32> = const { Cell::new(mode::GLOBAL) };
}

impl Driver {
    /// The capture that records work issued to a stream. `None` if the work goes into the queue.
    ///
    /// # Errors
    /// `STREAM_CAPTURE_INVALIDATED`; `STREAM_CAPTURE_IMPLICIT` for the legacy stream while a blocking stream
    /// captures. The latter invalidates that capture.
    pub(super) fn capturing(&mut self, stream: Handle) -> Outcome<Option<Handle>> {
        let s = self.streams.get(stream)?;
        if let Some(capture) = s.capture {
            let lost = self.captures.get(capture)?.invalidated;
            return if lost { Err(code::STREAM_CAPTURE_INVALIDATED) } else { Ok(Some(capture)) };
        }
        let mixes = |other: &super::stream::Stream| {
            s.legacy && other.context == s.context && other.is_blocking() && other.capture.is_some()
        };
        let mixed = self.streams.iter().find_map(|(_, other)| other.capture.filter(|_| mixes(other)));
        match mixed {
            Some(capture) => {
                self.invalidate(capture);
                Err(code::STREAM_CAPTURE_IMPLICIT)
            }
            None => Ok(None),
        }
    }

    pub(super) fn invalidate(&mut self, capture: Handle) {
        if let Ok(capture) = self.captures.get_mut(capture) {
            capture.invalidated = true;
        }
    }

    /// Appends a command to the graph, after what the stream has captured so far.
    pub(super) fn capture_command(&mut self, capture: Handle, stream: Handle, command: Command) -> Outcome {
        let c = self.captures.get(capture)?;
        let (graph, frontier) = (c.graph, c.frontier(stream));
        let node = self.add_node(graph, command, frontier)?;
        self.captures.get_mut(capture)?.frontiers.insert(stream, vec![node]);
        Ok(())
    }

    /// Has the graph of a capture refer to user objects.
    pub(super) fn keep_in_capture(&mut self, capture: Handle, objects: &References) -> Outcome {
        let graph = self.captures.get(capture)?.graph;
        self.retain_objects(objects)?;
        let held = &mut self.graphs.get_mut(graph)?.objects;
        objects.iter().for_each(|(&object, &count)| *held.entry(object).or_default() += count);
        Ok(())
    }

    /// Makes a stream continue after `nodes` of a capture and join that capture.
    pub(super) fn join_capture(&mut self, capture: Handle, stream: Handle, nodes: &[Handle]) -> Outcome {
        if !self.captures.contains(capture) {
            return Err(code::CAPTURED_EVENT); // the capture has ended
        }
        let s = self.streams.get(stream)?;
        match s.capture {
            Some(other) if other != capture => {
                self.invalidate(other);
                self.invalidate(capture);
                return Err(code::STREAM_CAPTURE_MERGE);
            }
            None if s.legacy => {
                self.invalidate(capture);
                return Err(code::STREAM_CAPTURE_IMPLICIT);
            }
            _ => {}
        }
        self.streams.get_mut(stream)?.capture = Some(capture);
        let frontier = self.captures.get_mut(capture)?.frontiers.entry(stream).or_default();
        let new: Vec<Handle> = nodes.iter().copied().filter(|node| !frontier.contains(node)).collect();
        frontier.extend(new);
        Ok(())
    }

    /// Records pooled memory that was allocated within a capture. The graph owns it.
    pub(super) fn own_by_capture(&mut self, capture: Handle, address: usize) -> Outcome {
        let graph = self.captures.get(capture)?.graph;
        self.graphs.get_mut(graph)?.memory.push(address);
        Ok(())
    }

    pub(super) fn is_owned_by_capture(&self, capture: Handle, address: usize) -> Outcome<bool> {
        Ok(self.graphs.get(self.captures.get(capture)?.graph)?.memory.contains(&address))
    }

    /// Forbids a call that synchronises a context while one of its streams captures. Invalidates the capture.
    pub(super) fn forbid_while_capturing(&mut self, context: Handle) -> Outcome {
        let lost = self.streams.iter().find_map(|(_, s)| s.capture.filter(|_| s.context == context));
        match lost {
            Some(capture) => {
                self.invalidate(capture);
                Err(code::STREAM_CAPTURE_UNSUPPORTED)
            }
            None => Ok(()),
        }
    }

    /// Forbids a call that may affect captures (allocation, synchronous copies), according to their modes and
    /// this thread's mode.
    pub(super) fn forbid_unsafe_while_capturing(&mut self) -> Outcome {
        let (mine, thread) = (THREAD_MODE.get(), std::thread::current().id());
        let forbids = |c: &Capture| match c.mode {
            mode::GLOBAL if mine == mode::GLOBAL => true,
            mode::GLOBAL | mode::THREAD_LOCAL => mine != mode::RELAXED && c.thread == thread,
            _ => false,
        };
        let lost = self.captures.iter().find(|(_, c)| forbids(c)).map(|(handle, _)| handle);
        match lost {
            Some(capture) => {
                self.invalidate(capture);
                Err(code::STREAM_CAPTURE_UNSUPPORTED)
            }
            None => Ok(()),
        }
    }

    /// Ends a capture and returns it with its graph.
    fn take_capture(&mut self, capture: Handle) -> Outcome<Capture> {
        let ended = self.captures.remove(capture)?;
        for stream in self.streams.values_mut().filter(|s| s.capture == Some(capture)) {
            stream.capture = None;
        }
        Ok(ended)
    }

    /// Ends a capture and destroys its graph.
    pub(super) fn abandon(&mut self, capture: Handle) {
        if let Ok(ended) = self.take_capture(capture) {
            // The capture owns the graph, so it exists.
            let _ = self.destroy_graph(ended.graph);
        }
    }

    fn begin(&mut self, stream: usize, mode: u32) -> Outcome {
        let context = self.enter()?;
        let stream = self.stream(stream, context)?;
        if mode > mode::RELAXED {
            return Err(code::INVALID_VALUE);
        }
        let s = self.streams.get(stream)?;
        if s.legacy {
            return Err(code::STREAM_CAPTURE_UNSUPPORTED);
        }
        if s.capture.is_some() {
            return Err(code::ILLEGAL_STATE);
        }
        let graph = self.graphs.insert(Graph::new());
        let thread = std::thread::current().id();
        let frontiers = BTreeMap::from([(stream, Vec::new())]);
        let capture = self.captures.insert(Capture {
            origin: stream,
            graph,
            mode,
            thread,
            invalidated: false,
            frontiers,
        });
        self.streams.get_mut(stream)?.capture = Some(capture);
        Ok(())
    }

    fn end(&mut self, stream: usize) -> Outcome<Handle> {
        let context = self.enter()?;
        let stream = self.stream(stream, context)?;
        let capture = self.streams.get(stream)?.capture.ok_or(code::ILLEGAL_STATE)?;
        let c = self.captures.get(capture)?;
        if c.origin != stream {
            self.invalidate(capture);
            return Err(code::STREAM_CAPTURE_UNMATCHED);
        }
        if c.mode != mode::RELAXED && c.thread != std::thread::current().id() {
            return Err(code::STREAM_CAPTURE_WRONG_THREAD);
        }
        let failure = if c.invalidated {
            Some(code::STREAM_CAPTURE_INVALIDATED)
        } else if self.has_unjoined(c)? {
            Some(code::STREAM_CAPTURE_UNJOINED)
        } else {
            None
        };
        if let Some(code) = failure {
            self.abandon(capture);
            return Err(code);
        }
        Ok(self.take_capture(capture)?.graph)
    }

    /// Whether a forked stream has captured nodes that the origin does not depend on.
    fn has_unjoined(&self, capture: &Capture) -> Outcome<bool> {
        let graph = self.graphs.get(capture.graph)?;
        let joined: BTreeSet<Handle> = graph.ancestors(&capture.frontier(capture.origin));
        Ok(capture.frontiers.values().flatten().any(|node| !joined.contains(node)))
    }

    /// The state of a stream's capture, and the capture.
    fn capture_status(&mut self, stream: usize) -> Outcome<(u32, Option<Handle>)> {
        let context = self.enter()?;
        let stream = self.stream(stream, context)?;
        match self.streams.get(stream)?.capture {
            Some(capture) => Ok((self.captures.get(capture)?.status(), Some(capture))),
            None => self.capturing(stream).map(|_| (status::NONE, None)),
        }
    }
}

api! {
    fn cuStreamBeginCapture_v2(driver, stream: usize, mode: u32) { driver.begin(stream, mode) }

    fn cuStreamEndCapture(driver, stream: usize, out: *mut Handle) {
        put(out, 0)?;
        let graph = driver.end(stream)?;
        put(out, graph)
    }

    fn cuStreamIsCapturing(driver, stream: usize, out: *mut u32) {
        let (status, _) = driver.capture_status(stream)?;
        put(out, status)
    }

    fn cuStreamGetCaptureInfo(driver, stream: usize, out: *mut u32, id: *mut u64) {
        let (status, capture) = driver.capture_status(stream)?;
        put(out, status)?;
        put_some(id, capture.unwrap_or(0) as u64);
        Ok(())
    }

    fn cuStreamGetCaptureInfo_v2(
        driver, stream: usize, out: *mut u32, id: *mut u64, graph: *mut Handle, nodes: *mut *const Handle, count: *mut usize,
    ) {
        let (status, capture) = driver.capture_status(stream)?;
        put(out, status)?;
        let Some(capture) = capture else { return Ok(()) };
        let context = driver.enter()?;
        let stream = driver.stream(stream, context)?;
        let c = driver.captures.get(capture)?;
        put_some(id, capture as u64);
        put_some(graph, c.graph);
        // As CUDA documents, the list is valid until the next call that captures something in this stream.
        let frontier: &[Handle] = c.frontiers.get(&stream).map_or(&[], Vec::as_slice);
        put_some(nodes, frontier.as_ptr());
        put_some(count, frontier.len());
        Ok(())
    }

    fn cuStreamUpdateCaptureDependencies(driver, stream: usize, nodes: *const Handle, count: usize, flags: c_uint) {
        let context = driver.enter()?;
        let stream = driver.stream(stream, context)?;
        let capture = driver.capturing(stream)?.ok_or(code::ILLEGAL_STATE)?;
        let mut new = Vec::with_capacity(count);
        for i in 0..count {
            new.push(take(nodes.wrapping_add(i))?);
        }
        let graph = driver.captures.get(capture)?.graph;
        if flags > 1 || new.iter().any(|node| driver.nodes.get(node) != Some(&graph)) {
            return Err(code::INVALID_VALUE);
        }
        let frontier = driver.captures.get_mut(capture)?.frontiers.entry(stream).or_default();
        if flags == 1 {
            frontier.clear();
        }
        frontier.extend(new);
        Ok(())
    }

    fn cuThreadExchangeStreamCaptureMode(_driver, mode: *mut u32) {
        let new = take(mode)?;
        if new > mode::RELAXED {
            return Err(code::INVALID_VALUE);
        }
        put(mode, THREAD_MODE.replace(new))
    }
}
