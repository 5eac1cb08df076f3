//! Division by an invariant integer.

/// A divisor known before the kernel runs. Division by it takes a multiplication, an addition and a shift.
///
/// The method of Granlund and Montgomery ("Division by invariant integers using multiplication", 1994), for
/// dividends below 2^31. That leaves room for the carry of the addition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Divisor {
    divisor: u32,
    multiplier: u32,
    shift: u32,
}

impl Divisor {
    /// Largest dividend of [`divide`](Self::divide), and largest divisor.
    pub const MAX: u32 = i32::MAX as u32;

    /// Division by `divisor`, from 1 to [`MAX`](Self::MAX). Values outside are clamped.
    #[must_use]
    pub const fn new(divisor: u32) -> Self {
        let divisor = match divisor {
            0 => 1,
            1..=Self::MAX => divisor,
            _ => Self::MAX,
        };
        let shift = 32 - (divisor - 1).leading_zeros();
        let multiplier = (((1u64 << shift) - divisor as u64) << 32) / divisor as u64 + 1;
        Self { divisor, multiplier: multiplier as u32, shift }
    }

    /// The divisor.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.divisor
    }

    /// Quotient and remainder of `dividend`, which is at most [`MAX`](Self::MAX). Larger dividends give
    /// meaningless values.
    #[inline(always)]
    #[must_use]
    pub const fn divide(self, dividend: u32) -> (u32, u32) {
        let high = ((dividend as u64 * self.multiplier as u64) >> 32) as u32;
        let quotient = high.wrapping_add(dividend) >> (self.shift & (u32::BITS - 1));
        (quotient, dividend.wrapping_sub(quotient.wrapping_mul(self.divisor)))
    }
}

#[cfg(test)]
mod tests {
    use super::Divisor;

    fn check(dividend: u32, divisor: u32) {
        let got = Divisor::new(divisor).divide(dividend);
        assert_eq!(got, (dividend / divisor, dividend % divisor), "{dividend} by {divisor}");
    }

    #[test]
    fn small_numbers_all() {
        for divisor in 1..700 {
            (0..3000).for_each(|dividend| check(dividend, divisor));
        }
    }

    #[test]
    fn the_ends_and_every_multiple_beside_a_power_of_two() {
        let max = Divisor::MAX;
        let near = |power: u32| [(1u32 << power) - 1, 1 << power, (1 << power) + 1].map(|n| n.clamp(1, max));
        for divisor in (0..31).flat_map(near).chain([3, 7, 641, 65_537, max - 1, max]) {
            for dividend in (0..31).flat_map(near).chain([0, max - 1, max]) {
                check(dividend, divisor);
                let multiple = dividend / divisor * divisor;
                check(multiple, divisor);
                check(multiple.saturating_sub(1), divisor);
            }
        }
    }

    #[test]
    fn nonsense_is_brought_into_range() {
        assert_eq!(Divisor::new(0), Divisor::new(1));
        assert_eq!(Divisor::new(u32::MAX), Divisor::new(Divisor::MAX));
    }
}
