//! What a kernel file usually needs: `use cuda_std::prelude::*;`.

pub use crate::float::GpuFloat as _;
pub use crate::{assert_eq, assert_ne, bf16, f16, kernel, print, println, thread};
pub use alloc::{
    borrow::ToOwned,
    boxed::Box,
    format,
    rc::Rc,
    string::{String, ToString},
    vec::Vec,
};
