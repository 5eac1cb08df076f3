//! Attention with its operands: what the caller builds, checked before anything is queued.

use crate::error::Result;
use crate::memory::{DeviceView, DeviceViewMut};
use crate::stream::Stream;

use super::config::{Choice, Config};
use super::heads::{Heads, HeadsMut};
use super::problem::{Mask, Problem};
use super::select::TABLE;
use super::{launch, select};

/// Sequences that lie one behind the other in the rows of one matrix: sequence `i` has the rows
/// `first[i]..first[i + 1]`.
///
/// The numbers are on the device, and the host does not wait for them: they may come from a kernel that has
/// been queued and not run. So kernels look at them, and no call refuses them:
///
/// * A sequence longer than the longest that was told ends there, in every pass: its other queries and keys
///   belong to no sequence. A mask's diagonal that ends in the last query and key ends in the last that
///   count.
/// * A number less than the one before makes a sequence without rows. Numbers below 0 count as 0, those
///   beyond the rows as their end.
/// * Sequences that share rows, behind a number that falls, have meaningless results, and do no harm
///   otherwise.
///
/// Rows that belong to no sequence get no result and no gradient: what lies there stays.
#[derive(Debug, Clone, Copy)]
pub struct Packed<'a> {
    pub(super) queries: DeviceView<'a, i32>,
    pub(super) keys: DeviceView<'a, i32>,
    pub(super) longest: [usize; 2],
}

impl<'a> Packed<'a> {
    /// Where the sequences' queries and keys begin, one number more than there are sequences, and the lengths
    /// of the longest ones. Longer lengths than those that occur cost a little time; shorter ones end
    /// sequences.
    pub fn new(
        first_queries: impl Into<DeviceView<'a, i32>>,
        first_keys: impl Into<DeviceView<'a, i32>>,
        most_queries: usize,
        most_keys: usize,
    ) -> Self {
        let (queries, keys) = (first_queries.into(), first_keys.into());
        Packed { queries, keys, longest: [most_queries, most_keys] }
    }
}

impl<'a> Packed<'a> {
    /// The first queries and the first keys, where sequences are packed.
    pub(super) fn first_rows(packed: Option<Self>) -> [Option<DeviceView<'a, i32>>; 2] {
        packed.map_or([None, None], |packed| [Some(packed.queries), Some(packed.keys)])
    }
}

/// `O = softmax(scale Q K^T) V` for each head of each sequence. Built up, then [`Attention::run`].
#[derive(Debug)]
#[must_use = "attention is computed by `run`"]
pub struct Attention<'a> {
    pub(super) queries: Heads<'a>,
    pub(super) keys: Heads<'a>,
    pub(super) values: Heads<'a>,
    pub(super) out: HeadsMut<'a>,
    pub(super) log_sum_exp: Option<DeviceViewMut<'a, f32>>,
    pub(super) sinks: Option<DeviceView<'a, f32>>,
    pub(super) scale: Option<f32>,
    pub(super) mask: Mask,
    pub(super) packed: Option<Packed<'a>>,
}

impl<'a> Attention<'a> {
    /// `queries` and `out` are `[batch, queries, heads, head size]`, `keys` and `values` are `[batch, keys,
    /// kv heads, head size]`: all bf16, or all f16; or e4m3 with a result of bf16, for
    /// [`Attention::quantized`]. The heads of queries are a multiple of those of keys:
    /// with 8 and 2 of them, the first 4 take the first one. The head size is a multiple of 8, up to 256.
    /// On Hopper `values` and `out` may have another one than `queries` and `keys`, as the 128 of 192 in
    /// multi-head latent attention.
    pub fn new(queries: Heads<'a>, keys: Heads<'a>, values: Heads<'a>, out: HeadsMut<'a>) -> Self {
        let (log_sum_exp, sinks, scale, packed) = (None, None, None, None);
        Attention { queries, keys, values, out, log_sum_exp, sinks, scale, mask: Mask::FULL, packed }
    }

    /// The factor of the scores, positive; else it is `1 / sqrt(head size)`.
    pub fn scale(self, scale: f32) -> Self {
        Attention { scale: Some(scale), ..self }
    }

    /// Which keys a query sees; else all.
    pub fn mask(self, mask: Mask) -> Self {
        Attention { mask, ..self }
    }

    /// Where the logarithms of the sums of `exp(scale q k)` go, natural ones: `[batch, heads, queries]`, or
    /// `[heads, rows]` of packed sequences, dense. A query that sees no key has minus infinity.
    pub fn log_sum_exp(self, out: impl Into<DeviceViewMut<'a, f32>>) -> Self {
        Attention { log_sum_exp: Some(out.into()), ..self }
    }

    /// A number for each head of queries: the score, scale and all, of one more key that every query of the
    /// head sees, and whose value is zero: attention sinks as a logit a head, as gpt-oss has them.
    /// Weights then sum up to less than 1, and log-sum-exps count the sink. Minus infinity is no sink; plus
    /// infinity and NaN make the head's results NaN. A score function does not get it.
    pub fn sinks(self, sinks: impl Into<DeviceView<'a, f32>>) -> Self {
        Attention { sinks: Some(sinks.into()), ..self }
    }

    /// For packed sequences; the batch of the operands is then 1.
    pub fn packed(self, packed: Packed<'a>) -> Self {
        Attention { packed: Some(packed), ..self }
    }

    /// The problem in plain numbers.
    ///
    /// # Errors
    /// [`Error::Length`](crate::Error::Length) when an operand does not have the elements that its shape
    /// says, [`Error::InvalidArgument`](crate::Error::InvalidArgument) when shapes or types do not fit
    /// together, rows do not begin at 16-byte boundaries, the result overlaps itself, the scale is not
    /// positive and finite, or there are more rows or heads than kernels can count.
    pub fn problem(&self) -> Result<Problem> {
        self.check()?;
        self.describe()
    }

    /// Queues the kernel that [`select`](select::select) chooses on `stream`.
    ///
    /// # Errors
    /// As [`Attention::problem`] and [`select`](select::select),
    /// [`Error::DeviceMismatch`](crate::Error::DeviceMismatch), or the driver's error.
    pub fn run(self, stream: &Stream) -> Result<()> {
        let problem = self.checked(stream)?;
        let place = select::best(TABLE, &problem, stream.device())?;
        self.launch(stream, &problem, place)
    }

    /// Queues the kernel of a configuration of [`candidates`](select::candidates).
    ///
    /// # Errors
    /// As [`Attention::run`], and [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a
    /// configuration that cannot do the problem on this device.
    pub fn run_with(self, stream: &Stream, config: &Config) -> Result<()> {
        let problem = self.checked(stream)?;
        let place = select::place_of(TABLE, &problem, stream.device(), *config)?;
        self.launch(stream, &problem, place)
    }

    /// The choice that [`Attention::run`] would make on the stream's device, and why.
    ///
    /// # Errors
    /// As [`Attention::run`], but for the driver's.
    pub fn explain(self, stream: &Stream) -> Result<Choice> {
        select::select(&self.checked(stream)?, stream.device())
    }

    /// Queues the kernel of this place in the table.
    pub(super) fn launch(self, stream: &Stream, problem: &Problem, place: usize) -> Result<()> {
        launch::launch(stream, problem, place, self)
    }

    /// The same with results elsewhere.
    pub(super) fn with_results<'s>(
        &'s self,
        out: HeadsMut<'s>,
        log_sum_exp: Option<DeviceViewMut<'s, f32>>,
    ) -> Attention<'s> {
        Attention { out, log_sum_exp, ..*self }
    }

    /// [`Attention::problem`], with all operands on the stream's device.
    pub(super) fn checked(&self, stream: &Stream) -> Result<Problem> {
        let problem = self.problem()?;
        self.check_devices(stream)?;
        Ok(problem)
    }
}
