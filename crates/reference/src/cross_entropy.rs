//! Oracle of cross-entropy of logits, which may have a soft cap, and the probabilities of their classes.

use crate::Accumulated;
use crate::row::CrossEntropy;

/// Cross-entropy of a row of logits and the probabilities of all classes. A class is a 1 among zeros.
#[derive(Clone, Copy, Debug, Default)]
pub struct SoftCrossEntropy {
    /// Smoothing and z-loss.
    pub of: CrossEntropy,
    /// `c` of `c tanh(x / c)`, which replaces each logit.
    pub cap: Option<f64>,
}

/// The logarithms of a softmax, and what errors in its arguments come to.
struct Softmax {
    logits: Vec<f64>,
    max: f64,
    log_sum_exp: f64,
    /// Probabilities.
    shares: Vec<f64>,
    /// The error of the logarithm of the sum, where logits have errors relative to their own magnitudes.
    of_caps: f64,
}

impl SoftCrossEntropy {
    /// The logit, capped.
    fn capped(self, x: f64) -> f64 {
        self.cap.map_or(x, |cap| cap * (x / cap).tanh())
    }

    /// The slope of that.
    pub fn slope(self, x: f64) -> f64 {
        self.cap.map_or(1.0, |cap| (x / cap).cosh().powi(-2))
    }

    fn softmax(self, x: &[f64]) -> Softmax {
        let logits: Vec<f64> = x.iter().map(|&x| self.capped(x)).collect();
        let max = crate::max(&logits);
        let log_sum_exp = max + logits.iter().map(|v| (v - max).exp()).sum::<f64>().ln();
        let shares: Vec<f64> = logits.iter().map(|v| (v - log_sum_exp).exp()).collect();
        let errors = shares.iter().zip(&logits).map(|(share, v)| share * v.abs());
        let of_caps = if self.cap.is_some() { errors.sum() } else { 0.0 };
        Softmax { logits, max, log_sum_exp, shares, of_caps }
    }

    /// The distribution that is compared with.
    fn targets(self, y: &[f64]) -> Vec<f64> {
        let s = self.of.smoothing;
        let each = s / y.len() as f64;
        y.iter().map(|y| (1.0 - s) * y + each).collect()
    }

    /// Probabilities of the capped logits.
    pub fn shares(self, x: &[f64]) -> Vec<f64> {
        self.softmax(x).shares
    }

    /// Log-sum-exp and loss of a row, and the scale of the loss's rounding errors.
    pub fn loss(self, x: &[f64], y: &[f64]) -> [f64; 3] {
        let Softmax { logits, max, log_sum_exp: lse, of_caps, .. } = self.softmax(x);
        let (mut loss, z) = (self.of.z_loss * lse * lse, self.of.z_loss);
        let mut size = loss + 2.0 * z * lse.abs() * of_caps;
        // A target of 0 is left out: the logarithm may be infinite.
        for (target, logit) in self.targets(y).into_iter().zip(logits).filter(|(target, _)| *target != 0.0) {
            loss -= target * (logit - lse);
            size += target.abs() * (lse.abs() + max.abs() + logit.abs() + of_caps);
        }
        [lse, loss, size]
    }

    /// The gradient of the loss by the logits. The slope of a cap has an error of 1, as the square of `tanh`.
    pub fn gradient(self, x: &[f64], y: &[f64]) -> Accumulated {
        let Softmax { logits, log_sum_exp: lse, shares, of_caps, .. } = self.softmax(x);
        let targets = self.targets(y);
        let (mass, magnitudes): (f64, f64) =
            targets.iter().fold((0.0, 0.0), |(mass, all), target| (mass + target, all + target.abs()));
        let of_z = 2.0 * self.of.z_loss;
        let (mut value, mut magnitude) = (Vec::new(), Vec::new());
        for i in 0..x.len() {
            value.push((shares[i] * (mass + of_z * lse) - targets[i]) * self.slope(x[i]));
            let steep = shares[i] * (magnitudes + of_z * lse.abs());
            let of_logit = if self.cap.is_some() { logits[i].abs() + of_caps } else { 0.0 };
            magnitude.push(steep * (1.0 + of_logit) + shares[i] * of_z * of_caps + targets[i].abs());
        }
        Accumulated { value, magnitude }
    }
}

#[cfg(test)]
mod tests {
    use super::SoftCrossEntropy;
    use crate::differences::{near, slopes};
    use crate::row::CrossEntropy;

    const X: [f64; 5] = [0.3, -1.2, 2.0, 0.7, -0.4];
    /// They do not sum up to 1, and one is 0.
    const Y: [f64; 5] = [0.2, 0.0, 0.5, 0.4, 0.15];

    #[test]
    fn gradients_are_slopes() {
        for (smoothing, z_loss) in [(0.0, 0.0), (0.1, 0.0), (0.0, 0.3), (0.2, 0.1)] {
            for cap in [None, Some(1.5), Some(30.0)] {
                let loss = SoftCrossEntropy { of: CrossEntropy { smoothing, z_loss }, cap };
                near(&loss.gradient(&X, &Y).value, &slopes(&X, |x| loss.loss(x, &Y)[1]));
            }
        }
    }

    #[test]
    fn a_class_is_a_one_among_zeros() {
        let one = [0.0, 0.0, 0.0, 1.0, 0.0];
        for of in [CrossEntropy::default(), CrossEntropy { smoothing: 0.1, z_loss: 0.2 }] {
            let soft = SoftCrossEntropy { of, cap: None };
            let ([lse, loss, size], want) = (soft.loss(&X, &one), of.loss(&X, 3));
            near(&[lse, loss], &want[..2]);
            assert!(size >= loss.abs());
            near(&soft.gradient(&X, &one).value, &of.gradient(&X, 3).value);
        }
    }

    #[test]
    fn losses_by_hand() {
        let plain = SoftCrossEntropy::default();
        let ln = f64::ln;
        // Halves of both classes, whose probabilities are a quarter and the rest.
        near(&plain.loss(&[0.0, ln(3.0)], &[0.5, 0.5])[1..2], &[(ln(4.0) + ln(4.0 / 3.0)) / 2.0]);
        near(&plain.loss(&[1.0, f64::NEG_INFINITY], &[1.0, 0.0])[1..2], &[0.0]);
        // Beyond a cap of 1 both are 1 and -1.
        let capped = SoftCrossEntropy { cap: Some(1.0), ..plain };
        near(&capped.loss(&[1e9, f64::NEG_INFINITY], &[0.0, 1.0])[1..2], &[ln(1.0 + 2f64.exp())]);
        near(&capped.gradient(&[1e9, f64::NEG_INFINITY], &[0.0, 1.0]).value, &[0.0, 0.0]);
    }
}
