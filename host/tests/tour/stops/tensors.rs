//! Kernels on tensors: each op on every element type that it knows.

use super::{Outcome, Stop};
use half::{bf16, f16};
use ironwarp::ops::activation::{
    ActivationFunction, GateOrder, activation_backward_with_bias, gated, gated_backward,
};
use ironwarp::ops::convert::convert;
use ironwarp::ops::dropout::{Generator, dropout};
use ironwarp::ops::elementwise::{
    BinaryOp, CompareOp, UnaryOp, binary, compare, contiguous, copy, power, select, unary,
};
use ironwarp::ops::embedding::embedding_backward;
use ironwarp::ops::fill::{arange, full, normal, uniform};
use ironwarp::ops::index::{Indices, gather, scatter, scatter_add};
use ironwarp::ops::loss::{LossFunction, PairLoss, losses};
use ironwarp::ops::quantize::{quantize_blocks, quantize_tiles};
use ironwarp::ops::reduce::{ReduceOp, argmax, reduce};
use ironwarp::ops::rotary::{Positions, RotaryTables, rotary};
use ironwarp::ops::row::Reduction;
use ironwarp::tensor::Element;
use ironwarp::{DType, Error, Stream, Tensor, TensorError};
use num::{E4M3, E5M2};
use testkit::{Family, input};

/// Sides of the operands: units of every width, and rests of them.
const SHAPE: [usize; 2] = [6, 272];

/// Indices, and the places that they name.
const MANY: usize = 1100;
const PLACES: usize = 1500;

pub fn stops() -> Vec<Stop> {
    let mut stops = vec![Stop::new("tensors that are made", made)];
    for &dtype in DType::ALL {
        stops.push(Stop::new(format!("functions of {dtype}"), move |stream| functions(stream, dtype)));
        stops.push(Stop::new(format!("reductions of {dtype}"), move |stream| reductions(stream, dtype)));
        stops.push(Stop::new(format!("moves of {dtype}"), move |stream| moves(stream, dtype)));
    }
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        let name = format!("embedding and dropout of {dtype}");
        stops.push(Stop::new(name, move |stream| training(stream, dtype)));
        stops.push(Stop::new(format!("quantised {dtype}"), move |stream| quantised(stream, dtype)));
        let name = format!("losses and gradients of activations of {dtype}");
        stops.push(Stop::new(name, move |stream| gradients(stream, dtype)));
    }
    stops
}

/// The bytes of results, one behind the other.
#[derive(Default)]
struct Kept(Vec<u8>);

impl Kept {
    fn keep(&mut self, stream: &Stream, x: &Tensor) -> Outcome {
        macro_rules! values {
            ($($dtype:ident: $type:ty),*) => {
                match x.dtype() {
                    $(DType::$dtype => self.0.extend_from_slice(bytemuck::cast_slice(&x.to_vec::<$type>(stream)?)),)*
                    DType::Bool => self.0.extend(x.to_vec::<bool>(stream)?.into_iter().map(u8::from)),
                    other => return Err(format!("{other} has no place here yet").into()),
                }
            };
        }
        values!(F64: f64, F32: f32, F16: f16, BF16: bf16, F8E4M3: E4M3, F8E5M2: E5M2, I64: i64, I32: i32, U8: u8);
        Ok(())
    }

    /// Keeps a result; an op that does not know the type has none.
    fn keep_if_known(&mut self, stream: &Stream, result: Result<Tensor, Error>) -> Outcome {
        match result {
            Err(error) if matches!(error.tensor_error(), Some(TensorError::DType { .. })) => Ok(()),
            result => self.keep(stream, &result?),
        }
    }
}

/// Numbers of that type, of the shape [`SHAPE`].
fn numbers(stream: &Stream, seed: u64, dtype: DType) -> Result<Tensor, Error> {
    numbers_of(stream, seed, dtype, SHAPE)
}

fn numbers_of(stream: &Stream, seed: u64, dtype: DType, shape: [usize; 2]) -> Result<Tensor, Error> {
    let values = input::<f32>(Family::Normal, seed, shape.iter().product());
    convert(stream, &Tensor::from_slice(stream, &shape, &values)?, dtype)
}

/// The same elements dense, with a repeated row and a repeated column, and by columns.
fn layouts(x: &Tensor) -> Result<[Tensor; 4], Error> {
    Ok([
        x.clone(),
        x.slice(0, ..1)?.broadcast_to(&SHAPE)?,
        x.slice(1, ..1)?.broadcast_to(&SHAPE)?,
        x.slice(1, ..SHAPE[0])?.transpose(0, 1)?,
    ])
}

fn functions(stream: &Stream, dtype: DType) -> Outcome<Vec<u8>> {
    let (x, y) = (numbers(stream, 1, dtype)?, numbers(stream, 2, dtype)?);
    let mut kept = Kept::default();
    for &op in UnaryOp::ALL {
        match unary(stream, op, &x) {
            // Those that take parameters are not called like this.
            Err(Error::InvalidArgument { .. }) => {}
            result => kept.keep_if_known(stream, result)?,
        }
    }
    for x in layouts(&x)? {
        let y = y.slice(1, ..x.shape()[1])?;
        for op in [UnaryOp::Neg, UnaryOp::Sin] {
            kept.keep_if_known(stream, unary(stream, op, &x))?;
        }
        for op in [BinaryOp::Add, BinaryOp::Max] {
            kept.keep_if_known(stream, binary(stream, op, &x, &y))?;
        }
        kept.keep_if_known(stream, power(stream, &x, &y))?;
        if let Ok(less) = compare(stream, CompareOp::Lt, &x, &y) {
            kept.keep(stream, &less)?;
            kept.keep(stream, &select(stream, &less, &x, &y)?)?;
        }
        for &to in DType::ALL {
            kept.keep(stream, &convert(stream, &x, to)?)?;
        }
        kept.keep(stream, &copy(stream, &x)?)?;
    }
    Ok(kept.0)
}

fn reductions(stream: &Stream, dtype: DType) -> Outcome<Vec<u8>> {
    let x = numbers(stream, 3, dtype)?;
    let mut kept = Kept::default();
    // Long rows, short ones, and columns; all at once.
    for x in [x.clone(), contiguous(stream, &x.transpose(0, 1)?)?] {
        for axes in [&[0][..], &[1], &[]] {
            for &op in ReduceOp::ALL {
                kept.keep_if_known(stream, reduce(stream, op, &x, axes))?;
            }
        }
        for axis in [0, 1] {
            kept.keep_if_known(stream, argmax(stream, &x, axis))?;
        }
    }
    Ok(kept.0)
}

/// A matrix turned; gathers and scatters of rows in units of every size: a row, an odd part of one, and
/// single elements.
fn moves(stream: &Stream, dtype: DType) -> Outcome<Vec<u8>> {
    let x = numbers(stream, 4, dtype)?;
    let mut kept = Kept::default();
    let tall = x.view_as(&[SHAPE[0] * SHAPE[1] / 34, 34])?;
    kept.keep(stream, &copy(stream, &tall.transpose(0, 1)?)?)?;
    let rows = Indices::from_slice(stream, &[5, 0, 3, 0], SHAPE[0])?;
    for width in [SHAPE[1], 2, 1] {
        let x = contiguous(stream, &x.slice(1, ..width)?)?;
        let taken = gather(stream, &x, 0, &rows)?;
        kept.keep(stream, &taken)?;
        let mut out = Tensor::zeros(stream, &[SHAPE[0], width], dtype)?;
        scatter(stream, out.view_mut()?, 0, &rows, &taken)?;
        kept.keep(stream, &out)?;
        let added = scatter_add(stream, out.view_mut()?, 0, &rows, &taken);
        kept.keep_if_known(stream, added.map(|()| out))?;
    }
    // So many that those which are alone at their place are told from the others.
    let many: Vec<usize> = (0..MANY).map(|i| if i % 50 == 0 { 3 } else { 7 * i % PLACES }).collect();
    let many = Indices::from_slice(stream, &many, PLACES)?;
    for width in [4, 1] {
        let mut out = Tensor::zeros(stream, &[PLACES, width], dtype)?;
        let added =
            scatter_add(stream, out.view_mut()?, 0, &many, &numbers_of(stream, 5, dtype, [MANY, width])?);
        kept.keep_if_known(stream, added.map(|()| out))?;
    }
    Ok(kept.0)
}

/// Gradients of embeddings, with runs of tokens within tiles and across them, in units of 16 bytes and in
/// elements; dropout at two steps; rotary position embedding.
fn training(stream: &Stream, dtype: DType) -> Outcome<Vec<u8>> {
    let mut kept = Kept::default();
    let tokens: Vec<usize> = (0..MANY).map(|i| if i % 3 == 0 { 9 } else { 7 * i % PLACES }).collect();
    let tokens = Indices::from_slice(stream, &tokens, PLACES)?;
    let mut generator = Generator::new(stream, 8)?;
    for width in [8, 3] {
        let gradient = numbers_of(stream, 6, dtype, [MANY, width])?;
        kept.keep(stream, &embedding_backward(stream, &gradient, &tokens, PLACES)?)?;
        kept.keep(stream, &dropout(stream, &gradient, 0.25, &generator, 1)?)?;
        generator.advance(stream)?;
    }
    // In vectors, and by elements.
    for columns in [32, 6] {
        let tables = RotaryTables::new(stream, MANY, columns, 1e4)?;
        let x = numbers_of(stream, 9, dtype, [MANY, 2 * columns])?.view_as(&[MANY, 2, columns])?;
        for embedding in [tables.halves()?, tables.neighbours()?] {
            kept.keep(stream, &rotary(stream, &x, embedding, Positions::From(0))?)?;
        }
    }
    Ok(kept.0)
}

/// Every loss and every activation, in vectors and by elements.
fn gradients(stream: &Stream, dtype: DType) -> Outcome<Vec<u8>> {
    let mut kept = Kept::default();
    for sides in [SHAPE, [SHAPE[0], 10]] {
        let [x, target, dy] = [7, 8, 9].map(|seed| numbers_of(stream, seed, dtype, sides));
        let (x, target, dy) = (x?, unary(stream, UnaryOp::Sigmoid, &target?)?, dy?);
        for function in [
            LossFunction::Mse,
            LossFunction::L1,
            LossFunction::SmoothL1 { beta: 0.5 },
            LossFunction::BceWithLogits { pos_weight: 2.0 },
            LossFunction::KlDiv { log_target: false },
            LossFunction::KlDiv { log_target: true },
        ] {
            let loss = PairLoss { function, reduction: Reduction::Mean };
            let (value, dx) = loss.loss_and_gradient(stream, &x, &target, None)?;
            kept.keep(stream, &value)?;
            kept.keep(stream, &dx)?;
            kept.keep(stream, &losses(stream, function, &x, &target)?)?;
        }
        let half = dy.slice(1, ..sides[1] / 2)?;
        for function in [
            ActivationFunction::Identity,
            ActivationFunction::Relu,
            ActivationFunction::Gelu,
            ActivationFunction::GeluTanh,
            ActivationFunction::Silu,
            ActivationFunction::Sigmoid,
            ActivationFunction::Tanh,
        ] {
            let (dx, bias) = activation_backward_with_bias(stream, function, &x, &dy)?;
            kept.keep(stream, &dx)?;
            kept.keep(stream, &bias)?;
            for order in [GateOrder::Halves, GateOrder::Neighbours] {
                kept.keep(stream, &gated(stream, function, order, &x)?)?;
                kept.keep(stream, &gated_backward(stream, function, order, &x, &half)?)?;
            }
        }
    }
    Ok(kept.0)
}

/// By tiles and blocks, of which the last are smaller; in vectors, and by elements.
fn quantised(stream: &Stream, dtype: DType) -> Outcome<Vec<u8>> {
    let mut kept = Kept::default();
    for sides in [[150, 272], [150, 131]] {
        let x = numbers_of(stream, 10, dtype, sides)?;
        let (tiles, blocks) = (quantize_tiles(stream, &x)?, quantize_blocks(stream, &x)?);
        for result in [&tiles.numbers, &tiles.factors, &blocks.numbers, &blocks.factors] {
            kept.keep(stream, result)?;
        }
    }
    Ok(kept.0)
}

fn made(stream: &Stream) -> Outcome<Vec<u8>> {
    fn filled<T: Element>(stream: &Stream, value: T) -> Result<Tensor, Error> {
        full(stream, &[5, 7], value)
    }
    let mut kept = Kept::default();
    for x in [
        filled(stream, 0.5f64)?,
        filled(stream, 0.5f32)?,
        filled(stream, bf16::ONE)?,
        filled(stream, 3u8)?,
        arange(stream, 0.5, 0.25, 70, DType::F32)?,
        arange(stream, 3.0, 2.0, 70, DType::I64)?,
        uniform(stream, &[5, 7], 0.0, 1.0, 6)?,
        normal(stream, &[5, 7], 0.0, 1.0, 7)?,
    ] {
        kept.keep(stream, &x)?;
    }
    Ok(kept.0)
}
