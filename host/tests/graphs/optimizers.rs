//! Captured steps of optimisers: replays count on, clip by the gradients that they find, and take the
//! learning rate that was set last. Captured dropout draws other numbers in each replay, a scale of the loss
//! changes in each, and an embedding takes the tokens that were written last.

use ironwarp::graph::Graph;
use ironwarp::ops::dropout::{Generator, dropout};
use ironwarp::ops::embedding::embedding_backward;
use ironwarp::ops::index::{Indices, gather};
use ironwarp::ops::optim::{
    AdamW, AdamWConfig, GradientNorm, LossScale, LossScaleConfig, Muon, MuonConfig, NormConfig, StateConfig,
};
use ironwarp::{DType, Device, Error, Stream, Tensor, TensorError};
use testkit::{Family, compare, input};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

const LEN: usize = 300;
const RATES: [f64; 5] = [1e-3, 1e-3, 2e-2, 0.0, 5e-3];

fn gradient(step: usize) -> Vec<f32> {
    let mut values = input::<f32>(Family::Normal, step as u64, LEN);
    if step == 1 {
        // Its step is skipped.
        values[7] = f32::NAN;
    }
    values
}

fn config() -> AdamWConfig {
    let state = StateConfig { moments: DType::BF16, ..StateConfig::default() };
    AdamWConfig { weight_decay: 0.1, state, ..AdamWConfig::default() }
}

/// All that a step works on.
struct Training {
    weights: Tensor,
    gradient: Tensor,
    adamw: AdamW,
    norm: GradientNorm,
}

impl Training {
    fn new(stream: &Stream) -> Outcome<Self> {
        let mut weights = Tensor::from_slice(stream, &[LEN], &input::<f32>(Family::Normal, 99, LEN))?;
        let adamw = AdamW::new(stream, &[weights.view_mut()?], config())?;
        let norm = GradientNorm::new(stream, NormConfig { max_norm: Some(1.0), skip_nonfinite: true })?;
        Ok(Training { weights, gradient: Tensor::zeros(stream, &[LEN], DType::F32)?, adamw, norm })
    }

    fn prepare(&mut self, stream: &Stream, step: usize) -> ironwarp::Result<()> {
        self.adamw.set_learning_rate(stream, RATES[step])?;
        self.gradient.view_mut()?.copy_from_slice(stream, &gradient(step))
    }

    fn step(&mut self, stream: &Stream) -> ironwarp::Result<()> {
        let Training { weights, gradient, adamw, norm } = self;
        norm.measure(stream, &[gradient], None)?;
        adamw.step(stream, &mut [weights.view_mut()?], &[gradient], Some(norm))
    }

    /// The weights, and the steps done and skipped.
    fn results(&self, stream: &Stream) -> Outcome<(Vec<f32>, [u64; 2])> {
        let counts = [self.adamw.steps(stream)?, self.adamw.skipped(stream)?];
        Ok((self.weights.to_vec(stream)?, counts))
    }
}

/// `before`: steps that are done before the capture, which then finds the table of the tensors.
fn replays(before: usize) -> Outcome {
    let stream = Device::open(0)?.stream()?;
    let mut plain = Training::new(&stream)?;
    for step in 0..RATES.len() {
        plain.prepare(&stream, step)?;
        plain.step(&stream)?;
    }
    let mut captured = Training::new(&stream)?;
    for step in 0..before {
        captured.prepare(&stream, step)?;
        captured.step(&stream)?;
    }
    let mut graph = Graph::capture(&stream, captured, |stream, training| training.step(stream))?;
    for step in before..RATES.len() {
        graph.inputs_mut().prepare(&stream, step)?;
        graph.replay(&stream)?;
    }
    let ((want, counts), (got, of_graph)) = (plain.results(&stream)?, graph.inputs().results(&stream)?);
    assert_eq!((counts, of_graph), ([4, 1], [4, 1]));
    compare::bitwise_equal("replays", &got, &want)?;
    // Nothing that a step outside of the graph does changes what a replay works on.
    let other = Tensor::from_slice(&stream, &[LEN], &gradient(2))?;
    let Training { weights, adamw, .. } = graph.inputs_mut();
    adamw.step(&stream, &mut [weights.view_mut()?], &[&other], None)?;
    drop(other);
    graph.replay(&stream)?;
    let (_, counts) = graph.inputs().results(&stream)?;
    assert_eq!(counts, [6, 1]);
    Ok(())
}

#[test]
fn captured_steps_count_on() -> Outcome {
    replays(0)?;
    replays(2)
}

#[test]
fn captured_steps_of_muon() -> Outcome {
    let stream = Device::open(0)?.stream()?;
    let made = || -> Outcome<_> {
        let mut w = Tensor::from_slice(&stream, &[15, 20], &input::<f32>(Family::Normal, 1, LEN))?;
        let muon = Muon::new(&stream, &[w.view_mut()?], MuonConfig::default())?;
        Ok((w, Tensor::zeros(&stream, &[15, 20], DType::F32)?, muon))
    };
    let step = |stream: &Stream, (w, gradient, muon): &mut (Tensor, Tensor, Muon)| {
        muon.step(stream, &mut [w.view_mut()?], &[gradient], None)
    };
    let mut plain = made()?;
    let mut graph = Graph::capture(&stream, made()?, step)?;
    for number in [0, 2, 3] {
        let values = gradient(number);
        plain.1.view_mut()?.copy_from_slice(&stream, &values)?;
        step(&stream, &mut plain)?;
        graph.inputs_mut().1.view_mut()?.copy_from_slice(&stream, &values)?;
        graph.replay(&stream)?;
        let (got, want) = (graph.inputs().0.to_vec::<f32>(&stream)?, plain.0.to_vec::<f32>(&stream)?);
        compare::bitwise_equal(&format!("gradient {number}"), &got, &want)?;
    }
    assert_eq!(graph.inputs().2.steps(&stream)?, 3);
    Ok(())
}

#[test]
fn captured_dropout_draws_anew() -> Outcome {
    let stream = Device::open(0)?.stream()?;
    let ones = Tensor::from_slice(&stream, &[LEN], &[1.0f32; LEN])?;
    let mut plain = Generator::new(&stream, 5)?;
    let captured = Generator::new(&stream, 5)?;
    // The backward pass of a step drops what its forward pass did.
    let step = |stream: &Stream, generator: &mut Generator| -> ironwarp::Result<[Tensor; 2]> {
        let forward = dropout(stream, &ones, 0.5, generator, 2)?;
        let backward = dropout(stream, &ones, 0.5, generator, 2)?;
        generator.advance(stream)?;
        Ok([forward, backward])
    };
    let mut graph = Graph::capture(&stream, captured, step)?;
    let mut seen: Vec<Vec<f32>> = Vec::new();
    for _ in 0..3 {
        graph.replay(&stream)?;
        let want = step(&stream, &mut plain)?[0].to_vec::<f32>(&stream)?;
        for output in graph.outputs() {
            compare::bitwise_equal("replay", &output.to_vec::<f32>(&stream)?, &want)?;
        }
        assert!(!seen.contains(&want));
        seen.push(want);
    }
    Ok(())
}

#[test]
fn a_captured_scale_changes_in_each_replay() -> Outcome {
    let stream = Device::open(0)?.stream()?;
    let config = LossScaleConfig { initial: 64.0, interval: 2, ..LossScaleConfig::default() };
    let made = || -> Outcome<_> { Ok((Training::new(&stream)?, LossScale::new(&stream, config)?)) };
    let step = |stream: &Stream, (training, scale): &mut (Training, LossScale)| {
        let Training { weights, gradient, adamw, norm } = training;
        norm.measure(stream, &[gradient], Some(scale.tensor()))?;
        adamw.step(stream, &mut [weights.view_mut()?], &[gradient], Some(norm))?;
        scale.update(stream, norm)
    };
    let (mut plain, mut graph) = (made()?, Graph::capture(&stream, made()?, step)?);
    for (number, want) in [(0, 64.0), (1, 32.0), (2, 32.0), (3, 64.0), (1, 32.0)] {
        plain.0.prepare(&stream, number)?;
        step(&stream, &mut plain)?;
        graph.inputs_mut().0.prepare(&stream, number)?;
        graph.replay(&stream)?;
        let replayed = graph.inputs();
        assert_eq!([plain.1.value(&stream)?, replayed.1.value(&stream)?], [want; 2]);
        let ((want, counts), (got, of_graph)) = (plain.0.results(&stream)?, replayed.0.results(&stream)?);
        assert_eq!(counts, of_graph);
        compare::bitwise_equal("replays", &got, &want)?;
    }
    Ok(())
}

#[test]
fn a_captured_embedding_takes_new_tokens() -> Outcome {
    const ROWS: usize = 50;
    let stream = Device::open(0)?.stream()?;
    let table = Tensor::from_slice(&stream, &[ROWS, 6], &input::<f32>(Family::Normal, 3, ROWS * 6))?;
    let step = |stream: &Stream, tokens: &mut Indices| -> ironwarp::Result<[Tensor; 2]> {
        let rows = gather(stream, &table, 0, tokens)?;
        let gradient = embedding_backward(stream, &rows, tokens, ROWS)?;
        Ok([rows, gradient])
    };
    let tokens = |seed: usize| (0..LEN).map(|i| (i * i + seed * 7) % ROWS).collect::<Vec<_>>();
    let first = Indices::from_slice(&stream, &tokens(0), ROWS)?;
    let mut graph = Graph::capture(&stream, first, step)?;
    for seed in 0..4 {
        let given = tokens(seed);
        if seed % 2 == 0 {
            graph.inputs_mut().copy_from_slice(&stream, &given)?;
        } else {
            let given: Vec<i32> = given.iter().map(|&token| token as i32).collect();
            let given = Tensor::from_slice(&stream, &[LEN / 3, 3], &given)?;
            graph.inputs_mut().copy_from_tensor(&stream, &given)?;
        }
        // Refused, and nothing is written.
        let mut wrong = tokens(9);
        wrong[LEN - 1] = ROWS;
        let error = graph.inputs_mut().copy_from_slice(&stream, &wrong).unwrap_err();
        assert!(matches!(error.tensor_error(), Some(TensorError::Index { bound: ROWS, .. })), "{error:?}");
        let error = graph.inputs_mut().copy_from_slice(&stream, &wrong[..4]).unwrap_err();
        assert!(matches!(error.tensor_error(), Some(TensorError::Elements { .. })), "{error:?}");
        graph.replay(&stream)?;
        let want = step(&stream, &mut Indices::from_slice(&stream, &given, ROWS)?)?;
        for (got, want) in graph.outputs().iter().zip(&want) {
            compare::bitwise_equal(
                "new tokens",
                &got.to_vec::<f32>(&stream)?,
                &want.to_vec::<f32>(&stream)?,
            )?;
        }
    }
    // Host memory is no part of a graph.
    let again = Indices::from_slice(&stream, &tokens(1), ROWS)?;
    let refused = Graph::capture(&stream, again, |stream, given| given.copy_from_slice(stream, &tokens(2)));
    assert!(matches!(refused, Err(Error::NotCapturable { .. })));
    Ok(())
}
