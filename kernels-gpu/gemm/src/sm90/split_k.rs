//! Split-K through memory, its second half: adds the sums of the parts that k was cut into, and finishes
//! them.
//!
//! ```text
//!   k:   | part 0 | part 1 | part 2 |      a kernel of `instances` takes the parts for a batch of products
//!            |        |        |
//!        [m, n]    [m, n]   [m, n]  f32    this kernel: a thread adds the sums of an element, or of
//!            `--------+--------'           four neighbours, in the order of the parts, and takes
//!                     |                    them through the epilogue
//!                     C
//! ```
//! For few tiles and long k, where whole tiles would leave most multiprocessors idle. The order is fixed, so
//! results are bitwise repeatable; they depend on the number of parts. Where no more than factors and source
//! C go with the sums, [`plain_sums`](super::plain_sums) adds them.

use cuda_std::{KernelArgs, grid, kernel, thread, vector};

use crate::any::{Epilogue, Place, StridedGemm};
use crate::epilogue::{Activation, EpilogueParams, GroupInputs};
use primitives::grid::wait_behind;
use primitives::unroll;

use super::four::Four;

/// Threads of a block.
pub const THREADS: u32 = 256;
/// Blocks side by side on a multiprocessor.
const RESIDENT: u32 = 4;
/// Loads of a thread under way at a time.
pub const LOADS: u32 = 8;
/// The same where no more than these are left.
const FEW_LOADS: u32 = 4;

/// How the parts' sums lie: a dense `[batch, m, n]` of f32 a part, one part behind the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, KernelArgs)]
#[repr(C)]
pub struct SplitK {
    /// How many parts, at least 1.
    pub count: u32,
    /// By columns, else by rows.
    pub by_columns: bool,
    /// Each thread takes [`WIDE`] neighbours: no activation makes one column of two. Lines of C are a
    /// multiple of [`WIDE`] elements that lie side by side; they and the residual's begin at multiples of so
    /// many elements, as the bias does.
    pub is_wide: bool,
}

/// Elements of a thread where that can be.
pub const WIDE: u32 = Four::COUNT as u32;

/// Threads that there is work for in a matrix of C: its elements, at most 2^31, or [`WIDE`] of them each.
pub const fn threads(m: u32, n: u32, activation: u32, parts: &SplitK) -> u64 {
    let columns = Activation::from_code(activation).columns();
    let elements = m as u64 * (n / columns) as u64;
    if parts.is_wide { elements / WIDE as u64 } else { elements }
}

/// `C = epilogue(sum of the parts)`. Of `gemm`, k, A and B are not looked at.
///
/// # Safety
/// `sums` has `parts.count * batch * m * n` elements; all else as for [`gemm_any`](fn@crate::any::gemm_any).
/// Blocks of [`THREADS`] threads along x, for [`threads`], and along z one for each matrix of C.
#[kernel(launch_bounds(THREADS, RESIDENT))]
pub unsafe fn gemm_sum_parts(
    gemm: StridedGemm,
    epilogue: EpilogueParams,
    c: *mut u8,
    parts: SplitK,
    sums: *const f32,
) {
    grid::launch_dependents();
    let index = thread::block_idx_x() * THREADS + thread::thread_idx_x();
    let StridedGemm { m, n, .. } = gemm;
    if u64::from(index) >= threads(m, n, epilogue.activation, &parts) {
        return;
    }
    let activation = Activation::from_code(epilogue.activation);
    let index = if parts.is_wide { index * WIDE } else { index };
    let width = n / activation.columns();
    // There is an element, so a row and a column; `max` is for the compiler, which sees a division by 0.
    let (row, column) = if parts.by_columns {
        (index % m.max(1), index / m.max(1))
    } else {
        (index / width.max(1), index % width.max(1))
    };
    let place = Place { batch: thread::block_idx_z(), row, column };
    let first = column * activation.columns();
    wait_behind(row ^ column);
    // SAFETY: the caller's word for the pointers.
    let epilogue: Epilogue<'_> = unsafe { Epilogue::new(&gemm, c, &epilogue, GroupInputs::first(&epilogue)) };
    // SAFETY: elements of the product and of C, which is this thread's alone; neighbours, if they are to be.
    unsafe {
        let bits = match activation {
            Activation::SwiGlu => {
                let of = |column: u32| sum(sums, &parts, &gemm, Place { column, ..place });
                let pair = [first, first + 1].map(of);
                epilogue.finish_pair(pair, place, first)
            }
            one if parts.is_wide => {
                let around = epilogue.load_four(place, parts.by_columns);
                let four = wide_sum(sums, &parts, &gemm, place);
                epilogue.finish_four(one, four, around, place)
            }
            one => epilogue.finish(one, sum(sums, &parts, &gemm, place), place),
        };
        epilogue.raise(bits);
    }
}

/// Where the sums of an element lie, and from a part's to the next.
#[inline(always)]
fn places(sums: *const f32, parts: &SplitK, gemm: &StridedGemm, place: Place) -> (*const f32, usize) {
    let (m, n) = (gemm.m as usize, gemm.n as usize);
    let (row, column) = (place.row as usize, place.column as usize);
    let first = if parts.by_columns { column * m + row } else { row * n + column };
    (sums.wrapping_add(place.batch as usize * (m * n) + first), gemm.batch as usize * (m * n))
}

/// The parts' sums of an element, added in their order.
///
/// # Safety
/// It is one of the product.
#[inline(always)]
unsafe fn sum(sums: *const f32, parts: &SplitK, gemm: &StridedGemm, place: Place) -> f32 {
    let (from, apart) = places(sums, parts, gemm, place);
    let (mut sum, mut next) = (0.0, 0);
    while next < parts.count {
        let mut loaded = [0.0; LOADS as usize];
        const { assert!(LOADS == 8, "counted out") };
        unroll!(I in 0..8, {
            let part = next + I as u32;
            // SAFETY: the caller's contract, where there is such a part.
            loaded[I] = unsafe { vector::load_if(from.wrapping_add(part as usize * apart), part < parts.count) };
        });
        unroll!(I in 0..8, { sum += loaded[I]; });
        next += LOADS;
    }
    sum
}

/// The same of [`WIDE`] neighbours.
///
/// # Safety
/// They are of the product and as [`SplitK::is_wide`] says.
#[inline(always)]
unsafe fn wide_sum(
    sums: *const f32,
    parts: &SplitK,
    gemm: &StridedGemm,
    place: Place,
) -> [f32; WIDE as usize] {
    let (mut from, apart) = places(sums, parts, gemm, place);
    let mut sum = [0.0; WIDE as usize];
    let mut left = parts.count;
    while left > 0 {
        // SAFETY: the caller's contract; parts are whole numbers of neighbours, so all begin at 16-byte
        // boundaries.
        unsafe {
            if left > FEW_LOADS {
                add_parts::<{ LOADS as usize }>(&mut sum, from, apart, left);
            } else {
                add_parts::<{ FEW_LOADS as usize }>(&mut sum, from, apart, left);
            }
        }
        from = from.wrapping_add(LOADS as usize * apart);
        left = left.saturating_sub(LOADS);
    }
    sum
}

/// Adds the next `COUNT` parts of those that are left, all of whose loads are under way at a time.
///
/// # Safety
/// As for [`wide_sum`]; there is a part.
#[inline(always)]
unsafe fn add_parts<const COUNT: usize>(
    sum: &mut [f32; WIDE as usize],
    from: *const f32,
    apart: usize,
    left: u32,
) {
    let mut loaded = [[0.0f32; WIDE as usize]; COUNT];
    const { assert!(COUNT <= 8 && WIDE == 4, "counted out") };
    unroll!(I in 0..8, {
        if I < COUNT {
            // The last one again in place of those behind it.
            let part = (I as u32).min(left - 1) as usize;
            // SAFETY: the caller's contract.
            loaded[I] = unsafe { vector::load_v4(from.wrapping_add(part * apart)) };
        }
    });
    unroll!(I in 0..8, {
        if I < COUNT && (I as u32) < left {
            unroll!(J in 0..4, { sum[J] += loaded[I][J]; });
        }
    });
}
