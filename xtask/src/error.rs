//! Why a command failed, and what to do about it.

use std::path::PathBuf;

use cuda_builder::ptxas::PtxasError;
use cuda_builder::{BuildError, ToolchainError};

/// A failed command. The text is all that the user sees.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The first argument is no command.
    #[error("no command {name:?}{}\nfix: `cargo xtask --help` lists the commands", .nearest.as_ref().map(|nearest| format!("; did you mean `{nearest}`?")).unwrap_or_else(|| ".".to_owned()))]
    UnknownCommand { name: String, nearest: Option<String> },
    /// The options do not parse.
    #[error("{0}.\nfix: `--help` after the command shows its options")]
    Usage(String),
    /// A name that is not among those there are.
    #[error("no {what} {name:?}{}\nthere are: {known}", .nearest.as_ref().map(|nearest| format!("; did you mean `{nearest}`?")).unwrap_or_else(|| ".".to_owned()))]
    Unknown { what: &'static str, name: String, nearest: Option<String>, known: String },
    /// The device compiler is missing or does not fit.
    #[error(transparent)]
    Toolchain(#[from] ToolchainError),
    /// A kernel package did not become PTX.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The assembler refused a module.
    #[error(transparent)]
    Ptxas(#[from] PtxasError),
    /// Several modules failed.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n\n"))]
    Several(Vec<Error>),
    /// Kernels use more than they may.
    #[error("{} over the budget or without a line in it:\n{}\nfix: make them smaller, or accept the new figures with `cargo xtask build-kernels --update-budget` and give spills a reason", plural(.0.len(), "finding"), .0.iter().map(|finding| format!("  {finding}")).collect::<Vec<_>>().join("\n"))]
    Budget(Vec<String>),
    /// A file of the workspace does not parse, such as the budget.
    #[error("{}: {reason}", .path.display())]
    BadFile { path: PathBuf, reason: String },
    /// The tree breaks its rules.
    #[error("{} of the source tree:\n{}", plural(.0.len(), "broken invariant"), .0.iter().map(|finding| format!("  {finding}")).collect::<Vec<_>>().join("\n"))]
    Tidy(Vec<String>),
    /// A program failed; its own output says why.
    #[error("`{command}` failed ({status})")]
    Failed { command: String, status: String },
    /// A program that the command has become failed, and has told the user why.
    #[error("ended with exit code {0}")]
    Ended(u8),
    /// The folder that the command was called in is gone.
    #[error("the current folder cannot be used: {0}.\nfix: `cd` to a folder that exists")]
    NoCurrentFolder(std::io::Error),
    /// A program could not be started.
    #[error("cannot run `{command}`: {source}.\nfix: {fix}")]
    CannotRun { command: String, source: std::io::Error, fix: String },
    /// A file could not be used.
    #[error("cannot {action} {}: {source}", .path.display())]
    Io { action: &'static str, path: PathBuf, source: std::io::Error },
    /// Something could not be installed.
    #[error("cannot install {what}: {reason}.\nfix: {fix}")]
    Install { what: &'static str, reason: String, fix: String },
    /// Something is there and does not work.
    #[error("{what} cannot be used: {reason}.\nfix: {fix}")]
    Unusable { what: &'static str, reason: String, fix: String },
    /// Steps of a longer command failed; each has been reported already.
    #[error("{} failed: {}", plural(.0.len(), "step"), .0.join(", "))]
    Steps(Vec<String>),
    /// The bundle is larger than it may be.
    #[error("the bundle has {mib} MiB; wanted at most {limit} MiB.\nfix: the largest files are {largest}")]
    BundleTooLarge { mib: u64, limit: u64, largest: String },
}

impl Error {
    /// 2 for a wrong call, 1 for everything else.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::UnknownCommand { .. } | Self::Usage(_) | Self::Unknown { .. } => 2,
            Self::Ended(code) => *code,
            _ => 1,
        }
    }

    /// Adapter for `map_err`: names the action and the file of a failed input or output.
    pub fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }
}

impl From<lexopt::Error> for Error {
    fn from(error: lexopt::Error) -> Self {
        Self::Usage(error.to_string())
    }
}

/// `1 finding`, `2 findings`.
pub fn plural(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
