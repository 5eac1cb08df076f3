//! Jobs of processes that a fault strikes at a random moment: for tests of who notices it, and when.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, Stdio, exit};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use crate::Random;

/// How a process' last line begins. The test harness prints lines of its own before.
const SAID: &str = "said: ";
/// Between two looks at a job's processes.
const PAUSE: Duration = Duration::from_millis(2);
/// Connections of a noise, and bytes of each at most.
const CONNECTIONS: usize = 20;
const NOISE: i64 = 300;

/// Ends the process, which belongs to a [`Job`], with its last words.
pub fn end(code: i32, said: &str) -> ! {
    println!("{SAID}{}", said.replace('\n', " "));
    exit(code);
}

/// The processes of a job, which end with it whatever happens.
#[derive(Debug, Default)]
pub struct Job {
    /// `None` for those that have been waited for.
    processes: Vec<Option<Child>>,
}

/// How a process has ended.
#[derive(Debug, Clone)]
pub struct End {
    /// When it was noticed.
    pub at: SystemTime,
    /// Its exit code, or minus the signal's number.
    pub code: i32,
    /// Its last words ([`end`]).
    pub said: String,
}

impl Job {
    /// Starts a process; its number.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(&mut self, command: &mut Command) -> usize {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        self.processes.push(Some(command.spawn().expect("the program can be started")));
        self.processes.len() - 1
    }

    /// Processes that were started.
    pub fn len(&self) -> usize {
        self.processes.len()
    }

    /// Whether none was.
    pub fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }

    /// Sends a signal, such as `KILL`, to a process that was not waited for.
    ///
    /// # Panics
    /// When it was.
    pub fn signal(&self, number: usize, name: &str) {
        signal(self.processes[number].as_ref().expect("it was not waited for"), name);
    }

    /// Waits until all processes have ended, but for one; how they have, of those that were not waited for.
    ///
    /// # Panics
    /// When one runs for longer than `limit` from now on: it hangs.
    pub fn ends(&mut self, but: Option<usize>, limit: Duration, what: &str) -> Vec<Option<End>> {
        let begun = Instant::now();
        let mut ends: Vec<Option<End>> = vec![None; self.processes.len()];
        loop {
            let mut is_over = true;
            for (number, place) in self.processes.iter_mut().enumerate() {
                let Some(process) = place.as_mut().filter(|_| but != Some(number)) else { continue };
                let Some(status) = process.try_wait().expect("a child") else {
                    is_over = false;
                    continue;
                };
                let code = status.code().unwrap_or_else(|| -status.signal().unwrap_or(0));
                ends[number] = Some(End { at: SystemTime::now(), code, said: said(process) });
                *place = None;
            }
            if is_over {
                return ends;
            }
            assert!(begun.elapsed() < limit, "{what}: a process hangs: {ends:?}");
            std::thread::sleep(PAUSE);
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        for process in self.processes.iter_mut().flatten() {
            // It may have ended; a drop cannot return an error.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// The last words of a process that has ended.
fn said(process: &mut Child) -> String {
    let mut printed = String::new();
    let stdout = process.stdout.as_mut().expect("it is piped");
    stdout.read_to_string(&mut printed).expect("a process prints text");
    printed.lines().find_map(|line| line.split_once(SAID)).map_or(String::new(), |(_, said)| said.to_owned())
}

/// Sends a signal, such as `KILL`, to a child that has not been waited for.
///
/// # Panics
/// When that fails.
pub fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status();
    assert!(sent.is_ok_and(|status| status.success()), "{name}");
}

/// Garbage at a port of this machine, if somebody listens there.
pub fn noise(port: u16, random: &mut Random) {
    for _ in 0..CONNECTIONS {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return };
        let bytes: Vec<u8> = (0..random.integer(0, NOISE)).map(|_| random.bits() as u8).collect();
        // Who hangs up in between is right.
        let _ = stream.write_all(&bytes);
    }
}

/// Runs moments `0..count`, so many jobs at a time; the longest time that one has returned.
///
/// # Panics
/// When one does.
pub fn moments(count: u64, jobs: usize, one: impl Fn(u64) -> Duration + Sync) -> Duration {
    let (next, slowest) = (AtomicU64::new(0), Mutex::new(Duration::ZERO));
    let work = || {
        loop {
            let moment = next.fetch_add(1, Ordering::Relaxed);
            if moment >= count {
                return;
            }
            let took = one(moment);
            let mut slowest = slowest.lock().expect("no panic");
            *slowest = took.max(*slowest);
        }
    };
    std::thread::scope(|threads| (0..jobs).for_each(|_| _ = threads.spawn(work)));
    slowest.into_inner().expect("no panic")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn ends_and_last_words_are_known() {
        let mut job = Job::default();
        for script in ["echo test; echo said: a b; exit 3", "kill -9 $$", "exec sleep 60"] {
            job.start(&mut shell(script));
        }
        let ends = job.ends(Some(2), Duration::from_secs(30), "three");
        let known: Vec<_> = ends.iter().flatten().map(|end| (end.code, end.said.as_str())).collect();
        assert_eq!(known, [(3, "a b"), (-9, "")]);
        assert!(ends[2].is_none());
        job.signal(2, "TERM");
        let ends = job.ends(None, Duration::from_secs(30), "the last");
        assert_eq!(ends.iter().flatten().map(|end| end.code).collect::<Vec<_>>(), [-15]);
    }

    #[test]
    #[should_panic(expected = "three: a process hangs")]
    fn who_hangs_is_not_waited_for() {
        let mut job = Job::default();
        job.start(&mut shell("exec sleep 60"));
        job.ends(None, Duration::from_millis(50), "three");
    }

    #[test]
    fn each_moment_comes_once() {
        let seen = Mutex::new(Vec::new());
        let slowest = moments(10, 3, |moment| {
            seen.lock().unwrap().push(moment);
            Duration::from_secs(moment % 7)
        });
        let mut seen = seen.into_inner().unwrap();
        seen.sort_unstable();
        assert_eq!((seen, slowest), ((0..10).collect(), Duration::from_secs(6)));
    }
}
