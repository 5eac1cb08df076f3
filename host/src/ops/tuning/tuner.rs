//! The tuner: what it knows, and where it keeps that.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::device::Device;
use crate::error::{Error, Result};
use crate::stream::Stream;

use super::call::{Task, Tunable};
use super::measure::measure;
use super::records::{self, Place, Record, Records, Unusable};

/// How a tuner handles a problem that it has no record of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tuning {
    /// Measures it at its first call: waits for the device, and takes memory for other results. Without that
    /// memory it takes what the call's own `run` would, keeps no record, and tries again at the next call.
    #[default]
    Measure,
    /// Takes what the call's own `run` would. Nothing is measured, so with the same records the same problem
    /// has the same bits in every run: the deterministic mode.
    Recorded,
}

/// Where a configuration comes from.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Source {
    /// It has the lowest estimate, or the call or the environment asks for it.
    Estimate,
    /// A tuner's record: it was measured beside the others.
    Record {
        /// Its time then.
        microseconds: f64,
    },
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Estimate => f.write_str("from its estimate: nothing was measured"),
            Source::Record { microseconds } => {
                write!(f, "from a tuner's record: measured, {microseconds:.1} us")
            }
        }
    }
}

/// Measures configurations for the problems of one device and keeps the best, in memory or in a file: one
/// tuner, and one file, for all operations. What is kept is never slower than the call's own choice, as far
/// as that was measured: another configuration has to be faster in every round, by a hundredth and by half a
/// microsecond.
#[derive(Debug)]
pub struct Tuner {
    device: Device,
    place: Place,
    tuning: Tuning,
    path: Option<PathBuf>,
    unusable: Option<Unusable>,
    records: Mutex<Records>,
    /// For each type of task a map to the configuration, by its record or chosen without one. Looked up at
    /// every call.
    known: Mutex<HashMap<TypeId, Box<dyn Any + Send>>>,
}

/// Why nothing is measured on a stream that is being captured.
const CAPTURED: [&str; 2] = [
    "a measurement waits for the device",
    "make the call once before the capture, or take a tuner that measures nothing (`Tuning::Recorded`)",
];

impl Tuner {
    /// A tuner whose records last as long as it does.
    pub fn new(device: &Device, tuning: Tuning) -> Self {
        let (place, records, known) = (Place::of(device), Mutex::default(), Mutex::default());
        Tuner { device: device.clone(), place, tuning, path: None, unusable: None, records, known }
    }

    /// A tuner whose records are kept in the file `path`. A file that is not there yet is made with the first
    /// record. One that is broken, or of another device, driver or version of the library, is not used
    /// ([`Tuner::unusable`] says why) and is replaced with the first record. Of two processes that save at
    /// once the last one wins: the other's new records are lost.
    pub fn with_file(device: &Device, tuning: Tuning, path: impl AsRef<Path>) -> Self {
        let mut tuner = Tuner::new(device, tuning);
        match records::load(path.as_ref(), &tuner.place) {
            Ok(found) => tuner.records = Mutex::new(found),
            Err(why) => tuner.unusable = Some(why),
        }
        Tuner { path: Some(path.as_ref().to_owned()), ..tuner }
    }

    /// As the environment says: `IRONWARP_TUNER_RECORDS` names the file (none: records stay in memory),
    /// `IRONWARP_TUNING` is `measure` (the default) or `recorded`.
    ///
    /// # Errors
    /// [`Error::Environment`].
    pub fn from_env(device: &Device) -> Result<Self> {
        const TUNING: &str = "IRONWARP_TUNING";
        let tuning = match std::env::var(TUNING) {
            Err(std::env::VarError::NotPresent) => Tuning::Measure,
            Ok(value) if value.is_empty() || value == "measure" => Tuning::Measure,
            Ok(value) if value == "recorded" => Tuning::Recorded,
            other => {
                let value = other.unwrap_or_else(|error| error.to_string());
                return Err(Error::Environment { name: TUNING, value, allowed: "measure, recorded" });
            }
        };
        Ok(match std::env::var_os("IRONWARP_TUNER_RECORDS").filter(|path| !path.is_empty()) {
            Some(path) => Tuner::with_file(device, tuning, path),
            None => Tuner::new(device, tuning),
        })
    }

    /// Why the file's records are not used.
    pub fn unusable(&self) -> Option<&Unusable> {
        self.unusable.as_ref()
    }

    /// Problems that there are records of.
    pub fn len(&self) -> usize {
        self.records().len()
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.records().is_empty()
    }

    /// Queues the call by the configuration on record, which is measured first if there is none and the tuner
    /// may.
    ///
    /// # Errors
    /// As the call's own `run`; [`Error::FileWrite`] when a new record cannot be kept (the call is queued
    /// nevertheless); [`Error::NotCapturable`] when it would have to measure on a stream that is being
    /// captured.
    pub fn run<C: Tunable>(&self, stream: &Stream, mut call: C) -> Result<()> {
        let task = call.task(stream)?;
        stream.same_device("the tuner", &self.device)?;
        let (config, kept) = match self.known(&task) {
            Some(config) => (config, Ok(())),
            None => self.find(stream, &mut call, &task)?,
        };
        call.queue(stream, &task, config)?;
        kept
    }

    /// The choice that [`Tuner::run`] has a record of, or would make without measuring, and why. A record of
    /// a configuration that cannot do the problem any more counts as none.
    ///
    /// # Errors
    /// As the call's own `explain`.
    pub fn explain<C: Tunable>(&self, stream: &Stream, call: C) -> Result<<C::Task as Task>::Choice> {
        let task = call.task(stream)?;
        stream.same_device("the tuner", &self.device)?;
        let (config, source) = match self.recorded(&task) {
            Some((config, microseconds)) => (config, Source::Record { microseconds }),
            None => (task.choice(&self.device)?, Source::Estimate),
        };
        task.explain(&self.device, config, source)
    }

    /// The configuration for a task that is asked for the first time, and whether a new record of it could be
    /// kept.
    fn find<C: Tunable>(
        &self,
        stream: &Stream,
        call: &mut C,
        task: &C::Task,
    ) -> Result<(<C::Task as Task>::Config, Result<()>)> {
        let (config, kept) = match (self.recorded(task), self.tuning) {
            (Some((config, _)), _) => (config, Ok(())),
            (None, Tuning::Recorded) => (task.choice(&self.device)?, Ok(())),
            (None, Tuning::Measure) => {
                let [reason, hint] = CAPTURED;
                stream.must_not_be_captured("tuning", reason, hint)?;
                let Some((config, microseconds)) = measure(stream, call, task)? else {
                    // The next call may find the memory.
                    return Ok((task.choice(&self.device)?, Ok(())));
                };
                (config, self.keep(task, config, microseconds))
            }
        };
        self.remember(task, config);
        Ok((config, kept))
    }

    /// The record of a task, with its microseconds, if its configuration is still a candidate.
    fn recorded<T: Task>(&self, task: &T) -> Option<(T::Config, f64)> {
        let Record { config, microseconds } = self.records().get(&task.key())?.clone();
        let candidates = task.candidates(&self.device).into_iter();
        let found = candidates.map(|(candidate, _)| candidate).find(|c| c.to_string() == config)?;
        Some((found, microseconds))
    }

    fn known<T: Task>(&self, task: &T) -> Option<T::Config> {
        let known = locked(&self.known);
        let of_type = known.get(&TypeId::of::<T>())?.downcast_ref::<HashMap<T, T::Config>>()?;
        of_type.get(task).copied()
    }

    fn remember<T: Task>(&self, task: &T, config: T::Config) {
        let mut known = locked(&self.known);
        let of_type =
            known.entry(TypeId::of::<T>()).or_insert_with(|| Box::new(HashMap::<T, T::Config>::new()));
        if let Some(of_type) = of_type.downcast_mut::<HashMap<T, T::Config>>() {
            of_type.insert(*task, config);
        }
    }

    fn keep<T: Task>(&self, task: &T, config: T::Config, microseconds: f64) -> Result<()> {
        let mut records = self.records();
        records.insert(task.key(), Record { config: config.to_string(), microseconds });
        self.path.as_ref().map_or(Ok(()), |path| records::save(path, &self.place, &records))
    }

    fn records(&self) -> MutexGuard<'_, Records> {
        locked(&self.records)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
