//! The second half of a product whose k was cut into parts: adds the parts' sums and finishes them.
//!
//! ```text
//!   k:   | part 0 | part 1 | part 2 |      a kernel of `entries` takes the parts for a batch of products
//!            |        |        |
//!        [m, n]    [m, n]   [m, n]  f32    this kernel: a thread adds the sums of an element, in the order of the parts,
//!            `--------+--------'           and takes them through the epilogue
//!                     C
//! ```
//! For few tiles and long k, where whole tiles would leave most multiprocessors idle. The order is fixed, so results are bitwise repeatable; they
//! depend on the number of parts.

use cuda_std::{grid, kernel, thread};

use crate::any::{Epilogue, Place, Problem};
use crate::epilogue::Activation;
use crate::unroll::unrolled;

/// Threads of a block; one an element of C.
pub const THREADS: u32 = 256;
/// Loads of a thread under way at a time.
pub const LOADS: u32 = 8;

/// How the parts' sums lie: a dense `[m, n]` of f32 a part, one part behind the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Parts {
    /// How many, at least 1.
    pub count: u32,
    /// By columns, else by rows.
    pub by_columns: bool,
}

/// Elements of C, at most 2^31: as many threads, rounded up to whole blocks.
pub const fn elements(problem: &Problem) -> u64 {
    problem.m as u64 * (problem.n / Activation::from_code(problem.activation).columns()) as u64
}

/// `C = epilogue(sum of the parts)`. Of `problem`, k and the layouts of A and B are not looked at, and the batch is 1.
///
/// # Safety
/// `sums` has `parts.count * m * n` elements; all else as for [`gemm_any`](fn@crate::any::gemm_any). Blocks of [`THREADS`] threads along x, for
/// [`elements`].
#[kernel(launch_bounds(THREADS))]
pub unsafe fn gemm_sum_parts(
    problem: Problem,
    parts: Parts,
    sums: *const f32,
    scale_a: *const f32,
    scale_b: *const f32,
    bias: *const u8,
    residual: *const u8,
    amax: *mut u32,
    c: *mut u8,
) {
    grid::wait_dependencies();
    grid::launch_dependents();
    let index = thread::block_idx_x() * THREADS + thread::thread_idx_x();
    if u64::from(index) >= elements(&problem) {
        return;
    }
    // SAFETY: the caller's word for the pointers.
    let epilogue =
        unsafe { Epilogue::new(problem, [scale_a, scale_b, core::ptr::null()], bias, residual, amax, c) };
    let activation = epilogue.activation();
    let width = problem.n / activation.columns();
    // There is an element, so a row and a column; `max` is for the compiler, which sees a division by 0.
    let (row, column) = if parts.by_columns {
        (index % problem.m.max(1), index / problem.m.max(1))
    } else {
        (index / width.max(1), index % width.max(1))
    };
    let place = Place { batch: 0, row, column };
    let first = column * activation.columns();
    // SAFETY: elements of the product and of C, which is this thread's alone.
    unsafe {
        let bits = match activation {
            Activation::SwiGlu => {
                let pair = [first, first + 1].map(|column| sum(sums, parts, &problem, row, column));
                epilogue.finish_pair(pair, place, first)
            }
            one => epilogue.finish(one, sum(sums, parts, &problem, row, first), place),
        };
        epilogue.raise(bits);
    }
}

/// The parts' sums of an element, added in their order.
///
/// # Safety
/// It is one of the product.
#[inline(always)]
unsafe fn sum(sums: *const f32, parts: Parts, problem: &Problem, row: u32, column: u32) -> f32 {
    let (m, n) = (problem.m as usize, problem.n as usize);
    let (row, column) = (row as usize, column as usize);
    let first = if parts.by_columns { column * m + row } else { row * n + column };
    // SAFETY: the caller's contract.
    let part = |part: u32| unsafe { sums.add(part as usize * (m * n) + first).read() };
    let mut sum = 0.0;
    let mut next = 0;
    while next + LOADS <= parts.count {
        let mut loaded = [0.0; LOADS as usize];
        const { assert!(LOADS == 8, "counted out") };
        unrolled!(I in [0 1 2 3 4 5 6 7] { loaded[I] = part(next + I as u32); });
        unrolled!(I in [0 1 2 3 4 5 6 7] { sum += loaded[I]; });
        next += LOADS;
    }
    while next < parts.count {
        sum += part(next);
        next += 1;
    }
    sum
}
