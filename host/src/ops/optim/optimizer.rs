//! The part that all optimisers share: checks, state, and the launches of a step.

use cuda_std::kernel::{Kernel, Ptr, PtrMut, Value};
use optim::step::{Norm, Step, begin_step};
use optim::table::{ALIGNMENT, Chunk, Entry, Format, MAX_TENSORS};
use optim::update::{Model, copy_to_master};
use primitives::philox::keys;

use super::norm::GradientNorm;
use super::not_negative;
use super::table::{Tables, blocks};
use crate::error::{Error, Result};
use crate::launch::{LaunchConfig, Table, launch};
use crate::memory::{DeviceBuffer, Within};
use crate::ops::fill::{fill, full};
use crate::stream::Stream;
use crate::tensor::{DType, Layout, Shape, Tensor, TensorError, TensorMut};

/// How an optimiser keeps its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateConfig {
    /// Type of the moments: f32, or bf16, which is rounded stochastically.
    pub moments: DType,
    /// Keep the weights in f32 too: they are what is updated, and 16-bit parameters are rounded from them to
    /// nearest. They are copied when the optimiser is made.
    pub master: bool,
    /// Round bf16 parameters without master weights stochastically; otherwise updates of less than half a
    /// unit are lost.
    pub stochastic: bool,
    /// Seed of the random numbers that stochastic rounding takes.
    pub seed: u64,
}

impl Default for StateConfig {
    /// Moments in f32, no master weights, stochastic rounding of bf16, seed 0.
    fn default() -> Self {
        StateConfig { moments: DType::F32, master: false, stochastic: true, seed: 0 }
    }
}

/// Words of what the device keeps of a step.
const STEP_WORDS: usize = size_of::<Step>() / size_of::<u64>();
const _: () = assert!(STEP_WORDS * size_of::<u64>() == size_of::<Step>());

/// A parameter as it was when the optimiser was made.
struct Parameter {
    shape: Shape,
    dtype: DType,
    /// Where its moments begin.
    state: u64,
}

/// The state of an optimiser of any rule.
pub(super) struct Optimizer {
    operation: &'static str,
    parameters: Vec<Parameter>,
    weight_decay: f32,
    model: Model,
    betas: [f64; 2],
    moments: Vec<Tensor>,
    moment_type: DType,
    master: Option<Tensor>,
    /// One f64.
    learning_rate: Tensor,
    /// A [`Step`].
    step: DeviceBuffer<u64>,
    tables: Tables,
}

/// The differences of optimisers, but for their rules.
pub(super) struct Kind {
    /// The name of its step, for errors.
    pub operation: &'static str,
    /// Moments that it keeps.
    pub moments: usize,
    /// Decay rates whose bias is corrected.
    pub betas: [f64; 2],
    pub learning_rate: f64,
    pub weight_decay: f64,
}

impl Optimizer {
    #[track_caller]
    pub fn new(
        stream: &Stream,
        parameters: &[TensorMut<'_>],
        kind: Kind,
        config: StateConfig,
    ) -> Result<Self> {
        let operation = kind.operation;
        not_negative(operation, "learning_rate", kind.learning_rate)?;
        not_negative(operation, "weight_decay", kind.weight_decay)?;
        few_enough(operation, parameters.len())?;
        if !matches!(config.moments, DType::F32 | DType::BF16) {
            let (got, wanted) = (config.moments.to_string(), "f32 or bf16".to_owned());
            let (argument, hint) = ("moments", "f16 has too short a range for squares of gradients");
            return Err(Error::InvalidArgument { operation, argument, got, wanted, hint });
        }
        let mut elements = 0u64;
        let mut known = Vec::with_capacity(parameters.len());
        for parameter in parameters {
            stream.same_device("a parameter", parameter.device())?;
            if !matches!(parameter.dtype(), DType::F32 | DType::BF16 | DType::F16) {
                let (got, wanted) = (parameter.dtype(), "f32, bf16 or f16".to_owned());
                let hint = "parameters that are trained are floats";
                return Err(TensorError::DType { operation, what: "a parameter", got, wanted, hint }.into());
            }
            contiguous(operation, parameter.layout())?;
            let (shape, dtype) = (parameter.shape().clone(), parameter.dtype());
            known.push(Parameter { shape, dtype, state: elements });
            elements += (parameter.layout().elements() as u64).next_multiple_of(ALIGNMENT);
        }
        let len = usize::try_from(elements).unwrap_or(usize::MAX);
        let zeros = |dtype| Tensor::zeros(stream, &[len], dtype);
        let mut optimizer = Optimizer {
            operation,
            parameters: known,
            weight_decay: kind.weight_decay as f32,
            model: Model { keys: keys(config.seed), is_stochastic: config.stochastic.into() },
            betas: kind.betas,
            moments: (0..kind.moments).map(|_| zeros(config.moments)).collect::<Result<_>>()?,
            moment_type: config.moments,
            master: config.master.then(|| zeros(DType::F32)).transpose()?,
            learning_rate: full(stream, &[1], kind.learning_rate)?,
            step: DeviceBuffer::from_slice(stream, bytemuck::cast_slice(&first_step()))?,
            tables: Tables::default(),
        };
        optimizer.copy_to_master(stream, parameters)?;
        Ok(optimizer)
    }

    /// Copies the parameters to the master weights, if there are any.
    #[track_caller]
    fn copy_to_master(&mut self, stream: &Stream, parameters: &[TensorMut<'_>]) -> Result<()> {
        let entries = self.entries(parameters, &vec![None; parameters.len()])?;
        let Some(master) = &mut self.master else { return Ok(()) };
        let table = Tables::default().of(stream, entries)?;
        let named = parameters.iter().map(|parameter| Ok((parameter.write::<u8>(stream)?, false)));
        let tensors = Table { table: table.tensors(), named: named.collect::<Result<_>>()? };
        let master = master.view_mut()?;
        let arguments = (tensors, table.chunks(), master.write(stream)?);
        // SAFETY: the table is that of the parameters; the master weights have a place for each element.
        unsafe { launch::<copy_to_master>(stream, blocks(table.count), arguments) }
    }

    /// Whether its moments are bf16.
    pub fn has_short_moments(&self) -> bool {
        self.moment_type == DType::BF16
    }

    /// Queues a step by the kernel `K`, whose moments are `M`s.
    #[track_caller]
    pub fn step<K, R: Copy, M>(
        &mut self,
        stream: &Stream,
        rule: R,
        parameters: &mut [TensorMut<'_>],
        gradients: &[&Tensor],
        norm: Option<&GradientNorm>,
    ) -> Result<()>
    where
        K: Kernel<
            Params = (
                Value<R>,
                Value<Model>,
                Ptr<Entry>,
                Ptr<Chunk>,
                Ptr<Step>,
                PtrMut<M>,
                PtrMut<M>,
                PtrMut<f32>,
            ),
        >,
    {
        self.check(stream, parameters, gradients)?;
        let given: Vec<_> = gradients.iter().map(|gradient| Some(*gradient)).collect();
        let table = self.tables.of(stream, self.entries(parameters, &given)?)?;
        // All that can be refused is asked for before the step's number is counted up.
        let mut moments =
            self.moments.iter_mut().map(Tensor::view_mut).collect::<Result<Vec<_>>>()?.into_iter();
        let [first, second] = [moments.next(), moments.next()];
        let first = first.as_ref().map(|moment| moment.write::<M>(stream)).transpose()?;
        let second = second.as_ref().map(|moment| moment.write::<M>(stream)).transpose()?;
        let master = self.master.as_mut().map(Tensor::view_mut).transpose()?;
        let master = master.as_ref().map(|master| master.write::<f32>(stream)).transpose()?;
        let written = parameters.iter().map(|parameter| Ok((parameter.write::<u8>(stream)?, true)));
        let read = gradients.iter().map(|gradient| Ok((gradient.read::<u8>(stream)?, false)));
        let tensors = Table { table: table.tensors(), named: written.chain(read).collect::<Result<_>>()? };
        let step: Within<'_, Step> = self.step.view().within().cast();
        let rate = self.learning_rate.read::<f64>(stream)?;
        let norm: Option<Within<'_, Norm>> = norm.map(GradientNorm::result);
        let begin = LaunchConfig::new([1, 1, 1], [32, 1, 1]).overlapping_previous();
        let arguments = (rule, self.model, tensors, table.chunks(), step, first, second, master);
        // SAFETY: the table is that of the parameters, exclusively borrowed, and of gradients of their
        // shapes; moments and master weights have a place for each of their elements.
        unsafe {
            launch::<begin_step>(stream, begin, (self.betas, rate, norm, step))?;
            launch::<K>(stream, blocks(table.count), arguments)
        }
    }

    /// Do the tensors of a step fit those of the first?
    fn check(&self, stream: &Stream, parameters: &[TensorMut<'_>], gradients: &[&Tensor]) -> Result<()> {
        let operation = self.operation;
        for (argument, got) in [("params", parameters.len()), ("grads", gradients.len())] {
            if got != self.parameters.len() {
                let (got, wanted) = (format!("{got} tensors"), format!("{} tensors", self.parameters.len()));
                let hint = "a step takes a tensor for each that the optimiser was made with, in that order";
                return Err(Error::InvalidArgument { operation, argument, got, wanted, hint });
            }
        }
        let each = self.parameters.iter().zip(parameters).zip(gradients).enumerate();
        for (number, ((known, parameter), gradient)) in each {
            stream.same_device("a parameter", parameter.device())?;
            stream.same_device("a gradient", gradient.device())?;
            for (what, shape) in [("a parameter", parameter.shape()), ("a gradient", gradient.shape())] {
                if *shape != known.shape {
                    let (got, wanted) = (shape.clone(), format!("{} of parameter {number}", known.shape));
                    let hint = "pass tensors in the order that the optimiser was made with";
                    return Err(TensorError::Shape { operation, what, got, wanted, hint }.into());
                }
            }
            if parameter.dtype() != known.dtype {
                let (got, wanted) = (parameter.dtype(), format!("{} of parameter {number}", known.dtype));
                let hint = "make a new optimiser for parameters of another type";
                return Err(TensorError::DType { operation, what: "a parameter", got, wanted, hint }.into());
            }
            contiguous(operation, parameter.layout())?;
            contiguous(operation, gradient.layout())?;
        }
        Ok(())
    }

    /// The entries of a table, first chunks left out.
    fn entries(&self, parameters: &[TensorMut<'_>], gradients: &[Option<&Tensor>]) -> Result<Vec<Entry>> {
        let each = self.parameters.iter().zip(parameters).zip(gradients);
        each.map(|((known, parameter), gradient)| {
            let format = self.format(known, gradient.map_or(known.dtype, Tensor::dtype))?;
            let (parameter, gradient) = (parameter.address(), gradient.map_or(0, Tensor::address));
            Ok(Entry {
                parameter,
                gradient,
                length: known.shape.elements() as u64,
                state: known.state,
                first_chunk: 0,
                format,
                weight_decay: self.weight_decay,
                is_aligned: is_aligned(parameter | gradient),
            })
        })
        .collect()
    }

    fn format(&self, known: &Parameter, gradient: DType) -> Result<Format> {
        match (known.dtype, gradient) {
            (DType::F32, DType::F32) => Ok(Format::F32),
            (DType::BF16, DType::BF16) => Ok(Format::Bf16),
            (DType::BF16, DType::F32) => Ok(Format::Bf16WithF32),
            (DType::F16, DType::F16) => Ok(Format::F16),
            (DType::F16, DType::F32) => Ok(Format::F16WithF32),
            (parameter, got) => {
                let (operation, what) = (self.operation, "a gradient");
                let wanted =
                    if parameter == DType::F32 { "f32".to_owned() } else { format!("{parameter} or f32") };
                let hint = "gradients have their parameter's type, or are f32";
                Err(TensorError::DType { operation, what, got, wanted, hint }.into())
            }
        }
    }

    /// See [`super::AdamW::set_learning_rate`].
    #[track_caller]
    pub fn set_learning_rate(&mut self, stream: &Stream, learning_rate: f64) -> Result<()> {
        not_negative(self.operation, "learning_rate", learning_rate)?;
        fill(stream, self.learning_rate.view_mut()?, learning_rate)
    }

    /// Steps done, and steps skipped; waits for them.
    pub fn counts(&self, stream: &Stream) -> Result<[u64; 2]> {
        let words = self.step.to_vec(stream)?;
        Ok([words[0], words[1]])
    }

    /// A moment of a parameter, or its master weights (`None` for the moment).
    pub fn state(&self, moment: Option<usize>, parameter: usize) -> Result<Option<Tensor>> {
        let (operation, argument) = (self.operation, "parameter");
        let Some(known) = self.parameters.get(parameter) else {
            let (got, wanted) = (parameter.to_string(), format!("below {}", self.parameters.len()));
            let hint = "parameters have the numbers that they were passed in, from 0";
            return Err(Error::InvalidArgument { operation, argument, got, wanted, hint });
        };
        let Some(all) = moment.map_or(self.master.as_ref(), |moment| self.moments.get(moment)) else {
            return Ok(None);
        };
        let start = known.state as usize;
        all.slice(0, start..start + known.shape.elements())?.view_as(&known.shape).map(Some)
    }
}

impl std::fmt::Debug for Optimizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} parameters, moments {}", self.parameters.len(), self.moment_type)
    }
}

/// The device's record before the first step.
fn first_step() -> [u64; STEP_WORDS] {
    let mut words = [0; STEP_WORDS];
    // The powers to 0, behind the two counts.
    [words[2], words[3]] = [1f64.to_bits(); 2];
    words
}

/// 1 for an address of whole vectors.
pub(super) fn is_aligned(address: u64) -> u32 {
    address.is_multiple_of(primitives::access::VECTOR_BYTES as u64).into()
}

pub(super) fn few_enough(operation: &'static str, tensors: usize) -> Result<()> {
    if tensors <= MAX_TENSORS {
        return Ok(());
    }
    let (got, wanted) = (format!("{tensors} tensors"), format!("at most {MAX_TENSORS}"));
    let hint = "put small parameters together in one tensor";
    Err(Error::InvalidArgument { operation, argument: "the tensors", got, wanted, hint })
}

pub(super) fn contiguous(operation: &'static str, layout: &Layout) -> Result<()> {
    if layout.is_contiguous() {
        return Ok(());
    }
    let (shape, strides) = (layout.shape().clone(), layout.strides().to_vec());
    Err(TensorError::NotContiguous { operation, shape, strides }.into())
}
