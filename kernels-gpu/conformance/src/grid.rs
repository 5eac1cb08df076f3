//! The grid barrier.

use cuda_std::{grid, kernel, thread, vector};

/// In each of `rounds` rounds every thread adds the word of the thread half the grid away to its own. All
/// threads read before any writes. Blocks see each other's writes after each barrier.
///
/// # Safety
/// A cooperative launch; `words` holds a word for each thread, an even number; `workspace` as [`grid::sync`]
/// requires.
#[kernel]
pub unsafe fn grid_rounds(rounds: u32, words: *mut u32, workspace: *mut u32) {
    let threads = thread::grid_dim_x() * thread::block_dim_x();
    let i = thread::index_1d();
    let partner = if i < threads / 2 { i + threads / 2 } else { i - threads / 2 };
    let mut round = 0;
    while round < rounds {
        // SAFETY: both words are in bounds; barriers separate all reads from all writes.
        unsafe {
            let other: u32 = vector::load_l2(words.add(partner as usize));
            grid::sync(workspace);
            let mine: u32 = vector::load_l2(words.add(i as usize));
            vector::store(words.add(i as usize), mine.wrapping_mul(3).wrapping_add(other));
            grid::sync(workspace);
        }
        round += 1;
    }
}
