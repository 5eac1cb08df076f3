//! The program `ironwarp`: projects with GPU kernels, outside of Ironwarp's repository.
//!
//! A command is a name, a help text and a function; [`COMMANDS`] is the list.

use std::process::ExitCode;

use cuda_builder::Manifest;
use ironwarp_cli::commands::{self, Command, Program};
use ironwarp_cli::doctor::{Finding, Level};
use ironwarp_cli::error::Error;
use ironwarp_cli::port::Facades;
use ironwarp_cli::workspace::{self, Workspace};
use ironwarp_cli::{build_kernels, cargo, doctor, inspect, launch, new_project, port, setup, topology};

const PROGRAM: Program = Program { name: "ironwarp", version: Some(env!("CARGO_PKG_VERSION")) };

/// The repository with the packages of Rust-CUDA's names.
const REPOSITORY: Facades<'_> = Facades::Git(env!("CARGO_PKG_REPOSITORY"));

const COMMANDS: &[Command] = &[
    Command {
        name: "new",
        summary: "write a project with a kernel, its test and its benchmark",
        help: new_project::HELP,
        run: |args| new_project::run(PROGRAM, args),
    },
    Command {
        name: "build",
        summary: "compile the project's kernels to PTX",
        help: build_kernels::HELP,
        run: |args| build_kernels::run(|| Workspace::current(PROGRAM), args),
    },
    Command {
        name: "inspect",
        summary: "show registers, spills, instructions and PTX of kernels",
        help: inspect::HELP,
        run: |args| inspect::run(|| Workspace::current(PROGRAM), args),
    },
    Command {
        name: "test",
        summary: "run the tests, under the checker where there is no GPU",
        help: cargo::TEST_HELP,
        run: |args| cargo::test(PROGRAM, args),
    },
    Command {
        name: "bench",
        summary: "run the benchmarks",
        help: cargo::BENCH_HELP,
        run: |args| cargo::bench(PROGRAM, args),
    },
    Command {
        name: "launch",
        summary: "start the processes of a job, and end them together",
        help: launch::HELP,
        run: launch::run,
    },
    Command {
        name: "topology",
        summary: "show how the GPUs are connected, and the CPUs near them",
        help: topology::HELP,
        run: topology::run,
    },
    Command {
        name: "doctor",
        summary: "say what is installed and what is missing",
        help: doctor::HELP,
        run: examine,
    },
    Command {
        name: "port",
        summary: "say what a project written for Rust-CUDA needs",
        help: port::HELP,
        run: |args| port::run(PROGRAM, REPOSITORY, args),
    },
    Command {
        name: "setup",
        summary: "install what building kernels needs",
        help: setup::HELP,
        run: |args| setup::run(PROGRAM, args),
    },
];

fn main() -> ExitCode {
    commands::main(PROGRAM, COMMANDS)
}

fn examine(args: lexopt::Parser) -> Result<(), Error> {
    let here = workspace::current_folder()?;
    // Without a project the machine is all there is to look at.
    let is_project = here.ancestors().any(|folder| folder.join("Cargo.toml").is_file());
    doctor::run(PROGRAM, &here, || is_project.then(kernels).into_iter().collect(), args)
}

/// The row about the project's kernels.
fn kernels() -> Finding {
    let families = Workspace::current(PROGRAM).and_then(|workspace| workspace.families());
    let listed =
        "archs = [\"sm_80\", \"sm_90a\"] under [package.metadata.ironwarp] in the Cargo.toml of the kernels";
    match families {
        Ok(families) if families.is_empty() => {
            Finding::bad("kernels", Level::Warn, "no package of this project lists architectures", listed)
        }
        Ok(families) => {
            let of = |family: &Manifest| {
                let archs: Vec<_> = family.archs.iter().map(ToString::to_string).collect();
                format!("{} ({})", family.library, archs.join(", "))
            };
            Finding::ok("kernels", families.iter().map(of).collect::<Vec<_>>().join(", "))
        }
        Err(error) => {
            let text = error.to_string();
            let (what, fix) =
                text.split_once("\nfix: ").unwrap_or((&text, "mend the manifest that it names"));
            Finding::bad("kernels", Level::Fail, what, fix)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_help_with_an_example() {
        for command in COMMANDS {
            let help = PROGRAM.fill(command.help);
            let (_, examples) = help.split_once("Examples:\n").unwrap();
            assert!(examples.contains(&format!("ironwarp {}", command.name)), "{}: {help}", command.name);
            assert!(!help.contains("{program}") && !help.contains("xtask"), "{}: {help}", command.name);
        }
    }
}
