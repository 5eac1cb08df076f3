//! Decode attention that puts new keys into the cache, and rotates: the cache bit for bit, results against
//! the oracle of `reference`, and wrong calls.

use crate::attention_case::{Number, Outcome, device};
use crate::decode_case::{decodes, is_output};
use half::{bf16, f16};
use ironwarp::ops::attention::{Decode, Heads, HeadsMut, Mask, Pages, Rotary};
use ironwarp::ops::tuning::{Tuner, Tuning};
use ironwarp::{DeviceBuffer, Error, Result as Done, Stream};
use reference::attention::{Band, Cache, Rows, Sides, decode as oracle};
use testkit::tolerance::Tolerance;
use testkit::{Family, bitwise_equal, input};

/// Which columns turn together.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Turn {
    Nothing,
    Halves(usize),
    Neighbours(usize),
}

#[derive(Debug, Clone, Copy)]
struct Case {
    /// Keys of each sequence, the new ones among them.
    lengths: &'static [usize],
    queries: usize,
    heads: usize,
    kv_heads: usize,
    size: usize,
    page: Option<usize>,
    turn: Turn,
    blocks: u32,
}

const PLAIN: Case = Case {
    lengths: &[100, 1, 64],
    queries: 1,
    heads: 4,
    kv_heads: 2,
    size: 64,
    page: None,
    turn: Turn::Nothing,
    blocks: 3,
};

/// Most keys of a sequence.
const MOST: usize = 160;

impl Turn {
    fn columns(self) -> usize {
        match self {
            Turn::Nothing => 0,
            Turn::Halves(columns) | Turn::Neighbours(columns) => columns,
        }
    }

    /// Cosines, or sines: multiples of a quarter, so that rotations are exact before they are rounded.
    fn table(self, seed: usize) -> Vec<f32> {
        let pairs = self.columns() / 2;
        (0..MOST * pairs).map(|at| ((at * seed + at / pairs) % 9) as f32 / 4.0 - 1.0).collect()
    }

    /// A row at a position.
    fn row<T: Number>(self, row: &[T], position: usize) -> Vec<T> {
        let (cosines, sines, pairs) = (self.table(7), self.table(5), self.columns() / 2);
        let mut turned = row.to_vec();
        for pair in 0..pairs {
            let [i, j] = match self {
                Turn::Neighbours(_) => [2 * pair, 2 * pair + 1],
                _ => [pair, pair + pairs],
            };
            let [x, y]: [f64; 2] = [row[i].into(), row[j].into()];
            let [c, s] = [&cosines, &sines].map(|table| f64::from(table[position * pairs + pair]));
            turned[i] = T::from_f64(x * c - y * s);
            turned[j] = T::from_f64(y * c + x * s);
        }
        turned
    }
}

/// Operands on the host: as they come, and as they should be.
struct Operands<T> {
    queries: Vec<T>,
    turned_queries: Vec<T>,
    new: [Vec<T>; 2],
    /// Before and after the call; what no sequence has is no number.
    cache: [Vec<T>; 2],
    full: [Vec<T>; 2],
    sides: [usize; 4],
    table: Vec<i32>,
}

impl<T: Number> Operands<T> {
    fn new(case: &Case) -> Self {
        let Case { lengths, queries, heads, kv_heads, size, page, turn, .. } = *case;
        let (batch, row) = (lengths.len(), kv_heads * size);
        let page_size = page.unwrap_or(MOST);
        let each = MOST / page_size;
        let sides = [batch * each, page_size, kv_heads, size];
        // From the last page to the first; a matrix is the page of its sequence.
        let pages = batch * each;
        let table: Vec<i32> =
            (0..pages).map(|at| if page.is_some() { pages - 1 - at } else { at } as i32).collect();
        let normal = |seed, len| input::<T>(Family::Normal, seed, len);
        let queries_data = normal(1, batch * queries * heads * size);
        let turned_queries = queries_data
            .chunks(size)
            .enumerate()
            .flat_map(|(at, row)| {
                let (sequence, query) = (at / (queries * heads), at / heads % queries);
                turn.row(row, (lengths[sequence] + query).saturating_sub(queries))
            })
            .collect();
        let new = [2, 3].map(|seed| normal(seed, batch * queries * row));
        let nan = vec![T::from_f64(f64::NAN); sides.iter().product()];
        let (mut cache, mut full) = ([nan.clone(), nan.clone()], [nan.clone(), nan]);
        for operand in 0..2 {
            for (sequence, &length) in lengths.iter().enumerate() {
                let old = normal(4 + operand as u64 + 2 * sequence as u64, length * row);
                for key in 0..length {
                    let place =
                        table[sequence * each + key / page_size] as usize * page_size + key % page_size;
                    let to = place * row..(place + 1) * row;
                    let first = length.saturating_sub(queries);
                    if key < first {
                        cache[operand][to.clone()].copy_from_slice(&old[key * row..(key + 1) * row]);
                        full[operand][to].copy_from_slice(&old[key * row..(key + 1) * row]);
                    } else {
                        let from = (sequence * queries + key - first) * row;
                        let fresh = &new[operand][from..from + row];
                        let turned: Vec<T> = match operand {
                            0 => fresh.chunks(size).flat_map(|head| turn.row(head, key)).collect(),
                            _ => fresh.to_vec(),
                        };
                        full[operand][to].copy_from_slice(&turned);
                    }
                }
            }
        }
        Operands { queries: queries_data, turned_queries, new, cache, full, sides, table }
    }
}

/// Operands and results on the device.
struct Setup<T> {
    case: Case,
    operands: Operands<T>,
    queries: DeviceBuffer<T>,
    new: [DeviceBuffer<T>; 2],
    cache: [DeviceBuffer<T>; 2],
    tables: [DeviceBuffer<f32>; 2],
    pages: DeviceBuffer<i32>,
    lengths: DeviceBuffer<i32>,
    out: DeviceBuffer<T>,
    mask: Mask,
}

impl<T: Number> Setup<T> {
    fn new(case: &Case, stream: &Stream) -> Outcome<Self> {
        let operands = Operands::new(case);
        let lengths: Vec<i32> = case.lengths.iter().map(|&length| length as i32).collect();
        let upload = |data: &[T]| DeviceBuffer::from_slice(stream, data);
        let tables = [
            DeviceBuffer::from_slice(stream, &case.turn.table(7))?,
            DeviceBuffer::from_slice(stream, &case.turn.table(5))?,
        ];
        Ok(Setup {
            case: *case,
            queries: upload(&operands.queries)?,
            new: [upload(&operands.new[0])?, upload(&operands.new[1])?],
            cache: [upload(&operands.cache[0])?, upload(&operands.cache[1])?],
            tables,
            pages: DeviceBuffer::from_slice(stream, &operands.table)?,
            lengths: DeviceBuffer::from_slice(stream, &lengths)?,
            out: DeviceBuffer::zeroed(stream, operands.queries.len())?,
            mask: Mask::CAUSAL,
            operands,
        })
    }

    fn decode(&mut self) -> Decode<'_> {
        let Case { queries, heads, kv_heads, size, page, turn, blocks, .. } = self.case;
        let batch = self.case.lengths.len();
        let (sides, new) = ([batch, queries, heads, size], [batch, queries, kv_heads, size]);
        let [keys, values] = &mut self.cache;
        let kept = [HeadsMut::new(keys, self.operands.sides), HeadsMut::new(values, self.operands.sides)];
        let new = [Heads::new(&self.new[0], new), Heads::new(&self.new[1], new)];
        let (queries, out) = (Heads::new(&self.queries, sides), HeadsMut::new(&mut self.out, sides));
        let mut decode =
            Decode::appending(queries, kept, new, out).lengths(&self.lengths).mask(self.mask).blocks(blocks);
        if let Some(page) = page {
            decode = decode.pages(Pages::new(&self.pages, MOST / page));
        }
        let [cosines, sines] = &self.tables;
        match turn {
            Turn::Nothing => decode,
            Turn::Halves(columns) => decode.rotary(Rotary::halves(cosines, sines, columns)),
            Turn::Neighbours(columns) => decode.rotary(Rotary::neighbours(cosines, sines, columns)),
        }
    }
}

impl Case {
    /// The cache holds what it should, and nothing else has changed; the results are the oracle's.
    fn check<T: Number>(&self) -> Outcome {
        self.check_by::<T>(|stream, decode| decode.run(stream))
    }

    fn check_by<T: Number>(&self, run: impl Fn(&Stream, Decode<'_>) -> Done<()>) -> Outcome {
        if !decodes()? {
            return Ok(());
        }
        let stream = device()?.stream()?;
        let mut setup = Setup::<T>::new(self, &stream)?;
        run(&stream, setup.decode())?;
        let Operands { full, turned_queries, sides, table, .. } = &setup.operands;
        let what = format!("{self:?}");
        bitwise_equal(&format!("keys, {what}"), &setup.cache[0].to_vec(&stream)?, &full[0])?;
        bitwise_equal(&format!("values, {what}"), &setup.cache[1].to_vec(&stream)?, &full[1])?;
        let Case { lengths, queries, heads, kv_heads, size, .. } = *self;
        let rows = |data, rows: usize, heads: usize| Rows {
            data,
            strides: [rows * heads * size, heads * size, size],
        };
        let [keys, values] = full.each_ref().map(|data| rows(&data[..], sides[1], kv_heads));
        let each = MOST / sides[1];
        let cache = Cache::Pages { table, each, size: sides[1], count: sides[0] };
        let band = Band { right: Some(0), ..Band::default() };
        let of = Sides { batch: lengths.len(), queries, keys: 0, heads, kv_heads, size };
        let scale = f64::from(1.0 / (size as f32).sqrt());
        let want =
            oracle(of, [rows(turned_queries, queries, heads), keys, values], cache, lengths, band, scale);
        let shape = [lengths.len(), queries, heads, size];
        is_output(&what, &setup.out.to_vec(&stream)?, &want, shape, Tolerance::EXACT)
    }
}

#[test]
fn new_keys_go_into_the_cache() -> Outcome {
    for page in [None, Some(16), Some(10)] {
        for blocks in [1, 3, 100] {
            Case { page, blocks, ..PLAIN }.check::<bf16>()?;
        }
        Case { page, size: 128, lengths: &[65, 16, 17], ..PLAIN }.check::<f16>()?;
        Case { page, size: 256, lengths: &[33], ..PLAIN }.check::<bf16>()?;
    }
    Case { size: 24, ..PLAIN }.check::<bf16>()
}

/// Measurements leave in the cache what the call does.
#[test]
fn a_tuner_appends_once() -> Outcome {
    let tuner = Tuner::new(&device()?, Tuning::Measure);
    let case = Case { page: Some(16), queries: 3, lengths: &[66, 20, 2, 0], ..PLAIN };
    Case { turn: Turn::Halves(16), ..case }.check_by::<bf16>(|stream, decode| tuner.run(stream, decode))?;
    assert!(!decodes()? || tuner.len() == 1);
    Ok(())
}

/// Over the borders of tiles and chunks; and fewer keys than queries.
#[test]
fn several_new_keys_a_sequence() -> Outcome {
    for page in [None, Some(16)] {
        for queries in [3, 20] {
            let lengths = &[66, 20, 130, 2, 0, 64];
            Case { page, queries, lengths, ..PLAIN }.check::<bf16>()?;
            // Tiles of rows that all see the same new keys.
            Case { page, queries, lengths, heads: 6, kv_heads: 1, ..PLAIN }.check::<f16>()?;
        }
    }
    Ok(())
}

#[test]
fn queries_and_new_keys_are_rotated() -> Outcome {
    for turn in [Turn::Halves(64), Turn::Halves(32), Turn::Neighbours(64), Turn::Neighbours(16)] {
        Case { turn, ..PLAIN }.check::<bf16>()?;
        Case { turn, queries: 4, page: Some(16), ..PLAIN }.check::<f16>()?;
        Case { turn, size: 72, lengths: &[40], ..PLAIN }.check::<bf16>()?;
    }
    for turn in [Turn::Halves(256), Turn::Neighbours(256)] {
        Case { turn, size: 256, lengths: &[40, 65], queries: 2, ..PLAIN }.check::<bf16>()?;
    }
    Case { turn: Turn::Halves(128), size: 128, ..PLAIN }.check::<bf16>()
}

/// A new key on a page that there is not is seen, and kept nowhere; lengths beyond the most end in the last
/// place.
#[test]
fn hostile_pages_and_lengths() -> Outcome {
    if !decodes()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    for (page, number) in [(Some(16), -1), (Some(16), 1000), (Some(10), i32::MIN), (None, 0)] {
        // The new key is the first one of its page.
        let case = Case { lengths: &[160, 81], page, ..PLAIN };
        let mut setup = Setup::<bf16>::new(&case, &stream)?;
        let each = MOST / setup.operands.sides[1];
        let mut want = setup.operands.full.clone();
        if page.is_some() {
            setup.operands.table[each + 80 / setup.operands.sides[1]] = number;
            setup.pages.copy_from_slice(&stream, &setup.operands.table)?;
            // The second sequence, whose pages lie first, keeps nothing.
            let own = MOST * case.kv_heads * case.size;
            for (want, cache) in want.iter_mut().zip(&setup.operands.cache) {
                want[..own].copy_from_slice(&cache[..own]);
            }
        }
        setup.lengths.copy_from_slice(&stream, &[i32::MAX, 81])?;
        setup.decode().run(&stream)?;
        for (operand, want) in want.iter().enumerate() {
            bitwise_equal("the cache", &setup.cache[operand].to_vec(&stream)?, want)?;
        }
        assert!(setup.out.to_vec(&stream)?.iter().all(|value| value.is_finite()), "{page:?} {number}");
    }
    Ok(())
}

/// Tables of no position, where there is no key.
#[test]
fn nothing_to_rotate() -> Outcome {
    if !decodes()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let none = DeviceBuffer::<f32>::zeroed(&stream, 0)?;
    let cache = DeviceBuffer::<bf16>::zeroed(&stream, 0)?;
    let queries = DeviceBuffer::from_slice(&stream, &input::<bf16>(Family::Normal, 1, 2 * 32))?;
    let mut out = DeviceBuffer::from_slice(&stream, &queries.to_vec(&stream)?)?;
    let (sides, keys) = ([1, 1, 2, 32], [1, 0, 1, 32]);
    let rows = |data| Heads::new::<bf16>(data, keys);
    let out_rows = HeadsMut::new(&mut out, sides);
    Decode::new(Heads::new(&queries, sides), rows(&cache), rows(&cache), out_rows)
        .rotary(Rotary::halves(&none, &none, 32))
        .run(&stream)?;
    assert!(out.to_vec(&stream)?.iter().all(|value| *value == bf16::ZERO));
    Ok(())
}

#[test]
fn wrong_calls_are_refused() -> Outcome {
    if !decodes()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let case = Case { turn: Turn::Halves(32), ..PLAIN };
    let refused = |what: &str, spoil: &dyn Fn(&mut Setup<bf16>)| -> Outcome {
        let mut setup = Setup::<bf16>::new(&case, &stream)?;
        spoil(&mut setup);
        let error = setup.decode().run(&stream).expect_err(what);
        let text = error.to_string();
        assert!(text.contains("attention") && text.contains("hint: "), "{text}");
        let got = match &error {
            Error::Length { what, .. } => what,
            Error::InvalidArgument { argument, .. } => argument,
            other => panic!("another kind of error: {other}"),
        };
        assert_eq!(*got, what, "{text}");
        Ok(())
    };
    refused("the mask", &|setup| setup.mask = Mask::CAUSAL.from_top_left())?;
    for columns in [0, 8, 24, 80] {
        refused("the rotated elements", &|setup| setup.case.turn = Turn::Halves(columns))?;
    }
    refused("the cosines", &|setup| setup.case.turn = Turn::Neighbours(48))?;
    refused("the sines", &|setup| setup.tables[1] = DeviceBuffer::zeroed(&stream, 1).unwrap())?;
    refused("the new keys", &|setup| setup.new[0] = DeviceBuffer::zeroed(&stream, 8).unwrap())?;
    refused("the new values", &|setup| setup.new[1] = DeviceBuffer::zeroed(&stream, 8).unwrap())
}
