//! The backward pass: from the gradient of the result to those of queries, keys and values.

use attention::problem::{AttentionParams, KeyTiles};
use attention::sm90::backward::arguments::ResultStrides;
use attention::sm90::backward::config::{CONSUMER_KEYS, THREADS};
use attention::sm90::backward::instances::{Entry, TABLE};
use attention::sm90::backward::order::Order;
use attention::sm90::backward::{finish, instances, prepare};
use cuda_std::kernel::Kernel as KernelType;

use crate::error::Result;
use crate::launch::{self as kernel, LaunchConfig};
use crate::memory::{DeviceBuffer, DeviceView, same_length};
use crate::stream::Stream;
use crate::tensor::DType;

use super::check::{
    check_groups, check_head_size, check_packed_devices, check_packing, check_scale, count, expect_sides,
    invalid, length, sequences,
};
use super::heads::{Heads, HeadsMut};
use super::launch::{SECTION_BYTES, map};
use super::op::Packed;
use super::problem::{Mask, Problem};
use super::select::dtype;

/// The operands and the results of the forward pass.
#[derive(Debug, Clone, Copy)]
pub struct Forward<'a> {
    /// Q, `[batch, queries, heads, head size]`.
    pub queries: Heads<'a>,
    /// K, `[batch, keys, kv heads, head size]`.
    pub keys: Heads<'a>,
    /// V, as K.
    pub values: Heads<'a>,
    /// O, as Q.
    pub output: Heads<'a>,
    /// The logarithms of the sums of exponentials, `[batch, heads, queries]`, or `[heads, rows]` of packed
    /// sequences.
    pub log_sum_exp: DeviceView<'a, f32>,
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
/// Head sizes up to 128, on Hopper. dK and dV are the same bits in every run; dQ is a sum of f32 whose order
/// is free, rounded once, or fixed ([`Backward::deterministic`]).
#[derive(Debug)]
#[must_use = "gradients are computed by `run`"]
pub struct Backward<'a> {
    forward: Forward<'a>,
    gradient: Heads<'a>,
    gradients: Gradients<'a>,
    scale: Option<f32>,
    mask: Mask,
    packed: Option<Packed<'a>>,
    is_deterministic: bool,
}

impl<'a> Backward<'a> {
    /// Of the gradient of the result, `[batch, queries, heads, head size]`.
    pub fn new(forward: Forward<'a>, gradient: Heads<'a>, gradients: Gradients<'a>) -> Self {
        let (scale, mask, packed, is_deterministic) = (None, Mask::FULL, None, false);
        Backward { forward, gradient, gradients, scale, mask, packed, is_deterministic }
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

    /// Whether dQ is to be the same bits in every run too; else it need not. Its parts are then added in the
    /// order of keys, which blocks wait for: a few per cent of time for long sequences, more for short ones.
    pub fn deterministic(self, is_deterministic: bool) -> Self {
        Backward { is_deterministic, ..self }
    }

    /// Queues the three kernels of the backward pass. They keep 4 bytes of device memory for each element of
    /// Q, and 8 for each row, while they run; rows are padded to tiles of up to 128.
    ///
    /// # Errors
    /// [`Error::Length`](crate::Error::Length) when an operand does not have the elements that its shape
    /// says, [`Error::InvalidArgument`](crate::Error::InvalidArgument) when shapes or types do not fit
    /// together, rows do not begin at 16-byte boundaries, a gradient overlaps itself, the scale is not
    /// positive and finite, or no kernel can do the problem on the stream's device;
    /// [`Error::DeviceMismatch`](crate::Error::DeviceMismatch),
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory), or the driver's error.
    pub fn run(self, stream: &Stream) -> Result<()> {
        let problem = self.problem()?;
        self.check_devices(stream)?;
        let index = select(&problem, stream)?;
        launch(stream, &problem, index, self)
    }

    /// Checks the operands, and gives them in plain numbers.
    fn problem(&self) -> Result<Problem> {
        let Forward { queries, keys, values, output, log_sum_exp } = &self.forward;
        let ([batch, rows, heads, size], [_, key_rows, kv_heads, _]) = (queries.sides(), keys.sides());
        check_head_size(size)?;
        expect_sides("the keys", keys, [batch, key_rows, kv_heads, size])?;
        check_groups(heads, kv_heads)?;
        check_scale(self.scale)?;
        let gradients = &self.gradients;
        let views = [gradients.queries.view(), gradients.keys.view(), gradients.values.view()];
        let like_queries = [
            ("the output", *output),
            ("its gradient", self.gradient),
            ("the gradient of the queries", views[0]),
        ];
        let like_keys = [
            ("the values", *values),
            ("the gradient of the keys", views[1]),
            ("the gradient of the values", views[2]),
        ];
        for (operand, sides) in [(like_queries, queries.sides()), (like_keys, keys.sides())] {
            for (argument, heads) in operand {
                expect_sides(argument, &heads, sides)?;
                check_type(argument, heads.dtype(), queries.dtype())?;
                heads.check(argument)?;
            }
        }
        check_type("the keys", keys.dtype(), queries.dtype())?;
        queries.check("the queries")?;
        keys.check("the keys")?;
        gradients.queries.check("the gradient of the queries")?;
        gradients.keys.check("the gradient of the keys")?;
        gradients.values.check("the gradient of the values")?;
        let wanted = batch.saturating_mul(rows).saturating_mul(heads);
        same_length(super::OPERATION, "the log-sum-exps", wanted, log_sum_exp.len())?;
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
            mask: self.mask,
            packed: self.packed.map(|_| [query_rows, key_rows]),
            log_sum_exp: true,
        })
    }

    fn check_devices(&self, stream: &Stream) -> Result<()> {
        let Forward { queries, keys, values, output, log_sum_exp } = &self.forward;
        stream.same_device("the queries", queries.device())?;
        stream.same_device("the keys", keys.device())?;
        stream.same_device("the values", values.device())?;
        stream.same_device("the output", output.device())?;
        stream.same_device("the log-sum-exps", log_sum_exp.device())?;
        stream.same_device("its gradient", self.gradient.device())?;
        stream.same_device("the gradient of the queries", self.gradients.queries.device())?;
        stream.same_device("the gradient of the keys", self.gradients.keys.device())?;
        stream.same_device("the gradient of the values", self.gradients.values.device())?;
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

/// The kernel with the shortest rows that hold the head.
fn select(problem: &Problem, stream: &Stream) -> Result<usize> {
    let device = stream.device();
    let is_hopper = (device.arch().major, device.arch().minor) == (9, 0);
    let fits = |entry: &Entry| {
        dtype(entry.element) == Some(problem.dtype) && entry.head >= problem.head_size && is_hopper
    };
    let fitting = TABLE.iter().enumerate().filter(|(_, entry)| fits(entry));
    fitting.min_by_key(|(_, entry)| entry.head).map(|(index, _)| index).ok_or_else(|| {
        invalid(
            "the problem",
            format!("the gradients of {problem} on {}", device.arch()),
            "head sizes up to 128 on compute capability 9.0".to_owned(),
            "the backward pass has kernels for Hopper; the software driver shows one",
        )
    })
}

/// The numbers of rows that pass from one kernel to the next, and the sums of dQ.
struct Workspace {
    logarithms: DeviceBuffer<f32>,
    deltas: DeviceBuffer<f32>,
    sums: DeviceBuffer<f32>,
    /// The counts of [`Order`], where dQ is added up in a fixed order.
    order: Option<DeviceBuffer<u32>>,
}

fn launch(stream: &Stream, problem: &Problem, index: usize, backward: Backward<'_>) -> Result<()> {
    let entry = &TABLE[index];
    let tile = entry.block[0];
    let Backward { forward, gradient, gradients, scale, mask, packed, is_deterministic } = backward;
    let Gradients { queries: d_queries, keys, values } = gradients;
    let [query_rows, key_rows] = problem.packed.unwrap_or([problem.queries, problem.keys]);
    let params = AttentionParams {
        batch: problem.batch,
        heads: problem.heads,
        group: problem.group(),
        queries: problem.queries,
        keys: problem.keys,
        head_size: problem.head_size,
        lse_rows: query_rows,
        key_rows,
        padded_rows: padded_rows(problem, tile)?,
        output_row: 0,
        output_head: 0,
        output_matrix: 0,
        band: mask.band(),
        scale: scale.unwrap_or(1.0 / (problem.head_size as f32).sqrt()),
        section: section(problem),
    };
    let heads = u64::from(problem.batch) * u64::from(problem.heads);
    // Packed sequences lie in the rows of one matrix.
    let matrices = if packed.is_some() { 1 } else { problem.batch };
    let rows = matrices as usize * problem.heads as usize * params.padded_rows as usize;
    let tiles = heads * u64::from(problem.queries.div_ceil(tile));
    let Ok(tiles) = u32::try_from(tiles) else {
        let hint = "split the batch and call once for each part";
        return Err(invalid("the problem", format!("{tiles} tiles"), "fewer than 2^32".to_owned(), hint));
    };
    let is_ordered = is_deterministic && tiles > 0;
    let words = Order::words(rows / tile as usize);
    // SAFETY: numbers have no invalid values; the first kernel writes all of them before others read them.
    let mut workspace = unsafe {
        Workspace {
            order: is_ordered.then(|| DeviceBuffer::uninit(stream, words)).transpose()?,
            logarithms: DeviceBuffer::uninit(stream, rows)?,
            deltas: DeviceBuffer::uninit(stream, rows)?,
            sums: DeviceBuffer::uninit(stream, rows * entry.head as usize)?,
        }
    };
    let (pass, end) = (PASSES[index], ENDS[index]);
    let launched = Launched { params, packed };
    // SAFETY: shapes, strides and lengths are checked, gradients do not overlap themselves; the workspace has
    // the rows that the kernels pad to; a block for each tile.
    unsafe {
        if tiles > 0 {
            begin(stream, problem.dtype, tiles, entry, launched, &forward, gradient, &mut workspace)?;
        }
        if problem.keys > 0 && heads > 0 {
            pass(stream, entry, Pass { launched, forward, gradient, keys, values }, &mut workspace)?;
        }
        if tiles > 0 { end(stream, tiles, launched, &workspace.sums, d_queries) } else { Ok(()) }
    }
}

/// The arguments of all three kernels.
#[derive(Clone, Copy)]
struct Launched<'a> {
    params: AttentionParams,
    packed: Option<Packed<'a>>,
}

impl<'a> Launched<'a> {
    /// Where packed sequences begin.
    fn first(&self) -> [Option<DeviceView<'a, i32>>; 2] {
        self.packed.map_or([None; 2], |packed| [Some(packed.queries), Some(packed.keys)])
    }
}

/// Heads of queries, whole groups of them, whose blocks of keys run beside each other: each reads all queries
/// and their gradients, and adds to all sums, which stay in L2 together.
fn section(problem: &Problem) -> u32 {
    let Problem { batch, queries, heads, head_size, dtype, .. } = *problem;
    let row_bytes = u64::from(head_size) * (2 * dtype.size() + size_of::<f32>()) as u64;
    let group_bytes = (u64::from(queries) * row_bytes * u64::from(problem.group())).max(1);
    let kv_heads = (SECTION_BYTES / group_bytes).max(1);
    // All of them fit in 32 bits, as their tiles do.
    let all = u64::from(batch) * u64::from(heads);
    kv_heads.saturating_mul(problem.group().into()).min(all).max(1) as u32
}

/// Rows of queries of a head of a sequence, padded to whole tiles; of all packed sequences, each of which
/// begins with a tile.
fn padded_rows(problem: &Problem, tile: u32) -> Result<u32> {
    let Some([rows, _]) = problem.packed else { return Ok(problem.queries.next_multiple_of(tile)) };
    let padded = (u64::from(rows / tile) + u64::from(problem.batch)) * u64::from(tile);
    u32::try_from(padded).map_err(|_| {
        let hint = "split the sequences and call once for each part";
        let wanted = "fewer than 2^32, each sequence in whole tiles".to_owned();
        invalid("the sequences", format!("{padded} rows of queries"), wanted, hint)
    })
}

/// Elements from a row to the next, a head, a sequence.
fn strides(heads: &Heads<'_>) -> prepare::Strides {
    let [matrix, row, head, _] = heads.shape.bounded().strides.map(|stride| stride as u64);
    prepare::Strides { row, head, matrix }
}

/// Queues the first kernel.
///
/// # Safety
/// As for the kernel.
#[expect(clippy::too_many_arguments, reason = "the kernel's own, in place")]
unsafe fn begin(
    stream: &Stream,
    dtype: DType,
    tiles: u32,
    entry: &Entry,
    launched: Launched<'_>,
    forward: &Forward<'_>,
    gradient: Heads<'_>,
    workspace: &mut Workspace,
) -> Result<()> {
    let config = LaunchConfig::new([tiles, 1, 1], [prepare::THREADS, 1, 1]).overlapping_previous();
    let Workspace { logarithms, deltas, sums, order } = workspace;
    let [first_queries, first_keys] = launched.first();
    let arguments = (
        launched.params,
        forward.output.data.cast::<u16>(),
        strides(&forward.output),
        gradient.data.cast::<u16>(),
        strides(&gradient),
        forward.log_sum_exp,
        logarithms,
        deltas,
        sums,
        entry.block[0],
        entry.head,
        order.as_mut(),
        first_queries,
        first_keys,
    );
    // SAFETY: the caller's contract.
    unsafe {
        match dtype {
            DType::BF16 => kernel::launch::<instances::attention_prepare_bf16>(stream, config, arguments),
            _ => kernel::launch::<instances::attention_prepare_f16>(stream, config, arguments),
        }
    }
}

/// The operands of the main kernel.
struct Pass<'a> {
    launched: Launched<'a>,
    forward: Forward<'a>,
    gradient: Heads<'a>,
    keys: HeadsMut<'a>,
    values: HeadsMut<'a>,
}

/// Queues the main kernel.
///
/// # Safety
/// As for the kernel, but for the launch's configuration.
unsafe fn pass_as<K: KernelType<Params = PassParameters>>(
    stream: &Stream,
    entry: &Entry,
    pass: Pass<'_>,
    workspace: &mut Workspace,
) -> Result<()> {
    let Pass { launched, forward, gradient, keys, values } = pass;
    let [tile, block] = entry.block;
    let map_keys = map(forward.keys, block)?;
    // Where there are no queries, the keys' map stands in, which the kernel does not read for that.
    let (map_queries, map_gradient) = if forward.queries.shape.is_empty() {
        (map_keys, map_keys)
    } else {
        (map(forward.queries, tile)?, map(gradient, tile)?)
    };
    let map_values = map(forward.values, block)?;
    // The kernel writes gradients through their maps, and rows at a sequence's end by themselves. The launch
    // begins the write with these.
    let (d_keys, d_values) = (keys.view(), values.view());
    let (map_d_keys, map_d_values) = (map(d_keys, CONSUMER_KEYS)?, map(d_values, CONSUMER_KEYS)?);
    let blocks = KeyTiles::new(&launched.params, block).count();
    let config =
        LaunchConfig::new([blocks, 1, 1], [THREADS, 1, 1]).with_shared(entry.shared).overlapping_previous();
    let Workspace { logarithms, deltas, sums, order } = workspace;
    let [first_queries, first_keys] = launched.first();
    let arguments = (
        map_queries,
        map_keys,
        map_values,
        map_gradient,
        map_d_keys,
        map_d_values,
        launched.params,
        &*logarithms,
        &*deltas,
        sums,
        d_keys.data.within().cast::<u16>(),
        d_values.data.within().cast::<u16>(),
        ResultStrides { keys: strides(&d_keys), values: strides(&d_values) },
        order.as_mut(),
        first_queries,
        first_keys,
    );
    // SAFETY: the caller's contract.
    unsafe { kernel::launch::<K>(stream, config, arguments) }
}

/// Queues the last kernel.
///
/// # Safety
/// As for the kernel, but for the launch's configuration.
unsafe fn end_as<K: KernelType<Params = EndParameters>>(
    stream: &Stream,
    tiles: u32,
    launched: Launched<'_>,
    sums: &DeviceBuffer<f32>,
    gradient: HeadsMut<'_>,
) -> Result<()> {
    let config = LaunchConfig::new([tiles, 1, 1], [finish::THREADS, 1, 1]).overlapping_previous();
    let strides = strides(&gradient.view());
    let [first_queries, first_keys] = launched.first();
    let arguments = (launched.params, sums, gradient.data.cast::<u16>(), strides, first_queries, first_keys);
    // SAFETY: the caller's contract.
    unsafe { kernel::launch::<K>(stream, config, arguments) }
}

type PassParameters = <instances::attention_backward_bf16_64 as KernelType>::Params;
type EndParameters = <instances::attention_finish_bf16_64 as KernelType>::Params;
type LaunchPass = unsafe fn(&Stream, &Entry, Pass<'_>, &mut Workspace) -> Result<()>;
type LaunchEnd = unsafe fn(&Stream, u32, Launched<'_>, &DeviceBuffer<f32>, HeadsMut<'_>) -> Result<()>;

macro_rules! passes {
    ($($name:ident)*) => {
        /// In the order of the table.
        static PASSES: [LaunchPass; TABLE.len()] = [$(pass_as::<instances::$name>),*];
    };
}
attention::for_each_sm90_backward_kernel!(passes);

macro_rules! ends {
    ($($name:ident)*) => {
        /// In the order of the table.
        static ENDS: [LaunchEnd; TABLE.len()] = [$(end_as::<instances::$name>),*];
    };
}
attention::for_each_sm90_finish_kernel!(ends);

#[cfg(test)]
mod tests {
    use super::{padded_rows, section};
    use crate::ops::attention::{Mask, Problem};
    use crate::tensor::DType;

    const PROBLEM: Problem = Problem {
        dtype: DType::BF16,
        batch: 4,
        queries: 4096,
        keys: 100,
        heads: 32,
        kv_heads: 8,
        head_size: 128,
        mask: Mask::FULL,
        packed: None,
        log_sum_exp: true,
    };

    #[test]
    fn sections_are_groups_whose_queries_fit() {
        // 4 MiB a head of queries, 16 a group of four.
        assert_eq!(section(&PROBLEM), 8);
        assert_eq!(section(&Problem { queries: 1 << 20, ..PROBLEM }), 4);
        assert_eq!(section(&Problem { queries: 0, ..PROBLEM }), 128);
        assert_eq!(section(&Problem { queries: 1, batch: 1, ..PROBLEM }), 32);
    }

    #[test]
    fn packed_sequences_begin_with_a_tile() {
        assert_eq!(padded_rows(&Problem { queries: 65, ..PROBLEM }, 64).ok(), Some(128));
        // Two whole tiles, and a part of one for each sequence at most.
        let packed = Problem { packed: Some([130, 9]), ..PROBLEM };
        assert_eq!(padded_rows(&packed, 64).ok(), Some(6 * 64));
        assert!(padded_rows(&Problem { batch: u32::MAX, ..packed }, 64).is_err());
    }
}
