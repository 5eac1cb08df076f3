//! Launches whose blocks draw tiles from a counter: behind each other, beside each other, in graphs, and on
//! streams that go.

use crate::attention_case::{Case, Outcome, PLAIN, Setup, device, is_hopper};
use half::bf16;
use ironwarp::graph::Graph;
use ironwarp::{DeviceBuffer, Stream};

/// More tiles than multiprocessors, but less than four for each, so that blocks draw.
fn drawn(heads: usize) -> ironwarp::Result<Case> {
    let batch = device()?.properties().sm_count as usize;
    Ok(Case { batch, heads, kv_heads: heads, queries: 10, keys: 20, right: Some(0), ..PLAIN })
}

/// O and the log-sum-exps.
type Results = (DeviceBuffer<bf16>, DeviceBuffer<f32>);

fn launch(setup: &Setup<bf16>, stream: &Stream, (out, logarithms): &mut Results) -> ironwarp::Result<()> {
    setup.attention(out, logarithms)?.run(stream)
}

/// The results are the oracle's.
fn compare(setup: &Setup<bf16>, stream: &Stream, (out, logarithms): &Results, what: &str) -> Outcome {
    setup.compare(&setup.oracle(), &out.to_vec(stream)?, &logarithms.to_vec(stream)?, what)
}

#[test]
fn launches_of_a_stream_follow_each_other() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let setups = [Setup::new(&drawn(2)?, &stream)?, Setup::new(&drawn(3)?, &stream)?];
    let mut results = Vec::new();
    for index in [0, 1, 1, 0] {
        let mut fresh = setups[index].fresh(&stream)?;
        launch(&setups[index], &stream, &mut fresh)?;
        results.push((index, fresh));
    }
    for (number, (index, results)) in results.iter().enumerate() {
        compare(&setups[*index], &stream, results, &format!("launch {number}"))?;
    }
    Ok(())
}

/// Two graphs are replayed on two streams, beside launches of a third one, which draws during a capture too.
#[test]
fn graphs_run_beside_each_other_and_a_stream() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let streams = [device()?.stream()?, device()?.stream()?, device()?.stream()?];
    let [first, second, third] = &streams;
    let setups = [Setup::new(&drawn(2)?, first)?, Setup::new(&drawn(3)?, second)?];
    let beside = Setup::new(&drawn(2)?, third)?;
    let (mut early, mut late) = (beside.fresh(third)?, beside.fresh(third)?);
    let mut graphs = [
        Graph::capture(first, setups[0].fresh(first)?, |stream, results| {
            launch(&beside, third, &mut early)?;
            launch(&setups[0], stream, results)
        })?,
        Graph::capture(second, setups[1].fresh(second)?, |stream, results| {
            launch(&setups[1], stream, results)
        })?,
    ];
    for _ in 0..2 {
        for (graph, stream) in graphs.iter_mut().zip(&streams) {
            graph.replay(stream)?;
        }
        launch(&beside, third, &mut late)?;
    }
    for ((graph, setup), stream) in graphs.iter().zip(&setups).zip(&streams) {
        compare(setup, stream, graph.inputs(), "a graph's")?;
    }
    drop(graphs);
    compare(&beside, third, &early, "during a capture")?;
    compare(&beside, third, &late, "beside graphs")
}

/// A queue of the pool goes to the next stream with the launches of the one before still on it.
#[test]
fn a_stream_goes_before_its_launch_is_done() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let setup = Setup::new(&drawn(2)?, &stream)?;
    let mut all = Vec::new();
    for _ in 0..3 {
        let mut results = setup.fresh(&stream)?;
        let own = device()?.pooled_stream()?;
        launch(&setup, &own, &mut results)?;
        drop(own);
        all.push(results);
    }
    all.iter().try_for_each(|results| compare(&setup, &stream, results, "of a stream that has gone"))
}
