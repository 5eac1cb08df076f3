//! TMA loads of windows (im2col mode), of every number of dimensions.

use cuda_std::tma::{self, TensorMap};
use cuda_std::{kernel, mbarrier, shared, shared_array, thread, vector};

/// Threads per block.
pub const THREADS: u32 = 128;

macro_rules! windows {
    ($($dims:literal: $kernel:ident($load:ident);)*) => { $(
        #[doc = concat!("Loads windows of a ", $dims, "-dimensional tensor, `bytes` bytes, and writes them to `out`.")]
        ///
        /// # Safety
        /// The map has windows of `bytes` bytes, a multiple of 4, for which the launch gives shared memory;
        /// so has `out`. One block of [`THREADS`] threads.
        #[kernel(launch_bounds(THREADS))]
        pub unsafe fn $kernel(
            map: &TensorMap,
            coords: [i32; $dims],
            offsets: [u16; $dims - 2],
            bytes: u32,
            out: *mut u32,
        ) {
            let tile = shared::address_of(shared::dynamic_shared_mem::<u8>());
            let bar = shared::address_of(shared_array![u64; 1]);
            // SAFETY: the mbarrier is initialised before any wait, and expects the windows' bytes.
            unsafe {
                if thread::thread_idx_x() == 0 {
                    mbarrier::init(bar, 1);
                    mbarrier::fence_init();
                }
                thread::sync_threads();
                if thread::thread_idx_x() == 0 {
                    mbarrier::arrive_expect_tx(bar, bytes);
                    tma::$load(tile, map, bar, coords, offsets);
                }
                mbarrier::wait_parity(bar, 0);
                let mut i = thread::thread_idx_x();
                while i < bytes / 4 {
                    out.add(i as usize).write(vector::load_shared(tile + 4 * i));
                    i += THREADS;
                }
            }
        }
    )* };
}

windows! {
    3: tma_windows_3d(load_im2col_3d);
    4: tma_windows_4d(load_im2col_4d);
    5: tma_windows_5d(load_im2col_5d);
}
