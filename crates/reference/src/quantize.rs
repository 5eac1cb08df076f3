//! The oracle of matrices as e4m3 with a factor for each part.

use crate::elementwise::SmallFloat;

/// The numbers, one for each element, and the factors, `[parts of a column][parts of a row]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Quantized {
    /// Those of e4m3.
    pub numbers: Vec<f64>,
    /// One for each part.
    pub factors: Vec<f32>,
}

/// The factor of a part of a matrix with these elements.
fn factor(elements: impl Iterator<Item = f64>) -> f32 {
    let largest = elements.filter(|x| !x.is_nan()).fold(0.0f64, |most, x| most.max(x.abs()));
    if largest == 0.0 {
        return 1.0;
    }
    // The quotient in f64 is so near to the exact one that f32 rounds both alike.
    let factor = (largest.min(f64::from(f32::MAX)) / 448.0) as f32;
    if factor < f32::MIN_POSITIVE { f32::MIN_POSITIVE } else { factor }
}

/// A matrix `[rows, columns]` of numbers of f32, cut into parts of so many rows and columns.
pub fn quantize(x: &[f64], [rows, columns]: [usize; 2], [tall, wide]: [usize; 2]) -> Quantized {
    let across = columns.div_ceil(wide);
    let mut factors = Vec::new();
    for part in 0..rows.div_ceil(tall) * across {
        let (down, along) = (part / across * tall, part % across * wide);
        let of_row = |row: usize| &x[row * columns..][along..(along + wide).min(columns)];
        factors.push(factor((down..(down + tall).min(rows)).flat_map(of_row).copied()));
    }
    let number = |(place, &x): (usize, &f64)| {
        let (row, column) = (place / columns, place % columns);
        let factor = f64::from(factors[row / tall * across + column / wide]);
        SmallFloat::E4M3.nearest(f64::from((x / factor) as f32))
    };
    Quantized { numbers: x.iter().enumerate().map(number).collect(), factors }
}

#[cfg(test)]
mod tests {
    use super::quantize;

    #[test]
    fn parts_by_hand() {
        // Parts of 2 x 2; the last of a row is narrower, those of the last row are shorter.
        let x = [448.0, 1.1, 0.0, -448.0, 3.0, -0.0, 896.0, 3.0, f64::NAN];
        let got = quantize(&x, [3, 3], [2, 2]);
        assert_eq!(got.factors, [1.0, 1.0, 2.0, 1.0]);
        assert_eq!(got.numbers[..8], [448.0, 1.125, 0.0, -448.0, 3.0, 0.0, 448.0, 1.5]);
        assert!(got.numbers[5].is_sign_negative() && got.numbers[8].is_nan());
        let got = quantize(&[f64::INFINITY, 1e30, f64::from(f32::MIN_POSITIVE)], [1, 3], [1, 2]);
        assert_eq!(got.factors, [f32::MAX / 448.0, f32::MIN_POSITIVE]);
        assert_eq!(got.numbers, [448.0, 0.0, 1.0]);
    }
}
