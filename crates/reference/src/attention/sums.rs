//! Sums of rows and of their products.

/// The sum of the products of two rows' elements.
pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    let (mut sums, (a, rest_a), (b, rest_b)) = ([0.0; 8], a.as_chunks::<8>(), b.as_chunks::<8>());
    for (a, b) in a.iter().zip(b) {
        sums.iter_mut().zip(a.iter().zip(b)).for_each(|(sum, (a, b))| *sum += a * b);
    }
    sums.iter().sum::<f64>() + rest_a.iter().zip(rest_b).map(|(a, b)| a * b).sum::<f64>()
}

/// Sums of multiples of rows, element by element, and the scales of their errors.
pub(super) struct Sums {
    pub sum: Vec<f64>,
    worst: Vec<f64>,
    squares: Vec<f64>,
}

impl Sums {
    pub fn new(size: usize) -> Self {
        Self { sum: vec![0.0; size], worst: vec![0.0; size], squares: vec![0.0; size] }
    }

    /// Adds a row times `factor`, whose error is the row times `error`.
    pub fn add(&mut self, row: &[f64], factor: f64, error: f64) {
        let sums = self.sum.iter_mut().zip(&mut self.worst).zip(&mut self.squares);
        for (x, ((sum, worst), squares)) in row.iter().zip(sums) {
            let error = error * x.abs();
            *sum += factor * x;
            *worst += error;
            *squares += error * error;
        }
    }

    /// The sums, and the scales of their errors.
    pub fn end(self) -> (Vec<f64>, Vec<f64>) {
        let scales = self.worst.into_iter().zip(self.squares);
        (self.sum, scales.map(|(worst, squares)| error_scale(worst, squares)).collect())
    }
}

/// For independent errors with this sum and this sum of squares: 4 standard deviations, if that is less than
/// their sum. A NaN stays one.
pub(super) fn error_scale(worst: f64, squares: f64) -> f64 {
    if worst > 4.0 * f64::sqrt(squares) { 4.0 * f64::sqrt(squares) } else { worst }
}
