//! A thread that looks whether the processes of a group's other ranks live, and that frees the rank's memory
//! when no peer has it any more.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::sleep;
use std::time::Duration;

use rustix::io::Errno;

use super::words::{Mark, Words};
use crate::error::Result;
use crate::memory::DeviceBuffer;
use crate::parallel::nccl::Link;
use crate::parallel::thread;

/// Between two looks.
const PERIOD: Duration = Duration::from_millis(10);

/// A process: its number, and when it began, since numbers are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    pub number: u32,
    pub begun: u64,
}

impl Process {
    /// The process of this number, if it lives.
    ///
    /// # Errors
    /// When the system does not tell: too many files are open, or the process must not be seen.
    fn of(number: u32) -> io::Result<Option<Self>> {
        match std::fs::read_to_string(format!("/proc/{number}/stat")) {
            Ok(text) => Ok(Self::in_stat(number, &text)),
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The process that its `stat` tells of, if it lives.
    fn in_stat(number: u32, text: &str) -> Option<Self> {
        // The name, in brackets, may hold anything.
        let mut fields = text[text.rfind(')')? + 1..].split_ascii_whitespace();
        let is_dead = matches!(fields.next()?, "Z" | "X" | "x");
        let begun = fields.nth(18)?.parse().ok()?;
        (!is_dead).then_some(Process { number, begun })
    }

    /// This process, if it can be seen.
    pub fn own() -> io::Result<Option<Self>> {
        Self::of(std::process::id())
    }

    /// Whether it lives. Where that cannot be told, it does: the next look tells.
    pub fn is_alive(self) -> bool {
        self.lives_by(Self::of(self.number))
    }

    /// Whether it lives, by what its number stands for now.
    fn lives_by(self, now: io::Result<Option<Self>>) -> bool {
        now.is_err() || now.is_ok_and(|now| now == Some(self))
    }
}

/// Whether there is no such process: its file is not there, or went while it was read.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(Errno::SRCH.raw_os_error())
}

/// The end of the thread that the rank has. It is there before peers can open the rank's memory, which they
/// may have longer than the rank.
pub struct Watch(Sender<Step>);

/// A step of the thread.
enum Step {
    Look(Box<Watched>),
    /// Free the memory that the rank has left.
    Free(DeviceBuffer<u8>),
}

/// The things that the thread looks at.
pub struct Watched {
    pub words: Arc<Words>,
    pub rank: u32,
    pub processes: Vec<Process>,
    /// The rank's part in NCCL, which hears of failures, and has its own.
    pub nccl: Option<Link>,
    /// Whether its device is the software driver's, which runs queued work when somebody waits for it.
    pub is_software: bool,
}

impl Watch {
    pub fn start(rank: u32) -> Result<Self> {
        let (sender, steps) = channel();
        let watch = move || {
            if let Ok(Step::Look(watched)) = steps.recv() {
                watched.run(&steps);
            }
        };
        thread::start(&format!("ironwarp-rank-{rank}"), "a thread that watches", watch)?;
        Ok(Watch(sender))
    }

    /// The ranks have joined: the thread looks at them from now on.
    pub fn look(&self, watched: Watched) {
        // The thread waits for this.
        let _ = self.0.send(Step::Look(Box::new(watched)));
    }

    /// The rank leaves its memory: it is freed when no peer has it any more.
    pub fn leave(&self, memory: DeviceBuffer<u8>) {
        // The thread ends after this alone.
        let _ = self.0.send(Step::Free(memory));
    }
}

impl Watched {
    fn run(&self, steps: &Receiver<Step>) {
        loop {
            match steps.recv_timeout(PERIOD) {
                Ok(Step::Free(memory)) => return self.free(memory),
                Ok(Step::Look(_)) | Err(RecvTimeoutError::Timeout) => self.look(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn others(&self) -> impl Iterator<Item = (u32, Process)> {
        (0..).zip(self.processes.iter().copied()).filter(|(rank, _)| *rank != self.rank)
    }

    fn look(&self) {
        if self.is_software {
            // A peer's kernel may wait for it, in a process that this driver does not see.
            driver::soft::start_waiting_work();
        }
        let is_lost =
            |(rank, process): &(u32, Process)| !self.words.has(*rank, Mark::Gone) && !process.is_alive();
        if let Some((rank, process)) = self.others().find(is_lost) {
            self.words.fail(&format!("rank {rank} (process {}) has ended", process.number));
        }
        if let Some(link) = &self.nccl {
            if let Some(reason) = link.failure() {
                self.words.fail(&reason);
            }
            if let Some(reason) = self.words.failure() {
                link.tell(reason);
            }
        }
        if self.words.failure().is_some() {
            self.words.abort();
        }
    }

    /// Frees the rank's memory. A peer that still has it mapped may use it until it has closed it or has
    /// died.
    fn free(&self, memory: DeviceBuffer<u8>) {
        let has_it =
            |(rank, process): (u32, Process)| !self.words.has(rank, Mark::Closed) && process.is_alive();
        while self.others().any(has_it) {
            sleep(PERIOD);
        }
        drop(memory);
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use rustix::io::Errno;

    use super::{Process, is_gone};

    /// A process that has no room for another file must not take its peers for dead.
    #[test]
    fn a_process_that_cannot_be_looked_at_lives() {
        let own = Process::own().expect("`/proc`").expect("this one lives");
        assert!(own.lives_by(Err(Errno::MFILE.into())));
        assert!(own.lives_by(Ok(Some(own))) && !own.lives_by(Ok(None)));
        for (errno, gone) in
            [(Errno::NOENT, true), (Errno::SRCH, true), (Errno::MFILE, false), (Errno::ACCESS, false)]
        {
            assert_eq!(is_gone(&io::Error::from(errno)), gone, "{errno}");
        }
    }

    #[test]
    fn processes_are_seen() {
        let own = Process::own().expect("`/proc`").expect("this one lives");
        assert!(own.is_alive());
        assert!(!Process { begun: own.begun + 1, ..own }.is_alive());
        let mut child = std::process::Command::new("true").spawn().expect("a child");
        let number = child.id();
        // It ends, and is not waited for yet.
        while Process::of(number).expect("`/proc`").is_some() {
            std::thread::yield_now();
        }
        child.wait().expect("it has ended");
    }
}
