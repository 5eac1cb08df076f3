//! A rank of `moments`: it trains with the others, and may misbehave at one step.

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use driver::fault::{Rule, Times};
use ironwarp::parallel::checkpoint::{Checkpoints, Report, restore, save_shard};
use ironwarp::parallel::{Backend, Communicator, GroupOptions, Reduction};
use ironwarp::{Device, DeviceBuffer, Result, Stream, Tensor};
use ironwarp_rendezvous::{Client, Options, World};
use testkit::job::end;

/// How long ranks wait for each other, in calls and on the host.
pub const TIMEOUT: Duration = Duration::from_secs(3);
const STEPS: u64 = 48;
/// A step takes about so long, and there is a checkpoint behind every eighth.
const PAUSE: Duration = Duration::from_millis(10);
const SAVE_EVERY: u64 = 8;
/// Elements that travel with their flags, and that pass through stages.
const SMALL: usize = 900;
const LARGE: usize = 40_000;
/// More than a software device has.
const TOO_MUCH: usize = 1 << 50;

/// The exit code of a rank that has got an error, which it then has said.
pub const SAID_ERROR: i32 = 3;
const VARIABLE: &str = "MOMENTS_TEST_RANK";

/// A rank's misdeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trick {
    None,
    Slow,
    OutOfMemory,
    /// The driver refuses its part of a call.
    Refused,
    WrongCount,
    WrongType,
    Panics,
    Leaves,
}

const TRICKS: [Trick; 8] = [
    Trick::None,
    Trick::Slow,
    Trick::OutOfMemory,
    Trick::Refused,
    Trick::WrongCount,
    Trick::WrongType,
    Trick::Panics,
    Trick::Leaves,
];

/// The things that a rank is told.
pub struct Plan {
    pub trick: Trick,
    /// At which step.
    pub step: u64,
    /// For checkpoints, and what ranks have at the end.
    pub folder: PathBuf,
}

impl Plan {
    pub fn tell(&self, command: &mut Command) {
        command.env(VARIABLE, format!("{:?} {} {}", self.trick, self.step, self.folder.display()));
    }

    fn told() -> Self {
        let text = std::env::var(VARIABLE).expect("the test sets it");
        let mut words = text.splitn(3, ' ');
        let mut word = || words.next().expect("three words");
        let name = word();
        let trick = TRICKS.into_iter().find(|trick| format!("{trick:?}") == name).expect("a trick");
        Plan { trick, step: word().parse().expect("a number"), folder: word().into() }
    }

    /// A random step, but none of the first and the last.
    pub fn step(random: &mut testkit::Random) -> u64 {
        random.integer(1, STEPS as i64 - 2) as u64
    }
}

/// Says that a rank misbehaves now.
pub fn struck(folder: &Path) -> PathBuf {
    folder.join("struck")
}

/// The file with what a rank has at the end.
pub fn end_of(folder: &Path, rank: u32) -> PathBuf {
    folder.join(format!("end-{rank}"))
}

type Outcome<R> = std::result::Result<R, Box<dyn StdError>>;

/// Is a rank, and ends the process.
pub fn run() -> ! {
    let (code, said) = match train(&Plan::told()) {
        Ok(()) => (0, "done".to_owned()),
        Err(error) if error.is::<ironwarp::Error>() || error.is::<ironwarp_rendezvous::Error>() => {
            (SAID_ERROR, error.to_string())
        }
        Err(error) => (1, error.to_string()),
    };
    end(code, &said)
}

fn train(plan: &Plan) -> Outcome<()> {
    let world = World::from_env()?;
    let options = Options { timeout: Some(TIMEOUT), join_timeout: Some(TIMEOUT), records: None };
    let client = Client::join(&world, &options)?;
    steps(&client, plan).inspect_err(|error| _ = client.abort(&error.to_string()))
}

fn steps(client: &Client, plan: &Plan) -> Outcome<()> {
    let world = client.world();
    let device = Device::open(world.local_rank)?;
    let exchange = |name: &str, own: &[u8]| client.gather(name, own);
    let options = GroupOptions { timeout: TIMEOUT, backend: Some(Backend::PeerMemory) };
    let mut rank = Communicator::join(&device, world.rank, world.size, exchange, options)?;
    let fail = rank.failer();
    client.on_failure(move |failure| fail(&failure.to_string()));
    let stream = device.stream()?;
    let checkpoints = Checkpoints::new(plan.folder.join("checkpoints"));
    if world.rank == 0 {
        let newest = checkpoints.newest_whole().map_err(ironwarp::Error::from)?;
        client.set("resume", &newest.map_or(0, |newest| newest.step()).to_le_bytes())?;
    }
    let begin = u64::from_le_bytes(client.get("resume", TIMEOUT)?[..].try_into()?);
    let mut state: Vec<f32> = (0..LARGE).map(|at| (at as f32 * 0.37).sin()).collect();
    if begin > 0 {
        let checkpoint = checkpoints.open(begin).map_err(ironwarp::Error::from)?;
        let mut saved = Tensor::from_slice(&stream, &[LARGE], &state)?;
        restore(&stream, &checkpoint, "state", saved.view_mut()?)?;
        state = saved.to_vec(&stream)?;
    }
    for step in begin..STEPS {
        if step == plan.step && plan.trick != Trick::None {
            misbehave(&mut rank, &stream, plan)?;
        }
        if step == plan.step && plan.trick == Trick::Leaves {
            return Ok(());
        }
        let got = exchange_numbers(&mut rank, &stream, step, &state)?;
        state.iter_mut().zip(&got).for_each(|(state, got)| *state += 0.01 * got);
        if (step + 1) % SAVE_EVERY == 0 {
            let saved = Tensor::from_slice(&stream, &[LARGE], &state)?;
            save(client, &stream, &checkpoints, step + 1, &saved)?;
        }
        std::thread::sleep(PAUSE);
    }
    let bytes: &[u8] = bytemuck::cast_slice(&state);
    fs::write(end_of(&plan.folder, world.rank), bytes)?;
    drop(rank);
    Ok(client.barrier("end")?)
}

/// A call of the step's kind; the numbers that all ranks then have.
fn exchange_numbers(rank: &mut Communicator, stream: &Stream, step: u64, state: &[f32]) -> Result<Vec<f32>> {
    let (me, ranks) = (u64::from(rank.rank()), rank.ranks() as usize);
    let number = |(at, state): (usize, &f32)| ((at as u64 * 7 + step * 31 + me * 13) % 101) as f32 - state;
    let count = if step.is_multiple_of(2) { SMALL } else { LARGE };
    let own: Vec<f32> = state[..count].iter().enumerate().map(number).collect();
    let mut own = DeviceBuffer::from_slice(stream, &own)?;
    match step % 4 {
        0 | 1 => rank.all_reduce(stream, Reduction::Mean, &mut own)?,
        2 => {
            let mut all = DeviceBuffer::zeroed(stream, ranks * count)?;
            rank.all_gather(stream, &own, &mut all)?;
            own = all;
        }
        _ => rank.broadcast(stream, (step % ranks as u64) as u32, &mut own)?,
    }
    rank.synchronize(stream)?;
    own.to_vec(stream)
}

/// Saves the state, of which every rank writes a share.
fn save(
    client: &Client,
    stream: &Stream,
    checkpoints: &Checkpoints,
    step: u64,
    state: &Tensor,
) -> Outcome<()> {
    let world = client.world();
    let report = save_shard(stream, checkpoints, step, world.rank, world.size, &[("state", state)])?;
    let reports = client.gather("reports", &report.to_bytes())?;
    if world.rank == 0 {
        let reports = reports.iter().map(|bytes| Report::from_bytes(bytes)).collect::<Result<Vec<_>, _>>();
        let reports = reports.map_err(ironwarp::Error::from)?;
        checkpoints.commit(step, &reports, &BTreeMap::new()).map_err(ironwarp::Error::from)?;
        checkpoints.keep_last(2).map_err(ironwarp::Error::from)?;
    }
    Ok(client.barrier("saved")?)
}

/// Misbehaves. A rank that is slow goes on then.
fn misbehave(rank: &mut Communicator, stream: &Stream, plan: &Plan) -> Result<()> {
    fs::write(struck(&plan.folder), "").expect("a file can be written");
    match plan.trick {
        Trick::None | Trick::Leaves => Ok(()),
        Trick::Slow => {
            std::thread::sleep(TIMEOUT + Duration::from_secs(1));
            Ok(())
        }
        Trick::OutOfMemory => DeviceBuffer::<u8>::zeroed(stream, TOO_MUCH).map(drop),
        Trick::Refused => {
            let (function, code) = ("cuLaunchKernel", driver::code::OUT_OF_MEMORY);
            let rule = Rule { function, nth: 1, code, times: Times::Once };
            let mut x = DeviceBuffer::<f32>::zeroed(stream, SMALL)?;
            let _fault = driver::fault::scoped(&[rule]).expect("a rule that fits");
            rank.all_reduce(stream, Reduction::Sum, &mut x)
        }
        Trick::WrongCount => sum(rank, stream, DeviceBuffer::<f32>::zeroed(stream, SMALL + 1)?),
        Trick::WrongType => sum(rank, stream, DeviceBuffer::<i32>::zeroed(stream, SMALL)?),
        // The harness catches it, as it would any test's.
        Trick::Panics => panic!("as planned"),
    }
}

fn sum<T>(rank: &mut Communicator, stream: &Stream, mut x: DeviceBuffer<T>) -> Result<()>
where
    T: ironwarp::tensor::Element + bytemuck::Pod,
{
    rank.all_reduce(stream, Reduction::Sum, &mut x)?;
    rank.synchronize(stream)
}
