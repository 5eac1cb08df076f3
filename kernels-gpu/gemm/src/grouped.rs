//! `C[rows of g] = epilogue(A[rows of g] B[g])` for [groups](crate::groups) of rows of any element type, any strides and any alignment: the tiles of
//! [`crate::any`].
//!
//! Where groups begin the host does not know. There are as many blocks as there can be tiles, since each group may end within one; a block counts
//! through the groups to its tile, and some find none.

use crate::any::{Corner, Epilogue, MIN_BLOCKS, Part, Problem, THREADS, TILE, bytes};
use crate::groups::Groups;
use cuda_std::{kernel, thread};

/// Blocks along x for `m` rows in so many groups, by `n` columns.
pub const fn tiles(m: u32, n: u32, groups: u32) -> u64 {
    tiles_down(m, groups) as u64 * n.div_ceil(TILE) as u64
}

/// Rows of tiles that there can be.
const fn tiles_down(m: u32, groups: u32) -> u32 {
    m.div_ceil(TILE) + groups
}

/// The product of each group. `problem.m` is the rows of A and C, and B's `batch` is from a group's matrix to the next. Null pointers as for
/// [`gemm_any`](fn@crate::any::gemm_any); `scale_a` and `scale_b` have a number, and `bias` has `n`, for each group. `offsets` are `groups + 1` numbers of
/// 64 bits if `is_wide`, else of 32.
///
/// # Safety
/// As for [`gemm_any`](fn@crate::any::gemm_any), with [`tiles`] blocks along x.
#[kernel(launch_bounds(THREADS, MIN_BLOCKS))]
pub unsafe fn gemm_grouped_any(
    problem: Problem,
    a: *const u8,
    b: *const u8,
    scale_a: *const f32,
    scale_b: *const f32,
    bias: *const u8,
    residual: *const u8,
    amax: *mut u32,
    c: *mut u8,
    offsets: *const i32,
    is_wide: bool,
    groups: u32,
) {
    let Problem { m, n, .. } = problem;
    // Blocks that there are have a row; `max` is for the compiler, which sees a division by 0.
    let down = tiles_down(m, groups).max(1);
    let (mut left, column) = (thread::block_idx_x() % down, thread::block_idx_x() / down * TILE);
    let mut groups = Groups::new(offsets, is_wide, groups, m);
    // SAFETY: the caller's contract; the whole block finds the same group, and its rows are rows of A and C.
    unsafe {
        while let Some(group) = groups.next() {
            let tiles = (group.end - group.begin).div_ceil(TILE);
            if left < tiles {
                let index = group.index as usize;
                let [scale_a, scale_b] =
                    [scale_a, scale_b].map(|scale| if scale.is_null() { scale } else { scale.add(index) });
                let scales = [scale_a, scale_b, core::ptr::null()];
                let vector = index * n as usize * bytes(problem.bias) as usize;
                let bias = if bias.is_null() { bias } else { bias.add(vector) };
                let problem = Problem { m: group.end, ..problem };
                let epilogue = Epilogue::new(problem, scales, bias, residual, amax, c);
                let corner = Corner { batch: 0, row: group.begin + left * TILE, column };
                Part { problem, a, b, epilogue, corner, of_b: group.index }.compute();
                return;
            }
            left -= tiles;
        }
    }
}
