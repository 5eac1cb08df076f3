//! Oracles of the element-wise, reduction and data-movement kernels.

use crate::{Accumulated, Exact};
use rayon::prelude::*;

/// `a * x + y`, element by element.
pub fn saxpy<T: Exact>(a: T, x: &[T], y: &[T]) -> Vec<f64> {
    x.iter().zip(y).map(|(&x, &y)| a.into() * x.into() + y.into()).collect()
}

/// The sum of `x`, 0 if it is empty: one value and one magnitude.
pub fn sum<T: Exact>(x: &[T]) -> Accumulated {
    let value = x.iter().map(|&v| v.into()).sum();
    let magnitude = x.iter().map(|&v| v.into().abs()).sum();
    Accumulated { value: vec![value], magnitude: vec![magnitude] }
}

/// The largest element. NaN if any element is NaN; minus infinity if `x` is empty.
pub fn max<T: Exact>(x: &[T]) -> f64 {
    let larger = |a: f64, b: f64| if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) };
    x.iter().map(|&v| v.into()).fold(f64::NEG_INFINITY, larger)
}

/// Row-major `[rows, columns]` to row-major `[columns, rows]`.
pub fn transpose<T: Copy + Send + Sync>(x: &[T], rows: usize, columns: usize) -> Vec<T> {
    assert_eq!(x.len(), rows * columns, "transpose: {} elements for [{rows}, {columns}]", x.len());
    (0..columns)
        .into_par_iter()
        .flat_map_iter(|column| (0..rows).map(move |row| x[row * columns + column]))
        .collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn small_cases_by_hand() {
        assert_eq!(super::saxpy(2f32, &[1.0, 2.0], &[10.0, 20.0]), [12.0, 24.0]);
        let sum = super::sum(&[1f32, -3.0]);
        assert_eq!((sum.value[0], sum.magnitude[0]), (-2.0, 4.0));
        assert_eq!(super::max(&[1f32, 3.0, -7.0]), 3.0);
        assert!(super::max(&[1f32, f32::NAN, 3.0]).is_nan());
        assert_eq!(super::max::<f32>(&[]), f64::NEG_INFINITY);
        assert_eq!(super::transpose(&[1, 2, 3, 4, 5, 6], 2, 3), [1, 4, 2, 5, 3, 6]);
        assert!(super::transpose::<f32>(&[], 0, 5).is_empty());
    }
}
