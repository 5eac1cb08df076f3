//! Muon: momentum made orthogonal, by matrix products.

use half::bf16;
use optim::orthogonal::{chunk_squares, normalize};
use optim::rules::{Descent, Direction, direction_bf16, direction_f32, sgd};
use optim::table::{Entry, Format};

use super::norm::GradientNorm;
use super::optimizer::{Numbers, Optimizer, Rule, StateConfig, Update};
use super::parameters::{Parameters, is_aligned};
use super::table::{Tables, blocks};
use super::{checked, decay_rate, not_negative};
use crate::error::Result;
use crate::launch::{Table, launch};
use crate::memory::DeviceBuffer;
use crate::ops::gemm::{Matmul, Matrix, MatrixMut};
use crate::stream::Stream;
use crate::tensor::{DType, Tensor, TensorError, TensorMut};

/// The name in errors.
const NAME: &str = "Muon";
/// The quintic polynomial that Newton-Schulz's iteration applies to singular values (Jordan et al. 2024): its
/// slope at 0 is as large as keeps them between 0.7 and 1.2 at the end.
const COEFFICIENTS: [f64; 3] = [3.4445, -4.7750, 2.0315];
/// Ends of the names of a state: of the averages of gradients, and of the weights.
const PARTS: [&str; 2] = [".average", ".weight"];
/// Most iterations: each raises a factor of the matrix by [`COEFFICIENTS`]`[0]`, which f32 has to hold.
const MAX_ITERATIONS: u32 = 20;

/// How long a step is, over the learning rate. A matrix has `rows` and `columns`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MuonScale {
    /// `sqrt(max(1, rows / columns))`: PyTorch's `"original"`.
    #[default]
    Original,
    /// `0.2 sqrt(max(rows, columns))`, with which learning rates and weight decays of AdamW fit (Liu et al.,
    /// "Muon is scalable for LLM training", 2025): PyTorch's `"match_rms_adamw"`.
    MatchAdamW,
}

impl MuonScale {
    fn factor(self, [rows, columns]: [usize; 2]) -> f64 {
        let [rows, columns] = [rows, columns].map(|side| side.max(1) as f64);
        match self {
            MuonScale::Original => (rows / columns).max(1.0).sqrt(),
            MuonScale::MatchAdamW => 0.2 * rows.max(columns).sqrt(),
        }
    }
}

/// The numbers of [`Muon`]. The default is PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MuonConfig {
    /// Length of a step, before its [`MuonScale`].
    pub learning_rate: f64,
    /// Decay rate of the average of gradients.
    pub momentum: f64,
    /// Take Nesterov's momentum.
    pub nesterov: bool,
    /// Factor of the weight in what is subtracted from it, times the learning rate.
    pub weight_decay: f64,
    /// Iterations of Newton-Schulz, 1 to 20.
    pub iterations: u32,
    /// The least norm that a direction is divided by, above 0.
    pub eps: f64,
    /// Lengths of steps.
    pub scale: MuonScale,
    /// How the momentum and the weights are kept.
    pub state: StateConfig,
}

impl Default for MuonConfig {
    fn default() -> Self {
        MuonConfig {
            learning_rate: 1e-3,
            momentum: 0.95,
            nesterov: true,
            weight_decay: 0.1,
            iterations: 5,
            eps: 1e-7,
            scale: MuonScale::Original,
            state: StateConfig::default(),
        }
    }
}

impl Rule for Direction {
    const NAME: &'static str = NAME;

    fn moments(&self) -> usize {
        1
    }

    fn queue(&mut self, update: Update<'_>) -> Result<()> {
        // SAFETY: the types of the moments that are kept.
        unsafe {
            if update.has_short_moments {
                update.launch::<direction_bf16, _, bf16>(*self)
            } else {
                update.launch::<direction_f32, _, f32>(*self)
            }
        }
    }
}

/// Subtracts directions from weights.
#[derive(Clone, Copy, Debug)]
struct Descend;

impl Rule for Descend {
    const NAME: &'static str = NAME;

    fn moments(&self) -> usize {
        0
    }

    fn queue(&mut self, update: Update<'_>) -> Result<()> {
        // SAFETY: there are no moments.
        unsafe { update.launch::<sgd, _, f32>(Descent::default()) }
    }
}

/// Muon (Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024), for matrices, as
/// `torch.optim.Muon` computes it:
///
/// ```text
/// m = momentum m + (1 - momentum) g            with Nesterov's: d = (1 - momentum) g + momentum m; else d = m
/// x = d / max(|d|, eps)                        |d| is the Frobenius norm
/// x = a x + (b x x^T + c (x x^T)^2) x          as often as `iterations` says; the smaller product, x^T x or x x^T
/// w = w - lr decay w - lr scale x
/// ```
///
/// Directions and their products are bf16 with sums in f32, as in PyTorch. Matrices of one shape are
/// multiplied as one batch: three products an iteration and shape. Vectors, embeddings and heads are better
/// with AdamW.
///
/// Beside its [`StateConfig`] it keeps two bf16 matrices for each parameter, and two more, square, of the
/// shorter side.
pub struct Muon {
    momentum: Optimizer<Direction>,
    groups: Vec<Group>,
    /// Where the direction of each parameter lies.
    places: Vec<Place>,
    tables: Tables,
    /// Subtracts the directions.
    descent: Optimizer<Descend>,
    scales: Vec<f64>,
    iterations: u32,
    eps: f32,
}

/// Matrices of one shape.
#[derive(Debug)]
struct Group {
    shape: [usize; 2],
    /// `[count, rows, columns]`: the directions, and where every second iteration leaves them.
    directions: [Tensor; 2],
    /// `[count, side, side]`: the products of each with itself, and the polynomials of those.
    squares: [Tensor; 2],
}

/// A matrix of a group.
#[derive(Clone, Copy, Debug)]
struct Place {
    group: usize,
    number: usize,
}

impl Muon {
    /// An optimiser for `params`, matrices in f32 or bf16, contiguous. Its state is allocated here.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a number of the configuration outside of
    /// its range, [`TensorError::Shape`] for a parameter that is no matrix, [`TensorError::DType`],
    /// [`TensorError::NotContiguous`], [`Error::DeviceMismatch`](crate::Error::DeviceMismatch),
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory), or the driver's error.
    #[track_caller]
    pub fn new(stream: &Stream, params: &[TensorMut<'_>], config: MuonConfig) -> Result<Self> {
        let MuonConfig { learning_rate, weight_decay, nesterov, iterations, state, .. } = config;
        let momentum = decay_rate(NAME, "momentum", config.momentum)? as f32;
        let weight_decay = not_negative(NAME, "weight_decay", weight_decay)?;
        let eps = config.eps as f32;
        // The norm of zeros is 0, and is not divided by.
        let fits = eps.is_normal() && eps > 0.0;
        checked(NAME, "eps", config.eps, fits, "a normal number of f32 above 0", "1e-7 is usual")?;
        let (fits, hint) = ((1..=MAX_ITERATIONS).contains(&iterations), "5 is usual");
        let wanted = format!("1 to {MAX_ITERATIONS}");
        checked(NAME, "iterations", iterations.into(), fits, &wanted, hint)?;
        let shapes = params.iter().map(matrix).collect::<Result<Vec<_>>>()?;
        let (groups, places) = grouped(stream, &shapes)?;
        let described = params.iter().map(|param| (param.shape().clone(), DType::BF16));
        let directions = Parameters::described(NAME, described, 0.0)?;
        // No bias is corrected, and nothing is rounded stochastically: a direction is not added up.
        let numbers = |learning_rate| Numbers { betas: [0.0; 2], learning_rate, weight_decay: 0.0 };
        let kept = StateConfig { master: false, stochastic: false, ..state };
        let rule = Direction { momentum, nesterov: nesterov.into() };
        let momentum = Optimizer::of(stream, directions, rule, numbers(0.0), kept)?;
        let mut descent = Optimizer::made(stream, params, Descend, numbers(learning_rate), state)?;
        descent.ignore_factor();
        // The iterations leave this factor out of the matrices.
        let left_out = COEFFICIENTS[0].powi(iterations as i32);
        let scales: Vec<_> = shapes.iter().map(|shape| config.scale.factor(*shape) * left_out).collect();
        let tables = Tables::default();
        let mut muon = Muon { momentum, groups, places, tables, descent, scales, iterations, eps };
        for parameter in 0..shapes.len() {
            muon.set_learning_rate_factor(parameter, 1.0)?;
            muon.set_weight_decay(parameter, weight_decay)?;
        }
        Ok(muon)
    }

    /// Queues a step: updates `params` in place from `grads`, as [`Optimizer::step`] does. A norm's factor
    /// multiplies the gradients before they are averaged.
    ///
    /// # Errors
    /// As [`Optimizer::step`]. Behind one of memory, a capture or the driver the gradients may be in the
    /// averages already; behind the others nothing has changed.
    #[track_caller]
    pub fn step(
        &mut self,
        stream: &Stream,
        params: &mut [TensorMut<'_>],
        grads: &[&Tensor],
        norm: Option<&GradientNorm>,
    ) -> Result<()> {
        self.descent.check(stream, params, grads)?;
        self.set_directions(stream, grads, norm)?;
        for group in &mut self.groups {
            group.orthogonalize(stream, self.iterations)?;
        }
        let last = self.iterations as usize % 2;
        let orthogonal = self.places.iter().map(|place| {
            let Group { shape, directions, .. } = &self.groups[place.group];
            directions[last].select(0, place.number)?.view_as(shape)
        });
        let orthogonal = orthogonal.collect::<Result<Vec<_>>>()?;
        self.descent.step(stream, params, &orthogonal.iter().collect::<Vec<_>>(), norm)
    }

    /// Queues the averages of gradients, and their directions, of norm 1.
    #[track_caller]
    fn set_directions(
        &mut self,
        stream: &Stream,
        grads: &[&Tensor],
        norm: Option<&GradientNorm>,
    ) -> Result<()> {
        let views = self.groups.iter_mut().map(|group| group.directions[0].view_mut());
        let views = views.collect::<Result<Vec<_>>>()?;
        let written = views.iter().map(|view| view.write::<u8>(stream)).collect::<Result<Vec<_>>>()?;
        let lengths: Vec<usize> = grads.iter().map(|grad| grad.elements()).collect();
        let address = |(place, length): (&Place, &usize)| {
            views[place.group].address() + (place.number * length * size_of::<bf16>()) as u64
        };
        let addresses: Vec<u64> = self.places.iter().zip(&lengths).map(address).collect();
        self.momentum.step_at(stream, &addresses, &written, grads, norm)?;
        let entries = addresses.iter().zip(lengths).map(|(&address, length)| Entry {
            parameter: address,
            gradient: address,
            length: length as u64,
            format: Format::Bf16,
            is_aligned: is_aligned(address),
            ..Entry::NONE
        });
        let table = self.tables.of(stream, entries.collect())?;
        // SAFETY: the first launch writes a sum for each chunk before the second reads them.
        let partials = unsafe { DeviceBuffer::<f64>::uninit(stream, table.count as usize)? };
        let partials = partials.view().within();
        let named = written.iter().map(|&written| (written, true)).collect::<Vec<_>>();
        let tensors = || Table { table: table.tensors(), named: named.clone() };
        let config = blocks(table.count);
        // SAFETY: the table is that of the directions, bf16, which nothing else knows; there is a place for
        // each chunk's sum.
        unsafe {
            launch::<chunk_squares>(stream, config, (tensors(), table.chunks(), partials))?;
            launch::<normalize>(stream, config, (self.eps, tensors(), table.chunks(), partials))
        }
    }

    /// As [`Optimizer::set_learning_rate`].
    ///
    /// # Errors
    /// As there.
    #[track_caller]
    pub fn set_learning_rate(&mut self, stream: &Stream, learning_rate: f64) -> Result<()> {
        self.descent.set_learning_rate(stream, learning_rate)
    }

    /// As [`Optimizer::set_learning_rate_factor`]. Multiplies the [`MuonScale`].
    ///
    /// # Errors
    /// As there.
    pub fn set_learning_rate_factor(&mut self, parameter: usize, factor: f64) -> Result<()> {
        not_negative(NAME, "factor", factor)?;
        self.descent.set_learning_rate_factor(parameter, factor * self.scale(parameter))
    }

    /// As [`Optimizer::set_weight_decay`].
    ///
    /// # Errors
    /// As there.
    pub fn set_weight_decay(&mut self, parameter: usize, weight_decay: f64) -> Result<()> {
        not_negative(NAME, "weight_decay", weight_decay)?;
        // The scale of a step is a factor of its learning rate, by which weight decay is not to change.
        self.descent.set_weight_decay(parameter, weight_decay / self.scale(parameter))
    }

    /// Of a parameter that there is not, 1: the callers' own checks refuse it.
    fn scale(&self, parameter: usize) -> f64 {
        self.scales.get(parameter).copied().unwrap_or(1.0)
    }

    /// As [`Optimizer::steps`].
    ///
    /// # Errors
    /// As there.
    pub fn steps(&self, stream: &Stream) -> Result<u64> {
        self.descent.steps(stream)
    }

    /// As [`Optimizer::skipped`].
    ///
    /// # Errors
    /// As there.
    pub fn skipped(&self, stream: &Stream) -> Result<u64> {
        self.descent.skipped(stream)
    }

    /// As [`Optimizer::set_steps`].
    ///
    /// # Errors
    /// As there.
    pub fn set_steps(&mut self, stream: &Stream, steps: u64) -> Result<()> {
        self.momentum.set_steps(stream, steps)?;
        self.descent.set_steps(stream, steps)
    }

    /// As [`Optimizer::state`].
    ///
    /// # Errors
    /// As there.
    #[track_caller]
    pub fn state(&self, stream: &Stream) -> Result<Vec<(String, Tensor)>> {
        let parts = [self.momentum.state(stream)?, self.descent.state(stream)?];
        let named = PARTS.into_iter().zip(parts).flat_map(|(part, of_it)| {
            of_it.into_iter().map(move |(name, tensor)| (format!("{name}{part}"), tensor))
        });
        Ok(named.collect())
    }

    /// As [`Optimizer::restore`].
    ///
    /// # Errors
    /// As there.
    #[track_caller]
    pub fn restore(
        &mut self,
        stream: &Stream,
        mut read: impl FnMut(&str, TensorMut<'_>) -> Result<()>,
    ) -> Result<()> {
        let [average, weight] = PARTS;
        self.momentum.restore(stream, |name, to| read(&format!("{name}{average}"), to))?;
        self.descent.restore(stream, |name, to| read(&format!("{name}{weight}"), to))
    }

    /// The average of a parameter's gradients, PyTorch's `momentum_buffer`, of its shape. Drop the tensor
    /// before the next step.
    ///
    /// # Errors
    /// As [`Optimizer::moment`].
    pub fn moment(&self, parameter: usize) -> Result<Option<Tensor>> {
        self.momentum.moment(0, parameter)
    }

    /// [`Muon::moment`], to be written.
    ///
    /// # Errors
    /// As [`Optimizer::moment_mut`].
    pub fn moment_mut(&mut self, parameter: usize) -> Result<Option<TensorMut<'_>>> {
        self.momentum.moment_mut(0, parameter)
    }

    /// As [`Optimizer::master`].
    ///
    /// # Errors
    /// As there.
    pub fn master(&self, parameter: usize) -> Result<Option<Tensor>> {
        self.descent.master(parameter)
    }

    /// As [`Optimizer::master_mut`].
    ///
    /// # Errors
    /// As there.
    pub fn master_mut(&mut self, parameter: usize) -> Result<Option<TensorMut<'_>>> {
        self.descent.master_mut(parameter)
    }
}

impl Group {
    fn zeros(stream: &Stream, shape @ [rows, columns]: [usize; 2], count: usize) -> Result<Self> {
        let side = rows.min(columns);
        let zeros = |shape: [usize; 3]| Tensor::zeros(stream, &shape, DType::BF16);
        Ok(Group {
            shape,
            // Zeros, since a first step that is skipped leaves them.
            directions: [zeros([count, rows, columns])?, zeros([count, rows, columns])?],
            squares: [zeros([count, side, side])?, zeros([count, side, side])?],
        })
    }

    /// Queues the iterations, from the first of [`Group::directions`] on. An iteration leaves the factor
    /// `a` of `a x + (b s + c s^2) x` out, where `s` is the square of `x`: then each product has one factor
    /// and adds one matrix. `factor` is what has been left out so far.
    #[track_caller]
    fn orthogonalize(&mut self, stream: &Stream, iterations: u32) -> Result<()> {
        let ([a, b, c], [rows, columns]) = (COEFFICIENTS, self.shape);
        let ([first, second], [square, polynomial]) = (&mut self.directions, &mut self.squares);
        let (mut x, mut next, mut factor) = (first, second, 1.0);
        for _ in 0..iterations {
            let matrix = Matrix::of(x)?;
            let (left, right) =
                if rows <= columns { (matrix, matrix.transposed()) } else { (matrix.transposed(), matrix) };
            let product = Matmul::new(left, right, MatrixMut::of(square.view_mut()?)?);
            product.alpha((factor * factor) as f32).run(stream)?;
            let s = Matrix::of(square)?;
            let product = Matmul::new(s, s, MatrixMut::of(polynomial.view_mut()?)?);
            product.alpha((c / b) as f32).residual(s).run(stream)?;
            let p = Matrix::of(polynomial)?;
            let (left, right) = if rows <= columns { (p, matrix) } else { (matrix, p) };
            let product = Matmul::new(left, right, MatrixMut::of(next.view_mut()?)?);
            product.alpha((b / a) as f32).residual(matrix).run(stream)?;
            (x, next, factor) = (next, x, factor * a);
        }
        Ok(())
    }
}

impl std::fmt::Debug for Muon {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (count, shapes, momentum) = (self.places.len(), self.groups.len(), &self.momentum);
        write!(f, "{count} matrices of {shapes} shapes, {} iterations, {momentum:?}", self.iterations)
    }
}

/// The sides of a parameter that fits.
fn matrix(param: &TensorMut<'_>) -> Result<[usize; 2]> {
    let (operation, what) = (NAME, "a parameter");
    if !matches!(param.dtype(), DType::F32 | DType::BF16) {
        let (got, wanted) = (param.dtype(), "f32 or bf16".to_owned());
        let hint = "directions are bf16, which only weights in f32 and bf16 take";
        return Err(TensorError::DType { operation, what, got, wanted, hint }.into());
    }
    <[usize; 2]>::try_from(param.shape().sides()).map_err(|_| {
        let (got, wanted) = (param.shape().clone(), "a matrix".to_owned());
        let hint = "use AdamW for the others; view the weight of a convolution as a matrix";
        TensorError::Shape { operation, what, got, wanted, hint }.into()
    })
}

/// A group for each shape, in the order of first parameters, and each parameter's place.
fn grouped(stream: &Stream, shapes: &[[usize; 2]]) -> Result<(Vec<Group>, Vec<Place>)> {
    let mut counted: Vec<([usize; 2], usize)> = Vec::new();
    let mut places = Vec::with_capacity(shapes.len());
    for shape in shapes {
        let group = counted.iter().position(|(known, _)| known == shape).unwrap_or(counted.len());
        if group == counted.len() {
            counted.push((*shape, 0));
        }
        places.push(Place { group, number: counted[group].1 });
        counted[group].1 += 1;
    }
    let groups = counted.into_iter().map(|(shape, count)| Group::zeros(stream, shape, count));
    Ok((groups.collect::<Result<_>>()?, places))
}
