//! Tensors in sharded checkpoints: each rank writes its share of every tensor, and any number of ranks reads
//! them again.
//!
//! Replicas are the same on all ranks, so each rank writes a part of them: the elements that [`share`] gives
//! it. [`save_shard`] writes these, and one rank [commits](Checkpoints::commit). [`restore`] reads a whole
//! tensor, whatever number of ranks wrote it. The program chooses names. Optimisers name their own tensors
//! and read them back: [`Optimizer::state`](crate::ops::optim::Optimizer::state),
//! [`Optimizer::restore`](crate::ops::optim::Optimizer::restore).
//!
//! Ranks are threads of a [`Group`](super::Group), or processes: these functions know only their numbers.

pub use ironwarp_checkpoint::{Checkpoint, Checkpoints, Error as CheckpointError, Report, share};

use ironwarp_checkpoint::{DType as Stored, Part};

use crate::error::{Error, Result};
use crate::stream::Stream;
use crate::tensor::{DType, Tensor, TensorError, TensorMut};

/// The type's name in files.
fn stored(dtype: DType) -> Stored {
    match dtype {
        DType::F64 => Stored::F64,
        DType::F32 => Stored::F32,
        DType::F16 => Stored::F16,
        DType::BF16 => Stored::BF16,
        DType::F8E4M3 => Stored::F8_E4M3,
        DType::F8E5M2 => Stored::F8_E5M2,
        DType::I64 => Stored::I64,
        DType::I32 => Stored::I32,
        DType::U8 => Stored::U8,
        DType::Bool => Stored::BOOL,
    }
}

/// Writes the share of rank `rank` of `ranks` of each of these tensors, and syncs it to disk; waits for
/// `stream` and for earlier writers of the tensors. The shard belongs to the checkpoint of `step` when a rank
/// has [committed](Checkpoints::commit) it, with the reports of all.
///
/// # Errors
/// [`Error::InvalidArgument`] for a rank that is none, [`TensorError::NotContiguous`],
/// [`Error::HostMemory`], [`Error::Checkpoint`], [`Error::DeviceMismatch`], [`Error::NotCapturable`] on a
/// stream that is being captured, or the driver's error.
pub fn save_shard(
    stream: &Stream,
    checkpoints: &Checkpoints,
    step: u64,
    rank: u32,
    ranks: u32,
    tensors: &[(&str, &Tensor)],
) -> Result<Report> {
    const SAVE: &str = "save_shard";
    if rank >= ranks {
        return Err(Error::InvalidArgument {
            operation: SAVE,
            argument: "rank",
            got: rank.to_string(),
            wanted: format!("a rank below {ranks}"),
            hint: "ranks are counted from 0",
        });
    }
    let shares = tensors.iter().map(|(_, tensor)| {
        if !tensor.is_contiguous() {
            let (shape, strides) = (tensor.shape().clone(), tensor.layout().strides().to_vec());
            return Err(TensorError::NotContiguous { operation: SAVE, shape, strides }.into());
        }
        let (range, size) = (share(tensor.elements() as u64, rank, ranks), tensor.dtype().size());
        let bytes = tensor.span_bytes()?.slice(range.start as usize * size..range.end as usize * size)?;
        let shape: Vec<u64> = tensor.shape().iter().map(|&side| side as u64).collect();
        Ok((range, shape, bytes.to_vec(stream)?))
    });
    let shares = shares.collect::<Result<Vec<_>>>()?;
    let pairs = tensors.iter().zip(&shares);
    let parts = pairs.map(|((name, tensor), (range, shape, bytes))| {
        Part::new(name, stored(tensor.dtype()), shape, range.clone(), bytes)
    });
    let parts: Vec<Part<'_>> = parts.collect();
    Ok(checkpoints.write(step, rank, ranks, &parts)?)
}

/// Reads a tensor of a checkpoint into place: it has the shape and the type with which it was saved.
///
/// # Errors
/// [`Error::Checkpoint`] when it is not there or damaged, [`TensorError::Shape`], [`TensorError::DType`],
/// [`TensorError::NotContiguous`], [`Error::DeviceMismatch`], or the driver's error.
pub fn restore(stream: &Stream, checkpoint: &Checkpoint, name: &str, tensor: TensorMut<'_>) -> Result<()> {
    const RESTORE: &str = "restore";
    let saved = checkpoint.tensor(name)?;
    let shape = tensor.shape().clone();
    if !saved.shape.iter().copied().eq(shape.iter().map(|&side| side as u64)) {
        let hint = "make the tensor as it was when it was saved";
        let wanted = format!("{:?}, as in {}", saved.shape, checkpoint.path().display());
        return Err(
            TensorError::Shape { operation: RESTORE, what: "the tensor", got: shape, wanted, hint }.into()
        );
    }
    if saved.dtype != stored(tensor.dtype()) {
        let hint = "restore it into a tensor of that type, and convert that (`ops::convert`)";
        let (got, wanted) = (tensor.dtype(), format!("{:?}, as it was saved", saved.dtype));
        return Err(TensorError::DType { operation: RESTORE, what: "the tensor", got, wanted, hint }.into());
    }
    if !tensor.layout().is_contiguous() {
        let strides = tensor.layout().strides().to_vec();
        return Err(TensorError::NotContiguous { operation: RESTORE, shape, strides }.into());
    }
    let bytes = checkpoint.read(name, 0..saved.elements())?;
    if tensor.dtype() == DType::Bool && bytes.iter().any(|&byte| byte > 1) {
        let reason = format!("tensor `{name}`: a bool that is neither 0 nor 1");
        return Err(TensorError::File { path: checkpoint.path().to_owned(), reason }.into());
    }
    tensor.into_span_bytes()?.copy_from_slice(stream, &bytes)
}
