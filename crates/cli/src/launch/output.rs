//! The lines of all ranks on one terminal.

use std::collections::VecDeque;
use std::io::{self, BufRead as _, BufReader, Read};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::term;

/// Lines of a rank that are kept for the report, and the letters of each.
const KEPT_LINES: usize = 20;
const KEPT_LETTERS: usize = 500;
/// A longer line is cut into several.
const LONGEST: usize = 1 << 16;
/// How long a pipe of a rank that has ended may be silent, until nothing more is expected there.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The colours of ranks, in turn: those that can be read on dark and on light ground.
const COLOURS: &[&str] = &["36", "33", "32", "35", "34", "31"];

/// The terminal, or what stands for it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Output,
    Errors,
}

/// The output of one rank.
pub struct Lines {
    last: Arc<Mutex<VecDeque<String>>>,
    readers: Vec<Follower>,
}

/// A thread that copies lines.
struct Follower {
    thread: JoinHandle<()>,
    /// Whether it has a line that the launcher's reader has not taken yet.
    writes: Arc<AtomicBool>,
}

/// Set when nobody reads the launcher's output any more.
pub type ReaderGone = Arc<AtomicBool>;

impl Lines {
    /// Copies what comes out of the pipes, with the rank in front of each line.
    pub fn follow(
        rank: u32,
        pipes: Vec<(Box<dyn Read + Send>, Stream)>,
        gone: &ReaderGone,
    ) -> io::Result<Self> {
        let last = Arc::new(Mutex::new(VecDeque::new()));
        let mut readers = Vec::new();
        for (pipe, to) in pipes {
            let (last, gone, writes) = (Arc::clone(&last), Arc::clone(gone), Arc::<AtomicBool>::default());
            let (prefix, writing) = (prefix(rank), Arc::clone(&writes));
            let follow = move || {
                copy(pipe, &prefix, &last, |line| {
                    writing.store(true, Ordering::Relaxed);
                    let written = write(to, line);
                    writing.store(false, Ordering::Relaxed);
                    written.inspect_err(|_| gone.store(true, Ordering::Relaxed))
                });
            };
            let thread = std::thread::Builder::new().name(format!("output of rank {rank}"));
            readers.push(Follower { thread: thread.spawn(follow)?, writes });
        }
        Ok(Self { last, readers })
    }

    /// The last lines so far.
    pub fn last(&self) -> Vec<String> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

/// Waits until all that ended ranks have printed is written: for a slow reader as long as that takes, unless
/// `hurry` says so. A pipe that a process left behind holds open costs a moment.
pub fn drain(all: &[&Lines], mut hurry: impl FnMut() -> bool) {
    let mut quiet = Instant::now();
    loop {
        let mut left =
            all.iter().flat_map(|lines| &lines.readers).filter(|it| !it.thread.is_finished()).peekable();
        if left.peek().is_none() || quiet.elapsed() > LAST_WORDS || hurry() {
            return;
        }
        if left.any(|reader| reader.writes.load(Ordering::Relaxed)) {
            quiet = Instant::now();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn prefix(rank: u32) -> String {
    let text = format!("[rank {rank}] ");
    match COLOURS.get(rank as usize % COLOURS.len()).filter(|_| term::colours()) {
        Some(colour) => format!("\x1b[{colour}m{text}\x1b[0m"),
        None => text,
    }
}

/// Copies lines, with a prefix, until one cannot be written. The rest is read all the same, so that the rank
/// does not wait.
fn copy(
    pipe: impl Read,
    prefix: &str,
    last: &Mutex<VecDeque<String>>,
    mut write: impl FnMut(&[u8]) -> io::Result<()>,
) {
    let mut pipe = BufReader::new(pipe);
    let (mut line, mut written) = (prefix.as_bytes().to_vec(), true);
    loop {
        line.truncate(prefix.len());
        match pipe.by_ref().take(LONGEST as u64).read_until(b'\n', &mut line) {
            Ok(0) => return,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // As good as the end: the rank cannot write there any more.
            Err(_) => return,
            Ok(_) => {
                if line.last() != Some(&b'\n') {
                    line.push(b'\n');
                }
                keep(last, &line[prefix.len()..line.len() - 1]);
                written = written && write(&line).is_ok();
            }
        }
    }
}

fn keep(last: &Mutex<VecDeque<String>>, line: &[u8]) {
    let text: String = String::from_utf8_lossy(line).chars().take(KEPT_LETTERS).collect();
    let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
    if last.len() == KEPT_LINES {
        last.pop_front();
    }
    last.push_back(text);
}

fn write(to: Stream, line: &[u8]) -> io::Result<()> {
    // One for each stream, so that lines are whole. The standard library's locks stay free: whoever ends the
    // program takes them, also while a reader takes nothing.
    static LOCKS: [Mutex<()>; 2] = [Mutex::new(()), Mutex::new(())];
    let lock = |at: usize| LOCKS[at].lock().unwrap_or_else(PoisonError::into_inner);
    match to {
        Stream::Output => {
            let _whole = lock(0);
            write_whole(io::stdout().as_fd(), line)
        }
        Stream::Errors => {
            let _whole = lock(1);
            write_whole(io::stderr().as_fd(), line)
        }
    }
}

/// Another program may have made the terminal one that does not wait: then this waits.
fn write_whole(output: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(output, bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::AGAIN) => std::thread::sleep(Duration::from_millis(5)),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept_and_bounded() {
        let text = (0..30).map(|n| format!("line {n}\n")).collect::<String>() + &"x".repeat(200_000);
        let (last, mut written) = (Mutex::default(), Vec::new());
        let write = |line: &[u8]| {
            written.extend_from_slice(line);
            Ok(())
        };
        copy(text.as_bytes(), "[rank 0] ", &last, write);
        let written = String::from_utf8(written).unwrap();
        assert!(written.starts_with("[rank 0] line 0\n[rank 0] line 1\n") && written.ends_with("x\n"));
        // 200,000 letters are four lines.
        assert_eq!(written.lines().count(), 34);
        let last = last.into_inner().unwrap();
        assert_eq!(last.len(), KEPT_LINES);
        assert_eq!((&*last[KEPT_LINES - 5], &*last[KEPT_LINES - 1]), ("line 29", &*"x".repeat(KEPT_LETTERS)));
    }

    #[test]
    fn a_writer_that_fails_does_not_keep_the_rank_waiting() {
        let (last, mut calls) = (Mutex::default(), 0);
        let write = |_: &[u8]| {
            calls += 1;
            Err(io::ErrorKind::BrokenPipe.into())
        };
        copy(&b"a\nb\nc"[..], "", &last, write);
        assert_eq!((calls, last.into_inner().unwrap().len()), (1, 3));
    }
}
