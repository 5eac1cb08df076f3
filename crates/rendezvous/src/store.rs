//! The server behind a job: one thread, a loop over its sockets.
//!
//! Nothing that a client does or leaves undone makes it wait: sockets do not block, buffers have limits, and
//! who does not greet in time is cut off.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::client::LONGEST;
use crate::error::Error;
use crate::failure::Failure;
use crate::hub::{Due, Hub};
use crate::message::{MAX_RANKS, Refusal, Reply, Request};
use crate::token::{Token, random};
use crate::wire::{self, MAX_FRAME, MAX_GREETING};
use crate::world::Address;

/// How long the loop sleeps when nothing comes.
const TICK: Duration = Duration::from_millis(20);
/// How long a stranger may take to show the token.
const GREETING_TIME: Duration = Duration::from_secs(5);
/// How long a closing store waits for ranks that have been told of a failure.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Connections beyond one a rank: strangers, and ranks that try again.
const SPARE: usize = 64;
/// Nothing is read from a rank that has more than so many bytes to take.
const MAX_UNSENT: usize = 4 * MAX_FRAME;

/// A job as its store sees it.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// The number of ranks.
    pub size: u32,
    /// Which start of the job it is, from 0.
    pub generation: u32,
    /// The job's secret.
    pub token: Token,
    /// How long a rank may be silent.
    pub timeout: Duration,
}

/// A running store. Dropping it ends it.
#[derive(Debug)]
pub struct Store {
    address: SocketAddr,
    shared: Arc<Mutex<Shared>>,
    thread: Option<JoinHandle<()>>,
}

/// Shared by the thread and its owner.
#[derive(Debug, Default)]
struct Shared {
    /// The rank and the reason, for which the owner ends the job.
    abort: Option<(Option<u32>, String)>,
    /// Until when the thread lives if ranks are still connected.
    stop: Option<Instant>,
    failure: Option<Failure>,
    complete: bool,
}

impl Store {
    /// Serves a store at an address of this machine. Port 0 takes any free port. An address that is not
    /// loopback is served on all interfaces.
    ///
    /// # Errors
    /// [`Error::PortInUse`], [`Error::Bind`], [`Error::Size`], or [`Error::Option`] for a timeout of nothing.
    pub fn serve(address: &Address, options: StoreOptions) -> Result<Self, Error> {
        check_size(options.size)?;
        if options.timeout.is_zero() {
            return Err(Error::Option {
                what: "a timeout",
                got: options.timeout,
                wanted: "more than nothing",
            });
        }
        let listener = listen(address)?;
        let bound = listener.local_addr().map_err(Error::system("see the store's address"))?;
        let shared = Arc::new(Mutex::new(Shared::default()));
        let server = Server {
            hub: Hub::new(options.size, options.generation, options.timeout),
            most: options.size as usize + SPARE,
            token: options.token,
            listener,
            connections: Vec::new(),
            shared: Arc::clone(&shared),
            failed: None,
            listens: None,
        };
        let thread =
            std::thread::Builder::new().name("ironwarp store".to_owned()).spawn(move || server.run());
        let thread = thread.map_err(Error::system("start the store's thread"))?;
        Ok(Self { address: bound, shared, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Why the job has failed.
    pub fn failure(&self) -> Option<Failure> {
        lock(&self.shared).failure.clone()
    }

    /// Whether every rank has joined at some time.
    pub fn is_complete(&self) -> bool {
        lock(&self.shared).complete
    }

    /// Ends the job: all ranks are told that this rank, or the launcher, wants it so.
    pub fn abort(&self, rank: Option<u32>, reason: &str) {
        lock(&self.shared).abort.get_or_insert_with(|| (rank, reason.to_owned()));
    }

    /// Ends the store when all ranks have left, soon after the job has failed, or after so long, at most a
    /// year.
    pub fn close(mut self, linger: Duration) {
        self.end(linger);
    }

    fn end(&mut self, linger: Duration) {
        lock(&self.shared).stop = Some(Instant::now() + linger.min(LONGEST));
        // A panic of the thread is printed by itself.
        self.thread.take().into_iter().for_each(|thread| _ = thread.join());
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a job can have so many ranks.
pub fn check_size(size: u32) -> Result<(), Error> {
    if (1..=MAX_RANKS).contains(&size) { Ok(()) } else { Err(Error::Size(size)) }
}

fn listen(address: &Address) -> Result<TcpListener, Error> {
    let listener =
        TcpListener::bind((address.interface(), address.port)).map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => Error::PortInUse { address: address.to_string() },
            _ => Error::Bind { address: address.to_string(), source },
        })?;
    listener.set_nonblocking(true).map_err(Error::system("make a socket that does not block"))?;
    Ok(listener)
}

struct Server {
    hub: Hub,
    token: Token,
    listener: TcpListener,
    connections: Vec<Connection>,
    /// Connections that it takes.
    most: usize,
    shared: Arc<Mutex<Shared>>,
    /// When the job failed.
    failed: Option<Instant>,
    /// When the system may take connections again: before that the loop does not wait for any.
    listens: Option<Instant>,
}

struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
    unsent: Unsent,
    role: Role,
}

/// Bytes on their way to one connection, in pieces that others may be sent too.
#[derive(Default)]
struct Unsent {
    pieces: VecDeque<Arc<[u8]>>,
    /// Of the first piece.
    sent: usize,
    /// Of all that are left.
    bytes: usize,
}

enum Role {
    /// Has been asked for the token.
    Stranger {
        nonce: [u8; 32],
        since: Instant,
    },
    Member(u32),
    /// Is told a last word.
    Refused,
    /// Is to be closed.
    Closed,
}

impl Server {
    fn run(mut self) {
        loop {
            self.wait();
            let now = Instant::now();
            self.accept(now);
            // Messages that are there are heard before silence is judged.
            for at in 0..self.connections.len() {
                self.receive(at, now);
            }
            if let Some((rank, reason)) = lock(&self.shared).abort.take() {
                self.hub.abort(rank, &reason, now);
            }
            self.hub.tick(now);
            // The owner can know of a failure before a rank hears of it and ends.
            lock(&self.shared).failure = self.hub.failure().cloned();
            self.reply();
            self.send(now);
            self.sweep(now);
            let mut shared = lock(&self.shared);
            shared.complete = self.hub.is_complete();
            if self.hub.failure().is_some() {
                self.failed.get_or_insert(now);
            }
            let told = self.failed.is_some_and(|failed| now.duration_since(failed) > LAST_WORDS);
            if shared.stop.is_some_and(|stop| stop <= now || told || !self.hub.has_members()) {
                return;
            }
        }
    }

    fn wait(&self) {
        let reads = PollFlags::IN;
        let listens = self.listens.is_none_or(|listens| listens <= Instant::now());
        let listening = listens.then(|| PollFd::new(&self.listener, reads)).into_iter();
        let others = self.connections.iter().map(|connection| {
            let writes = if connection.unsent.bytes == 0 { PollFlags::empty() } else { PollFlags::OUT };
            let reads = if connection.is_full() { PollFlags::empty() } else { reads };
            PollFd::new(&connection.stream, reads | writes)
        });
        let mut sockets: Vec<_> = listening.chain(others).collect();
        let tick = Timespec { tv_sec: 0, tv_nsec: i64::from(TICK.subsec_nanos()) };
        if poll(&mut sockets, Some(&tick)).is_err() {
            // Interrupted, or out of memory: the sockets are looked at anyway, but not in a hurry.
            std::thread::sleep(TICK / 4);
        }
    }

    fn accept(&mut self, now: Instant) {
        // Not more than can be looked at in a turn.
        for _ in 0..SPARE {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Without descriptors the next connection stays there, and would end each wait at once.
                    use io::ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
                    let is_usual = matches!(error.kind(), WouldBlock | Interrupted | ConnectionAborted);
                    self.listens = (!is_usual).then(|| now + TICK);
                    return;
                }
            };
            let Ok(nonce) = random() else { return };
            if stream.set_nonblocking(true).is_err() || stream.set_nodelay(true).is_err() {
                continue;
            }
            let mut connection = Connection {
                stream,
                received: Vec::new(),
                unsent: Unsent::default(),
                role: Role::Stranger { nonce, since: now },
            };
            if self.has_room() {
                connection.say(&Reply::Challenge { nonce });
                self.connections.push(connection);
            } else {
                connection.say(&Reply::Refused(Refusal::Busy));
                connection.send();
            }
        }
    }

    /// Whether another connection can be taken: if there are too many, in the place of the stranger who has
    /// been silent for the longest. A rank greets at once.
    fn has_room(&mut self) -> bool {
        if self.connections.len() < self.most {
            return true;
        }
        let since = |connection: &Connection| match connection.role {
            Role::Stranger { since, .. } => Some(since),
            _ => None,
        };
        let strangers = self.connections.iter().enumerate();
        let strangers = strangers.filter_map(|(at, connection)| Some((since(connection)?, at)));
        let silent = strangers.min().map(|(_, at)| at);
        silent.is_some_and(|at| {
            self.connections.remove(at);
            true
        })
    }

    fn receive(&mut self, at: usize, now: Instant) {
        let mut bytes = [0; 1 << 16];
        // So much in a turn, so that nobody has the loop alone.
        for _ in 0..16 {
            let connection = &mut self.connections[at];
            if connection.is_full() {
                return;
            }
            let read = match (&connection.role, connection.stream.read(&mut bytes)) {
                (Role::Closed, _) => return,
                (_, Err(error)) if error.kind() == io::ErrorKind::Interrupted => continue,
                (_, Err(error)) if error.kind() == io::ErrorKind::WouldBlock => return,
                (_, Ok(0) | Err(_)) => return self.lose(at, now),
                // Nothing that it says matters.
                (Role::Refused, Ok(_)) => continue,
                (_, Ok(read)) => read,
            };
            connection.received.extend_from_slice(&bytes[..read]);
            if !self.understand(at, now) {
                return;
            }
        }
    }

    /// Handles the messages that are there. Whether the connection is of further use.
    fn understand(&mut self, at: usize, now: Instant) -> bool {
        loop {
            let connection = &mut self.connections[at];
            let limit = match connection.role {
                Role::Stranger { .. } => MAX_GREETING,
                Role::Member(_) => MAX_FRAME,
                Role::Refused | Role::Closed => return false,
            };
            match (wire::take(&mut connection.received, limit), &connection.role) {
                (Ok(None), _) => return true,
                (Ok(Some(request)), &Role::Member(rank)) => self.hub.request(rank, request, now),
                (Ok(Some(request)), &Role::Stranger { nonce, .. }) => self.greet(at, request, &nonce, now),
                (Err(error), &Role::Member(rank)) => {
                    // It may go on to send such bytes, which are not to pile up.
                    connection.received.clear();
                    self.hub.garbled(rank, &error.to_string(), now);
                    return false;
                }
                _ => {
                    connection.role = Role::Closed;
                    return false;
                }
            }
        }
    }

    fn greet(&mut self, at: usize, request: Request, nonce: &[u8; 32], now: Instant) {
        let connection = &mut self.connections[at];
        let Request::Hello { hello, proof } = request else {
            connection.role = Role::Closed;
            return;
        };
        let outcome = if self.token.accepts(nonce, &hello, &proof) {
            self.hub.join(hello, now)
        } else {
            self.hub.note_refusal(hello.rank, &Refusal::Token);
            Err(Refusal::Token)
        };
        match outcome {
            Ok(()) => {
                connection.role = Role::Member(hello.rank);
                connection.say(&Reply::Welcome);
            }
            Err(refusal) => {
                connection.role = Role::Refused;
                connection.say(&Reply::Refused(refusal));
            }
        }
    }

    fn lose(&mut self, at: usize, now: Instant) {
        let connection = &mut self.connections[at];
        if let Role::Member(rank) = connection.role {
            self.hub.closed(rank, now);
        }
        connection.role = Role::Closed;
    }

    fn reply(&mut self) {
        for Due { rank, reply, last } in self.hub.take_replies() {
            let to = |connection: &&mut Connection| matches!(connection.role, Role::Member(of) if of == rank);
            let Some(connection) = self.connections.iter_mut().find(to) else { continue };
            match last {
                None => connection.say(&reply),
                Some(last) => {
                    connection.unsent.push(wire::encode_ahead_of(&last, &reply).into());
                    connection.unsent.push(last);
                }
            }
        }
    }

    fn send(&mut self, now: Instant) {
        for connection in &mut self.connections {
            let was_full = connection.is_full();
            let has_taken = connection.send();
            // Its signs of life were not read meanwhile.
            if let (Role::Member(rank), true) = (&connection.role, was_full && has_taken) {
                self.hub.heard(*rank, now);
            }
        }
    }

    /// Closes what is to be closed.
    fn sweep(&mut self, now: Instant) {
        self.connections.retain(|connection| match connection.role {
            Role::Closed => false,
            Role::Refused => connection.unsent.bytes > 0,
            Role::Stranger { since, .. } => now.duration_since(since) < GREETING_TIME,
            Role::Member(_) => true,
        });
    }
}

impl Connection {
    fn say(&mut self, reply: &Reply) {
        self.unsent.push(wire::encode(reply).into());
    }

    /// Whether it has to take some of its replies before it is asked for more.
    fn is_full(&self) -> bool {
        self.unsent.bytes > MAX_UNSENT
    }

    /// Sends what can be sent without waiting, and says whether that is anything. A broken connection shows
    /// when it is read.
    fn send(&mut self) -> bool {
        let before = self.unsent.bytes;
        while let Some(piece) = self.unsent.pieces.front() {
            match self.stream.write(&piece[self.unsent.sent..]) {
                Ok(sent) if sent > 0 => self.unsent.take(sent),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Ok(_) | Err(_) => {
                    self.unsent = Unsent::default();
                    return false;
                }
            }
        }
        self.unsent.bytes < before
    }
}

impl Unsent {
    fn push(&mut self, piece: Arc<[u8]>) {
        self.bytes += piece.len();
        if !piece.is_empty() {
            self.pieces.push_back(piece);
        }
    }

    /// So many bytes of the first piece have been sent.
    fn take(&mut self, sent: usize) {
        (self.sent, self.bytes) = (self.sent + sent, self.bytes - sent);
        if self.pieces.front().is_some_and(|piece| piece.len() == self.sent) {
            self.pieces.pop_front();
            self.sent = 0;
        }
    }
}
