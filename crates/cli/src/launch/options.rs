//! The command line of `launch`.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use rendezvous::world::names;
use rendezvous::{Address, JOIN_TIMEOUT, TIMEOUT, Token};

use crate::error::Error;

/// Processes of a node, and nodes: more is a slip of the finger.
const MOST_RANKS: u32 = 4096;
const MOST_NODES: u32 = 4096;
/// The longest time in seconds: a year.
const LONGEST: f64 = 365.0 * 24.0 * 3600.0;
const GRACE: Duration = Duration::from_secs(5);

/// A job as the command line describes it.
pub struct Job {
    pub program: OsString,
    pub args: Vec<OsString>,
    /// Processes of this node.
    pub ranks: u32,
    pub nodes: u32,
    pub node: u32,
    /// Where launchers meet, if there are several.
    pub address: Option<Address>,
    pub restarts: u32,
    pub timeout: Duration,
    pub join_timeout: Duration,
    pub grace: Duration,
    pub records: PathBuf,
    pub json: bool,
    /// The text of the job's token.
    pub secret: String,
}

impl Job {
    pub fn parse(mut args: lexopt::Parser) -> Result<Self, Error> {
        use lexopt::prelude::*;
        let mut options: Vec<OsString> = args.raw_args()?.collect();
        let end = options.iter().position(|word| word == "--").unwrap_or(options.len());
        let mut command = options.split_off(end).into_iter().skip(1);
        let mut args = lexopt::Parser::from_args(options);
        let (mut ranks, mut nodes, mut node, mut address, mut restarts) = (None, None, None, None, 0);
        let (mut timeout, mut join_timeout, mut grace) = (TIMEOUT, JOIN_TIMEOUT, GRACE);
        let (mut records, mut json) = (None, false);
        while let Some(arg) = args.next()? {
            match arg {
                Short('n') | Long("ranks") => ranks = Some(number(args.value()?, "--ranks", 1..=MOST_RANKS)?),
                Long("nodes") => nodes = Some(number(args.value()?, "--nodes", 1..=MOST_NODES)?),
                Long("node-rank") => node = Some(number(args.value()?, "--node-rank", 0..=MOST_NODES - 1)?),
                Long("address") => address = Some(args.value()?.parse_with(str::parse::<Address>)?),
                Long("restarts") => restarts = number(args.value()?, "--restarts", 0..=1_000_000)?,
                Long("timeout") => timeout = seconds(args.value()?, "--timeout")?,
                Long("join-timeout") => join_timeout = seconds(args.value()?, "--join-timeout")?,
                Long("grace") => grace = seconds(args.value()?, "--grace")?,
                Long("records") => records = Some(PathBuf::from(args.value()?)),
                Long("json") => json = true,
                Value(value) => {
                    return Err(Error::Usage(format!("{value:?}: program and arguments go behind `--`")));
                }
                other => return Err(other.unexpected().into()),
            }
        }
        let usage = |text: &str| Error::Usage(text.to_owned());
        let ranks = ranks.ok_or_else(|| usage("how many processes? `-n N` says it"))?;
        let program = command.next().filter(|program| !program.is_empty());
        let program = program.ok_or_else(|| usage("no program; it comes behind `--`"))?;
        let nodes = nodes.unwrap_or(1);
        if nodes == 1 && (node.unwrap_or(0) > 0 || address.is_some()) {
            return Err(usage("--node-rank and --address are for --nodes above 1"));
        }
        let (node, secret) = if nodes > 1 {
            let node = node.filter(|&node| node < nodes && address.is_some());
            let node = node.ok_or_else(|| usage("--nodes needs --address, and --node-rank below it"))?;
            let secret = env::var(names::TOKEN).ok().filter(|secret| !secret.is_empty());
            let fix = format!("several nodes need the same secret in the variable {}", names::TOKEN);
            (node, secret.ok_or_else(|| Error::Usage(fix))?)
        } else {
            (0, random()?)
        };
        let records = match records {
            Some(folder) => std::path::absolute(&folder).map_err(Error::io("find", &folder))?,
            None => temporary()?,
        };
        Ok(Self {
            program,
            args: command.collect(),
            ranks,
            nodes,
            node,
            address,
            restarts,
            timeout,
            join_timeout,
            grace,
            records,
            json,
            secret,
        })
    }
}

fn random() -> Result<String, Error> {
    Token::random_text().map_err(super::failed("draw a random number"))
}

/// A folder that no other job has, and that no other user can foresee and make first. It is made when
/// something is written there.
fn temporary() -> Result<PathBuf, Error> {
    Ok(env::temp_dir().join(format!("ironwarp-{}", &random()?[..16])))
}

fn number(value: OsString, option: &str, range: std::ops::RangeInclusive<u32>) -> Result<u32, Error> {
    let text = value.to_string_lossy();
    text.parse().ok().filter(|number| range.contains(number)).ok_or_else(|| {
        Error::Usage(format!(
            "{option} is {text:?}; wanted a number from {} to {}",
            range.start(),
            range.end()
        ))
    })
}

fn seconds(value: OsString, option: &str) -> Result<Duration, Error> {
    let text = value.to_string_lossy();
    let seconds = text.parse::<f64>().ok().filter(|seconds| *seconds > 0.0 && *seconds <= LONGEST);
    seconds.map(Duration::from_secs_f64).ok_or_else(|| {
        Error::Usage(format!("{option} is {text:?}; wanted seconds, more than 0 and at most a year"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_can_foresee_the_folder_of_a_job() {
        let (one, other) = (temporary().unwrap(), temporary().unwrap());
        assert!(one != other && one.starts_with(env::temp_dir()), "{}", one.display());
    }
}
