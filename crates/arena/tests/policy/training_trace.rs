//! The ratio of reserved to requested memory over the allocations of a training run: a transformer with
//! sequences of ragged length. The trace has weights and optimizer state, activations freed in reverse,
//! gradients, and short-lived workspaces.

use std::panic::Location;

use crate::common::{Device, Event, Random};
use ironwarp_arena::{Cache, Lease};

/// The least number of allocations and frees in a trace.
const OPERATIONS: usize = 100_000;
/// The most bytes that may be reserved per requested byte.
const MOST: f64 = 1.2;

enum Op {
    Allocate { name: usize, bytes: u64 },
    Free { name: usize },
}

/// A transformer; sizes in elements.
struct Model {
    layers: u64,
    hidden: u64,
    heads: u64,
    vocabulary: u64,
    batch: u64,
    /// Shortest and longest sequence. Each step draws a length between them.
    lengths: (u64, u64),
}

const HALF: u64 = 2;
const SINGLE: u64 = 4;

#[derive(Default)]
struct Trace {
    ops: Vec<Op>,
    names: usize,
}

impl Trace {
    fn allocate(&mut self, bytes: u64) -> usize {
        self.names += 1;
        self.ops.push(Op::Allocate { name: self.names, bytes });
        self.names
    }

    fn free(&mut self, name: usize) {
        self.ops.push(Op::Free { name });
    }

    /// Scratch memory of one kernel.
    fn workspace(&mut self, bytes: u64) {
        let name = self.allocate(bytes);
        self.free(name);
    }

    fn of(model: &Model, seed: u64) -> Trace {
        let mut trace = Trace::default();
        let mut random = Random::new(seed);
        let h = model.hidden;
        let weights: Vec<u64> = (0..model.layers)
            .flat_map(|_| [h, h, 3 * h * h, h * h, 4 * h * h, 4 * h, 4 * h * h, h])
            .collect();
        let embedding = model.vocabulary * h;
        for &elements in weights.iter().chain([&embedding, &h]) {
            trace.allocate(elements * HALF);
        }
        // Master weights and two moments. The optimizer's first step creates them.
        let mut optimizer_state = false;
        while trace.step(model, &weights, embedding, &mut random) {
            if !optimizer_state {
                for &elements in weights.iter().chain([&embedding, &h]) {
                    (0..3).for_each(|_| {
                        trace.allocate(elements * SINGLE);
                    });
                }
                optimizer_state = true;
            }
        }
        trace
    }

    /// One training step. Returns false when the trace is long enough, with all activations of the last step
    /// in use.
    fn step(&mut self, model: &Model, weights: &[u64], embedding: u64, random: &mut Random) -> bool {
        let (shortest, longest) = model.lengths;
        let tokens = model.batch * (shortest + random.below(longest - shortest + 1));
        let (h, per_layer) = (model.hidden, weights.len() / model.layers as usize);
        let input = self.allocate(tokens * SINGLE);
        let mut saved = Vec::new();
        for _ in 0..model.layers {
            // Norms with their statistics, qkv, attention with its statistics, projection, norm, up,
            // activation, down.
            let kept = [
                tokens * h * HALF,
                tokens * 2 * SINGLE,
                tokens * 3 * h * HALF,
                tokens * h * HALF,
                tokens * model.heads * SINGLE,
                tokens * h * HALF,
                tokens * h * HALF,
                tokens * 2 * SINGLE,
                tokens * 4 * h * HALF,
                tokens * 4 * h * HALF,
                tokens * h * HALF,
            ];
            for bytes in kept {
                if random.below(4) == 0 {
                    self.workspace(1 + random.below(8 << 20));
                }
                saved.push((self.allocate(bytes), bytes));
            }
        }
        if self.ops.len() >= OPERATIONS {
            return false;
        }
        let logits = self.allocate(tokens * model.vocabulary * HALF);
        let losses = self.allocate(tokens * SINGLE);
        let mut gradient = self.allocate(tokens * model.vocabulary * HALF);
        self.free(losses);
        self.free(logits);
        let mut weight_gradients = vec![self.allocate(embedding * HALF)];
        for (place, (activation, bytes)) in saved.into_iter().rev().enumerate() {
            let next = self.allocate(bytes);
            self.free(gradient);
            self.free(activation);
            gradient = next;
            if place % 11 < per_layer {
                let of_layer = weights.len() - 1 - place / 11 * per_layer - place % 11;
                weight_gradients.push(self.allocate(weights[of_layer] * HALF));
                self.workspace(1 + random.below(4 << 20));
            }
        }
        self.free(gradient);
        self.free(input);
        // The norm of the gradients, then the update, one tensor at a time.
        self.workspace(weight_gradients.len() as u64 * SINGLE);
        weight_gradients.into_iter().for_each(|name| self.free(name));
        true
    }
}

struct Outcome {
    peak: f64,
    end: f64,
    reserves: u64,
}

/// The reserved bytes per requested byte: the ratio of the peaks, and the ratio at the end after idle memory
/// is released.
fn replay(trace: &Trace) -> Outcome {
    let device = Device::new(u64::MAX >> 1, 0);
    let cache: Cache<Event> = Cache::new();
    let heap = cache.heap(&device);
    let mut held: Vec<Option<(Lease, u64)>> = Vec::new();
    held.resize_with(trace.names + 1, || None);
    let (mut asked, mut most) = (0, 0);
    for op in &trace.ops {
        match *op {
            Op::Allocate { name, bytes } => {
                let lease = cache.allocate(&device, &heap, bytes, Location::caller());
                held[name] = Some((lease.expect("memory without end"), bytes));
                asked += bytes;
                most = asked.max(most);
            }
            Op::Free { name } => {
                let (lease, bytes) = held[name].take().expect("allocated before");
                cache.free(&heap, lease);
                asked -= bytes;
            }
        }
    }
    let stats = cache.stats();
    assert_eq!((stats.requested, stats.reclaims), (asked, 0));
    cache.release_idle(&device).expect("no call fails");
    let part = |reserved: u64, asked: u64| reserved as f64 / asked as f64;
    Outcome {
        peak: part(stats.peak_reserved, most),
        end: part(cache.stats().reserved, asked),
        reserves: stats.reserves,
    }
}

/// Small and large blocks alternate and are never live together. After the first rounds no segment is
/// reserved or released.
#[test]
fn turns_cost_no_segments() {
    let device = Device::new(u64::MAX >> 1, 0);
    let cache: Cache<Event> = Cache::new();
    let heap = cache.heap(&device);
    for large in [3 << 20, 40 << 20, 1 << 30] {
        let turn = |bytes: u64| {
            let lease =
                cache.allocate(&device, &heap, bytes, Location::caller()).expect("memory without end");
            cache.free(&heap, lease);
        };
        let turns = || (0..10).for_each(|_| [1000, large, large / 2].into_iter().for_each(turn));
        turns();
        let before = cache.stats();
        turns();
        assert_eq!(cache.stats().reserves, before.reserves, "{large}");
        assert_eq!(cache.stats().releases, before.releases, "{large}");
    }
}

#[test]
fn little_more_is_reserved_than_used() {
    let small =
        Model { layers: 12, hidden: 768, heads: 12, vocabulary: 50_304, batch: 8, lengths: (1024, 1024) };
    let ragged = Model { lengths: (200, 1024), ..small };
    let deep = Model { layers: 36, hidden: 1280, heads: 20, batch: 4, lengths: (512, 2048), ..small };
    let narrow = Model { layers: 24, hidden: 256, heads: 4, batch: 2, lengths: (16, 500), ..small };
    for (name, model) in [("fixed", small), ("ragged", ragged), ("deep", deep), ("narrow", narrow)] {
        for seed in 0..10 {
            let trace = Trace::of(&model, seed);
            let Outcome { peak, end, reserves } = replay(&trace);
            let ops = trace.ops.len();
            println!(
                "{name:6} {seed}: {ops} operations, {reserves} segments; reserved / asked for: {peak:.3} at the peak, {end:.3} at the end"
            );
            assert!(peak < MOST && end < MOST, "{name} {seed}: {peak:.3} at the peak, {end:.3} at the end");
        }
    }
}
