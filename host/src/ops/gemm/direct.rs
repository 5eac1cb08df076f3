//! Few rows as they lie: [`gemm::skinny::direct`], for small products and for orders that others copy first.

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
use super::config::{Candidate, Config, Kernel, Rejection};
use super::f32;
use super::matmul::Matmul;
use super::problem::{Operand, Order, Problem};
use super::repack::MAX_BATCH_BLOCKS;
use super::select::{CandidateSink, DeviceCapabilities};

pub(super) const BACKEND: Backend =
    Backend { candidates, has: |kernel| kernel == Kernel::Direct, launch: launch_direct };

/// Rows beyond which tensor cores win whatever they have to copy.
const MAX_M: u32 = 64;
/// A launch, and the end of a block. Figures without another word are latencies of an H200, and instructions
/// counted: 8 x 467 x 83 of bf16 takes 2.7 us where they say 3.0.
const START_US: f64 = 2.4;
/// From one load to the next that waits for it.
const ROUND_US: f64 = 0.65;
/// Loads of a warp's step that wait for each other, where columns run along.
const ROUNDS_ACROSS: f64 = 4.0;
/// Elements of B that a multiprocessor takes in a microsecond, where k runs along B and where columns do: 32
/// in 28, and in 16 instructions of a warp, at three quarters of its rate.
const ALONG_PER_US: f64 = 6e3;
const ACROSS_PER_US: f64 = 10.5e3;
/// Bytes a microsecond that come from L2.
const BYTES_PER_US: f64 = 3.4e6;
/// B beyond this many bytes comes from memory for each group of rows anew, in pieces of one line, or of more:
/// bytes a microsecond of an H200, measured on 32 x 8272 x 4512 (0.49), 25 x 808 x 24936 (1.43) and
/// 16 x 9664 x 2904 (1.09).
const KEPT_BYTES: f64 = 24e6;
const LINES_PER_US: f64 = 0.5e6;
const RUNS_PER_US: f64 = 1.2e6;
/// Bytes of a line.
const LINE: f64 = 128.0;

fn candidates(problem: &Problem, device: &DeviceCapabilities, sink: &mut dyn CandidateSink) {
    if let Some(why) = lacks(problem) {
        return sink.reject(Rejection { kernel: Kernel::Direct.name(), why });
    }
    let b = layout(&problem.b);
    for groups in Groups::ALL {
        sink.add(Candidate {
            config: Config::new(Kernel::Direct, [kernel::HEIGHT, groups.columns(&b), groups.depth()], 2),
            estimate_us: estimate_us(groups, &b, problem, device.sm_count.max(1)),
            why: "few rows: reads operands as they lie, and without a copy's launch",
        });
    }
}

/// Why the kernels cannot do the problem, or are left out.
fn lacks(problem: &Problem) -> Option<&'static str> {
    let Problem { m, k, a, b, .. } = *problem;
    let is_wide = matches!(a.dtype, DType::F16 | DType::BF16 | DType::F32);
    let rules = [
        (a.dtype == b.dtype && is_wide, "A and B are both f16, both bf16, or both f32"),
        (m <= MAX_M, "takes up to 64 rows"),
        (!problem.epilogue.trains(), "takes no derivative and keeps no values before the activation"),
        (k > 0, "there is nothing to multiply"),
        (b.order != Order::Strided, "wants B by rows or by columns"),
        (!f32::is_promised(problem), "sums in parts, where `gemm_f32` promises one chain of multiply-adds"),
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

/// The longest of three: loads that wait for each other, instructions, and memory.
fn estimate_us(groups: Groups, b: &Layout, problem: &Problem, sm_count: u32) -> f64 {
    let Problem { m, n, k, batch, .. } = *problem;
    let blocks = groups.blocks(b, m, n) * u64::from(batch);
    let rounds = if kernel::runs_across(b) { ROUNDS_ACROSS } else { 1.0 };
    let waves = blocks.div_ceil(u64::from(sm_count * kernel::RESIDENT)) as f64;
    let waiting = waves * f64::from(k.div_ceil(groups.depth())) * rounds * ROUND_US;
    let rate = if kernel::runs_across(b) { ACROSS_PER_US } else { ALONG_PER_US };
    let of_block = f64::from(groups.columns(b)) * f64::from(k.next_multiple_of(groups.depth()));
    let busy = blocks.div_ceil(u64::from(sm_count)) as f64 * of_block / rate;
    START_US + waiting.max(busy).max(memory_us(groups, b, problem))
}

/// Time of the bytes.
fn memory_us(groups: Groups, b: &Layout, problem: &Problem) -> f64 {
    let Problem { m, n, k, batch, .. } = *problem;
    let size = problem.b.dtype.size() as f64;
    let of_b = f64::from(k) * f64::from(n) * f64::from(batch) * size;
    if of_b > KEPT_BYTES {
        let run = if kernel::runs_across(b) { groups.columns(b) } else { groups.depth() };
        let rate = if f64::from(run) * size <= LINE { LINES_PER_US } else { RUNS_PER_US };
        return of_b * f64::from(m.div_ceil(kernel::HEIGHT)) / rate;
    }
    let others = f64::from(m) * f64::from(k + n) * f64::from(batch) * size;
    (of_b + others) / BYTES_PER_US
}

fn launch_direct(stream: &Stream, problem: &Problem, config: &Config, product: Matmul<'_>) -> Result<()> {
    let gemm = strided_gemm(problem, &product);
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
    let blocks = u32::try_from(groups.blocks(&gemm.b, problem.m, problem.n)).unwrap_or(u32::MAX);
    let grid = [blocks, 1, problem.batch.min(MAX_BATCH_BLOCKS)];
    let config = LaunchConfig::new(grid, [THREADS, 1, 1]);
    let is_wide = a.dtype == DType::F32;
    let arguments = (gemm, epilogue.args(false), a.data, b.data, c.data, groups.exponent());
    // SAFETY: the shapes have been checked against the data and each other, types and k by `lacks`; C is
    // exclusively borrowed and does not overlap itself; for SwiGLU n is even; grid and block are what the
    // kernels ask for.
    unsafe {
        if is_wide {
            launch::<kernel::gemm_skinny_direct_b32>(stream, config, arguments)
        } else {
            launch::<kernel::gemm_skinny_direct_b16>(stream, config, arguments)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::gemm::backend::BACKENDS;
    use crate::ops::gemm::problem::{EpilogueDesc, Precision};
    use crate::ops::gemm::sm90::ARCH;

    struct Best(Option<Candidate>);

    impl CandidateSink for Best {
        fn add(&mut self, candidate: Candidate) {
            if self.0.is_none_or(|best| candidate.estimate_us < best.estimate_us) {
                self.0 = Some(candidate);
            }
        }
        fn reject(&mut self, _: Rejection) {}
    }

    /// The kernel that an H200 computes the product by; orders as in `nt`.
    fn chosen((m, n, k): (u32, u32, u32), dtype: DType, order: &str) -> Kernel {
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
        let problem = Problem { m, n, k, batch: 1, a, b, c, precision: Precision::Tf32, epilogue };
        let device = DeviceCapabilities { arch: ARCH, sm_count: 132, shared_bytes: 227 << 10 };
        let mut best = Best(None);
        BACKENDS.iter().for_each(|backend| (backend.candidates)(&problem, &device, &mut best));
        best.0.unwrap().config.kernel
    }

    #[test]
    fn small_products_with_odd_rows_are_not_copied_first() {
        for order in ["nn", "nt", "tn", "tt"] {
            assert_eq!(chosen((8, 467, 83), DType::BF16, order), Kernel::Direct, "{order}");
            assert_eq!(chosen((16, 121, 67), DType::F16, order), Kernel::Direct, "{order}");
            assert_eq!(chosen((7, 449, 323), DType::F32, order), Kernel::Direct, "{order}");
        }
    }

    /// Products that others read as they lie, at memory's speed or by tensor cores, stay theirs.
    #[test]
    fn aligned_products_stay_with_tensor_cores() {
        for sides in [(1, 8192, 8192), (16, 8192, 8192), (8, 336, 144), (64, 512, 512), (1, 1024, 8192)] {
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
