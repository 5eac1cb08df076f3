//! Number formats of the tensor cores: f16, bf16, tf32, fp8 (E4M3, E5M2), fp4 (E2M1) and the E8M0 block
//! scale.
//!
//! The crate is `no_std` and allocates nothing, and every conversion is a `const fn`. The same code runs in
//! kernels, in the CPU executor and in the oracles. One algorithm ([`Format::encode`]) rounds for every
//! format. The types [`E4M3`], [`E5M2`], [`E2M1`] and [`E8M0`] are thin wrappers. [`struct@f16`] and [`bf16`]
//! are the types of the `half` crate, so arrays of them can pass between libraries.
//!
//! | format | bits (sign, exponent, mantissa) | largest | smallest positive | infinity | NaN codes |
//! |---|---|---|---|---|---|
//! | f16  | 1, 5, 10 | 65504 | 2^-24 | yes | exponent all ones |
//! | bf16 | 1, 8, 7  | 3.39e38 | 2^-133 | yes | exponent all ones |
//! | tf32 | 1, 8, 10 (in the high bits of an f32) | 3.40e38 | 2^-136 | yes | exponent all ones |
//! | E4M3 | 1, 4, 3  | 448 | 2^-9 | no | 0x7f, 0xff |
//! | E5M2 | 1, 5, 2  | 57344 | 2^-16 | yes | 0x7d..=0x7f and negative |
//! | E2M1 | 1, 2, 1  | 6 | 0.5 | no | none |
//! | E8M0 | 0, 8, 0  | 2^127 | 2^-127 | no | 0xff |
#![no_std]

mod format;
mod fp4;
mod fp8;
mod packed;
mod scale;
mod tf32;

pub use format::{Format, Overflow, Rounding, Specials};
pub use fp4::E2M1;
pub use fp8::{E4M3, E5M2};
pub use half::{bf16, f16};
pub use packed::{Packed2, pack_x2, unpack_x2};
pub use scale::E8M0;
pub use tf32::{tf32_from_f32, tf32_truncate};
