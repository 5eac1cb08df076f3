//! Attention of few queries a sequence, as when one token is generated after the other.

mod append;
mod check;
mod function;
mod launch;
mod patterns;
mod plan;
mod scales;
mod tune;

use crate::error::Result;
use crate::memory::{DeviceView, DeviceViewMut};
use crate::stream::Stream;

use super::heads::{Heads, HeadsMut};
use super::problem::Mask;
use append::Cache;
use plan::Kernels;

pub use append::Rotary;
pub use function::{DecodeKernels, ModifiedDecode};
pub use patterns::{DecodeWithAlibi, DecodeWithSoftCap};
pub use plan::{DecodeConfig, DecodePlan, DecodeProblem};
pub use scales::CacheScales;

/// A cache in pages: which page of keys and values each so many keys of a sequence are on.
///
/// The numbers are on the device, and the host does not wait for them. A number that is none of the pages
/// does no harm: its keys and values count as zeros.
#[derive(Debug, Clone, Copy)]
pub struct Pages<'a> {
    table: DeviceView<'a, i32>,
    each: usize,
}

impl<'a> Pages<'a> {
    /// `table` is `[batch, each]`: page numbers, in the order of the keys. Those behind the last key of a
    /// sequence are not looked at.
    pub fn new(table: impl Into<DeviceView<'a, i32>>, each: usize) -> Self {
        Pages { table: table.into(), each }
    }
}

/// `O = softmax(scale Q K^T) V` for few queries of each sequence, its last ones: as fast as keys and values
/// come from memory. Built up, then [`Decode::run`].
///
/// ```no_run
/// use half::bf16;
/// use ironwarp::DeviceBuffer;
/// use ironwarp::ops::attention::{Decode, Heads, HeadsMut, Pages};
/// # fn main() -> ironwarp::Result<()> {
/// # let device = ironwarp::Device::open(0)?;
/// # let stream = device.stream()?;
/// let (batch, heads, kv_heads, size) = (32, 32, 8, 128);
/// // 16 keys a page, 512 pages for the longest sequence.
/// let (pages, page_size, each) = (16_384, 16, 512);
/// let q = DeviceBuffer::<bf16>::zeroed(&stream, batch * heads * size)?;
/// let k = DeviceBuffer::<bf16>::zeroed(&stream, pages * page_size * kv_heads * size)?;
/// let v = DeviceBuffer::<bf16>::zeroed(&stream, pages * page_size * kv_heads * size)?;
/// let table = DeviceBuffer::<i32>::zeroed(&stream, batch * each)?;
/// let lengths = DeviceBuffer::<i32>::zeroed(&stream, batch)?;
/// let mut o = DeviceBuffer::<bf16>::zeroed(&stream, batch * heads * size)?;
/// Decode::new(
///     Heads::new(&q, [batch, 1, heads, size]),
///     Heads::new(&k, [pages, page_size, kv_heads, size]),
///     Heads::new(&v, [pages, page_size, kv_heads, size]),
///     HeadsMut::new(&mut o, [batch, 1, heads, size]),
/// )
/// .pages(Pages::new(&table, each))
/// .lengths(&lengths)
/// .run(&stream)?;
/// # Ok(())
/// # }
/// ```
///
/// Computed by [`attention::decode`], on Ampere and later: a pass in which every block takes as many keys as
/// the next, whatever the lengths are, and a second launch for sequences that were cut. The same problem on
/// the same device gives the same bits in every run. The grid depends on the most keys alone, so that a graph
/// can replay the launches with other lengths and another table.
#[derive(Debug)]
#[must_use = "attention is computed by `run`"]
pub struct Decode<'a> {
    queries: Heads<'a>,
    cache: Cache<'a>,
    out: HeadsMut<'a>,
    lengths: Option<DeviceView<'a, i32>>,
    pages: Option<Pages<'a>>,
    log_sum_exp: Option<DeviceViewMut<'a, f32>>,
    sinks: Option<DeviceView<'a, f32>>,
    scale: Option<f32>,
    mask: Mask,
    rotary: Option<Rotary<'a>>,
    scales: Option<CacheScales<'a>>,
    blocks: Option<u32>,
}

impl<'a> Decode<'a> {
    /// `queries` and `out` are `[batch, queries, heads, head size]`, `keys` and `values` are `[batch, most
    /// keys, kv heads, head size]`, or `[pages, keys of a page, kv heads, head size]` with
    /// [`pages`](Self::pages): all bf16, or all f16; or keys and values in e4m3, with
    /// [`scales`](Self::scales). Heads and head sizes as for
    /// [`Attention`](super::Attention).
    pub fn new(queries: Heads<'a>, keys: Heads<'a>, values: Heads<'a>, out: HeadsMut<'a>) -> Self {
        Self::of(queries, Cache::Read([keys, values]), out)
    }

    /// As [`new`](Self::new), with new keys and values, `[batch, queries, kv heads, head size]`, that the
    /// same launch puts into the cache. They are the last `queries` keys of each sequence: its length counts
    /// them, and a page table has the pages for them. What lies in their places is not looked at. A sequence
    /// with fewer keys than queries takes the first ones of its new keys.
    ///
    /// A new key on a page that there is not is seen, but kept nowhere. Two sequences whose new keys have one
    /// place leave either there.
    pub fn appending(
        queries: Heads<'a>,
        [keys, values]: [HeadsMut<'a>; 2],
        new: [Heads<'a>; 2],
        out: HeadsMut<'a>,
    ) -> Self {
        Self::of(queries, Cache::Append { kept: [keys, values], new }, out)
    }

    fn of(queries: Heads<'a>, cache: Cache<'a>, out: HeadsMut<'a>) -> Self {
        let (lengths, pages, log_sum_exp, sinks) = (None, None, None, None);
        let (scale, mask, rotary, scales, blocks) = (None, Mask::FULL, None, None, None);
        Decode {
            queries,
            cache,
            out,
            lengths,
            pages,
            log_sum_exp,
            sinks,
            scale,
            mask,
            rotary,
            scales,
            blocks,
        }
    }

    /// The keys of each sequence, `[batch]`; else all have the most. They are on the device, and the host
    /// does not wait for them. A length counts as no less than 0, and no more than the most.
    pub fn lengths(self, lengths: impl Into<DeviceView<'a, i32>>) -> Self {
        Decode { lengths: Some(lengths.into()), ..self }
    }

    /// For a cache in pages. Any number of keys a page; multiples of 16 are fast.
    pub fn pages(self, pages: Pages<'a>) -> Self {
        Decode { pages: Some(pages), ..self }
    }

    /// The factor of the scores, positive; else it is `1 / sqrt(head size)`.
    pub fn scale(self, scale: f32) -> Self {
        Decode { scale: Some(scale), ..self }
    }

    /// Which keys a query sees; else all. Its diagonal ends in the last query and the sequence's last key:
    /// with [`Mask::CAUSAL`] the last query sees all keys, the one before it all but the last.
    pub fn mask(self, mask: Mask) -> Self {
        Decode { mask, ..self }
    }

    /// Where the logarithms of the sums of `exp(scale q k)` go, natural ones: `[batch, heads, queries]`,
    /// dense. A query that sees no key has minus infinity, and zeros as its result.
    pub fn log_sum_exp(self, out: impl Into<DeviceViewMut<'a, f32>>) -> Self {
        Decode { log_sum_exp: Some(out.into()), ..self }
    }

    /// As [`Attention::sinks`](super::Attention::sinks).
    pub fn sinks(self, sinks: impl Into<DeviceView<'a, f32>>) -> Self {
        Decode { sinks: Some(sinks.into()), ..self }
    }

    /// Queries and new keys are rotated; else they come as they are to be multiplied. Keys of the cache have
    /// been rotated when they were put there.
    pub fn rotary(self, rotary: Rotary<'a>) -> Self {
        Decode { rotary: Some(rotary), ..self }
    }

    /// For a cache in e4m3, with half the bytes of the other types, on Hopper: head sizes that are a multiple
    /// of 16 up to 128. Its elements are widened, without loss, to the type of the queries, and multiplied in
    /// that type. New keys, once rotated, and new values are divided by their scale and rounded to e4m3;
    /// beyond 448 they become that.
    pub fn scales(self, scales: CacheScales<'a>) -> Self {
        Decode { scales: Some(scales), ..self }
    }

    /// In so many blocks, at least 1; else in as many as run at once. Fewer leave multiprocessors to other
    /// work, and cut sequences less often. There are no more than pieces of 64 keys, or than 2^27 - 1. A
    /// [`Tuner`](crate::ops::tuning::Tuner) then tries no other number.
    pub fn blocks(self, blocks: u32) -> Self {
        Decode { blocks: Some(blocks), ..self }
    }

    /// The problem in plain numbers.
    ///
    /// # Errors
    /// [`Error::Length`](crate::Error::Length) when an operand does not have the elements that its shape
    /// says, [`Error::InvalidArgument`](crate::Error::InvalidArgument) when shapes or types do not fit
    /// together, rows do not begin at 16-byte boundaries, the result overlaps itself, the scale is not
    /// positive and finite, or there are more rows or keys than kernels can count.
    pub fn problem(&self) -> Result<DecodeProblem> {
        self.check()?;
        self.describe()
    }

    /// Queues the pass on `stream`, and the second launch if a sequence may be cut. Between them they keep 16
    /// rows of f32 for each block.
    ///
    /// # Errors
    /// As [`Decode::problem`], [`Error::InvalidArgument`](crate::Error::InvalidArgument) when no kernel can
    /// do the problem on the stream's device, [`Error::DeviceMismatch`](crate::Error::DeviceMismatch),
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory), or the driver's error.
    pub fn run(self, stream: &Stream) -> Result<()> {
        let plan = self.plan(stream, plan::PLAIN)?;
        launch::launch(stream, &plan, self)
    }

    /// How [`Decode::run`] would compute it on the stream's device, and why.
    ///
    /// # Errors
    /// As [`Decode::run`], but for the driver's.
    pub fn explain(self, stream: &Stream) -> Result<DecodePlan> {
        self.plan(stream, plan::PLAIN)
    }

    fn plan(&self, stream: &Stream, kernels: Kernels) -> Result<DecodePlan> {
        DecodePlan::new(self.checked(stream)?, kernels, stream.device(), self.blocks)
    }

    /// [`Decode::problem`], with all operands on the stream's device.
    fn checked(&self, stream: &Stream) -> Result<DecodeProblem> {
        let problem = self.problem()?;
        self.check_devices(stream)?;
        Ok(problem)
    }

    /// The same with results elsewhere.
    fn with_results<'s>(
        &'s mut self,
        out: HeadsMut<'s>,
        log_sum_exp: Option<DeviceViewMut<'s, f32>>,
    ) -> Decode<'s> {
        let Decode { cache, queries, lengths, pages, sinks, scale, mask, rotary, scales, blocks, .. } = self;
        Decode {
            queries: *queries,
            cache: cache.reborrow(),
            out,
            lengths: *lengths,
            pages: *pages,
            log_sum_exp,
            sinks: *sinks,
            scale: *scale,
            mask: *mask,
            rotary: *rotary,
            scales: *scales,
            blocks: *blocks,
        }
    }
}
