//! Results of another day that a full disk or a hand has damaged.

#![cfg(unix)]

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use cuda_builder::{Arch, CudaBuilder};

use crate::stand_in::stand_in;

/// Compiles the same text always, and notes that it did.
const COMPILES: &str = r#"
printf '.version 7.0\n.target sm_80\n.address_size 64\n// whole\n' >"$assembly"
echo >>"${0%/*}/compiled"
"#;

fn files(folder: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    Ok(fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?)
}

#[test]
fn results_are_made_again() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let package = folder.path().join("k");
    fs::create_dir_all(package.join("src"))?;
    fs::write(package.join("Cargo.toml"), "[package]\nname = \"k\"\nversion = \"0.1.0\"\n")?;
    fs::write(package.join("src/lib.rs"), "")?;
    let toolchain = stand_in(folder.path(), COMPILES);
    let (target, ptx) = (folder.path().join("target"), folder.path().join("ptx/k.sm_80.ptx"));
    let build = || -> Result<_, Box<dyn Error>> {
        let builder = CudaBuilder::new(&package).arch(Arch::new(80)).target_dir(&target).copy_to(&ptx);
        let builder = builder.toolchain(toolchain.clone()).capture_output(true);
        let was_fresh = builder.clone().is_fresh()?;
        let built = builder.build_module()?;
        assert_eq!(built.fresh, was_fresh);
        Ok((built.fresh, fs::read_to_string(built.ptx)?))
    };
    let compiled = || fs::read(folder.path().join("compiled")).unwrap_or_default().len();
    let (_, whole) = build()?;
    assert!(whole.contains("// whole"), "{whole}");
    for damage in ["", ".version 7.0\n.tar", "\0\0\0"] {
        fs::write(&ptx, damage)?;
        let before = compiled();
        assert_eq!(build()?, (false, whole.clone()), "the module is {damage:?}");
        assert_eq!(compiled(), before, "the assembly is whole");
        // With the compiler's result, and nothing left that says what they were.
        fs::write(&ptx, damage)?;
        for sub in ["asm", "stamps"] {
            for file in files(&target.join("sm_80").join(sub))? {
                fs::write(file, damage)?;
            }
        }
        assert_eq!(build()?, (false, whole.clone()), "all is {damage:?}");
        assert_eq!(compiled(), before + 1);
        assert!(build()?.0, "nothing changed");
    }
    Ok(())
}
