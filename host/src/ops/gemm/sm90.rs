//! Hopper's tensor cores: [`gemm::sm90`].
//!
//! The kernels read both operands through tensor maps, in one of two orders each; an operand in another order, or whose rows do not begin at
//! 16-byte boundaries, is copied first. Those whose rows begin at such a boundary but not at a cache line take twice the requests: where
//! that is estimated to cost more than a copy does, they are copied too.
//!
//! A product can also be computed as its transpose, `C^T = B^T A^T`: by kernels that store their result transposed, for few rows of C, and by
//! the others for a C whose columns lie contiguous.

use cuda_std::kernel::Kernel as KernelType;
use cuda_std::wgmma::ElementType;
use gemm::epilogue::Activation;
use gemm::sm90::entries::{Arguments, Entry, TABLE};
use gemm::sm90::epilogue::Terms;
use gemm::sm90::problem::Problem as Shape90;
use gemm::sm90::store::Number;

use crate::device::Arch;
use crate::error::Result;
use crate::launch::{LaunchConfig, launch};
use crate::memory::tensor_map::{L2Promotion, Swizzle, TensorMap, Tiling};
use crate::memory::{DeviceView, Within};
use crate::stream::Stream;
use crate::tensor::DType;

use super::config::{Config, Kernel, Offer, Refusal, Repack};
use super::cost;
use super::matmul::invalid;
use super::matrix::{Matrix, ROW_ALIGNMENT, Shape};
use super::parts;
use super::problem::{Operand, Order, Precision, Problem};
use super::repack::LINE_BYTES;
use super::run::{Family, Operands};
use super::select::{Facts, Sink};

pub(super) const FAMILY: Family =
    Family { offers, has: |kernel| matches!(kernel, Kernel::Sm90(_)), launch: launch_entry };

pub(super) const ARCH: Arch = Arch { major: 9, minor: 0 };
/// Bytes of k that the kernels load at a time, and the side of the boxes of operands that are not contiguous along k.
pub(super) const K_BYTES: u32 = 128;
pub(super) const BOX: u32 = 64;

/// Multiprocessors' worth of tiles that run at a time, for the height of a band.
const TILES_AT_ONCE: f64 = 132.0;

/// The name of a kernel.
pub(super) fn name(index: u8) -> &'static str {
    TABLE.get(usize::from(index)).map_or("gemm_sm90", |entry| entry.name)
}

/// The product as a kernel computes it: as it is, or transposed.
#[derive(Clone, Copy)]
pub(super) struct View {
    pub m: u32,
    pub n: u32,
    /// `[m, k]` and `[k, n]`.
    pub a: Operand,
    pub b: Operand,
}

fn flip(operand: Operand) -> Operand {
    let order = match operand.order {
        Order::Rows => Order::Columns,
        Order::Columns => Order::Rows,
        Order::Strided => Order::Strided,
    };
    Operand { order, ..operand }
}

impl View {
    fn new(problem: &Problem, swap: bool) -> Self {
        let Problem { m, n, a, b, .. } = *problem;
        if swap { View { m: n, n: m, a: flip(b), b: flip(a) } } else { View { m, n, a, b } }
    }
}

/// Why no kernel here takes the problem, if none does.
fn refusal(problem: &Problem, facts: &Facts) -> Option<&'static str> {
    let Problem { k, a, b, c, finish, batch, .. } = problem;
    let needs_rows = finish.bias.is_some() || finish.activation == Activation::SwiGlu;
    let shared = |operand: &Operand| *batch > 1 && operand.batch_stride == 0;
    if facts.arch != ARCH {
        Some("needs compute capability 9.0, no more and no less")
    } else if a.dtype == DType::F32 && b.dtype == DType::F32 && problem.precision == Precision::F32 {
        Some("multiplies f32 as tf32, which has not been allowed")
    } else if *k == 0 {
        Some("there is nothing to multiply")
    } else if c.order == Order::Strided {
        Some("wants the elements of C's rows or columns side by side")
    } else if c.order == Order::Columns && needs_rows {
        Some("adds a bias, and pairs columns, along contiguous rows of C only")
    } else if finish.residual.is_some_and(|residual| residual.order != c.order) {
        Some("wants the residual in C's order")
    } else if finish.accumulate && c.dtype.size() == 1 {
        Some("adds no old C of 8 bits")
    } else if shared(a) || shared(b) {
        Some("wants an operand of its own for each product of a batch")
    } else {
        None
    }
}

fn offers(problem: &Problem, facts: &Facts, sink: &mut dyn Sink) {
    if let Some(why) = refusal(problem, facts) {
        return sink.refuse(Refusal { kernel: "gemm::sm90", why });
    }
    let mut none = true;
    for (index, entry) in TABLE.iter().enumerate() {
        // A kernel that stores transposed serves the other way round.
        let swap = entry.transposed != (problem.c.order == Order::Columns);
        let view = View::new(problem, swap);
        if !takes(entry, &view, problem) || entry.shared > facts.shared_bytes {
            continue;
        }
        none = false;
        if let Some(offer) = in_parts(index as u8, entry, problem, swap, facts) {
            sink.offer(offer);
        }
        let mut last = None;
        for copy_straddling in [false, true] {
            let copies = copies(entry, &view, copy_straddling);
            if last.replace(copies) == Some(copies) {
                continue;
            }
            sink.offer(offer(index as u8, entry, &view, problem, swap, copies, facts));
        }
    }
    if none {
        let why = "has no kernel for these element types (16-bit and 8-bit alike or mixed, tf32; a bias and a residual in f32 or the 16-bit type)";
        sink.refuse(Refusal { kernel: "gemm::sm90", why });
    }
}

/// With k in as many parts as are estimated to be the fastest, where that is more than one.
fn in_parts(index: u8, entry: &Entry, problem: &Problem, swap: bool, facts: &Facts) -> Option<Offer> {
    const AS_IT_LIES: [Repack; 2] = [Repack::No; 2];
    let view = View::new(problem, swap);
    // Parts in shares were slower than either alone.
    if copies(entry, &view, false) != AS_IT_LIES || entry.cluster[2] > 1 {
        return None;
    }
    let whole = offer(index, entry, &view, problem, swap, AS_IT_LIES, facts);
    let split = |count: u32| {
        let parts = parts::cut(problem, count)?;
        let Offer { config, estimate_us, .. } =
            offer(index, entry, &View::new(&parts, swap), &parts, swap, AS_IT_LIES, facts);
        Some(Offer {
            config: Config { split_k: count, ..config },
            estimate_us: estimate_us + parts::estimate_us(problem, count),
            why: "wgmma fed by TMA; k is cut into parts, since the tiles alone leave multiprocessors idle",
        })
    };
    let best =
        parts::COUNTS.into_iter().filter_map(split).min_by(|a, b| a.estimate_us.total_cmp(&b.estimate_us))?;
    (best.estimate_us < whole.estimate_us).then_some(best)
}

pub(super) fn element(dtype: DType) -> Option<ElementType> {
    match dtype {
        DType::F32 => Some(ElementType::Tf32),
        DType::F16 => Some(ElementType::F16),
        DType::BF16 => Some(ElementType::Bf16),
        DType::F8E4M3 => Some(ElementType::E4m3),
        DType::F8E5M2 => Some(ElementType::E5m2),
        _ => None,
    }
}

/// Can the copy engine store C: in whole units of 16 bytes, and not f32, nor 8 bits of SwiGLU?
pub(super) fn can_copy(problem: &Problem) -> bool {
    let Problem { m, n, c, finish, .. } = problem;
    let columns = finish.activation.columns();
    let length = if c.order == Order::Rows { *n / columns } else { *m };
    let size = c.dtype.size();
    in_units(c, length as usize) && size <= 2 && size >= columns as usize
}

/// Do lines of so many elements consist of whole units of 16 bytes, where the copy engine can store them?
pub(super) fn in_units(operand: &Operand, length: usize) -> bool {
    u64::from(operand.alignment) == ROW_ALIGNMENT
        && (length as u64 * operand.dtype.size() as u64).is_multiple_of(ROW_ALIGNMENT)
}

/// Does C take the shortest way: copied, in 16 bits, and nothing but the product?
pub(super) fn is_plain(problem: &Problem) -> bool {
    problem.finish.is_plain() && can_copy(problem) && problem.c.dtype.size() == 2
}

/// What the copy engine can bring to where it stores C from, as it stores it: of what the epilogue adds to each element one, and that of C's type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fetched {
    Nothing,
    OldC,
    Residual,
}

/// What it brings for the problem.
pub(super) fn fetched(problem: &Problem) -> Fetched {
    let Problem { c, batch, finish, .. } = problem;
    if !can_copy(problem) || c.dtype.size() != 2 || finish.activation.columns() != 1 {
        return Fetched::Nothing;
    }
    match finish.residual {
        Some(residual) => {
            let Operand { dtype, order, leading, batch_stride, alignment } = residual;
            let is_alike = dtype == c.dtype && order == c.order && u64::from(alignment) == ROW_ALIGNMENT;
            if is_alike && leading > 0 && (*batch == 1 || batch_stride > 0) {
                Fetched::Residual
            } else {
                Fetched::Nothing
            }
        }
        None if finish.accumulate => Fetched::OldC,
        None => Fetched::Nothing,
    }
}

/// The map of what it brings, which lies like C: what the kernel takes beside C's map, with whether there is anything.
pub(super) fn fetched_map<'a>(
    problem: &Problem,
    map_c: TensorMap<'a>,
    residual: Option<Matrix<'a>>,
    box_dims: [u32; 2],
) -> Result<(TensorMap<'a>, bool)> {
    match (fetched(problem), residual) {
        (Fetched::Residual, Some(residual)) => {
            let by_rows = problem.c.order == Order::Rows;
            let shape = if by_rows { residual.shape } else { residual.shape.transposed() };
            Ok((lines_map(residual.data, residual.dtype, shape, box_dims)?, true))
        }
        (Fetched::OldC, _) => Ok((map_c, true)),
        _ => Ok((map_c, false)),
    }
}

/// The map of a batch of matrices with contiguous rows.
pub(super) fn lines_map<'a>(
    data: DeviceView<'a, u8>,
    dtype: DType,
    shape: Shape,
    box_dims: [u32; 2],
) -> Result<TensorMap<'a>> {
    let Shape { rows, columns, row, batch, matrix, .. } = shape;
    map(data, dtype, (columns, rows, row), (batch, matrix), box_dims)
}

/// The kernel's word for the element type of C.
pub(super) fn number(dtype: DType) -> Number {
    match dtype {
        DType::F32 => Number::F32,
        DType::F8E4M3 => Number::E4m3,
        DType::F8E5M2 => Number::E5m2,
        _ => Number::Half,
    }
}

/// Are the types the kernel's?
fn takes(entry: &Entry, view: &View, problem: &Problem) -> bool {
    let Problem { c, finish, .. } = problem;
    let is_half = |dtype: DType| element(dtype) == Some(entry.half);
    // What is read beside the product.
    let mut read = finish.bias.into_iter().chain(finish.residual.map(|residual| residual.dtype));
    element(view.a.dtype) == Some(entry.a)
        && element(view.b.dtype) == Some(entry.b)
        && (number(c.dtype) != Number::Half || is_half(c.dtype))
        && read.all(|dtype| dtype == DType::F32 || is_half(dtype))
}

/// The copies that a kernel needs of its operands.
fn copies(entry: &Entry, view: &View, straddling_too: bool) -> [Repack; 2] {
    [
        copy(&view.a, if entry.trans_a { Order::Columns } else { Order::Rows }, straddling_too),
        copy(&view.b, if entry.trans_b { Order::Rows } else { Order::Columns }, straddling_too),
    ]
}

/// The copy that brings an operand into the order, and to aligned rows.
pub(super) fn copy(operand: &Operand, wanted: Order, straddling_too: bool) -> Repack {
    let is_addressable = operand.order == wanted && u64::from(operand.alignment) == ROW_ALIGNMENT;
    if is_addressable && !(straddling_too && straddles(operand)) {
        return Repack::No;
    }
    if wanted == Order::Rows { Repack::Rows } else { Repack::Columns }
}

/// Do boxes lie across cache lines?
pub(super) fn straddles(operand: &Operand) -> bool {
    !(operand.leading * operand.dtype.size() as u64).is_multiple_of(LINE_BYTES as u64)
}

fn offer(
    index: u8,
    entry: &Entry,
    view: &View,
    problem: &Problem,
    swap: bool,
    [to_a, to_b]: [Repack; 2],
    facts: &Facts,
) -> Offer {
    let estimate_us = cost::estimate_us(entry, view, problem, [to_a, to_b], facts);
    let config = Config {
        cluster: entry.cluster,
        swap,
        // In the order of A and B, not of the kernel's operands.
        repack: if swap { [flip_copy(to_b), flip_copy(to_a)] } else { [to_a, to_b] },
        ..Config::new(Kernel::Sm90(index), entry.block, entry.stages)
    };
    Offer { config, estimate_us, why: why(entry, swap, [to_a, to_b]) }
}

fn flip_copy(to: Repack) -> Repack {
    match to {
        Repack::No => Repack::No,
        Repack::Rows => Repack::Columns,
        Repack::Columns => Repack::Rows,
    }
}

fn why(entry: &Entry, swap: bool, copies: [Repack; 2]) -> &'static str {
    if copies != [Repack::No; 2] {
        "wgmma fed by TMA; operands that it cannot address, or not at full speed, are copied to aligned rows first"
    } else if swap {
        "wgmma fed by TMA, computing the transpose: C's columns fill the tile's rows"
    } else if entry.cluster[2] > 1 {
        "wgmma fed by TMA; two blocks share k out, since the tiles alone leave multiprocessors idle"
    } else if entry.ping_pong {
        "wgmma fed by TMA; one warpgroup stores while the other multiplies"
    } else {
        "wgmma fed by TMA; the fewest and fullest waves of tiles"
    }
}

/// Clusters' worth of tiles.
pub(super) fn clusters(entry: &Entry, view: &View, batch: u32) -> u32 {
    let [block_m, block_n, _] = entry.block;
    let [across_m, across_n, _] = entry.cluster;
    let down = u64::from(view.m.div_ceil(block_m * across_m));
    let tiles = down * u64::from(view.n.div_ceil(block_n * across_n)) * u64::from(batch);
    // Kernels count tiles in 32 bits; what does not fit in them does not fit in memory either.
    u32::try_from(tiles).unwrap_or(u32::MAX).max(1)
}

/// Clusters that run at once: their blocks fill a multiprocessor each.
pub(super) fn resident(entry: &Entry, facts: &Facts) -> u32 {
    (facts.sm_count / blocks(entry)).max(1)
}

/// Blocks of a cluster.
fn blocks(entry: &Entry) -> u32 {
    entry.cluster.iter().product()
}

/// Rows of clusters' tiles of a band: those under way at a time then make a square.
fn band(entry: &Entry) -> u32 {
    let [block_m, block_n, _] = entry.block;
    let [across_m, across_n, _] = entry.cluster;
    let ratio = f64::from(block_n * across_n) / f64::from(block_m * across_m);
    let at_once = TILES_AT_ONCE / f64::from(blocks(entry));
    ((at_once * ratio).sqrt().round() as u32).max(1)
}

/// What all kernels of the family take.
type Parameters = <gemm::sm90::entries::gemm_bf16_nt_128x256 as KernelType>::Params;

/// What they are launched with: maps of A, B, C and of what is added to C, scalars; C, bias, residual, scales of A, B and C, amax.
struct Launched<'a> {
    a: TensorMap<'a>,
    b: TensorMap<'a>,
    c: TensorMap<'a>,
    added: TensorMap<'a>,
    arguments: Arguments,
    data: Within<'a, u8>,
    bias: Option<DeviceView<'a, u8>>,
    residual: Option<DeviceView<'a, u8>>,
    scales: [Option<DeviceView<'a, f32>>; 3],
    amax: Option<crate::memory::DeviceViewMut<'a, u32>>,
}

/// Launches a kernel.
///
/// # Safety
/// As for the kernel.
unsafe fn launch_as<K: KernelType<Params = Parameters>>(
    stream: &Stream,
    config: LaunchConfig,
    launched: Launched<'_>,
) -> Result<()> {
    let Launched {
        a,
        b,
        c,
        added,
        arguments,
        data,
        bias,
        residual,
        scales: [scale_a, scale_b, scale_c],
        amax,
    } = launched;
    let arguments = (a, b, c, added, arguments, data, bias, residual, scale_a, scale_b, scale_c, amax);
    // SAFETY: the caller's contract.
    unsafe { launch::<K>(stream, config, arguments) }
}

macro_rules! launches {
    ($($name:ident)*) => {
        /// In the order of the table.
        static LAUNCHES: &[unsafe fn(&Stream, LaunchConfig, Launched<'_>) -> Result<()>] =
            &[$(launch_as::<gemm::sm90::entries::$name>),*];
    };
}
gemm::for_each_sm90_kernel!(launches);

/// A map of a batch of matrices: lines of contiguous elements, in boxes of `box_dims` elements and lines.
pub(super) fn map<'a>(
    data: DeviceView<'a, u8>,
    dtype: DType,
    (length, lines, leading): (usize, usize, usize),
    (batch, matrix): (usize, usize),
    box_dims: [u32; 2],
) -> Result<TensorMap<'a>> {
    let bytes = dtype.size() as u64;
    let line = leading as u64 * bytes;
    let matrix = if batch > 1 { matrix as u64 * bytes } else { line * lines as u64 };
    let swizzle = match box_dims[0] as u64 * bytes {
        128 => Swizzle::B128,
        64 => Swizzle::B64,
        32 => Swizzle::B32,
        _ => Swizzle::None,
    };
    let tiling = Tiling::new([length, lines, batch], [box_dims[0], box_dims[1], 1])
        .stride(1, line.next_multiple_of(ROW_ALIGNMENT))
        .stride(2, matrix.next_multiple_of(ROW_ALIGNMENT))
        .swizzle(swizzle)
        // Whole lines: more would fetch, for rows that do not begin at a line, what nobody reads.
        .l2_promotion(L2Promotion::B128);
    match bytes {
        1 => TensorMap::new(data, &tiling),
        2 => TensorMap::new(data.cast::<u16>(), &tiling),
        _ => TensorMap::new(data.cast::<u32>(), &tiling),
    }
}

/// The map of an operand `[m, k]` (or `[n, k]`), contiguous along k, in boxes of so many rows, or along m.
pub(super) fn operand_map<'a>(matrix: Matrix<'a>, along_k: bool, rows: u32) -> Result<TensorMap<'a>> {
    let Shape { rows: m, columns: k, row, column, batch, matrix: stride, .. } = matrix.shape;
    let box_dims = if along_k { [K_BYTES / matrix.dtype.size() as u32, rows] } else { [BOX, BOX] };
    let lines = if along_k { (k, m, row) } else { (m, k, column) };
    map(matrix.data, matrix.dtype, lines, (batch, stride), box_dims)
}

/// Do lines of so many elements consist of pairs that each begin at a multiple of their size?
pub(super) fn paired(operand: &Operand, length: usize) -> bool {
    let pair = 2 * operand.dtype.size();
    length.is_multiple_of(2) && (operand.alignment as usize).is_multiple_of(pair)
}

fn launch_entry(stream: &Stream, problem: &Problem, config: &Config, operands: Operands<'_>) -> Result<()> {
    if config.split_k > 1 {
        return parts::launch_parts(stream, problem, config, operands, launch_entry);
    }
    let index = if let Kernel::Sm90(index) = config.kernel { usize::from(index) } else { usize::MAX };
    let (Some(entry), Some(launch)) = (TABLE.get(index), LAUNCHES.get(index)) else {
        let wanted = "a kernel of the table".to_owned();
        return Err(invalid("the configuration", config.to_string(), wanted, "take one of `candidates`"));
    };
    let Operands { a, b, c, alpha, beta, activation, bias, residual, scale_a, scale_b, scale_c, amax } =
        operands;
    let view = View::new(problem, config.swap);
    // [m, k] and [n, k].
    let (first, second) = if config.swap { (b.transposed(), a) } else { (a, b.transposed()) };
    let [across_m, across_n, _] = entry.cluster;
    let map_a = operand_map(first, !entry.trans_a, entry.block[0] / across_n)?;
    let map_b = operand_map(second, !entry.trans_b, entry.block[1] / across_m)?;
    // The lines of C as they lie.
    let c_shape = if problem.c.order == Order::Rows { c.shape } else { c.shape.transposed() };
    let copied = can_copy(problem);
    // The kernel writes C through `data` or through this map. The launch begins the write with `data`.
    let halves = activation.columns();
    let store_box = if entry.transposed {
        [BOX / halves, entry.store_columns]
    } else {
        [entry.store_columns / halves, BOX]
    };
    let map_c = if copied { lines_map(c.data.view(), c.dtype, c_shape, store_box)? } else { map_a };
    let (map_added, fetched) = fetched_map(problem, map_c, residual, store_box)?;
    let stride = |operand: &Operand| (operand.leading, operand.batch_stride);
    let (row, matrix) = stride(&problem.c);
    let (residual_row, residual_matrix) = problem.finish.residual.as_ref().map_or((0, 0), stride);
    let band = band(entry);
    let arguments = Arguments {
        problem: Shape90 { m: view.m, n: view.n, k: problem.k, batch: problem.batch, band },
        terms: Terms { alpha, beta, activation: activation as u32 },
        row,
        matrix,
        residual_row,
        residual_matrix,
        result: number(problem.c.dtype),
        bias_f32: bias.is_some_and(|bias| bias.dtype == DType::F32),
        residual_f32: residual.is_some_and(|residual| residual.dtype == DType::F32),
        paired: paired(&problem.c, c_shape.columns),
        residual_paired: problem.finish.residual.is_some_and(|operand| paired(&operand, c_shape.columns)),
        copied,
        plain: is_plain(problem),
        fetched,
    };
    let launched = Launched {
        a: map_a,
        b: map_b,
        c: map_c,
        added: map_added,
        arguments,
        data: c.data.view().within(),
        bias: bias.map(|bias| bias.data),
        residual: residual.map(|residual| residual.data),
        scales: [scale_a, scale_b, scale_c],
        amax: amax.map(|amax| amax.bytes().cast()),
    };
    let facts = Facts::of(stream.device());
    let clusters = clusters(entry, &view, problem.batch).min(resident(entry, &facts));
    let blocks = blocks(entry);
    let launch_config = LaunchConfig::new([clusters * blocks, 1, 1], [entry.threads, 1, 1])
        .with_shared(entry.shared)
        .cluster([blocks, 1, 1])
        .overlapping_previous();
    // SAFETY: the maps are as the table says for the kernel; strides and lengths have been checked with the problem; C does not overlap
    // itself; grid, block, cluster and shared memory are the entry's; the kernel waits for earlier launches before it touches memory.
    unsafe { launch(stream, launch_config, launched) }
}

#[cfg(test)]
mod tests {
    use super::{Fetched, fetched};
    use crate::ops::gemm::Finish;
    use crate::ops::gemm::problem::{Operand, Order, Precision, Problem};
    use crate::tensor::DType;
    use gemm::epilogue::Activation;

    #[test]
    fn what_lies_as_c_does_is_fetched() {
        let c = Operand {
            dtype: DType::BF16,
            order: Order::Rows,
            leading: 64,
            batch_stride: 4096,
            alignment: 16,
        };
        let of = |c: Operand, finish: Finish| {
            let precision = Precision::F32;
            fetched(&Problem { m: 64, n: 64, k: 64, batch: 2, a: c, b: c, c, precision, finish })
        };
        let with = |residual: Operand| Finish { residual: Some(residual), ..Finish::default() };
        let old = Finish { accumulate: true, ..Finish::default() };
        assert_eq!(of(c, Finish::default()), Fetched::Nothing);
        assert_eq!(of(c, old), Fetched::OldC);
        assert_eq!(of(c, with(c)), Fetched::Residual);
        assert_eq!(of(c, Finish { accumulate: true, ..with(c) }), Fetched::Residual);
        assert_eq!(of(c, with(Operand { leading: 72, batch_stride: 8192, ..c })), Fetched::Residual);
        for residual in [
            Operand { dtype: DType::F32, ..c },
            Operand { alignment: 8, ..c },
            Operand { leading: 0, ..c },
            Operand { batch_stride: 0, ..c },
        ] {
            assert_eq!(of(c, with(residual)), Fetched::Nothing, "{residual:?}");
        }
        assert_eq!(of(Operand { alignment: 8, ..c }, old), Fetched::Nothing);
        assert_eq!(of(Operand { dtype: DType::F32, ..c }, old), Fetched::Nothing);
        let halved = Finish { activation: Activation::SwiGlu, ..with(c) };
        assert_eq!(of(c, halved), Fetched::Nothing);
    }
}
