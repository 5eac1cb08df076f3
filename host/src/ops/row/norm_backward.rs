//! Gradients of layer norm and RMS norm, and of an activation behind them.

use half::{bf16, f16};
use primitives::access::VECTOR_BYTES;
use primitives::activation::Activation;
use primitives::warp::LANES;
use rows::activated_norm::{ActivatedNormBackward as ActivatedFunction, ActivatedNormBackwardArgs};
use rows::finish::{self, ColumnJob, SUM_VECTOR, THREADS};
use rows::function::MAX_SUMS;
use rows::norm::{NormBackward as Function, NormBackwardArgs};
use rows::plan::Plan;

use cuda_std::kernel::{Kernel, Value};

use super::differentiable::{ColumnParameters, Differentiable};
use super::launch::{Job, Stay, as_rows, written};
use super::norm::{Norm, NormKind, bytes, check_activation, shared_by_rows};
use super::{alike, last_columns};
use crate::error::Result;
use crate::launch::{Arg, LaunchConfig, launch};
use crate::memory::{DeviceBuffer, Within};
use crate::ops::dispatch::by_dtype;
use crate::ops::elementwise::{copy, made};
use crate::stream::Stream;
use crate::tensor::{DType, Element, Shape, Tensor, TensorError, TensorMut};

/// The gradients of a norm, with an activation behind it or without: [`Norm::backward`].
///
/// ```
/// use ironwarp::ops::gemm::Activation;
/// use ironwarp::ops::row::{Norm, NormKind};
/// use ironwarp::{DType, Device, Tensor};
///
/// # fn main() -> ironwarp::Result<()> {
/// let device = Device::open(0)?;
/// let stream = device.stream()?;
/// let x = Tensor::from_slice(&stream, &[2, 4], &[1.0f32, 2.0, 3.0, 4.0, 8.0, 7.0, 6.0, 5.0])?;
/// let weight = Tensor::ones(&device, &[4], DType::F32)?;
/// let bias = Tensor::zeros(&stream, &[4], DType::F32)?;
///
/// let (weight, bias) = (Some(&weight), Some(&bias));
/// let norm = Norm { kind: NormKind::Layer, weight, bias, eps: 1e-5, activation: Activation::Gelu };
/// let normed = norm.run_for_gradient(&stream, &x)?;
/// let moments = normed.moments.expect("asked for");
///
/// let dy = Tensor::ones(&device, &[2, 4], DType::F32)?;
/// let gradients = norm.backward(&x, &dy, &moments).run(&stream)?;
/// assert_eq!(gradients.x.shape(), x.shape());
/// // The slopes of GELU at both rows, which are one another's mirror: those at u and at -u make 1.
/// let of_bias = gradients.bias.expect("the norm has one").to_vec::<f32>(&stream)?;
/// assert!(of_bias.iter().all(|of_bias| (of_bias - 1.0).abs() < 1e-5));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct NormBackward<'a> {
    /// Which.
    pub kind: NormKind,
    /// The input that was normalised: `x`, or the sum of `x` and the residual.
    pub x: &'a Tensor,
    /// The gradient by the result, of the same shape and type.
    pub dy: &'a Tensor,
    /// The moments that the forward pass left: [`Normed::moments`](super::Normed::moments).
    pub moments: &'a Tensor,
    /// The weight of the forward pass.
    pub weight: Option<&'a Tensor>,
    /// The bias of the forward pass. Without an activation nothing depends on it, but it is checked.
    pub bias: Option<&'a Tensor>,
    /// The activation of the forward pass.
    pub activation: Activation,
    /// Added to the gradient by `x`: the gradient that the sum gets from its other use.
    pub residual: Option<&'a Tensor>,
    /// Whether the gradients by weight and bias are wanted.
    pub of_shared: [bool; 2],
}

/// The results of [`NormBackward`].
#[derive(Debug)]
pub struct NormGradients {
    /// By `x` (and by the residual), of its shape and type, contiguous.
    pub x: Tensor,
    /// By the weight, of its type.
    pub weight: Option<Tensor>,
    /// By the bias, of its type.
    pub bias: Option<Tensor>,
}

impl<'a> Norm<'a> {
    /// The gradients of this norm, activation included, by its input, and by the weight and the bias that it
    /// has: from what was normalised (`x`, or the sum with the residual), the gradient by the result, and
    /// [`Normed::moments`](super::Normed::moments).
    pub fn backward(&self, x: &'a Tensor, dy: &'a Tensor, moments: &'a Tensor) -> NormBackward<'a> {
        let &Norm { kind, weight, bias, activation, .. } = self;
        let of_shared = [weight.is_some(), bias.is_some()];
        NormBackward { kind, x, dy, moments, weight, bias, activation, residual: None, of_shared }
    }
}

/// Sums that blocks leave.
struct Partials {
    sums: DeviceBuffer<f32>,
    /// Rows of them.
    rows: u32,
}

/// Checked operands, as rows.
struct Given {
    x: Tensor,
    dy: Tensor,
    residual: Option<Tensor>,
    shared: SharedRows,
}

/// Tensors that all rows share.
struct SharedRows {
    weight: Option<Tensor>,
    /// Where there is an activation.
    bias: Option<Tensor>,
}

impl SharedRows {
    fn count(&self) -> u32 {
        self.weight.iter().chain(&self.bias).count() as u32
    }

    /// The same from boundaries of vectors on, as the engine with a ring wants them.
    fn at_vectors(&self, stream: &Stream) -> Result<Self> {
        let at_vector = |shared: &Tensor| {
            let is_there = shared.address().is_multiple_of(VECTOR_BYTES as u64);
            if is_there { Ok(shared.clone()) } else { copy(stream, shared) }
        };
        let [weight, bias] =
            [&self.weight, &self.bias].map(|shared| shared.as_ref().map(at_vector).transpose());
        Ok(Self { weight: weight?, bias: bias? })
    }
}

impl NormBackward<'_> {
    /// Queues the gradients: that by `x` in one pass over memory, those by weight and bias in the same pass
    /// where all tensors of a row lie alike within 16 bytes, the first row begins at such a boundary, and a
    /// cluster has registers for their columns (Hopper, up to some 65,500 columns), else in a second one. All
    /// repeat bit for bit.
    ///
    /// With an activation, `dy activation'(weight z + bias)` takes the place of `dy` in the same pass, where
    /// `z` is the normalised row: the chain rule, with the derivatives of `torch.nn.functional`. It, or its
    /// product with the weight, is rounded to the type of `x`, as it would be in memory. On Hopper one pass
    /// has all gradients of rows of 16 bits up to 65,529 columns, and up to 98,304 (in f32 65,536) of rows
    /// that are whole vectors of 16 bytes. Else the first pass writes that product to a temporary tensor of
    /// the size of `x`, and the second reads it.
    ///
    /// For the engine whose blocks have a ring (`norm_backward_sums_*`, `activated_norm_backward_sums_*`) a
    /// weight or a bias that does not begin at a multiple of 16 bytes is copied first.
    ///
    /// # Errors
    /// [`TensorError::Axis`], [`TensorError::DType`] for other types than f32, f16 and bf16, and for those
    /// that differ, [`TensorError::Shape`], [`TensorError::NotContiguous`] for moments that are not those of
    /// a forward pass, [`crate::Error::InvalidArgument`] for an activation of two values,
    /// [`TensorError::TooLarge`], [`crate::Error::DeviceMismatch`], [`crate::Error::OutOfMemory`], or the
    /// driver's error.
    #[track_caller]
    pub fn run(&self, stream: &Stream) -> Result<NormGradients> {
        let (operation, x) = ("norm_backward", self.x);
        let columns = last_columns(operation, x)?;
        check_activation(operation, self.activation)?;
        alike(operation, "dy", self.dy, x)?;
        if let Some(residual) = self.residual {
            alike(operation, "residual", residual, x)?;
        }
        self.check_moments(operation, x.elements() / columns.max(1))?;
        let given = Given {
            x: as_rows(stream, x, columns)?,
            dy: as_rows(stream, self.dy, columns)?,
            residual: self.residual.map(|residual| as_rows(stream, residual, columns)).transpose()?,
            shared: self.shared_rows(stream, operation, columns)?,
        };
        by_dtype!(x.dtype(), (operation, "x", None), {
            F32 => self.of_type::<f32>(stream, &given),
            F16 => self.of_type::<f16>(stream, &given),
            BF16 => self.of_type::<bf16>(stream, &given),
        })
    }

    /// The weight, and the bias where the activation takes it.
    fn shared_rows(&self, stream: &Stream, operation: &'static str, columns: usize) -> Result<SharedRows> {
        let shared = |what, given| shared_by_rows(stream, operation, what, given, self.x, columns);
        let (weight, bias) = (shared("weight", self.weight)?, shared("bias", self.bias)?);
        if let Some(bias) = &bias {
            stream.same_device("the bias", bias.device())?;
        }
        Ok(SharedRows { weight, bias: bias.filter(|_| self.activation != Activation::None) })
    }

    fn check_moments(&self, operation: &'static str, rows: usize) -> Result<()> {
        let (what, moments) = ("moments", self.moments);
        let hint = "pass what `run_for_gradient` gave";
        if moments.shape().sides() != [2, rows] {
            let (got, wanted) = (moments.shape().clone(), format!("[2, {rows}]"));
            return Err(TensorError::Shape { operation, what, got, wanted, hint }.into());
        }
        if moments.dtype() != DType::F32 {
            let (got, wanted) = (moments.dtype(), "f32".to_owned());
            return Err(TensorError::DType { operation, what, got, wanted, hint }.into());
        }
        moments.as_view::<f32>().map(drop)
    }

    fn of_type<T: Differentiable>(&self, stream: &Stream, given: &Given) -> Result<NormGradients> {
        let columns = given.x.shape()[1];
        let mut partials = None;
        let x = made(stream, self.x.shape(), self.x.dtype(), |dx| {
            let inputs = [Some(&given.x), Some(&given.dy), given.residual.as_ref()];
            let job =
                Job { stream, columns, shared: given.shared.count(), inputs, outputs: [Some(dx), None] };
            partials = match self.activation {
                Activation::None => self.of_rows::<T>(&job, given)?,
                _ => self.of_activated_rows::<T>(job, given)?,
            };
            Ok(())
        })?;
        let [weight, bias] = self.sums_of_shared::<T>(stream, columns, partials)?;
        Ok(NormGradients { x, weight, bias })
    }

    /// Whether sums of columns are wanted, and there are rows.
    fn has_sums(&self, job: &Job<'_>) -> bool {
        self.of_shared.contains(&true) && job.rows() > 0
    }

    /// The gradient by rows without an activation, and the sums of columns that are wanted.
    fn of_rows<T: Differentiable>(&self, job: &Job<'_>, given: &Given) -> Result<Option<Partials>> {
        let (stream, function) = (job.stream, self.function(job, &given.shared)?);
        let sums = |plan: &Plan| Partials::new(stream, plan.blocks / plan.cluster, job.columns);
        // SAFETY: all tensors have the same rows, the weight is as long as a row, and there are moments of
        // each row. There is a row of sums for each cluster, or for each part of the rows. The plan of a ring
        // has room for the weight, which begins at a 16-byte boundary then.
        unsafe {
            if !self.has_sums(job) {
                job.run::<T::Direct, T::Held, _, T>(function)?;
                return Ok(None);
            }
            let staying = job.stay_sums::<T::StaysCluster, T::StaysAnywhere>(size_of::<T>(), Plan::stay_sums);
            if let Some((plan, stay)) = staying? {
                let (partials, threads) = (sums(&plan)?, (&plan, plan.consumers));
                let place = partials.place();
                match stay {
                    Stay::Block => job.with_sums::<T::Stays, _, T>(threads, function, place)?,
                    Stay::Cluster => job.with_sums::<T::StaysCluster, _, T>(threads, function, place)?,
                    Stay::Anywhere => job.with_sums::<T::StaysAnywhere, _, T>(threads, function, place)?,
                }
                return Ok(Some(partials));
            }
            if let Some(plan) = job.sums::<T::Sums>(size_of::<T>())? {
                let (partials, threads) = (sums(&plan)?, (&plan, plan.ring_threads()));
                let shared = given.shared.at_vectors(stream)?;
                let function = self.function(job, &shared)?;
                job.with_sums::<T::Sums, _, T>(threads, function, partials.place())?;
                return Ok(Some(partials));
            }
            job.run::<T::Direct, T::Held, _, T>(function)?;
        }
        self.columns::<T::Columns, T>(stream, [&given.x, &given.dy], job.rows()).map(Some)
    }

    /// The same with an activation.
    fn of_activated_rows<T: Differentiable>(&self, job: Job<'_>, given: &Given) -> Result<Option<Partials>> {
        // SAFETY: as in `of_rows`; the bias is as long as a row, and a ring has it as it has the weight: the
        // plan has room for it, and it begins at a 16-byte boundary. The gradient by the activation's
        // argument has the same rows, and the launch writes all of it, or fails, and then it goes.
        unsafe {
            if !self.has_sums(&job) {
                let function = self.activated(&job, &given.shared)?;
                job.run::<T::ActivatedDirect, T::ActivatedHeld, _, T>(function)?;
                return Ok(None);
            }
            let staying = job.stay_sums::<T::ActivatedStaysCluster, T::ActivatedStaysAnywhere>(
                size_of::<T>(),
                Plan::stay_activated_sums,
            );
            if let Some((plan, stay)) = staying? {
                let partials = Partials::new(job.stream, plan.blocks / plan.cluster, job.columns)?;
                let (threads, place) = ((&plan, plan.consumers), partials.place());
                let function = self.activated(&job, &given.shared)?;
                match stay {
                    Stay::Block => job.with_sums::<T::ActivatedStays, _, T>(threads, function, place)?,
                    Stay::Cluster => {
                        job.with_sums::<T::ActivatedStaysCluster, _, T>(threads, function, place)?;
                    }
                    Stay::Anywhere => {
                        job.with_sums::<T::ActivatedStaysAnywhere, _, T>(threads, function, place)?;
                    }
                }
                return Ok(Some(partials));
            }
            if let Some(plan) = job.sums::<T::ActivatedSums>(size_of::<T>())? {
                let partials = Partials::new(job.stream, plan.blocks / plan.cluster, job.columns)?;
                let shared = given.shared.at_vectors(job.stream)?;
                let (threads, function) = ((&plan, plan.ring_threads()), self.activated(&job, &shared)?);
                job.with_sums::<T::ActivatedSums, _, T>(threads, function, partials.place())?;
                return Ok(Some(partials));
            }
            let Job { stream, outputs: [dx, _], .. } = job;
            let mut inner = Tensor::uninit(stream, given.x.shape().clone(), given.x.dtype())?;
            let job = Job { outputs: [dx, Some(inner.view_mut()?)], ..job };
            let (rows, function) = (job.rows(), self.activated(&job, &given.shared)?);
            job.run::<T::ActivatedDirect, T::ActivatedHeld, _, T>(function)?;
            self.columns::<T::Columns, T>(stream, [&given.x, &inner], rows).map(Some)
        }
    }

    fn function<'t>(
        &'t self,
        job: &Job<'_>,
        shared: &'t SharedRows,
    ) -> Result<impl Arg<Value<Function>> + 't> {
        let function = NormBackwardArgs {
            weight: bytes(job.stream, shared.weight.as_ref())?,
            moments: self.moments.read::<f32>(job.stream)?,
            rows: job.rows(),
            is_centered: (self.kind == NormKind::Layer).into(),
            has_residual: job.inputs[2].is_some().into(),
        };
        Ok(function.pass())
    }

    fn activated<'t>(
        &'t self,
        job: &Job<'_>,
        shared: &'t SharedRows,
    ) -> Result<impl Arg<Value<ActivatedFunction>> + 't> {
        let function = ActivatedNormBackwardArgs {
            norm: self.function(job, shared)?,
            bias: bytes(job.stream, shared.bias.as_ref())?,
            activation: self.activation as u32,
            has_inner: job.outputs[1].is_some().into(),
        };
        Ok(function.pass())
    }

    /// Sums of columns by a pass of their own, over what was normalised and the gradient by the norm.
    fn columns<K, T>(&self, stream: &Stream, [x, dy]: [&Tensor; 2], rows: u64) -> Result<Partials>
    where
        T: Element,
        K: Kernel<Params = ColumnParameters<T>>,
    {
        let columns = x.shape()[1];
        let strides = [x, dy].map(|rows| rows.layout().strides()[0] as u64);
        let job = ColumnJob::new(rows, strides, columns as u32);
        let parts = u32::try_from(job.parts()).unwrap_or(u32::MAX);
        let partials = Partials::new(stream, parts, columns)?;
        let blocks = (columns as u32).div_ceil(THREADS);
        let config = LaunchConfig::new([blocks, parts, 1], [THREADS, 1, 1]).overlapping_previous();
        let sums = partials.sums.view().within();
        let arguments =
            (job, x.read::<T>(stream)?, dy.read::<T>(stream)?, self.moments.read::<f32>(stream)?, sums);
        // SAFETY: the tensors have these rows and moments of each; there are two rows of sums for each part.
        unsafe { launch::<K>(stream, config, arguments)? };
        Ok(partials)
    }

    /// The gradients by weight and bias that are wanted: zeros of no rows.
    fn sums_of_shared<T: Differentiable>(
        &self,
        stream: &Stream,
        columns: usize,
        partials: Option<Partials>,
    ) -> Result<[Option<Tensor>; 2]> {
        let new = |is_wanted: bool| {
            let make = || match partials {
                // SAFETY: the launch below writes all of it, or fails, and then it goes.
                Some(_) => unsafe { Tensor::uninit(stream, Shape::new(&[columns])?, self.x.dtype()) },
                None => Tensor::zeros(stream, &[columns], self.x.dtype()),
            };
            is_wanted.then(make).transpose()
        };
        let mut gradients = [new(self.of_shared[0])?, new(self.of_shared[1])?];
        if let Some(partials) = &partials {
            let [weight, bias] =
                gradients.each_mut().map(|out| out.as_mut().map(Tensor::view_mut).transpose());
            partials.add_up::<T>(stream, columns, [weight?, bias?])?;
        }
        Ok(gradients)
    }
}

impl Partials {
    fn new(stream: &Stream, rows: u32, columns: usize) -> Result<Self> {
        // SAFETY: a launch writes all of them before the next one reads them.
        let sums = unsafe { DeviceBuffer::uninit(stream, rows as usize * MAX_SUMS * columns)? };
        Ok(Partials { sums, rows })
    }

    /// Where they go.
    fn place(&self) -> Option<Within<'_, f32>> {
        Some(self.sums.view().within())
    }

    /// Adds them up, to the gradients that are wanted.
    fn add_up<T: Differentiable>(
        &self,
        stream: &Stream,
        columns: usize,
        [weight, bias]: [Option<TensorMut<'_>>; 2],
    ) -> Result<()> {
        let &Self { ref sums, rows } = self;
        let is_wide = finish::is_wide(columns);
        let of_block = LANES as usize * if is_wide { SUM_VECTOR } else { 1 };
        let blocks = [columns.div_ceil(of_block) as u32, 2, 1];
        let config = LaunchConfig::new(blocks, [finish::sum_threads(rows), 1, 1]).overlapping_previous();
        let arguments = (sums, rows, columns as u32, written(stream, &weight)?, written(stream, &bias)?);
        // SAFETY: two rows of sums for each of `rows`; the gradients have a place for each column. All begin
        // where allocations do, and `is_wide` says that a lane's columns divide theirs.
        unsafe {
            if is_wide {
                launch::<T::FinishWide>(stream, config, arguments)
            } else {
                launch::<T::Finish>(stream, config, arguments)
            }
        }
    }
}
