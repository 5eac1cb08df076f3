//! The store's mind: keys, meetings, who is alive. It knows no sockets and no clock; what happens, and when,
//! is told to it, and what is to be said waits in [`Hub::take_replies`].

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::failure::{Cause, Failure, RankReport};
use crate::flight::bounded;
use crate::message::{Denial, Hello, Kind, MAX_KEY, MAX_VALUE, Meeting, Refusal, Reply, Request};
use crate::wire;

/// All keys and values together, in bytes.
const MAX_HELD: usize = 64 << 20;
/// A key costs so much more than its letters.
const KEY_COST: usize = 128;
/// Keys that one rank waits for at the same time.
const MAX_WAITS: usize = 256;
/// The longest wait that a request can ask for.
const MAX_WAIT: Duration = Duration::from_secs(7 * 24 * 3600);

/// The state of a job.
pub struct Hub {
    generation: u32,
    /// How long a rank may be silent.
    timeout: Duration,
    members: Vec<Member>,
    /// Values as the last fields of replies.
    keys: HashMap<String, Arc<[u8]>>,
    held: usize,
    waits: Vec<Wait>,
    /// Open meetings by their numbers.
    meetings: BTreeMap<u64, Open>,
    failure: Option<Failure>,
    /// The last joiner who was refused, for the report of a rank that never joined.
    refused: Option<String>,
    replies: Vec<Due>,
}

/// A reply that is due.
#[derive(Debug)]
pub struct Due {
    /// Whom it is for.
    pub rank: u32,
    pub reply: Reply,
    /// Its last field, which is empty there: many ranks may be sent the same one.
    pub last: Option<Arc<[u8]>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    Absent,
    Here,
    Left,
    Lost,
}

struct Member {
    presence: Presence,
    heard: Option<Instant>,
    operation: String,
    /// Meetings that it has come to.
    met: u64,
}

struct Wait {
    rank: u32,
    id: u64,
    key: String,
    until: Instant,
}

/// A meeting that some ranks have come to.
struct Open {
    meeting: Meeting,
    until: Instant,
    /// The request's number and the blob of each rank that is there.
    arrived: BTreeMap<u32, (u64, Vec<u8>)>,
}

impl Hub {
    pub fn new(size: u32, generation: u32, timeout: Duration) -> Self {
        let member = || Member { presence: Presence::Absent, heard: None, operation: String::new(), met: 0 };
        Self {
            generation,
            timeout,
            members: (0..size).map(|_| member()).collect(),
            keys: HashMap::new(),
            held: 0,
            waits: Vec::new(),
            meetings: BTreeMap::new(),
            failure: None,
            refused: None,
            replies: Vec::new(),
        }
    }

    pub fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// Whether some ranks are connected.
    pub fn has_members(&self) -> bool {
        self.members.iter().any(|member| member.presence == Presence::Here)
    }

    /// Whether every rank has joined at some time.
    pub fn is_complete(&self) -> bool {
        self.members.iter().all(|member| member.presence != Presence::Absent)
    }

    /// The replies that are due.
    pub fn take_replies(&mut self) -> Vec<Due> {
        std::mem::take(&mut self.replies)
    }

    fn say(&mut self, rank: u32, reply: Reply) {
        self.replies.push(Due { rank, reply, last: None });
    }

    /// A member has taken what it was sent.
    pub fn heard(&mut self, rank: u32, now: Instant) {
        self.members[rank as usize].heard = Some(now);
    }

    /// Somebody with the token wants to join.
    pub fn join(&mut self, hello: Hello, now: Instant) -> Result<(), Refusal> {
        let outcome = self.admit(hello);
        match &outcome {
            Ok(()) => {
                let member = &mut self.members[hello.rank as usize];
                (member.presence, member.heard) = (Presence::Here, Some(now));
            }
            Err(refusal) => self.refused = Some(format!("rank {} was refused: {refusal}", hello.rank)),
        }
        outcome
    }

    /// A stranger without the token was refused.
    pub fn note_refusal(&mut self, rank: u32, refusal: &Refusal) {
        self.refused = Some(format!("rank {rank} was refused: {refusal}"));
    }

    fn admit(&self, hello: Hello) -> Result<(), Refusal> {
        let size = self.members.len() as u32;
        let Hello { rank, size: got, generation } = hello;
        if generation != self.generation {
            return Err(Refusal::Generation { got: generation, wanted: self.generation });
        }
        if got != size {
            return Err(Refusal::Size { got, wanted: size });
        }
        if let Some(failure) = &self.failure {
            return Err(Refusal::Over(failure.clone()));
        }
        match self.members.get(rank as usize).map(|member| member.presence) {
            None => Err(Refusal::Rank { rank, size }),
            Some(Presence::Absent) => Ok(()),
            Some(Presence::Here) => Err(Refusal::Taken { rank }),
            Some(Presence::Left | Presence::Lost) => Err(Refusal::Gone { rank }),
        }
    }

    /// A member says something.
    pub fn request(&mut self, rank: u32, request: Request, now: Instant) {
        let member = &mut self.members[rank as usize];
        member.heard = Some(now);
        if let Some(failure) = &self.failure {
            // It crossed the news on its way, or is the last word of somebody who has heard them.
            if request == Request::Leave {
                member.presence = Presence::Left;
            } else if !matches!(request, Request::Ping { .. }) {
                let failed = Reply::Failed(failure.clone());
                self.say(rank, failed);
            }
            return;
        }
        match request {
            Request::Hello { .. } => self.garbled(rank, "it greeted twice", now),
            Request::Ping { operation } => {
                member.operation = bounded(&operation);
                self.say(rank, Reply::Pong);
            }
            Request::Set { id, key, value } => self.set(rank, id, key, value, now),
            Request::Get { id, key, wait } => self.get(rank, id, key, wait, now),
            Request::Add { id, key, delta } => self.add(rank, id, key, delta, now),
            Request::Meet { id, sequence, meeting, blob, wait } => {
                self.meet(rank, id, sequence, meeting, blob, wait, now);
            }
            Request::Abort { reason } => self.fail(Cause::Aborted, &[rank], bounded(&reason), now),
            Request::Leave => self.leave(rank, now),
        }
    }

    fn set(&mut self, rank: u32, id: u64, key: String, value: Vec<u8>, now: Instant) {
        if key.len() > MAX_KEY || value.len() > MAX_VALUE {
            return self.garbled(rank, "a key or a value is too long", now);
        }
        let reply = match self.put(key, &value) {
            Ok(()) => Reply::Done { id },
            Err(why) => Reply::Denied { id, why },
        };
        self.say(rank, reply);
    }

    /// Stores the value and answers those who wait for the key.
    fn put(&mut self, key: String, value: &[u8]) -> Result<(), Denial> {
        let value = wire::last_field(&value);
        let old = self.keys.get(&key).map_or(0, |old| cost(&key, old));
        let held = self.held - old + cost(&key, &value);
        if held > MAX_HELD {
            return Err(Denial::Full { bytes: self.held as u64, limit: MAX_HELD as u64 });
        }
        self.held = held;
        let (met, waits) =
            std::mem::take(&mut self.waits).into_iter().partition(|wait: &Wait| wait.key == key);
        self.waits = waits;
        self.replies.extend(met.into_iter().map(|wait: Wait| valued(wait.rank, wait.id, &value)));
        self.keys.insert(key, value);
        Ok(())
    }

    fn get(&mut self, rank: u32, id: u64, key: String, wait: u64, now: Instant) {
        if let Some(value) = self.keys.get(&key) {
            self.replies.push(valued(rank, id, value));
        } else if key.len() > MAX_KEY {
            self.garbled(rank, "a key is too long", now);
        } else if self.waits.iter().filter(|wait| wait.rank == rank).count() >= MAX_WAITS {
            self.say(rank, Reply::Denied { id, why: Denial::Waits { limit: MAX_WAITS as u64 } });
        } else {
            self.waits.push(Wait { rank, id, key, until: now + bounded_wait(wait) });
        }
    }

    fn add(&mut self, rank: u32, id: u64, key: String, delta: i64, now: Instant) {
        if key.len() > MAX_KEY {
            return self.garbled(rank, "a key is too long", now);
        }
        let number = |value: &Arc<[u8]>| {
            let value: Vec<u8> = wire::read_last_field(value).unwrap_or_default();
            let bytes = <[u8; 8]>::try_from(&*value);
            bytes.map(i64::from_le_bytes).map_err(|_| Denial::NoNumber { bytes: value.len() as u64 })
        };
        let sum = self.keys.get(&key).map_or(Ok(0), number).and_then(|old| {
            let sum = old.wrapping_add(delta);
            self.put(key, &sum.to_le_bytes()).map(|()| sum)
        });
        let reply = match sum {
            Ok(number) => Reply::Number { id, number },
            Err(why) => Reply::Denied { id, why },
        };
        self.say(rank, reply);
    }

    fn meet(
        &mut self,
        rank: u32,
        id: u64,
        sequence: u64,
        meeting: Meeting,
        blob: Vec<u8>,
        wait: u64,
        now: Instant,
    ) {
        let size = self.members.len();
        let member = &mut self.members[rank as usize];
        let is_waiting = self.meetings.values().any(|open| open.arrived.contains_key(&rank));
        if is_waiting
            || sequence != member.met + 1
            || blob.len() > MAX_VALUE / size
            || meeting.name.len() > MAX_KEY
        {
            return self.garbled(rank, "it came to a meeting out of turn, or with too much", now);
        }
        member.met = sequence;
        member.operation = meeting.to_string();
        let until = now + bounded_wait(wait);
        let open = self.meetings.entry(sequence);
        let open = open.or_insert_with(|| Open { meeting: meeting.clone(), until, arrived: BTreeMap::new() });
        if open.meeting != meeting {
            let detail = format!("where others came to {}", open.meeting);
            // Of two nobody knows who is right.
            let first = open.arrived.keys().next().filter(|_| open.arrived.len() == 1);
            let ranks: Vec<u32> = first.copied().into_iter().chain([rank]).collect();
            return self.fail(Cause::Mismatch, &ranks, detail, now);
        }
        open.until = open.until.min(until);
        open.arrived.insert(rank, (id, blob));
        if open.arrived.len() == size {
            self.meetings.remove(&sequence).into_iter().for_each(|open| self.close(open));
        } else {
            self.check_leavers(now);
        }
    }

    /// All ranks are there.
    fn close(&mut self, open: Open) {
        let (requests, blobs): (Vec<_>, Vec<_>) =
            open.arrived.into_iter().map(|(rank, (id, blob))| ((rank, id), blob)).unzip();
        let last = (open.meeting.kind == Kind::Gather).then(|| wire::last_field(&blobs));
        for (rank, id) in requests {
            let reply = match open.meeting.kind {
                Kind::Gather => Reply::Gathered { id, blobs: Vec::new() },
                Kind::Join | Kind::Barrier => Reply::Done { id },
            };
            self.replies.push(Due { rank, reply, last: last.clone() });
        }
    }

    fn leave(&mut self, rank: u32, now: Instant) {
        self.members[rank as usize].presence = Presence::Left;
        self.waits.retain(|wait| wait.rank != rank);
        self.check_leavers(now);
    }

    /// A meeting that somebody who has left did not come to never ends.
    fn check_leavers(&mut self, now: Instant) {
        let left = |&rank: &u32| self.members[rank as usize].presence == Presence::Left;
        let waiting = self.meetings.values().find_map(|open| {
            let gone: Vec<u32> = self.absent(open).filter(left).collect();
            (!gone.is_empty()).then(|| (gone, open.meeting.to_string()))
        });
        if let Some((gone, meeting)) = waiting {
            self.fail(Cause::Left, &gone, format!("in {meeting}"), now);
        }
    }

    fn absent(&self, open: &Open) -> impl Iterator<Item = u32> {
        (0..self.members.len() as u32).filter(|rank| !open.arrived.contains_key(rank))
    }

    /// A member's connection has ended.
    pub fn closed(&mut self, rank: u32, now: Instant) {
        if self.members[rank as usize].presence == Presence::Here {
            self.fail(Cause::Died, &[rank], String::new(), now);
            self.members[rank as usize].presence = Presence::Lost;
        }
    }

    /// A member says what no member says.
    pub fn garbled(&mut self, rank: u32, why: &str, now: Instant) {
        self.fail(Cause::Garbled, &[rank], why.to_owned(), now);
    }

    /// The launcher ends the job, for a rank or on its own.
    pub fn abort(&mut self, rank: Option<u32>, reason: &str, now: Instant) {
        let rank = rank.filter(|&rank| (rank as usize) < self.members.len());
        self.fail(Cause::Aborted, rank.as_slice(), bounded(reason), now);
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Instant) {
        if self.failure.is_some() {
            return;
        }
        let silent: Vec<u32> =
            (0..self.members.len() as u32).filter(|&rank| self.is_silent(rank, now)).collect();
        if !silent.is_empty() {
            return self.fail(Cause::Silent, &silent, String::new(), now);
        }
        if let Some(open) = self.meetings.values().find(|open| open.until <= now) {
            let meeting = open.meeting.to_string();
            let absent: Vec<u32> = self.absent(open).collect();
            let is_missing = |&rank: &u32| self.members[rank as usize].presence == Presence::Absent;
            let missing: Vec<u32> = absent.iter().copied().filter(is_missing).collect();
            if missing.is_empty() {
                return self.fail(Cause::Late, &absent, format!("in {meeting}"), now);
            }
            let detail = self.refused.clone().unwrap_or_default();
            return self.fail(Cause::Missing, &missing, detail, now);
        }
        let over = self.waits.extract_if(.., |wait| wait.until <= now);
        self.replies.extend(over.map(|wait| {
            let reply = Reply::Denied { id: wait.id, why: Denial::Timeout };
            Due { rank: wait.rank, reply, last: None }
        }));
    }

    fn is_silent(&self, rank: u32, now: Instant) -> bool {
        let member = &self.members[rank as usize];
        let silent = member.heard.map(|heard| now.saturating_duration_since(heard));
        member.presence == Presence::Here && silent > Some(self.timeout)
    }

    fn fail(&mut self, cause: Cause, ranks: &[u32], detail: String, now: Instant) {
        if self.failure.is_some() {
            return;
        }
        let report = |&rank: &u32| {
            let member = &self.members[rank as usize];
            let silent = member.heard.map(|heard| now.saturating_duration_since(heard));
            RankReport {
                rank,
                silent_ms: silent.map(|silent| u64::try_from(silent.as_millis()).unwrap_or(u64::MAX)),
                operation: member.operation.clone(),
            }
        };
        let failure = Failure { cause, ranks: ranks.iter().map(report).collect(), detail };
        for (rank, member) in self.members.iter().enumerate() {
            if member.presence == Presence::Here {
                let reply = Reply::Failed(failure.clone());
                self.replies.push(Due { rank: rank as u32, reply, last: None });
            }
        }
        self.waits.clear();
        self.meetings.clear();
        self.failure = Some(failure);
    }
}

/// The reply with a value, which `keys` holds as it is sent.
fn valued(rank: u32, id: u64, value: &Arc<[u8]>) -> Due {
    Due { rank, reply: Reply::Value { id, value: Vec::new() }, last: Some(Arc::clone(value)) }
}

fn cost(key: &str, value: &[u8]) -> usize {
    key.len() + value.len() + KEY_COST
}

fn bounded_wait(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds).min(MAX_WAIT)
}

#[cfg(test)]
#[path = "hub_tests.rs"]
mod tests;
