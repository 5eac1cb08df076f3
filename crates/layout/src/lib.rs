//! Index arithmetic that kernels and hosts share: tile order, shared-memory swizzles, lane maps.
//!
//! It accesses no memory and never panics for allowed arguments. Tests cover every map over its whole domain,
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
