//! Whether a finished module is still what its sources say, without asking cargo: a file beside it lists
//! every source with its time and size.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::BuildError;

/// The stages after the compiler, as source: when they change, modules are finished anew.
const RECIPE: &[&str] = &[
    include_str!("compile.rs"),
    include_str!("ptx/mod.rs"),
    include_str!("ptx/finish.rs"),
    include_str!("ptx/lint.rs"),
];

/// Number of the stages after the compiler.
pub fn recipe(hasher: &mut impl std::hash::Hasher) {
    RECIPE.iter().for_each(|source| hasher.write(source.as_bytes()));
}

/// Whether the stamp at `path` holds: same fingerprint, and every file as it was.
pub fn holds(path: &Path, fingerprint: u64) -> bool {
    let Ok(text) = fs::read_to_string(path) else { return false };
    let mut lines = text.lines();
    lines.next() == Some(first_line(fingerprint).as_str()) && lines.all(line_holds)
}

/// The files that a stamp lists.
pub fn files(path: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().skip(1).filter_map(|line| line.splitn(3, ' ').nth(2)).map(PathBuf::from).collect()
}

/// Writes the stamp for these files, from which a build that began at `started` has made something. It does not hold if one
/// of them has changed since: the compiler may have read it before.
///
/// # Errors
/// When the stamp cannot be written.
pub fn write(
    path: &Path,
    fingerprint: u64,
    files: &BTreeSet<PathBuf>,
    started: SystemTime,
) -> Result<(), BuildError> {
    let mut text = first_line(fingerprint);
    text.push('\n');
    for file in files {
        let Some(found) = modified_and_len(file) else { continue };
        // Cargo writes the lock file itself, before it compiles.
        let is_later = found.0 >= started && !file.ends_with("Cargo.lock");
        let state = state_of(found).filter(|_| !is_later);
        let _ = writeln!(text, "{} {}", state.as_deref().unwrap_or(UNKNOWN), file.display());
    }
    write_atomically(path, text.as_bytes())
}

/// Sources by cargo's dep-info, plus the manifests that govern them.
///
/// # Errors
/// When the dep-info cannot be read.
pub fn sources(dep_info: &Path, manifest: &Path) -> Result<BTreeSet<PathBuf>, BuildError> {
    let text = fs::read_to_string(dep_info).map_err(BuildError::io("read", dep_info))?;
    let mut files: BTreeSet<PathBuf> = parse_dep_info(&text).collect();
    let manifests: BTreeSet<PathBuf> = files.iter().filter_map(|file| nearest_manifest(file)).collect();
    files.extend(manifests);
    for folder in manifest.ancestors().skip(1) {
        let settings = ["Cargo.toml", "Cargo.lock", ".cargo/config.toml"].map(|name| folder.join(name));
        files.extend(settings.into_iter().filter(|file| file.is_file()));
    }
    Ok(files)
}

/// Writes so that a reader sees the old file or the new one, and leaves a file that is right already alone:
/// whoever watches its time is then not woken for nothing.
///
/// # Errors
/// When the file cannot be written.
pub fn write_atomically(path: &Path, contents: &[u8]) -> Result<(), BuildError> {
    if fs::read(path).is_ok_and(|old| old == contents) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(BuildError::io("create", folder))?;
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(name);
    fs::write(&temporary, contents).map_err(BuildError::io("write", &temporary))?;
    fs::rename(&temporary, path).map_err(BuildError::io("write", path))
}

fn first_line(fingerprint: u64) -> String {
    format!("fingerprint {fingerprint:016x}")
}

/// Stands for the state of a file of which it is not known what was read of it. No file has it.
const UNKNOWN: &str = "? ?";

fn modified_and_len(file: &Path) -> Option<(SystemTime, u64)> {
    let metadata = fs::metadata(file).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

fn state_of((modified, len): (SystemTime, u64)) -> Option<String> {
    let modified = modified.duration_since(UNIX_EPOCH).ok()?;
    Some(format!("{} {len}", modified.as_nanos()))
}

fn state(file: &Path) -> Option<String> {
    modified_and_len(file).and_then(state_of)
}

fn line_holds(line: &str) -> bool {
    let mut parts = line.splitn(3, ' ');
    let (Some(modified), Some(len), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    state(Path::new(path)).is_some_and(|now| now == format!("{modified} {len}"))
}

/// `target: file file\ with\ spaces`
fn parse_dep_info(text: &str) -> impl Iterator<Item = PathBuf> + '_ {
    let rules = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(": "));
    rules.flat_map(|(_, files)| {
        let joined = files.replace("\\ ", "\0");
        joined
            .split(' ')
            .filter(|file| !file.is_empty())
            .map(|file| PathBuf::from(file.replace('\0', " ")))
            .collect::<Vec<_>>()
    })
}

fn nearest_manifest(source: &Path) -> Option<PathBuf> {
    source.ancestors().skip(1).map(|folder| folder.join("Cargo.toml")).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_stamp_holds_until_a_file_changes() {
        let folder = tempfile::tempdir().unwrap();
        let (source, stamp) = (folder.path().join("a b.rs"), folder.path().join("stamp"));
        fs::write(&source, "1").unwrap();
        assert!(!holds(&stamp, 7), "no stamp yet");
        let files = BTreeSet::from([source.clone()]);
        write(&stamp, 7, &files, UNIX_EPOCH).unwrap();
        assert!(!holds(&stamp, 7), "written since the build began");
        write(&stamp, 7, &files, SystemTime::now() + Duration::from_secs(60)).unwrap();
        assert!(holds(&stamp, 7));
        assert!(!holds(&stamp, 8), "other flags");
        fs::write(&source, "22").unwrap();
        assert!(!holds(&stamp, 7), "other size");
        fs::remove_file(&source).unwrap();
        assert!(!holds(&stamp, 7), "gone");
    }

    #[test]
    fn dep_info_with_spaces() {
        let files: Vec<_> = parse_dep_info("/t/x.ptx: /a/lib.rs /b\\ c/m.rs\n\n# env-dep:X=1\n").collect();
        assert_eq!(files, [PathBuf::from("/a/lib.rs"), PathBuf::from("/b c/m.rs")]);
    }

    #[test]
    fn an_unchanged_file_keeps_its_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/x.ptx");
        write_atomically(&path, b"a").unwrap();
        let before = state(&path);
        write_atomically(&path, b"a").unwrap();
        assert_eq!(state(&path), before);
        write_atomically(&path, b"b").unwrap();
        assert_ne!(state(&path), before);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "no temporary file stays");
    }
}
