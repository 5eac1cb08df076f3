//! Few rows of any strides and alignment: elements straight from global memory, and f32 multiply-adds. For
//! small products, and for operands that the other kernels take only as copies, whose launches cost more than
//! the product.
//!
//! ```text
//!                       a warp's step, 32 k (of one row 128)                      its sums
//!   k runs along B    : each lane a k: 8 of A, 4 columns of B, 32 multiply-adds   added over the lanes by shuffles
//!   columns run along : each lane 2 columns, 8 k at a time; A by way of shared    each lane its columns
//!                       memory, where all lanes read the same four rows at once
//!   one row of f32    : each lane four k of 4 columns of B, by loads of 16 bytes  added over the lanes
//! ```
//! * **A block** is 8 warps for 8 rows: some groups of columns beside each other, the others along k, whose
//!   sums are added in their order through shared memory. So results are bitwise repeatable, but depend on
//!   the number of groups. Blocks with the same columns follow each other: B comes from memory once.
//! * **Parts of k.** A batch may be the parts of k of one product, whose sums another kernel adds.
//! * **Loads** of the next step (of B where columns run along: of the next 8 k) are under way while one is
//!   multiplied. Outside of the matrices a lane loads the last element there is: what must not count becomes
//!   0, the rest is not stored.
//! * **Types.** 16-bit elements are widened in registers, 32-bit ones are f32.
//! * **One row** has a kernel of its own: as one more way of the kernel for all rows it took that one's
//!   registers, and made its others half as slow again.

use super::shape::{PARTIAL_PAD, Partials, ROWS, WARPS};
use super::{THREADS, store};
use crate::any::{Epilogue, StridedGemm, TileCoord};
use crate::element::{Layout, Type};
use crate::epilogue::{EpilogueParams, GroupInputs};
use cuda_std::warp::{FULL_MASK, sync_warp};
use cuda_std::{convert, fastmath, grid, kernel, shared, shared_array, thread, vector};
use num::f16;
use primitives::grid::wait_behind;
use primitives::unroll;
use primitives::warp::{Exchange, From, LANES};

/// Rows of a block, as an array's length.
const DOWN: usize = ROWS as usize;
/// Columns of a lane's step where k runs along B, and where columns do.
const ALONG: usize = 4;
const ACROSS: usize = 2;
/// Elements of k that a lane loads together of a single row and its columns.
pub const QUAD: u32 = 4;
/// Rows of B that a lane loads together where columns run along.
const TOGETHER: u32 = 8;
/// Columns of A that a warp takes at a time, [`QUAD`] times as many of a single row.
pub const STEP: u32 = LANES;
/// Blocks that share a multiprocessor.
pub const RESIDENT: u32 = 2;
/// Bytes of a sum.
const F32: u32 = size_of::<f32>() as u32;
/// Bytes from eight rows of A at one k to those at the next in shared memory: stores of a quarter of a warp
/// then meet all banks.
const LEFT_PITCH: u32 = (ROWS + 4) * F32;
/// Bytes of shared memory: the sums of one group, of which A takes less before.
const SHARED: u32 = WARPS * ROWS * (ACROSS as u32 * LANES + PARTIAL_PAD) * F32;
const _: () = assert!(WARPS * LANES * LEFT_PITCH <= SHARED);

/// How a block's warps share its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Groups(u32);

impl Groups {
    /// Every way.
    pub const ALL: [Self; 4] = [Self(0), Self(1), Self(2), Self(3)];

    /// Groups of columns beside each other.
    pub const fn count(self) -> u32 {
        1 << self.0
    }

    /// Kernels take them by this number.
    pub const fn exponent(self) -> u32 {
        self.0
    }

    /// Columns of a block.
    #[inline(always)]
    pub const fn columns(self, b: &Layout) -> u32 {
        (if runs_across(b) { ACROSS as u32 * LANES } else { ALONG as u32 }) << self.0
    }

    /// Columns of A that a block takes at a time, [`QUAD`] times as many of a single row.
    #[inline(always)]
    pub const fn depth(self) -> u32 {
        (WARPS >> self.0) * STEP
    }

    /// Blocks along x.
    pub const fn blocks(self, b: &Layout, m: u32, n: u32) -> u64 {
        n.div_ceil(self.columns(b)) as u64 * m.div_ceil(ROWS) as u64
    }
}

/// Rows of C of a block.
pub const HEIGHT: u32 = ROWS;

/// Whether columns of B lie closer than its rows, so that lanes take columns.
#[inline(always)]
pub const fn runs_across(b: &Layout) -> bool {
    b.column < b.row
}

/// A 16-byte unit of shared memory.
#[repr(C, align(16))]
struct Unit([f32; 4]);

/// How wide an element is. Its bits are widened to f32 later, so that loads do not wait for each other.
trait Width {
    const BYTES: u64;
    /// Is there a single row? Columns of B, which lie apart, are then read [`QUAD`] elements at a time.
    const IS_ROW: bool = false;
    /// # Safety
    /// There is an element at the address, which nothing writes meanwhile.
    unsafe fn load(from: *const u8) -> u32;
    /// The number of these bits of a [`Type`].
    fn widen(bits: u32, ty: u32) -> f32;
}

struct B16;
struct B32;

impl Width for B16 {
    const BYTES: u64 = 2;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> u32 {
        // SAFETY: the caller's contract; device buffers are aligned for their elements.
        unsafe { u32::from(vector::load_nc_b16(from.cast())) }
    }

    #[inline(always)]
    fn widen(bits: u32, ty: u32) -> f32 {
        // Both, for a choice without a branch.
        let (bf16, f16) = (f32::from_bits(bits << 16), convert::f16_to_f32(f16::from_bits(bits as u16)));
        if ty == Type::Bf16 as u32 { bf16 } else { f16 }
    }
}

impl Width for B32 {
    const BYTES: u64 = 4;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> u32 {
        // SAFETY: as above.
        unsafe { vector::load_nc(from.cast()) }
    }

    #[inline(always)]
    fn widen(bits: u32, _: u32) -> f32 {
        f32::from_bits(bits)
    }
}

/// Those of a single row.
struct Row;

impl Width for Row {
    const BYTES: u64 = B32::BYTES;
    const IS_ROW: bool = true;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> u32 {
        // SAFETY: as above.
        unsafe { B32::load(from) }
    }

    #[inline(always)]
    fn widen(bits: u32, ty: u32) -> f32 {
        B32::widen(bits, ty)
    }
}

/// Rows of A or columns of B: `count` lines of `depth` elements.
#[derive(Clone, Copy)]
struct Lines {
    base: *const u8,
    /// Bytes from a line to the next, and from an element to the next.
    line: u64,
    along: u64,
    count: u32,
    depth: u32,
    ty: u32,
}

impl Lines {
    /// Lines of matrix `index` of a batch; strides from line to line and along, `[count, depth]`.
    #[inline(always)]
    fn new<W: Width>(
        base: *const u8,
        of: Layout,
        index: u32,
        [line, along]: [u64; 2],
        [count, depth]: [u32; 2],
    ) -> Self {
        let base = base.wrapping_add((u64::from(index) * of.batch * W::BYTES) as usize);
        Self { base, line: line * W::BYTES, along: along * W::BYTES, count, depth, ty: of.ty }
    }

    /// Where an element lies: the last line or the last element in place of those behind them.
    #[inline(always)]
    fn place(&self, line: u32, k: u32) -> *const u8 {
        let line = u64::from(line.min(self.count - 1)) * self.line;
        self.base.wrapping_add((line + u64::from(k.min(self.depth - 1)) * self.along) as usize)
    }

    /// Element `k` of `N` lines from `first` on; 0 behind the last element.
    ///
    /// # Safety
    /// The lines are readable, and nothing writes them.
    #[inline(always)]
    unsafe fn lines<W: Width, const N: usize>(&self, first: u32, k: u32) -> [u32; N] {
        let mut bits = [0; N];
        let mut from = self.place(first, k);
        unroll!(I in 0..8, {
            if I < N {
                // SAFETY: in one of the lines.
                let loaded = unsafe { W::load(from) };
                bits[I] = if k < self.depth { loaded } else { 0 };
                let has_next = first + (I as u32) + 1 < self.count;
                from = from.wrapping_add(if has_next { self.line as usize } else { 0 });
            }
        });
        bits
    }

    /// [`QUAD`] elements of a line from `k` on; 0 behind the last element.
    ///
    /// # Safety
    /// As for [`Lines::lines`], of f32; `k` and the number of elements are multiples of [`QUAD`].
    #[inline(always)]
    unsafe fn quad(&self, k: u32) -> [f32; QUAD as usize] {
        let mut four = [0.0; QUAD as usize];
        unroll!(I in 0..4, {
            // SAFETY: in the line.
            let bits = unsafe { Row::load(self.place(0, k + I as u32)) };
            four[I] = if k < self.depth { f32::from_bits(bits) } else { 0.0 };
        });
        four
    }

    /// The same of some lines from `first` on, whose neighbours lie side by side, by one load each.
    ///
    /// # Safety
    /// As for [`Lines::quad`]; lines begin at multiples of 16 bytes.
    #[inline(always)]
    unsafe fn quads(&self, first: u32, k: u32) -> [[f32; QUAD as usize]; ALONG] {
        let mut fours = [[0.0; QUAD as usize]; ALONG];
        let mut from = self.place(first, k.min(self.depth - QUAD));
        unroll!(J in 0..4, {
            // SAFETY: in one of the lines.
            let four: [f32; QUAD as usize] = unsafe { vector::load_nc_v4(from.cast()) };
            unroll!(I in 0..4, { fours[J][I] = if k < self.depth { four[I] } else { 0.0 }; });
            let has_next = first + (J as u32) + 1 < self.count;
            from = from.wrapping_add(if has_next { self.line as usize } else { 0 });
        });
        fours
    }

    /// Elements `k` and on of the lines `first` and one warp's width further; 0 behind the last elements.
    ///
    /// # Safety
    /// As for [`Lines::lines`].
    #[inline(always)]
    unsafe fn elements<W: Width>(&self, first: u32, k: u32) -> [[u32; ACROSS]; TOGETHER as usize] {
        let mut bits = [[0; ACROSS]; TOGETHER as usize];
        let mut from = [self.place(first, k), self.place(first + LANES, k)];
        unroll!(I in 0..8, {
            let at = k + I as u32;
            unroll!(J in 0..2, {
                // SAFETY: in one of the lines.
                let loaded = unsafe { W::load(from[J]) };
                bits[I][J] = if at < self.depth { loaded } else { 0 };
                from[J] = from[J].wrapping_add(if at + 1 < self.depth { self.along as usize } else { 0 });
            });
        });
        bits
    }
}

/// A warp's part: its first row and column, its first k, and how far its next step is.
#[derive(Clone, Copy)]
struct Part {
    a: Lines,
    b: Lines,
    row: u32,
    column: u32,
    k: u32,
    stride: u32,
    lane: u32,
}

impl Part {
    /// The sum of row `lane / 4`, column `lane % 4`, where k runs along.
    ///
    /// # Safety
    /// The warp calls it together; the factors are readable, and nothing writes them.
    #[inline(always)]
    unsafe fn along<W: Width>(&self) -> f32 {
        let Part { a, b, row, column, mut k, stride, lane } = *self;
        let mut sums = [[0.0; ALONG]; DOWN];
        // SAFETY: the caller's contract.
        unsafe {
            let mut left: [u32; DOWN] = a.lines::<W, DOWN>(row, k + lane);
            let mut right: [u32; ALONG] = b.lines::<W, ALONG>(column, k + lane);
            while k < b.depth {
                k += stride;
                let coming = (a.lines::<W, DOWN>(row, k + lane), b.lines::<W, ALONG>(column, k + lane));
                let x = right.map(|bits| W::widen(bits, b.ty));
                unroll!(I in 0..8, {
                    let y = W::widen(left[I], a.ty);
                    unroll!(J in 0..4, { sums[I][J] = fastmath::fma(y, x[J], sums[I][J]); });
                });
                (left, right) = coming;
            }
            total(&sums, lane)
        }
    }

    /// The sum of column `lane % 4` where k runs along, of a single row, in lanes 0 to 3.
    ///
    /// # Safety
    /// As for [`Part::along`] and [`Lines::quads`].
    #[inline(always)]
    unsafe fn row(&self) -> f32 {
        let Part { a, b, column, k, stride, lane, .. } = *self;
        let (mut k, stride, within) = (QUAD * k, QUAD * stride, QUAD * lane);
        let mut sums = [[0.0; ALONG]; DOWN];
        // SAFETY: the caller's contract.
        unsafe {
            let (mut left, mut right) = (a.quad(k + within), b.quads(column, k + within));
            while k < b.depth {
                k += stride;
                let coming = (a.quad(k + within), b.quads(column, k + within));
                unroll!(J in 0..4, {
                    unroll!(I in 0..4, { sums[0][J] = fastmath::fma(left[I], right[J][I], sums[0][J]); });
                });
                (left, right) = coming;
            }
            total(&sums, lane)
        }
    }

    /// The sums where columns run along, of the lane's columns. `staged` is the shared address of memory for
    /// 32 k of A.
    ///
    /// # Safety
    /// As for [`Part::along`]; no other warp uses the memory.
    #[inline(always)]
    unsafe fn across<W: Width>(&self, staged: u32) -> [[f32; DOWN]; ACROSS] {
        let Part { a, b, row, column, mut k, stride, lane } = *self;
        let column = column + lane;
        let mut sums = [[0.0; DOWN]; ACROSS];
        // SAFETY: the caller's contract; the warp meets before and after it writes what all its lanes read.
        unsafe {
            let mut left: [u32; DOWN] = a.lines::<W, DOWN>(row, k + lane);
            let mut right = b.elements::<W>(column, k);
            while k < b.depth {
                sync_warp(FULL_MASK);
                unroll!(I in 0..2, {
                    let mut four = [0.0; 4];
                    unroll!(J in 0..4, { four[J] = W::widen(left[4 * I + J], a.ty); });
                    vector::store_shared_v4(staged + lane * LEFT_PITCH + 16 * I as u32, four);
                });
                sync_warp(FULL_MASK);
                let next = k + stride;
                let mut done = 0;
                while done < STEP {
                    let here = staged + done * LEFT_PITCH;
                    done += TOGETHER;
                    let coming = b.elements::<W>(column, if done < STEP { k + done } else { next });
                    unroll!(K in 0..8, {
                        let x = right[K].map(|bits| W::widen(bits, b.ty));
                        unroll!(I in 0..2, {
                            let at = here + K as u32 * LEFT_PITCH + 16 * I as u32;
                            let four: [f32; 4] = vector::load_shared_v4(at);
                            unroll!(J in 0..4, {
                                sums[0][4 * I + J] = fastmath::fma(four[J], x[0], sums[0][4 * I + J]);
                                sums[1][4 * I + J] = fastmath::fma(four[J], x[1], sums[1][4 * I + J]);
                            });
                        });
                    });
                    right = coming;
                }
                // Not earlier: registers are short.
                left = a.lines::<W, DOWN>(row, next + lane);
                k = next;
            }
        }
        sums
    }
}

/// Number `lane` of the 32, added over all lanes: at each of five steps a lane keeps one half of the numbers
/// that it has, and hands the other over.
///
/// # Safety
/// The warp calls it together.
#[inline(always)]
unsafe fn total(sums: &[[f32; ALONG]; DOWN], lane: u32) -> f32 {
    // SAFETY: the caller's contract.
    let halve = |low: f32, high: f32, bit: u32| unsafe {
        let (keep, give) = if lane & bit == 0 { (low, high) } else { (high, low) };
        keep + give.exchange(From::Xor(bit))
    };
    let mut v = [0.0; 16];
    unroll!(I in 0..16, { v[I] = halve(sums[I / 4][I % 4], sums[4 + I / 4][I % 4], 16); });
    unroll!(I in 0..8, { v[I] = halve(v[I], v[I + 8], 8); });
    unroll!(I in 0..4, { v[I] = halve(v[I], v[I + 4], 4); });
    unroll!(I in 0..2, { v[I] = halve(v[I], v[I + 2], 2); });
    halve(v[0], v[1], 1)
}

/// The block's part of every product of the batch that falls to it.
///
/// # Safety
/// The contract of the kernels.
#[inline(always)]
unsafe fn run<W: Width>(
    gemm: &StridedGemm,
    epilogue: &EpilogueParams,
    [a, b]: [*const u8; 2],
    c: *mut u8,
    groups: u32,
    part: u32,
) {
    grid::launch_dependents();
    let StridedGemm { m, n, k, batch, a: of_a, b: of_b, .. } = *gemm;
    let base = shared::address_of(shared_array![Unit; (SHARED / 16) as usize]);
    let (warp, lane) = (thread::thread_idx_x() / LANES, thread::thread_idx_x() % LANES);
    let groups = Groups(groups);
    let (group, slice) = (warp % groups.count(), warp >> groups.exponent());
    let columns = groups.columns(&of_b);
    // Blocks that there are have a row; `max` is for the compiler, which sees a division by 0.
    let blocks_down = m.div_ceil(ROWS).max(1);
    let row = thread::block_idx_x() % blocks_down * ROWS;
    let column = thread::block_idx_x() / blocks_down * columns;
    let within = group * (columns >> groups.exponent());
    let partials = Partials::new(WARPS >> groups.exponent(), ROWS, columns);
    let mut index = thread::block_idx_z();
    // Earlier grids may still write what this one reads, or read C.
    wait_behind(row);
    while index < batch {
        let depth = if part == 0 { k } else { part.min(k - index * part) };
        let work = Part {
            a: Lines::new::<W>(a, of_a, index, [of_a.row, of_a.column], [m, depth]),
            b: Lines::new::<W>(b, of_b, index, [of_b.column, of_b.row], [n, depth]),
            row,
            column: column + within,
            k: slice * STEP,
            stride: groups.depth(),
            lane,
        };
        // SAFETY: the caller's contract; a warp has its own part of the memory until the first barrier, then
        // a lane its places; barriers part the writes of the sums from the reads, and these from the next
        // product.
        unsafe {
            if W::IS_ROW {
                let place = partials.address(base, slice, lane / 4, within + lane % 4);
                vector::store_shared(place, work.row());
            } else if runs_across(&of_b) {
                let sums = work.across::<W>(base + warp * LANES * LEFT_PITCH);
                thread::sync_threads();
                unroll!(I in 0..8, {
                    unroll!(J in 0..2, {
                        let column = within + J as u32 * LANES + lane;
                        let place = partials.address(base, slice, I as u32, column);
                        vector::store_shared(place, sums[J][I]);
                    });
                });
            } else {
                let place = partials.address(base, slice, lane / 4, within + lane % 4);
                vector::store_shared(place, work.along::<W>());
            }
            thread::sync_threads();
            let rows = (m - row).min(ROWS);
            let coord = TileCoord { batch: index, row, column };
            let epilogue = Epilogue::new(gemm, c, epilogue, GroupInputs::first(epilogue));
            epilogue.raise(store(base, partials, [rows, n], coord, epilogue));
            thread::sync_threads();
        }
        index += thread::grid_dim_z();
    }
}

/// `C = epilogue(A B)` for f16 or bf16 factors, as A's layout says; C, bias and residual are of any type.
///
/// # Safety
/// As for [`gemm_any`](fn@crate::any::gemm_any), but `m`, `n` and `k` are at least 1. `groups` is
/// [`Groups::exponent`], with [`Groups::blocks`] blocks along x, of [`THREADS`] threads. `part` is 0; or the
/// batch is the parts of k of one product, of which each but perhaps the last one, which has less, is `part`
/// long, and none is empty: A and B are so far apart from one to the next, while `k` is that of the product.
#[kernel(launch_bounds(THREADS, RESIDENT))]
pub unsafe fn gemm_skinny_direct_b16(
    gemm: StridedGemm,
    epilogue: EpilogueParams,
    a: *const u8,
    b: *const u8,
    c: *mut u8,
    groups: u32,
    part: u32,
) {
    // SAFETY: the caller's contract.
    unsafe { run::<B16>(&gemm, &epilogue, [a, b], c, groups, part) }
}

/// The same for f32 factors.
///
/// # Safety
/// As for [`gemm_skinny_direct_b16`](fn@gemm_skinny_direct_b16).
#[kernel(launch_bounds(THREADS, RESIDENT))]
pub unsafe fn gemm_skinny_direct_b32(
    gemm: StridedGemm,
    epilogue: EpilogueParams,
    a: *const u8,
    b: *const u8,
    c: *mut u8,
    groups: u32,
    part: u32,
) {
    // SAFETY: the caller's contract.
    unsafe { run::<B32>(&gemm, &epilogue, [a, b], c, groups, part) }
}

/// The same for a single row of f32 factors.
///
/// # Safety
/// As for [`gemm_skinny_direct_b16`](fn@gemm_skinny_direct_b16), but `m` is 1, columns of B are contiguous
/// and begin at multiples of 16 bytes, and `k` and `part` are multiples of [`QUAD`].
#[kernel(launch_bounds(THREADS, RESIDENT))]
pub unsafe fn gemm_skinny_direct_row(
    gemm: StridedGemm,
    epilogue: EpilogueParams,
    a: *const u8,
    b: *const u8,
    c: *mut u8,
    groups: u32,
    part: u32,
) {
    // SAFETY: the caller's contract.
    unsafe { run::<Row>(&gemm, &epilogue, [a, b], c, groups, part) }
}
