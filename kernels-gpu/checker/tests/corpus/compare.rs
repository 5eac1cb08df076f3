//! Runs all kernels without a tool and under each of compute-sanitizer's, in many processes at a time.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::results::{self, Finding, Row, TOOLS};
use crate::run::say;
use crate::{list, log, table};

/// Processes of a tool at a time. Each takes a part of the kernels.
const PARTS: usize = 3;
/// The time for all of it. What is not done by then is missing in the table.
const LIMIT: Duration = Duration::from_secs(480);
/// The longest time without a line of output: with a kernel at work, and behind one that ended the process.
const SILENCE: Duration = Duration::from_secs(40);
const FAREWELL: Duration = Duration::from_secs(5);
const FILE: &str = "corpus.tsv";

/// Runs them, keeps logs and results in the folder, and prints the table. A tool that did not run is the
/// error, after the table of the others.
pub fn run(folder: &Path, sanitizer: &str) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let help = Command::new(sanitizer).arg("--help").output();
    let help = help.map_err(|error| format!("cannot run {sanitizer}: {error}"))?;
    let options = Options { sanitizer, help: String::from_utf8_lossy(&help.stdout).into_owned() };
    let kernels = list::all();
    let names: Vec<&str> = kernels.iter().map(|kernel| kernel.name).collect();
    let deadline = Instant::now() + LIMIT;
    let options = &options;
    let parts = thread::scope(|scope| {
        let places = (0..TOOLS.len()).flat_map(|tool| (0..PARTS).map(move |first| (tool, first)));
        let start =
            |(tool, first)| (tool, scope.spawn(move || run_part(folder, options, tool, first, deadline)));
        let threads: Vec<_> = places.map(start).collect();
        let join = |(tool, thread): (usize, thread::ScopedJoinHandle<'_, Result<String, String>>)| {
            (tool, thread.join().unwrap_or_else(|_| Err("a thread panicked".to_owned())))
        };
        threads.into_iter().map(join).collect::<Vec<_>>()
    });
    let mut columns = [(); TOOLS.len()].map(|()| vec![Finding::default(); names.len()]);
    let mut failures = Vec::new();
    for (tool, text) in parts {
        match text {
            Ok(text) => log::read(&text, &names, &mut columns[tool]),
            Err(error) => failures.push(format!("{}: {error}", TOOLS[tool])),
        }
    }
    let row = |kernel: usize| columns.each_ref().map(|findings| findings[kernel].clone());
    let rows: Vec<Row> = (0..names.len()).map(row).collect();
    let path = folder.join(FILE);
    fs::write(&path, results::write(&names, &rows))
        .map_err(|error| format!("{}: {error}", path.display()))?;
    say(&table::table(&kernels, &rows));
    say(&format!("results: {}", path.display()));
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

/// Prints the table of a file.
pub fn print(path: &Path) -> Result<(), String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let kernels = list::all();
    let names: Vec<&str> = kernels.iter().map(|kernel| kernel.name).collect();
    let rows = results::read(&names, &text).map_err(|error| format!("{}: {error}", path.display()))?;
    say(&table::table(&kernels, &rows));
    Ok(())
}

/// The sanitizer, and what it says of its options.
struct Options<'a> {
    sanitizer: &'a str,
    help: String,
}

impl Options<'_> {
    /// This program under a tool, from the kernel `first` on.
    fn command(&self, tool: usize, first: usize) -> Result<Command, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = if tool == 0 { Command::new(program) } else { self.under(tool, first, &program) };
        command.args(["--from", &first.to_string(), &PARTS.to_string()]);
        // Kernels are then compiled, and changed by the tool, before their launch is timed.
        command.env("CUDA_MODULE_LOADING", "EAGER");
        command.stdin(Stdio::null()).process_group(0);
        Ok(command)
    }

    fn under(&self, tool: usize, first: usize, program: &Path) -> Command {
        /// Ports of a process, which shares the machine with the others.
        const PORTS: usize = 32;
        let mut command = Command::new(self.sanitizer);
        command.args(["--tool", TOOLS[tool]]);
        let base_port = (49152 + PORTS * (PARTS * tool + first % PARTS)).to_string();
        let wanted = [
            ("memcheck", "report-api-errors", "no"),
            ("racecheck", "racecheck-report", "all"),
            ("initcheck", "initcheck-address-space", "all"),
            // A kernel with an error ends, and the others go on.
            ("", "destroy-on-device-error", "kernel"),
            ("", "print-limit", "0"),
            ("", "show-backtrace", "device"),
            ("", "launch-timeout", "60"),
            ("", "max-connections", &PORTS.to_string()),
            ("", "base-port", &base_port),
        ];
        for (of, option, value) in wanted {
            // Releases differ in their options.
            if (of.is_empty() || of == TOOLS[tool]) && self.help.contains(option) {
                command.args([&format!("--{option}"), value]);
            }
        }
        command.arg(program);
        command
    }
}

/// Runs every [`PARTS`]-th kernel from `next` on, in a process that begins anew behind each kernel that ends
/// it. Returns all that was printed.
fn run_part(
    folder: &Path,
    options: &Options<'_>,
    tool: usize,
    mut next: usize,
    deadline: Instant,
) -> Result<String, String> {
    let path = folder.join(format!("corpus.{}.{next}.log", TOOLS[tool]));
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let log = File::create(&path).map_err(failed)?;
    let mut text = String::new();
    loop {
        let mut command = options.command(tool, next)?;
        command.stdout(log.try_clone().map_err(failed)?).stderr(log.try_clone().map_err(failed)?);
        let child = command.spawn().map_err(|error| format!("{command:?}: {error}"))?;
        let is_late = wait(child, &path, text.len(), deadline);
        let before = text.len();
        text = read(&path);
        let (last, is_done) = log::progress(text.get(before..).unwrap_or_default());
        if is_done || is_late {
            return Ok(text);
        }
        let Some(last) = last else {
            eprintln!("corpus: {}: no kernel began at {next}; {} says why", TOOLS[tool], path.display());
            return Ok(text);
        };
        next = last + PARTS;
    }
}

fn read(path: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Waits for a process and ends it when it says nothing any more. Its output begins in the log at `begin`.
/// Returns whether the time is over.
fn wait(mut child: Child, log: &Path, begin: usize, deadline: Instant) -> bool {
    const PAUSE: Duration = Duration::from_millis(20);
    let length = || fs::metadata(log).map_or(0, |metadata| metadata.len());
    let (mut known, mut since) = (length(), Instant::now());
    while let Ok(None) = child.try_wait() {
        if length() != known {
            (known, since) = (length(), Instant::now());
        }
        let (is_late, silence) = (Instant::now() > deadline, since.elapsed());
        let is_stuck = || silence > SILENCE || !log::is_at_work(read(log).get(begin..).unwrap_or_default());
        if is_late || silence > FAREWELL && is_stuck() {
            // The process and those that it has started are a group.
            let group = format!("-{}", child.id());
            let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
            let _ = child.wait();
            return is_late;
        }
        thread::sleep(PAUSE);
    }
    false
}
