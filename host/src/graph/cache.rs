//! A step that is called many times and captured automatically.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::panic::Location;

use super::{Executable, capture};
use crate::error::{Error, Result};
use crate::stream::Stream;

/// Eager runs of a step with a key before it is captured. They load modules and find kernels.
const WARM_UP: u32 = 1;
/// The number of keys whose graphs are kept.
const CAPACITY: usize = 16;

type Prepare<'work, K, I> = Box<dyn FnMut(&Stream, &K) -> Result<I> + 'work>;
type Step<'work, I, O> = Box<dyn FnMut(&Stream, &mut I) -> Result<O> + 'work>;

/// How a step runs for a key.
#[derive(Debug)]
pub enum Mode<'a> {
    /// Launch by launch, until it has run often enough to be captured.
    WarmingUp,
    /// By a graph.
    Captured,
    /// Always launch by launch, for this reason.
    Eager(&'a Error),
}

/// Runs a step eagerly the first time that it sees a key, captures it the next time, and replays the graph
/// from then on.
///
/// The key is what the step's launches depend on: the shapes of its inputs, scalars, flags. Each key has its
/// own static inputs, which `prepare` makes, and its own outputs. The keys used last keep their graphs. A
/// step that cannot be captured runs eagerly, and [`GraphCache::mode`] tells why.
///
/// ```
/// # use ironwarp::{Device, DeviceBuffer, graph::GraphCache, ops::saxpy::saxpy};
/// # fn main() -> ironwarp::Result<()> {
/// # let device = Device::open(0)?;
/// # let stream = device.stream()?;
/// let mut double = GraphCache::new(
///     |stream, &len: &usize| DeviceBuffer::<f32>::zeroed(stream, len),
///     |stream, x: &mut DeviceBuffer<f32>| {
///         let mut y = DeviceBuffer::<f32>::zeroed(stream, x.len())?;
///         saxpy(stream, 2.0, &*x, &mut y)?;
///         Ok(y)
///     },
/// );
/// for batch in [vec![1.0f32; 10], vec![2.0; 10], vec![3.0; 4], vec![4.0; 10]] {
///     let y = double.run(&stream, &batch.len(), |stream, x| x.copy_from_slice(stream, &batch))?;
///     assert_eq!(y.to_vec(&stream)?, vec![2.0 * batch[0]; batch.len()]);
/// }
/// # Ok(())
/// # }
/// ```
pub struct GraphCache<'work, K, I, O> {
    prepare: Prepare<'work, K, I>,
    step: Step<'work, I, O>,
    entries: HashMap<K, Entry<I, O>>,
    warm_up: u32,
    capacity: usize,
    /// The number of calls so far: entries store it as their time of last use.
    calls: u64,
}

struct Entry<I, O> {
    state: State<O>,
    inputs: I,
    /// The outputs of the last eager run.
    outputs: Option<O>,
    used: u64,
}

enum State<O> {
    WarmingUp { runs: u32 },
    Captured { executable: Executable, outputs: O },
    Eager(Error),
}

impl<I, O> Entry<I, O> {
    fn new(inputs: I) -> Self {
        Entry { state: State::WarmingUp { runs: 0 }, inputs, outputs: None, used: 0 }
    }

    fn run(
        &mut self,
        stream: &Stream,
        step: &mut Step<'_, I, O>,
        warm_up: u32,
        at: &'static Location<'static>,
    ) -> Result<&O> {
        // Inside another capture, the step becomes part of that capture.
        let captured = stream.capture()?.is_some();
        if let State::WarmingUp { runs } = self.state
            && runs >= warm_up
            && !captured
        {
            match capture(stream, &mut self.inputs, |stream, inputs| step(stream, inputs), at) {
                Ok((executable, outputs)) => {
                    self.state = State::Captured { executable, outputs };
                    self.outputs = None;
                }
                Err(error) if error.is_about_capture() => self.state = State::Eager(error),
                Err(other) => return Err(other),
            }
        }
        let Entry { state, inputs, outputs, .. } = self;
        match state {
            State::Captured { executable, outputs } if !captured => {
                executable.launch(stream)?;
                Ok(outputs)
            }
            State::WarmingUp { runs } => {
                let outputs = outputs.insert(step(stream, inputs)?);
                *runs += u32::from(!captured);
                Ok(outputs)
            }
            State::Captured { .. } | State::Eager(_) => Ok(outputs.insert(step(stream, inputs)?)),
        }
    }
}

impl<'work, K: Hash + Eq + Clone, I, O> GraphCache<'work, K, I, O> {
    /// A cache for `step`, whose static inputs for a key `prepare` makes.
    pub fn new(
        prepare: impl FnMut(&Stream, &K) -> Result<I> + 'work,
        step: impl FnMut(&Stream, &mut I) -> Result<O> + 'work,
    ) -> Self {
        GraphCache {
            prepare: Box::new(prepare),
            step: Box::new(step),
            entries: HashMap::new(),
            warm_up: WARM_UP,
            capacity: CAPACITY,
            calls: 0,
        }
    }

    /// The same, with `runs` eager runs of a key before it is captured.
    #[must_use]
    pub fn warm_up(self, runs: u32) -> Self {
        GraphCache { warm_up: runs, ..self }
    }

    /// The same, with graphs for at most `keys` keys, at least one.
    #[must_use]
    pub fn capacity(self, keys: usize) -> Self {
        GraphCache { capacity: keys.max(1), ..self }
    }

    /// Fills the static inputs of `key` and runs the step: eagerly or by its graph. The outputs are valid
    /// until the next run with the key. A new key's inputs are made while all graphs are still kept.
    ///
    /// # Errors
    /// The errors of `prepare`, `fill` and an eager run of the step, or the driver's error.
    #[track_caller]
    pub fn run(
        &mut self,
        stream: &Stream,
        key: &K,
        fill: impl FnOnce(&Stream, &mut I) -> Result<()>,
    ) -> Result<&O> {
        let at = Location::caller();
        self.calls += 1;
        if !self.entries.contains_key(key) {
            // Before another key is forgotten: this may fail.
            let inputs = (self.prepare)(stream, key)?;
            self.make_room();
            self.entries.insert(key.clone(), Entry::new(inputs));
        }
        let Some(entry) = self.entries.get_mut(key) else { unreachable!("the key is there by now") };
        entry.used = self.calls;
        fill(stream, &mut entry.inputs)?;
        entry.run(stream, &mut self.step, self.warm_up, at)
    }

    /// How the step runs for `key`; `None` for a key that is new or forgotten.
    pub fn mode(&self, key: &K) -> Option<Mode<'_>> {
        self.entries.get(key).map(|entry| match &entry.state {
            State::WarmingUp { .. } => Mode::WarmingUp,
            State::Captured { .. } => Mode::Captured,
            State::Eager(reason) => Mode::Eager(reason),
        })
    }

    /// Forgets the keys used longest ago, so that there is room for one more.
    fn make_room(&mut self) {
        while self.entries.len() >= self.capacity {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.used).map(|(key, _)| key.clone());
            let Some(oldest) = oldest else { return };
            self.entries.remove(&oldest);
        }
    }
}

impl<K: fmt::Debug + Hash + Eq + Clone, I, O> fmt::Debug for GraphCache<'_, K, I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.entries.keys().map(|key| (key, self.mode(key)))).finish()
    }
}
