//! Cargo's settings: the files `.cargo/config.toml` that it puts together.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

/// A setting of a file: `table.key`.
pub fn get<'a>(settings: &'a Table, table: &str, key: &str) -> Option<&'a Value> {
    settings.get(table)?.get(key)
}

/// The files that count in a folder, nearest first, each with what it says. Cargo itself reports those that
/// do not parse.
pub fn files(folder: &Path) -> impl Iterator<Item = (PathBuf, Table)> + use<> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(env::home_dir()?.join(".cargo")));
    let folders = folder.ancestors().map(|folder| folder.join(".cargo")).chain(home);
    let paths: Vec<_> =
        folders.flat_map(|folder| ["config.toml", "config"].map(|name| folder.join(name))).collect();
    paths.into_iter().filter_map(|path| {
        let text = fs::read_to_string(&path).ok()?;
        Some((path, text.parse().ok()?))
    })
}
