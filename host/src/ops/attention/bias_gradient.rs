//! The gradient of a bias of scores.

use attention::bias_gradient::{
    Matrices, OperandStrides, THREADS, TILE_KEYS, TILE_QUERIES, attention_bias_gradient_bf16,
    attention_bias_gradient_f16,
};
use attention::functions::Bias;
use attention::problem::AttentionParams;
use cuda_std::kernel::StructArgs;

use crate::device::Device;
use crate::error::Result;
use crate::launch::{LaunchConfig, launch};
use crate::memory::{DeviceView, DeviceViewMut, same_length};
use crate::stream::Stream;
use crate::tensor::DType;

use super::OPERATION;
use super::backward::{Forward, check_type};
use super::check::{blocks_of_grid, check_groups, check_head_size, check_scale, count, expect_sides, length};
use super::heads::Heads;
use super::places::{BiasValues, Places};
use super::problem::Mask;

/// The gradient of the bias of [`Attention::bias`](super::Attention::bias): that of each score, summed over
/// the sequences and heads that share a number. Built up, then [`BiasGradient::run`].
///
/// [`Backward::bias`](super::Backward::bias) has the gradients of queries, keys and values; this is a kernel
/// of its own, which computes all scores once more. It runs on Ampere and later, in the same bits every time.
/// It is the simple way: it reads operands where they lie, without shared memory.
///
/// ```no_run
/// # use half::bf16;
/// # use ironwarp::{DeviceBuffer, Stream};
/// # use ironwarp::ops::attention::{BiasGradient, Forward, Heads, Mask};
/// # fn run(stream: &Stream, forward: Forward<'_>, gradient: Heads<'_>) -> ironwarp::Result<()> {
/// // One bias for all sequences, [1, heads, queries, keys].
/// let sides = [1, 8, 512, 512];
/// let bias = DeviceBuffer::<f32>::zeroed(stream, 8 * 512 * 512)?;
/// let mut of_bias = DeviceBuffer::<f32>::zeroed(stream, 8 * 512 * 512)?;
/// BiasGradient::new(forward, gradient, &bias, sides, &mut of_bias).mask(Mask::CAUSAL).run(stream)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "the gradient is computed by `run`"]
pub struct BiasGradient<'a> {
    scores: ScoreGradient<'a>,
    bias: DeviceView<'a, f32>,
    sides: [usize; 4],
    out: DeviceViewMut<'a, f32>,
}

impl<'a> BiasGradient<'a> {
    /// Of the gradient of attention's result, and of the bias with its sides, `[batch or 1, heads or 1,
    /// queries, keys]`: as the forward pass had them, which gave the output and the log-sum-exps. `out` is of
    /// the same sides, and 0 where no query sees the key.
    pub fn new(
        forward: Forward<'a>,
        gradient: Heads<'a>,
        bias: impl Into<DeviceView<'a, f32>>,
        sides: [usize; 4],
        out: impl Into<DeviceViewMut<'a, f32>>,
    ) -> Self {
        let scores = ScoreGradient::new(forward, gradient);
        BiasGradient { scores, bias: bias.into(), sides, out: out.into() }
    }

    /// The factor of the scores in the forward pass, positive; else it is `1 / sqrt(head size)`.
    pub fn scale(self, scale: f32) -> Self {
        BiasGradient { scores: self.scores.scale(scale), ..self }
    }

    /// Which keys a query saw; else all.
    pub fn mask(self, mask: Mask) -> Self {
        BiasGradient { scores: self.scores.mask(mask), ..self }
    }

    /// Queues the kernel. It takes no memory.
    ///
    /// # Errors
    /// [`Error::Length`](crate::Error::Length) when an operand does not have the elements that its shape
    /// says, [`Error::InvalidArgument`](crate::Error::InvalidArgument) when shapes or types do not fit
    /// together, rows do not begin at 16-byte boundaries, the scale is not positive and finite, or there are
    /// more tiles than a grid has blocks; [`Error::DeviceMismatch`](crate::Error::DeviceMismatch), or the
    /// driver's error.
    pub fn run(self, stream: &Stream) -> Result<()> {
        let BiasGradient { scores, bias, sides, out } = self;
        let params = scores.params()?;
        scores.check_devices(stream, bias.device(), out.device())?;
        let function = scores.places().bias(bias, sides)?;
        same_length(OPERATION, "the gradient of the bias", bias.len(), out.len())?;
        scores.queue(stream, params, function, [sides[0], sides[1]], out)
    }
}

/// The gradient of each score, summed over sequences and heads: what the gradients of biases begin with.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScoreGradient<'a> {
    forward: Forward<'a>,
    gradient: Heads<'a>,
    scale: Option<f32>,
    mask: Mask,
}

impl<'a> ScoreGradient<'a> {
    pub(super) fn new(forward: Forward<'a>, gradient: Heads<'a>) -> Self {
        ScoreGradient { forward, gradient, scale: None, mask: Mask::FULL }
    }

    pub(super) fn scale(self, scale: f32) -> Self {
        ScoreGradient { scale: Some(scale), ..self }
    }

    pub(super) fn mask(self, mask: Mask) -> Self {
        ScoreGradient { mask, ..self }
    }

    pub(super) fn places(&self) -> Places {
        Places::new(&self.forward.queries, &self.forward.keys, false)
    }

    /// Queues the kernel, with what is checked: the problem, the bias, and the result, dense of as many
    /// sequences and heads as the bias has, which is written whole.
    pub(super) fn queue(
        &self,
        stream: &Stream,
        params: AttentionParams,
        bias: StructArgs<Bias, BiasValues<'_>>,
        [sequences, heads]: [usize; 2],
        out: DeviceViewMut<'_, f32>,
    ) -> Result<()> {
        let Forward { queries, keys, values, output, log_sum_exp } = self.forward;
        let [sequences, heads] = [count("the batch", sequences)?, count("the heads", heads)?];
        let blocks = tiles(&params, [sequences, heads])?;
        if blocks == 0 {
            return Ok(());
        }
        let config = LaunchConfig::new([blocks, 1, 1], [THREADS, 1, 1]).overlapping_previous();
        let strides = OperandStrides {
            queries: queries.strides_of_rows(),
            keys: keys.strides_of_rows(),
            values: values.strides_of_rows(),
            output: output.strides_of_rows(),
            gradient: self.gradient.strides_of_rows(),
        };
        let arguments = (
            params,
            bias,
            queries.data.cast::<u16>(),
            keys.data.cast::<u16>(),
            values.data.cast::<u16>(),
            output.data.cast::<u16>(),
            self.gradient.data.cast::<u16>(),
            strides,
            log_sum_exp,
            Matrices { sequences, heads },
            out,
        );
        // SAFETY: shapes, strides and lengths are checked; the bias and its gradient have a number for each
        // place of their sides; there is a block for each tile.
        unsafe {
            match queries.dtype() {
                DType::BF16 => launch::<attention_bias_gradient_bf16>(stream, config, arguments),
                _ => launch::<attention_bias_gradient_f16>(stream, config, arguments),
            }
        }
    }

    /// The problem, once the operands are checked.
    pub(super) fn params(&self) -> Result<AttentionParams> {
        let Forward { queries, keys, values, output, log_sum_exp } = &self.forward;
        let ([batch, rows, heads, size], [_, key_rows, kv_heads, _]) = (queries.sides(), keys.sides());
        check_head_size(size)?;
        check_groups(heads, kv_heads)?;
        check_scale(self.scale)?;
        let of_keys = [batch, key_rows, kv_heads, size];
        let operands = [
            ("the queries", queries, queries.sides()),
            ("the keys", keys, of_keys),
            ("the values", values, of_keys),
            ("the output", output, queries.sides()),
            ("its gradient", &self.gradient, queries.sides()),
        ];
        for (argument, operand, sides) in operands {
            expect_sides(argument, operand, sides)?;
            check_type(argument, operand.dtype(), queries.dtype())?;
            operand.check(argument)?;
        }
        let wanted = batch.saturating_mul(rows).saturating_mul(heads);
        same_length(OPERATION, "the log-sum-exps", wanted, log_sum_exp.len())?;
        let [query_rows, key_rows] = [length("the queries", rows)?, length("the keys", key_rows)?];
        let (heads, kv_heads) = (count("the heads", heads)?, count("the heads of keys", kv_heads)?);
        Ok(AttentionParams {
            batch: count("the batch", batch)?,
            heads,
            group: heads / kv_heads.max(1),
            queries: query_rows,
            keys: key_rows,
            head_size: size as u32,
            lse_rows: query_rows,
            key_rows,
            padded_rows: query_rows,
            output_row: 0,
            output_head: 0,
            output_matrix: 0,
            band: self.mask.band(),
            scale: self.scale.unwrap_or(1.0 / (size as f32).sqrt()),
            section: 1,
        })
    }

    pub(super) fn check_devices(&self, stream: &Stream, bias: &Device, out: &Device) -> Result<()> {
        self.forward.check_devices(stream)?;
        stream.same_device("its gradient", self.gradient.device())?;
        stream.same_device("the bias", bias)?;
        stream.same_device("the gradient of the bias", out)
    }
}

/// Blocks of a launch: one for each tile of each matrix of the bias.
fn tiles(params: &AttentionParams, matrices: [u32; 2]) -> Result<u32> {
    let sides =
        [params.queries.div_ceil(TILE_QUERIES), params.keys.div_ceil(TILE_KEYS), matrices[0], matrices[1]];
    let tiles = sides.iter().fold(1u64, |all, &side| all.saturating_mul(side.into()));
    blocks_of_grid("the bias", tiles, &format!("{TILE_QUERIES} x {TILE_KEYS} scores"))
}
