//! From global memory into a stage: where units of 16 bytes go, and the copies.
//!
//! A stage of an operand holds some *lines* (rows of A, columns of B) by 64 bytes of k, in one of two ways:
//!
//! ```text
//!  along k    two lines of 64 bytes in each 128 bytes, whose 8 units change places from one 128 bytes to the next
//!  across     for each k the lines' elements side by side, units change places from one k to the next
//! ```

use super::Element;
use cuda_std::{async_copy, thread, vector};
use layout::{UNIT_BYTES, swizzle_units};

/// Units of a line along k.
pub const UNITS: u32 = super::STAGE_K_BYTES / UNIT_BYTES;
const LINE_PAIR_BYTES: u32 = 2 * super::STAGE_K_BYTES;

/// Offset in a stage, along k, of unit `unit` of line `line`.
#[inline(always)]
pub const fn place_along(line: u32, unit: u32) -> u32 {
    let (pair, unit) = (line / 2, line % 2 * UNITS + unit);
    pair * LINE_PAIR_BYTES + swizzle_units(unit, pair) * UNIT_BYTES
}

/// Offset in a stage, across, of unit `unit` of the `lines` lines at `k`.
///
/// Rows of a matrix of `ldmatrix` are eight successive k. Of 32-bit elements, lanes load four successive k of
/// eight lines, two units: there every k moves units by two.
#[inline(always)]
pub const fn place_across<E: Element>(k: u32, unit: u32, lines: u32) -> u32 {
    let turn = if E::BYTES == 4 { 2 * k } else { k };
    k * lines * E::BYTES + swizzle_units(unit, turn) * UNIT_BYTES
}

/// The lines of one matrix that a block multiplies: `first` and those behind it, of `count`, each of `depth`
/// elements.
#[derive(Clone, Copy)]
pub struct Lines {
    base: *const u8,
    /// Elements from a line to the next.
    line: u64,
    /// Elements along a line from one to the next.
    step: u64,
    first: u32,
    count: u32,
    depth: u32,
    /// Units can be copied whole.
    aligned: bool,
}

impl Lines {
    /// Lines of matrix `index` of a batch whose matrices lie `batch` elements apart; `[line, step]` strides.
    #[inline(always)]
    pub fn new<E: Element, const ACROSS: bool>(
        base: *const u8,
        batch: u64,
        index: u32,
        [line, step]: [u64; 2],
        first: u32,
        count: u32,
        depth: u32,
    ) -> Self {
        let bytes = u64::from(E::BYTES);
        let base = base.wrapping_add((batch * u64::from(index) * bytes) as usize);
        let (contiguous, other) = if ACROSS { (line, step) } else { (step, line) };
        let unit = u64::from(UNIT_BYTES);
        let aligned = contiguous == 1 && (base as u64 | (other * bytes)).is_multiple_of(unit);
        Self { base, line, step, first, count, depth, aligned }
    }

    /// Starts this thread's copies of `lines` lines, elements `k` and on, into the stage at the shared
    /// address `stage`; zeros outside of the matrix.
    ///
    /// # Safety
    /// Nobody uses the stage; the matrix is readable. `threads` threads call it.
    #[inline(always)]
    pub unsafe fn copy<E: Element, const ACROSS: bool>(self, stage: u32, lines: u32, k: u32, threads: u32) {
        // Units side by side in memory go to threads side by side.
        let units = if ACROSS { lines / E::UNIT } else { UNITS };
        let (unit, row) = (thread::thread_idx_x() % units, thread::thread_idx_x() / units);
        let (rows, rows_at_once) = (if ACROSS { E::DEPTH } else { lines }, threads / units);
        for i in 0..rows / rows_at_once {
            let row = row + i * rows_at_once;
            // SAFETY: the caller's contract; the unit's place is inside of the stage, and this thread's
            // alone.
            unsafe {
                if ACROSS {
                    let to = stage + place_across::<E>(row, unit, lines);
                    let (line, k) = (self.first + unit * E::UNIT, k + row);
                    let left = if k < self.depth { self.count.saturating_sub(line) } else { 0 };
                    self.copy_unit::<E>(to, line, k, left, self.line);
                } else {
                    let to = stage + place_along(row, unit);
                    let (line, k) = (self.first + row, k + unit * E::UNIT);
                    let left = if line < self.count { self.depth.saturating_sub(k) } else { 0 };
                    self.copy_unit::<E>(to, line, k, left, self.step);
                }
            }
        }
    }

    /// One unit: the element of `line` at `k` and those that follow at distances of `stride`, of which `left`
    /// are in the matrix.
    ///
    /// # Safety
    /// * `base` is valid for reads of `left` elements from that one on, at distances of `stride`; if
    ///   `aligned`, at a 16-byte boundary.
    /// * `to` is the shared address of a unit that no other thread uses.
    #[inline(always)]
    unsafe fn copy_unit<E: Element>(self, to: u32, line: u32, k: u32, left: u32, stride: u64) {
        let place = u64::from(line) * self.line + u64::from(k) * self.step;
        let elements = if left < E::UNIT { left } else { E::UNIT };
        // SAFETY: `elements` elements from there on are in the matrix, which the caller vouches for; without
        // any nothing is read, and elements lie at multiples of their size.
        unsafe {
            if self.aligned {
                let from = if elements == 0 {
                    self.base
                } else {
                    self.base.add((place * u64::from(E::BYTES)) as usize)
                };
                async_copy::copy_cg_zfill(to, from, elements * E::BYTES);
            } else if E::BYTES == 4 {
                let first = self.base.cast::<u32>();
                for i in 0..4 {
                    let (from, bytes) = if i < elements {
                        (first.add((place + u64::from(i) * stride) as usize), E::BYTES)
                    } else {
                        (first, 0)
                    };
                    async_copy::copy_ca_zfill::<4, u32>(to + i * E::BYTES, from, bytes);
                }
            } else {
                let from = self.base.cast::<u16>();
                let mut words = [0; 4];
                for i in 0..8 {
                    if (i as u32) < elements {
                        let half = *from.add((place + i as u64 * stride) as usize);
                        words[i / 2] |= u32::from(half) << (16 * (i % 2));
                    }
                }
                vector::store_shared_v4(to, words);
            }
        }
    }
}
