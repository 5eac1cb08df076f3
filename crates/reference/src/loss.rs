//! Oracles of losses, by PyTorch's names, and of their gradients.

use crate::Accumulated;
use crate::cross_entropy::SoftCrossEntropy;
use rayon::prelude::*;

/// Cross-entropy behind a linear layer, whose logits are rounded to the element type.
#[derive(Clone, Debug)]
pub struct LinearCrossEntropy {
    /// The loss of each row.
    pub losses: Accumulated,
    /// The gradient of the sum of losses, times a factor, by the input.
    pub x: Accumulated,
    /// By the weight.
    pub weight: Accumulated,
}

/// A row's loss, and its gradient by the logits.
struct OfRow {
    loss: [f64; 2],
    gradient: Accumulated,
}

/// Losses of the rows of `x`, of `inputs` elements each, by `weight`, and gradients that are multiplied by
/// `factor`. A row without a target counts for nothing.
///
/// The magnitudes have an error of each logit, relative to the magnitudes of its terms, in all that depends
/// on it.
pub fn linear_cross_entropy(
    loss: SoftCrossEntropy,
    x: &[f64],
    weight: &[f64],
    inputs: usize,
    targets: &[Option<usize>],
    factor: f64,
) -> LinearCrossEntropy {
    let classes = weight.len() / inputs;
    let rows: Vec<OfRow> = targets
        .par_iter()
        .enumerate()
        .map(|(row, target)| of_row(loss, &x[row * inputs..][..inputs], weight, *target, factor))
        .collect();
    let of_x = (0..rows.len() * inputs).into_par_iter().map(|place| {
        let (row, input) = (place / inputs, place % inputs);
        dot((0..classes).map(|class| (&rows[row].gradient, class, weight[class * inputs + input])))
    });
    let of_weight = (0..weight.len()).into_par_iter().map(|place| {
        let (class, input) = (place / inputs, place % inputs);
        dot((0..rows.len()).map(|row| (&rows[row].gradient, class, x[row * inputs + input])))
    });
    let unzip = |(value, magnitude)| Accumulated { value, magnitude };
    LinearCrossEntropy {
        losses: unzip(rows.iter().map(|row| (row.loss[0], row.loss[1])).unzip()),
        x: unzip(of_x.unzip()),
        weight: unzip(of_weight.unzip()),
    }
}

/// The sum of products, and that of their magnitudes.
fn dot<'a>(terms: impl Iterator<Item = (&'a Accumulated, usize, f64)>) -> (f64, f64) {
    terms.fold((0.0, 0.0), |(value, magnitude), (gradient, at, factor)| {
        (value + gradient.value[at] * factor, magnitude + gradient.magnitude[at] * factor.abs())
    })
}

fn of_row(loss: SoftCrossEntropy, x: &[f64], weight: &[f64], target: Option<usize>, factor: f64) -> OfRow {
    let products = |of: fn(f64) -> f64| -> Vec<f64> {
        weight.chunks(x.len()).map(|w| x.iter().zip(w).map(|(x, w)| of(x * w)).sum()).collect()
    };
    let (logits, sizes) = (products(|product| product), products(f64::abs));
    let Some(target) = target else {
        let nothing = vec![0.0; logits.len()];
        return OfRow {
            loss: [0.0, 0.0],
            gradient: Accumulated { value: nothing.clone(), magnitude: nothing },
        };
    };
    let targets: Vec<f64> = (0..logits.len()).map(|class| if class == target { 1.0 } else { 0.0 }).collect();
    let [lse, value, size] = loss.loss(&logits, &targets);
    let (gradient, shares) = (loss.gradient(&logits, &targets), loss.shares(&logits));
    // An error of the log-sum-exp is the mean of those of logits. A cap makes these smaller.
    let of_lse: f64 = (0..logits.len()).map(|class| shares[class] * sizes[class]).sum();
    let mean = sizes.iter().sum::<f64>() / sizes.len() as f64;
    let steep = 1.0 + 2.0 * loss.of.z_loss * lse.abs();
    let size = size + steep * of_lse + sizes[target] + loss.of.smoothing * mean;
    let magnitude = gradient.magnitude.iter().enumerate().map(|(class, own)| {
        let of_share = shares[class] * steep * (sizes[class] + of_lse);
        // The slope of a cap bends by less than its inverse.
        let of_slope = loss.cap.map_or(0.0, |cap| own * sizes[class] / cap);
        (own + of_share + of_slope + shares[class] * 2.0 * loss.of.z_loss * of_lse) * factor.abs()
    });
    let gradient = Accumulated {
        magnitude: magnitude.collect(),
        value: gradient.value.iter().map(|value| value * factor).collect(),
    };
    OfRow { loss: [value, size], gradient }
}

/// A loss of two numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pairwise {
    /// `(x - t)^2`.
    Mse,
    /// `|x - t|`.
    L1,
    /// `d^2 / 2` for `d = x - t` up to a width, beyond it `width (|d| - width / 2)`.
    Huber(f64),
    /// `d^2 / (2 width)` up to a width, beyond it `|d| - width / 2`.
    SmoothL1(f64),
    /// `-p t ln(sigmoid(x)) - (1 - t) ln(1 - sigmoid(x))`, of a weight `p` of positives.
    BceWithLogits(f64),
    /// `t (ln t - x)`, 0 for `t = 0`.
    KlDiv,
    /// `e^t (t - x)`.
    KlDivOfLogs,
}

/// `ln(1 + e^x)`.
fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

fn sigmoid(x: f64) -> f64 {
    if x < 0.0 { x.exp() / (1.0 + x.exp()) } else { 1.0 / (1.0 + (-x).exp()) }
}

impl Pairwise {
    /// The loss of `x` and `t`, and the scale of its rounding errors.
    pub fn loss(self, x: f64, t: f64) -> [f64; 2] {
        let d = (x - t).abs();
        let value = match self {
            Pairwise::Mse => d * d,
            Pairwise::L1 => d,
            Pairwise::Huber(width) if d <= width => 0.5 * d * d,
            Pairwise::Huber(width) => width * (d - 0.5 * width),
            Pairwise::SmoothL1(width) if d < width => 0.5 * d * d / width,
            Pairwise::SmoothL1(width) => d - 0.5 * width,
            Pairwise::BceWithLogits(p) => p * t * softplus(-x) + (1.0 - t) * softplus(x),
            Pairwise::KlDiv if t == 0.0 => 0.0,
            Pairwise::KlDiv => t * (t.ln() - x),
            Pairwise::KlDivOfLogs => t.exp() * (t - x),
        };
        let size = match self {
            Pairwise::KlDiv if t != 0.0 => t * (t.ln().abs() + x.abs() + 1.0),
            Pairwise::KlDivOfLogs => t.exp() * (t.abs() + x.abs()) * (1.0 + t.abs()),
            Pairwise::BceWithLogits(p) => (p * t * softplus(-x)).abs() + ((1.0 - t) * softplus(x)).abs(),
            Pairwise::Huber(width) if d > width => value + width * width,
            Pairwise::SmoothL1(width) if d >= width => value + width,
            _ => value,
        };
        [value, size]
    }

    /// The gradient of the loss by `x`, and the scale of its rounding errors.
    pub fn gradient(self, x: f64, t: f64) -> [f64; 2] {
        let d = x - t;
        // Of no difference it is 0.
        let sign = if d == 0.0 { 0.0 } else { d.signum() };
        let value = match self {
            Pairwise::Mse => 2.0 * d,
            Pairwise::L1 => sign,
            Pairwise::Huber(width) => d.clamp(-width, width),
            Pairwise::SmoothL1(width) if d.abs() < width => d / width,
            Pairwise::SmoothL1(_) => sign,
            Pairwise::BceWithLogits(p) => (1.0 - t) * sigmoid(x) - p * t * sigmoid(-x),
            Pairwise::KlDiv => -t,
            Pairwise::KlDivOfLogs => -t.exp(),
        };
        let size = match self {
            Pairwise::BceWithLogits(p) => (1.0 - t).abs() * sigmoid(x) + (p * t).abs() * sigmoid(-x),
            Pairwise::KlDivOfLogs => t.exp() * (1.0 + t.abs()),
            _ => value.abs(),
        };
        [value, size]
    }
}

/// The cosine embedding loss of two rows, and its gradients by both.
#[derive(Clone, Debug)]
pub struct CosineEmbedding {
    /// The loss, and the scale of its rounding errors.
    pub loss: [f64; 2],
    /// By each row.
    pub gradients: [Accumulated; 2],
}

/// `1 - cos(a, b)` of rows that are to be alike, else `max(0, cos(a, b) - margin)`. PyTorch adds 1e-12 to
/// either square of a length.
pub fn cosine_embedding(a: &[f64], b: &[f64], alike: bool, margin: f64) -> CosineEmbedding {
    const LEAST: f64 = 1e-12;
    let of = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
    let size: f64 = a.iter().zip(b).map(|(a, b)| (a * b).abs()).sum();
    let squares = [of(a, a) + LEAST, of(b, b) + LEAST];
    let length = squares[0].sqrt() * squares[1].sqrt();
    let (cosine, scale) = (of(a, b) / length, size / length);
    let (value, slope) = match alike {
        true => (1.0 - cosine, -1.0),
        false if cosine > margin => (cosine - margin, 1.0),
        false => (0.0, 0.0),
    };
    let gradient = |x: &[f64], y: &[f64], square: f64| Accumulated {
        value: x.iter().zip(y).map(|(x, y)| slope * (y / length - cosine * x / square)).collect(),
        magnitude: x
            .iter()
            .zip(y)
            .map(|(x, y)| slope.abs() * (y.abs() / length + scale * x.abs() / square))
            .collect(),
    };
    CosineEmbedding {
        loss: [value, 1.0 + scale + margin.abs()],
        gradients: [gradient(a, b, squares[0]), gradient(b, a, squares[1])],
    }
}

#[cfg(test)]
mod tests {
    use super::{Pairwise, cosine_embedding, linear_cross_entropy};
    use crate::cross_entropy::SoftCrossEntropy;
    use crate::differences::{near, slopes};
    use crate::row::CrossEntropy;

    const X: [f64; 6] = [0.3, -1.2, 2.0, 0.7, -0.4, 0.1];
    const WEIGHT: [f64; 8] = [1.5, -0.5, 0.25, 2.0, 1.0, -0.75, 0.5, 0.125];

    #[test]
    fn gradients_of_a_linear_layer_and_its_loss_are_slopes() {
        let targets = [Some(3), None, Some(0)];
        let plain = SoftCrossEntropy::default();
        let smooth = CrossEntropy { smoothing: 0.1, z_loss: 0.2 };
        for loss in
            [plain, SoftCrossEntropy { of: smooth, ..plain }, SoftCrossEntropy { of: smooth, cap: Some(2.0) }]
        {
            let of = |x: &[f64], weight: &[f64]| linear_cross_entropy(loss, x, weight, 2, &targets, 0.5);
            let sum = |x: &[f64], weight: &[f64]| 0.5 * of(x, weight).losses.value.iter().sum::<f64>();
            let at = of(&X, &WEIGHT);
            near(&at.x.value, &slopes(&X, |x| sum(x, &WEIGHT)));
            near(&at.weight.value, &slopes(&WEIGHT, |weight| sum(&X, weight)));
            assert_eq!(at.losses.value[1], 0.0);
        }
    }

    #[test]
    fn gradients_of_pairs_are_slopes() {
        let all = [
            Pairwise::Mse,
            Pairwise::L1,
            Pairwise::Huber(0.5),
            Pairwise::SmoothL1(0.5),
            Pairwise::BceWithLogits(1.0),
            Pairwise::BceWithLogits(3.0),
            Pairwise::KlDiv,
            Pairwise::KlDivOfLogs,
        ];
        for of in all {
            for (x, t) in [(0.3, 0.2), (-1.5, 0.9), (4.0, 0.1), (-0.1, 0.3)] {
                near(&[of.gradient(x, t)[0]], &slopes(&[x], |x| of.loss(x[0], t)[0]));
            }
        }
    }

    #[test]
    fn pairs_by_hand() {
        assert_eq!(Pairwise::Mse.loss(3.0, 1.0)[0], 4.0);
        assert_eq!(Pairwise::Huber(0.5).loss(3.0, 1.0)[0], 0.875);
        assert_eq!(Pairwise::SmoothL1(0.5).loss(3.0, 1.0)[0], 1.75);
        assert!((Pairwise::BceWithLogits(1.0).loss(0.0, 0.25)[0] - 2f64.ln()).abs() < 1e-15);
        assert!((Pairwise::KlDiv.loss(0.5f64.ln(), 1.0)[0] - 2f64.ln()).abs() < 1e-15);
        assert_eq!(Pairwise::KlDiv.loss(-3.0, 0.0)[0], 0.0);
        assert_eq!(Pairwise::KlDivOfLogs.loss(-1.0, 0.0)[0], 1.0);
    }

    #[test]
    fn gradients_of_cosines_are_slopes() {
        let (a, b) = (&X[..3], &X[3..]);
        for (alike, margin) in [(true, 0.0), (false, -0.9), (false, 0.99)] {
            let of = |a: &[f64], b: &[f64]| cosine_embedding(a, b, alike, margin).loss[0];
            let at = cosine_embedding(a, b, alike, margin);
            near(&at.gradients[0].value, &slopes(a, |a| of(a, b)));
            near(&at.gradients[1].value, &slopes(b, |b| of(a, b)));
        }
    }
}
