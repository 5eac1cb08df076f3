//! From checked operands to a launch: tensor maps or addresses, the kernel's arguments, the grid.

use attention::mma::{self, forward::InputStrides};
use attention::problem::{AttentionParams, Tiles};
use attention::sm90::config::{BOX_COLUMNS, CONSUMER_ROWS};
use attention::sm90::fp8;
use attention::sm90::instances::{Entry, TABLE as HOPPER_TABLE};
use cuda_std::kernel::Kernel as KernelType;

use crate::error::Result;
use crate::launch::{self as kernel, LaunchConfig};
use crate::memory::tensor_map::{L2Promotion, Swizzle, TensorMap, Tiling};
use crate::memory::{DeviceView, DeviceViewMut, Within};
use crate::ops::counter::Counter;
use crate::stream::Stream;

use super::heads::{Heads, Shape};
use super::op::{Attention, Packed};
use super::problem::{Mask, Problem};
use super::select::TABLE;

/// Bytes that many blocks read and that should stay in L2 meanwhile, such as keys and values while queries
/// are computed: a part of it, beside what each block has for itself.
pub(super) const SECTION_BYTES: u64 = 32 << 20;

/// Queues the kernel of this place in the table.
pub(super) fn launch(
    stream: &Stream,
    problem: &Problem,
    place: usize,
    mut attention: Attention<'_>,
) -> Result<()> {
    if !TABLE[place].is_hopper {
        return launch_mma(stream, problem, place, attention);
    }
    let Some((grid, launched)) = Launch::new(stream, problem, &TABLE[place], &mut attention)? else {
        return Ok(());
    };
    // SAFETY: the launch is of the entry's configuration; else as `Launch::new` says.
    unsafe { LAUNCHES[place](stream, grid, launched) }
}

/// The arguments of a launch.
pub struct Launch<'a> {
    /// Of queries, keys, values and results.
    pub maps: [TensorMap<'a>; 4],
    pub params: AttentionParams,
    pub data: Within<'a, u8>,
    pub log_sum_exp: Option<DeviceViewMut<'a, f32>>,
    pub sinks: Option<DeviceView<'a, f32>>,
    pub packed: Option<Packed<'a>>,
    pub counter: Option<Counter>,
}

impl<'a> Launch<'a> {
    /// The grid and the arguments of a kernel; `None` if there is nothing to do. The maps have the kernel's
    /// boxes; shapes, strides and lengths have been checked, and results do not overlap; numbers of rows are
    /// limited by the kernel; the counter is 0.
    pub fn new(
        stream: &Stream,
        problem: &Problem,
        entry: &Entry,
        attention: &'a mut Attention<'_>,
    ) -> Result<Option<(LaunchConfig, Self)>> {
        if problem.is_empty() {
            return Ok(None);
        }
        let params = params(problem, attention);
        let tiles = Tiles::new(&params, entry.block[0]).count();
        let blocks = tiles.min(stream.device().properties().sm_count.max(1));
        let grid = LaunchConfig::new([blocks, 1, 1], [entry.threads, 1, 1])
            .with_shared(entry.shared)
            .overlapping_previous();
        let Attention { queries, keys, values, out, log_sum_exp, sinks, packed, .. } = attention;
        // The kernel writes results through `data` or through their map. The launch begins the write with
        // `data`.
        let out = out.view();
        let launched = Launch {
            maps: maps(entry, [*queries, *keys, *values, out])?,
            params,
            data: out.data.within(),
            log_sum_exp: log_sum_exp.as_mut().map(DeviceViewMut::view_mut),
            sinks: *sinks,
            packed: *packed,
            counter: if tiles > blocks && is_drawn(problem, blocks) {
                Some(Counter::new(stream)?)
            } else {
                None
            },
        };
        Ok(Some((grid, launched)))
    }
}

/// Parameters of all kernels of the table.
type Parameters = <attention::sm90::instances::attention_bf16_64 as KernelType>::Params;

/// Launches a kernel.
///
/// # Safety
/// As for the kernel.
unsafe fn launch_as<K: KernelType<Params = Parameters>>(
    stream: &Stream,
    config: LaunchConfig,
    launched: Launch<'_>,
) -> Result<()> {
    let Launch { maps: [queries, keys, values, output], params, data, log_sum_exp, .. } = launched;
    let Launch { sinks, packed, mut counter, .. } = launched;
    let [first_queries, first_keys] = Packed::first_rows(packed);
    let counter = counter.as_mut();
    let arguments =
        (queries, keys, values, output, params, data, log_sum_exp, sinks, first_queries, first_keys, counter);
    // SAFETY: the caller's contract.
    unsafe { kernel::launch::<K>(stream, config, arguments) }
}

macro_rules! launches {
    ($($name:ident)*) => {
        /// In the order of the table.
        static LAUNCHES: [unsafe fn(&Stream, LaunchConfig, Launch<'_>) -> Result<()>; HOPPER_TABLE.len()] =
            [$(launch_as::<attention::sm90::instances::$name>),*];
    };
}
attention::for_each_sm90_kernel!(launches);

/// Queues the kernel of `mma.sync` of this place in the table: a block for each tile.
fn launch_mma(stream: &Stream, problem: &Problem, place: usize, attention: Attention<'_>) -> Result<()> {
    if problem.is_empty() {
        return Ok(());
    }
    let (entry, params) = (&TABLE[place], params(problem, &attention));
    let blocks = Tiles::new(&params, entry.block[0]).count();
    let grid = LaunchConfig::new([blocks, 1, 1], [entry.threads, 1, 1])
        .with_shared(entry.shared)
        .overlapping_previous();
    // SAFETY: the launch is of the entry's configuration. Shapes, strides and lengths have been checked, and
    // results do not overlap; numbers of rows are limited by the kernel.
    unsafe { MMA_LAUNCHES[place - HOPPER_TABLE.len()](stream, grid, params, attention) }
}

/// Parameters of all kernels of `mma.sync`.
type MmaParameters = <mma::instances::attention_mma_bf16_64 as KernelType>::Params;

/// Launches one of them.
///
/// # Safety
/// As for the kernel.
unsafe fn launch_mma_as<K: KernelType<Params = MmaParameters>>(
    stream: &Stream,
    config: LaunchConfig,
    params: AttentionParams,
    mut attention: Attention<'_>,
) -> Result<()> {
    let [queries, keys, values] = [attention.queries, attention.keys, attention.values];
    let strides = InputStrides {
        queries: queries.strides_of_rows(),
        keys: keys.strides_of_rows(),
        values: values.strides_of_rows(),
    };
    let [first_queries, first_keys] = Packed::first_rows(attention.packed);
    let arguments = (
        params,
        strides,
        queries.data.cast::<u16>(),
        keys.data.cast::<u16>(),
        values.data.cast::<u16>(),
        attention.out.data.view_mut().cast::<u16>(),
        attention.log_sum_exp.as_mut(),
        attention.sinks,
        first_queries,
        first_keys,
    );
    // SAFETY: the caller's contract.
    unsafe { kernel::launch::<K>(stream, config, arguments) }
}

/// Launches a kernel with these parameters.
type MmaLaunch = unsafe fn(&Stream, LaunchConfig, AttentionParams, Attention<'_>) -> Result<()>;

macro_rules! mma_launches {
    ($($name:ident)*) => {
        /// In the order of their table.
        static MMA_LAUNCHES: [MmaLaunch; mma::instances::TABLE.len()] =
            [$(launch_mma_as::<mma::instances::$name>),*];
    };
}
attention::for_each_mma_kernel!(mma_launches);

/// Tiles of one length a block from which on blocks get the same work without a counter.
const EVEN: u32 = 4;

/// Whether blocks draw the numbers of tiles: these take different times, and so few of each length stand
/// behind each other that blocks which take every `blocks`-th one would not get the same.
pub(super) fn is_drawn(problem: &Problem, blocks: u32) -> bool {
    let differ = problem.mask != Mask::FULL && section(problem) < blocks.saturating_mul(EVEN);
    differ || problem.packed.is_some()
}

fn params(problem: &Problem, attention: &Attention<'_>) -> AttentionParams {
    let [matrix, row, head, _] = attention.out.shape.bounded().strides.map(|stride| stride as u64);
    AttentionParams {
        output_row: row,
        output_head: head,
        output_matrix: matrix,
        scale: attention.scale.unwrap_or(1.0 / (problem.head_size as f32).sqrt()),
        // Of results. Queries, keys and values come by maps.
        head_size: problem.value_size,
        ..list_params(problem)
    }
}

/// The parameters of a kernel that makes lists: it looks neither at scores nor at results.
pub(super) fn list_params(problem: &Problem) -> AttentionParams {
    let [query_rows, key_rows] = problem.packed.unwrap_or([problem.queries, problem.keys]);
    AttentionParams {
        batch: problem.batch,
        heads: problem.heads,
        group: problem.group(),
        queries: problem.queries,
        keys: problem.keys,
        head_size: problem.head_size,
        lse_rows: query_rows,
        key_rows,
        // Of the backward pass.
        padded_rows: 0,
        output_row: 0,
        output_head: 0,
        output_matrix: 0,
        band: problem.mask.band(),
        scale: 1.0,
        section: section(problem),
    }
}

/// Heads of queries, whole groups of them, whose keys and values stay in L2 together.
fn section(problem: &Problem) -> u32 {
    let Problem { batch, keys, heads, .. } = *problem;
    let row_bytes = u64::from(problem.row_elements()) * problem.dtype.size() as u64;
    let head_bytes = (u64::from(keys) * row_bytes).max(1);
    let kv_heads = (SECTION_BYTES / head_bytes).max(1);
    // All of them fit in 32 bits, as their tiles do.
    let all = u64::from(batch) * u64::from(heads);
    kv_heads.saturating_mul(problem.group().into()).min(all).max(1) as u32
}

/// The maps of queries, keys, values and results. Where there are no keys, the queries' stand in, which the
/// kernel does not read for that.
fn maps<'a>(entry: &Entry, operands: [Heads<'a>; 4]) -> Result<[TensorMap<'a>; 4]> {
    let [queries, keys, values, output] = operands;
    let map_queries = map(queries, CONSUMER_ROWS)?;
    let map_keys =
        |keys: Heads<'a>| if keys.shape.is_empty() { Ok(map_queries) } else { map(keys, entry.block[1]) };
    Ok([map_queries, map_keys(keys)?, map_keys(values)?, map(output, CONSUMER_ROWS)?])
}

/// A map of `[d, rows, heads, batch]` in boxes of 128 bytes of so many rows.
pub(super) fn map<'a>(operand: Heads<'a>, rows: u32) -> Result<TensorMap<'a>> {
    // The copy engine moves their bits.
    let tiling = tiling(operand.shape, operand.dtype.size(), rows);
    match operand.dtype.size() {
        1 => TensorMap::new(operand.data, &tiling),
        _ => TensorMap::new(operand.data.cast::<u16>(), &tiling),
    }
}

fn tiling(shape: Shape, element_bytes: usize, rows: u32) -> Tiling<4> {
    let Shape { sides: [batch, all_rows, heads, size], strides, .. } = shape.bounded();
    let [matrix, row, head, _] = strides.map(|stride| (stride * element_bytes) as u64);
    let columns = if element_bytes == 1 { fp8::config::BOX_COLUMNS } else { BOX_COLUMNS };
    Tiling::new([size, all_rows, heads, batch], [columns, rows, 1, 1])
        .stride(1, row)
        .stride(2, head)
        .stride(3, matrix)
        .swizzle(Swizzle::B128)
        .l2_promotion(L2Promotion::B128)
}

#[cfg(test)]
mod tests {
    use super::section;
    use crate::ops::attention::{Mask, Problem};
    use crate::tensor::DType;

    #[test]
    fn sections_are_groups_whose_keys_fit() {
        let problem = Problem {
            dtype: DType::BF16,
            batch: 4,
            queries: 100,
            keys: 4096,
            heads: 32,
            kv_heads: 8,
            head_size: 128,
            value_size: 128,
            mask: Mask::FULL,
            packed: None,
            log_sum_exp: false,
        };
        // 2 MiB a head of keys: 16 of these, of 4 heads each.
        assert_eq!(section(&problem), 64);
        assert_eq!(section(&Problem { keys: 1 << 20, ..problem }), 4);
        assert_eq!(section(&Problem { keys: 0, ..problem }), 128);
        assert_eq!(section(&Problem { batch: 1, ..problem }), 32);
        // 3 MiB: 10 of these.
        assert_eq!(section(&Problem { head_size: 256, ..problem }), 40);
    }
}
