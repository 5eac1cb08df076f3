//! The rules of this repository that a command found broken.

use crate::error::{Error, plural};

/// A finding of the commands that only this repository has.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// Kernels use more than they may.
    #[error("{} over the budget or without a line in it:\n{}\nfix: make them smaller, or accept the new figures with `cargo xtask build-kernels --update-budget` and give spills a reason", plural(.0.len(), "finding"), list(.0))]
    Budget(Vec<String>),
    /// The tree breaks its rules.
    #[error("{} of the source tree:\n{}", plural(.0.len(), "broken invariant"), list(.0))]
    Tidy(Vec<String>),
    /// The bundle is larger than it may be.
    #[error("the bundle has {mib} MiB; wanted at most {limit} MiB.\nfix: the largest files are {largest}")]
    BundleTooLarge { mib: u64, limit: u64, largest: String },
}

fn list(findings: &[String]) -> String {
    findings.iter().map(|finding| format!("  {finding}")).collect::<Vec<_>>().join("\n")
}

impl From<Broken> for Error {
    fn from(broken: Broken) -> Self {
        Self::Other(Box::new(broken))
    }
}
