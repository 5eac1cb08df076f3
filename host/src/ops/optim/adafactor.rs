//! Adafactor.

use std::fmt;

use optim::factored::{
    COLUMNS, Factored, Lines, ROWS, Tile, adafactor, set_factors, set_lengths, set_means, sum_lines,
    sum_steps,
};
use primitives::warp::LANES;

use super::optimizer::{Numbers, Optimizer, Rule, StateConfig, Update};
use super::table::blocks;
use super::{checked, not_negative};
use crate::error::{Error, Result};
use crate::launch::launch;
use crate::memory::{DeviceBuffer, Within};
use crate::stream::Stream;
use crate::tensor::{DType, Shape, Tensor, TensorMut};

/// The name in errors.
const NAME: &str = "Adafactor";

/// The numbers of [`Adafactor`]. The default is PyTorch's for f32.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdafactorConfig {
    /// The largest length of a step, over the root mean square of the weights. Step `t` takes at most
    /// `1 / sqrt(t)`.
    pub learning_rate: f64,
    /// The newest square has the weight `t ^ beta2_decay` in the average; at most 0.
    pub beta2_decay: f64,
    /// The least root of an average square, and the least root mean square of the weights.
    pub eps: [f64; 2],
    /// The largest root mean square of a step, before its length; PyTorch's `d`.
    pub threshold: f64,
    /// The part of a weight that a step takes away, over the learning rate.
    pub weight_decay: f64,
    /// How the weights are kept. Averages are f32; there are no other moments.
    pub state: StateConfig,
}

impl Default for AdafactorConfig {
    fn default() -> Self {
        AdafactorConfig {
            learning_rate: 1e-2,
            beta2_decay: -0.8,
            eps: [f64::from(f32::EPSILON), 1e-3],
            threshold: 1.0,
            weight_decay: 0.0,
            state: StateConfig::default(),
        }
    }
}

/// Adafactor (Shazeer and Stern, "Adafactor: adaptive learning rates with sublinear memory cost", 2018), as
/// `torch.optim.Adafactor` computes it. `rms` is the root mean square, and `b` is `t ^ beta2_decay`:
///
/// ```text
/// r = (1 - b) r + b mean of g^2 by row         c = (1 - b) c + b mean of g^2 by column
/// v = r c / max(mean r, eps1)                  not of matrices: v = (1 - b) v + b g^2
/// u = g / sqrt(max(v, eps1^2))                 a = max(eps2, rms w) min(lr, 1 / sqrt(t))
/// w = w - lr decay w - a u / max(1, rms u / threshold)
/// ```
///
/// Of a tensor with more than two dimensions each matrix of the last two has its own `r` and `c`. View the
/// weight of a convolution as a matrix (`[out, in * height * width]`): factors of small matrices save
/// nothing.
pub type Adafactor = Optimizer<FactoredRule>;

/// Averages, and how parameters are cut: the rule of [`Adafactor`].
pub struct FactoredRule {
    numbers: optim::factored::Adafactor,
    plan: Plan,
    /// All factors and averages.
    factors: Tensor,
    shapes: DeviceBuffer<[u64; SHAPE_WORDS]>,
    tiles: DeviceBuffer<[u32; 4]>,
    lines: DeviceBuffer<[u32; 4]>,
    matrices: DeviceBuffer<[u32; 4]>,
}

const SHAPE_WORDS: usize = size_of::<Factored>() / size_of::<u64>();
const _: () = assert!(SHAPE_WORDS == 8 && size_of::<Tile>() == 16 && size_of::<Lines>() == 16);

/// How all tensors are cut.
#[derive(Default)]
struct Plan {
    shapes: Vec<Factored>,
    tiles: Vec<[u32; 4]>,
    lines: Vec<[u32; 4]>,
    matrices: Vec<[u32; 4]>,
    /// Elements of the factors, and of the partial sums of rows and columns.
    factors: u64,
    partials: u64,
}

impl Plan {
    fn of(shapes: &[Shape]) -> Result<Self> {
        let mut plan = Plan::default();
        for shape in shapes {
            plan.add(shape)?;
        }
        // A grid's blocks, and the numbers of tiles.
        match i32::try_from(plan.tiles.len()) {
            Ok(_) => Ok(plan),
            Err(_) => Err(too_large(format!("{} tiles of {ROWS} x {COLUMNS}", plan.tiles.len()))),
        }
    }

    fn add(&mut self, shape: &Shape) -> Result<()> {
        let tensor = self.shapes.len() as u32;
        let sides = shape.sides();
        let elements = shape.elements() as u64;
        let is_factored = sides.len() > 1;
        let [rows, columns] = match sides {
            [.., rows, columns] => [*rows as u64, *columns as u64],
            _ => [elements.div_ceil(COLUMNS.into()), COLUMNS.into()],
        };
        let length = if is_factored { rows * columns } else { elements };
        let matrices = sides.iter().rev().skip(2).map(|side| *side as u64).product::<u64>();
        let short = |side: u64| u32::try_from(side).map_err(|_| too_large(format!("{shape}")));
        let mut factored = Factored {
            length,
            factors: self.factors,
            row_sums: self.partials,
            column_sums: 0,
            means: self.matrices.len() as u64,
            rows: short(rows)?,
            columns: short(columns)?,
            matrices: short(matrices)?,
            is_factored: is_factored.into(),
            first_tile: self.tiles.len() as u32,
            tiles: 0,
        };
        let (bands, spans) = (factored.bands(), factored.spans());
        // Nothing is averaged where there are no elements.
        let matrices_with_elements = if elements == 0 { 0 } else { factored.matrices };
        for matrix in 0..matrices_with_elements {
            let spans = (0..bands).flat_map(|band| (0..spans).map(move |span| (band, span)));
            self.tiles.extend(spans.map(|(band, span)| [tensor, matrix, band, span]));
        }
        factored.tiles = self.tiles.len() as u32 - factored.first_tile;
        if is_factored {
            self.factors += matrices * (rows + columns);
            factored.column_sums = factored.row_sums + matrices * u64::from(spans) * rows;
            self.partials = factored.column_sums + matrices * u64::from(bands) * columns;
            for matrix in 0..matrices_with_elements {
                self.matrices.push([tensor, matrix, 0, 0]);
                for (are_columns, count) in [(0, factored.rows), (1, factored.columns)] {
                    let firsts = (0..count).step_by(LANES as usize);
                    self.lines.extend(firsts.map(|first| [tensor, matrix, first, are_columns]));
                }
            }
        } else {
            self.factors += elements;
        }
        self.shapes.push(factored);
        Ok(())
    }
}

fn too_large(got: String) -> Error {
    let (argument, wanted) = ("the parameters", "sides and tiles that 32 bits count".to_owned());
    let hint = "give parameters other shapes, or to several optimisers";
    Error::InvalidArgument { operation: NAME, argument, got, wanted, hint }
}

/// In the order of its fields.
fn words(shape: &Factored) -> [u64; SHAPE_WORDS] {
    let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    let Factored { length, factors, row_sums, column_sums, means, .. } = *shape;
    let Factored { rows, columns, matrices, is_factored, first_tile, tiles, .. } = *shape;
    let pairs = [pair(rows, columns), pair(matrices, is_factored), pair(first_tile, tiles)];
    [length, factors, row_sums, column_sums, means, pairs[0], pairs[1], pairs[2]]
}

/// Elements of a launch.
fn within<T: bytemuck::Pod, U>(buffer: &DeviceBuffer<T>) -> Within<'_, U> {
    buffer.view().within().cast()
}

impl Rule for FactoredRule {
    const NAME: &'static str = NAME;

    fn moments(&self) -> usize {
        0
    }

    fn queue(&mut self, update: Update<'_>) -> Result<()> {
        let (rule, stream) = (self.numbers, update.stream);
        let count = |list: &Vec<[u32; 4]>| list.len() as u32;
        let tiles = blocks(count(&self.plan.tiles));
        let shapes = || within::<_, Factored>(&self.shapes);
        let (tile, lines) = (|| within::<_, Tile>(&self.tiles), within::<_, Lines>(&self.lines));
        // SAFETY: each launch writes what later ones read of these; the last two have an element for each
        // matrix that is factored, and for each tensor.
        let (partials, sums, means, lengths) = unsafe {
            (
                DeviceBuffer::<f32>::uninit(stream, self.plan.partials as usize)?,
                DeviceBuffer::<f64>::uninit(stream, 2 * self.plan.tiles.len())?,
                DeviceBuffer::<f32>::uninit(stream, self.plan.matrices.len())?,
                DeviceBuffer::<f32>::uninit(stream, self.plan.shapes.len())?,
            )
        };
        let factors = self.factors.view_mut()?;
        let factors = || factors.write::<f32>(stream);
        update.begin()?;
        let Update { model, tensors, step, master, .. } = update;
        let (sums, means) = (|| within::<_, f64>(&sums), || within::<_, f32>(&means));
        let (partials, lengths) = (|| within::<_, f32>(&partials), || within::<_, f32>(&lengths));
        // SAFETY: the tables are of the parameters, exclusively borrowed, and of gradients of their shapes;
        // the plan has the places that it gives out, and the optimiser's buffers are exclusively borrowed.
        unsafe {
            launch::<sum_lines>(stream, tiles, (tensors.clone(), shapes(), tile(), step, partials()))?;
            let arguments = (rule, shapes(), lines, step, partials(), factors()?);
            launch::<set_factors>(stream, blocks(count(&self.plan.lines)), arguments)?;
            let arguments = (shapes(), within::<_, Lines>(&self.matrices), step, factors()?, means());
            launch::<set_means>(stream, blocks(count(&self.plan.matrices)), arguments)?;
            let arguments =
                (rule, tensors.clone(), shapes(), tile(), step, factors()?, means(), master, sums());
            launch::<sum_steps>(stream, tiles, arguments)?;
            let arguments = (rule, tensors.clone(), shapes(), step, sums(), lengths());
            launch::<set_lengths>(stream, blocks(self.plan.shapes.len() as u32), arguments)?;
            let arguments =
                (rule, model, tensors, shapes(), tile(), step, factors()?, means(), lengths(), master);
            launch::<adafactor>(stream, tiles, arguments)
        }
    }

    fn kept(&self) -> Option<(&'static str, &Tensor)> {
        Some(("optimizer.factors", &self.factors))
    }

    fn kept_mut(&mut self) -> Option<(&'static str, &mut Tensor)> {
        Some(("optimizer.factors", &mut self.factors))
    }
}

impl Adafactor {
    /// An optimiser for `params`, f32, bf16 or f16, contiguous. Its state is allocated here.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a number of the configuration outside of its range, and for a side
    /// above 2^32, [`TensorError::DType`](crate::TensorError::DType),
    /// [`TensorError::NotContiguous`](crate::TensorError::NotContiguous), [`Error::DeviceMismatch`],
    /// [`Error::OutOfMemory`], or the driver's error.
    #[track_caller]
    pub fn new(stream: &Stream, params: &[TensorMut<'_>], config: AdafactorConfig) -> Result<Self> {
        let AdafactorConfig { learning_rate, beta2_decay, eps, threshold, weight_decay, state } = config;
        let (fits, wanted) =
            ((beta2_decay as f32).is_finite() && beta2_decay <= 0.0, "a finite number of f32, at most 0");
        checked(NAME, "beta2_decay", beta2_decay, fits, wanted, "-0.8 is usual")?;
        let (fits, wanted) =
            ((threshold as f32).is_finite() && threshold as f32 > 0.0, "a finite number of f32 above 0");
        checked(NAME, "threshold", threshold, fits, wanted, "1.0 is usual")?;
        for eps in eps {
            not_negative(NAME, "eps", eps)?;
        }
        let numbers = optim::factored::Adafactor {
            exponent: beta2_decay as f32,
            eps: eps[0] as f32,
            least_weight: eps[1] as f32,
            threshold: threshold as f32,
        };
        let shapes: Vec<Shape> = params.iter().map(|param| param.shape().clone()).collect();
        let rule = FactoredRule::new(stream, numbers, &shapes)?;
        let numbers = Numbers { betas: [0.0; 2], learning_rate, weight_decay };
        Optimizer::made(stream, params, rule, numbers, state)
    }

    /// The averages of the squares of a parameter's gradient: those of its rows and of its columns, PyTorch's
    /// `row_var` and `col_var` (each without its side of 1); of a parameter that is no matrix, its `variance`
    /// alone. Drop the tensors before the next step.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a parameter that there is not.
    pub fn averages(&self, parameter: usize) -> Result<Vec<Tensor>> {
        let shape = self.shape(parameter)?;
        let FactoredRule { plan, factors, .. } = self.rule();
        let of = &plan.shapes[parameter];
        let part = |first: u64, sides: &[usize]| {
            let count: usize = sides.iter().product();
            factors.slice(0, first as usize..first as usize + count)?.view_as(sides)
        };
        match shape.sides() {
            [before @ .., rows, columns] => {
                let sides = |side: usize| [before, &[side]].concat();
                let columns_at = of.factors + u64::from(of.matrices) * u64::from(of.rows);
                Ok(vec![part(of.factors, &sides(*rows))?, part(columns_at, &sides(*columns))?])
            }
            sides => Ok(vec![part(of.factors, sides)?]),
        }
    }
}

impl FactoredRule {
    #[track_caller]
    fn new(stream: &Stream, numbers: optim::factored::Adafactor, shapes: &[Shape]) -> Result<Self> {
        let plan = Plan::of(shapes)?;
        let shapes: Vec<_> = plan.shapes.iter().map(words).collect();
        Ok(FactoredRule {
            numbers,
            factors: Tensor::zeros(stream, &[plan.factors as usize], DType::F32)?,
            shapes: DeviceBuffer::from_slice(stream, &shapes)?,
            tiles: DeviceBuffer::from_slice(stream, &plan.tiles)?,
            lines: DeviceBuffer::from_slice(stream, &plan.lines)?,
            matrices: DeviceBuffer::from_slice(stream, &plan.matrices)?,
            plan,
        })
    }
}

impl fmt::Debug for FactoredRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, {} averages", self.numbers, self.plan.factors)
    }
}
