//! Decode attention: every kernel, on sequences that are cut and that are not, in matrices and in pages; with
//! new keys; with a cache in e4m3; with ALiBi and with a soft cap.

use super::{Outcome, Stop};
use bytemuck::Pod;
use half::{bf16, f16};
use ironwarp::ops::attention::{CacheScales, Decode, Heads, HeadsMut, Mask, Pages, Rotary};
use ironwarp::tensor::Element;
use ironwarp::{DType, DeviceBuffer, Stream};
use num::E4M3;
use testkit::{Family, input};

/// Keys of the sequences, in more than one chunk and none.
const LENGTHS: [i32; 4] = [150, 1, 0, 330];
/// Most keys: of a matrix, or of all pages of a sequence.
const MOST: usize = 336;
const QUERIES: usize = 5;
/// Of queries and of keys: 20 rows share a head of keys, more than a tile has.
const HEADS: [usize; 2] = [8, 2];
/// Shorter than the rows of every kernel.
const SIZES: [usize; 3] = [56, 120, 248];
/// The same on every device, so that bits are.
const BLOCKS: u32 = 5;

/// The score function of a call.
#[derive(Debug, Clone, Copy)]
enum Pattern {
    None,
    Alibi,
    SoftCap,
}

/// The family's functions, one on pages.
const PATTERNS: [(Pattern, Option<usize>); 2] = [(Pattern::Alibi, None), (Pattern::SoftCap, Some(16))];

impl Pattern {
    fn run(self, stream: &Stream, decode: Decode<'_>) -> Outcome {
        let slopes: Vec<f32> = (0..HEADS[0]).map(|head| 0.5f32.powi(head as i32)).collect();
        match self {
            Pattern::None => decode.run(stream)?,
            Pattern::Alibi => decode.alibi(&DeviceBuffer::from_slice(stream, &slopes)?)?.run(stream)?,
            Pattern::SoftCap => decode.soft_cap(1.5)?.run(stream)?,
        }
        Ok(())
    }
}

pub fn stops() -> Vec<Stop> {
    let mut stops = Vec::new();
    for size in SIZES {
        // A tile takes one look at the table, or each key does.
        for page in [None, Some(16), Some(12)] {
            let name = |dtype: &str| format!("decode, {dtype}, {size}, pages {page:?}");
            stops.push(Stop::new(name("bf16"), move |stream| plain::<bf16, bf16>(stream, size, page)));
            stops.push(Stop::new(name("f16"), move |stream| plain::<f16, f16>(stream, size, page)));
        }
        for (pattern, page) in PATTERNS {
            let name = |dtype: &str| format!("decode, {dtype}, {size}, {pattern:?}, pages {page:?}");
            stops.push(Stop::new(name("bf16"), move |stream| run::<bf16, bf16>(stream, size, page, pattern)));
            stops.push(Stop::new(name("f16"), move |stream| run::<f16, f16>(stream, size, page, pattern)));
        }
    }
    for page in [None, Some(16)] {
        let name = |dtype: &str| format!("decode, {dtype}, new keys, pages {page:?}");
        const SIZE: usize = SIZES[1];
        stops.push(Stop::new(name("bf16"), move |stream| append::<bf16, bf16>(stream, SIZE, page)));
        stops.push(Stop::new(name("f16"), move |stream| append::<f16, f16>(stream, SIZE, page)));
    }
    // Whole units of 16 elements, shorter than the kernels' rows.
    for size in [48, 112] {
        let name = |dtype: &str| format!("decode, {dtype} on e4m3, {size}");
        stops.push(Stop::new(name("bf16"), move |stream| plain::<bf16, E4M3>(stream, size, Some(16))));
        stops.push(Stop::new(name("f16"), move |stream| plain::<f16, E4M3>(stream, size, None)));
        for (pattern, page) in PATTERNS {
            let name = |dtype: &str| format!("decode, {dtype} on e4m3, {size}, {pattern:?}");
            stops.push(Stop::new(name("bf16"), move |stream| run::<bf16, E4M3>(stream, size, page, pattern)));
            stops.push(Stop::new(name("f16"), move |stream| run::<f16, E4M3>(stream, size, page, pattern)));
        }
        let name = |dtype: &str| format!("decode, {dtype} on e4m3, {size}, new keys");
        stops.push(Stop::new(name("bf16"), move |stream| append::<bf16, E4M3>(stream, size, None)));
        stops.push(Stop::new(name("f16"), move |stream| append::<f16, E4M3>(stream, size, Some(16))));
    }
    stops
}

/// Sides of the cache, and pages of a sequence.
fn cache(size: usize, page: Option<usize>) -> ([usize; 4], usize) {
    let batch = LENGTHS.len();
    match page {
        Some(page) => ([batch * MOST / page, page, HEADS[1], size], MOST / page),
        None => ([batch, MOST, HEADS[1], size], 1),
    }
}

/// Pages from the last one to the first.
fn table(stream: &Stream, each: usize) -> Outcome<DeviceBuffer<i32>> {
    let numbers: Vec<i32> = (0..LENGTHS.len() * each).rev().map(|page| page as i32).collect();
    Ok(DeviceBuffer::from_slice(stream, &numbers)?)
}

fn upload<T: Element + testkit::Element + Pod>(
    stream: &Stream,
    seed: u64,
    sides: [usize; 4],
) -> Outcome<DeviceBuffer<T>> {
    Ok(DeviceBuffer::from_slice(stream, &input::<T>(Family::Normal, seed, sides.iter().product()))?)
}

/// The scales of keys and values, of a cache in e4m3.
struct Scales([DeviceBuffer<f32>; 2]);

impl Scales {
    fn new(stream: &Stream) -> Outcome<Self> {
        Ok(Self([
            DeviceBuffer::from_slice(stream, &[0.5, 1.5])?,
            DeviceBuffer::from_slice(stream, &[2.0, 0.25])?,
        ]))
    }

    fn add_to<'a, C: Element>(&'a self, decode: Decode<'a>) -> Decode<'a> {
        let Self([keys, values]) = self;
        match C::DTYPE {
            DType::F8E4M3 => decode.scales(CacheScales { keys: keys.into(), values: values.into() }),
            _ => decode,
        }
    }
}

/// New keys, rotated; the results and the cache.
fn append<T, C>(stream: &Stream, size: usize, page: Option<usize>) -> Outcome<Vec<u8>>
where
    T: Element + testkit::Element + Pod,
    C: Element + testkit::Element + Pod,
{
    // Of a row, what is rotated: not all of it.
    let rotated = size / 16 * 16 - 16;
    let (sides, each) = cache(size, page);
    let (queries, new) = ([LENGTHS.len(), QUERIES, HEADS[0], size], [LENGTHS.len(), QUERIES, HEADS[1], size]);
    let (q, mut k, mut v) =
        (upload::<T>(stream, 1, queries)?, upload::<C>(stream, 2, sides)?, upload::<C>(stream, 3, sides)?);
    let scales = Scales::new(stream)?;
    let (new_k, new_v) = (upload::<T>(stream, 4, new)?, upload::<T>(stream, 5, new)?);
    // Exact in every arithmetic, so that bits are the same.
    let angles =
        |seed| -> Vec<f32> { (0..MOST * rotated / 2).map(|at| (at * seed % 9) as f32 / 4.0 - 1.0).collect() };
    let (cosines, sines) =
        (DeviceBuffer::from_slice(stream, &angles(7))?, DeviceBuffer::from_slice(stream, &angles(5))?);
    let mut out = DeviceBuffer::<T>::zeroed(stream, q.len())?;
    let (lengths, table) = (DeviceBuffer::from_slice(stream, &LENGTHS)?, table(stream, each)?);
    let kept = [HeadsMut::new(&mut k, sides), HeadsMut::new(&mut v, sides)];
    let heads = |buffer, sides| Heads::new::<T>(buffer, sides);
    let decode = Decode::appending(
        heads(&q, queries),
        kept,
        [heads(&new_k, new), heads(&new_v, new)],
        HeadsMut::new(&mut out, queries),
    )
    .mask(Mask::CAUSAL)
    .lengths(&lengths)
    .rotary(Rotary::halves(&cosines, &sines, rotated))
    .blocks(BLOCKS);
    let decode = if page.is_some() { decode.pages(Pages::new(&table, each)) } else { decode };
    scales.add_to::<C>(decode).run(stream)?;
    let mut bytes = bytemuck::cast_slice::<T, u8>(&out.to_vec(stream)?).to_vec();
    for buffer in [&k, &v] {
        bytes.extend_from_slice(bytemuck::cast_slice::<C, u8>(&buffer.to_vec(stream)?));
    }
    Ok(bytes)
}

fn plain<T, C>(stream: &Stream, size: usize, page: Option<usize>) -> Outcome<Vec<u8>>
where
    T: Element + testkit::Element + Pod,
    C: Element + testkit::Element + Pod,
{
    run::<T, C>(stream, size, page, Pattern::None)
}

fn run<T, C>(stream: &Stream, size: usize, page: Option<usize>, pattern: Pattern) -> Outcome<Vec<u8>>
where
    T: Element + testkit::Element + Pod,
    C: Element + testkit::Element + Pod,
{
    let (sides, each) = cache(size, page);
    let queries = [LENGTHS.len(), QUERIES, HEADS[0], size];
    let (q, k, v) =
        (upload::<T>(stream, 1, queries)?, upload::<C>(stream, 2, sides)?, upload::<C>(stream, 3, sides)?);
    let scales = Scales::new(stream)?;
    let mut out = DeviceBuffer::<T>::zeroed(stream, q.len())?;
    let mut logarithms = DeviceBuffer::<f32>::zeroed(stream, q.len() / size)?;
    let (lengths, table) = (DeviceBuffer::from_slice(stream, &LENGTHS)?, table(stream, each)?);
    let [keys, values] = [&k, &v].map(|buffer| Heads::new::<C>(buffer, sides));
    let decode = Decode::new(Heads::new::<T>(&q, queries), keys, values, HeadsMut::new(&mut out, queries))
        .mask(Mask::window(Some(200), Some(0)))
        .lengths(&lengths)
        .log_sum_exp(&mut logarithms)
        .blocks(BLOCKS);
    let decode = if page.is_some() { decode.pages(Pages::new(&table, each)) } else { decode };
    pattern.run(stream, scales.add_to::<C>(decode))?;
    let mut bytes = bytemuck::cast_slice::<T, u8>(&out.to_vec(stream)?).to_vec();
    bytes.extend_from_slice(bytemuck::cast_slice(&logarithms.to_vec(stream)?));
    Ok(bytes)
}
