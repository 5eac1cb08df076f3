//! Names of folders and files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::{Checkpoints, disk};

/// The manifest's name in a checkpoint.
pub const MANIFEST: &str = "manifest.json";
const STEP: &str = "step-";
const PARTIAL: &str = "partial-";
/// A checkpoint that is being removed.
const REMOVED: &str = "removed-";

/// A committed checkpoint. A step may have been written again after it turned out damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Committed {
    pub step: u64,
    pub attempt: u32,
}

impl Committed {
    pub fn name(self) -> String {
        match self.attempt {
            0 => format!("{STEP}{:012}", self.step),
            attempt => format!("{STEP}{:012}.{attempt}", self.step),
        }
    }

    fn parse(name: &str) -> Option<Self> {
        let rest = name.strip_prefix(STEP)?;
        let (step, attempt) = rest.split_once('.').unwrap_or((rest, "0"));
        let parsed = Self { step: step.parse().ok()?, attempt: attempt.parse().ok()? };
        // Other spellings of the numbers are not ours.
        (parsed.name() == name).then_some(parsed)
    }
}

/// The file of a rank.
pub fn shard(rank: u32, ranks: u32) -> String {
    format!("shard-{rank:05}-of-{ranks:05}.safetensors")
}

impl Checkpoints {
    /// Where the shards of a step are written.
    pub(crate) fn partial(&self, step: u64) -> PathBuf {
        self.folder.join(format!("{PARTIAL}{step:012}"))
    }

    pub(crate) fn path(&self, committed: Committed) -> PathBuf {
        self.folder.join(committed.name())
    }

    /// The committed checkpoints, newest first.
    pub(crate) fn committed(&self) -> Result<Vec<Committed>, Error> {
        let mut found: Vec<_> = self.entries()?.iter().filter_map(|name| Committed::parse(name)).collect();
        found.sort_unstable_by(|a, b| b.cmp(a));
        Ok(found)
    }

    /// Names in the folder. One that does not exist yet has none.
    fn entries(&self) -> Result<Vec<String>, Error> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(Error::io("list", &self.folder)(error)),
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(Error::io("list", &self.folder))?;
            names.extend(entry.file_name().into_string().ok());
        }
        Ok(names)
    }

    /// Removes what crashes have left: checkpoints that were being removed, and those that were being written
    /// up to this step, if there is one. Ranks may be writing later ones.
    pub(crate) fn sweep(&self, step: Option<u64>) -> Result<(), Error> {
        for name in self.entries()? {
            let partial = name.strip_prefix(PARTIAL).and_then(|step| step.parse::<u64>().ok());
            if name.starts_with(REMOVED) || partial.is_some_and(|partial| Some(partial) <= step) {
                let path = self.folder.join(&name);
                disk::remove_all(&path).map_err(Error::io("remove", path))?;
            }
        }
        Ok(())
    }

    /// Removes a checkpoint such that nobody takes what is left for one.
    pub(crate) fn remove(&self, committed: Committed) -> Result<(), Error> {
        let path = self.path(committed);
        let aside = self.folder.join(format!("{REMOVED}{}", committed.name()));
        disk::rename(&path, &aside).map_err(Error::io("rename", &path))?;
        disk::remove_all(&aside).map_err(Error::io("remove", aside))
    }
}

/// Removes files of a folder that are not listed.
pub fn remove_others(folder: &Path, listed: &[String]) -> Result<(), Error> {
    for entry in fs::read_dir(folder).map_err(Error::io("list", folder))? {
        let entry = entry.map_err(Error::io("list", folder))?;
        let is_listed =
            entry.file_name().to_str().is_some_and(|name| listed.iter().any(|known| known == name));
        if !is_listed {
            disk::remove_all(&entry.path()).map_err(Error::io("remove", entry.path()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for committed in [(0, 0), (7, 2), (u64::MAX, 0), (1_234_567_890_123, 11)] {
            let committed = Committed { step: committed.0, attempt: committed.1 };
            assert_eq!(Committed::parse(&committed.name()), Some(committed));
        }
        for other in
            ["step-7", "step-000000000007.0", "step-000000000007.01", "step-", "step--00000000007", "x"]
        {
            assert_eq!(Committed::parse(other), None, "{other}");
        }
    }
}
