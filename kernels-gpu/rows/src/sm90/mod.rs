//! The engines for Hopper: rows come into shared memory, once, and stay there until their results are
//! written. See the crate's page for the picture.

pub mod columns;
mod consumer;
pub mod held;
#[cfg(feature = "kernels")]
pub mod kept;
#[cfg(feature = "kernels")]
pub mod kernels;
#[cfg(feature = "kernels")]
mod pair;
mod producer;
mod reduce;
mod ring;
#[cfg(feature = "kernels")]
pub mod stay_sums;
#[cfg(feature = "kernels")]
mod turns;
