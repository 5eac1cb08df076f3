//! Whether a folder can be searched: known before anything is built or read.

use std::path::{Path, PathBuf};

/// Folders whose files are no text but the system's state, without an end.
const SYSTEM: [&str; 3] = ["/proc", "/sys", "/dev"];

/// Why a folder cannot be searched.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    #[error("the corpus folder has an empty name. Give an existing folder with --corpus DIR")]
    Unnamed,
    #[error("the corpus folder {0:?} does not exist. Give an existing folder with --corpus DIR")]
    Missing(PathBuf),
    #[error("the corpus {0:?} is a file, not a folder. Give the folder that holds it with --corpus DIR")]
    NotAFolder(PathBuf),
    #[error("the corpus folder {0:?} cannot be read: {1}. Check its permissions")]
    Unreadable(PathBuf, std::io::Error),
    #[error(
        "the corpus folder {0:?} shows the system's state, not text. Give a folder with text files: --corpus DIR"
    )]
    System(PathBuf),
}

/// Checks the folder, and returns its path without links.
pub fn check(folder: &Path) -> Result<PathBuf, FolderError> {
    if folder.as_os_str().is_empty() {
        return Err(FolderError::Unnamed);
    }
    let unreadable = |error| FolderError::Unreadable(folder.into(), error);
    if !folder.try_exists().map_err(unreadable)? {
        return Err(FolderError::Missing(folder.into()));
    }
    if !folder.is_dir() {
        return Err(FolderError::NotAFolder(folder.into()));
    }
    let whole = folder.canonicalize().map_err(unreadable)?;
    if is_system(&whole) {
        return Err(FolderError::System(folder.into()));
    }
    std::fs::read_dir(&whole).map_err(unreadable)?;
    Ok(whole)
}

/// Whether a path without links leads into one of the system's folders.
pub fn is_system(path: &Path) -> bool {
    SYSTEM.iter().any(|system| path.starts_with(system))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_the_system_are_refused_under_every_name() {
        for path in ["/proc/self", "/proc/self/../self/task", "/sys", "/dev/", "/dev/fd/../fd"] {
            assert!(matches!(check(Path::new(path)), Err(FolderError::System(_))), "{path}");
        }
        assert!(check(Path::new("/")).is_ok());
    }

    #[test]
    fn what_is_no_folder_is_named() {
        assert!(matches!(check(Path::new("")), Err(FolderError::Unnamed)));
        assert!(matches!(check(Path::new("/no/such/folder")), Err(FolderError::Missing(_))));
        assert!(matches!(check(Path::new("/dev/null")), Err(FolderError::NotAFolder(_))));
    }
}
