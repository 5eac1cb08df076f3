//! A rank's connection to the store.

use std::collections::HashMap;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::failure::{Cause, Failure};
use crate::flight::{Record, Recorder, bounded};
use crate::message::{Denial, Hello, Kind, MAX_KEY, MAX_VALUE, Meeting, Refusal, Reply, Request};
use crate::store::{Store, StoreOptions, check_size};
use crate::wire::{self, MAX_FRAME};
use crate::world::World;
use crate::{JOIN_TIMEOUT, TIMEOUT};

/// The first and the longest pause between two trials to connect.
const PAUSES: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(500)];
/// The longest trial to connect.
const TRIAL: Duration = Duration::from_secs(5);
/// How often a rank shows that it lives: so many times in a timeout, and within these limits.
const SIGNS_OF_LIFE: u32 = 6;
const SIGN_LIMITS: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(2)];
/// The longest timeout: a year. Sums of times stay far from the end of the clock.
pub const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// The times of a job. What is not given is the launcher's, or else [`TIMEOUT`] and [`JOIN_TIMEOUT`].
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// How long a rank may be silent, and an operation may take.
    pub timeout: Option<Duration>,
    /// How long ranks wait for each other at the beginning.
    pub join_timeout: Option<Duration>,
    /// The folder for the flight record. Without one, and without the launcher's, none is written.
    pub records: Option<PathBuf>,
}

/// A rank's connection to the store. Dropping it leaves the job; in a panic, it ends the job. Where rank 0
/// serves the store, it waits there until all others have left.
///
/// All operations may be called from any thread. Operations of all ranks follow one another.
#[derive(Debug)]
pub struct Client {
    shared: Arc<Shared>,
    listener: Option<JoinHandle<()>>,
    /// Where this process serves the store.
    store: Option<Store>,
    timeout: Duration,
    /// The number of the last operation of all ranks.
    met: Mutex<u64>,
}

type Hook = Box<dyn FnOnce(&Failure) + Send>;

struct Shared {
    world: World,
    records: Option<PathBuf>,
    recorder: Arc<Recorder>,
    writer: Mutex<TcpStream>,
    state: Mutex<State>,
    changed: Condvar,
    /// Held while the flight record is written: there is one, of the first failure.
    failing: Mutex<()>,
}

#[derive(Default)]
struct State {
    last_id: u64,
    answers: HashMap<u64, Reply>,
    failure: Option<Failure>,
    left: bool,
    hooks: Vec<Hook>,
    /// The key that is waited for, for signs of life.
    doing: Option<String>,
    record: Option<Result<PathBuf, String>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Shared").field("world", &self.world).finish_non_exhaustive()
    }
}

impl Client {
    /// Joins the job, and waits until all ranks have. Rank 0 serves the store, where the launcher does not.
    ///
    /// # Errors
    /// [`Error::Failed`] names the ranks that did not come; the others say what is wrong with the address,
    /// the port, the token, or this process.
    pub fn join(world: &World, options: &Options) -> Result<Self, Error> {
        let timeout = checked(options.timeout.or(world.timeout).unwrap_or(TIMEOUT))?;
        let join_timeout = checked(options.join_timeout.or(world.join_timeout).unwrap_or(JOIN_TIMEOUT))?;
        check_size(world.size)?;
        let mut address = world.address.clone();
        let store = if world.rank == 0 && world.rank_0_serves {
            let (size, generation, token) = (world.size, world.generation, world.token.clone());
            let store = Store::serve(&address, StoreOptions { size, generation, token, timeout })?;
            let own = match store.address().ip() {
                IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
                IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
                ip => ip,
            };
            (address.host, address.port) = (own.to_string(), store.address().port());
            Some(store)
        } else {
            None
        };
        let begun = Instant::now();
        let (stream, received) = connect(world, &address.to_string(), begun, join_timeout)?;
        let interval = (timeout / SIGNS_OF_LIFE).clamp(SIGN_LIMITS[0], SIGN_LIMITS[1]);
        let failed = || Error::system("set up the connection to the store");
        stream.set_read_timeout(Some(interval)).map_err(failed())?;
        stream.set_write_timeout(Some(timeout)).map_err(failed())?;
        let shared = Arc::new(Shared {
            world: world.clone(),
            records: options.records.clone().or_else(|| world.records.clone()),
            recorder: Arc::new(Recorder::default()),
            writer: Mutex::new(stream.try_clone().map_err(failed())?),
            state: Mutex::default(),
            changed: Condvar::new(),
            failing: Mutex::default(),
        });
        let listening = Listener { shared: Arc::clone(&shared), stream, received, interval, timeout };
        let thread =
            std::thread::Builder::new().name("ironwarp rank".to_owned()).spawn(move || listening.run());
        let listener = Some(thread.map_err(Error::system("start the connection's thread"))?);
        let client = Self { shared, listener, store, timeout, met: Mutex::new(0) };
        let left = join_timeout.saturating_sub(begun.elapsed());
        client.meet(Kind::Join, "", Vec::new(), left)?;
        Ok(client)
    }

    /// Who this process is.
    pub fn world(&self) -> &World {
        &self.shared.world
    }

    /// The ring of this rank's last operations. What a program notes there is in the flight record, and the
    /// last one in the others' reports.
    pub fn recorder(&self) -> &Arc<Recorder> {
        &self.shared.recorder
    }

    /// How long a rank may be silent, and an operation may take.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Stores a value.
    ///
    /// # Errors
    /// [`Error::LongKey`], [`Error::LongValue`], [`Error::Full`], [`Error::Failed`].
    pub fn set(&self, key: &str, value: &[u8]) -> Result<(), Error> {
        check_key(key)?;
        check_value(value.len(), 1)?;
        let value = value.to_vec();
        self.ask(key, self.timeout, |id| Request::Set { id, key: key.to_owned(), value })?;
        Ok(())
    }

    /// The value of a key, once some rank has set it. That of a counter is its eight bytes, lowest first.
    ///
    /// # Errors
    /// [`Error::Timeout`] when none has within `wait`, [`Error::Waits`] in too many threads at once,
    /// [`Error::LongKey`], [`Error::Failed`].
    pub fn get(&self, key: &str, wait: Duration) -> Result<Vec<u8>, Error> {
        check_key(key)?;
        let wait = wait.min(LONGEST);
        let asked =
            self.ask(key, wait, |id| Request::Get { id, key: key.to_owned(), wait: milliseconds(wait) })?;
        match asked {
            Reply::Value { value, .. } => Ok(value),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Adds to a counter, which begins at 0, and returns the sum. All ranks see each sum once.
    ///
    /// # Errors
    /// [`Error::NoNumber`], [`Error::LongKey`], [`Error::Full`], [`Error::Failed`].
    pub fn add(&self, key: &str, delta: i64) -> Result<i64, Error> {
        check_key(key)?;
        match self.ask(key, self.timeout, |id| Request::Add { id, key: key.to_owned(), delta })? {
            Reply::Number { number, .. } => Ok(number),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Waits until all ranks are here. All must give the same name.
    ///
    /// # Errors
    /// [`Error::Failed`] names the ranks that did not come in time.
    pub fn barrier(&self, name: &str) -> Result<(), Error> {
        self.meet(Kind::Barrier, name, Vec::new(), self.timeout)?;
        Ok(())
    }

    /// The blobs of all ranks, in the order of ranks, on every rank.
    ///
    /// # Errors
    /// [`Error::LongValue`] when a blob is longer than a fair share of [`MAX_VALUE`], [`Error::Failed`].
    pub fn gather(&self, name: &str, blob: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        check_value(blob.len(), self.shared.world.size as usize)?;
        match self.meet(Kind::Gather, name, blob.to_vec(), self.timeout)? {
            Reply::Gathered { blobs, .. } => Ok(blobs),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Why the job has failed, if it has.
    pub fn failure(&self) -> Option<Failure> {
        self.shared.state().failure.clone()
    }

    /// Has a function called once when the job fails, by a thread of the client's: to end what waits on a
    /// device, for instance. At once, if it has failed. The client keeps the function, so one that has an
    /// [`Arc`] of the client keeps the client from leaving the job: give it a [`Weak`](std::sync::Weak).
    pub fn on_failure(&self, hook: impl FnOnce(&Failure) + Send + 'static) {
        let mut state = self.shared.state();
        match state.failure.clone() {
            None => state.hooks.push(Box::new(hook)),
            Some(failure) => {
                drop(state);
                hook(&failure);
            }
        }
    }

    /// Ends the job: every rank's operations fail, with this rank and the reason named. Returns what the
    /// others are told, or the failure that came before.
    pub fn abort(&self, reason: &str) -> Failure {
        self.shared.send(&Request::Abort { reason: bounded(reason) });
        match self.shared.wait_failure(self.timeout) {
            Some(failure) => failure,
            None => self.shared.fail(store_lost("it does not answer".to_owned())),
        }
    }

    /// Where the flight record was written, or why it was not. Nothing before a failure, or without a folder.
    pub fn record(&self) -> Option<Result<PathBuf, String>> {
        self.shared.state().record.clone()
    }

    fn meet(&self, kind: Kind, name: &str, blob: Vec<u8>, wait: Duration) -> Result<Reply, Error> {
        check_key(name)?;
        let mut met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        *met += 1;
        let meeting = Meeting { kind, name: name.to_owned() };
        let noted = self.shared.recorder.begin(&meeting.to_string(), "");
        let sequence = *met;
        let reply = self.ask(name, wait, |id| Request::Meet {
            id,
            sequence,
            meeting,
            blob,
            wait: milliseconds(wait),
        })?;
        noted.done();
        Ok(reply)
    }

    /// Sends a request and waits for its answer.
    fn ask(&self, key: &str, wait: Duration, request: impl FnOnce(u64) -> Request) -> Result<Reply, Error> {
        let begun = Instant::now();
        let mut state = self.shared.state();
        state.last_id += 1;
        let id = state.last_id;
        let request = request(id);
        if matches!(request, Request::Get { .. }) {
            state.doing = Some(format!("get {key:?}, under way"));
        }
        drop(state);
        self.shared.send(&request);
        // The store answers when the wait is over. If it does not, the listener notices within a timeout.
        let deadline = begun + wait + 2 * self.timeout;
        let answer = self.shared.wait_answer(id, deadline);
        self.shared.state().doing = None;
        match answer {
            Ok(Reply::Denied { why: Denial::Timeout, .. }) => {
                Err(Error::Timeout { key: key.to_owned(), waited: begun.elapsed() })
            }
            Ok(Reply::Denied { why: Denial::Full { bytes, limit }, .. }) => Err(Error::Full { bytes, limit }),
            Ok(Reply::Denied { why: Denial::Waits { limit }, .. }) => Err(Error::Waits { limit }),
            Ok(Reply::Denied { why: Denial::NoNumber { bytes }, .. }) => {
                Err(Error::NoNumber { key: key.to_owned(), bytes })
            }
            Ok(reply) => Ok(reply),
            Err(failure) => Err(Error::Failed(failure)),
        }
    }

    /// The store answers another question.
    fn unexpected(&self, reply: &Reply) -> Error {
        let failure = store_lost(format!("it answered {reply:?}"));
        Error::Failed(self.shared.fail(failure))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.abort("it panicked");
        }
        self.shared.state().left = true;
        self.shared.send(&Request::Leave);
        let stream = self.shared.writer.lock().unwrap_or_else(PoisonError::into_inner);
        // The last messages are delivered before the end.
        let _ = stream.shutdown(Shutdown::Write);
        drop(stream);
        if let Some(store) = self.store.take() {
            // As long as others need it: those that do not live are noticed, and fail the job.
            store.close(LONGEST);
        }
        let stream = self.shared.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = stream.shutdown(Shutdown::Both);
        drop(stream);
        // A function of `on_failure` may have had the last handle: then this is that thread.
        let listener = self.listener.take().filter(|it| it.thread().id() != std::thread::current().id());
        listener.into_iter().for_each(|thread| _ = thread.join());
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a message. When that fails, the listener sees why.
    fn send(&self, request: &Request) {
        let bytes = wire::encode(request);
        let mut stream = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if stream.write_all(&bytes).is_err() {
            // Half a message may be out: nothing can follow it.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn wait_answer(&self, id: u64, deadline: Instant) -> Result<Reply, Failure> {
        let mut state = self.state();
        loop {
            if let Some(reply) = state.answers.remove(&id) {
                return Ok(reply);
            }
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                drop(state);
                return Err(self.fail(store_lost("it does not answer".to_owned())));
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn wait_failure(&self, wait: Duration) -> Option<Failure> {
        let state = self.state();
        let waited = self.changed.wait_timeout_while(state, wait, |state| state.failure.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.failure.clone()
    }

    /// Notes why the job has failed, and returns that, or why it had before.
    fn fail(&self, failure: Failure) -> Failure {
        let writing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = &self.state().failure {
            return before.clone();
        }
        // The record is there before anybody hears of the failure and ends the process.
        let record = self.records.as_ref().map(|folder| {
            let World { rank, size, generation, .. } = self.world;
            let operations = self.recorder.entries();
            let record = Record { rank, size, generation, failure: Some(failure.clone()), operations };
            record.write(folder).map_err(|error| error.to_string())
        });
        let mut state = self.state();
        (state.failure, state.record) = (Some(failure.clone()), record);
        let hooks = std::mem::take(&mut state.hooks);
        drop((state, writing));
        self.changed.notify_all();
        hooks.into_iter().for_each(|hook| hook(&failure));
        failure
    }
}

/// The thread that hears the store, and shows it that this rank lives.
struct Listener {
    shared: Arc<Shared>,
    stream: TcpStream,
    received: Vec<u8>,
    interval: Duration,
    timeout: Duration,
}

impl Listener {
    fn run(mut self) {
        let mut bytes = vec![0; 1 << 16];
        let (mut heard, mut shown) = (Instant::now(), Instant::now());
        let why = loop {
            if let Err(error) = self.understand() {
                break error.to_string();
            }
            match self.stream.read(&mut bytes) {
                Ok(0) => break "it closed the connection".to_owned(),
                Ok(read) => {
                    heard = Instant::now();
                    self.received.extend_from_slice(&bytes[..read]);
                }
                Err(error) if is_pause(&error) => {
                    // Nothing waits to be read, so the silence is the store's and not this process's.
                    if heard.elapsed() > self.timeout {
                        break format!("silent for {:.1} s", heard.elapsed().as_secs_f64());
                    }
                }
                Err(error) => break error.to_string(),
            }
            if shown.elapsed() >= self.interval {
                shown = Instant::now();
                self.show();
            }
        };
        if !self.shared.state().left {
            self.shared.fail(store_lost(why));
        }
    }

    /// Sends a sign of life, unless a message is being sent, which is one too.
    fn show(&self) {
        let doing = self.shared.state().doing.clone();
        let operation = doing.unwrap_or_else(|| self.shared.recorder.last());
        let Ok(mut stream) = self.shared.writer.try_lock() else { return };
        if stream.write_all(&wire::encode(&Request::Ping { operation })).is_err() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn understand(&mut self) -> Result<(), wire::WireError> {
        while let Some(reply) = wire::take(&mut self.received, MAX_FRAME)? {
            match reply {
                Reply::Failed(failure) => _ = self.shared.fail(failure),
                Reply::Done { id }
                | Reply::Value { id, .. }
                | Reply::Number { id, .. }
                | Reply::Gathered { id, .. }
                | Reply::Denied { id, .. } => {
                    self.shared.state().answers.insert(id, reply);
                    self.shared.changed.notify_all();
                }
                Reply::Pong | Reply::Challenge { .. } | Reply::Welcome | Reply::Refused(_) => {}
            }
        }
        Ok(())
    }
}

fn store_lost(detail: String) -> Failure {
    Failure { cause: Cause::StoreLost, ranks: Vec::new(), detail }
}

fn is_pause(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn checked(timeout: Duration) -> Result<Duration, Error> {
    if timeout.is_zero() || timeout > LONGEST {
        return Err(Error::Option {
            what: "a timeout",
            got: timeout,
            wanted: "more than nothing, a year at most",
        });
    }
    Ok(timeout)
}

fn check_key(key: &str) -> Result<(), Error> {
    if key.len() > MAX_KEY { Err(Error::LongKey(key.len())) } else { Ok(()) }
}

fn check_value(length: usize, ranks: usize) -> Result<(), Error> {
    if length > MAX_VALUE / ranks { Err(Error::LongValue(length.saturating_mul(ranks))) } else { Ok(()) }
}

/// Why a trial to join did not succeed.
enum Trial {
    /// Another one may.
    Again(String),
    Never(Error),
}

/// A greeted connection, and what was read beyond the greeting.
fn connect(
    world: &World,
    address: &str,
    begun: Instant,
    patience: Duration,
) -> Result<(TcpStream, Vec<u8>), Error> {
    let mut pause = PAUSES[0];
    loop {
        let left = patience.saturating_sub(begun.elapsed());
        let last = match try_connect(world, address, left.clamp(PAUSES[0], TRIAL)) {
            Ok(connected) => return Ok(connected),
            Err(Trial::Never(error)) => return Err(error),
            Err(Trial::Again(last)) => last,
        };
        if begun.elapsed() + pause >= patience {
            return Err(Error::Unreachable { address: address.to_owned(), after: begun.elapsed(), last });
        }
        std::thread::sleep(pause);
        pause = (2 * pause).min(PAUSES[1]);
    }
}

fn try_connect(world: &World, address: &str, limit: Duration) -> Result<(TcpStream, Vec<u8>), Trial> {
    let again = |error: io::Error| Trial::Again(error.to_string());
    let deadline = Instant::now() + limit;
    let sockets: Vec<SocketAddr> = address.to_socket_addrs().map_err(again)?.collect();
    let mut stream = Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
    for socket in sockets {
        stream = TcpStream::connect_timeout(&socket, limit);
        if stream.is_ok() {
            break;
        }
    }
    let mut stream = stream.map_err(again)?;
    // A port that nobody listens on may be the very port that the connection got for itself.
    if stream.local_addr().map_err(again)? == stream.peer_addr().map_err(again)? {
        return Err(Trial::Again("nobody listens".to_owned()));
    }
    stream.set_nodelay(true).map_err(again)?;
    stream.set_write_timeout(Some(limit)).map_err(again)?;
    let mut received = Vec::new();
    let Reply::Challenge { nonce } = answer(&mut stream, &mut received, deadline, address)? else {
        return Err(Trial::Again("it has no room".to_owned()));
    };
    let hello = Hello { rank: world.rank, size: world.size, generation: world.generation };
    let proof = world.token.proof(&nonce, &hello);
    stream.write_all(&wire::encode(&Request::Hello { hello, proof })).map_err(again)?;
    match answer(&mut stream, &mut received, deadline, address)? {
        Reply::Welcome => Ok((stream, received)),
        // The store of an earlier start, which is about to end.
        Reply::Refused(refusal @ Refusal::Generation { got, wanted }) if wanted < got => {
            Err(Trial::Again(refusal.to_string()))
        }
        Reply::Refused(refusal) => {
            Err(Trial::Never(Error::Refused { address: address.to_owned(), rank: world.rank, refusal }))
        }
        other => Err(Trial::Again(format!("it answered {other:?}"))),
    }
}

/// The next message of a store that is being greeted.
fn answer(
    stream: &mut TcpStream,
    received: &mut Vec<u8>,
    deadline: Instant,
    address: &str,
) -> Result<Reply, Trial> {
    let mut bytes = [0; 4096];
    loop {
        match wire::take(received, MAX_FRAME) {
            Ok(Some(reply)) => return Ok(reply),
            Ok(None) => {}
            Err(source) => return Err(Trial::Never(Error::NoStore { address: address.to_owned(), source })),
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Trial::Again("what listens there says nothing".to_owned()));
        }
        stream.set_read_timeout(Some(left)).map_err(|error| Trial::Again(error.to_string()))?;
        match stream.read(&mut bytes) {
            Ok(0) => return Err(Trial::Again("it closed the connection".to_owned())),
            Ok(read) => received.extend_from_slice(&bytes[..read]),
            Err(error) if is_pause(&error) => {}
            Err(error) => return Err(Trial::Again(error.to_string())),
        }
    }
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
