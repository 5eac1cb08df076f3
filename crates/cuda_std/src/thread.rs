//! Where a thread stands in its block and grid, barriers over the block, and memory fences.
//!
//! A launch runs a grid of blocks; a block is up to 1024 threads that share memory and can wait for each
//! other; 32 consecutive threads of a block (x fastest, then y, then z) are a [warp](crate::warp).

#[cfg(target_arch = "nvptx64")]
use core::arch::{asm, nvptx};
#[cfg(not(target_arch = "nvptx64"))]
use simt::barrier::{self, BarrierReduce};
#[cfg(not(target_arch = "nvptx64"))]
use simt::memory::{self, Scope};

// Intrinsics, not `asm!`: LLVM knows that they are convergent and so does not move them across branches.
#[cfg(target_arch = "nvptx64")]
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

pub use glam::{UVec2, UVec3};

/// The twelve special registers that say where a thread stands: documentation, name, intrinsic, the
/// executor's value.
macro_rules! positions {
    ($($(#[$doc:meta])* $name:ident: $intrinsic:ident, $source:ident[$axis:literal];)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        #[track_caller]
        pub fn $name() -> u32 {
            arms! {
                // SAFETY: reads a special register.
                ptx: { unsafe { nvptx::$intrinsic() } }
                sim: { simt::thread::$source()[$axis] }
            }
        }
    )*};
}

positions! {
    /// Index of this thread in its block, along x: `0..block_dim_x()`. PTX `%tid.x`.
    thread_idx_x: _thread_idx_x, thread_idx[0];
    /// Index of this thread in its block, along y. PTX `%tid.y`.
    thread_idx_y: _thread_idx_y, thread_idx[1];
    /// Index of this thread in its block, along z. PTX `%tid.z`.
    thread_idx_z: _thread_idx_z, thread_idx[2];
    /// Index of this block in the grid, along x: `0..grid_dim_x()`. PTX `%ctaid.x`.
    block_idx_x: _block_idx_x, block_idx[0];
    /// Index of this block in the grid, along y. PTX `%ctaid.y`.
    block_idx_y: _block_idx_y, block_idx[1];
    /// Index of this block in the grid, along z. PTX `%ctaid.z`.
    block_idx_z: _block_idx_z, block_idx[2];
    /// Threads of a block along x. PTX `%ntid.x`.
    block_dim_x: _block_dim_x, block_dim[0];
    /// Threads of a block along y. PTX `%ntid.y`.
    block_dim_y: _block_dim_y, block_dim[1];
    /// Threads of a block along z. PTX `%ntid.z`.
    block_dim_z: _block_dim_z, block_dim[2];
    /// Blocks of the grid along x. PTX `%nctaid.x`.
    grid_dim_x: _grid_dim_x, grid_dim[0];
    /// Blocks of the grid along y. PTX `%nctaid.y`.
    grid_dim_y: _grid_dim_y, grid_dim[1];
    /// Blocks of the grid along z. PTX `%nctaid.z`.
    grid_dim_z: _grid_dim_z, grid_dim[2];
}

/// Index of this thread in its block.
#[inline(always)]
#[track_caller]
pub fn thread_idx() -> UVec3 {
    UVec3::new(thread_idx_x(), thread_idx_y(), thread_idx_z())
}

/// Index of this block in the grid.
#[inline(always)]
#[track_caller]
pub fn block_idx() -> UVec3 {
    UVec3::new(block_idx_x(), block_idx_y(), block_idx_z())
}

/// Threads of a block in each dimension.
#[inline(always)]
#[track_caller]
pub fn block_dim() -> UVec3 {
    UVec3::new(block_dim_x(), block_dim_y(), block_dim_z())
}

/// Blocks of the grid in each dimension.
#[inline(always)]
#[track_caller]
pub fn grid_dim() -> UVec3 {
    UVec3::new(grid_dim_x(), grid_dim_y(), grid_dim_z())
}

/// A number that no other thread of the launch has, of up to 2^32 threads, whatever the dimensions of block
/// and grid: blocks in order (x fastest), in each its threads in order (x fastest). From 2^32 threads on
/// numbers begin at 0 again.
#[inline(always)]
#[track_caller]
pub fn index() -> u32 {
    let (grid, block) = (grid_dim(), block_dim());
    let (b, t) = (block_idx(), thread_idx());
    let block_index = (b.z * grid.y + b.y) * grid.x + b.x;
    block_index * block.element_product() + (t.z * block.y + t.y) * block.x + t.x
}

/// Index of this thread in the grid along x. Unique only in a one-dimensional launch, of up to 2^32 threads:
/// from there on it begins at 0 again. `LaunchConfig::linear` makes no larger ones.
#[inline(always)]
#[track_caller]
pub fn index_1d() -> u32 {
    block_idx_x() * block_dim_x() + thread_idx_x()
}

/// Index of this thread in the grid along x and y. Unique only in a launch without z.
#[inline(always)]
#[track_caller]
pub fn index_2d() -> UVec2 {
    UVec2::new(index_1d(), block_idx_y() * block_dim_y() + thread_idx_y())
}

/// Index of this thread in the grid along x, y and z.
#[inline(always)]
#[track_caller]
pub fn index_3d() -> UVec3 {
    let UVec2 { x, y } = index_2d();
    UVec3::new(x, y, block_idx_z() * block_dim_z() + thread_idx_z())
}

/// Whether this is the first thread of the first block: true in one thread of the launch. That thread need
/// not be the first to run.
#[inline(always)]
#[track_caller]
pub fn first() -> bool {
    block_idx() == UVec3::default() && thread_idx() == UVec3::default()
}

/// Threads of a warp: 32 on every architecture so far. PTX `WARP_SZ`.
#[inline(always)]
pub const fn warp_size() -> u32 {
    crate::warp::WARP_SIZE
}

/// Waits until all threads of the block are here. What they wrote before to global or shared memory is
/// visible to all of the block afterwards. PTX `bar.sync 0`.
///
/// Every thread of the block, none of which may have returned, must reach the same call: in a branch that
/// only some threads take, the block hangs or goes on out of step.
#[inline(always)]
#[track_caller]
pub fn sync_threads() {
    arms! {
        // SAFETY: a barrier touches no memory of its own.
        ptx: { unsafe { nvptx::_syncthreads() } }
        sim: { barrier::sync(BLOCK_BARRIER, None) }
    }
}

/// [`sync_threads`] that also counts the threads whose `predicate` is not zero. PTX `bar.red.popc.u32`.
#[inline(always)]
#[track_caller]
pub fn sync_threads_count(predicate: u32) -> u32 {
    arms! {
        // SAFETY: as for `sync_threads`.
        ptx: { unsafe { barrier_popc(BLOCK_BARRIER, predicate != 0) } }
        sim: { barrier::reduce(BarrierReduce::Popc, predicate != 0) }
    }
}

/// [`sync_threads`] that also tells, by a number other than zero, whether `predicate` is not zero in every
/// thread. PTX `bar.red.and.pred`.
#[inline(always)]
#[track_caller]
pub fn sync_threads_and(predicate: u32) -> u32 {
    arms! {
        // SAFETY: as for `sync_threads`.
        ptx: { unsafe { barrier_and(BLOCK_BARRIER, predicate != 0) as u32 } }
        sim: { barrier::reduce(BarrierReduce::And, predicate != 0) }
    }
}

/// [`sync_threads`] that also tells, by a number other than zero, whether `predicate` is not zero in any
/// thread. PTX `bar.red.or.pred`.
#[inline(always)]
#[track_caller]
pub fn sync_threads_or(predicate: u32) -> u32 {
    arms! {
        // SAFETY: as for `sync_threads`.
        ptx: { unsafe { barrier_or(BLOCK_BARRIER, predicate != 0) as u32 } }
        sim: { barrier::reduce(BarrierReduce::Or, predicate != 0) }
    }
}

/// Orders this thread's accesses before the fence against those after it, as the other threads of the block
/// see them. No thread waits. PTX `membar.cta`.
#[inline(always)]
#[track_caller]
pub fn block_fence() {
    arms! {
        // SAFETY: a fence touches no memory of its own.
        ptx: { unsafe { membar_cta() } }
        sim: { memory::fence(Scope::Block) }
    }
}

/// As [`block_fence`], for all threads of the grid; the same as [`device_fence`]. PTX `membar.gl`.
#[inline(always)]
#[track_caller]
pub fn grid_fence() {
    arms! {
        // SAFETY: as for `block_fence`.
        ptx: { unsafe { membar_gl() } }
        sim: { memory::fence(Scope::Device) }
    }
}

/// As [`block_fence`], for all threads on the device. PTX `membar.gl`.
#[inline(always)]
#[track_caller]
pub fn device_fence() {
    arms! {
        // SAFETY: as for `block_fence`.
        ptx: { unsafe { membar_gl() } }
        sim: { memory::fence(Scope::Device) }
    }
}

/// As [`block_fence`], for all threads on all devices and the host. PTX `membar.sys`.
#[inline(always)]
#[track_caller]
pub fn system_fence() {
    arms! {
        // SAFETY: as for `block_fence`.
        ptx: { unsafe { membar_sys() } }
        sim: { memory::fence(Scope::System) }
    }
}

/// Nanoseconds of a clock that all devices of a machine share, in steps of up to a microsecond. PTX
/// `%globaltimer`.
#[inline(always)]
#[track_caller]
pub fn global_timer() -> u64 {
    arms! {
        ptx: {
            let nanos: u64;
            // SAFETY: reads a register. Not `pure`: every call reads it anew.
            unsafe { asm!("mov.u64 {}, %globaltimer;", out(reg64) nanos, options(nomem, nostack)) };
            nanos
        }
        sim: { simt::thread::global_timer() }
    }
}

/// Suspends this thread for about `nanos` nanoseconds, at most twice as long and at most a millisecond: for a
/// back-off while polling. Other threads go on. PTX `nanosleep.u32`.
#[inline(always)]
#[track_caller]
pub fn nanosleep(nanos: u32) {
    arms! {
        // SAFETY: only waits.
        ptx: { unsafe { asm!("nanosleep.u32 {};", in(reg32) nanos) } }
        // A thread that sleeps lets the others run; how long does not matter to the executor.
        sim: {
            let _ = nanos;
            simt::thread::give_way()
        }
    }
}
