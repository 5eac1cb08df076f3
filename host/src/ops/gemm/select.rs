//! Which configuration a problem gets.
//!
//! Each family of kernels names the configurations that can do a problem, with an estimate of the time from
//! figures measured once (`benches/NOTES.md`), or says why it cannot. The lowest estimate wins; equal ones go
//! to the first of them. The same problem on the same device always gets the same configuration, so
//! results repeat bit for bit; a [`Tuner`](crate::ops::tuning::Tuner) measures instead.
//!
//! `IRONWARP_GEMM=TEXT` keeps only configurations whose text (as `Display` prints it) contains `TEXT`, where
//! there are any: for experiments.

use std::collections::HashMap;
use std::sync::{OnceLock, PoisonError, RwLock};

use crate::device::{Arch, Device};
use crate::error::{Error, Result};
use crate::ops::tuning::Source;

use super::backend::BACKENDS;
use super::bands;
use super::check::invalid;
use super::config::{Band, Candidate, Choice, Config, Rejection};
use super::problem::{MAX_SIDE, Problem};
use super::sm90;

/// The properties of a device that kernels ask for.
#[derive(Debug, Clone, Copy)]
pub(super) struct DeviceCapabilities {
    pub arch: Arch,
    pub sm_count: u32,
    /// Shared memory of a block, bytes.
    pub shared_bytes: u32,
    /// Bytes a microsecond that memory's bus can carry.
    pub memory_rate: f64,
}

/// Of a device that names no memory: an H100's.
const DEFAULT_MEMORY_RATE: f64 = 3.35e6;

impl DeviceCapabilities {
    pub fn of(device: &Device) -> Self {
        let properties = device.properties();
        let (sm_count, shared_bytes) = (properties.sm_count, properties.shared_per_block_optin);
        let memory_rate = memory_rate(properties.memory_clock_khz, properties.memory_bus_bits);
        DeviceCapabilities { arch: device.arch(), sm_count, shared_bytes, memory_rate }
    }
}

/// Two transfers a clock, on all of the bus.
fn memory_rate(clock_khz: u32, bus_bits: u32) -> f64 {
    let rate = 2.0 * f64::from(clock_khz) / 1e3 * f64::from(bus_bits) / 8.0;
    if rate > 0.0 { rate } else { DEFAULT_MEMORY_RATE }
}

#[cfg(test)]
impl DeviceCapabilities {
    pub const H200: Self = Self { memory_rate: 4.92e6, ..Self::H100 };
    pub const H100: Self =
        Self { arch: super::sm90::ARCH, sm_count: 132, shared_bytes: 227 << 10, memory_rate: 3.35e6 };
}

/// Where backends put what they can and cannot do.
pub(super) trait CandidateSink {
    fn add(&mut self, candidate: Candidate);
    fn reject(&mut self, rejection: Rejection);
}

/// Keeps the best candidate; allocates nothing.
#[derive(Default)]
pub(super) struct Best<'f> {
    pub best: Option<Candidate>,
    filter: Option<&'f str>,
}

impl CandidateSink for Best<'_> {
    fn add(&mut self, candidate: Candidate) {
        let wanted = self.filter.is_none_or(|text| candidate.config.to_string().contains(text));
        if wanted && self.best.is_none_or(|best| candidate.estimate_us < best.estimate_us) {
            self.best = Some(candidate);
        }
    }

    fn reject(&mut self, _: Rejection) {}
}

/// Keeps everything.
#[derive(Default)]
pub(super) struct All {
    pub candidates: Vec<Candidate>,
    pub rejections: Vec<Rejection>,
}

impl CandidateSink for All {
    fn add(&mut self, candidate: Candidate) {
        self.candidates.push(candidate);
    }

    fn reject(&mut self, rejection: Rejection) {
        self.rejections.push(rejection);
    }
}

fn ask(problem: &Problem, device: &Device, sink: &mut impl CandidateSink) {
    ask_about(problem, &DeviceCapabilities::of(device), sink);
}

fn ask_about(problem: &Problem, device: &DeviceCapabilities, sink: &mut impl CandidateSink) {
    if can_be(problem) {
        BACKENDS.iter().for_each(|backend| (backend.candidates)(problem, device, sink));
    }
}

/// Elements of C at most: there are no more addresses.
const MOST_ELEMENTS: u64 = 1 << 48;

/// Whether there can be such a product: others leave no room to round up, and to count blocks.
fn can_be(problem: &Problem) -> bool {
    let Problem { m, n, k, batch, .. } = *problem;
    let elements = u64::from(m).checked_mul(n.into()).and_then(|matrix| matrix.checked_mul(batch.into()));
    let is_counted = elements.is_some_and(|elements| elements <= MOST_ELEMENTS);
    is_counted && [m, n, k, batch].into_iter().all(|side| side <= MAX_SIDE)
}

/// The configuration that a problem gets on a device.
///
/// # Errors
/// [`Error::Environment`] when `IRONWARP_GEMM` is no text, [`Error::InvalidArgument`] when no kernel can do
/// the problem (not seen: `gemm_any` can do all).
pub(super) fn best(problem: &Problem, device: &Device) -> Result<Config> {
    /// By device and problem: asking all families takes up to some hundred estimates.
    static KNOWN: RwLock<Option<HashMap<(u32, Problem), Config>>> = RwLock::new(None);
    let key = (device.ordinal(), *problem);
    let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner);
    if let Some(config) = known.as_ref().and_then(|known| known.get(&key)) {
        return Ok(*config);
    }
    drop(known);
    let config = best_of(problem, device, wanted()?)?;
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_default();
    if known.len() >= MOST_KNOWN {
        known.clear();
    }
    known.insert(key, config);
    Ok(config)
}

/// Problems whose configurations are remembered, at most.
const MOST_KNOWN: usize = 4096;

fn best_of(problem: &Problem, device: &Device, filter: Option<&str>) -> Result<Config> {
    let mut best = Best { best: None, filter };
    ask(problem, device, &mut best);
    match (best.best, filter) {
        (Some(candidate), _) => Ok(candidate.config),
        (None, Some(_)) => best_of(problem, device, None),
        (None, None) => Err(invalid(
            "the problem",
            problem.to_string(),
            "one that a kernel can do on this device".to_owned(),
            "`candidates` says what each kernel lacks",
        )),
    }
}

/// The configuration that a problem gets on a device, with everything that was considered.
///
/// # Errors
/// As [`Matmul::run`](super::Matmul::run), for what concerns the problem.
pub fn select(problem: &Problem, device: &Device) -> Result<Choice> {
    explain(problem, device, best(problem, device)?, Source::Estimate)
}

/// A configuration, with everything that is considered beside it.
pub(super) fn explain(problem: &Problem, device: &Device, config: Config, source: Source) -> Result<Choice> {
    let All { candidates, rejections } = all(problem, device);
    let chosen = candidates.iter().find(|candidate| candidate.config == config);
    let why = match (wanted()?, chosen) {
        (Some(text), Some(_)) if source == Source::Estimate && candidates[0].config != config => {
            format!("{VARIABLE} wants `{text}`")
        }
        (_, Some(candidate)) => candidate.why.to_owned(),
        (_, None) => "it is the only one".to_owned(),
    };
    let terms = sm90::terms(problem, &DeviceCapabilities::of(device), &config);
    Ok(Choice { problem: *problem, config, why, source, terms, candidates, rejections })
}

/// Every configuration that can do a problem on a device, the likely fastest first; none where a side is
/// longer than products may have, or C larger than memory can be.
pub fn candidates(problem: &Problem, device: &Device) -> Vec<Candidate> {
    all(problem, device).candidates
}

fn all(problem: &Problem, device: &Device) -> All {
    let mut all = All::default();
    ask(problem, device, &mut all);
    all.candidates.sort_by(|a, b| a.estimate_us.total_cmp(&b.estimate_us));
    all
}

/// The configuration can do the problem.
pub(super) fn check(problem: &Problem, device: &Device, config: &Config) -> Result<()> {
    struct Seek<'c>(&'c Config, bool);
    impl CandidateSink for Seek<'_> {
        fn add(&mut self, candidate: Candidate) {
            self.1 |= candidate.config == *self.0;
        }
        fn reject(&mut self, _: Rejection) {}
    }
    // A product that a kernel takes whole can be had in any blocks of its tiles.
    let whole = Config { band: Band::All, ..*config };
    let mut seek = Seek(if bands::has_blocks(problem, config) { &whole } else { config }, false);
    ask(problem, device, &mut seek);
    if seek.1 {
        return Ok(());
    }
    Err(invalid(
        "the configuration",
        config.to_string(),
        format!("one of those for {problem}"),
        "take one of `candidates` for this very problem and device",
    ))
}

const VARIABLE: &str = "IRONWARP_GEMM";

/// The choice that the environment asks for; read once.
fn wanted() -> Result<Option<&'static str>> {
    static WANTED: OnceLock<Result<Option<String>, String>> = OnceLock::new();
    let read = || match std::env::var(VARIABLE) {
        Ok(text) if !text.is_empty() => Ok(Some(text)),
        Ok(_) | Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(text)) => Err(text.to_string_lossy().into_owned()),
    };
    match WANTED.get_or_init(read) {
        Ok(text) => Ok(text.as_deref()),
        Err(value) => Err(Error::Environment {
            name: VARIABLE,
            value: value.clone(),
            allowed: "a part of a configuration's text, such as gemm_any",
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::{All, DEFAULT_MEMORY_RATE, DeviceCapabilities, MOST_ELEMENTS, ask_about, memory_rate};
    use crate::ops::gemm::problem::{EpilogueDesc, MAX_SIDE, Operand, Order, Precision, Problem};
    use crate::tensor::DType;

    #[test]
    fn memory_is_as_fast_as_its_bus() {
        // The driver's figures of an H100 and of an H200.
        assert!((memory_rate(2_619_000, 5120) / 3.352e6 - 1.0).abs() < 1e-3);
        assert!((memory_rate(3_201_000, 6144) / 4.917e6 - 1.0).abs() < 1e-3);
        assert_eq!(memory_rate(0, 0), DEFAULT_MEMORY_RATE);
    }

    /// Every side of every length, in no panic of a debug build.
    #[test]
    fn any_sides_can_be_asked_about() {
        const SIDES: [u32; 6] = [0, 1, 8, 1 << 30, MAX_SIDE, u32::MAX];
        let sides = || SIDES.into_iter();
        for (m, n) in sides().flat_map(|m| sides().map(move |n| (m, n))) {
            for (k, batch) in sides().flat_map(|k| [0, 1, 65_535, MAX_SIDE, u32::MAX].map(|batch| (k, batch)))
            {
                for (dtype, [a, b]) in [
                    (DType::BF16, [Order::Rows, Order::Columns]),
                    (DType::BF16, [Order::Columns, Order::Rows]),
                    (DType::F32, [Order::Rows; 2]),
                    (DType::F8E4M3, [Order::Rows, Order::Columns]),
                ] {
                    let of =
                        |order| Operand { dtype, order, leading: 1 << 31, batch_stride: 0, alignment: 16 };
                    let (a, b, c, epilogue) = (of(a), of(b), of(Order::Rows), EpilogueDesc::default());
                    for precision in [Precision::F32, Precision::Tf32] {
                        let problem = Problem { m, n, k, batch, a, b, c, precision, epilogue };
                        let mut all = All::default();
                        ask_about(&problem, &DeviceCapabilities::H200, &mut all);
                        let is_longer = [m, n, k, batch].contains(&u32::MAX);
                        let elements = u128::from(m) * u128::from(n) * u128::from(batch);
                        let is_none = is_longer || elements > u128::from(MOST_ELEMENTS);
                        assert_eq!(all.candidates.is_empty(), is_none, "{problem}");
                    }
                }
            }
        }
    }
}
