//! Launchers of several nodes: they meet at a store of their own, number the ranks, and agree on when a start
//! of the job is over.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rendezvous::{
    Address, Client, Error as StoreError, Launcher, Options, Store, StoreOptions, Token, World,
};

use super::options::Job;
use super::{failed, of_store};
use crate::error::Error;

/// How long a question to the store may wait, so that nothing else has to wait for longer.
const SHORT: Duration = Duration::from_millis(500);

/// The launchers of the job.
pub struct Cluster {
    /// Nothing for a job on one node.
    control: Option<Arc<Client>>,
    /// The number of all ranks.
    pub size: u32,
    /// The first rank of this node.
    pub first_rank: u32,
}

/// Where the ranks of one start are.
pub struct Place {
    pub generation: u32,
    pub size: u32,
    pub first_rank: u32,
    /// The ranks' store.
    pub store: Address,
    /// A free port of node 0, for what torch serves.
    pub torch_port: u16,
    /// The store itself, on node 0.
    pub served: Option<Store>,
}

/// Why a start is over, as nodes tell each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Word {
    /// The job is not started again: somebody asked for its end, or a node cannot go on.
    Asked { code: u8, what: String },
    /// It failed, here because of this rank if it is known.
    Failed { rank: Option<u32>, why: String },
}

impl Word {
    fn to_text(&self) -> String {
        match self {
            Self::Asked { code, what } => format!("asked {code} {what}"),
            Self::Failed { rank: Some(rank), why } => format!("rank {rank} {why}"),
            Self::Failed { rank: None, why } => format!("failed {why}"),
        }
    }

    fn from_text(text: &str) -> Self {
        let (kind, rest) = text.split_once(' ').unwrap_or((text, ""));
        let (number, what) = rest.split_once(' ').unwrap_or((rest, ""));
        match (kind, number.parse::<u32>()) {
            ("asked", Ok(code)) => Self::Asked { code: code as u8, what: what.to_owned() },
            ("rank", Ok(rank)) => Self::Failed { rank: Some(rank), why: what.to_owned() },
            _ => Self::Failed { rank: None, why: rest.to_owned() },
        }
    }

    fn read(bytes: &[u8]) -> Self {
        Self::from_text(&String::from_utf8_lossy(bytes))
    }
}

impl Cluster {
    pub fn join(job: &Job) -> Result<Self, Error> {
        let Some(address) = &job.address else {
            return Ok(Self { control: None, size: job.ranks, first_rank: 0 });
        };
        let world = World {
            rank: job.node,
            size: job.nodes,
            address: address.clone(),
            token: Token::from_text(&format!("launchers {}", job.secret)),
            launcher: Launcher::Ironwarp,
            ..World::alone()
        };
        let options =
            Options { timeout: Some(job.timeout), join_timeout: Some(job.join_timeout), records: None };
        let control = Client::join(&world, &options).map_err(of_store)?;
        // Nodes may have different numbers of ranks, but must start again equally often.
        let own = [job.ranks, job.restarts].map(u32::to_le_bytes).concat();
        let all = control.gather("ranks and restarts", &own).map_err(of_store)?;
        let number = |blob: &[u8], at: usize| {
            blob.get(at..at + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
        };
        if let Some(other) = all.iter().map(|blob| number(blob, 4)).find(|&restarts| restarts != job.restarts)
        {
            return Err(Error::Usage(format!(
                "--restarts is {} here and {other} on another node",
                job.restarts
            )));
        }
        let ranks: Vec<u32> = all.iter().map(|blob| number(blob, 0)).collect();
        let first_rank = ranks[..job.node as usize].iter().sum();
        Ok(Self { control: Some(Arc::new(control)), size: ranks.iter().sum(), first_rank })
    }

    /// Serves or finds the store for the ranks of a start.
    pub fn place(&self, job: &Job, generation: u32) -> Result<Place, Error> {
        let Self { size, first_rank, .. } = *self;
        let key = format!("store/{generation}");
        if job.node > 0 {
            let place = self.ask(|control| control.get(&key, job.join_timeout))?;
            let place = String::from_utf8_lossy(&place).into_owned();
            let parsed = place
                .split_once(' ')
                .and_then(|(store, port)| Some((store.parse().ok()?, port.parse().ok()?)));
            let (store, torch_port) =
                parsed.ok_or_else(|| Error::Other(format!("node 0 says {place:?}").into()))?;
            return Ok(Place { generation, size, first_rank, store, torch_port, served: None });
        }
        let host = job.address.as_ref().map_or("127.0.0.1", |address| &address.host).to_owned();
        let mut store = Address { host, port: 0 };
        let token = Token::from_text(&job.secret);
        let served = Store::serve(&store, StoreOptions { size, generation, token, timeout: job.timeout });
        let served = served.map_err(of_store)?;
        store.port = served.address().port();
        let torch_port = free_port().map_err(failed("find a free port"))?;
        if let Some(control) = &self.control {
            control.set(&key, format!("{store} {torch_port}").as_bytes()).map_err(of_store)?;
        }
        Ok(Place { generation, size, first_rank, store, torch_port, served: Some(served) })
    }

    fn ask<T>(&self, question: impl Fn(&Client) -> Result<T, StoreError>) -> Result<T, Error> {
        let control =
            self.control.as_ref().ok_or_else(|| Error::Other("a job of one node has no others".into()))?;
        question(control).map_err(of_store)
    }

    /// Why the launchers have lost each other.
    pub fn lost(&self) -> Option<rendezvous::Failure> {
        self.control.as_ref().and_then(|control| control.failure())
    }

    /// Tells the other nodes that a start of the job is over, and why.
    pub fn tell_over(&self, generation: u32, why: &Word) {
        if let Some(control) = &self.control {
            // If they cannot be told, they have lost each other, which is noticed.
            let _ = control.set(&format!("over/{generation}"), why.to_text().as_bytes());
        }
    }

    /// Tells the other nodes that this one cannot start its ranks, and waits for nobody.
    pub fn give_up(&self, job: &Job, generation: u32, error: &Error) {
        let word = Word::Asked { code: 1, what: format!("node {} cannot go on: {error}", job.node) };
        self.tell_over(generation, &word);
        let _ = self.meet(job, generation, word);
    }

    /// Hears of it from another node.
    pub fn watch(&self, generation: u32) -> Watch {
        let (sender, over) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let thread = self.control.clone().map(|control| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    match control.get(&format!("over/{generation}"), SHORT / 5) {
                        Ok(why) => {
                            // Nobody listens any more when the start is over here, too.
                            let _ = sender.send(Word::read(&why));
                            return;
                        }
                        Err(StoreError::Timeout { .. }) => {}
                        Err(_) => return,
                    }
                }
            })
        });
        Watch { over, stop, thread }
    }

    /// This node is done with a start, and well. Whether all others are.
    pub fn all_done(&self, job: &Job, generation: u32) -> Result<bool, Error> {
        let Some(control) = &self.control else { return Ok(true) };
        let key = |node: u32| format!("done/{generation}/{node}");
        control.set(&key(job.node), b"").map_err(of_store)?;
        for node in 0..job.nodes {
            match control.get(&key(node), SHORT / 5) {
                Ok(_) => {}
                Err(StoreError::Timeout { .. }) => return Ok(false),
                Err(error) => return Err(of_store(error)),
            }
        }
        Ok(true)
    }

    /// This node has ended its ranks of a start. Unless somebody asked for that, waits until all nodes have.
    /// Returns what counts for all: that somebody asked, or why it failed as node 0 knows it, which has the
    /// store. Others see who failed because of that.
    pub fn meet(&self, job: &Job, generation: u32, own: Word) -> Result<Word, Error> {
        let Some(control) = &self.control else { return Ok(own) };
        let (key, wait) = (|node: u32| format!("ended/{generation}/{node}"), job.timeout + 2 * job.grace);
        control.set(&key(job.node), own.to_text().as_bytes()).map_err(of_store)?;
        if matches!(own, Word::Asked { .. }) {
            return Ok(own);
        }
        let mut all = Vec::new();
        for node in 0..job.nodes {
            all.push(Word::read(&control.get(&key(node), wait).map_err(of_store)?));
        }
        let asked = all.iter().position(|word| matches!(word, Word::Asked { .. }));
        Ok(all.swap_remove(asked.unwrap_or(0)))
    }
}

/// News of other nodes.
pub struct Watch {
    pub over: Receiver<Word>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // The thread shares the connection, which says goodbye when its last owner goes.
        self.thread.take().into_iter().for_each(|thread| _ = thread.join());
    }
}

fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind("0.0.0.0:0")?.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_back() {
        for word in [
            Word::Asked { code: 130, what: "SIGINT on node 1".to_owned() },
            Word::Failed { rank: Some(7), why: "exit code 3".to_owned() },
            Word::Failed { rank: None, why: "rank 7: it is late".to_owned() },
            Word::Failed { rank: None, why: String::new() },
        ] {
            assert_eq!(Word::from_text(&word.to_text()), word);
        }
    }
}
