//! The account of a job, as text and as JSON.

use std::io::{IsTerminal as _, stderr};
use std::process::ExitStatus;
use std::time::Duration;

use rendezvous::{Failure, first_difference, read_records};
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::options::Job;
use crate::error::{Error, plural};
use crate::print::bounded;
use crate::term::{Style, style};

/// How a start of the job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Ok,
    Failed,
    /// Somebody asked for it: with a signal, or by closing the output.
    Asked {
        code: u8,
        what: String,
    },
}

/// The rank, or the reason, that failed first.
pub struct First {
    pub rank: Option<u32>,
    pub why: String,
    /// The exit code for the launcher.
    pub code: u8,
    pub after: Duration,
    pub lines: Vec<String>,
}

/// A rank that has ended.
pub struct Ended {
    pub rank: u32,
    pub status: Option<ExitStatus>,
}

/// One start of the job.
pub struct Generation {
    pub generation: u32,
    pub took: Duration,
    pub outcome: Outcome,
    pub first: Option<First>,
    /// The store's view, on node 0.
    pub store_failure: Option<Failure>,
    pub ended: Vec<Ended>,
}

/// All starts.
pub struct Summary {
    size: u32,
    generations: Vec<Generation>,
    /// The first difference between the ranks' records, of each generation.
    differences: Vec<Option<String>>,
}

impl Summary {
    pub fn new(job: &Job, cluster: &Cluster) -> Self {
        if stderr().is_terminal() {
            let ranks = plural(job.ranks as usize, "rank");
            let others = if job.nodes > 1 {
                format!(" of {} on {} nodes", cluster.size, job.nodes)
            } else {
                String::new()
            };
            eprintln!("{} {ranks}{others}", style(Style::Dim, "ironwarp: starting"));
        }
        Self { size: cluster.size, generations: Vec::new(), differences: Vec::new() }
    }

    /// Notes how a start ended, and says why it failed.
    pub fn add(&mut self, job: &Job, generation: Generation) {
        let mut difference = None;
        if let Some(first) = &generation.first {
            let (records, errors) = read_records(&job.records, generation.generation, self.size);
            difference = first_difference(&records);
            say_failure(first, generation.store_failure.as_ref());
            if let Some(difference) = &difference {
                eprintln!("ironwarp: {}", bounded(difference));
            }
            errors.iter().for_each(|error| eprintln!("ironwarp: {}", bounded(&error.to_string())));
            if !records.is_empty() {
                let count = plural(records.len(), "flight record");
                eprintln!("ironwarp: {count} in {}", bounded(&job.records.display().to_string()));
            }
        }
        if let Outcome::Asked { what, .. } = &generation.outcome {
            eprintln!("ironwarp: ended, since {}", bounded(what));
        }
        self.generations.push(generation);
        self.differences.push(difference);
    }

    pub fn last(&self) -> Outcome {
        self.generations.last().map_or(Outcome::Ok, |generation| generation.outcome.clone())
    }

    pub fn print(&self, job: &Job, took: Duration) {
        if !job.json {
            return;
        }
        let outcome = match self.last() {
            Outcome::Ok => "ok",
            Outcome::Failed => "failed",
            Outcome::Asked { .. } => "interrupted",
        };
        let generations = self.generations.iter().zip(&self.differences);
        let generations: Vec<Value> =
            generations.map(|(generation, difference)| generation.json(difference.as_deref())).collect();
        let summary = json!({
            "outcome": outcome,
            "ranks": self.size,
            "nodes": job.nodes,
            "restarts": self.generations.len().saturating_sub(1),
            "seconds": took.as_secs_f64(),
            "records": job.records,
            "generations": generations,
        });
        println!("{summary:#}");
    }

    /// The launcher's own end.
    pub fn exit(&self) -> Result<(), Error> {
        match self.last() {
            Outcome::Ok => Ok(()),
            Outcome::Asked { code, .. } => Err(Error::Ended(code)),
            Outcome::Failed => {
                let first = self.generations.last().and_then(|generation| generation.first.as_ref());
                Err(Error::Ended(first.map_or(1, |first| first.code)))
            }
        }
    }
}

impl Generation {
    fn json(&self, difference: Option<&str>) -> Value {
        let first = self.first.as_ref().map(|first| {
            let seconds = first.after.as_secs_f64();
            json!({ "rank": first.rank, "why": first.why, "after_seconds": seconds, "last_lines": first.lines })
        });
        let ranks: Vec<Value> = self.ended.iter().map(Ended::json).collect();
        json!({
            "generation": self.generation,
            "seconds": self.took.as_secs_f64(),
            "first_failure": first,
            "store": self.store_failure,
            "first_difference": difference,
            "ranks": ranks,
        })
    }
}

impl Ended {
    fn json(&self) -> Value {
        use std::os::unix::process::ExitStatusExt as _;
        let code = self.status.and_then(|status| status.code());
        let signal = self.status.and_then(|status| status.signal());
        json!({ "rank": self.rank, "exit_code": code, "signal": signal })
    }
}

/// In front of everything that a restart prints.
pub fn say_restart(number: u32, of: u32) {
    eprintln!("ironwarp: restart {number} of {of}");
}

fn say_failure(first: &First, store: Option<&Failure>) {
    let who = match first.rank {
        Some(rank) => format!("rank {rank} failed first"),
        None => "the job failed".to_owned(),
    };
    let after = first.after.as_secs_f64();
    eprintln!("{} {who} after {after:.1} s: {}", style(Style::Fail, "ironwarp:"), bounded(&first.why));
    let operation = store.and_then(|failure| failure.ranks.first()).map(|report| report.operation.as_str());
    if let Some(operation) =
        operation.filter(|operation| !operation.is_empty() && !first.why.contains(operation))
    {
        eprintln!("ironwarp: its last operation was {}", bounded(operation));
    }
    if !first.lines.is_empty() {
        eprintln!("ironwarp: its last lines:");
        first.lines.iter().for_each(|line| eprintln!("  {}", bounded(line)));
    }
}
