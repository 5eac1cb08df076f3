//! Convolutions and pooling, with PyTorch's shapes.

use super::stream_of;
use crate::error::{Error, Result};
use crate::ops::conv::{Conv2d, Fused};
use crate::ops::pool::Pool2d;
use crate::tensor::{Tensor, TensorError};

impl Tensor {
    /// `torch.nn.functional.conv2d`: `[images, filters, height, width]` of `self: [images, channels, height,
    /// width]` and `weight: [filters, channels / groups, height, width]`, f16, bf16 or f32, and a number for
    /// each filter. [`crate::ops::conv::Conv2d`] has the gradients, and activations fused.
    ///
    /// Kernels want channels side by side (PyTorch's `channels_last`). Operands that lie so are read where
    /// they are, others are copied into that order first; the result lies so, as a view.
    ///
    /// # Errors
    /// Those of [`Conv2d::forward`].
    #[track_caller]
    pub fn conv2d(&self, weight: &Tensor, bias: Option<&Tensor>, conv: Conv2d) -> Result<Tensor> {
        let operation = "conv2d";
        let wanted = "[images, channels, height, width]";
        let x = of_rank(operation, "self", self, 4, wanted)?.permute(&[0, 2, 3, 1])?;
        let wanted = "[filters, channels of a group, height, width]";
        let filters = of_rank(operation, "weight", weight, 4, wanted)?.permute(&[0, 2, 3, 1])?;
        let fused = Fused { bias, ..Fused::default() };
        conv.forward(&stream_of(self)?, &x, &filters, fused)?.permute(&[0, 3, 1, 2])
    }

    /// `torch.nn.functional.conv1d`: `[images, filters, length]` of `self: [images, channels, length]` and
    /// `weight: [filters, channels / groups, length]`. Of the pairs of `conv` the second numbers count, those
    /// along the width.
    ///
    /// # Errors
    /// As [`Tensor::conv2d`], and [`Error::InvalidArgument`] for padding along the height, which would make
    /// more lines.
    #[track_caller]
    pub fn conv1d(&self, weight: &Tensor, bias: Option<&Tensor>, conv: Conv2d) -> Result<Tensor> {
        let operation = "conv1d";
        if conv.padding[0] != 0 {
            let (argument, got) = ("padding", format!("{:?}", conv.padding));
            let wanted = format!("[0, {}]", conv.padding[1]);
            let hint = "the first number is of the height, which one line does not have";
            return Err(Error::InvalidArgument { operation, argument, got, wanted, hint });
        }
        let x = of_rank(operation, "self", self, 3, "[images, channels, length]")?;
        let weight = of_rank(operation, "weight", weight, 3, "[filters, channels of a group, length]")?;
        x.unsqueeze(2)?.conv2d(&weight.unsqueeze(2)?, bias, conv)?.squeeze(2)
    }

    /// `torch.nn.functional.max_pool2d` of `[images, channels, height, width]`. [`crate::ops::pool::Pool2d`]
    /// has the places and the gradient.
    ///
    /// # Errors
    /// Those of [`Pool2d::max`].
    #[track_caller]
    pub fn max_pool2d(&self, pool: Pool2d) -> Result<Tensor> {
        let x = of_rank("max_pool2d", "self", self, 4, "[images, channels, height, width]")?;
        let (y, _) = pool.max(&stream_of(self)?, &x.permute(&[0, 2, 3, 1])?)?;
        y.permute(&[0, 3, 1, 2])
    }

    /// `torch.nn.functional.avg_pool2d` of `[images, channels, height, width]`; `counts_padding` is
    /// `count_include_pad`.
    ///
    /// # Errors
    /// Those of [`Pool2d::average`].
    #[track_caller]
    pub fn avg_pool2d(&self, pool: Pool2d, counts_padding: bool) -> Result<Tensor> {
        let x = of_rank("avg_pool2d", "self", self, 4, "[images, channels, height, width]")?;
        let y = pool.average(&stream_of(self)?, &x.permute(&[0, 2, 3, 1])?, counts_padding)?;
        y.permute(&[0, 3, 1, 2])
    }
}

/// The tensor, if it has so many dimensions.
fn of_rank<'a>(
    operation: &'static str,
    what: &'static str,
    tensor: &'a Tensor,
    rank: usize,
    wanted: &'static str,
) -> Result<&'a Tensor> {
    if tensor.rank() == rank {
        return Ok(tensor);
    }
    let (got, wanted) = (tensor.shape().clone(), wanted.to_owned());
    let hint = "one image is `unsqueeze(0)`";
    Err(TensorError::Shape { operation, what, got, wanted, hint }.into())
}
