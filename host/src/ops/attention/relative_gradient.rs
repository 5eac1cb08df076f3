//! The gradient of a bias for each distance.

use attention::diagonals::{THREADS, attention_diagonal_sums};
use attention::problem::AttentionParams;

use crate::error::Result;
use crate::launch::{LaunchConfig, launch};
use crate::memory::{DeviceBuffer, DeviceView, DeviceViewMut, same_length};
use crate::stream::Stream;

use super::OPERATION;
use super::backward::Forward;
use super::bias_gradient::ScoreGradient;
use super::check::{blocks_of_grid, count};
use super::heads::Heads;
use super::problem::Mask;

/// The gradient of the table of [`Attention::relative_bias`](super::Attention::relative_bias): that of each
/// score, summed over the places of a distance, and over the sequences and heads that share a number. Built
/// up, then [`RelativeBiasGradient::run`].
///
/// [`Backward::relative_bias`](super::Backward::relative_bias) has the gradients of queries, keys and values.
/// It runs on Ampere and later, in the same bits every time.
///
/// ```no_run
/// # use half::bf16;
/// # use ironwarp::{DeviceBuffer, Stream};
/// # use ironwarp::ops::attention::{Forward, Heads, Mask, RelativeBiasGradient};
/// # fn run(stream: &Stream, forward: Forward<'_>, gradient: Heads<'_>) -> ironwarp::Result<()> {
/// // One table for all sequences, of 512 queries on 512 keys: [1, heads, distances].
/// let sides = [1, 8, 1023];
/// let table = DeviceBuffer::<f32>::zeroed(stream, 8 * 1023)?;
/// let mut of_table = DeviceBuffer::<f32>::zeroed(stream, 8 * 1023)?;
/// RelativeBiasGradient::new(forward, gradient, &table, sides, &mut of_table).mask(Mask::CAUSAL).run(stream)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "the gradient is computed by `run`"]
pub struct RelativeBiasGradient<'a> {
    scores: ScoreGradient<'a>,
    table: DeviceView<'a, f32>,
    sides: [usize; 3],
    out: DeviceViewMut<'a, f32>,
}

impl<'a> RelativeBiasGradient<'a> {
    /// Of the gradient of attention's result, and of the table with its sides, `[batch or 1, heads or 1,
    /// queries + keys - 1]`: as the forward pass had them, which gave the output and the log-sum-exps. `out`
    /// is of the same sides.
    pub fn new(
        forward: Forward<'a>,
        gradient: Heads<'a>,
        table: impl Into<DeviceView<'a, f32>>,
        sides: [usize; 3],
        out: impl Into<DeviceViewMut<'a, f32>>,
    ) -> Self {
        let scores = ScoreGradient::new(forward, gradient);
        RelativeBiasGradient { scores, table: table.into(), sides, out: out.into() }
    }

    /// The factor of the scores in the forward pass, positive; else it is `1 / sqrt(head size)`.
    pub fn scale(self, scale: f32) -> Self {
        RelativeBiasGradient { scores: self.scores.scale(scale), ..self }
    }

    /// Which keys a query saw; else all.
    pub fn mask(self, mask: Mask) -> Self {
        RelativeBiasGradient { scores: self.scores.mask(mask), ..self }
    }

    /// Queues two kernels: that of [`BiasGradient`](super::BiasGradient), and one that sums its result along
    /// diagonals. That result takes 4 bytes for each query and key of each head of the table, from the
    /// stream's memory.
    ///
    /// # Errors
    /// As [`BiasGradient::run`](super::BiasGradient::run);
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    pub fn run(self, stream: &Stream) -> Result<()> {
        let RelativeBiasGradient { scores, table, sides, out } = self;
        let params = scores.params()?;
        scores.check_devices(stream, table.device(), out.device())?;
        let bias = scores.places().relative_bias(table, sides)?;
        same_length(OPERATION, "the gradient of the bias", table.len(), out.len())?;
        let [sequences, heads, of_head] = sides;
        let blocks = blocks(sequences * heads, of_head)?;
        if blocks == 0 {
            return Ok(());
        }
        let AttentionParams { queries, keys, .. } = params;
        let all = [sequences, heads, queries as usize, keys as usize];
        let all = all.into_iter().fold(1usize, usize::saturating_mul);
        // SAFETY: the first kernel writes all of it before the second one reads it.
        let mut dense = unsafe { DeviceBuffer::<f32>::uninit(stream, all)? };
        scores.queue(stream, params, bias, [sequences, heads], dense.view_mut())?;
        let config = LaunchConfig::new([blocks, 1, 1], [THREADS, 1, 1]).overlapping_previous();
        // SAFETY: the matrices are of these sides, none of which is 0; `out` has a number for each diagonal
        // of each, and there is a block for each `THREADS` of them.
        unsafe { launch::<attention_diagonal_sums>(stream, config, (&dense, queries, keys, out)) }
    }
}

/// Blocks of the second launch.
fn blocks(matrices: usize, of_head: usize) -> Result<u32> {
    let across = count("the distances", of_head)?.div_ceil(THREADS);
    let blocks = u64::from(across).saturating_mul(matrices as u64);
    blocks_of_grid("the bias", blocks, &format!("{THREADS} distances"))
}
