//! The device arm: every function here is one PTX instruction, or a few.
pub mod atomic;
pub mod float;
pub mod io;
pub mod misc;
pub mod ptr;
pub mod shared;
pub mod thread;
pub mod warp;

pub mod async_copy;
pub mod convert;
pub mod fastmath;
pub mod grid;
pub mod matrix;
pub mod mma;
pub mod vector;

#[cfg(not(any(ironwarp_sm = "80", ironwarp_sm = "86", ironwarp_sm = "87", ironwarp_sm = "89")))]
pub mod cluster;
#[cfg(not(any(ironwarp_sm = "80", ironwarp_sm = "86", ironwarp_sm = "87", ironwarp_sm = "89")))]
pub mod mbarrier;
#[cfg(any(not(target_arch = "nvptx64"), ironwarp_sm = "90a"))]
pub mod wgmma;
