//! Methods and operators of [`Tensor`], with PyTorch's names, argument order, broadcasting and type
//! promotion.
//!
//! They queue on the current stream of the tensor's device ([`crate::Device::current_stream`]). The functions
//! of [`crate::ops`] do the same work on a stream that the caller names; each method here is a few lines over
//! one of them.
//!
//! | file | methods |
//! |---|---|
//! | `create` | `ones`, `full`, `arange`, `rand`, `eye` and their like |
//! | `unary` | one row a function of [`crate::ops::elementwise::UnaryOp`]; `to`, `clamp` |
//! | `binary` | one row a function of `BinaryOp` and of `CompareOp` ([`crate::ops::elementwise`]); `pow` |
//! | `operators` | `+ - * / & \| ^ !` |
//! | `reduce` | one row a function of [`crate::ops::reduce::ReduceOp`]; `argmax`, `max` |
//! | `statistics` | `var`, `std`, `logsumexp` |
//! | `row` | softmax, norms and other functions of rows ([`crate::ops::row`]), losses, `swiglu`, `geglu` |
//! | `shape` | `reshape`, `flatten`, `cat`, `split` and their like |
//! | `rearrange` | `flip`, `roll`, `repeat`, `pad`, `to_device` |
//! | `index` | `index_select`, `gather`, `scatter`, `one_hot`, `where_`, `masked_fill` |
//! | `matmul` | products of vectors, matrices and batches, `linear` |
//! | `attention` | `scaled_dot_product_attention` |
//! | `conv` | convolutions and pooling |
//! | `layers` | `embedding`, `rotary`, `dropout` |
//!
//! A new row of an op table gets a method by one line in the table of its file.
//!
//! Limits: nothing is differentiated, and there is no global random state; `rand` takes a seed.

mod attention;
mod binary;
mod conv;
mod create;
mod index;
mod layers;
mod matmul;
mod number;
mod operators;
mod rearrange;
mod reduce;
mod row;
mod shape;
mod statistics;
mod unary;

pub use number::Operand;

use crate::error::Result;
use crate::stream::Stream;
use crate::tensor::Tensor;

/// The stream that a method of `x` queues on.
fn stream_of(x: &Tensor) -> Result<Stream> {
    x.device().current_stream()
}
