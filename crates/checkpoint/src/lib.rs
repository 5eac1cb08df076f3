//! Sharded checkpoints that survive a crash at any moment.
//!
//! ```
//! use std::collections::BTreeMap;
//! use ironwarp_checkpoint::{Checkpoints, DType, Part};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = std::env::temp_dir().join(format!("ironwarp checkpoint {}", std::process::id()));
//! let checkpoints = Checkpoints::new(&folder);
//! // Each rank writes its parts, and sends the report to rank 0, which commits.
//! let weight = [1.0f32, 2.0, 3.0, 4.0].map(f32::to_le_bytes).concat();
//! let reports = [
//!     checkpoints.write(100, 0, 2, &[Part::new("weight", DType::F32, &[2, 2], 0..2, &weight[..8])])?,
//!     checkpoints.write(100, 1, 2, &[Part::new("weight", DType::F32, &[2, 2], 2..4, &weight[8..])])?,
//! ];
//! checkpoints.commit(100, &reports, &BTreeMap::from([("epoch".to_owned(), "3".to_owned())]))?;
//! checkpoints.keep_last(3)?;
//!
//! // Later, with any number of ranks.
//! let newest = checkpoints.newest_whole()?.expect("there is one");
//! assert_eq!(newest.step(), 100);
//! assert_eq!(newest.read("weight", 1..3)?, [2.0f32, 3.0].map(f32::to_le_bytes).concat());
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok(())
//! # }
//! ```
//!
//! ```text
//! folder/
//!   step-000000000100/                        a checkpoint: there as a whole, or not at all
//!     manifest.json                           tensors, where their parts are, a hash for each shard, its own hash
//!     shard-00000-of-00002.safetensors        the parts of rank 0; other tools can read it
//!     shard-00001-of-00002.safetensors
//!   partial-000000000200/                     being written, or left by a crash
//! ```
//!
//! A checkpoint is written beside the others, brought to disk file by file, and appears by one rename. There
//! is no link to the latest one that could be torn: the newest is found by its name, and checked by its
//! hashes.
#![forbid(unsafe_code)]

mod disk;
mod dtype;
mod error;
mod load;
mod manifest;
mod names;
mod save;
mod shard;

pub use dtype::DType;
pub use error::{Damage, Error};
pub use load::{Checkpoint, TensorInfo};
pub use save::Report;
pub use shard::Part;

use std::ops::Range;
use std::path::{Path, PathBuf};

/// The checkpoints of a job: a folder that all ranks see.
#[derive(Debug, Clone)]
pub struct Checkpoints {
    folder: PathBuf,
}

impl Checkpoints {
    /// Those in a folder, which need not exist yet.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

/// A rank's share of so many elements: shares follow each other, and differ by one element at most.
///
/// # Panics
/// If there is no such rank.
pub fn share(elements: u64, rank: u32, ranks: u32) -> Range<u64> {
    assert!(rank < ranks, "rank {rank} of {ranks}");
    // Wide, since the product may be.
    let begin = |rank: u32| (u128::from(elements) * u128::from(rank) / u128::from(ranks)) as u64;
    begin(rank)..begin(rank + 1)
}
