//! Products of a training step with what surrounds them: an activation whose argument is kept, and its
//! gradient.

use cuda_std::kernel::Kernel;
use gemm::sm90::epilogue::{OutputFlag, OutputFormat, OutputParams, OutputType};
use gemm::sm90::instances::Entry;
use gemm::sm90::tile_scheduler::GemmShape;
use gemm::sm90::training::{
    SUMMED_ROWS, TABLE, TrainingArgumentsArgs, TrainingParamsArgs, gemm_training_bf16_nn,
    gemm_training_bf16_nt, gemm_training_f16_nn, gemm_training_f16_nt,
};

use crate::error::Result;
use crate::launch::{LaunchConfig, launch};
use crate::memory::{DeviceView, Within};
use crate::ops::elementwise::copy;
use crate::ops::reduce::{ReduceOp, reduce};
use crate::stream::Stream;
use crate::tensor::{DType, Shape, Tensor, TensorMut};

use super::block_scaled::{RASTER_GROUP, blocks};
use super::check::invalid;
use super::epilogue::{Epilogue, Vector};
use super::matrix::ROW_ALIGNMENT;
use super::problem::side;
use super::sm90::{ARCH, BOX, K_BYTES, map};
use super::{Activation, OPERATION};

/// Bytes of an element.
const ELEMENT: usize = 2;
/// Elements that rows have a multiple of.
const UNIT: usize = ROW_ALIGNMENT as usize / ELEMENT;

/// The results of [`activated`], both `[rows, outputs]`, of the operands' type.
#[derive(Debug, Clone)]
pub struct Activated {
    /// `activation(before)`.
    pub result: Tensor,
    /// `x weight^T + bias`, for [`activated_backward`].
    pub before: Tensor,
}

/// The gradients of [`activated_backward`].
#[derive(Debug, Clone)]
pub struct ActivatedGradients {
    /// Of the values before the activation, `[rows, columns]`, of the operands' type.
    pub before: Tensor,
    /// Of the bias that was added to them, `[columns]`, f32: the sums of the columns, before they are
    /// rounded.
    pub bias: Tensor,
}

/// The first layer of a perceptron in training: `activation(x weight^T + bias)` with what the activation was
/// applied to, in one kernel. `x` is `[rows, inputs]`, the weight `[outputs, inputs]`, the bias `[outputs]`,
/// all bf16 or all f16; inputs and outputs are multiples of 8. On Hopper. The activation gets sums in f32,
/// which are kept rounded.
///
/// ```no_run
/// # use ironwarp::{DType, Device, Tensor};
/// use ironwarp::ops::gemm::{Activation, activated, activated_backward};
/// # fn main() -> ironwarp::Result<()> {
/// # let stream = Device::open(0)?.stream()?;
/// # let zeros = |shape: &[usize]| Tensor::zeros(&stream, shape, DType::BF16);
/// # let (x, w1, b1) = (zeros(&[512, 1024])?, zeros(&[4096, 1024])?, zeros(&[4096])?);
/// # let (w2, dy) = (zeros(&[1024, 4096])?, zeros(&[512, 1024])?);
/// let hidden = activated(&stream, &x, &w1, Some(&b1), Activation::GeluTanh)?;
/// // y = hidden.result w2^T, and later, from the gradient of y:
/// let gradients = activated_backward(&stream, &dy, &w2, &hidden.before, Activation::GeluTanh)?;
/// # drop(gradients);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`Error::InvalidArgument`](crate::Error::InvalidArgument) when shapes or types do not fit together, sides
/// are no multiples of 8, the activation is [`Activation::SwiGlu`], or the device is no Hopper;
/// [`Error::DeviceMismatch`](crate::Error::DeviceMismatch),
/// [`Error::OutOfMemory`](crate::Error::OutOfMemory), or the driver's error.
#[track_caller]
pub fn activated(
    stream: &Stream,
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    activation: Activation,
) -> Result<Activated> {
    let ([m, k], [n, of]) = (matrix("x", x)?, matrix("the weight", weight)?);
    if of != k {
        return Err(misfit("the weight", weight, format!("[outputs, {k}]"), "a weight is [outputs, inputs]"));
    }
    if let Some(bias) = bias.filter(|bias| bias.shape().sides() != [n]) {
        return Err(misfit("the bias", bias, format!("[{n}]"), "it has a number for each output"));
    }
    let others = [Some(("the weight", weight)), bias.map(|bias| ("the bias", bias))];
    check(stream, [n, k], ("x", x), others, activation)?;
    let bias = bias.map(|bias| addressable(stream, bias)).transpose()?;
    let epilogue = Epilogue { bias: bias.as_ref().map(Vector::of).transpose()?, ..Epilogue::NONE };
    let shape = Shape::of(OPERATION, &[m, n])?;
    // SAFETY: elements of 16 bits, which have no invalid values; the kernel writes all of them.
    let (mut result, mut before) = unsafe {
        (Tensor::uninit(stream, shape.clone(), x.dtype())?, Tensor::uninit(stream, shape, x.dtype())?)
    };
    {
        let (to, kept) = (result.view_mut()?, before.view_mut()?);
        let kept_bytes = kept.span_bytes()?;
        let places = Places { result: to.write(stream)?, kept: kept.write(stream)?, kept_bytes, sums: None };
        let product = Product { stream, sides: [m, n, k], activation, is_gradient: false };
        product.run(&addressable(stream, x)?, &addressable(stream, weight)?, epilogue, places, &to)?;
    }
    Ok(Activated { result, before })
}

/// The gradient by the values before the activation, `(gradient weight) activation'(before)`, and the sums of
/// its columns, which are those of the bias: in one kernel and a reduction, the same bits in every run.
///
/// `gradient`, `[rows, outputs]`, is that of the next layer's result, whose weight is `[outputs, columns]`;
/// `before` is what [`activated`] kept, `[rows, columns]`. All bf16 or all f16; outputs and columns are
/// multiples of 8. On Hopper. The sums take 4 bytes for each 16 elements of the result while they are added
/// up.
///
/// # Errors
/// As [`activated`].
#[track_caller]
pub fn activated_backward(
    stream: &Stream,
    gradient: &Tensor,
    weight: &Tensor,
    before: &Tensor,
    activation: Activation,
) -> Result<ActivatedGradients> {
    let ([m, k], [of, n]) = (matrix("the gradient", gradient)?, matrix("the weight", weight)?);
    if of != k {
        let hint = "it is the next layer's, [outputs, columns]";
        return Err(misfit("the weight", weight, format!("[{k}, columns]"), hint));
    }
    if before.shape().sides() != [m, n] {
        let hint = "keep what `activated` gave";
        return Err(misfit("the values before the activation", before, format!("[{m}, {n}]"), hint));
    }
    let others = [Some(("the weight", weight)), Some(("the values before the activation", before))];
    check(stream, [n, k], ("the gradient", gradient), others, activation)?;
    let parts = Shape::of(OPERATION, &[m.div_ceil(SUMMED_ROWS as usize), n])?;
    // SAFETY: elements of 16 bits and f32, which have no invalid values; the kernel writes all of them.
    let (mut result, mut sums) = unsafe {
        let shape = before.shape().clone();
        (Tensor::uninit(stream, shape, before.dtype())?, Tensor::uninit(stream, parts, DType::F32)?)
    };
    {
        let before = addressable(stream, before)?;
        let (to, parts) = (result.view_mut()?, sums.view_mut()?);
        let (result, sums) = (to.write(stream)?, Some(parts.write(stream)?));
        let places = Places { result, kept: before.read(stream)?, kept_bytes: before.span_bytes()?, sums };
        let product = Product { stream, sides: [m, n, k], activation, is_gradient: true };
        let (gradient, weight) = (addressable(stream, gradient)?, addressable(stream, weight)?);
        product.run(&gradient, &weight, Epilogue::NONE, places, &to)?;
    }
    Ok(ActivatedGradients { before: result, bias: reduce(stream, ReduceOp::Sum, &sums, &[0])? })
}

/// A product to be launched.
struct Product<'a> {
    stream: &'a Stream,
    /// m, n, k.
    sides: [usize; 3],
    activation: Activation,
    is_gradient: bool,
}

/// Where the kernel reads and writes.
struct Places<'a> {
    result: Within<'a, u8>,
    /// The values before the activation, and their memory.
    kept: Within<'a, u32>,
    kept_bytes: DeviceView<'a, u8>,
    /// Sums of columns of each 16 rows.
    sums: Option<Within<'a, f32>>,
}

impl Product<'_> {
    /// Queues it: A is `[m, k]`, B `[n, k]`, or `[k, n]` of a gradient.
    fn run(
        &self,
        a: &Tensor,
        b: &Tensor,
        epilogue: Epilogue<'_>,
        places: Places<'_>,
        result: &TensorMut<'_>,
    ) -> Result<()> {
        match (a.dtype(), self.is_gradient) {
            (DType::BF16, false) => self.run_as::<gemm_training_bf16_nt>(0, a, b, epilogue, places, result),
            (DType::BF16, true) => self.run_as::<gemm_training_bf16_nn>(1, a, b, epilogue, places, result),
            (_, false) => self.run_as::<gemm_training_f16_nt>(2, a, b, epilogue, places, result),
            (_, true) => self.run_as::<gemm_training_f16_nn>(3, a, b, epilogue, places, result),
        }
    }

    /// By the kernel of this place in the table.
    fn run_as<K: Kernel<Params = Parameters>>(
        &self,
        index: usize,
        a: &Tensor,
        b: &Tensor,
        epilogue: Epilogue<'_>,
        places: Places<'_>,
        result: &TensorMut<'_>,
    ) -> Result<()> {
        let Product { stream, sides: [m, n, k], activation, is_gradient } = *self;
        if m == 0 || n == 0 {
            return Ok(());
        }
        let entry: &Entry = &TABLE[index];
        let [block_m, block_n, _] = entry.block;
        let along_k = K_BYTES / ELEMENT as u32;
        let dtype = a.dtype();
        let map_a = map(a.span_bytes()?, dtype, (k, m, k), (1, 0), [along_k, block_m])?;
        let map_b = if entry.trans_b {
            map(b.span_bytes()?, dtype, (n, k, n), (1, 0), [BOX; 2])?
        } else {
            map(b.span_bytes()?, dtype, (k, n, k), (1, 0), [along_k, block_n])?
        };
        let of_result = |data| map(data, dtype, (n, m, n), (1, 0), [entry.store_columns, BOX]);
        let (map_c, map_kept) = (of_result(result.span_bytes()?)?, of_result(places.kept_bytes)?);
        let shape = GemmShape::new([side("m", m)?, side("n", n)?, side("k", k)?], 1, RASTER_GROUP);
        let format = OutputFormat::new(OutputType::Element16)
            .with(OutputFlag::Paired, true)
            .with(OutputFlag::ByTma, true)
            .with(OutputFlag::SourceByTma, is_gradient);
        let Places { result, kept, sums, .. } = places;
        let training = TrainingParamsArgs { activation: activation as u32, kept, sums }.pass();
        let output = OutputParams { row: n as u64, matrix: 0, format };
        let arguments =
            TrainingArgumentsArgs { shape, output, epilogue: epilogue.args(false), training }.pass();
        let blocks = blocks(stream, m.div_ceil(block_m as usize) * n.div_ceil(block_n as usize));
        let config = LaunchConfig::new([blocks, 1, 1], [entry.threads, 1, 1])
            .with_shared(entry.shared)
            .overlapping_previous();
        // SAFETY: maps are what the kernel asks for; the values before the activation and the result are
        // [m, n] without gaps, the sums as many as the kernel writes; results are exclusively borrowed.
        unsafe { launch::<K>(stream, config, (map_a, map_b, map_c, map_kept, arguments, result)) }
    }
}

/// Parameters of all kernels of the table.
type Parameters = <gemm_training_bf16_nt as Kernel>::Params;

/// A tensor of two axes.
fn matrix(argument: &'static str, tensor: &Tensor) -> Result<[usize; 2]> {
    <[usize; 2]>::try_from(tensor.shape().sides()).map_err(|_| {
        misfit(argument, tensor, "[rows, columns]".to_owned(), "`view_as` merges outer axes into rows")
    })
}

/// The kernels take such operands on the stream's device.
fn check(
    stream: &Stream,
    [n, k]: [usize; 2],
    (first, tensor): (&'static str, &Tensor),
    others: [Option<(&'static str, &Tensor)>; 2],
    activation: Activation,
) -> Result<()> {
    let (arch, wanted) = (stream.device().arch(), tensor.dtype());
    if !matches!(wanted, DType::BF16 | DType::F16) {
        let hint = "convert it first (`to`)";
        return Err(invalid(first, format!("of {wanted}"), "bf16 or f16".to_owned(), hint));
    }
    stream.same_device(first, tensor.device())?;
    for (argument, tensor) in others.into_iter().flatten() {
        stream.same_device(argument, tensor.device())?;
        if tensor.dtype() != wanted {
            let (got, wanted) = (format!("of {}", tensor.dtype()), format!("{wanted}, as {first}"));
            return Err(invalid(argument, got, wanted, "all operands have one type: convert one with `to`"));
        }
    }
    if activation.columns() != 1 {
        let (got, wanted) = (activation.name().to_owned(), "an activation of one column".to_owned());
        return Err(invalid("the activation", got, wanted, "run it behind a `Matmul`, whose result is kept"));
    }
    for (argument, length) in [("n", n), ("k", k)] {
        if length == 0 || !length.is_multiple_of(UNIT) {
            let wanted = format!("a positive multiple of {UNIT}");
            return Err(invalid(argument, length.to_string(), wanted, "pad weights with zeros"));
        }
    }
    if arch != ARCH {
        let hint = "elsewhere multiply by `Matmul`, keep its result, and apply the activation to it";
        return Err(invalid("the device", arch.to_string(), ARCH.to_string(), hint));
    }
    Ok(())
}

/// A tensor without gaps that begins where TMA can read it: the same one, or a copy.
#[track_caller]
fn addressable(stream: &Stream, x: &Tensor) -> Result<Tensor> {
    if x.is_contiguous() && x.address().is_multiple_of(ROW_ALIGNMENT) {
        return Ok(x.clone());
    }
    copy(stream, x)
}

fn misfit(argument: &'static str, tensor: &Tensor, wanted: String, hint: &'static str) -> crate::Error {
    invalid(argument, format!("{:?}", tensor.shape().sides()), wanted, hint)
}
