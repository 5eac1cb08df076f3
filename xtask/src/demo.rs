//! The demo: builds what it needs and runs the search example of the host package.

use std::time::Instant;

use crate::build_kernels::{self, Options};
use crate::doctor;
use crate::error::Error;
use crate::process;
use crate::workspace::{self, Selection};

pub const HELP: &str = "
Reads a folder of text, cuts it into passages, and finds those that are most like a question with the cosine
similarity kernel: on the GPU where there is one, else on the software driver.

Usage: cargo xtask demo [QUERY] [--corpus DIR] [-k COUNT] [--json]

Options:
  --corpus DIR   a folder of text files (default: this repository's Markdown and Rust files)
  -k COUNT       how many passages to print (default: 5)
  --json         print the result as JSON

Examples:
  cargo xtask demo \"how are kernels launched\"
  cargo xtask demo \"race between blocks\" -k 3
  cargo xtask demo \"error handling\" --corpus ~/notes --json
";

/// The family whose kernels the example launches.
const FAMILY: &str = "similarity";

pub fn run(mut args: lexopt::Parser) -> Result<(), Error> {
    let args: Vec<_> = args.raw_args()?.collect();
    let build = build_kernel()?;
    let mut command = process::cargo();
    command.args(["run", "--release", "--package", "ironwarp", "--example", "search"]);
    if workspace::has_release_example("search") {
        command.arg("--quiet"); // only the first build takes long enough to watch
    }
    // A relative corpus is relative to where the user stands; the default one is the repository.
    let gives_corpus = args.iter().any(|arg| arg.to_string_lossy().starts_with("--corpus"));
    if gives_corpus {
        command.current_dir(std::env::current_dir().map_err(Error::io("find", "."))?);
    } else {
        command.current_dir(workspace::root());
    }
    command.arg("--manifest-path").arg(workspace::root().join("Cargo.toml"));
    // The build script of the host package watches the folder, so it is there before, also without PTX.
    let ptx = workspace::ptx_dir();
    std::fs::create_dir_all(&ptx).map_err(Error::io("create", &ptx))?;
    command.env("IRONWARP_PTX_DIR", ptx);
    command
        .arg("--")
        .args(args)
        .args(build.map(|took| ["--build-ms".to_owned(), took.to_string()]).into_iter().flatten());
    process::run(&mut command)
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
