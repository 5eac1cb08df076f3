//! Writing: each rank its shard, then one of them the manifest and the name.

use std::collections::BTreeMap;
use std::fs;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::disk::Output;
use crate::dtype::DType;
use crate::error::{Damage, Error};
use crate::manifest::{MAX_BYTES, Manifest, Place, Shard, Tensor};
use crate::names::{self, Committed, MANIFEST};
use crate::shard::{self, Part};
use crate::{Checkpoint, Checkpoints, disk};

/// A rank's account of its shard, for the rank that commits. It travels as text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    step: u64,
    rank: u32,
    ranks: u32,
    bytes: u64,
    blake3: String,
    parts: Vec<Reported>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Reported {
    name: String,
    dtype: DType,
    shape: Vec<u64>,
    begin: u64,
    end: u64,
    offset: u64,
}

impl Report {
    /// The bytes to send to the rank that commits.
    pub fn to_bytes(&self) -> Vec<u8> {
        // Numbers and texts: nothing that could not be written.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads what [`to_bytes`](Self::to_bytes) wrote.
    ///
    /// # Errors
    /// [`Error::Reports`] when it is something else.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        serde_json::from_slice(bytes).map_err(|error| Error::Reports {
            step: 0,
            got: 0,
            ranks: 0,
            why: error.to_string(),
        })
    }
}

impl Checkpoints {
    /// Writes a rank's parts of a step, and brings them to disk. Nothing of it is a checkpoint before
    /// [`commit`](Self::commit).
    ///
    /// # Errors
    /// [`Error::Part`], [`Error::Name`] and [`Error::Twice`] for parts that do not fit, [`Error::Io`].
    pub fn write(&self, step: u64, rank: u32, ranks: u32, parts: &[Part<'_>]) -> Result<Report, Error> {
        let folder = self.partial(step);
        disk::create_folder(&folder).map_err(Error::io("create", &folder))?;
        let path = folder.join(names::shard(rank, ranks));
        let written = shard::write(&path, parts)?;
        disk::sync_folder(&folder).map_err(Error::io("bring to disk", &folder))?;
        let parts = parts.iter().zip(written.offsets).map(|(part, offset)| Reported {
            name: part.name.to_owned(),
            dtype: part.dtype,
            shape: part.shape.to_vec(),
            begin: part.range.start,
            end: part.range.end,
            offset,
        });
        let blake3 = written.hash.to_hex().to_string();
        Ok(Report { step, rank, ranks, bytes: written.bytes, blake3, parts: parts.collect() })
    }

    /// Makes a checkpoint of the ranks' shards: checks that their parts make up every tensor, writes the
    /// manifest, and gives the folder its name. To be called by one rank, with the reports of all.
    ///
    /// # Errors
    /// [`Error::Reports`] and [`Error::Cover`] when something is missing, [`Error::Damaged`] when a shard is
    /// not there, [`Error::LongManifest`], [`Error::Io`]. Unless it returned without one, there may be no
    /// checkpoint of the step, and earlier ones are as they were.
    pub fn commit(
        &self,
        step: u64,
        reports: &[Report],
        notes: &BTreeMap<String, String>,
    ) -> Result<(), Error> {
        let mut reports: Vec<&Report> = reports.iter().collect();
        reports.sort_by_key(|report| report.rank);
        check_reports(step, &reports)?;
        let folder = self.partial(step);
        let shards: Vec<Shard> = reports.iter().map(|report| report.shard()).collect();
        for shard in &shards {
            let damaged = |damage| Error::Damaged { path: folder.clone(), damage };
            let length = fs::metadata(folder.join(&shard.file)).map(|file| file.len());
            let got = length.map_err(|_| damaged(Damage::Missing(shard.file.clone())))?;
            if got != shard.bytes {
                return Err(damaged(Damage::Length { file: shard.file.clone(), got, wanted: shard.bytes }));
            }
        }
        let files: Vec<String> = shards.iter().map(|shard| shard.file.clone()).collect();
        let manifest = Manifest::new(step, tensors(&reports)?, shards, notes);
        names::remove_others(&folder, &files)?;
        let path = folder.join(MANIFEST);
        let failed = || Error::io("write", &path);
        let bytes = manifest.to_bytes().map_err(|error| failed()(error.into()))?;
        // Nothing is committed that could not be opened.
        if bytes.len() as u64 > MAX_BYTES {
            return Err(Error::LongManifest { step, bytes: bytes.len() });
        }
        let (got, ranks) = (reports.len(), reports.len() as u32);
        Manifest::from_bytes(&bytes, step).map_err(|why| Error::Reports { step, got, ranks, why })?;
        let mut output = Output::create(&path).map_err(failed())?;
        output.write(&bytes).map_err(failed())?;
        output.finish().map_err(Error::io("bring to disk", &path))?;
        disk::sync_folder(&folder).map_err(Error::io("bring to disk", &folder))?;
        // An earlier checkpoint of the step stays until this one is there.
        let earlier = self.committed()?.into_iter().find(|committed| committed.step == step);
        let attempt = earlier.map_or(0, |earlier| earlier.attempt + 1);
        let path = self.path(Committed { step, attempt });
        disk::rename(&folder, &path).map_err(Error::io("rename", &folder))?;
        disk::sync_folder(&self.folder).map_err(Error::io("bring to disk", &self.folder))
    }

    /// Removes all checkpoints but those of the highest steps, and what crashes have left. Damaged ones do
    /// not count: those with a manifest that does not parse or with shards of other lengths. Bytes are
    /// compared where steps are above that of the checkpoint that was written last, which is always kept: a
    /// job that goes on from an earlier step has passed over them, perhaps since they are damaged. Where one
    /// cannot be read, that is the error: those below it stay, and so do those that crashes left half
    /// written.
    ///
    /// # Errors
    /// [`Error::KeepNone`], [`Error::Io`].
    pub fn keep_last(&self, count: usize) -> Result<(), Error> {
        if count == 0 {
            return Err(Error::KeepNone);
        }
        // They would be in the way of those that are removed now.
        self.sweep(None)?;
        let committed = self.committed()?;
        let last = committed.iter().copied().max_by_key(|&it| (self.written(it), it));
        let mut kept: Vec<u64> = Vec::new();
        for &checkpoint in &committed {
            let is_whole = |open: Checkpoint| {
                if Some(checkpoint) > last { open.verify() } else { open.check_lengths() }
            };
            if kept.len() == count || kept.contains(&checkpoint.step) {
                if Some(checkpoint) != last {
                    self.remove(checkpoint)?;
                }
            } else {
                match self.open_committed(checkpoint).and_then(is_whole) {
                    Ok(()) => kept.push(checkpoint.step),
                    Err(Error::Damaged { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        self.sweep(last.map(|last| last.step))
    }

    /// When the checkpoint was written, if it has a manifest.
    fn written(&self, committed: Committed) -> Option<SystemTime> {
        fs::metadata(self.path(committed).join(MANIFEST)).and_then(|file| file.modified()).ok()
    }
}

impl Report {
    fn shard(&self) -> Shard {
        let file = names::shard(self.rank, self.ranks);
        Shard { file, bytes: self.bytes, blake3: self.blake3.clone() }
    }
}

fn check_reports(step: u64, reports: &[&Report]) -> Result<(), Error> {
    let ranks = reports.first().map_or(0, |report| report.ranks);
    let error = |why: String| Err(Error::Reports { step, got: reports.len(), ranks, why });
    if ranks == 0 || reports.len() != ranks as usize {
        return error("some are missing".to_owned());
    }
    for (rank, report) in reports.iter().enumerate() {
        if report.rank as usize != rank || report.ranks != ranks || report.step != step {
            let Report { step, rank, ranks, .. } = report;
            return error(format!("one is of rank {rank} of {ranks}, step {step}"));
        }
    }
    Ok(())
}

/// The tensors that the parts make up.
fn tensors(reports: &[&Report]) -> Result<BTreeMap<String, Tensor>, Error> {
    let mut tensors: BTreeMap<String, Tensor> = BTreeMap::new();
    for (shard, report) in (0..).zip(reports) {
        for part in &report.parts {
            let tensor = tensors.entry(part.name.clone());
            let new = || Tensor { dtype: part.dtype, shape: part.shape.clone(), parts: Vec::new() };
            let tensor = tensor.or_insert_with(new);
            if tensor.dtype != part.dtype || tensor.shape != part.shape {
                let why = format!(
                    "are {:?} {:?} and {:?} {:?}",
                    tensor.dtype, tensor.shape, part.dtype, part.shape
                );
                return Err(Error::Cover { name: part.name.clone(), why });
            }
            tensor.parts.push(Place { begin: part.begin, end: part.end, shard, offset: part.offset });
        }
    }
    for (name, tensor) in &mut tensors {
        tensor.parts.sort_by_key(|part| (part.begin, part.end));
        tensor.check_cover().map_err(|why| Error::Cover { name: name.clone(), why })?;
    }
    Ok(tensors)
}
