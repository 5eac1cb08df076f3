//! How much shared memory a block has, and memory from the device's heap.
//!
//! `alloc` works in kernels: `Box`, `Vec` and `String` take memory from the heap that the driver sets aside on the device
//! (8 MB unless the host asks for more). It is slow, and shared by all threads: meant for debugging.

use crate::arch::shared as arch;

/// Bytes of dynamic shared memory that the launch asked for. PTX `%dynamic_smem_size`.
#[inline(always)]
#[track_caller]
pub fn dynamic_smem_size() -> u32 {
    arch::dynamic_len()
}

/// Bytes of shared memory of the block, static and dynamic together, rounded up to the allocation unit of the
/// hardware. PTX `%total_smem_size`. The executor on the host rounds nothing up.
#[inline(always)]
#[track_caller]
pub fn total_smem_size() -> u32 {
    arch::total_len()
}
