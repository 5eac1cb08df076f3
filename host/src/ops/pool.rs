//! Pooling: the largest number or the mean of each window of positions, and their gradients.
//!
//! Channels come last, as for [convolutions](super::conv); [`Tensor::max_pool2d`] and [`Tensor::avg_pool2d`]
//! take PyTorch's shapes. f32, f16 and bf16; sums are f32, in a fixed order.

use conv::pool::{
    Pool, THREADS, conv_pool_average, conv_pool_average_backward, conv_pool_max, conv_pool_max_backward,
};
use conv::problem::Axis;
use conv::weight::Stored;
use primitives::access::VECTOR_BYTES;

use super::conv::check::{MAX_POSITIONS, fits, sides};
use super::elementwise::{contiguous, made};
use crate::error::{Error, Result};
use crate::launch::{LaunchConfig, launch};
use crate::stream::Stream;
use crate::tensor::{DType, Shape, Tensor, TensorError};

/// Windows, along the height and the width, with PyTorch's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool2d {
    /// Positions of a window.
    pub size: [usize; 2],
    /// From a window to the next.
    pub stride: [usize; 2],
    /// Positions on each side that count as minus infinity or, in means, as zero: at most half a window.
    pub padding: [usize; 2],
    /// From a position of a window to the next; 1 in means.
    pub dilation: [usize; 2],
}

impl Pool2d {
    /// Windows of `size` side by side.
    pub const fn new(size: [usize; 2]) -> Self {
        Pool2d { size, stride: size, padding: [0, 0], dilation: [1, 1] }
    }

    /// The largest of each window of `x: [images, height, width, channels]`, and its place in its image, an
    /// i32, `row * width + column`: the first of equals. A NaN is larger than all else. Windows without a
    /// position are minus infinity, and their place is -1.
    ///
    /// # Errors
    /// [`TensorError::Shape`] for other than four dimensions and windows larger than the padded image,
    /// [`TensorError::DType`] for other types, [`Error::InvalidArgument`] for a size, stride or dilation of 0
    /// and for padding of more than half a window, [`TensorError::TooLarge`] beyond 2^31 positions,
    /// elements, or positions of a window, [`Error::DeviceMismatch`], [`Error::OutOfMemory`], or the driver's
    /// error.
    #[track_caller]
    pub fn max(&self, stream: &Stream, x: &Tensor) -> Result<(Tensor, Tensor)> {
        let operation = "Pool2d::max";
        let (pool, shapes) = self.pool(operation, "x", x, sides(operation, "x", x)?, false)?;
        let x = contiguous(stream, x)?;
        let mut places = None;
        let y = made(stream, &shapes[1], x.dtype(), |y| {
            places = Some(made(stream, &shapes[1], DType::I32, |places| {
                let pool = widened(pool, &[x.address(), y.address(), places.address()]);
                let (x, y) = (x.read::<u8>(stream)?, y.write::<u8>(stream)?);
                let Some(config) = grid(&pool, false) else { return Ok(()) };
                // SAFETY: x has the input's elements, y and places the results', exclusively borrowed.
                unsafe { launch::<conv_pool_max>(stream, config, (pool, x, y, places.write::<i32>(stream)?)) }
            })?);
            Ok(())
        })?;
        let places = places.map_or_else(|| Tensor::zeros(stream, shapes[1].sides(), DType::I32), Ok)?;
        Ok((y, places))
    }

    /// The gradient of [`max`](Pool2d::max)'s input, images of `sides`, from that of its result, and the
    /// places.
    ///
    /// # Errors
    /// As [`max`](Pool2d::max).
    #[track_caller]
    pub fn max_gradient(
        &self,
        stream: &Stream,
        gradient: &Tensor,
        places: &Tensor,
        sides: [usize; 2],
    ) -> Result<Tensor> {
        let operation = "Pool2d::max_gradient";
        let (pool, shapes) = self.of_gradient(operation, gradient, sides, false)?;
        if places.dtype() != DType::I32 {
            let (got, wanted) = (places.dtype(), "i32, as `max` gives them".to_owned());
            let hint = "keep the places of the forward pass";
            return Err(TensorError::DType { operation, what: "places", got, wanted, hint }.into());
        }
        check_result(operation, "places", places, &shapes[1])?;
        let (gradient, places) = (contiguous(stream, gradient)?, contiguous(stream, places)?);
        made(stream, &shapes[0], gradient.dtype(), |dx| {
            let pool = widened(pool, &[gradient.address(), places.address(), dx.address()]);
            let (gradient, dx) = (gradient.read::<u8>(stream)?, dx.write::<u8>(stream)?);
            let places = places.read::<i32>(stream)?;
            let Some(config) = grid(&pool, true) else { return Ok(()) };
            // SAFETY: gradient and places have the results' elements, dx the input's, exclusively borrowed.
            unsafe { launch::<conv_pool_max_backward>(stream, config, (pool, gradient, places, dx)) }
        })
    }

    /// The mean of each window: of all its positions with `counts_padding`, as PyTorch does by default, else
    /// of those in the image.
    ///
    /// # Errors
    /// As [`max`](Pool2d::max), and [`Error::InvalidArgument`] for a dilation.
    #[track_caller]
    pub fn average(&self, stream: &Stream, x: &Tensor, counts_padding: bool) -> Result<Tensor> {
        let operation = "Pool2d::average";
        self.check_means(operation)?;
        let (pool, shapes) = self.pool(operation, "x", x, sides(operation, "x", x)?, counts_padding)?;
        let x = contiguous(stream, x)?;
        made(stream, &shapes[1], x.dtype(), |y| {
            let pool = widened(pool, &[x.address(), y.address()]);
            let (x, y) = (x.read::<u8>(stream)?, y.write::<u8>(stream)?);
            let Some(config) = grid(&pool, false) else { return Ok(()) };
            // SAFETY: x has the input's elements, y the results', exclusively borrowed.
            unsafe { launch::<conv_pool_average>(stream, config, (pool, x, y)) }
        })
    }

    /// The gradient of [`average`](Pool2d::average)'s input, images of `sides`, from that of its result.
    ///
    /// # Errors
    /// As [`average`](Pool2d::average).
    #[track_caller]
    pub fn average_gradient(
        &self,
        stream: &Stream,
        gradient: &Tensor,
        sides: [usize; 2],
        counts_padding: bool,
    ) -> Result<Tensor> {
        let operation = "Pool2d::average_gradient";
        self.check_means(operation)?;
        let (pool, shapes) = self.of_gradient(operation, gradient, sides, counts_padding)?;
        let gradient = contiguous(stream, gradient)?;
        made(stream, &shapes[0], gradient.dtype(), |dx| {
            let pool = widened(pool, &[gradient.address(), dx.address()]);
            let (gradient, dx) = (gradient.read::<u8>(stream)?, dx.write::<u8>(stream)?);
            let Some(config) = grid(&pool, true) else { return Ok(()) };
            // SAFETY: the gradient has the results' elements, dx the input's, exclusively borrowed.
            unsafe { launch::<conv_pool_average_backward>(stream, config, (pool, gradient, dx)) }
        })
    }

    fn check_means(&self, operation: &'static str) -> Result<()> {
        if self.dilation == [1, 1] {
            return Ok(());
        }
        let (got, hint) = (format!("{:?}", self.dilation), "a strided view has means of positions apart");
        Err(Error::InvalidArgument {
            operation,
            argument: "dilation",
            got,
            wanted: "[1, 1]".to_owned(),
            hint,
        })
    }

    /// The kernels' numbers of a gradient, and the shapes of input and results.
    fn of_gradient(
        &self,
        operation: &'static str,
        gradient: &Tensor,
        [height, width]: [usize; 2],
        counts_padding: bool,
    ) -> Result<(Pool, [Shape; 2])> {
        let what = "the gradient";
        let [images, _, _, channels] = sides(operation, what, gradient)?;
        let input = [images, height, width, channels];
        let (pool, shapes) = self.pool(operation, what, gradient, input, counts_padding)?;
        check_result(operation, what, gradient, &shapes[1])?;
        Ok((pool, shapes))
    }

    /// The kernels' numbers, and the shapes of input and results.
    fn pool(
        &self,
        operation: &'static str,
        what: &'static str,
        tensor: &Tensor,
        input: [usize; 4],
        counts_padding: bool,
    ) -> Result<(Pool, [Shape; 2])> {
        let stored = match tensor.dtype() {
            DType::F32 => Stored::F32,
            DType::F16 => Stored::F16,
            DType::BF16 => Stored::Bf16,
            got => {
                let (wanted, hint) = ("f32, f16 or bf16".to_owned(), "convert it first (`to`)");
                return Err(TensorError::DType { operation, what, got, wanted, hint }.into());
            }
        };
        let [images, height, width, channels] = input;
        let (height, width) =
            (self.axis(operation, input, 0, height)?, self.axis(operation, input, 1, width)?);
        let output = [images, height.output as usize, width.output as usize, channels];
        let shapes = [Shape::of(operation, &input)?, Shape::of(operation, &output)?];
        // Kernels count elements, and the positions of a window, in 32 bits.
        let is_large = shapes.iter().any(|shape| i32::try_from(shape.elements()).is_err());
        if is_large || !fits(&self.size) {
            return Err(TensorError::TooLarge { operation, shape: input.to_vec() }.into());
        }
        let [images, channels] = [images, channels].map(|side| side as u32);
        let (stored, counts_padding) = (stored as u32, counts_padding.into());
        Ok((Pool { images, channels, height, width, stored, is_wide: 0, counts_padding }, shapes))
    }

    fn axis(&self, operation: &'static str, sides: [usize; 4], index: usize, input: usize) -> Result<Axis> {
        let [size, stride, padding, dilation] =
            [self.size, self.stride, self.padding, self.dilation].map(|pair| pair[index]);
        for (argument, value) in [("size", size), ("stride", stride), ("dilation", dilation)] {
            if value == 0 || value >= MAX_POSITIONS {
                let (got, wanted) = (value.to_string(), "a number from 1 to 2^30 - 1".to_owned());
                let hint = "1 takes every position";
                return Err(Error::InvalidArgument { operation, argument, got, wanted, hint });
            }
        }
        let window = (size - 1).saturating_mul(dilation).saturating_add(1);
        if padding > window / 2 {
            let (got, wanted) = (padding.to_string(), format!("at most {}, half a window", window / 2));
            let hint = "more would make windows of padding alone";
            return Err(Error::InvalidArgument { operation, argument: "padding", got, wanted, hint });
        }
        let padded = input.saturating_add(2 * padding);
        if padded >= MAX_POSITIONS {
            return Err(TensorError::TooLarge { operation, shape: sides.to_vec() }.into());
        }
        if window > padded {
            let got = Shape::of(operation, &sides)?;
            let wanted = format!("images of at least {} positions along each axis", window - 2 * padding);
            let hint = "take smaller windows";
            return Err(TensorError::Shape { operation, what: "the input", got, wanted, hint }.into());
        }
        let [input, filter, stride, padding, dilation] =
            [input, size, stride, padding, dilation].map(|side| side as u32);
        let axis = Axis { input, output: 0, filter, stride, padding, dilation };
        Ok(Axis { output: axis.windows() as u32, ..axis })
    }
}

fn check_result(operation: &'static str, what: &'static str, tensor: &Tensor, shape: &Shape) -> Result<()> {
    if tensor.shape() == shape {
        return Ok(());
    }
    let (got, wanted) = (tensor.shape().clone(), format!("{shape}, as the result"));
    let hint = "windows and sides are those of the forward pass";
    Err(TensorError::Shape { operation, what, got, wanted, hint }.into())
}

/// In units of 16 bytes, where channels and addresses let threads take them.
fn widened(pool: Pool, addresses: &[u64]) -> Pool {
    let size = if pool.stored == Stored::F32 as u32 { 4 } else { 2 };
    let all = addresses.iter().fold(u64::from(pool.channels) * size, |all, address| all | address);
    Pool { is_wide: all.is_multiple_of(VECTOR_BYTES as u64).into(), ..pool }
}

/// The launch of a thread for each unit, if there is any.
fn grid(pool: &Pool, is_backward: bool) -> Option<LaunchConfig> {
    let blocks = pool.threads(is_backward).div_ceil(THREADS.into());
    // Fewer than 2^31 elements: so many threads at most.
    (blocks > 0).then(|| LaunchConfig::new([blocks as u32, 1, 1], [THREADS, 1, 1]))
}
