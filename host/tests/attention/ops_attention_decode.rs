//! Decode attention against the oracle of `reference`: lengths, pages, cuts, masks, and wrong calls.

use crate::attention_case::{Number, Outcome, about, device};
use crate::decode_case::{are_log_sum_exps, decodes, is_output};
use half::{bf16, f16};
use ironwarp::graph::Graph;
use ironwarp::ops::attention::{Decode, DecodePlan, Heads, HeadsMut, Mask, Pages};
use ironwarp::ops::tuning::{Source, Tuner, Tuning};
use ironwarp::{DeviceBuffer, Stream};
use reference::attention::{Attended, Band, Cache, Rows, Sides, decode_with as oracle};
use testkit::tolerance::Tolerance;
use testkit::{Family, bitwise_equal, input};

/// With a score function.
#[path = "ops_attention_decode_functions.rs"]
mod functions;
/// With ALiBi and a soft cap.
#[path = "ops_attention_decode_patterns.rs"]
mod patterns;

#[derive(Debug, Clone, Copy)]
struct Case {
    family: Family,
    seed: u64,
    /// Keys of each sequence.
    lengths: &'static [usize],
    /// Whether the kernels are told the lengths; else all are the same.
    tells_lengths: bool,
    queries: usize,
    heads: usize,
    kv_heads: usize,
    size: usize,
    /// Keys of a page, of a cache in pages.
    page: Option<usize>,
    left: Option<u32>,
    right: Option<u32>,
    scale: Option<f32>,
    /// Blocks of the pass; else as many as the op wants.
    blocks: Option<u32>,
}

const PLAIN: Case = Case {
    family: Family::Normal,
    seed: 1,
    lengths: &[100],
    tells_lengths: true,
    queries: 1,
    heads: 4,
    kv_heads: 2,
    size: 64,
    page: None,
    left: None,
    right: None,
    scale: None,
    blocks: None,
};

/// Pages that no sequence has, and that lie between the others.
const SPARE_PAGES: usize = 2;
/// Keys of the longest sequence's matrix that it does not have.
const SPARE_KEYS: usize = 3;

impl Case {
    /// The number of a key's row in a cache of these sides, with so many numbers of a sequence in the table.
    fn place(&self, sides: [usize; 4], (table, each): (&[i32], usize), sequence: usize, key: usize) -> usize {
        match self.page {
            None => sequence * sides[1] + key,
            Some(page) => table[sequence * each + key / page] as usize * page + key % page,
        }
    }
}

/// Operands on the host. What no sequence has is no number.
struct Operands<T> {
    queries: Vec<T>,
    cache: [Vec<T>; 2],
    /// Sides of the cache.
    sides: [usize; 4],
    table: Vec<i32>,
    /// Numbers of a sequence in the table.
    each: usize,
}

impl<T: Number> Operands<T> {
    fn new(case: &Case) -> Self {
        let Case { lengths, queries, heads, kv_heads, size, family, seed, .. } = *case;
        let longest = lengths.iter().copied().max().unwrap_or_default();
        let (sides, each) = match case.page {
            None => {
                let spare = if case.tells_lengths { SPARE_KEYS } else { 0 };
                ([lengths.len(), longest + spare, kv_heads, size], 0)
            }
            Some(page) => {
                let each = longest.div_ceil(page) + usize::from(case.tells_lengths);
                ([lengths.len() * each + SPARE_PAGES, page, kv_heads, size], each)
            }
        };
        // Pages in an order of their own: a stride that has no divisor in common with their number.
        let pages = sides[0].max(1);
        let step = (1..=7).rev().find(|step| (1..=*step).all(|d| d == 1 || step % d != 0 || pages % d != 0));
        let step = step.unwrap_or(1);
        let table: Vec<i32> = (0..lengths.len() * each).map(|at| (at * step % pages) as i32).collect();
        let row = kv_heads * size;
        let cache = [1, 2].map(|operand| {
            let mut data = vec![T::from_f64(f64::NAN); sides.iter().product()];
            for (sequence, &length) in lengths.iter().enumerate() {
                let values: Vec<T> = input(family, seed + operand + 16 * sequence as u64, length * row);
                for (key, values) in values.chunks(row.max(1)).enumerate() {
                    let place = case.place(sides, (&table, each), sequence, key);
                    data[place * row..(place + 1) * row].copy_from_slice(values);
                }
            }
            data
        });
        Operands {
            queries: input(family, seed, lengths.len() * queries * heads * size),
            cache,
            sides,
            table,
            each,
        }
    }
}

/// Operands, lengths and results on the device.
struct Setup<T> {
    case: Case,
    operands: Operands<T>,
    queries: DeviceBuffer<T>,
    cache: [DeviceBuffer<T>; 2],
    /// The last keys of each sequence and their values, where they are not in the cache yet.
    new: Option<[DeviceBuffer<T>; 2]>,
    table: DeviceBuffer<i32>,
    lengths: DeviceBuffer<i32>,
    out: DeviceBuffer<T>,
    logarithms: DeviceBuffer<f32>,
}

impl<T: Number> Setup<T> {
    /// Gives the sequences other lengths: on the device, and for the oracle.
    pub fn set_lengths(&mut self, stream: &Stream, lengths: &'static [usize]) -> Outcome {
        let on_device: Vec<i32> = lengths.iter().map(|&length| length as i32).collect();
        self.lengths.copy_from_slice(stream, &on_device)?;
        self.case.lengths = lengths;
        Ok(())
    }

    /// The results have the bits of the first ones, which they become where there are none yet.
    pub fn is_as_first(&self, stream: &Stream, first: &mut Option<(Vec<T>, Vec<f32>)>) -> Outcome {
        let got = (self.out.to_vec(stream)?, self.logarithms.to_vec(stream)?);
        let (out, logarithms) = first.get_or_insert_with(|| got.clone());
        bitwise_equal("replayed", &got.0, out)?;
        Ok(bitwise_equal("replayed, lse", &got.1, logarithms)?)
    }

    fn new(case: &Case, stream: &Stream) -> Outcome<Self> {
        let operands = Operands::new(case);
        let lengths: Vec<i32> = case.lengths.iter().map(|&length| length as i32).collect();
        let rows = case.lengths.len() * case.queries * case.heads;
        Ok(Setup {
            case: *case,
            queries: DeviceBuffer::from_slice(stream, &operands.queries)?,
            cache: [
                DeviceBuffer::from_slice(stream, &operands.cache[0])?,
                DeviceBuffer::from_slice(stream, &operands.cache[1])?,
            ],
            new: None,
            table: DeviceBuffer::from_slice(stream, &operands.table)?,
            lengths: DeviceBuffer::from_slice(stream, &lengths)?,
            out: DeviceBuffer::from_slice(stream, &vec![T::from_f64(f64::NAN); rows * case.size])?,
            logarithms: DeviceBuffer::from_slice(stream, &vec![f32::NAN; rows])?,
            operands,
        })
    }

    fn decode(&mut self) -> Decode<'_> {
        let Case { queries, heads, size, .. } = self.case;
        let sides = [self.case.lengths.len(), queries, heads, size];
        let (queries, out) = (Heads::new(&self.queries, sides), HeadsMut::new(&mut self.out, sides));
        let [keys, values] = &mut self.cache;
        let mut decode = match &self.new {
            None => {
                let [keys, values] = [&*keys, &*values].map(|buffer| Heads::new(buffer, self.operands.sides));
                Decode::new(queries, keys, values, out)
            }
            Some([new_keys, new_values]) => {
                let of_new = [sides[0], sides[1], self.case.kv_heads, size];
                let kept = [keys, values].map(|buffer| HeadsMut::new(buffer, self.operands.sides));
                let new = [Heads::new(new_keys, of_new), Heads::new(new_values, of_new)];
                Decode::appending(queries, kept, new, out)
            }
        };
        decode = decode.mask(Mask::window(self.case.left, self.case.right)).log_sum_exp(&mut self.logarithms);
        if self.case.page.is_some() {
            decode = decode.pages(Pages::new(&self.table, self.operands.each));
        }
        if self.case.tells_lengths {
            decode = decode.lengths(&self.lengths);
        }
        if let Some(blocks) = self.case.blocks {
            decode = decode.blocks(blocks);
        }
        match self.case.scale {
            Some(scale) => decode.scale(scale),
            None => decode,
        }
    }

    /// With these sinks: the results are the oracle's.
    fn check_sinks(&mut self, stream: &Stream, sinks: &[f32]) -> Outcome {
        let scores = DeviceBuffer::from_slice(stream, sinks)?;
        let plan = self.decode().sinks(&scores).explain(stream)?;
        self.decode().sinks(&scores).run(stream)?;
        let Case { lengths, queries, heads, kv_heads, size, .. } = self.case;
        let sides = Sides { batch: lengths.len(), queries, keys: 0, heads, kv_heads, size };
        let exact: Vec<f64> = sinks.iter().copied().map(f64::from).collect();
        self.compare_with(stream, &plan, self.oracle().with_sinks(sides, &exact))
    }

    fn run(&mut self, stream: &Stream) -> Outcome<DecodePlan> {
        let plan = self.decode().explain(stream)?;
        self.decode().run(stream)?;
        Ok(plan)
    }

    fn oracle(&self) -> Attended {
        self.oracle_with(|score, _| Some(score))
    }

    /// The same with the scores that `modify` gives.
    fn oracle_with(&self, modify: impl Fn(f64, [usize; 4]) -> Option<f64> + Sync) -> Attended {
        let Case { lengths, queries, heads, kv_heads, size, left, right, scale, .. } = self.case;
        let Operands { sides: [count, page, ..], each, .. } = self.operands;
        let sides = Sides { batch: lengths.len(), queries, keys: 0, heads, kv_heads, size };
        let rows = |data, rows: usize, heads: usize| Rows {
            data,
            strides: [rows * heads * size, heads * size, size],
        };
        let [keys, values] = &self.operands.cache;
        let operands = [
            rows(&self.operands.queries[..], queries, heads),
            rows(keys, page, kv_heads),
            rows(values, page, kv_heads),
        ];
        let cache = match self.case.page {
            None => Cache::Matrices,
            Some(size) => Cache::Pages { table: &self.operands.table, each, size, count },
        };
        let band = Band { left: left.map(i64::from), right: right.map(i64::from), top_left: false };
        let scale = f64::from(scale.unwrap_or(1.0 / (size as f32).sqrt()));
        oracle(sides, operands, cache, lengths, (band, scale), modify)
    }

    fn compare(&self, stream: &Stream, plan: &DecodePlan) -> Outcome {
        self.compare_with(stream, plan, self.oracle())
    }

    fn compare_with(&self, stream: &Stream, plan: &DecodePlan, want: Attended) -> Outcome {
        self.compare_within(stream, plan, want, Tolerance::EXACT)
    }

    /// The same with errors that a score function adds.
    fn compare_within(&self, stream: &Stream, plan: &DecodePlan, want: Attended, more: Tolerance) -> Outcome {
        let Case { lengths, queries, heads, size, .. } = self.case;
        let what = format!("{plan}: {:?}", self.case);
        let shape = [lengths.len(), queries, heads, size];
        is_output(&what, &self.out.to_vec(stream)?, &want, shape, more)?;
        are_log_sum_exps(&what, &self.logarithms.to_vec(stream)?, &want, shape, more)
    }
}

impl Case {
    /// The results are the oracle's.
    fn check<T: Number>(&self) -> Outcome {
        if !decodes()? {
            return Ok(());
        }
        let stream = device()?.stream()?;
        let mut setup = Setup::<T>::new(self, &stream)?;
        let plan = setup.run(&stream)?;
        setup.compare(&stream, &plan)
    }
}

#[test]
fn one_query_of_every_head_size() -> Outcome {
    for size in [64, 128, 256] {
        Case { size, ..PLAIN }.check::<bf16>()?;
        Case { size, lengths: &[65, 1], ..PLAIN }.check::<f16>()?;
    }
    for size in [8, 56, 72, 136, 248] {
        Case { size, lengths: &[37], ..PLAIN }.check::<bf16>()?;
    }
    Ok(())
}

/// Blocks of the pass, from one for all to more than there are chunks of keys: every way to cut.
#[test]
fn cuts_of_all_kinds() -> Outcome {
    for blocks in [1, 2, 3, 5, 8, 13, 1000] {
        Case { lengths: &[700, 1, 130, 0, 64, 65], blocks: Some(blocks), ..PLAIN }.check::<bf16>()?;
        let case = Case { lengths: &[400, 300], size: 128, page: Some(16), blocks: Some(blocks), ..PLAIN };
        case.check::<f16>()?;
    }
    Case { lengths: &[530], size: 256, blocks: Some(2), ..PLAIN }.check::<bf16>()
}

/// Of sequences that one block computes, that several do, and that have no keys.
#[test]
fn sinks() -> Outcome {
    if !decodes()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let sinks = [20.0, -30.0, 0.5, f32::NEG_INFINITY];
    for (size, blocks) in [(64, 1), (128, 3), (256, 7)] {
        let case =
            Case { lengths: &[300, 0, 70], queries: 3, right: Some(0), size, blocks: Some(blocks), ..PLAIN };
        Setup::<bf16>::new(&case, &stream)?.check_sinks(&stream, &sinks)?;
        Setup::<f16>::new(&case, &stream)?.check_sinks(&stream, &sinks)?;
    }
    Ok(())
}

/// Lengths about the borders of tiles and chunks, and sequences without keys.
#[test]
fn ragged_lengths() -> Outcome {
    let lengths = &[0, 1, 7, 15, 16, 17, 63, 64, 65, 127, 128, 129, 0];
    Case { lengths, ..PLAIN }.check::<bf16>()?;
    Case { lengths, page: Some(16), blocks: Some(7), ..PLAIN }.check::<f16>()?;
    Case { lengths: &[0, 0], ..PLAIN }.check::<bf16>()?;
    Case { lengths: &[0], tells_lengths: false, ..PLAIN }.check::<bf16>()?;
    // More sequences than a warp has lanes, and than it loads at a time.
    const MANY: [usize; 150] = {
        let mut lengths = [0; 150];
        let mut at = 0;
        while at < 150 {
            lengths[at] = at * 37 % 150;
            at += 1;
        }
        lengths
    };
    Case { lengths: &MANY, heads: 1, kv_heads: 1, size: 16, blocks: Some(11), ..PLAIN }.check::<bf16>()
}

#[test]
fn one_length() -> Outcome {
    for blocks in [1, 2, 4, 7] {
        let case = Case { lengths: &[200; 3], tells_lengths: false, blocks: Some(blocks), ..PLAIN };
        case.check::<bf16>()?;
        // No key is left over on the last page.
        Case { page: Some(10), ..case }.check::<f16>()?;
    }
    Ok(())
}

#[test]
fn pages_of_any_size() -> Outcome {
    for page in [1, 3, 16, 17, 32, 48, 64, 100] {
        let case = Case { lengths: &[150, 33, 64], page: Some(page), ..PLAIN };
        case.check::<bf16>()?;
        Case { size: 128, blocks: Some(5), ..case }.check::<f16>()?;
    }
    Case { lengths: &[70], page: Some(5), size: 256, ..PLAIN }.check::<bf16>()
}

/// Heads and queries that share a head of keys, in one tile of rows and in several.
#[test]
fn groups_and_several_queries() -> Outcome {
    for (heads, kv_heads) in [(1, 1), (3, 1), (6, 6), (16, 1), (17, 1), (40, 2)] {
        Case { heads, kv_heads, lengths: &[90, 140], ..PLAIN }.check::<bf16>()?;
    }
    for (queries, blocks) in [(2, 1), (4, 3), (9, 4), (20, 5)] {
        let case = Case { queries, right: Some(0), lengths: &[90, 3, 260], blocks: Some(blocks), ..PLAIN };
        case.check::<f16>()?;
        Case { size: 128, page: Some(16), right: None, ..case }.check::<bf16>()?;
    }
    Ok(())
}

/// A query sees keys of a window alone. Sequences of fewer keys than queries, whose first see nothing.
#[test]
fn masks() -> Outcome {
    for (left, right) in [(Some(0), Some(0)), (Some(20), Some(0)), (Some(100), Some(0)), (Some(70), None)] {
        for queries in [1, 3] {
            let lengths = &[5, 1, 0, 64, 200, 330];
            let case = Case { lengths, queries, left, right, ..PLAIN };
            case.check::<bf16>()?;
            Case { page: Some(16), blocks: Some(3), ..case }.check::<f16>()?;
        }
    }
    Case { lengths: &[5, 40], queries: 9, right: Some(0), tells_lengths: true, ..PLAIN }.check::<bf16>()?;
    // All keys lie outside of the window.
    Case { lengths: &[30], right: Some(0), left: Some(0), queries: 2, ..PLAIN }.check::<f16>()
}

#[test]
fn scales() -> Outcome {
    for scale in [1e-3, 0.5] {
        Case { lengths: &[140], scale: Some(scale), blocks: Some(2), ..PLAIN }.check::<f16>()?;
    }
    Ok(())
}

#[test]
fn nothing_to_do() -> Outcome {
    Case { lengths: &[], ..PLAIN }.check::<bf16>()?;
    Case { queries: 0, ..PLAIN }.check::<bf16>()?;
    Case { heads: 0, kv_heads: 0, ..PLAIN }.check::<bf16>()
}

/// A NaN or an infinity stays with the queries that see it: its head's, of its sequence.
#[test]
fn numbers_that_are_none_stay_where_they_are() -> Outcome {
    if !decodes()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    for (special, operand) in [(f64::NAN, 0), (f64::INFINITY, 0), (f64::NAN, 1), (f64::NEG_INFINITY, 1)] {
        let case = Case { lengths: &[150, 150], left: Some(99), right: Some(0), blocks: Some(3), ..PLAIN };
        let mut setup = Setup::<bf16>::new(&case, &stream)?;
        let row = case.kv_heads * case.size;
        // Sequence 0, head 1: a key that is seen. Sequence 1, head 0: one that is not, in a chunk that is.
        let second = setup.operands.sides[1] * row;
        for place in [120 * row + case.size + 3, second + 48 * row + 5] {
            setup.operands.cache[operand][place] = bf16::from_f64(special);
        }
        setup.cache[operand].copy_from_slice(&stream, &setup.operands.cache[operand])?;
        let plan = setup.run(&stream)?;
        setup.compare(&stream, &plan)?;
        let spoilt = setup.out.to_vec(&stream)?.iter().filter(|value| !value.is_finite()).count();
        // An infinite key may have a score of minus infinity, which weighs nothing.
        let least = usize::from(special.is_nan() || operand == 1);
        assert!((least..=2 * case.size).contains(&spoilt), "{special} in operand {operand}: {spoilt}");
    }
    Ok(())
}

/// Lengths below 0 and beyond the most, and numbers of pages that there are not: no access outside, and what
/// is there counts as the documentation says.
#[test]
fn hostile_lengths_and_pages() -> Outcome {
    if !decodes()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let mut short = Setup::<bf16>::new(&Case { lengths: &[0, 60], ..PLAIN }, &stream)?;
    // The matrices have some keys more, which are no numbers.
    short.cache[0].fill_zero(&stream)?;
    short.cache[1].fill_zero(&stream)?;
    short.lengths.copy_from_slice(&stream, &[i32::MIN, i32::MAX])?;
    short.run(&stream)?;
    let sums = short.logarithms.to_vec(&stream)?;
    let keys = 60.0 + SPARE_KEYS as f32;
    assert!(sums[..4].iter().all(|sum| *sum == f32::NEG_INFINITY), "{sums:?}");
    assert!(sums[4..].iter().all(|sum| (sum - keys.ln()).abs() < 1e-5), "{sums:?}");
    assert!(short.out.to_vec(&stream)?.iter().all(|value| *value == bf16::ZERO));
    for page in [16, 10] {
        let case = Case { lengths: &[100, 70], page: Some(page), blocks: Some(3), ..PLAIN };
        let mut paged = Setup::<f16>::new(&case, &stream)?;
        let count = paged.operands.sides[0] as i32;
        let each = paged.operands.each;
        for (place, number) in [(1, -1), (3, count), (each, i32::MIN), (each + 2, i32::MAX)] {
            paged.operands.table[place] = number;
        }
        paged.table.copy_from_slice(&stream, &paged.operands.table)?;
        let plan = paged.run(&stream)?;
        paged.compare(&stream, &plan)?;
    }
    Ok(())
}

/// The same bits in every run; and from other lengths what the oracle says, by a replayed graph.
#[test]
fn graphs_replay_with_other_lengths() -> Outcome {
    if !decodes()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let case = Case { lengths: &[300, 200], page: Some(16), blocks: Some(4), ..PLAIN };
    let mut setup = Setup::<bf16>::new(&case, &stream)?;
    setup.run(&stream)?;
    let want = (setup.out.to_vec(&stream)?, setup.logarithms.to_vec(&stream)?);
    let mut graph = Graph::capture(&stream, setup, |stream, setup| setup.decode().run(stream))?;
    for _ in 0..3 {
        graph.inputs_mut().out.fill_zero(&stream)?;
        graph.replay(&stream)?;
        let setup = graph.inputs();
        bitwise_equal("replayed", &setup.out.to_vec(&stream)?, &want.0)?;
        bitwise_equal("replayed, lse", &setup.logarithms.to_vec(&stream)?, &want.1)?;
    }
    for lengths in [&[1, 90], &[257, 0]] {
        let setup = graph.inputs_mut();
        setup.set_lengths(&stream, lengths)?;
        graph.replay(&stream)?;
        let plan = graph.inputs_mut().decode().explain(&stream)?;
        graph.inputs().compare(&stream, &plan)?;
    }
    Ok(())
}

#[test]
fn wrong_calls_are_refused() -> Outcome {
    if !decodes()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let case = Case { lengths: &[40, 33], page: Some(16), ..PLAIN };
    let refused = |what: &str, spoil: &dyn Fn(&mut Setup<bf16>)| -> Outcome {
        let mut setup = Setup::<bf16>::new(&case, &stream)?;
        spoil(&mut setup);
        let error = setup.decode().run(&stream).expect_err(what);
        assert_eq!(about(&error), what, "{error}");
        Ok(())
    };
    refused("the page table", &|setup| setup.operands.each += 1)?;
    refused("the keys", &|setup| setup.operands.sides[0] -= 1)?;
    refused("the keys", &|setup| setup.operands.sides[3] += 8)?;
    refused("the keys", &|setup| setup.operands.sides = [5, 0, 2, 64])?;
    refused("the heads of the queries", &|setup| setup.operands.sides[2] = 3)?;
    refused("the head size", &|setup| setup.case.size = 60)?;
    refused("the scale", &|setup| setup.case.scale = Some(0.0))?;
    refused("the lengths", &|setup| setup.lengths = DeviceBuffer::zeroed(&stream, 3).unwrap())?;
    refused("the log-sum-exps", &|setup| setup.logarithms = DeviceBuffer::zeroed(&stream, 7).unwrap())?;
    let mut setup = Setup::<bf16>::new(&case, &stream)?;
    let other = Setup::<f16>::new(&case, &stream)?;
    let queries = Heads::new(&setup.queries, [2, 1, 4, 64]);
    let keys = Heads::new(&other.cache[0], other.operands.sides);
    let values = Heads::new(&setup.cache[1], setup.operands.sides);
    let decode = Decode::new(queries, keys, values, HeadsMut::new(&mut setup.out, [2, 1, 4, 64]));
    let error = decode.run(&stream).expect_err("keys of f16");
    assert_eq!(about(&error), "the keys", "{error}");
    Ok(())
}

#[test]
fn a_plan_tells_what_and_why() -> Outcome {
    if !decodes()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let case = Case { lengths: &[300, 20], page: Some(16), blocks: Some(1000), ..PLAIN };
    let mut setup = Setup::<bf16>::new(&case, &stream)?;
    let plan = setup.decode().explain(&stream)?;
    let text = plan.to_string();
    for part in [
        "bf16 [2, 1, 4, 64] on [2, 320, 2, 64] in pages of 16, own lengths, full, log-sum-exp",
        "by attention_decode_bf16_64",
        "20 blocks of 64 keys each",
        "put together by a second launch",
        "MB of keys and values",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let one = setup.decode().blocks(0).explain(&stream)?;
    assert_eq!((one.blocks, one.keys_each, one.is_cut), (1, 1280, false));
    Ok(())
}

/// Cut as the tuner found it, the results are the oracle's; a number of blocks that the call asks for stays.
#[test]
fn a_tuner_cuts_sequences() -> Outcome {
    if !decodes()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let tuner = Tuner::new(&device()?, Tuning::Measure);
    for (records, blocks) in [(1, None), (2, Some(3))] {
        let mut setup = Setup::<bf16>::new(&Case { lengths: &[200, 0, 70], blocks, ..PLAIN }, &stream)?;
        assert_eq!(tuner.explain(&stream, setup.decode())?.source, Source::Estimate);
        tuner.run(&stream, setup.decode())?;
        let plan = tuner.explain(&stream, setup.decode())?;
        assert!(
            matches!(plan.source, Source::Record { .. }) && plan.to_string().contains("measured"),
            "{plan}"
        );
        assert!(blocks.is_none_or(|blocks| plan.blocks == blocks), "{plan}");
        assert_eq!(tuner.len(), records);
        setup.compare(&stream, &plan)?;
    }
    Ok(())
}
