//! Peers: the libraries that a user would otherwise choose. A separate process times them, alternating with
//! our samples.
//!
//! `baselines/serve.py` is started once. It is found beside the program (`../baselines`) or in the source
//! tree. JSON lines tell it what to prepare and when to take a sample. Both processes have their own context
//! on the same device, and only one of them works at a time.

use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

const SCRIPT: &str = "serve.py";
const PYTHON: &str = "python3";
/// The time limit for an answer. Loading PyTorch, or a search among cuBLASLt's algorithms, takes seconds;
/// more means a hang.
const PATIENCE: Duration = Duration::from_secs(180);

/// The reason why a peer is missing.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// The script was not found.
    #[error("no {SCRIPT} in {}", .searched.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(" or "))]
    NoScript {
        /// Folders searched.
        searched: Vec<PathBuf>,
    },
    /// Python does not start.
    #[error("{PYTHON} does not start: {0}")]
    Start(std::io::Error),
    /// The process ended or closed its output.
    #[error("the peers' process ended")]
    Ended,
    /// The process does not answer.
    #[error("the peers' process has not answered `{request}` for {} s", PATIENCE.as_secs())]
    Silent {
        /// The request.
        request: String,
    },
    /// An invalid answer.
    #[error("the peers' process answered `{answer}` to `{request}`")]
    Nonsense {
        /// The request.
        request: String,
        /// The answer.
        answer: String,
    },
    /// The process refused the request, with a reason.
    #[error("`{request}` is refused: {why}")]
    Refused {
        /// The request.
        request: String,
        /// The reason.
        why: String,
    },
}

/// The running process.
struct Process {
    child: Child,
    input: ChildStdin,
    answers: Receiver<String>,
}

impl Process {
    fn start(script: &Path) -> Result<Self, PeerError> {
        let mut child = Command::new(PYTHON)
            .arg("-B")
            .arg(script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(PeerError::Start)?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(PeerError::Ended);
        };
        let (sender, answers) = channel();
        // Ends with the process, or when the receiver is dropped.
        std::thread::spawn(move || {
            BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Ok(Process { child, input, answers })
    }

    fn ask(&mut self, request: &Value) -> Result<Value, PeerError> {
        writeln!(self.input, "{request}").and_then(|()| self.input.flush()).map_err(|_| PeerError::Ended)?;
        let line = self.answers.recv_timeout(PATIENCE).map_err(|error| match error {
            RecvTimeoutError::Timeout => PeerError::Silent { request: request.to_string() },
            RecvTimeoutError::Disconnected => PeerError::Ended,
        })?;
        let answer: Value = serde_json::from_str(&line)
            .map_err(|_| PeerError::Nonsense { request: request.to_string(), answer: line.clone() })?;
        match answer.get("error") {
            None => Ok(answer),
            Some(why) => {
                let why = why.as_str().map_or_else(|| why.to_string(), str::to_owned);
                Err(PeerError::Refused { request: request.to_string(), why })
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process ends by itself at the end of its input, unless it hangs. The result is ignored: the
        // process may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The process that times the peers.
pub struct Peers {
    process: Rc<RefCell<Process>>,
}

impl Peers {
    /// Starts the process. [`Peers::facts`] shows whether it has PyTorch and a device.
    ///
    /// # Errors
    /// [`PeerError::NoScript`] or [`PeerError::Start`].
    pub fn start() -> Result<Self, PeerError> {
        let process = Process::start(&find_script()?)?;
        Ok(Peers { process: Rc::new(RefCell::new(process)) })
    }

    /// Device and versions, as reported by the process.
    ///
    /// # Errors
    /// [`PeerError`], for example a refusal that says what Python lacks.
    pub fn facts(&self) -> Result<String, PeerError> {
        let request = json!({ "facts": true });
        let answer = self.process.borrow_mut().ask(&request)?;
        Ok(field(&request, &answer, "facts", Value::as_str)?.to_owned())
    }

    /// Prepares an op: `{"prepare": "TOPIC.OP", ..}`, see `baselines/serve.py`.
    ///
    /// # Errors
    /// [`PeerError`].
    pub fn prepare(&self, request: &Value) -> Result<Peer, PeerError> {
        let answer = self.process.borrow_mut().ask(request)?;
        let id = field(request, &answer, "id", Value::as_u64)?;
        let label = field(request, &answer, "label", Value::as_str)?.to_owned();
        if let Some(note) = answer.get("note").and_then(Value::as_str) {
            println!("{label}: {note}");
        }
        let peer = Peer { process: self.process.clone(), id, label, per_run: Cell::new(f64::NAN) };
        // The time of one run. It sets the length of later samples, so that they match ours.
        peer.sample(1)?;
        Ok(peer)
    }
}

/// A prepared op. Dropping it frees its operands.
pub struct Peer {
    process: Rc<RefCell<Process>>,
    id: u64,
    label: String,
    /// Milliseconds per run in the last sample.
    per_run: Cell<f64>,
}

impl Peer {
    /// Its name in tables.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Takes a sample of about that many milliseconds. Returns the number of runs and their milliseconds.
    ///
    /// # Errors
    /// [`PeerError`].
    pub fn sample_for(&self, milliseconds: f64) -> Result<(u64, f64), PeerError> {
        // The cast saturates: NaN becomes 0, and a large number the maximum.
        self.sample(((milliseconds / self.per_run.get()).round() as u64).clamp(1, MOST_RUNS))
    }

    fn sample(&self, runs: u64) -> Result<(u64, f64), PeerError> {
        let request = json!({ "sample": self.id, "runs": runs });
        let answer = self.process.borrow_mut().ask(&request)?;
        let runs = field(&request, &answer, "runs", Value::as_u64)?.max(1);
        let milliseconds = field(&request, &answer, "milliseconds", Value::as_f64)?;
        self.per_run.set(milliseconds / runs as f64);
        Ok((runs, milliseconds))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // If the process has ended, everything is freed.
        let _ = self.process.borrow_mut().ask(&json!({ "drop": self.id }));
    }
}

/// The most runs per sample.
const MOST_RUNS: u64 = 1 << 20;

fn field<'a, T>(
    request: &Value,
    answer: &'a Value,
    name: &str,
    read: impl FnOnce(&'a Value) -> Option<T>,
) -> Result<T, PeerError> {
    answer
        .get(name)
        .and_then(read)
        .ok_or_else(|| PeerError::Nonsense { request: request.to_string(), answer: answer.to_string() })
}

/// In a bundle, programs lie in `benches` beside `baselines`. cargo's programs lie elsewhere.
fn find_script() -> Result<PathBuf, PeerError> {
    let beside = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.parent()?.join("baselines")));
    let searched: Vec<PathBuf> =
        beside.into_iter().chain([Path::new(env!("CARGO_MANIFEST_DIR")).join("baselines")]).collect();
    match searched.iter().map(|folder| folder.join(SCRIPT)).find(|script| script.is_file()) {
        Some(script) => Ok(script),
        None => Err(PeerError::NoScript { searched }),
    }
}

#[cfg(test)]
mod tests {
    use super::{PeerError, Peers};
    use serde_json::json;

    /// Without Python there are no peers, and nothing to test.
    fn start() -> Option<Peers> {
        match Peers::start() {
            Ok(peers) => Some(peers),
            Err(PeerError::Start(error)) => {
                testkit::skip(&format!("no python3: {error}"));
                None
            }
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn samples_are_as_long_as_asked() {
        let Some(peers) = start() else { return };
        let peer = peers.prepare(&json!({ "prepare": "check.clock", "milliseconds": 2 })).unwrap();
        assert_eq!(peer.label(), "clock");
        let (runs, milliseconds) = peer.sample_for(20.0).unwrap();
        // Ten, or fewer if the machine delayed the first one.
        assert!((1..=10).contains(&runs), "{runs} runs");
        assert!(milliseconds >= 2.0 * runs as f64, "{milliseconds} ms for {runs} runs");
    }

    #[test]
    fn refusals_say_why_and_the_next_request_works() {
        let Some(peers) = start() else { return };
        for (request, why) in [
            (json!({ "prepare": "check.nothing" }), "only clock"),
            (json!({ "prepare": "nowhere.nothing" }), "peer_nowhere"),
            (json!({ "dance": 1 }), "prepare, sample, drop, facts"),
        ] {
            match peers.prepare(&request) {
                Err(PeerError::Refused { why: got, .. }) if got.contains(why) => {}
                Err(other) => panic!("{other}"),
                Ok(_) => panic!("{request} is accepted"),
            }
        }
        assert!(peers.prepare(&json!({ "prepare": "check.clock" })).is_ok());
    }

    #[test]
    fn a_dropped_op_is_gone() {
        let Some(peers) = start() else { return };
        let request = json!({ "prepare": "check.clock" });
        let first = peers.prepare(&request).unwrap();
        let id = first.id;
        drop(first);
        let error = peers.process.borrow_mut().ask(&json!({ "sample": id, "runs": 1 })).unwrap_err();
        assert!(matches!(error, PeerError::Refused { ref why, .. } if why.contains("KeyError")), "{error}");
    }

    #[test]
    fn an_end_is_noticed() {
        let Some(peers) = start() else { return };
        peers.process.borrow_mut().child.kill().unwrap();
        peers.process.borrow_mut().child.wait().unwrap();
        let error = peers.prepare(&json!({ "prepare": "check.clock" })).err().unwrap();
        assert!(matches!(error, PeerError::Ended), "{error}");
    }
}
