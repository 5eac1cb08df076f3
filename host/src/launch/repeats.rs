//! Launches that repeat, by graphs: for the host half of what a launch costs.
//!
//! A stream keeps a [graph of one kernel](OneKernel) for each small launch that it makes again and again, and sets the arguments before
//! each launch. The device takes a microsecond between graphs, in which a launch that overlaps with the one before would be at work
//! already, and the next one does not overlap with a graph. So this pays where the device waits for the host: in a row of launches that are
//! all small. What is larger, or stands between larger ones, is launched as ever.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use cust_raw::CUstream;

use super::args::Parameters;
use super::config::LaunchConfig;
use super::function::FunctionInner;
use super::one_kernel::OneKernel;
use crate::device::DeviceProperties;
use crate::raw::{self, RawResult};
use crate::stream::is_settled;

/// Small launches behind each other that are a row.
const ROW: u32 = 16;
/// Launches after which a launch gets a graph: making one takes as long as is saved by so many.
const BEFORE_GRAPH: u32 = 16;
/// Launches that a stream remembers. A graph takes 112 KiB of the device's memory, on an H200.
const KEPT: usize = 32;
/// A launch that was not seen among so many gives its place to another.
const STALE: u64 = 256;
/// Threads of a small launch, for each multiprocessor: more take longer than a launch does, where each thread has a vector or two.
const SMALL: u64 = 1024;

/// Does a launch of this configuration, with the next one behind it, rather keep the host busy than the device? Products ask for much
/// shared memory.
pub(super) fn is_small(config: &LaunchConfig, device: &DeviceProperties) -> bool {
    !config.cooperative
        && config.cluster == [1; 3]
        && config.shared_bytes <= device.shared_per_block
        && config.blocks().saturating_mul(config.threads_per_block()) <= SMALL * u64::from(device.sm_count)
}

/// The launches that a stream makes again and again. Whoever owns it calls [`Repeats::destroy`].
#[derive(Default)]
pub(crate) struct Repeats {
    /// Small launches since the last one that was not, up to [`ROW`].
    row: AtomicU32,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    /// Launches so far.
    clock: u64,
    places: Vec<Place>,
}

/// A launch but for its arguments.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    /// Where it lies: a function that a device keeps stays there as long as the device.
    function: usize,
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
}

struct Place {
    key: Key,
    /// When it was launched last.
    last: u64,
    state: State,
}

enum State {
    /// Launched so often.
    Counted(u32),
    Graph(OneKernel),
    /// The driver would not make its graph: it may be short of memory.
    Refused,
}

impl Repeats {
    /// Notes that a launch comes. Are this and those before it a row of small ones?
    pub(super) fn in_a_row(&self, small: bool) -> bool {
        // Threads that launch on one stream may miscount: it is a guess at what comes next.
        let before = self.row.load(Ordering::Relaxed);
        let now = if small { (before + 1).min(ROW) } else { 0 };
        if now != before {
            self.row.store(now, Ordering::Relaxed);
        }
        now == ROW
    }

    /// Launches by a graph, if this launch has one or is to have one. Else nothing was done.
    ///
    /// # Safety
    /// What the kernel relies on. `parameters` fit it, the configuration is within its limits, the queue is the one stream whose launches are
    /// remembered here, the context is current, and the device keeps `function`.
    pub(super) unsafe fn launch(
        &self,
        queue: CUstream,
        function: &FunctionInner,
        config: &LaunchConfig,
        parameters: &mut Parameters,
    ) -> RawResult<bool> {
        let LaunchConfig { grid, block, shared_bytes, .. } = *config;
        let key = Key { function: std::ptr::from_ref(function).addr(), grid, block, shared_bytes };
        // Held until the launch is queued: another thread's arguments must not come in between.
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the caller's promise.
        let Some(place) = (unsafe { table.place(key, queue) }) else { return Ok(false) };
        // SAFETY: the caller's promise; the key has the function and the configuration.
        unsafe {
            match &mut place.state {
                State::Graph(graph) => graph.set(function, config, parameters)?,
                State::Counted(launches) if *launches < BEFORE_GRAPH => *launches += 1,
                State::Counted(_) => {
                    // What is wrong, if it is more than a lack of memory, the usual launch will say.
                    let made = OneKernel::new(function, config, parameters);
                    place.state = made.map_or(State::Refused, State::Graph);
                }
                State::Refused => {}
            }
            let State::Graph(graph) = &mut place.state else { return Ok(false) };
            graph.launch(queue)?;
        }
        Ok(true)
    }

    /// Destroys the graphs; waits for the queue where there are any.
    ///
    /// # Safety
    /// The queue is alive and the context current.
    pub(crate) unsafe fn destroy(&mut self, queue: CUstream) {
        let table = self.table.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut graphs = table.places.drain(..).filter_map(|place| place.state.into_graph()).peekable();
        // SAFETY: the caller's promise.
        if graphs.peek().is_none() || !is_settled(unsafe { raw::stream_synchronize(queue) }) {
            return; // They may still run: a leak is better.
        }
        // A failure has nobody to go to: it is memory of the driver's.
        // SAFETY: the queue is done, and nothing else runs them.
        graphs.for_each(|graph| drop(unsafe { graph.destroy() }));
    }
}

impl Table {
    /// The place of a launch; none when all are taken by launches that still come.
    ///
    /// # Safety
    /// As [`Repeats::launch`].
    unsafe fn place(&mut self, key: Key, queue: CUstream) -> Option<&mut Place> {
        self.clock += 1;
        let index = match self.places.iter().position(|place| place.key == key) {
            Some(index) => index,
            None if self.places.len() < KEPT => {
                self.places.push(Place { key, last: 0, state: State::Counted(0) });
                self.places.len() - 1
            }
            None => {
                // SAFETY: the caller's promise.
                let index = unsafe { self.clear_oldest(queue)? };
                self.places[index].key = key;
                index
            }
        };
        let place = &mut self.places[index];
        place.last = self.clock;
        Some(place)
    }

    /// Takes its place from the launch that has not been seen for longest, if it is stale.
    ///
    /// # Safety
    /// As [`Repeats::launch`].
    unsafe fn clear_oldest(&mut self, queue: CUstream) -> Option<usize> {
        let index = (0..self.places.len()).min_by_key(|&index| self.places[index].last)?;
        let place = &mut self.places[index];
        if self.clock - place.last < STALE {
            return None;
        }
        // Asked no more often than that.
        place.last = self.clock;
        // A graph goes when it cannot be running. Where the device is never idle, launches cost nobody's time.
        // SAFETY: the caller's promise.
        if matches!(place.state, State::Graph(_)) && !matches!(unsafe { raw::stream_query(queue) }, Ok(true))
        {
            return None;
        }
        if let Some(graph) = std::mem::replace(&mut place.state, State::Counted(0)).into_graph() {
            // A failure has nobody to go to: it is memory of the driver's.
            // SAFETY: the queue is idle, and nothing else runs it.
            drop(unsafe { graph.destroy() });
        }
        Some(index)
    }
}

impl State {
    fn into_graph(self) -> Option<OneKernel> {
        match self {
            State::Graph(graph) => Some(graph),
            State::Counted(_) | State::Refused => None,
        }
    }
}
