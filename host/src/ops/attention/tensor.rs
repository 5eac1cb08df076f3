//! Attention on tensors.

use crate::error::Result;
use crate::ops::elementwise::{copy, made};
use crate::stream::Stream;
use crate::tensor::{Shape, Tensor};

use super::heads::{Heads, HeadsMut};
use super::op::Attention;
use super::problem::Mask;

/// The inputs of [`attention()`] beside the tensors. By default every query sees every key.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Options {
    /// Which keys a query sees.
    pub mask: Mask,
    /// The factor of the scores; `None` for `1 / sqrt(head size)`.
    pub scale: Option<f32>,
}

/// `softmax(scale Q K^T) V` of queries `[batch, rows, heads, head size]`, and keys and values `[batch, rows,
/// kv heads, head size]`, any strides: contiguous, of the queries' type and shape, but for the head size,
/// which is that of the values. Operands whose rows are not contiguous, or do not begin at 16-byte
/// boundaries, are copied first.
///
/// [`Attention`] has log-sum-exps, packed sequences, and results that go where the caller says.
///
/// # Errors
/// As [`Attention::run`], and [`Error::OutOfMemory`](crate::Error::OutOfMemory).
#[track_caller]
pub fn attention(
    stream: &Stream,
    queries: &Tensor,
    keys: &Tensor,
    values: &Tensor,
    options: Options,
) -> Result<Tensor> {
    let (queries, keys, values) =
        (addressable(stream, queries)?, addressable(stream, keys)?, addressable(stream, values)?);
    let mut sides = queries.shape().sides().to_vec();
    if let (Some(size), Some(of_values)) = (sides.last_mut(), values.shape().sides().last()) {
        *size = *of_values;
    }
    made(stream, &Shape::new(&sides)?, queries.dtype(), |out| {
        let (q, k, v) = (Heads::of(&queries)?, Heads::of(&keys)?, Heads::of(&values)?);
        let attention = Attention::new(q, k, v, HeadsMut::of(out)?).mask(options.mask);
        let attention = match options.scale {
            Some(scale) => attention.scale(scale),
            None => attention,
        };
        attention.run(stream)
    })
}

/// A tensor whose rows kernels can address: the same one, or a copy.
#[track_caller]
fn addressable(stream: &Stream, x: &Tensor) -> Result<Tensor> {
    let heads = Heads::of(x)?;
    if heads.shape.is_addressable(heads.data.as_ptr().raw(), heads.dtype.size()) {
        return Ok(x.clone());
    }
    copy(stream, x)
}
