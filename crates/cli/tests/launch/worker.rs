//! The work of a rank. It begins in a test of this program, and ends the process.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::process::exit;
use std::time::Duration;

use checkpoint::{Checkpoints, DType, Part, Report, share};
use rendezvous::{Client, Options, World};

/// The test that a rank's process runs.
pub const TEST: &str = "worker::a_task_that_nobody_knows_is_an_error";
/// The variable with the task.
pub const TASK: &str = "LAUNCH_TEST_TASK";

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

#[test]
fn a_task_that_nobody_knows_is_an_error() {
    if let Ok(task) = env::var(TASK) {
        let code = match run(&task) {
            Ok(()) => 0,
            Err(error) => {
                eprintln!("worker: {error}");
                3
            }
        };
        exit(code);
    }
    assert!(run("juggle").is_err());
}

fn run(task: &str) -> Result<()> {
    match task.split(' ').collect::<Vec<_>>()[..] {
        ["wait"] => wait(),
        ["train", steps] => train(steps.parse()?, 0),
        ["train", steps, "killed", kills] => train(steps.parse()?, kills.parse()?),
        _ => Err(format!("no task {task:?}").into()),
    }
}

/// Says its process's number in a file, and meets the others until somebody ends it.
fn wait() -> Result<()> {
    let client = Client::join(&World::from_env()?, &Options::default())?;
    say_number(client.world())?;
    meet_until_killed(&client)
}

/// Writes the process's number, so that a test finds whom to kill.
fn say_number(world: &World) -> Result<()> {
    Ok(fs::write(format!("pid-{}-{}", world.generation, world.rank), std::process::id().to_string())?)
}

fn meet_until_killed(client: &Client) -> Result<()> {
    for _ in 0..3000 {
        client.barrier("wait")?;
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

const ELEMENTS: u64 = 1000;
/// Sums are of blocks of so many elements, so that they do not depend on the number of ranks.
const BLOCK: u64 = 50;
const SAVE_EVERY: u64 = 4;

/// A rank's share of a state of two arrays.
struct Shard {
    begin: u64,
    value: Vec<f32>,
    momentum: Vec<f32>,
}

impl Shard {
    /// Shares end where blocks do.
    fn range(world: &World) -> std::ops::Range<u64> {
        let blocks = share(ELEMENTS / BLOCK, world.rank, world.size);
        blocks.start * BLOCK..blocks.end * BLOCK
    }

    fn new(world: &World) -> Self {
        let range = Self::range(world);
        let value = range.clone().map(|i| (i as f32 * 0.37).sin()).collect();
        Self { begin: range.start, value, momentum: vec![0.0; (range.end - range.start) as usize] }
    }

    /// The newest whole checkpoint, on which rank 0 decides.
    fn restore(client: &Client, checkpoints: &Checkpoints) -> Result<(u64, Self)> {
        let world = client.world();
        if world.rank == 0 {
            let newest = checkpoints.newest_whole()?.map_or(0, |newest| newest.step());
            client.set("resume", &newest.to_le_bytes())?;
        }
        let step = u64::from_le_bytes(client.get("resume", client.timeout())?[..].try_into()?);
        if step == 0 {
            return Ok((0, Self::new(world)));
        }
        let (range, newest) = (Self::range(world), checkpoints.open(step)?);
        let read = |name| Ok::<_, checkpoint::Error>(numbers(&newest.read(name, range.clone())?));
        Ok((step, Self { begin: range.start, value: read("value")?, momentum: read("momentum")? }))
    }

    fn step(&mut self, client: &Client, step: u64) -> Result<()> {
        let sums: Vec<f32> = self.value.chunks(BLOCK as usize).map(|block| block.iter().sum()).collect();
        let blobs = client.gather("sums", &bytes(&sums))?;
        let mean = numbers(&blobs.concat()).iter().sum::<f32>() / ELEMENTS as f32;
        for (i, (value, momentum)) in self.value.iter_mut().zip(&mut self.momentum).enumerate() {
            let place = (self.begin + i as u64) as f32;
            let gradient = *value - mean + ((place + step as f32) * 0.11).cos();
            *momentum = 0.9 * *momentum + gradient;
            *value -= 0.01 * *momentum;
        }
        Ok(())
    }

    fn save(&self, client: &Client, checkpoints: &Checkpoints, step: u64) -> Result<()> {
        let world = client.world();
        let (value, momentum) = (bytes(&self.value), bytes(&self.momentum));
        let part = |name, bytes| Part::new(name, DType::F32, &[ELEMENTS], Self::range(world), bytes);
        let report = checkpoints.write(
            step,
            world.rank,
            world.size,
            &[part("value", &value), part("momentum", &momentum)],
        )?;
        let reports = client.gather("reports", &report.to_bytes())?;
        if world.rank == 0 {
            let reports: Vec<Report> = reports
                .iter()
                .map(|bytes| Report::from_bytes(bytes))
                .collect::<std::result::Result<_, _>>()?;
            checkpoints.commit(step, &reports, &BTreeMap::new())?;
            checkpoints.keep_last(2)?;
        }
        Ok(client.barrier("saved")?)
    }
}

/// Trains to `steps`. A generation below `kills` does not end by itself.
fn train(steps: u64, kills: u32) -> Result<()> {
    let client = Client::join(&World::from_env()?, &Options::default())?;
    let (world, checkpoints) = (client.world(), Checkpoints::new("checkpoints"));
    let (begin, mut shard) = Shard::restore(&client, &checkpoints)?;
    say_number(world)?;
    for step in begin..steps {
        shard.step(&client, step)?;
        if (step + 1) % SAVE_EVERY == 0 {
            shard.save(&client, &checkpoints, step + 1)?;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    if world.generation < kills {
        return meet_until_killed(&client);
    }
    let all = client.gather("end", &[bytes(&shard.value), bytes(&shard.momentum)].concat())?;
    if world.rank == 0 {
        // The shares in order: all values, then all momenta.
        let half = |second: bool| {
            all.iter().map(move |blob| &blob[blob.len() / 2 * usize::from(second)..][..blob.len() / 2])
        };
        fs::write("final", half(false).chain(half(true)).collect::<Vec<_>>().concat())?;
        println!("begun at {begin}");
    }
    Ok(())
}

fn bytes(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn numbers(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]])).collect()
}
