//! Which kernel computes a problem, in how many blocks, and why.

use std::fmt;

use attention::decode::config::{CHUNK, ElementType, TILE_ROWS};
use attention::decode::instances::{Entry, TABLE};
use attention::decode::schedule::Share;

use crate::device::Device;
use crate::error::Result;
use crate::tensor::DType;

use super::super::check::invalid;
use super::super::problem::Mask;

/// Decode attention of some shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DecodeProblem {
    /// Type of all tensors.
    pub dtype: DType,
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
        let row = u64::from(self.head_size) * self.dtype.size() as u64;
        2 * u64::from(self.batch) * u64::from(self.kv_heads) * keys * row
    }
}

/// As in `bf16 [32, 1, 32, 128] on [32, 8192, 8, 128] in pages of 16, own lengths, full`.
impl fmt::Display for DecodeProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DecodeProblem { dtype, batch, queries, keys, heads, kv_heads, head_size, mask, .. } = self;
        write!(
            f,
            "{dtype} [{batch}, {queries}, {heads}, {head_size}] on [{batch}, {keys}, {kv_heads}, {head_size}]"
        )?;
        if let Some([_, page_size, _]) = self.pages {
            write!(f, " in pages of {page_size}")?;
        }
        if self.has_lengths {
            f.write_str(", own lengths")?;
        }
        write!(f, ", {mask}")?;
        if self.log_sum_exp { f.write_str(", log-sum-exp") } else { Ok(()) }
    }
}

/// How a problem is computed on a device. `Display` tells it all.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DecodePlan {
    /// The problem.
    pub problem: DecodeProblem,
    /// Name of the pass's kernel.
    pub kernel: &'static str,
    /// Blocks of the pass: as many as run at once, or as there are chunks of keys.
    pub blocks: u32,
    /// Keys of a block, of one head, if all sequences have the most.
    pub keys_each: u64,
    /// Whether a sequence may be cut, so that a second launch puts it together.
    pub is_cut: bool,
    /// How long it should take if all sequences have the most keys, microseconds: an estimate, not a promise.
    pub estimate_us: f64,
    /// The kernel's place in the table.
    pub(super) index: usize,
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
    sm_count: u32,
    shared_per_block: u32,
    shared_per_sm: u32,
}

/// Shared memory of each block that the system has.
const SYSTEM_BYTES: u32 = 1024;

impl DecodePlan {
    pub(super) fn new(problem: DecodeProblem, device: &Device) -> Result<Self> {
        let properties = device.properties();
        let capabilities = DeviceCapabilities {
            is_ampere: device.arch().major >= 8,
            sm_count: properties.sm_count.max(1),
            shared_per_block: properties.shared_per_block_optin,
            shared_per_sm: properties.shared_per_sm,
        };
        Self::on(problem, capabilities).ok_or_else(|| {
            invalid(
                "the problem",
                format!("{problem} on {}", device.arch()),
                "one that a kernel can do on this device".to_owned(),
                "the kernels want compute capability 8.0; those for heads of more than 128 elements want the shared memory of 9.0",
            )
        })
    }

    fn on(problem: DecodeProblem, device: DeviceCapabilities) -> Option<Self> {
        let fits = |entry: &Entry| {
            dtype(entry.element) == problem.dtype
                && entry.head >= problem.head_size
                && entry.shared <= device.shared_per_block
                && device.is_ampere
        };
        let fitting = TABLE.iter().enumerate().filter(|(_, entry)| fits(entry));
        let (index, entry) = fitting.min_by_key(|(_, entry)| entry.head)?;
        let resident = (device.shared_per_sm / (entry.shared + SYSTEM_BYTES)).clamp(1, entry.resident);
        let turns = problem.bytes() as f64 / f64::from(device.sm_count) / BYTES_PER_US;
        let plan = DecodePlan {
            problem,
            kernel: entry.name,
            blocks: 1,
            keys_each: 0,
            is_cut: false,
            estimate_us: START_US + turns,
            index,
        };
        Some(plan.with_blocks(device.sm_count * resident))
    }

    /// With so many blocks, or as many as there are chunks of keys; at least 1. Fewer leave multiprocessors
    /// to other work, and cut sequences less often.
    #[must_use]
    pub fn with_blocks(self, blocks: u32) -> Self {
        let problem = self.problem;
        // Checked to be few enough.
        let all = problem.most_chunks() as u32;
        let blocks = blocks.min(all).max(1);
        let share = Share::new(all, 0, blocks);
        let item = problem.keys.div_ceil(CHUNK).max(1);
        // With a mask, fewer chunks may be seen.
        let is_whole = problem.mask.is_full() && !problem.has_lengths && share.each.is_multiple_of(item);
        let is_cut = blocks > 1 && !is_whole;
        let combines = |is_cut: bool| if is_cut { COMBINE_US } else { 0.0 };
        let estimate_us = self.estimate_us + combines(is_cut) - combines(self.is_cut);
        let keys_each = u64::from(share.each) * u64::from(CHUNK);
        DecodePlan { blocks, keys_each, is_cut, estimate_us, ..self }
    }

    /// It is for what `usual` is for.
    pub(super) fn check(&self, usual: &DecodePlan) -> Result<()> {
        if (self.problem, self.index) == (usual.problem, usual.index) {
            return Ok(());
        }
        let (got, wanted) = (self.problem.to_string(), usual.problem.to_string());
        Err(invalid("the plan", got, wanted, "take the plan that `explain` makes for this very call"))
    }

    /// The table's row.
    pub(super) fn entry(&self) -> &'static Entry {
        &TABLE[self.index]
    }
}

impl fmt::Display for DecodePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DecodePlan { problem, kernel, blocks, keys_each, is_cut, estimate_us, .. } = self;
        let megabytes = problem.bytes() as f64 / 1e6;
        writeln!(
            f,
            "{problem}\n  by {kernel}: its rows are the shortest that hold the head\n  {blocks} blocks of {keys_each} keys each: as many as run at once, and none without keys"
        )?;
        let cut = if *is_cut {
            "sequences are cut, and put together by a second launch"
        } else {
            "no sequence is cut"
        };
        writeln!(f, "  {cut}\n  about {estimate_us:.1} us for {megabytes:.1} MB of keys and values")
    }
}

/// The type that the host calls so.
pub(super) const fn dtype(element: ElementType) -> DType {
    match element {
        ElementType::Bf16 => DType::BF16,
        ElementType::F16 => DType::F16,
    }
}
