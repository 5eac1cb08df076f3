//! 8-bit floats.

use bytemuck::{Pod, Zeroable};

use crate::format::{Format, Overflow, Rounding};

macro_rules! fp8 {
    ($(#[$doc:meta])* $name:ident, $format:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Pod, Zeroable)]
        #[repr(transparent)]
        pub struct $name(u8);

        impl $name {
            /// The format's description.
            pub const FORMAT: Format = $format;
            /// The largest finite number.
            pub const MAX: Self = Self(Self::FORMAT.max_code() as u8);
            /// The NaN that conversions return.
            pub const NAN: Self = Self(Self::FORMAT.nan_code() as u8);

            /// The number with this code.
            #[must_use]
            pub const fn from_bits(bits: u8) -> Self {
                Self(bits)
            }

            /// The code of this number.
            #[must_use]
            pub const fn to_bits(self) -> u8 {
                self.0
            }

            /// Rounds to the nearest number, ties to even. Values beyond the range, infinity included, give
            /// [`MAX`](Self::MAX) with their sign. NaN gives [`NAN`](Self::NAN). The same as the GPU's
            /// `cvt.rn.satfinite`.
            #[must_use]
            pub const fn from_f32(x: f32) -> Self {
                Self(Self::FORMAT.encode(x, Rounding::NearestEven, Overflow::Saturate) as u8)
            }

            /// The exact value.
            #[must_use]
            pub const fn to_f32(self) -> f32 {
                Self::FORMAT.decode(self.0 as u32)
            }

            /// Whether this is a NaN.
            #[must_use]
            pub const fn is_nan(self) -> bool {
                Self::FORMAT.is_nan(self.0 as u32)
            }
        }

        impl From<$name> for f64 {
            /// The exact value.
            fn from(x: $name) -> f64 {
                x.to_f32().into()
            }
        }
    };
}

fp8! {
    /// 1 sign, 4 exponent, 3 mantissa bits. Largest number 448. No infinity. Equality compares codes.
    E4M3, Format::E4M3
}
fp8! {
    /// 1 sign, 5 exponent, 2 mantissa bits. Largest number 57344. Has infinity. Equality compares codes.
    E5M2, Format::E5M2
}
