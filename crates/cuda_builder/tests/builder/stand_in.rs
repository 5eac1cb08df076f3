//! A toolchain whose cargo is a script.

use std::error::Error;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use cuda_builder::{DeviceToolchain, Version};

/// Writes the script into the folder. No compiler is behind it.
pub fn stand_in(folder: &Path, script: &str) -> Result<DeviceToolchain, Box<dyn Error>> {
    let cargo = folder.join("cargo");
    fs::write(&cargo, script)?;
    fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755))?;
    Ok(DeviceToolchain {
        rustc: "rustc".into(),
        cargo,
        version: Version { major: 1, minor: 96, patch: 0 },
        description: "none".to_owned(),
        nightly: false,
        library_source: folder.to_owned(),
    })
}
