//! Oracle of matrix products with strides, batches and epilogues.

use crate::elementwise::{gelu, sigmoid};
use crate::{Accumulated, Exact, activation, exact};
use rayon::prelude::*;

/// A batch of matrices in a slice: element `[z][r][c]` lies at `z * matrix + r * row + c * column`.
#[derive(Debug, Clone, Copy)]
pub struct Strided<'a, T> {
    /// The elements.
    pub data: &'a [T],
    /// Elements from one row to the next.
    pub row: usize,
    /// Elements from one column to the next.
    pub column: usize,
    /// Elements from one matrix to the next.
    pub matrix: usize,
}

impl<T: Exact> Strided<'_, T> {
    fn at(&self, matrix: usize, row: usize, column: usize) -> f64 {
        self.data[matrix * self.matrix + row * self.row + column * self.column].into()
    }

    /// The same matrices of these elements, which are its own as f64.
    fn of<'b>(&self, data: &'b [f64]) -> Strided<'b, f64> {
        Strided { data, row: self.row, column: self.column, matrix: self.matrix }
    }
}

/// Functions of the elements of a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// `v`.
    Identity,
    /// `max(v, 0)`.
    Relu,
    /// `v / 2 (1 + erf(v / sqrt 2))`.
    Gelu,
    /// `v / 2 (1 + tanh(sqrt(2 / pi) (v + 0.044715 v^3)))`.
    GeluTanh,
    /// `v / (1 + exp(-v))`.
    Silu,
    /// `1 / (1 + exp(-v))`.
    Sigmoid,
    /// `silu(v[2j]) * v[2j + 1]`. The result has half the columns.
    SwiGlu,
}

impl Activation {
    /// The oracle of the activation with this PyTorch name. `none` is the identity.
    ///
    /// # Panics
    /// If no oracle has the name.
    pub fn named(name: &str) -> Self {
        match name {
            "none" => Self::Identity,
            "relu" => Self::Relu,
            "gelu" => Self::Gelu,
            "gelu_tanh" => Self::GeluTanh,
            "silu" => Self::Silu,
            "sigmoid" => Self::Sigmoid,
            "swiglu" => Self::SwiGlu,
            _ => panic!("no oracle has the name {name}: add it here"),
        }
    }
}

/// The epilogue: `activation(alpha * sum + beta * C + bias[column]) + residual`.
#[derive(Debug, Clone, Copy)]
pub struct Epilogue<'a, C, D> {
    /// Factor of the product.
    pub alpha: f64,
    /// Factor of C. With 0, C is not read.
    pub beta: f64,
    /// The source C.
    pub c: Strided<'a, C>,
    /// One element per column of the product.
    pub bias: Option<&'a [D]>,
    /// Applied to each element.
    pub activation: Activation,
    /// Has the shape of C.
    pub residual: Option<Strided<'a, D>>,
}

impl<C, D> Epilogue<'_, C, D> {
    /// The product itself.
    pub const NONE: Self = Self {
        alpha: 1.0,
        beta: 0.0,
        c: Strided { data: &[], row: 0, column: 0, matrix: 0 },
        bias: None,
        activation: Activation::Identity,
        residual: None,
    };
}

/// `[batch, m, n, k]` of a product.
pub type Sides = [usize; 4];

/// The product of `a: [batch, m, k]` and `b: [batch, k, n]`: `[batch, m, n]`, dense (half of `n` for SwiGLU).
/// The magnitudes are the scale of the errors: sums of absolute values, multiplied by the activation's
/// largest slope.
pub fn matmul<A: Exact, B: Exact, C: Exact, D: Exact>(
    sides: Sides,
    a: Strided<'_, A>,
    b: Strided<'_, B>,
    epilogue: Epilogue<'_, C, D>,
) -> Accumulated {
    let [batch, m, n, _] = sides;
    let per_element = if epilogue.activation == Activation::SwiGlu { 2 } else { 1 };
    let width = n / per_element;
    let (exact_a, exact_b) = (exact(a.data), exact(b.data));
    let products = products(sides, a.of(&exact_a), b.of(&exact_b));
    let before = |z: usize, row: usize, column: usize| {
        let (sum, magnitude) = products[(z * m + row) * n + column];
        let (mut value, mut scale) = (epilogue.alpha * sum, epilogue.alpha.abs() * magnitude);
        if epilogue.beta != 0.0 {
            let addend = epilogue.beta * epilogue.c.at(z, row, column);
            (value, scale) = (value + addend, scale + addend.abs());
        }
        if let Some(bias) = epilogue.bias {
            let addend: f64 = bias[column].into();
            (value, scale) = (value + addend, scale + addend.abs());
        }
        (value, scale)
    };
    let element = |index: usize| {
        let (z, row, column) = (index / (m * width), index / width % m, index % width);
        let (value, scale) = if per_element == 2 {
            swiglu(before(z, row, 2 * column), before(z, row, 2 * column + 1))
        } else {
            activate(epilogue.activation, before(z, row, column))
        };
        let addend = epilogue.residual.map_or(0.0, |residual| residual.at(z, row, column));
        (value + addend, scale + addend.abs())
    };
    let (value, magnitude) = (0..batch * m * width).into_par_iter().map(element).unzip();
    Accumulated { value, magnitude }
}

/// Columns that are summed at a time.
const PANEL: usize = 64;

/// The sums of the product's terms, and of their magnitudes: `[batch, m, n]`. Not generic, so that it is
/// compiled with this crate's optimisation.
fn products([batch, m, n, k]: Sides, a: Strided<'_, f64>, b: Strided<'_, f64>) -> Vec<(f64, f64)> {
    let mut sums = vec![(0.0, 0.0); batch * m * n];
    let panel = |z: usize, row: usize, first: usize, sums: &mut [(f64, f64)]| {
        let (mut values, mut magnitudes, width) = ([0.0; PANEL], [0.0; PANEL], sums.len());
        for l in 0..k {
            let x = a.at(z, row, l);
            let ys = (first..first + width).map(|column| b.at(z, l, column));
            for (y, (value, magnitude)) in ys.zip(values.iter_mut().zip(&mut magnitudes)) {
                *value += x * y;
                *magnitude += (x * y).abs();
            }
        }
        sums.iter_mut().zip(values.into_iter().zip(magnitudes)).for_each(|(to, sum)| *to = sum);
    };
    sums.par_chunks_mut(n.max(1)).enumerate().for_each(|(at, row)| {
        let panels = row.par_chunks_mut(PANEL).enumerate();
        panels.for_each(|(number, sums)| panel(at / m, at % m, number * PANEL, sums));
    });
    sums
}

/// The largest slopes of both forms of GELU (1.129) and of [`Activation::Silu`] (1.0998), rounded up.
const STEEPEST: f64 = 1.13;

pub(crate) fn activate(activation: Activation, (value, scale): (f64, f64)) -> (f64, f64) {
    match activation {
        Activation::Identity | Activation::SwiGlu => (value, scale),
        // `max` would drop a NaN.
        Activation::Relu => (if value < 0.0 { 0.0 } else { value }, scale),
        Activation::Silu => (value * sigmoid(value), STEEPEST * scale),
        // Its slope is at most 1/4; where it is flat, the result's own rounding is left.
        Activation::Sigmoid => (sigmoid(value), 0.25 * scale + sigmoid(value)),
        Activation::Gelu => (gelu(value), STEEPEST * scale),
        Activation::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (value + 0.044715 * value.powi(3));
            (value * 0.5 * (1.0 + inner.tanh()), STEEPEST * scale)
        }
    }
}

/// The derivative of an activation of one column. That of ReLU at 0 is 0.
pub fn slope(activation: Activation, x: f64) -> f64 {
    // Beyond it each of them is 0 or 1, and infinity times 0 would be no number.
    let x = x.clamp(-700.0, 700.0);
    let of = match activation {
        Activation::Identity | Activation::SwiGlu => activation::Activation::Identity,
        Activation::Relu => activation::Activation::Relu,
        Activation::Sigmoid => activation::Activation::Sigmoid,
        Activation::Silu => activation::Activation::Silu,
        Activation::Gelu => activation::Activation::Gelu,
        Activation::GeluTanh => activation::Activation::GeluTanh,
    };
    of.slope(x)[0]
}

fn swiglu(gate: (f64, f64), (value, scale): (f64, f64)) -> (f64, f64) {
    let (gate, gate_scale) = activate(Activation::Silu, gate);
    (gate * value, gate_scale * (value.abs() + scale) + gate.abs() * scale)
}

#[cfg(test)]
mod tests {
    use super::{Activation, Epilogue, Strided, activate, matmul, slope};

    fn rows(data: &[f32], row: usize) -> Strided<'_, f32> {
        Strided { data, row, column: 1, matrix: 0 }
    }

    const PLAIN: Epilogue<'static, f32, f32> = Epilogue::NONE;

    #[test]
    fn small_cases_by_hand() {
        let (a, b) = ([1.0f32, 2.0, 3.0, 4.0], [5.0f32, 6.0, 7.0, -8.0]);
        let sides = [1, 2, 2, 2];
        let got = matmul(sides, rows(&a, 2), rows(&b, 2), Epilogue { alpha: 2.0, ..PLAIN });
        assert_eq!(
            (got.value, got.magnitude),
            (vec![38.0, -20.0, 86.0, -28.0], vec![38.0, 44.0, 86.0, 100.0])
        );
        let transposed = Strided { row: 1, column: 2, ..rows(&b, 2) };
        assert_eq!(matmul(sides, rows(&a, 2), transposed, PLAIN).value, [17.0, -9.0, 39.0, -11.0]);
        let c = [1.0f32; 4];
        let all = Epilogue {
            beta: -1.0,
            c: rows(&c, 2),
            bias: Some(&[1.0, -1.0]),
            activation: Activation::Relu,
            residual: Some(rows(&c, 2)),
            ..PLAIN
        };
        assert_eq!(matmul(sides, rows(&a, 2), rows(&b, 2), all).value, [20.0, 1.0, 44.0, 1.0]);
    }

    #[test]
    fn activations_have_their_known_values() {
        let one = |activation, value: f32| {
            let sides = [1, 1, if activation == Activation::SwiGlu { 2 } else { 1 }, 1];
            matmul(sides, rows(&[1.0], 1), rows(&[value, 3.0], 2), Epilogue { activation, ..PLAIN }).value[0]
        };
        let close = |got: f64, want: f64| assert!((got - want).abs() < 1e-6, "{got}, wanted {want}");
        close(one(Activation::Gelu, 1.0), 0.841_345);
        close(one(Activation::Gelu, -1.0), -0.158_655);
        close(one(Activation::GeluTanh, 1.0), 0.841_192);
        close(one(Activation::GeluTanh, -1.0), -0.158_808);
        close(one(Activation::Silu, 1.0), 0.731_058_579);
        close(one(Activation::Sigmoid, -1.0), 0.268_941_421);
        close(one(Activation::SwiGlu, 1.0), 3.0 * 0.731_058_579);
        assert!(one(Activation::Relu, f32::NAN).is_nan());
        assert_eq!((one(Activation::Relu, -2.0), one(Activation::Relu, 2.0)), (0.0, 2.0));
    }

    #[test]
    fn slopes_are_differences() {
        const STEP: f64 = 1e-5;
        for activation in [
            Activation::Identity,
            Activation::Relu,
            Activation::Gelu,
            Activation::GeluTanh,
            Activation::Silu,
            Activation::Sigmoid,
        ] {
            for x in [-30.0, -3.5, -1.0, -0.25, 0.125, 1.0, 2.5, 30.0] {
                let of = |x: f64| activate(activation, (x, 0.0)).0;
                let want = (of(x + STEP) - of(x - STEP)) / (2.0 * STEP);
                let got = slope(activation, x);
                assert!((got - want).abs() < 1e-8, "{activation:?}'({x}) is {got}, wanted {want}");
            }
        }
    }

    #[test]
    fn a_batch_may_share_an_operand() {
        let a = Strided { matrix: 1, ..rows(&[2.0f32, 3.0], 1) };
        let got = matmul([2, 1, 1, 1], a, rows(&[10.0f32], 1), PLAIN);
        assert_eq!(got.value, [20.0, 30.0]);
    }
}
