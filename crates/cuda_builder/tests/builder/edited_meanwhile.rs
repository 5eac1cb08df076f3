//! A source that is edited while it is compiled.

#![cfg(unix)]

use std::error::Error;
use std::fs;

use cuda_builder::CudaBuilder;

use crate::stand_in::stand_in;

/// "Compiles" the first line of the source into a comment, and the first time writes another into the source
/// when it has read it.
const COMPILES: &str = r#"
line=$(cat src/lib.rs)
printf '.version 7.0\n.target sm_80\n.address_size 64\n// %s\n' "$line" >"$assembly"
sleep 0.1
[ "$line" != first ] || echo second >src/lib.rs
"#;

#[test]
fn is_compiled_again() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let package = folder.path().join("k");
    fs::create_dir_all(package.join("src"))?;
    fs::write(package.join("Cargo.toml"), "[package]\nname = \"k\"\nversion = \"0.1.0\"\n")?;
    fs::write(package.join("src/lib.rs"), "first\n")?;
    let toolchain = stand_in(folder.path(), COMPILES);
    let build = || -> Result<_, Box<dyn Error>> {
        let builder = CudaBuilder::new(&package).target_dir(folder.path().join("target"));
        let built = builder.toolchain(toolchain.clone()).capture_output(true).build_module()?;
        Ok((built.fresh, fs::read_to_string(built.ptx)?))
    };
    let (fresh, ptx) = build()?;
    assert!(!fresh && ptx.contains("// first"), "{ptx}");
    let (fresh, ptx) = build()?;
    assert!(!fresh && ptx.contains("// second"), "{ptx}");
    assert!(build()?.0, "nothing changed");
    Ok(())
}
