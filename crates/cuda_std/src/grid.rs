//! A barrier for all threads of a cooperative launch; launches that overlap the one before.

#[cfg(target_arch = "nvptx64")]
use core::arch::asm;
#[cfg(target_arch = "nvptx64")]
use core::arch::nvptx::{
    _block_dim_x, _block_dim_y, _block_idx_x, _block_idx_y, _block_idx_z, _grid_dim_x, _grid_dim_y,
    _grid_dim_z, _syncthreads, _thread_idx_x, _thread_idx_y, _thread_idx_z,
};
#[cfg(not(target_arch = "nvptx64"))]
use simt::memory::{Scope, global};
#[cfg(not(target_arch = "nvptx64"))]
use std::sync::atomic::Ordering;

/// Turns over once a round.
#[cfg(target_arch = "nvptx64")]
const PHASE_BIT: u32 = 1 << 31;

#[cfg(target_arch = "nvptx64")]
#[inline(always)]
fn thread_in_block() -> u32 {
    // SAFETY: reads of special registers.
    unsafe {
        let (x, y, z) = (_thread_idx_x(), _thread_idx_y(), _thread_idx_z());
        z.wrapping_mul(_block_dim_y()).wrapping_add(y).wrapping_mul(_block_dim_x()).wrapping_add(x)
    }
}

/// Publishes what the block wrote (the barrier before made it this thread's to publish) and adds; returns the
/// old value.
///
/// # Safety
/// `word` is a word of global memory that only atomic accesses touch.
#[cfg(target_arch = "nvptx64")]
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

/// # Safety
/// As for [`add_release`].
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
unsafe fn load_acquire(word: *mut u32) -> u32 {
    let value: u32;
    // SAFETY: the caller vouches for the word. Not `readonly`: what the block reads after must not move above
    // it.
    unsafe {
        asm!("ld.acquire.gpu.global.u32 {0}, [{1}];", out(reg32) value, in(reg64) word,
            options(nostack, preserves_flags));
    }
    value
}

/// Words of the workspace that [`sync`] needs.
pub const WORKSPACE_WORDS: usize = 1;

/// Waits until every thread of the grid has called this; what any thread wrote before is visible to all
/// after.
///
/// One thread a block adds to the workspace's word: block 0 adds the value that turns the top bit, the others
/// add one. The round is over when the top bit has turned. Then the low bits are zero again. So the word is
/// cleared only once, when it is allocated. It serves any number of rounds, and of launches that follow one
/// another on a stream.
///
/// # Safety
/// * The launch is cooperative, so that all blocks run at the same time; else this never returns.
/// * All threads of the grid call it equally often.
/// * `workspace` is the same for all threads: [`WORKSPACE_WORDS`] words of global memory, zero before the
///   first use, and used by no launch that runs at the same time.
///
/// # PTX
/// `bar.sync`; `atom.add.release.gpu`, then `ld.acquire.gpu` until the bit turns; `bar.sync`
#[inline(always)]
#[track_caller]
pub unsafe fn sync(workspace: *mut u32) {
    arms! {
        ptx: {
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
        sim: {
            if simt::thread::thread_idx() == [0; 3] {
                // SAFETY: the caller vouches for the workspace.
                unsafe { global::atomic(workspace, Ordering::AcqRel, Scope::Device, |word| word) };
            }
            simt::grid::sync();
        }
    }
}

/// Waits until the launch before this one in the stream has ended and what it wrote is visible. In a launch
/// that did not ask to overlap that one (the host's `LaunchConfig::overlapping_previous`), it returns at
/// once; before sm_90, where nothing overlaps, it is nothing.
///
/// Before this call an overlapping kernel may only do what does not depend on earlier launches.
///
/// # PTX
/// `griddepcontrol.wait`
#[inline(always)]
#[track_caller]
pub fn wait_dependencies() {
    arms! {
        ptx: {
            // SAFETY: a wait. Not `nomem`: what the kernel reads after must not move above it.
            #[cfg(any(not(target_arch = "nvptx64"), target_feature = "compute_90"))]
            unsafe {
                asm!("griddepcontrol.wait;", options(nostack, preserves_flags))
            }
        }
        sim: { simt::grid::wait_dependencies(); }
    }
}

/// Says that later atomics of system scope publish what was over when [`wait_dependencies`] returned, even
/// relaxed ones: a device that reads such a word with an acquire may read what earlier launches wrote. What
/// this launch has written itself takes a release.
///
/// It is no instruction. Earlier launches have then ended, and their memory operations have been performed
/// (PTX ISA, `griddepcontrol.wait`, and the end of a grid). They are in this device's memory, which other
/// devices read through its L2 cache. A release at a kernel's begin takes 1.5 us more on two H200s.
/// It says nothing of what earlier launches wrote to the memory of other devices.
#[inline(always)]
#[track_caller]
pub fn publish_dependencies() {
    arms! {
        ptx: {}
        sim: { simt::grid::publish_dependencies(); }
    }
}

/// Lets the next launch in the stream start, if it asked to overlap this one and all blocks of this grid have
/// called this or exited. What it reads after [`wait_dependencies`] is complete all the same. Nothing before
/// sm_90.
///
/// # PTX
/// `griddepcontrol.launch_dependents`
#[inline(always)]
#[track_caller]
pub fn launch_dependents() {
    arms! {
        ptx: {
            // SAFETY: a hint to the scheduler. Not `nomem`: what the kernel wrote before must not move below
            // it.
            #[cfg(any(not(target_arch = "nvptx64"), target_feature = "compute_90"))]
            unsafe {
                asm!("griddepcontrol.launch_dependents;", options(nostack, preserves_flags))
            }
        }
        sim: {
            // Launches run one after the other here.
        }
    }
}
