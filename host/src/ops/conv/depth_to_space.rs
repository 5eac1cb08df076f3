//! Inputs' gradients with strides, of few channels: as one without strides whose channels are the classes of
//! positions by the channels, which then take their places.
//!
//! With strides of 2, four classes of positions (even or odd, along both axes) meet taps of their own at
//! the same positions of the result's gradient. A class of 3 channels fills 3 of a tile's 64 columns; all
//! four side by side fill 12, and what they meet is read once. Filters get zeros where a class has no tap,
//! so NaN and infinities of the gradient come into all positions of a cell of strides that a window
//! touches: what is not finite is summed again, from its own taps ([`conv::cells`]).

use conv::cells::{Cells, THREADS, conv_cells};
use conv::problem::{Axis, Convolution};

use crate::error::Result;
use crate::launch::{LaunchConfig, launch};
use crate::ops::elementwise::{contiguous, copy_into, reshape};
use crate::stream::Stream;
use crate::tensor::{DType, Tensor};

use super::Algorithm;
use super::check::{Problem, fits};
use super::operand::{Kernels, aligned, in_units};

/// Columns of all classes, at most: images of up to four channels by 2. Zeros are no loss yet.
const COLUMNS: usize = 16;

/// Such a gradient.
pub(super) struct DepthToSpace {
    /// That of all classes side by side, without strides.
    pub problem: Problem,
    /// Strides, and taps of zeros in front of the filters, of height and width.
    strides: [usize; 2],
    before: [usize; 2],
}

impl DepthToSpace {
    /// Of one group with strides, without dilation, whose classes all have as many positions and are
    /// narrow together.
    pub fn new(algorithm: Algorithm, problem: &Problem) -> Option<Self> {
        let Convolution { groups, height, width, .. } = problem.shape;
        let axes = [height, width];
        let strides = axes.map(|axis| axis.stride as usize);
        let [images, rows, columns, channels] = problem.x;
        let of_classes = strides[0].checked_mul(strides[1])?.checked_mul(channels)?;
        let is_possible = algorithm == Algorithm::Auto
            && groups == 1
            && strides != [1, 1]
            && fits(&problem.x)
            && of_classes <= COLUMNS
            && axes.iter().all(|axis| axis.dilation == 1 && axis.input.is_multiple_of(axis.stride));
        if !is_possible {
            return None;
        }
        // At tap `stride * q + class - before`, position `stride * i + class` meets `i + padding - q`.
        let padding = axes.map(|axis| axis.padding.div_ceil(axis.stride));
        let before = [0, 1].map(|i| padding[i] * axes[i].stride - axes[i].padding);
        let along = |i: usize| Axis {
            input: axes[i].input / axes[i].stride,
            output: axes[i].output,
            filter: (before[i] + axes[i].filter).div_ceil(axes[i].stride),
            stride: 1,
            padding: padding[i],
            dilation: 1,
        };
        let [height, width] = [along(0), along(1)];
        let problem = Problem {
            shape: Convolution { channels: of_classes as u32, height, width, ..problem.shape },
            x: [images, rows / strides[0], columns / strides[1], of_classes],
            filters: [problem.filters[0], height.filter as usize, width.filter as usize, of_classes],
            y: problem.y,
        };
        Some(Self { problem, strides, before: before.map(|taps| taps as usize) })
    }

    /// The filters, each with the taps of all classes side by side.
    #[track_caller]
    pub fn filters(&self, stream: &Stream, filters: &Tensor, dtype: DType) -> Result<Tensor> {
        let [count, rows, columns, of_classes] = self.problem.filters;
        let [down, across] = self.strides;
        let channels = of_classes / (down * across);
        let mut padded = Tensor::zeros(stream, &[count, rows * down, columns * across, channels], dtype)?;
        let [above, left] = self.before;
        let &[_, height, width, _] = filters.shape().sides() else { return Ok(filters.clone()) };
        let place = padded.view_mut()?.slice(1, above..above + height)?.slice(2, left..left + width)?;
        copy_into(stream, filters, place)?;
        let taps = padded.view_as(&[count, rows, down, columns, across, channels])?;
        contiguous(stream, &taps.permute(&[0, 1, 3, 2, 4, 5])?)?.view_as(&self.problem.filters)
    }

    /// Sums again, from the operands of `problem`, what is not finite of the gradient side by side.
    #[track_caller]
    pub fn mend<T: Kernels>(
        &self,
        stream: &Stream,
        problem: &Problem,
        [gradient, filters]: [&Tensor; 2],
        side_by_side: &mut Tensor,
    ) -> Result<()> {
        if side_by_side.elements() == 0 {
            return Ok(());
        }
        let (gradient, filters) = (in_units::<T>(stream, gradient, 1)?, aligned(stream, filters)?);
        let row = problem.shape.filters.next_multiple_of(T::UNIT as u32);
        let cells = Cells { problem: problem.shape, row, stored: T::STORED as u32 };
        let config = LaunchConfig::new([cells.blocks(), 1, 1], [THREADS, 1, 1]);
        let (gradient, filters) = (gradient.read::<u8>(stream)?, filters.read::<u8>(stream)?);
        let result = side_by_side.view_mut()?;
        let result = result.write::<u8>(stream)?;
        // SAFETY: the operands have the sides that the problem says, dense, the gradient with filters in
        // whole units; the result has its elements by cells, was just made, at a whole unit, and is
        // exclusively borrowed; grid and block are the kernel's.
        unsafe { launch::<conv_cells>(stream, config, (cells, gradient, filters, result)) }
    }

    /// The gradient, from that of all classes side by side.
    #[track_caller]
    pub fn to_space(&self, stream: &Stream, gradient: &Tensor) -> Result<Tensor> {
        let [images, rows, columns, of_classes] = self.problem.x;
        let [down, across] = self.strides;
        let channels = of_classes / (down * across);
        let by_class = gradient.view_as(&[images, rows, columns, down, across, channels])?;
        let sides = [images, rows * down, columns * across, channels];
        reshape(stream, &by_class.permute(&[0, 1, 3, 2, 4, 5])?, &sides)
    }
}
