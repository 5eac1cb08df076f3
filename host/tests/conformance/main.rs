//! Every function of the device library on whichever driver is there, one file a chapter: the kernels of the
//! package `conformance` against oracles in plain Rust.
//!
//! Results are compared bit for bit, unless the hardware is free to differ; then the bound stands beside the
//! comparison with its reason.

mod element;
mod gpu;

mod arguments;
mod async_copy;
mod atomics;
mod barrier;
mod convert;
mod fastmath;
mod grid;
mod hopper;
mod matrix;
mod mma;
mod shared;
mod thread;
mod vector;
mod warp;
