//! Few rows as they lie: [`gemm::skinny::direct`], for small products and for orders that others copy first.

use gemm::any::StridedGemm;
use gemm::element::Layout;
use gemm::skinny::THREADS;
use gemm::skinny::direct::{self as kernel, Groups};

use crate::error::Result;
use crate::launch::{LaunchConfig, launch};
use crate::stream::Stream;
use crate::tensor::DType;

use super::any::strided_gemm;
use super::backend::Backend;
use super::check::invalid;
use super::config::{Candidate, Config, Kernel, Rejection, Repack};
use super::matmul::Matmul;
use super::matrix::ROW_ALIGNMENT;
use super::problem::{Operand, Order, Precision, Problem};
use super::repack::{self, MAX_BATCH_BLOCKS};
use super::select::{CandidateSink, DeviceCapabilities};
use super::sm90::{ARCH, beside};
use super::split_k;

pub(super) const BACKEND: Backend =
    Backend { candidates, has: |kernel| kernel == Kernel::Direct, launch: launch_direct };

/// Rows beyond which tensor cores win whatever they have to copy, where they may.
const MAX_M: u32 = 64;
/// A launch that overlaps with the one before it, and the end of a block. The other figures are fitted to
/// half of some hundred products drawn at random, on an H100 (`benches/NOTES.md`).
const START_US: f64 = 2.0;
/// The beginning and end of a block that another one follows.
const FOLLOWED_US: f64 = 1.5;
/// From one load to the next that waits for it, where k runs along B and where columns do; and what is added
/// where B comes from memory. Across fitted to 121 timings of an H200, which a round of 0.82 put 14 % too
/// high, with part of a step's rounds where k is less than a step.
const ROUND_ALONG_US: f64 = 0.22;
const ROUND_ACROSS_US: f64 = 0.55;
const FROM_MEMORY_US: f64 = 0.28;
const FROM_MEMORY_ACROSS_US: f64 = 0.1;
/// Loads of a warp's step that wait for each other, where columns run along.
const ROUNDS_ACROSS: f64 = 4.0;
/// Elements of B that a multiprocessor takes in a microsecond, where k runs along B and where columns do: 32
/// in 28, and in 16 instructions of a warp.
const ALONG_PER_US: f64 = 7e3;
const ACROSS_PER_US: f64 = 12.7e3;
/// How much longer a step takes for each line of A that a warp's load reads, where k runs along B and not
/// along A: 8 x 6312 x 317 and 32 x 152 x 2072 on an H200.
const SCATTERED: f64 = 0.0625;
/// Steps that one is where a single row reads four elements at a time: not fitted. 14 x 1 x 3648 x 768 took
/// 45.3 us on an H200 for an estimate of 56.3.
const QUADS: f64 = kernel::QUAD as f64;
/// How much of memory's rate the first reading of operands has.
const READ: f64 = 0.555;
/// B beyond this many bytes comes from memory for each group of rows anew, in pieces of one line, or of more;
/// how much of memory's rate they have. (Of one line by 5 x 1997 x 9208 and 1 x 16249 x 1856 on an H200.)
const KEPT_BYTES: f64 = 24e6;
const LINES: f64 = 0.3;
const RUNS: f64 = 0.73;
/// Bytes of a line.
const LINE: f64 = 128.0;

fn candidates(problem: &Problem, device: &DeviceCapabilities, sink: &mut dyn CandidateSink) {
    if let Some(why) = lacks(problem) {
        return sink.reject(Rejection { kernel: Kernel::Direct.name(), why });
    }
    for to_a in [Repack::No, Repack::Rows] {
        if to_a != Repack::No && !is_scattered(problem) {
            continue;
        }
        for groups in Groups::ALL {
            add(groups, to_a, problem, device, sink);
        }
    }
}

/// The candidate, and those with k in parts that are estimated to be faster.
fn add(
    groups: Groups,
    to_a: Repack,
    problem: &Problem,
    device: &DeviceCapabilities,
    sink: &mut dyn CandidateSink,
) {
    let Problem { m, n, k, batch, a, .. } = *problem;
    let b = layout(&problem.b);
    let copy_us = repack::estimate_us(to_a, &a, [m, k], batch, device);
    let as_copied = match to_a {
        Repack::No => *problem,
        _ => Problem { a: Operand { order: Order::Rows, ..a }, ..*problem },
    };
    let tile = [kernel::HEIGHT, groups.columns(&b), groups.depth()];
    let config = Config { repack: [to_a, Repack::No], ..Config::new(Kernel::Direct, tile, 2) };
    let whole_us = copy_us + estimate_us(groups, &b, &as_copied, device);
    let why = "few rows: reads operands as they lie, B without a copy's launch";
    sink.add(Candidate { config, estimate_us: whole_us, why });
    // The kernel that adds the parts' sums is built for Hopper alone.
    if device.arch != ARCH {
        return;
    }
    let blocks = u32::try_from(groups.blocks(&b, m, n)).unwrap_or(u32::MAX);
    for count in
        split_k::counts(blocks, device.sm_count.max(1) * kernel::RESIDENT, k.div_ceil(groups.depth()))
    {
        let Some(parts) = split_k::cut(&as_copied, count, groups.depth()) else { continue };
        let parts_us = estimate_us(groups, &b, &parts, device);
        let estimate_us = copy_us + parts_us + split_k::estimate_us(problem, count);
        if estimate_us < whole_us {
            let why = "few rows, as they lie; k is cut into parts, since there are few blocks";
            sink.add(Candidate { config: Config { split_k: count, ..config }, estimate_us, why });
        }
    }
}

/// Does k run along B and not along A?
fn is_scattered(problem: &Problem) -> bool {
    !kernel::runs_across(&layout(&problem.b)) && problem.a.order == Order::Columns && problem.m > 1
}

/// Why the kernels cannot do the problem, or are left out.
fn lacks(problem: &Problem) -> Option<&'static str> {
    let Problem { m, k, a, b, .. } = *problem;
    let is_wide = matches!(a.dtype, DType::F16 | DType::BF16 | DType::F32);
    let is_exact = a.dtype == DType::F32 && problem.precision == Precision::F32;
    let rules = [
        (a.dtype == b.dtype && is_wide, "A and B are both f16, both bf16, or both f32"),
        (m <= MAX_M || is_exact, "takes up to 64 rows where tensor cores may take more"),
        (k > 0, "there is nothing to multiply"),
        (b.order != Order::Strided, "wants B by rows or by columns"),
    ];
    rules.iter().find(|(holds, _)| !holds).map(|(_, why)| *why)
}

/// Where elements lie within a matrix, by the order.
fn layout(operand: &Operand) -> Layout {
    let (row, column) = match operand.order {
        Order::Columns => (1, operand.leading),
        Order::Rows | Order::Strided => (operand.leading, 1),
    };
    Layout { row, column, ..Layout::NONE }
}

/// Loads that wait for each other and instructions, one after the other, beside memory.
fn estimate_us(groups: Groups, b: &Layout, problem: &Problem, device: &DeviceCapabilities) -> f64 {
    let Problem { m, n, k, batch, .. } = *problem;
    let (sm_count, runs_across) = (device.sm_count.max(1), kernel::runs_across(b));
    let blocks = groups.blocks(b, m, n) * u64::from(batch);
    let waves = blocks.div_ceil(u64::from(sm_count * kernel::RESIDENT)) as f64;
    let (round, from_memory) =
        if runs_across { (ROUND_ACROSS_US, FROM_MEMORY_ACROSS_US) } else { (ROUND_ALONG_US, FROM_MEMORY_US) };
    let round = if bytes_of_b(problem) > KEPT_BYTES { round + from_memory } else { round };
    let together = if is_one_row(problem) { QUADS } else { 1.0 };
    let steps = (f64::from(k) / (f64::from(groups.depth()) * together)).ceil();
    let rounds =
        if runs_across { (f64::from(k) / f64::from(groups.depth()) * ROUNDS_ACROSS).ceil() } else { steps };
    let waiting = waves * rounds * round + (waves - 1.0) * FOLLOWED_US;
    let rate = if runs_across { ACROSS_PER_US } else { ALONG_PER_US * together };
    let of_block = f64::from(groups.columns(b)) * f64::from(k.next_multiple_of(kernel::STEP));
    let busy = blocks.div_ceil(u64::from(sm_count)) as f64 * of_block / rate;
    let busy = if is_scattered(problem) { (1.0 + SCATTERED * lines_of_a(problem)) * busy } else { busy };
    START_US + beside(waiting + busy, memory_us(groups, b, problem, device))
}

/// Is there a single row of f32, and can columns of B, which lie apart, be read four elements at a time?
fn is_one_row(problem: &Problem) -> bool {
    let Problem { m, k, b, .. } = *problem;
    m == 1
        && b.dtype == DType::F32
        && b.order == Order::Columns
        && !kernel::runs_across(&layout(&b))
        && k.is_multiple_of(kernel::QUAD)
        && u64::from(b.alignment) >= ROW_ALIGNMENT
}

/// Lines of A that the lanes of a warp read at a time, each an element at its k.
fn lines_of_a(problem: &Problem) -> f64 {
    let apart = problem.a.leading as f64 * problem.a.dtype.size() as f64;
    f64::from(kernel::STEP) * (apart / LINE).min(1.0)
}

fn bytes_of_b(problem: &Problem) -> f64 {
    let Problem { n, k, batch, b, .. } = *problem;
    f64::from(k) * f64::from(n) * f64::from(batch) * b.dtype.size() as f64
}

/// Time of the bytes.
fn memory_us(groups: Groups, b: &Layout, problem: &Problem, device: &DeviceCapabilities) -> f64 {
    let Problem { m, n, k, batch, .. } = *problem;
    let size = problem.b.dtype.size() as f64;
    let of_b = bytes_of_b(problem);
    let (bytes, share) = if of_b > KEPT_BYTES {
        let run = if kernel::runs_across(b) { groups.columns(b) } else { groups.depth() };
        let is_short = f64::from(run) * size <= LINE && !is_one_row(problem);
        let share = if is_short { LINES } else { RUNS };
        (of_b * f64::from(m.div_ceil(kernel::HEIGHT)), share)
    } else {
        (of_b + f64::from(m) * f64::from(k + n) * f64::from(batch) * size, READ)
    };
    bytes / (share * device.memory_rate)
}

fn launch_direct(stream: &Stream, problem: &Problem, config: &Config, product: Matmul<'_>) -> Result<()> {
    let is_row = is_one_row(problem);
    if config.split_k > 1 {
        return split_k::launch(stream, problem, config, product, |parts, of_parts| {
            let gemm = split_k::strided(problem.k, parts, &of_parts);
            launch_blocks(stream, gemm, config, of_parts, parts.k, is_row)
        });
    }
    launch_blocks(stream, strided_gemm(problem, &product), config, product, 0, is_row)
}

/// A batch of products; or parts of k of one, each of so many columns of A. Of a single row of f32, if
/// `is_row`.
fn launch_blocks(
    stream: &Stream,
    gemm: StridedGemm,
    config: &Config,
    product: Matmul<'_>,
    part: u32,
    is_row: bool,
) -> Result<()> {
    let wanted = |groups: &Groups| groups.columns(&gemm.b) == config.tile[1];
    let Some(groups) = Groups::ALL.into_iter().find(wanted) else {
        return Err(invalid(
            "the configuration",
            config.to_string(),
            "a tile of 1, 2, 4 or 8 times a warp's columns".to_owned(),
            "take one of `candidates`",
        ));
    };
    let Matmul { a, b, c, epilogue, .. } = product;
    // More blocks than a grid holds become an error of the launch.
    let blocks = u32::try_from(groups.blocks(&gemm.b, gemm.m, gemm.n)).unwrap_or(u32::MAX);
    let grid = [blocks, 1, gemm.batch.min(MAX_BATCH_BLOCKS)];
    let config = LaunchConfig::new(grid, [THREADS, 1, 1]).overlapping_previous();
    let is_wide = a.dtype == DType::F32;
    let arguments = (gemm, epilogue.args(false), a.data, b.data, c.data, groups.exponent(), part);
    // SAFETY: the shapes have been checked against the data and each other, types and k by `lacks`, what a
    // single row needs by `is_one_row`; parts of k are those of `split_k::cut`, of which none is empty, and
    // whole steps; C is exclusively borrowed and does not overlap itself; for SwiGLU n is even; grid and
    // block are what the kernels ask for, which wait for earlier launches before they touch memory.
    unsafe {
        if is_row {
            launch::<kernel::gemm_skinny_direct_row>(stream, config, arguments)
        } else if is_wide {
            launch::<kernel::gemm_skinny_direct_b32>(stream, config, arguments)
        } else {
            launch::<kernel::gemm_skinny_direct_b16>(stream, config, arguments)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Arch;
    use crate::ops::gemm::backend::BACKENDS;
    use crate::ops::gemm::problem::EpilogueDesc;
    use crate::ops::gemm::select::Best;

    /// The kernel that an H200 computes the product by; orders as in `nt`.
    fn chosen(sides: (u32, u32, u32), dtype: DType, order: &str) -> Kernel {
        best(&problem(sides, dtype, order, Precision::Tf32)).config.kernel
    }

    fn best(problem: &Problem) -> Candidate {
        let mut best = Best::default();
        BACKENDS.iter().for_each(|backend| (backend.candidates)(problem, &device(ARCH), &mut best));
        best.best.unwrap()
    }

    /// The best of this kernel's own configurations.
    fn own(problem: &Problem, arch: Arch) -> Config {
        let mut best = Best::default();
        candidates(problem, &device(arch), &mut best);
        best.best.unwrap().config
    }

    fn device(arch: Arch) -> DeviceCapabilities {
        DeviceCapabilities { arch, ..DeviceCapabilities::H200 }
    }

    fn problem((m, n, k): (u32, u32, u32), dtype: DType, order: &str, precision: Precision) -> Problem {
        let operand = |order, leading: u32| {
            let row = u64::from(leading) * dtype.size() as u64;
            let alignment = if row.is_multiple_of(16) { 16 } else { dtype.size() as u32 };
            Operand { dtype, order, leading: u64::from(leading), batch_stride: 0, alignment }
        };
        let lies = |is_transposed: bool, [rows, columns]: [u32; 2]| {
            if is_transposed { operand(Order::Columns, rows) } else { operand(Order::Rows, columns) }
        };
        let (a, b) = (lies(order.starts_with('t'), [m, k]), lies(order.ends_with('t'), [k, n]));
        let (c, epilogue) = (operand(Order::Rows, n), EpilogueDesc::default());
        Problem { m, n, k, batch: 1, a, b, c, precision, epilogue }
    }

    #[test]
    fn small_products_with_odd_rows_are_not_copied_first() {
        // Where columns run along B a copy is as fast: 48 x 225 x 160 takes 4.5 us by one and 4.7 without on
        // an H100, 35 x 568 x 192 4.3 and 4.9.
        for order in ["nt", "tt"] {
            assert_eq!(chosen((8, 467, 83), DType::BF16, order), Kernel::Direct, "{order}");
            assert_eq!(chosen((16, 121, 67), DType::F16, order), Kernel::Direct, "{order}");
            assert_eq!(chosen((7, 449, 123), DType::F32, order), Kernel::Direct, "{order}");
        }
    }

    /// Few blocks and long k: 8 x 248 x 18177 took 612 us of f32 on an H100 when four blocks had all of k,
    /// and 32 x 184 x 689 16.5.
    #[test]
    fn long_k_goes_to_many_blocks() {
        for (sides, order) in [((8, 248, 18_177), "tn"), ((32, 184, 689), "tn"), ((8, 64, 9001), "tt")] {
            let long = problem(sides, DType::F32, order, Precision::F32);
            let config = own(&long, ARCH);
            assert!(config.split_k > 1, "{sides:?} {order}: {config}");
            // The kernel that adds parts' sums is not built for older devices.
            assert_eq!(own(&long, Arch { major: 8, minor: 0 }).split_k, 1, "{sides:?} {order}");
        }
        // Many blocks as it is: wide ones, since each begins and ends.
        let config = own(&problem((32, 1720, 216), DType::F32, "nt", Precision::F32), ARCH);
        assert_eq!((config.split_k, config.tile[1]), (1, 32), "{config}");
    }

    /// Products that others read as they lie, at memory's speed or by tensor cores, stay theirs.
    #[test]
    fn aligned_products_stay_with_tensor_cores() {
        // The smallest ones are as fast either way: 8 x 144 x 80 of tf32 2.5 and 2.6 us on an H100.
        assert_ne!(chosen((8, 336, 144), DType::BF16, "nt"), Kernel::Direct);
        for sides in [(1, 8192, 8192), (16, 8192, 8192), (64, 512, 512), (1, 1024, 8192)] {
            for dtype in [DType::BF16, DType::F32] {
                assert_ne!(chosen(sides, dtype, "nt"), Kernel::Direct, "{sides:?} {dtype}");
            }
            assert_ne!(chosen(sides, DType::BF16, "nn"), Kernel::Direct, "{sides:?}");
        }
    }

    /// A large B would be read once for each 8 rows.
    #[test]
    fn large_products_stay_with_tensor_cores() {
        assert_ne!(chosen((16, 9664, 2904), DType::F32, "nn"), Kernel::Direct);
        assert_ne!(chosen((32, 8272, 4512), DType::F32, "tt"), Kernel::Direct);
    }
}
