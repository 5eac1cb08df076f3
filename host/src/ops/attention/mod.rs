//! Attention: `O = softmax(scale Q K^T) V` in bf16 and f16, for heads of up to 256 elements, with causal and
//! windowed masks, heads of keys that several heads of queries share, and sequences of different lengths.
//!
//! ```no_run
//! use half::bf16;
//! use ironwarp::DeviceBuffer;
//! use ironwarp::ops::attention::{Attention, Heads, HeadsMut, Mask};
//! # fn main() -> ironwarp::Result<()> {
//! # let device = ironwarp::Device::open(0)?;
//! # let stream = device.stream()?;
//! let (batch, rows, heads, kv_heads, size) = (2, 4096, 32, 8, 128);
//! let q = DeviceBuffer::<bf16>::zeroed(&stream, batch * rows * heads * size)?;
//! let k = DeviceBuffer::<bf16>::zeroed(&stream, batch * rows * kv_heads * size)?;
//! let v = DeviceBuffer::<bf16>::zeroed(&stream, batch * rows * kv_heads * size)?;
//! let mut o = DeviceBuffer::<bf16>::zeroed(&stream, batch * rows * heads * size)?;
//! let mut sums = DeviceBuffer::<f32>::zeroed(&stream, batch * heads * rows)?;
//! Attention::new(
//!     Heads::new(&q, [batch, rows, heads, size]),
//!     Heads::new(&k, [batch, rows, kv_heads, size]),
//!     Heads::new(&v, [batch, rows, kv_heads, size]),
//!     HeadsMut::new(&mut o, [batch, rows, heads, size]),
//! )
//! .mask(Mask::CAUSAL)
//! .log_sum_exp(&mut sums)
//! .run(&stream)?;
//! # Ok(())
//! # }
//! ```
//!
//! [`attention()`] is the same on tensors.
//!
//! # Where operands lie
//! Axes are `[batch, rows, heads, head size]`, each with a stride of its own ([`Heads`]). So `[batch, heads,
//! rows, head size]` ([`Heads::heads_first`]) and the parts of one buffer `[batch, rows, 3, heads, head
//! size]` need no copy. A row is contiguous and begins at a 16-byte boundary. Sequences of different lengths
//! lie one behind the other ([`Packed`]).
//!
//! # How it is computed
//! By [`attention::sm90`] on Hopper. Without a score function both passes run on Ampere and later, by
//! [`attention::mma`](mod@attention::mma). Tensor cores multiply 16-bit elements and sum in f32. Scores, the
//! softmax and the running sums are f32. Weights are rounded to the element type before they multiply V. No
//! matrix of scores is stored. A head size between those of the kernels takes the next larger kernel, with
//! rows padded by zeros. [`Attention::explain`] returns the choice and its reason.
//!
//! A configuration gives the same bits in every run; a [`Tuner`](super::tuning::Tuner) measures which is the
//! fastest. All gradients do on request ([`Backward::deterministic`]); on other devices than Hopper always.
//!
//! [`Attention::sinks`] adds a key without a value to each head, as models with attention sinks do.
//!
//! [`Attention::quantized`] is for operands in e4m3 with scales, at up to twice the rate, with a result in
//! bf16.
//!
//! [`MultiHead`] is a layer: projections of tokens, attention on them, and a last product with a residual.
//!
//! [`Decode`] is for few queries on many keys, on Ampere too, at the speed at which keys and values come from
//! memory.

mod backward;
mod bias_gradient;
mod block_mask;
mod check;
mod config;
mod decode;
mod function;
mod heads;
mod launch;
mod mask_cache;
mod multi_head;
mod op;
mod places;
mod problem;
mod quantized;
pub mod ranges;
pub mod relative;
mod relative_gradient;
mod select;
mod tensor;
mod tune;

pub use ::attention::{functions, score};
pub use backward::{Backward, BackwardKernels, Forward, Gradients, ModifiedBackward};
pub use bias_gradient::BiasGradient;
pub use block_mask::{BlockMask, Own, Statistics};
pub use config::{Candidate, Choice, Config, Rejection};
pub use decode::{
    CacheScales, Decode, DecodeConfig, DecodeKernels, DecodePlan, DecodeProblem, DecodeWithAlibi,
    DecodeWithSoftCap, ModifiedDecode, Pages, Rotary,
};
pub use function::{
    ForwardKernels, Modified, WithAlibi, WithBias, WithBlockSparse, WithDropout, WithRanges, WithSoftCap,
};
pub use heads::{Heads, HeadsMut};
pub use mask_cache::{BlockMaskCache, CacheStatistics, CachedMask, FunctionValues, PlainValues};
pub use multi_head::{
    MultiHead, MultiHeadBackward, MultiHeadGradients, Projection, ProjectionGradients, Recorded,
};
pub use op::{Attention, Packed};
pub use problem::{Mask, Problem};
pub use quantized::{Quantized, Scales};
pub use relative_gradient::RelativeBiasGradient;
pub use select::{candidates, select};
pub use tensor::{Options, attention};

/// The operation that errors name.
const OPERATION: &str = "attention";
