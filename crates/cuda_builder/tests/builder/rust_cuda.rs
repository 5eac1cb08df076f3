//! A project written for Rust-CUDA: kernels, shared variables and assembly in the packages that the kernel
//! package depends on, few attributes, and operations that other targets leave to a library.

use std::error::Error;
use std::fs;
use std::path::Path;

use cuda_builder::{BuildError, CudaBuilder, DeviceToolchain, NvvmArch};

/// The kernel package. It names one of the features itself.
const KERNELS: &str = r#"
#![feature(asm_experimental_arch)]
use cuda_std::prelude::*;
pub use shapes::in_dependency;

#[kernel]
pub unsafe fn compares(a: &[u8], b: &[u8], name: &[u8; 5], out: *mut u32) {
    let text = unsafe { core::str::from_utf8_unchecked(a) };
    let word = match text { "add" => 1, "subtract" => 2, _ => 3 };
    let found = [a == b, a < b, a.starts_with(b), name == b"hello", text == "hello"];
    unsafe { *out = plain::count(&found) + word }
}

#[kernel]
pub unsafe fn wide(x: u128, y: i128, out: *mut f64) {
    unsafe {
        *out = x as f64;
        *out.add(1) = f64::from(y as f32);
        *out.add(2) = (x / 10) as f64;
    }
}

#[kernel]
pub unsafe fn shows(x: &[u32], name: &[u8]) {
    cuda_std::println!("{:?} {:?}", x, core::str::from_utf8(name));
}

#[derive(Clone, Copy)]
pub struct Scene<'a> {
    heights: &'a [f32; 4],
    scale: f32,
}

#[kernel]
pub unsafe fn lifetimes<'a>(scene: &Scene<'_>, copy: Scene<'a>, by: &'a [f32], last: &'a f32, out: *mut f32) {
    unsafe { *out = scene.heights[1] * scene.scale + copy.heights[2] + by[by.len() - 1] + *last }
}

#[kernel]
pub unsafe fn positions(out: &mut [u32]) {
    let at: cuda_std::glam::UVec2 = thread::index_2d() * 2 + cuda_std::glam::uvec2(1, 0);
    let flat = at.x + at.y * (thread::grid_dim() * thread::block_dim()).x;
    if (flat as usize) < out.len() {
        out[flat as usize] = at.element_sum();
    }
}

#[cfg(target_feature = "compute_70")]
#[kernel]
pub unsafe fn since_7_0(out: *mut u32) {
    unsafe { *out = shapes::lane() }
}

#[cfg(not(target_feature = "compute_80"))]
#[kernel]
pub unsafe fn before_8_0(out: *mut u32) {
    unsafe { *out = 1 }
}
"#;

/// A conversion that the back end has no code for.
const CAST: &str = r#"
use cuda_std::prelude::*;
#[kernel]
pub unsafe fn cast(x: f64, out: *mut u128) {
    unsafe { *out = x as u128 }
}
"#;

/// A dependency with kernels, which says nothing about the device.
const SHAPES: &str = r#"
use cuda_std::prelude::*;

#[kernel]
pub unsafe fn in_dependency(out: *mut u32) {
    #[cuda_std::address_space(shared)]
    static mut SUM: [u32; 32] = [0; 32];
    unsafe {
        SUM[thread::thread_idx_x() as usize] = lane();
        thread::sync_threads();
        *out = SUM[0];
    }
}

pub fn lane() -> u32 {
    let lane: u32;
    unsafe { core::arch::asm!("mov.u32 {}, %laneid;", out(reg32) lane) };
    lane
}
"#;

/// A dependency that knows nothing of devices, and does not say `no_std`.
const PLAIN: &str = "pub fn count(all: &[bool]) -> u32 { all.iter().map(|&b| u32::from(b)).sum() }";

fn package(folder: &Path, name: &str, source: &str, dependencies: &str) -> std::io::Result<()> {
    fs::create_dir_all(folder.join("src"))?;
    let manifest = format!(
        "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[dependencies]\n{dependencies}"
    );
    fs::write(folder.join("Cargo.toml"), manifest)?;
    fs::write(folder.join("src/lib.rs"), source)
}

#[test]
fn dependencies_get_what_kernels_need() -> Result<(), Box<dyn Error>> {
    let toolchain = match DeviceToolchain::find() {
        Ok(toolchain) => toolchain,
        Err(error) => {
            testkit::skip(&format!("no device compiler ({error})"));
            return Ok(());
        }
    };
    let temporary = tempfile::tempdir()?;
    let root = temporary.path();
    let library = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("cuda_std");
    let cuda_std = format!("cuda_std = {{ package = \"ironwarp-std\", path = {library:?} }}\n");
    let theirs = format!(
        "{cuda_std}shapes = {{ path = \"../shapes\" }}\nplain = {{ path = \"../plain\" }}\n[workspace]\n"
    );
    package(&root.join("kernels"), "kernels", KERNELS, &theirs)?;
    package(&root.join("shapes"), "shapes", SHAPES, &cuda_std)?;
    package(&root.join("plain"), "plain", PLAIN, "")?;
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("device");
    let build = |arch| {
        let builder = CudaBuilder::new(root.join("kernels")).arch(arch).target_dir(&target);
        builder.toolchain(toolchain.clone()).capture_output(true).build_module()
    };

    let built = match build(NvvmArch::Compute80) {
        Err(BuildError::NoNetwork { .. }) => {
            testkit::skip("no network for the library's dependencies");
            return Ok(());
        }
        other => other?,
    };
    let ptx = fs::read_to_string(&built.ptx)?;
    for kernel in ["in_dependency", "compares", "wide", "shows", "lifetimes", "positions", "since_7_0"] {
        assert!(ptx.contains(&format!(".visible .entry {kernel}(")), "{kernel} is missing");
    }
    assert!(!ptx.contains("before_8_0"));
    // The slice is two parameters, also by its other name.
    assert!(
        ptx.contains(".param .u64 .ptr .align 1 lifetimes_param_5") && !ptx.contains("lifetimes_param_6")
    );
    assert!(ptx.contains(".shared .align 16 .b8 __shared_shapes_SUM_0[128]"), "the dependency's variable");

    // Of an old header and of operations that the device lacks, the error says what to change.
    for (source, advice) in [
        ("#![feature(register_attr)]\n#![register_attr(nvvm_internal)]", "remove `feature(register_attr)`"),
        (
            "use std::collections::HashMap;\npub type Map = HashMap<u32, u32>;",
            "the device has `core` and `alloc`",
        ),
        // As a dependency whose default features have it.
        ("#![no_std]\nextern crate std;", "turn the default features of dependencies off"),
        (CAST, "to_int_unchecked"),
    ] {
        fs::write(root.join("kernels/src/lib.rs"), source)?;
        let error = build(NvvmArch::Compute80).unwrap_err().to_string();
        assert!(error.contains(advice), "{error}");
    }
    Ok(())
}
