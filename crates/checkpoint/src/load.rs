//! Reading: by any number of ranks, whatever number wrote.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::Checkpoints;
use crate::dtype::DType;
use crate::error::{Damage, Error};
use crate::manifest::{MAX_BYTES, Manifest, Place};
use crate::names::{Committed, MANIFEST};
use crate::shard::elements;

/// Bytes that are hashed at once.
const CHUNK: usize = 1 << 20;
/// Shards that stay open: systems let a process have some 1,000 files.
const MOST_OPEN: usize = 64;

/// A checkpoint on disk.
#[derive(Debug)]
pub struct Checkpoint {
    path: PathBuf,
    manifest: Manifest,
    /// Newer ones that are damaged.
    passed_over: Vec<Error>,
    shards: Mutex<Verified>,
}

/// Shards whose hash was right.
#[derive(Debug, Default)]
struct Verified {
    identities: BTreeMap<u32, Identity>,
    /// Those that were read last.
    open: VecDeque<(u32, File)>,
}

/// By what a file is known again: device, number, length, and when it was last changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity([i128; 5]);

impl Identity {
    fn of(found: &fs::Metadata) -> Self {
        let unsigned = [found.dev(), found.ino(), found.len()].map(i128::from);
        let changed = [found.mtime(), found.mtime_nsec()].map(i128::from);
        Self([unsigned[0], unsigned[1], unsigned[2], changed[0], changed[1]])
    }
}

/// A tensor of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TensorInfo<'a> {
    /// Its name.
    pub name: &'a str,
    /// The type of its elements.
    pub dtype: DType,
    /// Its shape.
    pub shape: &'a [u64],
}

impl TensorInfo<'_> {
    /// The number of its elements.
    pub fn elements(&self) -> u64 {
        // The manifest was refused otherwise.
        elements(self.shape).unwrap_or(0)
    }
}

impl Checkpoints {
    /// The steps of which there are checkpoints, oldest first. Whether they are whole shows in reading.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn steps(&self) -> Result<Vec<u64>, Error> {
        let mut steps: Vec<u64> = self.committed()?.into_iter().map(|committed| committed.step).collect();
        steps.dedup();
        steps.reverse();
        Ok(steps)
    }

    /// The checkpoint of a step. Shards are checked when they are read.
    ///
    /// # Errors
    /// [`Error::NoStep`], [`Error::Damaged`], [`Error::Io`].
    pub fn open(&self, step: u64) -> Result<Checkpoint, Error> {
        let committed = self.committed()?.into_iter().find(|committed| committed.step == step);
        let none = || Error::NoStep { step, folder: self.folder().to_owned() };
        self.open_committed(committed.ok_or_else(none)?)
    }

    /// The newest checkpoint, if there is one. Shards are checked when they are read.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Io`].
    pub fn newest(&self) -> Result<Option<Checkpoint>, Error> {
        self.committed()?.first().map(|&committed| self.open_committed(committed)).transpose()
    }

    /// The newest checkpoint of which every byte is as it was written, if there are any at all. All of it
    /// is read for that, so one rank should look, and tell the others the step. Newer ones that are damaged
    /// are in [`Checkpoint::passed_over`]. One that cannot be read now is not passed over: it may be whole.
    ///
    /// # Errors
    /// [`Error::NoneWhole`] when there are some and all are damaged, [`Error::Io`].
    pub fn newest_whole(&self) -> Result<Option<Checkpoint>, Error> {
        let mut damaged = Vec::new();
        for committed in self.committed()? {
            let whole = self.open_committed(committed).and_then(|found| found.verify().map(|()| found));
            match whole {
                Ok(checkpoint) => return Ok(Some(Checkpoint { passed_over: damaged, ..checkpoint })),
                Err(error @ Error::Damaged { .. }) => damaged.push(error),
                Err(error) => return Err(error),
            }
        }
        if damaged.is_empty() { Ok(None) } else { Err(Error::NoneWhole(damaged)) }
    }

    pub(crate) fn open_committed(&self, committed: Committed) -> Result<Checkpoint, Error> {
        let path = self.path(committed);
        let damaged = |damage| Error::Damaged { path: path.clone(), damage };
        let file = path.join(MANIFEST);
        let length = match fs::metadata(&file) {
            Ok(found) => found.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(damaged(Damage::Missing(MANIFEST.to_owned())));
            }
            Err(error) => return Err(Error::io("read", file)(error)),
        };
        if length > MAX_BYTES {
            return Err(damaged(Damage::Manifest(format!("{length} bytes are too many"))));
        }
        let bytes = fs::read(&file).map_err(Error::io("read", &file))?;
        let manifest =
            Manifest::from_bytes(&bytes, committed.step).map_err(Damage::Manifest).map_err(damaged)?;
        let (passed_over, shards) = (Vec::new(), Mutex::default());
        Ok(Checkpoint { path: path.clone(), manifest, passed_over, shards })
    }
}

impl Checkpoint {
    /// The step.
    pub fn step(&self) -> u64 {
        self.manifest.step
    }

    /// The number of ranks that wrote it.
    pub fn ranks(&self) -> usize {
        self.manifest.shards.len()
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The newer checkpoints that [`Checkpoints::newest_whole`] has passed over, and why. Their steps have to
    /// be done again.
    pub fn passed_over(&self) -> &[Error] {
        &self.passed_over
    }

    /// The notes that were committed with it.
    pub fn notes(&self) -> &BTreeMap<String, String> {
        &self.manifest.notes
    }

    /// The tensors, in the order of their names.
    pub fn tensors(&self) -> impl Iterator<Item = TensorInfo<'_>> {
        let tensors = self.manifest.tensors.iter();
        tensors.map(|(name, tensor)| TensorInfo { name, dtype: tensor.dtype, shape: &tensor.shape })
    }

    /// A tensor by its name.
    ///
    /// # Errors
    /// [`Error::NoTensor`].
    pub fn tensor(&self, name: &str) -> Result<TensorInfo<'_>, Error> {
        match self.manifest.tensors.get_key_value(name) {
            Some((name, tensor)) => Ok(TensorInfo { name, dtype: tensor.dtype, shape: &tensor.shape }),
            None => Err(Error::NoTensor {
                name: name.to_owned(),
                step: self.step(),
                tensors: self.manifest.tensors.len(),
                example: self.manifest.tensors.keys().next().cloned().unwrap_or_default(),
            }),
        }
    }

    /// The bytes of some elements, whichever ranks wrote them. Checks the whole of every shard that it reads
    /// for the first time.
    ///
    /// # Errors
    /// [`Error::NoTensor`], [`Error::Range`], [`Error::Damaged`], [`Error::Io`] also when there is no memory
    /// for them.
    pub fn read(&self, name: &str, range: Range<u64>) -> Result<Vec<u8>, Error> {
        let info = self.tensor(name)?;
        let (size, elements) = (info.dtype.bytes(), info.elements());
        if range.start > range.end || range.end > elements {
            return Err(Error::Range { name: name.to_owned(), range, elements });
        }
        let mut bytes = Vec::new();
        for place in &self.manifest.tensors[name].parts {
            let (begin, end) = (range.start.max(place.begin), range.end.min(place.end));
            if begin < end {
                self.read_place(place, (begin - place.begin) * size..(end - place.begin) * size, &mut bytes)?;
            }
        }
        Ok(bytes)
    }

    /// Adds bytes of a part to what was read.
    fn read_place(&self, place: &Place, range: Range<u64>, bytes: &mut Vec<u8>) -> Result<(), Error> {
        let mut shards = self.shards.lock().unwrap_or_else(PoisonError::into_inner);
        let file = self.shard(&mut shards, place.shard)?;
        let at = bytes.len();
        let length = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        let room = bytes.try_reserve(length).map_err(|_| io::ErrorKind::OutOfMemory.into());
        let read = room.and_then(|()| {
            bytes.resize(at + length, 0);
            file.read_exact_at(&mut bytes[at..], place.offset + range.start)
        });
        read.map_err(Error::io("read", self.path.join(&self.manifest.shards[place.shard as usize].file)))
    }

    /// Reads everything and compares it with what was written.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Io`].
    pub fn verify(&self) -> Result<(), Error> {
        for shard in 0..self.manifest.shards.len() as u32 {
            let file = self.verified(shard)?;
            self.keep(&mut self.shards.lock().unwrap_or_else(PoisonError::into_inner), shard, file)?;
        }
        Ok(())
    }

    /// A shard with the right bytes: if it is open no more, it is hashed again unless it is the same file.
    fn shard<'v>(&self, verified: &'v mut Verified, shard: u32) -> Result<&'v File, Error> {
        if let Some(at) = verified.open.iter().position(|(open, _)| *open == shard) {
            return Ok(&verified.open[at].1);
        }
        let same = match verified.identities.get(&shard) {
            None => None,
            Some(&known) => {
                let file = self.opened(shard)?;
                (self.identity(shard, &file)? == known).then_some(file)
            }
        };
        let file = same.map_or_else(|| self.verified(shard), Ok)?;
        self.keep(verified, shard, file)
    }

    /// Keeps a shard open, in the place of the one that has been open for the longest where there are many.
    fn keep<'v>(&self, verified: &'v mut Verified, shard: u32, file: File) -> Result<&'v File, Error> {
        verified.identities.insert(shard, self.identity(shard, &file)?);
        verified.open.retain(|(open, _)| *open != shard);
        verified.open.truncate(MOST_OPEN - 1);
        verified.open.push_front((shard, file));
        Ok(&verified.open[0].1)
    }

    fn identity(&self, shard: u32, file: &File) -> Result<Identity, Error> {
        let path = || self.path.join(&self.manifest.shards[shard as usize].file);
        file.metadata().map(|found| Identity::of(&found)).map_err(|error| Error::io("look at", path())(error))
    }

    /// Compares the lengths alone.
    pub(crate) fn check_lengths(&self) -> Result<(), Error> {
        (0..self.manifest.shards.len() as u32).try_for_each(|shard| self.opened(shard).map(drop))
    }

    /// A shard of the right length.
    fn opened(&self, shard: u32) -> Result<File, Error> {
        let wanted = &self.manifest.shards[shard as usize];
        let path = self.path.join(&wanted.file);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(self.damaged(Damage::Missing(wanted.file.clone())));
            }
            Err(error) => return Err(Error::io("open", path)(error)),
        };
        let got = file.metadata().map_err(Error::io("look at", path))?.len();
        if got != wanted.bytes {
            return Err(self.damaged(Damage::Length {
                file: wanted.file.clone(),
                got,
                wanted: wanted.bytes,
            }));
        }
        Ok(file)
    }

    /// A shard with the right bytes.
    fn verified(&self, shard: u32) -> Result<File, Error> {
        let wanted = &self.manifest.shards[shard as usize];
        let mut file = self.opened(shard)?;
        let mut hasher = blake3::Hasher::new();
        let mut chunk = vec![0; CHUNK];
        loop {
            match file.read(&mut chunk).map_err(Error::io("read", self.path.join(&wanted.file)))? {
                0 => break,
                read => _ = hasher.update(&chunk[..read]),
            }
        }
        if *hasher.finalize().to_hex() != *wanted.blake3 {
            return Err(self.damaged(Damage::Hash(wanted.file.clone())));
        }
        Ok(file)
    }

    fn damaged(&self, damage: Damage) -> Error {
        Error::Damaged { path: self.path.clone(), damage }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
