//! A model of a device. Streams run their work on command, and memory records which streams use it.
#![allow(dead_code, reason = "every test program uses its own part")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use ironwarp_arena::Backend;

/// A xorshift generator: the same numbers in every run.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % end
    }

    /// A random index of a list of this length. `None` if it is empty.
    pub fn place(&mut self, len: usize) -> Option<usize> {
        (len > 0).then(|| self.below(len as u64) as usize)
    }
}

/// Number of a stream.
pub type Stream = usize;

/// Reached when the stream has done this much work.
#[derive(Debug)]
pub struct Event {
    stream: Stream,
    ticket: u64,
}

/// An injected failure.
#[derive(Debug, PartialEq, Eq)]
pub struct Failed;

/// The most streams that a run may create.
const MOST_STREAMS: usize = 1 << 17;
/// The distance between segments. A block that exceeds its segment never reaches the next one.
const GAP: u64 = 1 << 20;

#[derive(Default)]
struct Queue {
    issued: AtomicU64,
    done: AtomicU64,
}

/// Work on a range: the last piece of each stream.
type Uses = Vec<(Stream, u64)>;

#[derive(Default)]
struct Memory {
    bytes: u64,
    /// Blocks in use: start, end, work since the allocation.
    live: BTreeMap<u64, (u64, Uses)>,
    /// The same for freed blocks, until the range is allocated again.
    past: BTreeMap<u64, (u64, Uses)>,
}

pub struct Device {
    capacity: u64,
    reserved: AtomicU64,
    next_address: AtomicU64,
    queues: Vec<Queue>,
    streams: AtomicU64,
    events: AtomicU64,
    segments: RwLock<BTreeMap<u64, Arc<Mutex<Memory>>>>,
    /// One call in this many fails; 0: none.
    failures: AtomicU64,
    calls: AtomicU64,
}

fn merge(uses: &mut Uses, stream: Stream, ticket: u64) {
    match uses.iter_mut().find(|(s, _)| *s == stream) {
        Some((_, last)) => *last = ticket.max(*last),
        None => uses.push((stream, ticket)),
    }
}

impl Device {
    pub fn new(capacity: u64, failures: u64) -> Device {
        Device {
            capacity,
            reserved: AtomicU64::new(0),
            next_address: AtomicU64::new(GAP),
            queues: (0..MOST_STREAMS).map(|_| Queue::default()).collect(),
            streams: AtomicU64::new(0),
            events: AtomicU64::new(0),
            segments: RwLock::default(),
            failures: AtomicU64::new(failures),
            calls: AtomicU64::new(0),
        }
    }

    pub fn stream(&self) -> Stream {
        self.streams.fetch_add(1, Ordering::Relaxed) as usize
    }

    pub fn reserved(&self) -> u64 {
        self.reserved.load(Ordering::Relaxed)
    }

    /// The number of events that exist.
    pub fn events(&self) -> u64 {
        self.events.load(Ordering::Relaxed)
    }

    pub fn fails(&self) -> bool {
        self.failures.load(Ordering::Relaxed) > 0
    }

    pub fn mend(&self) {
        self.failures.store(0, Ordering::Relaxed);
    }

    fn call(&self) -> Result<(), Failed> {
        let every = self.failures.load(Ordering::Relaxed);
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        if every > 0 && number % every == every - 1 { Err(Failed) } else { Ok(()) }
    }

    fn issue(&self, stream: Stream) -> u64 {
        self.queues[stream].issued.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn is_done(&self, stream: Stream, ticket: u64) -> bool {
        self.queues[stream].done.load(Ordering::SeqCst) >= ticket
    }

    pub fn record(&self, stream: Stream) -> Event {
        self.events.fetch_add(1, Ordering::Relaxed);
        Event { stream, ticket: self.queues[stream].issued.load(Ordering::SeqCst) }
    }

    /// Some stream runs some of its work.
    pub fn progress(&self, random: &mut Random) {
        let stream = random.below(self.streams.load(Ordering::Relaxed)) as usize;
        let (issued, done) = (&self.queues[stream].issued, &self.queues[stream].done);
        let (issued, so_far) = (issued.load(Ordering::SeqCst), done.load(Ordering::SeqCst));
        let left = issued.saturating_sub(so_far);
        done.fetch_max(so_far + random.below(left + 1), Ordering::SeqCst);
    }

    fn segment(&self, address: u64) -> (u64, Arc<Mutex<Memory>>) {
        let segments = self.segments.read().unwrap();
        let (base, segment) = segments.range(..=address).next_back().expect("no such segment");
        (*base, segment.clone())
    }

    /// A block was allocated for a stream, which uses it at once.
    pub fn begin(&self, address: u64, bytes: u64, stream: Stream) {
        let (base, segment) = self.segment(address);
        let mut memory = segment.lock().unwrap();
        let end = address + bytes;
        assert!(end <= base + memory.bytes, "a block reaches beyond its segment");
        if let Some((start, (live_end, _))) = memory.live.range(..end).next_back() {
            assert!(*live_end <= address, "{address:#x}..{end:#x} overlaps {start:#x}..{live_end:#x}");
        }
        let overlapping: Vec<u64> = (memory.past.range(..end).rev())
            .take_while(|(_, (past_end, _))| *past_end > address)
            .map(|(start, _)| *start)
            .collect();
        for start in overlapping {
            let (past_end, uses) = memory.past.remove(&start).expect("just found");
            for &(user, ticket) in &uses {
                assert!(
                    user == stream || self.is_done(user, ticket),
                    "given out to stream {stream} while stream {user} works on it"
                );
            }
            // The rest of the range keeps its work, for the check when the segment is released.
            for (from, to) in [(start, address), (end, past_end)] {
                if from < to {
                    memory.past.insert(from, (to, uses.clone()));
                }
            }
        }
        let ticket = self.issue(stream);
        memory.live.insert(address, (end, vec![(stream, ticket)]));
    }

    /// A stream uses an allocated block.
    pub fn work(&self, address: u64, stream: Stream) {
        let (_, segment) = self.segment(address);
        let mut memory = segment.lock().unwrap();
        let ticket = self.issue(stream);
        merge(&mut memory.live.get_mut(&address).expect("in use").1, stream, ticket);
    }

    /// A block is about to be freed.
    pub fn end(&self, address: u64) {
        let (_, segment) = self.segment(address);
        let mut memory = segment.lock().unwrap();
        let (end, uses) = memory.live.remove(&address).expect("in use");
        memory.past.insert(address, (end, uses));
    }
}

impl Backend for Device {
    type Event = Event;
    type Error = Failed;

    fn reserve(&self, bytes: u64) -> Result<Option<u64>, Failed> {
        self.call()?;
        let within = |reserved: u64| Some(reserved + bytes).filter(|&total| total <= self.capacity);
        if self.reserved.fetch_update(Ordering::SeqCst, Ordering::SeqCst, within).is_err() {
            return Ok(None);
        }
        let address = self.next_address.fetch_add(bytes + GAP, Ordering::SeqCst);
        let memory = Memory { bytes, ..Memory::default() };
        self.segments.write().unwrap().insert(address, Arc::new(Mutex::new(memory)));
        Ok(Some(address))
    }

    fn release(&self, address: u64, bytes: u64) -> Result<(), Failed> {
        self.call()?;
        let segment = self.segments.write().unwrap().remove(&address).expect("a segment begins there");
        let memory = segment.lock().unwrap();
        assert_eq!(memory.bytes, bytes);
        assert!(memory.live.is_empty(), "released while in use");
        for &(stream, ticket) in memory.past.values().flat_map(|(_, uses)| uses) {
            assert!(self.is_done(stream, ticket), "released while stream {stream} works on it");
        }
        self.reserved.fetch_sub(bytes, Ordering::SeqCst);
        Ok(())
    }

    fn settle_heap(&self, _heap: u64) -> Result<bool, Failed> {
        Ok(false) // Nothing is captured.
    }

    fn settle(&self) -> Result<bool, Failed> {
        self.call()?;
        for queue in &self.queues[..self.streams.load(Ordering::SeqCst) as usize] {
            queue.done.fetch_max(queue.issued.load(Ordering::SeqCst), Ordering::SeqCst);
        }
        Ok(true)
    }

    fn is_reached(&self, event: &Event) -> Result<bool, Failed> {
        self.call()?;
        Ok(self.is_done(event.stream, event.ticket))
    }

    fn recycle(&self, _event: Event) {
        self.events.fetch_sub(1, Ordering::Relaxed);
    }

    fn may_wait(&self) -> bool {
        true
    }
}
