//! Elementary functions of floats in three precisions.
//!
//! | module | type | error |
//! |---|---|---|
//! | [`single`] | f32 | a few units in the last place |
//! | [`reduced`] | f32, for results that are rounded to f16 or bf16 | at most 2^-16, relative |
//! | [`double`] | f64 | that of `libm` |
//!
//! All of them keep special values and subnormal numbers. Activations in these precisions, and one for epilogues, are in
//! [`crate::activation`].

pub mod double;
pub mod reduced;
pub mod single;
