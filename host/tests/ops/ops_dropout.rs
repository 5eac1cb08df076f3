//! Dropout against its oracle, which draws the same random numbers by itself. On whichever driver is there.

use crate::common::{Outcome, stream};
use half::{bf16, f16};
use ironwarp::ops::convert::convert;
use ironwarp::ops::dropout::{Generator, dropout};
use ironwarp::tensor::Element;
use ironwarp::{DType, Error, Tensor, TensorError};
use reference::random::dropout as oracle;
use testkit::{Family, Tolerance, compare, input, tolerance};

const LENGTHS: [usize; 9] = [0, 1, 7, 8, 9, 255, 2048, 2056, 4099];

fn case<T: Element + testkit::Element + Into<f64>>(limit: Tolerance) -> Outcome {
    let stream = stream()?;
    for family in [Family::Normal, Family::Subnormal, Family::HugeTiny] {
        for (number, len) in LENGTHS.into_iter().enumerate() {
            // Begins one element behind an aligned address, and at one.
            for shift in [0, 1] {
                let x = input::<T>(family, number as u64, len + shift);
                let held = Tensor::from_slice(&stream, &[len + shift], &x)?.slice(0, shift..)?;
                let (seed, steps) = (0x0123_4567_89ab_cdef ^ number as u64, number as u64 % 3);
                let mut generator = Generator::new(&stream, seed)?;
                for _ in 0..steps {
                    generator.advance(&stream)?;
                }
                let wide: Vec<f64> = x[shift..].iter().map(|&x| x.into()).collect();
                for probability in [0.0, 0.25, 0.5, 1.0 - 1.0 / 65536.0] {
                    let got = dropout(&stream, &held, probability, &generator, number as u32)?;
                    // Beyond the type's range there is infinity.
                    let want: Vec<f64> =
                        oracle(&wide, probability, seed, steps, number as u32)
                            .into_iter()
                            .map(|x| {
                                if T::from_f64(x).to_f64().is_infinite() {
                                    T::from_f64(x).to_f64()
                                } else {
                                    x
                                }
                            })
                            .collect();
                    let what = format!("{} {family:?}, {len} elements, {probability}", T::DTYPE);
                    compare::elementwise(&what, &got.to_vec::<T>(&stream)?, &want, &[len], limit)?;
                }
            }
        }
    }
    Ok(())
}

#[test]
fn elements_are_dropped_and_scaled() -> Outcome {
    case::<f32>(tolerance::DROPOUT_F32.tolerance())?;
    case::<f16>(tolerance::DROPOUT_F16.tolerance())?;
    case::<bf16>(tolerance::DROPOUT_BF16.tolerance())
}

#[test]
fn forward_and_backward_drop_the_same() -> Outcome {
    let stream = stream()?;
    let mut generator = Generator::new(&stream, 1)?;
    let ones = Tensor::from_slice(&stream, &[5000], &[1.0f32; 5000])?;
    let draw = |generator: &Generator, call: u32| -> Result<Vec<f32>, Error> {
        dropout(&stream, &ones, 0.3, generator, call)?.to_vec(&stream)
    };
    let (first, other) = (draw(&generator, 0)?, draw(&generator, 1)?);
    compare::bitwise_equal("backward", &draw(&generator, 0)?, &first)?;
    // The same elements of another type, turned around.
    let short = convert(&stream, &ones, DType::BF16)?.view_as(&[50, 100])?;
    let kept = dropout(&stream, &short, 0.3, &generator, 0)?.to_vec::<bf16>(&stream)?;
    assert!(kept.iter().zip(&first).all(|(a, b)| (a.to_f32() == 0.0) == (*b == 0.0)));
    generator.advance(&stream)?;
    let later = draw(&generator, 0)?;
    // 1500 are expected; a deviation is 32.
    for values in [&first, &other, &later] {
        let dropped = values.iter().filter(|&&x| x == 0.0).count();
        assert!(dropped.abs_diff(1500) < 160, "{dropped}");
    }
    assert!(first != other && first != later && other != later);
    // Whatever is dropped is 0; all are.
    let hostile = Tensor::from_slice(&stream, &[3], &[f32::NAN, f32::INFINITY, 1.0])?;
    assert_eq!(dropout(&stream, &hostile, 1.0, &generator, 0)?.to_vec::<f32>(&stream)?, [0.0; 3]);
    let got = dropout(&stream, &hostile, 0.0, &generator, 0)?.to_vec::<f32>(&stream)?;
    assert!(got[0].is_nan() && got[1..] == [f32::INFINITY, 1.0]);
    Ok(())
}

#[test]
fn wrong_calls_say_what_to_do() -> Outcome {
    let stream = stream()?;
    let generator = Generator::new(&stream, 1)?;
    let x = Tensor::zeros(&stream, &[3], DType::F32)?;
    for bad in [-0.1, 1.1, f64::NAN] {
        let error = dropout(&stream, &x, bad, &generator, 0).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { argument: "probability", .. }), "{error}");
        assert!(error.to_string().contains("\nhint: "), "{error}");
    }
    let whole = Tensor::zeros(&stream, &[3], DType::I64)?;
    let error = dropout(&stream, &whole, 0.5, &generator, 0).unwrap_err();
    assert!(matches!(error.tensor_error(), Some(TensorError::DType { what: "x", .. })), "{error}");
    Ok(())
}
