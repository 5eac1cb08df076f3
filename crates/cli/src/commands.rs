//! A program that is a list of commands: it finds the one that is asked for, shows help, and tells failures.

use std::process::ExitCode;

use crate::error::Error;
use crate::term::{self, Style, style};
use crate::{print, workspace};

/// A program as messages name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Program {
    /// As one types it: `ironwarp`, or `cargo xtask` in Ironwarp's repository.
    pub name: &'static str,
    /// The answer to `--version`. Without one the program knows no such option.
    pub version: Option<&'static str>,
}

impl Program {
    /// A help text with the program's names filled in.
    pub fn fill(self, help: &str) -> String {
        help.replace("{program}", self.name)
    }
}

/// One entry of the command list.
pub struct Command {
    /// The first argument.
    pub name: &'static str,
    /// A line for the list.
    pub summary: &'static str,
    /// Options and examples. `{program}` stands for the program's name.
    pub help: &'static str,
    /// Does it, with the arguments after the name.
    pub run: fn(lexopt::Parser) -> Result<(), Error>,
}

/// Runs the command that this process was started with, and prints why it failed.
pub fn main(program: Program, commands: &[Command]) -> ExitCode {
    let outcome = dispatch(program, commands);
    print::flush();
    let Err(error) = outcome else { return ExitCode::SUCCESS };
    // A program that has ended on its own said why.
    if !matches!(error, Error::Ended(_)) {
        let text = print::bounded(&error.to_string());
        eprintln!("{} {text}", style(Style::Fail, "error:"));
    }
    ExitCode::from(error.exit_code())
}

fn dispatch(program: Program, commands: &[Command]) -> Result<(), Error> {
    let mut args = std::env::args_os().skip(1);
    let Some(name) = args.next() else {
        print!("{}", overview(program, commands));
        return Ok(());
    };
    let name = name.to_string_lossy();
    if matches!(&*name, "-h" | "--help" | "help") {
        match args.next() {
            None => print!("{}", overview(program, commands)),
            Some(topic) => print_help(program, find(program, commands, &topic.to_string_lossy())?),
        }
        return Ok(());
    }
    if let ("-V" | "--version", Some(version)) = (&*name, program.version) {
        println!("{} {version}", program.name);
        return Ok(());
    }
    let command = find(program, commands, &name)?;
    let rest: Vec<_> = args.collect();
    // Arguments after `--` belong to the program that the command runs.
    if rest.iter().take_while(|arg| *arg != "--").any(|arg| arg == "-h" || arg == "--help") {
        print_help(program, command);
        return Ok(());
    }
    workspace::check_current_folder()?;
    (command.run)(lexopt::Parser::from_args(rest))
}

fn find<'a>(program: Program, commands: &'a [Command], name: &str) -> Result<&'a Command, Error> {
    commands.iter().find(|command| command.name == name).ok_or_else(|| {
        let names = commands.iter().map(|command| command.name);
        let nearest = term::nearest(name, names);
        Error::UnknownCommand { program: program.name, nearest, name: name.to_owned() }
    })
}

fn print_help(program: Program, command: &Command) {
    let help = program.fill(command.help.trim());
    println!("{} {}: {}\n\n{help}", program.name, command.name, command.summary);
}

/// The list of the commands.
fn overview(program: Program, commands: &[Command]) -> String {
    let name = program.name;
    let mut text = format!("Usage: {name} COMMAND [OPTIONS]\n\nCommands:\n");
    for command in commands {
        text.push_str(&format!("  {:14} {}\n", command.name, command.summary));
    }
    text.push_str(&format!("\n`{name} help COMMAND` shows options and examples.\n"));
    text
}
