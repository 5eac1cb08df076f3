//! Attention: every kernel that offers.

use super::{Outcome, Stop};
use bytemuck::Pod;
use half::{bf16, f16};
use ironwarp::ops::attention::{
    Attention, Backward, Config, Forward, Gradients, Heads, HeadsMut, Mask, Packed, Scales, candidates,
};
use ironwarp::tensor::Element;
use ironwarp::{DeviceBuffer, Stream};
use num::E4M3;
use testkit::{Family, input};

/// Rows of two sequences, which more than one tile and more than one block of keys take; the longer one.
const ROWS: [usize; 2] = [70, 210];
const LONGEST: usize = 210;
const HEADS: [usize; 2] = [4, 2];
/// Shorter than the rows of every kernel, and whole units of 16 bytes of any type.
const SIZE: usize = 48;
/// The same, of values that are shorter than keys.
const SHORTER: usize = 32;

/// The forward pass alone, of many queries and of few.
pub fn forward(stream: &Stream) -> Outcome<Vec<Stop>> {
    let mut stops = Vec::new();
    for value_size in [SIZE, SHORTER] {
        add::<bf16>(stream, &mut stops, value_size)?;
        add::<f16>(stream, &mut stops, value_size)?;
    }
    add_quantized(stream, &mut stops)?;
    stops.extend(super::attention_functions::stops());
    stops.extend(super::decode::stops());
    Ok(stops)
}

pub fn stops(stream: &Stream) -> Outcome<Vec<Stop>> {
    let mut stops = forward(stream)?;
    stops.extend(super::attention_functions::gradient_stops());
    let ways = GRADIENT_SIZES.into_iter().flat_map(|sizes| Way::ALL.map(|way| (sizes, way)));
    for (sizes, way) in ways.filter(|(sizes, way)| way.is_for(*sizes)) {
        let [size, values] = sizes;
        let name = if size == values { size.to_string() } else { format!("{size} and {values}") };
        stops.push(Stop::new(format!("gradients, bf16, {name}, {way:?}"), move |stream| {
            gradients::<bf16>(stream, sizes, way)
        }));
        stops.push(Stop::new(format!("gradients, f16, {name}, {way:?}"), move |stream| {
            gradients::<f16>(stream, sizes, way)
        }));
    }
    Ok(stops)
}

/// Of queries and keys, and of values: shorter than the rows of every kernel of the backward pass.
const GRADIENT_SIZES: [[usize; 2]; 4] = [[56; 2], [120; 2], [248; 2], [184, 120]];

/// How gradients are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Sums of dQ have one term, and no order.
    OneBlockOfKeys,
    /// They have a fixed one.
    Deterministic,
    /// Two sequences.
    Packed,
    /// A block has all keys of a head.
    WholeHeads,
    /// By the kernels for Ampere and later.
    Mma,
}

impl Way {
    const ALL: [Way; 5] = [Way::OneBlockOfKeys, Way::Deterministic, Way::Packed, Way::WholeHeads, Way::Mma];

    /// Whether there are kernels for rows of these lengths.
    fn is_for(self, [size, values]: [usize; 2]) -> bool {
        match self {
            Way::OneBlockOfKeys | Way::Deterministic => true,
            Way::Packed | Way::Mma => size == values,
            Way::WholeHeads => size <= 128,
        }
    }

    /// Whether a kernel does it so.
    fn is_of(self, config: &Config) -> bool {
        let of = |part, way| config.name().contains(part) == (self == way);
        of("_whole_", Way::WholeHeads) && of("_mma_", Way::Mma)
    }

    /// Queries and keys.
    const fn rows(self) -> [usize; 2] {
        match self {
            Way::Deterministic | Way::WholeHeads | Way::Mma => [150, 300],
            Way::OneBlockOfKeys | Way::Packed => [150, 100],
        }
    }
}

/// All gradients, after a forward pass.
fn gradients<T: Element + testkit::Element + Pod>(
    stream: &Stream,
    [size, values]: [usize; 2],
    way: Way,
) -> Outcome<Vec<u8>> {
    let of_size = |size| [0, 1].map(|side| [1, way.rows()[side], HEADS[side], size]);
    let [of_q, of_k] = of_size(size);
    let [of_result, of_v] = of_size(values);
    let first_queries = DeviceBuffer::from_slice(stream, &[0, 70, 150])?;
    let first_keys = DeviceBuffer::from_slice(stream, &[0, 60, 100])?;
    let packed = (way == Way::Packed).then(|| Packed::new(&first_queries, &first_keys, 80, 60));
    let upload = |seed, sides: [usize; 4]| {
        let len = sides.iter().product();
        DeviceBuffer::from_slice(stream, &input::<T>(Family::Normal, seed, len))
    };
    let (q, k, v, result) = (upload(1, of_q)?, upload(2, of_k)?, upload(3, of_v)?, upload(4, of_result)?);
    let zeros = |buffer: &DeviceBuffer<T>| DeviceBuffer::<T>::zeroed(stream, buffer.len());
    let (mut output, mut d_q, mut d_k, mut d_v) = (zeros(&result)?, zeros(&q)?, zeros(&k)?, zeros(&v)?);
    let mut logarithms = DeviceBuffer::zeroed(stream, way.rows()[0] * HEADS[0])?;
    let (heads_q, heads_k, heads_v) = (Heads::new(&q, of_q), Heads::new(&k, of_k), Heads::new(&v, of_v));
    let attention = Attention::new(heads_q, heads_k, heads_v, HeadsMut::new(&mut output, of_result))
        .mask(Mask::CAUSAL)
        .log_sum_exp(&mut logarithms);
    let sinks = DeviceBuffer::from_slice(stream, &[0.5f32, -1.0, 3.0, 0.0])?;
    let mut d_sinks = DeviceBuffer::<f32>::zeroed(stream, HEADS[0])?;
    packed.into_iter().fold(attention, Attention::packed).sinks(&sinks).run(stream)?;
    let forward = Forward {
        queries: heads_q,
        keys: heads_k,
        values: heads_v,
        output: Heads::new(&output, of_result),
        log_sum_exp: (&logarithms).into(),
    };
    let gradients = Gradients {
        queries: HeadsMut::new(&mut d_q, of_q),
        keys: HeadsMut::new(&mut d_k, of_k),
        values: HeadsMut::new(&mut d_v, of_v),
    };
    let backward = Backward::new(forward, Heads::new(&result, of_result), gradients)
        .mask(Mask::CAUSAL)
        .deterministic(way == Way::Deterministic);
    let backward = packed.into_iter().fold(backward, Backward::packed).sinks(&sinks, &mut d_sinks);
    let candidates = backward.explain(stream)?.candidates.into_iter().map(|candidate| candidate.config);
    let config = candidates.filter(|config| way.is_of(config)).min_by_key(|config| config.head_size());
    backward.run_with(stream, &config.ok_or("no kernel")?)?;
    let mut bytes = bytemuck::cast_slice::<f32, u8>(&d_sinks.to_vec(stream)?).to_vec();
    for gradient in [&d_q, &d_k, &d_v] {
        bytes.extend_from_slice(bytemuck::cast_slice::<T, u8>(&gradient.to_vec(stream)?));
    }
    Ok(bytes)
}

/// Each kernel for values of this size with all keys, with a mask, and on packed sequences.
fn add<T: Element + testkit::Element + Pod>(
    stream: &Stream,
    stops: &mut Vec<Stop>,
    value_size: usize,
) -> Outcome {
    let operands = Operands::<T>::new(stream, value_size)?;
    let mut out = DeviceBuffer::<T>::zeroed(stream, operands.results())?;
    let mut logarithms = DeviceBuffer::zeroed(stream, operands.rows() * HEADS[0])?;
    let problem = operands.attention(&mut out, &mut logarithms).problem()?;
    let configs = candidates(&problem, stream.device()).into_iter().map(|candidate| candidate.config);
    // Kernels of one size have stops with operands of one size.
    let is_of_one = |config: &Config| config.head_size() == config.value_size();
    for config in configs.filter(|config| is_of_one(config) == (value_size == SIZE)) {
        for (mask, is_packed) in [(Mask::FULL, false), (Mask::window(Some(100), Some(0)), true)] {
            let packing = if is_packed { "packed" } else { "one sequence" };
            let name = format!("{config}, {mask}, {packing}");
            stops.push(Stop::new(name, move |stream| run::<T>(stream, &config, value_size, mask, is_packed)));
        }
    }
    Ok(())
}

/// Each kernel of e4m3: a scale a head with all keys; on packed sequences a scale a block, if it can.
fn add_quantized(stream: &Stream, stops: &mut Vec<Stop>) -> Outcome {
    let operands = Operands::<E4M3>::new(stream, SIZE)?;
    let mut out = DeviceBuffer::<bf16>::zeroed(stream, operands.results())?;
    let mut logarithms = DeviceBuffer::zeroed(stream, operands.rows() * HEADS[0])?;
    let scales = DeviceBuffer::from_slice(stream, &[1.0f32; HEADS[0]])?;
    let of_keys = DeviceBuffer::from_slice(stream, &[1.0f32; HEADS[1]])?;
    let scales = Scales { queries: (&scales).into(), keys: (&of_keys).into(), values: (&of_keys).into() };
    let problem = operands.attention(&mut out, &mut logarithms).quantized(scales).problem()?;
    for config in candidates(&problem, stream.device()).into_iter().map(|candidate| candidate.config) {
        for (mask, is_packed) in [(Mask::FULL, false), (Mask::window(Some(100), Some(0)), true)] {
            let name = format!("{config}, {mask}, {}", if is_packed { "packed" } else { "one sequence" });
            stops.push(Stop::new(name, move |stream| run_quantized(stream, &config, mask, is_packed)));
        }
    }
    Ok(())
}

fn run_quantized(stream: &Stream, config: &Config, mask: Mask, is_packed: bool) -> Outcome<Vec<u8>> {
    let operands = Operands::<E4M3>::new(stream, SIZE)?;
    let mut out = DeviceBuffer::<bf16>::zeroed(stream, operands.results())?;
    let mut logarithms = DeviceBuffer::zeroed(stream, operands.rows() * HEADS[0])?;
    // Of two sequences, in blocks of 128 rows if the kernel's blocks are as long; or of one.
    let blocks = if config.block()[1] == 128 { LONGEST.div_ceil(128) } else { 1 };
    let counts = HEADS.map(|heads| if is_packed { 2 * heads * blocks } else { heads });
    let scales = |count: usize| {
        let numbers: Vec<f32> = (0..count).map(|at| 1.0 + at as f32 / 8.0).collect();
        DeviceBuffer::from_slice(stream, &numbers)
    };
    let (queries, keys, values) = (scales(counts[0])?, scales(counts[1])?, scales(counts[1])?);
    let scales = Scales { queries: (&queries).into(), keys: (&keys).into(), values: (&values).into() };
    let attention = operands.attention(&mut out, &mut logarithms).mask(mask);
    let first = &operands.first;
    let attention =
        if is_packed { attention.packed(Packed::new(first, first, LONGEST, LONGEST)) } else { attention };
    attention.quantized(scales).run_with(stream, config)?;
    let mut bytes = bytemuck::cast_slice::<bf16, u8>(&out.to_vec(stream)?).to_vec();
    bytes.extend_from_slice(bytemuck::cast_slice(&logarithms.to_vec(stream)?));
    Ok(bytes)
}

struct Operands<T> {
    queries: DeviceBuffer<T>,
    keys: DeviceBuffer<T>,
    values: DeviceBuffer<T>,
    value_size: usize,
    first: DeviceBuffer<i32>,
}

impl<T: Element + testkit::Element + Pod> Operands<T> {
    fn new(stream: &Stream, value_size: usize) -> Outcome<Self> {
        let rows: usize = ROWS.iter().sum();
        let upload =
            |seed, row| DeviceBuffer::from_slice(stream, &input::<T>(Family::Normal, seed, rows * row));
        Ok(Operands {
            queries: upload(1, HEADS[0] * SIZE)?,
            keys: upload(2, HEADS[1] * SIZE)?,
            values: upload(3, HEADS[1] * value_size)?,
            value_size,
            first: DeviceBuffer::from_slice(stream, &[0, ROWS[0] as i32, rows as i32])?,
        })
    }

    fn rows(&self) -> usize {
        self.queries.len() / (HEADS[0] * SIZE)
    }

    /// Elements of the result.
    fn results(&self) -> usize {
        self.rows() * HEADS[0] * self.value_size
    }

    fn attention<'a, O: Element + Pod>(
        &'a self,
        out: &'a mut DeviceBuffer<O>,
        logarithms: &'a mut DeviceBuffer<f32>,
    ) -> Attention<'a> {
        let sides = |heads, size| [1, self.rows(), heads, size];
        let queries = Heads::new(&self.queries, sides(HEADS[0], SIZE));
        let keys = Heads::new(&self.keys, sides(HEADS[1], SIZE));
        let values = Heads::new(&self.values, sides(HEADS[1], self.value_size));
        let out = HeadsMut::new(out, sides(HEADS[0], self.value_size));
        Attention::new(queries, keys, values, out).log_sum_exp(logarithms)
    }
}

fn run<T: Element + testkit::Element + Pod>(
    stream: &Stream,
    config: &Config,
    value_size: usize,
    mask: Mask,
    is_packed: bool,
) -> Outcome<Vec<u8>> {
    let operands = Operands::<T>::new(stream, value_size)?;
    let mut out = DeviceBuffer::<T>::zeroed(stream, operands.results())?;
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
