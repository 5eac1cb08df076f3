//! The products of tiles of [`crate::gemm_f32`] of which one or both lie `[line][k]`.
//!
//! ```text
//!   A, by quads                 B, by quads                     a thread, for four elements of k:
//!   row 0   k0 k1 k2 k3         column 0   k0 k1 k2 k3          its 8 rows of A, in 32 registers
//!   row 1   k0 k1 k2 k3         column 1   ..                   32 products for each column of B
//! ```
//! A thread reads as many units as of tiles that lie `[k][line]`: it needs the same elements. But 16 bytes
//! come to shared memory at once, where copies that turn a tile bring four.

use super::{Accumulators, Block, COLUMN_GROUP, ColumnsOf, Corner, ELEMENT, ROW_GROUP, RowsOf, VECTOR};
use super::{LANE_COLUMNS, LANE_ROWS};
use crate::load::Tile;
use cuda_std::{fastmath, vector};
use primitives::unroll;

/// A thread's rows of A, four elements of k each.
type Rows = [[f32; 4]; 8];

impl<const COLUMN_GROUPS: usize, const ACROSS: u32, const SLICES: u32, const DEPTH: u32, const STAGES: u32>
    Block<COLUMN_GROUPS, ACROSS, SLICES, DEPTH, STAGES>
{
    /// As [`Block::multiply_tile`], of an A and a B that lie `[line][k]`, or else `[k][line]`.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub(super) unsafe fn multiply_quads<const OF_A: bool, const OF_B: bool>(
        accumulators: &mut Accumulators<COLUMN_GROUPS>,
        stage: u32,
        corner: Corner,
        left: u32,
    ) {
        let first = Self::slice() * (DEPTH / SLICES);
        let mut step = 0;
        while step < DEPTH / SLICES && first + step < left {
            let k = first + step;
            // SAFETY: four columns from here are in the stage.
            unsafe {
                let rows = if OF_A {
                    Self::rows_by_quads(stage, corner, k / VECTOR)
                } else {
                    Self::rows_by_lines(stage, corner, k)
                };
                if OF_B {
                    Self::columns_by_quads(accumulators, &rows, stage, corner, k / VECTOR);
                } else {
                    Self::columns_by_lines(accumulators, &rows, stage, corner, k);
                }
            }
            step += VECTOR;
        }
    }

    /// The thread's rows of a quad.
    ///
    /// # Safety
    /// `stage` is the shared address of a stage that is written, with such a quad.
    #[inline(always)]
    unsafe fn rows_by_quads(stage: u32, corner: Corner, quad: u32) -> Rows {
        let from = stage + <RowsOf<Self> as Tile>::quad(corner.row, quad);
        let mut rows = [[0.0; 4]; 8];
        unroll!(ROW in 0..8, {
            // Neighbours lie as far apart as a warp has lanes along the rows.
            let further = ROW as u32 / VECTOR * ROW_GROUP + ROW as u32 % VECTOR * LANE_ROWS;
            // SAFETY: the caller's word.
            rows[ROW] = unsafe { vector::load_shared_v4(from + further * DEPTH * ELEMENT) };
        });
        rows
    }

    /// The same of a tile that lies `[k][line]`.
    ///
    /// # Safety
    /// As for [`Self::rows_by_quads`].
    #[inline(always)]
    unsafe fn rows_by_lines(stage: u32, corner: Corner, k: u32) -> Rows {
        let from = stage + (k * Self::A_PITCH + corner.row) * ELEMENT;
        let mut rows = [[0.0; 4]; 8];
        unroll!(K in 0..4, {
            unroll!(GROUP in 0..2, {
                let further = K as u32 * Self::A_PITCH + GROUP as u32 * ROW_GROUP;
                // SAFETY: the caller's word.
                let four: [f32; 4] = unsafe { vector::load_shared_v4(from + further * ELEMENT) };
                unroll!(I in 0..4, { rows[4 * GROUP + I][K] = four[I]; });
            });
        });
        rows
    }

    /// Adds the products of a quad of the thread's columns with its rows.
    ///
    /// # Safety
    /// As for [`Self::rows_by_quads`].
    #[inline(always)]
    unsafe fn columns_by_quads(
        accumulators: &mut Accumulators<COLUMN_GROUPS>,
        rows: &Rows,
        stage: u32,
        corner: Corner,
        quad: u32,
    ) {
        // Every other column's quads are flipped alike.
        let from = [0, 1]
            .map(|odd| stage + Self::B_OFFSET + <ColumnsOf<Self> as Tile>::quad(corner.column + odd, quad));
        unroll!(COLUMN in 0..16, {
            if COLUMN / 4 < COLUMN_GROUPS {
                let even = COLUMN as u32 % VECTOR / 2 * 2;
                let further = COLUMN as u32 / VECTOR * COLUMN_GROUP + even * LANE_COLUMNS;
                // SAFETY: the caller's word.
                let column: [f32; 4] =
                    unsafe { vector::load_shared_v4(from[COLUMN % 2] + further * DEPTH * ELEMENT) };
                unroll!(K in 0..4, {
                    unroll!(ROW in 0..8, {
                        let sum = &mut accumulators[ROW / 4][ROW % 4][COLUMN / 4][COLUMN % 4];
                        *sum = fastmath::fma(rows[ROW][K], column[K], *sum);
                    });
                });
            }
        });
    }

    /// The same of a tile that lies `[k][line]`.
    ///
    /// # Safety
    /// As for [`Self::rows_by_quads`].
    #[inline(always)]
    unsafe fn columns_by_lines(
        accumulators: &mut Accumulators<COLUMN_GROUPS>,
        rows: &Rows,
        stage: u32,
        corner: Corner,
        k: u32,
    ) {
        let from = stage + Self::B_OFFSET + (k * Self::B_PITCH + corner.column) * ELEMENT;
        unroll!(K in 0..4, {
            let mut columns = [[0.0; 4]; COLUMN_GROUPS];
            unroll!(GROUP in 0..4, {
                if GROUP < COLUMN_GROUPS {
                    let further = K as u32 * Self::B_PITCH + GROUP as u32 * COLUMN_GROUP;
                    // SAFETY: the caller's word.
                    columns[GROUP] = unsafe { vector::load_shared_v4(from + further * ELEMENT) };
                }
            });
            unroll!(ROW in 0..8, {
                unroll!(INDEX in 0..16, {
                    if INDEX / 4 < COLUMN_GROUPS {
                        // There and back, as of fragments.
                        let column = if ROW % 2 == 0 { INDEX } else { 4 * COLUMN_GROUPS - 1 - INDEX };
                        let sum = &mut accumulators[ROW / 4][ROW % 4][column / 4][column % 4];
                        *sum = fastmath::fma(rows[ROW][K], columns[column / 4][column % 4], *sum);
                    }
                });
            });
        });
    }
}
