//! Group norm and batch norm against their oracle, wherever the channels are, and their gradients.

use crate::common::{Outcome, tests};
use half::{bf16, f16};
use ironwarp::ops::row::{
    BatchNorm, ChannelAffine, ChannelAxis, FixedStatistics, GroupNorm, RunningStatistics,
};
use ironwarp::tensor::Element;
use ironwarp::{DType, Device, Error, Stream, Tensor, TensorError};
use reference::Accumulated;
use reference::channels::{ChannelNorm, Gradients, Statistics};
use testkit::{Family, compare, input, tolerance};

const EPS: f64 = 1e-3;

/// Images, channels and positions, and channels of a group. No images; one element a channel; channels by
/// vectors and one by one, of one block and of several; positions in one part and in several.
const SHAPES: [([usize; 3], usize); 8] = [
    ([0, 4, 3], 2),
    ([5, 8, 1], 4),
    ([2, 6, 5], 3),
    ([3, 5, 49], 5),
    ([2, 32, 33], 8),
    ([1, 301, 9], 7),
    ([1, 2056, 2], 257),
    ([1, 4, 4500], 2),
];

/// How the tensor lies in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Lying {
    /// `[images, channels, ..]`.
    Second,
    /// The same, but all begins an element late.
    Shifted,
    /// `[images, .., channels]`.
    Last,
    /// A view `[images, channels, ..]` of that.
    Turned,
}

const LYINGS: [Lying; 4] = [Lying::Second, Lying::Shifted, Lying::Last, Lying::Turned];

impl Lying {
    fn axis(self) -> ChannelAxis {
        if self == Self::Last { ChannelAxis::Last } else { ChannelAxis::Second }
    }

    /// From `[images, channels, positions]`.
    fn tensor<T: Element>(self, stream: &Stream, sides: [usize; 3], values: &[T]) -> Result<Tensor, Error> {
        let [images, channels, positions] = sides;
        match self {
            Self::Second => Tensor::from_slice(stream, &sides, values),
            Self::Shifted => {
                let padded: Vec<T> = values.first().into_iter().chain(values).copied().collect();
                let shifted = Tensor::from_slice(stream, &[padded.len()], &padded)?;
                shifted.slice(0, padded.len() - values.len()..)?.view_as(&sides)
            }
            Self::Last | Self::Turned => {
                let at = |i: usize| {
                    let (image, position, channel) =
                        (i / channels / positions, i / channels % positions, i % channels);
                    values[(image * channels + channel) * positions + position]
                };
                let turned: Vec<T> = (0..values.len()).map(at).collect();
                let last = Tensor::from_slice(stream, &[images, positions, channels], &turned)?;
                if self == Self::Last { Ok(last) } else { last.transpose(1, 2) }
            }
        }
    }

    /// As `[images, channels, positions]`.
    fn values<T: Element + Into<f64>>(self, stream: &Stream, y: &Tensor) -> Result<Vec<f64>, Error> {
        let y = if self == Self::Last { y.transpose(1, 2)? } else { y.clone() };
        Ok(exact(&y.contiguous()?.to_vec::<T>(stream)?))
    }
}

fn exact<T: Copy + Into<f64>>(values: &[T]) -> Vec<f64> {
    values.iter().map(|&v| v.into()).collect()
}

fn name<T: Element>(what: &str) -> tolerance::Row {
    tolerance::find(&format!("{what} {}", T::DTYPE))
}

/// Operands of a norm.
struct Case<T> {
    sides: [usize; 3],
    group: usize,
    x: Vec<T>,
    dy: Vec<T>,
    weight: Vec<T>,
    bias: Vec<T>,
}

impl<T: Element + testkit::Element + Into<f64>> Case<T> {
    fn new(family: Family, seed: u64, (sides, group): ([usize; 3], usize)) -> Self {
        let all = sides.iter().product();
        Self {
            sides,
            group,
            x: input(family, seed, all),
            dy: input(Family::Normal, seed + 50, all),
            weight: input(Family::Normal, seed + 100, sides[1]),
            bias: input(Family::Normal, seed + 150, sides[1]),
        }
    }

    /// The oracle, with these shared numbers.
    fn oracle<'a>(&self, is_joined: bool, [weight, bias]: [&'a [f64]; 2]) -> ChannelNorm<'a> {
        let (sides, group) = (self.sides, if is_joined { 1 } else { self.group });
        ChannelNorm { sides, group, is_joined, weight: Some(weight), bias: Some(bias), eps: EPS }
    }

    fn near(
        &self,
        what: &str,
        got: &[f64],
        want: &Accumulated,
        limit: tolerance::Row,
        terms: usize,
    ) -> Outcome {
        let limit = limit.for_terms(terms.max(1));
        compare::accumulated(what, got, &want.value, &want.magnitude, &[got.len()], limit)?;
        Ok(())
    }

    fn gradients_agree(
        &self,
        stream: &Stream,
        (what, lying): (&str, Lying),
        got: &ironwarp::ops::row::NormGradients,
        want: &Gradients,
    ) -> Outcome {
        let [images, channels, positions] = self.sides;
        let terms = images * channels * positions;
        let of_x = lying.values::<T>(stream, &got.x)?;
        self.near(&format!("dx of {what}"), &of_x, &want.x, name::<T>("norm_backward"), terms)?;
        let limit = name::<T>("norm_backward_sums");
        for (which, got, want) in [("weight", &got.weight, &want.weight), ("bias", &got.bias, &want.bias)] {
            let got = exact(&got.as_ref().ok_or("it was wanted")?.to_vec::<T>(stream)?);
            self.near(&format!("d{which} of {what}"), &got, want, limit, images * positions)?;
        }
        Ok(())
    }

    /// Forward and backward, by groups or by the whole batch.
    fn agrees(&self, stream: &Stream, lying: Lying, is_joined: bool) -> Outcome {
        let [images, channels, positions] = self.sides;
        if is_joined && images * positions == 1 {
            return Ok(());
        }
        let what = format!("{:?} {lying:?} joined {is_joined} of {}", self.sides, <T as Element>::DTYPE);
        let shared = |values: &[T]| Tensor::from_slice(stream, &[channels], values);
        let (weight, bias) = (shared(&self.weight)?, shared(&self.bias)?);
        let affine = ChannelAffine { axis: lying.axis(), weight: Some(&weight), bias: Some(&bias), eps: EPS };
        let (x, dy) =
            (lying.tensor(stream, self.sides, &self.x)?, lying.tensor(stream, self.sides, &self.dy)?);
        let (group, batch) = (GroupNorm { groups: channels / self.group, affine }, BatchNorm { affine });
        let normed = if is_joined { batch.train(stream, &x, None)? } else { group.run(stream, &x)? };
        let got = if is_joined {
            batch.backward(stream, &x, &dy, &normed.moments, [true, true])?
        } else {
            group.backward(stream, &x, &dy, &normed.moments, [true, true])?
        };
        let (exact_weight, exact_bias) = (exact(&self.weight), exact(&self.bias));
        let oracle = self.oracle(is_joined, [&exact_weight, &exact_bias]);
        let (of_x, of_dy) = (exact(&self.x), exact(&self.dy));
        let by = oracle.statistics(&of_x);
        assert_eq!(normed.y.shape(), x.shape());
        let y = lying.values::<T>(stream, &normed.y)?;
        self.near(&what, &y, &oracle.norm(&of_x, &by), name::<T>("layer_norm"), y.len())?;
        self.gradients_agree(stream, (&what, lying), &got, &oracle.backward(&of_x, &of_dy, &by, false))
    }
}

fn agree<T: Element + testkit::Element + Into<f64>>() -> Outcome {
    let stream = Device::open(0)?.stream()?;
    for (seed, shape) in SHAPES.into_iter().enumerate() {
        let case = Case::<T>::new(Family::Normal, seed as u64, shape);
        for lying in LYINGS {
            for is_joined in [false, true] {
                case.agrees(&stream, lying, is_joined)?;
            }
        }
    }
    Ok(())
}

tests!(agree: norms_of_f32 = f32, norms_of_f16 = f16, norms_of_bf16 = bf16);

/// Means far from zero, and numbers of all magnitudes: variances do not cancel.
#[test]
fn hostile_numbers() -> Outcome {
    let stream = Device::open(0)?.stream()?;
    for (family, seed) in [(Family::Cancelling, 1), (Family::Subnormal, 2), (Family::HugeTiny, 3)] {
        let case = Case::<bf16>::new(family, seed, ([3, 8, 700], 4));
        for lying in [Lying::Second, Lying::Last] {
            for is_joined in [false, true] {
                case.agrees(&stream, lying, is_joined)?;
            }
        }
    }
    let mut far = Case::<f32>::new(Family::Normal, 4, ([2, 8, 700], 4));
    far.x.iter_mut().for_each(|x| *x += 1000.0);
    // The first element is where the differences are taken from.
    far.x[0] = 1e6;
    for lying in [Lying::Second, Lying::Last] {
        far.agrees(&stream, lying, false)?;
        far.agrees(&stream, lying, true)?;
    }
    Ok(())
}

/// Constant channels have a deviation of 0: the results are the bias, to the bit. A NaN or an infinity makes
/// its own group NaN, and no other.
#[test]
fn constants_and_numbers_that_are_none() -> Outcome {
    let stream = Device::open(0)?.stream()?;
    let (sides @ [_, channels, positions], groups) = ([2, 6, 300], 3);
    for lying in LYINGS {
        let bias = Tensor::from_slice(&stream, &[channels], &[0.25f32, -1.0, 2.0, 3.0, 4.0, 5.0])?;
        let affine = ChannelAffine { axis: lying.axis(), bias: Some(&bias), ..ChannelAffine::default() };
        let constant = vec![0.1f32; sides.iter().product()];
        let y = GroupNorm { groups, affine }.run(&stream, &lying.tensor(&stream, sides, &constant)?)?.y;
        let y = lying.values::<f32>(&stream, &y)?;
        let biases = [0.25, -1.0, 2.0, 3.0, 4.0, 5.0];
        assert!(y.iter().enumerate().all(|(i, &y)| y == biases[i / positions % channels]), "{lying:?}");
        for bad in [f32::NAN, f32::INFINITY] {
            let mut values = input::<f32>(Family::Normal, 5, sides.iter().product());
            // In the second group of the second image.
            values[(channels + 3) * positions + 7] = bad;
            let x = lying.tensor(&stream, sides, &values)?;
            let y = GroupNorm { groups, affine }.run(&stream, &x)?.y;
            let y = lying.values::<f32>(&stream, &y)?;
            let is_bad = |i: usize| (channels + 2..channels + 4).contains(&(i / positions));
            assert!(y.iter().enumerate().all(|(i, y)| y.is_nan() == is_bad(i)), "{lying:?} {bad}");
        }
    }
    Ok(())
}

#[test]
fn tensors_without_channels() -> Outcome {
    let stream = Device::open(0)?.stream()?;
    for (axis, sides) in [(ChannelAxis::Second, [2, 0, 4]), (ChannelAxis::Last, [2, 4, 0])] {
        let x = Tensor::zeros(&stream, &sides, DType::F32)?;
        let affine = ChannelAffine { axis, ..ChannelAffine::default() };
        for groups in [1, 3] {
            let norm = GroupNorm { groups, affine };
            let normed = norm.run(&stream, &x)?;
            assert_eq!((normed.y.shape(), normed.moments.shape().sides()), (x.shape(), &[2, 0][..]));
            let gradients = norm.backward(&stream, &x, &x, &normed.moments, [true, true])?;
            assert_eq!(gradients.x.shape(), x.shape());
            assert!([gradients.weight, gradients.bias].iter().flatten().all(Tensor::is_empty));
        }
    }
    Ok(())
}

/// Errors name shapes as they were given, wherever channels lie.
#[test]
fn a_gradient_of_another_shape_is_refused() -> Outcome {
    let stream = Device::open(0)?.stream()?;
    for axis in [ChannelAxis::Second, ChannelAxis::Last] {
        let norm = GroupNorm { groups: 1, affine: ChannelAffine { axis, ..ChannelAffine::default() } };
        let x = Tensor::zeros(&stream, &[2, 3, 4, 5], DType::F32)?;
        let moments = norm.run(&stream, &x)?.moments;
        for sides in [&[2, 3, 4, 6][..], &[2, 3, 20]] {
            let dy = Tensor::zeros(&stream, sides, DType::F32)?;
            let error = norm.backward(&stream, &x, &dy, &moments, [true, true]).expect_err("another shape");
            let given = match error.tensor_error() {
                Some(TensorError::Shape { what: "dy", got, wanted, .. }) => {
                    got.sides() == sides && *wanted == x.shape().to_string()
                }
                _ => false,
            };
            assert!(given, "{axis:?}: {error}");
        }
    }
    Ok(())
}

/// Running statistics follow the batch's, and inference takes them; so do its gradients.
#[test]
fn running_statistics() -> Outcome {
    let stream = Device::open(0)?.stream()?;
    let case = Case::<bf16>::new(Family::Normal, 7, ([3, 16, 40], 1));
    let count = 120.0;
    let (weight, bias) = (exact(&case.weight), exact(&case.bias));
    let oracle = case.oracle(true, [&weight, &bias]);
    let (of_x, of_dy) = (exact(&case.x), exact(&case.dy));
    let of_batch = oracle.statistics(&of_x);
    let (means, variances) = ([0.5f32; 16], [2.0f32; 16]);
    for lying in [Lying::Second, Lying::Last] {
        let shared = |values: &[bf16]| Tensor::from_slice(&stream, &[16], values);
        let (weight, bias) = (shared(&case.weight)?, shared(&case.bias)?);
        let affine = ChannelAffine { axis: lying.axis(), weight: Some(&weight), bias: Some(&bias), eps: EPS };
        let norm = BatchNorm { affine };
        let x = lying.tensor(&stream, case.sides, &case.x)?;
        let dy = lying.tensor(&stream, case.sides, &case.dy)?;
        let mut mean = Tensor::from_slice(&stream, &[16], &means)?;
        let mut variance = Tensor::from_slice(&stream, &[16], &variances)?;
        let running =
            RunningStatistics { mean: mean.view_mut()?, variance: variance.view_mut()?, momentum: 0.25 };
        norm.train(&stream, &x, Some(running))?;
        let got = [mean.to_vec::<f32>(&stream)?, variance.to_vec::<f32>(&stream)?];
        for channel in 0..16 {
            let corrected = of_batch.variances[channel] * count / (count - 1.0);
            let want = [0.75 * 0.5 + 0.25 * of_batch.means[channel], 0.75 * 2.0 + 0.25 * corrected];
            for (got, want) in [(got[0][channel], want[0]), (got[1][channel], want[1])] {
                assert!((f64::from(got) - want).abs() < 1e-6, "channel {channel}: {got}, not {want}");
            }
        }
        let by = Statistics {
            means: exact(&got[0]),
            variances: exact(&got[1]),
            magnitudes: got[0].iter().map(|mean| f64::from(mean.abs())).collect(),
        };
        let fixed = FixedStatistics { mean: &mean, variance: &variance };
        let y = lying.values::<bf16>(&stream, &norm.infer(&stream, &x, fixed)?)?;
        case.near("infer", &y, &oracle.norm(&of_x, &by), name::<bf16>("layer_norm"), y.len())?;
        let gradients = norm.infer_backward(&stream, &x, &dy, fixed, [true, true])?;
        let want = oracle.backward(&of_x, &of_dy, &by, true);
        case.gradients_agree(&stream, ("infer", lying), &gradients, &want)?;
        let alone = norm.infer_backward(&stream, &x, &dy, fixed, [false, false])?;
        let [all, alone] = [&gradients.x, &alone.x].map(|dx| dx.to_vec::<bf16>(&stream));
        compare::bitwise_equal("dx alone", &all?, &alone?)?;
    }
    Ok(())
}
