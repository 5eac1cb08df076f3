//! A kernel's configuration: types, tiles, and the plan of its shared memory.

use primitives::pipeline::{Depth, StageCount};
use primitives::shared_plan::SharedPlan;
use primitives::warp::LANES;
use primitives::{shared_bytes, shared_plan};

use super::tile::{Height, Registers, Shape, check};
use crate::decode::config::Element;

/// Warps of a block.
pub const WARPS: u32 = 4;
/// Threads of a block.
pub const THREADS: u32 = WARPS * LANES;
/// Queries of a warp: rows of a tile of the tensor cores.
pub const WARP_ROWS: u32 = 16;
/// Queries of a block's tile.
pub const BLOCK_M: u32 = WARPS * WARP_ROWS;
/// Keys of a step of `P V`.
pub const STEP_KEYS: u32 = 16;
/// Bytes of shared memory that a block can have on every device since Ampere: that of 8.6 and 8.9.
pub(super) const SHARED_BYTES: u32 = 99 * 1024;

/// A kernel. Constants with values follow from the others.
pub trait Config: Copy + 'static {
    /// The element type.
    type Element: Element;
    /// A thread's scores: of two of a warp's rows, `BLOCK_N` keys.
    type Scores: Registers;
    /// A thread's results: of two rows, `HEAD` columns.
    type Result: Registers;
    /// Stages of the ring.
    type Stages: Depth + StageCount;
    /// The value of that type.
    const RING: Self::Stages;

    /// Keys of a block.
    const BLOCK_N: u32 = size_of::<Self::Scores>() as u32 / 4 * LANES / WARP_ROWS;
    /// Largest head size.
    const HEAD: u32 = size_of::<Self::Result>() as u32 / 4 * LANES / WARP_ROWS;
    /// Bytes of a block of keys, or of values.
    const TILE_BYTES: u32 = Self::BLOCK_N * <Self as Shape>::BYTES;
    /// Bytes of shared memory of a block.
    const SHARED: u32 = Plan::<Self>::TOTAL;

    /// Checks that hold for every kernel; named in a `const` block of it.
    const CHECKED: () = {
        assert!(Self::SHARED <= SHARED_BYTES, "shared memory of a block");
        assert!(Self::BLOCK_N == 32 || Self::BLOCK_N == 64, "whole steps");
        check::<Self, Queries<Self>>();
        check::<Self, Stage<Self>>();
    };
}

impl<C: Config> Shape for C {
    type Element = <C as Config>::Element;
    const HEAD: u32 = <C as Config>::HEAD;
    const THREADS: u32 = THREADS;
}

shared_plan! {
    /// The shared memory of a block.
    pub struct Plan<C: Config> {
        /// The tile's queries, then its results.
        queries: Queries<C>,
        /// The ring of keys and values.
        ring[<C::Stages as Depth>::STAGES]: Stage<C>,
    }
}

shared_bytes! {
    /// Rows of queries.
    pub struct Queries<C: Config>(BLOCK_M * <C as Shape>::BYTES, align 128);
}

shared_bytes! {
    /// A block of keys, then one of values.
    pub struct Stage<C: Config>(2 * C::TILE_BYTES, align 128);
}

impl<C: Config> Height for Queries<C> {
    const LINES: u32 = BLOCK_M;
}

impl<C: Config> Height for Stage<C> {
    const LINES: u32 = C::BLOCK_N;
}
