//! Functions of rows of other packages.

use cuda_std::kernel::{Kernel, Value};
use primitives::element::Float;
use rows::function::{MAX_INPUTS, MAX_OUTPUTS, RowFunction};

use super::launch::{Job, Parameters};
use super::{alike, argument, as_rows, last_columns};
use crate::error::Result;
use crate::launch::Arg;
use crate::stream::Stream;
use crate::tensor::{Element, Tensor, TensorError};

const OPERATION: &str = "run_function";

/// A kernel of [`rows::row_kernels!`](::rows::row_kernels) or [`rows::held_kernels!`](::rows::held_kernels).
/// Every kernel with their parameters is one to the compiler: [`run_function`] and [`run_function_held`] say
/// which macro's kernels they may be given.
pub trait RowKernel: Kernel<Params = Parameters<Self::Function, Self::Element>> {
    /// The function.
    type Function: RowFunction<Self::Element>;
    /// The elements of its rows.
    type Element: Element + Float;
}

impl<K, F, T> RowKernel for K
where
    K: Kernel<Params = Parameters<F, T>>,
    F: RowFunction<T>,
    T: Element + Float,
{
    type Function = F;
    type Element = T;
}

/// The results of a function of your own of the rows of `inputs`, along their last axis: by the kernel `K` of
/// `row_kernels!`, which runs on any device. `let [y] = run_function::<my_rms_norm, _>(&stream,
/// RmsNormArgs { .. }.pass(), &[&x])?`. Results have the shape and type of the inputs.
///
/// # Safety
/// `K` is a kernel of `row_kernels!`: one of `held_kernels!` would be launched without its shared memory.
/// For every row the function reads no memory but its inputs and what its arguments reach: of what all rows
/// share, an element for each column. It writes each place of so many outputs.
///
/// # Errors
/// [`crate::Error::InvalidArgument`] for another number of inputs than the function has,
/// [`TensorError::DType`] for elements of another type, [`TensorError::Shape`] for inputs of different
/// shapes, [`TensorError::Axis`] for a number, [`TensorError::TooLarge`] for a row of 2^32 elements or more,
/// [`crate::Error::DeviceMismatch`], [`crate::Error::OutOfMemory`], or an error of a launch.
#[track_caller]
pub unsafe fn run_function<K: RowKernel, const OUTPUTS: usize>(
    stream: &Stream,
    function: impl Arg<Value<K::Function>>,
    inputs: &[&Tensor],
) -> Result<[Tensor; OUTPUTS]> {
    results::<K, OUTPUTS>(stream, inputs, |job| {
        // SAFETY: the caller's promise of the kernel and its function; the job has the rows of all tensors,
        // and a plan for kernels of `row_kernels!`.
        unsafe { job.direct::<K, _, K::Element>(function) }
    })
}

/// As [`run_function`], on Hopper by the kernel `H` of `held_kernels!` where rows fit: each row is read once.
/// Rows that are longer than what a cluster holds, shorter than 16 bytes, or lie otherwise than those of
/// another tensor within 16 bytes, go to `K`.
///
/// # Safety
/// As for [`run_function`], for the functions of both kernels, and `H` is a kernel of `held_kernels!`.
///
/// # Errors
/// As for [`run_function`].
#[track_caller]
pub unsafe fn run_function_held<K, H, const OUTPUTS: usize>(
    stream: &Stream,
    function: impl Arg<Value<K::Function>>,
    inputs: &[&Tensor],
) -> Result<[Tensor; OUTPUTS]>
where
    K: RowKernel,
    H: RowKernel<Function = K::Function, Element = K::Element>,
{
    results::<K, OUTPUTS>(stream, inputs, |job| {
        // SAFETY: the caller's promise of both kernels and their functions; the job has the rows of all
        // tensors, and a plan for the macro of the one that it takes.
        unsafe { job.run::<K, H, _, K::Element>(function) }
    })
}

/// Checks the inputs, makes the results, and queues a job of them.
#[track_caller]
fn results<K: RowKernel, const OUTPUTS: usize>(
    stream: &Stream,
    inputs: &[&Tensor],
    queue: impl FnOnce(&Job<'_>) -> Result<()>,
) -> Result<[Tensor; OUTPUTS]> {
    const { assert!(OUTPUTS > 0 && OUTPUTS <= MAX_OUTPUTS, "a function of rows has one output or two") };
    let x = check::<K>(inputs)?;
    let columns = last_columns(OPERATION, x)?;
    let rows = inputs.iter().map(|x| as_rows(stream, x, columns)).collect::<Result<Vec<_>>>()?;
    // SAFETY: the launch writes all of them, or fails, and then they go.
    let new = |_| unsafe { Tensor::uninit(stream, x.shape().clone(), x.dtype()) };
    let mut made = (0..OUTPUTS).map(new).collect::<Result<Vec<_>>>()?;
    let mut written = made.iter_mut().map(Tensor::view_mut).collect::<Result<Vec<_>>>()?.into_iter();
    let job = Job {
        stream,
        columns,
        shared: WEIGHTS,
        inputs: std::array::from_fn(|place| rows.get(place)),
        outputs: std::array::from_fn(|_| written.next()),
    };
    queue(&job)?;
    drop(job);
    made.try_into().map_err(|_| unreachable!("so many were made"))
}

/// Weights that plans count with: most functions have one.
const WEIGHTS: u32 = 1;

/// The first of the inputs, which are all as the function wants them.
fn check<'a, K: RowKernel>(inputs: &[&'a Tensor]) -> Result<&'a Tensor> {
    let wanted = <K::Function as RowFunction<K::Element>>::INPUTS;
    let Some((&x, others)) = inputs.split_first().filter(|_| inputs.len() == wanted && wanted <= MAX_INPUTS)
    else {
        let (got, wanted) = (inputs.len().to_string(), format!("{wanted}, as the function says"));
        let hint = "give a tensor for each of `RowFunction::INPUTS`, from 1 to 3";
        return Err(argument(OPERATION, "the length of `inputs`", got, wanted, hint));
    };
    let dtype = K::Element::DTYPE;
    if x.dtype() != dtype {
        let (got, wanted) = (x.dtype(), format!("{dtype}, as the kernel `{}`", K::NAME));
        let hint = "convert it first (`to`), or take a kernel of that type";
        return Err(
            TensorError::DType { operation: OPERATION, what: "the first input", got, wanted, hint }.into()
        );
    }
    others.iter().try_for_each(|other| alike(OPERATION, "an input", other, x))?;
    Ok(x)
}
