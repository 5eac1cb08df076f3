//! An optimiser of any rule: its state, and the launches of a step.

use cuda_std::kernel::{Kernel, Ptr, PtrMut, Value};
use optim::step::{Norm, Step, begin_step};
use optim::table::{Chunk, Entry};
use optim::update::{Model, copy_to_master};
use primitives::philox::keys;

use super::norm::GradientNorm;
use super::not_negative;
use super::parameters::Parameters;
use super::table::{Tables, blocks};
use crate::error::{Error, Result};
use crate::launch::{LaunchConfig, Table, launch};
use crate::memory::{DeviceBuffer, Within};
use crate::ops::fill::{fill, full};
use crate::stream::Stream;
use crate::tensor::{DType, Shape, Tensor, TensorMut};

/// How an optimiser keeps its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateConfig {
    /// Type of the moments: f32, or bf16, which is rounded stochastically.
    pub moments: DType,
    /// Keep the weights of 16-bit parameters in f32 too: they are what is updated, and the parameters are
    /// rounded from them to nearest. They are copied when the optimiser is made. Without 16-bit parameters
    /// nothing is kept; parameters in f32 beside them have a place there that steps do not use.
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

/// A rule that there are kernels for: those of [`AdamW`](super::AdamW), [`Sgd`](super::Sgd),
/// [`Lion`](super::Lion) and [`Adafactor`](super::Adafactor).
pub trait Rule: std::fmt::Debug {
    /// The optimiser's name, for errors.
    #[doc(hidden)]
    const NAME: &'static str;

    /// Moments that it keeps.
    #[doc(hidden)]
    fn moments(&self) -> usize;

    /// Queues [`Update::begin`] and the kernels of the rule and of the type of the moments.
    #[doc(hidden)]
    #[track_caller]
    fn queue(&mut self, update: Update<'_>) -> Result<()>;

    /// A state of all parameters together beside moments, by a name.
    #[doc(hidden)]
    fn kept(&self) -> Option<(&'static str, &Tensor)> {
        None
    }

    /// [`Rule::kept`], to be written.
    #[doc(hidden)]
    fn kept_mut(&mut self) -> Option<(&'static str, &mut Tensor)> {
        None
    }
}

/// The numbers of an optimiser that its rule does not have.
pub(super) struct Numbers {
    /// Decay rates whose bias is corrected; 0 for none.
    pub betas: [f64; 2],
    pub learning_rate: f64,
    pub weight_decay: f64,
}

/// Words of what the device keeps of a step.
const STEP_WORDS: usize = size_of::<Step>() / size_of::<u64>();
const _: () = assert!(STEP_WORDS * size_of::<u64>() == size_of::<Step>());

/// Names of the state's tensors.
const MASTER: &str = "optimizer.master";
const STEP: &str = "optimizer.step";

fn moment_name(number: usize) -> String {
    format!("optimizer.moment.{number}")
}

/// An optimiser: [`AdamW`](super::AdamW), [`Sgd`](super::Sgd), [`Lion`](super::Lion) or
/// [`Adafactor`](super::Adafactor).
pub struct Optimizer<R> {
    rule: R,
    parameters: Parameters,
    model: Model,
    betas: [f64; 2],
    /// Whether gradients are multiplied by the norm's factor.
    takes_factor: bool,
    /// Of all parameters each.
    moments: Vec<Tensor>,
    moment_type: DType,
    master: Option<Tensor>,
    /// One f64.
    learning_rate: Tensor,
    /// A [`Step`].
    step: DeviceBuffer<u64>,
    tables: Tables,
}

impl<R: Rule> Optimizer<R> {
    #[track_caller]
    pub(super) fn made(
        stream: &Stream,
        params: &[TensorMut<'_>],
        rule: R,
        numbers: Numbers,
        config: StateConfig,
    ) -> Result<Self> {
        let parameters = Parameters::new(R::NAME, stream, params, numbers.weight_decay)?;
        let mut optimizer = Self::of(stream, parameters, rule, numbers, config)?;
        optimizer.copy_to_master(stream, params)?;
        Ok(optimizer)
    }

    /// The same, whose master weights are not written yet.
    #[track_caller]
    pub(super) fn of(
        stream: &Stream,
        parameters: Parameters,
        rule: R,
        numbers: Numbers,
        config: StateConfig,
    ) -> Result<Self> {
        let operation = R::NAME;
        not_negative(operation, "learning_rate", numbers.learning_rate)?;
        if !matches!(config.moments, DType::F32 | DType::BF16) {
            let (got, wanted) = (config.moments.to_string(), "f32 or bf16".to_owned());
            let (argument, hint) = ("moments", "f16 has too short a range for squares of gradients");
            return Err(Error::InvalidArgument { operation, argument, got, wanted, hint });
        }
        let zeros = |dtype| Tensor::zeros(stream, &[parameters.elements], dtype);
        let moments = (0..rule.moments()).map(|_| zeros(config.moments)).collect::<Result<_>>()?;
        let needs_master = config.master && parameters.has_short();
        let master = needs_master.then(|| zeros(DType::F32)).transpose()?;
        Ok(Optimizer {
            rule,
            parameters,
            model: Model { keys: keys(config.seed), is_stochastic: config.stochastic.into() },
            betas: numbers.betas,
            takes_factor: true,
            moments,
            moment_type: config.moments,
            master,
            learning_rate: full(stream, &[1], numbers.learning_rate)?,
            step: DeviceBuffer::from_slice(stream, &step_words(numbers.betas, 0))?,
            tables: Tables::default(),
        })
    }

    /// Steps with a norm are skipped when it says so, and do not multiply gradients by its factor.
    pub(super) fn ignore_factor(&mut self) {
        self.takes_factor = false;
    }

    /// Copies the parameters to the master weights, if there are any.
    #[track_caller]
    fn copy_to_master(&mut self, stream: &Stream, params: &[TensorMut<'_>]) -> Result<()> {
        let Some(master) = &mut self.master else { return Ok(()) };
        let table = Tables::default().of(stream, self.parameters.entries(&addresses(params), None)?)?;
        let named = params.iter().map(|param| Ok((param.write::<u8>(stream)?, false)));
        let tensors = Table { table: table.tensors(), named: named.collect::<Result<_>>()? };
        let master = master.view_mut()?;
        let arguments = (tensors, table.chunks(), master.write(stream)?);
        // SAFETY: the table is that of the parameters; the master weights have a place for each element.
        unsafe { launch::<copy_to_master>(stream, blocks(table.count), arguments) }
    }

    /// Queues a step: updates `params` in place from `grads`, which have their shapes and their types, or are
    /// f32; those of f32 may be bf16. All are contiguous, and in the order that the optimiser was made with.
    ///
    /// With a `norm`, gradients are multiplied by its factor, and nothing is updated when it says to skip.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for another number of tensors than the optimiser was made with,
    /// [`TensorError::Shape`](crate::TensorError::Shape), [`TensorError::DType`](crate::TensorError::DType),
    /// [`TensorError::NotContiguous`](crate::TensorError::NotContiguous),
    /// [`TensorError::Shared`](crate::TensorError::Shared) while tensors of its state are kept,
    /// [`Error::DeviceMismatch`], [`Error::OutOfMemory`], or the driver's error.
    #[track_caller]
    pub fn step(
        &mut self,
        stream: &Stream,
        params: &mut [TensorMut<'_>],
        grads: &[&Tensor],
        norm: Option<&GradientNorm>,
    ) -> Result<()> {
        self.parameters.check(stream, params, grads)?;
        let written = params.iter().map(|param| param.write::<u8>(stream)).collect::<Result<Vec<_>>>()?;
        self.step_at(stream, &addresses(params), &written, grads, norm)
    }

    /// Do the tensors of a step fit, and are the master weights nobody else's?
    #[track_caller]
    pub(super) fn check(
        &mut self,
        stream: &Stream,
        params: &[TensorMut<'_>],
        grads: &[&Tensor],
    ) -> Result<()> {
        self.parameters.check(stream, params, grads)?;
        self.master.as_mut().map(Tensor::view_mut).transpose().map(drop)
    }

    /// A step of parameters at `addresses` in memory that `written` names. All fit.
    #[track_caller]
    pub(super) fn step_at(
        &mut self,
        stream: &Stream,
        addresses: &[u64],
        written: &[Within<'_, u8>],
        grads: &[&Tensor],
        norm: Option<&GradientNorm>,
    ) -> Result<()> {
        let table = self.tables.of(stream, self.parameters.entries(addresses, Some(grads))?)?;
        let mut moments = self.moments.iter_mut().map(Tensor::view_mut).collect::<Result<Vec<_>>>()?;
        let mut moments = moments.iter_mut().map(|moment| moment.write::<u8>(stream));
        let [first, second] = [moments.next().transpose()?, moments.next().transpose()?];
        let master = self.master.as_mut().map(Tensor::view_mut).transpose()?;
        let master = master.as_ref().map(|master| master.write::<f32>(stream)).transpose()?;
        let written = written.iter().map(|&written| Ok((written, true)));
        let read = grads.iter().map(|grad| Ok((grad.read::<u8>(stream)?, false)));
        let tensors = Table { table: table.tensors(), named: written.chain(read).collect::<Result<_>>()? };
        let step: Within<'_, Step> = self.step.view().within().cast();
        let rate = self.learning_rate.read::<f64>(stream)?;
        let norm: Option<Within<'_, Norm>> = norm.map(GradientNorm::result);
        let (model, chunks, count) = (self.model, table.chunks(), table.count);
        let has_short_moments = self.moment_type == DType::BF16;
        let moments = [first, second];
        self.rule.queue(Update {
            stream,
            model,
            tensors,
            chunks,
            count,
            step,
            count_step: (self.betas, self.takes_factor.into(), rate, norm, step),
            moments,
            master,
            has_short_moments,
        })
    }

    /// Queues a new learning rate: for the steps, and the replays of captured ones, that are queued later.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a negative, infinite or NaN one, [`Error::DeviceMismatch`], or the
    /// driver's error.
    #[track_caller]
    pub fn set_learning_rate(&mut self, stream: &Stream, learning_rate: f64) -> Result<()> {
        not_negative(R::NAME, "learning_rate", learning_rate)?;
        fill(stream, self.learning_rate.view_mut()?, learning_rate)
    }

    /// Sets a factor of the learning rate for one parameter, 1 unless set: layers may learn at rates of their
    /// own. For later steps, as [`Optimizer::set_weight_decay`].
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a parameter that there is not, and for a negative, infinite or NaN
    /// factor.
    pub fn set_learning_rate_factor(&mut self, parameter: usize, factor: f64) -> Result<()> {
        self.parameters.set_rate_factor(parameter, factor)
    }

    /// Sets the weight decay of one parameter: biases and norms usually have none. For later steps; a
    /// captured one keeps what it was captured with.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a parameter that there is not, and for a negative, infinite or NaN
    /// weight decay.
    pub fn set_weight_decay(&mut self, parameter: usize, weight_decay: f64) -> Result<()> {
        self.parameters.set_weight_decay(parameter, weight_decay)
    }

    /// Steps done; waits for them.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`], or the driver's error.
    pub fn steps(&self, stream: &Stream) -> Result<u64> {
        Ok(self.step.to_vec(stream)?[0])
    }

    /// Steps skipped because the gradients' norm was not finite; waits for them.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`], or the driver's error.
    pub fn skipped(&self, stream: &Stream) -> Result<u64> {
        Ok(self.step.to_vec(stream)?[1])
    }

    /// Goes on as if so many steps had been done and none skipped: for a training that is taken up again,
    /// with its moments ([`Optimizer::moment_mut`]) and its master weights.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`], [`Error::NotCapturable`], or the driver's error.
    pub fn set_steps(&mut self, stream: &Stream, steps: u64) -> Result<()> {
        self.step.copy_from_slice(stream, &step_words(self.betas, steps))
    }

    /// All that the optimiser knows of the steps so far, under names of its own: moments and master weights
    /// of all parameters together, and the count of steps. With [`Optimizer::restore`] another one goes on
    /// from there with the same bits. Waits for `stream`. Drop the tensors before the next step.
    ///
    /// The learning rate is not part of it: a program sets it by its own schedule.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`], [`Error::OutOfMemory`], [`Error::NotCapturable`], or the driver's error.
    #[track_caller]
    pub fn state(&self, stream: &Stream) -> Result<Vec<(String, Tensor)>> {
        let words: Vec<i64> = self.step.to_vec(stream)?.into_iter().map(u64::cast_signed).collect();
        let step = Tensor::from_slice(stream, &[STEP_WORDS], &words)?;
        let moments =
            self.moments.iter().enumerate().map(|(number, moment)| (moment_name(number), moment.clone()));
        let master = self.master.iter().map(|master| (MASTER.to_owned(), master.clone()));
        let kept = self.rule.kept().map(|(name, kept)| (name.to_owned(), kept.clone()));
        Ok(moments.chain(master).chain(kept).chain([(STEP.to_owned(), step)]).collect())
    }

    /// Takes over the [`Optimizer::state`] of another one, with the same parameters and settings: `read`
    /// writes the tensor of a name.
    ///
    /// # Errors
    /// As `read`; [`TensorError::Shared`](crate::TensorError::Shared) while tensors of the state are kept,
    /// [`Error::DeviceMismatch`], [`Error::OutOfMemory`], [`Error::NotCapturable`], or the driver's error.
    /// The state is then unknown.
    #[track_caller]
    pub fn restore(
        &mut self,
        stream: &Stream,
        mut read: impl FnMut(&str, TensorMut<'_>) -> Result<()>,
    ) -> Result<()> {
        for (number, moment) in self.moments.iter_mut().enumerate() {
            read(&moment_name(number), moment.view_mut()?)?;
        }
        if let Some(master) = &mut self.master {
            read(MASTER, master.view_mut()?)?;
        }
        if let Some((name, kept)) = self.rule.kept_mut() {
            read(name, kept.view_mut()?)?;
        }
        let mut step = Tensor::zeros(stream, &[STEP_WORDS], DType::I64)?;
        read(STEP, step.view_mut()?)?;
        let words: Vec<u64> = step.to_vec::<i64>(stream)?.into_iter().map(i64::cast_unsigned).collect();
        self.step.copy_from_slice(stream, &words)
    }

    /// Moment `number` of a parameter, of its shape, or `None` where the rule has fewer. Drop the tensor
    /// before the next step.
    ///
    /// | | 0 | 1 |
    /// |---|---|---|
    /// | AdamW | PyTorch's `exp_avg` | `exp_avg_sq` |
    /// | SGD | the momentum (`momentum_buffer`), unless it is 0 | |
    /// | Adafactor | see [`averages`](super::Adafactor::averages) | |
    /// | Lion, Muon | the average of gradients (Muon's is PyTorch's `momentum_buffer`) | |
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a parameter that there is not.
    pub fn moment(&self, number: usize, parameter: usize) -> Result<Option<Tensor>> {
        self.part(self.moments.get(number), parameter)
    }

    /// [`Optimizer::moment`], to be written.
    ///
    /// # Errors
    /// As there, and [`TensorError::Shared`](crate::TensorError::Shared) while tensors of the state are kept.
    pub fn moment_mut(&mut self, number: usize, parameter: usize) -> Result<Option<TensorMut<'_>>> {
        part_mut(&self.parameters, self.moments.get_mut(number), parameter)
    }

    /// The f32 weights of a 16-bit parameter, of its shape, if they are kept. Drop the tensor before the next
    /// step.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a parameter that there is not.
    pub fn master(&self, parameter: usize) -> Result<Option<Tensor>> {
        let is_its_own = self.parameters.get(parameter)?.dtype == DType::F32;
        self.part(self.master.as_ref().filter(|_| !is_its_own), parameter)
    }

    /// [`Optimizer::master`], to be written.
    ///
    /// # Errors
    /// As there, and [`TensorError::Shared`](crate::TensorError::Shared) while tensors of the state are kept.
    pub fn master_mut(&mut self, parameter: usize) -> Result<Option<TensorMut<'_>>> {
        let is_its_own = self.parameters.get(parameter)?.dtype == DType::F32;
        part_mut(&self.parameters, self.master.as_mut().filter(|_| !is_its_own), parameter)
    }

    /// The shape of a parameter.
    pub(super) fn shape(&self, parameter: usize) -> Result<&Shape> {
        Ok(&self.parameters.get(parameter)?.shape)
    }

    pub(super) fn rule(&self) -> &R {
        &self.rule
    }

    /// The part of a state of all parameters that is one parameter's.
    fn part(&self, all: Option<&Tensor>, parameter: usize) -> Result<Option<Tensor>> {
        let known = self.parameters.get(parameter)?;
        let range = known.state..known.state + known.shape.elements();
        all.map(|all| all.slice(0, range)?.view_as(&known.shape)).transpose()
    }
}

/// Where parameters begin.
fn addresses(params: &[TensorMut<'_>]) -> Vec<u64> {
    params.iter().map(TensorMut::address).collect()
}

/// The same, to be written.
fn part_mut<'a>(
    parameters: &Parameters,
    all: Option<&'a mut Tensor>,
    parameter: usize,
) -> Result<Option<TensorMut<'a>>> {
    let known = parameters.get(parameter)?;
    let range = known.state..known.state + known.shape.elements();
    all.map(|all| all.view_mut()?.slice(0, range)?.reshape(&known.shape)).transpose()
}

impl<R: Rule> std::fmt::Debug for Optimizer<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (rule, moments) = (&self.rule, self.moment_type);
        write!(f, "{} of {} parameters, {rule:?}, moments {moments}", R::NAME, self.parameters.len())
    }
}

/// The device's record behind so many steps.
fn step_words(betas: [f64; 2], steps: u64) -> [u64; STEP_WORDS] {
    let mut words = [0; STEP_WORDS];
    // The count, then none skipped, then the powers; each step begins with the others.
    words[0] = steps;
    let exponent = i32::try_from(steps).unwrap_or(i32::MAX);
    [words[2], words[3]] = betas.map(|beta| beta.powi(exponent).to_bits());
    words
}

/// The arguments of the kernel that counts a step.
type CountStep<'a> = ([f64; 2], u32, Within<'a, f64>, Option<Within<'a, Norm>>, Within<'a, Step>);

/// A step on its way to the kernel of a rule.
pub struct Update<'a> {
    pub(super) stream: &'a Stream,
    pub(super) model: Model,
    pub(super) tensors: Table<'a, Entry>,
    chunks: Within<'a, Chunk>,
    count: u32,
    pub(super) step: Within<'a, Step>,
    count_step: CountStep<'a>,
    moments: [Option<Within<'a, u8>>; 2],
    pub(super) master: Option<Within<'a, f32>>,
    pub(super) has_short_moments: bool,
}

impl Update<'_> {
    /// Queues the count of the step, before the rule's kernels. By then a rule has all that may be refused,
    /// memory too: a step that is counted is done.
    #[track_caller]
    pub(super) fn begin(&self) -> Result<()> {
        let config = LaunchConfig::new([1, 1, 1], [32, 1, 1]).overlapping_previous();
        // SAFETY: one record each; the step is exclusively borrowed.
        unsafe { launch::<begin_step>(self.stream, config, self.count_step) }
    }

    /// Counts the step, and queues the kernel `K`, whose moments are `M`s.
    ///
    /// # Safety
    /// They are what the optimiser keeps.
    #[track_caller]
    pub(super) unsafe fn launch<K, R: Copy, M>(self, rule: R) -> Result<()>
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
        self.begin()?;
        let Update { stream, model, tensors, chunks, count, step, moments, master, .. } = self;
        let [first, second] = moments.map(|moment| moment.map(Within::cast::<M>));
        let arguments = (rule, model, tensors, chunks, step, first, second, master);
        // SAFETY: the table is that of the parameters, exclusively borrowed, and of gradients of their
        // shapes; moments, of the type that the caller vouches for, and master weights have a place for each
        // of their elements.
        unsafe { launch::<K>(stream, blocks(count), arguments) }
    }
}
