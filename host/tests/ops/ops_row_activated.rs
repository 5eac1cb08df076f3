//! Gradients of norms with an activation behind them, against their oracle.

use crate::common::{Outcome, is_hopper, stream, tests};
use crate::lying::{Lying, exact};
use crate::norms::{EPS, plain};
use crate::ops_row_backward::SHAPES;
use half::bf16;
use ironwarp::graph::Graph;
use ironwarp::ops::gemm::Activation;
use ironwarp::ops::row::{Norm, NormBackward, NormGradients, NormKind};
use ironwarp::tensor::Element;
use ironwarp::{DType, Error, Stream, Tensor};
use reference::activation::Activation as Oracle;
use reference::row::{Row, activated_norm_backward, find};
use rows::plan::{EXCHANGES, Plan, STAY_STAGES, Shape};
use testkit::{Family, compare, input, tolerance};

/// Every activation of one value, and its oracle.
const ACTIVATIONS: [(Activation, Oracle); 5] = [
    (Activation::Relu, Oracle::Relu),
    (Activation::Gelu, Oracle::Gelu),
    (Activation::GeluTanh, Oracle::GeluTanh),
    (Activation::Silu, Oracle::Silu),
    (Activation::Sigmoid, Oracle::Sigmoid),
];
/// Whether there is a weight, and a bias.
const SHARED: [[bool; 2]; 4] = [[true, true], [true, false], [false, true], [false, false]];

/// Operands of a gradient.
struct Case<T> {
    sides: [usize; 2],
    kind: NormKind,
    activation: (Activation, Oracle),
    x: Vec<T>,
    dy: Vec<T>,
    shared: [Option<Vec<T>>; 2],
    residual: Option<Vec<T>>,
}

/// Gradients as f64: by rows, by the weight, by the bias. With the scale of their errors, the oracle's.
type Wanted = [[Vec<f64>; 2]; 3];

impl<T: Element + testkit::Element + Into<f64>> Case<T> {
    /// By a number that all else follows from.
    fn new(number: usize, sides: [usize; 2], kind: NormKind) -> Self {
        let (seed, all) = (number as u64, sides[0] * sides[1]);
        let activation = ACTIVATIONS[number % ACTIVATIONS.len()];
        let has_shared = SHARED[number / 2 % SHARED.len()];
        let shared =
            [0, 1].map(|i| has_shared[i].then(|| input(Family::Normal, seed + 100 + i as u64, sides[1])));
        let residual = number.is_multiple_of(3).then(|| input(Family::Normal, seed + 150, all));
        let (x, dy) = (input(Family::Normal, seed, all), input(Family::Normal, seed + 50, all));
        Self { sides, kind, activation, x, dy, shared, residual }.without_kinks()
    }

    /// The slope of ReLU at 0 is a step: no gradient comes to arguments that a rounding takes across it.
    fn without_kinks(mut self) -> Self {
        if self.activation.0 == Activation::Relu {
            let (x, shared) = (exact(&self.x), self.exact_shared());
            for (first, row) in self.rows(&x, &shared) {
                let u = find(self.kind.name())(&row);
                for (i, (value, size)) in u.value.iter().zip(&u.magnitude).enumerate() {
                    if value.abs() < 1e-4 * size {
                        self.dy[first + i] = T::from_f64(0.0);
                    }
                }
            }
        }
        self
    }

    fn exact_shared(&self) -> [Option<Vec<f64>>; 2] {
        self.shared.each_ref().map(|shared| shared.as_ref().map(|shared| exact(shared)))
    }

    /// Rows and where they begin.
    fn rows<'t>(&self, x: &'t [f64], [weight, bias]: &'t [Option<Vec<f64>>; 2]) -> Vec<(usize, Row<'t>)> {
        let columns = self.sides[1];
        let row =
            |(i, x)| (i * columns, Row { x, weight: weight.as_deref(), bias: bias.as_deref(), eps: EPS });
        x.chunks(columns).enumerate().map(row).collect()
    }

    fn run(&self, stream: &Stream, lying: Lying, of_shared: [bool; 2]) -> Result<NormGradients, Error> {
        let [gradients] = self.run_each(stream, lying, [of_shared])?;
        Ok(gradients)
    }

    /// Gradients behind one forward pass, once for each choice of those by what rows share.
    fn run_each<const TIMES: usize>(
        &self,
        stream: &Stream,
        lying: Lying,
        choices: [[bool; 2]; TIMES],
    ) -> Result<[NormGradients; TIMES], Error> {
        let (kind, [rows, columns]) = (self.kind, self.sides);
        let matrix = |values: &[T]| lying.matrix(stream, [rows, columns], values);
        let shared = |i: usize| {
            self.shared[i].as_ref().map(|values| Tensor::from_slice(stream, &[columns], values)).transpose()
        };
        let (weight, bias) = (shared(0)?, shared(1)?);
        let (x, dy) = (matrix(&self.x)?, matrix(&self.dy)?);
        let residual = self.residual.as_ref().map(|residual| matrix(residual)).transpose()?;
        let (weight, bias, activation) = (weight.as_ref(), bias.as_ref(), self.activation.0);
        let norm = Norm { kind, weight, bias, eps: EPS, activation };
        let moments = norm.run_for_gradient(stream, &x)?.moments.expect("a pass for a gradient");
        let residual = residual.as_ref();
        let run =
            |of_shared| NormBackward { residual, of_shared, ..norm.backward(&x, &dy, &moments) }.run(stream);
        let all = choices.into_iter().map(run).collect::<Result<Vec<_>, Error>>()?;
        Ok(all.try_into().expect("one for each choice"))
    }

    fn wanted(&self) -> Wanted {
        let (columns, x, dy, shared) = (self.sides[1], exact(&self.x), exact(&self.dy), self.exact_shared());
        let residual = self.residual.as_ref().map(|residual| exact(residual));
        let zeros = || [vec![0.0; columns], vec![0.0; columns]];
        let mut wanted = [[Vec::new(), Vec::new()], zeros(), zeros()];
        let is_centered = self.kind == NormKind::Layer;
        for (first, row) in self.rows(&x, &shared) {
            let dy = &dy[first..first + columns];
            let (of_row, of_bias) = activated_norm_backward(is_centered, &row, self.activation.1, dy);
            for i in 0..columns {
                let added = residual.as_ref().map_or(0.0, |residual| residual[first + i]);
                wanted[0][0].push(of_row.x.value[i] + added);
                wanted[0][1].push(of_row.x.magnitude[i] + added.abs());
                for (sums, terms) in wanted[1..].iter_mut().zip([&of_row.weight, &of_bias]) {
                    sums[0][i] += terms.value[i];
                    sums[1][i] += terms.magnitude[i];
                }
            }
        }
        wanted
    }

    /// All gradients, twice, and that by the input alone.
    fn agrees(&self, stream: &Stream, lying: Lying) -> Outcome {
        let [got, again, alone] = self.run_each(stream, lying, [[true; 2], [true; 2], [false; 2]])?;
        let wanted = self.all_agree(stream, lying, [&got, &again])?;
        let (what, [want, scale]) = (format!("{} alone", self.what(lying)), &wanted[0]);
        let limit = tolerance::find(&format!("activated_norm_backward {}", <T as Element>::DTYPE));
        let alone: Vec<T> = alone.x.to_vec(stream)?;
        compare::accumulated(&what, &alone, want, scale, &self.sides, limit.for_terms(1))?;
        Ok(())
    }

    /// The gradients of which rings of lanes, or of a block, keep sums, twice.
    fn sums_agree(&self, stream: &Stream) -> Outcome {
        let lying = Lying::Dense;
        let [got, again] = self.run_each(stream, lying, [[true; 2]; 2])?;
        self.all_agree(stream, lying, [&got, &again])?;
        Ok(())
    }

    fn what(&self, lying: Lying) -> String {
        let residual = self.residual.is_some();
        let shared = self.shared.each_ref().map(Option::is_some);
        format!("{:?} {:?} {:?} {lying:?} {shared:?} {residual}", self.activation, self.kind, self.sides)
    }

    /// Compares all gradients with what is wanted, which it returns, and with those of another run.
    fn all_agree(&self, stream: &Stream, lying: Lying, [got, again]: [&NormGradients; 2]) -> Outcome<Wanted> {
        let what = self.what(lying);
        let dtype = <T as Element>::DTYPE;
        let wanted = self.wanted();
        for (of, [want, scale]) in wanted.iter().enumerate() {
            let (name, family) = [("x", ""), ("weight", "_sums"), ("bias", "_sums")][of];
            let limit = tolerance::find(&format!("activated_norm_backward{family} {dtype}")).for_terms(1);
            let (what, pick) = (format!("{what} {name}"), |all| gradient::<T>(stream, all, of));
            let (values, again) = (pick(got)?, pick(again)?);
            let sides = if of == 0 { self.sides.to_vec() } else { vec![self.sides[1]] };
            compare::accumulated(&what, &values, want, scale, &sides, limit)?;
            compare::bitwise_equal(&what, &values, &again)?;
        }
        Ok(wanted)
    }
}

/// A gradient: by rows, by the weight, or by the bias.
fn gradient<T: Element>(stream: &Stream, all: &NormGradients, which: usize) -> Result<Vec<T>, Error> {
    let of = [Some(&all.x), all.weight.as_ref(), all.bias.as_ref()];
    of[which].expect("all are wanted").to_vec(stream)
}

fn gradients_agree<T: Element + testkit::Element + Into<f64>>() -> Outcome {
    let (stream, mut number) = (stream()?, 0);
    for sides in SHAPES {
        for kind in [NormKind::Layer, NormKind::Rms] {
            for &lying in Lying::of(sides[1]) {
                Case::<T>::new(number, sides, kind).agrees(&stream, lying)?;
                number += 1;
            }
        }
    }
    Ok(())
}

tests!(gradients_agree: gradients_of_f32 = f32, gradients_of_f16 = half::f16, gradients_of_bf16 = bf16);

/// Every activation, with and without weight and bias: rows of whole vectors and others. In f32 the ring of a
/// block has the first, and the engine that holds rows the others, with a second pass for sums of columns.
fn all_activations_agree<T: Element + testkit::Element + Into<f64>>() -> Outcome {
    let stream = stream()?;
    for sides in [[6, 264], [3, 259]] {
        for number in 0..2 * SHARED.len() * ACTIVATIONS.len() {
            Case::<T>::new(number, sides, NormKind::Layer).agrees(&stream, Lying::Dense)?;
        }
    }
    Ok(())
}

tests!(
    all_activations_agree:
        all_activations_of_f32 = f32,
        all_activations_of_f16 = half::f16,
        all_activations_of_bf16 = bf16
);

/// Arguments most of which are so large that slopes are those of the ends, 0 or 1: there the oracle allows
/// for no error of an argument.
fn ends_agree<T: Element + testkit::Element + Into<f64>>() -> Outcome {
    let stream = stream()?;
    for sides in [[6, 264], [3, 259]] {
        for number in 0..ACTIVATIONS.len() {
            let mut case = Case::<T>::new(number, sides, NormKind::Layer);
            case.shared = [500.0, 0.0].map(|value| Some(vec![T::from_f64(value); sides[1]]));
            case.without_kinks().agrees(&stream, Lying::Dense)?;
        }
    }
    Ok(())
}

tests!(ends_agree: ends_of_f32 = f32, ends_of_f16 = half::f16, ends_of_bf16 = bf16);

/// Rows so many that stages of the ring are filled, and written over, several times: short rows of several
/// teams a block, rows of a block, rows of clusters. In f32, whose tolerance of sums of columns is small. On
/// the software driver, whose devices have few multiprocessors, there are so few rows that one that is lost,
/// or added twice, is far outside. There it also runs under the checker, to which a copy over what threads
/// wrote to a stage, without a fence between the two, is an error.
#[test]
fn stages_are_written_again() -> Outcome {
    let stream = stream()?;
    let multiprocessors = stream.device().properties().sm_count;
    for (number, columns) in [(1, 132), (2, 1280), (9, 16_388)] {
        let mut case = Case::<f32>::new(number, [1, columns], NormKind::Layer);
        let stride = columns as u64;
        let shape = Shape {
            rows: u64::from(u32::MAX >> 1),
            columns: columns as u32,
            size: size_of::<f32>(),
            inputs: 2 + u32::from(case.residual.is_some()),
            shared: case.shared.iter().flatten().count() as u32,
            input_strides: [stride; 3],
            output_strides: [stride, 0],
        };
        let plan = Plan::sums(&shape, multiprocessors).expect("rows that a cluster has");
        let rows = plan.step * plan.tile * (plan.stages + EXCHANGES) + 1;
        case = Case::new(number, [rows as usize, columns], NormKind::Layer);
        case.sums_agree(&stream)?;
    }
    Ok(())
}

/// Rows so many that the rings of lanes go round several times, as places of a cluster's statistics do: rows
/// that a warp has alone, with two, three and four vectors a lane, rows of several warps, of clusters of two,
/// four and eight, and rows that begin anywhere. The number of a case says whether there is a residual.
fn rings_go_round<T: Element + testkit::Element + Into<f64>>() -> Outcome {
    let stream = stream()?;
    let multiprocessors = stream.device().properties().sm_count;
    // Rows begin at four places in a vector, or at two: a cluster takes every fourth one, or every second.
    let last = if <T as Element>::DTYPE == DType::F16 { 32_770 } else { 32_772 };
    for (number, columns) in [
        (1, 264),
        (3, 760),
        (2, 1000),
        (4, 257),
        (6, 2555),
        (7, 2560),
        (2, 8200),
        (9, 16_392),
        (12, 33_000),
        (13, last),
    ] {
        let mut case = Case::<T>::new(number, [1, columns], NormKind::Layer);
        let stride = columns as u64;
        let shape = Shape {
            rows: u64::from(u32::MAX >> 1),
            columns: columns as u32,
            size: size_of::<T>(),
            inputs: 2 + u32::from(case.residual.is_some()),
            shared: case.shared.iter().flatten().count() as u32,
            input_strides: [stride; 3],
            output_strides: [stride, 0],
        };
        let plan = Plan::stay_activated_sums(&shape, multiprocessors).expect("rows that a cluster has");
        // A cluster orders its exchanges before it writes places again, and once in a while then.
        let exchanges = if plan.cluster > 1 { plan.tiles + plan.tiles / 2 } else { EXCHANGES };
        let rows = plan.step * (STAY_STAGES + exchanges) + 1;
        case = Case::new(number, [rows as usize, columns], NormKind::Layer);
        case.sums_agree(&stream)?;
    }
    Ok(())
}

tests!(rings_go_round: rings_go_round_in_f16 = half::f16, rings_go_round_in_bf16 = bf16);

/// A row of one value is 0 when it is normalised, or what its mean's rounding leaves: the slope there is that
/// of the bias, and rows have no gradient. Of the last value the product with the factor is more than an f32
/// holds, in bf16.
fn constant_rows_have_no_gradient<T: Element + testkit::Element + Into<f64>>() -> Outcome {
    let stream = stream()?;
    for value in [3.0, 60_032.0, f64::from(f32::MAX) / 64.0] {
        let value = T::from_f64(value);
        if !value.into().is_finite() {
            continue;
        }
        for columns in [264, 259, 768, 4096, 8200] {
            let sides = [2, columns];
            let of = |value: T, sides: &[usize]| {
                Tensor::from_slice(&stream, sides, &vec![value; sides.iter().product()])
            };
            let (x, dy) = (of(value, &sides)?, of(T::from_f64(1.0), &sides)?);
            let (weight, bias) = (of(T::from_f64(1.0), &sides[1..])?, of(T::from_f64(-0.5), &sides[1..])?);
            // By hand: sums of the largest numbers are more than an f32 holds.
            let (mean, factor) = (value.into() as f32, EPS.sqrt().recip() as f32);
            let moments = Tensor::from_slice(&stream, &[2, 2], &[mean, mean, factor, factor])?;
            let (weight, bias) = (Some(&weight), Some(&bias));
            let activation = Activation::GeluTanh;
            let norm = Norm { kind: NormKind::Layer, weight, bias, eps: EPS, activation };
            let gradients = norm.backward(&x, &dy, &moments).run(&stream)?;
            let ratio = f64::from(mean) * f64::from(factor);
            let left = if ratio < 1.1 * 2f64.powi(20) { ratio * f64::from(f32::EPSILON) } else { 0.0 };
            let all = |name: &str, tensor: &Tensor, wanted: f64, error: f64| -> Outcome {
                for value in exact(&tensor.to_vec::<T>(&stream)?) {
                    assert!(
                        (value - wanted).abs() <= error,
                        "{name} {mean} {columns}: {value}, not {wanted}"
                    );
                }
                Ok(())
            };
            // Of `g` there is a rounding to 16 bits left, which the mean of `g` has not.
            let ([slope, _], rounding) = (Oracle::GeluTanh.slope(-0.5), 2f64.powi(-8));
            all("x", &gradients.x, 0.0, f64::from(factor) * (left * left + left + rounding))?;
            all("weight", &gradients.weight.expect("wanted"), 0.0, 2.0 * left)?;
            let error = 2.0 * (slope * rounding + 2.0 * left);
            all("bias", &gradients.bias.expect("wanted"), 2.0 * slope, error)?;
        }
    }
    Ok(())
}

tests!(
    constant_rows_have_no_gradient:
        constant_rows_of_f16_have_no_gradient = half::f16,
        constant_rows_of_bf16_have_no_gradient = bf16
);

/// In 16 bits rows that a cluster's lanes keep sums of have all gradients by one launch over rows, and one
/// that adds up sums of columns, wherever they begin. Longer ones have where they are whole vectors; others
/// have a pass over columns between them. The gradient by the input alone is one launch, of any rows.
#[test]
fn rows_are_read_once() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let stream = stream()?;
    let (block, cluster, anywhere) = (
        "activated_norm_backward_stays_bf16",
        "activated_norm_backward_stays_cluster_bf16",
        "activated_norm_backward_stays_anywhere_bf16",
    );
    let (sums, held) = ("activated_norm_backward_sums_bf16", "activated_norm_backward_held_bf16");
    for (columns, of_shared, first, launches) in [
        (8, true, block, 2),
        (768, true, block, 2),
        (4096, true, block, 2),
        (8192, true, block, 2),
        (65_536, true, cluster, 2),
        (4099, true, anywhere, 2),
        (66_000, true, sums, 2),
        (66_001, true, held, 3),
        (768, false, held, 1),
        (4099, false, held, 1),
        (65_536, false, held, 1),
    ] {
        let zeros = |shape: &[usize]| Tensor::zeros(&stream, shape, ironwarp::DType::BF16);
        let (x, shared) = (zeros(&[4, columns])?, zeros(&[columns])?);
        let (weight, bias, activation) = (Some(&shared), Some(&shared), Activation::Silu);
        let norm = Norm { weight, bias, activation, ..plain(NormKind::Layer) };
        let moments = norm.run_for_gradient(&stream, &x)?.moments.expect("a pass for a gradient");
        let backward = NormBackward { of_shared: [of_shared; 2], ..norm.backward(&x, &x, &moments) };
        let graph = Graph::capture(&stream, (), |stream, ()| backward.run(stream))?;
        let kernels: Vec<String> = graph.launches().iter().map(|launch| launch.kernel.to_string()).collect();
        assert!(kernels[0].ends_with(first), "{columns} {of_shared}: {kernels:?}");
        assert_eq!(kernels.len(), launches, "{columns} {of_shared}: {kernels:?}");
    }
    Ok(())
}

/// NaN and infinities of a row stay there, with sums of columns and without, but for the sums of its columns.
#[test]
fn rows_that_are_not_finite_are_alone() -> Outcome {
    let stream = stream()?;
    for sides @ [rows, columns] in [[12, 264], [12, 259], [8, 4096]] {
        let mut case = Case::<bf16>::new(1, sides, NormKind::Layer);
        let clean = [false, true].map(|of_shared| case.run(&stream, Lying::Dense, [of_shared; 2]));
        for (i, bad) in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY].into_iter().enumerate() {
            case.x[i * columns + i] = bf16::from_f32(bad);
        }
        case.dy[3 * columns + 5] = bf16::NAN;
        let sums = case.run(&stream, Lying::Dense, [true; 2])?;
        let alone = case.run(&stream, Lying::Dense, [false; 2])?;
        for (got, clean) in [&alone, &sums].into_iter().zip(clean) {
            let (got, clean) = (gradient::<bf16>(&stream, got, 0)?, gradient::<bf16>(&stream, &clean?, 0)?);
            assert!(got[..4 * columns].iter().all(|dx| dx.is_nan()), "{sides:?}");
            compare::bitwise_equal("the others", &got[4 * columns..], &clean[4 * columns..])?;
        }
        for (of, name) in [(1, "weight"), (2, "bias")] {
            let sums: Vec<bf16> = gradient(&stream, &sums, of)?;
            assert!(sums[..3].iter().all(|sum| sum.is_nan()), "{name} {sides:?} {rows}");
        }
    }
    Ok(())
}

/// A weight and a bias that do not begin at a vector are as good, with an activation or without.
#[test]
fn shared_rows_may_begin_anywhere() -> Outcome {
    let stream = stream()?;
    for sides @ [rows, columns] in [[40, 768], [3, 9000], [2, 66_000]] {
        let values = |seed, count| input::<bf16>(Family::Normal, seed, count);
        let of = |values: &[bf16]| Tensor::from_slice(&stream, &sides, values);
        let (x, dy) = (of(&values(1, rows * columns))?, of(&values(2, rows * columns))?);
        let longer = values(3, columns + 1);
        let shifted = Tensor::from_slice(&stream, &[columns + 1], &longer)?.slice(0, 1..)?;
        let whole = Tensor::from_slice(&stream, &[columns], &longer[1..])?;
        let norm = plain(NormKind::Layer);
        let moments = norm.run_for_gradient(&stream, &x)?.moments.expect("a pass for a gradient");
        for activation in [Activation::None, Activation::Gelu] {
            let run = |stream: &Stream, shared: &Tensor| {
                let norm = Norm { weight: Some(shared), bias: Some(shared), activation, ..norm };
                norm.backward(&x, &dy, &moments).run(stream)
            };
            let (got, want) = (run(&stream, &shifted)?, run(&stream, &whole)?);
            if columns == 66_000 && is_hopper()? {
                // The ring of a block has these rows, for which both are copied.
                let graph = Graph::capture(&stream, (), |stream, ()| run(stream, &shifted))?;
                let mut kernels = graph.launches().iter().map(|launch| launch.kernel.to_string());
                assert!(kernels.any(|kernel| kernel.ends_with("norm_backward_sums_bf16")), "{activation:?}");
            }
            for which in 0..3 {
                let of = |all| gradient::<bf16>(&stream, all, which);
                compare::bitwise_equal(&format!("{activation:?} {sides:?}"), &of(&got)?, &of(&want)?)?;
            }
        }
    }
    Ok(())
}

#[test]
fn activations_of_two_values_are_refused() -> Outcome {
    let stream = stream()?;
    let x = Tensor::zeros(&stream, &[2, 4], ironwarp::DType::F32)?;
    let norm = plain(NormKind::Layer);
    let moments = norm.run_for_gradient(&stream, &x)?.moments.expect("a pass for a gradient");
    let norm = Norm { activation: Activation::SwiGlu, ..norm };
    let error = norm.backward(&x, &x, &moments).run(&stream).expect_err("two values");
    assert!(matches!(error, Error::InvalidArgument { argument: "activation", .. }), "{error}");
    Ok(())
}

/// A bias is checked also where no activation reads it.
#[test]
fn biases_are_checked() -> Outcome {
    let stream = stream()?;
    let x = Tensor::zeros(&stream, &[2, 4], ironwarp::DType::F32)?;
    let norm = plain(NormKind::Layer);
    let moments = norm.run_for_gradient(&stream, &x)?.moments.expect("a pass for a gradient");
    let of_bf16 = Tensor::zeros(&stream, &[4], ironwarp::DType::BF16)?;
    for activation in [Activation::None, Activation::Gelu] {
        for bias in [&moments, &of_bf16] {
            let norm = Norm { activation, bias: Some(bias), ..norm };
            let error = norm.backward(&x, &x, &moments).run(&stream).expect_err("another shape or type");
            assert!(error.to_string().contains("bias"), "{error}");
        }
    }
    Ok(())
}
