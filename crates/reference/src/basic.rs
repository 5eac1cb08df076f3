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

/// The hash of bytes: the sum, modulo 2^64, of the scrambled length and the scrambled words of eight bytes,
/// each of which is first changed by its place. Scrambling is the end of `SplitMix64`.
pub fn hash(bytes: &[u8]) -> u64 {
    let modulus = 1_u128 << 64;
    let times = |a: u64, b: u64| (u128::from(a) * u128::from(b) % modulus) as u64;
    let scramble = |word: u64| {
        let steps = [(30, 0xbf58_476d_1ce4_e5b9), (27, 0x94d0_49bb_1331_11eb)];
        let word =
            steps.into_iter().fold(word, |word, (shift, factor)| times(word ^ (word >> shift), factor));
        word ^ (word >> 31)
    };
    let length = bytes.len() as u64;
    // Whole units of two words.
    let mut padded = bytes.to_vec();
    padded.resize(bytes.len().next_multiple_of(16), 0);
    let words = padded.chunks(8).map(|chunk| u64::from_le_bytes(chunk.try_into().expect("eight bytes")));
    let places = (0_u64..).map(|place| times(place, 0x9e37_79b9_7f4a_7c15));
    let all = std::iter::once(length).chain(words).zip(places).map(|(word, place)| scramble(word ^ place));
    (all.map(u128::from).sum::<u128>() % modulus) as u64
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
        assert_eq!(super::hash(&[]), 0);
        let zeros = super::hash(&[0; 16]).wrapping_sub(super::hash(&[0; 15]));
        assert_ne!(zeros, 0, "the length counts");
        assert_ne!(super::hash(b"01234567"), super::hash(b"76543210"));
    }
}
