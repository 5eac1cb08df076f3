//! Rotary position embedding against its oracle: element types, shapes, strides, positions; in place and
//! back. On whichever driver is there.

use crate::common::{Outcome, stream};
use half::{bf16, f16};
use ironwarp::ops::index::Indices;
use ironwarp::ops::rotary::{
    Positions, RotaryTables, rotary, rotary_backward, rotary_backward_in_place, rotary_in_place,
};
use ironwarp::tensor::Element;
use ironwarp::{Error, Tensor, TensorError};
use reference::rotary::{angle, rotary as oracle};
use testkit::{Family, Tolerance, compare, input, tolerance};

const BASE: f64 = 1e4;
/// `[batch, rows, heads, columns]`, and how many columns turn.
const SHAPES: [([usize; 4], usize); 9] = [
    ([2, 5, 3, 64], 64),
    ([1, 33, 2, 128], 64),
    ([3, 4, 1, 20], 20),
    ([2, 3, 2, 7], 6),
    ([2, 3, 2, 7], 0),
    ([1, 300, 1, 2], 2),
    ([0, 5, 3, 64], 64),
    ([2, 0, 3, 64], 64),
    ([1, 3, 5, 72], 48),
];

/// The elements, turned by the positions of their rows, or back.
fn expected(
    x: &[f64],
    [_, rows, heads, columns]: [usize; 4],
    rotated: usize,
    by_neighbours: bool,
    sign: f64,
    position: impl Fn(usize, usize) -> usize,
) -> Vec<f64> {
    let turned = x.chunks(columns).enumerate().flat_map(|(head, values)| {
        let (batch, row) = (head / heads / rows, head / heads % rows);
        let angles = (0..rotated / 2).map(|i| angle(position(batch, row), i, rotated / 2, BASE));
        // As the tables round them.
        let (cosines, sines): (Vec<f64>, Vec<f64>) =
            angles.map(|a| (f64::from(a.cos() as f32), sign * f64::from(a.sin() as f32))).unzip();
        oracle(values, &cosines, &sines, by_neighbours)
    });
    turned.collect()
}

/// The larger of the two terms of each element.
fn scales(x: &[f64], columns: usize) -> Vec<f64> {
    let largest = |head: &[f64]| head.iter().fold(0.0f64, |most, x| most.max(x.abs()));
    x.chunks(columns).flat_map(|head| vec![largest(head); columns]).collect()
}

fn case<T: Element + testkit::Element + Into<f64>>(limit: Tolerance) -> Outcome {
    let stream = stream()?;
    for (number, (shape, rotated)) in SHAPES.into_iter().enumerate() {
        let [batch, rows, heads, columns] = shape;
        let tables = RotaryTables::new(&stream, 310, rotated, BASE)?;
        let x = input::<T>(Family::Normal, number as u64, shape.iter().product());
        let wide: Vec<f64> = x.iter().map(|&x| x.into()).collect();
        // A part of wider rows, which begin an element late where columns are odd.
        let packed = Tensor::zeros(&stream, &[batch, rows, heads + 1, columns], T::DTYPE)?;
        let tensor = Tensor::from_slice(&stream, &shape, &x)?;
        let own: Vec<usize> = (0..batch * rows).map(|row| (row * 7 + 3) % 300).collect();
        let own_indices = Indices::from_slice(&stream, &own, 300)?;
        for by_neighbours in [false, true] {
            let embedding = if by_neighbours { tables.neighbours()? } else { tables.halves()? };
            let what = format!("{} {shape:?}, {rotated} turn, by neighbours: {by_neighbours}", T::DTYPE);
            let check = |what: &str, got: &Tensor, want: &[f64]| -> Outcome {
                let got = ironwarp::ops::elementwise::contiguous(&stream, got)?.to_vec::<T>(&stream)?;
                compare::accumulated(what, &got, want, &scales(&wide, columns), &shape, limit)?;
                Ok(())
            };
            let want = |sign, position: &dyn Fn(usize, usize) -> usize| {
                expected(&wide, shape, rotated, by_neighbours, sign, position)
            };
            let from = |_: usize, row: usize| 4 + row;
            check(&what, &rotary(&stream, &tensor, embedding, Positions::From(4))?, &want(1.0, &from))?;
            let back = rotary_backward(&stream, &tensor, embedding, Positions::From(4))?;
            check(&format!("{what}, back"), &back, &want(-1.0, &from))?;
            let of_rows = |batch: usize, row: usize| own[batch * rows + row];
            let got = rotary(&stream, &tensor, embedding, Positions::Of(&own_indices))?;
            check(&format!("{what}, own positions"), &got, &want(1.0, &of_rows))?;
            // The heads behind the first of a packed tensor, in place; the first stays as it is.
            let mut held = ironwarp::ops::elementwise::copy(&stream, &packed)?;
            let inner = held.view_mut()?.slice(2, 1..)?;
            ironwarp::ops::elementwise::copy_into(&stream, &tensor, inner)?;
            let mut inner = held.view_mut()?.slice(2, 1..)?;
            rotary_in_place(&stream, &mut inner, embedding, Positions::From(4))?;
            check(&format!("{what}, in place"), &held.slice(2, 1..)?, &want(1.0, &from))?;
            let mut inner = held.view_mut()?.slice(2, 1..)?;
            rotary_backward_in_place(&stream, &mut inner, embedding, Positions::From(4))?;
            let got = rotary(&stream, &held.slice(2, 1..)?, embedding, Positions::From(0))?;
            check(&format!("{what}, there and back, then from 0"), &got, &want(1.0, &|_, row| row))?;
            let first = ironwarp::ops::elementwise::contiguous(&stream, &held.slice(2, ..1)?)?;
            assert!(first.to_vec::<T>(&stream)?.iter().all(|&x| x.into() == 0.0), "{what}");
        }
    }
    Ok(())
}

#[test]
fn heads_turn_by_their_positions() -> Outcome {
    case::<f32>(tolerance::ROTARY_F32.tolerance())?;
    case::<f16>(tolerance::ROTARY_F16.tolerance())?;
    case::<bf16>(tolerance::ROTARY_BF16.tolerance())
}

#[test]
fn nan_and_infinity_keep_to_their_pairs() -> Outcome {
    let stream = stream()?;
    let mut x = vec![1.0f32; 2 * 16];
    (x[3], x[16 + 5]) = (f32::NAN, f32::INFINITY);
    let tables = RotaryTables::new(&stream, 2, 16, BASE)?;
    let x = Tensor::from_slice(&stream, &[2, 1, 16], &x)?;
    let y = rotary(&stream, &x, tables.halves()?, Positions::From(0))?.to_vec::<f32>(&stream)?;
    let lost: Vec<usize> = (0..32).filter(|&i| !y[i].is_finite()).collect();
    assert_eq!(lost, [3, 11, 21, 29]);
    Ok(())
}

#[test]
fn wrong_calls_say_what_to_do() -> Outcome {
    let stream = stream()?;
    let zeros = |shape: &[usize]| Tensor::zeros(&stream, shape, ironwarp::DType::F32);
    let tables = RotaryTables::new(&stream, 8, 16, BASE)?;
    let (x, halves) = (zeros(&[2, 8, 3, 16])?, tables.halves()?);
    let refused = |x: &Tensor, positions| rotary(&stream, x, halves, positions).unwrap_err();
    for (x, positions) in [
        (&x, Positions::From(1)),
        (&zeros(&[9, 3, 16])?, Positions::From(0)),
        (&zeros(&[8, 3, 8])?, Positions::From(0)),
    ] {
        let error = refused(x, positions);
        assert!(
            matches!(error, Error::InvalidArgument { .. }) && error.to_string().contains("\nhint: "),
            "{error}"
        );
    }
    let few = Indices::from_slice(&stream, &[1; 15], 8)?;
    assert!(matches!(refused(&x, Positions::Of(&few)), Error::Length { .. }));
    let far = Indices::from_slice(&stream, &[1; 16], 9)?;
    assert!(matches!(refused(&x, Positions::Of(&far)), Error::InvalidArgument { .. }));
    let tensor = |error: &Error| error.tensor_error().map(|e| format!("{e:?}"));
    let error = refused(&zeros(&[16, 16])?, Positions::From(0));
    assert!(matches!(error.tensor_error(), Some(TensorError::Shape { .. })), "{:?}", tensor(&error));
    let error = refused(&x.transpose(2, 3)?, Positions::From(0));
    assert!(matches!(error.tensor_error(), Some(TensorError::NotContiguous { .. })), "{:?}", tensor(&error));
    let integers = Tensor::zeros(&stream, &[8, 3, 16], ironwarp::DType::I32)?;
    let error = refused(&integers, Positions::From(0));
    assert!(matches!(error.tensor_error(), Some(TensorError::DType { .. })), "{:?}", tensor(&error));
    for (rotated, base) in [(7, BASE), (8, 0.0), (8, f64::NAN)] {
        assert!(matches!(RotaryTables::new(&stream, 8, rotated, base), Err(Error::InvalidArgument { .. })));
    }
    Ok(())
}
