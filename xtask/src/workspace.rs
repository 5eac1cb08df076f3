//! Where things are: the workspace, its kernel families, and the folders that results go to.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use cuda_builder::{Arch, Manifest};

use crate::error::Error;
use crate::term;

/// Folder of the workspace. Known from the place that this program was compiled in.
pub fn root() -> &'static Path {
    // `xtask` lies directly below it.
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// Compilers fail in obscure ways where the current folder has been removed.
///
/// # Errors
/// When it has.
pub fn check_current_folder() -> Result<(), Error> {
    env::current_dir().map(drop).map_err(Error::NoCurrentFolder)
}

/// Where finished PTX goes, and where the host package looks for it.
pub fn ptx_dir() -> PathBuf {
    root().join("target/ptx")
}

/// Build folder of the device compiler.
pub fn device_dir() -> PathBuf {
    root().join("target/device")
}

/// Build folder of the host's cargo.
pub fn target_dir() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |folder| root().join(folder))
}

/// Whether an example has been built for release before.
pub fn has_release_example(name: &str) -> bool {
    target_dir().join("release/examples").join(name).is_file()
}

/// File name of a family's module for an architecture.
pub fn ptx_name(family: &str, arch: Arch) -> String {
    format!("{family}.{arch}.ptx")
}

/// The assembler's report on a module. Not beside the module: the folder with the PTX is watched.
pub fn report_path(family: &str, arch: Arch) -> PathBuf {
    device_dir().join("reports").join(format!("{family}.{arch}.ptxas"))
}

/// Packages with kernels for the GPU, by name: those under `kernels-gpu` that list architectures.
pub fn families() -> Result<Vec<Manifest>, Error> {
    let folder = root().join("kernels-gpu");
    let mut families = Vec::new();
    for entry in fs::read_dir(&folder).map_err(Error::io("read", &folder))?.flatten() {
        if entry.path().join("Cargo.toml").is_file() {
            families.push(Manifest::read(&entry.path())?);
        }
    }
    families.retain(|family| !family.archs.is_empty());
    families.sort_by(|a, b| a.library.cmp(&b.library));
    Ok(families)
}

/// Which of the families and architectures a command is about.
#[derive(Debug, Default, Clone)]
pub struct Selection {
    /// Names of families; empty for all.
    pub families: Vec<String>,
    /// Architectures; empty for all that a family lists.
    pub archs: Vec<Arch>,
}

impl Selection {
    /// Whether nothing is left out.
    pub fn is_everything(&self) -> bool {
        self.families.is_empty() && self.archs.is_empty()
    }

    /// Adds a comma-separated list of architectures.
    pub fn add_archs(&mut self, list: &str) -> Result<(), Error> {
        for name in list.split(',') {
            self.archs.push(
                name.parse()
                    .map_err(|error: cuda_builder::ParseArchError| Error::Usage(error.to_string()))?,
            );
        }
        Ok(())
    }

    /// Adds a comma-separated list of families.
    pub fn add_families(&mut self, list: &str) {
        self.families.extend(list.split(',').map(str::to_owned));
    }

    /// The pairs that are meant.
    ///
    /// # Errors
    /// When a name is unknown, or nothing is left.
    pub fn resolve(&self) -> Result<Vec<(Manifest, Arch)>, Error> {
        let all = families()?;
        for name in &self.families {
            if !all.iter().any(|family| family.library == *name) {
                let known: Vec<&str> = all.iter().map(|family| family.library.as_str()).collect();
                let nearest = term::nearest(name, known.iter().copied());
                return Err(Error::Unknown {
                    what: "kernel family",
                    name: name.clone(),
                    nearest,
                    known: known.join(", "),
                });
            }
        }
        let wanted = |family: &&Manifest| self.families.is_empty() || self.families.contains(&family.library);
        let pairs = all
            .iter()
            .filter(wanted)
            .flat_map(|family| family.archs.iter().map(move |arch| (family.clone(), *arch)));
        let pairs: Vec<_> =
            pairs.filter(|(_, arch)| self.archs.is_empty() || self.archs.contains(arch)).collect();
        if pairs.is_empty() {
            let mut known: Vec<String> =
                all.iter().flat_map(|family| family.archs.iter().map(Arch::to_string)).collect();
            known.sort();
            known.dedup();
            let name = self.archs.iter().map(Arch::to_string).collect::<Vec<_>>().join(",");
            let known = format!(
                "{} (listed under [package.metadata.ironwarp] in kernels-gpu/*/Cargo.toml)",
                known.join(", ")
            );
            return Err(Error::Unknown { what: "family for architecture", name, nearest: None, known });
        }
        Ok(pairs)
    }
}
