//! Oracles of the element-wise kernels: real functions in f64, integers in 128 bits, conversions by a search
//! over all numbers of the target.

/// The number of terms after which the series and fractions below no longer change in f64.
const TERMS: u32 = 300;

/// Error function, by a series without cancellation.
pub fn erf(x: f64) -> f64 {
    if x.abs() > 6.0 || x.is_nan() {
        return if x.is_nan() { x } else { x.signum() };
    }
    // 2 / sqrt(pi) e^(-x^2) sum of 2^n x^(2n+1) / (2n+1)!!
    let (mut term, mut sum) = (x, x);
    for n in 1..TERMS {
        term *= 2.0 * x * x / f64::from(2 * n + 1);
        sum += term;
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

/// `1 - erf(x)`, by a continued fraction where it is small.
pub fn erfc(x: f64) -> f64 {
    if x.is_nan() || x < 2.0 {
        return 1.0 - erf(x);
    }
    // x + (1/2) / (x + 1 / (x + (3/2) / (x + ..)))
    let fraction = (1..TERMS).rev().fold(x, |rest, n| x + f64::from(n) / 2.0 / rest);
    (-x * x).exp() / (fraction * std::f64::consts::PI.sqrt())
}

/// `1 / (1 + e^-x)`.
pub fn sigmoid(x: f64) -> f64 {
    if x < 0.0 { x.exp() / (1.0 + x.exp()) } else { 1.0 / (1.0 + (-x).exp()) }
}

/// `x` times the normal distribution function at `x`. The limit at minus infinity is 0.
pub fn gelu(x: f64) -> f64 {
    if x == f64::NEG_INFINITY { 0.0 } else { 0.5 * x * erfc(-x / 2f64.sqrt()) }
}

/// The approximation of [`gelu`] by a hyperbolic tangent, written with [`sigmoid`]: `(1 + tanh(u)) / 2 =
/// sigmoid(2 u)`.
pub fn gelu_tanh(x: f64) -> f64 {
    let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
    if x == f64::NEG_INFINITY { 0.0 } else { x * sigmoid(2.0 * inner) }
}

/// `x sigmoid(x)`. The limit at minus infinity is 0.
pub fn silu(x: f64) -> f64 {
    if x == f64::NEG_INFINITY { 0.0 } else { x * sigmoid(x) }
}

/// The smaller value. NaN if either is NaN.
pub fn min(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.min(b) }
}

/// The larger value. NaN if either is NaN.
pub fn max(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) }
}

/// The signed integer of `bits` bits that equals `value` modulo `2^bits`.
pub fn wrap(value: i128, bits: u32) -> i128 {
    let unused = i128::BITS - bits;
    value << unused >> unused
}

/// A small float by its fields: sign, exponent, mantissa, from the top.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SmallFloat {
    /// Width of the exponent field.
    pub exponent_bits: u32,
    /// Width of the mantissa field.
    pub mantissa_bits: u32,
    /// Whether it has infinities. If so, all codes beyond them are NaN. Otherwise only the codes with all
    /// bits set are NaN.
    pub infinities: bool,
    /// Whether values beyond the largest number, and infinities, become the largest number.
    pub saturates: bool,
}

impl SmallFloat {
    /// IEEE binary16.
    pub const F16: Self =
        SmallFloat { exponent_bits: 5, mantissa_bits: 10, infinities: true, saturates: false };
    /// The high half of an f32.
    pub const BF16: Self =
        SmallFloat { exponent_bits: 8, mantissa_bits: 7, infinities: true, saturates: false };
    /// OCP E4M3.
    pub const E4M3: Self =
        SmallFloat { exponent_bits: 4, mantissa_bits: 3, infinities: false, saturates: true };
    /// OCP E5M2.
    pub const E5M2: Self =
        SmallFloat { exponent_bits: 5, mantissa_bits: 2, infinities: true, saturates: true };

    /// The magnitude of a positive code as if all codes were numbers.
    fn magnitude(self, code: u32) -> f64 {
        let bias = (1 << (self.exponent_bits - 1)) - 1;
        let (field, mantissa) = (code >> self.mantissa_bits, code & ((1 << self.mantissa_bits) - 1));
        let part = f64::from(mantissa) / f64::from(1u32 << self.mantissa_bits);
        if field == 0 { part * 2f64.powi(1 - bias) } else { (1.0 + part) * 2f64.powi(field as i32 - bias) }
    }

    /// The first positive code that is not a number.
    fn end(self) -> u32 {
        let all = (1 << (self.exponent_bits + self.mantissa_bits)) - 1;
        if self.infinities { all >> self.mantissa_bits << self.mantissa_bits } else { all }
    }

    /// The value of the number nearest to `x`, ties to the even code; NaN for NaN.
    pub fn nearest(self, x: f64) -> f64 {
        self.nearest_by(x.is_sign_negative(), x.is_nan(), |middle| x.abs().partial_cmp(&middle))
    }

    /// As [`SmallFloat::nearest`], for an integer.
    pub fn nearest_integer(self, x: i128) -> f64 {
        // Middles above 2^24 are whole numbers. Below that, f64 is exact.
        let compare = |middle: f64| {
            let magnitude = x.unsigned_abs();
            if magnitude < 1 << 24 {
                (magnitude as f64).partial_cmp(&middle)
            } else {
                Some(magnitude.cmp(&(middle as u128)))
            }
        };
        self.nearest_by(x < 0, false, compare)
    }

    /// The nearest number, given how `|x|` compares with a value.
    fn nearest_by(
        self,
        negative: bool,
        nan: bool,
        compare: impl Fn(f64) -> Option<std::cmp::Ordering>,
    ) -> f64 {
        if nan {
            return f64::NAN;
        }
        // The middles between neighbours increase with the code, so this counts those below `x`.
        let (mut low, mut high) = (0, self.end());
        while low < high {
            let code = (low + high) / 2;
            let middle = (self.magnitude(code) + self.magnitude(code + 1)) / 2.0;
            let above = match compare(middle) {
                Some(std::cmp::Ordering::Equal) => code % 2 == 1,
                order => order == Some(std::cmp::Ordering::Greater),
            };
            if above { low = code + 1 } else { high = code }
        }
        let magnitude = match low == self.end() {
            false => self.magnitude(low),
            true if self.saturates => self.magnitude(self.end() - 1),
            true => f64::INFINITY,
        };
        if negative { -magnitude } else { magnitude }
    }
}

#[cfg(test)]
mod tests {
    use super::{SmallFloat, erf, erfc, gelu, gelu_tanh, max, min, sigmoid, silu, wrap};

    fn near(got: f64, want: f64) {
        assert!((got - want).abs() <= 1e-14 * want.abs(), "{got:e}, wanted {want:e}");
    }

    #[test]
    fn published_values() {
        near(erf(0.5), 0.520_499_877_813_046_5);
        near(erf(-1.0), -0.842_700_792_949_714_9);
        near(erfc(3.0), 2.209_049_699_858_544e-5);
        near(erfc(10.0), 2.088_487_583_762_545e-45);
        near(sigmoid(-50.0), 1.928_749_847_963_918e-22);
        near(gelu(1.0), 0.841_344_746_068_542_9);
        near(silu(1.0), 0.731_058_578_630_004_9);
        assert!((gelu_tanh(1.0) - gelu(1.0)).abs() < 2e-4 && gelu_tanh(1.0) != gelu(1.0));
        assert!(min(1.0, f64::NAN).is_nan() && max(f64::NAN, 1.0).is_nan());
        assert_eq!((wrap(128, 8), wrap(-129, 8), wrap(5, 8)), (-128, 127, 5));
    }

    #[test]
    fn nearest_numbers_by_hand() {
        let f16 = SmallFloat::F16;
        assert_eq!(
            [65504.0, 65519.9, 65520.0, -1e9].map(|x| f16.nearest(x)),
            [65504.0, 65504.0, f64::INFINITY, f64::NEG_INFINITY]
        );
        assert_eq!(
            [2049.0, 2051.0, 2f64.powi(-25), 1.5 * 2f64.powi(-25)].map(|x| f16.nearest(x)),
            [2048.0, 2052.0, 0.0, 2f64.powi(-24)]
        );
        assert_eq!(
            [448.0, 464.0, f64::INFINITY, -470.0].map(|x| SmallFloat::E4M3.nearest(x)),
            [448.0, 448.0, 448.0, -448.0]
        );
        assert_eq!([57344.0, f64::INFINITY].map(|x| SmallFloat::E5M2.nearest(x)), [57344.0, 57344.0]);
        assert_eq!(SmallFloat::BF16.nearest_integer((1 << 62) + (1 << 54)), 2f64.powi(62));
        assert_eq!(
            SmallFloat::BF16.nearest_integer((1 << 62) + (1 << 54) + 1),
            2f64.powi(62) * (1.0 + 2f64.powi(-7))
        );
        assert!(f16.nearest(f64::NAN).is_nan());
    }
}
