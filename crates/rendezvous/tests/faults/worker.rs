//! A rank: it adds up numbers with the others, and may misbehave at one step.

use std::env;
use std::process::{Command, exit};
use std::time::Duration;

use ironwarp_rendezvous::{Address, Client, Error, Options, Token};
use testkit::job::end;

pub const TOKEN: &str = "the token of these tests";
/// Longer than a busy machine keeps a process from running.
pub const TIMEOUT: Duration = Duration::from_millis(1500);
pub const STEPS: u32 = 120;
/// The longest that a job can take by itself.
pub const LONGEST: Duration = Duration::from_secs(6);
/// Exit codes.
pub const SAID_FAILURE: i32 = 3;
pub const EXITED: i32 = 5;
pub const PANICKED: i32 = 101;

const VARIABLE: &str = "RENDEZVOUS_TEST_WORKER";

/// A rank's misdeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trick {
    Exits,
    Leaves,
    WrongCount,
    Panics,
    Slow,
    WrongToken,
}

const TRICKS: &[Trick] =
    &[Trick::Exits, Trick::Leaves, Trick::WrongCount, Trick::Panics, Trick::Slow, Trick::WrongToken];

pub struct World {
    pub rank: u32,
    pub size: u32,
    pub port: u16,
}

pub struct Plan {
    pub trick: Option<Trick>,
    pub step: u32,
}

/// This program as a rank.
pub fn command(world: &World, plan: &Plan) -> Command {
    let trick = plan.trick.map_or_else(|| "none".to_owned(), |trick| format!("{trick:?}"));
    let job = format!("{} {} {} {trick} {}", world.rank, world.size, world.port, plan.step);
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([super::TEST, "--exact", "--nocapture"]).env(VARIABLE, job);
    command
}

/// Ends the process as a rank, if it was started as one.
pub fn run_if_asked() {
    let Ok(job) = env::var(VARIABLE) else { return };
    let words: Vec<&str> = job.split(' ').collect();
    let number = |at: usize| words[at].parse::<u32>().unwrap();
    let trick = TRICKS.iter().copied().find(|trick| format!("{trick:?}") == words[3]);
    let (code, said) = match rank(number(0), number(1), number(2) as u16, trick, number(4)) {
        Ok(()) => (0, "done".to_owned()),
        // A rank that joins when the job has failed already is told why, too.
        Err(error) => match error.failure() {
            Some(failure) => {
                (SAID_FAILURE, format!("{:?} {:?}", failure.cause, failure.culprits().collect::<Vec<_>>()))
            }
            None => (SAID_FAILURE, error.to_string()),
        },
    };
    end(code, &said)
}

fn rank(rank: u32, size: u32, port: u16, trick: Option<Trick>, at: u32) -> Result<(), Error> {
    let token = Token::from_text(if trick == Some(Trick::WrongToken) { "another" } else { TOKEN });
    let address = Address { host: "127.0.0.1".to_owned(), port };
    let alone = ironwarp_rendezvous::World::alone();
    let world = ironwarp_rendezvous::World {
        rank,
        size,
        local_rank: rank,
        address,
        token,
        rank_0_serves: false,
        ..alone
    };
    let options = Options { timeout: Some(TIMEOUT), join_timeout: Some(TIMEOUT), records: None };
    let client = Client::join(&world, &options)?;
    let mut sum = 0_u64;
    for step in 0..STEPS {
        let mut name = "sum u64[1]";
        match trick.filter(|_| step == at) {
            None | Some(Trick::WrongToken) => {}
            Some(Trick::Exits) => exit(EXITED),
            Some(Trick::Leaves) => return Ok(()),
            Some(Trick::WrongCount) => name = "sum u64[2]",
            // The harness catches it, as it would any test's.
            Some(Trick::Panics) => panic!("as planned"),
            Some(Trick::Slow) => std::thread::sleep(TIMEOUT + Duration::from_millis(500)),
        }
        let blobs = client.gather(name, &(sum + u64::from(rank)).to_le_bytes())?;
        let numbers = blobs.iter().map(|blob| u64::from_le_bytes(blob[..].try_into().unwrap()));
        sum = numbers.fold(0, u64::wrapping_add);
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
