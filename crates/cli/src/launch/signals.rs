//! Signals that the launcher hands on to its ranks.

use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::Signal;

/// The signals, with their names, and whether they ask a program to end.
const KNOWN: &[(Signal, &str, bool)] = &[
    (Signal::INT, "SIGINT", true),
    (Signal::TERM, "SIGTERM", true),
    (Signal::HUP, "SIGHUP", true),
    (Signal::QUIT, "SIGQUIT", true),
    (Signal::USR1, "SIGUSR1", false),
    (Signal::USR2, "SIGUSR2", false),
];

/// Names of further signals that end programs.
const FATAL: &[(Signal, &str)] = &[
    (Signal::KILL, "SIGKILL"),
    (Signal::SEGV, "SIGSEGV"),
    (Signal::ABORT, "SIGABRT"),
    (Signal::BUS, "SIGBUS"),
    (Signal::FPE, "SIGFPE"),
    (Signal::ILL, "SIGILL"),
    (Signal::PIPE, "SIGPIPE"),
    (Signal::ALARM, "SIGALRM"),
    (Signal::TRAP, "SIGTRAP"),
    (Signal::XCPU, "SIGXCPU"),
    (Signal::XFSZ, "SIGXFSZ"),
    (Signal::SYS, "SIGSYS"),
];

/// Remembers the signals that come.
pub struct Signals {
    flags: Vec<Arc<AtomicBool>>,
}

impl Signals {
    /// Those that the launcher's parent has it ignore stay ignored, by its ranks too: `nohup` relies on it.
    pub fn catch() -> io::Result<Self> {
        let (mut flags, ignored) = (Vec::new(), ignored(&fs::read_to_string("/proc/self/status")?));
        for (signal, ..) in KNOWN {
            let flag = Arc::new(AtomicBool::new(false));
            if ignored >> (signal.as_raw() - 1) & 1 == 0 {
                signal_hook::flag::register(signal.as_raw(), Arc::clone(&flag))?;
            }
            flags.push(flag);
        }
        // The system tells nothing about the children of a process that ignores their ends.
        signal_hook::flag::register(Signal::CHILD.as_raw(), Arc::default())?;
        Ok(Self { flags })
    }

    /// Those that have come since the last call, and whether each asks to end.
    pub fn take(&self) -> impl Iterator<Item = (Signal, bool)> {
        let came = self.flags.iter().zip(KNOWN).filter(|(flag, _)| flag.swap(false, Ordering::Relaxed));
        came.map(|(_, &(signal, _, ends))| (signal, ends))
    }
}

/// The signals that a process ignores, from the lowest bit, by its `status` in `/proc`.
fn ignored(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// `SIGTERM`, or nothing for rare ones.
pub fn name(signal: i32) -> Option<&'static str> {
    let known = KNOWN.iter().map(|&(signal, name, _)| (signal, name));
    known.chain(FATAL.iter().copied()).find(|(known, _)| known.as_raw() == signal).map(|(_, name)| name)
}
