//! Attention with the family's score functions: every kernel, forward and backward, and every kernel that
//! makes lists.

use super::{Outcome, Stop};
use bytemuck::Pod;
use half::{bf16, f16};
use ironwarp::ops::attention::{
    Attention, Backward, BiasGradient, Forward, Gradients, Heads, HeadsMut, Mask, Own, RelativeBiasGradient,
};
use ironwarp::ops::dropout::Generator;
use ironwarp::tensor::Element;
use ironwarp::{DeviceBuffer, Stream};
use testkit::{Family, input};

/// Shorter than the rows of each kernel.
const SIZES: [usize; 3] = [56, 120, 248];
/// More than one tile, and more than one block of keys.
const QUERIES: usize = 150;
const KEYS: usize = 190;
/// Heads of queries, and of keys.
const HEADS: [usize; 2] = [2, 1];

#[derive(Debug, Clone, Copy)]
enum Function {
    Alibi,
    SoftCap,
    Bias,
    Ranges,
    BlockSparse,
    Dropout,
}

const FUNCTIONS: [Function; 6] = [
    Function::Alibi,
    Function::SoftCap,
    Function::Bias,
    Function::Ranges,
    Function::BlockSparse,
    Function::Dropout,
];

pub fn stops() -> Vec<Stop> {
    let mut stops = Vec::new();
    for size in SIZES {
        for function in FUNCTIONS {
            let name = |dtype| format!("attention with {function:?}, {dtype}, {size}");
            stops.push(Stop::new(name("bf16"), move |stream| run::<bf16>(stream, function, size)));
            stops.push(Stop::new(name("f16"), move |stream| run::<f16>(stream, function, size)));
        }
    }
    stops
}

/// One block of keys: sums of dQ have one term, and no order.
const GRADIENT_KEYS: usize = 100;
/// Of a key from its query.
const DISTANCES: usize = QUERIES + GRADIENT_KEYS - 1;

pub fn gradient_stops() -> Vec<Stop> {
    let mut stops = Vec::new();
    for size in SIZES {
        for function in FUNCTIONS {
            let name = |dtype| format!("gradients with {function:?}, {dtype}, {size}");
            stops.push(Stop::new(name("bf16"), move |stream| gradients::<bf16>(stream, function, size)));
            stops.push(Stop::new(name("f16"), move |stream| gradients::<f16>(stream, function, size)));
        }
    }
    stops
}

/// All gradients, after a forward pass.
fn gradients<T: Element + testkit::Element + Pod>(
    stream: &Stream,
    function: Function,
    size: usize,
) -> Outcome<Vec<u8>> {
    let sides = [[1, QUERIES, HEADS[0], size], [1, GRADIENT_KEYS, HEADS[1], size]];
    let upload = |seed, side: usize| {
        let len = sides[side].iter().product();
        DeviceBuffer::from_slice(stream, &input::<T>(Family::Normal, seed, len))
    };
    let (q, k, v, result) = (upload(1, 0)?, upload(2, 1)?, upload(3, 1)?, upload(5, 0)?);
    let zeroed = |side: usize| DeviceBuffer::<T>::zeroed(stream, sides[side].iter().product());
    let (mut out, mut d_q, mut d_k, mut d_v) = (zeroed(0)?, zeroed(0)?, zeroed(1)?, zeroed(1)?);
    let mut logarithms = DeviceBuffer::<f32>::zeroed(stream, QUERIES * HEADS[0])?;
    let slopes = DeviceBuffer::from_slice(stream, &input::<f32>(Family::Normal, 4, HEADS[0]))?;
    let numbers = input::<f32>(Family::Normal, 4, HEADS[0] * QUERIES * GRADIENT_KEYS);
    let (bias, bias_sides) =
        (DeviceBuffer::from_slice(stream, &numbers)?, [1, HEADS[0], QUERIES, GRADIENT_KEYS]);
    let table = bias.slice(..HEADS[0] * DISTANCES)?;
    let mut d_table = DeviceBuffer::<f32>::zeroed(stream, table.len())?;
    let mut d_bias = DeviceBuffer::<f32>::zeroed(stream, bias.len())?;
    let ranges: Vec<_> = (0..QUERIES as u32).map(|query| [query / 50 * 50, query + 30, 0, 2]).collect();
    let ranges = DeviceBuffer::from_slice(stream, &ranges)?;
    let layout: Vec<u8> = (0..3 * 2).map(|place| u8::from(place % 3 != 1)).collect();
    let layout = DeviceBuffer::from_slice(stream, &layout)?;
    let generator = Generator::new(stream, 9)?;
    let heads = |buffer, side: usize| Heads::new::<T>(buffer, sides[side]);
    let attention =
        Attention::new(heads(&q, 0), heads(&k, 1), heads(&v, 1), HeadsMut::new(&mut out, sides[0]))
            .mask(Mask::CAUSAL)
            .log_sum_exp(&mut logarithms);
    match function {
        Function::Alibi => attention.alibi(&slopes)?.run(stream)?,
        Function::SoftCap => attention.soft_cap(3.0)?.run(stream)?,
        Function::Bias => attention.bias(&bias, bias_sides)?.run(stream)?,
        Function::Ranges => attention.ranges(&ranges)?.run(stream)?,
        Function::BlockSparse => attention.block_sparse(&layout, 64)?.run(stream)?,
        Function::Dropout => attention.dropout(0.25, &generator, 1)?.run(stream)?,
    }
    let forward = Forward {
        queries: heads(&q, 0),
        keys: heads(&k, 1),
        values: heads(&v, 1),
        output: heads(&out, 0),
        log_sum_exp: (&logarithms).into(),
    };
    let gradients = Gradients {
        queries: HeadsMut::new(&mut d_q, sides[0]),
        keys: HeadsMut::new(&mut d_k, sides[1]),
        values: HeadsMut::new(&mut d_v, sides[1]),
    };
    let backward = Backward::new(forward, heads(&result, 0), gradients).mask(Mask::CAUSAL);
    match function {
        Function::Alibi => backward.alibi(&slopes)?.run(stream)?,
        Function::SoftCap => backward.soft_cap(3.0)?.run(stream)?,
        Function::Bias => {
            backward.bias(&bias, bias_sides)?.run(stream)?;
            let call = BiasGradient::new(forward, heads(&result, 0), &bias, bias_sides, &mut d_bias);
            call.mask(Mask::CAUSAL).run(stream)?;
            let (gradient, sides) = (heads(&result, 0), [1, HEADS[0], DISTANCES]);
            let call = RelativeBiasGradient::new(forward, gradient, table, sides, &mut d_table);
            call.mask(Mask::CAUSAL).run(stream)?;
        }
        Function::Ranges => {
            let backward = backward.ranges(&ranges)?;
            let blocks = backward.block_mask(stream, Own::default())?;
            backward.blocks(&blocks).run(stream)?;
        }
        Function::BlockSparse => backward.block_sparse(&layout, 64)?.run(stream)?,
        Function::Dropout => backward.dropout(0.25, &generator, 1)?.run(stream)?,
    }
    let mut bytes = bytemuck::cast_slice(&d_bias.to_vec(stream)?).to_vec();
    bytes.extend_from_slice(bytemuck::cast_slice(&d_table.to_vec(stream)?));
    for gradient in [&d_q, &d_k, &d_v] {
        bytes.extend_from_slice(bytemuck::cast_slice::<T, u8>(&gradient.to_vec(stream)?));
    }
    Ok(bytes)
}

fn run<T: Element + testkit::Element + Pod>(
    stream: &Stream,
    function: Function,
    size: usize,
) -> Outcome<Vec<u8>> {
    let upload = |seed, rows: usize, heads: usize| {
        DeviceBuffer::from_slice(stream, &input::<T>(Family::Normal, seed, rows * heads * size))
    };
    let (q, k, v) = (upload(1, QUERIES, HEADS[0])?, upload(2, KEYS, HEADS[1])?, upload(3, KEYS, HEADS[1])?);
    let mut out = DeviceBuffer::<T>::zeroed(stream, q.len())?;
    let (of_queries, of_keys) = ([1, QUERIES, HEADS[0], size], [1, KEYS, HEADS[1], size]);
    let keys = |buffer| Heads::new::<T>(buffer, of_keys);
    let attention =
        Attention::new(Heads::new(&q, of_queries), keys(&k), keys(&v), HeadsMut::new(&mut out, of_queries))
            .mask(Mask::CAUSAL);
    let floats = |len| DeviceBuffer::from_slice(stream, &input::<f32>(Family::Normal, 4, len));
    let own = Own { heads: true, sequences: false };
    match function {
        Function::Alibi => {
            let slopes = floats(HEADS[0])?;
            let attention = attention.alibi(&slopes)?;
            let blocks = attention.block_mask(stream, own)?;
            attention.blocks(&blocks).run(stream)?;
        }
        Function::SoftCap => {
            let attention = attention.soft_cap(3.0)?;
            let blocks = attention.block_mask(stream, own)?;
            attention.blocks(&blocks).run(stream)?;
        }
        Function::Bias => {
            let bias = floats(HEADS[0] * QUERIES * KEYS)?;
            let attention = attention.bias(&bias, [1, HEADS[0], QUERIES, KEYS])?;
            let blocks = attention.block_mask(stream, own)?;
            attention.blocks(&blocks).run(stream)?;
        }
        Function::Ranges => {
            let ranges: Vec<_> =
                (0..QUERIES as u32).map(|query| [query / 50 * 50, query + 30, 0, 2]).collect();
            let ranges = DeviceBuffer::from_slice(stream, &ranges)?;
            let attention = attention.ranges(&ranges)?;
            let blocks = attention.block_mask(stream, own)?;
            attention.blocks(&blocks).run(stream)?;
        }
        Function::BlockSparse => {
            let layout: Vec<u8> = (0..3 * 3).map(|place| u8::from(place % 3 != 1)).collect();
            let layout = DeviceBuffer::from_slice(stream, &layout)?;
            let attention = attention.block_sparse(&layout, 64)?;
            let blocks = attention.block_mask(stream, own)?;
            attention.blocks(&blocks).run(stream)?;
        }
        Function::Dropout => {
            let generator = Generator::new(stream, 9)?;
            let attention = attention.dropout(0.25, &generator, 1)?;
            let blocks = attention.block_mask(stream, own)?;
            attention.blocks(&blocks).run(stream)?;
        }
    }
    Ok(bytemuck::cast_slice::<T, u8>(&out.to_vec(stream)?).to_vec())
}
