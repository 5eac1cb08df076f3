//! Multi-head attention of a layer, against the oracles of products and attention.

use crate::attention_case::{Number, Outcome, device, is_hopper};
use half::{bf16, f16};
use ironwarp::ops::attention::{Mask, MultiHead, Options, Projection};
use ironwarp::tensor::DType;
use ironwarp::{Error, Stream, Tensor};
use reference::attention::{Band, Rows, Sides, attention};
use testkit::{Family, compare, input, tolerance};

const BATCH: usize = 2;
const ROWS: usize = 70;
const INPUTS: usize = 48;
const OUTPUTS: usize = 56;

/// A tensor's elements, on both sides.
struct Operand<T> {
    host: Vec<T>,
    tensor: Tensor,
}

impl<T: Number> Operand<T> {
    fn new(stream: &Stream, seed: u64, shape: &[usize]) -> Outcome<Self> {
        let host: Vec<T> = input(Family::Normal, seed, shape.iter().product());
        let tensor = Tensor::from_slice(stream, shape, &host)?;
        Ok(Operand { host, tensor })
    }

    fn at(&self, place: usize) -> f64 {
        self.host[place].into()
    }
}

/// A layer of these heads; with biases, a residual and a causal mask, or without.
fn check<T: Number>(heads: usize, kv_heads: usize, size: usize, is_whole: bool) -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let all = heads + 2 * kv_heads;
    let x = Operand::<T>::new(&stream, 1, &[BATCH, ROWS, INPUTS])?;
    let (w_in, b_in) = (
        Operand::<T>::new(&stream, 2, &[all * size, INPUTS])?,
        Operand::<T>::new(&stream, 3, &[all * size])?,
    );
    let (w_out, b_out) = (
        Operand::<T>::new(&stream, 4, &[OUTPUTS, heads * size])?,
        Operand::<T>::new(&stream, 5, &[OUTPUTS])?,
    );
    let residual = Operand::<T>::new(&stream, 6, &[BATCH, ROWS, OUTPUTS])?;
    // Small scores: their errors are the products' own.
    let (mask, scale) = (if is_whole { Mask::CAUSAL } else { Mask::FULL }, 1.0 / 1024.0);
    let with = |bias| if is_whole { Some(bias) } else { None };
    let layer = MultiHead::new(
        &x.tensor,
        Projection { weight: &w_in.tensor, bias: with(&b_in.tensor) },
        Projection { weight: &w_out.tensor, bias: with(&b_out.tensor) },
        heads,
        kv_heads,
    )
    .options(Options { mask, scale: Some(scale) });
    let layer = if is_whole { layer.residual(&residual.tensor) } else { layer };
    let got = layer.run(&stream)?.to_vec::<T>(&stream)?;

    let added = |operand: &Operand<T>, place: usize| if is_whole { operand.at(place) } else { 0.0 };
    let packed: Vec<T> = (0..BATCH * ROWS * all * size)
        .map(|at| {
            let (token, column) = (at / (all * size), at % (all * size));
            let terms = (0..INPUTS).map(|i| x.at(token * INPUTS + i) * w_in.at(column * INPUTS + i));
            T::from_f64(terms.sum::<f64>() + added(&b_in, column))
        })
        .collect();
    let strides = [ROWS * all * size, all * size, size];
    let part = |head: usize| Rows { data: &packed[head * size..], strides };
    let sides = Sides { batch: BATCH, queries: ROWS, keys: ROWS, heads, kv_heads, size };
    let band = Band { right: is_whole.then_some(0), ..Band::default() };
    let mixed = attention(sides, [part(0), part(heads), part(heads + kv_heads)], band, f64::from(scale));
    let (want, magnitude): (Vec<f64>, Vec<f64>) = (0..BATCH * ROWS * OUTPUTS)
        .map(|at| {
            let (token, column) = (at / OUTPUTS, at % OUTPUTS);
            let terms = (0..heads * size).map(|i| {
                let (from, weight) = (token * heads * size + i, w_out.at(column * heads * size + i));
                (mixed.value[from] * weight, mixed.magnitude[from] * weight.abs())
            });
            let (sum, scale) = terms.fold((0.0, 0.0), |(sum, scale), term| (sum + term.0, scale + term.1));
            (sum + added(&b_out, column) + added(&residual, at), scale)
        })
        .unzip();
    let row = match T::DTYPE {
        DType::BF16 => tolerance::ATTENTION_LAYER_BF16,
        _ => tolerance::ATTENTION_LAYER_F16,
    };
    let what = format!("{heads} on {kv_heads} heads of {size}");
    compare::rounded(&what, &got, &want, &magnitude, &[BATCH, ROWS, OUTPUTS], row.tolerance())?;
    Ok(())
}

#[test]
fn layers_with_all_and_with_nothing() -> Outcome {
    check::<bf16>(2, 2, 64, true)?;
    check::<bf16>(4, 2, 40, false)?;
    check::<f16>(2, 1, 128, true)
}

#[test]
fn wrong_sides_are_refused() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let zeros = |shape: &[usize]| Tensor::zeros(&stream, shape, DType::BF16);
    let (x, flat) = (zeros(&[BATCH, ROWS, INPUTS])?, zeros(&[ROWS, INPUTS])?);
    let (qkv, out) = (zeros(&[6 * 64, INPUTS])?, zeros(&[OUTPUTS, 2 * 64])?);
    let bias = zeros(&[OUTPUTS])?;
    let of = |weight| Projection { weight, bias: None };
    let cases = [
        ("the input", MultiHead::new(&flat, of(&qkv), of(&out), 2, 2)),
        ("the heads", MultiHead::new(&x, of(&qkv), of(&out), 3, 2)),
        ("the weight of queries, keys and values", MultiHead::new(&x, of(&out), of(&out), 2, 2)),
        ("the weight of the output", MultiHead::new(&x, of(&qkv), of(&qkv), 2, 2)),
        (
            "the bias of queries, keys and values",
            MultiHead::new(&x, Projection { weight: &qkv, bias: Some(&bias) }, of(&out), 2, 2),
        ),
        ("the residual", MultiHead::new(&x, of(&qkv), of(&out), 2, 2).residual(&x)),
    ];
    for (wanted, layer) in cases {
        let Err(error) = layer.run(&stream) else { panic!("{wanted}") };
        assert!(matches!(error, Error::InvalidArgument { argument, .. } if argument == wanted), "{error}");
    }
    Ok(())
}
