//! The build scripts of cust and cust_raw ask this package for a CUDA to link. They need none here: the
//! facade `cust_core` brings the driver's functions.

use std::path::PathBuf;

/// Links nothing.
pub fn include_cuda() {
    println!("cargo::rerun-if-changed=build.rs");
}

/// No CUDA is looked for.
pub fn find_cuda_root() -> Option<PathBuf> {
    None
}

/// No CUDA is looked for.
pub fn find_cuda_lib_dirs() -> Vec<PathBuf> {
    Vec::new()
}

/// OptiX is not supported.
pub fn find_optix_root() -> Option<PathBuf> {
    None
}
