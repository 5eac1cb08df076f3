//! A project written for Rust-CUDA, in its own folder and with an empty environment: `port` adds lines to its
//! manifest, and then its six programs build without CUDA and run on the software driver.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

#[path = "../../../crates/cli/tests/user/mod.rs"]
mod user;
use user::{copy, text};

const PROGRAMS: &[&str] = &["guide", "streams", "events", "unified", "modules", "contexts"];
fn run(program: impl AsRef<std::ffi::OsStr>, args: &[&str], folder: &Path) -> std::io::Result<Output> {
    user::command(program, args, folder).output()
}

#[test]
fn a_project_builds_and_runs_with_its_manifest_changed_alone() -> Result<(), Box<dyn Error>> {
    if let Err(error) = cuda_builder::DeviceToolchain::find() {
        testkit::skip(&format!("no device compiler ({error})"));
        return Ok(());
    }
    let temporary = tempfile::tempdir()?;
    let project = temporary.path().join("project");
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rust_cuda"), &project)?;
    let manifest = project.join("Cargo.toml");
    let before = fs::read_to_string(&manifest)?;
    let port = |args: &[&str]| run(env!("CARGO_BIN_EXE_xtask"), args, &project);

    let shown = port(&["port", "."])?;
    assert!(shown.status.success() && text(&shown).contains("crates.io, unchanged"), "{}", text(&shown));
    assert_eq!(fs::read_to_string(&manifest)?, before, "nothing is written without --write");
    let written = port(&["port", ".", "--write"])?;
    assert!(written.status.success(), "{}", text(&written));
    assert!(fs::read_to_string(&manifest)?.starts_with(before.trim_end()));

    // The versions that are downloaded already, and that other projects compile too.
    fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.lock"), project.join("Cargo.lock"))?;
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("projects");
    let target_arg = target.display().to_string();
    let built = run("cargo", &[crate::BUILD, &[&target_arg]].concat(), &project)?;
    let output = text(&built);
    if output.contains("failed to download") || output.contains("Could not resolve host") {
        testkit::skip("no network for the project's dependencies");
        return Ok(());
    }
    assert!(built.status.success(), "{output}");
    let ptx = fs::read_to_string(project.join("resources/kernels.ptx"))?;
    assert!(ptx.contains(".target sm_75") && ptx.contains(".visible .entry before_ampere("), "{ptx}");
    for program in PROGRAMS {
        let outcome = run(target.join("debug").join(program), &[], &project)?;
        assert!(outcome.status.success(), "{program}: {}", text(&outcome));
    }
    let again = port(&["port", ".", "--write"])?;
    assert!(text(&again).contains("has patches already"), "{}", text(&again));
    Ok(())
}
