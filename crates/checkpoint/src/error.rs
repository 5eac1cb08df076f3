//! Why a checkpoint cannot be written or read.

use std::io;
use std::ops::Range;
use std::path::PathBuf;

use crate::dtype::DType;
use crate::manifest::MAX_BYTES;

/// Why a checkpoint cannot be written or read, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file system refused something.
    #[error("cannot {action} {}: {source}", .path.display())]
    Io {
        /// The action.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A checkpoint is not what was written.
    #[error("the checkpoint {} is damaged: {damage}. `newest_whole` takes the newest one that is not", .path.display())]
    Damaged {
        /// The checkpoint's folder.
        path: PathBuf,
        /// Where, and how.
        damage: Damage,
    },
    /// All checkpoints are damaged.
    #[error("none of {} checkpoints is whole; the newest: {}", .0.len(), .0.first().map(ToString::to_string).unwrap_or_default())]
    NoneWhole(Vec<Error>),
    /// There is no checkpoint of that step.
    #[error("no checkpoint of step {step} in {}", .folder.display())]
    NoStep {
        /// The step.
        step: u64,
        /// The folder.
        folder: PathBuf,
    },
    /// A part does not fit its tensor.
    #[error(
        "elements {range:?} of {name:?} ({dtype:?} of shape {shape:?}) in {bytes} bytes; wanted elements of that shape, and as many bytes as they take"
    )]
    Part {
        /// The tensor.
        name: String,
        /// Its type.
        dtype: DType,
        /// Its shape.
        shape: Vec<u64>,
        /// The elements.
        range: Range<u64>,
        /// The bytes that were given.
        bytes: usize,
    },
    /// The format of the shards has the name for itself.
    #[error("a tensor named {0:?}; wanted any other name: safetensors files keep this one for their notes")]
    Name(String),
    /// A rank wrote two parts of a tensor.
    #[error("two parts of {0:?} by one rank; wanted one range of elements a rank")]
    Twice(String),
    /// Reports are missing, or of something else.
    #[error("{got} reports for step {step}; wanted that of each of {ranks} ranks, of this step ({why})")]
    Reports {
        /// The step.
        step: u64,
        /// The number of reports.
        got: usize,
        /// The number of ranks that the first one counts.
        ranks: u32,
        /// More about it.
        why: String,
    },
    /// There are too many parts, or notes.
    #[error(
        "the manifest of step {step} has {bytes} bytes; at most {MAX_BYTES} fit. Write fewer and larger parts, or shorter notes"
    )]
    LongManifest {
        /// The step.
        step: u64,
        /// The bytes that it would have.
        bytes: usize,
    },
    /// The parts do not make up the tensor.
    #[error(
        "the ranks' parts of {name:?} {why}; wanted every element from one rank, and the same type and shape from all"
    )]
    Cover {
        /// The tensor.
        name: String,
        /// How they fail to.
        why: String,
    },
    /// There is no such tensor.
    #[error("no tensor {name:?} in the checkpoint of step {step}; it has {tensors}, for example {example:?}")]
    NoTensor {
        /// The name.
        name: String,
        /// The step.
        step: u64,
        /// How many there are.
        tensors: usize,
        /// One of them.
        example: String,
    },
    /// The tensor has fewer elements.
    #[error("elements {range:?} of {name:?}, which has {elements}")]
    Range {
        /// The tensor.
        name: String,
        /// The elements that were asked for.
        range: Range<u64>,
        /// How many there are.
        elements: u64,
    },
    /// Nothing would be left.
    #[error("keep the last 0 checkpoints; wanted at least 1")]
    KeepNone,
}

/// How a checkpoint differs from the one that was written.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    /// A file is not there.
    #[error("{0} is missing")]
    Missing(String),
    /// A file has another length.
    #[error("{file} has {got} bytes instead of {wanted}")]
    Length {
        /// The file.
        file: String,
        /// Its length.
        got: u64,
        /// As it was written.
        wanted: u64,
    },
    /// A file has other bytes.
    #[error("the bytes of {0} are not those that were written")]
    Hash(String),
    /// The manifest does not parse.
    #[error("manifest.json does not parse: {0}")]
    Manifest(String),
}

impl Error {
    /// Adapter for `map_err`.
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }
}
