//! The row of `doctor` about this repository: modules of PTX that are older than their kernels.

use std::fs;
use std::path::{Path, PathBuf};

use cuda_builder::Manifest;
use ironwarp_cli::doctor::{Finding, Level};
pub use ironwarp_cli::doctor::{HELP, has_nvidia_driver};

use crate::error::Error;
use crate::{PROGRAM, workspace};

pub fn run(args: lexopt::Parser) -> Result<(), Error> {
    ironwarp_cli::doctor::run(PROGRAM, workspace::root(), || vec![ptx()], args)
}

fn ptx() -> Finding {
    let families = match workspace::families() {
        Ok(families) => families,
        Err(error) => {
            return Finding::bad("PTX", Level::Fail, error.to_string(), "check out the repository anew");
        }
    };
    let all: Vec<(&Manifest, PathBuf)> = families
        .iter()
        .flat_map(|family| modules(family, &workspace::ptx_dir()).into_iter().map(move |path| (family, path)))
        .collect();
    let total = all.len();
    let old = all.into_iter().filter(|(family, path)| !is_newer(path, &family.folder));
    let old: Vec<PathBuf> = old.map(|(_, path)| path).collect();
    if old.is_empty() {
        return Finding::ok(
            "PTX",
            format!("{total} modules in {}, none older than its kernels", workspace::ptx_dir().display()),
        );
    }
    let detail =
        format!("{} of {total} modules not built or older than their kernels: {}", old.len(), some(&old));
    Finding::bad("PTX", Level::Warn, detail, "cargo xtask build-kernels")
}

/// The modules that a family lists, and others of it that are in the folder: a GPU gets those too.
fn modules(family: &Manifest, folder: &Path) -> Vec<PathBuf> {
    let listed = family.archs.iter().map(|arch| folder.join(workspace::ptx_name(&family.library, *arch)));
    let found = workspace::modules(folder, &family.library).into_iter();
    let others = found.filter(|(arch, _)| !family.archs.contains(arch)).map(|(_, path)| path);
    listed.chain(others).collect()
}

/// The names of the first few files, and how many more there are.
fn some(files: &[PathBuf]) -> String {
    const NAMED: usize = 3;
    let names = files.iter().take(NAMED).filter_map(|path| path.file_name()?.to_str());
    let named = names.collect::<Vec<_>>().join(", ");
    if files.len() > NAMED { format!("{named} and {} more", files.len() - NAMED) } else { named }
}

/// Whether a module is at least as new as every file of its package. Changes in the device library show when
/// `build-kernels` runs.
fn is_newer(module: &Path, package: &Path) -> bool {
    let time = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    let is_empty = fs::metadata(module).is_ok_and(|metadata| metadata.len() == 0);
    let Some(built) = time(module).filter(|_| !is_empty) else { return false };
    let sources = fs::read_dir(package.join("src")).into_iter().flatten().flatten().map(|entry| entry.path());
    sources.chain([package.join("Cargo.toml")]).filter_map(|path| time(&path)).all(|changed| changed <= built)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_is_cut() {
        let files: Vec<PathBuf> = (0..5).map(|number| PathBuf::from(format!("ptx/{number}.ptx"))).collect();
        assert_eq!(some(&files[..3]), "0.ptx, 1.ptx, 2.ptx");
        assert_eq!(some(&files), "0.ptx, 1.ptx, 2.ptx and 2 more");
    }

    #[test]
    fn modules_that_are_not_listed_count_where_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let package = folder.path().join("k");
        fs::create_dir(&package).unwrap();
        let manifest = "[package]\nname = \"k\"\n[package.metadata.ironwarp]\narchs = [\"sm_80\"]\n";
        fs::write(package.join("Cargo.toml"), manifest).unwrap();
        let family = Manifest::read(&package).unwrap();
        let names = || some(&modules(&family, folder.path()));
        assert_eq!(names(), "k.sm_80.ptx");
        for name in ["k.sm_75.ptx", "k.sm_80.ptx", "kk.sm_75.ptx"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(names(), "k.sm_80.ptx, k.sm_75.ptx");
    }

    #[test]
    fn an_empty_module_is_not_built() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("Cargo.toml"), "").unwrap();
        let module = folder.path().join("x.ptx");
        for (text, built) in [("", false), ("// ironwarp", true)] {
            fs::write(&module, text).unwrap();
            assert_eq!(is_newer(&module, folder.path()), built, "{text:?}");
        }
    }
}
