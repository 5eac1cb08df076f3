//! Decode attention beside torch's back ends: one query a sequence, in bf16, replayed as a graph on both
//! sides. Rates are those of the keys and values that are read, once; the column beside them is their share
//! of what a copy reaches.

use half::bf16;
use ironwarp::graph::Graph;
use ironwarp::ops::attention::{Decode, Heads, HeadsMut, Pages, Rotary};
use ironwarp::{DeviceBuffer, Stream};
use ironwarp_benches::{Outcome, Session, Work};
use reference::attention::{Band, Cache, Rows, Sides, decode as oracle};
use serde_json::json;
use testkit::{Family, compare, input, tolerance};

/// A row of the table.
#[derive(Clone, Copy)]
struct Step {
    batch: usize,
    keys: usize,
    heads: usize,
    kv_heads: usize,
    size: usize,
    /// Keys of a page, of a cache in pages.
    page: Option<usize>,
    /// Lengths from an eighth of the keys to all of them.
    is_ragged: bool,
    /// Whether the last key is a new one, which is put into the cache and rotated.
    appends: bool,
}

const STEP: Step = Step {
    batch: 32,
    keys: 8192,
    heads: 32,
    kv_heads: 8,
    size: 128,
    page: None,
    is_ragged: false,
    appends: false,
};

const STEPS: [Step; 13] = [
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
];
/// For the software device.
const SMALL: [Step; 3] = [
    Step { batch: 2, keys: 200, heads: 4, kv_heads: 2, ..STEP },
    Step { batch: 2, keys: 208, heads: 4, kv_heads: 2, page: Some(16), is_ragged: true, ..STEP },
    Step { batch: 2, keys: 208, heads: 4, kv_heads: 2, page: Some(16), appends: true, ..STEP },
];
/// Different elements of an operand. A prime: no two rows are alike.
const PERIOD: usize = 1_048_573;
/// Launches of a graph, at least, where a launch is short.
const GRAPH_LAUNCHES: usize = 64;

/// All rows.
pub fn rows(session: &mut Session) -> Outcome {
    let steps = if session.small() { &SMALL[..] } else { &STEPS[..] };
    steps.iter().try_for_each(|step| step.bench(session))
}

/// Operands and results.
struct Set {
    queries: DeviceBuffer<bf16>,
    cache: [DeviceBuffer<bf16>; 2],
    table: DeviceBuffer<i32>,
    lengths: DeviceBuffer<i32>,
    /// The last key of each sequence, and its values.
    new: [DeviceBuffer<bf16>; 2],
    /// Cosines and sines of an angle of 0: what is rotated stays as it is.
    angles: [DeviceBuffer<f32>; 2],
    out: DeviceBuffer<bf16>,
}

impl Step {
    fn name(self) -> String {
        format!("attention_decode_{}", self.size)
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

    /// Of each sequence the row of the last key.
    fn last_rows(self, rows: &[bf16]) -> Vec<bf16> {
        let ([_, page, ..], row) = (self.cache(), self.kv_heads * self.size);
        let (table, each, key) = (self.table(), self.pages_each(), self.keys - 1);
        let place = |sequence: usize| match self.page {
            Some(_) => table[sequence * each + key / page] as usize * page + key % page,
            None => sequence * page + key,
        };
        (0..self.batch).flat_map(|sequence| rows[place(sequence) * row..][..row].to_vec()).collect()
    }

    fn queries(self) -> [usize; 4] {
        [self.batch, 1, self.heads, self.size]
    }

    /// Bytes of the keys and values that are seen.
    fn bytes(self) -> u64 {
        let keys: usize = self.lengths().iter().sum();
        (2 * keys * self.kv_heads * self.size * size_of::<bf16>()) as u64
    }

    fn decode(self, set: &mut Set) -> Decode<'_> {
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
                [Heads::new::<bf16>(&*keys, self.cache()), Heads::new::<bf16>(&*values, self.cache())];
            Decode::new(queries, keys, values, out)
        };
        let decode = if self.is_ragged { decode.lengths(&set.lengths) } else { decode };
        match self.page {
            Some(_) => decode.pages(Pages::new(&set.table, self.pages_each())),
            None => decode,
        }
    }

    fn bench(self, session: &mut Session) -> Outcome {
        let (name, shape) = (self.name(), self.shape());
        if !session.wants(&name) && !session.wants(&format!("{name}/{shape}")) {
            return Ok(());
        }
        let stream = session.stream.clone();
        let host = Host::new(self);
        let count = session.rotation(self.bytes());
        let mut sets =
            (0..count).map(|_| host.upload(self, &stream)).collect::<ironwarp::Result<Vec<_>>>()?;
        println!("{}", self.decode(&mut sets[0]).explain(&stream)?);
        // Loads the kernels. A capture cannot load them.
        self.decode(&mut sets[0]).run(&stream)?;
        host.check(self, &sets[0].out.to_vec(&stream)?)?;
        let rounds = if count > 1 { GRAPH_LAUNCHES.div_ceil(count) } else { 1 };
        let mut graph = Graph::capture(&stream, sets, |stream, sets| {
            (0..rounds).try_for_each(|_| sets.iter_mut().try_for_each(|set| self.decode(set).run(stream)))
        })?;
        let peers: Vec<_> = ["cudnn", "flash"]
            .iter()
            .filter(|_| !self.is_ragged && !self.appends)
            .map(|op| {
                let Step { batch, keys, heads, kv_heads, size, .. } = self;
                json!({ "prepare": format!("attention.{op}_decode"), "batch": batch, "keys": keys,
                    "heads": heads, "kv_heads": kv_heads, "size": size, "sets": count })
            })
            .collect();
        let group = (rounds * count) as u64;
        let work = Work::Bytes(self.bytes());
        session.measure_groups(&name, &shape, work, &peers, group, |_| graph.replay(&stream))
    }
}

/// Operands on the host.
struct Host {
    queries: Vec<bf16>,
    cache: [Vec<bf16>; 2],
}

impl Host {
    fn new(step: Step) -> Self {
        let numbers = |seed, sides: [usize; 4]| -> Vec<bf16> {
            let len: usize = sides.iter().product();
            let different: Vec<bf16> = input(Family::Normal, seed, len.min(PERIOD));
            different.iter().copied().cycle().take(len).collect()
        };
        let cache = [numbers(2, step.cache()), numbers(3, step.cache())];
        Host { queries: numbers(1, step.queries()), cache }
    }

    fn upload(&self, step: Step, stream: &Stream) -> ironwarp::Result<Set> {
        let lengths: Vec<i32> = step.lengths().into_iter().map(|length| length as i32).collect();
        let [new_keys, new_values] = self.cache.each_ref().map(|rows| step.last_rows(rows));
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
            table: DeviceBuffer::from_slice(stream, &step.table())?,
            lengths: DeviceBuffer::from_slice(stream, &lengths)?,
            out: DeviceBuffer::zeroed(stream, self.queries.len())?,
        })
    }

    /// Compares the last head of the last sequence with the oracle, as if it were the only one.
    fn check(&self, step: Step, got: &[bf16]) -> Outcome {
        let Step { batch, heads, kv_heads, size, .. } = step;
        let (sequence, [count, page, ..]) = (batch - 1, step.cache());
        let sides = Sides { batch: 1, queries: 1, keys: 0, heads: 1, kv_heads: 1, size };
        let at = (sequence * heads + heads - 1) * size;
        let (first, row) = ((kv_heads - 1) * size, kv_heads * size);
        let table = step.table();
        let each = step.pages_each();
        // Its matrix, where there are no pages, is the page of its number.
        let own = if step.page.is_some() { &table[sequence * each..] } else { &[sequence as i32][..] };
        let strides = [page * row, row, 0];
        let operands = [
            Rows { data: &self.queries[at..], strides: [0; 3] },
            Rows { data: &self.cache[0][first..], strides },
            Rows { data: &self.cache[1][first..], strides },
        ];
        let cache = Cache::Pages { table: own, each, size: page, count };
        let scale = 1.0 / f64::from((size as f32).sqrt());
        let want = oracle(sides, operands, cache, &step.lengths()[sequence..], Band::default(), scale);
        let limit = tolerance::ATTENTION_BF16.tolerance();
        let what = format!("{} {}", step.name(), step.shape());
        compare::rounded(&what, &got[at..at + size], &want.value, &want.magnitude, &[size], limit)?;
        Ok(())
    }
}
