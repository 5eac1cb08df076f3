//! The host arm: every function here asks the SIMT executor.
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

pub mod cluster;
pub mod mbarrier;
pub mod wgmma;
