//! A kernel package of somebody else, in a folder of its own, compiled the way a build script does it.

use std::error::Error;
use std::fs;
use std::path::Path;

use cuda_builder::{Arch, BuildError, CudaBuilder, DeviceToolchain, ptx};

const MANIFEST: &str = "\
[package]
name = \"their-kernels\"
version = \"0.1.0\"
edition = \"2024\"

[lib]
crate-type = [\"cdylib\", \"rlib\"]

[workspace]
";

const SOURCE: &str = r#"
#![no_std]
#![feature(core_intrinsics)]
#![allow(internal_features)]

core::arch::global_asm!("// @ironwarp kernel=fill max_threads=256 min_blocks=2");

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {}
}

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn fill(out: *mut f32, n: u32) {
    let i = unsafe { core::arch::nvptx::_thread_idx_x() } as u32;
    if i < n {
        unsafe { *out.add(i as usize) = VALUE }
    }
}
"#;

/// An operation for each switch of the back end.
const ARITHMETIC: &str = r#"
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn arithmetic(out: *mut f32, a: f32, b: f32, c: f32) {
    unsafe {
        *out = a * b + c;
        *out.add(1) = a / b;
        *out.add(2) = core::intrinsics::sqrtf32(c);
    }
}
"#;

/// A collective in inline assembly, of which LLVM does not know that all threads have to reach the same one.
const COLLECTIVE: &str = r#"
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn collective(out: *mut u32) {
    unsafe {
        let first = core::arch::nvptx::_thread_idx_x() == 0;
        if first {
            *out = 1;
        }
        core::arch::asm!("bar.warp.sync 0xffffffff;");
        if first {
            *out.add(1) = 2;
        }
    }
}
"#;

fn write_package(folder: &Path, value: &str) -> std::io::Result<()> {
    fs::create_dir_all(folder.join("src"))?;
    fs::write(folder.join("Cargo.toml"), MANIFEST)?;
    fs::write(folder.join("src/lib.rs"), format!("{SOURCE}\nconst VALUE: f32 = {value};\n"))
}

#[test]
fn wishes_that_the_compiler_cannot_fulfil_are_errors() {
    let builder = || CudaBuilder::new("/no/such/package");
    for wish in [
        builder().ftz(true),
        builder().optix(true),
        builder().override_libm(true),
        builder().use_constant_memory_space(true),
    ] {
        assert!(matches!(wish.build_module(), Err(BuildError::Unsupported { .. })));
    }
    let withdrawn = builder().ftz(true).ftz(false).optix(false);
    assert!(matches!(withdrawn.build_module(), Err(BuildError::CratePathDoesntExist { .. })));
}

/// One test, because every part builds on the library that the first part compiled.
#[test]
fn a_package_becomes_ptx_and_only_changes_rebuild_it() -> Result<(), Box<dyn Error>> {
    let toolchain = match DeviceToolchain::find() {
        Ok(toolchain) => toolchain,
        Err(error) => {
            testkit::skip(&format!("no device compiler ({error})"));
            return Ok(());
        }
    };
    // Beside the builds of the workspace's own kernels: the library, which takes 20 s to compile, is the
    // same.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("device");
    let temporary = tempfile::tempdir()?;
    let package = temporary.path().join("their kernels");
    let copy = temporary.path().join("out/their.ptx");
    write_package(&package, "1.0")?;
    let builder = || {
        CudaBuilder::new(&package)
            .copy_to(&copy)
            .arch(Arch::new(80))
            .target_dir(&target)
            .toolchain(toolchain.clone())
            .capture_output(true)
    };

    let built = match builder().build_module() {
        Err(BuildError::NoNetwork { .. }) => {
            testkit::skip("no network for the library's dependencies");
            return Ok(());
        }
        built => built?,
    };
    assert!(!built.fresh);
    assert_eq!(built.ptx, copy);
    let text = fs::read_to_string(&copy)?;
    assert!(text.starts_with("// ironwarp family=their_kernels arch=sm_80\n"), "{text}");
    assert!(text.contains(")\n.maxntid 256, 1, 1\n.minnctapersm 2\n{"), "{text}");
    let module = ptx::Module::parse(&text)?;
    assert_eq!(module.entries().map(|entry| entry.name).collect::<Vec<_>>(), ["fill"]);
    assert_eq!(ptx::lint(&module)[0].panic_path, Vec::<String>::new());
    assert!(built.sources.iter().any(|source| source.ends_with("src/lib.rs")), "{:?}", built.sources);

    assert!(builder().build_module()?.fresh, "nothing changed");

    write_package(&package, "2.0")?;
    assert!(!builder().build_module()?.fresh, "the source changed");
    assert_ne!(fs::read_to_string(&copy)?, text);

    fs::remove_file(&copy)?;
    assert!(!builder().build_module()?.fresh, "the PTX is gone");
    assert!(copy.is_file());

    let source = format!("{SOURCE}\nconst VALUE: f32 = 1.0;\n{ARITHMETIC}");
    fs::write(package.join("src/lib.rs"), source)?;
    let exact = fs::read_to_string(builder().build_module()?.ptx)?;
    assert!(
        exact.contains("mul.rn.f32") && exact.contains("div.rn.f32") && exact.contains("sqrt.rn.f32"),
        "{exact}"
    );
    let fast = builder().fma_contraction(true).fast_div(true).fast_sqrt(true);
    let fast = fast.emit_llvm_ir(true).emit_llvm_bitcode(true);
    let fast = fs::read_to_string(fast.build_module()?.ptx)?;
    assert!(
        fast.contains("fma.rn.f32") && fast.contains("div.full.f32") && fast.contains("sqrt.approx.f32"),
        "{fast}"
    );
    let ir = copy.with_extension("ll");
    assert!(fs::read_to_string(&ir)?.contains("define"));
    assert!(fs::read(copy.with_extension("bc"))?.starts_with(b"BC"));
    fs::remove_file(&ir)?;
    let named = copy.with_file_name("named.ll");
    builder().final_module_path(&named).emit_llvm_ir(true).emit_llvm_bitcode(false).build_module()?;
    assert!(fs::read_to_string(named)?.contains("define") && !ir.exists());
    assert!(!builder().build_module()?.fresh, "other switches");
    assert_eq!(fs::read_to_string(&copy)?, exact);

    fs::write(package.join("src/lib.rs"), format!("{SOURCE}\nconst VALUE: f32 = 1.0;\n{COLLECTIVE}"))?;
    let text = fs::read_to_string(builder().build_module()?.ptx)?;
    assert_eq!(
        text.matches("bar.warp.sync").count(),
        1,
        "one for all threads, outside of the branches: {text}"
    );

    write_package(&package, "\"no number\"")?;
    let error = builder().build_module().unwrap_err();
    assert!(matches!(error, BuildError::BuildFailed { .. }), "{error}");
    assert!(error.to_string().contains("mismatched types"), "{error}");
    Ok(())
}
