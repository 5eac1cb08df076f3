//! `elect`.

use cuda_std::{kernel, thread, warp};

/// The number of elections in [`warp_elect()`].
pub const ELECTIONS: usize = 3;

/// `out[i * threads + t]` is 1 if election `i` chose thread `t`, else 0.
///
/// # Safety
/// One block of whole warps along x; `out` holds [`ELECTIONS`] words per thread.
#[kernel]
pub unsafe fn warp_elect(out: *mut u32) {
    let threads = thread::block_dim_x() as usize;
    for election in 0..ELECTIONS {
        // SAFETY: the whole warp is here; `out` has a word for each thread and election.
        unsafe {
            let elected = warp::elect();
            out.add(election * threads + thread::thread_idx_x() as usize).write(u32::from(elected));
        }
    }
}
