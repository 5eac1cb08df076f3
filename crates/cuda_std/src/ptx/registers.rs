//! `setmaxnreg`.

use core::arch::asm;

#[inline(always)]
pub unsafe fn set_max_registers_inc<const N: u32>() {
    // SAFETY: no value changes; the caller vouches for the warpgroup being here.
    unsafe { asm!("setmaxnreg.inc.sync.aligned.u32 {0};", const N, options(nostack, preserves_flags)) }
}

#[inline(always)]
pub unsafe fn set_max_registers_dec<const N: u32>() {
    // SAFETY: no value changes; the caller vouches for the warpgroup being here.
    unsafe { asm!("setmaxnreg.dec.sync.aligned.u32 {0};", const N, options(nostack, preserves_flags)) }
}
