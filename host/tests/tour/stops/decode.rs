//! Decode attention: every kernel, on sequences that are cut and that are not, in matrices and in pages.

use super::{Outcome, Stop};
use bytemuck::Pod;
use half::{bf16, f16};
use ironwarp::ops::attention::{Decode, Heads, HeadsMut, Mask, Pages};
use ironwarp::tensor::Element;
use ironwarp::{DeviceBuffer, Stream};
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

pub fn stops() -> Vec<Stop> {
    let mut stops = Vec::new();
    for size in SIZES {
        // A tile takes one look at the table, or each key does.
        for page in [None, Some(16), Some(12)] {
            let name = |dtype: &str| format!("decode, {dtype}, {size}, pages {page:?}");
            stops.push(Stop::new(name("bf16"), move |stream| run::<bf16>(stream, size, page)));
            stops.push(Stop::new(name("f16"), move |stream| run::<f16>(stream, size, page)));
        }
    }
    stops
}

fn run<T: Element + testkit::Element + Pod>(
    stream: &Stream,
    size: usize,
    page: Option<usize>,
) -> Outcome<Vec<u8>> {
    let batch = LENGTHS.len();
    let (sides, each) = match page {
        Some(page) => ([batch * MOST / page, page, HEADS[1], size], MOST / page),
        None => ([batch, MOST, HEADS[1], size], 1),
    };
    let queries = [batch, QUERIES, HEADS[0], size];
    let upload = |seed, sides: [usize; 4]| {
        DeviceBuffer::from_slice(stream, &input::<T>(Family::Normal, seed, sides.iter().product()))
    };
    let (q, k, v) = (upload(1, queries)?, upload(2, sides)?, upload(3, sides)?);
    let mut out = DeviceBuffer::<T>::zeroed(stream, q.len())?;
    let mut logarithms = DeviceBuffer::<f32>::zeroed(stream, q.len() / size)?;
    let lengths = DeviceBuffer::from_slice(stream, &LENGTHS)?;
    // From the last page to the first.
    let numbers: Vec<i32> = (0..batch * each).rev().map(|page| page as i32).collect();
    let table = DeviceBuffer::from_slice(stream, &numbers)?;
    let heads = |buffer, sides| Heads::new::<T>(buffer, sides);
    let decode =
        Decode::new(heads(&q, queries), heads(&k, sides), heads(&v, sides), HeadsMut::new(&mut out, queries))
            .mask(Mask::window(Some(200), Some(0)))
            .lengths(&lengths)
            .log_sum_exp(&mut logarithms)
            .blocks(BLOCKS);
    let decode = if page.is_some() { decode.pages(Pages::new(&table, each)) } else { decode };
    decode.run(stream)?;
    let mut bytes = bytemuck::cast_slice::<T, u8>(&out.to_vec(stream)?).to_vec();
    bytes.extend_from_slice(bytemuck::cast_slice(&logarithms.to_vec(stream)?));
    Ok(bytes)
}
