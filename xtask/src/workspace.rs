//! Where things are in this repository: the workspace, and the folders that results go to.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use cuda_builder::Manifest;
pub use ironwarp_cli::workspace::{Packages, Selection, Workspace, ptx_name};

use serde_json::Value;

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

/// Cargo's metadata of each package of the workspace.
///
/// # Errors
/// When cargo does not answer.
pub fn cargo_packages() -> Result<Vec<Value>, Error> {
    let mut command = cargo();
    let text = process::output(command.args(["metadata", "--no-deps", "--format-version", "1"]))?;
    let failed = |status: String| Error::Failed { command: process::shown(&command), status };
    let metadata: Value = serde_json::from_str(&text).map_err(|error| failed(error.to_string()))?;
    match metadata["packages"].as_array() {
        Some(packages) if !packages.is_empty() => Ok(packages.clone()),
        _ => Err(failed("it names no packages".to_owned())),
    }
}

/// Build folder of the host's cargo.
pub fn target_dir() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |folder| root().join(folder))
}
