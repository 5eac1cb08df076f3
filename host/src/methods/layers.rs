//! Embeddings, positions and dropout.

use super::stream_of;
use crate::error::Result;
use crate::ops::dropout::{self, Generator};
use crate::ops::rotary::{self, Positions, Rotary};
use crate::tensor::{Named, Tensor};

/// Parts of a model's layers. Each takes what the function of [`crate::ops`] takes that has its gradient.
impl Tensor {
    /// The rows of this table, `[rows, width]`, that `indices` names: `[.., width]`, as
    /// `torch.nn.functional.embedding(indices, self)`. The indices, i64 or i32 of any shape, are checked, for
    /// which the host waits once; [`crate::ops::index::gather`] takes those that were checked before.
    /// [`crate::ops::embedding::embedding_backward`] is the gradient.
    ///
    /// # Errors
    /// As [`Tensor::index_select`].
    #[track_caller]
    pub fn embedding(&self, indices: &Tensor) -> Result<Tensor> {
        let rows = self.index_select(0, &indices.flatten(0, -1)?).named("embedding")?;
        let sides = [indices.shape().sides(), &self.shape().sides()[1..]].concat();
        rows.view_as(&sides)
    }

    /// Each element 0 with a probability, and the others over one less the probability, as
    /// `torch.nn.functional.dropout`: [`dropout::dropout`]. `call` tells the layers of a step apart. The
    /// gradient is the same call of the gradient.
    ///
    /// # Errors
    /// As [`dropout::dropout`].
    #[track_caller]
    pub fn dropout(&self, probability: f64, generator: &Generator, call: u32) -> Result<Tensor> {
        dropout::dropout(&stream_of(self)?, self, probability, generator, call)
    }

    /// Heads, `[batch, rows, heads, columns]` or `[rows, heads, columns]`, with pairs of their columns turned
    /// by the angles of their positions: [`rotary::rotary`], whose gradient is [`rotary::rotary_backward`].
    ///
    /// # Errors
    /// As [`rotary::rotary`].
    #[track_caller]
    pub fn rotary(&self, embedding: Rotary<'_>, positions: Positions<'_>) -> Result<Tensor> {
        rotary::rotary(&stream_of(self)?, self, embedding, positions)
    }
}
