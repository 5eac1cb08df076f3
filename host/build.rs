//! Embeds the PTX files that `cargo xtask build-kernels` has left in `target/ptx` (or `IRONWARP_PTX_DIR`).
//! With none there the table is empty, and the program looks for PTX when it runs. So do development builds,
//! which embed none but the folder's name: PTX is megabytes, and there are dozens of test programs.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=IRONWARP_PTX_DIR");
    let mut table = String::from("&[\n");
    let folder = ptx_folder()?;
    if variable("PROFILE")? == "debug" {
        if let Some(folder) = folder {
            println!("cargo::rustc-env=IRONWARP_BUILD_PTX_DIR={}", fs::canonicalize(folder)?.display());
        }
    } else if let Some(folder) = folder {
        println!("cargo::rerun-if-changed={}", folder.display());
        for (family, arch, path) in ptx_files(&folder)? {
            println!("cargo::rerun-if-changed={}", path.display());
            writeln!(table, "({family:?}, {arch:?}, include_str!({path:?})),").map_err(io::Error::other)?;
        }
    }
    table.push(']');
    fs::write(Path::new(&variable("OUT_DIR")?).join("embedded_ptx.rs"), table)
}

fn variable(name: &str) -> io::Result<String> {
    env::var(name).map_err(|error| io::Error::other(format!("{name}: {error}")))
}

/// `IRONWARP_PTX_DIR`, else `target/ptx` of the workspace, else (outside of the workspace) none.
fn ptx_folder() -> io::Result<Option<PathBuf>> {
    if let Some(folder) = env::var_os("IRONWARP_PTX_DIR").filter(|folder| !folder.is_empty()) {
        return Ok(Some(folder.into()));
    }
    let workspace = Path::new(&variable("CARGO_MANIFEST_DIR")?).join("..");
    if !workspace.join("xtask").is_dir() {
        return Ok(None);
    }
    let folder = workspace.join("target").join("ptx");
    // Made here because cargo would run this program at every build if it were told to watch a folder that is
    // not there.
    fs::create_dir_all(&folder)?;
    Ok(Some(folder))
}

/// Family, architecture and absolute path of each `<family>.<arch>.ptx` in the folder, sorted.
fn ptx_files(folder: &Path) -> io::Result<Vec<(String, String, PathBuf)>> {
    let unreadable =
        |error| io::Error::other(format!("cannot read the PTX folder {}: {error}", folder.display()));
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let path = fs::canonicalize(entry?.path())?;
        let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".ptx"));
        if let Some((family, arch)) = name.and_then(|name| name.split_once('.')) {
            files.push((family.to_owned(), arch.to_owned(), path.clone()));
        }
    }
    files.sort();
    Ok(files)
}
