//! Runs the benchmark programs.

use std::ffi::OsString;

use crate::build_kernels::{self, Options};
use crate::error::Error;
use crate::process;
use crate::term;
use crate::workspace;

pub const HELP: &str = "
Builds the kernels and runs the benchmark programs of the package ironwarp-benches on whichever driver is there.

Usage: cargo xtask bench [NAMES] [-- ARGUMENTS]

Arguments of the programs:
  --quick          few samples of small inputs: shows whether a program runs, not how fast
  --brief          few and short samples, for hundreds of shapes
  --only TEXT,..   rows whose names contain one of these
  --out DIR        write every sample to this folder
  --every          every configuration of a row, in programs that have several
  --random N [--seed S] [--within SECONDS]
                   shapes drawn at random, of which none begins after so many seconds: gemm, rows, attention, conv
  --shape [BATCHx]MxNxK,.. [--type TYPE] [--order ORDER] [--epilogue NAME]
                   these products: gemm

Examples:
  cargo xtask bench                      every program
  cargo xtask bench basic                one program
  cargo xtask bench cosine -- --quick    with arguments for it
  cargo xtask bench gemm -- --random 200 --brief --within 300
";

/// The package with the benchmark programs.
pub const PACKAGE: &str = "ironwarp-benches";
/// Its folder.
pub const FOLDER: &str = "benches";

pub fn run(mut args: lexopt::Parser) -> Result<(), Error> {
    let args: Vec<_> = args.raw_args()?.collect();
    let split = args.iter().position(|arg| arg == "--").unwrap_or(args.len());
    let (names, arguments) = args.split_at(split);
    if let Some(option) = names.iter().find(|name| name.to_string_lossy().starts_with('-')) {
        return Err(Error::Usage(format!(
            "`{}` is no program: options of the programs go behind `--`",
            option.display()
        )));
    }
    check_names(names, &workspace::listed(FOLDER, "bench")?)?;
    build_kernels::build(&Options::default())?;
    let mut command = workspace::cargo();
    command.args(["bench", "--package", PACKAGE]);
    for name in names {
        command.arg("--bench").arg(name);
    }
    if names.is_empty() {
        command.arg("--benches");
    }
    process::run(command.args(arguments))
}

/// Before the kernels are built, which takes a while.
fn check_names(names: &[OsString], programs: &[String]) -> Result<(), Error> {
    let unknown = names.iter().find(|name| !programs.iter().any(|program| **name == **program));
    let Some(name) = unknown.map(|name| name.to_string_lossy().into_owned()) else { return Ok(()) };
    let nearest = term::nearest(&name, programs.iter().map(String::as_str));
    Err(Error::Unknown { what: "benchmark", name, nearest, known: programs.join(", ") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_has_every_option_of_the_programs() {
        let parser = std::fs::read_to_string(workspace::root().join(FOLDER).join("src/options.rs")).unwrap();
        let arms = parser.lines().filter_map(|line| line.trim().strip_prefix("Some(\"--")?.split_once("\" "));
        // Cargo adds `--bench`.
        let options: Vec<_> = arms.map(|(name, _)| name.trim_end_matches("\")")).collect();
        let mut options: Vec<&str> = options.into_iter().filter(|name| *name != "bench").collect();
        options.retain(|option| !HELP.contains(&format!("--{option} ")));
        assert_eq!(options, Vec::<&str>::new());
    }

    #[test]
    fn names_are_checked_against_the_manifest() {
        let programs = workspace::listed(FOLDER, "bench").unwrap();
        assert!(programs.iter().any(|program| program == "cosine"), "{programs:?}");
        assert!(check_names(&["cosine".into(), "gemm".into()], &programs).is_ok());
        let refused = check_names(&["cosine".into(), "cosin".into()], &programs).unwrap_err();
        assert!(refused.to_string().contains("did you mean `cosine`?"), "{refused}");
    }
}
