//! How much shared memory a block has, and memory from the device's heap.
//!
//! `alloc` works in kernels: `Box`, `Vec` and `String` take memory from the heap that the driver sets aside
//! on the device (8 MB unless the host asks for more). It is slow, and shared by all threads: meant for
//! debugging.

#[cfg(target_arch = "nvptx64")]
use core::arch::asm;

/// Bytes of dynamic shared memory that the launch asked for. PTX `%dynamic_smem_size`.
#[inline(always)]
#[track_caller]
pub fn dynamic_smem_size() -> u32 {
    arms! {
        ptx: {
            let bytes: u32;
            // SAFETY: reads a special register.
            unsafe { asm!("mov.u32 {}, %dynamic_smem_size;", out(reg32) bytes, options(pure, nomem, nostack)) };
            bytes
        }
        sim: { simt::shared::dynamic_len() }
    }
}

/// Bytes of shared memory of the block, static and dynamic together, rounded up to the allocation unit of the
/// hardware. PTX `%total_smem_size`. The executor on the host rounds nothing up.
#[inline(always)]
#[track_caller]
pub fn total_smem_size() -> u32 {
    arms! {
        ptx: {
            let bytes: u32;
            // SAFETY: reads a special register.
            unsafe { asm!("mov.u32 {}, %total_smem_size;", out(reg32) bytes, options(pure, nomem, nostack)) };
            bytes
        }
        sim: { simt::shared::total_len() }
    }
}
