//! How much shared memory a block has, and memory from the device's heap.
//!
//! `alloc` works in kernels: `Box`, `Vec` and `String` take memory from the heap that the driver sets aside
//! on the device (8 MB unless the host asks for more). It is slow, and shared by all threads: meant for
//! debugging.

#[cfg(target_arch = "nvptx64")]
use core::arch::{asm, nvptx};
use core::ffi::c_void;
#[cfg(not(target_arch = "nvptx64"))]
use std::alloc::Layout;

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

/// Alignment in bytes of the device's `malloc`. On the host a block's size stands in so many bytes before it.
#[cfg(not(target_arch = "nvptx64"))]
const ALIGN: usize = 16;

/// C's `malloc`, which the driver provides: `size` bytes or more of the device's heap, aligned to 16; null
/// where the heap has no room. On the host the memory is the program's own.
///
/// # Safety
/// Always safe to call; `unsafe` as in Rust-CUDA.
///
/// # PTX
/// `call malloc`
pub unsafe fn malloc(size: usize) -> *mut c_void {
    arms! {
        // SAFETY: any size may be asked for.
        ptx: { unsafe { nvptx::malloc(size) } }
        sim: {
            let total = size.checked_add(ALIGN).and_then(|total| Layout::from_size_align(total, ALIGN).ok());
            let Some(layout) = total else { return std::ptr::null_mut() };
            // SAFETY: the layout has the size's own bytes at least, which lie in front.
            unsafe {
                let start = std::alloc::alloc(layout);
                if start.is_null() {
                    return start.cast();
                }
                start.cast::<usize>().write(layout.size());
                start.add(ALIGN).cast()
            }
        }
    }
}

/// C's `free`, which the driver provides. Null is allowed.
///
/// # Safety
/// `ptr` is null or from [`malloc`], and nothing uses the memory any more.
///
/// # PTX
/// `call free`
pub unsafe fn free(ptr: *mut c_void) {
    arms! {
        // SAFETY: the caller's promise.
        ptx: { unsafe { nvptx::free(ptr) } }
        sim: {
            if ptr.is_null() {
                return;
            }
            // SAFETY: the caller's promise; the size is where `malloc` wrote it.
            unsafe {
                let start = ptr.cast::<u8>().sub(ALIGN);
                let layout = Layout::from_size_align_unchecked(start.cast::<usize>().read(), ALIGN);
                std::alloc::dealloc(start, layout);
            }
        }
    }
}
