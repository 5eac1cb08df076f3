//! Gradients of activations, with that of a bias in the same pass, and gated activations (SwiGLU, GeGLU) in
//! both directions.
//!
//! Products fuse activations forward ([`Matmul::activation`](super::gemm::Matmul::activation)); these are the
//! ways back.
//!
//! ```
//! use ironwarp::ops::activation::{ActivationFunction, GateOrder, activation_backward, gated};
//! use ironwarp::{Device, Tensor};
//!
//! # fn main() -> ironwarp::Result<()> {
//! let stream = Device::open(0)?.stream()?;
//! let x = Tensor::from_slice(&stream, &[1, 4], &[1.0f32, -2.0, 3.0, 0.5])?;
//! let dy = Tensor::from_slice(&stream, &[1, 4], &[0.5f32; 4])?;
//! let dx = activation_backward(&stream, ActivationFunction::Relu, &x, &dy)?;
//! assert_eq!(dx.to_vec::<f32>(&stream)?, [0.5, 0.0, 0.5, 0.5]);
//! // Gates 1 and -2, values 3 and 0.5.
//! let y = gated(&stream, ActivationFunction::Relu, GateOrder::Halves, &x)?;
//! assert_eq!(y.to_vec::<f32>(&stream)?, [3.0, 0.0]);
//! # Ok(())
//! # }
//! ```

use cuda_std::kernel::{Kernel, Ptr, PtrMut, Value};
use half::{bf16, f16};
use tensor::THREADS;
use tensor::VECTOR_BYTES;
use tensor::activation::{
    ActivationJob, Form, activation_bf16, activation_f16, activation_f32, activation_with_sums_bf16,
    activation_with_sums_f16, activation_with_sums_f32,
};

pub use tensor::activation::ActivationFunction;

use super::convert::convert;
use super::dispatch::by_dtype;
use super::elementwise::same_dtype;
use super::reduce::{ReduceOp, reduce};
use super::row::as_rows;
use crate::error::{Error, Result};
use crate::launch::{LaunchConfig, launch};
use crate::stream::Stream;
use crate::tensor::{DType, Shape, Tensor, TensorError, TensorMut};

/// Where the gates of a row lie, and the values that they are multiplied with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateOrder {
    /// The first half of a row are gates, the second one values.
    Halves,
    /// Gates at even columns, each with its value behind it: as [`Activation::SwiGlu`] of a product has them.
    ///
    /// [`Activation::SwiGlu`]: super::gemm::Activation::SwiGlu
    Neighbours,
}

impl GateOrder {
    const fn form(self) -> Form {
        match self {
            GateOrder::Halves => Form::Halves,
            GateOrder::Neighbours => Form::Neighbours,
        }
    }
}

/// The gradient of an activation by its input `x`, from the gradient `dy` by its result, of the same shape
/// and type: `dy f'(x)`. Contiguous.
///
/// Of [`ActivationFunction::Relu`], `SigmoidOfResult` and `TanhOfResult` `x` is the result.
/// ([`ActivationFunction::Relu`] takes the input as well.)
///
/// # Errors
/// [`TensorError::Shape`] and [`TensorError::DType`] for a `dy` that differs, [`TensorError::DType`] for
/// other types than f32, f16 and bf16, [`Error::DeviceMismatch`], [`Error::OutOfMemory`], or the driver's
/// error.
#[track_caller]
pub fn activation_backward(
    stream: &Stream,
    function: ActivationFunction,
    x: &Tensor,
    dy: &Tensor,
) -> Result<Tensor> {
    alike(x.shape(), x.dtype(), dy)?;
    // Whatever its axes, a contiguous tensor is one long row.
    let is_flat = x.is_contiguous() && dy.is_contiguous();
    let sides = if is_flat { [1, x.elements()] } else { rows_of(x)? };
    let dx = Pass { stream, function, form: Form::Plain, x, dy: Some(dy), sides }.run(false)?.0;
    dx.view_as(x.shape().sides())
}

/// [`activation_backward`], and the gradient of a bias that was added before the activation: the sums of the
/// columns of `dx`, along the last axis. They are added up in f32, in a fixed order, from what `dx` is before
/// it is rounded.
///
/// # Errors
/// As [`activation_backward`], and [`TensorError::Axis`] for a number.
#[track_caller]
pub fn activation_backward_with_bias(
    stream: &Stream,
    function: ActivationFunction,
    x: &Tensor,
    dy: &Tensor,
) -> Result<(Tensor, Tensor)> {
    alike(x.shape(), x.dtype(), dy)?;
    Pass { stream, function, form: Form::Plain, x, dy: Some(dy), sides: rows_of(x)? }.with_bias()
}

/// `f(gate) value` of gates and values along the last axis of `x`, whose result has half as many columns
/// (Shazeer 2020). With [`ActivationFunction::Silu`] it is SwiGLU, with `Gelu` or `GeluTanh` GeGLU, with
/// `Relu` ReGLU, with `Sigmoid` GLU, with `Identity` the bilinear one. (PyTorch's `glu` has the gates behind
/// the values.)
///
/// # Errors
/// As [`activation_backward`], [`TensorError::Axis`] for a number, and [`Error::InvalidArgument`] for an odd
/// number of columns and for a function of results.
#[track_caller]
pub fn gated(stream: &Stream, function: ActivationFunction, order: GateOrder, x: &Tensor) -> Result<Tensor> {
    let sides = gates_of(function, x)?;
    let y = Pass { stream, function, form: order.form(), x, dy: None, sides }.run(false)?.0;
    y.view_as(half_of(x)?.sides())
}

/// The gradient of [`gated`] by `x`, from the gradient `dy` by its result.
///
/// # Errors
/// As [`gated`], and [`TensorError::Shape`] and [`TensorError::DType`] for a `dy` that differs from its
/// result.
#[track_caller]
pub fn gated_backward(
    stream: &Stream,
    function: ActivationFunction,
    order: GateOrder,
    x: &Tensor,
    dy: &Tensor,
) -> Result<Tensor> {
    let sides = gates_of(function, x)?;
    alike(&half_of(x)?, x.dtype(), dy)?;
    let dx = Pass { stream, function, form: order.form(), x, dy: Some(dy), sides }.run(false)?.0;
    dx.view_as(x.shape().sides())
}

/// [`gated_backward`], and the gradient of a bias that was added to `x`, as
/// [`activation_backward_with_bias`].
///
/// # Errors
/// As [`gated_backward`].
#[track_caller]
pub fn gated_backward_with_bias(
    stream: &Stream,
    function: ActivationFunction,
    order: GateOrder,
    x: &Tensor,
    dy: &Tensor,
) -> Result<(Tensor, Tensor)> {
    let sides = gates_of(function, x)?;
    alike(&half_of(x)?, x.dtype(), dy)?;
    Pass { stream, function, form: order.form(), x, dy: Some(dy), sides }.with_bias()
}

const OPERATION: &str = "activation_gradient";

/// Has `dy` the shape and the type?
fn alike(shape: &Shape, dtype: DType, dy: &Tensor) -> Result<()> {
    if dy.shape() != shape {
        let (what, got, wanted) = ("dy", dy.shape().clone(), shape.to_string());
        let hint = "each element of the result has a gradient";
        return Err(TensorError::Shape { operation: OPERATION, what, got, wanted, hint }.into());
    }
    same_dtype(OPERATION, "dy", dtype, dy.dtype())
}

/// Rows and columns.
fn rows_of(x: &Tensor) -> Result<[usize; 2]> {
    let Some((&columns, outer)) = x.shape().sides().split_last() else {
        return Err(TensorError::Axis { operation: OPERATION, axis: -1, rank: 0 }.into());
    };
    Ok([outer.iter().product(), columns])
}

/// Rows, and columns of the result.
fn gates_of(function: ActivationFunction, x: &Tensor) -> Result<[usize; 2]> {
    let operation = OPERATION;
    let [rows, columns] = rows_of(x)?;
    if !columns.is_multiple_of(2) {
        let (argument, got) = ("x", format!("{columns} columns"));
        let (wanted, hint) = ("an even number".to_owned(), "half of them are gates, half are values");
        return Err(Error::InvalidArgument { operation, argument, got, wanted, hint });
    }
    if matches!(function, ActivationFunction::SigmoidOfResult | ActivationFunction::TanhOfResult) {
        let (argument, got, wanted) =
            ("function", format!("{function:?}"), "a function of inputs".to_owned());
        let hint = "gates are inputs; take `Sigmoid` or `Tanh`";
        return Err(Error::InvalidArgument { operation, argument, got, wanted, hint });
    }
    Ok([rows, columns / 2])
}

/// The shape with half as many columns.
fn half_of(x: &Tensor) -> Result<Shape> {
    let mut sides = x.shape().to_vec();
    if let Some(last) = sides.last_mut() {
        *last /= 2;
    }
    Shape::of(OPERATION, &sides)
}

/// A launch: checked operands, and the rows and the columns of a result of the forward pass.
struct Pass<'a> {
    stream: &'a Stream,
    function: ActivationFunction,
    form: Form,
    x: &'a Tensor,
    dy: Option<&'a Tensor>,
    sides: [usize; 2],
}

impl Pass<'_> {
    /// Columns of `x` and of its gradient.
    fn columns(&self) -> usize {
        self.sides[1] * self.form.columns() as usize
    }

    /// The gradients by `x`, of its shape, and by the bias.
    #[track_caller]
    fn with_bias(&self) -> Result<(Tensor, Tensor)> {
        let (dx, sums) = self.run(true)?;
        let sums = match sums {
            Some(sums) => reduce(self.stream, ReduceOp::Sum, &sums, &[0])?,
            None => Tensor::zeros(self.stream, &[self.columns()], DType::F32)?,
        };
        let dtype = self.x.dtype();
        let bias = if dtype == DType::F32 { sums } else { convert(self.stream, &sums, dtype)? };
        Ok((dx.view_as(self.x.shape().sides())?, bias))
    }

    /// The result, as rows, and sums of parts of its columns, where those are wanted and there are rows.
    #[track_caller]
    fn run(&self, wants_sums: bool) -> Result<(Tensor, Option<Tensor>)> {
        let (stream, [rows, columns], dtype) = (self.stream, self.sides, self.x.dtype());
        let width = if self.dy.is_some() { self.columns() } else { columns };
        // SAFETY: the launch writes all elements, or fails, and then they go.
        let new = |sides: [usize; 2], dtype| unsafe {
            Tensor::uninit(stream, Shape::of(OPERATION, &sides)?, dtype)
        };
        let mut to = new([rows, width], dtype)?;
        let sides = [rows, columns].map(|side| side as u64);
        let job = ActivationJob::new(sides, dtype.size(), self.function, self.form, wants_sums);
        let is_nothing = rows == 0 || columns == 0;
        let mut sums = if wants_sums && !is_nothing {
            Some(new([job.parts() as usize, self.columns()], DType::F32)?)
        } else {
            None
        };
        let operands = Operands {
            x: as_rows(stream, self.x, self.columns())?,
            dy: self.dy.map(|dy| as_rows(stream, dy, columns)).transpose()?,
            to: to.view_mut()?,
            sums: sums.as_mut().map(Tensor::view_mut).transpose()?,
        };
        by_dtype!(dtype, (OPERATION, "x", None), {
            F32 => operands.launch::<activation_f32, activation_with_sums_f32, f32>(stream, job),
            F16 => operands.launch::<activation_f16, activation_with_sums_f16, f16>(stream, job),
            BF16 => operands.launch::<activation_bf16, activation_with_sums_bf16, bf16>(stream, job),
        })?;
        Ok((to, sums))
    }
}

/// Rows, each a fixed distance from the next.
struct Operands<'a> {
    x: Tensor,
    dy: Option<Tensor>,
    to: TensorMut<'a>,
    sums: Option<TensorMut<'a>>,
}

impl Operands<'_> {
    /// Queues the kernel `K`, or `S` where there are sums.
    fn launch<K, S, T>(&self, stream: &Stream, job: ActivationJob) -> Result<()>
    where
        K: Kernel<Params = (Value<ActivationJob>, Ptr<T>, Ptr<T>, PtrMut<T>)>,
        S: Kernel<Params = (Value<ActivationJob>, Ptr<T>, Ptr<T>, PtrMut<T>, PtrMut<f32>)>,
    {
        if job.rows == 0 || job.columns == 0 {
            return Ok(());
        }
        let Operands { x, dy, to, sums } = self;
        let stride = |x: &Tensor| x.layout().strides()[0] as u64;
        let strides = [stride(x), dy.as_ref().map_or(0, stride), to.layout().strides()[0] as u64];
        let addresses = x.address() | dy.as_ref().map_or(0, Tensor::address) | to.address();
        let job = ActivationJob { strides, ..job };
        let job = ActivationJob { is_aligned: is_aligned(&job, addresses, size_of::<T>()).into(), ..job };
        // More blocks than a grid holds become an error of the launch.
        let [tiles, parts] =
            [job.tiles(size_of::<T>()), job.parts()].map(|n| u32::try_from(n).unwrap_or(u32::MAX));
        let config = LaunchConfig::new([tiles, parts, 1], [THREADS, 1, 1]).overlapping_previous();
        let dy = dy.as_ref().map(|dy| dy.read::<T>(stream)).transpose()?;
        let (x, to) = (x.read::<T>(stream)?, to.write::<T>(stream)?);
        // SAFETY: the tensors hold the job's rows, and the sums a row for each part; what is written is
        // exclusively borrowed. Plain jobs and those with sums are of gradients.
        unsafe {
            match sums {
                Some(sums) => launch::<S>(stream, config, (job, x, dy, to, sums.write::<f32>(stream)?)),
                None => launch::<K>(stream, config, (job, x, dy, to)),
            }
        }
    }
}

/// Whether all vectors of a job begin at boundaries, where its tensors begin at these addresses.
fn is_aligned(job: &ActivationJob, addresses: u64, size: usize) -> bool {
    let vector = VECTOR_BYTES as u64;
    // A single row has no next one. A second half begins a row's columns later.
    let strides = job.strides.iter().filter(|_| job.rows > 1);
    let steps = strides.fold(job.columns, |bits, stride| bits | stride);
    addresses.is_multiple_of(vector) && (steps * size as u64).is_multiple_of(vector)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A contiguous tensor is one row, whose stride as a view is 1.
    #[test]
    fn one_row_goes_by_vectors() {
        let job = |rows, columns, stride| ActivationJob {
            strides: [stride; 3],
            ..ActivationJob::new([rows, columns], 2, ActivationFunction::Gelu, Form::Plain, false)
        };
        assert!(is_aligned(&job(1, 1 << 20, 1), 512, 2));
        assert!(is_aligned(&job(2, 64, 72), 512, 2));
        assert!(!is_aligned(&job(2, 64, 1), 512, 2));
        assert!(!is_aligned(&job(1, 1 << 20, 1), 514, 2));
        assert!(!is_aligned(&job(1, 1001, 1), 512, 2));
    }
}
