//! Tensors in files of the safetensors format.
//!
//! ```no_run
//! use ironwarp::{DType, Device, Tensor, tensor::safetensors};
//!
//! # fn main() -> ironwarp::Result<()> {
//! let stream = Device::open(0)?.stream()?;
//! let weight = Tensor::zeros(&stream, &[16, 16], DType::BF16)?;
//! safetensors::save(&stream, "model.safetensors", &[("weight", &weight)])?;
//!
//! let file = safetensors::TensorFile::open("model.safetensors")?;
//! for name in file.names() {
//!     println!("{name}: {:?}", file.load(&stream, &name)?);
//! }
//! # Ok(())
//! # }
//! ```

use std::borrow::Cow;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use safetensors::{SafeTensorError, View};

use super::tensor::room_on_host;
use super::{DType, Shape, Tensor, TensorError};
use crate::error::{Error, Result};
use crate::replace::replace;
use crate::stream::Stream;

/// Bytes in front of the header: its length.
const LENGTH_BYTES: usize = size_of::<u64>();
/// Name of `save` in errors.
const SAVE: &str = "safetensors::save";
/// A name in the header that is no tensor's.
const METADATA: &str = "__metadata__";
/// Longest header that is believed, as in other readers.
const MAX_HEADER_BYTES: u64 = 100_000_000;

/// A file of tensors, of which nothing but the header has been read. It stays open: where [`save`] replaces
/// it, this has the tensors of before.
#[derive(Debug)]
pub struct TensorFile {
    path: PathBuf,
    /// Open, so that tensors are those of the header even where another file has the name by now.
    file: File,
    metadata: Metadata,
    /// Place of the first tensor's bytes.
    data: u64,
}

impl TensorFile {
    /// Opens a file and reads its header, which has to describe the file to the byte.
    ///
    /// # Errors
    /// [`Error::File`] when it cannot be read, [`TensorError::File`] when it is no safetensors file, damaged,
    /// or cut short.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref().to_owned();
        let mut file = File::open(&path).map_err(unreadable(&path))?;
        let bytes = file.metadata().map_err(unreadable(&path))?.len();
        let refused = |reason: String| Error::from(TensorError::File { path: path.clone(), reason });

        let mut length = [0; LENGTH_BYTES];
        if bytes < LENGTH_BYTES as u64 {
            return Err(refused(format!("{bytes} bytes are less than the length of a header")));
        }
        file.read_exact(&mut length).map_err(unreadable(&path))?;
        let length = u64::from_le_bytes(length);
        if length > MAX_HEADER_BYTES || length > bytes - LENGTH_BYTES as u64 {
            return Err(refused(format!("a header of {length} bytes in a file of {bytes}")));
        }
        // Bounded above, so it fits.
        let mut header = vec![0; length as usize];
        file.read_exact(&mut header).map_err(unreadable(&path))?;
        let metadata: Metadata =
            serde_json::from_slice(&header).map_err(|error| refused(format!("the header: {error}")))?;
        let data = LENGTH_BYTES as u64 + length;
        let described = data.checked_add(metadata.data_len() as u64);
        if described != Some(bytes) {
            let described =
                described.map_or("more than can be counted".to_owned(), |bytes| bytes.to_string());
            return Err(refused(format!("the header describes {described} bytes, the file has {bytes}")));
        }
        Ok(TensorFile { path, file, metadata, data })
    }

    /// Names of the tensors, in the order of their data.
    pub fn names(&self) -> Vec<String> {
        self.metadata.offset_keys()
    }

    /// Element type and shape of a tensor.
    ///
    /// # Errors
    /// [`TensorError::NoSuchTensor`]; [`TensorError::File`] for an element type or rank that tensors do not
    /// have.
    pub fn describe(&self, name: &str) -> Result<(DType, Shape)> {
        let info = self.info(name)?;
        let dtype =
            known(info.dtype).ok_or_else(|| self.refused(name, format!("element type {}", info.dtype)))?;
        let shape = Shape::of("TensorFile::describe", &info.shape)
            .map_err(|error| self.refused(name, error.to_string()))?;
        Ok((dtype, shape))
    }

    /// Reads a tensor to the device; its data is on the host only while this runs.
    ///
    /// # Errors
    /// As [`TensorFile::describe`]; [`Error::File`] when the file cannot be read (any more),
    /// [`TensorError::File`] for a bool that is neither 0 nor 1, [`TensorError::HostMemory`],
    /// [`Error::OutOfMemory`], [`Error::NotCapturable`] on a stream that is being captured, or the driver's
    /// error.
    #[track_caller]
    pub fn load(&self, stream: &Stream, name: &str) -> Result<Tensor> {
        let (dtype, shape) = self.describe(name)?;
        let (start, end) = self.info(name)?.data_offsets;
        let mut bytes = room_on_host("TensorFile::load", &shape, end - start)?;
        bytes.resize(end - start, 0);
        let at = self.data + start as u64;
        self.file.read_exact_at(&mut bytes, at).map_err(unreadable(&self.path))?;
        if dtype == DType::Bool && bytes.iter().any(|&byte| byte > 1) {
            return Err(self.refused(name, "a bool that is neither 0 nor 1".to_owned()));
        }
        // SAFETY: the header was checked: as many bytes as elements of that size; bools were checked above.
        unsafe { Tensor::from_bytes(stream, shape, dtype, &bytes) }
    }

    fn info(&self, name: &str) -> Result<&TensorInfo> {
        self.metadata.info(name).ok_or_else(|| {
            TensorError::NoSuchTensor { path: self.path.clone(), name: name.to_owned(), names: self.names() }
                .into()
        })
    }

    fn refused(&self, name: &str, reason: String) -> Error {
        TensorError::File { path: self.path.clone(), reason: format!("tensor `{name}`: {reason}") }.into()
    }
}

/// Writes named tensors to a file, which is replaced at once when all is on disk. It keeps its permissions,
/// and a link to it stays one; a new file has those that the process gives to new files. Waits for `stream`,
/// earlier writers, and the disk; the tensors' data is on the host while this runs.
///
/// # Errors
/// [`Error::InvalidArgument`] for a name given twice or `__metadata__`, which the format has for itself,
/// [`Error::FileWrite`] when the file cannot be written, [`Error::DeviceMismatch`], or as [`Tensor::to_vec`].
pub fn save(stream: &Stream, path: impl AsRef<Path>, tensors: &[(&str, &Tensor)]) -> Result<()> {
    let path = path.as_ref();
    let refused = |reason: String| Error::from(TensorError::File { path: path.to_owned(), reason });
    let mut names: Vec<&str> = tensors.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    let unfit = |got: String, wanted: &str, hint| Error::InvalidArgument {
        operation: SAVE,
        argument: "the names",
        got,
        wanted: wanted.to_owned(),
        hint,
    };
    if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        let got = format!("`{}` for two tensors", twice[0]);
        return Err(unfit(got, "one for each tensor", "tensors are found again by their names"));
    }
    if names.contains(&METADATA) {
        return Err(unfit(format!("`{METADATA}`"), "any other", "the format keeps this one for itself"));
    }
    let on_host = |&(name, tensor): &(&str, &Tensor)| {
        let data = tensor.to_bytes(SAVE, stream)?;
        Ok((
            name.to_owned(),
            OnHost { dtype: format_of(tensor.dtype()), shape: tensor.shape().to_vec(), data },
        ))
    };
    let tensors: Vec<(String, OnHost)> = tensors.iter().map(on_host).collect::<Result<_>>()?;
    replace(path, |new| safetensors::serialize_to_file(tensors, None, new)).map_err(|error| match error {
        SafeTensorError::IoError(source) => Error::FileWrite { path: path.to_owned(), source },
        other => refused(other.to_string()),
    })
}

/// A tensor's data on its way to the file.
struct OnHost {
    dtype: Dtype,
    shape: Vec<usize>,
    data: Vec<u8>,
}

impl View for OnHost {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.data)
    }

    fn data_len(&self) -> usize {
        self.data.len()
    }
}

fn unreadable(path: &Path) -> impl Fn(std::io::Error) -> Error {
    |source| Error::File { path: path.to_owned(), source }
}

fn format_of(dtype: DType) -> Dtype {
    match dtype {
        DType::F64 => Dtype::F64,
        DType::F32 => Dtype::F32,
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
        DType::F8E4M3 => Dtype::F8_E4M3,
        DType::F8E5M2 => Dtype::F8_E5M2,
        DType::I64 => Dtype::I64,
        DType::I32 => Dtype::I32,
        DType::U8 => Dtype::U8,
        DType::Bool => Dtype::BOOL,
    }
}

fn known(dtype: Dtype) -> Option<DType> {
    DType::ALL.iter().copied().find(|&known| format_of(known) == dtype)
}
