//! Where ranks meet: a server in the process that made the id.
//!
//! A rank has two connections: one for its calls, and one by which it connects to those that it calls for the
//! first time. On each it sends one request at a time, and waits for the answer. The hub answers when all
//! ranks of the group have sent theirs. A connection that ends before all ranks [`LEAVE`] ends the group: the
//! others are answered with an error.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::combine::combine;
use crate::{REMOTE_ERROR, SUCCESS};

pub const ALL_REDUCE: u32 = 0;
pub const REDUCE_SCATTER: u32 = 1;
pub const ALL_GATHER: u32 = 2;
pub const BROADCAST: u32 = 3;
pub const ALL_TO_ALL: u32 = 4;
pub const SEND: u32 = 5;
pub const RECEIVE: u32 = 6;
/// The first request of a connection: `peer` is the rank's number, `operator` the number of ranks, `dtype`
/// which [`Line`] it is.
pub const JOIN: u32 = 7;
/// The last one. Ranks leave together, as NCCL's do on one machine.
pub const LEAVE: u32 = 8;

/// `ncclInvalidUsage`: ranks that do not call the same.
const MISMATCH: i32 = 5;

/// The connections of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    Calls,
    Connects,
}

/// The head of a request; the bytes that the rank gives follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub kind: u32,
    pub dtype: i32,
    pub operator: i32,
    pub peer: i32,
}

/// Sends a request.
pub fn send(mut to: &TcpStream, head: Head, given: &[u8]) -> io::Result<()> {
    let numbers = [head.kind.cast_signed(), head.dtype, head.operator, head.peer].map(i32::to_le_bytes);
    let mut message = [numbers.concat(), (given.len() as u64).to_le_bytes().to_vec()].concat();
    message.extend_from_slice(given);
    to.write_all(&message)
}

fn receive(from: &mut TcpStream) -> io::Result<(Head, Vec<u8>)> {
    let mut head = [0; 24];
    from.read_exact(&mut head)?;
    let number = |at: usize| i32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let given = rest(from, &head[16..])?;
    let (kind, dtype) = (number(0).cast_unsigned(), number(4));
    Ok((Head { kind, dtype, operator: number(8), peer: number(12) }, given))
}

fn answer(mut to: &TcpStream, code: i32, bytes: &[u8]) {
    let message = [&code.to_le_bytes()[..], &(bytes.len() as u64).to_le_bytes(), bytes].concat();
    // A rank that has gone gets no answer.
    let _ = to.write_all(&message);
}

/// Waits for the answer to a request.
pub fn answered(from: &mut TcpStream) -> io::Result<Result<Vec<u8>, i32>> {
    let mut head = [0; 12];
    from.read_exact(&mut head)?;
    let code = i32::from_le_bytes([head[0], head[1], head[2], head[3]]);
    let bytes = rest(from, &head[4..])?;
    Ok(if code == SUCCESS { Ok(bytes) } else { Err(code) })
}

fn rest(from: &mut TcpStream, length: &[u8]) -> io::Result<Vec<u8>> {
    let length = u64::from_le_bytes(std::array::from_fn(|at| length[at]));
    let mut bytes = vec![0; length as usize];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// The requests of a group that wait on one line, by rank, and where the answers go.
#[derive(Default)]
struct Group {
    ranks: usize,
    waiting: HashMap<u32, (Head, Vec<u8>)>,
    connections: HashMap<u32, TcpStream>,
    is_broken: bool,
}

fn locked(group: &Mutex<Group>) -> MutexGuard<'_, Group> {
    group.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a hub. What ranks need to find it.
pub fn start() -> io::Result<[u8; 128]> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut id = [0; 128];
    id[..2].copy_from_slice(&listener.local_addr()?.port().to_le_bytes());
    let lines = Arc::new([Line::Calls, Line::Connects].map(|_| Mutex::<Group>::default()));
    thread::Builder::new().name("fake-nccl-hub".into()).spawn(move || {
        for connection in listener.incoming().flatten() {
            let lines = lines.clone();
            thread::spawn(move || serve(&lines, connection));
        }
    })?;
    Ok(id)
}

/// Connects to the hub of an id.
pub fn connect(id: &[u8; 128]) -> io::Result<TcpStream> {
    let connection = TcpStream::connect(("127.0.0.1", u16::from_le_bytes([id[0], id[1]])))?;
    connection.set_nodelay(true)?;
    Ok(connection)
}

/// A rank's connection, to its end.
fn serve(lines: &[Mutex<Group>; 2], mut connection: TcpStream) {
    let _ = connection.set_nodelay(true);
    let Ok((head, _)) = receive(&mut connection) else { return };
    let (rank, group) = (head.peer.cast_unsigned(), &lines[usize::from(head.dtype != 0)]);
    let Ok(writer) = connection.try_clone() else { return };
    {
        let mut group = locked(group);
        group.ranks = head.operator as usize;
        group.connections.insert(rank, writer);
        group.request(rank, head, Vec::new());
    }
    loop {
        match receive(&mut connection) {
            Ok((head, given)) => locked(group).request(rank, head, given),
            Err(_) => return lines.iter().for_each(|line| locked(line).end()),
        }
    }
}

impl Group {
    fn request(&mut self, rank: u32, head: Head, given: Vec<u8>) {
        if self.is_broken {
            return self.tell(rank, Err(REMOTE_ERROR));
        }
        self.waiting.insert(rank, (head, given));
        match head.kind {
            SEND | RECEIVE => self.pair(rank, head),
            _ => self.all(),
        }
    }

    /// A rank has gone: nobody gets an answer any more.
    fn end(&mut self) {
        self.is_broken = true;
        let waiting: Vec<u32> = self.waiting.drain().map(|(rank, _)| rank).collect();
        waiting.into_iter().for_each(|rank| self.tell(rank, Err(REMOTE_ERROR)));
    }

    fn tell(&self, rank: u32, result: Result<Vec<u8>, i32>) {
        let Some(connection) = self.connections.get(&rank) else { return };
        match result {
            Ok(bytes) => answer(connection, SUCCESS, &bytes),
            Err(code) => answer(connection, code, &[]),
        }
    }

    /// A sender and a receiver that both wait for each other are done.
    fn pair(&mut self, rank: u32, head: Head) {
        let other = head.peer.cast_unsigned();
        let wanted = if head.kind == SEND { RECEIVE } else { SEND };
        let fits = |(head, _): &(Head, Vec<u8>)| head.kind == wanted && head.peer.cast_unsigned() == rank;
        if !self.waiting.get(&other).is_some_and(fits) {
            return;
        }
        let (sender, receiver) = if head.kind == SEND { (rank, other) } else { (other, rank) };
        let sent = self.waiting.remove(&sender).map(|(_, given)| given).unwrap_or_default();
        self.waiting.remove(&receiver);
        self.tell(sender, Ok(Vec::new()));
        self.tell(receiver, Ok(sent));
    }

    /// When all ranks wait with the same call, it is done.
    fn all(&mut self) {
        let is_pair = |(head, _): &(Head, Vec<u8>)| matches!(head.kind, SEND | RECEIVE);
        let leaves = self.waiting.values().filter(|(head, _)| head.kind == LEAVE).count();
        // A rank that leaves waits for the others, whose calls wait for it.
        let is_torn = leaves > 0 && leaves < self.ranks;
        if self.waiting.len() < self.ranks || is_torn || self.waiting.values().any(is_pair) {
            return;
        }
        let mut parts: Vec<(u32, (Head, Vec<u8>))> = self.waiting.drain().collect();
        parts.sort_by_key(|&(rank, _)| rank);
        let head = parts[0].1.0;
        let same = |(_, (other, given)): &(u32, (Head, Vec<u8>))| {
            let is_same = Head { peer: head.peer, ..*other } == head && given.len() == parts[0].1.1.len();
            is_same && (head.kind == JOIN || other.peer == head.peer)
        };
        let given: Vec<Vec<u8>> = parts.iter().map(|(_, (_, given))| given.clone()).collect();
        let results = if parts.iter().all(same) { results(head, &given) } else { None };
        for (place, (rank, _)) in parts.iter().enumerate() {
            self.tell(*rank, results.as_ref().map_or(Err(MISMATCH), |results| Ok(results[place].clone())));
        }
    }
}

/// The answer to each rank.
fn results(head: Head, given: &[Vec<u8>]) -> Option<Vec<Vec<u8>>> {
    let ranks = given.len();
    let part = |bytes: &[u8], rank: usize| {
        let each = bytes.len() / ranks;
        bytes[rank * each..][..each].to_vec()
    };
    Some(match head.kind {
        JOIN | LEAVE => vec![Vec::new(); ranks],
        ALL_REDUCE => vec![combine(head.dtype, head.operator, given)?; ranks],
        REDUCE_SCATTER => {
            let all = combine(head.dtype, head.operator, given)?;
            (0..ranks).map(|rank| part(&all, rank)).collect()
        }
        ALL_GATHER => vec![given.concat(); ranks],
        BROADCAST => vec![given.get(head.peer as usize)?.clone(); ranks],
        ALL_TO_ALL => {
            (0..ranks).map(|rank| given.iter().flat_map(|bytes| part(bytes, rank)).collect()).collect()
        }
        _ => return None,
    })
}
