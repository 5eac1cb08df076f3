//! The tests' table of element-wise functions: a row has the oracle, how exact the kernel is, and inputs that
//! the function wants beside those that all get.

use ironwarp::ops::elementwise::{BinaryOp, CompareOp, UnaryOp};
use reference::elementwise as oracle;
use std::cmp::Ordering;
use testkit::Tolerance;
use testkit::tolerance::{self, Row};

/// How exact a function is.
#[derive(Debug, Clone, Copy)]
pub enum Accuracy {
    /// The exact value.
    Exact,
    /// One operation, correctly rounded.
    Arithmetic,
    /// A few units in the last place.
    Function,
    /// [`tolerance::GELU_TANH_F32`].
    GeluTanh,
    /// [`tolerance::TRIGONOMETRY`].
    Trigonometry,
}

/// The operations that an element type allows.
pub struct Rows {
    pub arithmetic: Row,
    pub function: Row,
    pub gelu_tanh: Row,
}

impl Rows {
    pub fn of(&self, accuracy: Accuracy) -> Tolerance {
        let own = self.arithmetic.tolerance();
        match accuracy {
            Accuracy::Exact => Tolerance::EXACT,
            Accuracy::Arithmetic => own,
            Accuracy::Function => self.function.tolerance(),
            Accuracy::GeluTanh => self.gelu_tanh.tolerance(),
            Accuracy::Trigonometry => {
                let more = tolerance::TRIGONOMETRY.tolerance();
                Tolerance { absolute: own.absolute + more.absolute, relative: own.relative + more.relative }
            }
        }
    }
}

/// A row of [`UNARY`].
pub struct Unary {
    pub op: UnaryOp,
    pub of_float: fn(f64) -> f64,
    pub accuracy: Accuracy,
    /// The value before it wraps around, where the function has integers.
    pub of_integer: Option<fn(i128) -> i128>,
    /// Where the function has seams.
    pub inputs: &'static [f64],
}

macro_rules! unary {
    ($($op:ident: $of_float:expr, $accuracy:ident $(, integers $of_integer:expr)? $(, at [$($input:expr),+])?;)*) => {
        /// Every function without parameters.
        pub const UNARY: &[Unary] = &[$(
            Unary {
                op: UnaryOp::$op,
                of_float: $of_float,
                accuracy: Accuracy::$accuracy,
                of_integer: unary!(@ $($of_integer)?),
                inputs: &[$($($input),+)?],
            },
        )*];
    };
    (@) => { None };
    (@ $of_integer:expr) => { Some($of_integer) };
}

/// 1, -1, or the number itself.
fn sign(x: f64) -> f64 {
    if x > 0.0 {
        1.0
    } else if x < 0.0 {
        -1.0
    } else {
        x
    }
}

unary! {
    Neg: |x| -x, Exact, integers |x| -x;
    Abs: f64::abs, Exact, integers i128::abs;
    Sign: sign, Exact, integers i128::signum;
    Square: |x| x * x, Arithmetic, integers |x| x * x;
    Relu: |x| if x < 0.0 { 0.0 } else { x }, Exact, integers |x| x.max(0);
    Sqrt: f64::sqrt, Arithmetic;
    Rsqrt: |x| 1.0 / x.sqrt(), Function;
    Recip: |x| 1.0 / x, Arithmetic;
    Floor: f64::floor, Exact;
    Ceil: f64::ceil, Exact;
    Round: f64::round_ties_even, Exact, at [0.5, 1.5, 2.5, 0.4999];
    Trunc: f64::trunc, Exact;
    Frac: f64::fract, Exact;
    Exp: f64::exp, Function, at [88.0, 89.0, 104.0];
    Ln: f64::ln, Function, at [0.71, 1e-40];
    Tanh: f64::tanh, Function, at [9.0, 10.0];
    Erf: oracle::erf, Function, at [5.0];
    Sigmoid: oracle::sigmoid, Function, at [88.0, 89.0, 104.0];
    Gelu: oracle::gelu, Function, at [5.0, 13.0];
    GeluTanh: oracle::gelu_tanh, GeluTanh, at [5.0, 10.0];
    Silu: oracle::silu, Function, at [88.0, 104.0];
    Sin: f64::sin, Trigonometry, at [1e4, 2e4, 1e9, 3e38];
    Cos: f64::cos, Trigonometry, at [1e4, 2e4, 1e9, 3e38];
}

/// A row of [`BINARY`].
pub struct Binary {
    pub op: BinaryOp,
    /// Where the function has floats.
    pub of_float: Option<fn(f64, f64) -> f64>,
    /// The value before it wraps around.
    pub of_integer: fn(i128, i128) -> i128,
}

macro_rules! binary {
    ($($op:ident: $of_integer:expr $(, floats $of_float:expr)?;)*) => {
        /// Every function. Those of floats are one operation, correctly rounded.
        pub const BINARY: &[Binary] = &[$(
            Binary { op: BinaryOp::$op, of_float: binary!(@ $($of_float)?), of_integer: $of_integer },
        )*];
    };
    (@) => { None };
    (@ $of_float:expr) => { Some($of_float) };
}

binary! {
    Add: |a, b| a + b, floats |a, b| a + b;
    Sub: |a, b| a - b, floats |a, b| a - b;
    Mul: |a, b| a * b, floats |a, b| a * b;
    Div: |a, b| if b == 0 { 0 } else { a / b }, floats |a, b| a / b;
    Min: |a, b| a.min(b), floats oracle::min;
    Max: |a, b| a.max(b), floats oracle::max;
    And: |a, b| a & b;
    Or: |a, b| a | b;
    Xor: |a, b| a ^ b;
}

/// A comparison, and whether it holds of two that compare so: `None` with a NaN.
pub struct Comparison {
    pub op: CompareOp,
    pub holds: fn(Option<Ordering>) -> bool,
}

macro_rules! comparisons {
    ($($op:ident: $holds:expr;)*) => {
        /// Every comparison.
        pub const COMPARISONS: &[Comparison] = &[$(Comparison { op: CompareOp::$op, holds: $holds }),*];
    };
}

comparisons! {
    Eq: |o| o == Some(Ordering::Equal);
    Ne: |o| o != Some(Ordering::Equal);
    Lt: |o| o.is_some_and(Ordering::is_lt);
    Le: |o| o.is_some_and(Ordering::is_le);
    Gt: |o| o.is_some_and(Ordering::is_gt);
    Ge: |o| o.is_some_and(Ordering::is_ge);
}

#[test]
fn every_op_has_one_row() {
    for &op in UnaryOp::ALL {
        let rows: Vec<_> = UNARY.iter().filter(|row| row.op == op).collect();
        assert_eq!(rows.len(), usize::from(op.parameters() == 0), "{op:?}");
        assert!(rows.iter().all(|row| row.of_integer.is_some() == op.is_integral()), "{op:?}");
    }
    for &op in BinaryOp::ALL {
        let rows: Vec<_> = BINARY.iter().filter(|row| row.op == op).collect();
        assert_eq!(rows.len(), 1, "{op:?}");
        assert_eq!(rows[0].of_float.is_none(), op.is_bitwise(), "{op:?}");
    }
    for &op in CompareOp::ALL {
        assert_eq!(COMPARISONS.iter().filter(|row| row.op == op).count(), 1, "{op:?}");
    }
}
