//! Oracle of the matrix products.

use crate::matmul::{Epilogue, Strided, matmul};
use crate::{Accumulated, Exact};

/// `alpha * A B + beta * C` with every matrix row-major and dense.
#[derive(Debug, Clone, Copy)]
pub struct Gemm {
    /// Rows of A and C.
    pub m: usize,
    /// Columns of B and C.
    pub n: usize,
    /// Columns of A, rows of B.
    pub k: usize,
    /// Factor of the product.
    pub alpha: f64,
    /// Factor of C. With 0, C is not read, as in BLAS: a NaN in it has no effect.
    pub beta: f64,
}

/// `alpha * A B + beta * C` for `a: [m, k]`, `b: [k, n]`, `c: [m, n]`.
///
/// # Panics
/// If a length does not match the shape. With `beta` 0, `c` may be empty.
pub fn gemm<T: Exact>(shape: Gemm, a: &[T], b: &[T], c: &[T]) -> Accumulated {
    let Gemm { m, n, k, alpha, beta } = shape;
    assert_eq!(a.len(), m * k, "A is [{m}, {k}]");
    assert_eq!(b.len(), k * n, "B is [{k}, {n}]");
    assert!(beta == 0.0 || c.len() == m * n, "C is [{m}, {n}]");
    let rows = |data, row| Strided { data, row, column: 1, matrix: 0 };
    let epilogue = Epilogue::<'_, T, T> { alpha, beta, c: rows(c, n), ..Epilogue::NONE };
    matmul([1, m, n, k], rows(a, k), rows(b, n), epilogue)
}

#[cfg(test)]
mod tests {
    use super::{Gemm, gemm};

    #[test]
    fn small_cases_by_hand() {
        let shape = Gemm { m: 2, n: 2, k: 2, alpha: 2.0, beta: -1.0 };
        let got = gemm(shape, &[1f32, 2.0, 3.0, 4.0], &[5.0, 6.0, 7.0, -8.0], &[1.0, 1.0, 1.0, 1.0]);
        assert_eq!(got.value, [37.0, -21.0, 85.0, -29.0]);
        assert_eq!(got.magnitude, [39.0, 45.0, 87.0, 101.0]);
    }

    #[test]
    fn beta_zero_does_not_read_c_and_k_zero_gives_beta_c() {
        let shape = Gemm { m: 1, n: 1, k: 1, alpha: 1.0, beta: 0.0 };
        assert_eq!(gemm(shape, &[2f32], &[3.0], &[f32::NAN]).value, [6.0]);
        assert_eq!(gemm(Gemm { k: 0, beta: 0.5, ..shape }, &[], &[], &[4f32]).value, [2.0]);
    }
}
