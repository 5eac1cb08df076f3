//! The kernels of this package through the driver: libcuda or the software driver.
//!
//! As a test it launches the correct kernels and looks at their results. On a GPU it also compares the
//! checker with compute-sanitizer: it runs itself under each tool and counts the reports.

mod compare;
mod gpu;
mod launch;
mod list;
mod log;
#[path = "../kernels/not_yet.rs"]
#[allow(dead_code, reason = "the reasons are for readers of the list")]
mod not_yet;
mod results;
mod run;
#[path = "../kernels/shape.rs"]
mod shape;
mod table;
#[path = "../kernels/tables/mod.rs"]
#[allow(dead_code, reason = "what the checker should report is for the other program")]
mod tables;

use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "usage: corpus [NAME]                   launches the correct kernels whose names contain NAME
       corpus --kernels                the kernels with their indices
       corpus --from INDEX [STEP]      launches the kernel of that index and every STEP-th behind it
       corpus --compare DIR SANITIZER  runs all kernels under each tool of compute-sanitizer, and prints a table
       corpus --table FILE             prints the table of a comparison's file";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["--kernels"] => {
            for (index, kernel) in list::all().iter().enumerate() {
                run::say(&format!("{index} {} ({})", kernel.name, kernel.class));
            }
            ExitCode::SUCCESS
        }
        ["--from", index] => from(index, "1"),
        ["--from", index, step] => from(index, step),
        ["--compare", folder, sanitizer] => done(compare::run(Path::new(folder), sanitizer)),
        ["--table", file] => done(compare::print(Path::new(file))),
        _ => run::test(&args),
    }
}

fn from(index: &str, step: &str) -> ExitCode {
    match (index.parse(), step.parse()) {
        (Ok(index), Ok(step)) if step > 0 => run::from(index, step),
        _ => {
            eprintln!("--from {index} {step}: wanted an index and a step from 1\n{USAGE}");
            ExitCode::FAILURE
        }
    }
}

fn done(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("corpus: {error}");
            ExitCode::FAILURE
        }
    }
}
