//! Oracles of activations' gradients, and of gated activations.

use crate::Accumulated;
use crate::elementwise::{erfc, gelu, gelu_tanh, sigmoid, silu};

/// A function of each element, by PyTorch's names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Activation {
    /// `x`.
    Identity,
    /// `max(x, 0)`.
    Relu,
    /// By the error function.
    Gelu,
    /// By a hyperbolic tangent.
    GeluTanh,
    /// `x sigmoid(x)`.
    Silu,
    /// `1 / (1 + e^-x)`.
    Sigmoid,
    /// Hyperbolic tangent.
    Tanh,
}

impl Activation {
    /// Every one.
    pub const ALL: [Activation; 7] = [
        Activation::Identity,
        Activation::Relu,
        Activation::Gelu,
        Activation::GeluTanh,
        Activation::Silu,
        Activation::Sigmoid,
        Activation::Tanh,
    ];

    /// The function.
    pub fn value(self, x: f64) -> f64 {
        match self {
            Activation::Identity => x,
            Activation::Relu => crate::elementwise::max(x, 0.0),
            Activation::Gelu => gelu(x),
            Activation::GeluTanh => gelu_tanh(x),
            Activation::Silu => silu(x),
            Activation::Sigmoid => sigmoid(x),
            Activation::Tanh => x.tanh(),
        }
    }

    /// Its derivative, and the sum of the magnitudes of its terms.
    pub fn slope(self, x: f64) -> [f64; 2] {
        let of_terms = |a: f64, b: f64| [a + b, a.abs() + b.abs()];
        match self {
            Activation::Identity => [1.0; 2],
            Activation::Relu if x <= 0.0 => [0.0; 2],
            Activation::Relu => [1.0; 2],
            Activation::Gelu => of_terms(0.5 * erfc(-x / 2f64.sqrt()), x * density(x)),
            Activation::GeluTanh => {
                let [inner, first, _] = tanh_argument(x);
                let share = sigmoid(2.0 * inner);
                of_terms(share, x * 2.0 * first * share * sigmoid(-2.0 * inner))
            }
            Activation::Silu => of_terms(sigmoid(x), x * sigmoid(x) * sigmoid(-x)),
            Activation::Sigmoid => [sigmoid(x) * sigmoid(-x); 2],
            Activation::Tanh => [4.0 * sigmoid(2.0 * x) * sigmoid(-2.0 * x); 2],
        }
    }

    /// The magnitude of the second derivative, below 1 everywhere (of ReLU, but for 0, where there is none).
    /// Far from zero, where slopes are those of the ends, it is next to nothing.
    pub fn bend(self, x: f64) -> f64 {
        match self {
            Activation::Identity | Activation::Relu => 0.0,
            Activation::Gelu => (2.0 - x * x).abs() * density(x),
            Activation::GeluTanh => {
                let [inner, first, second] = tanh_argument(x);
                let (share, rest) = (sigmoid(2.0 * inner), sigmoid(-2.0 * inner));
                2.0 * share * rest * (2.0 * first + x * (second + 2.0 * first * first * (rest - share))).abs()
            }
            Activation::Silu => sigmoid(x) * sigmoid(-x) * (2.0 + x * (sigmoid(-x) - sigmoid(x))).abs(),
            Activation::Sigmoid => sigmoid(x) * sigmoid(-x) * (sigmoid(-x) - sigmoid(x)).abs(),
            Activation::Tanh => 2.0 * self.slope(x)[0] * x.tanh().abs(),
        }
    }

    /// `dy f'(x)` of each element.
    pub fn backward(self, x: &[f64], dy: &[f64]) -> Accumulated {
        let terms = x.iter().zip(dy).map(|(&x, &dy)| (self.slope(x)[0] * dy, self.slope(x)[1] * dy.abs()));
        let (value, magnitude) = terms.unzip();
        Accumulated { value, magnitude }
    }

    /// `f(gate) value` of each pair.
    pub fn gated(self, gates: &[f64], values: &[f64]) -> Vec<f64> {
        gates.iter().zip(values).map(|(&gate, value)| self.value(gate) * value).collect()
    }

    /// The gradients of [`gated`](Self::gated) by gates and by values.
    pub fn gated_backward(self, gates: &[f64], values: &[f64], dy: &[f64]) -> [Accumulated; 2] {
        let by_gate: Vec<f64> = values.iter().zip(dy).map(|(value, dy)| value * dy).collect();
        let by_value = self.gated(gates, dy);
        let magnitude = by_value.iter().map(|v| v.abs()).collect();
        [self.backward(gates, &by_gate), Accumulated { value: by_value, magnitude }]
    }
}

/// The density of the normal distribution.
fn density(x: f64) -> f64 {
    (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt()
}

/// The argument of the hyperbolic tangent in [`gelu_tanh`], and its first two derivatives.
fn tanh_argument(x: f64) -> [f64; 3] {
    const CUBE: f64 = 0.044715;
    let root = (2.0 / std::f64::consts::PI).sqrt();
    [x + CUBE * x * x * x, 1.0 + 3.0 * CUBE * x * x, 6.0 * CUBE * x].map(|of| root * of)
}

/// Sums of the columns of rows.
pub fn column_sums(rows: &Accumulated, columns: usize) -> Accumulated {
    let sums = |values: &[f64]| -> Vec<f64> {
        (0..columns).map(|column| values.iter().skip(column).step_by(columns).sum()).collect()
    };
    Accumulated { value: sums(&rows.value), magnitude: sums(&rows.magnitude) }
}

#[cfg(test)]
mod tests {
    use super::{Activation, column_sums};
    use crate::Accumulated;

    const X: [f64; 8] = [-7.0, -2.0, -0.75, -1e-3, 0.02, 0.5, 1.5, 6.0];

    /// The slope of `f` at `x` by finite differences.
    fn slope(x: f64, f: impl Fn(f64) -> f64) -> f64 {
        const STEP: f64 = 1e-5;
        (f(x + STEP) - f(x - STEP)) / (2.0 * STEP)
    }

    #[test]
    fn derivatives_are_slopes() {
        for of in Activation::ALL {
            for x in X {
                let (got, want) = (of.slope(x)[0], slope(x, |x| of.value(x)));
                assert!((got - want).abs() < 1e-8, "{of:?} at {x}: {got} is not {want}");
            }
        }
    }

    #[test]
    fn bends_are_slopes_of_slopes() {
        for of in Activation::ALL {
            for x in X {
                let (got, want) = (of.bend(x), slope(x, |x| of.slope(x)[0]).abs());
                assert!((got - want).abs() < 1e-8 && got < 1.0, "{of:?} at {x}: {got} is not {want}");
            }
            for far in [-300.0, -40.0, 40.0, 300.0] {
                assert!(of.bend(far) < 1e-15, "{of:?} at {far}");
            }
        }
    }

    #[test]
    fn gradients_of_gated_ones_are_slopes() {
        let (values, dy) =
            ([0.5, -1.0, 2.0, 0.25, -3.0, 1.0, 0.1, -0.2], [1.0, 0.5, -2.0, 1.0, 0.3, -1.0, 2.0, 1.0]);
        for of in Activation::ALL {
            let [by_gates, by_values] = of.gated_backward(&X, &values, &dy);
            for i in 0..X.len() {
                let product = |gate: f64, value: f64| of.gated(&[gate], &[value])[0] * dy[i];
                let wants =
                    [slope(X[i], |gate| product(gate, values[i])), slope(values[i], |v| product(X[i], v))];
                for (got, want) in [by_gates.value[i], by_values.value[i]].into_iter().zip(wants) {
                    assert!((got - want).abs() < 1e-7, "{of:?} {i}: {got} is not {want}");
                }
            }
        }
    }

    #[test]
    fn columns_add_up() {
        let rows = Accumulated { value: vec![1.0, -2.0, 3.0, 4.0], magnitude: vec![1.0, 2.0, 3.0, 4.0] };
        let sums = column_sums(&rows, 2);
        assert_eq!((sums.value, sums.magnitude), (vec![4.0, 2.0], vec![4.0, 6.0]));
    }
}
