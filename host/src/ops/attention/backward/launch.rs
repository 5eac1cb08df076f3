//! The launches of the backward pass.

use attention::backward::order::Order;
use attention::backward::{ResultStrides, instances as shared, prepare, sinks};
use attention::problem::{AttentionParams, KeyTiles};
use attention::sm90::backward::config::{CONSUMER_KEYS, THREADS};
use attention::sm90::backward::instances::{self, Entry, TABLE as HOPPER_TABLE};
use attention::sm90::config::WARPGROUP;
use cuda_std::kernel::Kernel as KernelType;

use crate::error::Result;
use crate::launch::{self as kernel, LaunchConfig};
use crate::memory::tensor_map::TensorMap;
use crate::memory::{DeviceBuffer, DeviceView, Within};
use crate::stream::Stream;
use crate::tensor::DType;

use super::super::check::invalid;
use super::super::heads::{Heads, HeadsMut};
use super::super::launch::{SECTION_BYTES, map};
use super::super::op::Packed;
use super::super::problem::Problem;
use super::{Backward, Forward, Gradients, Sinks};

/// The numbers of rows that pass from one kernel to the next, and the sums of dQ.
pub(super) struct Workspace {
    pub logarithms: DeviceBuffer<f32>,
    pub deltas: DeviceBuffer<f32>,
    sums: DeviceBuffer<f32>,
    /// The counts of [`Order`], where dQ is added up in a fixed order or blocks share whole heads.
    order: Option<DeviceBuffer<u32>>,
}

/// dQ, where the main kernel leaves it to the last one.
pub(super) type Left<'r> = Result<Option<HeadsMut<'r>>>;

/// A pass whose first kernels are queued.
pub(super) struct Begun<'a> {
    pub forward: Forward<'a>,
    pub gradient: Heads<'a>,
    pub gradients: Gradients<'a>,
    pub launched: Launched<'a>,
    pub workspace: Workspace,
    /// Tiles of queries, of all heads.
    pub tiles: u32,
    /// Are there keys, and heads that have them?
    pub has_keys: bool,
}

/// Queues the kernels of Hopper, the main one by `pass`.
pub(super) fn launch(
    stream: &Stream,
    problem: &Problem,
    entry: &Entry,
    backward: Backward<'_>,
    pass: impl for<'p, 'r> FnOnce(&Stream, Pass<'p>, HeadsMut<'r>) -> Left<'r>,
) -> Result<()> {
    let begun = begin(stream, problem, entry, backward)?;
    let Begun { forward, gradient, gradients, launched, mut workspace, tiles, has_keys } = begun;
    let Gradients { queries: d_queries, keys, values } = gradients;
    let left = if has_keys {
        let of_pass =
            Pass::new(stream, entry, launched, &forward, gradient, [&keys, &values], &mut workspace)?;
        pass(stream, of_pass, d_queries)?
    } else {
        Some(d_queries)
    };
    let Some(d_queries) = left.filter(|_| tiles > 0) else { return Ok(()) };
    let threads = entry.parts * WARPGROUP;
    // SAFETY: as for the main kernel, which `pass` queued: shapes, strides and lengths are checked, gradients
    // do not overlap themselves; a block for each tile.
    unsafe { end(entry)?(stream, [tiles, threads], launched, &workspace.sums, d_queries) }
}

/// Queues the kernels before the main one, and that of sinks.
pub(super) fn begin<'a>(
    stream: &Stream,
    problem: &Problem,
    entry: &Entry,
    backward: Backward<'a>,
) -> Result<Begun<'a>> {
    let tile = entry.block[0];
    let Backward { forward, gradient, gradients, scale, mask, packed, sinks, is_deterministic } = backward;
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
    // Whole heads always have an order, between the blocks that share one out. Ampere's kernels need none.
    let is_shared = entry.is_whole && entry.cluster > 1;
    let is_ordered = tiles > 0 && (is_shared || is_deterministic && is_added_up(entry));
    let summed_rows = if entry.is_whole {
        let of_cluster = u64::from(params.group) * u64::from(params.padded_rows);
        let summed = u64::from(clusters_of_heads(params, entry, stream)).saturating_mul(of_cluster);
        // Their kernels count in 32 bits.
        u32::try_from(summed).map_err(|_| {
            let hint = "take a kernel that does not share out whole heads";
            invalid("the problem", format!("{summed} rows of sums"), "fewer than 2^32".to_owned(), hint)
        })? as usize
    } else if entry.is_hopper {
        rows
    } else {
        0
    };
    let words = Order::words(rows / tile as usize);
    // SAFETY: numbers have no invalid values; the first kernel writes all of them before others read them,
    // but the sums of whole heads, whose first part is stored before it is read.
    let mut workspace = unsafe {
        Workspace {
            order: is_ordered.then(|| DeviceBuffer::uninit(stream, words)).transpose()?,
            logarithms: DeviceBuffer::uninit(stream, rows)?,
            deltas: DeviceBuffer::uninit(stream, rows)?,
            sums: DeviceBuffer::uninit(stream, summed_rows * entry.head as usize)?,
        }
    };
    let launched = Launched { params, packed };
    // SAFETY: shapes, strides and lengths are checked; the workspace has the rows that the kernels pad to; a
    // block for each tile.
    unsafe {
        if tiles > 0 {
            // It reads rows of O and dO only.
            let of_result = AttentionParams { head_size: problem.value_size, ..params };
            let of_result = Launched { params: of_result, packed };
            prepare(stream, problem.dtype, tiles, entry, of_result, &forward, gradient, &mut workspace)?;
        }
        if let Some(sinks) = sinks.filter(|_| problem.heads > 0) {
            of_sinks(stream, tile, launched, &workspace, sinks)?;
        }
    }
    let has_keys = problem.keys > 0 && heads > 0;
    Ok(Begun { forward, gradient, gradients, launched, workspace, tiles, has_keys })
}

/// Whether blocks add dQ up in f32, in memory that is zero before.
const fn is_added_up(entry: &Entry) -> bool {
    entry.is_hopper && !entry.is_whole
}

/// Clusters that go through whole heads: a block a multiprocessor, each cluster with sums of its own.
fn clusters_of_heads(params: AttentionParams, entry: &Entry, stream: &Stream) -> u32 {
    // A tile as long as all keys is a head.
    let heads = KeyTiles::new(&params, params.keys.max(1)).count();
    (stream.device().properties().sm_count / entry.cluster).min(heads).max(1)
}

/// Arguments that all kernels have.
#[derive(Clone, Copy)]
pub(super) struct Launched<'a> {
    pub params: AttentionParams,
    packed: Option<Packed<'a>>,
}

impl<'a> Launched<'a> {
    /// Where packed sequences begin.
    pub fn first(&self) -> [Option<DeviceView<'a, i32>>; 2] {
        self.packed.map_or([None; 2], |packed| [Some(packed.queries), Some(packed.keys)])
    }
}

/// Heads of queries, whole groups of them, whose blocks of keys run beside each other: each reads all queries
/// and their gradients, and adds to all sums, which stay in L2 together.
fn section(problem: &Problem) -> u32 {
    let Problem { batch, queries, heads, head_size, dtype, .. } = *problem;
    let [read, summed] = [problem.row_elements(), head_size].map(u64::from);
    let row_bytes = read * dtype.size() as u64 + summed * size_of::<f32>() as u64;
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

/// Queues the first kernel.
///
/// # Safety
/// As for the kernel.
#[expect(clippy::too_many_arguments, reason = "the kernel's own, in place")]
unsafe fn prepare(
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
        forward.output.strides_of_rows(),
        gradient.data.cast::<u16>(),
        gradient.strides_of_rows(),
        forward.log_sum_exp,
        logarithms,
        deltas,
        sums,
        entry.block[0],
        // Zeros for sums that are added to alone.
        if is_added_up(entry) { entry.head } else { 0 },
        order.as_mut(),
        first_queries,
        first_keys,
    );
    // SAFETY: the caller's contract.
    unsafe {
        match dtype {
            DType::BF16 => kernel::launch::<shared::attention_prepare_bf16>(stream, config, arguments),
            _ => kernel::launch::<shared::attention_prepare_f16>(stream, config, arguments),
        }
    }
}

/// Queues the gradients of sinks.
///
/// # Safety
/// As for the kernel, but for the launch's configuration; the first kernel has been queued if there are
/// tiles.
unsafe fn of_sinks(
    stream: &Stream,
    tile: u32,
    launched: Launched<'_>,
    workspace: &Workspace,
    sinks: Sinks<'_>,
) -> Result<()> {
    let config =
        LaunchConfig::new([launched.params.heads, 1, 1], [sinks::THREADS, 1, 1]).overlapping_previous();
    let Workspace { logarithms, deltas, .. } = workspace;
    let [first_queries, first_keys] = launched.first();
    let Sinks { scores, gradients } = sinks;
    let arguments = (launched.params, logarithms, deltas, scores, gradients, tile, first_queries, first_keys);
    // SAFETY: the caller's contract.
    unsafe { kernel::launch::<shared::attention_sink_gradients>(stream, config, arguments) }
}

/// A launch of the main kernel.
pub struct Pass<'a> {
    pub(super) grid: LaunchConfig,
    /// Q, K, V, dO, dK, dV.
    pub(super) maps: [TensorMap<'a>; 6],
    pub(super) params: AttentionParams,
    pub(super) logarithms: &'a DeviceBuffer<f32>,
    pub(super) deltas: &'a DeviceBuffer<f32>,
    pub(super) sums: &'a mut DeviceBuffer<f32>,
    /// dK and dV, whose maps begin the write.
    pub(super) rows: [Within<'a, u16>; 2],
    pub(super) strides: ResultStrides,
    pub(super) order: Option<&'a mut DeviceBuffer<u32>>,
    pub(super) first: [Option<DeviceView<'a, i32>>; 2],
}

impl<'a> Pass<'a> {
    fn new(
        stream: &Stream,
        entry: &Entry,
        launched: Launched<'a>,
        forward: &Forward<'a>,
        gradient: Heads<'a>,
        [keys, values]: [&'a HeadsMut<'_>; 2],
        workspace: &'a mut Workspace,
    ) -> Result<Self> {
        let [tile, block] = entry.block;
        let map_keys = map(forward.keys, block / entry.blocks)?;
        // Where there are no queries, the keys' map stands in, which the kernel does not read for that.
        let (map_queries, map_gradient) = if forward.queries.shape.is_empty() {
            (map_keys, map_keys)
        } else {
            (map(forward.queries, tile)?, map(gradient, tile)?)
        };
        let map_values = map(forward.values, block / entry.blocks)?;
        // The kernel writes gradients through their maps, and rows at a sequence's end by themselves. The
        // launch begins the write with these.
        let (d_keys, d_values) = (keys.view(), values.view());
        let (map_d_keys, map_d_values) = (map(d_keys, CONSUMER_KEYS)?, map(d_values, CONSUMER_KEYS)?);
        let clusters = if entry.is_whole {
            clusters_of_heads(launched.params, entry, stream)
        } else {
            KeyTiles::new(&launched.params, block).count()
        };
        let grid = LaunchConfig::new([clusters * entry.cluster, 1, 1], [THREADS, 1, 1])
            .with_shared(entry.shared)
            .cluster([entry.cluster, 1, 1])
            .overlapping_previous();
        let Workspace { logarithms, deltas, sums, order } = workspace;
        Ok(Pass {
            grid,
            maps: [map_queries, map_keys, map_values, map_gradient, map_d_keys, map_d_values],
            params: launched.params,
            logarithms,
            deltas,
            sums,
            rows: [d_keys.data.within().cast::<u16>(), d_values.data.within().cast::<u16>()],
            strides: ResultStrides { keys: d_keys.strides_of_rows(), values: d_values.strides_of_rows() },
            order: order.as_mut(),
            first: launched.first(),
        })
    }
}

/// Queues the main kernel.
///
/// # Safety
/// The launch is one of this kernel's configuration.
unsafe fn pass_as<'r, K: KernelType<Params = PassParameters>>(
    stream: &Stream,
    pass: Pass<'_>,
    d_queries: HeadsMut<'r>,
) -> Left<'r> {
    let Pass { grid, maps, params, logarithms, deltas, sums, rows, strides, order, first } = pass;
    let [queries, keys, values, gradients, key_gradients, value_gradients] = maps;
    let ([key_rows, value_rows], [first_queries, first_keys]) = (rows, first);
    let arguments = (
        queries,
        keys,
        values,
        gradients,
        key_gradients,
        value_gradients,
        params,
        logarithms,
        deltas,
        sums,
        key_rows,
        value_rows,
        strides,
        order,
        first_queries,
        first_keys,
    );
    // SAFETY: the caller's contract.
    unsafe { kernel::launch::<K>(stream, grid, arguments)? };
    Ok(Some(d_queries))
}

/// Queues the main kernel of whole heads, which leaves nothing.
///
/// # Safety
/// As for [`pass_as`].
unsafe fn whole_as<'r, K: KernelType<Params = WholeParameters>>(
    stream: &Stream,
    pass: Pass<'_>,
    d_queries: HeadsMut<'r>,
) -> Left<'r> {
    let Pass { grid, maps, params, logarithms, deltas, sums, rows, order, .. } = pass;
    let [queries, keys, values, gradients, key_gradients, value_gradients] = maps;
    // The launch begins the write of dK and dV with their first elements.
    let [key_rows, value_rows] = rows;
    let strides = d_queries.view().strides_of_rows();
    let arguments = (
        queries,
        keys,
        values,
        gradients,
        key_gradients,
        value_gradients,
        params,
        logarithms,
        deltas,
        sums,
        key_rows,
        value_rows,
        d_queries.data.cast::<u16>(),
        strides,
        order,
    );
    // SAFETY: the caller's contract.
    unsafe { kernel::launch::<K>(stream, grid, arguments)? };
    Ok(None)
}

/// Queues the last kernel.
///
/// # Safety
/// As for the kernel, but for the launch's configuration.
unsafe fn end_as<K: KernelType<Params = EndParameters>>(
    stream: &Stream,
    [tiles, threads]: [u32; 2],
    launched: Launched<'_>,
    sums: &DeviceBuffer<f32>,
    gradient: HeadsMut<'_>,
) -> Result<()> {
    let config = LaunchConfig::new([tiles, 1, 1], [threads, 1, 1]).overlapping_previous();
    let strides = gradient.view().strides_of_rows();
    let [first_queries, first_keys] = launched.first();
    let arguments = (launched.params, sums, gradient.data.cast::<u16>(), strides, first_queries, first_keys);
    // SAFETY: the caller's contract.
    unsafe { kernel::launch::<K>(stream, config, arguments) }
}

type PassParameters = <instances::attention_backward_bf16_64 as KernelType>::Params;
type EndParameters = <instances::attention_finish_bf16_64 as KernelType>::Params;
type WholeParameters = <instances::attention_backward_whole_bf16_64 as KernelType>::Params;
type LaunchPass = for<'r> unsafe fn(&Stream, Pass<'_>, HeadsMut<'r>) -> Left<'r>;
type LaunchEnd = unsafe fn(&Stream, [u32; 2], Launched<'_>, &DeviceBuffer<f32>, HeadsMut<'_>) -> Result<()>;

macro_rules! passes {
    ($($name:ident)*) => {
        /// Of tiles of keys, in the order of the table.
        static PASSES: &[LaunchPass] = &[$(pass_as::<instances::$name>),*];
    };
}
attention::for_each_sm90_backward_kernel!(passes);

macro_rules! whole_passes {
    ($($name:ident)*) => {
        /// Of whole heads, behind the others in the table.
        static WHOLE_PASSES: &[LaunchPass] = &[$(whole_as::<instances::$name>),*];
    };
}
attention::for_each_sm90_whole_backward_kernel!(whole_passes);

/// The main kernel of this place in the table.
pub(super) fn pass_at(place: usize) -> LaunchPass {
    PASSES.iter().chain(WHOLE_PASSES).nth(place).copied().expect("a place in the table")
}

macro_rules! ends {
    ($($name:ident)*) => {
        /// In the order of the table.
        static ENDS: &[LaunchEnd] = &[$(end_as::<instances::$name>),*];
    };
}
attention::for_each_sm90_finish_kernel!(ends);

/// The last kernel of a pass.
fn end(entry: &Entry) -> Result<LaunchEnd> {
    let sums = |of: &Entry| (of.element, of.head, of.block, of.parts);
    let index = HOPPER_TABLE.iter().position(|of| sums(of) == sums(entry)).ok_or_else(|| {
        let hint = "score functions are compiled by `score_kernels!`";
        invalid("the kernel", entry.name.to_owned(), "one of the family's configurations".to_owned(), hint)
    })?;
    Ok(ENDS[index])
}

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
        value_size: 128,
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
