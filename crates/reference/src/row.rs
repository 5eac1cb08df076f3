//! Oracles of functions of rows, by PyTorch's names, and of their gradients.

use crate::Accumulated;
use crate::activation::Activation;

/// A row, and what norms take beside it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Row<'a> {
    /// Its elements.
    pub x: &'a [f64],
    /// A factor for each.
    pub weight: Option<&'a [f64]>,
    /// A term for each.
    pub bias: Option<&'a [f64]>,
    /// Added before a root is taken.
    pub eps: f64,
}

/// The results, and the scale of their rounding errors.
pub type Oracle = fn(&Row) -> Accumulated;

/// Every oracle with its name.
const TABLE: &[(&str, Oracle)] =
    &[("softmax", softmax), ("log_softmax", log_softmax), ("rms_norm", rms_norm), ("layer_norm", layer_norm)];

/// The oracle of the function with this name.
///
/// # Panics
/// If there is none.
pub fn find(name: &str) -> Oracle {
    let found = TABLE.iter().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("no oracle of `{name}` in crates/reference/src/row.rs")).1
}

/// Maximum, and sum of exponentials below it.
fn max_and_sum(x: &[f64]) -> (f64, f64) {
    let max = crate::max(x);
    (max, x.iter().map(|v| (v - max).exp()).sum())
}

/// The magnitude of a product of positive factors is the result's own.
fn own_scale(value: Vec<f64>) -> Accumulated {
    let magnitude = value.iter().map(|v| v.abs()).collect();
    Accumulated { value, magnitude }
}

fn softmax(row: &Row) -> Accumulated {
    let (max, sum) = max_and_sum(row.x);
    own_scale(row.x.iter().map(|v| (v - max).exp() / sum).collect())
}

fn log_softmax(row: &Row) -> Accumulated {
    let (max, sum) = max_and_sum(row.x);
    own_scale(row.x.iter().map(|v| v - max - sum.ln()).collect())
}

/// `(x - mean) factor weight + bias`. The scale is the sum of the terms' magnitudes; that of the mean is the
/// mean of magnitudes, since it is a sum.
fn affine(row: &Row, mean: f64, factor: f64) -> Accumulated {
    let of_mean = if mean == 0.0 { 0.0 } else { mean_magnitude(row.x) };
    let (mut value, mut magnitude) = (Vec::new(), Vec::new());
    for (i, x) in row.x.iter().enumerate() {
        let weight = row.weight.map_or(1.0, |weight| weight[i]);
        let bias = row.bias.map_or(0.0, |bias| bias[i]);
        value.push((x - mean) * factor * weight + bias);
        magnitude.push((x.abs() + of_mean) * factor * weight.abs() + bias.abs());
    }
    Accumulated { value, magnitude }
}

fn mean_magnitude(x: &[f64]) -> f64 {
    x.iter().map(|v| v.abs()).sum::<f64>() / x.len() as f64
}

fn rms_norm(row: &Row) -> Accumulated {
    let mean_square = row.x.iter().map(|v| v * v).sum::<f64>() / row.x.len() as f64;
    affine(row, 0.0, 1.0 / (mean_square + row.eps).sqrt())
}

fn layer_norm(row: &Row) -> Accumulated {
    let count = row.x.len() as f64;
    let mean = row.x.iter().sum::<f64>() / count;
    let variance = row.x.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / count;
    affine(row, mean, 1.0 / (variance + row.eps).sqrt())
}

/// Gradients of a norm of one row.
#[derive(Clone, Debug)]
pub struct NormGradients {
    /// By the row.
    pub x: Accumulated,
    /// The row's terms of the gradient by the weight.
    pub weight: Accumulated,
}

/// The gradients of a norm of `row` by the row and by the weight, from the gradient `dy` by its result. That
/// by the bias is `dy` itself. `is_centered` for layer norm.
pub fn norm_backward(is_centered: bool, row: &Row, dy: &[f64]) -> NormGradients {
    norm_backward_of(is_centered, row, &own_scale(dy.to_vec()))
}

/// The gradients of an activation of a norm of `row`, from the gradient `dy` by the activation's result: by
/// the row and the weight, and the row's terms of that by the bias.
pub fn activated_norm_backward(
    is_centered: bool,
    row: &Row,
    activation: Activation,
    dy: &[f64],
) -> (NormGradients, Accumulated) {
    let u = if is_centered { layer_norm(row) } else { rms_norm(row) };
    let mut du = activation.backward(&u.value, dy);
    for (i, magnitude) in du.magnitude.iter_mut().enumerate() {
        // An error of the argument, times the slope of the slope there, is one of the slope.
        *magnitude += dy[i].abs() * activation.bend(u.value[i]) * u.magnitude[i];
    }
    (norm_backward_of(is_centered, row, &du), du)
}

/// [`norm_backward`] of a gradient that has errors of its own.
fn norm_backward_of(is_centered: bool, row: &Row, dy: &Accumulated) -> NormGradients {
    let Accumulated { value: dy, magnitude: sizes } = dy;
    let count = row.x.len() as f64;
    let mean = if is_centered { row.x.iter().sum::<f64>() / count } else { 0.0 };
    let square = row.x.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / count;
    let factor = 1.0 / (square + row.eps).sqrt();
    let z: Vec<f64> = row.x.iter().map(|v| (v - mean) * factor).collect();
    let weighted = |dy: &[f64]| -> Vec<f64> {
        dy.iter().enumerate().map(|(i, v)| v * row.weight.map_or(1.0, |w| w[i])).collect()
    };
    let (g, of_sizes) = (weighted(dy), weighted(sizes));
    let of = |terms: &dyn Fn(usize) -> f64| (0..z.len()).map(terms).sum::<f64>() / count;
    let (of_g, of_zg) = (if is_centered { of(&|i| g[i]) } else { 0.0 }, of(&|i| z[i] * g[i]));
    let (size_g, size_zg) = (of(&|i| of_sizes[i].abs()), of(&|i| (z[i] * of_sizes[i]).abs()));
    // An error of the mean moves each z.
    let shift = if is_centered { mean_magnitude(row.x) * factor } else { 0.0 };
    let size_z = |i: usize| row.x[i].abs() * factor + shift;
    let x = Accumulated {
        value: (0..z.len()).map(|i| (g[i] - of_g - z[i] * of_zg) * factor).collect(),
        magnitude: (0..z.len())
            .map(|i| (of_sizes[i].abs() + size_g + size_z(i) * (size_zg + shift * size_g)) * factor)
            .collect(),
    };
    let weight = Accumulated {
        value: (0..z.len()).map(|i| dy[i] * z[i]).collect(),
        magnitude: (0..z.len()).map(|i| sizes[i] * size_z(i)).collect(),
    };
    NormGradients { x, weight }
}

/// The gradient of softmax of a row, or of its logarithm, from its result and the gradient by that.
pub fn softmax_backward(is_log: bool, y: &[f64], dy: &[f64]) -> Accumulated {
    let terms = |i: usize| if is_log { dy[i] } else { y[i] * dy[i] };
    let sum: f64 = (0..y.len()).map(terms).sum();
    let size: f64 = (0..y.len()).map(|i| terms(i).abs()).sum();
    let of = |i: usize, dy: f64, sum: f64| if is_log { dy - y[i].exp() * sum } else { y[i] * (dy - sum) };
    let magnitude =
        |i: usize| if is_log { dy[i].abs() + y[i].exp() * size } else { y[i].abs() * (dy[i].abs() + size) };
    Accumulated {
        value: (0..y.len()).map(|i| of(i, dy[i], sum)).collect(),
        magnitude: (0..y.len()).map(magnitude).collect(),
    }
}

/// Cross-entropy of a row of logits and a class.
#[derive(Clone, Copy, Debug, Default)]
pub struct CrossEntropy {
    /// Label smoothing.
    pub smoothing: f64,
    /// Factor of the squared log-sum-exp.
    pub z_loss: f64,
}

impl CrossEntropy {
    /// Log-sum-exp and loss of a row, and the scale of the loss's rounding errors.
    pub fn loss(self, x: &[f64], target: usize) -> [f64; 3] {
        let (max, sum) = max_and_sum(x);
        let lse = max + sum.ln();
        let mean = x.iter().sum::<f64>() / x.len() as f64;
        let smooth = if self.smoothing > 0.0 { self.smoothing * (lse - mean) } else { 0.0 };
        let loss = (1.0 - self.smoothing) * (lse - x[target]) + smooth + self.z_loss * lse * lse;
        let size = lse.abs() + max.abs() + x[target].abs() + self.smoothing * mean_magnitude(x);
        [lse, loss, size + self.z_loss * lse * lse]
    }

    /// The gradient of the loss by the logits.
    pub fn gradient(self, x: &[f64], target: usize) -> Accumulated {
        let (max, sum) = max_and_sum(x);
        let lse = max + sum.ln();
        let share = self.smoothing / x.len() as f64;
        let (mut value, mut magnitude) = (Vec::new(), Vec::new());
        for (i, v) in x.iter().enumerate() {
            let weight = (v - max).exp() / sum;
            let (of_z, hit) = (2.0 * self.z_loss * lse, if i == target { 1.0 - self.smoothing } else { 0.0 });
            value.push(weight * (1.0 + of_z) - share - hit);
            magnitude.push(weight * (1.0 + of_z.abs()) + share + hit);
        }
        Accumulated { value, magnitude }
    }
}

#[cfg(test)]
mod tests {
    use super::{CrossEntropy, Row, activated_norm_backward, find, norm_backward, softmax_backward};
    use crate::activation::Activation;
    use crate::differences::{near, slopes};

    #[test]
    fn rows_by_hand() {
        let of = |name, x: &[f64]| find(name)(&Row { x, ..Row::default() }).value;
        let ln3 = 3f64.ln();
        assert_eq!(of("softmax", &[5.0, 5.0]), [0.5, 0.5]);
        assert!((of("softmax", &[0.0, ln3])[1] - 0.75).abs() < 1e-15);
        assert!((of("log_softmax", &[0.0, ln3])[0] + 4f64.ln()).abs() < 1e-15);
        let weighted = Row { x: &[2.0, -2.0], weight: Some(&[2.0, 1.0]), bias: Some(&[1.0, 0.0]), eps: 0.0 };
        let results = find("rms_norm")(&weighted);
        assert_eq!((results.value, results.magnitude), (vec![3.0, -1.0], vec![3.0, 1.0]));
        assert_eq!(of("layer_norm", &[1.0, 5.0]), [-1.0, 1.0]);
        assert!(of("softmax", &[0.0, f64::NAN]).iter().all(|v| v.is_nan()));
    }

    /// Five points of a curve that is no polynomial.
    const X: [f64; 5] = [0.3, -1.2, 2.0, 0.7, -0.4];
    const WEIGHT: [f64; 5] = [1.5, -0.5, 0.25, 2.0, 1.0];
    const DY: [f64; 5] = [0.2, -1.0, 0.4, 0.9, -0.3];

    fn dot(a: &[f64], b: &[f64]) -> f64 {
        a.iter().zip(b).map(|(a, b)| a * b).sum()
    }

    #[test]
    fn gradients_of_norms_are_slopes() {
        for (name, is_centered) in [("layer_norm", true), ("rms_norm", false)] {
            let of = |x: &[f64], weight: &[f64]| {
                let row = Row { x, weight: Some(weight), bias: None, eps: 1e-3 };
                dot(&find(name)(&row).value, &DY)
            };
            let row = Row { x: &X, weight: Some(&WEIGHT), bias: None, eps: 1e-3 };
            let gradients = norm_backward(is_centered, &row, &DY);
            near(&gradients.x.value, &slopes(&X, |x| of(x, &WEIGHT)));
            near(&gradients.weight.value, &slopes(&WEIGHT, |weight| of(&X, weight)));
        }
    }

    #[test]
    fn gradients_of_activated_norms_are_slopes() {
        const BIAS: [f64; 5] = [0.1, -0.7, 1.1, -0.2, 0.4];
        for ((name, is_centered), activation) in [("layer_norm", true), ("rms_norm", false)]
            .into_iter()
            .flat_map(|of| Activation::ALL.map(|a| (of, a)))
        {
            let of = |x: &[f64], weight: &[f64], bias: &[f64]| {
                let row = Row { x, weight: Some(weight), bias: Some(bias), eps: 1e-3 };
                let y: Vec<f64> = find(name)(&row).value.into_iter().map(|u| activation.value(u)).collect();
                dot(&y, &DY)
            };
            let row = Row { x: &X, weight: Some(&WEIGHT), bias: Some(&BIAS), eps: 1e-3 };
            let (gradients, of_bias) = activated_norm_backward(is_centered, &row, activation, &DY);
            near(&gradients.x.value, &slopes(&X, |x| of(x, &WEIGHT, &BIAS)));
            near(&gradients.weight.value, &slopes(&WEIGHT, |weight| of(&X, weight, &BIAS)));
            near(&of_bias.value, &slopes(&BIAS, |bias| of(&X, &WEIGHT, bias)));
        }
    }

    #[test]
    fn gradients_of_softmax_are_slopes() {
        for (name, is_log) in [("softmax", false), ("log_softmax", true)] {
            let of = |x: &[f64]| find(name)(&Row { x, ..Row::default() }).value;
            near(&softmax_backward(is_log, &of(&X), &DY).value, &slopes(&X, |x| dot(&of(x), &DY)));
        }
    }

    #[test]
    fn gradients_of_cross_entropy_are_slopes() {
        for (smoothing, z_loss) in [(0.0, 0.0), (0.1, 0.0), (0.0, 0.3), (0.2, 0.1)] {
            let loss = CrossEntropy { smoothing, z_loss };
            near(&loss.gradient(&X, 3).value, &slopes(&X, |x| loss.loss(x, 3)[1]));
        }
        let [lse, loss, _] = CrossEntropy::default().loss(&[0.0, 3f64.ln()], 0);
        assert!((lse - 4f64.ln()).abs() < 1e-15 && (loss - lse).abs() < 1e-15);
    }
}
