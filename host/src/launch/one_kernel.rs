//! A graph of one kernel.
//!
//! The driver replays it in half the time that it takes to launch the kernel (`benches/NOTES.md`), and its arguments can be changed in between.

use cust_raw::{CUgraph, CUgraphExec, CUgraphNode, CUstream};

use super::args::Parameters;
use super::config::LaunchConfig;
use super::function::FunctionInner;
use crate::device::Device;
use crate::graph::alone;
use crate::raw::{self, KernelNodeParams, RawResult};

/// A graph of one kernel, and its executable. Whoever owns it calls [`OneKernel::destroy`].
pub(super) struct OneKernel {
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
    pub(super) unsafe fn new(
        function: &FunctionInner,
        config: &LaunchConfig,
        parameters: &mut Parameters,
    ) -> RawResult<Self> {
        let values = node(function, config, parameters);
        let mut new =
            OneKernel { graph: std::ptr::null_mut(), node: std::ptr::null_mut(), exec: std::ptr::null_mut() };
        // SAFETY: places to write to; the graph is fresh and its own; the driver copies the values before it returns.
        alone(|| unsafe {
            raw::graph_create(&mut new.graph, 0)?;
            let made = raw::graph_add_kernel_node(&mut new.node, new.graph, std::ptr::null(), 0, &values)
                .and_then(|()| raw::graph_instantiate(&mut new.exec, new.graph, 0));
            if let Err(error) = made {
                // The first error is the one to tell.
                let _ = raw::graph_destroy(new.graph);
                return Err(error);
            }
            Ok(())
        })?;
        Ok(new)
    }

    /// Sets other arguments for launches from now on.
    ///
    /// # Safety
    /// As [`OneKernel::new`]; function and configuration are those that it was made with.
    pub(super) unsafe fn set(
        &mut self,
        function: &FunctionInner,
        config: &LaunchConfig,
        parameters: &mut Parameters,
    ) -> RawResult {
        let values = node(function, config, parameters);
        // SAFETY: live handles; the driver copies the values before it returns.
        alone(|| unsafe { raw::graph_exec_kernel_set_params(self.exec, self.node, &values) })
    }

    /// # Safety
    /// What the kernel relies on, with the arguments set last; the stream is alive and the context current.
    pub(super) unsafe fn launch(&mut self, queue: CUstream) -> RawResult {
        // SAFETY: live handles, and the caller's promise.
        unsafe { raw::graph_launch(self.exec, queue) }
    }

    /// # Safety
    /// It runs no more, and the context is current.
    pub(super) unsafe fn destroy(self) -> RawResult {
        // SAFETY: the caller's promise; these are the only handles.
        alone(|| unsafe { raw::graph_exec_destroy(self.exec).and(raw::graph_destroy(self.graph)) })
    }
}

/// Can such a graph stand for the launch? It does not say that its kernel overlaps, which the software driver's checker looks at.
pub(super) fn stands_for(config: &LaunchConfig, device: &Device) -> bool {
    !(config.overlapping && device.is_software())
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
