//! Accumulators of `wgmma` as what they mean here: scores, weights and results of a consumer's 64 queries.
//!
//! A thread has two rows, 8 apart, and of each the columns `8 j + 2 q` and `8 j + 2 q + 1` with
//! `q = lane % 4`; see [`cuda_std::wgmma`].

use cuda_std::misc::permute_bytes;
use cuda_std::wgmma::{self, Accumulator, Operand};
use cuda_std::{matrix, vector};
use layout::wgmma::{K_BYTES, Swizzle, advance, descriptor, units};
use primitives::tma::LINE_BYTES;
use primitives::unroll;
use primitives::wgmma::Element16;

use super::config::BOX_COLUMNS;

/// A thread's part of 64 rows.
pub trait Fragment: Accumulator + Copy + AsRef<[f32]> + AsMut<[f32]> {}

impl<Acc: Accumulator + Copy + AsRef<[f32]> + AsMut<[f32]>> Fragment for Acc {}

/// All zero. (Not a loop: the compiler would keep the numbers in memory.)
#[inline(always)]
pub fn zero<F: Fragment>() -> F {
    // SAFETY: accumulators are arrays of f32, for which all bits zero is a value.
    unsafe { core::mem::zeroed() }
}

/// Steps of 8 columns of a fragment.
#[inline(always)]
pub const fn steps<F: Fragment>() -> usize {
    (F::N / 8) as usize
}

/// Steps of 8 columns, of which a word has a bit for each of a thread's two columns.
pub const WORD_STEPS: usize = 16;
/// Columns of a word's steps.
pub const WORD_COLUMNS: u32 = 8 * WORD_STEPS as u32;

/// Which of a thread's columns of a row lie in `first..end`, a bit each. `column` is the first of them, and
/// there are two of every eight. The assembler moves bits to predicates seven at a time.
#[inline(always)]
#[must_use]
pub fn in_row(first: u32, end: u32, column: u32) -> u32 {
    let below = |end: u32| {
        let end = end.saturating_sub(column);
        let bits = end / 8 * 2 + (end % 8).min(2);
        if bits < 32 { (1 << bits) - 1 } else { u32::MAX }
    };
    below(end) & !below(first)
}

/// Elements of k of one instruction.
pub const STEP: u32 = 16;
/// Most steps of a right operand that is not contiguous along k.
const MAX_STEPS: usize = 16;
/// Steps of a box whose lines are k.
const BOX_STEPS: usize = (LINE_BYTES / K_BYTES) as usize;

/// A left operand in registers: 64 rows of a [`Fragment`], rounded, four registers for 16 columns.
#[derive(Clone, Copy)]
pub struct Rounded([[u32; 4]; MAX_STEPS]);

impl Rounded {
    /// Nothing.
    #[inline(always)]
    pub const fn zero() -> Self {
        Self([[0; 4]; MAX_STEPS])
    }

    /// Keeps the compiler from moving writes of the registers behind this place.
    #[inline(always)]
    pub fn fence<F: Fragment>(&mut self) {
        unroll!(INDEX in 0..16, {
            if INDEX < steps::<F>() / 2 {
                wgmma::fence_operand(&mut self.0[INDEX]);
            }
        });
    }

    /// Rounds a fragment to the element type.
    #[inline(always)]
    pub fn set<E: Element16, F: Fragment>(&mut self, values: &F) {
        let x = values.as_ref();
        unroll!(INDEX in 0..16, {
            if INDEX < steps::<F>() / 2 {
                unroll!(PAIR in 0..4, {
                    let first = 8 * INDEX + 2 * PAIR;
                    self.0[INDEX][PAIR] = E::pack(x[first], x[first + 1]);
                });
            }
        });
    }

    /// Rounds two neighbours, of which the fragment has this many before them.
    #[inline(always)]
    pub fn set_pair<E: Element16>(&mut self, pair: usize, low: f32, high: f32) {
        self.0[pair / 4][pair % 4] = E::pack(low, high);
    }

    /// Clears all but those of a row's elements whose bit is set, of up to 128 columns.
    #[inline(always)]
    pub fn keep<F: Fragment>(&mut self, bits: [u32; 2]) {
        unroll!(INDEX in 0..8, {
            if INDEX < steps::<F>() / 2 {
                unroll!(PAIR in 0..4, {
                    let two = bits[PAIR % 2] >> (4 * INDEX + PAIR / 2 * 2);
                    let (low, high) = ((two & 1).wrapping_neg(), (two >> 1 & 1).wrapping_neg());
                    self.0[INDEX][PAIR] &= low & 0xffff | high << 16;
                });
            }
        });
    }

    /// Clears all but the elements that [`of_queries`](crate::dropout::Dropout::of_queries) keeps, of up to
    /// 128 columns.
    #[inline(always)]
    pub fn keep_drawn<F: Fragment>(&mut self, bits: [u32; 2]) {
        // Eight times the top bits of bytes 1 of both words, and of bytes 3.
        const NEAR: u32 = 0xdd99;
        const FAR: u32 = 0xffbb;
        unroll!(INDEX in 0..8, {
            if INDEX < steps::<F>() / 2 {
                unroll!(ROW in 0..2, {
                    // The words of even keys and of odd ones.
                    let even = bits[ROW] << (steps::<F>() - 1 - 2 * INDEX);
                    let odd = bits[ROW] << (steps::<F>() - 2 - 2 * INDEX);
                    self.0[INDEX][ROW] &= permute_bytes::<NEAR>(even, odd);
                    self.0[INDEX][2 + ROW] &= permute_bytes::<FAR>(even, odd);
                });
            }
        });
    }

    /// Writes it to shared memory as it lies in registers: 16 bytes for 16 columns, `stride` bytes apart.
    ///
    /// # Safety
    /// Nothing else uses the places.
    #[inline(always)]
    pub unsafe fn write_registers<F: Fragment>(&self, to: u32, stride: u32) {
        unroll!(INDEX in 0..16, {
            if INDEX < steps::<F>() / 2 {
                // SAFETY: the caller's contract.
                unsafe { vector::store_shared_v4(to + INDEX as u32 * stride, self.0[INDEX]) }
            }
        });
    }

    /// Reads it there.
    ///
    /// # Safety
    /// It has been written.
    #[inline(always)]
    pub unsafe fn read_registers<F: Fragment>(&mut self, from: u32, stride: u32) {
        unroll!(INDEX in 0..16, {
            if INDEX < steps::<F>() / 2 {
                // SAFETY: the caller's contract.
                self.0[INDEX] = unsafe { vector::load_shared_v4(from + INDEX as u32 * stride) };
            }
        });
    }

    /// Writes so many boxes from this one on, as [`write`](Self::write) does, to where the first one lies.
    ///
    /// # Safety
    /// As for [`write`](Self::write).
    #[inline(always)]
    pub unsafe fn write_boxes(&self, [first, count]: [u32; 2], to: u32, box_bytes: u32, thread: u32) {
        let (lane, warp) = (thread % 32, thread / 32);
        let row = warp * 16 + lane % 16;
        let line = to + row * LINE_BYTES;
        unroll!(INDEX in 0..16, {
            let of_box = INDEX as u32 * STEP / BOX_COLUMNS;
            if of_box >= first && of_box < first + count {
                let column = INDEX as u32 * STEP - first * BOX_COLUMNS;
                let unit = lane / 16 + column % BOX_COLUMNS / 8;
                let place = (unit ^ (row % 8)) * layout::UNIT_BYTES;
                let address = line + column / BOX_COLUMNS * box_bytes + place;
                // SAFETY: the caller's word; a line of a box.
                unsafe { matrix::stmatrix_x4(address, self.0[INDEX]) }
            }
        });
    }

    /// Reads it where [`write`](Self::write), or the copy engine, has written it.
    ///
    /// # Safety
    /// The whole warp calls it, `thread` being the number in the warpgroup; the lines have been written.
    #[inline(always)]
    pub unsafe fn read<F: Fragment>(&mut self, from: u32, box_bytes: u32, thread: u32) {
        let address = unit_address(from, box_bytes, thread);
        unroll!(INDEX in 0..16, {
            if INDEX < steps::<F>() / 2 {
                // SAFETY: the caller's word; a line of a box.
                self.0[INDEX] = unsafe { matrix::ldmatrix_x4(address(INDEX)) };
            }
        });
    }

    /// Two neighbours, of which the fragment has this many before them.
    #[inline(always)]
    pub fn pair<E: Element16>(&self, pair: usize) -> [f32; 2] {
        E::unpack(self.0[pair / 4][pair % 4])
    }

    /// Writes it to shared memory as the copy engine would: boxes of 64 columns, `box_bytes` apart, with a
    /// swizzle of 128 bytes. `to` is the warpgroup's first line of the first box.
    ///
    /// # Safety
    /// The whole warp calls it, `thread` being the number in the warpgroup; nothing else uses the lines.
    #[inline(always)]
    pub unsafe fn write<F: Fragment>(&self, to: u32, box_bytes: u32, thread: u32) {
        let address = unit_address(to, box_bytes, thread);
        unroll!(INDEX in 0..16, {
            if INDEX < steps::<F>() / 2 {
                // SAFETY: the caller's word; a line of a box.
                unsafe { matrix::stmatrix_x4(address(INDEX), self.0[INDEX]) }
            }
        });
    }
}

/// Addresses of the thread's units, by 16 columns of a fragment, in boxes `box_bytes` apart. The first line
/// of the first box is at `first`. A warp's lanes are as `ldmatrix` and `stmatrix` want them: rows 0 to 7,
/// rows 8 to 15, then 8 columns on.
#[inline(always)]
fn unit_address(first: u32, box_bytes: u32, thread: u32) -> impl Fn(usize) -> u32 {
    let (lane, warp) = (thread % 32, thread / 32);
    let row = warp * 16 + lane % 16;
    let line = first + row * LINE_BYTES;
    let (unit, flip) = (lane / 16, row % 8);
    move |index| {
        let column = index as u32 * STEP;
        let unit = unit + column % BOX_COLUMNS / 8;
        line + column / BOX_COLUMNS * box_bytes + (unit ^ flip) * layout::UNIT_BYTES
    }
}

/// An operand in boxes of 64 columns, as the copy engine writes them.
#[derive(Clone, Copy)]
pub struct Boxes {
    /// Shared address of the first line.
    pub first: u32,
    /// Bytes from a box to the next.
    pub stride: u32,
}

impl Boxes {
    /// In a block of a cluster, where shared addresses have higher bits than a descriptor has room for.
    #[inline(always)]
    pub const fn in_cluster(first: u32, stride: u32) -> Self {
        Self { first: units(first) * layout::UNIT_BYTES, stride }
    }

    /// The descriptor. The stride counts where the columns are not k.
    #[inline(always)]
    const fn descriptor(self) -> u64 {
        advance(descriptor(0, self.stride, Swizzle::B128.period(), Swizzle::B128), self.first)
    }
}

/// Starts `acc = A B^T`, or `acc += A B^T` with `ADD`, of operands whose columns, `columns` of them, are k:
/// 128 bytes a box.
///
/// # Safety
/// As for [`wgmma::mma`]; A has 64 lines, B as many as the accumulator has columns.
#[inline(always)]
pub unsafe fn multiply<E: Operand, F: Fragment, const ADD: bool>(
    acc: &mut F,
    a: Boxes,
    b: Boxes,
    columns: u32,
) {
    let (start_a, start_b) = (a.descriptor(), b.descriptor());
    unroll!(INDEX in 0..16, {
        if INDEX < (columns * E::TYPE.bytes() / K_BYTES) as usize {
            let (piece, inside) = ((INDEX / BOX_STEPS) as u32, (INDEX % BOX_STEPS) as u32 * K_BYTES);
            let a = advance(start_a, piece * a.stride + inside);
            let b = advance(start_b, piece * b.stride + inside);
            // SAFETY: the caller's contract.
            unsafe {
                if INDEX == 0 && !ADD {
                    wgmma::mma_overwrite::<E, E, F, 0, 0>(acc, a, b);
                } else {
                    wgmma::mma::<E, E, F, 0, 0>(acc, a, b, true);
                }
            }
        }
    });
}

/// Starts `acc = A B^T`, where columns of B are k, as many as `G` has, which are those of A.
///
/// # Safety
/// As for [`wgmma::mma_ra_overwrite`]; B has as many lines as the accumulator has columns.
#[inline(always)]
pub unsafe fn multiply_kept<E: Operand, G: Fragment, F: Fragment>(acc: &mut F, a: &Rounded, b: Boxes) {
    let start = b.descriptor();
    unroll!(INDEX in 0..16, {
        if INDEX < steps::<G>() / 2 {
            let (piece, inside) = ((INDEX / BOX_STEPS) as u32, (INDEX % BOX_STEPS) as u32 * K_BYTES);
            let b = advance(start, piece * b.stride + inside);
            // SAFETY: the caller's contract.
            unsafe {
                if INDEX == 0 {
                    wgmma::mma_ra_overwrite::<E, E, F, 0>(acc, &a.0[INDEX], b);
                } else {
                    wgmma::mma_ra::<E, E, F, 0>(acc, &a.0[INDEX], b, true);
                }
            }
        }
    });
}

/// Starts `acc = A B`, or `acc += A B` with `accumulate`, where lines of B are k; A has the columns of `G`.
///
/// # Safety
/// As for [`wgmma::mma_ra`]; B has a line for each column of `G`.
#[inline(always)]
pub unsafe fn multiply_rounded<E: Operand, G: Fragment, F: Fragment>(
    acc: &mut F,
    a: &Rounded,
    b: Boxes,
    accumulate: bool,
) {
    let start = b.descriptor();
    unroll!(INDEX in 0..16, {
        if INDEX < steps::<G>() / 2 {
            let b = advance(start, INDEX as u32 * STEP * LINE_BYTES);
            // SAFETY: the caller's contract.
            unsafe { wgmma::mma_ra::<E, E, F, 1>(acc, &a.0[INDEX], b, INDEX != 0 || accumulate) }
        }
    });
}

/// Starts `acc = A^T B`, or `acc += A^T B` with `ADD`, of operands whose lines, `lines` of them, are k.
///
/// # Safety
/// As for [`wgmma::mma`]; A has 64 columns, B as many as the accumulator.
#[inline(always)]
pub unsafe fn multiply_lines<E: Operand, F: Fragment, const ADD: bool>(
    acc: &mut F,
    a: Boxes,
    b: Boxes,
    lines: u32,
) {
    let (start_a, start_b) = (a.descriptor(), b.descriptor());
    unroll!(INDEX in 0..16, {
        if INDEX < (lines / STEP) as usize {
            let bytes = INDEX as u32 * STEP * LINE_BYTES;
            let (a, b) = (advance(start_a, bytes), advance(start_b, bytes));
            // SAFETY: the caller's contract.
            unsafe {
                if INDEX == 0 && !ADD {
                    wgmma::mma_overwrite::<E, E, F, 1, 1>(acc, a, b);
                } else {
                    wgmma::mma::<E, E, F, 1, 1>(acc, a, b, true);
                }
            }
        }
    });
}

/// Multiplies each of the thread's two rows by its factor.
#[inline(always)]
pub fn scale_rows<F: Fragment>(fragment: &mut F, factors: [f32; 2]) {
    let values = fragment.as_mut();
    unroll!(INDEX in 0..32, {
        if INDEX < steps::<F>() {
            unroll!(I in 0..4, { values[4 * INDEX + I] *= factors[I / 2]; });
        }
    });
}

#[cfg(test)]
mod tests {
    use super::in_row;

    /// Against asking for each of a thread's 32 columns.
    #[test]
    fn bits_are_the_columns_in_the_range() {
        let first_column = 130;
        let column = |bit: u32| first_column + bit / 2 * 8 + bit % 2;
        for first in 120..270 {
            for end in [first - 1, first, first + 1, first + 9, first + 30, 300] {
                let want = (0..32).filter(|&bit| (first..end).contains(&column(bit)));
                let want = want.fold(0, |bits, bit| bits | 1 << bit);
                assert_eq!(in_row(first, end, first_column), want, "{first}..{end}");
            }
        }
    }
}
