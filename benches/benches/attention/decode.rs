//! Decode attention beside torch's back ends: one query a sequence, in bf16, replayed as a graph on both
//! sides. Rates are those of the keys and values that are read, once; the column beside them is their share
//! of what a copy reaches. A cache in e4m3 is beside torch's in bf16. Rows with ALiBi and with a soft cap
//! have no peers; they are to be set beside those without.

use half::bf16;
use ironwarp::graph::Graph;
use ironwarp::ops::attention::{CacheScales, Decode, DecodePlan, Heads, HeadsMut, Pages, Rotary};
use ironwarp::ops::tuning::Tuner;
use ironwarp::tensor::Element;
use ironwarp::{DeviceBuffer, Stream};
use ironwarp_benches::{Outcome, Session, Work, numbers};
use num::E4M3;
use reference::attention::{Band, Rows, Sides, attention_with as oracle};
use serde_json::json;
use testkit::{compare, tolerance};

/// The score function of a row.
#[derive(Clone, Copy, PartialEq)]
pub enum Pattern {
    /// None.
    Plain,
    /// ALiBi, with slopes of heads as their authors have them.
    Alibi,
    /// A soft cap, which many scores reach.
    SoftCap,
}

const CAP: f32 = 1.0;

/// The slope of a head, as the authors of ALiBi have it: 2^-8 in the last one.
fn slope(head: usize, heads: usize) -> f32 {
    (-8.0 * (head + 1) as f32 / heads as f32).exp2()
}

/// A row of the table.
#[derive(Clone, Copy)]
pub struct Step {
    pub batch: usize,
    pub keys: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub size: usize,
    /// Keys of a page, of a cache in pages.
    pub page: Option<usize>,
    /// Lengths from an eighth of the keys to all of them.
    pub is_ragged: bool,
    /// Whether the last key is a new one, which is put into the cache and rotated.
    pub appends: bool,
    /// Whether the cache is in e4m3.
    pub is_e4m3: bool,
    pub pattern: Pattern,
}

pub const STEP: Step = Step {
    batch: 32,
    keys: 8192,
    heads: 32,
    kv_heads: 8,
    size: 128,
    page: None,
    is_ragged: false,
    appends: false,
    is_e4m3: false,
    pattern: Pattern::Plain,
};

const STEPS: [Step; 27] = [
    STEP,
    Step { page: Some(16), ..STEP },
    Step { page: Some(64), ..STEP },
    Step { page: Some(16), appends: true, ..STEP },
    Step { is_ragged: true, page: Some(16), ..STEP },
    Step { batch: 1, ..STEP },
    Step { batch: 1, page: Some(16), ..STEP },
    Step { batch: 1, page: Some(16), appends: true, ..STEP },
    Step { batch: 1, keys: 131_072, ..STEP },
    Step { batch: 1, keys: 1024, ..STEP },
    Step { batch: 64, keys: 2048, kv_heads: 32, ..STEP },
    Step { size: 64, ..STEP },
    Step { size: 256, batch: 16, heads: 16, kv_heads: 8, ..STEP },
    Step { is_e4m3: true, ..STEP },
    Step { is_e4m3: true, page: Some(16), ..STEP },
    Step { is_e4m3: true, page: Some(16), appends: true, ..STEP },
    Step { is_e4m3: true, size: 64, ..STEP },
    Step { pattern: Pattern::Alibi, ..STEP },
    Step { pattern: Pattern::SoftCap, ..STEP },
    Step { pattern: Pattern::Alibi, page: Some(16), ..STEP },
    Step { pattern: Pattern::SoftCap, batch: 1, ..STEP },
    Step { pattern: Pattern::Alibi, size: 64, ..STEP },
    Step { pattern: Pattern::SoftCap, size: 64, ..STEP },
    Step { pattern: Pattern::SoftCap, size: 256, batch: 16, heads: 16, kv_heads: 8, ..STEP },
    Step { pattern: Pattern::SoftCap, is_e4m3: true, ..STEP },
    Step { pattern: Pattern::Alibi, is_e4m3: true, size: 64, ..STEP },
    Step { pattern: Pattern::SoftCap, is_e4m3: true, size: 64, ..STEP },
];
/// For the software device.
const SMALL: [Step; 7] = [
    Step { batch: 2, keys: 200, heads: 4, kv_heads: 2, ..STEP },
    Step { batch: 2, keys: 208, heads: 4, kv_heads: 2, page: Some(16), is_ragged: true, ..STEP },
    Step { batch: 2, keys: 208, heads: 4, kv_heads: 2, page: Some(16), appends: true, ..STEP },
    Step { batch: 2, keys: 208, heads: 4, kv_heads: 2, page: Some(16), appends: true, is_e4m3: true, ..STEP },
    Step { batch: 2, keys: 200, heads: 4, kv_heads: 2, pattern: Pattern::Alibi, ..STEP },
    Step { batch: 2, keys: 208, heads: 4, kv_heads: 2, pattern: Pattern::SoftCap, page: Some(16), ..STEP },
    Step { batch: 2, keys: 200, heads: 4, kv_heads: 2, pattern: Pattern::Alibi, is_e4m3: true, ..STEP },
];
/// Launches of a graph, at least, where a launch is short.
const GRAPH_LAUNCHES: usize = 64;

/// All rows.
pub fn rows(session: &mut Session) -> Outcome {
    let steps = if session.small() { &SMALL[..] } else { &STEPS[..] };
    steps.iter().try_for_each(|step| match step.is_e4m3 {
        true => step.bench::<E4M3>(session),
        false => step.bench::<bf16>(session),
    })
}

/// A type of the cache's elements.
pub trait Cached: Element + testkit::Element + bytemuck::Pod {}

impl<T: Element + testkit::Element + bytemuck::Pod> Cached for T {}

/// Operands and results, with a cache of this type.
struct Set<T> {
    queries: DeviceBuffer<bf16>,
    cache: [DeviceBuffer<T>; 2],
    /// Ones, of a cache in e4m3.
    scales: DeviceBuffer<f32>,
    table: DeviceBuffer<i32>,
    lengths: DeviceBuffer<i32>,
    /// Of heads, for ALiBi.
    slopes: DeviceBuffer<f32>,
    /// The last key of each sequence, and its values.
    new: [DeviceBuffer<bf16>; 2],
    /// Cosines and sines of an angle of 0: what is rotated stays as it is.
    angles: [DeviceBuffer<f32>; 2],
    out: DeviceBuffer<bf16>,
}

impl Step {
    fn name(self) -> String {
        let pattern = match self.pattern {
            Pattern::Plain => "",
            Pattern::Alibi => "_alibi",
            Pattern::SoftCap => "_soft_cap",
        };
        format!("attention_decode{pattern}{}_{}", if self.is_e4m3 { "_e4m3" } else { "" }, self.size)
    }

    fn shape(self) -> String {
        let Step { batch, keys, heads, kv_heads, page, is_ragged, appends, .. } = self;
        let pages = page.map_or(String::new(), |page| format!(" pages {page}"));
        let kind = if is_ragged { " ragged" } else { "" };
        let new = if appends { " new keys" } else { "" };
        format!("{batch}x{keys}x{heads}/{kv_heads}{pages}{kind}{new}")
    }

    fn lengths(self) -> Vec<usize> {
        let part = |sequence: usize| self.keys * (1 + sequence * 5 % 8) / 8;
        (0..self.batch).map(|sequence| if self.is_ragged { part(sequence) } else { self.keys }).collect()
    }

    /// Sides of the cache.
    fn cache(self) -> [usize; 4] {
        let page = self.page.unwrap_or(self.keys);
        [self.batch * self.pages_each(), page, self.kv_heads, self.size]
    }

    fn pages_each(self) -> usize {
        self.page.map_or(1, |page| self.keys.div_ceil(page))
    }

    /// Pages all over the cache.
    fn table(self) -> Vec<i32> {
        let pages = self.batch * self.pages_each();
        // A prime, which divides no number of pages.
        const STRIDE: usize = 65_537;
        (0..pages).map(|at| (at * STRIDE % pages) as i32).collect()
    }

    /// The number of a key's row in the cache.
    fn place(self, table: &[i32], sequence: usize, key: usize) -> usize {
        let page = self.cache()[1];
        match self.page {
            Some(_) => table[sequence * self.pages_each() + key / page] as usize * page + key % page,
            None => sequence * page + key,
        }
    }

    /// Of each sequence the row of the last key.
    fn last_rows<T: Cached>(self, rows: &[T]) -> Vec<bf16> {
        let (table, row) = (self.table(), self.kv_heads * self.size);
        let last = |sequence| self.place(&table, sequence, self.keys - 1);
        let rows = (0..self.batch).flat_map(|sequence| &rows[last(sequence) * row..][..row]);
        rows.map(|&x| bf16::from_f64(x.to_f64())).collect()
    }

    fn queries(self) -> [usize; 4] {
        [self.batch, 1, self.heads, self.size]
    }

    /// Bytes of the keys and values that are seen.
    fn bytes(self) -> u64 {
        let keys: usize = self.lengths().iter().sum();
        let element = if self.is_e4m3 { size_of::<E4M3>() } else { size_of::<bf16>() };
        (2 * keys * self.kv_heads * self.size * element) as u64
    }

    /// Without its pattern.
    fn decode<T: Cached>(self, set: &mut Set<T>) -> Decode<'_> {
        self.call(set).0
    }

    /// The same, and slopes.
    fn call<T: Cached>(self, set: &mut Set<T>) -> (Decode<'_>, &DeviceBuffer<f32>) {
        let (queries, out) =
            (Heads::new(&set.queries, self.queries()), HeadsMut::new(&mut set.out, self.queries()));
        let [keys, values] = &mut set.cache;
        let decode = if self.appends {
            let kept = [HeadsMut::new(keys, self.cache()), HeadsMut::new(values, self.cache())];
            let sides = [self.batch, 1, self.kv_heads, self.size];
            let new = [Heads::new(&set.new[0], sides), Heads::new(&set.new[1], sides)];
            let rotary = Rotary::halves(&set.angles[0], &set.angles[1], self.size);
            Decode::appending(queries, kept, new, out).rotary(rotary)
        } else {
            let [keys, values] =
                [Heads::new::<T>(&*keys, self.cache()), Heads::new::<T>(&*values, self.cache())];
            Decode::new(queries, keys, values, out)
        };
        let decode = if self.is_e4m3 {
            decode.scales(CacheScales { keys: (&set.scales).into(), values: (&set.scales).into() })
        } else {
            decode
        };
        let decode = if self.is_ragged { decode.lengths(&set.lengths) } else { decode };
        let decode = match self.page {
            Some(_) => decode.pages(Pages::new(&set.table, self.pages_each())),
            None => decode,
        };
        (decode, &set.slopes)
    }

    /// The score of the last head in place of this, so many keys before the query.
    fn modify(self, score: f64, distance: usize) -> f64 {
        match self.pattern {
            Pattern::Plain => score,
            Pattern::Alibi => score - f64::from(slope(self.heads - 1, self.heads)) * distance as f64,
            Pattern::SoftCap => f64::from(CAP) * (score / f64::from(CAP)).tanh(),
        }
    }

    /// Queues the row's call.
    fn run<T: Cached>(self, set: &mut Set<T>, stream: &Stream) -> ironwarp::Result<()> {
        let (decode, slopes) = self.call(set);
        match self.pattern {
            Pattern::Plain => decode.run(stream),
            Pattern::Alibi => decode.alibi(slopes)?.run(stream),
            Pattern::SoftCap => decode.soft_cap(CAP)?.run(stream),
        }
    }

    fn explain<T: Cached>(self, set: &mut Set<T>, stream: &Stream) -> ironwarp::Result<DecodePlan> {
        let (decode, slopes) = self.call(set);
        match self.pattern {
            Pattern::Plain => decode.explain(stream),
            Pattern::Alibi => decode.alibi(slopes)?.explain(stream),
            Pattern::SoftCap => decode.soft_cap(CAP)?.explain(stream),
        }
    }

    fn bench<T: Cached>(self, session: &mut Session) -> Outcome {
        let (name, shape) = (self.name(), self.shape());
        if !session.wants(&name) && !session.wants(&format!("{name}/{shape}")) {
            return Ok(());
        }
        let stream = session.stream.clone();
        let host = Host::<T>::new(self);
        let count = session.rotation(self.bytes());
        let mut sets =
            (0..count).map(|_| host.upload(self, &stream)).collect::<ironwarp::Result<Vec<_>>>()?;
        println!("{}", self.explain(&mut sets[0], &stream)?);
        // Loads the kernels. A capture cannot load them.
        self.run(&mut sets[0], &stream)?;
        host.check(self, &sets[0].out.to_vec(&stream)?)?;
        let rounds = if count > 1 { GRAPH_LAUNCHES.div_ceil(count) } else { 1 };
        let mut graph = Graph::capture(&stream, sets, |stream, sets| {
            (0..rounds).try_for_each(|_| sets.iter_mut().try_for_each(|set| self.run(set, stream)))
        })?;
        let (peers, group) = (self.peers(count), (rounds * count) as u64);
        let work = Work::Bytes(self.bytes());
        session.measure_groups(&name, &shape, work, &peers, group, |_| graph.replay(&stream))
    }

    /// The choice, and what the tuner finds beside it.
    pub fn bench_tuned<T: Cached>(self, session: &mut Session, tuner: &Tuner) -> Outcome {
        let (name, shape) = (format!("attention_tuned_decode_{}", self.size), self.shape());
        if !session.wants(&format!("{name}/{shape}")) {
            return Ok(());
        }
        let stream = session.stream.clone();
        let host = Host::<T>::new(self);
        let count = session.rotation(self.bytes());
        let upload = || (0..count).map(|_| host.upload(self, &stream)).collect::<ironwarp::Result<Vec<_>>>();
        let (mut chosen, mut tuned) = (upload()?, upload()?);
        self.decode(&mut chosen[0]).run(&stream)?;
        tuner.run(&stream, self.decode(&mut tuned[0]))?;
        host.check(self, &chosen[0].out.to_vec(&stream)?)?;
        host.check(self, &tuned[0].out.to_vec(&stream)?)?;
        let choice = self.decode(&mut chosen[0]).explain(&stream)?;
        println!("chosen: {}; {}", choice.config(), tuner.explain(&stream, self.decode(&mut tuned[0]))?);
        let rounds = if count > 1 { GRAPH_LAUNCHES.div_ceil(count) } else { 1 };
        let mut chosen = Graph::capture(&stream, chosen, |stream, sets| {
            (0..rounds).try_for_each(|_| sets.iter_mut().try_for_each(|set| self.decode(set).run(stream)))
        })?;
        let mut tuned = Graph::capture(&stream, tuned, |stream, sets| {
            (0..rounds)
                .try_for_each(|_| sets.iter_mut().try_for_each(|set| tuner.run(stream, self.decode(set))))
        })?;
        let (peers, row) = (self.peers(count), (&name[..], &shape[..], Work::Bytes(self.bytes())));
        let other = ("tuned", |_| tuned.replay(&stream));
        session.measure_groups_beside(row, &peers, (rounds * count) as u64, |_| chosen.replay(&stream), other)
    }

    fn peers(self, sets: usize) -> Vec<serde_json::Value> {
        let Step { batch, keys, heads, kv_heads, size, .. } = self;
        let request = |op: &&str| {
            json!({ "prepare": format!("attention.{op}_decode"), "batch": batch, "keys": keys,
                "heads": heads, "kv_heads": kv_heads, "size": size, "sets": sets })
        };
        let has_peers = !self.is_ragged && !self.appends && self.pattern == Pattern::Plain;
        ["cudnn", "flash"].iter().filter(|_| has_peers).map(request).collect()
    }
}

/// Operands on the host.
struct Host<T> {
    queries: Vec<bf16>,
    cache: [Vec<T>; 2],
}

impl<T: Cached> Host<T> {
    fn new(step: Step) -> Self {
        let of = |sides: [usize; 4]| sides.iter().product();
        let cache = [2, 3].map(|seed| numbers(seed, of(step.cache())));
        Host { queries: numbers(1, of(step.queries())), cache }
    }

    fn upload(&self, step: Step, stream: &Stream) -> ironwarp::Result<Set<T>> {
        let lengths: Vec<i32> = step.lengths().into_iter().map(|length| length as i32).collect();
        let [new_keys, new_values] = self.cache.each_ref().map(|rows| step.last_rows(rows));
        let slopes: Vec<f32> = (0..step.heads).map(|head| slope(head, step.heads)).collect();
        let pairs = if step.appends { step.keys * step.size / 2 } else { 0 };
        Ok(Set {
            new: [
                DeviceBuffer::from_slice(stream, &new_keys)?,
                DeviceBuffer::from_slice(stream, &new_values)?,
            ],
            angles: [
                DeviceBuffer::from_slice(stream, &vec![1.0; pairs])?,
                DeviceBuffer::from_slice(stream, &vec![0.0; pairs])?,
            ],
            queries: DeviceBuffer::from_slice(stream, &self.queries)?,
            cache: [
                DeviceBuffer::from_slice(stream, &self.cache[0])?,
                DeviceBuffer::from_slice(stream, &self.cache[1])?,
            ],
            scales: DeviceBuffer::from_slice(stream, &vec![1.0; step.kv_heads])?,
            table: DeviceBuffer::from_slice(stream, &step.table())?,
            lengths: DeviceBuffer::from_slice(stream, &lengths)?,
            slopes: DeviceBuffer::from_slice(stream, &slopes)?,
            out: DeviceBuffer::zeroed(stream, self.queries.len())?,
        })
    }

    /// Compares the last head of the last sequence with the oracle, as if it were the only one.
    fn check(&self, step: Step, got: &[bf16]) -> Outcome {
        let Step { batch, heads, kv_heads, size, .. } = step;
        let (sequence, table, keys) = (batch - 1, step.table(), step.lengths()[batch - 1]);
        let sides = Sides { batch: 1, queries: 1, keys, heads: 1, kv_heads: 1, size };
        let at = (sequence * heads + heads - 1) * size;
        let queries: Vec<f64> = self.queries[at..at + size].iter().map(|x| x.to_f64()).collect();
        let cached = self.cache.each_ref().map(|rows| -> Vec<f64> {
            let first = |key| (step.place(&table, sequence, key) * kv_heads + kv_heads - 1) * size;
            (0..keys).flat_map(|key| &rows[first(key)..][..size]).map(|x| x.to_f64()).collect()
        });
        let rows = |data| Rows { data, strides: [0, size, 0] };
        let operands = [rows(&queries[..]), rows(&cached[0][..]), rows(&cached[1][..])];
        let scale = 1.0 / f64::from((size as f32).sqrt());
        let modify = |score, [_, _, _, key]: [usize; 4]| Some(step.modify(score, keys - 1 - key));
        let want = oracle(sides, operands, Band::default(), scale, modify);
        let mut limit = tolerance::ATTENTION_BF16.tolerance();
        if step.pattern == Pattern::SoftCap {
            limit.relative += tolerance::ATTENTION_SOFT_CAP.tolerance().relative * f64::from(CAP);
        }
        let what = format!("{} {}", step.name(), step.shape());
        compare::rounded(&what, &got[at..at + size], &want.value, &want.magnitude, &[size], limit)?;
        Ok(())
    }
}
