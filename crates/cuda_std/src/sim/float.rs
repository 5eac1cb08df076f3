//! What the hardware computes exactly: one rounding, or none. The standard library rounds in the same way.

macro_rules! exact {
    ($($ty:ident)*) => {$(
        pub mod $ty {
            pub fn floor(x: $ty) -> $ty {
                x.floor()
            }
            pub fn ceil(x: $ty) -> $ty {
                x.ceil()
            }
            pub fn round(x: $ty) -> $ty {
                x.round()
            }
            pub fn trunc(x: $ty) -> $ty {
                x.trunc()
            }
            pub fn sqrt(x: $ty) -> $ty {
                x.sqrt()
            }
            pub fn mul_add(x: $ty, a: $ty, b: $ty) -> $ty {
                x.mul_add(a, b)
            }
        }
    )*};
}

exact!(f32 f64);
