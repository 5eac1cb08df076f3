//! Collectives over all devices of the machine, in a graph and one by one, beside NCCL's. Rates are bus
//! bandwidths: the bytes that cross each link one way, as NCCL's tests count them.

use std::process::ExitCode;
use std::sync::mpsc::channel;
use std::thread;

use half::bf16;
use ironwarp::graph::Graph;
use ironwarp::parallel::{Communicator, Group, Reduction};
use ironwarp::{Device, DeviceBuffer, Result, Stream};
use ironwarp_benches::{Outcome, Session, Work};
use serde_json::json;
use testkit::{Family, input};

/// Bytes of the larger side of a rank.
const SIZES: [usize; 9] = [1 << 10, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 30];
/// Calls in a graph.
const CALLS: u64 = 20;

#[derive(Clone, Copy)]
enum Op {
    AllReduce,
    ReduceScatter,
    AllGather,
    Broadcast,
}

impl Op {
    const ALL: [Op; 4] = [Op::AllReduce, Op::ReduceScatter, Op::AllGather, Op::Broadcast];

    fn name(self) -> &'static str {
        match self {
            Op::AllReduce => "all_reduce",
            Op::ReduceScatter => "reduce_scatter",
            Op::AllGather => "all_gather",
            Op::Broadcast => "broadcast",
        }
    }

    /// The bytes that cross each link one way.
    fn bus_bytes(self, bytes: usize, ranks: usize) -> u64 {
        let share = bytes * (ranks - 1) / ranks;
        (match self {
            Op::AllReduce => 2 * share,
            Op::ReduceScatter | Op::AllGather => share,
            Op::Broadcast => bytes,
        }) as u64
    }
}

fn main() -> ExitCode {
    Session::run("collectives", |session| {
        let devices: Vec<Device> = (0..Device::count()?).map(Device::open).collect::<Result<_>>()?;
        if devices.len() < 2 {
            println!("no second GPU: nothing to measure");
            return Ok(());
        }
        let sizes = if session.small() { &SIZES[..3] } else { &SIZES[..] };
        for op in Op::ALL {
            for &bytes in sizes {
                for in_graph in [true, false] {
                    bench_collectives(session, &devices, op, bytes, in_graph)?;
                }
            }
        }
        Ok(())
    })
}

/// A rank with its buffers.
struct Rank {
    communicator: Communicator,
    full: DeviceBuffer<bf16>,
    part: DeviceBuffer<bf16>,
}

impl Rank {
    fn new(communicator: Communicator, stream: &Stream, bytes: usize) -> Result<Self> {
        let (elements, ranks) = (bytes / size_of::<bf16>(), communicator.ranks() as usize);
        let random = input::<bf16>(Family::Normal, communicator.rank().into(), elements.min(1 << 20));
        let mut data: Vec<bf16> = Vec::with_capacity(elements);
        while data.len() < elements {
            data.extend_from_slice(&random[..random.len().min(elements - data.len())]);
        }
        let full = DeviceBuffer::from_slice(stream, &data)?;
        let part = DeviceBuffer::from_slice(stream, &data[..elements / ranks])?;
        Ok(Rank { communicator, full, part })
    }

    fn call(&mut self, op: Op, stream: &Stream) -> Result<()> {
        let Rank { communicator, full, part } = self;
        match op {
            Op::AllReduce => communicator.all_reduce(stream, Reduction::Mean, full),
            Op::ReduceScatter => communicator.reduce_scatter(stream, Reduction::Sum, &*full, part),
            Op::AllGather => communicator.all_gather(stream, &*part, full),
            Op::Broadcast => communicator.broadcast(stream, 0, full),
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
        let rank = Rank::new(communicator, stream, bytes)?;
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
    let how = if in_graph { "graph" } else { "eager" };
    let (name, shape) = (op.name(), format!("{bytes} B x {} ranks {how}", devices.len()));
    if !session.wants(&format!("{name}/{shape}")) {
        return Ok(());
    }
    let work = Work::Bytes(op.bus_bytes(bytes, devices.len()));
    let peer = json!({ "prepare": format!("collectives.{name}"), "bytes": bytes, "graph": in_graph });
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
            session.measure_groups(name, &shape, work, &[peer], if in_graph { CALLS } else { 1 }, |_| {
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
