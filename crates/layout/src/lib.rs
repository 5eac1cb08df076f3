//! Pure index arithmetic that kernels and hosts share: tile order, shared-memory swizzles, lane maps.
//!
//! No memory is touched here, nothing can panic for the arguments allowed, and every map is tested over all of its domain,
//! against the model of the shared-memory banks in [`banks`].
#![no_std]

pub mod banks;
mod divisor;
mod lanes;
mod order;
mod swizzle;
pub mod wgmma;

pub use divisor::Divisor;
pub use lanes::interleaved_lane;
pub use order::grouped_tile;
pub use swizzle::swizzle_units;

/// Bytes of the widest memory access of one thread, the unit of swizzles.
pub const UNIT_BYTES: u32 = 16;
