//! Which configuration a problem gets: of the kernels that can do it the one with the lowest estimate; those
//! that were not timed on the device's kind come behind the others. The
//! same problem on the same device always gets the same one, so results repeat bit for bit.

use std::cmp::Ordering;

use attention::mma;
use attention::problem::KeyBlocks;
use attention::sm90::fp8;
use attention::sm90::instances::{Entry, TABLE as HOPPER_TABLE};
use cuda_std::wgmma::ElementType;

use crate::arch::Arch;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::ops::tuning::Source;
use crate::tensor::DType;

use super::check::invalid;
use super::config::{Candidate, Choice, Config, Rejection};
use super::launch::{is_drawn, list_params};
use super::problem::Problem;

/// The properties of a device that kernels ask for.
#[derive(Debug, Clone, Copy)]
pub struct DeviceCapabilities {
    arch: Arch,
    pub sm_count: u32,
    /// Shared memory of a block, bytes.
    shared_bytes: u32,
}

impl DeviceCapabilities {
    fn of(device: &Device) -> Self {
        let properties = device.properties();
        let (sm_count, shared_bytes) = (properties.sm_count, properties.shared_per_block_optin);
        DeviceCapabilities { arch: device.arch(), sm_count, shared_bytes }
    }
}

/// A row of a table of kernels, all of one pass.
pub trait Row: Copy + PartialEq + Send + Sync + 'static {
    fn config(&self) -> Config;
    fn element(&self) -> ElementType;
    /// Bytes of dynamic shared memory.
    fn shared(&self) -> u32;
    /// How long it should take, microseconds: an estimate.
    fn estimate_us(&self, problem: &Problem, device: DeviceCapabilities) -> f64;
    /// Whether it is for Hopper, else for Ampere and later.
    fn is_hopper(&self) -> bool;
    /// Why a device of this architecture cannot run it.
    fn refuses_arch(&self, arch: Arch) -> Option<&'static str> {
        match self.is_hopper() {
            true => (!arch.is_hopper()).then_some("wants a device of compute capability 9.0"),
            false => (arch.major < 8).then_some("wants a device of compute capability 8.0 or more"),
        }
    }
    /// Kernels of a lower rank are taken first, whatever the estimates. Hopper's own kernels were timed
    /// there, and the others were not.
    fn rank(&self, arch: Arch) -> u32 {
        u32::from(arch.is_hopper() && !self.is_hopper())
    }
    /// Why the kernel cannot do a problem that others of its rows can.
    fn refuses(&self, _: &Problem) -> Option<&'static str> {
        None
    }
    /// The reason for the kernel, where the length of its rows is not all that there is to say.
    fn why(&self, _: &Problem) -> Option<&'static str> {
        None
    }
    /// The error where no kernel of a table can do the problem.
    fn none_of(table: &'static [Self], problem: &Problem, device: &Device) -> Error;
}

/// A launch, and the way of the first rows.
const START_US: f64 = 4.0;

impl Row for Entry {
    fn config(&self) -> Config {
        Config { name: self.name, head: self.head, value_head: self.value_head, block: self.block }
    }

    fn element(&self) -> ElementType {
        self.element
    }

    fn shared(&self) -> u32 {
        self.shared
    }

    fn is_hopper(&self) -> bool {
        self.is_hopper
    }

    fn estimate_us(&self, problem: &Problem, device: DeviceCapabilities) -> f64 {
        START_US + busy_us(self, problem, device)
    }

    fn refuses(&self, problem: &Problem) -> Option<&'static str> {
        if !self.is_hopper && !problem.is_of_one_size() {
            Some("is for values of the queries' head size")
        } else if self.head != self.value_head && problem.value_size >= problem.head_size {
            Some("is for values of a smaller head size than the queries'")
        } else {
            None
        }
    }

    fn none_of(table: &'static [Self], problem: &Problem, device: &Device) -> Error {
        let of_type = || table.iter().filter(|entry| dtype(entry.element) == Some(problem.dtype));
        let longest = |head: fn(&Self) -> u32| of_type().map(head).max();
        let sizes = longest(|entry| entry.head).zip(longest(|entry| entry.value_head));
        let (wanted, hint) = match sizes {
            _ if lacks_second_size(table, problem, device) => (
                VALUES_OF_ONE_SIZE.to_owned(),
                "fill queries and keys, or values, up with zeros to one head size; give the scale of the true head size of the queries, and leave the result's last columns out",
            ),
            Some((head, value_head)) if device.arch().is_hopper() => (
                format!("a head size of up to {head}, and values of up to {value_head}"),
                "name a kernel whose rows hold both sizes in its `score_kernels!`",
            ),
            None if device.arch().is_hopper() => (
                format!("a kernel of {} with this score function", problem.dtype),
                "name one in its `score_kernels!`",
            ),
            _ => (
                "one that a kernel can do on this device".to_owned(),
                "bf16 and f16 want Ampere or later. E4m3, a score function, and values of another head size than the queries want Hopper (compute capability 9.0). Elsewhere compose attention of `matmul` and `softmax`",
            ),
        };
        invalid("the problem", format!("{problem} on {}", device.arch()), wanted, hint)
    }
}

/// Wanted of devices that have kernels of one head size alone.
pub(super) const VALUES_OF_ONE_SIZE: &str =
    "values of the queries' head size, or a device of compute capability 9.0";

/// Whether a kernel of the table could do the problem if rows of values were as long as those of keys.
pub(super) fn lacks_second_size<E: Row>(table: &'static [E], problem: &Problem, device: &Device) -> bool {
    let size = problem.head_size.max(problem.value_size);
    let filled_up = Problem { head_size: size, value_size: size, ..*problem };
    !problem.is_of_one_size() && !candidates_of(table, &filled_up, device).is_empty()
}

/// A kernel's floating-point operations a microsecond of one multiprocessor, and the time of a tile's begin
/// and end in that of its blocks: a 132nd of an H200's with lengths from 512 to 16384 (2026-11-24).
const fn speed(entry: &Entry) -> (f64, f64) {
    if !entry.is_hopper {
        // A guess, two thirds of the rate of `gemm::mma`: no device was timed.
        return (1.9e6, 0.7);
    }
    if entry.element.bytes() == 1 {
        // A 132nd of an H100's (2026-11-25).
        return match (entry.head, entry.block) {
            (..=128, [_, 256]) => (6.6e6, 0.6),
            (..=128, _) => (5.6e6, 0.7),
            _ => (7.9e6, 0.7),
        };
    }
    if entry.head != entry.value_head {
        // A guess, the rate of its neighbours: no device was timed.
        return (5.5e6, 0.7);
    }
    match (entry.head, entry.block) {
        (..=64, [128, _]) => (3.34e6, 0.6),
        (..=64, _) => (3.9e6, 0.75),
        (65..=128, [_, 176]) => (5.3e6, 0.8),
        (65..=128, _) => (5.1e6, 0.7),
        // Between its neighbours: no fit, two layers were timed.
        (129..=192, _) => (5.5e6, 0.7),
        // Length 512, full, on two days: 0.131 ms, 0.989 of cuDNN's speed (2026-11-29), and 0.135 ms, 0.94 of
        // it, with blocks of 80 keys, which round 512 up. By this rate the estimates have the ratio of those
        // speeds; both are 16 to 18 % below the times.
        (_, [_, 64]) => (5.6e6, 0.7),
        _ => (5.9e6, 0.7),
    }
}

/// Kernels to choose from: those without a score function, or those with one.
pub(super) type Table = &'static [Entry];

/// The kernels of operands in 16 bits without a score function: Hopper's, then those of `mma.sync`.
pub(super) const TABLE: Table =
    &joined::<_, { HOPPER_TABLE.len() + mma::instances::TABLE.len() }>(HOPPER_TABLE, mma::instances::TABLE);

/// One table of two, of `ROWS` rows in all.
pub(super) const fn joined<E: Copy, const ROWS: usize>(first: &[E], then: &[E]) -> [E; ROWS] {
    let mut all = [first[0]; ROWS];
    let mut place = 0;
    while place < ROWS {
        all[place] = if place < first.len() { first[place] } else { then[place - first.len()] };
        place += 1;
    }
    all
}

const SAME_ROWS: &str = "its rows are as long";
const LONGER_ROWS: &str = "its rows are longer, filled up with zeros";

fn ask<E: Row>(
    table: &'static [E],
    problem: &Problem,
    device: DeviceCapabilities,
) -> (Vec<Candidate>, Vec<Rejection>) {
    let (mut candidates, mut rejections) = (Vec::new(), Vec::new());
    for entry in table {
        let config = entry.config();
        match lacks(entry, problem, device) {
            Some(why) => rejections.push(Rejection { kernel: config.name, why }),
            None => {
                let (order, why) = (order(entry, problem, device), why(entry, problem));
                candidates.push((order, Candidate { config, estimate_us: order.1, why }));
            }
        }
    }
    candidates.sort_by(|(a, _), (b, _)| compare(*a, *b));
    (candidates.into_iter().map(|(_, candidate)| candidate).collect(), rejections)
}

/// Rank and estimate, by which kernels are taken.
fn order(entry: &impl Row, problem: &Problem, device: DeviceCapabilities) -> (u32, f64) {
    (entry.rank(device.arch), entry.estimate_us(problem, device))
}

fn compare(a: (u32, f64), b: (u32, f64)) -> Ordering {
    a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
}

/// The reason for a kernel that can do the problem.
fn why(entry: &impl Row, problem: &Problem) -> &'static str {
    let Config { head, value_head, .. } = entry.config();
    let is_as_long = (head, value_head) == (problem.head_size, problem.value_size);
    let of_rows = if is_as_long { SAME_ROWS } else { LONGER_ROWS };
    entry.why(problem).unwrap_or(of_rows)
}

/// Why the kernel cannot do the problem.
fn lacks(entry: &impl Row, problem: &Problem, device: DeviceCapabilities) -> Option<&'static str> {
    let Config { head, value_head, .. } = entry.config();
    let rules = [
        (dtype(entry.element()) == Some(problem.dtype), "is for another element type"),
        (head >= problem.head_size, "has shorter rows"),
        (value_head >= problem.value_size, "has shorter rows of values"),
        (entry.shared() <= device.shared_bytes, "wants more shared memory than a block has"),
    ];
    let broken = || rules.into_iter().find_map(|(holds, why)| (!holds).then_some(why));
    entry.refuses_arch(device.arch).or_else(broken).or_else(|| entry.refuses(problem))
}

pub(super) const fn dtype(element: ElementType) -> Option<DType> {
    match element {
        ElementType::Bf16 => Some(DType::BF16),
        ElementType::F16 => Some(DType::F16),
        ElementType::E4m3 => Some(DType::F8E4M3),
        _ => None,
    }
}

/// Tiles of a head that are looked at for an estimate.
const LOOKED_AT: u32 = 64;

/// Time of the multiprocessor with the most tiles.
fn busy_us(entry: &Entry, problem: &Problem, device: DeviceCapabilities) -> f64 {
    if problem.is_empty() {
        return 0.0;
    }
    let (params, [rows, keys]) = (list_params(problem), entry.block);
    let tiles = problem.queries.div_ceil(rows);
    let looked = tiles.min(LOOKED_AT);
    let (rate, ends) = speed(entry);
    let columns = f64::from(entry.head + entry.value_head);
    let block_us = 2.0 * columns * f64::from(rows) * f64::from(keys) / rate;
    let time = |number: u32| {
        let tile = (u64::from(number) * u64::from(tiles) / u64::from(looked)) as u32;
        let blocks = KeyBlocks::of_dense(&params, tile * rows, rows, keys).count();
        (f64::from(blocks) + ends) * block_us
    };
    let times = (0..looked).map(time);
    let longest = times.clone().fold(0.0, f64::max);
    let average = times.sum::<f64>() / f64::from(looked);
    let all = problem.sequences() * f64::from(problem.heads) * f64::from(tiles);
    let sm_count = f64::from(device.sm_count.max(1));
    if is_drawn(problem, device.sm_count) {
        // Whoever is done first takes the next one.
        return (all / sm_count * average).max(longest);
    }
    (all / sm_count).ceil() * average
}

/// The kernels without a score function for a problem's type.
pub(super) const fn table(problem: &Problem) -> Table {
    if matches!(problem.dtype, DType::F8E4M3) { fp8::instances::TABLE } else { TABLE }
}

/// Every configuration that can do a problem on a device, the likely fastest first; on Hopper those for other
/// devices last, which were not timed there.
pub fn candidates(problem: &Problem, device: &Device) -> Vec<Candidate> {
    candidates_of(table(problem), problem, device)
}

/// [`candidates`] of the kernels of a table.
pub(super) fn candidates_of<E: Row>(
    table: &'static [E],
    problem: &Problem,
    device: &Device,
) -> Vec<Candidate> {
    ask(table, problem, DeviceCapabilities::of(device)).0
}

/// The configuration that a problem gets on a device, with everything that was considered.
///
/// # Errors
/// [`Error::InvalidArgument`] when no kernel can do the problem there.
pub fn select(problem: &Problem, device: &Device) -> Result<Choice> {
    select_from(table(problem), problem, device)
}

/// [`select`] of the kernels of a table.
pub(super) fn select_from<E: Row>(table: &'static [E], problem: &Problem, device: &Device) -> Result<Choice> {
    let config = table[best(table, problem, device)?].config();
    Ok(explain(table, problem, device, config, Source::Estimate))
}

/// A configuration, with everything that is considered beside it.
pub(super) fn explain<E: Row>(
    table: &'static [E],
    problem: &Problem,
    device: &Device,
    config: Config,
    source: Source,
) -> Choice {
    let (candidates, rejections) = ask(table, problem, DeviceCapabilities::of(device));
    let entry = table.iter().find(|entry| entry.config() == config);
    let why = entry.map_or(LONGER_ROWS, |entry| why(entry, problem));
    Choice { problem: *problem, config, why, source, candidates, rejections }
}

/// The place of a configuration in its table, if it can do the problem.
pub(super) fn place_of<E: Row>(
    table: &'static [E],
    problem: &Problem,
    device: &Device,
    config: Config,
) -> Result<usize> {
    let can = candidates_of(table, problem, device).iter().any(|candidate| candidate.config == config);
    let place = table.iter().position(|entry| entry.config() == config);
    place.filter(|_| can).ok_or_else(|| {
        invalid(
            "the configuration",
            config.to_string(),
            format!("one of those for {problem}"),
            "take one of `candidates` for this very problem and device",
        )
    })
}

/// The place of the kernel that a problem gets.
pub(super) fn best<E: Row>(table: &'static [E], problem: &Problem, device: &Device) -> Result<usize> {
    let capabilities = DeviceCapabilities::of(device);
    let can = table.iter().enumerate().filter(|(_, entry)| lacks(*entry, problem, capabilities).is_none());
    let orders = can.map(|(place, entry)| (place, order(entry, problem, capabilities)));
    let best = orders.min_by(|(_, a), (_, b)| compare(*a, *b));
    best.map(|(place, _)| place).ok_or_else(|| E::none_of(table, problem, device))
}

#[cfg(test)]
mod tests {
    use super::{DeviceCapabilities, TABLE, ask, fp8};
    use crate::arch::Arch;
    use crate::ops::attention::backward::TABLE as BACKWARD;
    use crate::ops::attention::{Mask, Problem};
    use crate::tensor::DType;

    const HOPPER: DeviceCapabilities =
        DeviceCapabilities { arch: Arch { major: 9, minor: 0 }, sm_count: 132, shared_bytes: 227 * 1024 };
    const PROBLEM: Problem = Problem {
        dtype: DType::BF16,
        batch: 2,
        queries: 4096,
        keys: 4096,
        heads: 16,
        kv_heads: 16,
        head_size: 64,
        value_size: 64,
        mask: Mask::FULL,
        packed: None,
        log_sum_exp: false,
    };

    /// Values are as long as keys.
    const fn of_size(head_size: u32, problem: Problem) -> Problem {
        Problem { head_size, value_size: head_size, ..problem }
    }

    fn best(problem: Problem) -> &'static str {
        ask(TABLE, &problem, HOPPER).0[0].config.name()
    }

    #[test]
    fn the_shortest_rows_that_hold_the_head() {
        for dtype in [DType::BF16, DType::F16] {
            let sizes =
                [(8, 64), (64, 64), (72, 128), (128, 128), (136, 192), (192, 192), (200, 256), (256, 256)];
            for (head_size, kernel) in sizes {
                let name = best(of_size(head_size, Problem { dtype, ..PROBLEM }));
                assert_eq!(name, format!("attention_{dtype}_{kernel}"));
            }
        }
        assert_eq!(best(Problem { queries: 0, ..PROBLEM }), "attention_bf16_64");
    }

    #[test]
    fn rows_of_two_lengths_for_values_that_are_shorter() {
        let of = |head_size: u32, value_size: u32| best(Problem { head_size, value_size, ..PROBLEM });
        for (keys, values) in [(192, 128), (136, 128), (160, 8)] {
            assert_eq!(of(keys, values), "attention_bf16_192_128", "{keys}, {values}");
        }
        assert_eq!(of(192, 136), "attention_bf16_192");
        assert_eq!(of(128, 64), "attention_bf16_128");
        assert_eq!(of(64, 192), "attention_bf16_192");
        assert_eq!(of(200, 128), "attention_bf16_256");
        // Kernels for other devices read values as they read keys.
        let (can, cannot) = ask(TABLE, &Problem { head_size: 192, value_size: 128, ..PROBLEM }, HOPPER);
        assert!(can.iter().all(|candidate| !candidate.config.name().contains("_mma_")), "{can:?}");
        assert!(cannot.iter().any(|of| of.kernel == "attention_mma_bf16_256" && of.why.contains("values")));
    }

    #[test]
    fn gradients_by_rows_of_two_lengths_for_values_that_are_shorter() {
        let of = |head_size: u32, value_size: u32| {
            ask(BACKWARD, &Problem { head_size, value_size, ..PROBLEM }, HOPPER).0[0].config.name()
        };
        for (keys, values) in [(192, 128), (136, 128), (160, 8)] {
            assert_eq!(of(keys, values), "attention_backward_bf16_192_128", "{keys}, {values}");
        }
        for (keys, values) in [(192, 136), (192, 192), (64, 192), (200, 128)] {
            assert_eq!(of(keys, values), "attention_backward_bf16_256", "{keys}, {values}");
        }
        assert_eq!(of(128, 64), "attention_backward_bf16_128");
    }

    /// By the estimates, where smaller blocks leave fewer places without a key.
    #[test]
    fn smaller_blocks_for_few_keys_of_two_lengths() {
        let of =
            |keys: u32| best(Problem { head_size: 192, value_size: 128, queries: keys, keys, ..PROBLEM });
        assert_eq!(of(64), "attention_bf16_256_narrow");
        assert_eq!(of(80), "attention_bf16_256");
        assert_eq!(of(144), "attention_bf16_256");
        for keys in [128, 256, 257, 512, 513, 1024] {
            assert_eq!(of(keys), "attention_bf16_192_128", "{keys}");
        }
    }

    #[test]
    fn low_tiles_for_short_causal_sequences_and_wide_blocks_for_long_ones() {
        let of = |head_size: u32, mask: Mask, length: u32| {
            let heads = 2048 / head_size;
            let batch = 16_384 / length;
            let (queries, keys) = (length, length);
            best(of_size(
                head_size,
                Problem { batch, queries, keys, heads, kv_heads: heads, mask, ..PROBLEM },
            ))
        };
        assert_eq!(of(64, Mask::CAUSAL, 512), "attention_bf16_64_low");
        assert_eq!(of(64, Mask::CAUSAL, 1024), "attention_bf16_64_low");
        assert_eq!(of(64, Mask::CAUSAL, 8192), "attention_bf16_64");
        assert_eq!(of(64, Mask::FULL, 1024), "attention_bf16_64");
        assert_eq!(of(128, Mask::FULL, 1024), "attention_bf16_128");
        assert_eq!(of(128, Mask::CAUSAL, 2048), "attention_bf16_128");
        assert_eq!(of(128, Mask::FULL, 16_384), "attention_bf16_128_wide");
        assert_eq!(of(128, Mask::CAUSAL, 16_384), "attention_bf16_128_wide");
    }

    /// As timed with bf16 on an H200 (2026-11-29, NOTES, *Attention on Hopper*). At 1024, causal, nobody
    /// timed blocks of 80 keys beside them.
    #[test]
    fn narrow_blocks_for_short_sequences_of_long_rows() {
        for dtype in [DType::BF16, DType::F16] {
            let of = |mask: Mask, length: u32| {
                let (batch, queries, keys) = (16_384 / length, length, length);
                let (heads, kv_heads) = (8, 8);
                best(of_size(256, Problem { dtype, batch, queries, keys, heads, kv_heads, mask, ..PROBLEM }))
            };
            let (narrow, plain) = (format!("attention_{dtype}_256_narrow"), format!("attention_{dtype}_256"));
            assert_eq!(of(Mask::FULL, 512), narrow);
            assert_eq!(of(Mask::CAUSAL, 512), narrow);
            assert_eq!(of(Mask::FULL, 1024), plain);
            assert_eq!(of(Mask::CAUSAL, 1024), narrow);
            for length in [2048, 4096, 16_384] {
                assert_eq!(of(Mask::FULL, length), plain, "{length}");
                assert_eq!(of(Mask::CAUSAL, length), plain, "{length}");
            }
        }
    }

    /// As timed: full 544 and 524 TFLOP/s with blocks of 256 keys and of 128 at length 512; causal 473 and
    /// 496 at 1024, 639 and 604 at 2048.
    #[test]
    fn wide_blocks_in_e4m3_but_for_short_causal_sequences() {
        let of = |mask: Mask, length: u32| {
            let (dtype, batch) = (DType::F8E4M3, 16_384 / length);
            let problem =
                of_size(128, Problem { dtype, batch, queries: length, keys: length, mask, ..PROBLEM });
            ask(fp8::instances::TABLE, &problem, HOPPER).0[0].config.name()
        };
        assert_eq!(of(Mask::FULL, 512), "attention_e4m3_128_wide");
        assert_eq!(of(Mask::CAUSAL, 1024), "attention_e4m3_128");
        assert_eq!(of(Mask::CAUSAL, 2048), "attention_e4m3_128_wide");
    }

    /// Whole heads fill rounds of multiprocessors where there are many, and stay in L2 where they are short.
    #[test]
    fn whole_heads_for_gradients_of_many_short_sequences() {
        let of = |problem: Problem| ask(BACKWARD, &problem, HOPPER).0[0].config.name();
        let layer = |head_size: u32, length: u32| {
            let heads = 2048 / head_size;
            let (queries, keys, kv_heads) = (length, length, heads);
            of_size(head_size, Problem { batch: 16_384 / length, queries, keys, heads, kv_heads, ..PROBLEM })
        };
        for mask in [Mask::FULL, Mask::CAUSAL] {
            assert_eq!(of(Problem { mask, ..layer(64, 512) }), "attention_backward_whole_bf16_64");
            assert_eq!(of(Problem { mask, ..layer(128, 512) }), "attention_backward_whole_bf16_128");
            // Timed: 0.805 for 0.899 ms and 0.483 for 0.581; of 128 0.893 for 0.791 and 0.535 for 0.488.
            assert_eq!(of(Problem { mask, ..layer(64, 1024) }), "attention_backward_whole_bf16_64");
            assert_eq!(of(Problem { mask, ..layer(128, 1024) }), "attention_backward_bf16_128");
            assert_eq!(of(Problem { mask, ..layer(64, 8192) }), "attention_backward_bf16_64");
        }
        assert_eq!(of(layer(256, 512)), "attention_backward_bf16_256");
        // Heads of a multiprocessor in four, one at a time.
        assert_eq!(of(Problem { batch: 2, ..layer(128, 512) }), "attention_backward_bf16_128");
        let packed = Problem { packed: Some([16_384; 2]), ..layer(64, 512) };
        assert_eq!(of(packed), "attention_backward_bf16_64");
        for problem in [packed, Problem { queries: 0, ..PROBLEM }, Problem { keys: 0, ..PROBLEM }] {
            let (can, cannot) = ask(BACKWARD, &problem, HOPPER);
            assert!(can.iter().all(|candidate| !candidate.config.name().contains("whole")), "{problem}");
            assert!(cannot.iter().any(|of| of.kernel == "attention_backward_whole_bf16_64"), "{problem}");
        }
    }

    #[test]
    fn every_kernel_can_or_says_why_not() {
        let (can, cannot) = ask(TABLE, &PROBLEM, HOPPER);
        assert_eq!((can.len(), cannot.len()), (10, 12));
        let is_hopper = |name: &str| !name.contains("_mma_");
        assert!(can[..7].iter().all(|candidate| is_hopper(candidate.config.name())), "{can:?}");
        let of = |arch: Arch, shared_bytes: u32| {
            let device = DeviceCapabilities { arch, sm_count: 108, shared_bytes };
            let (can, cannot) = ask(TABLE, &PROBLEM, device);
            assert_eq!(can.len() + cannot.len(), 22);
            (can.iter().map(|candidate| candidate.config.name()).collect::<Vec<_>>(), cannot)
        };
        for (major, minor, kib) in [(8, 0, 163), (8, 6, 99), (8, 9, 99), (10, 0, 227), (12, 0, 99)] {
            let (can, cannot) = of(Arch { major, minor }, kib * 1024);
            assert_eq!(can, ["attention_mma_bf16_64", "attention_mma_bf16_128", "attention_mma_bf16_256"]);
            assert!(
                cannot.iter().all(|rejection| is_hopper(rejection.kernel) || rejection.why.contains("type"))
            );
        }
        let (can, cannot) = of(Arch { major: 7, minor: 5 }, 64 * 1024);
        assert!(can.is_empty() && cannot.iter().all(|of| of.why.contains("compute capability")), "{can:?}");
    }

    #[test]
    fn gradients_have_kernels_for_ampere_and_later() {
        let is_own = |name: &str| name.contains("_mma_");
        let names = |problem: &Problem, device| -> Vec<_> {
            ask(BACKWARD, problem, device).0.iter().map(|candidate| candidate.config.name()).collect()
        };
        for (major, minor, kib) in [(8, 0, 163), (8, 6, 99), (8, 9, 99), (10, 0, 227), (12, 0, 99)] {
            let arch = Arch { major, minor };
            let device = DeviceCapabilities { arch, sm_count: 108, shared_bytes: kib * 1024 };
            for length in [1, 70, 4096] {
                let names = names(&Problem { queries: length, keys: length, ..PROBLEM }, device);
                assert_eq!((names[0], names.len()), ("attention_mma_backward_bf16_64", 3), "{arch}");
                assert!(names.iter().all(|name| is_own(name)), "{arch}: {names:?}");
            }
        }
        let names = names(&PROBLEM, HOPPER);
        let first = names.iter().position(|name| is_own(name));
        assert_eq!(first, Some(names.len() - 3), "those that were timed come first: {names:?}");
    }
}
