//! Builds at the same time, in one build folder.

#![cfg(unix)]

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use cuda_builder::{CudaBuilder, DeviceToolchain};

use crate::stand_in::stand_in;

/// Compiles the package's name, and waits for the compiler of the other package, `a` or `b`, if there is one.
const COMPILES: &str = r#"
self=${PWD##*/}
case $self in a) other=b ;; b) other=a ;; *) other=$self ;; esac
: >"${0%/*}/$self.began"
for turn in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    [ -e "${0%/*}/$other.began" ] && break
    [ "$turn" != 20 ] || { echo "$self is alone" >&2; exit 1; }
    sleep 1
done
printf '.version 7.0\n.target sm_80\n.address_size 64\n// %s\n' "$self" >"$assembly"
"#;

fn package(folder: &Path, name: &str) -> std::io::Result<PathBuf> {
    let package = folder.join(name);
    fs::create_dir_all(package.join("src"))?;
    fs::write(package.join("Cargo.toml"), "[package]\nname = \"k\"\nversion = \"0.1.0\"\n")?;
    fs::write(package.join("src/lib.rs"), "")?;
    Ok(package)
}

fn builder(folder: &Path, package: &Path, toolchain: &DeviceToolchain) -> CudaBuilder {
    let builder = CudaBuilder::new(package).target_dir(folder.join("target")).capture_output(true);
    builder.toolchain(toolchain.clone()).copy_to(package.with_extension("ptx"))
}

#[test]
fn packages_compile_side_by_side() -> Result<(), Box<dyn Error>> {
    if thread::available_parallelism()?.get() == 1 {
        testkit::skip("a single core compiles one package at a time");
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let toolchain = stand_in(folder.path(), COMPILES);
    let mut prepared = Vec::new();
    for name in ["a", "b"] {
        let package = package(folder.path(), name)?;
        prepared.push(builder(folder.path(), &package, &toolchain).prepare()?);
    }
    assert!(prepared.iter().all(|build| !build.is_fresh()));
    let built: Vec<_> = thread::scope(|scope| {
        let running: Vec<_> = prepared.into_iter().map(|build| scope.spawn(move || build.finish())).collect();
        running.into_iter().map(|build| build.join().expect("no panic")).collect()
    });
    for (built, name) in built.into_iter().zip(["a", "b"]) {
        let text = fs::read_to_string(built?.ptx)?;
        assert!(text.contains(&format!("// {name}\n")), "{name}: {text}");
    }
    let again = builder(folder.path(), &folder.path().join("a"), &toolchain).prepare()?;
    assert!(again.is_fresh() && again.finish()?.fresh);
    Ok(())
}

#[test]
fn builds_of_the_same_package_do_not_disturb_each_other() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let toolchain = stand_in(folder.path(), COMPILES);
    let package = package(folder.path(), "same")?;
    let build = || builder(folder.path(), &package, &toolchain).build_module();
    let built: Vec<_> = thread::scope(|scope| {
        let running: Vec<_> = (0..4).map(|_| scope.spawn(build)).collect();
        running.into_iter().map(|build| build.join().expect("no panic")).collect()
    });
    for built in built {
        assert!(fs::read_to_string(built?.ptx)?.contains("// same\n"));
    }
    let left = fs::read_dir(folder.path().join("target/sm_75/asm"))?.count();
    assert_eq!(left, 1, "the assembly, and nothing unfinished");
    Ok(())
}

/// A kernel's name for each of the two compilers, and what both have.
const COMPILES_SOME: &str = r#"
case $CUDA_BUILDER_KERNELS in
"only fast_"*) kernel=fast_1 ;;
"but fast_"*) kernel=slow ;;
"") kernel=all ;;
*) echo "unknown: $CUDA_BUILDER_KERNELS" >&2; exit 1 ;;
esac
printf '.version 7.0\n.target sm_80\n.address_size 64\n.shared .b8 tile[4];\n.visible .entry %s()\n{\n\tret;\n}\n' "$kernel" >"$assembly"
"#;

#[test]
fn kernels_apart_become_one_module_with_the_others() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let toolchain = stand_in(folder.path(), COMPILES_SOME);
    let package = package(folder.path(), "apart")?;
    let manifest = fs::read_to_string(package.join("Cargo.toml"))?;
    let set_apart = |starts: &str| {
        let apart = format!("[package.metadata.ironwarp.apart]\nsm_80 = {starts}\n");
        fs::write(package.join("Cargo.toml"), manifest.clone() + &apart)
    };
    set_apart("[\"fast_\"]")?;
    let entries = |arch: &str, line_info| -> Result<Vec<String>, Box<dyn Error>> {
        let builder = builder(folder.path(), &package, &toolchain).arch(arch.parse::<cuda_builder::Arch>()?);
        let text = fs::read_to_string(builder.generate_line_info(line_info).build_module()?.ptx)?;
        let module = cuda_builder::ptx::Module::parse(&text)?;
        assert_eq!(text.matches("tile[4]").count(), 1, "{text}");
        Ok(module.entries().map(|entry| entry.name.to_owned()).collect())
    };
    assert_eq!(entries("sm_80", false)?, ["fast_1", "slow"]);
    assert_eq!(entries("sm_90a", false)?, ["all"], "another architecture");
    assert_eq!(entries("sm_80", true)?, ["all"], "source lines");
    set_apart("[\"fast_\", \"big_\"]")?;
    let refused = entries("sm_80", false).unwrap_err().to_string();
    assert!(refused.contains("no kernel for sm_80 has a name that begins with `big_`"), "{refused}");
    Ok(())
}
