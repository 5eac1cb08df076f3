//! The backward pass: from the gradient of the result to those of queries, keys and values.

mod function;
mod launch;
mod mma;

use attention::mma::backward::instances::TABLE as MMA_TABLE;
use attention::sm90::backward::instances::{Entry, TABLE as HOPPER_TABLE};
use cuda_std::wgmma::ElementType;

use crate::device::Device;
use crate::error::{Error, Result};
use crate::memory::{DeviceView, DeviceViewMut, same_length};
use crate::stream::Stream;
use crate::tensor::DType;

use super::OPERATION;
use super::check::{
    check_groups, check_head_size, check_packed_devices, check_packing, check_scale, check_value_size, count,
    expect_sides, invalid, length, sequences,
};
use super::config::{Choice, Config};
use super::heads::{Heads, HeadsMut};
use super::op::Packed;
use super::problem::{Mask, Problem};
use super::select::{self, DeviceCapabilities, Row, VALUES_OF_ONE_SIZE, dtype};

pub use function::{BackwardKernels, ModifiedBackward};

/// The operands and the results of the forward pass.
#[derive(Debug, Clone, Copy)]
pub struct Forward<'a> {
    /// Q, `[batch, queries, heads, head size]`.
    pub queries: Heads<'a>,
    /// K, `[batch, keys, kv heads, head size]`.
    pub keys: Heads<'a>,
    /// V, as K, or of another head size.
    pub values: Heads<'a>,
    /// O, as Q, of the head size of V.
    pub output: Heads<'a>,
    /// The logarithms of the sums of exponentials, `[batch, heads, queries]`, or `[heads, rows]` of packed
    /// sequences.
    pub log_sum_exp: DeviceView<'a, f32>,
}

impl Forward<'_> {
    pub(super) fn check_devices(&self, stream: &Stream) -> Result<()> {
        let Forward { queries, keys, values, output, log_sum_exp } = self;
        stream.same_device("the queries", queries.device())?;
        stream.same_device("the keys", keys.device())?;
        stream.same_device("the values", values.device())?;
        stream.same_device("the output", output.device())?;
        stream.same_device("the log-sum-exps", log_sum_exp.device())
    }
}

/// Where gradients go, each of its operand's shape and type.
#[derive(Debug)]
pub struct Gradients<'a> {
    /// dQ.
    pub queries: HeadsMut<'a>,
    /// dK.
    pub keys: HeadsMut<'a>,
    /// dV.
    pub values: HeadsMut<'a>,
}

/// The gradients of attention. Built up, then [`Backward::run`].
///
/// Head sizes up to 256, on Ampere and later. dK and dV are the same bits in every run. On Hopper dQ is a sum
/// of f32 whose order is free, rounded once, or fixed ([`Backward::deterministic`]); elsewhere its order is
/// always fixed. With a score function or dropout it wants Hopper.
///
/// A query, or a row of the result's gradient, that is not finite spoils dK and dV of its head of keys, also
/// those of keys that it does not see: they are in one tile with keys that are seen, and a weight of zero
/// times NaN or infinity is NaN. Which keys that are depends on the kernel's tiles. Other heads of
/// keys, matrices and packed sequences keep theirs.
#[derive(Debug)]
#[must_use = "gradients are computed by `run`"]
pub struct Backward<'a> {
    forward: Forward<'a>,
    gradient: Heads<'a>,
    pub(super) gradients: Gradients<'a>,
    scale: Option<f32>,
    mask: Mask,
    packed: Option<Packed<'a>>,
    pub(super) sinks: Option<Sinks<'a>>,
    pub(super) is_deterministic: bool,
}

/// The sinks of the forward pass, and where their gradients go.
#[derive(Debug)]
pub(super) struct Sinks<'a> {
    scores: DeviceView<'a, f32>,
    pub(super) gradients: DeviceViewMut<'a, f32>,
}

impl<'a> Backward<'a> {
    /// Of the gradient of the result, `[batch, queries, heads, head size of values]`.
    pub fn new(forward: Forward<'a>, gradient: Heads<'a>, gradients: Gradients<'a>) -> Self {
        let (scale, mask, packed, sinks, is_deterministic) = (None, Mask::FULL, None, None, false);
        Backward { forward, gradient, gradients, scale, mask, packed, sinks, is_deterministic }
    }

    /// The factor of the scores in the forward pass, positive; else it is `1 / sqrt(head size)`.
    pub fn scale(self, scale: f32) -> Self {
        Backward { scale: Some(scale), ..self }
    }

    /// Which keys a query saw; else all.
    pub fn mask(self, mask: Mask) -> Self {
        Backward { mask, ..self }
    }

    /// For packed sequences, as in the forward pass. Gradients of rows that belong to none are left as they
    /// are.
    pub fn packed(self, packed: Packed<'a>) -> Self {
        Backward { packed: Some(packed), ..self }
    }

    /// The sinks of the forward pass, and where their gradients go: a number for each head of queries, the
    /// same bits in every run. Gradients of the operands need no sinks: the log-sum-exps count them.
    pub fn sinks(
        self,
        sinks: impl Into<DeviceView<'a, f32>>,
        gradients: impl Into<DeviceViewMut<'a, f32>>,
    ) -> Self {
        Backward { sinks: Some(Sinks { scores: sinks.into(), gradients: gradients.into() }), ..self }
    }

    /// Whether dQ is to be the same bits in every run too; else it need not. Its parts are then added from
    /// the last keys to the first, which blocks wait for. Kernels of whole heads, and those for other devices
    /// than Hopper, always have an order.
    pub fn deterministic(self, is_deterministic: bool) -> Self {
        Backward { is_deterministic, ..self }
    }

    /// Queues the two or three kernels of the backward pass, and one more for sinks. While they run they keep
    /// 8 bytes of device memory for each row of Q. Hopper's also keep 4 for each element: of all heads, or,
    /// by a kernel of whole heads, of those that it works on at a time. Rows are padded to tiles of up to
    /// 128.
    ///
    /// # Errors
    /// [`Error::Length`](crate::Error::Length) when an operand does not have the elements that its shape
    /// says, [`Error::InvalidArgument`] when shapes or types do not fit together, rows do not begin at
    /// 16-byte boundaries, a gradient overlaps itself, the scale is not positive and finite, or no kernel can
    /// do the problem on the stream's device; [`Error::DeviceMismatch`](crate::Error::DeviceMismatch),
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory), or the driver's error.
    pub fn run(self, stream: &Stream) -> Result<()> {
        let problem = self.checked(stream)?;
        let place = select::best(TABLE, &problem, stream.device())?;
        self.launch(stream, &problem, place)
    }

    /// Queues the kernels by a configuration of the candidates that [`Backward::explain`] lists.
    ///
    /// # Errors
    /// As [`Backward::run`], and [`Error::InvalidArgument`] for a configuration that cannot do the problem on
    /// this device.
    pub fn run_with(self, stream: &Stream, config: &Config) -> Result<()> {
        let problem = self.checked(stream)?;
        let place = select::place_of(TABLE, &problem, stream.device(), *config)?;
        self.launch(stream, &problem, place)
    }

    /// The choice that [`Backward::run`] would make on the stream's device, and why: that of its main kernel.
    ///
    /// # Errors
    /// As [`Backward::run`], but for the driver's.
    pub fn explain(&self, stream: &Stream) -> Result<Choice> {
        select::select_from(TABLE, &self.checked(stream)?, stream.device())
    }

    /// Queues the kernels, the main one of this place in the table.
    pub(super) fn launch(self, stream: &Stream, problem: &Problem, place: usize) -> Result<()> {
        if let Some(place) = place.checked_sub(HOPPER_TABLE.len()) {
            return mma::launch(stream, problem, place, self);
        }
        launch::launch(stream, problem, &TABLE[place], self, |stream, pass, d_queries| {
            // SAFETY: the kernel is the entry's.
            unsafe { launch::pass_at(place)(stream, pass, d_queries) }
        })
    }

    /// The same with results elsewhere.
    pub(super) fn with_results<'s>(
        &'s self,
        gradients: Gradients<'s>,
        sinks: Option<DeviceViewMut<'s, f32>>,
    ) -> Backward<'s> {
        let of_sinks = self.sinks.as_ref().map(|sinks| sinks.scores).zip(sinks);
        let sinks = of_sinks.map(|(scores, gradients)| Sinks { scores, gradients });
        Backward { gradients, sinks, ..*self }
    }

    /// Checks the operands on the stream's device, and gives them in plain numbers.
    pub(super) fn checked(&self, stream: &Stream) -> Result<Problem> {
        let problem = self.problem()?;
        self.check_devices(stream)?;
        Ok(problem)
    }

    fn problem(&self) -> Result<Problem> {
        let Forward { queries, keys, values, output, log_sum_exp } = &self.forward;
        let ([batch, rows, heads, size], [_, key_rows, kv_heads, _]) = (queries.sides(), keys.sides());
        let value_size = values.sides()[3];
        check_head_size(size)?;
        check_value_size(value_size)?;
        expect_sides("the keys", keys, [batch, key_rows, kv_heads, size])?;
        check_groups(heads, kv_heads)?;
        check_scale(self.scale)?;
        let gradients = &self.gradients;
        let views = [gradients.queries.view(), gradients.keys.view(), gradients.values.view()];
        let of_result = [batch, rows, heads, value_size];
        let of_values = [batch, key_rows, kv_heads, value_size];
        let others = [
            ("the output", *output, of_result),
            ("its gradient", self.gradient, of_result),
            ("the gradient of the queries", views[0], queries.sides()),
            ("the values", *values, of_values),
            ("the gradient of the keys", views[1], keys.sides()),
            ("the gradient of the values", views[2], of_values),
        ];
        for (argument, heads, sides) in others {
            expect_sides(argument, &heads, sides)?;
            check_type(argument, heads.dtype(), queries.dtype())?;
            heads.check(argument)?;
        }
        check_type("the keys", keys.dtype(), queries.dtype())?;
        queries.check("the queries")?;
        keys.check("the keys")?;
        gradients.queries.check("the gradient of the queries")?;
        gradients.keys.check("the gradient of the keys")?;
        gradients.values.check("the gradient of the values")?;
        let wanted = batch.saturating_mul(rows).saturating_mul(heads);
        same_length(OPERATION, "the log-sum-exps", wanted, log_sum_exp.len())?;
        if let Some(Sinks { scores, gradients }) = &self.sinks {
            same_length(OPERATION, "the sinks", heads, scores.len())?;
            same_length(OPERATION, "the gradients of the sinks", heads, gradients.len())?;
        }
        check_packing(queries, self.packed.as_ref())?;
        let [query_rows, key_rows] = [length("the queries", rows)?, length("the keys", key_rows)?];
        let sequences = sequences(batch, [query_rows, key_rows], self.packed.as_ref())?;
        Ok(Problem {
            dtype: queries.dtype(),
            batch: sequences.count,
            queries: sequences.longest[0],
            keys: sequences.longest[1],
            heads: count("the heads", heads)?,
            kv_heads: count("the heads of keys", kv_heads)?,
            head_size: size as u32,
            value_size: value_size as u32,
            mask: self.mask,
            packed: self.packed.map(|_| [query_rows, key_rows]),
            log_sum_exp: true,
        })
    }

    fn check_devices(&self, stream: &Stream) -> Result<()> {
        self.forward.check_devices(stream)?;
        stream.same_device("its gradient", self.gradient.device())?;
        stream.same_device("the gradient of the queries", self.gradients.queries.device())?;
        stream.same_device("the gradient of the keys", self.gradients.keys.device())?;
        stream.same_device("the gradient of the values", self.gradients.values.device())?;
        if let Some(Sinks { scores, gradients }) = &self.sinks {
            stream.same_device("the sinks", scores.device())?;
            stream.same_device("the gradients of the sinks", gradients.device())?;
        }
        check_packed_devices(stream, self.packed.as_ref())
    }
}

pub(super) fn check_type(argument: &'static str, got: DType, wanted: DType) -> Result<()> {
    if !matches!(wanted, DType::BF16 | DType::F16) {
        let hint = "convert it first (`to`)";
        return Err(invalid("the queries", format!("of {wanted}"), "bf16 or f16".to_owned(), hint));
    }
    if got == wanted {
        return Ok(());
    }
    let hint = "all operands and gradients have one type: convert one with `to`";
    Err(invalid(argument, format!("of {got}"), format!("{wanted}, as the queries"), hint))
}

/// The kernels of the backward pass without a score function: Hopper's, then those of `mma.sync`.
pub(super) const TABLE: &[Entry] =
    &select::joined::<_, { HOPPER_TABLE.len() + MMA_TABLE.len() }>(HOPPER_TABLE, MMA_TABLE);

/// A launch of each of the kernels.
const START_US: f64 = 10.0;
/// A block of keys, beside its turns: K and V, the first queries, and dK and dV at the end.
const BLOCK_US: f64 = 6.0;
/// The same of a tile of keys of a whole head, whose K and V are there when the tile before ends.
const TILE_US: f64 = 2.0;
/// Begin and end of a block of `mma.sync`, in its turns: a guess.
const ENDS: f64 = 0.7;
/// The part of the time of what L2 does not keep that shows beside the products: of eight timings on an H200,
/// of lengths 512 and 1024, head size 128 0.26 to 0.43, 64 less.
const SHOWN: f64 = 0.33;
/// Bytes a microsecond from device memory, as copies reach on an H200.
const BYTES_A_US: f64 = 4.1e6;
/// Bytes of L2 that blocks of whole heads have for what they use again: of the 50 MB of an H200.
const L2_BYTES: f64 = 48e6;
/// Bytes of an element of Q that the first kernel reads, and those that it writes and the last one reads and
/// writes where dQ is added up in f32.
const FIRST_BYTES: f64 = 4.0;
const SUM_BYTES: f64 = 10.0;
/// Bytes of an element of Q for each tile of keys of a whole head: of Q, dO, and a sum, read and written.
const AGAIN_BYTES: f64 = 12.0;

/// Whether there is no kernel for it: at the end of a packed sequence rows of dK and dV are stored by one
/// head size.
fn is_packed_of_two_sizes(problem: &Problem) -> bool {
    problem.packed.is_some() && !problem.is_of_one_size()
}

/// Wanted instead.
const PACKED_OF_ONE_SIZE: &str = "packed sequences whose values have the queries' head size";

/// A kernel's floating-point operations a microsecond of one multiprocessor: a 132nd of an H200's with
/// 16384 keys (2026-11-26).
const fn rate(entry: &Entry) -> f64 {
    if !entry.is_hopper {
        // A guess, that of the forward pass: no device was timed.
        return 1.9e6;
    }
    match entry.head {
        ..=64 => 3.95e6,
        65..=128 => 4.4e6,
        // Of 192 and 128 with 16384 keys (2026-11-30).
        129..=192 => 3.5e6,
        _ => 4.2e6,
    }
}

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
        // In place of two products three with rows of queries or keys and two of values, or four and three,
        // of rows that are filled up.
        let [of_keys, of_values] = if self.is_hopper { [3.0, 2.0] } else { [4.0, 3.0] };
        let own = of_keys * f64::from(self.head) + of_values * f64::from(self.value_head);
        let flops = problem.flops() * own / f64::from(problem.row_elements().max(1));
        let sm_count = f64::from(device.sm_count.max(1));
        let heads = problem.sequences() * f64::from(problem.heads);
        let elements = heads * f64::from(problem.queries) * f64::from(self.head);
        let tiles = f64::from(problem.keys.div_ceil(self.block[1]));
        let first_us = START_US + elements * FIRST_BYTES / BYTES_A_US;
        if !self.is_hopper {
            let [others, keys] = self.block.map(f64::from);
            let turn_flops = 2.0 * others * keys * own;
            return first_us + (flops + heads * tiles * ENDS * turn_flops) / rate(self) / sm_count;
        }
        if !self.is_whole {
            let busy_us = flops / rate(self) + heads * tiles * f64::from(self.blocks) * BLOCK_US;
            return first_us + elements * SUM_BYTES / BYTES_A_US + busy_us / sm_count;
        }
        // Each cluster has as many heads as the one with the most, and its blocks have a part of their tiles.
        let kv_heads = (heads / f64::from(problem.group().max(1))).max(1.0);
        let clusters = f64::from((device.sm_count / self.cluster).max(1));
        let of_block = ((kv_heads / clusters).ceil() * tiles / f64::from(self.cluster)).ceil();
        let busy_us = of_block * (flops / kv_heads / tiles.max(1.0) / rate(self) + TILE_US);
        // A share that does not stay in L2 comes from memory again for each tile of keys.
        let again = elements * AGAIN_BYTES;
        let missing = (1.0 - L2_BYTES / (again / kv_heads * kv_heads.min(clusters))).max(0.0);
        first_us + busy_us + SHOWN * again * tiles * missing / BYTES_A_US
    }

    fn refuses(&self, problem: &Problem) -> Option<&'static str> {
        if !self.is_hopper && !problem.is_of_one_size() {
            Some("is for values of the queries' head size")
        } else if self.head != self.value_head && problem.value_size >= problem.head_size {
            Some("is for values of a smaller head size than the queries'")
        } else if is_packed_of_two_sizes(problem) {
            Some("is for packed sequences whose values have the queries' head size")
        } else if !self.is_whole {
            None
        } else if problem.packed.is_some() {
            Some("is for sequences that are not packed")
        } else if problem.is_empty() || problem.keys == 0 {
            Some("wants queries and keys")
        } else {
            None
        }
    }

    fn why(&self, problem: &Problem) -> Option<&'static str> {
        let why = "its blocks go through all keys of a head: no zeros before, no sums behind";
        let is_as_long = [problem.head_size, problem.value_size] == [self.head; 2];
        (self.is_whole && is_as_long).then_some(why)
    }

    fn none_of(table: &'static [Self], problem: &Problem, device: &Device) -> Error {
        let of_type = || table.iter().filter(|entry| dtype(entry.element) == Some(problem.dtype));
        let longest = |head: fn(&Self) -> u32| of_type().map(head).max();
        let is_own = table.iter().any(|entry| !entry.is_hopper);
        let (wanted, hint) = match longest(|entry| entry.head).zip(longest(|entry| entry.value_head)) {
            _ if select::lacks_second_size(table, problem, device) => (
                if problem.packed.is_some() { PACKED_OF_ONE_SIZE } else { VALUES_OF_ONE_SIZE }.to_owned(),
                "fill queries and keys, or values, the result and its gradient, up with zeros to one head size; give the scale of the true head size of the queries",
            ),
            Some((head, _)) if is_own => (
                format!("head sizes up to {head} on compute capability 8.0 or more"),
                "the backward pass has kernels for Ampere and later; the software driver shows one",
            ),
            Some((head, value_head)) => (
                format!("head sizes up to {head}, of values up to {value_head}, on compute capability 9.0"),
                if device.arch().is_hopper() {
                    "name a kernel of longer rows under `backward:` of its `score_kernels!`"
                } else {
                    "gradients through a score function or dropout have kernels for Hopper alone; the software driver shows one"
                },
            ),
            None => (
                format!("a backward pass of {} with this score function", problem.dtype),
                "name one under `backward:` of its `score_kernels!`",
            ),
        };
        invalid("the problem", format!("the gradients of {problem} on {}", device.arch()), wanted, hint)
    }
}
