//! Launches that were prepared: the host's part of a launch for less.
//!
//! The driver replays a graph of one kernel in half the time that it takes to launch the kernel (`benches/NOTES.md`), and a graph's arguments
//! can be changed in between. So a kernel that is launched again and again with one configuration is worth a graph of its own.

use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::Arc;

use cuda_std::kernel::Kernel;
use cust_raw::{CUgraph, CUgraphExec, CUgraphNode};

use super::args::{LaunchArgs, Parameters};
use super::config::{LaunchConfig, LaunchSite};
use super::function::FunctionInner;
use super::kernel::KernelHandle;
use crate::error::Result;
use crate::graph::alone;
use crate::raw::{self, KernelNodeParams, RawResult};
use crate::stream::Stream;

/// A kernel made ready for one configuration on one stream, by [`KernelHandle::prepare`].
///
/// Clusters, cooperative launches and launches that are captured go the usual way.
pub struct PreparedLaunch<K> {
    function: Arc<FunctionInner>,
    stream: Stream,
    config: LaunchConfig,
    /// There from the first launch on.
    graph: Option<OneKernel>,
    kernel: PhantomData<fn() -> K>,
}

/// A graph of one kernel, and its executable. Whoever owns it calls [`OneKernel::destroy`].
#[derive(Clone, Copy)]
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
    /// The parameters are those of a loaded kernel, and the context is current.
    unsafe fn new(parameters: &KernelNodeParams) -> RawResult<Self> {
        let mut new =
            OneKernel { graph: std::ptr::null_mut(), node: std::ptr::null_mut(), exec: std::ptr::null_mut() };
        // SAFETY: places to write to; the graph is fresh and its own; the rest is the caller's promise.
        unsafe {
            raw::graph_create(&mut new.graph, 0)?;
            let made = raw::graph_add_kernel_node(&mut new.node, new.graph, std::ptr::null(), 0, parameters)
                .and_then(|()| raw::graph_instantiate(&mut new.exec, new.graph, 0));
            if let Err(error) = made {
                // The first error is the one to tell.
                let _ = raw::graph_destroy(new.graph);
                return Err(error);
            }
        }
        Ok(new)
    }

    /// # Safety
    /// It runs no more, the context is current, and nobody uses the handles after this.
    unsafe fn destroy(self) -> RawResult {
        // SAFETY: the caller's promise.
        unsafe { raw::graph_exec_destroy(self.exec).and(raw::graph_destroy(self.graph)) }
    }
}

impl<K: Kernel> KernelHandle<K> {
    /// Makes the kernel ready to be launched on `stream` with `config` many times: each launch then costs the host about half of what
    /// [`KernelHandle::launch`] does, from the second on.
    ///
    /// # Errors
    /// As [`KernelHandle::launch`], for what concerns the configuration.
    pub fn prepare(&self, stream: &Stream, config: LaunchConfig) -> Result<PreparedLaunch<K>> {
        stream.same_device("the kernel", self.device())?;
        self.inner().make_ready(stream.device(), &config)?;
        let (function, stream) = (self.inner().clone(), stream.clone());
        Ok(PreparedLaunch { function, stream, config, graph: None, kernel: PhantomData })
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
        let usual = config.cluster != [1; 3] || config.cooperative || config.blocks() == 0;
        if usual || stream.device().blocking_launches().is_some() || stream.capture()?.is_some() {
            // SAFETY: the caller's promise.
            return unsafe { function.launch::<K::Params>(stream, config, args, location) };
        }
        args.with(stream, |parameters| {
            // SAFETY: the arguments fit the kernel's parameters by their types, and the rest is the caller's promise.
            stream.call(|_| unsafe { submit(function, stream, &config, graph, parameters) })
        })?;
        stream.note_launch(LaunchSite { kernel: function.name(), config: Some(config), location })
    }
}

/// # Safety
/// As [`PreparedLaunch::launch`]; `parameters` fit the kernel, and the context is current.
unsafe fn submit(
    function: &FunctionInner,
    stream: &Stream,
    config: &LaunchConfig,
    graph: &mut Option<OneKernel>,
    parameters: &mut Parameters,
) -> RawResult {
    let LaunchConfig { grid, block, shared_bytes, .. } = *config;
    let node = KernelNodeParams {
        function: function.handle(),
        grid,
        block,
        shared_bytes,
        parameters: parameters.as_mut_ptr(),
        extra: std::ptr::null_mut(),
    };
    // SAFETY: live handles; the driver copies the parameters before it returns; the rest is the caller's promise.
    unsafe {
        let exec = match graph {
            Some(one) => {
                alone(|| raw::graph_exec_kernel_set_params(one.exec, one.node, &node))?;
                one.exec
            }
            None => graph.insert(alone(|| OneKernel::new(&node))?).exec,
        };
        raw::graph_launch(exec, stream.handle())
    }
}

impl<K> Drop for PreparedLaunch<K> {
    /// Waits for the last launch, as a graph does.
    fn drop(&mut self) {
        let Some(graph) = self.graph.take() else { return };
        let stream = self.stream.clone();
        let device = stream.device().clone();
        // A stream that is being captured cannot be waited for.
        device.clone().captures().outside(move || {
            let graph: OneKernel = graph;
            if !stream.drain() {
                return; // It may still run: a leak is better.
            }
            // A failure has nobody to go to: it is memory of the driver's.
            // SAFETY: this is the only handle, and it runs no more.
            let _ = alone(|| device.clean_up(|| unsafe { graph.destroy() }));
        });
    }
}

impl<K> fmt::Debug for PreparedLaunch<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PreparedLaunch({} on {:?}, {})", self.function.name(), self.stream, self.config)
    }
}
