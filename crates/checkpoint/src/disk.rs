//! The calls that change the disk, in one place, so that tests can make each of them fail.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

/// A new file, hashed while it is written.
pub struct Output {
    file: File,
    hasher: blake3::Hasher,
    written: u64,
}

impl Output {
    /// Writes over what may be there.
    pub fn create(path: &Path) -> io::Result<Self> {
        faults::point()?;
        Ok(Self { file: File::create(path)?, hasher: blake3::Hasher::new(), written: 0 })
    }

    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Err(error) = faults::point() {
            // As far as it came.
            self.file.write_all(&bytes[..bytes.len() / 2])?;
            return Err(error);
        }
        self.file.write_all(bytes)?;
        self.hasher.update(bytes);
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Brings the file to disk; its length and its hash.
    pub fn finish(self) -> io::Result<(u64, blake3::Hash)> {
        faults::point()?;
        self.file.sync_all()?;
        Ok((self.written, self.hasher.finalize()))
    }
}

/// Creates a folder and those around it, and brings their names to disk.
pub fn create_folder(path: &Path) -> io::Result<()> {
    let new: Vec<&Path> = path.ancestors().take_while(|folder| !folder.exists()).collect();
    faults::point()?;
    fs::create_dir_all(path)?;
    for folder in new.into_iter().filter_map(Path::parent) {
        // That of a relative name is the current one.
        sync_folder(if folder.as_os_str().is_empty() { Path::new(".") } else { folder })?;
    }
    Ok(())
}

/// Brings the names in a folder to disk.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    faults::point()?;
    File::open(path)?.sync_all()?;
    faults::note_synced(path);
    Ok(())
}

pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    faults::point()?;
    fs::rename(from, to)
}

/// Removes a file, or a folder with all that is in it.
pub fn remove_all(path: &Path) -> io::Result<()> {
    faults::point()?;
    if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
}

#[cfg(not(test))]
mod faults {
    /// Where a test could make a call fail.
    pub fn point() -> std::io::Result<()> {
        Ok(())
    }

    /// Where a test could see what is on disk.
    pub fn note_synced(_: &std::path::Path) {}
}

#[cfg(test)]
pub mod faults {
    use std::cell::{Cell, RefCell};
    use std::io;
    use std::path::{Path, PathBuf};

    thread_local! {
        /// Calls until the fault, and whether calls after it fail too, as those of a dead process do.
        static FAULT: Cell<Option<(u64, bool)>> = const { Cell::new(None) };
        /// Folders whose names were brought to disk.
        static SYNCED: RefCell<Vec<PathBuf>> = const { RefCell::new(Vec::new()) };
    }

    /// Runs a function whose `nth` call fails, and says whether it made so many.
    pub fn with<T>(nth: u64, for_ever: bool, run: impl FnOnce() -> T) -> (T, bool) {
        FAULT.set(Some((nth, for_ever)));
        let result = run();
        let left = FAULT.take();
        (result, left.is_none_or(|(left, _)| left == 0))
    }

    pub fn note_synced(path: &Path) {
        SYNCED.with_borrow_mut(|synced| synced.push(path.to_owned()));
    }

    /// The folders that this thread has brought to disk.
    pub fn synced() -> Vec<PathBuf> {
        SYNCED.with_borrow(Vec::clone)
    }

    pub fn point() -> io::Result<()> {
        let Some((left, for_ever)) = FAULT.get() else { return Ok(()) };
        if left > 1 {
            FAULT.set(Some((left - 1, for_ever)));
            return Ok(());
        }
        // With 0 left the fault has been.
        FAULT.set(Some((0, for_ever)));
        if left == 1 || for_ever { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}
