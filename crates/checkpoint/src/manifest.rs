//! The manifest of a checkpoint: a line of JSON that holds its own hash.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::dtype::DType;
use crate::shard::elements;

const FORMAT: &str = "ironwarp checkpoint 1";
/// A longer file is no manifest.
pub const MAX_BYTES: u64 = 256 << 20;

/// The content of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    format: String,
    pub step: u64,
    pub tensors: BTreeMap<String, Tensor>,
    pub shards: Vec<Shard>,
    pub notes: BTreeMap<String, String>,
    /// Of the manifest with this field empty.
    blake3: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tensor {
    pub dtype: DType,
    pub shape: Vec<u64>,
    /// In the order of their elements.
    pub parts: Vec<Place>,
}

/// Where elements of a tensor are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    pub begin: u64,
    pub end: u64,
    pub shard: u32,
    /// The first byte in the shard.
    pub offset: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shard {
    pub file: String,
    pub bytes: u64,
    pub blake3: String,
}

impl Tensor {
    /// Whether the parts make up the tensor; else how they do not.
    pub fn check_cover(&self) -> Result<(), String> {
        let mut covered = 0;
        for part in &self.parts {
            if part.begin > covered {
                return Err(format!("leave out elements {covered}..{}", part.begin));
            }
            if part.begin < covered || part.end < part.begin {
                return Err(format!("overlap at element {}", part.begin));
            }
            covered = part.end;
        }
        let elements = elements(&self.shape).ok_or_else(|| "are of a shape beyond all numbers".to_owned())?;
        if covered != elements {
            return Err(format!("end at element {covered} of {elements}"));
        }
        Ok(())
    }
}

impl Manifest {
    pub fn new(
        step: u64,
        tensors: BTreeMap<String, Tensor>,
        shards: Vec<Shard>,
        notes: &BTreeMap<String, String>,
    ) -> Self {
        let (format, notes) = (FORMAT.to_owned(), notes.clone());
        Self { format, step, tensors, shards, notes, blake3: String::new() }
    }

    /// The bytes of the file.
    pub fn to_bytes(&self) -> serde_json::Result<Vec<u8>> {
        let hash = self.hash()?;
        serde_json::to_vec(&Self { blake3: hash, ..self.clone() })
    }

    fn hash(&self) -> serde_json::Result<String> {
        let bare = serde_json::to_vec(&Self { blake3: String::new(), ..self.clone() })?;
        Ok(blake3::hash(&bare).to_hex().to_string())
    }

    /// Reads the bytes of the file, and checks all that readers rely on.
    pub fn from_bytes(bytes: &[u8], step: u64) -> Result<Self, String> {
        let manifest: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if manifest.hash().map_err(|error| error.to_string())? != manifest.blake3 {
            return Err("its hash is that of another text".to_owned());
        }
        if manifest.format != FORMAT {
            return Err(format!("it is of the format {:?}, not {FORMAT:?}", manifest.format));
        }
        if manifest.step != step {
            return Err(format!("it is of step {}", manifest.step));
        }
        for shard in &manifest.shards {
            if shard.file.contains('/') || shard.file.starts_with('.') || shard.file.is_empty() {
                return Err(format!("{:?} is no name of a file", shard.file));
            }
        }
        for (name, tensor) in &manifest.tensors {
            tensor.check_cover().map_err(|why| format!("the parts of {name:?} {why}"))?;
            let inside = |place: &Place| {
                let bytes = (place.end - place.begin).checked_mul(tensor.dtype.bytes())?;
                let end = place.offset.checked_add(bytes)?;
                manifest.shards.get(place.shard as usize).filter(|shard| end <= shard.bytes)
            };
            if tensor.parts.iter().any(|place| inside(place).is_none()) {
                return Err(format!("a part of {name:?} is in no shard"));
            }
        }
        Ok(manifest)
    }
}
