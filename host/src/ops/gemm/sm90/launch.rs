//! From a checked product to a launch: tensor maps, the kernel's arguments, the grid.

use cuda_std::kernel::Kernel as KernelType;
use gemm::groups::GroupParams;
use gemm::sm90::direct::{DirectParams, OperandLines};
use gemm::sm90::epilogue::{OutputFlag, OutputFormat, OutputParams, OutputType};
use gemm::sm90::instances::{Entry, GemmArgumentsArgs, Kind, TABLE};
use gemm::sm90::tile_scheduler::GemmShape;

use crate::error::Result;
use crate::launch::{self as kernel, LaunchConfig};
use crate::memory::Within;
use crate::memory::tensor_map::TensorMap;
use crate::stream::Stream;
use crate::tensor::DType;

use super::candidates::{
    Source, View, box_rows, box_widths, is_by_column, is_copied, is_plain, raster_group, source,
};
use super::clusters::{PAIR, blocks, clusters, resident};
use super::maps::{lines, operand_map, paired, result_maps};
use super::{Groups, Read, Scales};
use crate::ops::gemm::bands;
use crate::ops::gemm::check::invalid;
use crate::ops::gemm::config::{Band, Config, Kernel};
use crate::ops::gemm::epilogue::Epilogue;
use crate::ops::gemm::matmul::Matmul;
use crate::ops::gemm::matrix::{Matrix, ROW_ALIGNMENT};
use crate::ops::gemm::problem::{Operand, Order, Problem};
use crate::ops::gemm::select::DeviceCapabilities;
use crate::ops::gemm::split_k;

/// Queues the product by the kernel of the table that the configuration names.
pub(super) fn launch_matmul(
    stream: &Stream,
    problem: &Problem,
    config: &Config,
    product: Matmul<'_>,
) -> Result<()> {
    if config.split_k > 1 {
        return split_k::launch(stream, problem, config, product, |parts, of_parts| {
            launch_parts(stream, parts, config, of_parts, [parts.k, problem.batch])
        });
    }
    if let Band::Blocks(rows, columns) = config.band {
        return bands::each(product, problem, [rows, columns], |block, of_block| {
            launch_parts(stream, block, config, of_block, WHOLE)
        });
    }
    launch_parts(stream, problem, config, product, WHOLE)
}

/// Of a batch of products, not of their parts.
const WHOLE: [u32; 2] = [0, 1];

/// The same for a batch that is parts of products: from each part so far along k to the next one of its
/// product, and how many products there are; or [`WHOLE`].
pub(super) fn launch_parts(
    stream: &Stream,
    problem: &Problem,
    config: &Config,
    product: Matmul<'_>,
    [part_k, products]: [u32; 2],
) -> Result<()> {
    let index = if let Kernel::Sm90(index) = config.kernel { usize::from(index) } else { usize::MAX };
    let Some(entry) = TABLE.get(index) else {
        let wanted = "a kernel of the table".to_owned();
        return Err(invalid("the configuration", config.to_string(), wanted, "take one of `candidates`"));
    };
    let entry = &Entry { cluster: config.cluster, ..*entry };
    let Matmul { a, b, c, epilogue, .. } = product;
    let view = View::new(problem, config.swap);
    // [m, k] and [n, k].
    let (first, second) = if config.swap { (b.transposed(), a) } else { (a, b.transposed()) };
    let [_, width, _] = config.tile;
    let [rows_a, rows_b] = box_rows(entry, width, &view);
    let is_direct = entry.kind == Kind::Direct;
    let [map_a, map_b] = if is_direct {
        [TensorMap::unused(first.data), TensorMap::unused(second.data)]
    } else {
        let [width_a, width_b] = box_widths(entry, &view);
        [
            operand_map(first, !entry.trans_a, rows_a, width_a)?,
            operand_map(second, !entry.trans_b, rows_b, width_b)?,
        ]
    };
    let read = is_direct.then(|| as_they_lie(first, second));
    // The kernel writes C through `data` or through its map. The launch begins the write with `data`.
    let c_view = Matrix { data: c.data.view(), dtype: c.dtype, shape: c.shape };
    let [map_c, map_source] = result_maps(entry, problem, c_view, &epilogue, map_a)?;
    let (output, data) = (output(entry, problem, c_view), c.data.view().within());
    let transposed = problem.c.order == Order::Columns;
    let group = raster_group(entry, width, problem, &view);
    let whole = GemmShape::new([view.m, view.n, problem.k], problem.batch, group);
    let [across_m, across_n, _] = entry.cluster;
    let cluster = [across_m, across_n];
    let shape = GemmShape { part_k, products, box_m: rows_a, box_n: rows_b, tile_n: width, cluster, ..whole };
    let maps = [map_a, map_b, map_c, map_source];
    let of_cluster = blocks(entry);
    let launched = Launch { maps, shape, of_cluster, output, data, epilogue, transposed, groups: None, read };
    let device = DeviceCapabilities::of(stream.device());
    let blocks = clusters(entry, width, &view, problem.batch).min(resident(entry, &device)) * of_cluster;
    // SAFETY: the maps, or the operands, fit the kernel; strides and lengths are checked; C does not overlap
    // itself.
    unsafe { launch(stream, index, blocks, launched) }
}

/// The arguments of a launch.
pub(crate) struct Launch<'a> {
    /// Of A, B, C, and of what is added to C.
    pub maps: [TensorMap<'a>; 4],
    pub shape: GemmShape,
    /// Blocks of a cluster.
    pub of_cluster: u32,
    pub output: OutputParams,
    pub data: Within<'a, u8>,
    pub epilogue: Epilogue<'a>,
    /// Whether the kernel sees the transpose of C.
    pub transposed: bool,
    pub groups: Option<Groups<'a>>,
    /// Inputs of A's side and of B's that the kernel reads by itself.
    pub read: Option<Read<'a>>,
}

/// The operands `[m, k]` and `[n, k]` as a kernel of [`Kind::Direct`] takes them.
fn as_they_lie<'a>(a: Matrix<'a>, b: Matrix<'a>) -> Read<'a> {
    let lines = |matrix: Matrix<'_>| {
        let Operand { order, leading, batch_stride, alignment, .. } = matrix.operand();
        // Of a single line too: the kernel computes addresses behind it, which it does not read.
        let bytes = leading * DType::F32.size() as u64;
        let follow = 1 << (bytes | ROW_ALIGNMENT).trailing_zeros();
        let (along_k, alignment) = (order == Order::Rows, alignment.min(follow));
        OperandLines { leading, matrix: batch_stride, along_k, alignment }
    };
    // Of all parts: sides have been checked.
    let k = a.shape.columns as u32;
    Read::Operands([a.data.cast(), b.data.cast()], DirectParams { k, a: lines(a), b: lines(b) })
}

/// Queues the kernel at this place of the table, by so many blocks.
///
/// # Safety
/// As for the kernel, but for the launch's configuration.
pub(crate) unsafe fn launch(stream: &Stream, index: usize, blocks: u32, launched: Launch<'_>) -> Result<()> {
    let (entry, launch) = (&TABLE[index], LAUNCHES[index]);
    let config = LaunchConfig::new([blocks, 1, 1], [entry.threads, 1, 1])
        .with_shared(entry.shared)
        .cluster([launched.of_cluster, 1, 1])
        .overlapping_previous();
    // SAFETY: the caller's contract; the configuration is the entry's; the kernel waits for earlier launches.
    unsafe { launch(stream, config, launched) }
}

/// Parameters of all kernels of the table.
type Parameters = <gemm::sm90::instances::gemm_bf16_nt_128x256 as KernelType>::Params;

/// Launches a kernel.
///
/// # Safety
/// As for the kernel.
unsafe fn launch_as<K: KernelType<Params = Parameters>>(
    stream: &Stream,
    config: LaunchConfig,
    launched: Launch<'_>,
) -> Result<()> {
    let Launch { maps, shape, output, data, epilogue, transposed, groups, read, .. } = launched;
    let [a, b, c, source] = maps;
    let offsets = groups.map(|groups| groups.offsets.data.cast::<i32>());
    let groups = groups.map_or(GroupParams { count: 0, is_wide: false }, |Groups { offsets, count }| {
        GroupParams { count, is_wide: offsets.dtype == DType::I64 }
    });
    let ([read_a, read_b], scales_pitch, direct) = match read {
        None => ([None; 2], 0, DirectParams::NONE),
        Some(Read::Scales(Scales { a, b, a_pitch })) => ([Some(a), Some(b)], a_pitch, DirectParams::NONE),
        Some(Read::Operands(operands, direct)) => (operands.map(Some), 0, direct),
    };
    let epilogue = epilogue.args(transposed);
    let arguments = GemmArgumentsArgs { shape, output, epilogue, groups, scales_pitch, direct }.pass();
    let arguments = (a, b, c, source, arguments, data, offsets, read_a, read_b);
    let config = at_once::<K>(stream, config)?;
    // SAFETY: the caller's contract; any number of clusters takes all tiles.
    unsafe { kernel::launch::<K>(stream, config, arguments) }
}

/// With no more clusters than run at once: others would begin when those have taken their share of the tiles.
fn at_once<K: KernelType>(stream: &Stream, config: LaunchConfig) -> Result<LaunchConfig> {
    let [cluster, ..] = config.cluster;
    if cluster <= PAIR {
        return Ok(config);
    }
    let most = kernel::resident_clusters::<K>(stream, config)?.max(1) * cluster;
    Ok(LaunchConfig { grid: [config.grid[0].min(most), 1, 1], ..config })
}

macro_rules! launches {
    ($($name:ident)*) => {
        /// In the order of the table.
        static LAUNCHES: [unsafe fn(&Stream, LaunchConfig, Launch<'_>) -> Result<()>; TABLE.len()] =
            [$(launch_as::<gemm::sm90::instances::$name>),*];
    };
}
gemm::for_each_sm90_kernel!(launches);

/// How the kernel stores C.
pub(crate) fn output(entry: &Entry, problem: &Problem, c: Matrix<'_>) -> OutputParams {
    let length = lines(problem, c.shape).columns;
    let residual = problem.epilogue.residual;
    let format = OutputFormat::new(output_type(problem.c.dtype))
        .with(OutputFlag::Paired, paired(&problem.c, length))
        .with(OutputFlag::ResidualPaired, residual.is_some_and(|operand| paired(&operand, length)))
        .with(OutputFlag::ByTma, is_copied(entry, problem))
        .with(OutputFlag::Plain, is_plain(entry, problem))
        .with(OutputFlag::SourceByTma, source(problem) != Source::Nothing)
        .with(OutputFlag::Halved, problem.epilogue.activation.columns() == 2)
        .with(OutputFlag::Identity, problem.epilogue.is_plain())
        .with(OutputFlag::ByRows, by_rows(entry, problem, length))
        .with(OutputFlag::ByColumn, is_by_column(problem));
    OutputParams { row: problem.c.leading, matrix: problem.c.batch_stride, format }
}

/// Do rows of so many elements leave between boundaries of 16 bytes? Where the copy engine stores none, and
/// their pairs are no more than half of the bytes of a row that lie in one sector of the cache.
fn by_rows(entry: &Entry, problem: &Problem, length: usize) -> bool {
    let Problem { c, epilogue, .. } = problem;
    let is_scattered = c.dtype.size() == 2 || c.dtype.size() == 4 && !paired(c, length);
    is_scattered && !is_copied(entry, problem) && epilogue.activation.columns() == 1
}

/// The kernel's word for the element type of C.
pub(super) fn output_type(dtype: DType) -> OutputType {
    match dtype {
        DType::F32 => OutputType::F32,
        DType::F8E4M3 => OutputType::E4m3,
        DType::F8E5M2 => OutputType::E5m2,
        _ => OutputType::Element16,
    }
}
