//! Which kernel computes a problem, in how many blocks, and why.

use std::fmt;

use attention::decode::config::{CHUNK, ElementType, TILE_ROWS};
use attention::decode::instances::{Entry, TABLE};
use attention::decode::results::PLACES;
use attention::decode::schedule::Share;
use attention::decode::sm90::instances::TABLE as E4M3_TABLE;

use crate::device::Device;
use crate::error::{Error, Result};
use crate::ops::tuning::Source;
use crate::tensor::DType;

use super::super::check::invalid;
use super::super::problem::Mask;

/// Decode attention of some shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DecodeProblem {
    /// Type of queries and results.
    pub dtype: DType,
    /// Type of keys and values in the cache: the same, or e4m3.
    pub cache: DType,
    /// Sequences.
    pub batch: u32,
    /// Queries of a sequence.
    pub queries: u32,
    /// Most keys of a sequence.
    pub keys: u32,
    /// Heads of queries.
    pub heads: u32,
    /// Heads of keys and values: each belongs to a group of heads of queries.
    pub kv_heads: u32,
    /// Elements of a row.
    pub head_size: u32,
    /// Which keys a query sees.
    pub mask: Mask,
    /// Of a cache in pages: pages, keys of a page, and pages of a sequence.
    pub pages: Option<[u32; 3]>,
    /// Do the sequences have lengths of their own?
    pub has_lengths: bool,
    /// Are new keys put into the cache, as many as queries?
    pub appends: bool,
    /// Elements of a row of queries and of new keys that are rotated.
    pub rotated: u32,
    /// Are the log-sum-exps wanted?
    pub log_sum_exp: bool,
}

impl DecodeProblem {
    /// Is there no query?
    pub fn is_empty(&self) -> bool {
        self.batch == 0 || self.queries == 0 || self.heads == 0
    }

    /// Heads of queries that share a head of keys.
    pub fn group(&self) -> u32 {
        self.heads / self.kv_heads.max(1)
    }

    /// Tiles of rows of queries that share a head of keys; each reads the keys.
    fn row_tiles(&self) -> u64 {
        (u64::from(self.queries) * u64::from(self.group())).div_ceil(TILE_ROWS.into())
    }

    /// Chunks of keys that all blocks take together if all sequences have the most keys, which all are seen:
    /// as many as there can be.
    pub(super) fn most_chunks(&self) -> u64 {
        let chunks = u64::from(self.keys.div_ceil(CHUNK).max(1));
        let heads = u64::from(self.batch).saturating_mul(self.kv_heads.into());
        chunks.saturating_mul(heads).saturating_mul(self.row_tiles())
    }

    /// Bytes of the keys and values that are seen if all sequences have the most keys, once for all queries.
    pub fn bytes(&self) -> u64 {
        let band = self.mask.band();
        let diagonal = band.diagonal(self.queries, self.keys);
        let last = self.queries.saturating_sub(1) as i32;
        let (top, bottom) = (band.visible(diagonal, self.keys), band.visible(diagonal + last, self.keys));
        let keys = u64::from(bottom.end.saturating_sub(top.first));
        let row = u64::from(self.head_size) * self.cache.size() as u64;
        2 * u64::from(self.batch) * u64::from(self.kv_heads) * keys * row
    }
}

/// As in `bf16 [32, 1, 32, 128] on f8_e4m3 [32, 8192, 8, 128] in pages of 16, own lengths, full`.
impl fmt::Display for DecodeProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DecodeProblem { dtype, batch, queries, keys, heads, kv_heads, head_size, mask, .. } = self;
        write!(f, "{dtype} [{batch}, {queries}, {heads}, {head_size}] on ")?;
        if self.cache != *dtype {
            write!(f, "{} ", self.cache)?;
        }
        write!(f, "[{batch}, {keys}, {kv_heads}, {head_size}]")?;
        if let Some([_, page_size, _]) = self.pages {
            write!(f, " in pages of {page_size}")?;
        }
        if self.has_lengths {
            f.write_str(", own lengths")?;
        }
        if self.appends {
            f.write_str(", new keys")?;
        }
        if self.rotated > 0 {
            write!(f, ", {} rotated", self.rotated)?;
        }
        write!(f, ", {mask}")?;
        if self.log_sum_exp { f.write_str(", log-sum-exp") } else { Ok(()) }
    }
}

/// A configuration of decode attention: a kernel, and how its work is shared out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DecodeConfig {
    pub(super) kernel: &'static str,
    pub(super) blocks: u32,
}

impl DecodeConfig {
    /// Name of the pass's kernel.
    pub fn name(self) -> &'static str {
        self.kernel
    }

    /// Blocks of the pass.
    pub fn blocks(self) -> u32 {
        self.blocks
    }
}

/// As in `attention_decode_bf16_128, 264 blocks`.
impl fmt::Display for DecodeConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} blocks", self.kernel, self.blocks)
    }
}

/// How a problem is computed on a device. `Display` tells it all.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DecodePlan {
    /// The problem.
    pub problem: DecodeProblem,
    /// Name of the pass's kernel.
    pub kernel: &'static str,
    /// The family's score function that the call asks for, of those that the kernel has.
    pub pattern: Option<&'static str>,
    /// Blocks of the pass: as many as run at once if the call does not say, and no more than pieces of 64
    /// keys, or than 2^27 - 1.
    pub blocks: u32,
    /// Keys of a block, of one head, if all sequences have the most.
    pub keys_each: u64,
    /// Whether a sequence may be cut, so that a second launch puts it together.
    pub is_cut: bool,
    /// How long it should take if all sequences have the most keys, microseconds: an estimate, not a promise.
    pub estimate_us: f64,
    /// Whether it was measured.
    pub source: Source,
    /// The kernel's place among those to choose from.
    pub(super) index: usize,
    /// The kernel's row of their tables.
    pub(super) entry: &'static Entry,
}

/// A launch, the way of the first keys, and what follows the last ones.
const START_US: f64 = 4.0;
/// The second launch, which is under way before the first has ended.
const COMBINE_US: f64 = 2.0;
/// Bytes a microsecond of one multiprocessor: a 132nd of what an H200 reads.
const BYTES_PER_US: f64 = 32e3;

/// The properties of a device that count.
#[derive(Debug, Clone, Copy)]
struct DeviceCapabilities {
    is_ampere: bool,
    is_hopper: bool,
    sm_count: u32,
    shared_per_block: u32,
    shared_per_sm: u32,
}

/// Blocks of a pass at most: kernels count rows of parts in 32 bits.
const MAX_BLOCKS: u32 = u32::MAX / (PLACES * TILE_ROWS);

/// Shared memory of each block that the system has.
const SYSTEM_BYTES: u32 = 1024;

/// Kernels to choose from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Kernels {
    /// Their tables, one behind the other.
    pub tables: [&'static [Entry]; 2],
    /// The family's score function that the call asks for, which they have.
    pub pattern: Option<&'static str>,
    /// The hint of the error where no kernel can do a problem.
    pub hint: &'static str,
}

/// Those without a score function.
pub(super) const PLAIN: Kernels = Kernels {
    tables: [TABLE, E4M3_TABLE],
    pattern: None,
    hint: "the kernels want compute capability 8.0; those for heads of more than 128 elements want the shared memory of 9.0, those for a cache in e4m3 want 9.0 itself",
};

impl DeviceCapabilities {
    fn of(device: &Device) -> Self {
        let properties = device.properties();
        DeviceCapabilities {
            is_ampere: device.arch().major >= 8,
            is_hopper: device.arch().is_hopper(),
            sm_count: properties.sm_count.max(1),
            shared_per_block: properties.shared_per_block_optin,
            shared_per_sm: properties.shared_per_sm,
        }
    }

    /// Blocks of a kernel that run at once.
    fn resident(&self, entry: &Entry) -> u32 {
        self.sm_count * (self.shared_per_sm / (entry.shared + SYSTEM_BYTES)).clamp(1, entry.resident)
    }
}

impl DecodePlan {
    pub(super) fn new(
        problem: DecodeProblem,
        kernels: Kernels,
        device: &Device,
        blocks: Option<u32>,
    ) -> Result<Self> {
        let plan = Self::on(problem, kernels, DeviceCapabilities::of(device), blocks);
        plan.ok_or_else(|| nothing_fits(&problem, kernels, device))
    }

    fn on(
        problem: DecodeProblem,
        kernels: Kernels,
        device: DeviceCapabilities,
        blocks: Option<u32>,
    ) -> Option<Self> {
        let (index, entry) =
            fitting(&problem, kernels, device).into_iter().min_by_key(|(_, entry)| entry.head)?;
        let blocks = blocks.unwrap_or(device.resident(entry));
        Some(Self::of(problem, kernels, device, (index, entry), blocks))
    }

    /// By a kernel that fits.
    fn of(
        problem: DecodeProblem,
        kernels: Kernels,
        device: DeviceCapabilities,
        (index, entry): (usize, &'static Entry),
        blocks: u32,
    ) -> Self {
        // Checked to be few enough.
        let all = problem.most_chunks() as u32;
        let blocks = blocks.min(all).clamp(1, MAX_BLOCKS);
        let share = Share::new(all, 0, blocks);
        let item = problem.keys.div_ceil(CHUNK).max(1);
        // With a mask, fewer chunks may be seen.
        let is_whole = problem.mask.is_full() && !problem.has_lengths && share.each.is_multiple_of(item);
        let is_cut = blocks > 1 && !is_whole;
        let turns = problem.bytes() as f64 / f64::from(device.sm_count) / BYTES_PER_US;
        let estimate_us = START_US + turns + if is_cut { COMBINE_US } else { 0.0 };
        let keys_each = u64::from(share.each) * u64::from(CHUNK);
        let (kernel, pattern, source) = (entry.name, kernels.pattern, Source::Estimate);
        DecodePlan { problem, kernel, pattern, blocks, keys_each, is_cut, estimate_us, source, index, entry }
    }

    /// By a configuration that can do the problem.
    pub(super) fn with(
        problem: DecodeProblem,
        kernels: Kernels,
        device: &Device,
        config: DecodeConfig,
    ) -> Result<Self> {
        let capabilities = DeviceCapabilities::of(device);
        let mut fitting = fitting(&problem, kernels, capabilities).into_iter();
        let found = fitting
            .find(|(_, entry)| entry.name == config.kernel)
            .ok_or_else(|| nothing_fits(&problem, kernels, device))?;
        Ok(Self::of(problem, kernels, capabilities, found, config.blocks))
    }

    /// The kernel and the blocks.
    pub fn config(&self) -> DecodeConfig {
        DecodeConfig { kernel: self.kernel, blocks: self.blocks }
    }

    /// The configurations that can do a problem: every kernel that fits, the shortest rows first, in several
    /// numbers of blocks, or in that of the call.
    pub(super) fn candidates(
        problem: DecodeProblem,
        kernels: Kernels,
        device: &Device,
        blocks: Option<u32>,
    ) -> Vec<Self> {
        Self::candidates_on(problem, kernels, DeviceCapabilities::of(device), blocks)
    }

    fn candidates_on(
        problem: DecodeProblem,
        kernels: Kernels,
        device: DeviceCapabilities,
        blocks: Option<u32>,
    ) -> Vec<Self> {
        let mut fitting = fitting(&problem, kernels, device);
        fitting.sort_by_key(|(_, entry)| entry.head);
        let mut plans: Vec<Self> = Vec::new();
        for (index, entry) in fitting {
            for blocks in numbers_of_blocks(&problem, device.resident(entry), blocks) {
                let plan = Self::of(problem, kernels, device, (index, entry), blocks);
                if plans.iter().all(|known| known.config() != plan.config()) {
                    plans.push(plan);
                }
            }
        }
        plans
    }
}

/// The kernels that can do a problem, with their places.
fn fitting(
    problem: &DecodeProblem,
    kernels: Kernels,
    device: DeviceCapabilities,
) -> Vec<(usize, &'static Entry)> {
    let fits = |entry: &Entry| {
        dtype(entry.element) == problem.dtype
            && entry.is_e4m3 == (problem.cache != problem.dtype)
            && entry.head >= problem.head_size
            && entry.shared <= device.shared_per_block
            && if entry.is_e4m3 { device.is_hopper } else { device.is_ampere }
    };
    let entries = kernels.tables.into_iter().flatten();
    entries.enumerate().filter(|(_, entry)| fits(entry)).collect()
}

fn nothing_fits(problem: &DecodeProblem, kernels: Kernels, device: &Device) -> Error {
    invalid(
        "the problem",
        format!("{problem} on {}", device.arch()),
        "one that a kernel can do on this device".to_owned(),
        kernels.hint,
    )
}

/// Numbers of blocks to try, the usual one first: as many as run at once; twice and four times as many, the
/// first of which make room for the last; fewer with longer parts to put together; and those that cut no
/// sequence, or each in the same few parts.
fn numbers_of_blocks(problem: &DecodeProblem, resident: u32, asked: Option<u32>) -> Vec<u32> {
    if let Some(blocks) = asked {
        return vec![blocks];
    }
    // Checked to be few enough.
    let (all, item) = (problem.most_chunks() as u32, problem.keys.div_ceil(CHUNK).max(1));
    let (usual, items) = (resident.min(all), all / item);
    let parts = (usual / items.max(1)).max(1);
    let whole = [parts, parts + 1, 2 * parts].map(|parts| items.saturating_mul(parts));
    let numbers = [usual, 2 * resident, 4 * resident, usual / 2, usual / 4];
    numbers.into_iter().chain(whole).map(|blocks| blocks.clamp(1, all.max(1))).collect()
}

impl fmt::Display for DecodePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DecodePlan { problem, kernel, pattern, blocks, keys_each, is_cut, estimate_us, source, .. } =
            self;
        let megabytes = problem.bytes() as f64 / 1e6;
        let rows = if *source == Source::Estimate { "are the shortest that" } else { "are long enough to" };
        let has = pattern.map_or(String::new(), |pattern| format!("it has {pattern}, and "));
        writeln!(
            f,
            "{problem}\n  by {kernel}: {has}its rows {rows} hold the head\n  {blocks} blocks of {keys_each} keys each"
        )?;
        let cut = if *is_cut {
            "sequences are cut, and put together by a second launch"
        } else {
            "no sequence is cut"
        };
        writeln!(
            f,
            "  {cut}\n  about {estimate_us:.1} us for {megabytes:.1} MB of keys and values\n  {source}"
        )
    }
}

/// The type that the host calls so.
pub(super) const fn dtype(element: ElementType) -> DType {
    match element {
        ElementType::Bf16 => DType::BF16,
        ElementType::F16 => DType::F16,
    }
}

#[cfg(test)]
mod tests {
    use super::{
        DecodePlan, DecodeProblem, DeviceCapabilities, Kernels, Mask, PLACES, PLAIN, TABLE, TILE_ROWS,
    };
    use crate::tensor::DType;
    use attention::decode::compiled::CompiledDecode;
    use attention::functions::Pattern;

    const H200: DeviceCapabilities = DeviceCapabilities {
        is_ampere: true,
        is_hopper: true,
        sm_count: 132,
        shared_per_block: 227 * 1024,
        shared_per_sm: 228 * 1024,
    };
    /// But for its number of multiprocessors.
    const A100: DeviceCapabilities = DeviceCapabilities {
        is_hopper: false,
        shared_per_block: 163 * 1024,
        shared_per_sm: 164 * 1024,
        ..H200
    };
    const PROBLEM: DecodeProblem = DecodeProblem {
        dtype: DType::BF16,
        cache: DType::BF16,
        batch: 32,
        queries: 1,
        keys: 8192,
        heads: 32,
        kv_heads: 8,
        head_size: 128,
        mask: Mask::FULL,
        pages: None,
        has_lengths: false,
        appends: false,
        rotated: 0,
        log_sum_exp: false,
    };

    fn plan(problem: DecodeProblem) -> DecodePlan {
        DecodePlan::on(problem, PLAIN, H200, None).unwrap()
    }

    #[test]
    fn blocks_fill_the_device_in_one_wave() {
        // 32 * 8 sequences of heads with 128 chunks, on two blocks a multiprocessor.
        let all = plan(PROBLEM);
        assert_eq!((all.blocks, all.keys_each, all.is_cut), (264, 125 * 64, true));
        assert_eq!(PROBLEM.bytes(), 2 * 32 * 8 * 8192 * 256);
        assert!((240.0..280.0).contains(&all.estimate_us), "{all}");
        let one = plan(DecodeProblem { batch: 1, keys: 1000, ..PROBLEM });
        assert_eq!((one.blocks, one.keys_each, one.is_cut), (128, 64, true));
        assert_eq!(plan(DecodeProblem { head_size: 256, ..PROBLEM }).blocks, 132);
    }

    /// Beyond that the numbers of rows of parts would begin again at 0, and scratch would have none.
    #[test]
    fn rows_of_parts_are_counted_in_32_bits() {
        let many =
            DecodeProblem { batch: 1, queries: 1 << 17, keys: 1 << 20, heads: 1, kv_heads: 1, ..PROBLEM };
        assert_eq!(many.most_chunks(), 1 << 27);
        for asked in [1 << 27, u32::MAX] {
            let plan = DecodePlan::on(many, PLAIN, H200, Some(asked)).unwrap();
            assert_eq!((plan.blocks, plan.is_cut), ((1 << 27) - 1, true));
            assert!((plan.blocks * PLACES).checked_mul(TILE_ROWS).is_some());
        }
    }

    #[test]
    fn whole_sequences_are_not_put_together() {
        let short = DecodeProblem { keys: 64, ..PROBLEM };
        assert!(!plan(short).is_cut);
        assert!(plan(DecodeProblem { has_lengths: true, ..short }).is_cut);
        assert!(plan(DecodeProblem { mask: Mask::CAUSAL, ..short }).is_cut);
        assert!(!DecodePlan::on(PROBLEM, PLAIN, H200, Some(1)).unwrap().is_cut);
        // 256 sequences of heads in as many blocks.
        let plan = DecodePlan::on(PROBLEM, PLAIN, H200, Some(256)).unwrap();
        assert_eq!((plan.keys_each, plan.is_cut), (8192, false));
    }

    #[test]
    fn the_shortest_rows_that_hold_the_head() {
        for (head_size, kernel) in [(8, 64), (64, 64), (72, 128), (128, 128), (136, 256), (256, 256)] {
            for dtype in [DType::BF16, DType::F16] {
                let plan = plan(DecodeProblem { dtype, cache: dtype, head_size, ..PROBLEM });
                assert_eq!(plan.kernel, format!("attention_decode_{dtype}_{kernel}"));
            }
        }
        // Shared memory for one block of head size 128, and none of 256.
        assert_eq!(DecodePlan::on(PROBLEM, PLAIN, A100, None).unwrap().blocks, 132);
        assert_eq!(DecodePlan::on(DecodeProblem { head_size: 256, ..PROBLEM }, PLAIN, A100, None), None);
        let turing = DeviceCapabilities { is_ampere: false, ..H200 };
        assert_eq!(DecodePlan::on(PROBLEM, PLAIN, turing, None), None);
    }

    #[test]
    fn a_cache_in_e4m3_is_hoppers_and_has_half_the_bytes() {
        let problem = DecodeProblem { cache: DType::F8E4M3, ..PROBLEM };
        assert_eq!(2 * problem.bytes(), PROBLEM.bytes());
        for (dtype, kernel) in [(DType::BF16, "bf16"), (DType::F16, "f16")] {
            let plan = plan(DecodeProblem { dtype, ..problem });
            assert_eq!(plan.kernel, format!("attention_decode_{kernel}_e4m3_128"));
            let plan = self::plan(DecodeProblem { dtype, head_size: 64, ..problem });
            assert_eq!(plan.kernel, format!("attention_decode_{kernel}_e4m3_64"));
        }
        let other = DeviceCapabilities { is_hopper: false, ..H200 };
        assert_eq!(DecodePlan::on(problem, PLAIN, other, None), None);
        assert_eq!(DecodePlan::on(DecodeProblem { head_size: 256, ..problem }, PLAIN, H200, None), None);
    }

    /// Kernels with a score function are those that their package names.
    #[test]
    fn no_kernels_but_those_of_the_tables() {
        let kernels = Kernels { tables: [&TABLE[1..2], &[]], pattern: None, hint: "" };
        let on = |problem| DecodePlan::on(problem, kernels, H200, None);
        for head_size in [8, 128] {
            let plan = on(DecodeProblem { head_size, ..PROBLEM }).unwrap();
            assert_eq!((plan.kernel, plan.index), ("attention_decode_bf16_128", 0));
        }
        assert_eq!(on(DecodeProblem { head_size: 136, ..PROBLEM }), None);
        assert_eq!(on(DecodeProblem { dtype: DType::F16, cache: DType::F16, ..PROBLEM }), None);
        assert_eq!(on(DecodeProblem { cache: DType::F8E4M3, ..PROBLEM }), None);
    }

    /// Patterns have kernels for all that has one without them, in the same blocks.
    #[test]
    fn patterns_have_the_kernels_of_plain_scores() {
        let patterns = Kernels { tables: [Pattern::DECODE, &[]], ..PLAIN };
        for (head_size, dtype, device) in [64, 128, 256].into_iter().flat_map(|size| {
            let dtypes = [DType::BF16, DType::F16].into_iter();
            dtypes.flat_map(move |dtype| [H200, A100].map(|device| (size, dtype, device)))
        }) {
            for cache in [dtype, DType::F8E4M3] {
                let problem = DecodeProblem { dtype, cache, head_size, ..PROBLEM };
                let [plain, pattern] = [PLAIN, patterns].map(|kernels| {
                    let plan = DecodePlan::on(problem, kernels, device, None)?;
                    Some((plan.kernel.replace("_pattern", ""), plan.blocks, plan.entry.shared))
                });
                assert_eq!(pattern, plain, "{problem}");
                let (is_e4m3, is_long) = (cache != dtype, head_size > 128);
                let none = if device.is_hopper { is_e4m3 && is_long } else { is_e4m3 || is_long };
                assert_eq!(plain.is_none(), none, "{problem}");
            }
        }
    }

    #[test]
    fn a_tuner_tries_several_numbers_of_blocks_and_the_plan_is_the_first() {
        for problem in [
            PROBLEM,
            DecodeProblem { batch: 1, keys: 1000, ..PROBLEM },
            DecodeProblem { batch: 1, keys: 0, ..PROBLEM },
            DecodeProblem { head_size: 64, batch: 200, keys: 65, ..PROBLEM },
        ] {
            let plans = DecodePlan::candidates_on(problem, PLAIN, H200, None);
            assert_eq!(plans[0], plan(problem));
            assert!(plans.iter().all(|plan| (1..=problem.most_chunks()).contains(&plan.blocks.into())));
            let mut configs: Vec<String> = plans.iter().map(|plan| plan.config().to_string()).collect();
            configs.sort();
            configs.dedup();
            assert_eq!(configs.len(), plans.len(), "{configs:?}");
        }
        let of = |problem| -> Vec<u32> {
            let plans = DecodePlan::candidates_on(problem, PLAIN, H200, None);
            let first = plans.iter().filter(|plan| plan.kernel == plans[0].kernel);
            first.map(|plan| plan.blocks).collect()
        };
        assert_eq!(of(PROBLEM), [264, 528, 1056, 132, 66, 256, 512]);
        // Four heads of 16 pieces.
        assert_eq!(of(DecodeProblem { batch: 1, keys: 1000, kv_heads: 4, ..PROBLEM }), [64, 32, 16]);
        let asked = DecodePlan::candidates_on(PROBLEM, PLAIN, H200, Some(7));
        assert!(asked.iter().all(|plan| plan.blocks == 7) && asked[0].kernel == plan(PROBLEM).kernel);
    }

    #[test]
    fn windows_read_less() {
        let window = DecodeProblem { mask: Mask::window(Some(99), Some(0)), ..PROBLEM };
        assert_eq!(window.bytes(), 2 * 32 * 8 * 100 * 256);
    }
}
