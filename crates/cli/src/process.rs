//! Running other programs.

use std::env;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use crate::error::Error;
use crate::term;

/// The host's cargo, in a folder.
pub fn cargo(folder: &Path) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    command.current_dir(folder);
    // Variables that describe this program would otherwise look like a change to every build script that
    // reads them.
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") || text == "CARGO_CRATE_NAME"
        {
            command.env_remove(&name);
        }
    }
    if !term::colours() {
        command.env("CARGO_TERM_COLOR", "never");
    }
    command
}

/// The command as one would type it.
pub fn shown(command: &Command) -> String {
    let program =
        Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let args = command.get_args().map(|arg| arg.to_string_lossy().into_owned());
    std::iter::once(program).chain(args).collect::<Vec<_>>().join(" ")
}

/// Runs with the terminal passed on.
///
/// # Errors
/// When the program cannot be started or fails.
pub fn run(command: &mut Command) -> Result<(), Error> {
    let status = status(command)?;
    check(command, status)
}

/// Runs with the terminal passed on, and returns how the program ended.
///
/// # Errors
/// When it cannot be started.
pub fn status(command: &mut Command) -> Result<ExitStatus, Error> {
    command.status().map_err(cannot_run(command))
}

/// Runs and returns standard output. Errors of the program stay visible.
///
/// # Errors
/// When the program cannot be started or fails.
pub fn output(command: &mut Command) -> Result<String, Error> {
    let output = command.stderr(Stdio::inherit()).output().map_err(cannot_run(command))?;
    check(command, output.status)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs and hands over every line, as it comes: of standard output to `each`, of standard error to `beside`,
/// which another thread calls.
///
/// # Errors
/// When the program cannot be started or fails.
pub fn lines(
    command: &mut Command,
    mut each: impl FnMut(&str),
    mut beside: impl FnMut(&str) + Send,
) -> Result<(), Error> {
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().map_err(cannot_run(command))?;
    let (output, errors) = (child.stdout.take(), child.stderr.take());
    std::thread::scope(|threads| {
        threads.spawn(move || errors.into_iter().for_each(|pipe| of_pipe(pipe, &mut beside)));
        output.into_iter().for_each(|pipe| of_pipe(pipe, &mut each));
    });
    let status = child.wait().map_err(cannot_run(command))?;
    check(command, status)
}

fn of_pipe(pipe: impl Read, each: &mut impl FnMut(&str)) {
    for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
        each(&String::from_utf8_lossy(&line));
    }
}

/// Runs silently; whether it succeeded, with everything that it said.
pub fn quietly(command: &mut Command) -> (bool, String) {
    match command.stdin(Stdio::null()).output() {
        Ok(output) => {
            let text = format!(
                "{}{}",
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
            (output.status.success(), text)
        }
        Err(error) => (false, error.to_string()),
    }
}

fn check(command: &Command, status: ExitStatus) -> Result<(), Error> {
    if status.success() {
        Ok(())
    } else {
        Err(Error::Failed { command: shown(command), status: status.to_string() })
    }
}

/// Adapter for `map_err`: names the program that could not be started.
pub fn cannot_run(command: &Command) -> impl FnOnce(std::io::Error) -> Error + use<> {
    let program = command.get_program().to_string_lossy().into_owned();
    let command = shown(command);
    move |source| Error::CannotRun { command, source, fix: format!("install `{program}`, or put it on PATH") }
}
