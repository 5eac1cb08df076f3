//! Graphs: work that is recorded once and then launched as a whole, many times over.
//!
//! A launch costs the host microseconds; a graph of a thousand kernels costs little more than one.
//! [`Graph::capture`] runs a closure whose work on the stream is recorded instead of done:
//!
//! ```
//! # use ironwarp::{Device, DeviceBuffer, graph::Graph, ops::saxpy::saxpy};
//! # fn main() -> ironwarp::Result<()> {
//! # let device = Device::open(0)?;
//! # let stream = device.stream()?;
//! let weights = DeviceBuffer::from_slice(&stream, &[1.0f32, 2.0, 3.0])?;
//! // Static input: the graph reads this buffer at each replay.
//! let input = DeviceBuffer::<f32>::zeroed(&stream, 3)?;
//! let mut graph = Graph::capture(&stream, input, |stream, input| {
//!     // Static output: allocated by the capture, written by each replay.
//!     let mut output = DeviceBuffer::zeroed(stream, 3)?;
//!     saxpy(stream, 2.0, &*input, &mut output)?;
//!     saxpy(stream, 1.0, &weights, &mut output)?;
//!     Ok(output)
//! })?;
//! for step in 1..4 {
//!     graph.inputs_mut().copy_from_slice(&stream, &[step as f32; 3])?;
//!     graph.replay(&stream)?;
//!     let doubled = 2.0 * step as f32;
//!     assert_eq!(graph.outputs().to_vec(&stream)?, [doubled + 1.0, doubled + 2.0, doubled + 3.0]);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! **Memory.** The graph uses the addresses that it was captured with, so it keeps every allocation that its
//! work uses until the graph is dropped. That holds for buffers of the program, and for workspaces and
//! outputs that the closure allocated. A replay is a use of each allocation like any other: it waits for the
//! work on other streams that it depends on, and later work waits for it. The graph also keeps the code of
//! its kernels.
//!
//! **What can be captured**: launches, ops, fills and copies on the device, allocations, and other streams
//! that are forked with [`Stream::scope`]. **What cannot**, with [`Error::NotCapturable`]: waiting for the
//! stream, reading results back, copies from or to host memory, replaying another graph. Work on streams that
//! are not captured is done at once, as usual, and is no part of the graph, even where it uses buffers of
//! captured work.
//!
//! **Changing a graph.** Scalars are captured by value. [`Graph::update`] records the work again, with other
//! scalars or other inputs. If the shape of the graph is the same, it changes the executable graph in place;
//! otherwise it builds a new one.
//!
//! [`GraphCache`] does all of this automatically for a step that is called many times.

mod cache;
mod capture;

use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;

use crate::sys::CUgraphExec;

use crate::device::Device;
use crate::error::{Error, LaunchSite, Result};
use crate::launch::keep;
use crate::raw::{self, one_graph_at_a_time};
use crate::stream::Stream;

pub use cache::{GraphCache, Mode};
use capture::{Captured, RawGraph, record};

/// `CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE`.
const UPDATE_FAILURE: i32 = 910;

/// How [`Graph::update`] was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Update {
    /// The executable graph got new parameters: cheap.
    InPlace,
    /// The graph has another shape, so a new one was built.
    Rebuilt,
}

/// The driver's executable graph.
struct Exec(CUgraphExec);

// SAFETY: an executable graph may be used from any thread, by one at a time: replaying and updating take
// `&mut`.
unsafe impl Send for Exec {}
// SAFETY: `&self` only reads the number.
unsafe impl Sync for Exec {}

impl Exec {
    fn handle(&self) -> CUgraphExec {
        self.0
    }
}

/// An executable graph, with the allocations that it uses.
struct Executable {
    exec: Exec,
    captured: Captured,
    /// For each use of a replay that is being queued, the number that `begin` returned.
    begun: Vec<u64>,
    /// The stream that it was launched on last. The driver puts launches of one executable behind each other.
    last: Option<Stream>,
    /// For error messages.
    site: LaunchSite,
    device: Device,
}

impl Executable {
    fn new(
        graph: &RawGraph,
        captured: Captured,
        device: &Device,
        at: &'static Location<'static>,
    ) -> Result<Self> {
        let mut handle = std::ptr::null_mut();
        one_graph_at_a_time(|| {
            // SAFETY: a place to write to and a live graph.
            device.call(|| unsafe { raw::graph_instantiate(&mut handle, graph.handle(), 0) })
        })?;
        let site = site(&captured, at);
        Ok(Executable {
            exec: Exec(handle),
            captured,
            begun: Vec::new(),
            last: None,
            site,
            device: device.clone(),
        })
    }

    /// Takes over the parameters of another graph. False when that graph has another shape.
    fn update(&mut self, graph: &RawGraph) -> Result<bool> {
        let (mut node, mut result) = (std::ptr::null_mut(), 0);
        let update = || {
            // SAFETY: two live graphs and two places to write to.
            unsafe { raw::graph_exec_update(self.exec.handle(), graph.handle(), &mut node, &mut result) }
        };
        let updated = one_graph_at_a_time(|| self.device.call(update));
        match updated {
            Ok(()) => Ok(true),
            Err(Error::Driver(error)) if error.code == UPDATE_FAILURE => Ok(false),
            Err(other) => Err(other),
        }
    }

    fn launch(&mut self, stream: &Stream) -> Result<()> {
        stream.same_device("the graph", &self.device)?;
        stream.must_not_be_captured(
            "replaying a graph",
            "a graph inside a graph would not keep the memory that it uses",
            "call the work itself inside the capture, or replay both graphs one after the other",
        )?;
        let one_at_a_time = self.device.blocking_launches().map(|lock| lock.lock());
        self.begun.clear();
        for (memory, written) in &self.captured.uses {
            self.begun.push(memory.users().begin(stream, *written)?);
        }
        // SAFETY: both handles are alive; `captured` keeps the memory and code that the graph uses.
        stream.call(|stream| unsafe { raw::graph_launch(self.exec.handle(), stream) })?;
        for ((memory, written), begun) in self.captured.uses.iter().zip(&self.begun) {
            memory.users().commit(stream, *written, *begun);
        }
        self.last = Some(stream.clone());
        stream.note_launch(self.site)?;
        if one_at_a_time.is_some() { stream.synchronize() } else { Ok(()) }
    }
}

impl Executable {
    /// Replaces the memory and code that it keeps by those of another capture.
    fn take_over(&mut self, captured: Captured) {
        let before = std::mem::replace(&mut self.captured, captured);
        // Queued runs still use the old memory and code.
        self.after_last_run(before, || ());
    }

    /// Does `work` and drops `kept` once all queued runs are over. If it cannot wait for them, `work` is not
    /// done, and the code in `kept` stays.
    fn after_last_run(&self, kept: Captured, work: impl FnOnce() + Send + 'static) {
        let last = self.last.clone();
        // A stream that is being captured cannot be waited for.
        self.device.captures().outside(move || {
            if last.is_some_and(|stream| !stream.drain()) {
                return kept.leave_running();
            }
            work();
            drop(kept);
        });
    }
}

impl Drop for Executable {
    /// Waits for the last run: a driver crashed when an executable was destroyed while it ran.
    fn drop(&mut self) {
        let (exec, device) = (Exec(self.exec.handle()), self.device.clone());
        let kept = std::mem::take(&mut self.captured);
        self.after_last_run(kept, move || {
            // A drop cannot return an error; only memory of the driver is lost.
            // SAFETY: this is the only handle, and it runs no more.
            let _ =
                one_graph_at_a_time(|| device.clean_up(|| unsafe { raw::graph_exec_destroy(exec.handle()) }));
        });
    }
}

fn site(captured: &Captured, location: &'static Location<'static>) -> LaunchSite {
    let kernel = keep(&format!("graph of {} launches", captured.launches.len()));
    LaunchSite { kernel, config: None, location }
}

/// Work that was captured, to be replayed. See the [module](self).
///
/// Dropping a graph waits for its last run.
///
/// `I` are its static inputs and `O` its static outputs: buffers, tuples or structs of them. What the
/// captured closure borrows stays borrowed for `'work`, as long as the graph lives.
pub struct Graph<'work, I = (), O = ()> {
    executable: Executable,
    inputs: I,
    outputs: O,
    work: PhantomData<&'work mut ()>,
}

impl<'work, I, O> Graph<'work, I, O> {
    /// Captures what `work` queues on the stream that it is given. None of it is done now: outputs have no
    /// meaning before the first replay.
    ///
    /// That stream is the capture's own, of the device and priority of `stream`. So no work of another thread
    /// can become part of the graph by accident. Work that any thread, or `work`, queues on `stream` itself
    /// is done at once.
    ///
    /// # Errors
    /// The error of `work`, such as [`Error::NotCapturable`], or the driver's error.
    #[track_caller]
    pub fn capture<F>(stream: &Stream, mut inputs: I, work: F) -> Result<Self>
    where
        F: FnOnce(&Stream, &mut I) -> Result<O> + 'work,
    {
        let (executable, outputs) = capture(stream, &mut inputs, work, Location::caller())?;
        Ok(Graph { executable, inputs, outputs, work: PhantomData })
    }

    /// Queues the captured work on `stream`, in order with all other uses of its buffers.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`], [`Error::NotCapturable`] on a stream that is being captured, or the
    /// driver's error. A later call returns the errors that happen while the graph runs.
    pub fn replay(&mut self, stream: &Stream) -> Result<()> {
        self.executable.launch(stream)
    }

    /// Captures `work` in place of what the graph holds: the same ops with other scalars, say. Runs of the
    /// graph that are queued already are not changed.
    ///
    /// # Errors
    /// As [`Graph::capture`]; the graph is as it was.
    #[track_caller]
    pub fn update<F>(&mut self, stream: &Stream, work: F) -> Result<Update>
    where
        F: FnOnce(&Stream, &mut I) -> Result<O> + 'work,
    {
        let at = Location::caller();
        stream.same_device("the graph", &self.executable.device)?;
        let (graph, captured, outputs) = record(stream, |stream| work(stream, &mut self.inputs))?;
        let update = if self.executable.update(&graph)? {
            self.executable.site = site(&captured, at);
            self.executable.take_over(captured);
            Update::InPlace
        } else {
            self.executable = Executable::new(&graph, captured, stream.device(), at)?;
            Update::Rebuilt
        };
        self.outputs = outputs;
        Ok(update)
    }

    /// The static inputs.
    pub fn inputs(&self) -> &I {
        &self.inputs
    }

    /// The static inputs, to write new values into. A buffer that is put in place of another is not the one
    /// that the graph reads.
    pub fn inputs_mut(&mut self) -> &mut I {
        &mut self.inputs
    }

    /// The static outputs, written by each replay. An op of another thread that reads them during a replay
    /// may see numbers of both runs: synchronise the threads, or copy the outputs first.
    pub fn outputs(&self) -> &O {
        &self.outputs
    }

    /// The launches that were captured, in order.
    pub fn launches(&self) -> &[LaunchSite] {
        &self.executable.captured.launches
    }

    /// The device that it runs on.
    pub fn device(&self) -> &Device {
        &self.executable.device
    }
}

impl<I, O> fmt::Debug for Graph<'_, I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Graph({} on device {})", self.executable.site, self.device().ordinal())
    }
}

/// Captures `work` and makes it executable.
fn capture<I, O>(
    stream: &Stream,
    inputs: &mut I,
    work: impl FnOnce(&Stream, &mut I) -> Result<O>,
    at: &'static Location<'static>,
) -> Result<(Executable, O)> {
    let (graph, captured, outputs) = record(stream, |stream| work(stream, inputs))?;
    Ok((Executable::new(&graph, captured, stream.device(), at)?, outputs))
}
