//! Positions, block barriers, fences.

use cuda_std::kernel;
use cuda_std::thread;

/// Numbers that [`thread_positions()`] writes per thread.
pub const POSITION_WORDS: usize = 12;

/// Writes the thread index, block index, block size and grid size (x, y, z each) of thread [`thread::index`]
/// at that place.
///
/// # Safety
/// `out` holds [`POSITION_WORDS`] words for every thread of the grid.
#[kernel]
pub unsafe fn thread_positions(out: *mut u32) {
    let (t, b, d, g) = (thread::thread_idx(), thread::block_idx(), thread::block_dim(), thread::grid_dim());
    let words: [u32; POSITION_WORDS] = [t.x, t.y, t.z, b.x, b.y, b.z, d.x, d.y, d.z, g.x, g.y, g.z];
    // SAFETY: `index` is below the number of threads, and `out` has room for all of them.
    unsafe { out.cast::<[u32; POSITION_WORDS]>().add(thread::index() as usize).write(words) }
}

/// Writes `y * 1000 + x` into a row-major image, with a two-dimensional launch.
///
/// # Safety
/// `out` holds `width * height` words.
#[kernel]
pub unsafe fn thread_index_2d(width: u32, height: u32, out: *mut u32) {
    let at = thread::index_2d();
    if at.x < width && at.y < height {
        // SAFETY: in bounds of the image.
        unsafe { out.add(at.y as usize * width as usize + at.x as usize).write(at.y * 1000 + at.x) }
    }
}

/// Adds 1 to each of `n` words with any number of threads, by a grid-stride loop.
///
/// # Safety
/// `words` holds `n` words.
#[kernel]
pub unsafe fn thread_grid_stride(n: u32, words: *mut u32) {
    let stride = thread::block_dim_x() * thread::grid_dim_x();
    let mut i = thread::index_1d();
    while i < n {
        // SAFETY: `i < n`, and no two threads get the same `i`.
        unsafe { *words.add(i as usize) += 1 }
        i += stride;
    }
}

/// Every thread writes the barrier's results: how many predicates hold, whether all do, whether any does.
/// Rows of the grid's size.
///
/// # Safety
/// `predicates` has an element, `out` three words, for every thread.
#[kernel]
pub unsafe fn thread_barrier_votes(predicates: &[u32], out: *mut u32) {
    let n = predicates.len();
    let i = thread::index_1d() as usize;
    // SAFETY: as many elements as threads.
    let predicate = unsafe { *predicates.get_unchecked(i) };
    let count = thread::sync_threads_count(predicate);
    let all = thread::sync_threads_and(predicate);
    let any = thread::sync_threads_or(predicate);
    // SAFETY: as above, three times.
    unsafe {
        out.add(i).write(count);
        out.add(n + i).write(u32::from(all != 0));
        out.add(2 * n + i).write(u32::from(any != 0));
    }
}
