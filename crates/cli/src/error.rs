//! Why a command failed, and what to do about it.

use std::path::PathBuf;

use cuda_builder::ptxas::PtxasError;
use cuda_builder::{BuildError, ToolchainError, shown};

/// A failed command. The text is all that the user sees.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum Error {
    /// The first argument is no command.
    #[error("no command {name:?}{}\nfix: `{program} --help` lists the commands", .nearest.as_ref().map(|nearest| format!("; did you mean `{nearest}`?")).unwrap_or_else(|| ".".to_owned()))]
    UnknownCommand { program: &'static str, name: String, nearest: Option<String> },
    /// The options do not parse.
    #[error("{0}.\nfix: `--help` after the command shows its options")]
    Usage(String),
    /// The options parse; what they ask for cannot be. The text says what can.
    #[error("{0}")]
    Refused(String),
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
    /// A file of the workspace does not parse, such as the budget.
    #[error("{}: {reason}", shown(.path))]
    BadFile { path: PathBuf, reason: String },
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
    #[error("cannot {action} {}: {source}", shown(.path))]
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
    /// No project is around the current folder, or Cargo cannot read it.
    #[error(
        "no project that Cargo can read: {reason}\nfix: `cd` to a project with kernels, or write one with `{program} new NAME`"
    )]
    NoProject { program: &'static str, reason: String },
    /// No package of the project has kernels.
    #[error("no package of {} lists architectures.\nfix: write `archs = [\"sm_80\", \"sm_90a\"]` under [package.metadata.ironwarp] into the Cargo.toml of the kernels", shown(.root))]
    NoKernels { root: PathBuf },
    /// A failure that only the program around this library knows.
    #[error("{0}")]
    Other(Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// 2 for a wrong call, 1 for everything else.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::UnknownCommand { .. } | Self::Usage(_) | Self::Refused(_) | Self::Unknown { .. } => 2,
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
