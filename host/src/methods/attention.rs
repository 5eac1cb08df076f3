//! Attention.

use super::stream_of;
use crate::error::Result;
use crate::ops::attention::{Mask, Options, attention};
use crate::tensor::{Tensor, TensorError};

impl Tensor {
    /// `softmax(scale self key^T) value`, as `torch.nn.functional.scaled_dot_product_attention` has it: of
    /// queries `[batch, heads, rows, head size]`, and keys and values `[batch, kv heads, rows, head size]`,
    /// where `kv heads` divides `heads`; or all three without `batch`. With `is_causal`, query `i` sees the
    /// keys up to `i`. Without a scale it is `1 / sqrt(head size)`.
    ///
    /// bf16 and f16, head sizes that are multiples of 8, up to 256, on Ampere and later. On Hopper `value`
    /// may have another head size than `self` and `key`. The result has the type of `self`, and its shape but
    /// for the head size, which is that of `value`; its rows lie before its heads in memory.
    /// [`crate::ops::attention::Attention`] has windows, packed sequences and log-sum-exps.
    ///
    /// # Errors
    /// As [`crate::ops::attention::attention()`], and [`TensorError::Shape`] for other numbers of dimensions.
    #[track_caller]
    pub fn scaled_dot_product_attention(
        &self,
        key: &Tensor,
        value: &Tensor,
        is_causal: bool,
        scale: impl Into<Option<f32>>,
    ) -> Result<Tensor> {
        let operands = [("self", self), ("key", key), ("value", value)];
        operands.into_iter().try_for_each(|(what, x)| expect_heads(what, x, self.rank()))?;
        let stream = stream_of(self)?;
        let by_rows = |x: &Tensor| x.transpose(-3, -2);
        let mask = if is_causal { Mask::CAUSAL.from_top_left() } else { Mask::FULL };
        let options = Options { mask, scale: scale.into() };
        attention(&stream, &by_rows(self)?, &by_rows(key)?, &by_rows(value)?, options)?.transpose(-3, -2)
    }
}

/// Whether an operand of attention has the shape that the method wants, and as many dimensions as `self`.
fn expect_heads(what: &'static str, x: &Tensor, rank: usize) -> Result<()> {
    if matches!(rank, 3 | 4) && x.rank() == rank {
        return Ok(());
    }
    let wanted = match rank {
        3 => "[heads, rows, head size]",
        4 => "[batch, heads, rows, head size]",
        _ => "[batch, heads, rows, head size], or [heads, rows, head size]",
    };
    Err(TensorError::Shape {
        operation: "scaled_dot_product_attention",
        what,
        got: x.shape().clone(),
        wanted: wanted.to_owned(),
        hint: "`unsqueeze` adds a dimension, `flatten` merges some",
    }
    .into())
}
