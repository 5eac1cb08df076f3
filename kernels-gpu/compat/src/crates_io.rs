//! Kernels that call ordinary crates.

use cuda_std::prelude::*;
use glam::{Mat3, Quat, Vec3};
use sha2::{Digest, Sha256};

/// SHA-256 of each message. Messages have `len` bytes and are contiguous.
#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn sha256_each(messages: &[u8], len: usize, digests: *mut [u8; 32]) {
    let idx = thread::index_1d() as usize;
    let Some(message) = messages.chunks_exact(len).nth(idx) else { return };
    let mut hasher = Sha256::new();
    hasher.update(message);
    // SAFETY: `digests` has an element for each message, and every thread has its own.
    unsafe { (*digests.add(idx)).copy_from_slice(&hasher.finalize()) };
}

/// Rotates every point by `angle` radians around `axis`, and scales it by a matrix.
#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn rotate(points: &mut [Vec3], axis: Vec3, angle: f32, scale: &Mat3) {
    let idx = thread::index_1d() as usize;
    if idx < points.len() {
        let turned = Quat::from_axis_angle(axis.normalize(), angle) * points[idx];
        points[idx] = *scale * turned;
    }
}
