//! Split-K through memory: a kernel takes the parts of k for a batch of products in f32, and
//! [`gemm::sm90::split_k`] adds their sums, or [`gemm::sm90::plain_sums`] where it can.

use gemm::any::StridedGemm;
use gemm::element::Layout;
use gemm::epilogue::Activation;
use gemm::sm90::plain_sums::{self as plain, PlainSumsArgs, Sharing};
use gemm::sm90::split_k::{self as kernel, SplitK};

use super::any::{layout, strided_gemm};
use super::check::invalid;
use super::config::Config;
use super::epilogue::{Epilogue, Vector};
use super::matmul::Matmul;
use super::matrix::{MatrixMut, ROW_ALIGNMENT};
use super::problem::{EpilogueDesc, Operand, Order, Problem};
use super::repack::MAX_BATCH_BLOCKS;
use crate::error::Result;
use crate::launch::{LaunchConfig, launch as launch_kernel};
use crate::memory::DeviceBuffer;
use crate::stream::Stream;
use crate::tensor::DType;

/// Whole waves of tiles that parts are offered for: as many parts as fit.
const WAVES: u32 = 4;
/// Fractions of a wave, of which the sums take less to add.
const FRACTIONS: u32 = 3;
/// Elements of a matrix of C at most: the kernel counts them in 32 bits.
const MOST_ELEMENTS: u64 = 1 << 31;

/// A second launch, microseconds. This and the next by 562 products of 475 sizes on an H200.
const START_US: f64 = 1.4;
/// Each round of loads of a thread.
const ROUND_US: f64 = 0.22;
/// Bytes a microsecond, from the L2 cache.
const BYTES_PER_US: f64 = 8.3e6;
/// Bytes of sums that stay there beside the operands, and how much what is beyond costs besides: it goes to
/// memory and comes back.
const CACHED_BYTES: f64 = 8e6;
const BEYOND_BYTES_PER_US: f64 = 3.7e6;

/// Numbers of parts for a product of so many clusters' tiles and stages of k, of which so many clusters run
/// at a time: the most that fit in some whole waves, or in a fraction of one. Each at least two, all
/// different, and no part empty.
pub(super) fn counts(clusters: u32, resident: u32, stages: u32) -> impl Iterator<Item = u32> {
    let waves = (1..=WAVES).rev().map(move |waves| waves * resident / clusters.max(1));
    let fractions = (1..=FRACTIONS).map(move |halvings| (resident >> halvings) / clusters.max(1));
    let mut last = 0;
    waves.chain(fractions).filter_map(move |parts| {
        let each = stages.div_ceil(parts.clamp(1, stages.max(1)));
        let count = stages.div_ceil(each.max(1));
        (count > 1 && count != std::mem::replace(&mut last, count)).then_some(count)
    })
}

/// Stages of each part but perhaps the last one, which has fewer.
pub(super) fn stages_of(problem: &Problem, count: u32, block_k: u32) -> u32 {
    problem.k.div_ceil(block_k).div_ceil(count)
}

/// The parts of one product as a batch of products, of whole stages of `block_k`; none for one that is empty
/// or whole.
pub(super) fn cut(problem: &Problem, count: u32, block_k: u32) -> Option<Problem> {
    if problem.batch == 1 { cut_each(problem, count, block_k) } else { None }
}

/// The same of each product of a batch: the first part of each, then the second ones.
pub(super) fn cut_each(problem: &Problem, count: u32, block_k: u32) -> Option<Problem> {
    let Problem { m, n, k, batch, c, .. } = *problem;
    if count < 2 {
        return None;
    }
    let stages = stages_of(problem, count, block_k);
    let elements = u64::from(m) * u64::from(n);
    let has_empty = stages == 0 || k.div_ceil(block_k).div_ceil(stages) != count;
    if has_empty || batch > MAX_BATCH_BLOCKS || elements > MOST_ELEMENTS {
        return None;
    }
    let leading = u64::from(if c.order == Order::Rows { n } else { m });
    let bytes = leading * DType::F32.size() as u64;
    let alignment =
        if bytes.is_multiple_of(ROW_ALIGNMENT) { ROW_ALIGNMENT } else { DType::F32.size() as u64 };
    let sums = Operand {
        dtype: DType::F32,
        order: c.order,
        leading,
        batch_stride: elements,
        alignment: alignment as u32,
    };
    let part = Problem { k: stages * block_k, batch: count.checked_mul(batch)?, c: sums, ..*problem };
    Some(Problem { epilogue: EpilogueDesc::default(), ..part })
}

/// How long adding the parts' sums takes.
pub(super) fn estimate_us(problem: &Problem, count: u32) -> f64 {
    let elements = f64::from(problem.m) * f64::from(problem.n) * f64::from(problem.batch);
    let bytes = elements * f64::from(count) * DType::F32.size() as f64;
    let beyond = (bytes - CACHED_BYTES).max(0.0) / BEYOND_BYTES_PER_US;
    START_US + f64::from(count.div_ceil(kernel::LOADS)) * ROUND_US + bytes / BYTES_PER_US + beyond
}

/// The parts of a product of `k` columns of A, as kernels take them that find a part's k by its number.
pub(super) fn strided(k: u32, parts: &Problem, of_parts: &Matmul<'_>) -> StridedGemm {
    let gemm = strided_gemm(parts, of_parts);
    let StridedGemm { a, b, .. } = gemm;
    let a = Layout { batch: u64::from(parts.k) * a.column, ..a };
    let b = Layout { batch: u64::from(parts.k) * b.row, ..b };
    StridedGemm { k, a, b, ..gemm }
}

/// Bytes of the neighbours that a thread takes.
fn bytes_of_four(dtype: DType) -> u64 {
    u64::from(kernel::WIDE) * dtype.size() as u64
}

/// Can the kernel that adds the sums take four neighbours a thread, of lines of C of so many elements?
fn takes_four(problem: &Problem, length: usize) -> bool {
    let Problem { c, epilogue, .. } = problem;
    let begins_at_four = |operand: &Operand| u64::from(operand.alignment) >= bytes_of_four(operand.dtype);
    let residual = epilogue.residual.as_ref();
    c.order != Order::Strided
        && length.is_multiple_of(kernel::WIDE as usize)
        && epilogue.activation != Activation::SwiGlu
        && begins_at_four(c)
        && residual.is_none_or(|residual| residual.order == c.order && begins_at_four(residual))
}

/// Queues the products of the parts, by `launch_parts`, and their sum.
pub(super) fn launch(
    stream: &Stream,
    problem: &Problem,
    config: &Config,
    product: Matmul<'_>,
    launch_parts: impl FnOnce(&Problem, Matmul<'_>) -> Result<()>,
) -> Result<()> {
    let count = config.split_k;
    let Some(parts) = cut_each(problem, count, config.tile[2]) else {
        let wanted = "a number of parts of k of which none is empty".to_owned();
        return Err(invalid("the configuration", config.to_string(), wanted, "take one of `candidates`"));
    };
    let (elements, batch) = (problem.m as usize * problem.n as usize, parts.batch as usize);
    // SAFETY: the kernel writes every element.
    let mut sums = unsafe { DeviceBuffer::<f32>::uninit(stream, batch.saturating_mul(elements))? };
    let length = length(problem);
    let c = MatrixMut::new::<f32>(&mut sums, elements / length.max(1), length).batch(batch);
    let c = if problem.c.order == Order::Columns { c.transposed() } else { c };
    let of_parts =
        Matmul { a: product.a, b: product.b, c, precision: product.precision, epilogue: Epilogue::NONE };
    launch_parts(&parts, of_parts)?;
    if problem.epilogue.is_factors_and_source() {
        return add_plain(stream, problem, count, product, &sums);
    }
    add(stream, problem, count, product, &sums)
}

/// Elements of a line of C.
fn length(problem: &Problem) -> usize {
    (if problem.c.order == Order::Columns { problem.m } else { problem.n }) as usize
}

/// Queues the sum of the parts, through any epilogue.
fn add(
    stream: &Stream,
    problem: &Problem,
    count: u32,
    product: Matmul<'_>,
    sums: &DeviceBuffer<f32>,
) -> Result<()> {
    let begins_at_four =
        |bias: Vector<'_>| bias.data.as_ptr().raw().is_multiple_of(bytes_of_four(bias.dtype));
    let is_wide = takes_four(problem, length(problem)) && product.epilogue.bias.is_none_or(begins_at_four);
    let parts = SplitK { count, by_columns: problem.c.order == Order::Columns, is_wide };
    let gemm = strided_gemm(problem, &product);
    let Matmul { c, epilogue, .. } = product;
    let threads = kernel::threads(problem.m, problem.n, epilogue.activation as u32, &parts);
    let grid = [blocks(threads, kernel::THREADS), 1, problem.batch];
    let config = LaunchConfig::new(grid, [kernel::THREADS, 1, 1]).overlapping_previous();
    let arguments = (gemm, epilogue.args(false), c.data, parts, sums);
    // SAFETY: `sums` has the parts that were just queued; shapes and strides have been checked; C is
    // exclusively borrowed and does not overlap itself; for SwiGLU n is even; grid and block are what the
    // kernel asks for, and it waits for earlier launches before it touches memory.
    unsafe { launch_kernel::<kernel::gemm_sum_parts>(stream, config, arguments) }
}

/// Blocks for so many elements, which [`cut_each`] keeps in 32 bits.
fn blocks(elements: u64, of_block: u32) -> u32 {
    elements.div_ceil(u64::from(of_block)) as u32
}

/// How threads of so many multiprocessors share out the parts of C's elements: all loads of a thread under
/// way at a time where all threads are; neighbours where there are more elements than that.
fn sharing(problem: &Problem, count: u32, sm_count: u32) -> Sharing {
    let elements = u64::from(problem.m) * u64::from(problem.n) * u64::from(problem.batch);
    let at_once = u64::from(sm_count * plain::RESIDENT * plain::THREADS);
    if elements > at_once && takes_four(problem, length(problem)) {
        return Sharing::WIDE;
    }
    let mut slices = 1;
    while count.div_ceil(slices) > plain::LOADS
        && slices < Sharing::MOST_SLICES
        && elements * u64::from(2 * slices) <= at_once
    {
        slices *= 2;
    }
    Sharing::slices(slices)
}

/// Queues the sum of the parts where that is plain.
fn add_plain(
    stream: &Stream,
    problem: &Problem,
    count: u32,
    product: Matmul<'_>,
    sums: &DeviceBuffer<f32>,
) -> Result<()> {
    let Matmul { c, epilogue, .. } = product;
    let sharing = sharing(problem, count, stream.device().properties().sm_count);
    let lines = if problem.c.order == Order::Columns { c.shape.transposed() } else { c.shape };
    let elements = problem.m * problem.n;
    let of = PlainSumsArgs {
        count,
        each: count.div_ceil(sharing.count()),
        sharing: sharing.code(),
        length: length(problem) as u32,
        elements,
        batch: problem.batch,
        alpha: epilogue.alpha,
        beta: epilogue.beta,
        c: layout(c.dtype, lines),
        scale_a: epilogue.scale_a,
        scale_b: epilogue.scale_b,
        scale_c: epilogue.scale_c,
    };
    let grid = [blocks(u64::from(elements), sharing.elements()), 1, problem.batch];
    let config = LaunchConfig::new(grid, [plain::THREADS, 1, 1]).overlapping_previous();
    // SAFETY: `sums` has the parts that were just queued, and C as many elements; C is exclusively borrowed
    // and does not overlap itself; neighbours are taken where `takes_four` says so; factors are the product's
    // own, which have been checked; grid and block are what the kernel asks for.
    unsafe { launch_kernel::<plain::gemm_sum_parts_plain>(stream, config, (of.pass(), sums, c.data)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::gemm::Precision;

    fn problem(k: u32) -> Problem {
        let operand =
            |dtype, order, leading| Operand { dtype, order, leading, batch_stride: 0, alignment: 16 };
        Problem {
            m: 64,
            n: 48,
            k,
            batch: 1,
            a: operand(DType::BF16, Order::Rows, u64::from(k)),
            b: operand(DType::BF16, Order::Columns, u64::from(k)),
            c: operand(DType::BF16, Order::Rows, 48),
            precision: Precision::F32,
            epilogue: EpilogueDesc { factor: true, ..EpilogueDesc::default() },
        }
    }

    #[test]
    fn parts_are_whole_stages() {
        let parts = cut(&problem(256), 4, 64).unwrap();
        assert_eq!((parts.k, parts.batch, parts.a, parts.b), (64, 4, problem(256).a, problem(256).b));
        assert_eq!((parts.c.dtype, parts.c.leading, parts.c.batch_stride), (DType::F32, 48, 64 * 48));
        assert!(parts.epilogue.is_plain());
        // 9 stages, the last one short: 3, 3 and 3; or 4, 4 and 1.
        for (count, k) in [(3, 192), (5, 128), (9, 64)] {
            assert_eq!(cut(&problem(516), count, 64).unwrap().k, k);
        }
    }

    #[test]
    fn no_part_is_empty() {
        // 9 stages in four parts of three would leave the last one nothing; so would more parts than stages.
        assert_eq!(cut(&problem(516), 4, 64), None);
        assert_eq!(cut(&problem(516), 10, 64), None);
        assert_eq!(cut(&Problem { batch: 2, ..problem(256) }, 4, 64), None);
    }

    #[test]
    fn a_batch_has_the_parts_of_each_product() {
        let three = Problem { batch: 3, ..problem(256) };
        let parts = cut_each(&three, 2, 64).unwrap();
        assert_eq!((parts.k, parts.batch, parts.c.batch_stride), (128, 6, 64 * 48));
        assert_eq!(cut_each(&Problem { batch: MAX_BATCH_BLOCKS + 1, ..problem(256) }, 2, 64), None);
        let sums = |problem| estimate_us(problem, 2) - START_US - ROUND_US;
        assert!((sums(&three) / sums(&problem(256)) - 3.0).abs() < 1e-9);
    }

    /// As many slices as give a thread one round of loads, unless that makes more threads than run at a time.
    #[test]
    fn few_elements_are_shared_out_to_many_threads() {
        let of = |m, n, count| {
            let c = Operand { leading: u64::from(n), ..problem(256).c };
            sharing(&Problem { m, n, c, ..problem(256) }, count, 132)
        };
        assert_eq!(of(16, 392, 8), Sharing::slices(1));
        assert_eq!(of(16, 392, 9), Sharing::slices(2));
        assert_eq!(of(8, 72, 400), Sharing::slices(Sharing::MOST_SLICES));
        assert_eq!(of(400, 384, 16), Sharing::slices(1));
        assert_eq!(of(768, 768, 7), Sharing::WIDE);
        // Lines that are no fours.
        assert_eq!(of(767, 766, 7), Sharing::slices(1));
    }

    #[test]
    fn parts_fill_waves() {
        // 768 x 768 in tiles of 128 x 256: 18, so 7 parts are 126 of 132 multiprocessors.
        let of = |clusters, stages| counts(clusters, 132, stages).collect::<Vec<_>>();
        assert_eq!(of(18, 512), [29, 22, 14, 7, 3]);
        assert_eq!(of(196, 296), [2]);
        assert_eq!(of(132, 296), [4, 3, 2]);
        // Of few stages each part has one.
        assert_eq!(of(1, 5), [5]);
        assert_eq!(of(1, 1), [0; 0]);
        assert_eq!(of(1000, 100), [0; 0]);
    }
}
