//! A folder that is new: whole or not there, and nothing outside it is touched.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

use crate::error::Error;

/// Checks that `folder` can be made, and returns it as an absolute path.
///
/// # Errors
/// When the path is no name for a new folder, something is there already, or the folder around it is not.
pub fn check(folder: &Path) -> Result<PathBuf, Error> {
    let refuse = |why: &str| Err(Error::Refused(format!("{folder:?} is no folder to write into: {why}")));
    let Some(text) = folder.to_str() else {
        return refuse("its path is not UTF-8, which Cargo wants");
    };
    if text.trim().is_empty() {
        return refuse("the path is empty, like a shell variable that is not set");
    }
    if text.contains(char::is_control) || text.contains(':') {
        return refuse("Cargo wants a path without colons and control characters");
    }
    if fs::symlink_metadata(folder).is_ok() {
        return refuse("it exists already; choose another name or folder");
    }
    if !matches!(folder.components().next_back(), Some(Component::Normal(_))) {
        return refuse("its last part is no name");
    }
    let parent = match folder.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    if !parent.is_dir() {
        return refuse("the folder around it does not exist; create that first");
    }
    let parent = parent.canonicalize().map_err(Error::io("find", parent))?;
    let whole = parent.join(folder.file_name().unwrap_or_default());
    // The folders around it are in the path that Cargo sees.
    match whole.to_str() {
        Some(text) if !text.contains(char::is_control) && !text.contains(':') => Ok(whole),
        _ => refuse("Cargo wants a path in UTF-8 without colons and control characters"),
    }
}

/// Makes the folder and writes the files into it. Scripts can be run.
/// If a file cannot be written, the folder is removed again.
///
/// # Errors
/// When the folder is there already, or something cannot be written.
pub fn write(folder: &Path, files: &[(PathBuf, String)]) -> Result<(), Error> {
    // Fails if there is one: what others have written is neither overwritten nor removed.
    fs::create_dir(folder).map_err(Error::io("create", folder))?;
    let written = files.iter().try_for_each(|(path, text)| write_file(&folder.join(path), text));
    if written.is_err()
        && let Err(error) = fs::remove_dir_all(folder)
        && error.kind() != ErrorKind::NotFound
    {
        eprintln!("warning: half of {} is left, which cannot be removed: {error}", folder.display());
    }
    written
}

fn write_file(path: &Path, text: &str) -> Result<(), Error> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
    }
    let mut file = File::create_new(path).map_err(Error::io("create", path))?;
    file.write_all(text.as_bytes()).map_err(Error::io("write", path))?;
    if text.starts_with("#!") {
        let permissions = fs::Permissions::from_mode(0o755);
        file.set_permissions(permissions).map_err(Error::io("make executable", path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str) -> (PathBuf, String) {
        (path.into(), "text".to_owned())
    }

    #[test]
    fn a_failure_leaves_nothing() {
        let around = tempfile::tempdir().unwrap();
        let folder = around.path().join("new");
        // The second file would have to lie below the first.
        assert!(write(&folder, &[file("a"), file("a/b")]).is_err());
        assert!(!folder.exists());
        write(&folder, &[file("a"), file("b/c")]).unwrap();
        assert!(folder.join("b/c").is_file());
    }

    #[test]
    fn what_is_there_stays() {
        let around = tempfile::tempdir().unwrap();
        fs::write(around.path().join("Cargo.toml"), "mine").unwrap();
        assert!(write(around.path(), &[file("Cargo.toml")]).is_err());
        assert_eq!(fs::read_to_string(around.path().join("Cargo.toml")).unwrap(), "mine");
        std::os::unix::fs::symlink("nowhere", around.path().join("link")).unwrap();
        assert!(check(&around.path().join("link")).is_err());
    }

    #[test]
    fn paths_that_name_no_new_folder_are_refused() {
        for path in
            ["", " ", ".", "..", "/", "/tmp", "no/such/folder", "no/..", "a\nb", "a:b", "src/main.rs/x"]
        {
            assert!(matches!(check(Path::new(path)), Err(Error::Refused(_))), "{path:?}");
        }
        let here = std::env::current_dir().unwrap().canonicalize().unwrap();
        assert_eq!(check(Path::new("./new-one/")).unwrap(), here.join("new-one"));
    }
}
