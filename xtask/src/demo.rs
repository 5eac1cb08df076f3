//! The demo: builds what it needs and runs the search example.

use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::build_kernels::{self, Options};
use crate::bundle;
use crate::doctor;
use crate::error::Error;
use crate::process;
use crate::workspace::{self, Selection};

/// The example's command line, so that a wrong one is refused before anything is built.
#[path = "../../examples/search/args.rs"]
#[expect(dead_code, reason = "the example itself reads the rest")]
mod args;
#[path = "../../examples/search/folder.rs"]
mod folder;

pub const HELP: &str = args::HELP;

/// The family whose kernels the example launches.
const FAMILY: &str = "ironwarp_similarity";
const EXAMPLE: &str = "search";

pub fn run(mut parser: lexopt::Parser) -> Result<(), Error> {
    let raw: Vec<_> = parser.raw_args()?.collect();
    let wrong = |error: String| Error::Usage(error);
    let args::Parsed::Run(parsed) =
        args::parse(raw.iter().cloned()).map_err(|error| wrong(error.to_string()))?
    else {
        print!("{HELP}");
        return Ok(());
    };
    if let Some(corpus) = &parsed.corpus {
        folder::check(corpus).map_err(|error| wrong(error.to_string()))?;
    }
    let build = build_kernel()?;
    let program = build_example()?;
    let mut command = Command::new(program);
    // A relative corpus is relative to where the user stands; the default one is the repository.
    if parsed.corpus.is_none() {
        command.current_dir(workspace::root());
    }
    command.env("IRONWARP_PTX_DIR", workspace::ptx_dir()).args(raw);
    command.envs(build.map(|took| (args::BUILD_MS, took.to_string())));
    end_with(&mut command)
}

/// Builds the PTX and returns how many milliseconds that took. Without an NVIDIA driver nothing would load
/// it.
fn build_kernel() -> Result<Option<u128>, Error> {
    if !doctor::has_nvidia_driver() {
        return Ok(None);
    }
    let started = Instant::now();
    let selection = Selection { families: vec![FAMILY.to_owned()], ..Selection::default() };
    build_kernels::build_modules(&Options { selection, ..Options::default() })?;
    Ok(Some(started.elapsed().as_millis()))
}

/// Builds the example, and returns the path of its program.
fn build_example() -> Result<PathBuf, Error> {
    let args = ["build", "--release", "--package", bundle::EXAMPLES.name, "--bin", EXAMPLE];
    bundle::built_programs(&args)?.pop().ok_or_else(|| Error::Failed {
        command: args.join(" "),
        status: format!("it built no program `{EXAMPLE}`"),
    })
}

/// Runs the program and ends as it does: it has said itself why it failed.
fn end_with(command: &mut Command) -> Result<(), Error> {
    let status = process::status(command)?;
    if status.success() {
        return Ok(());
    }
    if let Some(signal) = status.signal() {
        let program = Path::new(command.get_program()).display().to_string();
        return Err(Error::Failed { command: program, status: format!("ended by signal {signal}") });
    }
    Err(Error::Ended(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_program_is_not_quoted() {
        let ended = |script: &str| end_with(Command::new("sh").args(["-c", script]));
        assert!(ended("exit 0").is_ok());
        assert!(matches!(ended("exit 3"), Err(Error::Ended(3))));
        let killed = ended("kill -9 $$").unwrap_err().to_string();
        assert!(killed.contains("signal 9") && !killed.contains("kill"), "{killed}");
    }
}
