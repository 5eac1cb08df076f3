//! A tuner for operations that have several configurations: it measures those that can do a call, and keeps
//! what it finds.
//!
//! | calls | what configurations differ by |
//! |---|---|
//! | [`Matmul`](super::gemm::Matmul) | kernel, tile, cluster, parts of k, copies of operands |
//! | [`Attention`], [`Quantized`], [`Modified`] | kernel: tiles of queries, blocks of keys |
//! | [`Backward`], [`ModifiedBackward`] | kernel |
//! | [`Decode`], [`ModifiedDecode`] | kernel, and the number of blocks: how sequences are cut |
//!
//! [`Attention`]: super::attention::Attention
//! [`Quantized`]: super::attention::Quantized
//! [`Modified`]: super::attention::Modified
//! [`Backward`]: super::attention::Backward
//! [`ModifiedBackward`]: super::attention::ModifiedBackward
//! [`Decode`]: super::attention::Decode
//! [`ModifiedDecode`]: super::attention::ModifiedDecode
//!
//! ```no_run
//! use half::bf16;
//! use ironwarp::DeviceBuffer;
//! use ironwarp::ops::attention::{Attention, Heads, HeadsMut, Mask};
//! use ironwarp::ops::tuning::{Tuner, Tuning};
//! # fn main() -> ironwarp::Result<()> {
//! # let device = ironwarp::Device::open(0)?;
//! # let stream = device.stream()?;
//! let tuner = Tuner::with_file(&device, Tuning::Measure, "records.json");
//! let sides = [2, 4096, 16, 64];
//! let x = DeviceBuffer::<bf16>::zeroed(&stream, sides.iter().product())?;
//! let mut y = DeviceBuffer::<bf16>::zeroed(&stream, sides.iter().product())?;
//! let heads = Heads::new(&x, sides);
//! let attention = Attention::new(heads, heads, heads, HeadsMut::new(&mut y, sides)).mask(Mask::CAUSAL);
//! tuner.run(&stream, attention)?;
//! # Ok(())
//! # }
//! ```

mod call;
mod measure;
mod records;
mod tuner;

pub use call::Tunable;
pub(super) use call::{Call, Spare, Task};
pub use records::Unusable;
pub use tuner::{Source, Tuner, Tuning};
