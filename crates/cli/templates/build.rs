//! Compiles `kernels/` to PTX, once for each architecture that its Cargo.toml lists, into a folder that the
//! program knows.

use std::path::PathBuf;
use std::{env, fs};

use cuda_builder::{BuildError, CudaBuilder, Manifest};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = PathBuf::from(env::var("OUT_DIR")?).join("ptx");
    // The program would load what an earlier build left of other kernels and architectures.
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    println!("cargo::rustc-env=KERNELS_PTX={}", folder.display());
    println!("cargo::rerun-if-changed=kernels");
    let manifest = Manifest::read("kernels".as_ref())?;
    for arch in manifest.archs {
        let file = folder.join(format!("{}.{arch}.ptx", manifest.library));
        match CudaBuilder::new("kernels").arch(arch).copy_to(file).build() {
            Ok(_) => {}
            // The software driver needs no PTX.
            Err(BuildError::Toolchain(error)) => println!("cargo::warning=no PTX for GPUs: {error}"),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
