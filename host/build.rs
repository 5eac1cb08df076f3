//! Embeds the PTX files that `cargo xtask build-kernels` has left in `target/ptx` (or `IRONWARP_PTX_DIR`). With none there
//! the table is empty, and the program looks for PTX when it runs.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=IRONWARP_PTX_DIR");
    let mut table = String::from("&[\n");
    if let Some(folder) = ptx_folder() {
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

/// `IRONWARP_PTX_DIR`, else `ptx` in the target folder that this build writes to, else in the workspace's.
fn ptx_folder() -> Option<PathBuf> {
    if let Some(folder) = env::var_os("IRONWARP_PTX_DIR").filter(|folder| !folder.is_empty()) {
        return Some(folder.into());
    }
    let out = PathBuf::from(env::var_os("OUT_DIR")?);
    let workspace = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR")?).join("../target/ptx");
    // A folder that is not there yet is watched all the same: cargo rebuilds when it appears.
    let beside = out.ancestors().map(|folder| folder.join("ptx")).find(|folder| folder.is_dir());
    Some(beside.unwrap_or(workspace))
}

/// Family, architecture and absolute path of each `<family>.<arch>.ptx` in the folder, sorted.
fn ptx_files(folder: &Path) -> io::Result<Vec<(String, String, PathBuf)>> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(Vec::new()) };
    let mut files = Vec::new();
    for entry in entries {
        let path = fs::canonicalize(entry?.path())?;
        let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".ptx"));
        if let Some((family, arch)) = name.and_then(|name| name.split_once('.')) {
            files.push((family.to_owned(), arch.to_owned(), path.clone()));
        }
    }
    files.sort();
    Ok(files)
}
