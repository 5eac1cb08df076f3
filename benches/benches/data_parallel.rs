//! A training step of feed-forward blocks in bf16 on one device and on all, each with a batch of its own:
//! what the reduction of gradients costs. Shows when each bucket was reduced, by events. Then inference over
//! batches.

#[path = "data_parallel/inference.rs"]
mod inference;

use std::process::ExitCode;

use half::bf16;
use ironwarp::graph::Graph;
use ironwarp::ops::convert::{convert, convert_into};
use ironwarp::ops::gemm::{Matmul, Matrix, MatrixMut};
use ironwarp::ops::saxpy::saxpy;
use ironwarp::parallel::{BucketConfig, Communicator, GradientBuckets, Group, Overlap, Reduction};
use ironwarp::tensor::DType;
use ironwarp::{Device, Event, Result, Stream, Tensor};
use ironwarp_benches::{Outcome, Session, Work};
use testkit::{Family, input};

/// Samples, and steps of each.
const SAMPLES: usize = 15;
const STEPS: u64 = 4;

/// The size of a model.
#[derive(Clone, Copy)]
struct Size {
    blocks: usize,
    tokens: usize,
    width: usize,
    hidden: usize,
}

const LARGE: Size = Size { blocks: 8, tokens: 16_384, width: 1024, hidden: 4096 };
const SMALL: Size = Size { blocks: 2, tokens: 64, width: 64, hidden: 128 };

impl Size {
    /// Operations of a step on one device: a product forward and two backward for each weight.
    fn operations(self) -> u64 {
        (6 * self.tokens * self.weights()) as u64
    }

    fn weights(self) -> usize {
        2 * self.blocks * self.width * self.hidden
    }
}

fn main() -> ExitCode {
    Session::run("data_parallel", |session| {
        let devices: Vec<Device> = (0..Device::count()?).map(Device::open).collect::<Result<_>>()?;
        let size = if session.small() { SMALL } else { LARGE };
        for in_graph in [false, true] {
            let mut one = None;
            for ranks in [1, devices.len()] {
                let shape = format!("{ranks} ranks {}", if in_graph { "graph" } else { "eager" });
                if !session.wants(&format!("step/{shape}")) || (ranks == 1 && one.is_some()) {
                    continue;
                }
                let ms = bench(session, &devices[..ranks], size, in_graph, &shape)?;
                let one = *one.get_or_insert(ms);
                println!("step {shape}: {ms:.3} ms, {:.2} % of {ranks} times one device", 100.0 * one / ms);
            }
        }
        inference::bench(session, &devices, size)
    })
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
    let work = Work::Flops(size.operations() * devices.len() as u64);
    session.record("step", shape, work, &[("ironwarp", samples.clone())])?;
    let mut times: Vec<f64> = samples.iter().map(|(runs, ms)| ms / *runs as f64).collect();
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

type Measured = (Vec<(u64, f64)>, Option<Overlap>);

fn measure(rank: Communicator, stream: &Stream, size: Size, in_graph: bool) -> Result<Measured> {
    let mut trainer = Trainer::new(rank, stream, size)?;
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
    runner.trainer().rank.synchronize(stream)?;
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

/// A block: `x + relu(x up) down`.
struct Block {
    up: Weight,
    down: Weight,
}

/// Normal numbers, of which a part is drawn: that takes time.
fn numbers(seed: u64, count: usize) -> impl Iterator<Item = f32> {
    input::<f32>(Family::Normal, seed, count.min(100_003)).into_iter().cycle().take(count)
}

/// In f32, and as products take it.
struct Weight {
    master: Tensor,
    rounded: Tensor,
}

struct Trainer {
    rank: Communicator,
    size: Size,
    blocks: Vec<Block>,
    x: Tensor,
    target: Tensor,
    buckets: GradientBuckets,
}

impl Weight {
    fn new(stream: &Stream, seed: u64, from: usize, to: usize) -> Result<Self> {
        let scale = (from as f32).sqrt().recip();
        let values: Vec<f32> = numbers(seed, from * to).map(|w| w * scale).collect();
        let master = Tensor::from_slice(stream, &[from, to], &values)?;
        Ok(Weight { rounded: convert(stream, &master, DType::BF16)?, master })
    }

    fn update(&mut self, stream: &Stream, buckets: &GradientBuckets, index: usize) -> Result<()> {
        const RATE: f32 = 1e-3;
        saxpy(stream, -RATE, buckets.gradient(index)?, self.master.view_mut()?.into_view::<f32>()?)?;
        convert_into(stream, &self.master, self.rounded.view_mut()?)
    }
}

impl Trainer {
    fn new(rank: Communicator, stream: &Stream, size: Size) -> Result<Self> {
        let Size { blocks, tokens, width, hidden } = size;
        let block = |number: usize| {
            let seed = 2 * number as u64;
            Ok(Block {
                up: Weight::new(stream, seed, width, hidden)?,
                down: Weight::new(stream, seed + 1, hidden, width)?,
            })
        };
        let batch = |seed: u64| {
            let seed = seed + u64::from(rank.rank());
            let values: Vec<bf16> = numbers(seed, tokens * width).map(bf16::from_f32).collect();
            Tensor::from_slice(stream, &[tokens, width], &values)
        };
        Ok(Trainer {
            size,
            blocks: (0..blocks).map(block).collect::<Result<_>>()?,
            x: batch(1000)?,
            target: batch(2000)?,
            buckets: GradientBuckets::new(
                stream,
                &vec![width * hidden; 2 * blocks],
                BucketConfig { reduction: Reduction::Mean, ..BucketConfig::default() },
            )?,
            rank,
        })
    }

    /// The gradient `a^T b`, straight into its bucket.
    fn gradient(&mut self, stream: &Stream, index: usize, a: &Tensor, b: &Tensor) -> Result<()> {
        let (rows, columns) = (a.shape()[1], b.shape()[1]);
        let into = MatrixMut::new::<f32>(self.buckets.gradient_mut(index)?, rows, columns);
        Matmul::new(Matrix::of(a)?.transposed(), Matrix::of(b)?, into).run(stream)?;
        self.buckets.ready(&mut self.rank, index)
    }

    fn step(&mut self, stream: &Stream) -> Result<()> {
        // Inputs and hidden values of the blocks.
        let (mut x, mut kept) = (self.x.view_as(&[self.size.tokens, self.size.width])?, Vec::new());
        for Block { up, down } in &self.blocks {
            let h = x.matmul(&up.rounded)?.relu()?;
            let y = x.add(&h.matmul(&down.rounded)?)?;
            kept.push((std::mem::replace(&mut x, y), h));
        }
        let scale = 2.0 / (self.size.tokens * self.size.width) as f32;
        let mut d = x.sub(&self.target)?.mul(scale)?;
        for (number, (x, h)) in kept.into_iter().enumerate().rev() {
            let first = 2 * (self.blocks.len() - 1 - number);
            self.gradient(stream, first, &h, &d)?;
            let block = &self.blocks[number];
            let dh = d.matmul(&block.down.rounded.t()?)?.mul(&h.sign()?)?;
            let dx = dh.matmul(&block.up.rounded.t()?)?;
            self.gradient(stream, first + 1, &x, &dh)?;
            d = d.add(&dx)?;
        }
        self.buckets.finish()?;
        let count = self.blocks.len();
        for (number, Block { up, down }) in self.blocks.iter_mut().enumerate() {
            let first = 2 * (count - 1 - number);
            down.update(stream, &self.buckets, first)?;
            up.update(stream, &self.buckets, first + 1)?;
        }
        Ok(())
    }
}
