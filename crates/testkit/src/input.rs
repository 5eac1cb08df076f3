//! Input families. Each shows one kind of mistake.

use crate::{Element, Random};

/// The distribution of an input's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// Standard normal, like real tensors.
    Normal,
    /// Uniform in `[-1, 1)`.
    Uniform,
    /// Alternating signs, magnitudes within a few per cent of each other. Sums are near zero, so rounding
    /// errors show.
    Cancelling,
    /// Magnitudes over two thirds of the exponent range, with either sign. A product of two stays in range.
    HugeTiny,
    /// Subnormal numbers and zeros of both signs. Flushing to zero shows.
    Subnormal,
    /// Integers in `-4..=4`. Sums and products are exact, so results must be exact too.
    SmallIntegers,
    /// Normal, with NaN and both infinities in about one element of 64.
    Special,
}

impl Family {
    /// Every family.
    pub const ALL: [Family; 7] = [
        Family::Normal,
        Family::Uniform,
        Family::Cancelling,
        Family::HugeTiny,
        Family::Subnormal,
        Family::SmallIntegers,
        Family::Special,
    ];

    /// The families whose elements are all finite.
    pub const FINITE: [Family; 6] = [
        Family::Normal,
        Family::Uniform,
        Family::Cancelling,
        Family::HugeTiny,
        Family::Subnormal,
        Family::SmallIntegers,
    ];

    fn sample<T: Element>(self, index: usize, random: &mut Random) -> f64 {
        match self {
            Family::Normal => random.normal(),
            Family::Uniform => random.uniform(-1.0, 1.0),
            Family::Cancelling => {
                let magnitude = 1.0 + 0.03 * random.unit();
                if index.is_multiple_of(2) { magnitude } else { -magnitude }
            }
            Family::HugeTiny => {
                let reach = f64::from(T::MAX_EXPONENT) / 3.0;
                random.sign() * random.uniform(-reach, reach).exp2()
            }
            Family::Subnormal => {
                let step = f64::from(T::MIN_EXPONENT - T::MANTISSA_BITS).exp2();
                random.sign() * random.integer(0, (1 << T::MANTISSA_BITS.min(52)) - 1) as f64 * step
            }
            Family::SmallIntegers => random.integer(-4, 4) as f64,
            Family::Special => match random.integer(0, 191) {
                0 => f64::NAN,
                1 => f64::INFINITY,
                2 => f64::NEG_INFINITY,
                _ => random.normal(),
            },
        }
    }
}

/// `len` elements of `family`. Equal seeds give equal inputs, and a longer input begins with the shorter one.
pub fn input<T: Element>(family: Family, seed: u64, len: usize) -> Vec<T> {
    let mut random = Random::new(seed ^ ((family as u64 + 1) << 56));
    (0..len).map(|index| T::from_f64(family.sample::<T>(index, &mut random))).collect()
}

/// Overwrites the element at each of `places` with `value`, for example with NaN. Places past the end are
/// ignored.
pub fn spot_special<T: Element>(data: &mut [T], places: &[usize], value: f64) {
    for &place in places {
        if let Some(element) = data.get_mut(place) {
            *element = T::from_f64(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Family, input};
    use half::f16;

    #[test]
    fn equal_seeds_repeat_and_other_seeds_differ() {
        for family in Family::ALL {
            let bits =
                |seed| input::<f32>(family, seed, 500).into_iter().map(f32::to_bits).collect::<Vec<_>>();
            assert_eq!(bits(9), bits(9));
            assert_ne!(bits(9), bits(10), "{family:?}");
        }
    }

    #[test]
    fn families_hold_what_they_promise() {
        assert!(input::<f32>(Family::Subnormal, 1, 999).iter().all(|v| *v == 0.0 || v.is_subnormal()));
        assert!(input::<f16>(Family::Subnormal, 1, 999).iter().all(|v| v.to_f32().abs() < 6.104e-5));
        assert!(
            input::<f32>(Family::SmallIntegers, 1, 999).iter().all(|v| v.fract() == 0.0 && v.abs() <= 4.0)
        );
        let special = input::<f32>(Family::Special, 1, 9999);
        assert!(special.iter().any(|v| v.is_nan()));
        assert!(special.contains(&f32::INFINITY) && special.contains(&f32::NEG_INFINITY));
        for family in Family::FINITE {
            assert!(input::<f16>(family, 1, 9999).iter().all(|v| v.is_finite()), "{family:?}");
        }
        let huge = input::<f32>(Family::HugeTiny, 1, 9999);
        assert!(huge.iter().all(|v| (v * v * 1e6).is_finite() && v * v > 0.0));
        assert!(huge.iter().any(|v| v.abs() > 1e12) && huge.iter().any(|v| v.abs() < 1e-12));
    }
}
