//! The engine for Hopper: rows come into a ring in shared memory, once, and stay there until their results
//! are written. See the crate's page for the picture.

pub mod columns;
pub mod engine;
pub mod held;
#[cfg(feature = "kernels")]
pub mod kernels;
mod producer;
mod reduce;
mod ring;
