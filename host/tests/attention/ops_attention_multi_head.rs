//! Multi-head attention of a layer and its gradients, against the oracle of the whole.

use crate::attention_case::{Number, Outcome, device, has_plain, is_hopper};
use half::{bf16, f16};
use ironwarp::graph::Graph;
use ironwarp::ops::attention::{
    HeadsMut, Mask, MultiHead, MultiHeadGradients, Options, Packed, Projection, ProjectionGradients,
};
use ironwarp::ops::dropout::Generator;
use ironwarp::ops::index::Indices;
use ironwarp::ops::rotary::{Positions, RotaryTables};
use ironwarp::tensor::DType;
use ironwarp::{DeviceBuffer, Error, Stream, Tensor};
use reference::Accumulated;
use reference::attention::{Band, Layer, Operands, Turning};
use reference::random::weight_factor;
use reference::rotary::angle;
use testkit::{Family, compare, input, tolerance};

const BATCH: usize = 2;
const ROWS: usize = 70;
const INPUTS: usize = 48;
const OUTPUTS: usize = 56;
const BASE: f64 = 100.0;
const SEED: u64 = 77;
const CALL: u32 = 3;
/// A multiple of 2^-16.
const PROBABILITY: f64 = 0.25;
/// Where packed sequences begin; tokens before the first and behind the last belong to none.
const FIRST: [usize; 4] = [2, 35, 35, 68];

/// A layer. By default without biases and a residual, and with a full mask.
#[derive(Debug, Clone, Copy)]
struct Case {
    heads: usize,
    kv_heads: usize,
    size: usize,
    /// With biases, a residual and a causal mask.
    is_whole: bool,
    /// Columns that turn, and whether neighbours are a pair.
    turning: Option<(usize, bool)>,
    is_packed: bool,
    drops: bool,
}

const PLAIN: Case =
    Case { heads: 2, kv_heads: 2, size: 64, is_whole: false, turning: None, is_packed: false, drops: false };

/// A tensor's elements, on both sides.
struct Operand<T> {
    host: Vec<T>,
    tensor: Tensor,
}

impl<T: Number> Operand<T> {
    fn new(stream: &Stream, seed: u64, shape: &[usize]) -> Outcome<Self> {
        let host: Vec<T> = input(Family::Normal, seed, shape.iter().product());
        let tensor = Tensor::from_slice(stream, shape, &host)?;
        Ok(Operand { host, tensor })
    }

    fn exact(&self) -> Vec<f64> {
        self.host.iter().map(|&value| value.into()).collect()
    }
}

/// A case's operands.
struct Setup<T> {
    case: Case,
    x: Operand<T>,
    weights: [Operand<T>; 2],
    biases: [Operand<T>; 2],
    residual: Operand<T>,
    gradient: Operand<T>,
    tables: RotaryTables,
    positions: Indices,
    first: DeviceBuffer<i32>,
    generator: Generator,
}

impl<T: Number> Setup<T> {
    fn new(stream: &Stream, case: Case) -> Outcome<Self> {
        let Case { heads, kv_heads, size, .. } = case;
        let (packed, width, [batch, rows]) = ((heads + 2 * kv_heads) * size, heads * size, case.sides());
        let of = |seed, shape: &[usize]| Operand::new(stream, seed, shape);
        let positions: Vec<usize> = (0..batch * rows).map(|token| case.position(token)).collect();
        let (columns, _) = case.turning.unwrap_or((size, false));
        Ok(Setup {
            case,
            x: of(1, &[batch, rows, INPUTS])?,
            weights: [of(2, &[packed, INPUTS])?, of(3, &[OUTPUTS, width])?],
            biases: [of(4, &[packed])?, of(5, &[OUTPUTS])?],
            residual: of(6, &[batch, rows, OUTPUTS])?,
            gradient: of(7, &[batch, rows, OUTPUTS])?,
            tables: RotaryTables::new(stream, ROWS, columns, BASE)?,
            positions: Indices::from_slice(stream, &positions, ROWS)?,
            first: DeviceBuffer::from_slice(stream, &FIRST.map(|first| first as i32))?,
            generator: Generator::new(stream, SEED)?,
        })
    }

    fn layer(&self) -> Outcome<MultiHead<'_>> {
        let Case { heads, kv_heads, is_whole, turning, is_packed, drops, .. } = self.case;
        let projection = |at: usize| Projection {
            weight: &self.weights[at].tensor,
            bias: is_whole.then_some(&self.biases[at].tensor),
        };
        let mask = if is_whole { Mask::CAUSAL } else { Mask::FULL };
        let mut layer = MultiHead::new(&self.x.tensor, projection(0), projection(1), heads, kv_heads)
            .options(Options { mask, scale: Some(self.case.scale()) });
        if is_whole {
            layer = layer.residual(&self.residual.tensor);
        }
        if let Some((_, by_neighbours)) = turning {
            let tables = if by_neighbours { self.tables.neighbours()? } else { self.tables.halves()? };
            let positions = if is_packed { Positions::Of(&self.positions) } else { Positions::From(0) };
            layer = layer.rotary(tables, positions);
        }
        if is_packed {
            layer = layer.packed(Packed::new(&self.first, &self.first, ROWS, ROWS));
        }
        if drops {
            layer = layer.dropout(PROBABILITY, &self.generator, CALL);
        }
        Ok(layer)
    }

    fn operands(&self) -> Operands {
        let added = |operand: &Operand<T>| if self.case.is_whole { operand.exact() } else { Vec::new() };
        Operands {
            input: self.x.exact(),
            qkv: self.weights[0].exact(),
            qkv_bias: added(&self.biases[0]),
            out: self.weights[1].exact(),
            out_bias: added(&self.biases[1]),
            residual: added(&self.residual),
        }
    }

    /// Does it with the oracle of the case.
    fn with_oracle<R>(&self, f: impl FnOnce(&Layer<'_>, &Operands) -> R) -> R {
        let case = self.case;
        let Case { heads, kv_heads, size, is_whole, is_packed, turning, drops, .. } = case;
        let angles = |token: usize| {
            let pairs = turning.map_or(0, |(columns, _)| columns / 2);
            (0..pairs).map(|i| angle(case.position(token), i, pairs, BASE)).collect()
        };
        let factor = |at: [usize; 4]| {
            if drops { weight_factor(PROBABILITY, [SEED, 0], CALL, heads, at) } else { 1.0 }
        };
        let sequences = if is_packed {
            FIRST.windows(2).map(|ends| [ends[0], ends[1] - ends[0]]).collect()
        } else {
            (0..BATCH).map(|sequence| [sequence * ROWS, ROWS]).collect()
        };
        let layer = Layer {
            sequences,
            inputs: INPUTS,
            outputs: OUTPUTS,
            heads,
            kv_heads,
            size,
            band: Band { right: is_whole.then_some(0), ..Band::default() },
            scale: f64::from(case.scale()),
            turning: turning.map(|(_, by_neighbours)| Turning { angles: &angles, by_neighbours }),
            factor: &factor,
            round: &|value| T::from_f64(value).into(),
        };
        f(&layer, &self.operands())
    }
}

impl Case {
    /// Sequences and tokens of each.
    fn sides(self) -> [usize; 2] {
        if self.is_packed { [1, ROWS] } else { [BATCH, ROWS] }
    }

    /// Scores are small: their errors are the products' own. Those that turn are about 1, or turning them
    /// would change nothing.
    fn scale(self) -> f32 {
        if self.turning.is_some() { 1.0 / 256.0 } else { 1.0 / 1024.0 }
    }

    /// A token's place in its sequence.
    fn position(self, token: usize) -> usize {
        match FIRST.iter().rev().find(|&&first| first <= token) {
            Some(first) if self.is_packed => token - first,
            _ => token % ROWS,
        }
    }

    /// Result and gradients are the oracle's.
    fn check<T: Number>(self) -> Outcome {
        if !(if self.drops { is_hopper()? } else { has_plain()? }) {
            return Ok(());
        }
        let stream = device()?.stream()?;
        let setup = Setup::<T>::new(&stream, self)?;
        let (row, of_gradients) = match T::DTYPE {
            DType::BF16 => (tolerance::ATTENTION_LAYER_BF16, tolerance::ATTENTION_LAYER_BACKWARD_BF16),
            _ => (tolerance::ATTENTION_LAYER_F16, tolerance::ATTENTION_LAYER_BACKWARD_F16),
        };
        let same = |what: &str, got: &Tensor, want: &Accumulated, row: tolerance::Row| -> Outcome {
            let (got, shape) = (got.to_vec::<T>(&stream)?, got.shape().sides().to_vec());
            let what = format!("{what} of {self:?}");
            compare::rounded(&what, &got, &want.value, &want.magnitude, &shape, row.tolerance())?;
            Ok(())
        };
        let want = setup.with_oracle(|layer, of| layer.forward(of));
        same("the result", &setup.layer()?.run(&stream)?, &want, row)?;
        let (result, recorded) = setup.layer()?.record(&stream)?;
        same("the recorded result", &result, &want, row)?;
        let gradient = &setup.gradient.tensor;
        let got = setup.layer()?.backward(&recorded, gradient).run(&stream)?;
        let want = setup.with_oracle(|layer, of| layer.backward(of, &setup.gradient.exact()));
        same("dX", &got.input, &want.input, of_gradients)?;
        let parts = [("qkv", &got.qkv, &want.qkv), ("out", &got.out, &want.out)];
        for (name, ProjectionGradients { weight, bias }, want) in parts {
            same(&format!("dW of {name}"), weight, &want[0], of_gradients)?;
            assert_eq!(bias.is_some(), self.is_whole);
            if let Some(bias) = bias {
                same(&format!("db of {name}"), bias, &want[1], of_gradients)?;
            }
        }
        self.check_sums(&stream, &setup, [&want.qkv, &want.out])
    }

    /// Gradients of parameters in f32 come on top of what is there.
    fn check_sums<T: Number>(
        self,
        stream: &Stream,
        setup: &Setup<T>,
        want: [&[Accumulated; 2]; 2],
    ) -> Outcome {
        const THERE: f32 = 3.0;
        let row = match T::DTYPE {
            DType::BF16 => tolerance::ATTENTION_LAYER_BACKWARD_BF16,
            _ => tolerance::ATTENTION_LAYER_BACKWARD_F16,
        };
        let (_, recorded) = setup.layer()?.record(stream)?;
        let there = |of: &Tensor| -> Outcome<Tensor> {
            Ok(Tensor::from_slice(stream, of.shape().sides(), &vec![THERE; of.elements()])?)
        };
        let of = |at: usize| -> Outcome<ProjectionGradients<Tensor>> {
            let bias = self.is_whole.then(|| there(&setup.biases[at].tensor)).transpose()?;
            Ok(ProjectionGradients { weight: there(&setup.weights[at].tensor)?, bias })
        };
        let input = setup.x.tensor.copy()?;
        let mut sums = MultiHeadGradients { input, qkv: of(0)?, out: of(1)? };
        let backward = setup.layer()?.backward(&recorded, &setup.gradient.tensor);
        backward.add_into(stream, sums.view_mut()?)?;
        let parts = [(&sums.qkv, want[0]), (&sums.out, want[1])];
        for (ProjectionGradients { weight, bias }, want) in parts {
            for (got, want) in [Some(weight), bias.as_ref()].into_iter().flatten().zip(want) {
                let values: Vec<f64> = want.value.iter().map(|value| value + f64::from(THERE)).collect();
                let (got, shape) = (got.to_vec::<f32>(stream)?, got.shape().sides().to_vec());
                let what = format!("sums of {self:?}");
                compare::rounded(&what, &got, &values, &want.magnitude, &shape, row.tolerance())?;
            }
        }
        Ok(())
    }
}

/// Without dropped weights: on Ampere and later.
pub fn plain_layers() -> Outcome {
    layers_with_all_and_with_nothing()?;
    Case { is_packed: true, turning: Some((64, false)), is_whole: true, ..PLAIN }.check::<bf16>()
}

#[test]
fn layers_with_all_and_with_nothing() -> Outcome {
    Case { is_whole: true, ..PLAIN }.check::<bf16>()?;
    Case { heads: 4, size: 40, ..PLAIN }.check::<bf16>()?;
    Case { kv_heads: 1, size: 128, is_whole: true, ..PLAIN }.check::<f16>()
}

#[test]
fn queries_and_keys_turn() -> Outcome {
    Case { turning: Some((64, false)), is_whole: true, ..PLAIN }.check::<bf16>()?;
    Case { turning: Some((24, true)), heads: 4, size: 40, ..PLAIN }.check::<f16>()
}

#[test]
fn sequences_of_different_lengths_and_dropped_weights() -> Outcome {
    let case = Case { is_packed: true, turning: Some((64, false)), is_whole: true, ..PLAIN };
    case.check::<bf16>()?;
    Case { drops: true, kv_heads: 1, ..case }.check::<bf16>()?;
    Case { drops: true, ..PLAIN }.check::<f16>()
}

/// A step of training as a graph: its replays give the same bits and allocate nothing.
#[test]
fn captured_steps_repeat() -> Outcome {
    testkit::own_process!();
    if !is_hopper()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let case = Case { turning: Some((64, false)), is_whole: true, ..PLAIN };
    let setup = Setup::<bf16>::new(&stream, case)?;
    let step = |stream: &Stream| -> ironwarp::Result<Vec<Tensor>> {
        let layer = setup.layer().expect("a layer is no work");
        let (result, recorded) = layer.record(stream)?;
        let backward = layer.backward(&recorded, &setup.gradient.tensor).deterministic(true);
        let MultiHeadGradients { input, qkv, out } = backward.run(stream)?;
        let biases = [qkv.bias, out.bias].into_iter().flatten();
        Ok([result, input, qkv.weight, out.weight].into_iter().chain(biases).collect())
    };
    let bits = |tensors: &[Tensor]| -> Outcome<Vec<Vec<u16>>> {
        let of = |tensor: &Tensor| -> Outcome<Vec<u16>> {
            Ok(tensor.to_vec::<bf16>(&stream)?.into_iter().map(bf16::to_bits).collect())
        };
        tensors.iter().map(of).collect()
    };
    let want = bits(&step(&stream)?)?;
    assert_eq!(want.len(), 6);
    let mut graph = Graph::capture(&stream, (), |stream, ()| step(stream))?;
    let before = device()?.memory_stats().allocations;
    for _ in 0..3 {
        graph.replay(&stream)?;
        assert!(bits(graph.outputs())? == want, "a replay gives other bits");
    }
    assert_eq!(device()?.memory_stats().allocations, before);
    Ok(())
}

/// As much is kept as the documentation says.
#[test]
fn memory_is_as_stated() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let setup = Setup::<bf16>::new(&stream, Case { heads: 4, ..PLAIN })?;
    let (_, recorded) = setup.layer()?.record(&stream)?;
    assert_eq!(recorded.bytes(), BATCH * ROWS * ((4 + 2 * 2 + 4) * 64 * 2 + 4 * 4));
    Ok(())
}

#[test]
fn wrong_sides_are_refused() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let zeros = |shape: &[usize]| Tensor::zeros(&stream, shape, DType::BF16);
    let (x, flat) = (zeros(&[BATCH, ROWS, INPUTS])?, zeros(&[ROWS, INPUTS])?);
    let (qkv, out) = (zeros(&[6 * 64, INPUTS])?, zeros(&[OUTPUTS, 2 * 64])?);
    let bias = zeros(&[OUTPUTS])?;
    let of = |weight| Projection { weight, bias: None };
    let cases = [
        ("the input", MultiHead::new(&flat, of(&qkv), of(&out), 2, 2)),
        ("the heads", MultiHead::new(&x, of(&qkv), of(&out), 3, 2)),
        ("the weight of queries, keys and values", MultiHead::new(&x, of(&qkv), of(&out), usize::MAX, 1)),
        ("the weight of queries, keys and values", MultiHead::new(&x, of(&out), of(&out), 2, 2)),
        ("the weight of the output", MultiHead::new(&x, of(&qkv), of(&qkv), 2, 2)),
        (
            "the bias of queries, keys and values",
            MultiHead::new(&x, Projection { weight: &qkv, bias: Some(&bias) }, of(&out), 2, 2),
        ),
        ("the residual", MultiHead::new(&x, of(&qkv), of(&out), 2, 2).residual(&x)),
    ];
    for (wanted, layer) in cases {
        let Err(error) = layer.run(&stream) else { panic!("{wanted}") };
        assert!(matches!(error, Error::InvalidArgument { argument, .. } if argument == wanted), "{error}");
    }
    Ok(())
}

#[test]
fn wrong_types_are_refused() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let setup = Setup::<bf16>::new(&stream, Case { is_whole: true, ..PLAIN })?;
    let of = |at: usize| Projection { weight: &setup.weights[at].tensor, bias: None };
    let (x, short) = (setup.x.tensor.to(DType::F32)?, setup.weights[1].tensor.to(DType::F16)?);
    let cases = [
        ("the input", MultiHead::new(&x, of(0), of(1), 2, 2)),
        (
            "the weight of the output",
            MultiHead::new(&setup.x.tensor, of(0), Projection { weight: &short, bias: None }, 2, 2),
        ),
    ];
    for (wanted, layer) in cases {
        let Err(error) = layer.run(&stream) else { panic!("{wanted}") };
        assert!(matches!(error, Error::InvalidArgument { argument, .. } if argument == wanted), "{error}");
    }
    Ok(())
}

#[test]
fn wrong_gradients_are_refused() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let (setup, other) =
        (Setup::<bf16>::new(&stream, PLAIN)?, Setup::<bf16>::new(&stream, Case { kv_heads: 1, ..PLAIN })?);
    let (_, recorded) = setup.layer()?.record(&stream)?;
    let (_, of_other) = other.layer()?.record(&stream)?;
    let gradient = &setup.gradient.tensor;
    let refused = |wanted: &str, done: ironwarp::Result<()>| {
        let Err(error) = done else { panic!("{wanted}") };
        assert!(matches!(error, Error::InvalidArgument { argument, .. } if argument == wanted), "{error}");
    };
    let by = |recorded, gradient| setup.layer().map(|layer| layer.backward(recorded, gradient));
    refused("the gradient of the result", by(&recorded, &setup.x.tensor)?.run(&stream).map(drop));
    refused("what was recorded", by(&of_other, gradient)?.run(&stream).map(drop));
    let zeros = |of: &Tensor, dtype| Tensor::zeros(&stream, of.shape().sides(), dtype);
    let [qkv, out] = [0, 1].map(|at: usize| &setup.weights[at].tensor);
    let places = |input, types: [DType; 2], bias: Option<&Tensor>| -> Outcome<_> {
        let bias = bias.map(|bias| zeros(bias, DType::F32)).transpose()?;
        let of =
            |of, dtype, bias| -> Outcome<_> { Ok(ProjectionGradients { weight: zeros(of, dtype)?, bias }) };
        Ok(MultiHeadGradients { input, qkv: of(qkv, types[0], None)?, out: of(out, types[1], bias)? })
    };
    let (own, wide) = (zeros(&setup.x.tensor, DType::BF16)?, zeros(&setup.x.tensor, DType::F32)?);
    let cases = [
        ("the gradient of the input", places(wide, [DType::F32; 2], None)?),
        (
            "the weight's gradient of queries, keys and values",
            places(own.copy()?, [DType::F16, DType::F32], None)?,
        ),
        ("the bias' of the output", places(own, [DType::F32; 2], Some(&setup.biases[1].tensor))?),
    ];
    for (wanted, mut places) in cases {
        refused(wanted, by(&recorded, gradient)?.run_into(&stream, places.view_mut()?));
    }
    Ok(())
}

#[test]
fn heads_split_where_there_are_some() -> Outcome {
    let stream = device()?.stream()?;
    let mut rows = DeviceBuffer::<bf16>::zeroed(&stream, 3 * 4 * 8)?;
    let sides = [1, 3, 4, 8];
    for at in [0, 1, 4] {
        let [first, second] = HeadsMut::new(&mut rows, sides).split_heads(at)?;
        assert_eq!((first.sides(), second.sides()), ([1, 3, at, 8], [1, 3, 4 - at, 8]));
    }
    let refused = |parts: ironwarp::Result<[HeadsMut<'_>; 2]>, wanted: &str| {
        let Err(error) = parts else { panic!("{wanted}") };
        assert!(matches!(error, Error::InvalidArgument { argument, .. } if argument == wanted), "{error}");
    };
    refused(HeadsMut::new(&mut rows, sides).split_heads(5), "the place to split at");
    let mut none = DeviceBuffer::<bf16>::zeroed(&stream, 0)?;
    let [_, long] = HeadsMut::new(&mut none, [0, 1, 1, usize::MAX]).split_heads(0)?;
    assert_eq!(long.sides(), [0, 1, 1, usize::MAX]);
    refused(HeadsMut::new(&mut rows, sides).strides([96, 0, 8]).split_heads(1), "the heads");
    Ok(())
}
