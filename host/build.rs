//! Finds the archive of kernels to embed, and the folder where programs built in the workspace look for PTX.
//!
//! A package from a registry has the archive in its own folder. In the workspace `cargo xtask archive` writes
//! one to `target/archive`; without it programs embed nothing, since they find the PTX in `target/ptx` when
//! they run, and there are dozens of them. What lies in the package's folder there is an old one, which
//! `cargo xtask package` leaves when it is killed.

use std::path::{Path, PathBuf};
use std::time::SystemTime;
use std::{env, fs, io};

const ARCHIVE: &str = "kernels.archive";

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    let package = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
    let mut archive = package.join(ARCHIVE);
    if let Some(target) = workspace_target(&package) {
        let ptx = made(target.join("ptx"))?;
        println!("cargo::rustc-env=IRONWARP_BUILD_PTX_DIR={}", fs::canonicalize(ptx)?.display());
        let folder = made(target.join("archive"))?;
        println!("cargo::rerun-if-changed={}", folder.display());
        archive = folder.join(ARCHIVE);
    }
    let bytes = if archive.is_file() {
        println!("cargo::rerun-if-changed={}", archive.display());
        fs::read(&archive)?
    } else {
        Vec::new()
    };
    fs::write(Path::new(&variable("OUT_DIR")?).join(ARCHIVE), bytes)
}

fn variable(name: &str) -> io::Result<String> {
    env::var(name).map_err(|error| io::Error::other(format!("{name}: {error}")))
}

/// `target` of the workspace that the package lies in. A copy that cargo has fetched lies in one too, but
/// nobody builds kernels there.
fn workspace_target(package: &Path) -> Option<PathBuf> {
    let workspace = package.join("..");
    let is_ours = workspace.join("xtask").is_dir() && !workspace.join(".cargo-ok").exists();
    is_ours.then(|| workspace.join("target"))
}

/// The folder, made first: cargo would run this program at every build if it were told to watch one that is
/// not there. A new one is dated back: cargo would take it for changed since this program began, and compile
/// the package once more in the next build.
fn made(folder: PathBuf) -> io::Result<PathBuf> {
    if !folder.is_dir() {
        fs::create_dir_all(&folder)?;
        // Where a folder cannot be dated, the next build is slower; that is all.
        let _ = fs::File::open(&folder).and_then(|opened| opened.set_modified(SystemTime::UNIX_EPOCH));
    }
    Ok(folder)
}
