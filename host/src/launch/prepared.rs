//! Prepared launches: they cost the host half the time of a usual launch.
//!
//! A prepared launch is a graph of one kernel. The driver replays such a graph in half the time of a usual
//! launch (`benches/NOTES.md`), and its arguments are set before each launch. It helps where the device waits
//! for the host.

use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::Arc;

use crate::sys::{CUgraph, CUgraphExec, CUgraphNode, CUstream};
use cuda_std::kernel::Kernel;

use super::args::Parameters;
use super::function::FunctionInner;
use super::kernel::KernelHandle;
use super::tuples::LaunchArgs;
use crate::config::LaunchConfig;
use crate::error::{LaunchSite, Result};
use crate::raw::{self, KernelNodeParams, RawResult, one_graph_at_a_time};
use crate::stream::Stream;

/// A kernel made ready for one configuration on one stream, by [`KernelHandle::prepare`].
///
/// Inside a capture, prepare on the capture's stream. These are launched the usual way: clusters, cooperative
/// launches, launches that are captured, and all launches when the driver has no memory for a graph. Other
/// launches do not overlap with the launch before them or behind them
/// ([`LaunchConfig::overlapping_previous`]). The software driver also launches an overlapping configuration
/// the usual way: its checker checks the overlap, and a graph has no information about it.
pub struct PreparedLaunch<K> {
    function: Arc<FunctionInner>,
    stream: Stream,
    config: LaunchConfig,
    graph: State,
    kernel: PhantomData<fn() -> K>,
}

enum State {
    /// Not launched yet.
    New,
    Graph(OneKernel),
    /// The driver would not make its graph.
    Refused,
}

impl<K: Kernel> KernelHandle<K> {
    /// Makes the kernel ready to be launched on `stream` with `config` many times: from the second launch on,
    /// each costs the host about half of what [`KernelHandle::launch`] does.
    ///
    /// # Errors
    /// As [`KernelHandle::launch`], as far as the configuration is concerned.
    pub fn prepare(&self, stream: &Stream, config: LaunchConfig) -> Result<PreparedLaunch<K>> {
        stream.same_device("the kernel", self.device())?;
        self.inner().make_ready(stream.device(), &config)?;
        let (function, stream) = (self.inner().clone(), stream.clone());
        Ok(PreparedLaunch { function, stream, config, graph: State::New, kernel: PhantomData })
    }
}

impl<K: Kernel> PreparedLaunch<K> {
    /// The stream that it launches on.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Queues the kernel.
    ///
    /// # Safety
    /// As [`launch`](fn@super::launch).
    ///
    /// # Errors
    /// As [`launch`](fn@super::launch).
    #[track_caller]
    pub unsafe fn launch(&mut self, args: impl LaunchArgs<K::Params>) -> Result<()> {
        let (config, location) = (self.config, Location::caller());
        let PreparedLaunch { function, stream, graph, .. } = self;
        let device = stream.device();
        let usual = config.cluster != [1; 3]
            || config.cooperative
            || config.blocks() == 0
            || (config.overlapping && device.is_software());
        if usual || device.blocking_launches().is_some() || stream.capture()?.is_some() {
            // SAFETY: the caller's promise.
            return unsafe { function.launch::<K::Params>(stream, config, args, location) };
        }
        args.with(stream, |parameters| {
            // SAFETY: the arguments fit the kernel's parameters by their types, and the rest is the caller's
            // promise.
            stream.call(|queue| unsafe {
                match graph {
                    State::New => {
                        // If the cause is other than a lack of memory, the usual launch will report it.
                        let made = OneKernel::new(function, &config, parameters);
                        *graph = made.map_or(State::Refused, State::Graph);
                    }
                    State::Graph(graph) => graph.set(function, &config, parameters)?,
                    State::Refused => {}
                }
                match graph {
                    State::Graph(graph) => graph.launch(queue),
                    State::New | State::Refused => function.submit(stream, &config, parameters),
                }
            })
        })?;
        stream.note_launch(LaunchSite { kernel: function.name(), config: Some(config), location })
    }
}

impl<K> Drop for PreparedLaunch<K> {
    /// Waits for the last launch, as a graph does.
    fn drop(&mut self) {
        let State::Graph(graph) = std::mem::replace(&mut self.graph, State::Refused) else { return };
        let stream = self.stream.clone();
        let device = stream.device().clone();
        // A stream that is being captured cannot be waited for.
        device.clone().captures().outside(move || {
            if !stream.drain() {
                return; // It may still run: a leak is better.
            }
            // A drop cannot return an error; only memory of the driver is lost.
            // SAFETY: it runs no more.
            let _ = device.clean_up(|| unsafe { graph.destroy() });
        });
    }
}

impl<K> fmt::Debug for PreparedLaunch<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PreparedLaunch({} on {:?}, {})", self.function.name(), self.stream, self.config)
    }
}

/// A graph of one kernel, and its executable.
struct OneKernel {
    graph: CUgraph,
    node: CUgraphNode,
    exec: CUgraphExec,
}

// SAFETY: the handles may be used from any thread, by one at a time: they are reached through `&mut` alone.
unsafe impl Send for OneKernel {}
// SAFETY: a shared reference gives no access to them.
unsafe impl Sync for OneKernel {}

impl OneKernel {
    /// # Safety
    /// `parameters` fit the kernel, the configuration is within its limits, and the context is current.
    unsafe fn new(
        function: &FunctionInner,
        config: &LaunchConfig,
        parameters: &mut Parameters,
    ) -> RawResult<Self> {
        let values = node(function, config, parameters);
        let mut new =
            OneKernel { graph: std::ptr::null_mut(), node: std::ptr::null_mut(), exec: std::ptr::null_mut() };
        // SAFETY: places to write to; the graph is fresh and its own; the driver copies the values before it
        // returns.
        one_graph_at_a_time(|| unsafe {
            raw::graph_create(&mut new.graph, 0)?;
            let made = raw::graph_add_kernel_node(&mut new.node, new.graph, std::ptr::null(), 0, &values)
                .and_then(|()| raw::graph_instantiate(&mut new.exec, new.graph, 0));
            if let Err(error) = made {
                // The first error is reported.
                let _ = raw::graph_destroy(new.graph);
                return Err(error);
            }
            Ok(())
        })?;
        Ok(new)
    }

    /// Sets other arguments for launches from now on. Takes no lock: `&mut self` makes this the executable's
    /// one user.
    ///
    /// # Safety
    /// As [`OneKernel::new`]; function and configuration are those that it was made with.
    unsafe fn set(
        &mut self,
        function: &FunctionInner,
        config: &LaunchConfig,
        parameters: &mut Parameters,
    ) -> RawResult {
        let values = node(function, config, parameters);
        // SAFETY: live handles; the driver copies the values before it returns.
        unsafe { raw::graph_exec_kernel_set_params(self.exec, self.node, &values) }
    }

    /// # Safety
    /// The kernel's own contract holds for the arguments set last. The stream is alive, and the context
    /// current.
    unsafe fn launch(&mut self, queue: CUstream) -> RawResult {
        // SAFETY: live handles, and the caller's promise.
        unsafe { raw::graph_launch(self.exec, queue) }
    }

    /// # Safety
    /// It no longer runs, and the context is current.
    unsafe fn destroy(self) -> RawResult {
        // SAFETY: the caller's promise; these are the only handles.
        one_graph_at_a_time(|| unsafe {
            raw::graph_exec_destroy(self.exec).and(raw::graph_destroy(self.graph))
        })
    }
}

fn node(function: &FunctionInner, config: &LaunchConfig, parameters: &mut Parameters) -> KernelNodeParams {
    let LaunchConfig { grid, block, shared_bytes, .. } = *config;
    KernelNodeParams {
        function: function.handle(),
        grid,
        block,
        shared_bytes,
        parameters: parameters.as_mut_ptr(),
        extra: std::ptr::null_mut(),
    }
}
