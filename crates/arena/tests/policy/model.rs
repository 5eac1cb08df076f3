//! Random operations of many threads and streams against a model of a device. The model knows which bytes are
//! allocated and which queued work uses them. A new block must not overlap a block in use, nor queued work of
//! another stream. A released segment must have no queued work at all.

use std::panic::Location;
use std::sync::{Arc, Mutex, RwLock};

use crate::common::{Device, Event, Random, Stream};
use ironwarp_arena::{Cache, Failure, Lease, StreamHeap};

/// Operations of the usual run. `IRONWARP_MODEL_OPERATIONS` sets a higher number.
const OPERATIONS: u64 = 1_000_000;
const THREADS: u64 = 8;
const STREAMS: usize = 16;
/// Small, so that memory runs short often.
const MEMORY: u64 = 768 << 20;
/// The most blocks that a thread holds.
const HELD: usize = 96;

struct Held {
    lease: Lease,
    heap: Arc<StreamHeap<Event>>,
    home: Stream,
    users: Vec<Stream>,
}

struct World {
    device: Device,
    cache: Cache<Event>,
    streams: Vec<RwLock<Slot>>,
    /// Blocks in transit to another thread.
    mail: Mutex<Vec<Held>>,
}

struct Slot {
    stream: Stream,
    heap: Arc<StreamHeap<Event>>,
}

fn size(random: &mut Random) -> u64 {
    match random.below(100) {
        0..50 => 1 + random.below(8 << 10),
        50..60 => [1, 511, 512, 513, 1 << 20, (1 << 20) + 1, 2 << 20][random.below(7) as usize],
        60..85 => 1 + random.below(1 << 20),
        85..98 => 1 + random.below(6 << 20),
        _ => 1 + random.below(24 << 20),
    }
}

impl World {
    fn new(failures: u64) -> World {
        let device = Device::new(MEMORY, failures);
        let cache = Cache::new();
        let streams = (0..STREAMS)
            .map(|_| RwLock::new(Slot { stream: device.stream(), heap: cache.heap(&device) }))
            .collect();
        World { device, cache, streams, mail: Mutex::new(Vec::new()) }
    }

    fn allocate(&self, random: &mut Random) -> Option<Held> {
        let slot = self.streams[random.below(STREAMS as u64) as usize].read().unwrap();
        let bytes = size(random);
        match self.cache.allocate(&self.device, &slot.heap, bytes, Location::caller()) {
            Ok(lease) => {
                assert!(lease.bytes() >= bytes);
                assert_eq!(lease.address() % ironwarp_arena::GRANULE, 0);
                self.device.begin(lease.address(), lease.bytes(), slot.stream);
                Some(Held { lease, heap: slot.heap.clone(), home: slot.stream, users: Vec::new() })
            }
            Err(Failure::OutOfMemory) => None,
            Err(Failure::Backend(_)) => {
                assert!(self.device.fails(), "no call was made to fail");
                None
            }
        }
    }

    fn use_elsewhere(&self, held: &mut Held, random: &mut Random) {
        let slot = self.streams[random.below(STREAMS as u64) as usize].read().unwrap();
        self.device.work(held.lease.address(), slot.stream);
        if slot.stream != held.home && !held.users.contains(&slot.stream) {
            held.users.push(slot.stream);
        }
    }

    fn free(&self, held: Held) {
        self.device.end(held.lease.address());
        let events = held.users.iter().map(|&stream| self.device.record(stream)).collect();
        self.cache.free_after(&held.heap, held.lease, events);
    }

    /// Ends a stream, with its work still queued and its blocks in use, and starts a new one in its place.
    fn replace_stream(&self, random: &mut Random) {
        let mut slot = self.streams[random.below(STREAMS as u64) as usize].write().unwrap();
        let event = self.device.record(slot.stream);
        let new = Slot { stream: self.device.stream(), heap: self.cache.heap(&self.device) };
        let old = std::mem::replace(&mut *slot, new);
        self.cache.retire(old.heap, vec![event]);
    }

    fn run(&self, seed: u64, operations: u64) {
        let mut random = Random::new(seed);
        let mut held: Vec<Held> = Vec::new();
        for _ in 0..operations {
            match random.below(1000) {
                0..440 if held.len() < HELD => held.extend(self.allocate(&mut random)),
                0..560 => {
                    if let Some(place) = random.place(held.len()) {
                        self.use_elsewhere(&mut held[place], &mut random);
                    }
                }
                560..950 => {
                    if let Some(place) = random.place(held.len()) {
                        self.free(held.swap_remove(place));
                    }
                }
                950..980 => self.device.progress(&mut random),
                980..998 => {
                    let mut mail = self.mail.lock().unwrap();
                    if let Some(place) = random.place(held.len()) {
                        mail.push(held.swap_remove(place));
                    }
                    if mail.len() > STREAMS {
                        held.extend(random.place(mail.len()).map(|place| mail.swap_remove(place)));
                    }
                }
                998 if random.below(20) == 0 => {
                    let released = self.cache.release_idle(&self.device);
                    assert!(released.is_ok() || self.device.fails());
                }
                _ if random.below(4) == 0 => self.replace_stream(&mut random),
                _ => {}
            }
        }
        held.into_iter().for_each(|held| self.free(held));
    }

    fn all_threads(&self, seed: u64, operations: u64) {
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || self.run(seed * THREADS + thread, operations / THREADS));
            }
        });
        self.mail.lock().unwrap().drain(..).for_each(|held| self.free(held));
    }
}

fn operations() -> u64 {
    std::env::var("IRONWARP_MODEL_OPERATIONS").ok().map_or(OPERATIONS, |text| text.parse().expect("a number"))
}

#[test]
fn no_block_overlaps_another_or_queued_work() {
    let world = World::new(0);
    world.all_threads(1, operations());
    let stats = world.cache.stats();
    println!("{stats:?}");
    assert_eq!((stats.live, stats.live_blocks, stats.requested), (0, 0, 0));
    assert_eq!(stats.reserved, world.device.reserved());
    assert!(stats.peak_live <= stats.peak_reserved && stats.peak_reserved <= MEMORY, "{stats:?}");
    assert!(stats.reclaims > 0 && stats.releases > 0, "memory never ran short: {stats:?}");
    // No memory is lost: all of it is released.
    assert_eq!(world.cache.release_idle(&world.device), Ok(stats.reserved));
    assert_eq!(world.device.reserved(), 0);
    world.cache.close(&world.device).expect("no failures");
    assert_eq!(world.device.events(), 0);
}

#[test]
fn failing_calls_lose_nothing() {
    // One call in this many fails.
    let world = World::new(50);
    world.all_threads(2, operations() / 10);
    world.device.mend();
    let stats = world.cache.stats();
    assert_eq!((stats.live, stats.live_blocks), (0, 0));
    assert_eq!(stats.reserved, world.device.reserved());
    world.cache.close(&world.device).expect("mended");
    assert_eq!((world.device.reserved(), world.device.events()), (0, 0));
    assert_eq!(world.cache.stats().reserved, 0);
}
