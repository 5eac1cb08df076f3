//! Gradients beside finite differences, for the oracles' own tests.

const STEP: f64 = 1e-5;

/// The slope of `f` at `x` along each axis, by finite differences.
pub fn slopes(x: &[f64], f: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let moved = |i: usize, by: f64| {
        let mut moved = x.to_vec();
        moved[i] += by;
        f(&moved)
    };
    (0..x.len()).map(|i| (moved(i, STEP) - moved(i, -STEP)) / (2.0 * STEP)).collect()
}

/// As near as the differences are: their error is the square of the step, and a rounding over it.
pub fn near(got: &[f64], want: &[f64]) {
    assert_eq!(got.len(), want.len());
    assert!(got.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-8), "{got:?} is not {want:?}");
}
