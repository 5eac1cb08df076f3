//! Search by similarity over a folder of text: reads it, cuts it into passages, embeds them in f16, and finds
//! the passages nearest to a question with the cosine similarity kernel.
//!
//! `cargo xtask demo` builds the kernels and runs it. Without a GPU it runs on the software driver and says
//! so.

mod args;
mod corpus;
mod embed;
mod folder;
/// As Ironwarp's commands print: neither a reader who leaves nor a full device makes a program panic.
#[path = "../../crates/cli/src/print.rs"]
#[expect(dead_code, reason = "the commands print in more ways")]
mod print;
mod report;

use std::error::Error as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use args::{Args, ArgsError, Parsed};
use corpus::{Corpus, CorpusError, Select};
use embed::{DIM, Embedder};
use ironwarp::ops::cosine::{Vectors, cosine_topk};
use ironwarp::{Device, DeviceBuffer, Event};
use report::{Hit, Report, Style, Times};

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Args(#[from] ArgsError),
    #[error(transparent)]
    Corpus(#[from] CorpusError),
    #[error(transparent)]
    Gpu(#[from] ironwarp::Error),
    #[error("the system gives no threads: {0}. Raise the limits on processes and on memory (`ulimit -a`)")]
    Threads(rayon::ThreadPoolBuildError),
}

impl Error {
    /// 2 for a wrong call, 1 for everything else.
    fn exit_code(&self) -> u8 {
        match self {
            Error::Args(_) | Error::Corpus(CorpusError::Folder(_)) => 2,
            _ => 1,
        }
    }
}

const _: () = assert!(args::MAX_K == similarity::MAX_K as usize, "the limit that the help names");

fn main() -> ExitCode {
    let outcome = match args::parse(std::env::args_os().skip(1)) {
        Ok(Parsed::Help) => Ok(args::HELP.to_owned()),
        Ok(Parsed::Run(args)) => run(&args),
        Err(error) => Err(error.into()),
    };
    match outcome {
        Ok(text) => {
            print::text(format_args!("{text}"));
            print::flush();
            ExitCode::SUCCESS
        }
        Err(error) => {
            print::note(format_args!("error: {}", print::bounded(&error.to_string())));
            ExitCode::from(error.exit_code())
        }
    }
}

/// Rayon's pool panics at its first use where it cannot start its threads.
fn start_threads() -> Result<(), Error> {
    let started = rayon::ThreadPoolBuilder::new().build_global();
    // Without a source: the pool is there already.
    started.or_else(|error| if error.source().is_none() { Ok(()) } else { Err(Error::Threads(error)) })
}

/// The report.
fn run(args: &Args) -> Result<String, Error> {
    start_threads()?;
    let mut stages: Vec<(&'static str, Duration)> =
        args::build_time().map(|t| ("build", t)).into_iter().collect();
    let corpus = timed(&mut stages, "read", || read(args.corpus.as_deref()))?;
    let texts: Vec<&str> = corpus.passages.iter().map(|p| p.text.as_str()).collect();
    let (rows, query) = timed(&mut stages, "embed", || {
        let (embedder, rows) = Embedder::fit(&texts);
        let query = embedder.embed(&args.query);
        (rows, query)
    });

    let device = Device::open(0)?;
    let stream = device.stream()?;
    timed(&mut stages, "load", || device.kernel::<similarity::cosine_merge>())?;
    let (rows, query) = timed(&mut stages, "copy", || -> Result<_, ironwarp::Error> {
        Ok((DeviceBuffer::from_slice(&stream, &rows)?, DeviceBuffer::from_slice(&stream, &query)?))
    })?;
    let (start, end) = (Event::new(&device)?, Event::new(&device)?);
    stream.record(&start)?;
    let k = args.k.min(corpus.passages.len());
    let best = cosine_topk(&stream, Vectors::new(&rows, DIM)?, Vectors::new(&query, DIM)?, k)?;
    stream.record(&end)?;
    let best = best.to_host(&stream)?;
    let kernel = Duration::from_secs_f32(Event::elapsed_ms(&start, &end)? / 1e3);
    stages.push(("kernel", kernel));

    let hits = best
        .iter()
        .flatten()
        .map(|hit| Hit { score: hit.score, passage: &corpus.passages[hit.index as usize] })
        .collect();
    let report = Report {
        query: &args.query,
        corpus: &corpus,
        hits,
        device: device.name().to_owned(),
        software: device.is_software().then(|| {
            "no NVIDIA GPU was used: the software driver ran the same kernel on the CPU (`cargo xtask doctor` says what it found)"
                .to_owned()
        }),
        times: Times { stages },
    };
    Ok(if args.json { format!("{:#}\n", report.json()) } else { report.text(&Style::detect()) })
}

fn read(folder: Option<&Path>) -> Result<Corpus, CorpusError> {
    match folder {
        Some(folder) => corpus::read(folder, Select::AnyText),
        None => corpus::read(&PathBuf::from("."), Select::MarkdownAndRust),
    }
}

fn timed<T>(stages: &mut Vec<(&'static str, Duration)>, name: &'static str, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = work();
    stages.push((name, start.elapsed()));
    result
}
