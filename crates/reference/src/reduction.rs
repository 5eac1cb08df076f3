//! Oracles of reductions along axes.

use crate::{Accumulated, Exact};

/// Groups the elements of row-major `x` by result when `axes` are reduced. Groups are ordered by the index of
/// the remaining axes.
///
/// # Panics
/// If the length does not match the shape.
pub fn groups<T: Copy>(x: &[T], shape: &[usize], axes: &[usize]) -> Vec<Vec<T>> {
    assert_eq!(x.len(), shape.iter().product::<usize>(), "{} elements for {shape:?}", x.len());
    let goes = |axis: usize| axes.is_empty() || axes.contains(&axis);
    let results = (0..shape.len()).filter(|&axis| !goes(axis)).map(|axis| shape[axis]).product();
    let mut groups = vec![Vec::new(); results];
    for (place, &value) in x.iter().enumerate() {
        let (mut rest, mut group, mut stride) = (place, 0, 1);
        for axis in (0..shape.len()).rev() {
            if !goes(axis) {
                group += rest % shape[axis] * stride;
                stride *= shape[axis];
            }
            rest /= shape[axis];
        }
        groups[group].push(value);
    }
    groups
}

/// The sum of each group, with the sum of its magnitudes.
pub fn sums<T: Exact>(groups: &[Vec<T>]) -> Accumulated {
    let of =
        |f: fn(f64) -> f64| groups.iter().map(|group| group.iter().map(|&v| f(v.into())).sum()).collect();
    Accumulated { value: of(|v| v), magnitude: of(f64::abs) }
}

/// The product of each group.
pub fn products<T: Exact>(groups: &[Vec<T>]) -> Vec<f64> {
    groups.iter().map(|group| group.iter().map(|&v| v.into()).product()).collect()
}

/// The square root of each group's sum of squares.
pub fn norms<T: Exact>(groups: &[Vec<T>]) -> Vec<f64> {
    groups.iter().map(|group| group.iter().map(|&v| v.into() * v.into()).sum::<f64>().sqrt()).collect()
}

/// The largest element of each group. NaN if there is one.
pub fn maxima<T: Exact>(groups: &[Vec<T>]) -> Vec<f64> {
    groups.iter().map(|group| crate::max(group)).collect()
}

/// The smallest element of each group. NaN if there is one.
pub fn minima<T: Exact>(groups: &[Vec<T>]) -> Vec<f64> {
    let negative = |group: &Vec<T>| group.iter().map(|&v| -v.into()).collect::<Vec<f64>>();
    groups.iter().map(|group| -crate::max(&negative(group))).collect()
}

/// The position of the first largest element of each group. A NaN counts as larger than every number.
pub fn places_of_maxima<T: Exact>(groups: &[Vec<T>]) -> Vec<i64> {
    let above = |a: f64, b: f64| a > b || a.is_nan() && !b.is_nan();
    let first = |group: &Vec<T>| {
        (1..group.len()).fold(0, |best, i| if above(group[i].into(), group[best].into()) { i } else { best })
    };
    groups.iter().map(|group| first(group) as i64).collect()
}

#[cfg(test)]
mod tests {
    use super::{groups, maxima, minima, norms, places_of_maxima, products, sums};

    #[test]
    fn a_matrix_by_hand() {
        let x = [1.0f32, -2.0, 3.0, 4.0, 5.0, -6.0];
        let (rows, columns) = (groups(&x, &[2, 3], &[1]), groups(&x, &[2, 3], &[0]));
        assert_eq!(rows, [[1.0, -2.0, 3.0], [4.0, 5.0, -6.0]]);
        assert_eq!(columns, [[1.0, 4.0], [-2.0, 5.0], [3.0, -6.0]]);
        assert_eq!(groups(&x, &[2, 3], &[]).len(), 1);
        assert_eq!(groups(&[0f32; 0], &[2, 0], &[1]), [[0f32; 0], []]);
        assert_eq!((sums(&rows).value, sums(&rows).magnitude), (vec![2.0, 3.0], vec![6.0, 15.0]));
        assert_eq!(
            (products(&columns), norms(&groups(&[3f32, 4.0], &[2], &[]))),
            (vec![4.0, -10.0, -18.0], vec![5.0])
        );
        assert_eq!((maxima(&rows), minima(&rows)), (vec![3.0, 5.0], vec![-2.0, -6.0]));
        assert_eq!(
            places_of_maxima(&[vec![1f32, 3.0, 3.0], vec![f32::INFINITY, f32::NAN, f32::NAN]]),
            [1, 1]
        );
    }
}
