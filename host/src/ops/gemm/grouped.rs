//! Products of groups of rows: [`gemm::groups`].

use bytemuck::Pod;
use cuda_std::kernel::Kernel as KernelType;
use gemm::any::THREADS;
use gemm::epilogue::Activation;
use gemm::grouped::{gemm_grouped_any, tiles};
use gemm::sm90::entries::{Arguments, Entry};
use gemm::sm90::epilogue::Terms;
use gemm::sm90::grouped::TABLE;
use gemm::sm90::problem::Problem as Shape90;

#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::launch::{LaunchConfig, launch};
use crate::memory::tensor_map::TensorMap;
use crate::memory::{DeviceView, DeviceViewMut, Within, same_length};
use crate::stream::Stream;
use crate::tensor::{DType, Element};

use super::OPERATION;
use super::any;
use super::config::Repack;
use super::matmul::{Matmul, Vector, invalid};
use super::matrix::{Matrix, MatrixMut};
use super::problem::{Order, Problem, side};
use super::repack::{self, Packed};
use super::run::Operands;
use super::select::Facts;
use super::sm90::{
    ARCH, BOX, can_copy, copy, element, fetched_map, is_plain, lines_map, number, operand_map, paired,
};

/// `C[rows of g] = epilogue(A[rows of g] B[g])` for groups of rows of any sizes, none too, as the experts of a mixture take their tokens.
///
/// The rows of group `g` are `offsets[g]..offsets[g + 1]`, numbers on the device that the host does not wait for: they may come from a kernel that
/// has been queued and not run. Rows of C that belong to no group stay as they are. Offsets that do not ascend, or lie outside of `0..=m`, make
/// results meaningless and do no harm otherwise: each counts as no less than the one before it, and no more than m.
///
/// bf16, f16 and e4m3 go to Hopper's tensor cores, after copies of operands that TMA cannot address; all else, on any device, to a kernel that takes
/// everything, slowly.
///
/// ```no_run
/// use half::bf16;
/// use ironwarp::DeviceBuffer;
/// use ironwarp::ops::gemm::{GroupedMatmul, Matrix, MatrixMut};
/// # fn main() -> ironwarp::Result<()> {
/// # let device = ironwarp::Device::open(0)?;
/// # let stream = device.stream()?;
/// let (experts, tokens, inputs, outputs) = (8, 4096, 1024, 2048);
/// let x = DeviceBuffer::<bf16>::zeroed(&stream, tokens * inputs)?;
/// let weights = DeviceBuffer::<bf16>::zeroed(&stream, experts * outputs * inputs)?;
/// let offsets = DeviceBuffer::from_slice(&stream, &[0, 100, 100, 700, 1500, 1501, 3000, 4000, 4096])?;
/// let mut y = DeviceBuffer::<bf16>::zeroed(&stream, tokens * outputs)?;
/// // y = x weight^T, with the weight of each token's expert
/// GroupedMatmul::new::<i32>(
///     Matrix::new(&x, tokens, inputs),
///     Matrix::new(&weights, outputs, inputs).batch(experts).transposed(),
///     &offsets,
///     MatrixMut::new(&mut y, tokens, outputs),
/// )
/// .run(&stream)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a product is computed by `run`"]
pub struct GroupedMatmul<'a> {
    product: Matmul<'a>,
    offsets: Vector<'a>,
}

impl<'a> GroupedMatmul<'a> {
    /// `C = A B` for `a: [m, k]`, `b: [groups, k, n]`, a batch, `groups + 1` offsets, i32 or i64, and `c: [m, n]`. Sums are f32.
    pub fn new<T: Element + Pod>(
        a: Matrix<'a>,
        b: Matrix<'a>,
        offsets: impl Into<DeviceView<'a, T>>,
        c: MatrixMut<'a>,
    ) -> Self {
        let offsets = Vector { data: offsets.into().bytes(), dtype: T::DTYPE };
        GroupedMatmul { product: Matmul::new(a, b, c), offsets }
    }

    /// As [`Matmul::alpha`].
    pub fn alpha(self, alpha: f32) -> Self {
        GroupedMatmul { product: self.product.alpha(alpha), ..self }
    }

    /// As [`Matmul::beta`].
    pub fn beta(self, beta: f32) -> Self {
        GroupedMatmul { product: self.product.beta(beta), ..self }
    }

    /// As [`Matmul::activation`].
    pub fn activation(self, activation: Activation) -> Self {
        GroupedMatmul { product: self.product.activation(activation), ..self }
    }

    /// `[groups, n]`, dense: vector `g` is added to the rows of group `g`.
    pub fn bias<T: Element + Pod>(self, bias: impl Into<DeviceView<'a, T>>) -> Self {
        GroupedMatmul { product: self.product.bias(bias), ..self }
    }

    /// As [`Matmul::residual`].
    pub fn residual(self, residual: Matrix<'a>) -> Self {
        GroupedMatmul { product: self.product.residual(residual), ..self }
    }

    /// Factors on the device, one for each group, as 8-bit operands have.
    pub fn scales(self, a: impl Into<DeviceView<'a, f32>>, b: impl Into<DeviceView<'a, f32>>) -> Self {
        GroupedMatmul { product: self.product.scales(a, b), ..self }
    }

    /// As [`Matmul::amax`], over all groups.
    pub fn amax(self, amax: impl Into<DeviceViewMut<'a, f32>>) -> Self {
        GroupedMatmul { product: self.product.amax(amax), ..self }
    }

    /// Queues the product on `stream`.
    ///
    /// # Errors
    /// As [`Matmul::run`], and [`Error::InvalidArgument`] when the offsets are not i32 or i64, [`Error::Length`] when they are not one more
    /// than the matrices of B.
    pub fn run(self, stream: &Stream) -> Result<()> {
        let problem = self.checked(stream)?;
        let ways = ways(&problem, self.product.b.shape.batch, &Facts::of(stream.device()));
        self.run_by(stream, &problem, ways[0])
    }

    /// Queues the product by the kernel of this name, one of [`GroupedMatmul::kernels`].
    ///
    /// # Errors
    /// As [`GroupedMatmul::run`], and [`Error::InvalidArgument`] for another name.
    pub fn run_with(self, stream: &Stream, kernel: &str) -> Result<()> {
        let problem = self.checked(stream)?;
        let ways = ways(&problem, self.product.b.shape.batch, &Facts::of(stream.device()));
        let way = ways.iter().find(|way| way.name() == kernel).ok_or_else(|| {
            let wanted = format!("one of {}", ways.iter().map(Way::name).collect::<Vec<_>>().join(", "));
            invalid("the kernel", kernel.to_owned(), wanted, "take one of `GroupedMatmul::kernels`")
        })?;
        self.run_by(stream, &problem, *way)
    }

    /// Names of the kernels that can do the product on the stream's device, the likely fastest first.
    ///
    /// # Errors
    /// As [`GroupedMatmul::run`].
    pub fn kernels(&self, stream: &Stream) -> Result<Vec<&'static str>> {
        let problem = self.checked(stream)?;
        Ok(ways(&problem, self.product.b.shape.batch, &Facts::of(stream.device()))
            .iter()
            .map(Way::name)
            .collect())
    }

    /// The problem, of one product with several matrices of B.
    fn checked(&self, stream: &Stream) -> Result<Problem> {
        let Self { product, offsets } = self;
        let groups = product.b.shape.batch;
        if product.c.shape.batch != 1 {
            let wanted = "1 matrix, the rows of all groups one behind the other".to_owned();
            return Err(invalid(
                "C",
                format!("{} matrices", product.c.shape.batch),
                wanted,
                "only B is a batch",
            ));
        }
        let problem = product.problem_of(groups, groups)?;
        check_offsets(offsets.dtype)?;
        let length = offsets.data.len() / offsets.dtype.size();
        same_length(OPERATION, "the offsets", groups.saturating_add(1), length)?;
        product.check_devices(stream)?;
        stream.same_device("the offsets", offsets.data.device())?;
        Ok(problem)
    }

    fn run_by(self, stream: &Stream, problem: &Problem, way: Way) -> Result<()> {
        if problem.m == 0 || problem.n == 0 || self.product.b.shape.batch == 0 {
            return Ok(());
        }
        match way {
            Way::Any => self.run_any(stream, problem),
            Way::Sm90 { index, copies } => self.run_sm90(stream, problem, index, copies),
        }
    }

    /// By the kernel that takes every product.
    fn run_any(self, stream: &Stream, problem: &Problem) -> Result<()> {
        let Self { product, offsets } = self;
        let Matmul { a, b, c, alpha, beta, activation, bias, residual, scale_a, scale_b, amax, .. } = product;
        let groups = b.shape.batch;
        let scale_c = None;
        let operands =
            Operands { a, b, c, alpha, beta, activation, bias, residual, scale_a, scale_b, scale_c, amax };
        let arguments = any::kernel_problem(problem, &operands);
        let Operands { a, b, c, bias, residual, scale_a, scale_b, amax, .. } = operands;
        let groups = side("the groups", groups)?;
        // More blocks than a grid holds become an error of the launch.
        let blocks = u32::try_from(tiles(problem.m, problem.n, groups)).unwrap_or(u32::MAX);
        let config = LaunchConfig::new([blocks, 1, 1], [THREADS, 1, 1]);
        let (bias, residual) = (bias.map(|bias| bias.data), residual.map(|residual| residual.data));
        let amax = amax.map(|amax| amax.bytes().cast::<u32>());
        let (is_wide, offsets) = (offsets.dtype == DType::I64, offsets.data.cast::<i32>());
        let arguments = (
            arguments, a.data, b.data, scale_a, scale_b, bias, residual, amax, c.data, offsets, is_wide,
            groups,
        );
        // SAFETY: the shapes have been checked against the data and each other, and the lengths of the bias, the scales and the offsets with the
        // number of groups; C is exclusively borrowed and does not overlap itself; for SwiGLU n is even; grid and block are what the kernel asks for.
        unsafe { launch::<gemm_grouped_any>(stream, config, arguments) }
    }

    /// By a kernel of Hopper's table.
    fn run_sm90(
        self,
        stream: &Stream,
        problem: &Problem,
        index: usize,
        [to_a, to_b]: [Repack; 2],
    ) -> Result<()> {
        let (entry, launch) = (&TABLE[index], LAUNCHES[index]);
        let Self { product, offsets } = self;
        let Matmul { a, b, c, alpha, beta, activation, bias, residual, scale_a, scale_b, amax, .. } = product;
        let (packed_a, packed_b) = (repack::repack(stream, a, to_a)?, repack::repack(stream, b, to_b)?);
        let a = packed_a.as_ref().map_or(a, Packed::matrix);
        let b = packed_b.as_ref().map_or(b, Packed::matrix);
        let map_a = operand_map(a, true, entry.block[0])?;
        let map_b = operand_map(b.transposed(), !entry.trans_b, entry.block[1])?;
        // The kernel writes C through `data` or through this map. The launch begins the write with `data`.
        let copied = can_copy(problem);
        let store_box = [entry.store_columns / activation.columns(), BOX];
        let map_c = if copied { lines_map(c.data.view(), c.dtype, c.shape, store_box)? } else { map_a };
        let (map_added, fetched) = fetched_map(problem, map_c, residual, store_box)?;
        let groups = b.shape.batch;
        let width = c.shape.columns;
        let of_residual = problem.finish.residual;
        let arguments = Arguments {
            problem: Shape90 { m: problem.m, n: problem.n, k: problem.k, batch: 1, band: BAND },
            terms: Terms { alpha, beta, activation: activation as u32 },
            row: problem.c.leading,
            matrix: 0,
            residual_row: of_residual.map_or(0, |residual| residual.leading),
            residual_matrix: 0,
            result: number(c.dtype),
            bias_f32: bias.is_some_and(|bias| bias.dtype == DType::F32),
            residual_f32: residual.is_some_and(|residual| residual.dtype == DType::F32),
            paired: paired(&problem.c, width),
            residual_paired: of_residual.is_some_and(|operand| paired(&operand, width)),
            copied,
            plain: is_plain(problem),
            fetched,
        };
        let launched = Launched {
            maps: [map_a, map_b, map_c, map_added],
            arguments,
            data: c.data.view().within(),
            bias: bias.map(|bias| bias.data),
            residual: residual.map(|residual| residual.data),
            scales: [scale_a, scale_b],
            amax: amax.map(|amax| amax.bytes().cast()),
            offsets,
            groups: groups as u32,
        };
        let most = most_tiles(entry, problem.m as usize, problem.n as usize, groups)?;
        let blocks = most.min(stream.device().properties().sm_count);
        let config = LaunchConfig::new([blocks, 1, 1], [entry.threads, 1, 1])
            .with_shared(entry.shared)
            .overlapping_previous();
        // SAFETY: the maps are as the table says for the kernel; strides and lengths have been checked with the problem, and those of the bias,
        // the scales and the offsets with the number of groups; C does not overlap itself; grid, block and shared memory are the entry's; the
        // kernel waits for earlier launches before it touches memory.
        unsafe { launch(stream, config, launched) }
    }
}

/// Offsets are whole numbers.
pub(super) fn check_offsets(dtype: DType) -> Result<()> {
    if matches!(dtype, DType::I32 | DType::I64) {
        return Ok(());
    }
    let hint = "offsets are rows: convert them";
    Err(invalid("the offsets", dtype.to_string(), "i32 or i64".to_owned(), hint))
}

/// Rows of tiles of a group that are walked column by column: what most groups have at all.
const BAND: u32 = 16;

/// Tiles that there can be: each group may end within one.
pub(super) fn most_tiles(entry: &Entry, m: usize, n: usize, groups: usize) -> Result<u32> {
    let [block_m, block_n, _] = entry.block;
    let rows = m.div_ceil(block_m as usize).saturating_add(groups);
    let tiles = rows.saturating_mul(n.div_ceil(block_n as usize));
    match u32::try_from(tiles) {
        Ok(tiles) if tiles <= MOST_TILES => Ok(tiles),
        _ => {
            let wanted = format!("at most {MOST_TILES} tiles of {block_m} x {block_n}");
            Err(invalid(
                "the groups",
                format!("{tiles} tiles"),
                wanted,
                "call once for each part of the groups",
            ))
        }
    }
}

/// Leaves room for the step of a walk in 32 bits.
const MOST_TILES: u32 = 1 << 31;

/// A way to compute a product.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// By the kernel that takes every product.
    Any,
    /// By a kernel of Hopper's table, after copies of A and B.
    Sm90 { index: usize, copies: [Repack; 2] },
}

impl Way {
    fn name(&self) -> &'static str {
        match self {
            Way::Any => "gemm_grouped_any",
            Way::Sm90 { index, .. } => TABLE[*index].name,
        }
    }
}

/// The ways to compute the product, the likely fastest first.
fn ways(problem: &Problem, groups: usize, facts: &Facts) -> Vec<Way> {
    let mut ways: Vec<(usize, Way)> = Vec::new();
    if is_for_sm90(problem, groups, facts) {
        for (index, entry) in TABLE.iter().enumerate().filter(|(_, entry)| takes(entry, problem, facts)) {
            let order = if entry.trans_b { Order::Rows } else { Order::Columns };
            let copies = [copy(&problem.a, Order::Rows, false), copy(&problem.b, order, false)];
            let count = copies.iter().filter(|copy| **copy != Repack::No).count();
            ways.push((count, Way::Sm90 { index, copies }));
        }
    }
    ways.sort_by_key(|(copies, _)| *copies);
    ways.into_iter().map(|(_, way)| way).chain([Way::Any]).collect()
}

/// Is the kernel one for the product's types?
fn takes(entry: &Entry, problem: &Problem, facts: &Facts) -> bool {
    let c = problem.c.dtype;
    element(problem.a.dtype) == Some(entry.a)
        && element(problem.b.dtype) == Some(entry.b)
        && (c == DType::F32 || element(c) == Some(entry.half))
        && entry.shared <= facts.shared_bytes
}

/// Can Hopper's kernels read B, which every group has its own of, and what the epilogue adds, and store the result?
fn is_for_sm90(problem: &Problem, groups: usize, facts: &Facts) -> bool {
    let Problem { k, b, c, finish, .. } = problem;
    facts.arch == ARCH
        && *k > 0
        && (groups == 1 || b.batch_stride > 0)
        && c.order == Order::Rows
        && finish.bias.is_none_or(|dtype| dtype == c.dtype)
        && finish.residual.is_none_or(|residual| residual.dtype == c.dtype && residual.order == c.order)
}

/// What all kernels take.
type Parameters = <gemm::sm90::grouped::gemm_grouped_bf16_nt_128x128_pp as KernelType>::Params;

/// What they are launched with.
struct Launched<'a> {
    maps: [TensorMap<'a>; 4],
    arguments: Arguments,
    data: Within<'a, u8>,
    bias: Option<DeviceView<'a, u8>>,
    residual: Option<DeviceView<'a, u8>>,
    scales: [Option<DeviceView<'a, f32>>; 2],
    amax: Option<DeviceViewMut<'a, u32>>,
    offsets: Vector<'a>,
    groups: u32,
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
    let Launched { maps: [a, b, c, added], arguments, data, bias, residual, scales, amax, offsets, groups } =
        launched;
    let [scale_a, scale_b] = scales;
    let (is_wide, offsets) = (offsets.dtype == DType::I64, offsets.data.cast::<i32>());
    let arguments =
        (a, b, c, added, arguments, data, bias, residual, scale_a, scale_b, amax, offsets, is_wide, groups);
    // SAFETY: the caller's contract.
    unsafe { launch::<K>(stream, config, arguments) }
}

macro_rules! launches {
    ($($name:ident)*) => {
        /// In the order of the table.
        static LAUNCHES: [unsafe fn(&Stream, LaunchConfig, Launched<'_>) -> Result<()>; TABLE.len()] =
            [$(launch_as::<gemm::sm90::grouped::$name>),*];
    };
}
gemm::for_each_sm90_grouped_kernel!(launches);
