//! Tests every function of the device library on the present driver, with one file for each chapter: the
//! kernels of the package `conformance` against oracles in plain Rust.
//!
//! Results are compared bit for bit, unless the hardware may differ; then the comparison states the bound and
//! its reason.

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
