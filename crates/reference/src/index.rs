//! Oracles of gathers and scatters along an axis of row-major tensors.

/// A shape as three factors: the product of the sides before the axis, the axis, and the product of the sides
/// after it.
fn sides(shape: &[usize], axis: usize) -> [usize; 3] {
    [shape[..axis].iter().product(), shape[axis], shape[axis + 1..].iter().product()]
}

/// Calls `f(place in the indexed tensor, place in the dense tensor)` for every element. The indices come in
/// order.
fn pairs(shape: &[usize], axis: usize, indices: &[usize], mut f: impl FnMut(usize, usize)) {
    let [outer, places, inner] = sides(shape, axis);
    for o in 0..outer {
        for (i, &index) in indices.iter().enumerate() {
            for k in 0..inner {
                f((o * places + index) * inner + k, (o * indices.len() + i) * inner + k);
            }
        }
    }
}

/// `x[.., indices[i], ..]`.
pub fn gather<T: Copy>(x: &[T], shape: &[usize], axis: usize, indices: &[usize]) -> Vec<T> {
    let mut result = Vec::new();
    pairs(shape, axis, indices, |from, _| result.push(x[from]));
    result
}

/// `out` with `x[.., i, ..]` written to `[.., indices[i], ..]`. Later writes win.
pub fn scatter<T: Copy>(out: &[T], shape: &[usize], axis: usize, indices: &[usize], x: &[T]) -> Vec<T> {
    let mut result = out.to_vec();
    pairs(shape, axis, indices, |to, from| result[to] = x[from]);
    result
}

/// `out` with `x[.., i, ..]` added at `[.., indices[i], ..]`, in f64, with the sums of magnitudes.
pub fn scatter_add<T: crate::Exact>(
    out: &[T],
    shape: &[usize],
    axis: usize,
    indices: &[usize],
    x: &[T],
) -> crate::Accumulated {
    let mut value: Vec<f64> = out.iter().map(|&v| v.into()).collect();
    let mut magnitude: Vec<f64> = value.iter().map(|v| v.abs()).collect();
    pairs(shape, axis, indices, |to, from| {
        value[to] += x[from].into();
        magnitude[to] += x[from].into().abs();
    });
    crate::Accumulated { value, magnitude }
}

#[cfg(test)]
mod tests {
    use super::{gather, scatter, scatter_add};

    #[test]
    fn a_matrix_by_hand() {
        let x = [1f32, 2.0, 3.0, 4.0, 5.0, 6.0];
        assert_eq!(gather(&x, &[3, 2], 0, &[2, 0]), [5.0, 6.0, 1.0, 2.0]);
        assert_eq!(gather(&x, &[2, 3], 1, &[2, 2]), [3.0, 3.0, 6.0, 6.0]);
        assert_eq!(scatter(&x, &[3, 2], 0, &[1, 1], &[7.0, 8.0, 9.0, 10.0]), [1.0, 2.0, 9.0, 10.0, 5.0, 6.0]);
        let added = scatter_add(&x, &[2, 3], 1, &[0, 0], &[-1.0, 1.0, 2.0, 3.0]);
        assert_eq!(added.value, [1.0, 2.0, 3.0, 9.0, 5.0, 6.0]);
        assert_eq!(added.magnitude, [3.0, 2.0, 3.0, 9.0, 5.0, 6.0]);
    }
}
