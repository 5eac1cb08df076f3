//! Attention: every kernel that offers.

use super::{Outcome, Stop};
use bytemuck::Pod;
use half::{bf16, f16};
use ironwarp::ops::attention::{Attention, Config, Heads, HeadsMut, Mask, Packed, candidates};
use ironwarp::tensor::Element;
use ironwarp::{DeviceBuffer, Stream};
use testkit::{Family, input};

/// Rows of two sequences, which more than one tile and more than one block of keys take; the longer one.
const ROWS: [usize; 2] = [70, 210];
const LONGEST: usize = 210;
const HEADS: [usize; 2] = [4, 2];
/// Shorter than the rows of every kernel.
const SIZE: usize = 56;

pub fn stops(stream: &Stream) -> Outcome<Vec<Stop>> {
    let mut stops = Vec::new();
    add::<bf16>(stream, &mut stops)?;
    add::<f16>(stream, &mut stops)?;
    Ok(stops)
}

/// Each kernel with all keys, with a mask, and on packed sequences.
fn add<T: Element + testkit::Element + Pod>(stream: &Stream, stops: &mut Vec<Stop>) -> Outcome {
    let operands = Operands::<T>::new(stream)?;
    let mut out = DeviceBuffer::zeroed(stream, operands.queries.len())?;
    let mut logarithms = DeviceBuffer::zeroed(stream, operands.rows() * HEADS[0])?;
    let problem = operands.attention(&mut out, &mut logarithms).problem()?;
    for config in candidates(&problem, stream.device()).into_iter().map(|candidate| candidate.config) {
        for (mask, is_packed) in [(Mask::FULL, false), (Mask::window(Some(100), Some(0)), true)] {
            let packing = if is_packed { "packed" } else { "one sequence" };
            let name = format!("{config}, {mask}, {packing}");
            stops.push(Stop::new(name, move |stream| run::<T>(stream, &config, mask, is_packed)));
        }
    }
    Ok(())
}

struct Operands<T> {
    queries: DeviceBuffer<T>,
    keys: DeviceBuffer<T>,
    values: DeviceBuffer<T>,
    first: DeviceBuffer<i32>,
}

impl<T: Element + testkit::Element + Pod> Operands<T> {
    fn new(stream: &Stream) -> Outcome<Self> {
        let rows: usize = ROWS.iter().sum();
        let upload = |seed, heads| {
            DeviceBuffer::from_slice(stream, &input::<T>(Family::Normal, seed, rows * heads * SIZE))
        };
        Ok(Operands {
            queries: upload(1, HEADS[0])?,
            keys: upload(2, HEADS[1])?,
            values: upload(3, HEADS[1])?,
            first: DeviceBuffer::from_slice(stream, &[0, ROWS[0] as i32, rows as i32])?,
        })
    }

    fn rows(&self) -> usize {
        self.queries.len() / (HEADS[0] * SIZE)
    }

    fn attention<'a>(
        &'a self,
        out: &'a mut DeviceBuffer<T>,
        logarithms: &'a mut DeviceBuffer<f32>,
    ) -> Attention<'a> {
        let sides = |heads| [1, self.rows(), heads, SIZE];
        let queries = Heads::new(&self.queries, sides(HEADS[0]));
        let (keys, values) =
            (Heads::new(&self.keys, sides(HEADS[1])), Heads::new(&self.values, sides(HEADS[1])));
        let out = HeadsMut::new(out, sides(HEADS[0]));
        Attention::new(queries, keys, values, out).log_sum_exp(logarithms)
    }
}

fn run<T: Element + testkit::Element + Pod>(
    stream: &Stream,
    config: &Config,
    mask: Mask,
    is_packed: bool,
) -> Outcome<Vec<u8>> {
    let operands = Operands::<T>::new(stream)?;
    let mut out = DeviceBuffer::zeroed(stream, operands.queries.len())?;
    let mut logarithms = DeviceBuffer::zeroed(stream, operands.rows() * HEADS[0])?;
    let attention = operands.attention(&mut out, &mut logarithms).mask(mask);
    let first = &operands.first;
    let attention =
        if is_packed { attention.packed(Packed::new(first, first, LONGEST, LONGEST)) } else { attention };
    attention.run_with(stream, config)?;
    let mut bytes = bytemuck::cast_slice::<T, u8>(&out.to_vec(stream)?).to_vec();
    bytes.extend_from_slice(bytemuck::cast_slice(&logarithms.to_vec(stream)?));
    Ok(bytes)
}
