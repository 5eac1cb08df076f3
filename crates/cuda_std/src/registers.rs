//! Registers moved between the warps of a block while it runs: `setmaxnreg`. sm_90a.
//!
//! Warps that only start copies give registers back, so that those that compute can have more: 128 threads at
//! 40 leave room for 256 threads at 232 on a multiprocessor with 64 K registers. The kernel is launched with
//! exactly the number of threads that its `launch_bounds(THREADS, 1)` names: the instruction is ignored in
//! kernels that do not promise theirs.

#[cfg(target_arch = "nvptx64")]
use core::arch::asm;

const fn assert_count(registers: u32) {
    assert!(
        registers >= 24 && registers <= 256 && registers.is_multiple_of(8),
        "setmaxnreg takes 24 to 256 registers, a multiple of 8"
    );
}

/// Asks for `N` registers a thread, more than now; waits until the block has them.
///
/// # Safety
/// All four warps of a warpgroup run it together, and what other warps have given back suffices.
///
/// # PTX
/// `setmaxnreg.inc.sync.aligned.u32 N`
#[inline(always)]
#[track_caller]
pub unsafe fn set_max_registers_inc<const N: u32>() {
    const { assert_count(N) };
    arms! {
        // SAFETY: no value changes; the caller vouches for the warpgroup being here.
        ptx: { unsafe { asm!("setmaxnreg.inc.sync.aligned.u32 {0};", const N, options(nostack, preserves_flags)) } }
        // The executor has all the registers it wants.
        sim: {}
    }
}

/// Keeps `N` registers a thread, fewer than now, and gives the others back to the block.
///
/// # Safety
/// All four warps of a warpgroup run it together.
///
/// # PTX
/// `setmaxnreg.dec.sync.aligned.u32 N`
#[inline(always)]
#[track_caller]
pub unsafe fn set_max_registers_dec<const N: u32>() {
    const { assert_count(N) };
    arms! {
        // SAFETY: no value changes; the caller vouches for the warpgroup being here.
        ptx: { unsafe { asm!("setmaxnreg.dec.sync.aligned.u32 {0};", const N, options(nostack, preserves_flags)) } }
        // The executor has all the registers it wants.
        sim: {}
    }
}
