//! Launches that were prepared: the host's part of a launch for less.
//!
//! A kernel that is launched again and again with one configuration is worth a [graph of its own](OneKernel). Small launches in a row get one by
//! themselves (`repeats.rs`); this is for the others, whoever knows that the device waits for the host.

use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::Arc;

use cuda_std::kernel::Kernel;

use super::args::LaunchArgs;
use super::config::{LaunchConfig, LaunchSite};
use super::function::FunctionInner;
use super::kernel::KernelHandle;
use super::one_kernel::{OneKernel, stands_for};
use crate::error::Result;
use crate::stream::Stream;

/// A kernel made ready for one configuration on one stream, by [`KernelHandle::prepare`].
///
/// Clusters, cooperative launches and launches that are captured go the usual way, and so do all where the driver has no memory for a graph.
/// Others do not overlap with the launch before them, nor the next one with them ([`LaunchConfig::overlapping_previous`]); on the software
/// driver, whose checker looks at that, they go the usual way too.
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
    /// Makes the kernel ready to be launched on `stream` with `config` many times: each launch then costs the host about half of what
    /// [`KernelHandle::launch`] does, from the second on.
    ///
    /// # Errors
    /// As [`KernelHandle::launch`], for what concerns the configuration.
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
        let usual = config.cluster != [1; 3]
            || config.cooperative
            || config.blocks() == 0
            || !stands_for(&config, stream.device());
        if usual || stream.device().blocking_launches().is_some() || stream.capture()?.is_some() {
            // SAFETY: the caller's promise.
            return unsafe { function.launch::<K::Params>(stream, config, args, location) };
        }
        args.with(stream, |parameters| {
            // SAFETY: the arguments fit the kernel's parameters by their types, and the rest is the caller's promise.
            stream.call(|queue| unsafe {
                match graph {
                    State::New => {
                        // What is wrong, if it is more than a lack of memory, the usual launch will say.
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
            // A failure has nobody to go to: it is memory of the driver's.
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
