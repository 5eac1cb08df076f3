//! The project's commands: `cargo xtask COMMAND`.
//!
//! One file a command. A command is a name, a help text and a function; [`COMMANDS`] is the list.

// First, since its macros count from here on.
#[macro_use]
mod print;

mod bench;
mod budget;
mod build_kernels;
mod bundle;
mod demo;
mod doctor;
mod error;
mod inspect;
mod new_folder;
mod new_kernel;
mod port;
mod process;
mod setup;
mod term;
mod test;
mod tidy;
mod workspace;

use std::process::ExitCode;

use crate::error::Error;

/// One entry of the command list.
struct Command {
    name: &'static str,
    summary: &'static str,
    help: &'static str,
    run: fn(lexopt::Parser) -> Result<(), Error>,
}

const COMMANDS: &[Command] = &[
    Command {
        name: "setup",
        summary: "install what building kernels needs",
        help: setup::HELP,
        run: setup::run,
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
        run: inspect::run,
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
        run: port::run,
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
        name: "tidy",
        summary: "check the invariants of the source tree",
        help: tidy::HELP,
        run: tidy::run,
    },
];

fn main() -> ExitCode {
    let outcome = dispatch();
    print::flush();
    let Err(error) = outcome else { return ExitCode::SUCCESS };
    // A program that has ended on its own said why.
    if !matches!(error, Error::Ended(_)) {
        let text = print::bounded(&error.to_string());
        eprintln!("{} {text}", term::style(term::Style::Fail, "error:"));
    }
    ExitCode::from(error.exit_code())
}

fn dispatch() -> Result<(), Error> {
    let mut args = std::env::args_os().skip(1);
    let Some(name) = args.next() else {
        print!("{}", overview());
        return Ok(());
    };
    let name = name.to_string_lossy();
    if matches!(&*name, "-h" | "--help" | "help") {
        print!("{}", overview());
        return Ok(());
    }
    let Some(command) = COMMANDS.iter().find(|command| command.name == name) else {
        let names = COMMANDS.iter().map(|command| command.name);
        return Err(Error::UnknownCommand { nearest: term::nearest(&name, names), name: name.into_owned() });
    };
    let rest: Vec<_> = args.collect();
    // Arguments after `--` belong to the program that the command runs.
    if rest.iter().take_while(|arg| *arg != "--").any(|arg| arg == "-h" || arg == "--help") {
        println!("cargo xtask {}: {}\n\n{}", command.name, command.summary, command.help.trim());
        return Ok(());
    }
    workspace::check_current_folder()?;
    (command.run)(lexopt::Parser::from_args(rest))
}

fn overview() -> String {
    let mut text = String::from("Usage: cargo xtask COMMAND [OPTIONS]\n\nCommands:\n");
    for command in COMMANDS {
        text.push_str(&format!("  {:14} {}\n", command.name, command.summary));
    }
    text.push_str("\n`cargo xtask COMMAND --help` shows options and examples.\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_help_with_an_example() {
        for command in COMMANDS {
            assert!(command.help.contains("cargo xtask"), "{} shows no example", command.name);
            assert!(overview().contains(command.name));
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
