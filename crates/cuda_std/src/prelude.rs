//! The names that a kernel file usually needs: `use cuda_std::prelude::*;`.
//!
//! On the device they include `print!` and `println!`. On the host they do not: `std` has macros of the same
//! names, which a glob import may not stand against, and which do what a simulated thread needs. For the same
//! reason `assert_eq!` and `assert_ne!` are `core`'s unless a file says `use cuda_std::assert_eq;`.

pub use crate::float::GpuFloat as _;
pub use crate::{KernelArgs, bf16, f16, kernel, thread};
#[cfg(target_arch = "nvptx64")]
pub use crate::{print, println};
pub use alloc::{
    borrow::ToOwned,
    boxed::Box,
    format,
    rc::Rc,
    string::{String, ToString},
    vec::Vec,
};
