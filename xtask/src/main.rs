//! The project's commands: `cargo xtask COMMAND`.
//!
//! One file a command. A command is a name, a help text and a function; [`COMMANDS`] is the list.

// First, since its macros count from here on.
#[macro_use]
extern crate ironwarp_cli;

mod archive;
mod bench;
mod broken;
mod budget;
mod build_kernels;
mod bundle;
mod demo;
mod doctor;
mod new_kernel;
mod package;
mod test;
mod tidy;
mod workspace;

use std::process::ExitCode;

use ironwarp_cli::commands::{self, Command, Program};
use ironwarp_cli::port::Facades;
use ironwarp_cli::{error, inspect, port, process, setup, term};

/// This program in the messages of the library.
const PROGRAM: Program = Program { name: "cargo xtask", version: None };

const COMMANDS: &[Command] = &[
    Command {
        name: "setup",
        summary: "install what building kernels needs",
        help: setup::HELP,
        run: |args| setup::run(PROGRAM, args),
    },
    Command {
        name: "build-kernels",
        summary: "compile the kernels to PTX and check their budgets",
        help: build_kernels::HELP,
        run: build_kernels::run,
    },
    Command {
        name: "inspect",
        summary: "show registers, spills, instructions and PTX of kernels",
        help: inspect::HELP,
        run: |args| inspect::run(|| Ok(workspace::here()), args),
    },
    Command {
        name: "demo",
        summary: "search text with the cosine similarity kernel",
        help: demo::HELP,
        run: demo::run,
    },
    Command {
        name: "new-kernel",
        summary: "write the beginnings of a kernel, with test and benchmark",
        help: new_kernel::HELP,
        run: new_kernel::run,
    },
    Command {
        name: "port",
        summary: "say what a project written for Rust-CUDA needs",
        help: port::HELP,
        run: |args| port::run(PROGRAM, Facades::Folder(&workspace::root().join("facades")), args),
    },
    Command { name: "test", summary: "run every check and test", help: test::HELP, run: test::run },
    Command { name: "bench", summary: "run the benchmarks", help: bench::HELP, run: bench::run },
    Command {
        name: "doctor",
        summary: "say what is installed and what is missing",
        help: doctor::HELP,
        run: doctor::run,
    },
    Command {
        name: "bundle",
        summary: "pack tests and benchmarks for a GPU machine without Rust",
        help: bundle::HELP,
        run: bundle::run,
    },
    Command {
        name: "archive",
        summary: "pack the shipped kernels into one file that programs embed",
        help: archive::HELP,
        run: archive::run,
    },
    Command {
        name: "package",
        summary: "make the packages that a registry takes",
        help: package::HELP,
        run: package::run,
    },
    Command {
        name: "tidy",
        summary: "check the invariants of the source tree",
        help: tidy::HELP,
        run: tidy::run,
    },
];

fn main() -> ExitCode {
    commands::main(PROGRAM, COMMANDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_help_with_an_example() {
        for command in COMMANDS {
            let help = PROGRAM.fill(command.help);
            assert!(help.contains("cargo xtask"), "{} shows no example", command.name);
            assert!(!help.contains("{program}"), "{}: {help}", command.name);
        }
    }

    #[test]
    fn nearest_command() {
        let names = || COMMANDS.iter().map(|command| command.name);
        assert_eq!(term::nearest("build-kernel", names()), Some("build-kernels".to_owned()));
        assert_eq!(term::nearest("docter", names()), Some("doctor".to_owned()));
        assert_eq!(term::nearest("frobnicate", names()), None);
    }
}
