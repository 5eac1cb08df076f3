//! Three ways to use several devices beside data-parallel training: several models side by side, the stages
//! of one model on different devices with batches on their way through them, and a search in a corpus that is
//! shared out.
//!
//! `IRONWARP_SOFT_DEVICES=4 cargo run -p ironwarp-examples --bin several_gpus` runs all without a GPU; with
//! `models`, `pipeline` or `search` behind `--` it runs one.

mod models;
mod numbers;
mod pipeline;
mod search;

use std::process::ExitCode;

use ironwarp::{Device, Result};

const HELP: &str = "\
Usage: several_gpus [PART..]

  models     several models side by side, each on a device
  pipeline   one model whose stages are on different devices
  search     a corpus that is shared out over devices

Without a PART all three run. IRONWARP_SOFT_DEVICES=4 makes four devices where there is no GPU.";

type Part = fn(&[Device]) -> Result<()>;

/// The parts of the program.
const SHOWN: [(&str, Part); 3] =
    [("models", models::run), ("pipeline", pipeline::run), ("search", search::run)];

fn main() -> ExitCode {
    let names: Vec<String> = std::env::args().skip(1).collect();
    if names.iter().any(|name| name == "-h" || name == "--help") {
        println!("{HELP}");
        return ExitCode::SUCCESS;
    }
    let unknown = names.iter().find(|name| SHOWN.iter().all(|(known, _)| known != name));
    if let Some(name) = unknown {
        eprintln!("error: {name:?} is none of models, pipeline, search\nhint: `--help` says what they are");
        return ExitCode::from(2);
    }
    let run = || -> Result<()> {
        let devices: Vec<Device> = (0..Device::count()?).map(Device::open).collect::<Result<_>>()?;
        let is_wanted = |name: &str| names.is_empty() || names.iter().any(|wanted| wanted == name);
        SHOWN.iter().filter(|(name, _)| is_wanted(name)).try_for_each(|(_, show)| show(&devices))
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
