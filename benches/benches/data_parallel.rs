//! A training step of transformer blocks in bf16 on one device and on all, each with a batch of its own: what
//! the reduction of gradients costs. Shows when each bucket was reduced, by events. Then inference over
//! batches.

#[path = "data_parallel/check.rs"]
mod check;
#[path = "data_parallel/inference.rs"]
mod inference;
#[path = "data_parallel/model.rs"]
mod model;
#[path = "data_parallel/trainer.rs"]
mod trainer;

use std::process::ExitCode;

use ironwarp::graph::Graph;
use ironwarp::parallel::{Communicator, Group, Overlap};
use ironwarp::{Device, Event, Result, Stream};
use ironwarp_benches::{Outcome, Session, Work};
use model::Size;
use trainer::Trainer;

/// Samples, and steps of each.
const SAMPLES: usize = 15;
const STEPS: u64 = 4;

/// The blocks of GPT-2's smallest model, with 16384 tokens a device.
const LARGE: Size = Size { blocks: 12, sequences: 16, tokens: 1024, heads: 12, head: 64, hidden: 3072 };
/// Gradients are compared at this size: as wide, with less in memory.
const NARROW: Size = Size { blocks: 2, sequences: 2, ..LARGE };
const SMALL: Size = Size { blocks: 2, sequences: 2, tokens: 32, heads: 2, head: 64, hidden: 256 };

fn main() -> ExitCode {
    Session::run("data_parallel", |session| {
        let devices: Vec<Device> = (0..Device::count()?).map(Device::open).collect::<Result<_>>()?;
        let size = if session.small() { SMALL } else { LARGE };
        let mut counts = vec![1, devices.len()];
        counts.dedup();
        let rows = [false, true].map(|in_graph| counts.iter().map(move |&ranks| (in_graph, ranks)));
        let wanted: Vec<_> = rows
            .into_iter()
            .flatten()
            .filter(|&row| session.wants(&format!("step/{}", shape(row))))
            .collect();
        if !wanted.is_empty() {
            check::are_slopes(&devices[0], SMALL)?;
            check::agree(&devices, if session.small() { SMALL } else { NARROW })?;
        }
        let mut one = [None; 2];
        for row in wanted {
            let (in_graph, ranks) = row;
            let ms = bench(session, &devices[..ranks], size, in_graph, &shape(row))?;
            let one = *one[usize::from(in_graph)].get_or_insert(ms);
            println!(
                "step {}: {ms:.3} ms, {:.2} % of {ranks} times one device",
                shape(row),
                100.0 * one / ms
            );
        }
        inference::bench(session, &devices, size)
    })
}

fn shape((in_graph, ranks): (bool, usize)) -> String {
    format!("{ranks} ranks {}", if in_graph { "graph" } else { "eager" })
}

/// Milliseconds of a step: the median.
fn bench(session: &mut Session, devices: &[Device], size: Size, in_graph: bool, shape: &str) -> Outcome<f64> {
    let results = Group::open(devices)?.run(|rank| {
        let stream = rank.device().stream()?;
        stream.scope(|_| measure(rank, &stream, size, in_graph))
    })?;
    let (samples, overlap) = results.into_iter().next().expect("at least one rank");
    if let Some(overlap) = overlap.filter(|_| devices.len() > 1) {
        println!("{overlap}");
    }
    let work = Work::Flops(size.training_operations() * devices.len() as u64);
    session.record("step", shape, work, &[("ironwarp", samples.clone())])?;
    let mut times: Vec<f64> = samples.iter().map(|(runs, ms)| ms / *runs as f64).collect();
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

type Measured = (Vec<(u64, f64)>, Option<Overlap>);

fn measure(rank: Communicator, stream: &Stream, size: Size, in_graph: bool) -> Result<Measured> {
    let mut trainer = Trainer::new(rank, stream, size)?;
    let before = trainer.loss(stream)?;
    // Compiles the kernels, and fills the heap.
    trainer.step(stream)?;
    trainer.buckets.time(stream)?;
    trainer.step(stream)?;
    let overlap = trainer.buckets.overlap()?;
    let mut runner = if in_graph {
        Runner::Graph(Box::new(Graph::capture(stream, trainer, |stream, trainer| trainer.step(stream))?))
    } else {
        Runner::Eager(Box::new(trainer))
    };
    let (begin, end) = (Event::new(stream.device())?, Event::new(stream.device())?);
    let mut samples = Vec::new();
    for _ in 0..SAMPLES {
        runner.run(stream)?;
        stream.record(&begin)?;
        (0..STEPS).try_for_each(|_| runner.run(stream))?;
        stream.record(&end)?;
        end.synchronize()?;
        samples.push((STEPS, f64::from(Event::elapsed_ms(&begin, &end)?)));
    }
    let Trainer { rank, model, .. } = runner.trainer();
    rank.synchronize(stream)?;
    // Without sums the replicas would have gone apart, each with its batch.
    let parameters: Vec<_> = model.parameters().map(|parameter| ("a parameter", parameter)).collect();
    rank.check_replicas(stream, &parameters)?;
    let after = runner.trainer().loss(stream)?;
    assert!(after < before, "the loss falls: {before} and {after}");
    Ok((samples, overlap))
}

enum Runner<'a> {
    Graph(Box<Graph<'a, Trainer>>),
    Eager(Box<Trainer>),
}

impl Runner<'_> {
    fn run(&mut self, stream: &Stream) -> Result<()> {
        match self {
            Runner::Graph(graph) => graph.replay(stream),
            Runner::Eager(trainer) => trainer.step(stream),
        }
    }

    fn trainer(&mut self) -> &mut Trainer {
        match self {
            Runner::Graph(graph) => graph.inputs_mut(),
            Runner::Eager(trainer) => trainer,
        }
    }
}
