//! A matrix as numbers in E4M3 with a factor for each part of it (DeepSeek-V3, technical report, 2024,
//! section 3.3.2): what products with factors for blocks take.
//!
//! ```text
//!   tiles    1 x 128 elements     a factor each
//!   blocks   128 x 128 elements   a factor each
//! ```
//! A block of threads has 128 x 128 elements, all of whose vectors are under way at a time; [`lanes`]
//! neighbouring threads take 128 columns of a row. Vectors stay in registers from their load until
//! their numbers are stored, so memory is read once. Rows that are no whole vectors at aligned places are
//! read element by element, twice.
//!
//! A factor is the largest magnitude of its part by 448, the largest E4M3 number. A number is `x / factor` in
//! f32, rounded to the nearest, ties to even. That is so to the last bit: see `quotients`.

use crate::access::{self, VECTOR_BYTES, Words};
use crate::convert::e4m3;
use cuda_std::{fastmath, kernel, misc, shared_array, thread, vector};
use half::{bf16, f16};
use layout::Divisor;
use num::E4M3;
use primitives::element::{InF32, map};
use primitives::grid::begin;
use primitives::op::Max;
use primitives::{block, unroll, warp};

/// Columns that share a factor, and rows of a block that do.
pub const BLOCK: u32 = 128;
/// Rows of a block that a thread takes, whose vectors are under way at a time.
pub const VECTORS: u32 = 8;

/// How matrices lie, and how they are cut. Columns are neighbours; the numbers are dense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Cut {
    /// Elements from a matrix of the operand to the next.
    pub matrix: u64,
    /// Elements from a row of the operand to the next.
    pub row: u64,
    /// Rows of a matrix.
    pub rows: u32,
    /// Columns.
    pub columns: u32,
    /// Blocks along a row.
    pub across: Divisor,
    /// Blocks along a column.
    pub down: Divisor,
    /// 1 when all rows of operand and numbers are whole vectors at aligned places, else 0.
    pub is_wide: u32,
}

/// Threads that take a tile of elements of this size.
pub const fn lanes(size: usize) -> u32 {
    BLOCK / (VECTOR_BYTES / size) as u32
}

/// Threads of a block for a block of elements of this size.
pub const fn threads(size: usize) -> u32 {
    BLOCK / VECTORS * lanes(size)
}

/// Blocks for blocks that a multiprocessor holds: with 64 registers a thread all elements stay in registers.
const fn resident(size: usize) -> u32 {
    1024 / threads(size)
}

/// The same for tiles: of 16 bits fewer, since before Hopper the conversion to E4M3 wants more registers
/// beside their factors.
const fn resident_of_tiles(size: usize) -> u32 {
    (3 * resident(size)).div_ceil(4)
}

/// 128 columns of a row, or those up to its end.
#[derive(Clone, Copy)]
struct Line {
    /// The place of the first element in the operand.
    from: u64,
    /// Its number's place.
    to: u64,
    /// Columns; none where the line does not exist.
    width: u32,
}

impl Line {
    /// From a column on.
    #[inline(always)]
    fn new(cut: &Cut, [matrix, row, column]: [u32; 3]) -> Self {
        let [matrix, row, column] = [matrix.into(), row.into(), u64::from(column)];
        Line {
            from: matrix * cut.matrix + row * cut.row + column,
            to: (matrix * u64::from(cut.rows) + row) * u64::from(cut.columns) + column,
            width: (cut.columns - column as u32).min(BLOCK),
        }
    }

    /// So many rows further down than this line, which has this row.
    #[inline(always)]
    fn below(self, cut: &Cut, rows: u32, row: u32) -> Self {
        let rows = (rows, u64::from(rows));
        Line {
            from: self.from + rows.1 * cut.row,
            to: self.to + rows.1 * u64::from(cut.columns),
            width: if row + rows.0 < cut.rows { self.width } else { 0 },
        }
    }

    /// Column `i` of a lane: neighbours when lines are wide, else those of one access of all lanes.
    #[inline(always)]
    fn column<const N: usize, const WIDE: bool>(lane: u32, i: usize) -> u32 {
        if WIDE { lane * N as u32 + i as u32 } else { lane + i as u32 * (BLOCK / N as u32) }
    }

    /// The lane's vector of a wide line, zeros where there is none. Elements of others are read where they
    /// are wanted.
    ///
    /// # Safety
    /// The operand is readable for the line; wide lines are whole vectors at aligned places.
    #[inline(always)]
    unsafe fn load<T: InF32, const N: usize, const WIDE: bool>(self, x: *const T, lane: u32) -> Words {
        let column = Self::column::<N, WIDE>(lane, 0);
        if WIDE && column < self.width {
            // SAFETY: the caller's promise; a column of the line.
            unsafe { access::load_words(x.wrapping_add(self.from as usize).add(column as usize)) }
        } else {
            Words::default()
        }
    }

    /// The lane's elements, those of a vector that [`load`](Self::load) gave; zeros where there are none.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    unsafe fn elements<T: InF32, const N: usize, const WIDE: bool>(
        self,
        x: *const T,
        lane: u32,
        words: Words,
    ) -> [f32; N] {
        if WIDE {
            return T::widen(vector::from_words::<T, N>(words));
        }
        let (x, mut values) = (x.wrapping_add(self.from as usize), [T::ZERO; N]);
        unroll!(I in 0..8, {
            let column = Self::column::<N, WIDE>(lane, I);
            if I < N && column < self.width {
                // SAFETY: the caller's promise; a column of the line.
                values[I] = unsafe { *x.add(column as usize) };
            }
        });
        T::widen(values)
    }

    /// Stores the numbers of the lane's elements.
    ///
    /// # Safety
    /// As for [`load`](Self::load), and of the numbers, for writing.
    #[inline(always)]
    unsafe fn store<T: InF32, const N: usize, const WIDE: bool>(
        self,
        (x, y): (*const T, *mut E4M3),
        lane: u32,
        words: Words,
        factor: f32,
    ) {
        let y = y.wrapping_add(self.to as usize);
        let at = |i| Self::column::<N, WIDE>(lane, i);
        // SAFETY: the caller's promise; columns are those of the line.
        unsafe {
            // Widened again: all elements as `largest` had them would be twice as many registers.
            let values = self.elements::<T, N, WIDE>(x, lane, map(words, misc::opaque));
            let numbers = e4m3(quotients(values, factor));
            if WIDE {
                if at(0) < self.width {
                    access::store(y.add(at(0) as usize), numbers);
                }
                return;
            }
            unroll!(I in 0..8, {
                if I < N && at(I) < self.width {
                    *y.add(at(I) as usize) = numbers[I];
                }
            });
        }
    }
}

/// The largest magnitude of elements and of what was largest before. NaN gives way to numbers.
#[inline(always)]
fn largest<const N: usize>(mut before: f32, values: [f32; N]) -> f32 {
    for i in 0..N {
        before = fastmath::max(before, values[i].abs());
    }
    before
}

/// The factor of a part, by its largest magnitude: 1 for zeros, a finite number for infinities, and never
/// below the least normal number.
#[inline(always)]
fn factor(largest: f32) -> f32 {
    const MOST: f32 = E4M3::MAX.to_f32();
    let factor = fastmath::max(fastmath::min(largest, f32::MAX) / MOST, f32::MIN_POSITIVE);
    if largest == 0.0 { 1.0 } else { factor }
}

/// The numbers of elements by a factor: `x / factor`, as a division would round it wherever E4M3 can tell.
///
/// A product with the factor's inverse is within two units of the quotient, and the remainder of the division
/// corrects it. E4M3 can tell quotients apart around the numbers of 5 bits alone, which are its own and the
/// middles between them. Around each of these this is a division's quotient for all 2^23 mantissas of a
/// factor and the 7 nearest elements; without the correction one in 13 differs.
#[inline(always)]
fn quotients<const N: usize>(mut x: [f32; N], mut factor: f32) -> [f32; N] {
    /// 2^-90: the last bit of a remainder is 46 below those of factor and quotient, and has to be a number.
    /// (Quotients below 2^-10 become 0.)
    const LEAST: f32 = f32::from_bits((127 - 90) << 23);
    /// 2^119: infinities have a larger factor.
    const MOST: f32 = f32::from_bits((127 + 119) << 23);
    if !(LEAST..=MOST).contains(&factor) {
        let scale = if factor < LEAST { 1.0 / LEAST } else { 1.0 };
        x = map(x, |x| x.clamp(-f32::MAX, f32::MAX) * scale);
        factor *= scale;
    }
    // The quotient's negative is corrected, so that -0 stays -0.
    let inverse = -1.0 / factor;
    map(x, |x| {
        let quotient = x * inverse;
        -fastmath::fma(fastmath::fma(quotient, factor, x), inverse, quotient)
    })
}

/// # Safety
/// As the entry points; `N` elements are 16 bytes. With `slots`, shared memory for a number a warp, a block
/// has one factor, else each of its tiles.
#[inline(always)]
unsafe fn parts<T: InF32, const N: usize, const WIDE: bool>(
    cut: &Cut,
    x: *const T,
    y: *mut E4M3,
    factors: *mut f32,
    slots: Option<*mut f32>,
) {
    const { assert!(VECTORS == 8) };
    let lanes = const { lanes(size_of::<T>()) };
    let (line, lane) = (thread::thread_idx_x() / lanes, thread::thread_idx_x() % lanes);
    let part = thread::block_idx_x();
    let (rest, column) = cut.across.divide(part);
    let (matrix, row) = cut.down.divide(rest);
    let row = row * BLOCK + line;
    let first = Line::new(cut, [matrix, row, column * BLOCK]);
    let at = |i: usize| first.below(cut, i as u32 * (BLOCK / VECTORS), row);
    let mut words = [Words::default(); VECTORS as usize];
    // SAFETY: the caller's promise; a line that does not exist has no columns.
    unsafe {
        unroll!(I in 0..8, {
            words[I] = at(I).load::<T, N, WIDE>(x, lane);
        });
        let Some(slots) = slots else {
            let factors = factors.wrapping_add((u64::from(column) * u64::from(cut.rows)) as usize);
            unroll!(I in 0..8, {
                let largest = largest(0.0, at(I).elements::<T, N, WIDE>(x, lane, words[I]));
                let factor = factor(warp::reduce_sections(Max, largest, lanes));
                at(I).store::<T, N, WIDE>((x, y), lane, words[I], factor);
                let row = row + I as u32 * (BLOCK / VECTORS);
                if lane == 0 && row < cut.rows {
                    *factors.add(row as usize) = factor;
                }
            });
            return;
        };
        let mut of_thread = 0.0;
        unroll!(I in 0..8, {
            of_thread = largest(of_thread, at(I).elements::<T, N, WIDE>(x, lane, words[I]));
        });
        let factor = factor(block::reduce(Max, of_thread, slots));
        unroll!(I in 0..8, {
            at(I).store::<T, N, WIDE>((x, y), lane, words[I], factor);
        });
        if thread::thread_idx_x() == 0 {
            *factors.add(part as usize) = factor;
        }
    }
}

/// The entry points of an element type.
macro_rules! entries {
    ($($tiles:ident, $blocks:ident: $ty:ident;)*) => { $(
        #[doc = concat!("A matrix of ", stringify!($ty), " by tiles of a row and [`BLOCK`] columns.")]
        ///
        /// # Safety
        /// `x` is readable for the rows, `y` has an element for each of theirs and `factors` one for each
        /// tile, `[tiles of a row][rows]`; they do not overlap. There is one matrix, wide as it says. A block
        /// of [`threads`] threads for each block of it.
        #[kernel(launch_bounds(threads(size_of::<$ty>()), resident_of_tiles(size_of::<$ty>())))]
        pub unsafe fn $tiles(cut: Cut, x: *const $ty, y: *mut E4M3, factors: *mut f32) {
            const N: usize = VECTOR_BYTES / size_of::<$ty>();
            begin(|| ());
            // SAFETY: the caller's contract is the same.
            unsafe {
                if cut.is_wide != 0 {
                    parts::<$ty, N, true>(&cut, x, y, factors, None)
                } else {
                    parts::<$ty, N, false>(&cut, x, y, factors, None)
                }
            }
        }

        #[doc = concat!("Matrices of ", stringify!($ty), " by blocks of [`BLOCK`] rows and columns.")]
        ///
        /// # Safety
        /// `x` is readable for the rows, `y` has an element for each of theirs and `factors` one for each
        /// block, `[matrices][down][across]`; they do not overlap. Matrices are wide as it says. A block of
        /// [`threads`] threads for each block of the matrices.
        #[kernel(launch_bounds(threads(size_of::<$ty>()), resident(size_of::<$ty>())))]
        pub unsafe fn $blocks(cut: Cut, x: *const $ty, y: *mut E4M3, factors: *mut f32) {
            const N: usize = VECTOR_BYTES / size_of::<$ty>();
            let slots = begin(|| shared_array![f32; block::slots(threads(size_of::<$ty>()))]);
            // SAFETY: the caller's contract is the same.
            unsafe {
                if cut.is_wide != 0 {
                    parts::<$ty, N, true>(&cut, x, y, factors, Some(slots))
                } else {
                    parts::<$ty, N, false>(&cut, x, y, factors, Some(slots))
                }
            }
        }
    )* };
}

entries! {
    quantize_tiles_f32, quantize_blocks_f32: f32;
    quantize_tiles_f16, quantize_blocks_f16: f16;
    quantize_tiles_bf16, quantize_blocks_bf16: bf16;
}

#[cfg(test)]
mod tests {
    use super::quotients;

    /// Factors of many digits, of those that end in ones above all, and the elements around those whose
    /// quotient E4M3 can tell from its neighbours.
    #[test]
    fn quotients_are_those_of_a_division() {
        const MANTISSAS: u32 = 1 << 23;
        for mantissa in (0..MANTISSAS).step_by(509).chain(MANTISSAS - 300..MANTISSAS) {
            for exponent in [-126, -90, -89, 0, 119] {
                let factor = f32::from_bits(mantissa | ((127 + exponent) as u32) << 23);
                for sixteenths in 16..32u8 {
                    let number = f32::from(sixteenths) / 16.0;
                    let nearest = (number * factor).to_bits();
                    let x: [f32; 8] = core::array::from_fn(|i| f32::from_bits(nearest + i as u32 - 4));
                    let got = quotients(x, factor);
                    for i in 0..x.len() {
                        let (got, want) = (got[i].partial_cmp(&number), (x[i] / factor).partial_cmp(&number));
                        assert_eq!(got, want, "{} / {factor} and {number}", x[i]);
                    }
                }
            }
        }
    }
}
