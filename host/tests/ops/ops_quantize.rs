//! Matrices in e4m3 with factors of tiles and blocks against their oracle, to the bit.

use crate::common::{Outcome, stream, tests};
use crate::lying::{Lying, exact};
use half::{bf16, f16};
use ironwarp::ops::quantize::{quantize_blocks, quantize_tiles};
use ironwarp::tensor::Element;
use ironwarp::{DType, Error, Stream, Tensor, TensorError};
use num::E4M3;
use reference::quantize::quantize;
use testkit::{Family, Random, Tolerance, compare, input};

/// Columns that share a factor, and rows that do.
const BLOCK: usize = 128;

/// Numbers and factors, which lie as the oracle's do.
type Got = (Vec<f32>, Vec<f32>);

fn numbers(stream: &Stream, of: &Tensor) -> Result<Vec<f32>, Error> {
    Ok(of.to_vec::<E4M3>(stream)?.into_iter().map(E4M3::to_f32).collect())
}

fn tiles(stream: &Stream, x: &Tensor) -> Outcome<Got> {
    let got = quantize_tiles(stream, x)?;
    let (&[rows, columns], across) = (x.shape().sides(), x.shape()[1].div_ceil(BLOCK)) else {
        return Err("a matrix".into());
    };
    assert_eq!((got.numbers.shape().sides(), got.numbers.dtype()), (&[rows, columns][..], DType::F8E4M3));
    assert_eq!(got.factors.shape().sides(), [across, rows]);
    let factors = got.factors.to_vec::<f32>(stream)?;
    let turned = (0..rows * across).map(|place| factors[place % across * rows + place / across]);
    Ok((numbers(stream, &got.numbers)?, turned.collect()))
}

fn blocks(stream: &Stream, x: &Tensor) -> Outcome<Got> {
    let got = quantize_blocks(stream, x)?;
    assert_eq!((got.numbers.shape(), got.numbers.dtype()), (x.shape(), DType::F8E4M3));
    let mut sides = x.shape().sides().to_vec();
    let matrix = sides.len() - 2;
    sides[matrix..].iter_mut().for_each(|side| *side = side.div_ceil(BLOCK));
    assert_eq!(got.factors.shape().sides(), sides);
    Ok((numbers(stream, &got.numbers)?, got.factors.to_vec::<f32>(stream)?))
}

/// Both forms of a matrix against the oracle, and against themselves.
fn check(stream: &Stream, what: &str, x: &Tensor, values: &[f64]) -> Outcome {
    let &[rows, columns] = x.shape().sides() else { return Err("a matrix".into()) };
    type Form = fn(&Stream, &Tensor) -> Outcome<Got>;
    for (name, run, tall) in [("tiles", tiles as Form, 1), ("blocks", blocks, BLOCK)] {
        let what = format!("{name}, {what}");
        let want = quantize(values, [rows, columns], [tall, BLOCK]);
        let got = run(stream, x)?;
        compare::bitwise_equal(&what, &got.1, &want.factors)?;
        compare::elementwise(&what, &got.0, &want.numbers, &[rows, columns], Tolerance::EXACT)?;
        // -0 stays what it is, in every part.
        let signs = |negative: &mut dyn Iterator<Item = bool>| negative.collect::<Vec<_>>();
        let is_number = |place: &usize| !want.numbers[*place].is_nan();
        let places: Vec<usize> = (0..values.len()).filter(is_number).collect();
        assert_eq!(
            signs(&mut places.iter().map(|&i| got.0[i].is_sign_negative())),
            signs(&mut places.iter().map(|&i| want.numbers[i].is_sign_negative())),
            "{what}"
        );
        let again = run(stream, x)?;
        compare::bitwise_equal(&what, &got.0, &again.0)?;
        compare::bitwise_equal(&what, &got.1, &again.1)?;
    }
    Ok(())
}

/// Rows and parts of rows of hostile numbers.
fn hostile<T: testkit::Element>([rows, columns]: [usize; 2], seed: u64) -> Vec<T> {
    let mut random = Random::new(seed);
    let families = [
        Family::Normal,
        Family::HugeTiny,
        Family::Special,
        Family::Subnormal,
        Family::SmallIntegers,
        Family::Uniform,
    ];
    let mut values: Vec<T> = Vec::with_capacity(rows * columns);
    for row in 0..rows {
        // Rows of a block have a family in common half of the time, so that a block may be of one.
        let family = if row % 2 == 0 { row / BLOCK + seed as usize } else { random.integer(0, 5) as usize };
        values.extend(input::<T>(families[family % families.len()], seed + row as u64, columns));
        let start = row * columns;
        for first in (0..columns).step_by(BLOCK) {
            let tile = &mut values[start + first..start + (first + BLOCK).min(columns)];
            match random.integer(0, 11) {
                0 => tile.fill(T::from_f64(0.0)),
                1 => tile.fill(T::from_f64(-0.0)),
                2 => tile.fill(T::from_f64(f64::NAN)),
                3 => tile[0] = T::from_f64(f64::INFINITY),
                4 => tile.fill(T::from_f64(f64::NEG_INFINITY)),
                _ => {}
            }
        }
    }
    values
}

fn agrees<T: Element + testkit::Element + Into<f64>>() -> Outcome {
    let stream = stream()?;
    let shapes = [
        // Nothing; one element; one tile and its neighbours; vectors of 16 bytes, and what is none.
        [0, 5],
        [5, 0],
        [1, 1],
        [3, 128],
        [5, 127],
        [2, 129],
        [130, 136],
        [128, 8],
        [300, 1],
        [129, 300],
        // More tiles than a block of threads takes at a time.
        [37, 1000],
        [2, 9004],
    ];
    for (seed, sides @ [rows, columns]) in shapes.into_iter().enumerate() {
        for (name, values) in [
            ("hostile", hostile::<T>(sides, seed as u64)),
            ("normal", input(Family::Normal, seed as u64, rows * columns)),
        ] {
            for &lying in if rows * columns == 0 { &[Lying::Dense][..] } else { Lying::of(columns) } {
                let x = lying.matrix(&stream, sides, &values)?;
                let what = format!("{name} {} {sides:?} {lying:?}", <T as Element>::DTYPE);
                check(&stream, &what, &x, &exact(&values))?;
            }
        }
        // Columns that are no neighbours, and rows that are the same one.
        if rows * columns > 0 {
            let values = input::<T>(Family::Normal, 77, rows * columns);
            let turned = Tensor::from_slice(&stream, &[columns, rows], &values)?.transpose(0, 1)?;
            let of_turned = (0..rows * columns).map(|i| values[i % columns * rows + i / columns]);
            check(&stream, "turned", &turned, &exact(&of_turned.collect::<Vec<_>>()))?;
            let row = Tensor::from_slice(&stream, &[1, columns], &values[..columns])?;
            let repeated = row.broadcast_to(&[rows, columns])?;
            check(&stream, "repeated", &repeated, &exact(&values[..columns]).repeat(rows))?;
        }
    }
    Ok(())
}

tests!(agrees: f32_agrees = f32, f16_agrees = f16, bf16_agrees = bf16);

/// Matrices of a stack, dense and apart: of each as of itself alone.
#[test]
fn matrices_have_blocks_of_their_own() -> Outcome {
    let stream = stream()?;
    for (columns, pitch) in [(136, 144), (136, 136), (130, 131), (1, 3)] {
        let (matrices, rows) = (3, 150);
        let values = hostile::<bf16>([matrices * (rows + 2), pitch], 5);
        let all = Tensor::from_slice(&stream, &[matrices, rows + 2, pitch], &values)?;
        let x = all.slice(1, 1..=rows)?.slice(2, ..columns)?;
        let got = blocks(&stream, &x)?;
        let mut want: Got = (Vec::new(), Vec::new());
        for matrix in 0..matrices {
            let (numbers, factors) = blocks(&stream, &x.select(0, matrix)?)?;
            want.0.extend(numbers);
            want.1.extend(factors);
        }
        let what = format!("{columns} of {pitch}");
        compare::bitwise_equal(&what, &got.0, &want.0)?;
        compare::bitwise_equal(&what, &got.1, &want.1)?;
    }
    for sides in [[0, 3, 4], [3, 0, 4], [3, 4, 0]] {
        assert_eq!(blocks(&stream, &Tensor::zeros(&stream, &sides, DType::F32)?)?, (vec![], vec![]));
    }
    Ok(())
}

/// Elements around the middles between numbers, and around the numbers, of factors of any digits and over
/// the whole range: they are rounded as a quotient is.
#[test]
fn quotients_are_rounded_as_by_a_division() -> Outcome {
    let stream = stream()?;
    let mut random = Random::new(3);
    let rows = 600;
    let mut values = Vec::new();
    for row in 0..rows {
        let exponent = random.integer(-140, 127) as i32;
        // A factor whose digits are all 1 is the hardest, and no factor of few digits.
        let largest = if row % 8 == 0 { 14.0 - 0.5f64.powi(20) } else { random.uniform(1.0, 2.0) };
        let largest = (largest * 2f64.powi(exponent.min(124))) as f32;
        let factor = (largest / 448.0).max(f32::MIN_POSITIVE);
        values.push(largest);
        for place in 1..BLOCK {
            let middle = f64::from(16 + place as u32 % 16) * 2f64.powi(random.integer(-15, 4) as i32);
            let near = (middle * f64::from(factor)).min(f64::from(largest)) as f32;
            let step = random.integer(-2, 2) as i32;
            let near = f32::from_bits(near.to_bits().saturating_add_signed(step)).min(largest);
            values.push(if random.sign() < 0.0 { -near } else { near });
        }
    }
    let x = Tensor::from_slice(&stream, &[rows, BLOCK], &values)?;
    check(&stream, "middles", &x, &exact(&values))
}

#[test]
fn wrong_calls_say_what_to_do() -> Outcome {
    let stream = stream()?;
    let zeros = |shape: &[usize], dtype| Tensor::zeros(&stream, shape, dtype);
    for shape in [&[4][..], &[2, 2, 2]] {
        let error = quantize_tiles(&stream, &zeros(shape, DType::F32)?).expect_err("no matrix");
        assert!(matches!(error.tensor_error(), Some(TensorError::Shape { what: "x", .. })), "{error}");
    }
    for shape in [&[4][..], &[2, 2, 2, 2]] {
        let error = quantize_blocks(&stream, &zeros(shape, DType::F32)?).expect_err("no matrices");
        assert!(matches!(error.tensor_error(), Some(TensorError::Shape { what: "x", .. })), "{error}");
    }
    for sides in [[2, 2], [0, 2]] {
        let x = zeros(&sides, DType::F64)?;
        let errors = [quantize_tiles(&stream, &x).map(drop), quantize_blocks(&stream, &x).map(drop)];
        for error in errors.map(|result| result.expect_err("no kernel of f64")) {
            assert!(matches!(error.tensor_error(), Some(TensorError::DType { what: "x", .. })), "{error}");
        }
    }
    // Rows that are all the same one can be more than are counted.
    let many = zeros(&[1, 1], DType::F32)?.broadcast_to(&[1 << 31, 1])?;
    for error in [quantize_tiles(&stream, &many).map(drop), quantize_blocks(&stream, &many).map(drop)] {
        let error = error.expect_err("too many rows");
        assert!(matches!(error.tensor_error(), Some(TensorError::TooLarge { .. })), "{error}");
    }
    Ok(())
}
