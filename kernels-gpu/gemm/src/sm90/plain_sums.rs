//! Split-K through memory, its second half where nothing but factors and source C goes with the sums: as
//! [`split_k`](super::split_k), in few instructions and few registers. Few elements are shared out to many
//! threads:
//!
//! ```text
//!   a block, in four slices:    parts 0..8 | parts 8..16 | parts 16..24 | parts 24..32    a slice: warps
//!                                    `----------+-- shared memory --+---------'
//!                                               C      added in the order of the parts
//! ```
//! The order is fixed, so results are bitwise repeatable; they depend on the number of parts and of slices.

use cuda_std::{KernelArgs, fastmath, grid, kernel, shared, shared_array, thread, vector};
use primitives::grid::wait_behind;
use primitives::unroll;
use primitives::warp::LANES;

use super::four::Four;
use super::split_k::WIDE;
use crate::any::scale;
use crate::element::{Layout, load, store};

/// Threads of a block.
pub const THREADS: u32 = 256;
/// Blocks side by side on a multiprocessor.
pub const RESIDENT: u32 = 6;
/// Loads of a thread under way at a time, of an element each.
pub const LOADS: u32 = 8;
/// The same of [`WIDE`] elements each.
const WIDE_LOADS: u32 = 4;
/// Bytes of a sum.
const F32: u32 = size_of::<f32>() as u32;

/// How a launch's threads share the sums out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sharing(u32);

impl Sharing {
    /// Each thread takes [`WIDE`] neighbours.
    pub const WIDE: Self = Self(u32::MAX);
    /// Slices of a block at most: each is a warp at least.
    pub const MOST_SLICES: u32 = THREADS / LANES;

    /// Each thread takes an element and the parts of a slice; a power of two of those, at most
    /// [`MOST_SLICES`](Self::MOST_SLICES).
    pub const fn slices(count: u32) -> Self {
        Self(count.ilog2())
    }

    /// Slices of a block.
    pub const fn count(self) -> u32 {
        if self.0 == Self::WIDE.0 { 1 } else { 1 << self.0 }
    }

    /// Kernels take it by this number.
    pub const fn code(self) -> u32 {
        self.0
    }

    /// Elements of a block.
    pub const fn elements(self) -> u32 {
        if self.0 == Self::WIDE.0 { THREADS * WIDE } else { THREADS / self.count() }
    }
}

/// The parts' sums, a dense `[batch, lines, length]` of f32 a part, one part behind the other; and what they
/// become.
#[derive(Debug, Clone, Copy, KernelArgs)]
#[repr(C)]
pub struct PlainSums {
    /// How many parts, at least 1.
    pub count: u32,
    /// Parts of a slice: all, or so many that none lacks a slice.
    pub each: u32,
    /// [`Sharing::code`]. [`Sharing::WIDE`]: lines of C are a multiple of [`WIDE`] elements that lie side by
    /// side, and begin at multiples of so many.
    pub sharing: u32,
    /// Elements of a line, and of a matrix: at most 2^31.
    pub length: u32,
    /// See `length`.
    pub elements: u32,
    /// Matrices of C.
    pub batch: u32,
    /// Factor of the sums.
    pub alpha: f32,
    /// Factor of source C; 0: it is not read.
    pub beta: f32,
    /// C, with its lines as rows.
    pub c: Layout,
    /// Factors of the sums, and of what is stored, on the device; null: 1.
    pub scale_a: *const f32,
    /// See `scale_a`.
    pub scale_b: *const f32,
    /// See `scale_a`.
    pub scale_c: *const f32,
}

/// `C = scale_c * (alpha * scale_a * scale_b * sum of the parts + beta * C)`.
///
/// # Safety
/// `sums` has `count * batch * elements` elements; `C` and the factors are valid as [`PlainSums`] says of
/// them, and C's elements do not overlap. Blocks of [`THREADS`] threads along x, for [`Sharing::elements`]
/// each, and along z one for each matrix of C.
#[kernel(launch_bounds(THREADS, RESIDENT))]
pub unsafe fn gemm_sum_parts_plain(of: PlainSums, sums: *const f32, c: *mut u8) {
    grid::launch_dependents();
    let of = &of;
    // SAFETY: the caller's contract.
    unsafe {
        if of.sharing == Sharing::WIDE.code() {
            wide(of, sums, c);
        } else {
            sliced(of, sums, c);
        }
    }
}

impl PlainSums {
    /// Where an element of C lies.
    #[inline(always)]
    fn place(&self, element: u32) -> usize {
        // `max` is for the compiler, which sees a division by 0.
        let (line, along) = (element / self.length.max(1), element % self.length.max(1));
        let Layout { row, column, batch, .. } = self.c;
        let place = u64::from(thread::block_idx_z()) * batch + u64::from(line) * row;
        (place + u64::from(along) * column) as usize
    }

    /// Where the sums of an element begin, and from a part's to the next.
    #[inline(always)]
    fn sums(&self, sums: *const f32, element: u32) -> (*const f32, usize) {
        let each = self.elements as usize;
        let first = thread::block_idx_z() as usize * each + element as usize;
        (sums.wrapping_add(first), self.batch as usize * each)
    }

    /// The factors of sums and of what is stored.
    ///
    /// # Safety
    /// They are valid.
    #[inline(always)]
    unsafe fn factors(&self) -> [f32; 2] {
        // SAFETY: null, or one number.
        unsafe { [self.alpha * scale(self.scale_a) * scale(self.scale_b), scale(self.scale_c)] }
    }
}

/// An element a thread, of a slice's parts.
///
/// # Safety
/// As for the kernel.
#[inline(always)]
unsafe fn sliced(of: &PlainSums, sums: *const f32, c: *mut u8) {
    let base = shared::address_of(shared_array![f32; THREADS as usize]);
    let (thread, width) = (thread::thread_idx_x(), THREADS >> of.sharing);
    let (slice, within) = (thread / width.max(1), thread & (width - 1));
    let element = thread::block_idx_x() * width + within;
    let is_there = element < of.elements;
    let place = of.place(element);
    let (from, apart) = of.sums(sums, element);
    let first = slice * of.each;
    let mut from = from.wrapping_add(first as usize * apart);
    let left = of.count.saturating_sub(first).min(of.each);
    let mut left = if is_there { left } else { 0 };
    wait_behind(place as u32 ^ from as usize as u32);
    let mut sum = 0.0;
    while left > 0 {
        let mut loaded = [0.0; LOADS as usize];
        const { assert!(LOADS == 8, "counted out") };
        unroll!(I in 0..8, {
            // SAFETY: the caller's contract, where there is such a part.
            loaded[I] = unsafe { vector::load_if(from, (I as u32) < left) };
            from = from.wrapping_add(apart);
        });
        unroll!(I in 0..8, { sum += loaded[I]; });
        left = left.saturating_sub(LOADS);
    }
    if of.sharing > 0 {
        // SAFETY: inside of the array; a barrier parts the thread's write from the reads.
        unsafe {
            vector::store_shared(base + thread * F32, sum);
            thread::sync_threads();
            const { assert!(Sharing::MOST_SLICES == 8, "counted out") };
            unroll!(I in 0..8, {
                let other = I as u32 * width + within;
                if slice == 0 && I > 0 && other < THREADS {
                    let other: f32 = vector::load_shared(base + other * F32);
                    sum += other;
                }
            });
        }
    }
    if slice == 0 && is_there {
        // SAFETY: an element of C that is this thread's alone; the caller's word for the rest.
        unsafe {
            let [alpha, scale] = of.factors();
            let mut v = alpha * sum;
            if of.beta != 0.0 {
                v = fastmath::fma(of.beta, load(c, of.c.ty, place), v);
            }
            store(c, of.c.ty, place, v * scale);
        }
    }
}

/// [`WIDE`] neighbours a thread, of all parts.
///
/// # Safety
/// As for the kernel, with [`Sharing::WIDE`].
#[inline(always)]
unsafe fn wide(of: &PlainSums, sums: *const f32, c: *mut u8) {
    let element = (thread::block_idx_x() * THREADS + thread::thread_idx_x()) * WIDE;
    let place = of.place(element);
    let (mut from, apart) = of.sums(sums, element);
    wait_behind(place as u32 ^ from as usize as u32);
    if element >= of.elements {
        return;
    }
    let (mut sum, mut left) = ([0.0; WIDE as usize], of.count);
    // SAFETY: the caller's contract: there are these parts, of whole numbers of neighbours.
    unsafe {
        while left >= WIDE_LOADS {
            from = add::<{ WIDE_LOADS as usize }>(&mut sum, from, apart);
            left -= WIDE_LOADS;
        }
        const { assert!(WIDE_LOADS == 4, "counted out") };
        if left == 3 {
            add::<3>(&mut sum, from, apart);
        } else if left == 2 {
            add::<2>(&mut sum, from, apart);
        } else if left == 1 {
            add::<1>(&mut sum, from, apart);
        }
        let [alpha, scale] = of.factors();
        let mut v = sum.map(|sum| alpha * sum);
        if of.beta != 0.0 {
            let source = Four::load(c, of.c.ty, place).widen(of.c.ty);
            unroll!(I in 0..4, { v[I] = fastmath::fma(of.beta, source[I], v[I]); });
        }
        Four::store(c, of.c.ty, place, v.map(|v| v * scale));
    }
}

/// Adds so many parts of neighbours, whose loads are under way together; where the next part lies.
///
/// # Safety
/// There are so many, at multiples of 16 bytes.
#[inline(always)]
unsafe fn add<const COUNT: usize>(
    sum: &mut [f32; WIDE as usize],
    mut from: *const f32,
    apart: usize,
) -> *const f32 {
    let mut loaded = [[0.0f32; WIDE as usize]; COUNT];
    const { assert!(COUNT <= 4 && WIDE == 4, "counted out") };
    unroll!(I in 0..4, {
        if I < COUNT {
            // SAFETY: the caller's contract.
            loaded[I] = unsafe { vector::load_v4(from) };
            from = from.wrapping_add(apart);
        }
    });
    unroll!(I in 0..4, {
        if I < COUNT {
            unroll!(J in 0..4, { sum[J] += loaded[I][J]; });
        }
    });
    from
}
