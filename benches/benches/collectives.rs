//! Collectives over all devices of the machine, in a graph and one by one, beside NCCL's. Rates are bus
//! bandwidths: the bytes that cross each link one way, as NCCL's tests count them. Ranks are threads; then
//! processes, whose buffers pass through stages at every size.

#[path = "collectives/processes.rs"]
mod processes;

use std::process::ExitCode;
use std::sync::mpsc::channel;
use std::thread;

use half::bf16;
use ironwarp::graph::Graph;
use ironwarp::ops::gemm::Activation;
use ironwarp::ops::row::{Norm, NormKind};
use ironwarp::parallel::{Communicator, Group, Reduction};
use ironwarp::{DType, Device, DeviceBuffer, Result, Stream, Tensor};
use ironwarp_benches::{Outcome, Session, Work};
use processes::Others;
use serde_json::json;
use testkit::{Family, input};

/// Bytes of the larger side of a rank.
const SIZES: [usize; 11] =
    [1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 19, 1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 30];
/// Calls in a graph.
const CALLS: u64 = 20;
/// Elements of a row of fused ones.
const WIDTH: usize = 4096;
const EPS: f64 = 1e-5;

#[derive(Clone, Copy)]
enum Op {
    AllReduce,
    ReduceScatter,
    AllGather,
    Broadcast,
    /// Of rows: the sum, the residual and the norm, by one call and by two.
    AllReduceNorm,
    AllReduceThenNorm,
    /// Into f32, with the sum of the squares.
    AllReduceScaled,
}

impl Op {
    const MOVING: [Op; 4] = [Op::AllReduce, Op::ReduceScatter, Op::AllGather, Op::Broadcast];
    const FUSED: [Op; 3] = [Op::AllReduceNorm, Op::AllReduceThenNorm, Op::AllReduceScaled];

    fn name(self) -> &'static str {
        match self {
            Op::AllReduce => "all_reduce",
            Op::ReduceScatter => "reduce_scatter",
            Op::AllGather => "all_gather",
            Op::Broadcast => "broadcast",
            Op::AllReduceNorm => "all_reduce_norm",
            Op::AllReduceThenNorm => "all_reduce, then norm",
            Op::AllReduceScaled => "all_reduce_scaled",
        }
    }

    /// The bytes that cross each link one way.
    fn bus_bytes(self, bytes: usize, ranks: usize) -> u64 {
        let share = bytes * (ranks - 1) / ranks;
        (match self {
            Op::AllReduce | Op::AllReduceNorm | Op::AllReduceThenNorm => 2 * share,
            // Bf16 there, f32 back.
            Op::AllReduceScaled => 3 * share,
            Op::ReduceScatter | Op::AllGather => share,
            Op::Broadcast => bytes,
        }) as u64
    }
}

fn main() -> ExitCode {
    if let Some(rank) = processes::rank() {
        return processes::follow(rank);
    }
    Session::run("collectives", |session| {
        let devices: Vec<Device> = (0..Device::count()?).map(Device::open).collect::<Result<_>>()?;
        if devices.len() < 2 {
            println!("no second GPU: nothing to measure");
            return Ok(());
        }
        let sizes = if session.small() { &SIZES[..3] } else { &SIZES[..] };
        for op in Op::MOVING {
            for &bytes in sizes {
                for in_graph in [true, false] {
                    bench_collectives(session, &devices, op, bytes, in_graph)?;
                }
            }
        }
        for op in Op::FUSED {
            let sizes: &[usize] = match op {
                Op::AllReduceScaled if session.small() => &SIZES[..1],
                Op::AllReduceScaled => &SIZES[8..10],
                _ => &SIZES[2..5],
            };
            for &bytes in sizes {
                bench_collectives(session, &devices, op, bytes, true)?;
            }
        }
        bench_processes(session, &devices, sizes)
    })
}

/// The peers of a row.
fn peers_of(op: Op, bytes: usize, in_graph: bool) -> Vec<serde_json::Value> {
    // NCCL, with kernels of torch where more follows.
    let name = op.name();
    let peer = json!({ "prepare": format!("collectives.{name}"), "bytes": bytes, "graph": in_graph });
    if matches!(op, Op::AllReduceThenNorm) { vec![] } else { vec![peer] }
}

fn how(in_graph: bool) -> &'static str {
    if in_graph { "graph" } else { "eager" }
}

/// Ranks that are processes.
fn bench_processes(session: &mut Session, devices: &[Device], sizes: &[usize]) -> Outcome {
    let all = Op::MOVING.iter().flat_map(|&op| sizes.iter().map(move |&bytes| (op, bytes)));
    let all = all.flat_map(|(op, bytes)| [true, false].map(|in_graph| (op, bytes, in_graph)));
    let shape = |bytes, in_graph| format!("{bytes} B x {} processes {}", devices.len(), how(in_graph));
    let wanted: Vec<_> = all
        .filter(|&(op, bytes, in_graph)| session.wants(&format!("{}/{}", op.name(), shape(bytes, in_graph))))
        .collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let mut others = Others::start(devices)?;
    let stream = session.stream.clone();
    for (op, bytes, in_graph) in wanted {
        let communicator = others.prepare(op, bytes, in_graph)?;
        let mut runner = Runner::new(communicator, &stream, op, bytes, in_graph)?;
        others.answer()?;
        let work = Work::Bytes(op.bus_bytes(bytes, devices.len()));
        let peers = peers_of(op, bytes, in_graph);
        session.measure_groups(op.name(), &shape(bytes, in_graph), work, &peers, CALLS, |_| {
            others.turn();
            runner.run_group(op, &stream)
        })?;
        runner.finish(&stream)?;
        others.end()?;
        drop(runner);
        others.answer()?;
    }
    Ok(())
}

/// A rank with its buffers.
struct Rank {
    communicator: Communicator,
    full: DeviceBuffer<bf16>,
    part: DeviceBuffer<bf16>,
    /// Of fused ones: the rows, a row of factors, and the f32 result.
    rows: Option<[Tensor; 3]>,
}

impl Rank {
    fn new(communicator: Communicator, stream: &Stream, op: Op, bytes: usize) -> Result<Self> {
        let (elements, ranks) = (bytes / size_of::<bf16>(), communicator.ranks() as usize);
        let random = input::<bf16>(Family::Normal, communicator.rank().into(), elements.min(1 << 20));
        let mut data: Vec<bf16> = Vec::with_capacity(elements);
        while data.len() < elements {
            data.extend_from_slice(&random[..random.len().min(elements - data.len())]);
        }
        let full = DeviceBuffer::from_slice(stream, &data)?;
        let part = DeviceBuffer::from_slice(stream, &data[..elements / ranks])?;
        let width = WIDTH.min(elements);
        let rows = || -> Result<[Tensor; 3]> {
            let x = Tensor::from_slice(stream, &[elements / width, width], &data)?;
            let factors = Tensor::from_slice(stream, &[width], &data[..width])?;
            Ok([x, factors, Tensor::zeros(stream, &[elements], DType::F32)?])
        };
        let is_fused = !Op::MOVING.iter().any(|moving| moving.name() == op.name());
        Ok(Rank { communicator, full, part, rows: is_fused.then(rows).transpose()? })
    }

    fn call(&mut self, op: Op, stream: &Stream) -> Result<()> {
        let Rank { communicator, full, part, rows } = self;
        if let Some([x, factors, result]) = rows {
            return match op {
                Op::AllReduceNorm => communicator.all_reduce_norm(stream, x, x, factors, EPS).map(drop),
                Op::AllReduceThenNorm => {
                    communicator.all_reduce(stream, Reduction::Sum, full)?;
                    let (kind, activation) = (NormKind::Rms, Activation::None);
                    let norm = Norm { kind, weight: Some(factors), bias: None, eps: EPS, activation };
                    norm.add_and_run(stream, x, x, false).map(drop)
                }
                _ => communicator.all_reduce_scaled(stream, x, 0.5, result.view_mut()?).map(drop),
            };
        }
        match op {
            Op::AllReduce => communicator.all_reduce(stream, Reduction::Mean, full),
            Op::ReduceScatter => communicator.reduce_scatter(stream, Reduction::Sum, &*full, part),
            Op::AllGather => communicator.all_gather(stream, &*part, full),
            _ => communicator.broadcast(stream, 0, full),
        }
    }
}

/// A rank whose calls are captured, or not.
enum Runner<'a> {
    Graph(Box<Graph<'a, Rank>>),
    Eager(Box<Rank>),
}

impl Runner<'_> {
    fn new(
        communicator: Communicator,
        stream: &Stream,
        op: Op,
        bytes: usize,
        in_graph: bool,
    ) -> Result<Self> {
        let rank = Rank::new(communicator, stream, op, bytes)?;
        if !in_graph {
            return Ok(Runner::Eager(Box::new(rank)));
        }
        let calls =
            move |stream: &Stream, rank: &mut Rank| (0..CALLS).try_for_each(|_| rank.call(op, stream));
        Ok(Runner::Graph(Box::new(Graph::capture(stream, rank, calls)?)))
    }

    fn run(&mut self, op: Op, stream: &Stream) -> Result<()> {
        match self {
            Runner::Graph(graph) => graph.replay(stream),
            Runner::Eager(rank) => rank.call(op, stream),
        }
    }

    /// As many calls as a graph has.
    fn run_group(&mut self, op: Op, stream: &Stream) -> Result<()> {
        let times = if matches!(self, Runner::Graph(_)) { 1 } else { CALLS };
        (0..times).try_for_each(|_| self.run(op, stream))
    }

    fn finish(&mut self, stream: &Stream) -> Result<()> {
        match self {
            Runner::Graph(graph) => graph.inputs_mut().communicator.synchronize(stream),
            Runner::Eager(rank) => rank.communicator.synchronize(stream),
        }
    }
}

fn bench_collectives(
    session: &mut Session,
    devices: &[Device],
    op: Op,
    bytes: usize,
    in_graph: bool,
) -> Outcome {
    let (name, shape) = (op.name(), format!("{bytes} B x {} ranks {}", devices.len(), how(in_graph)));
    if !session.wants(&format!("{name}/{shape}")) {
        return Ok(());
    }
    let work = Work::Bytes(op.bus_bytes(bytes, devices.len()));
    let peers = peers_of(op, bytes, in_graph);
    let mut communicators = Group::open(devices)?.into_communicators();
    let others = communicators.split_off(1);
    let stream = session.stream.clone();
    thread::scope(|scope| {
        let (mut turns, mut threads) = (Vec::new(), Vec::new());
        for communicator in others {
            let (turn, next) = channel::<()>();
            turns.push(turn);
            threads.push(scope.spawn(move || -> Result<()> {
                let stream = communicator.device().stream()?;
                let mut runner = Runner::new(communicator, &stream, op, bytes, in_graph)?;
                next.into_iter().try_for_each(|()| runner.run(op, &stream))?;
                runner.finish(&stream)
            }));
        }
        let mut outcome = (|| -> Outcome {
            let first = communicators.remove(0);
            let mut runner = Runner::new(first, &stream, op, bytes, in_graph)?;
            session.measure_groups(name, &shape, work, &peers, if in_graph { CALLS } else { 1 }, |_| {
                // A rank that has failed has dropped its end; its error is looked at below.
                for turn in &turns {
                    let _ = turn.send(());
                }
                runner.run(op, &stream)
            })?;
            Ok(runner.finish(&stream)?)
        })();
        drop(turns);
        for thread in threads {
            let result = thread.join().expect("no panic in there");
            outcome = outcome.and(result.map_err(Into::into));
        }
        outcome
    })
}
