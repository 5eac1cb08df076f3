//! Decode attention on a cache in e4m3, against the oracle of `reference` on what the cache stands for; new
//! keys bit for bit; hostile numbers, and wrong calls.

use crate::attention_case::{Number, Outcome, device};
use crate::decode_case::{are_log_sum_exps, decodes_e4m3, is_output};
use half::{bf16, f16};
use ironwarp::ops::attention::{CacheScales, Decode, Heads, HeadsMut, Mask, Pages, Rotary};
use ironwarp::{DeviceBuffer, Error, Stream};
use num::E4M3;
use reference::attention::{Attended, Band, Cache, Rows, Sides, decode_with as oracle};
use testkit::tolerance::Tolerance;
use testkit::{Family, bitwise_equal, input};

/// With a score function.
#[path = "ops_attention_decode_e4m3_functions.rs"]
mod functions;
/// With ALiBi and a soft cap.
#[path = "ops_attention_decode_e4m3_patterns.rs"]
mod patterns;

#[derive(Debug, Clone, Copy)]
struct Case {
    /// Keys of each sequence, the new ones among them.
    lengths: &'static [usize],
    queries: usize,
    heads: usize,
    kv_heads: usize,
    size: usize,
    /// Keys of a page, of a cache in pages.
    page: Option<usize>,
    /// Whether the last keys are new.
    appends: bool,
    /// Columns of a row that are rotated.
    rotated: usize,
    blocks: Option<u32>,
    /// The scales of the first two heads' keys and values; others have the same in turn.
    scales: [[f32; 2]; 2],
}

const PLAIN: Case = Case {
    lengths: &[100],
    queries: 1,
    heads: 8,
    kv_heads: 2,
    size: 128,
    page: None,
    appends: false,
    rotated: 0,
    blocks: None,
    scales: [[0.37, 1.9], [2.5, 0.11]],
};

/// Two new keys, with scales by which divisions are exact.
const APPENDING: Case = Case { queries: 2, appends: true, scales: [[0.5, 2.0], [0.25, 4.0]], ..PLAIN };

/// Most keys of a sequence.
const MOST: usize = 1008;

/// Cosines, or sines: multiples of a quarter, so that rotations are exact before they are rounded.
fn angles(seed: usize, pairs: usize) -> Vec<f32> {
    (0..MOST * pairs).map(|at| ((at * seed + at / pairs) % 9) as f32 / 4.0 - 1.0).collect()
}

impl Case {
    /// A row at a position, rotated.
    fn turned<T: Number>(&self, row: &[T], position: usize) -> Vec<T> {
        let pairs = self.rotated / 2;
        let (cosines, sines) = (angles(7, pairs), angles(5, pairs));
        let mut turned = row.to_vec();
        for pair in 0..pairs {
            let [x, y]: [f64; 2] = [row[pair].into(), row[pair + pairs].into()];
            let [c, s] = [&cosines, &sines].map(|table| f64::from(table[position * pairs + pair]));
            turned[pair] = T::from_f64(x * c - y * s);
            turned[pair + pairs] = T::from_f64(y * c + x * s);
        }
        turned
    }

    /// Sides of the cache, and numbers of a sequence in the table.
    fn cache(&self) -> ([usize; 4], usize) {
        let page = self.page.unwrap_or(MOST);
        let each = MOST.div_ceil(page);
        ([self.lengths.len() * each, page, self.kv_heads, self.size], each)
    }

    /// The scale of a head's keys, or values.
    fn scale(&self, operand: usize, head: usize) -> f32 {
        self.scales[operand][head % 2]
    }

    fn head_scales(&self, operand: usize) -> Vec<f32> {
        (0..self.kv_heads).map(|head| self.scale(operand, head)).collect()
    }
}

/// Operands on the host: as they come, and as they should be.
struct Operands<T> {
    queries: Vec<T>,
    turned_queries: Vec<T>,
    new: [Vec<T>; 2],
    /// Before and after the call; what no sequence has is no number.
    before: [Vec<E4M3>; 2],
    after: [Vec<E4M3>; 2],
    table: Vec<i32>,
}

impl<T: Number> Operands<T> {
    fn new(case: &Case) -> Self {
        let Case { lengths, queries, heads, kv_heads, size, .. } = *case;
        let (row, (sides, each)) = (kv_heads * size, case.cache());
        // From the last page to the first; a matrix is the page of its sequence.
        let last = sides[0] - 1;
        let number = |at| if case.page.is_some() { last - at } else { at };
        let table: Vec<i32> = (0..sides[0]).map(|at| number(at) as i32).collect();
        let normal = |seed, len| input::<T>(Family::Normal, seed, len);
        let data = normal(1, lengths.len() * queries * heads * size);
        let turn = |(at, row): (usize, &[T])| {
            let (sequence, query) = (at / (queries * heads), at / heads % queries);
            case.turned(row, (lengths[sequence] + query).saturating_sub(queries))
        };
        let turned_queries = data.chunks(size).enumerate().flat_map(turn).collect();
        let new = [2, 3].map(|seed| normal(seed, lengths.len() * queries * row));
        let nothing = vec![E4M3::from_f32(f32::NAN); sides.iter().product()];
        let (mut before, mut after) = ([nothing.clone(), nothing.clone()], [nothing.clone(), nothing]);
        for operand in 0..2 {
            for (sequence, &length) in lengths.iter().enumerate() {
                let seed = 4 + operand as u64 + 2 * sequence as u64;
                let old: Vec<E4M3> = input(Family::Normal, seed, length * row);
                let first_new = if case.appends { length.saturating_sub(queries) } else { length };
                for key in 0..length {
                    let page = table[sequence * each + key / sides[1]] as usize;
                    let to = (page * sides[1] + key % sides[1]) * row;
                    if key < first_new {
                        before[operand][to..to + row].copy_from_slice(&old[key * row..(key + 1) * row]);
                        after[operand][to..to + row].copy_from_slice(&old[key * row..(key + 1) * row]);
                        continue;
                    }
                    let from = (sequence * queries + key - first_new) * row;
                    for (head, fresh) in new[operand][from..from + row].chunks(size).enumerate() {
                        let fresh = if operand == 0 { case.turned(fresh, key) } else { fresh.to_vec() };
                        let scale = case.scale(operand, head);
                        for (i, x) in fresh.into_iter().enumerate() {
                            let x: f64 = x.into();
                            let factor = if scale == 0.0 { 0.0 } else { 1.0 / scale };
                            after[operand][to + head * size + i] = E4M3::from_f32(x as f32 * factor);
                        }
                    }
                }
            }
        }
        Operands { queries: data, turned_queries, new, before, after, table }
    }
}

/// Operands and results on the device.
struct Setup<T> {
    case: Case,
    operands: Operands<T>,
    queries: DeviceBuffer<T>,
    new: [DeviceBuffer<T>; 2],
    cache: [DeviceBuffer<E4M3>; 2],
    scales: [DeviceBuffer<f32>; 2],
    angles: [DeviceBuffer<f32>; 2],
    pages: DeviceBuffer<i32>,
    lengths: DeviceBuffer<i32>,
    out: DeviceBuffer<T>,
    logarithms: DeviceBuffer<f32>,
}

impl<T: Number> Setup<T> {
    fn new(case: &Case, stream: &Stream) -> Outcome<Self> {
        let operands = Operands::new(case);
        Self::of(case, stream, operands)
    }

    fn of(case: &Case, stream: &Stream, operands: Operands<T>) -> Outcome<Self> {
        let lengths: Vec<i32> = case.lengths.iter().map(|&length| length as i32).collect();
        let upload = |data: &[T]| DeviceBuffer::from_slice(stream, data);
        let numbers = |data: Vec<f32>| DeviceBuffer::from_slice(stream, &data);
        let bytes = |data: &[E4M3]| DeviceBuffer::from_slice(stream, data);
        let pairs = case.rotated / 2;
        Ok(Setup {
            case: *case,
            queries: upload(&operands.queries)?,
            new: [upload(&operands.new[0])?, upload(&operands.new[1])?],
            cache: [bytes(&operands.before[0])?, bytes(&operands.before[1])?],
            scales: [numbers(case.head_scales(0))?, numbers(case.head_scales(1))?],
            angles: [numbers(angles(7, pairs))?, numbers(angles(5, pairs))?],
            pages: DeviceBuffer::from_slice(stream, &operands.table)?,
            lengths: DeviceBuffer::from_slice(stream, &lengths)?,
            out: DeviceBuffer::from_slice(stream, &vec![T::from_f64(f64::NAN); operands.queries.len()])?,
            logarithms: DeviceBuffer::zeroed(stream, operands.queries.len() / case.size)?,
            operands,
        })
    }

    fn decode(&mut self) -> Decode<'_> {
        let Case { lengths, queries, heads, kv_heads, size, .. } = self.case;
        let (sides, new) = ([lengths.len(), queries, heads, size], [lengths.len(), queries, kv_heads, size]);
        let (cache, each) = self.case.cache();
        let (q, out) = (Heads::new(&self.queries, sides), HeadsMut::new(&mut self.out, sides));
        let [keys, values] = &mut self.cache;
        let mut decode = if self.case.appends {
            let new = [Heads::new(&self.new[0], new), Heads::new(&self.new[1], new)];
            Decode::appending(q, [HeadsMut::new(keys, cache), HeadsMut::new(values, cache)], new, out)
        } else {
            let [keys, values] = [Heads::new::<E4M3>(&*keys, cache), Heads::new::<E4M3>(&*values, cache)];
            Decode::new(q, keys, values, out)
        };
        decode = decode
            .scales(CacheScales { keys: (&self.scales[0]).into(), values: (&self.scales[1]).into() })
            .lengths(&self.lengths)
            .log_sum_exp(&mut self.logarithms)
            .mask(Mask::CAUSAL);
        if self.case.page.is_some() {
            decode = decode.pages(Pages::new(&self.pages, each));
        }
        if self.case.rotated > 0 {
            decode = decode.rotary(Rotary::halves(&self.angles[0], &self.angles[1], self.case.rotated));
        }
        match self.case.blocks {
            Some(blocks) => decode.blocks(blocks),
            None => decode,
        }
    }

    /// On the numbers that the cache stands for.
    fn oracle(&self) -> Attended {
        self.oracle_with(|score, _| Some(score))
    }

    /// The same with the scores that `modify` gives.
    fn oracle_with(&self, modify: impl Fn(f64, [usize; 4]) -> Option<f64> + Sync) -> Attended {
        let Case { lengths, queries, heads, kv_heads, size, .. } = self.case;
        let ([count, page, ..], each) = self.case.cache();
        let numbers = |operand: usize| -> Vec<f64> {
            let scale = |at: usize| f64::from(self.case.scale(operand, at / size % kv_heads));
            let all = self.operands.after[operand].iter().enumerate();
            all.map(|(at, x)| f64::from(x.to_f32()) * scale(at)).collect()
        };
        let q: Vec<f64> = self.operands.turned_queries.iter().map(|&x| x.into()).collect();
        let (k, v) = (numbers(0), numbers(1));
        let strides = |rows: usize, heads: usize| [rows * heads * size, heads * size, size];
        let operands = [
            Rows { data: &q[..], strides: strides(queries, heads) },
            Rows { data: &k[..], strides: strides(page, kv_heads) },
            Rows { data: &v[..], strides: strides(page, kv_heads) },
        ];
        let cache = Cache::Pages { table: &self.operands.table, each, size: page, count };
        let sides = Sides { batch: lengths.len(), queries, keys: 0, heads, kv_heads, size };
        let band = Band { right: Some(0), ..Band::default() };
        let scale = f64::from(1.0 / (size as f32).sqrt());
        oracle(sides, operands, cache, lengths, (band, scale), modify)
    }

    fn compare(&self, stream: &Stream) -> Outcome {
        self.compare_with(stream, &self.oracle())
    }

    /// The cache holds what it should, and nothing else has changed.
    fn compare_cache(&self, stream: &Stream) -> Outcome {
        for operand in 0..2 {
            let what = format!("operand {operand} of the cache, {:?}", self.case);
            bitwise_equal(&what, &self.cache[operand].to_vec(stream)?, &self.operands.after[operand])?;
        }
        Ok(())
    }

    /// The results are the oracle's.
    fn compare_with(&self, stream: &Stream, want: &Attended) -> Outcome {
        self.compare_within(stream, want, Tolerance::EXACT)
    }

    /// The same with errors that a score function adds.
    fn compare_within(&self, stream: &Stream, want: &Attended, more: Tolerance) -> Outcome {
        let Case { lengths, queries, heads, size, .. } = self.case;
        let what = format!("{:?}", self.case);
        let shape = [lengths.len(), queries, heads, size];
        is_output(&what, &self.out.to_vec(stream)?, want, shape, more)?;
        are_log_sum_exps(&what, &self.logarithms.to_vec(stream)?, want, shape, more)
    }
}

impl Case {
    /// The results are the oracle's; the cache holds what it should, and nothing else has changed.
    fn check<T: Number>(&self) -> Outcome {
        if !decodes_e4m3()? {
            return Ok(());
        }
        let stream = device()?.stream()?;
        let mut setup = Setup::<T>::new(self, &stream)?;
        setup.decode().run(&stream)?;
        setup.compare_cache(&stream)?;
        setup.compare(&stream)
    }
}

/// About the borders of tiles and chunks, in matrices and pages, cut and whole.
#[test]
fn ragged_lengths() -> Outcome {
    let lengths = &[0, 1, 7, 63, 64, 65, 127, 128, 129, 1000];
    for (page, blocks) in [(None, None), (Some(16), Some(7)), (Some(12), Some(1))] {
        Case { lengths, page, blocks, ..PLAIN }.check::<bf16>()?;
    }
    Case { lengths, page: Some(16), size: 64, ..PLAIN }.check::<f16>()
}

#[test]
fn head_sizes_and_groups() -> Outcome {
    for size in [16, 64, 80, 112, 128] {
        Case { size, lengths: &[37, 80], ..PLAIN }.check::<bf16>()?;
        Case { size, lengths: &[37, 80], ..PLAIN }.check::<f16>()?;
    }
    for (heads, kv_heads) in [(1, 1), (6, 6), (17, 1), (40, 2)] {
        Case { heads, kv_heads, queries: 3, lengths: &[70, 2], ..PLAIN }.check::<bf16>()?;
    }
    Ok(())
}

/// Rotated, then divided and rounded: the cache bit for bit.
#[test]
fn new_keys_become_e4m3() -> Outcome {
    for page in [None, Some(16), Some(12)] {
        for (rotated, blocks) in [(0, Some(1)), (64, None), (128, Some(100))] {
            let case = Case { page, rotated, blocks, lengths: &[66, 17, 1, 0, 64], ..APPENDING };
            case.check::<bf16>()?;
            Case { size: 64, rotated: rotated.min(32), ..case }.check::<f16>()?;
        }
    }
    // Tiles of rows that all see the same new keys.
    Case { queries: 20, heads: 6, kv_heads: 1, lengths: &[66, 20], ..APPENDING }.check::<bf16>()
}

/// Scales that are 0 or that make scores huge, and new keys beyond what e4m3 holds.
#[test]
fn extreme_scales() -> Outcome {
    let lengths = &[65, 3];
    for scales in [[[0.0, 1.0], [1.0, 0.0]], [[1e4, 1e-30], [1e-30, 1e30]]] {
        Case { lengths, scales, ..PLAIN }.check::<bf16>()?;
    }
    Case { lengths, scales: [[0.0, 1.0], [2.0, 0.0]], ..APPENDING }.check::<bf16>()?;
    Case { lengths, scales: [[0.0009765625; 2]; 2], ..APPENDING }.check::<bf16>()
}

/// A NaN spoils the rows that see it, and no other.
#[test]
fn nan_stays_in_its_head() -> Outcome {
    if !decodes_e4m3()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let case = Case { lengths: &[70, 40], ..PLAIN };
    let mut clean = Setup::<bf16>::new(&case, &stream)?;
    clean.decode().run(&stream)?;
    let want = clean.out.to_vec(&stream)?;
    for operand in 0..2 {
        let mut operands = Operands::<bf16>::new(&case);
        // Of sequence 0, key 5, the second head.
        operands.before[operand][(5 * 2 + 1) * case.size + 3] = E4M3::from_f32(f32::NAN);
        let mut setup = Setup::of(&case, &stream, operands)?;
        setup.decode().run(&stream)?;
        for (row, (got, want)) in setup.out.to_vec(&stream)?.chunks(128).zip(want.chunks(128)).enumerate() {
            if (4..8).contains(&row) {
                let spoiled = got.iter().filter(|x| x.is_nan()).count();
                assert_eq!(spoiled, if operand == 0 { 128 } else { 1 }, "row {row}");
            } else {
                bitwise_equal(&format!("row {row}"), got, want)?;
            }
        }
    }
    Ok(())
}

/// Strided rows may have more bytes than they reach, and rows that are none may begin anywhere.
#[test]
fn odd_numbers_of_bytes() -> Outcome {
    if !decodes_e4m3()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let queries = DeviceBuffer::<bf16>::zeroed(&stream, 16)?;
    let mut out = DeviceBuffer::<bf16>::zeroed(&stream, 16)?;
    let bytes = DeviceBuffer::from_slice(&stream, &[E4M3::from_f32(1.0); 49])?;
    let ones = DeviceBuffer::from_slice(&stream, &[1.0f32])?;
    let scales = CacheScales { keys: (&ones).into(), values: (&ones).into() };
    let strided = Heads::new::<E4M3>(&bytes, [1, 2, 1, 16]).strides([48, 32, 16]);
    let none = Heads::new::<E4M3>(bytes.slice(1..1)?, [1, 0, 1, 16]);
    for (cache, want) in [(strided, 1.0), (none, 0.0)] {
        let (q, to) = (Heads::new(&queries, [1, 1, 1, 16]), HeadsMut::new(&mut out, [1, 1, 1, 16]));
        Decode::new(q, cache, cache, to).scales(scales).run(&stream)?;
        assert_eq!(out.to_vec(&stream)?, [bf16::from_f32(want); 16]);
    }
    Ok(())
}

#[test]
fn runs_repeat_bit_for_bit() -> Outcome {
    if !decodes_e4m3()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let case = Case { lengths: &[300, 77], page: Some(16), blocks: Some(5), ..PLAIN };
    let mut setup = Setup::<bf16>::new(&case, &stream)?;
    setup.decode().run(&stream)?;
    let first = setup.out.to_vec(&stream)?;
    for _ in 0..3 {
        setup.decode().run(&stream)?;
        bitwise_equal("again", &setup.out.to_vec(&stream)?, &first)?;
    }
    Ok(())
}

#[test]
fn wrong_calls_are_refused() -> Outcome {
    if !decodes_e4m3()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let refused = |what: &str, wanted: &str, result: ironwarp::Result<()>| {
        let error = result.expect_err(what);
        let text = error.to_string();
        assert!(text.contains("hint: ") && text.contains(wanted), "{text}");
        let got = match &error {
            Error::Length { what, .. } => what,
            Error::InvalidArgument { argument, .. } => argument,
            other => panic!("another kind of error: {other}"),
        };
        assert_eq!(*got, what, "{text}");
    };
    for size in [8, 72, 136, 256] {
        let case = Case { size, lengths: &[20], ..PLAIN };
        let mut setup = Setup::<bf16>::new(&case, &stream)?;
        refused("the head size", "a multiple of 16 up to 128", setup.decode().run(&stream));
    }
    for (operand, what) in ["the scales of the keys", "the scales of the values"].into_iter().enumerate() {
        let mut setup = Setup::<bf16>::new(&PLAIN, &stream)?;
        setup.scales[operand] = DeviceBuffer::zeroed(&stream, 1)?;
        refused(what, "2", setup.decode().run(&stream));
    }
    // One without the other.
    let queries = DeviceBuffer::<bf16>::zeroed(&stream, 128)?;
    let mut out = DeviceBuffer::<bf16>::zeroed(&stream, 128)?;
    let bytes = DeviceBuffer::<E4M3>::zeroed(&stream, 128)?;
    let ones = DeviceBuffer::from_slice(&stream, &[1.0f32])?;
    let sides = [1, 1, 1, 128];
    let (q, cache) = (Heads::new(&queries, sides), Heads::new::<E4M3>(&bytes, sides));
    let unscaled = Decode::new(q, cache, cache, HeadsMut::new(&mut out, sides));
    refused("the keys", "scales of keys and values", unscaled.run(&stream));
    let scales = CacheScales { keys: (&ones).into(), values: (&ones).into() };
    let wide = Decode::new(q, q, cache, HeadsMut::new(&mut out, sides)).scales(scales);
    refused("the keys", "f8_e4m3, as there are scales", wide.run(&stream));
    let mixed = Decode::new(q, cache, q, HeadsMut::new(&mut out, sides)).scales(scales);
    refused("the values", "f8_e4m3, as there are scales", mixed.run(&stream));
    Ok(())
}
