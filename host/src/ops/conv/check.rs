//! Shapes of a convolution, checked.

use conv::problem::{Axis, Convolution};

use crate::error::{Error, Result};
use crate::tensor::{Shape, Tensor, TensorError};

use super::operand::MAX_UNIT;
use super::{Conv2d, Fused};

/// Positions along an axis, padding, strides and dilations are below this, so that kernels count with signs.
pub(in crate::ops) const MAX_POSITIONS: usize = 1 << 30;

/// A convolution, and its sides as the tensors have them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Problem {
    /// As kernels take it, without padding of channels.
    pub shape: Convolution,
    /// Of the input, filters and result.
    pub x: [usize; 4],
    pub filters: [usize; 4],
    pub y: [usize; 4],
}

impl Problem {
    /// Whether it is a product of matrices as they lie.
    pub fn is_pointwise(&self) -> bool {
        let Convolution { groups, height, width, .. } = self.shape;
        let is_plain = |axis: Axis| axis.filter == 1 && axis.stride == 1 && axis.padding == 0;
        groups == 1 && is_plain(height) && is_plain(width)
    }

    /// Whether `gradient` has the shape of the result.
    pub fn check_result(&self, operation: &'static str, gradient: &Tensor) -> Result<()> {
        if gradient.shape().sides() == self.y {
            return Ok(());
        }
        let (got, wanted) = (gradient.shape().clone(), format!("{:?}, as the result", self.y));
        let hint = "the strides, padding, dilations and sides are those of the forward pass";
        Err(TensorError::Shape { operation, what: "the gradient", got, wanted, hint }.into())
    }
}

/// The four sides of an operand.
pub(in crate::ops) fn sides(
    operation: &'static str,
    what: &'static str,
    tensor: &Tensor,
) -> Result<[usize; 4]> {
    tensor.shape().sides().try_into().map_err(|_| {
        let (got, wanted) = (tensor.shape().clone(), "four dimensions, the channels last".to_owned());
        let hint = "one image is `unsqueeze(0)`; `permute(&[0, 2, 3, 1])` brings channels to the end";
        TensorError::Shape { operation, what, got, wanted, hint }.into()
    })
}

/// Whether a product of sides is one that kernels count in 32 bits.
pub(in crate::ops) fn fits(sides: &[usize]) -> bool {
    let product = sides.iter().try_fold(1usize, |product, &side| product.checked_mul(side.max(1)));
    product.is_some_and(|product| i32::try_from(product).is_ok())
}

/// Whether the operand has the type of the other.
pub(super) fn dtype(
    operation: &'static str,
    what: &'static str,
    tensor: &Tensor,
    other: &Tensor,
) -> Result<()> {
    if tensor.dtype() == other.dtype() {
        return Ok(());
    }
    let (got, wanted) = (tensor.dtype(), format!("{} as the other operand", other.dtype()));
    Err(TensorError::DType { operation, what, got, wanted, hint: "convert it first (`to`)" }.into())
}

/// Whether bias and activation fit.
pub(super) fn fused(operation: &'static str, fused: &Fused<'_>, x: &Tensor, filters: &Tensor) -> Result<()> {
    if fused.activation.columns() != 1 {
        return Err(Error::InvalidArgument {
            operation,
            argument: "activation",
            got: fused.activation.name().to_owned(),
            wanted: "a function of one element".to_owned(),
            hint: "compute the halves by a convolution each, or apply the activation afterwards",
        });
    }
    let Some(bias) = fused.bias else { return Ok(()) };
    dtype(operation, "bias", bias, x)?;
    let count = sides(operation, "filters", filters)?[0];
    if bias.shape().sides() == [count] {
        return Ok(());
    }
    let (got, wanted) = (bias.shape().clone(), format!("[{count}], a number for each filter"));
    let hint = "flatten it (`reshape`)";
    Err(TensorError::Shape { operation, what: "bias", got, wanted, hint }.into())
}

impl Conv2d {
    /// The problem of filters over images of sides `x`.
    pub(super) fn problem(
        &self,
        operation: &'static str,
        x: [usize; 4],
        filters: &Tensor,
    ) -> Result<Problem> {
        self.problem_of(operation, x, filters.shape())
    }

    /// As [`Conv2d::problem`], of the filters' shape.
    pub(super) fn problem_of(
        &self,
        operation: &'static str,
        x: [usize; 4],
        shape: &Shape,
    ) -> Result<Problem> {
        let argument = |argument, got: String, wanted: &str, hint| Error::InvalidArgument {
            operation,
            argument,
            got,
            wanted: wanted.to_owned(),
            hint,
        };
        for (name, values) in [("stride", self.stride), ("dilation", self.dilation)] {
            if values.iter().any(|&value| value == 0 || value >= MAX_POSITIONS) {
                let hint = "1 takes every position";
                return Err(argument(name, format!("{values:?}"), "numbers from 1 to 2^30 - 1", hint));
            }
        }
        let groups = self.groups;
        let misfit = |wanted: String, hint| TensorError::Shape {
            operation,
            what: "filters",
            got: shape.clone(),
            wanted,
            hint,
        };
        let &[count, down, across, of_group] = shape.sides() else {
            let wanted = "[filters, height, width, channels of a group]".to_owned();
            return Err(misfit(wanted, "`permute(&[0, 2, 3, 1])` brings channels to the end").into());
        };
        let [images, height, width, channels] = x;
        if groups == 0 || !channels.is_multiple_of(groups) || !count.is_multiple_of(groups) {
            let got = format!("{groups}, of {channels} channels and {count} filters");
            let hint = "1 lets each filter see all channels";
            return Err(argument("groups", got, "a divisor of channels and filters", hint));
        }
        if of_group != channels / groups {
            let wanted = format!("{} channels, those of a group", channels / groups);
            return Err(misfit(wanted, "a filter sees the channels of its group alone").into());
        }
        let too_large = |sides: &[usize]| TensorError::TooLarge { operation, shape: sides.to_vec() };
        let axis = |index: usize, input: usize, filter: usize| -> Result<Axis> {
            let (stride, padding, dilation) = (self.stride[index], self.padding[index], self.dilation[index]);
            let padded = padding.saturating_mul(2).saturating_add(input);
            if padded >= MAX_POSITIONS || filter >= MAX_POSITIONS {
                return Err(too_large(&[padded, filter]).into());
            }
            let [input, filter, stride, padding, dilation] =
                [input, filter, stride, padding, dilation].map(|side| side as u32);
            let axis = Axis { input, output: 0, filter, stride, padding, dilation };
            if filter == 0 || axis.window() > padded as u64 {
                let wanted = format!("windows of 1 to {padded} positions, as the padded image has");
                let hint =
                    "a window has (filter - 1) * dilation + 1 positions; `padding` makes images larger";
                return Err(misfit(wanted, hint).into());
            }
            Ok(Axis { output: axis.windows() as u32, ..axis })
        };
        let (height, width) = (axis(0, height, down)?, axis(1, width, across)?);
        let y = [images, height.output as usize, width.output as usize, count];
        let filters = [count, down, across, of_group];
        // Kernels count positions, channels, and the elements of a filter and of all filters, in whole units.
        let [seen, made] = [of_group, count / groups].map(|side| side.next_multiple_of(MAX_UNIT));
        for sides in [&x[..3], &y[..3], &[groups, seen], &[groups, made], &[down, across, seen], &filters] {
            if !fits(sides) {
                return Err(too_large(sides).into());
            }
        }
        let [images, groups, channels, of_groups] =
            [images, groups, of_group, count / groups].map(|side| side as u32);
        let shape = Convolution { images, groups, channels, filters: of_groups, height, width };
        Ok(Problem { shape, x, filters, y })
    }
}
