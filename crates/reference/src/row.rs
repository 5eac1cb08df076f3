//! Oracles of functions of rows, by PyTorch's names.

use crate::Accumulated;

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

/// `(x - mean) factor weight + bias`. The scale is the sum of the terms' magnitudes.
fn affine(row: &Row, mean: f64, factor: f64) -> Accumulated {
    let (mut value, mut magnitude) = (Vec::new(), Vec::new());
    for (i, x) in row.x.iter().enumerate() {
        let weight = row.weight.map_or(1.0, |weight| weight[i]);
        let bias = row.bias.map_or(0.0, |bias| bias[i]);
        value.push((x - mean) * factor * weight + bias);
        magnitude.push((x.abs() + mean.abs()) * factor * weight.abs() + bias.abs());
    }
    Accumulated { value, magnitude }
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

#[cfg(test)]
mod tests {
    use super::{Row, find};

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
}
