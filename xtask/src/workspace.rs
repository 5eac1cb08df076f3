//! Where things are in this repository: the workspace, and the folders that results go to.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cuda_builder::Manifest;
pub use ironwarp_cli::workspace::{Packages, Selection, Workspace, marked_kernels, modules, ptx_name};

use crate::error::Error;
use crate::{PROGRAM, process};

/// Folder of the workspace. Known from the place that this program was compiled in.
pub fn root() -> &'static Path {
    // `xtask` lies directly below it.
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// The workspace for the commands that every project has.
pub fn here() -> Workspace {
    let packages = Packages::Below(root().join("kernels-gpu"));
    Workspace { program: PROGRAM, root: root().to_owned(), target: root().join("target"), packages }
}

/// Where finished PTX goes, and where the host package looks for it.
pub fn ptx_dir() -> PathBuf {
    here().ptx_dir()
}

/// The archive of the shipped kernels, where the host package looks for it.
pub fn archive_path() -> PathBuf {
    root().join("target/archive/kernels.archive")
}

/// Build folder of the device compiler.
pub fn device_dir() -> PathBuf {
    here().device_dir()
}

/// Packages with kernels for the GPU, by name: those under `kernels-gpu` that list architectures.
pub fn families() -> Result<Vec<Manifest>, Error> {
    here().families()
}

/// The host's cargo, in the workspace.
pub fn cargo() -> Command {
    process::cargo(root())
}

/// The names of a kind of program, `bench` or `bin`, that the manifest of a package in this folder lists.
///
/// # Errors
/// When the manifest cannot be read.
pub fn listed(folder: &str, kind: &str) -> Result<Vec<String>, Error> {
    let path = root().join(folder).join("Cargo.toml");
    let text = fs::read_to_string(&path).map_err(Error::io("read", &path))?;
    let bad = |error: toml::de::Error| Error::BadFile { path: path.clone(), reason: error.to_string() };
    let manifest: toml::Table = text.parse().map_err(bad)?;
    let programs = manifest.get(kind).and_then(toml::Value::as_array).into_iter().flatten();
    Ok(programs.filter_map(|program| Some(program.get("name")?.as_str()?.to_owned())).collect())
}

/// Build folder of the host's cargo.
pub fn target_dir() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |folder| root().join(folder))
}
