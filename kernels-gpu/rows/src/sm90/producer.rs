//! The warp that fills the ring: bulk copies of rows, or of the block's parts of them, a lane a copy.

use super::reduce::left;
use super::ring::{Cursor, Piece, Shared};
use crate::function::Tensors;
use crate::plan::Plan;
use cuda_std::warp::{FULL_MASK, sync_warp};
use cuda_std::{mbarrier, tma};
use primitives::access::VECTOR_BYTES;
use primitives::unroll;
use primitives::warp::LANES;

/// Copies all rows of the block's tiles, in order, a stage each tile.
///
/// # Safety
/// One whole warp calls it; the tensors hold the plan's rows; as many stages are left by the consumers.
#[inline(always)]
pub unsafe fn produce<T>(
    plan: &Plan,
    shared: Shared,
    tensors: &Tensors<T>,
    lane: u32,
    rank: u32,
    [first_tile, step]: [u32; 2],
) {
    let (mut cursor, mut tile, mut turn) = (Cursor::START, first_tile, 0);
    // Blocks of a cluster also wait for the last stages, to tell each other.
    let behind = if plan.cluster > 1 { plan.stages } else { 0 };
    while tile < plan.tiles + behind * step {
        // SAFETY: barriers of this block; the stage has been left.
        unsafe {
            // In the first round all stages are empty: the phase before the first counts as over.
            mbarrier::wait_parity(shared.control.empty(cursor.stage), cursor.phase ^ 1);
            if tile < plan.tiles {
                fill(plan, shared, tensors, [lane, rank], tile, cursor.stage);
            }
            if plan.cluster > 1 && turn >= plan.stages {
                left(plan, shared, lane, turn - plan.stages);
            }
        }
        cursor = cursor.next(plan);
        tile += step;
        turn += 1;
    }
}

/// Starts the copies of a tile to a stage.
///
/// # Safety
/// As for [`produce`]; the stage has been left.
#[inline(always)]
unsafe fn fill<T>(
    plan: &Plan,
    shared: Shared,
    tensors: &Tensors<T>,
    [lane, rank]: [u32; 2],
    tile: u32,
    stage: u32,
) {
    let (full, first) = (shared.control.full(stage), shared.ring + stage * plan.stage_bytes);
    // SAFETY: barriers of this block; a copy is of vectors of a row.
    unsafe {
        // Copied out: an index that is no constant would put the arguments in local memory.
        unroll!(INPUT in 0..3, {
            if (INPUT as u32) < plan.inputs {
                let mut place = lane;
                while place < plan.tile {
                    let number = tile * plan.tile + place;
                    if number < plan.rows as u32 {
                        let at = first + INPUT as u32 * plan.part_bytes + place * plan.row_bytes;
                        copy(plan, tensors.input_row(plan, INPUT, number.into()), rank, [at, full]);
                    }
                    place += LANES;
                }
            }
        });
        sync_warp(FULL_MASK);
        if lane == 0 {
            mbarrier::arrive(full);
        }
    }
}

/// Starts the copy of the block's part of a row, to an address, for a barrier.
///
/// # Safety
/// As for [`produce`].
#[inline(always)]
unsafe fn copy<T>(plan: &Plan, row: *const T, rank: u32, [to, full]: [u32; 2]) {
    let piece = Piece::of(plan, row, rank, true);
    if piece.count > 0 {
        let (bytes, column) = (piece.count * VECTOR_BYTES as u32, piece.span.vector::<T>(piece.first));
        // SAFETY: vectors of the row, and as much room in the stage.
        unsafe {
            mbarrier::expect_tx(full, bytes);
            tma::bulk_load(to, row.wrapping_add(column as usize), bytes, full);
        }
    }
}
