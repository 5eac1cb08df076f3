//! The processes of this node: started, signalled, reaped.
//!
//! Each rank leads a process group of its own, and is killed by the system when the launcher ends however it
//! may. The launcher is the new parent of what ranks leave behind, and kills that too.

use std::fs;
use std::io;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};

use rendezvous::world::names;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, getpid, getppid, kill_process, kill_process_group,
    set_child_subreaper, set_parent_process_death_signal, wait, waitid,
};

use super::cluster::Place;
use super::options::Job;
use super::output::{Lines, ReaderGone, Stream};
use crate::error::Error;
use crate::process::cannot_run;

/// Rounds of killing what is left behind: each may free further ones.
const SWEEPS: u32 = 100;

/// A process of the job.
pub struct Rank {
    pub rank: u32,
    child: Child,
    pub lines: Lines,
    pub status: Option<ExitStatus>,
}

impl Rank {
    /// Starts a rank. To be called by the main thread: the system kills the rank when the thread ends that
    /// started it.
    pub fn start(job: &Job, place: &Place, local: u32, gone: &ReaderGone) -> Result<Self, Error> {
        let rank = place.first_rank + local;
        let mut command = Command::new(&job.program);
        command.args(&job.args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0);
        set_variables(&mut command, job, place, local);
        let launcher = getpid();
        let die_together = move || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // The launcher may have ended just before.
            if getppid() == Some(launcher) { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
        };
        // SAFETY: between `fork` and `exec` the closure makes two system calls and allocates nothing.
        unsafe { command.pre_exec(die_together) };
        let mut child = command.spawn().map_err(cannot_run(&command))?;
        let output = if job.json { Stream::Errors } else { Stream::Output };
        let pipes = [
            child.stdout.take().map(|pipe| (Box::new(pipe) as Box<dyn io::Read + Send>, output)),
            child.stderr.take().map(|pipe| (Box::new(pipe) as Box<dyn io::Read + Send>, Stream::Errors)),
        ];
        let lines = Lines::follow(rank, pipes.into_iter().flatten().collect(), gone);
        let lines = lines.map_err(super::failed("start a thread for a rank's output"))?;
        Ok(Self { rank, child, lines, status: None })
    }

    fn group(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
    }

    /// Sends a signal to all processes of the rank, unless it has been reaped.
    pub fn signal(&self, signal: Signal) {
        if let Some(group) = self.group().filter(|_| self.status.is_none()) {
            // It may have ended a moment ago.
            let _ = kill_process_group(group, signal);
        }
    }

    /// Whether the rank has just ended. Its group is killed before its number is free for others.
    ///
    /// # Errors
    /// When the system cannot tell: nobody would ever hear of its end.
    pub fn reap(&mut self) -> Result<Option<ExitStatus>, Error> {
        let Some(process) = self.group().filter(|_| self.status.is_none()) else { return Ok(None) };
        let rank = self.rank;
        let failed =
            |source: io::Error| Error::Other(format!("cannot wait for rank {rank}: {source}").into());
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if waitid(WaitId::Pid(process), look).map_err(|error| failed(error.into()))?.is_none() {
            return Ok(None);
        }
        self.signal(Signal::KILL);
        self.status = Some(self.child.wait().map_err(failed)?);
        Ok(self.status)
    }
}

/// The variables by which a rank knows who it is: ours, and torchrun's.
fn set_variables(command: &mut Command, job: &Job, place: &Place, local: u32) {
    let mut set = |name: &str, value: &dyn std::fmt::Display| _ = command.env(name, value.to_string());
    let rank = place.first_rank + local;
    for (ours, torchruns, number) in [
        (names::RANK, "RANK", rank),
        (names::SIZE, "WORLD_SIZE", place.size),
        (names::LOCAL_RANK, "LOCAL_RANK", local),
        (names::LOCAL_SIZE, "LOCAL_WORLD_SIZE", job.ranks),
        (names::NODE, "GROUP_RANK", job.node),
        (names::GENERATION, "TORCHELASTIC_RESTART_COUNT", place.generation),
    ] {
        set(ours, &number);
        set(torchruns, &number);
    }
    set(names::ADDRESS, &place.store);
    set(names::TOKEN, &job.secret);
    set(names::TIMEOUT, &job.timeout.as_secs_f64());
    set(names::JOIN_TIMEOUT, &job.join_timeout.as_secs_f64());
    set("GROUP_WORLD_SIZE", &job.nodes);
    set("TORCHELASTIC_MAX_RESTARTS", &job.restarts);
    set("MASTER_ADDR", &place.store.host);
    set("MASTER_PORT", &place.torch_port);
    command.env(names::RECORDS, &job.records);
    // Unless the user says otherwise: Ironwarp refuses NCCL with multicast.
    if std::env::var_os(driver::nccl::MULTICAST_VARIABLE).is_none() {
        command.env(driver::nccl::MULTICAST_VARIABLE, "0");
    }
    // No store of torch's listens there: its rank 0 is to serve one.
    command.env_remove("TORCHELASTIC_USE_AGENT_STORE");
}

/// How a process ended: `exit code 3`, `killed by signal 9 (SIGKILL)`.
pub fn shown(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => match super::signals::name(signal) {
            Some(name) => format!("killed by signal {signal} ({name})"),
            None => format!("killed by signal {signal}"),
        },
        (None, None) => status.to_string(),
    }
}

/// The code that a shell would show.
pub fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}

/// The launcher as the new parent of processes that ranks leave behind.
pub struct Orphans(());

impl Orphans {
    pub fn adopt() -> io::Result<Self> {
        set_child_subreaper(Some(getpid()))?;
        Ok(Self(()))
    }

    /// Kills and reaps all that is left. To be called when no rank lives.
    pub fn end(&self) {
        for _ in 0..SWEEPS {
            let children = children();
            if children.is_empty() {
                return;
            }
            for child in children {
                let _ = kill_process(child, Signal::KILL);
            }
            while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }
}

/// The processes whose parent is this one.
fn children() -> Vec<Pid> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let numbers = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    numbers.filter(|number| parent(*number) == Some(getpid())).filter_map(Pid::from_raw).collect()
}

/// The fourth word of `stat`; the second is a name in brackets, which may hold anything.
fn parent(process: i32) -> Option<Pid> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    Pid::from_raw(rest.split_whitespace().nth(1)?.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_told_in_words_and_numbers() {
        for (raw, text, number) in [
            (0, "exit code 0", 0),
            (3 << 8, "exit code 3", 3),
            (9, "killed by signal 9 (SIGKILL)", 137),
            (42, "killed by signal 42", 170),
        ] {
            let status = ExitStatus::from_raw(raw);
            assert_eq!((&*shown(status), code(status)), (text, number));
        }
    }

    /// A rank that somebody else has waited for is not waited for for ever.
    #[test]
    fn an_end_that_cannot_be_told_is_an_error() {
        let child = Command::new("true").spawn().unwrap();
        let lines = Lines::follow(3, Vec::new(), &ReaderGone::default()).unwrap();
        let mut rank = Rank { rank: 3, child, lines, status: None };
        waitid(WaitId::Pid(rank.group().unwrap()), WaitIdOptions::EXITED).unwrap();
        let text = rank.reap().unwrap_err().to_string();
        assert!(text.starts_with("cannot wait for rank 3: No child"), "{text}");
    }

    #[test]
    fn children_are_found() {
        let mut child = Command::new("sleep").arg("5").spawn().unwrap();
        let id = Pid::from_raw(child.id() as i32).unwrap();
        assert!(children().contains(&id));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!children().contains(&id));
    }
}
