//! Sums along the diagonals of matrices: from the gradient of each score, that of a number for each distance
//! of a key from its query.
//!
//! ```text
//!   block     128 diagonals side by side of one matrix
//!   thread    one of them, row by row: neighbours read neighbours
//! ```
//! Rows go to four sums in turn, which are added in one order: results repeat bit for bit.

use cuda_std::{grid, kernel, thread};

/// Threads of a block, each with a diagonal.
pub const THREADS: u32 = 128;
/// Sums of a thread, so that as many loads are under way.
const SUMS: usize = 4;

/// The diagonals of a matrix.
#[must_use]
pub const fn diagonals(queries: u32, keys: u32) -> u32 {
    if queries == 0 || keys == 0 { 0 } else { queries + keys - 1 }
}

/// `sums[matrix][i]` is the sum of `matrices[matrix][query][key]` over all places with `key - query == i -
/// (queries - 1)`.
///
/// # Safety
/// `matrices` is valid for reads of `[matrices][queries][keys]`, and `sums` for writes of as many times
/// [`diagonals`]. No side is 0. The launch has a block of [`THREADS`] threads for each [`THREADS`] diagonals
/// of each matrix.
#[kernel(launch_bounds(THREADS))]
pub unsafe fn attention_diagonal_sums(matrices: *const f32, queries: u32, keys: u32, sums: *mut f32) {
    grid::wait_dependencies();
    grid::launch_dependents();
    let all = diagonals(queries, keys);
    let across = all.div_ceil(THREADS).max(1);
    let (matrix, first) = (thread::block_idx_x() / across, thread::block_idx_x() % across * THREADS);
    let diagonal = first + thread::thread_idx_x();
    // The rows that some diagonal of the block crosses: its last one begins first, its first one ends last.
    let (mut row, end) = (queries.saturating_sub(all.min(first + THREADS)), queries.min(all - first));
    let matrix_start = u64::from(matrix) * u64::from(queries);
    let mut parts = [0.0; SUMS];
    while row < end {
        primitives::unroll!(PART in 0..4, {
            let query = row + PART as u32;
            // Wraps where the diagonal is left of the row.
            let key = (query + diagonal).wrapping_sub(queries - 1);
            if query < end && key < keys {
                let place = (matrix_start + u64::from(query)) * u64::from(keys) + u64::from(key);
                // SAFETY: a place of the matrix.
                parts[PART] += unsafe { *matrices.add(place as usize) };
            }
        });
        row += SUMS as u32;
    }
    if diagonal < all {
        let place = u64::from(matrix) * u64::from(all) + u64::from(diagonal);
        // SAFETY: the caller's contract.
        unsafe { *sums.add(place as usize) = (parts[0] + parts[1]) + (parts[2] + parts[3]) }
    }
}
