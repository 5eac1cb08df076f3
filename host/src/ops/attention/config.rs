//! Which kernel computes a problem, and why.

use std::fmt;

use crate::ops::tuning::Source;

use super::problem::Problem;

/// A configuration: a kernel of the forward or the backward pass, which has one shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Config {
    pub(super) name: &'static str,
    pub(super) head: u32,
    pub(super) value_head: u32,
    pub(super) block: [u32; 2],
}

impl Config {
    /// Name of the kernel function.
    pub fn name(self) -> &'static str {
        self.name
    }

    /// The largest head size of queries and keys that the kernel computes.
    pub fn head_size(self) -> u32 {
        self.head
    }

    /// The largest head size of values.
    pub fn value_size(self) -> u32 {
        self.value_head
    }

    /// Queries and keys of a tile of scores.
    pub fn block(self) -> [u32; 2] {
        self.block
    }
}

/// As in `attention_bf16_128, 128 queries by 128 keys`.
impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [queries, keys] = self.block();
        write!(f, "{}, {queries} queries by {keys} keys", self.name())
    }
}

/// A configuration that can do a problem.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// The configuration.
    pub config: Config,
    /// How long it should take, microseconds: an estimate, not a promise.
    pub estimate_us: f64,
    /// The reason for it.
    pub why: &'static str,
}

/// A kernel that cannot do a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rejection {
    /// The kernel.
    pub kernel: &'static str,
    /// Why not.
    pub why: &'static str,
}

/// The configuration chosen for a problem, and why. `Display` tells it all.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// The problem.
    pub problem: Problem,
    /// The configuration that computes it.
    pub config: Config,
    /// Why that one.
    pub why: &'static str,
    /// Whether it was measured.
    pub source: Source,
    /// Every configuration that can do it, the likely fastest first.
    pub candidates: Vec<Candidate>,
    /// The kernels that cannot.
    pub rejections: Vec<Rejection>,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Choice { problem, config, why, source, candidates, rejections } = self;
        writeln!(f, "{problem}\n  by {config}: {why}\n  {source}")?;
        for Candidate { config, estimate_us, why } in candidates {
            writeln!(f, "  can: {config}, about {estimate_us:.1} us: {why}")?;
        }
        rejections.iter().try_for_each(|Rejection { kernel, why }| writeln!(f, "  cannot: {kernel}: {why}"))
    }
}
