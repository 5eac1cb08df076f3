//! Special registers, block barriers, fences.

use core::arch::{asm, nvptx};

macro_rules! special_registers {
    ($($name:ident => $intrinsic:ident;)*) => {$(
        #[inline(always)]
        pub fn $name() -> u32 {
            // SAFETY: reads a special register.
            unsafe { nvptx::$intrinsic() }
        }
    )*};
}

special_registers! {
    thread_idx_x => _thread_idx_x;
    thread_idx_y => _thread_idx_y;
    thread_idx_z => _thread_idx_z;
    block_idx_x => _block_idx_x;
    block_idx_y => _block_idx_y;
    block_idx_z => _block_idx_z;
    block_dim_x => _block_dim_x;
    block_dim_y => _block_dim_y;
    block_dim_z => _block_dim_z;
    grid_dim_x => _grid_dim_x;
    grid_dim_y => _grid_dim_y;
    grid_dim_z => _grid_dim_z;
}

// Intrinsics, not `asm!`: LLVM knows that they are convergent and so does not move them across branches.
unsafe extern "C" {
    #[link_name = "llvm.nvvm.barrier.cta.red.popc.aligned.all"]
    fn barrier_popc(barrier: u32, predicate: bool) -> u32;
    #[link_name = "llvm.nvvm.barrier.cta.red.and.aligned.all"]
    fn barrier_and(barrier: u32, predicate: bool) -> bool;
    #[link_name = "llvm.nvvm.barrier.cta.red.or.aligned.all"]
    fn barrier_or(barrier: u32, predicate: bool) -> bool;
    #[link_name = "llvm.nvvm.membar.cta"]
    fn membar_cta();
    #[link_name = "llvm.nvvm.membar.gl"]
    fn membar_gl();
    #[link_name = "llvm.nvvm.membar.sys"]
    fn membar_sys();
}

/// The barrier that all threads of the block share.
const BLOCK_BARRIER: u32 = 0;

#[inline(always)]
pub fn sync_threads() {
    // SAFETY: a barrier touches no memory of its own.
    unsafe { nvptx::_syncthreads() }
}

#[inline(always)]
pub fn sync_threads_count(predicate: u32) -> u32 {
    // SAFETY: as for `sync_threads`.
    unsafe { barrier_popc(BLOCK_BARRIER, predicate != 0) }
}

#[inline(always)]
pub fn sync_threads_and(predicate: u32) -> u32 {
    // SAFETY: as for `sync_threads`.
    unsafe { barrier_and(BLOCK_BARRIER, predicate != 0) as u32 }
}

#[inline(always)]
pub fn sync_threads_or(predicate: u32) -> u32 {
    // SAFETY: as for `sync_threads`.
    unsafe { barrier_or(BLOCK_BARRIER, predicate != 0) as u32 }
}

#[inline(always)]
pub fn block_fence() {
    // SAFETY: a fence touches no memory of its own.
    unsafe { membar_cta() }
}

#[inline(always)]
pub fn device_fence() {
    // SAFETY: as for `block_fence`.
    unsafe { membar_gl() }
}

#[inline(always)]
pub fn system_fence() {
    // SAFETY: as for `block_fence`.
    unsafe { membar_sys() }
}

#[inline(always)]
pub fn nanosleep(nanos: u32) {
    // SAFETY: only waits.
    unsafe { asm!("nanosleep.u32 {};", in(reg32) nanos) }
}
