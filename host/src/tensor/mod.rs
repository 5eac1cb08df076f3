//! Tensors: device memory with an element type, a shape and strides.
//!
//! A [`Tensor`] is cheap to clone. Clones and views (slices, transposes, broadcasts) share the memory, which
//! is freed with the last of them. Shared memory is read-only. [`Tensor::view_mut`] gives write access to a
//! tensor that shares its memory with no other, so no operation writes memory that another tensor reads. Uses
//! stay in order across streams, as those of a [`DeviceBuffer`] do.
//!
//! | part | contents |
//! |---|---|
//! | [`DType`], [`Element`] | element types, and the Rust types that they are |
//! | [`Shape`], [`Layout`] | pure arithmetic: broadcasting, slices, permutations, reshapes, padding |
//! | [`Tensor`], [`TensorMut`] | copies to and from the host, typed access, [`DeviceBuffer`]s |
//! | [`safetensors`] | files |
//! | [`Dim`], [`Scalar`] | dimensions counted from either end; plain numbers, and type promotion |
//! | methods and operators of [`Tensor`] | computations on the current stream, by PyTorch's names |
//! | [`crate::ops`] | the same on a stream of the caller's choice |
//!
//! ```no_run
//! use ironwarp::{Device, Tensor};
//!
//! # fn main() -> ironwarp::Result<()> {
//! let device = Device::open(0)?;
//! let x = Tensor::from_slice(&device, &[2, 3], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
//! let column = x.transpose(0, 1)?.select(0, -1)?; // no copy
//! assert_eq!((&column * 2.0)?.tolist::<f32>()?, [6.0, 12.0]);
//! # Ok(())
//! # }
//! ```

pub(crate) mod dim;
mod dtype;
mod error;
pub(crate) mod layout;
mod print;
pub(crate) mod promote;
pub mod safetensors;
pub(crate) mod shape;
#[allow(clippy::module_inception)]
mod tensor;
mod view_mut;

pub use dim::Dim;
pub use dtype::{DType, Element};
pub(crate) use error::Named;
pub use error::TensorError;
pub use layout::Layout;
pub use promote::Scalar;
pub use shape::{MAX_RANK, Shape};
pub use tensor::Tensor;
pub use view_mut::TensorMut;

#[cfg(doc)]
use crate::DeviceBuffer;
