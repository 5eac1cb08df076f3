//! The device library on the executor.

mod atomic;
mod checked_chapters;
mod float;
mod float_ext;
mod intrinsics;
mod kernel;
mod rounded;
mod thread;
