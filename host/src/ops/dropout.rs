//! Dropout, forward and backward, without a mask in memory.
//!
//! ```
//! use ironwarp::ops::dropout::{Generator, dropout};
//! use ironwarp::{Device, Tensor};
//!
//! # fn main() -> ironwarp::Result<()> {
//! let stream = Device::open(0)?.stream()?;
//! let mut generator = Generator::new(&stream, 42)?;
//! let x = Tensor::from_slice(&stream, &[4], &[1.0f32; 4])?;
//! let y = dropout(&stream, &x, 0.5, &generator, 0)?;
//! // The backward pass is the same function of the gradient: here of ones, so it gives the same.
//! let dx = dropout(&stream, &x, 0.5, &generator, 0)?;
//! assert_eq!(dx.to_vec::<f32>(&stream)?, y.to_vec::<f32>(&stream)?);
//! // Before the next step of the training.
//! generator.advance(&stream)?;
//! # Ok(())
//! # }
//! ```

use cuda_std::kernel::{Kernel, Ptr, PtrMut, Value};
use half::{bf16, f16};
use primitives::dropout::{MAX_PLACES, State};
use tensor::THREADS;
use tensor::dropout::{Dropout, advance_generator, dropout_bf16, dropout_f16, dropout_f32};

use super::dispatch::by_dtype;
use super::elementwise::{contiguous, made};
use crate::error::{Error, Result};
use crate::launch::{LaunchConfig, launch};
use crate::memory::{DeviceBuffer, DeviceView, Within};
use crate::stream::Stream;
use crate::tensor::{Tensor, TensorError, TensorMut};

/// A seed and a step, on the device: a captured step that advances it draws other numbers at each replay.
#[derive(Debug)]
pub struct Generator {
    /// A [`State`].
    state: DeviceBuffer<u64>,
}

impl Generator {
    /// The random numbers of a seed, at step 0.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], or the driver's error.
    #[track_caller]
    pub fn new(stream: &Stream, seed: u64) -> Result<Self> {
        Ok(Generator { state: DeviceBuffer::from_slice(stream, &[seed, 0])? })
    }

    /// Queues the step to the next numbers: between the backward pass of a step and the forward pass of the
    /// next.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`], or the driver's error.
    #[track_caller]
    pub fn advance(&mut self, stream: &Stream) -> Result<()> {
        let config = LaunchConfig::new([1, 1, 1], [32, 1, 1]).overlapping_previous();
        // SAFETY: the state is exclusively borrowed.
        unsafe { launch::<advance_generator>(stream, config, (self.state(),)) }
    }

    /// For kernels.
    pub(super) fn state(&self) -> Within<'_, State> {
        self.words().within().cast()
    }

    /// The seed, and the step.
    pub(crate) fn words(&self) -> DeviceView<'_, u64> {
        self.state.view()
    }
}

/// `x` with each element 0 with a probability, and the others over one less the probability: PyTorch's
/// `torch.nn.functional.dropout`. Contiguous, of the shape and type of `x`. A NaN that is dropped is 0.
///
/// Which elements are dropped depends on the generator's seed and step, on `call`, and on their places. The
/// backward pass is the same call with the gradient for `x`, at the same step. Layers that drop within one
/// step have numbers of their own for `call`. The probability is rounded to a multiple of 2^-16.
///
/// # Errors
/// [`TensorError::DType`] for other types than f32, bf16 and f16, [`Error::InvalidArgument`] for a
/// probability that is not from 0 to 1, [`TensorError::TooLarge`] for 2^35 elements or more,
/// [`Error::DeviceMismatch`], [`Error::OutOfMemory`], or the driver's error.
#[track_caller]
pub fn dropout(
    stream: &Stream,
    x: &Tensor,
    probability: f64,
    generator: &Generator,
    call: u32,
) -> Result<Tensor> {
    let operation = "dropout";
    check(operation, x, probability)?;
    let x = contiguous(stream, x)?;
    made(stream, x.shape(), x.dtype(), |out| {
        let job = Job { stream, x: &x, probability, generator, call };
        by_dtype!(x.dtype(), (operation, "x", None), {
            F32 => job.run::<dropout_f32, f32>(&out),
            F16 => job.run::<dropout_f16, f16>(&out),
            BF16 => job.run::<dropout_bf16, bf16>(&out),
        })
    })
}

/// The probability is one, and each element has a place for the generator.
#[track_caller]
pub(super) fn check(operation: &'static str, x: &Tensor, probability: f64) -> Result<()> {
    check_probability(operation, probability)?;
    if x.elements() as u64 >= MAX_PLACES {
        return Err(TensorError::TooLarge { operation, shape: x.shape().to_vec() }.into());
    }
    Ok(())
}

/// A probability is from 0 to 1.
#[track_caller]
pub(crate) fn check_probability(operation: &'static str, probability: f64) -> Result<()> {
    if (0.0..=1.0).contains(&probability) {
        return Ok(());
    }
    let (argument, got) = ("probability", probability.to_string());
    let (wanted, hint) = ("from 0 to 1".to_owned(), "0.1 drops one element of ten");
    Err(Error::InvalidArgument { operation, argument, got, wanted, hint })
}

struct Job<'a> {
    stream: &'a Stream,
    /// Contiguous.
    x: &'a Tensor,
    probability: f64,
    generator: &'a Generator,
    call: u32,
}

impl Job<'_> {
    #[track_caller]
    fn run<K, T>(&self, out: &TensorMut<'_>) -> Result<()>
    where
        K: Kernel<Params = (Value<Dropout>, Ptr<State>, Ptr<T>, PtrMut<T>)>,
    {
        let Job { stream, x, .. } = *self;
        let is_aligned =
            (x.address() | out.address()).is_multiple_of(primitives::access::VECTOR_BYTES as u64);
        let dropout = Dropout::new(x.elements() as u64, self.call, self.probability, is_aligned);
        // More blocks than a grid holds become an error of the launch.
        let blocks = u32::try_from(dropout.blocks()).unwrap_or(u32::MAX);
        let config = LaunchConfig::new([blocks, 1, 1], [THREADS, 1, 1]).overlapping_previous();
        let arguments = (dropout, self.generator.state(), x.read::<T>(stream)?, out.write::<T>(stream)?);
        // SAFETY: x and y hold the elements; y is exclusively borrowed.
        unsafe { launch::<K>(stream, config, arguments) }
    }
}
