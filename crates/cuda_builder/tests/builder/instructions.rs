//! The instructions that plain Rust becomes: accesses of shared variables, vectors of any element type,
//! conversions of arrays.

use std::error::Error;
use std::fs;
use std::path::Path;

use cuda_builder::ptx::{InstructionCounts, Module, instructions, lint};
use cuda_builder::{BuildError, CudaBuilder, DeviceToolchain, NvvmArch, Version};

const KERNELS: &str = r#"
#![no_std]
use cuda_std::prelude::*;
use cuda_std::{E4M3, address_space, convert, shared_array, vector};

#[kernel]
pub unsafe fn shared(x: &[f32], y: *mut f32) {
    #[address_space(shared)]
    static mut TOTAL: f32 = 0.0;
    let tile = shared_array![f32; 256];
    let i = thread::thread_idx_x() as usize;
    unsafe {
        *tile.add(i) = x[i];
        TOTAL = 0.0;
        thread::sync_threads();
        let mut sum = TOTAL;
        for j in 0..i {
            sum += *tile.add(j);
        }
        *y.add(i) = sum;
    }
}

#[kernel]
pub unsafe fn dynamic(y: *mut f32) {
    unsafe { *y = *cuda_std::shared::dynamic_shared_mem::<f32>() };
}

macro_rules! copies {
    ($($name:ident: $ty:ty, $n:literal;)*) => { $(
        #[kernel]
        pub unsafe fn $name(x: *const $ty, y: *mut $ty) {
            let at = thread::index_1d() as usize * $n;
            unsafe { vector::store_array(y.add(at), vector::load_array::<$ty, $n>(x.add(at))) };
        }
    )* };
}
copies! { copies_u8: u8, 16; copies_f16: f16, 8; copies_e4m3: E4M3, 16; copies_f64: f64, 2; copies_i64: i64, 2; }

#[kernel]
pub unsafe fn converts(x: *const bf16, y: *mut bf16) {
    unsafe {
        let x: [f32; 8] = convert::to_f32(vector::load_array::<bf16, 8>(x));
        vector::store_array(y, convert::from_f32::<bf16, 8>(x.map(|x| x * 3.0)));
    }
}
"#;

/// Instructions of sm_80, with substitutes for older architectures.
const SINCE_8_0: &str = r#"
#![no_std]
use cuda_std::prelude::*;
use cuda_std::fastmath;

#[kernel]
pub unsafe fn bounds(x: &[u32], y: *mut u32) {
    let i = thread::thread_idx_x() as usize;
    unsafe {
        *y.add(2 * i) = fastmath::min_f16x2(x[i], *y);
        *y.add(2 * i + 1) = fastmath::max_f16x2(x[i], *y);
    }
}
"#;

/// The first compiler with an object in shared memory that the device library can build on.
const SHARED_OBJECT: Version = Version { major: 1, minor: 97, patch: 0 };

/// The compiler for the device.
fn toolchain() -> Option<DeviceToolchain> {
    let found = DeviceToolchain::find();
    found.map_err(|error| testkit::skip(&format!("no device compiler ({error})"))).ok()
}

/// The PTX of the kernels, or nothing where the network is missing.
fn compiled(
    toolchain: &DeviceToolchain,
    kernels: &str,
    arch: NvvmArch,
) -> Result<Option<String>, Box<dyn Error>> {
    let temporary = tempfile::tempdir()?;
    let root = temporary.path().join("instructions");
    let library = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("cuda_std");
    fs::create_dir_all(root.join("src"))?;
    let manifest = format!(
        "[package]\nname = \"instructions\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[dependencies]\ncuda_std = {{ package = \"ironwarp-std\", path = {library:?} }}\n[workspace]\n"
    );
    fs::write(root.join("Cargo.toml"), manifest)?;
    fs::write(root.join("src/lib.rs"), kernels)?;
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("device");
    let builder = CudaBuilder::new(&root).arch(arch).target_dir(target);
    match builder.toolchain(toolchain.clone()).capture_output(true).build_module() {
        Err(BuildError::NoNetwork { .. }) => {
            testkit::skip("no network for the library's dependencies");
            Ok(None)
        }
        built => Ok(Some(fs::read_to_string(built?.ptx)?)),
    }
}

fn count(counts: &InstructionCounts, class: &str) -> usize {
    counts.get(class).copied().unwrap_or(0)
}

#[test]
fn accesses_are_those_of_their_memory() -> Result<(), Box<dyn Error>> {
    let Some(toolchain) = toolchain() else { return Ok(()) };
    let Some(ptx) = compiled(&toolchain, KERNELS, NvvmArch::Compute80)? else { return Ok(()) };
    let module = Module::parse(&ptx)?;
    let body = |name: &str| module.entries().find(|entry| entry.name == name).map(|entry| module.body(entry));

    let shared = instructions(body("shared").expect("a kernel"));
    if toolchain.version >= SHARED_OBJECT {
        assert!(count(&shared, "ld.shared") >= 2 && count(&shared, "st.shared") == 2, "{shared:?}");
        assert_eq!((count(&shared, "ld.generic"), count(&shared, "st.generic")), (0, 0), "{shared:?}");
    }
    // ptxas lays variables out in the order of their declarations.
    let lints = lint(&module);
    let of = |name: &str| lints.iter().find(|lint| lint.kernel == name).expect("a kernel");
    assert_eq!((of("shared").shared_bytes, of("shared").dynamic_shared), (16 + 1024, false));
    assert_eq!((of("dynamic").shared_bytes, of("dynamic").dynamic_shared), (0, true));

    for name in ["copies_u8", "copies_f16", "copies_e4m3", "copies_f64", "copies_i64", "converts"] {
        let text = body(name).expect("a kernel");
        let whole = ["ld.global.v4.b32", "st.global.v4.b32"].map(|access| text.matches(access).count());
        assert_eq!(whole, [1, 1], "{name}: {text}");
        let all = instructions(text);
        assert_eq!((count(&all, "ld.global"), count(&all, "st.global")), (1, 1), "{name}: {text}");
        assert_eq!(of(name).local_bytes, 0, "{name}");
    }
    assert_eq!(body("converts").expect("a kernel").matches("cvt.rn.bf16x2.f32").count(), 4);
    Ok(())
}

#[test]
#[ignore = "compiles the library for one more architecture, more than a minute"]
fn older_architectures_have_substitutes() -> Result<(), Box<dyn Error>> {
    let Some(toolchain) = toolchain() else { return Ok(()) };
    for (arch, wanted) in [(NvvmArch::Compute75, 0), (NvvmArch::Compute80, 1)] {
        let Some(ptx) = compiled(&toolchain, SINCE_8_0, arch)? else { return Ok(()) };
        let found = ["min.f16x2", "max.f16x2"].map(|instruction| ptx.matches(instruction).count());
        assert_eq!(found, [wanted; 2], "{ptx}");
    }
    Ok(())
}
