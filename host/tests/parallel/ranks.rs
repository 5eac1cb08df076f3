//! Ranks that are processes: this program, started again with one test alone.

use std::process::{Child, Command, ExitStatus};

use ironwarp::parallel::{Communicator, GroupOptions};
use ironwarp::{Device, Result};
use ironwarp_rendezvous::{Client, Options, World};

/// Says in a process that it is a rank of a test.
const IS_RANK: &str = "PARALLEL_TEST_RANK";

/// Whether this process is a rank that a test has started.
pub fn is_rank() -> bool {
    std::env::var_os(IS_RANK).is_some()
}

/// A port that nobody has.
pub fn free_port() -> u16 {
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr());
    port.expect("a port is free").port()
}

/// A rank of a job: this program, with this test alone.
pub fn rank_of(test: &str, rank: usize, ranks: usize, port: u16) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a program knows where it is"));
    command.args([test, "--exact", "--include-ignored", "--nocapture", "--test-threads=1"]);
    command.env(IS_RANK, "1").env("TESTKIT_PROCESS", test);
    command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
    command.envs([("RANK", rank.to_string()), ("LOCAL_RANK", rank.to_string())]);
    command.env("WORLD_SIZE", ranks.to_string()).env("LOCAL_WORLD_SIZE", ranks.to_string());
    command
}

/// Starts the ranks of a job, with variables.
pub fn start(test: &str, ranks: usize, variables: &[(&str, &str)]) -> Vec<Child> {
    let port = free_port();
    let start = |rank: usize| {
        let mut command = rank_of(test, rank, ranks, port);
        command.envs(variables.iter().copied()).spawn().expect("this program can be started")
    };
    (0..ranks).map(start).collect()
}

/// Waits for all ranks; how each has ended.
pub fn ends(ranks: Vec<Child>) -> Vec<ExitStatus> {
    ranks.into_iter().map(|mut rank| rank.wait().expect("a child")).collect()
}

/// Starts so many ranks of a test, and waits until all have ended well.
pub fn all_end_well(test: &str, ranks: usize, variables: &[(&str, &str)]) {
    let ends = ends(start(test, ranks, variables));
    assert!(ends.iter().all(ExitStatus::success), "{ends:?}");
}

/// The job, as the environment says, and the rank's device.
pub fn place() -> Result<(World, Client, Device)> {
    let world = World::from_env().expect("the test has set it");
    let client = Client::join(&world, &Options::default()).expect("the others come");
    let device = Device::open(world.local_rank)?;
    Ok((world, client, device))
}

/// Joins the job as the rank that the environment says.
pub fn joined(options: GroupOptions) -> Result<(Client, Communicator)> {
    let (world, client, device) = place()?;
    let exchange = |name: &str, own: &[u8]| client.gather(name, own);
    let rank = Communicator::join(&device, world.rank, world.size, exchange, options)?;
    Ok((client, rank))
}
