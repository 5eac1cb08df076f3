//! Why a job failed, as every rank is told.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Why a job failed, as every rank is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The kind of failure.
    pub cause: Cause,
    /// The ranks that caused it, in order.
    pub ranks: Vec<RankReport>,
    /// The operation that others were waiting in, or what the rank that aborted said.
    pub detail: String,
}

/// The kind of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The rank's connection closed without a word: its process ended or was killed.
    Died,
    /// The rank sends no signs of life: it is stopped, or its machine or network is gone.
    Silent,
    /// The rank lives and did not come to an operation in time.
    Late,
    /// The rank never joined.
    Missing,
    /// The rank left although others need it.
    Left,
    /// The rank does another operation than the others.
    Mismatch,
    /// The rank, or the launcher for it, ended the job.
    Aborted,
    /// The rank sent bytes that are no message.
    Garbled,
    /// The store itself is gone: its process ended, is stopped, or cannot be reached.
    StoreLost,
}

/// A rank as the store knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankReport {
    /// The rank.
    pub rank: u32,
    /// How long ago it was last heard of, in milliseconds. Nothing if it never was.
    pub silent_ms: Option<u64>,
    /// The operation that it said it was in, when it was last heard of.
    pub operation: String,
}

impl RankReport {
    /// How long ago the rank was last heard of.
    pub fn silent(&self) -> Option<Duration> {
        self.silent_ms.map(Duration::from_millis)
    }
}

impl Failure {
    /// The ranks that caused it.
    pub fn culprits(&self) -> impl Iterator<Item = u32> + '_ {
        self.ranks.iter().map(|report| report.rank)
    }
}

/// Ranks that a sentence names.
const NAMED: usize = 4;

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.cause {
            Cause::Died => "ended without a word",
            Cause::Silent => "is silent: stopped, or cut off",
            Cause::Late => "is late",
            Cause::Missing => "never joined",
            Cause::Left => "left while others need it",
            Cause::Mismatch => "does something else",
            Cause::Aborted => "ended the job",
            Cause::Garbled => "sent bytes that are no message",
            Cause::StoreLost => return write!(out, "the store of the job is gone: {}", self.detail),
        };
        if self.ranks.is_empty() {
            write!(out, "the launcher ended the job")?;
        }
        for (index, report) in self.ranks.iter().take(NAMED).enumerate() {
            let comma = if index > 0 { "; " } else { "" };
            write!(out, "{comma}rank {} {what}", report.rank)?;
            if let Some(silent) = report.silent() {
                write!(out, ", last heard of {:.1} s ago", silent.as_secs_f64())?;
            }
            if !report.operation.is_empty() {
                write!(out, ", last operation: {}", report.operation)?;
            }
        }
        if self.ranks.len() > NAMED {
            write!(out, "; and {} more", self.ranks.len() - NAMED)?;
        }
        if self.detail.is_empty() { Ok(()) } else { write!(out, " ({})", self.detail) }
    }
}

impl std::error::Error for Failure {}
