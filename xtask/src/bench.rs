//! Runs the benchmark programs.

use crate::build_kernels::{self, Options};
use crate::error::Error;
use crate::process;

pub const HELP: &str = "
Builds the kernels and runs the benchmark programs of the package ironwarp-benches on whichever driver is there.

Usage: cargo xtask bench [NAMES] [-- ARGUMENTS]

Examples:
  cargo xtask bench                      every program
  cargo xtask bench basic                one program
  cargo xtask bench cosine -- --quick    with arguments for it
";

/// The package with the benchmark programs.
pub const PACKAGE: &str = "ironwarp-benches";

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
    build_kernels::build(&Options { skip_budget: true, ..Options::default() })?;
    let mut command = process::cargo();
    command.args(["bench", "--package", PACKAGE]);
    for name in names {
        command.arg("--bench").arg(name);
    }
    if names.is_empty() {
        command.arg("--benches");
    }
    process::run(command.args(arguments))
}
