//! No use of a buffer is lost: threads share streams, buffers and graphs, seeded, and every value is checked.
//!
//! The software driver runs work only when a call waits for it, and then only the work that this depends on,
//! the newest stream first. So if a use fails to wait for an earlier one, a wrong value shows.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::common::Bench;
use crate::common::kernels::bounded;
use ironwarp::graph::Graph;
use ironwarp::{DeviceBuffer, DeviceViewMut, LaunchConfig, Result, Stream, launch};

const THREADS: u64 = 4;
const STREAMS: usize = 6;
const BUFFERS: usize = 4;
const STEPS: usize = 150;
/// Elements of a half of a buffer.
const HALF: usize = 32;

/// Xorshift.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as usize % n
    }

    fn stream<'s>(&mut self, streams: &'s [Stream]) -> &'s Stream {
        &streams[self.below(streams.len())]
    }
}

enum Holder {
    Program(DeviceBuffer<u32>),
    /// With a graph that adds 1 to each element.
    Graph(Graph<'static, DeviceBuffer<u32>>),
}

/// A buffer, and the expected value of its elements.
struct Slot {
    holder: Holder,
    value: u32,
}

impl Slot {
    fn new(stream: &Stream, with_graph: bool) -> Result<Self> {
        let buffer = DeviceBuffer::zeroed(stream, 2 * HALF)?;
        let holder = if with_graph {
            Holder::Graph(Graph::capture(stream, buffer, |stream, buffer| add_1(stream, buffer.view_mut()))?)
        } else {
            Holder::Program(buffer)
        };
        Ok(Slot { holder, value: 0 })
    }

    fn buffer(&mut self) -> &mut DeviceBuffer<u32> {
        match &mut self.holder {
            Holder::Program(buffer) => buffer,
            Holder::Graph(graph) => graph.inputs_mut(),
        }
    }

    fn check(&mut self, stream: &Stream, what: &str) -> Result<()> {
        let value = self.value;
        assert_eq!(self.buffer().to_vec(stream)?, [value; 2 * HALF], "{what}");
        Ok(())
    }
}

fn add_1(stream: &Stream, out: DeviceViewMut<'_, u32>) -> Result<()> {
    // SAFETY: there is at most one thread for each element.
    unsafe { launch::<bounded>(stream, LaunchConfig::linear(out.len(), HALF as u32), (out,)) }
}

fn lock(slot: &Mutex<Slot>) -> MutexGuard<'_, Slot> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The work of one thread.
fn work(streams: &[Stream], slots: &[Mutex<Slot>], seed: u64) -> Result<()> {
    let mut dice = Dice(seed);
    // Copies queued while a buffer had some value; they are checked later.
    let mut copies: Vec<(DeviceBuffer<u32>, u32)> = Vec::new();
    for step in 0..STEPS {
        let what = format!("seed {seed:#x}, step {step}");
        let mut slot = lock(&slots[dice.below(slots.len())]);
        let (one, two) = (dice.stream(streams), dice.stream(streams));
        match dice.below(8) {
            0 | 1 => {
                add_1(one, slot.buffer().view_mut())?;
                slot.value += 1;
            }
            2 => {
                // Two parts, by two threads at once.
                let (first, second) = slot.buffer().view_mut().split_at_mut(HALF)?;
                std::thread::scope(|threads| {
                    let other = threads.spawn(|| add_1(two, second));
                    add_1(one, first)?;
                    other.join().expect("no panic")
                })?;
                slot.value += 1;
            }
            3 => {
                // Two readers at once, on streams that nothing else waits for.
                let x = &*slot.buffer();
                let copy = |stream: &Stream| -> Result<_> {
                    let mut y = DeviceBuffer::zeroed(stream, 2 * HALF)?;
                    y.copy_from_device(stream, x)?;
                    Ok(y)
                };
                let made = std::thread::scope(|threads| -> Result<_> {
                    let other = threads.spawn(|| copy(two));
                    Ok([copy(one)?, other.join().expect("no panic")?])
                })?;
                copies.extend(made.map(|y| (y, slot.value)));
            }
            4 => {
                if let Holder::Graph(graph) = &mut slot.holder {
                    graph.replay(one)?;
                    graph.replay(two)?;
                    slot.value += 2;
                }
            }
            5 => slot.check(one, &what)?,
            // Other buffers get the memory of the old one while work on it is queued.
            6 => *slot = Slot::new(one, dice.below(2) == 0)?,
            _ => {
                drop(slot);
                if !copies.is_empty() {
                    let (copy, value) = copies.swap_remove(dice.below(copies.len()));
                    assert_eq!(copy.to_vec(one)?, [value; 2 * HALF], "{what}");
                }
            }
        }
    }
    for (copy, value) in copies {
        assert_eq!(copy.to_vec(dice.stream(streams))?, [value; 2 * HALF], "seed {seed:#x}, at the end");
    }
    Ok(())
}

#[test]
fn no_use_is_lost() -> Result<()> {
    let Bench { device, .. } = Bench::open()?;
    for round in 1..=4 {
        let streams: Vec<Stream> = (0..STREAMS).map(|_| device.stream()).collect::<Result<_>>()?;
        let slots: Vec<Mutex<Slot>> = (0..BUFFERS)
            .map(|slot| Ok(Mutex::new(Slot::new(&streams[slot % STREAMS], slot % 2 == 0)?)))
            .collect::<Result<_>>()?;
        std::thread::scope(|threads| {
            let running: Vec<_> = (1..=THREADS)
                .map(|thread| {
                    let (streams, slots) = (&streams, &slots);
                    threads.spawn(move || work(streams, slots, (round << 32) + thread * 0x9e37_79b9))
                })
                .collect();
            running.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
        })?;
        for slot in &slots {
            lock(slot).check(&streams[0], &format!("round {round}"))?;
        }
    }
    Ok(())
}
