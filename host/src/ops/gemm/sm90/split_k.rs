//! Split-K through memory: a kernel of the table takes the parts of k for a batch of products in f32, and
//! [`gemm::sm90::split_k`] adds their sums.

use gemm::sm90::split_k::{self as kernel, SplitK};

use crate::error::Result;
use crate::launch::{LaunchConfig, launch as launch_kernel};
use crate::memory::DeviceBuffer;
use crate::ops::gemm::any::strided_gemm;
use crate::ops::gemm::check::invalid;
use crate::ops::gemm::config::Config;
use crate::ops::gemm::epilogue::Epilogue;
use crate::ops::gemm::matmul::Matmul;
use crate::ops::gemm::matrix::{Matrix, MatrixMut, ROW_ALIGNMENT, Shape};
use crate::ops::gemm::problem::{EpilogueDesc, Operand, Order, Problem};
use crate::stream::Stream;
use crate::tensor::DType;

use super::launch::launch_matmul;

/// Parts that are offered.
pub(super) const COUNTS: [u32; 7] = [2, 4, 8, 16, 32, 64, 128];
/// Elements of C at most: the kernel counts them in 32 bits.
const MOST_ELEMENTS: u64 = 1 << 31;

/// A second launch, microseconds.
const START_US: f64 = 1.5;
/// Each round of loads of a thread.
const ROUND_US: f64 = 0.5;
/// Bytes a microsecond, from the L2 cache.
const BYTES_PER_US: f64 = 3e6;

/// The parts as a batch of products; none where they would not be equal, or not begin at 16-byte boundaries.
pub(super) fn cut(problem: &Problem, count: u32) -> Option<Problem> {
    let Problem { m, n, k, batch, a, b, c, .. } = *problem;
    let part = k / count;
    let along = |operand: Operand, contiguous: Order| {
        let step = if operand.order == contiguous { 1 } else { operand.leading };
        Operand { batch_stride: u64::from(part) * step, ..operand }
    };
    let (a, b) = (along(a, Order::Rows), along(b, Order::Columns));
    let is_aligned = |operand: &Operand| {
        (operand.batch_stride * operand.dtype.size() as u64).is_multiple_of(ROW_ALIGNMENT)
    };
    let is_even = k.is_multiple_of(count) && is_aligned(&a) && is_aligned(&b);
    let elements = u64::from(m) * u64::from(n);
    if batch != 1 || !is_even || elements > MOST_ELEMENTS {
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
    Some(Problem { k: part, batch: count, a, b, c: sums, epilogue: EpilogueDesc::default(), ..*problem })
}

/// How long adding the parts' sums takes.
pub(super) fn estimate_us(problem: &Problem, count: u32) -> f64 {
    let bytes = f64::from(problem.m) * f64::from(problem.n) * f64::from(count) * DType::F32.size() as f64;
    START_US + f64::from(count.div_ceil(kernel::LOADS)) * ROUND_US + bytes / BYTES_PER_US
}

/// Queues the products of the parts, and their sum.
pub(super) fn launch(stream: &Stream, problem: &Problem, config: &Config, product: Matmul<'_>) -> Result<()> {
    let count = config.split_k;
    let Some(parts) = cut(problem, count) else {
        let wanted = "a number of parts that k is cut into evenly".to_owned();
        return Err(invalid("the configuration", config.to_string(), wanted, "take one of `candidates`"));
    };
    let (m, n, batch) = (problem.m as usize, problem.n as usize, count as usize);
    let by_columns = problem.c.order == Order::Columns;
    // SAFETY: the kernel writes every element.
    let mut sums = unsafe { DeviceBuffer::<f32>::uninit(stream, batch.saturating_mul(m * n))? };
    let (lines, length) = if by_columns { (n, m) } else { (m, n) };
    let c = MatrixMut::new::<f32>(&mut sums, lines, length).batch(batch);
    let c = if by_columns { c.transposed() } else { c };
    let k = parts.k as usize;
    let (a, b) = (product.a.shape, product.b.shape);
    let a = Shape { columns: k, batch, matrix: k * a.column, dense: false, ..a };
    let b = Shape { rows: k, batch, matrix: k * b.row, dense: false, ..b };
    let of_parts = Matmul {
        a: Matrix { shape: a, ..product.a },
        b: Matrix { shape: b, ..product.b },
        c,
        precision: product.precision,
        epilogue: Epilogue::NONE,
    };
    launch_matmul(stream, &parts, &Config { split_k: 1, ..*config }, of_parts)?;
    let has_lines = length.is_multiple_of(kernel::WIDE as usize)
        && u64::from(problem.c.alignment) == ROW_ALIGNMENT
        && problem.c.dtype.size() > 1;
    let is_wide = problem.epilogue.is_plain() && has_lines;
    let parts = SplitK { count, by_columns, is_wide };
    let gemm = strided_gemm(problem, &product);
    let width = n / product.epilogue.activation.columns() as usize;
    // `cut` takes no more elements than fit.
    let threads = if is_wide { m * width / kernel::WIDE as usize } else { m * width };
    let launch_config = LaunchConfig::linear(threads, kernel::THREADS).overlapping_previous();
    let Matmul { c, epilogue, .. } = product;
    let arguments = (gemm, epilogue.args(false), c.data, parts, &sums);
    // SAFETY: `sums` has the parts that were just queued; shapes and strides have been checked; C is
    // exclusively borrowed and does not overlap itself; for SwiGLU n is even; grid and block are what the
    // kernel asks for, and it waits for earlier launches before it touches memory.
    unsafe { launch_kernel::<kernel::gemm_sum_parts>(stream, launch_config, arguments) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::gemm::Precision;

    fn problem(k: u32, order_a: Order) -> Problem {
        let operand =
            |dtype, order, leading| Operand { dtype, order, leading, batch_stride: 0, alignment: 16 };
        Problem {
            m: 64,
            n: 48,
            k,
            batch: 1,
            a: operand(DType::BF16, order_a, if order_a == Order::Rows { u64::from(k) } else { 64 }),
            b: operand(DType::BF16, Order::Columns, u64::from(k)),
            c: operand(DType::BF16, Order::Rows, 48),
            precision: Precision::F32,
            epilogue: EpilogueDesc { factor: true, ..EpilogueDesc::default() },
        }
    }

    #[test]
    fn parts_follow_each_other_along_k() {
        let parts = cut(&problem(256, Order::Rows), 4).unwrap();
        assert_eq!((parts.k, parts.batch, parts.a.batch_stride, parts.b.batch_stride), (64, 4, 64, 64));
        assert_eq!((parts.c.dtype, parts.c.leading, parts.c.batch_stride), (DType::F32, 48, 64 * 48));
        assert!(parts.epilogue.is_plain());
        assert_eq!(cut(&problem(256, Order::Columns), 4).unwrap().a.batch_stride, 64 * 64);
    }

    #[test]
    fn uneven_parts_are_none() {
        assert_eq!(cut(&problem(258, Order::Rows), 4), None);
        // 12 bf16 are 24 bytes.
        assert_eq!(cut(&problem(48, Order::Rows), 4), None);
        assert_eq!(cut(&Problem { batch: 2, ..problem(256, Order::Rows) }, 4), None);
    }
}
