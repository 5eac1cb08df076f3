//! From a stage into registers: what `mma` takes.
//!
//! A lane's addresses differ from tile to tile in bits that no carry reaches, so each is the first one with
//! some bits flipped.

use core::marker::PhantomData;

use super::stage::{place_across, place_along};
use super::{Element, STAGE_K_BYTES, STEP_BYTES};
use cuda_std::{matrix, vector, warp};
use layout::UNIT_BYTES;

/// This lane's view of a warp's part of an operand; `ACROSS` as in [`stage`](super::stage).
pub(super) struct Operand<E, const ACROSS: bool> {
    /// Shared address, in the first stage, of what the lane loads first.
    first: u32,
    /// Bytes of a row across.
    row_bytes: u32,
    element: PhantomData<E>,
}

impl<E: Element, const ACROSS: bool> Operand<E, ACROSS> {
    /// Elements of k of an instruction.
    const STEP: u32 = STEP_BYTES / E::BYTES;
    /// Without `ldmatrix`, which transposes 16-bit elements only.
    const BY_WORDS: bool = ACROSS && E::BYTES == 4;

    /// Rows of A from `row` on, in a stage of `lines` lines at `stage`.
    #[inline(always)]
    pub(super) fn left(stage: u32, row: u32, lines: u32) -> Self {
        let lane = warp::lane_id();
        // Of the matrices of an ldmatrix, the second is eight rows down, the third and fourth eight (four) k
        // further.
        let (within, down, along) = (lane % 8, lane / 8 % 2, lane / 16);
        Self::at(stage, row, lines, within, down, along)
    }

    /// Columns of B from `column` on; the matrices' order is the other one.
    #[inline(always)]
    pub(super) fn right(stage: u32, column: u32, lines: u32) -> Self {
        let lane = warp::lane_id();
        let (within, along, down) = (lane % 8, lane / 8 % 2, lane / 16);
        Self::at(stage, column, lines, within, down, along)
    }

    #[inline(always)]
    fn at(stage: u32, line: u32, lines: u32, within: u32, down: u32, along: u32) -> Self {
        let place = if Self::BY_WORDS {
            let (group, k) = (warp::lane_id() / 4, warp::lane_id() % 4);
            place_across::<E>(k, (line + group) / E::UNIT, lines) + group % E::UNIT * E::BYTES
        } else if ACROSS {
            place_across::<E>(8 * along + within, line / E::UNIT + down, lines)
        } else {
            place_along(line + 8 * down + within, along)
        };
        Self { first: stage + place, row_bytes: lines * E::BYTES, element: PhantomData }
    }

    /// Address in the stage `stage` bytes on, at step `step`.
    #[inline(always)]
    fn address(&self, stage: u32, step: usize) -> u32 {
        if ACROSS {
            self.first + stage + step as u32 * Self::STEP * self.row_bytes
        } else {
            (self.first + stage) ^ (step as u32 * STEP_BYTES)
        }
    }

    /// A's fragment of rows `16 tile ..` of the warp.
    ///
    /// # Safety
    /// The warp is here together; the stage is loaded.
    #[inline(always)]
    pub(super) unsafe fn left_tile(&self, stage: u32, step: usize, tile: u32) -> [u32; 4] {
        // SAFETY: the caller's contract; inside of the stage.
        unsafe {
            if Self::BY_WORDS {
                let first = self.address(stage, step) ^ (16 * tile * E::BYTES);
                let (below, along) = (first ^ (8 * E::BYTES), 4 * self.row_bytes);
                [first, below, first + along, below + along].map(|address| vector::load_shared(address))
            } else {
                self.matrices(stage, step, tile)
            }
        }
    }

    /// B's fragments of columns `16 pair ..` of the warp: two of the left eight, two of the right.
    ///
    /// # Safety
    /// The warp is here together; the stage is loaded.
    #[inline(always)]
    pub(super) unsafe fn right_pair(&self, stage: u32, step: usize, pair: u32) -> [u32; 4] {
        // SAFETY: the caller's contract; inside of the stage.
        unsafe {
            if Self::BY_WORDS {
                let first = self.address(stage, step) ^ (16 * pair * E::BYTES);
                let (right, along) = (first ^ (8 * E::BYTES), 4 * self.row_bytes);
                [first, first + along, right, right + along].map(|address| vector::load_shared(address))
            } else {
                self.matrices(stage, step, pair)
            }
        }
    }

    /// Four 8x8 matrices of the lines `16 tile ..` of the warp.
    ///
    /// # Safety
    /// The whole warp calls it. `stage` is the shared address of a stage that is written and has those lines.
    #[inline(always)]
    unsafe fn matrices(&self, stage: u32, step: usize, tile: u32) -> [u32; 4] {
        let first = self.address(stage, step);
        // SAFETY: as above.
        unsafe {
            if ACROSS {
                matrix::ldmatrix_x4_trans(first ^ (16 / E::UNIT * UNIT_BYTES * tile))
            } else {
                matrix::ldmatrix_x4(first + 16 * STAGE_K_BYTES * tile)
            }
        }
    }
}
