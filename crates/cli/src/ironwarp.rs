//! Where a project gets Ironwarp's packages from: crates.io, a checkout, or a folder of unpacked packages.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use toml::Table;

use crate::error::Error;

/// The host library, the device library with its algorithms, and the builder of PTX.
pub const HOST: &str = "ironwarp";
/// See [`HOST`].
pub const STD: &str = "ironwarp-std";
/// See [`HOST`].
pub const PRIMITIVES: &str = "ironwarp-primitives";
/// See [`HOST`].
pub const BUILDER: &str = "ironwarp-builder";
/// The packages that a project depends on.
pub const NEEDED: [&str; 4] = [HOST, STD, PRIMITIVES, BUILDER];

/// Whether crates.io has them.
const IS_RELEASED: bool = false;

/// A source of packages.
#[derive(Debug)]
pub enum Ironwarp {
    /// crates.io, in the release that this program is of.
    Registry,
    /// Folders on this machine.
    Local {
        /// Of every package, by its name.
        folders: BTreeMap<String, PathBuf>,
        /// Whether the packages know each other by version alone.
        unpacked: bool,
    },
}

impl Ironwarp {
    /// A checkout, or a folder with unpacked packages.
    ///
    /// # Errors
    /// When the packages that a project needs are not there, or their path cannot stand in a manifest.
    pub fn local(folder: &Path) -> Result<Self, Error> {
        let whole = folder.canonicalize().map_err(Error::io("find", folder))?;
        let Some(_) = whole.to_str().filter(|path| !path.contains(['"', '\\'])) else {
            return Err(Error::Refused(format!(
                "the path of Ironwarp, {}, cannot be written into a TOML file: move it to a plainer one",
                whole.display()
            )));
        };
        let mut folders = packages(&whole);
        folders.extend(packages(&whole.join("crates")));
        if let Some(missing) = NEEDED.into_iter().find(|name| !folders.contains_key(*name)) {
            return Err(Error::Refused(format!(
                "{} has no package `{missing}`: wanted a checkout of Ironwarp, or a folder with its packages unpacked",
                folder.display()
            )));
        }
        let unpacked = !whole.join("Cargo.toml").is_file();
        Ok(Self::Local { folders, unpacked })
    }

    /// Where nobody says: crates.io; until that has the packages, the checkout that this program is from.
    ///
    /// # Errors
    /// When there is neither.
    pub fn by_default() -> Result<Self, Error> {
        if IS_RELEASED {
            return Ok(Self::Registry);
        }
        let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        Self::local(&checkout).map_err(|_| {
            let why =
                "crates.io does not have Ironwarp's packages yet: name a checkout with `--ironwarp PATH`";
            Error::Refused(why.to_owned())
        })
    }

    /// The part of a dependency that says where a package is from.
    pub fn source(&self, package: &str) -> String {
        match self {
            Self::Registry => {
                let version = concat!(env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"));
                format!("version = {version:?}")
            }
            Self::Local { folders, .. } => format!("path = {:?}", folders[package]),
        }
    }

    /// Lines behind the manifest: unpacked packages find each other by them.
    pub fn patch(&self) -> String {
        let Self::Local { folders, unpacked: true } = self else { return String::new() };
        // Cargo warns of a patch for what a project does not need.
        let needed = folders.iter().filter(|(name, _)| *name != env!("CARGO_PKG_NAME"));
        let lines = needed.map(|(name, folder)| format!("{name} = {{ path = {folder:?} }}\n"));
        format!("\n[patch.crates-io]\n{}", lines.collect::<String>())
    }
}

/// The packages in the folders of one, by name.
fn packages(folder: &Path) -> BTreeMap<String, PathBuf> {
    // A folder that cannot be read has no packages, and the missing ones are named.
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((name_of(&entry.path())?, entry.path()))).collect()
}

fn name_of(package: &Path) -> Option<String> {
    let manifest: Table = fs::read_to_string(package.join("Cargo.toml")).ok()?.parse().ok()?;
    Some(manifest.get("package")?.get("name")?.as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(folder: &Path, path: &str, name: &str) {
        let folder = folder.join(path);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("Cargo.toml"), format!("[package]\nname = {name:?}\n")).unwrap();
    }

    #[test]
    fn unpacked_packages_are_patched_in() {
        let folder = tempfile::tempdir().unwrap();
        let whole = folder.path().canonicalize().unwrap();
        add(&whole, "ironwarp-cli-0.1.0", "ironwarp-cli");
        for name in NEEDED {
            let missing = Ironwarp::local(&whole);
            assert!(matches!(missing, Err(Error::Refused(_))), "{missing:?}");
            add(&whole, &format!("{name}-0.1.0"), name);
        }
        let unpacked = Ironwarp::local(&whole).unwrap();
        assert_eq!(unpacked.source(STD), format!("path = {:?}", whole.join("ironwarp-std-0.1.0")));
        assert_eq!(unpacked.patch().lines().count(), 2 + NEEDED.len(), "{}", unpacked.patch());
        add(&whole, "", "a workspace's root");
        assert_eq!(Ironwarp::local(&whole).unwrap().patch(), "");
    }

    #[test]
    fn a_checkout_has_them_all() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let checkout = Ironwarp::local(&root).unwrap();
        assert!(checkout.source(HOST).ends_with("/host\""), "{}", checkout.source(HOST));
        assert!(checkout.source(BUILDER).ends_with("/crates/cuda_builder\""));
        assert_eq!(checkout.patch(), "");
        let by_default = Ironwarp::by_default().unwrap();
        assert_eq!(by_default.source(HOST), checkout.source(HOST));
    }
}
