//! Convolutions: the result, the gradient of the input, and the gradient of the filters.
//!
//! ```no_run
//! use ironwarp::ops::conv::{Activation, Conv2d, Fused};
//! use ironwarp::{DType, Device, Tensor};
//! # fn main() -> ironwarp::Result<()> {
//! # let device = Device::open(0)?;
//! # let stream = device.stream()?;
//! let x = Tensor::zeros(&stream, &[8, 56, 56, 64], DType::BF16)?; // images, height, width, channels
//! let filters = Tensor::zeros(&stream, &[128, 3, 3, 64], DType::BF16)?; // filters, height, width, channels
//! let bias = Tensor::zeros(&stream, &[128], DType::BF16)?;
//! let conv = Conv2d { padding: [1, 1], stride: [2, 2], ..Conv2d::default() };
//! let fused = Fused { bias: Some(&bias), activation: Activation::Relu };
//! let y = conv.forward(&stream, &x, &filters, fused)?; // [8, 28, 28, 128]
//! let dx = conv.input_gradient(&stream, &y, &filters, [56, 56])?;
//! let dw = conv.filter_gradient(&stream, &x, &y, [3, 3])?;
//! # Ok(())
//! # }
//! ```
//!
//! # Layout
//! Channels come last, in tensors and in filters: what cuDNN calls NHWC and KRSC, and PyTorch
//! `channels_last`. The tensors have that as their shape; [`Tensor::conv2d`] takes PyTorch's shapes.
//!
//! # How it is computed
//! As an implicit product of matrices, gathered while they are multiplied ([`conv::gather`],
//! [`conv::weight`]): the matrix of windows is never stored. f16 and bf16 are multiplied by tensor cores and
//! summed in f32; f32 is read as tf32, 19 of its 32 bits, as PyTorch does by default. On Hopper, 16-bit
//! convolutions without groups are fed by the copy engine, which knows windows (`conv::sm90`). Channels with
//! a filter each, of up to 128 taps ("depthwise"), are summed without tensor cores, f32 with all of its bits
//! ([`conv::depthwise`]). Groups of 2, 4, 8 or 16 channels and as many filters, of up to 9 taps in 16 bits,
//! are multiplied several at a time ([`conv::grouped`]). Convolutions of 1 x 1 without gaps are [products of
//! matrices](super::gemm), but for those of 32 to 64 channels that the copy engine brings, and without it
//! those of up to 64; with gaps, those of positions that are copied anyway. Where tiles are few and sums are
//! long, results by the copy engine are cut into parts, summed in f32 and added by a second launch. Of 9 to
//! 32 channels several taps share a stage of k.
//! [`Conv2d::algorithm`] takes another way than the one that is estimated to be the fastest.
//!
//! Some operands are copied first: those with other strides; groups whose channels are no multiple of 16
//! bytes (8 channels of 16 bits, 4 of f32), which are padded with zeros, so that the three channels of a
//! picture become eight; filters, for gradients of few positions that are computed as results of turned
//! filters; and tensors below 128 KiB, where the copy engine is faster with that copy than threads without.
//!
//! # Same bits
//! Sums are f32. The shapes and the number of multiprocessors determine their order. No kernel adds by
//! atomics: results repeat bit for bit.

pub(in crate::ops) mod check;
mod classes;
mod cut;
mod depth_to_space;
mod depthwise;
mod gather;
mod grouped;
mod launched;
mod maps;
mod operand;
mod pointwise;
mod sliding;
mod turned;
mod weight;
mod windows;

pub use gemm::epilogue::Activation;

use crate::error::Result;
use crate::stream::Stream;
use crate::tensor::{DType, Tensor};
use operand::by_type;

/// Channels up to which kernels of convolutions are faster than products of matrices also where both can: 64
/// of 200,704 positions to 64 or 256 take products 1.11 and 1.06 times as long as windows (H200).
const FEW_CHANNELS: u32 = 64;

/// A kernel's way to compute a convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Algorithm {
    /// The one that is estimated to be the fastest of those that can.
    #[default]
    Auto,
    /// Operands gathered by the threads: every convolution.
    Gather(Tile),
    /// Windows that the copy engine brings: compute capability 9.0, 16 bits, one group, at least 32 channels
    /// (9 for results of more than one tap) and 128 KiB, taps up to 255 positions apart, padding below 128,
    /// strides up to 8, and for the input's gradient up to 2.
    Windows(Tile),
    /// The same in tiles of 256 x 128, or of 128 x 256 where stages have several taps: results, and inputs'
    /// gradients without strides, which are then results of turned filters. Others are as by
    /// [`Windows`](Self::Windows) of [`Tile::Wide`].
    TallWindows,
    /// The same with sums that are cut into about so many parts, in the tile that is estimated to be the
    /// fastest.
    WindowsInParts(u32),
}

impl Algorithm {
    /// Every one that can be asked for.
    pub const ALL: [Self; 6] = [
        Self::Gather(Tile::Wide),
        Self::Gather(Tile::Narrow),
        Self::Windows(Tile::Wide),
        Self::Windows(Tile::Narrow),
        Self::TallWindows,
        Self::WindowsInParts(3),
    ];

    /// Whether it takes the copy engine's windows alone.
    const fn is_by_windows(self) -> bool {
        matches!(self, Self::Windows(_) | Self::TallWindows | Self::WindowsInParts(_))
    }

    /// The error of one that cannot do a convolution.
    fn refused(self, operation: &'static str) -> crate::Error {
        crate::Error::InvalidArgument {
            operation,
            argument: "algorithm",
            got: format!("{self:?}"),
            wanted: "one that can do this convolution on this device".to_owned(),
            hint: "`Algorithm::Auto` takes the fastest that can; `Algorithm::Gather` can do all",
        }
    }
}

/// The tile of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tile {
    /// 128 x 128 (for filters' gradients by windows 128 x 192).
    Wide,
    /// 128 x 64 (by windows of 9 to 32 channels and several taps 128 x 128), or for filters' gradients
    /// 64 x 128 (by windows 128 x 128).
    Narrow,
}

/// How filters move over the images, along the height and the width, with PyTorch's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conv2d {
    /// Positions from a window to the next.
    pub stride: [usize; 2],
    /// Zeros on each side.
    pub padding: [usize; 2],
    /// Positions from a tap to the next.
    pub dilation: [usize; 2],
    /// Groups of channels, each with filters of its own.
    pub groups: usize,
    /// How it is computed.
    pub algorithm: Algorithm,
}

impl Default for Conv2d {
    /// Windows at every position, without padding.
    fn default() -> Self {
        Conv2d { stride: [1, 1], padding: [0, 0], dilation: [1, 1], groups: 1, algorithm: Algorithm::Auto }
    }
}

/// The function of each element before it is stored: `activation(sum + bias)`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Fused<'a> {
    /// A number for each filter, of the tensors' type.
    pub bias: Option<&'a Tensor>,
    /// A function of each element; none of those that make one of two columns.
    pub activation: Activation,
}

impl Conv2d {
    /// `[images, height, width, filters]` of `x: [images, height, width, channels]` and `filters: [filters,
    /// height, width, channels / groups]`, all of one type: f16, bf16, or f32 (multiplied as tf32).
    ///
    /// Padding is zeros that are multiplied like others: what a filter has of NaN or infinity comes into
    /// every result, and what the input has into those whose windows have it.
    ///
    /// # Errors
    /// [`TensorError::Shape`](crate::TensorError::Shape) when shapes do not fit together or a filter is
    /// larger than a padded image, [`TensorError::DType`](crate::TensorError::DType) for other types,
    /// [`TensorError::TooLarge`](crate::TensorError::TooLarge) beyond 2^31 positions,
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a stride, a dilation or a number of
    /// groups of 0, for [`Activation::SwiGlu`], and for an [`Algorithm`] that cannot do it,
    /// [`Error::DeviceMismatch`](crate::Error::DeviceMismatch),
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory), or the driver's error.
    #[track_caller]
    pub fn forward(&self, stream: &Stream, x: &Tensor, filters: &Tensor, fused: Fused<'_>) -> Result<Tensor> {
        let operation = "Conv2d::forward";
        check::dtype(operation, "filters", filters, x)?;
        check::fused(operation, &fused, x, filters)?;
        let problem = self.problem(operation, check::sides(operation, "x", x)?, filters)?;
        let grouped = |of| grouped::Plan::new(stream, x.dtype(), self.algorithm, &problem, of);
        by_type!(x.dtype(), (operation, "x"), T => {
            if self.multiplies(stream, x.dtype(), &problem, problem.shape.channels) {
                pointwise::forward::<T>(stream, &problem, x, filters, fused)
            } else if depthwise::computes(self.algorithm, &problem) {
                depthwise::forward::<T>(stream, &problem, x, filters, fused)
            } else if self.algorithm == Algorithm::Auto && pointwise::skips::<T>(&problem) {
                pointwise::forward_of_read::<T>(stream, &problem, x, filters, fused)
            } else if let Some(plan) = grouped(grouped::Of::Results) {
                plan.forward(stream, &problem, [x, filters], fused)
            } else {
                gather::forward::<T>(stream, self.algorithm, &problem, x, filters, fused)
            }
        })
    }

    /// The gradient of [`forward`](Conv2d::forward)'s input, images of `sides` (height and width), from that
    /// of its result without an activation: `[images, height, width, channels]`.
    ///
    /// Windows that a position is not in have no part in it. Where there is no window, some algorithms
    /// multiply a tap by zeros: a NaN or an infinity of a filter may come into such a position too.
    ///
    /// # Errors
    /// As [`forward`](Conv2d::forward).
    #[track_caller]
    pub fn input_gradient(
        &self,
        stream: &Stream,
        gradient: &Tensor,
        filters: &Tensor,
        sides: [usize; 2],
    ) -> Result<Tensor> {
        let operation = "Conv2d::input_gradient";
        check::dtype(operation, "filters", filters, gradient)?;
        let [images, ..] = check::sides(operation, "the gradient", gradient)?;
        let [.., channels] = check::sides(operation, "filters", filters)?;
        let channels = channels.saturating_mul(self.groups);
        let problem = self.problem(operation, [images, sides[0], sides[1], channels], filters)?;
        problem.check_result(operation, gradient)?;
        let grouped = |of| grouped::Plan::new(stream, filters.dtype(), self.algorithm, &problem, of);
        by_type!(gradient.dtype(), (operation, "the gradient"), T => {
            if self.multiplies(stream, filters.dtype(), &problem, problem.shape.filters) {
                pointwise::input_gradient::<T>(stream, &problem, gradient, filters)
            } else if depthwise::computes(self.algorithm, &problem) {
                depthwise::input_gradient::<T>(stream, &problem, gradient, filters)
            } else if let Some(plan) = grouped(grouped::Of::InputsGradient) {
                plan.input_gradient(stream, &problem, [gradient, filters])
            } else {
                gather::input_gradient::<T>(stream, self.algorithm, &problem, gradient, filters)
            }
        })
    }

    /// The gradient of [`forward`](Conv2d::forward)'s filters, of `sides` (height and width), from its input
    /// and the gradient of its result without an activation: `[filters, height, width, channels / groups]`.
    ///
    /// # Errors
    /// As [`forward`](Conv2d::forward).
    #[track_caller]
    pub fn filter_gradient(
        &self,
        stream: &Stream,
        x: &Tensor,
        gradient: &Tensor,
        sides: [usize; 2],
    ) -> Result<Tensor> {
        let operation = "Conv2d::filter_gradient";
        check::dtype(operation, "the gradient", gradient, x)?;
        let [images, height, width, channels] = check::sides(operation, "x", x)?;
        let [.., filters] = check::sides(operation, "the gradient", gradient)?;
        let of_group = channels.checked_div(self.groups).unwrap_or(0);
        let shape = crate::Shape::of(operation, &[filters, sides[0], sides[1], of_group])?;
        let problem = self.problem_of(operation, [images, height, width, channels], &shape)?;
        problem.check_result(operation, gradient)?;
        let grouped = |of| grouped::Plan::new(stream, x.dtype(), self.algorithm, &problem, of);
        by_type!(x.dtype(), (operation, "x"), T => {
            if self.algorithm == Algorithm::Auto && problem.is_pointwise() {
                pointwise::filter_gradient::<T>(stream, &problem, x, gradient)
            } else if depthwise::computes(self.algorithm, &problem) {
                depthwise::filter_gradient::<T>(stream, &problem, x, gradient)
            } else if let Some(plan) = grouped(grouped::Of::FiltersGradient) {
                plan.filter_gradient::<T>(stream, &problem, [x, gradient])
            } else {
                weight::filter_gradient::<T>(stream, self.algorithm, &problem, x, gradient)
            }
        })
    }

    /// Whether it is computed as a product of matrices, where windows are of a tensor of so many channels.
    fn multiplies(&self, stream: &Stream, dtype: DType, problem: &check::Problem, channels: u32) -> bool {
        let conv::problem::Convolution { images, height, width, .. } = problem.shape;
        self.algorithm == Algorithm::Auto
            && problem.is_pointwise()
            && windows::leaves_to_products(stream, dtype, [images, height.input, width.input, channels])
    }
}
