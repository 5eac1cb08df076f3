//! Random sequences of collectives over random groups against a model.

use ironwarp::parallel::{Communicator, Group, Reduction};
use ironwarp::{Device, DeviceBuffer, Result, Stream};
use testkit::Random;

use crate::devices;

/// The buffers of all ranks, as the model has them.
struct Model {
    values: Vec<Vec<i64>>,
}

/// A step of a sequence. Every rank draws the same.
#[derive(Debug, Clone, Copy)]
enum Step {
    AllReduce(Reduction),
    ReduceScatterAndGather,
    Broadcast(usize),
    AllToAll,
    Send { from: usize, to: usize },
    Barrier,
}

fn draw(random: &mut Random, ranks: usize) -> Step {
    let rank = |random: &mut Random| random.integer(0, ranks as i64 - 1) as usize;
    match random.integer(0, 6) {
        0 => Step::AllReduce(Reduction::Sum),
        1 => Step::AllReduce(Reduction::Max),
        2 => Step::ReduceScatterAndGather,
        3 => Step::Broadcast(rank(random)),
        4 => Step::AllToAll,
        5 => {
            let from = rank(random);
            Step::Send { from, to: (from + 1 + random.integer(0, ranks as i64 - 2) as usize) % ranks }
        }
        _ => Step::Barrier,
    }
}

impl Model {
    fn apply(&mut self, step: Step, count: usize) {
        let ranks = self.values.len();
        let before = self.values.clone();
        match step {
            Step::AllReduce(_) | Step::ReduceScatterAndGather => {
                for place in 0..count {
                    let all = before.iter().map(|values| values[place]);
                    let result = match step {
                        Step::AllReduce(Reduction::Max) => all.max().expect("at least one rank"),
                        _ => all.fold(0, i64::wrapping_add),
                    };
                    self.values.iter_mut().for_each(|values| values[place] = result);
                }
            }
            Step::Broadcast(root) => {
                self.values
                    .iter_mut()
                    .for_each(|values| values[..count].copy_from_slice(&before[root][..count]));
            }
            Step::AllToAll => {
                let each = count / ranks;
                for (rank, values) in self.values.iter_mut().enumerate() {
                    for (from, given) in before.iter().enumerate() {
                        let part = &given[rank * each..(rank + 1) * each];
                        values[from * each..(from + 1) * each].copy_from_slice(part);
                    }
                }
            }
            Step::Send { from, to } => self.values[to][..count].copy_from_slice(&before[from][..count]),
            Step::Barrier => {}
        }
    }
}

/// A rank's part of a step, on the first `count` elements from `start` on.
fn act(
    rank: &mut Communicator,
    stream: &Stream,
    step: Step,
    x: &mut DeviceBuffer<i64>,
    start: usize,
    count: usize,
) -> Result<()> {
    let me = rank.rank() as usize;
    let range = start..start + count;
    let ranks = rank.ranks() as usize;
    match step {
        Step::AllReduce(reduction) => rank.all_reduce(stream, reduction, x.view_mut().slice_mut(range)?),
        Step::ReduceScatterAndGather => {
            let mut part = DeviceBuffer::<i64>::zeroed(stream, count / ranks)?;
            rank.reduce_scatter(stream, Reduction::Sum, x.slice(range.clone())?, &mut part)?;
            rank.all_gather(stream, &part, x.view_mut().slice_mut(range)?)
        }
        Step::Broadcast(root) => rank.broadcast(stream, root as u32, x.view_mut().slice_mut(range)?),
        Step::AllToAll => {
            let given = DeviceBuffer::from_slice(stream, &x.slice(range.clone())?.to_vec(stream)?)?;
            rank.all_to_all(stream, &given, x.view_mut().slice_mut(range)?)
        }
        Step::Send { from, to } if me == from => rank.send(stream, to as u32, x.slice(range)?),
        Step::Send { from, to } if me == to => {
            rank.receive(stream, from as u32, x.view_mut().slice_mut(range)?)
        }
        Step::Send { .. } => Ok(()),
        Step::Barrier => rank.barrier(stream),
    }
}

/// Elements of a rank.
const LENGTH: usize = 3000;

fn sequence(devices: &[Device], seed: u64, steps: usize) -> Result<()> {
    let ranks = devices.len();
    let initial = |rank: usize| {
        let mut random = Random::new(seed << 8 | rank as u64);
        (0..LENGTH).map(|_| random.bits() as i64).collect::<Vec<i64>>()
    };
    let results = Group::open(devices)?.run(|mut rank| {
        // Two streams: calls of one communicator stay in order.
        let streams = [rank.device().stream()?, rank.device().stream()?];
        let mut x = DeviceBuffer::from_slice(&streams[0], &initial(rank.rank() as usize))?;
        let mut random = Random::new(seed);
        for _ in 0..steps {
            let step = draw(&mut random, ranks);
            let count = random.integer(0, (LENGTH / ranks) as i64 - 1) as usize * ranks;
            let start = random.integer(0, (LENGTH - count) as i64 - 1) as usize;
            let stream = &streams[random.integer(0, 1) as usize];
            act(&mut rank, stream, step, &mut x, start, count)?;
        }
        streams.iter().try_for_each(|stream| rank.synchronize(stream))?;
        x.to_vec(&streams[0])
    })?;
    let mut model = Model { values: (0..ranks).map(initial).collect() };
    let mut random = Random::new(seed);
    let mut done = Vec::new();
    for _ in 0..steps {
        let step = draw(&mut random, ranks);
        let count = random.integer(0, (LENGTH / ranks) as i64 - 1) as usize * ranks;
        let start = random.integer(0, (LENGTH - count) as i64 - 1) as usize;
        random.integer(0, 1);
        let mut part =
            Model { values: model.values.iter().map(|x| x[start..start + count].to_vec()).collect() };
        part.apply(step, count);
        for (all, part) in model.values.iter_mut().zip(part.values) {
            all[start..start + count].copy_from_slice(&part);
        }
        done.push((step, start, count));
    }
    for (rank, (got, want)) in results.iter().zip(&model.values).enumerate() {
        let wrong = got.iter().zip(want).position(|(got, want)| got != want);
        assert_eq!(wrong, None, "seed {seed}, rank {rank} of {ranks}: {done:?}");
    }
    Ok(())
}

fn sequences(seeds: std::ops::Range<u64>, steps: usize) -> Result<()> {
    let Some(all) = devices(8)? else { return Ok(()) };
    for seed in seeds {
        let mut random = Random::new(seed ^ 0x5eed);
        let ranks = random.integer(2, all.len() as i64) as usize;
        let first = random.integer(0, (all.len() - ranks) as i64) as usize;
        sequence(&all[first..first + ranks], seed, steps)?;
    }
    Ok(())
}

#[test]
fn random_sequences() -> Result<()> {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "8");
    sequences(0..10, 20)
}

/// 10,000 collectives.
#[test]
#[ignore = "takes minutes"]
fn many_random_sequences() -> Result<()> {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "8");
    sequences(100..300, 50)
}
