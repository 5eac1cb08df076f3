//! The file of a rank: a safetensors file of the parts that it holds.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use serde::Serialize;

use crate::disk::Output;
use crate::dtype::DType;
use crate::error::Error;

/// A name in a safetensors header that is no tensor's.
const METADATA: &str = "__metadata__";

/// Elements of a tensor, as a rank holds them.
#[derive(Debug, Clone)]
pub struct Part<'a> {
    pub(crate) name: &'a str,
    pub(crate) dtype: DType,
    pub(crate) shape: &'a [u64],
    pub(crate) range: Range<u64>,
    pub(crate) bytes: &'a [u8],
}

impl<'a> Part<'a> {
    /// The elements `range`, counted row by row, of a tensor with this shape. Bytes are little-endian.
    pub fn new(name: &'a str, dtype: DType, shape: &'a [u64], range: Range<u64>, bytes: &'a [u8]) -> Self {
        Self { name, dtype, shape, range, bytes }
    }

    /// All elements.
    pub fn whole(name: &'a str, dtype: DType, shape: &'a [u64], bytes: &'a [u8]) -> Self {
        // A shape beyond all memory has no such bytes: `check` finds it.
        let elements = elements(shape).unwrap_or(u64::MAX);
        Self { name, dtype, shape, range: 0..elements, bytes }
    }

    fn check(&self) -> Result<(), Error> {
        if self.name == METADATA {
            return Err(Error::Name(self.name.to_owned()));
        }
        let Range { start, end } = self.range;
        let count = end.checked_sub(start).and_then(|count| count.checked_mul(self.dtype.bytes()));
        let fits = elements(self.shape).is_some_and(|elements| end <= elements);
        if fits && count == Some(self.bytes.len() as u64) {
            return Ok(());
        }
        Err(Error::Part {
            name: self.name.to_owned(),
            dtype: self.dtype,
            shape: self.shape.to_vec(),
            range: self.range.clone(),
            bytes: self.bytes.len(),
        })
    }
}

/// The number of elements, if it can be counted.
pub fn elements(shape: &[u64]) -> Option<u64> {
    shape.iter().try_fold(1_u64, |product, &side| product.checked_mul(side))
}

/// An entry of safetensors' header.
#[derive(Serialize)]
struct Entry<'a> {
    dtype: DType,
    shape: &'a [u64],
    data_offsets: [u64; 2],
}

/// A written file.
pub struct Written {
    pub bytes: u64,
    pub hash: blake3::Hash,
    /// Where each part begins in the file.
    pub offsets: Vec<u64>,
}

/// Writes the parts to a file, and brings it to disk.
pub fn write(path: &Path, parts: &[Part<'_>]) -> Result<Written, Error> {
    let mut entries = BTreeMap::new();
    let (mut at, mut begins) = (0, Vec::new());
    for part in parts {
        part.check()?;
        let end = at + part.bytes.len() as u64;
        let flat = [part.range.end - part.range.start];
        // A whole tensor keeps its shape, so that other tools find it as it is.
        let whole = elements(part.shape) == Some(flat[0]);
        let shape = if whole { part.shape.to_vec() } else { flat.to_vec() };
        begins.push(at);
        if entries.insert(part.name, (part.dtype, shape, [at, end])).is_some() {
            return Err(Error::Twice(part.name.to_owned()));
        }
        at = end;
    }
    let entries: BTreeMap<_, _> = entries
        .iter()
        .map(|(name, (dtype, shape, data_offsets))| {
            (*name, Entry { dtype: *dtype, shape, data_offsets: *data_offsets })
        })
        .collect();
    let failed = || Error::io("write", path);
    let mut header = serde_json::to_vec(&entries).map_err(|error| failed()(error.into()))?;
    // Data begins at a multiple of eight.
    header.resize(header.len().next_multiple_of(8), b' ');
    let data = 8 + header.len() as u64;
    let mut output = Output::create(path).map_err(failed())?;
    output.write(&(header.len() as u64).to_le_bytes()).map_err(failed())?;
    output.write(&header).map_err(failed())?;
    for part in parts {
        output.write(part.bytes).map_err(failed())?;
    }
    let (bytes, hash) = output.finish().map_err(Error::io("bring to disk", path))?;
    Ok(Written { bytes, hash, offsets: begins.into_iter().map(|at| data + at).collect() })
}
