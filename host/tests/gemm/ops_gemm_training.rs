//! Products of a training step against the oracle: values before an activation, its gradient, and the bias'.

use half::{bf16, f16};
use ironwarp::ops::gemm::{Activation, activated, activated_backward};
use ironwarp::tensor::{DType, Element as TensorElement};
use ironwarp::{Device, Error, Stream, Tensor};
use reference::Accumulated;
use reference::matmul::{Activation as Exact, Epilogue, Strided, matmul, slope};
use std::error::Error as StdError;
use testkit::{Element, Family, Tolerance, compare, input, tolerance};

type Outcome<T = ()> = Result<T, Box<dyn StdError>>;

/// An element type of operands.
trait Number: Element + TensorElement + Into<f64> {}
impl<T: Element + TensorElement + Into<f64>> Number for T {}

/// A stream of a device that runs the kernels: compute capability 9.0, and no other.
fn open() -> Outcome<Option<Stream>> {
    let device = Device::open(0)?;
    if device.arch().is_hopper() {
        return Ok(Some(device.stream()?));
    }
    testkit::skip(&format!("{} is no Hopper", device.name()));
    Ok(None)
}

#[derive(Debug, Clone, Copy)]
struct Case {
    family: Family,
    /// m, n, k.
    sides: [usize; 3],
    activation: Activation,
    has_bias: bool,
}

const PLAIN: Case =
    Case { family: Family::Normal, sides: [130, 136, 72], activation: Activation::GeluTanh, has_bias: true };

/// Rows one behind the other, or those of the transpose.
fn rows<T>(data: &[T], row: usize, is_transposed: bool) -> Strided<'_, T> {
    let (row, column) = if is_transposed { (1, row) } else { (row, 1) };
    Strided { data, row, column, matrix: 0 }
}

impl Case {
    fn tolerance(&self, terms: usize) -> Tolerance {
        let is_exact = matches!(self.activation, Activation::None | Activation::Relu);
        if is_exact && self.family == Family::SmallIntegers {
            return Tolerance::EXACT;
        }
        tolerance::GEMM_TENSOR.for_terms(terms)
    }

    fn check<T: Number + PartialEq>(&self) -> Outcome {
        let Some(stream) = open()? else { return Ok(()) };
        self.check_forward::<T>(&stream)?;
        self.check_backward::<T>(&stream)
    }

    fn check_forward<T: Number>(&self, stream: &Stream) -> Outcome {
        let Case { family, sides: [m, n, k], activation, has_bias } = *self;
        let (x, weight) = (input::<T>(family, 1, m * k), input::<T>(family, 2, n * k));
        let numbers = input::<T>(family, 3, n);
        let bias = has_bias.then_some(&numbers[..]);
        let of = |activation| {
            let epilogue = Epilogue::<T, T> { bias, activation, ..Epilogue::NONE };
            matmul([1, m, n, k], rows(&x, k, false), rows(&weight, k, true), epilogue)
        };
        let (before, result) = (of(Exact::Identity), of(Exact::named(activation.name())));
        let upload = |data: &[T], sides: &[usize]| Tensor::from_slice(stream, sides, data);
        let bias = bias.map(|bias| upload(bias, &[n])).transpose()?;
        let got =
            activated(stream, &upload(&x, &[m, k])?, &upload(&weight, &[n, k])?, bias.as_ref(), activation)?;
        let row = self.tolerance(k + 4);
        for (name, got, want) in [("before", &got.before, before), ("result", &got.result, result)] {
            let got = got.to_vec::<T>(stream)?;
            let what = format!("{name} of {self:?}");
            compare::rounded(&what, &got, &want.value, &want.magnitude, &[m, n], row)?;
        }
        Ok(())
    }

    /// The gradients, twice.
    fn check_backward<T: Number + PartialEq>(&self, stream: &Stream) -> Outcome {
        let Case { family, sides: [m, n, k], activation, .. } = *self;
        let (gradient, weight) = (input::<T>(family, 4, m * k), input::<T>(family, 5, k * n));
        let before = input::<T>(family, 6, m * n);
        let epilogue = Epilogue::<T, T>::NONE;
        let product = matmul([1, m, n, k], rows(&gradient, k, false), rows(&weight, n, false), epilogue);
        let slopes = before.iter().map(|&x| slope(Exact::named(activation.name()), x.into()));
        // No slope is above 1.13.
        let value: Vec<f64> = product.value.iter().zip(slopes).map(|(value, slope)| value * slope).collect();
        let magnitude: Vec<f64> = product.magnitude.iter().map(|scale| 1.13 * scale).collect();
        let sum = |of: &[f64]| (0..n).map(|column| (0..m).map(|row| of[row * n + column]).sum()).collect();
        let sums = Accumulated { value: sum(&value), magnitude: sum(&magnitude) };

        let upload = |data: &[T], sides: &[usize]| Tensor::from_slice(stream, sides, data);
        let (dy, w, kept) =
            (upload(&gradient, &[m, k])?, upload(&weight, &[k, n])?, upload(&before, &[m, n])?);
        let run = || -> Outcome<(Vec<T>, Vec<f32>)> {
            let got = activated_backward(stream, &dy, &w, &kept, activation)?;
            Ok((got.before.to_vec(stream)?, got.bias.to_vec(stream)?))
        };
        let (got, of_bias) = run()?;
        assert!((got.clone(), of_bias.clone()) == run()?, "other bits in another run of {self:?}");
        let (what, row) = (format!("gradient of {self:?}"), self.tolerance(k + 4));
        compare::rounded(&what, &got, &value, &magnitude, &[m, n], row)?;
        let (what, row) = (format!("bias' gradient of {self:?}"), self.tolerance(k + m));
        compare::rounded(&what, &of_bias, &sums.value, &sums.magnitude, &[n], row)?;
        Ok(())
    }
}

#[test]
fn every_activation() -> Outcome {
    let activations = Activation::ALL.iter().filter(|activation| activation.columns() == 1);
    for &activation in activations {
        Case { activation, ..PLAIN }.check::<bf16>()?;
    }
    Case { activation: Activation::Silu, ..PLAIN }.check::<f16>()
}

/// Sums of integers are exact, whatever rows and columns are left over.
#[test]
fn tails_of_every_side() -> Outcome {
    for sides in [[1, 8, 8], [128, 128, 64], [77, 264, 200], [300, 48, 40], [16, 16, 8], [0, 16, 16]] {
        let case =
            Case { family: Family::SmallIntegers, sides, activation: Activation::Relu, has_bias: true };
        case.check::<bf16>()?;
        Case { activation: Activation::None, has_bias: false, ..case }.check::<f16>()?;
    }
    Ok(())
}

#[test]
fn small_and_cancelling_numbers() -> Outcome {
    Case { family: Family::Cancelling, ..PLAIN }.check::<bf16>()?;
    Case { family: Family::Uniform, activation: Activation::Gelu, ..PLAIN }.check::<f16>()
}

/// NaN stays in its row, but for sums of columns.
#[test]
fn no_numbers_stay_in_their_rows() -> Outcome {
    let Some(stream) = open()? else { return Ok(()) };
    let (m, n, k) = (20, 16, 8);
    let mut dy = input::<bf16>(Family::Normal, 1, m * k);
    dy[5 * k + 3] = bf16::NAN;
    let of = |sides: &[usize]| {
        Tensor::from_slice(&stream, sides, &input::<bf16>(Family::Normal, 2, sides.iter().product()))
    };
    let dy = Tensor::from_slice(&stream, &[m, k], &dy)?;
    let got = activated_backward(&stream, &dy, &of(&[k, n])?, &of(&[m, n])?, Activation::Silu)?;
    for (place, value) in got.before.to_vec::<bf16>(&stream)?.into_iter().enumerate() {
        assert_eq!(value.is_nan(), place / n == 5, "{place}");
    }
    assert!(got.bias.to_vec::<f32>(&stream)?.iter().all(|sum| sum.is_nan()));
    Ok(())
}

/// Views with gaps are copied.
#[test]
fn operands_lie_anyhow() -> Outcome {
    let Some(stream) = open()? else { return Ok(()) };
    let (m, n, k) = (24, 16, 8);
    let of = |seed, sides: &[usize]| {
        Tensor::from_slice(&stream, sides, &input::<bf16>(Family::Normal, seed, sides.iter().product()))
    };
    let (x, weight) = (of(1, &[m, k + 1])?.narrow(1, 1, k)?, of(2, &[k, n])?.t()?);
    let got = activated(&stream, &x, &weight, None, Activation::Silu)?;
    let want = activated(&stream, &x.contiguous()?, &weight.contiguous()?, None, Activation::Silu)?;
    assert_eq!(got.result.to_vec::<bf16>(&stream)?, want.result.to_vec::<bf16>(&stream)?);
    Ok(())
}

#[test]
fn wrong_calls_are_refused() -> Outcome {
    let Some(stream) = open()? else { return Ok(()) };
    let zeros = |sides: &[usize]| Tensor::zeros(&stream, sides, DType::BF16);
    let (x, weight, before) = (zeros(&[4, 8])?, zeros(&[16, 8])?, zeros(&[4, 16])?);
    let refused = |wanted: &str, error: Option<Error>| {
        let Some(error) = error else { panic!("{wanted}") };
        assert!(matches!(error, Error::InvalidArgument { argument, .. } if argument == wanted), "{error}");
    };
    let gelu = Activation::Gelu;
    let forward = |x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, activation| {
        activated(&stream, x, weight, bias, activation).err()
    };
    refused("x", forward(&zeros(&[8])?, &weight, None, gelu));
    refused("x", forward(&x.to(DType::F32)?, &weight, None, gelu));
    refused("the weight", forward(&x, &before, None, gelu));
    refused("the weight", forward(&x, &weight.to(DType::F16)?, None, gelu));
    refused("the bias", forward(&x, &weight, Some(&zeros(&[8])?), gelu));
    refused("the activation", forward(&x, &weight, None, Activation::SwiGlu));
    refused("n", forward(&x, &zeros(&[12, 8])?, None, gelu));
    refused("k", forward(&zeros(&[4, 0])?, &zeros(&[16, 0])?, None, gelu));
    let backward = |gradient: &Tensor, before: &Tensor| {
        activated_backward(&stream, gradient, &weight, before, gelu).err()
    };
    refused("the weight", backward(&x, &x));
    refused("the values before the activation", backward(&before, &before));
    Ok(())
}
