//! The norm of all gradients.

use optim::norm::{Clip, blocks as sum_blocks, finish_norm, sum_squares};
use optim::step::Norm;
use optim::table::{Entry, Format};

use super::checked;
use super::table::{Tables, blocks};
use crate::error::Result;
use crate::launch::{Table, launch};
use crate::memory::{DeviceBuffer, Within};
use crate::stream::Stream;
use crate::tensor::{DType, Tensor, TensorError};

/// Words of what the device keeps of a norm.
const RESULTS: usize = size_of::<Norm>() / size_of::<f32>();
const _: () = assert!(RESULTS * size_of::<f32>() == size_of::<Norm>());

/// The uses of a norm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NormConfig {
    /// The norm that gradients are clipped to; `None`: they are not clipped.
    pub max_norm: Option<f64>,
    /// Skip a step where no finite f32 holds the gradients' norm, or their factor: that of a loss scale below
    /// 3e-39 is infinite. Otherwise NaN and infinities get into the parameters.
    pub skip_nonfinite: bool,
}

impl Default for NormConfig {
    /// Skips, and does not clip.
    fn default() -> Self {
        NormConfig { max_norm: None, skip_nonfinite: true }
    }
}

/// The 2-norm of all gradients of a model together, kept on the device, and what follows from it: the factor
/// that clips them, as `torch.nn.utils.clip_grad_norm_` does (`min(1, max_norm / (norm + 1e-6))`), and
/// whether a step is skipped. Gradients are not changed: a step multiplies them by the factor.
///
/// The norm repeats bit for bit on every device. Squares are added up in f32 a few at a time, then in f64:
/// elements beyond 3.2e18 in magnitude may count as infinite. A gradient that does not begin at a multiple of
/// 16 bytes has its squares in another order, so last bits may differ.
pub struct GradientNorm {
    clip: Clip,
    tables: Tables,
    result: DeviceBuffer<f32>,
}

impl GradientNorm {
    /// A norm, not yet [measured](GradientNorm::measure): steps with it skip nothing and clip nothing.
    ///
    /// # Errors
    /// [`crate::Error::InvalidArgument`] for a largest norm that is NaN or not above 0,
    /// [`crate::Error::OutOfMemory`], or the driver's error.
    #[track_caller]
    pub fn new(stream: &Stream, config: NormConfig) -> Result<Self> {
        let max_norm = config.max_norm.unwrap_or(f64::INFINITY);
        let hint = "1.0 is usual; `None` does not clip";
        checked("GradientNorm::new", "max_norm", max_norm, max_norm > 0.0, "a number above 0", hint)?;
        let clip = Clip { max_norm, skips: config.skip_nonfinite.into() };
        // The norm, the factor, and whether to skip.
        let result = DeviceBuffer::from_slice(stream, &[0.0f32, 1.0, 0.0])?;
        Ok(GradientNorm { clip, tables: Tables::default(), result })
    }

    /// Queues the norm of `gradients`: f32, bf16 or f16, contiguous, of any shapes.
    ///
    /// `loss_scale`, one f32 on the device, is what the loss was multiplied by: the norm is that of the
    /// gradients divided by it, and the factor divides by it too.
    ///
    /// # Errors
    /// [`TensorError::DType`], [`TensorError::NotContiguous`], [`TensorError::Shape`] for a loss scale of
    /// several elements, [`crate::Error::InvalidArgument`] for too many tensors,
    /// [`crate::Error::DeviceMismatch`], [`crate::Error::OutOfMemory`], or the driver's error.
    #[track_caller]
    pub fn measure(
        &mut self,
        stream: &Stream,
        gradients: &[&Tensor],
        loss_scale: Option<&Tensor>,
    ) -> Result<()> {
        let operation = "GradientNorm::measure";
        super::parameters::few_enough(operation, gradients.len())?;
        let entries = gradients.iter().map(|gradient| entry(operation, stream, gradient));
        let table = self.tables.of(stream, entries.collect::<Result<_>>()?)?;
        let loss_scale = loss_scale.map(|scale| scalar(operation, stream, scale)).transpose()?;
        let sums = sum_blocks(table.count);
        // SAFETY: the launch writes a sum for each block before the next launch reads them.
        let partials = unsafe { DeviceBuffer::<f64>::uninit(stream, sums as usize)? };
        let partials = partials.view().within();
        let named = gradients.iter().map(|gradient| Ok((gradient.read::<u8>(stream)?, false)));
        let tensors = Table { table: table.tensors(), named: named.collect::<Result<_>>()? };
        // SAFETY: the table is that of the gradients; there is a place for each block, and for the result.
        unsafe {
            launch::<sum_squares>(stream, blocks(sums), (tensors, table.chunks(), table.count, partials))?;
            let result: Within<'_, Norm> = self.result.view().within().cast();
            launch::<finish_norm>(stream, blocks(1), (self.clip, sums, partials, loss_scale, result))
        }
    }

    /// The norm, on the host; waits for it. 0 before it is measured; NaN or infinity where the gradients'
    /// is.
    ///
    /// # Errors
    /// [`crate::Error::DeviceMismatch`], or the driver's error.
    pub fn value(&self, stream: &Stream) -> Result<f32> {
        Ok(self.result.to_vec(stream)?[0])
    }

    /// For the kernel that begins a step.
    pub(super) fn result(&self) -> Within<'_, Norm> {
        self.result.view().within().cast()
    }
}

/// A gradient's place in a table of gradients alone.
fn entry(operation: &'static str, stream: &Stream, gradient: &Tensor) -> Result<Entry> {
    stream.same_device("a gradient", gradient.device())?;
    let format = match gradient.dtype() {
        DType::F32 => Format::F32,
        DType::BF16 => Format::Bf16,
        DType::F16 => Format::F16,
        got => {
            let (wanted, hint) = ("f32, bf16 or f16".to_owned(), "convert it first (`to`)");
            return Err(TensorError::DType { operation, what: "a gradient", got, wanted, hint }.into());
        }
    };
    super::parameters::contiguous(operation, gradient.layout())?;
    let address = gradient.address();
    let is_aligned = super::parameters::is_aligned(address);
    Ok(Entry { gradient: address, length: gradient.elements() as u64, format, is_aligned, ..Entry::NONE })
}

/// The address of one f32.
fn scalar<'t>(operation: &'static str, stream: &Stream, scale: &'t Tensor) -> Result<Within<'t, f32>> {
    let what = "the loss scale";
    if scale.dtype() != DType::F32 {
        let (got, wanted, hint) = (scale.dtype(), "f32".to_owned(), "convert it first (`to`)");
        return Err(TensorError::DType { operation, what, got, wanted, hint }.into());
    }
    if scale.elements() != 1 {
        let (got, wanted) = (scale.shape().clone(), "one element".to_owned());
        let hint = "one scale holds for all gradients";
        return Err(TensorError::Shape { operation, what, got, wanted, hint }.into());
    }
    scale.read(stream)
}

impl std::fmt::Debug for GradientNorm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "GradientNorm({:?})", self.clip)
    }
}
