//! Random sequences of collectives over random groups against a model.

use bytemuck::Pod;
use ironwarp::parallel::{Backend, Communicator, Group, GroupOptions, Reduction};
use ironwarp::tensor::Element;
use ironwarp::{Device, DeviceBuffer, Result, Stream};
use testkit::Random;

use crate::devices;

/// Elements of a rank. Every fourth sequence has many: kernels of several blocks, which are slow to simulate.
fn length(seed: u64) -> usize {
    if (seed / 4).is_multiple_of(4) { 3000 } else { 900 }
}

/// An element type, with the model's arithmetic. Ranks are combined in their order.
trait Number: Element + Pod {
    fn draw(random: &mut Random) -> Self;
    fn plus(self, other: Self) -> Self;
    fn larger(self, other: Self) -> Self;
    fn smaller(self, other: Self) -> Self;
}

macro_rules! integers {
    ($($ty:ty)*) => {
        $(impl Number for $ty {
            fn draw(random: &mut Random) -> Self {
                random.bits() as Self
            }
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            fn larger(self, other: Self) -> Self {
                self.max(other)
            }
            fn smaller(self, other: Self) -> Self {
                self.min(other)
            }
        })*
    };
}

integers!(i64 i32 u8);

impl Number for f32 {
    fn draw(random: &mut Random) -> Self {
        random.uniform(-1.0, 1.0) as Self
    }
    fn plus(self, other: Self) -> Self {
        self + other
    }
    fn larger(self, other: Self) -> Self {
        self.max(other)
    }
    fn smaller(self, other: Self) -> Self {
        self.min(other)
    }
}

#[derive(Debug, Clone, Copy)]
enum Action {
    /// By the plan of that number.
    AllReduce(Reduction, usize),
    ReduceScatterAndGather(Reduction),
    Broadcast(usize),
    AllToAll,
    Send {
        from: usize,
        to: usize,
    },
    Barrier,
}

/// The part of all ranks, on `count` elements from `start` on.
#[derive(Debug, Clone, Copy)]
struct Step {
    action: Action,
    start: usize,
    count: usize,
    stream: usize,
}

/// The steps of a sequence: every rank draws the same.
fn draw(seed: u64, ranks: usize) -> Vec<Step> {
    let random = &mut Random::new(seed);
    (0..random.integer(1, 6)).map(|_| draw_step(random, length(seed), ranks)).collect()
}

fn draw_step(random: &mut Random, length: usize, ranks: usize) -> Step {
    let mut below = |count: usize| random.integer(0, count as i64 - 1) as usize;
    let reduction = [Reduction::Sum, Reduction::Max, Reduction::Min][below(3)];
    let action = match below(6) {
        0 => Action::AllReduce(reduction, below(2)),
        1 => Action::ReduceScatterAndGather(reduction),
        2 => Action::Broadcast(below(ranks)),
        3 => Action::AllToAll,
        4 => {
            let from = below(ranks);
            Action::Send { from, to: (from + 1 + below(ranks - 1)) % ranks }
        }
        _ => Action::Barrier,
    };
    // A third of them in one unit or less, or of nothing.
    let most = if below(3) == 0 { 3 } else { length / ranks };
    let count = below(most) * ranks;
    Step { action, start: below(length - count), count, stream: below(2) }
}

fn initial<T: Number>(seed: u64, rank: usize) -> Vec<T> {
    let random = &mut Random::new(seed ^ (rank as u64 + 1) << 40);
    (0..length(seed)).map(|_| T::draw(random)).collect()
}

/// The buffer of each rank after a sequence, by the model.
fn expected<T: Number>(seed: u64, ranks: usize) -> Vec<Vec<u8>> {
    let mut values: Vec<Vec<T>> = (0..ranks).map(|rank| initial(seed, rank)).collect();
    for Step { action, start, count, .. } in draw(seed, ranks) {
        let before: Vec<Vec<T>> = values.iter().map(|values| values[start..start + count].to_vec()).collect();
        let each = count / ranks;
        for (rank, values) in values.iter_mut().enumerate() {
            let place = &mut values[start..start + count];
            match action {
                Action::AllReduce(reduction, _) | Action::ReduceScatterAndGather(reduction) => {
                    let combine = match reduction {
                        Reduction::Max => T::larger,
                        Reduction::Min => T::smaller,
                        _ => T::plus,
                    };
                    let all = |at: usize| before.iter().map(|values| values[at]).reduce(combine);
                    (0..count).for_each(|at| place[at] = all(at).expect("at least one rank"));
                }
                Action::Broadcast(root) => place.copy_from_slice(&before[root]),
                Action::AllToAll => {
                    let parts = before.iter().map(|values| &values[rank * each..][..each]);
                    place.copy_from_slice(&parts.flatten().copied().collect::<Vec<T>>());
                }
                Action::Send { from, to } if rank == to => place.copy_from_slice(&before[from]),
                Action::Send { .. } | Action::Barrier => {}
            }
        }
    }
    values.iter().map(|values| bytemuck::cast_slice(values).to_vec()).collect()
}

/// A rank's part of a sequence, and what it has then. Two streams: calls of one communicator stay in order.
fn play<T: Number>(rank: &mut Communicator, streams: &[Stream; 2], seed: u64) -> Result<Vec<u8>> {
    let mut x = DeviceBuffer::from_slice(&streams[0], &initial::<T>(seed, rank.rank() as usize))?;
    for step in draw(seed, rank.ranks() as usize) {
        act(rank, &streams[step.stream], step, &mut x)?;
    }
    streams.iter().try_for_each(|stream| rank.synchronize(stream))?;
    Ok(bytemuck::cast_slice(&x.to_vec(&streams[0])?).to_vec())
}

fn act<T: Number>(
    rank: &mut Communicator,
    stream: &Stream,
    Step { action, start, count, .. }: Step,
    x: &mut DeviceBuffer<T>,
) -> Result<()> {
    let (me, ranks) = (rank.rank() as usize, rank.ranks() as usize);
    let range = start..start + count;
    match action {
        Action::AllReduce(reduction, plan) => {
            let candidates = rank.candidates(count, T::DTYPE);
            let plan = candidates[plan % candidates.len()];
            rank.all_reduce_with(stream, reduction, x.view_mut().slice_mut(range)?, plan)
        }
        Action::ReduceScatterAndGather(reduction) => {
            let mut part = DeviceBuffer::<T>::zeroed(stream, count / ranks)?;
            rank.reduce_scatter(stream, reduction, x.slice(range.clone())?, &mut part)?;
            rank.all_gather(stream, &part, x.view_mut().slice_mut(range)?)
        }
        Action::Broadcast(root) => rank.broadcast(stream, root as u32, x.view_mut().slice_mut(range)?),
        Action::AllToAll => {
            let mut given = DeviceBuffer::<T>::zeroed(stream, count)?;
            given.view_mut().copy_from_device(stream, x.slice(range.clone())?)?;
            rank.all_to_all(stream, &given, x.view_mut().slice_mut(range)?)
        }
        Action::Send { from, to } if me == from => rank.send(stream, to as u32, x.slice(range)?),
        Action::Send { from, to } if me == to => {
            rank.receive(stream, from as u32, x.view_mut().slice_mut(range)?)
        }
        Action::Send { .. } => Ok(()),
        Action::Barrier => rank.barrier(stream),
    }
}

/// The functions of an element type: what a rank does, and what it then has to have.
type Functions =
    (fn(&mut Communicator, &[Stream; 2], u64) -> Result<Vec<u8>>, fn(u64, usize) -> Vec<Vec<u8>>);

/// Those of a sequence. NCCL adds up in an order of its own: only integers are then the same in any.
fn functions(seed: u64, backend: Option<Backend>) -> Functions {
    match seed % 4 {
        0 => (play::<i64>, expected::<i64>),
        1 => (play::<i32>, expected::<i32>),
        3 if backend != Some(Backend::Nccl) => (play::<f32>, expected::<f32>),
        _ => (play::<u8>, expected::<u8>),
    }
}

/// The end of a sequence of a rank.
pub struct Played {
    seed: u64,
    rank: usize,
    ranks: usize,
    got: Vec<u8>,
}

/// Several sequences in a random group: devices in any order, and in every second round those of them that
/// drew the same color.
pub fn round(all: &[Device], round: u64, sequences: u64, options: GroupOptions) -> Result<()> {
    let random = &mut Random::new(round ^ 0x5eed);
    let mut left = all.to_vec();
    let ranks = random.integer(2, all.len() as i64);
    let mut take = || left.swap_remove(random.integer(0, left.len() as i64 - 1) as usize);
    let chosen: Vec<Device> = (0..ranks).map(|_| take()).collect();
    let results = Group::with_options(&chosen, options)?
        .run(|rank| rounds_of(rank, round, sequences, options.backend))?;
    results.iter().flatten().for_each(|played| played.check(options.backend));
    Ok(())
}

/// A rank's part of a round.
pub fn rounds_of(
    mut rank: Communicator,
    round: u64,
    sequences: u64,
    backend: Option<Backend>,
) -> Result<Vec<Played>> {
    let mut own = Random::new(round << 8 | u64::from(rank.rank()));
    let (color, key) = (own.integer(0, 1) as u32, own.integer(-9, 9));
    let (color, child) = match round % 2 {
        0 => (color, rank.split(Some(color), key)?),
        _ => (0, None),
    };
    let mut rank = child.unwrap_or(rank);
    let streams = [rank.device().stream()?, rank.device().stream()?];
    let (me, ranks) = (rank.rank() as usize, rank.ranks() as usize);
    // A group of one has nobody to send to.
    let count = if ranks == 1 { 0 } else { sequences };
    let seeds = (0..count).map(|number| round << 24 | u64::from(color) << 16 | number);
    let play = |seed| {
        let got = functions(seed, backend).0(&mut rank, &streams, seed)?;
        Ok(Played { seed, rank: me, ranks, got })
    };
    seeds.map(play).collect()
}

impl Played {
    /// Whether the rank has what the model says.
    pub fn check(&self, backend: Option<Backend>) {
        let Played { seed, rank, ranks, ref got } = *self;
        let want = functions(seed, backend).1(seed, ranks).swap_remove(rank);
        let wrong = got.iter().zip(&want).position(|(got, want)| got != want);
        let is_right = wrong.is_none() && got.len() == want.len();
        assert!(is_right, "seed {seed:#x}, rank {rank} of {ranks}, byte {wrong:?}: {:?}", draw(seed, ranks));
    }
}

fn rounds(rounds: std::ops::Range<u64>, sequences: u64) -> Result<()> {
    let Some(all) = devices(8)? else { return Ok(()) };
    rounds.into_iter().try_for_each(|number| round(&all, number, sequences, GroupOptions::default()))
}

/// The rounds that `IRONWARP_ROUNDS` names, as in `50..100`, or all of them.
fn rounds_to_play(all: std::ops::Range<u64>) -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("IRONWARP_ROUNDS") else { return all };
    let part = text.split_once("..").and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    let part: std::ops::Range<u64> =
        part.unwrap_or_else(|| panic!("IRONWARP_ROUNDS={text}, wanted FROM..TO"));
    assert!(
        all.start <= part.start && part.start < part.end && part.end <= all.end,
        "{part:?} is not in {all:?}"
    );
    part
}

#[test]
fn random_sequences() -> Result<()> {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "8");
    rounds(0..4, 5)
}

/// 10,000 sequences, and those of second groups that splits make: 200 rounds. `IRONWARP_ROUNDS=4..24` plays a
/// part of them, so that several machines, or runs behind each other, share them out.
#[test]
#[ignore = "takes 23 minutes of one core"]
fn ten_thousand_random_sequences() -> Result<()> {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "8");
    rounds(rounds_to_play(4..204), 50)
}
