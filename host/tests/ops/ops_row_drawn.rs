//! Norms whose blocks draw rows: beside f64, on streams and in graphs beside each other.

use crate::common::{Outcome, is_hopper, stream, tests};
use crate::lying::exact;
use crate::norms::{EPS, plain};
use half::{bf16, f16};
use ironwarp::graph::Graph;
use ironwarp::ops::gemm::Activation;
use ironwarp::ops::row::{Norm, NormKind};
use ironwarp::tensor::Element;
use ironwarp::{Stream, Tensor};
use reference::row::{Row, find};
use rows::plan::{KEPT_RESIDENT, KEPT_WARPS};
use std::cell::RefCell;
use testkit::{Family, compare, input, tolerance};

/// Rows of so many columns, a few more than a device has at once.
fn sides(stream: &Stream, columns: usize) -> [usize; 2] {
    let warps = stream.device().properties().sm_count * KEPT_RESIDENT * KEPT_WARPS;
    [(warps as usize / columns.div_ceil(1024)).max(1) + 3, columns]
}

fn agrees<T: Element + testkit::Element + Into<f64>>() -> Outcome {
    let stream = stream()?;
    for (columns, kind, activation, has_residual) in [
        (8192, NormKind::Layer, Activation::None, false),
        (16_384, NormKind::Layer, Activation::Relu, false),
        (16_384, NormKind::Layer, Activation::None, false),
        (32_768, NormKind::Rms, Activation::None, false),
        (65_536, NormKind::Layer, Activation::None, true),
    ] {
        let sides @ [rows, _] = sides(&stream, columns);
        let [weights, biases] = [1, 2].map(|seed| input::<T>(Family::Normal, seed, columns));
        let lies = |values: &[T]| Tensor::from_slice(&stream, &[columns], values);
        let (weight, bias) = (lies(&weights)?, lies(&biases)?);
        let bias = (kind == NormKind::Layer).then_some(&bias);
        let norm = Norm { weight: Some(&weight), bias, activation, ..plain(kind) };
        let values: Vec<T> = input(Family::Cancelling, 3, rows * columns);
        let x = Tensor::from_slice(&stream, &sides, &values)?;
        let (y, values) = if has_residual {
            let normed = norm.add_and_run(&stream, &x, &x, false)?;
            (normed.y, normed.sum.ok_or("a sum")?.to_vec::<T>(&stream)?)
        } else {
            (norm.run(&stream, &x)?.y, values)
        };
        let (weights, biases) = (exact(&weights), bias.map(|_| exact(&biases)));
        let (mut want, mut scale) = (Vec::new(), Vec::new());
        for x in exact(&values).chunks(columns) {
            let row = Row { x, weight: Some(&weights), bias: biases.as_deref(), eps: EPS };
            let of_row = find(kind.name())(&row);
            let least = if activation == Activation::Relu { 0.0 } else { f64::NEG_INFINITY };
            want.extend(of_row.value.into_iter().map(|value| value.max(least)));
            scale.extend(of_row.magnitude);
        }
        let limit = tolerance::find(&format!("{} {}", kind.name(), <T as Element>::DTYPE)).for_terms(columns);
        let what = format!("{kind:?} {activation:?} of {sides:?}, residual: {has_residual}");
        compare::accumulated(&what, &y.to_vec::<T>(&stream)?, &want, &scale, &sides, limit)?;
    }
    Ok(())
}

tests!(agrees: f32_agrees = f32, f16_agrees = f16, bf16_agrees = bf16);

/// Graphs are replayed on two streams, twice each, beside launches of a third one, which also draws while
/// the others are captured. All have counters of their own.
#[test]
fn graphs_run_beside_each_other_and_a_stream() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let third = stream()?;
    let streams = [third.device().stream()?, third.device().stream()?];
    let sides @ [rows, columns] = sides(&third, 16_384);
    let shared = Tensor::from_slice(&third, &[columns], &input::<bf16>(Family::Normal, 1, columns))?;
    let x = Tensor::from_slice(&third, &sides, &input::<bf16>(Family::Normal, 2, rows * columns))?;
    third.synchronize()?;
    let norm = Norm { weight: Some(&shared), bias: Some(&shared), ..plain(NormKind::Layer) };
    // A row at a time, which no block draws.
    let mut want = Vec::new();
    for row in 0..rows {
        want.extend(norm.run(&third, &x.slice(0, row..row + 1)?)?.y.to_vec::<bf16>(&third)?);
    }
    let results = RefCell::new(Vec::new());
    let mut graphs = Vec::new();
    for stream in &streams {
        let graph = Graph::capture(stream, (), |stream, ()| {
            results.borrow_mut().push(norm.run(&third, &x)?.y);
            norm.run(stream, &x)
        })?;
        assert!(graph.launches().iter().any(|site| site.kernel.to_string().contains("norm_drawn")));
        graphs.push(graph);
    }
    for _ in 0..2 {
        for (graph, stream) in graphs.iter_mut().zip(&streams) {
            graph.replay(stream)?;
        }
        results.borrow_mut().push(norm.run(&third, &x)?.y);
    }
    for result in results.borrow().iter() {
        compare::bitwise_equal("of the stream", &result.to_vec::<bf16>(&third)?, &want)?;
    }
    for (graph, stream) in graphs.iter().zip(&streams) {
        compare::bitwise_equal("of a graph", &graph.outputs().y.to_vec::<bf16>(stream)?, &want)?;
    }
    Ok(())
}
