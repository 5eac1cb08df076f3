//! The frame around a bench program: how it ends, and what it says then.

use std::error::Error;
use std::panic;
use std::process::{ExitCode, exit};

use crate::{OptionsError, print};

/// The result of a step of a bench program.
pub type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Runs a program. An error is a message and the exit code 1; 2 for a wrong command line.
pub fn run(body: impl FnOnce() -> Outcome) -> ExitCode {
    end_by_failed_prints();
    match body() {
        Ok(()) => {
            print::flush();
            ExitCode::SUCCESS
        }
        Err(error) => {
            print::note(format_args!("error: {}", print::bounded(&error.to_string())));
            ExitCode::from(if error.is::<OptionsError>() { 2 } else { 1 })
        }
    }
}

/// criterion prints by `println`, which panics where nobody can read. Ends the program instead, as its own
/// printing does.
fn end_by_failed_prints() {
    let others = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        let message = panic.payload_as_str().unwrap_or_default();
        if message.starts_with("failed printing to stdout") {
            // Fails for the same reason.
            print::line(format_args!(""));
        }
        if message.starts_with("failed printing to stderr") {
            // There is no place left to say so.
            exit(1);
        }
        others(panic);
    }));
}
