//! Launches kernels one after the other, and says where it is.

use std::io::Write;
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use crate::launch::{Ended, Session};
use crate::list::{self, Kernel};
use crate::log::{BEGIN, DONE, END};
use crate::not_yet;
use crate::results::State;

/// The time that a launch may take. Under a sanitizer launches are slower, and others share the device.
const PATIENCE: Duration = Duration::from_secs(3);

/// The exit codes of a run that the next process goes on with: the context is broken, a kernel hangs.
const BROKEN: u8 = 2;
const HUNG: u8 = 3;
const UNABLE: u8 = 4;

unsafe extern "C" {
    safe fn _exit(code: i32) -> !;
}

/// Prints a line at once.
pub fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // Nobody is left to be told where the output cannot be written.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Ends the process when a launch does not come back.
struct Watchdog(Sender<Option<String>>);

impl Watchdog {
    fn start() -> Self {
        let (give, take) = mpsc::channel::<Option<String>>();
        thread::spawn(move || {
            while let Ok(watched) = take.recv() {
                let Some(last_words) = watched else { continue };
                if take.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                    say(&last_words);
                    // libcuda would wait for the kernel in a destructor.
                    _exit(HUNG.into());
                }
            }
        });
        Self(give)
    }

    /// Does `work`, or ends the process with these last words.
    fn watch<T>(&self, last_words: String, work: impl FnOnce() -> T) -> T {
        // The thread ends with the process.
        let _ = self.0.send(Some(last_words));
        let result = work();
        let _ = self.0.send(None);
        result
    }
}

fn end_line(index: usize, kernel: &Kernel, state: &State) -> String {
    format!("{END} {index} {} {state}", kernel.name)
}

fn run(session: &Session, watchdog: &Watchdog, index: usize, kernel: &Kernel) -> State {
    let hung = end_line(index, kernel, &State::Hung);
    let loaded = match session.load(kernel) {
        Ok(loaded) => loaded,
        Err(ended) => return ended.into(),
    };
    watchdog.watch(hung, || session.run(kernel, &loaded)).into()
}

impl From<Ended> for State {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Right => Self::Ran,
            Ended::Wrong => Self::Wrong,
            Ended::Refused(failure) => Self::Refused(failure.to_string()),
            Ended::Failed(failure) => Self::Failed(failure.to_string()),
        }
    }
}

/// Launches the kernel `index` and every `step`-th behind it, buggy ones too.
pub fn from(index: usize, step: usize) -> ExitCode {
    let session = match Session::open() {
        Ok(session) => session,
        Err(error) => {
            eprintln!("corpus: {error}");
            return UNABLE.into();
        }
    };
    let watchdog = Watchdog::start();
    for (index, kernel) in list::all().iter().enumerate().skip(index).step_by(step) {
        say(&format!("{BEGIN} {index} {}", kernel.name));
        let state = if kernel.shape.hangs { State::Skipped } else { run(&session, &watchdog, index, kernel) };
        // Some errors of a kernel show only after its launch has come back.
        let is_alive = matches!(state, State::Skipped | State::Refused(_)) || session.is_alive();
        let state = match state {
            State::Ran | State::Wrong if !is_alive => State::Failed("an error behind the launch".to_owned()),
            state => state,
        };
        say(&end_line(index, kernel, &state));
        if !is_alive {
            return BROKEN.into();
        }
    }
    say(DONE);
    ExitCode::SUCCESS
}

/// The arguments that a test harness would be given, as far as they matter here.
struct Filter<'a> {
    names: Vec<&'a str>,
    skip: Vec<&'a str>,
    is_exact: bool,
    nothing: bool,
}

impl<'a> Filter<'a> {
    fn new(args: &[&'a str]) -> Self {
        let mut filter = Self { names: Vec::new(), skip: Vec::new(), is_exact: false, nothing: false };
        let mut args = args.iter();
        while let Some(&arg) = args.next() {
            match arg {
                "--skip" => filter.skip.extend(args.next()),
                "--test-threads" | "--format" | "--color" | "--logfile" | "-Z" => drop(args.next()),
                "--exact" => filter.is_exact = true,
                "--ignored" | "--list" => filter.nothing = true,
                _ if arg.starts_with('-') => {}
                _ => filter.names.push(arg),
            }
        }
        filter
    }

    fn takes(&self, name: &str) -> bool {
        let fits = |wanted: &&str| if self.is_exact { name == *wanted } else { name.contains(*wanted) };
        let wanted = self.names.is_empty() || self.names.iter().any(fits);
        wanted && !self.nothing && !self.skip.iter().any(fits)
    }
}

/// Launches the correct kernels, as a test program that takes the arguments of a test harness.
pub fn test(args: &[&str]) -> ExitCode {
    let filter = Filter::new(args);
    let kernels = list::all();
    // The checker stops those of the list, which are false alarms. A GPU runs them.
    let is_checked = driver::backend() == Ok(driver::Backend::Software);
    let takes = |kernel: &Kernel| {
        kernel.is_right.is_some() && filter.takes(kernel.name) && !(is_checked && not_yet::holds(kernel.name))
    };
    let chosen: Vec<_> = kernels.iter().enumerate().filter(|(_, kernel)| takes(kernel)).collect();
    say(&format!("\nrunning {} tests", chosen.len()));
    let (passed, failed) = if chosen.is_empty() { (0, 0) } else { test_all(&chosen) };
    let word = if failed == 0 { "ok" } else { "FAILED" };
    let left_out = kernels.len() - chosen.len();
    say(&format!(
        "\ntest result: {word}. {passed} passed; {failed} failed; 0 ignored; 0 measured; {left_out} filtered out"
    ));
    ExitCode::from(u8::from(failed != 0))
}

/// How many passed, and how many failed. Behind a kernel that breaks the context none is run.
fn test_all(chosen: &[(usize, &Kernel)]) -> (usize, usize) {
    let session = match Session::open() {
        Ok(session) => session,
        Err(reason) => {
            say(&format!("skipped: {reason}"));
            return (1, 0);
        }
    };
    let watchdog = Watchdog::start();
    for (done, (index, kernel)) in chosen.iter().enumerate() {
        let state = run(&session, &watchdog, *index, kernel);
        if !matches!(state, State::Ran) {
            let report = driver::soft::last_fault().unwrap_or_default();
            say(&format!("test {} ... FAILED: {state}\n{report}", kernel.name));
            return (done, 1);
        }
    }
    (chosen.len(), 0)
}
