//! Split-K through memory, its second half: adds the sums of the parts that k was cut into, and finishes
//! them.
//!
//! ```text
//!   k:   | part 0 | part 1 | part 2 |      a kernel of `instances` takes the parts for a batch of products
//!            |        |        |
//!        [m, n]    [m, n]   [m, n]  f32    this kernel: a thread adds the sums of an element, in the order of the parts,
//!            `--------+--------'           and takes them through the epilogue
//!                     C
//! ```
//! For few tiles and long k, where whole tiles would leave most multiprocessors idle. The order is fixed, so
//! results are bitwise repeatable; they depend on the number of parts.

use cuda_std::wgmma::{BF16, F16};
use cuda_std::{KernelArgs, convert, fastmath, grid, kernel, thread, vector};

use crate::any::{Epilogue, Place, StridedGemm};
use crate::element::{Layout, Type, bytes};
use crate::epilogue::{Activation, EpilogueParams, GroupInputs};
use primitives::unroll;
use primitives::wgmma::Element16;

/// Threads of a block.
pub const THREADS: u32 = 256;
/// Blocks side by side on a multiprocessor.
const RESIDENT: u32 = 5;
/// Loads of a thread under way at a time.
pub const LOADS: u32 = 8;
/// The same of [`WIDE`] elements each.
const WIDE_LOADS: u32 = 4;

/// How the parts' sums lie: a dense `[batch, m, n]` of f32 a part, one part behind the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, KernelArgs)]
#[repr(C)]
pub struct SplitK {
    /// How many parts, at least 1.
    pub count: u32,
    /// By columns, else by rows.
    pub by_columns: bool,
    /// Each thread takes [`WIDE`] neighbours: there is nothing but the sums, alpha and beta (which is 0 where
    /// C has 8 bits). Lines of C are as many elements, a multiple of [`WIDE`], side by side, and begin at
    /// multiples of 16 bytes.
    pub is_wide: bool,
}

/// Elements of a thread where that can be.
pub const WIDE: u32 = 4;

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
    grid::wait_dependencies();
    grid::launch_dependents();
    let index = thread::block_idx_x() * THREADS + thread::thread_idx_x();
    let StridedGemm { m, n, .. } = gemm;
    if u64::from(index) >= threads(m, n, epilogue.activation, &parts) {
        return;
    }
    if parts.is_wide {
        // SAFETY: as many threads as there are such neighbours; the caller's word for the rest.
        return unsafe { wide(&gemm, &epilogue, &parts, sums, c, index * WIDE) };
    }
    // SAFETY: the caller's word for the pointers.
    let epilogue: Epilogue<'_> = unsafe { Epilogue::new(&gemm, c, &epilogue, GroupInputs::first(&epilogue)) };
    let activation = epilogue.activation();
    let width = n / activation.columns();
    // There is an element, so a row and a column; `max` is for the compiler, which sees a division by 0.
    let (row, column) = if parts.by_columns {
        (index % m.max(1), index / m.max(1))
    } else {
        (index / width.max(1), index % width.max(1))
    };
    let place = Place { batch: thread::block_idx_z(), row, column };
    let first = column * activation.columns();
    // SAFETY: elements of the product and of C, which is this thread's alone.
    unsafe {
        let bits = match activation {
            Activation::SwiGlu => {
                let of = |column: u32| sum(sums, &parts, &gemm, Place { column, ..place });
                let pair = [first, first + 1].map(of);
                epilogue.finish_pair(pair, place, first)
            }
            one => epilogue.finish(one, sum(sums, &parts, &gemm, place), place),
        };
        epilogue.raise(bits);
    }
}

/// The parts' sums of an element, added in their order.
///
/// # Safety
/// It is one of the product.
#[inline(always)]
unsafe fn sum(sums: *const f32, parts: &SplitK, gemm: &StridedGemm, place: Place) -> f32 {
    let (m, n) = (gemm.m as usize, gemm.n as usize);
    let (row, column) = (place.row as usize, place.column as usize);
    let first = if parts.by_columns { column * m + row } else { row * n + column };
    let (first, all) = (place.batch as usize * (m * n) + first, gemm.batch as usize * (m * n));
    // SAFETY: the caller's contract.
    let part = |part: u32| unsafe { sums.add(part as usize * all + first).read() };
    let mut sum = 0.0;
    let mut next = 0;
    while next + LOADS <= parts.count {
        let mut loaded = [0.0; LOADS as usize];
        const { assert!(LOADS == 8, "counted out") };
        unroll!(I in 0..8, { loaded[I] = part(next + I as u32); });
        unroll!(I in 0..8, { sum += loaded[I]; });
        next += LOADS;
    }
    while next < parts.count {
        sum += part(next);
        next += 1;
    }
    sum
}

/// Two packed pairs as f32.
#[inline(always)]
fn both<H: Element16>(low: u32, high: u32) -> [f32; WIDE as usize] {
    let ([a, b], [c, d]) = (H::unpack(low), H::unpack(high));
    [a, b, c, d]
}

/// Sums neighbours from the element `first` on, a multiple of [`WIDE`], and writes them.
///
/// # Safety
/// As [`SplitK::is_wide`] says; there are such elements, and they are this thread's.
#[inline(always)]
unsafe fn wide(
    gemm: &StridedGemm,
    epilogue: &EpilogueParams,
    parts: &SplitK,
    sums: *const f32,
    c: *mut u8,
    first: u32,
) {
    let StridedGemm { m, n, batch, c: Layout { ty, row, column, batch: matrix }, .. } = *gemm;
    let (length, line) = if parts.by_columns { (m, column) } else { (n, row) };
    let (index, each) = (thread::block_idx_z(), m as usize * n as usize);
    let (begin, all) = (index as usize * each + first as usize, batch as usize * each);
    let part = |part: u32| -> [f32; WIDE as usize] {
        // SAFETY: the caller's contract; parts are whole numbers of neighbours, so all begin at 16-byte
        // boundaries.
        unsafe { vector::load_v4(sums.add(part as usize * all + begin)) }
    };
    let mut sum = [0.0f32; WIDE as usize];
    let mut next = 0;
    while next + WIDE_LOADS <= parts.count {
        const { assert!(WIDE_LOADS == 4 && WIDE == 4, "counted out") };
        let loaded = [part(next), part(next + 1), part(next + 2), part(next + 3)];
        unroll!(PART in 0..4, { unroll!(I in 0..4, { sum[I] += loaded[PART][I]; }); });
        next += WIDE_LOADS;
    }
    while next < parts.count {
        let loaded = part(next);
        unroll!(I in 0..4, { sum[I] += loaded[I]; });
        next += 1;
    }
    // There are elements, so a line has some; `max` is for the compiler, which sees a division by 0.
    let (number, along) = (first / length.max(1), first % length.max(1));
    let place = (u64::from(index) * matrix + u64::from(number) * line + u64::from(along)) as usize;
    let EpilogueParams { alpha, beta, .. } = *epilogue;
    unroll!(I in 0..4, { sum[I] *= alpha; });
    // SAFETY: elements of C that are the thread's; lines begin at 16-byte boundaries.
    unsafe {
        if beta != 0.0 {
            let old: [f32; WIDE as usize] = if ty == Type::F32 as u32 {
                vector::load_v4(c.cast::<f32>().add(place))
            } else {
                let [low, high]: [u32; 2] = vector::load_v2(c.cast::<u16>().add(place).cast::<u32>());
                let is_f16 = ty == Type::F16 as u32;
                if is_f16 { both::<F16>(low, high) } else { both::<BF16>(low, high) }
            };
            unroll!(I in 0..4, { sum[I] = fastmath::fma(beta, old[I], sum[I]); });
        }
        if ty == Type::F32 as u32 {
            vector::store_v4(c.cast::<f32>().add(place), sum);
        } else if bytes(ty) == 1 {
            let [low, high] = if ty == Type::E4m3 as u32 {
                [convert::e4m3x2_from_f32(sum[0], sum[1]), convert::e4m3x2_from_f32(sum[2], sum[3])]
            } else {
                [convert::e5m2x2_from_f32(sum[0], sum[1]), convert::e5m2x2_from_f32(sum[2], sum[3])]
            };
            vector::store(c.add(place).cast::<u32>(), u32::from(low) | u32::from(high) << u16::BITS);
        } else {
            let [low, high] = if ty == Type::F16 as u32 {
                [convert::f16x2_from_f32(sum[0], sum[1]), convert::f16x2_from_f32(sum[2], sum[3])]
            } else {
                [convert::bf16x2_from_f32(sum[0], sum[1]), convert::bf16x2_from_f32(sum[2], sum[3])]
            };
            vector::store_v2(c.cast::<u16>().add(place).cast::<u32>(), [low, high]);
        }
    }
}
