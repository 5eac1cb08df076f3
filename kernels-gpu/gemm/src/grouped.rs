//! `C[rows of g] = epilogue(A[rows of g] B[g])` for [groups](crate::groups) of rows of any element type, any
//! strides and any alignment: the tiles of [`crate::any`].
//!
//! Where groups begin the host does not know. There are as many blocks as there can be tiles, since each
//! group may end within one; a block counts through the groups to its tile, and some find none.

use crate::any::{Epilogue, MIN_BLOCKS, Part, StridedGemm, THREADS, TILE, TileCoord};
use crate::epilogue::{EpilogueParams, GroupInputs};
use crate::groups::{GroupParams, Groups};
use cuda_std::{kernel, thread};

/// Blocks along x for `m` rows in so many groups, by `n` columns.
pub const fn tiles(m: u32, n: u32, groups: u32) -> u64 {
    tiles_down(m, groups) as u64 * n.div_ceil(TILE) as u64
}

/// Rows of tiles that there can be.
const fn tiles_down(m: u32, groups: u32) -> u32 {
    m.div_ceil(TILE) + groups
}

/// The product of each group. `gemm.m` is the rows of A and C, and B's `batch` is from a group's matrix to
/// the next. Scales and bias are of each group; see [`EpilogueParams`] and [`GroupParams`].
///
/// # Safety
/// As for [`gemm_any`](fn@crate::any::gemm_any), with [`tiles`] blocks along x.
#[kernel(launch_bounds(THREADS, MIN_BLOCKS))]
pub unsafe fn gemm_grouped_any(
    gemm: StridedGemm,
    epilogue: EpilogueParams,
    a: *const u8,
    b: *const u8,
    c: *mut u8,
    groups: GroupParams,
    offsets: *const i32,
) {
    let StridedGemm { m, n, .. } = gemm;
    // Blocks that there are have a row; `max` is for the compiler, which sees a division by 0.
    let down = tiles_down(m, groups.count).max(1);
    let (mut left, column) = (thread::block_idx_x() % down, thread::block_idx_x() / down * TILE);
    let mut groups = Groups::new(offsets, &groups, m);
    // SAFETY: the caller's contract; the whole block finds the same group, and its rows are rows of A and C.
    unsafe {
        while let Some(group) = groups.next() {
            let tiles = (group.end - group.begin).div_ceil(TILE);
            if left < tiles {
                let inputs = GroupInputs::of(&epilogue, group.index, n);
                let mut epilogue = Epilogue::new(&gemm, c, &epilogue, inputs);
                epilogue.m = group.end;
                let coord = TileCoord { batch: 0, row: group.begin + left * TILE, column };
                Part { gemm: &gemm, a, b, epilogue, coord, of_b: group.index }.compute();
                return;
            }
            left -= tiles;
        }
    }
}
