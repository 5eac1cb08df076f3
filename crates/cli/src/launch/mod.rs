//! Starts the processes of a job, and sees that they live and die together.
//!
//! | file | |
//! |---|---|
//! | `options.rs` | the command line |
//! | `ranks.rs` | processes: started, signalled, reaped |
//! | `output.rs` | lines of all ranks on one terminal |
//! | `cluster.rs` | launchers of several nodes agree on starts and ends |
//! | `supervise.rs` | one start of the job, from its first process to its last |
//! | `report.rs` | what happened, as text and as JSON |

mod cluster;
mod options;
mod output;
mod ranks;
mod report;
mod signals;
mod supervise;

use std::time::Instant;

use crate::error::Error;
use crate::launch::cluster::Cluster;
use crate::launch::options::Job;
use crate::launch::ranks::Orphans;
use crate::launch::report::{Outcome, Summary};
use crate::launch::signals::Signals;

/// The help of `launch`.
pub const HELP: &str = "
Starts N processes of a program, tells each who it is, and puts its rank in front of each line that it prints.
When one fails, all others learn it and are ended; none is left behind. Programs find each other with the
package `ironwarp-rendezvous`; those written for torchrun find its variables too. GPUs are not divided: a
process takes that of its local rank. CUDA_VISIBLE_DEVICES stays as it is.

Usage: {program} launch -n N [OPTIONS] -- PROGRAM [ARGS]

Options:
  -n, --ranks N        processes on this node
  --restarts N         how often the job is started again after a failure; default 0
  --timeout S          seconds that a rank may be silent, or an operation may take; default 60
  --join-timeout S     seconds that ranks wait for each other at the beginning; default 300
  --grace S            seconds between asking processes to end and killing them; default 5
  --records FOLDER     where ranks write the record of their last operations when the job fails;
                       default: a new folder for temporary files
  --json               print a summary as JSON; the ranks' output goes to standard error
  --nodes N            machines of the job; start the command on each, with
  --node-rank R          its number, from 0,
  --address HOST:PORT    a free port of node 0, the same on all,
                         and the same secret in the variable IRONWARP_TOKEN

Exit code: that of the rank that failed first, 128 plus the signal's number if one killed it.

Examples:
  {program} launch -n 4 -- target/release/train
  {program} launch -n 8 --restarts 3 --timeout 30 -- target/release/train --resume
  IRONWARP_TOKEN=secret {program} launch -n 8 --nodes 2 --node-rank 1 --address 10.0.0.1:4000 -- ./train
";

/// Runs the command. In the end it kills every child of this process that is left.
///
/// # Errors
/// For a wrong call, a program that cannot be started, or a node that is lost; [`Error::Ended`] with the exit
/// code when a rank failed, which has been said.
pub fn run(args: lexopt::Parser) -> Result<(), Error> {
    let job = Job::parse(args)?;
    let signals = Signals::catch().map_err(failed("catch signals"))?;
    let orphans = Orphans::adopt().map_err(failed("become the parent of what processes leave behind"))?;
    let begun = Instant::now();
    let cluster = Cluster::join(&job)?;
    let mut summary = Summary::new(&job, &cluster);
    for generation in 0..=job.restarts {
        let outcome = supervise::generation(&job, &cluster, &signals, &orphans, generation)?;
        summary.add(&job, outcome);
        match summary.last() {
            Outcome::Failed if generation < job.restarts => report::say_restart(generation + 1, job.restarts),
            _ => break,
        }
    }
    summary.print(&job, begun.elapsed());
    summary.exit()
}

/// Adapter for `map_err`: the system refused something that this command cannot do without.
fn failed(action: &'static str) -> impl FnOnce(std::io::Error) -> Error {
    move |source| Error::Other(format!("cannot {action}: {source}").into())
}

/// Adapter for `map_err`: the job's store.
fn of_store(error: rendezvous::Error) -> Error {
    Error::Other(Box::new(error))
}
