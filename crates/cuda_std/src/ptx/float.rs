//! What the hardware computes exactly: one rounding, or none.

use core::f32::math as f32_math;
use core::f64::math as f64_math;

macro_rules! exact {
    ($($ty:ident: $math:ident;)*) => {$(
        pub mod $ty {
            use super::$math as math;

            #[inline(always)]
            pub fn floor(x: $ty) -> $ty {
                math::floor(x)
            }
            #[inline(always)]
            pub fn ceil(x: $ty) -> $ty {
                math::ceil(x)
            }
            #[inline(always)]
            pub fn round(x: $ty) -> $ty {
                math::round(x)
            }
            #[inline(always)]
            pub fn trunc(x: $ty) -> $ty {
                math::trunc(x)
            }
            #[inline(always)]
            pub fn sqrt(x: $ty) -> $ty {
                math::sqrt(x)
            }
            #[inline(always)]
            pub fn mul_add(x: $ty, a: $ty, b: $ty) -> $ty {
                math::mul_add(x, a, b)
            }
        }
    )*};
}

exact! {
    f32: f32_math;
    f64: f64_math;
}
