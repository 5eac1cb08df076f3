//! The grid barrier over one word of global memory.

use core::arch::asm;
use core::arch::nvptx::{
    _block_dim_x, _block_dim_y, _block_idx_x, _block_idx_y, _block_idx_z, _grid_dim_x, _grid_dim_y,
    _grid_dim_z, _syncthreads, _thread_idx_x, _thread_idx_y, _thread_idx_z,
};

/// Turns over once a round.
const PHASE_BIT: u32 = 1 << 31;

#[inline(always)]
pub unsafe fn sync(workspace: *mut u32) {
    // SAFETY: the caller vouches that every thread of the grid is here, and for the workspace.
    unsafe {
        _syncthreads();
        if thread_in_block() == 0 {
            let blocks = _grid_dim_x().wrapping_mul(_grid_dim_y()).wrapping_mul(_grid_dim_z());
            let first = _block_idx_x() | _block_idx_y() | _block_idx_z() == 0;
            let share = if first { PHASE_BIT.wrapping_sub(blocks.wrapping_sub(1)) } else { 1 };
            let before = add_release(workspace, share);
            while (load_acquire(workspace) ^ before) & PHASE_BIT == 0 {}
        }
        _syncthreads();
    }
}

#[inline(always)]
fn thread_in_block() -> u32 {
    // SAFETY: reads of special registers.
    unsafe {
        let (x, y, z) = (_thread_idx_x(), _thread_idx_y(), _thread_idx_z());
        z.wrapping_mul(_block_dim_y()).wrapping_add(y).wrapping_mul(_block_dim_x()).wrapping_add(x)
    }
}

/// Publishes what the block wrote (the barrier before made it this thread's to publish) and adds; returns the old value.
#[inline(always)]
unsafe fn add_release(word: *mut u32, value: u32) -> u32 {
    let before: u32;
    // SAFETY: the caller vouches for the word.
    unsafe {
        asm!("atom.add.release.gpu.global.u32 {0}, [{1}], {2};", out(reg32) before, in(reg64) word, in(reg32) value,
            options(nostack, preserves_flags));
    }
    before
}

#[inline(always)]
unsafe fn load_acquire(word: *mut u32) -> u32 {
    let value: u32;
    // SAFETY: the caller vouches for the word. Not `readonly`: what the block reads after must not move above it.
    unsafe {
        asm!("ld.acquire.gpu.global.u32 {0}, [{1}];", out(reg32) value, in(reg64) word,
            options(nostack, preserves_flags));
    }
    value
}

#[inline(always)]
pub fn wait_dependencies() {
    // SAFETY: a wait. Not `nomem`: what the kernel reads after must not move above it.
    #[cfg(not(any(ironwarp_sm = "80", ironwarp_sm = "86", ironwarp_sm = "87", ironwarp_sm = "89")))]
    unsafe {
        asm!("griddepcontrol.wait;", options(nostack, preserves_flags))
    }
}

#[inline(always)]
pub fn launch_dependents() {
    // SAFETY: a hint to the scheduler. Not `nomem`: what the kernel wrote before must not move below it.
    #[cfg(not(any(ironwarp_sm = "80", ironwarp_sm = "86", ironwarp_sm = "87", ironwarp_sm = "89")))]
    unsafe {
        asm!("griddepcontrol.launch_dependents;", options(nostack, preserves_flags))
    }
}
