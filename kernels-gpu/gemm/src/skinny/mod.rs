//! Products with few rows, which are as fast as the right factor comes from memory: `C = epilogue(A B)` in
//! f16, bf16, tf32 or 8 bits, `A: [m, k]` with `m <= 32`.
//!
//! ```text
//!                 B: 16 GROUPS columns                 a block: 8 warps, GROUPS beside each other, the others along k
//!               +------+------+------+------+
//!        k ..   | warp | warp | warp | warp |          stage 0 | copy k=0 | ..     | use k=0 |
//!               |  0   |  1   |  2   |  3   |  DEPTH   stage 1     | copy k=1 | ..     | use k=1 |
//!               +------+------+------+------+          ...
//!               |  4   |  5   |  6   |  7   |          stage 5                     | copy k=5 ..
//!               +------+------+------+------+
//!                       C: sums of 0 and 4, ..         16 KiB of B a stage, five stages under way: 80 KiB a multiprocessor
//! ```
//! * **Factors change places**: columns of B are the 16 rows of `mma.m16n8k16`, rows of A its 8 columns, so
//!   that no row of the tensor cores' tile is wasted on rows that A does not have. Each eight rows take an
//!   instruction for a fragment of B.
//! * **Pipeline.** All threads copy by `cp.async`, 16 bytes at a time, and run ahead over the tiles' borders.
//!   So the sums of a tile hide behind the copies of the next.
//! * **Sums.** Each warp sums its slice of k (64 of every `DEPTH` elements); the slices are added in their
//!   order through shared memory. Results are bitwise repeatable, but depend on `GROUPS`.
//! * **Parts of k.** A batch may be the parts of k of one product, whose sums another kernel adds.
//! * **Width.** Wide blocks read A less often and B in longer pieces, narrow ones share a small result out
//!   better.
//!
//! | order | B lies | limits |
//! |---|---|---|
//! | `nt` | columns contiguous: `[n, k]` row-major | `k` a multiple of 8, for 8-bit factors of 16 |
//! | `nn` | rows contiguous: `[k, n]` row-major | `k` and `n` multiples of 8, of tf32 4 |
//!
//! Rows of A are contiguous, or, but for 8-bit factors, its columns, with `m` a multiple of 8, of tf32 4: it
//! goes to shared memory as it lies. tf32 is an f32 without its low bits, in two words of 16 bits, which
//! `ldmatrix` cannot turn: its fragments are loaded by elements.
//!
//! 8-bit factors become f16 on their way to the tensor cores, which is exact; their kernels are in
//! `sm90::skinny`. What lies otherwise, with odd rows for instance, is left to [`direct`].
//!
//! Every line of A and of B begins at a multiple of 16 bytes; `1 <= m`, `k >= 1`, `n >= 1`, sides at most
//! [`MAX_SIDE`].

mod block;
pub mod direct;
mod shape;

use crate::any::{Epilogue, Place, StridedGemm, TileCoord};
use crate::epilogue::{Activation, EpilogueParams, GroupInputs};
pub(crate) use block::Word;
use block::{Factors, HalfTf32, Mainloop};
use cuda_std::{grid, kernel, shared, thread, vector};
use num::{bf16, f16};
use shape::{GROUP, Partials, Shape, Tile};
pub use shape::{MAX_M, STAGES, THREADS};

/// Evaluates an expression with the shape `$s` of a number of groups and eights of rows that is known at run
/// time. Four eights of a single group find no room.
macro_rules! with_shape {
    ($groups:expr, $eights:expr, |$s:ident| $body:expr) => {
        match ($groups, $eights) {
            (1, 1) => with_shape!(@ $s, 1, 1, $body),
            (1, _) => with_shape!(@ $s, 1, 2, $body),
            (2, 1) => with_shape!(@ $s, 2, 1, $body),
            (2, 2) => with_shape!(@ $s, 2, 2, $body),
            (2, _) => with_shape!(@ $s, 2, 4, $body),
            (4, 1) => with_shape!(@ $s, 4, 1, $body),
            (4, 2) => with_shape!(@ $s, 4, 2, $body),
            (4, _) => with_shape!(@ $s, 4, 4, $body),
            (_, 1) => with_shape!(@ $s, 8, 1, $body),
            (_, 2) => with_shape!(@ $s, 8, 2, $body),
            (_, _) => with_shape!(@ $s, 8, 4, $body),
        }
    };
    (@ $s:ident, $groups:literal, $eights:literal, $body:expr) => {{
        type $s<const ALONG: bool, const WORDS: u32> = Shape<$groups, $eights, ALONG, WORDS>;
        $body
    }};
}

/// Eights of rows of a tile.
const fn eights(m: u32) -> u32 {
    m.div_ceil(shape::ROWS).next_power_of_two()
}

/// Largest `n` or `k`: leaves room to round up to whole tiles in 32 bits.
pub const MAX_SIDE: u32 = 1 << 31;

/// How many columns a block computes at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Width(u32);

impl Width {
    /// Every width, the widest first.
    pub const ALL: [Width; 4] = [Width(8), Width(4), Width(2), Width(1)];

    /// Columns.
    pub const fn columns(self) -> u32 {
        self.0 * GROUP
    }

    /// Groups of columns: kernels take the width by this number.
    pub const fn groups(self) -> u32 {
        self.0
    }

    /// The one of so many columns.
    pub fn of_columns(columns: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|width| width.columns() == columns)
    }

    /// Elements of k of a stage, for elements of so many bytes.
    pub const fn depth(self, bytes: u32) -> u32 {
        shape::WARPS / self.0 * shape::SLICE * shape::WORD_BYTES / bytes
    }

    /// Tiles of a result of `n` columns; more blocks find nothing to do.
    pub const fn tiles(self, n: u32) -> u32 {
        n.div_ceil(self.columns())
    }

    /// Whether there are kernels for `m` rows.
    pub const fn takes(self, m: u32) -> bool {
        self.0 > 1 || m <= 2 * shape::ROWS
    }

    /// Dynamic shared memory of a block for `m` rows.
    pub const fn shared_bytes(self, m: u32) -> u32 {
        with_shape!(self.0, eights(m), |S| S::<true, 1>::SHARED)
    }
}

/// # Safety
/// The contract of the kernels.
#[inline(always)]
pub(crate) unsafe fn run<T: Word, const ALONG_K: bool, const WORDS: u32>(
    gemm: &StridedGemm,
    epilogue: &EpilogueParams,
    [a, b]: [*const u8; 2],
    c: *mut u8,
    groups: u32,
    part: u32,
) {
    const { assert!(ALONG_K || T::BYTES >= shape::WORD_BYTES, "words hold neighbours along k") };
    const { assert!(T::WORDS == WORDS) };
    const { assert!(size_of::<T>() == shape::WORD_BYTES as usize) };
    grid::launch_dependents();
    let StridedGemm { m, n, a: a_layout, b: b_layout, .. } = *gemm;
    let b_pitch = T::words(if ALONG_K { b_layout.column } else { b_layout.row }) as usize;
    // 8-bit factors have several in a word, which nothing here turns. Any stride may be 0.
    let a_down = T::BYTES >= shape::WORD_BYTES && a_layout.column != 1;
    let a_pitch = T::words(if a_down { a_layout.column } else { a_layout.row }) as usize;
    let index = thread::block_idx_z();
    let matrix = |base: *const u8, apart: u64| {
        base.cast::<T>().wrapping_add(T::words(u64::from(index) * apart) as usize)
    };
    let (a, b) = (matrix(a, a_layout.batch), matrix(b, b_layout.batch));
    let depth = if part == 0 { gemm.k } else { part.min(gemm.k - index * part) };
    let k = T::words(u64::from(depth)) as u32;
    let factors: Factors<T> = Factors { m, n, k, a, a_pitch, a_down, b, b_pitch };
    let eights = eights(m);
    let base = shared::address_of(shared::dynamic_shared_mem::<u8>());
    let columns = groups * GROUP;
    let mut column = thread::block_idx_x() * columns;
    let stage_bytes = with_shape!(groups, eights, |S| S::<ALONG_K, WORDS>::STAGE_BYTES);
    let mut mainloop = Mainloop::new(factors, column, base, stage_bytes);
    // SAFETY: the caller's contract. The sums of a tile are read between two barriers: the one here, and the
    // first of the next tile.
    unsafe {
        with_shape!(groups, eights, |S| mainloop.fill::<S<ALONG_K, WORDS>>());
        let epilogue = Epilogue::new(gemm, c, epilogue, GroupInputs::first(epilogue));
        let mut largest = 0;
        while column < n {
            let partials = with_shape!(groups, eights, |S| mainloop.tile::<S<ALONG_K, WORDS>>());
            thread::sync_threads();
            let bits = store(base, partials, [m, n], TileCoord { batch: index, row: 0, column }, epilogue);
            largest = if bits > largest { bits } else { largest };
            column += thread::grid_dim_x() * columns;
        }
        epilogue.raise(largest);
    }
}

/// Makes elements of C of the sums of so many rows of the tile; the bits of the largest magnitude. The loop
/// is not unrolled: what an element goes through is long.
///
/// # Safety
/// The block calls it together, after a barrier; the epilogue's C has these rows, and `n` columns.
#[inline(always)]
unsafe fn store(
    base: u32,
    partials: Partials,
    [rows, n]: [u32; 2],
    TileCoord { batch, row: first_row, column: first }: TileCoord,
    epilogue: Epilogue<'_>,
) -> u32 {
    let activation = epilogue.activation();
    let columns = activation.columns();
    // `max` is for the compiler, which sees a division by 0.
    let width = (partials.columns / columns).max(1);
    let mut largest = 0;
    let mut element = thread::thread_idx_x();
    while element < rows * width {
        let (row, across) = (element / width, element % width * columns);
        element += THREADS;
        let column = first + across;
        if column < n {
            let place = Place { batch, row: first_row + row, column: column / columns };
            // SAFETY: inside of the sums, and of C; an element is one thread's.
            let bits = unsafe {
                let sum = sum(base, partials, row, across);
                match activation {
                    Activation::SwiGlu => {
                        let pair = [sum, self::sum(base, partials, row, across + 1)];
                        epilogue.finish_pair(pair, place, column)
                    }
                    one => epilogue.finish(one, sum, place),
                }
            };
            largest = if bits > largest { bits } else { largest };
        }
    }
    largest
}

/// The slices' sums of an element, added in their order.
///
/// # Safety
/// It is one of the tile.
#[inline(always)]
unsafe fn sum(base: u32, partials: Partials, row: u32, column: u32) -> f32 {
    let mut sum = 0.0;
    let mut slice = 0;
    while slice < partials.slices {
        // SAFETY: inside of the partial sums.
        sum += unsafe { vector::load_shared::<f32>(partials.address(base, slice, row, column)) };
        slice += 1;
    }
    sum
}

/// Kernels of these names, words and orders of B; for modules that have this one's `run` and what it takes.
macro_rules! kernels {
    ($(#[kernel] fn $name:ident: $word:ident, $along_k:literal, $what:literal;)*) => { $(
        #[doc = concat!("`C = epilogue(A B)` for ", $what, "; C, bias and residual are of any type.")]
        ///
        /// # Safety
        /// As for [`gemm_any`](fn@crate::any::gemm_any), within the limits of the module. `groups` is
        /// [`Width::groups`](crate::skinny::Width::groups), with
        /// [`Width::shared_bytes`](crate::skinny::Width::shared_bytes)`(m)` of dynamic shared memory; any
        /// number of blocks along x, those of the batch along z, of [`THREADS`] threads. `part` is 0, or the
        /// batch is the parts of k of one product, as for
        /// [`gemm_skinny_direct_b16`](fn@crate::skinny::direct::gemm_skinny_direct_b16).
        #[kernel(launch_bounds(THREADS, 1))]
        pub unsafe fn $name(
            gemm: StridedGemm,
            epilogue: EpilogueParams,
            a: *const u8,
            b: *const u8,
            c: *mut u8,
            groups: u32,
            part: u32,
        ) {
            // SAFETY: the caller's contract.
            unsafe {
                run::<$word, $along_k, { <$word as $crate::skinny::Word>::WORDS }>(
                    &gemm, &epilogue, [a, b], c, groups, part,
                )
            }
        }
    )* };
}

kernels! {
    #[kernel] fn gemm_skinny_f16_nt: f16, true, "f16 factors with columns of B contiguous";
    #[kernel] fn gemm_skinny_f16_nn: f16, false, "f16 factors with rows of B contiguous";
    #[kernel] fn gemm_skinny_bf16_nt: bf16, true, "bf16 factors with columns of B contiguous";
    #[kernel] fn gemm_skinny_bf16_nn: bf16, false, "bf16 factors with rows of B contiguous";
    #[kernel] fn gemm_skinny_tf32_nn: HalfTf32, false, "f32 factors as tf32 with rows of B contiguous";
}
pub(crate) use kernels;
