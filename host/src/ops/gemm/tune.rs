//! The tuner: measures the configurations that can do a problem, and keeps what it finds.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::device::Device;
use crate::error::{Error, Result};
use crate::memory::DeviceBuffer;
use crate::stream::{Event, Stream};

use super::config::{Candidate, Config};
use super::matmul::Matmul;
use super::matrix::{MatrixMut, ROW_ALIGNMENT};
use super::problem::Problem;
use super::records::{self, Place, Record, Records, Unusable};
use super::{backend, select};

/// How a tuner handles a problem that it has no record of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tuning {
    /// Measures it at its first product: waits for the device, and takes memory for another C. Without that
    /// memory it takes what [`select`](super::select) chooses, and keeps no record.
    #[default]
    Measure,
    /// Takes what [`select`](super::select) chooses. Nothing is measured, so with the same records the same
    /// problem has the same bits in every run: the deterministic mode.
    Recorded,
}

/// Configurations that are estimated to take longer than so many times the best one are not measured.
const WORTH_A_TRY: f64 = 4.0;
/// Configurations measured at most.
const MOST_TRIES: usize = 24;
/// Samples of each; the shortest counts.
const SAMPLES: usize = 3;
/// Length of a sample, milliseconds, where a run is shorter.
const SAMPLE_MS: f32 = 1.0;
/// Runs of a sample at most.
const MOST_RUNS: f32 = 50.0;

/// Measures configurations for the problems of one device and keeps the best, in memory or in a file.
#[derive(Debug)]
pub struct Tuner {
    device: Device,
    place: Place,
    tuning: Tuning,
    path: Option<PathBuf>,
    unusable: Option<Unusable>,
    records: Mutex<Records>,
    /// The configuration for each problem, by its record or chosen without one. Looked up at every product.
    known: Mutex<HashMap<Problem, Config>>,
}

impl Tuner {
    /// A tuner whose records last as long as it does.
    pub fn new(device: &Device, tuning: Tuning) -> Self {
        let (place, records) = (Place::of(device), Mutex::default());
        let known = Mutex::default();
        Tuner { device: device.clone(), place, tuning, path: None, unusable: None, records, known }
    }

    /// A tuner whose records are kept in the file `path`. A file that is not there yet is made with the first
    /// record. One that is broken, or of another device, driver or version of the library, is not used
    /// ([`Tuner::unusable`] says why) and is replaced with the first record.
    pub fn with_file(device: &Device, tuning: Tuning, path: impl AsRef<Path>) -> Self {
        let mut tuner = Tuner::new(device, tuning);
        match records::load(path.as_ref(), &tuner.place) {
            Ok(found) => tuner.records = Mutex::new(found),
            Err(why) => tuner.unusable = Some(why),
        }
        Tuner { path: Some(path.as_ref().to_owned()), ..tuner }
    }

    /// As the environment says: `IRONWARP_GEMM_RECORDS` names the file (none: records stay in memory),
    /// `IRONWARP_GEMM_TUNING` is `measure` (the default) or `recorded`.
    ///
    /// # Errors
    /// [`Error::Environment`].
    pub fn from_env(device: &Device) -> Result<Self> {
        const TUNING: &str = "IRONWARP_GEMM_TUNING";
        let tuning = match std::env::var(TUNING) {
            Err(std::env::VarError::NotPresent) => Tuning::Measure,
            Ok(value) if value.is_empty() || value == "measure" => Tuning::Measure,
            Ok(value) if value == "recorded" => Tuning::Recorded,
            other => {
                let value = other.unwrap_or_else(|error| error.to_string());
                return Err(Error::Environment { name: TUNING, value, allowed: "measure, recorded" });
            }
        };
        Ok(match std::env::var_os("IRONWARP_GEMM_RECORDS").filter(|path| !path.is_empty()) {
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

    /// The record of a problem, as [`Matmul::problem`] tells it, if its configuration is still a candidate.
    pub fn recorded(&self, problem: &Problem) -> Option<(Config, Record)> {
        let record = self.records().get(&problem.key())?.clone();
        let candidates = select::candidates(problem, &self.device);
        let config = candidates
            .into_iter()
            .map(|candidate| candidate.config)
            .find(|c| c.to_string() == record.config)?;
        Some((config, record))
    }

    /// Queues the product by the configuration on record, which is measured first if there is none and the
    /// tuner may.
    ///
    /// # Errors
    /// As [`Matmul::run`], and [`Error::FileWrite`] when a new record cannot be kept (the product is queued
    /// nevertheless).
    pub fn run(&self, stream: &Stream, product: Matmul<'_>) -> Result<()> {
        let problem = product.checked(stream)?;
        let product = product.folded();
        stream.same_device("the tuner", &self.device)?;
        let known = self.known().get(&problem).copied();
        let (config, kept) = match known {
            Some(config) => (config, Ok(())),
            None => self.find(stream, &product, &problem)?,
        };
        backend::run(stream, product, &problem, &config)?;
        kept
    }

    /// The configuration for a problem that is asked for the first time, and whether a new record of it could
    /// be kept.
    fn find(&self, stream: &Stream, product: &Matmul<'_>, problem: &Problem) -> Result<(Config, Result<()>)> {
        let (config, kept) = match (self.recorded(problem), self.tuning) {
            (Some((config, _)), _) => (config, Ok(())),
            (None, Tuning::Recorded) => (select::best(problem, &self.device)?, Ok(())),
            (None, Tuning::Measure) => {
                let (config, record) = measure(stream, product, problem)?;
                (config, record.map_or(Ok(()), |record| self.keep(problem, record)))
            }
        };
        self.known().insert(*problem, config);
        Ok((config, kept))
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Problem, Config>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, problem: &Problem, record: Record) -> Result<()> {
        let mut records = self.records();
        records.insert(problem.key(), record);
        self.path.as_ref().map_or(Ok(()), |path| records::save(path, &self.place, &records))
    }

    fn records(&self) -> MutexGuard<'_, Records> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The fastest configuration for a product, with its time; without memory to measure any, the one that is
/// estimated to be. C and amax are not touched: results go to scratch memory.
fn measure(stream: &Stream, product: &Matmul<'_>, problem: &Problem) -> Result<(Config, Option<Record>)> {
    let estimated = (select::best(problem, stream.device())?, None);
    let Some(mut scratch) = if_memory(Scratch::new(stream, product))? else { return Ok(estimated) };
    let mut best: Option<(Config, f32)> = None;
    for Candidate { config, .. } in worth_a_try(select::candidates(problem, stream.device())) {
        // It may take copies of operands, or room for parts.
        let Some(ms) = if_memory(scratch.time(stream, product, problem, &config))? else { continue };
        if best.is_none_or(|(_, least)| ms < least) {
            best = Some((config, ms));
        }
    }
    let record =
        |config: Config, ms: f32| Record { config: config.to_string(), microseconds: f64::from(ms) * 1e3 };
    Ok(best.map_or(estimated, |(config, ms)| (config, Some(record(config, ms)))))
}

/// None without the memory for it.
fn if_memory<T>(outcome: Result<T>) -> Result<Option<T>> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(Error::OutOfMemory(_)) => Ok(None),
        Err(other) => Err(other),
    }
}

/// `candidates`, best estimate first, without those that cannot be expected to win.
fn worth_a_try(mut candidates: Vec<Candidate>) -> Vec<Candidate> {
    let least = candidates.first().map_or(0.0, |candidate| candidate.estimate_us);
    candidates.retain(|candidate| candidate.estimate_us <= WORTH_A_TRY * least);
    candidates.truncate(MOST_TRIES);
    candidates
}

/// Memory that begins where C does within 16 bytes, so that it has the same configurations, and events that
/// take the time.
struct Scratch {
    c: DeviceBuffer<u8>,
    amax: DeviceBuffer<f32>,
    skip: usize,
    start: Event,
    end: Event,
}

impl Scratch {
    fn new(stream: &Stream, product: &Matmul<'_>) -> Result<Self> {
        let MatrixMut { data, dtype, shape } = &product.c;
        let skip = (data.as_ptr().raw() % ROW_ALIGNMENT) as usize;
        let bytes = shape.span().saturating_mul(dtype.size()).saturating_add(skip);
        Ok(Scratch {
            c: DeviceBuffer::zeroed(stream, bytes)?,
            amax: DeviceBuffer::zeroed(stream, 1)?,
            skip,
            start: Event::new(stream.device())?,
            end: Event::new(stream.device())?,
        })
    }

    /// Milliseconds of a run.
    fn time(
        &mut self,
        stream: &Stream,
        product: &Matmul<'_>,
        problem: &Problem,
        config: &Config,
    ) -> Result<f32> {
        let mut sample = |runs: u32| -> Result<f32> {
            stream.record(&self.start)?;
            for _ in 0..runs {
                let MatrixMut { dtype, shape, .. } = product.c;
                let c = MatrixMut { data: self.c.slice_mut(self.skip..)?, dtype, shape };
                let amax = problem.epilogue.amax.then(|| self.amax.view_mut());
                backend::run(stream, product.with_results(c, amax), problem, config)?;
            }
            stream.record(&self.end)?;
            Ok(Event::elapsed_ms(&self.start, &self.end)? / runs as f32)
        };
        // The first run loads the kernel.
        sample(1)?;
        let once = sample(1)?;
        let runs = (SAMPLE_MS / once.max(SAMPLE_MS / MOST_RUNS)).ceil() as u32;
        (0..SAMPLES).try_fold(once, |least, _| Ok(sample(runs)?.min(least)))
    }
}
