//! Files that are replaced in one step: readers see the old one or the new one, also after a crash.

use std::fs::{self, File, Permissions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Links that are followed one after the other, as the system does.
const MOST_LINKS: usize = 40;

/// Has a file written beside the one at `path`, whose place and permissions it then takes. When this returns,
/// the file and its name are on disk. A link stays: what it leads to is replaced, or made.
pub(crate) fn replace<E: From<io::Error>>(
    path: &Path,
    write: impl FnOnce(&Path) -> Result<(), E>,
) -> Result<(), E> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let whole = leads_to(path);
    let (process, number) = (std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let mut name = whole.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{process}-{number}.unfinished"));
    let new = whole.with_file_name(name);
    // Made here for the permissions of new files: a writer may let nobody else read its own.
    let made = File::create(&new).and_then(|file| fs::metadata(&whole).or_else(|_| file.metadata()));
    let written = made.map_err(E::from).and_then(|like| {
        write(&new)?;
        Ok(put(&new, &whole, like.permissions())?)
    });
    if written.is_err() {
        // The error of the write is the one to report.
        let _ = fs::remove_file(&new);
    }
    written
}

/// Gives the file `new` another name in its folder. A crash may not leave the name without the contents.
fn put(new: &Path, whole: &Path, permissions: Permissions) -> io::Result<()> {
    to_disk(new, Some(permissions))?;
    fs::rename(new, whole)?;
    // That of a relative name is the current one.
    let folder = whole.parent().filter(|folder| !folder.as_os_str().is_empty());
    to_disk(folder.unwrap_or(Path::new(".")), None)
}

/// Brings the contents of a file, which gets these permissions, or the names in a folder to disk.
fn to_disk(path: &Path, permissions: Option<Permissions>) -> io::Result<()> {
    let file = File::open(path)?;
    permissions.map_or(Ok(()), |permissions| file.set_permissions(permissions))?;
    file.sync_all()?;
    #[cfg(test)]
    tests::note(path);
    Ok(())
}

/// Where a link leads, there may be no file yet; else `path` itself.
fn leads_to(path: &Path) -> PathBuf {
    let mut whole = path.to_owned();
    for _ in 0..MOST_LINKS {
        let Ok(to) = fs::read_link(&whole) else { break };
        whole.set_file_name(to);
    }
    whole
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::fs;
    use std::io::{Error, Result};
    use std::os::unix::fs::symlink;
    use std::path::{Path, PathBuf};

    use super::replace;

    thread_local! {
        /// Paths that were brought to disk, and the contents of the file that is replaced at that time.
        static ON_DISK: RefCell<Vec<(PathBuf, Option<String>)>> = const { RefCell::new(Vec::new()) };
    }

    const FILE: &str = "whole";

    pub fn note(path: &Path) {
        let folder = if path.is_dir() { path } else { path.parent().unwrap_or(path) };
        let contents = fs::read_to_string(folder.join(FILE)).ok();
        ON_DISK.with_borrow_mut(|on_disk| on_disk.push((path.to_owned(), contents)));
    }

    fn folder(name: &str) -> Result<PathBuf> {
        let folder = std::env::temp_dir().join(format!("ironwarp-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    #[test]
    fn a_file_is_on_disk_before_it_has_the_name_and_the_name_is_then() -> Result<()> {
        let folder = folder("replaced")?;
        let path = folder.join(FILE);
        fs::write(&path, "old")?;
        let mut written = PathBuf::new();
        replace(&path, |new| {
            written = new.to_owned();
            fs::write(new, "new")
        })?;
        let steps = [(written, Some("old".to_owned())), (folder.clone(), Some("new".to_owned()))];
        assert_eq!(ON_DISK.take(), steps);
        // One that fails leaves what was there, and nothing beside it.
        assert!(replace(&path, |_| Err(Error::other("full"))).is_err());
        assert_eq!(fs::read_to_string(&path)?, "new");
        assert_eq!(fs::read_dir(&folder)?.count(), 1);
        fs::remove_dir_all(&folder)
    }

    #[test]
    fn links_stay_also_where_they_lead_to_nothing_yet() -> Result<()> {
        let folder = folder("linked")?;
        fs::create_dir_all(folder.join("shared"))?;
        let (first, second) = (folder.join("first"), folder.join("shared/second"));
        symlink("shared/second", &first)?;
        symlink(folder.join("shared").join(FILE), &second)?;
        for contents in ["one", "two"] {
            replace(&first, |new| fs::write(new, contents))?;
            assert!(first.is_symlink() && second.is_symlink());
            assert_eq!(fs::read_to_string(folder.join("shared").join(FILE))?, contents);
        }
        fs::remove_dir_all(&folder)
    }
}
