//! Products of groups of rows: [`gemm::groups`].

use bytemuck::Pod;
use gemm::any::THREADS;
use gemm::epilogue::Activation;
use gemm::grouped::{gemm_grouped_any, tiles};
use gemm::groups::GroupParams;
use gemm::sm90::instances::{Entry, Kind, TABLE};
use gemm::sm90::tile_scheduler::GemmShape;

#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::launch::{LaunchConfig, launch};
use crate::memory::{DeviceView, DeviceViewMut, same_length};
use crate::stream::Stream;
use crate::tensor::{DType, Element};

use super::OPERATION;
use super::any::strided_gemm;
use super::check::invalid;
use super::config::Repack;
use super::epilogue::Vector;
use super::matmul::Matmul;
use super::matrix::{Matrix, MatrixMut};
use super::problem::{Order, Problem, side};
use super::repack::{self, Packed};
use super::select::DeviceCapabilities;
use super::sm90::{self, ARCH, Groups, Launch, copy, element, operand_map, output, result_maps};

/// `C[rows of g] = epilogue(A[rows of g] B[g])` for groups of rows of any sizes, none too, as the experts of
/// a mixture take their tokens.
///
/// The rows of group `g` are `offsets[g]..offsets[g + 1]`, numbers on the device that the host does not wait
/// for: they may come from a kernel that has been queued and not run. Rows of C that belong to no group stay
/// as they are. Offsets that do not ascend, or lie outside of `0..=m`, make results meaningless and do no
/// harm otherwise: each counts as no less than the one before it, and no more than m.
///
/// bf16, f16 and e4m3 go to Hopper's tensor cores, after copies of operands that TMA cannot address; all
/// else, on any device, to a kernel that takes everything, slowly.
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
    /// `C = A B` for `a: [m, k]`, `b: [groups, k, n]`, a batch, `groups + 1` offsets, i32 or i64, and `c: [m,
    /// n]`. Sums are f32.
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
    /// As [`Matmul::run`], and [`Error::InvalidArgument`] when the offsets are not i32 or i64,
    /// [`Error::Length`] when they are not one more than the matrices of B.
    pub fn run(self, stream: &Stream) -> Result<()> {
        let problem = self.checked(stream)?;
        let ways = ways(&problem, self.product.b.shape.batch, &DeviceCapabilities::of(stream.device()));
        self.run_by(stream, &problem, ways[0])
    }

    /// Queues the product by the kernel of this name, one of [`GroupedMatmul::kernels`].
    ///
    /// # Errors
    /// As [`GroupedMatmul::run`], and [`Error::InvalidArgument`] for another name.
    pub fn run_with(self, stream: &Stream, kernel: &str) -> Result<()> {
        let problem = self.checked(stream)?;
        let ways = ways(&problem, self.product.b.shape.batch, &DeviceCapabilities::of(stream.device()));
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
        Ok(ways(&problem, self.product.b.shape.batch, &DeviceCapabilities::of(stream.device()))
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
        let gemm = strided_gemm(problem, &product);
        let Matmul { a, b, c, epilogue, .. } = product;
        let count = side("the groups", b.shape.batch)?;
        // More blocks than a grid holds become an error of the launch.
        let blocks = u32::try_from(tiles(problem.m, problem.n, count)).unwrap_or(u32::MAX);
        let config = LaunchConfig::new([blocks, 1, 1], [THREADS, 1, 1]);
        let is_wide = offsets.dtype == DType::I64;
        let groups = GroupParams { count, is_wide };
        let offsets = offsets.data.cast::<i32>();
        let arguments = (gemm, epilogue.args(false), a.data, b.data, c.data, groups, offsets);
        // SAFETY: the shapes have been checked against the data and each other, and the lengths of the bias,
        // the scales and the offsets with the number of groups; C is exclusively borrowed and does not
        // overlap itself; for SwiGLU n is even; grid and block are what the kernel asks for.
        unsafe { launch::<gemm_grouped_any>(stream, config, arguments) }
    }

    /// By a kernel of Hopper's table.
    fn run_sm90(self, stream: &Stream, problem: &Problem, index: usize, copies: [Repack; 2]) -> Result<()> {
        let entry = &TABLE[index];
        let Self { product: Matmul { a, b, c, epilogue, .. }, offsets } = self;
        let [packed_a, packed_b] = repack::repack(stream, [a, b], copies)?;
        let a = packed_a.as_ref().map_or(a, Packed::matrix);
        let b = packed_b.as_ref().map_or(b, Packed::matrix);
        let map_a = operand_map(a, true, entry.block[0], None)?;
        let [_, block_n, block_k] = entry.block;
        let lines_of_box = if entry.trans_b { block_k } else { block_n };
        let map_b = operand_map(b.transposed(), !entry.trans_b, lines_of_box, None)?;
        // The kernel writes C through `data` or through its map. The launch begins the write with `data`.
        let c_view = Matrix { data: c.data.view(), dtype: c.dtype, shape: c.shape };
        let [map_c, map_source] = result_maps(entry, problem, c_view, &epilogue, map_a)?;
        let output = output(entry, problem, c_view);
        let Problem { m, n, k, .. } = *problem;
        let shape = GemmShape::new([m, n, k], 1, RASTER_GROUP);
        let groups = b.shape.batch;
        let launched = Launch {
            maps: [map_a, map_b, map_c, map_source],
            shape,
            of_cluster: 1,
            output,
            data: c.data.view().within(),
            epilogue,
            transposed: false,
            groups: Some(Groups { offsets, count: groups as u32 }),
            read: None,
        };
        let most = most_tiles(entry, problem.m as usize, problem.n as usize, groups)?;
        let blocks = most.min(stream.device().properties().sm_count);
        // SAFETY: the maps are as the table says for the kernel; strides and lengths have been checked with
        // the problem, and those of the bias, the scales and the offsets with the number of groups; C does
        // not overlap itself.
        unsafe { sm90::launch(stream, index, blocks, launched) }
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

/// Rows of tiles of a raster group: what most groups have at all.
const RASTER_GROUP: u32 = 16;

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
fn ways(problem: &Problem, groups: usize, device: &DeviceCapabilities) -> Vec<Way> {
    let mut ways: Vec<(usize, Way)> = Vec::new();
    if is_for_sm90(problem, groups, device) {
        for (index, entry) in of_kind(Kind::Grouped).filter(|(_, entry)| takes(entry, problem, device)) {
            let order = if entry.trans_b { Order::Rows } else { Order::Columns };
            let copies = [copy(&problem.a, Order::Rows, false), copy(&problem.b, order, false)];
            let count = copies.iter().filter(|copy| **copy != Repack::No).count();
            ways.push((count, Way::Sm90 { index, copies }));
        }
    }
    ways.sort_by_key(|(copies, _)| *copies);
    ways.into_iter().map(|(_, way)| way).chain([Way::Any]).collect()
}

/// The kernels of this kind, with their places in the table.
pub(super) fn of_kind(kind: Kind) -> impl Iterator<Item = (usize, &'static Entry)> {
    TABLE.iter().enumerate().filter(move |(_, entry)| entry.kind == kind)
}

/// Is the kernel one for the product's types?
fn takes(entry: &Entry, problem: &Problem, device: &DeviceCapabilities) -> bool {
    let c = problem.c.dtype;
    element(problem.a.dtype) == Some(entry.a)
        && element(problem.b.dtype) == Some(entry.b)
        && (c == DType::F32 || element(c) == Some(entry.element16))
        && entry.shared <= device.shared_bytes
}

/// Can Hopper's kernels read B, which every group has its own of, and what the epilogue adds, and store the
/// result?
fn is_for_sm90(problem: &Problem, groups: usize, device: &DeviceCapabilities) -> bool {
    let Problem { k, b, c, epilogue, .. } = problem;
    device.arch == ARCH
        && *k > 0
        && (groups == 1 || b.batch_stride > 0)
        && c.order == Order::Rows
        && epilogue.bias.is_none_or(|dtype| dtype == c.dtype)
        && epilogue.residual.is_none_or(|residual| residual.dtype == c.dtype && residual.order == c.order)
}
