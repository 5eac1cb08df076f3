#![cfg_attr(target_os = "cuda", no_std)]
#![allow(improper_ctypes_definitions, clippy::missing_safety_doc)]

use cuda_std::*;

extern crate alloc;

#[kernel]
pub unsafe fn vecadd(a: &[f32], b: &[f32], c: *mut f32) {
    let idx = thread::index_1d() as usize;
    if idx < a.len() {
        let elem = &mut *c.add(idx);
        *elem = a[idx] + b[idx];
    }
}

#[kernel]
pub unsafe fn scale(by: f32, values: *mut f32, len: usize) {
    let idx = thread::index() as usize;
    if idx < len {
        *values.add(idx) *= by;
    }
}

#[kernel]
pub unsafe fn sums(values: &[f32], out: *mut f32) {
    #[address_space(shared)]
    static mut PARTS: [f32; 64] = [0.0; 64];
    let t = thread::thread_idx_x() as usize;
    PARTS[t] = values[thread::index_1d() as usize];
    thread::sync_threads();
    if t == 0 {
        let mut sum = 0.0;
        for part in 0..64 {
            sum += PARTS[part];
        }
        *out.add(thread::block_idx_x() as usize) = sum;
    }
}

#[cfg(not(target_feature = "compute_80"))]
#[kernel]
pub unsafe fn before_ampere(out: *mut u32) {
    *out = 1;
}
