//! A configuration of both kernels: types, tiles, and the plan of their shared memory.

use core::marker::PhantomData;

use primitives::pipeline::Stages;
use primitives::shared_plan::SharedPlan;
use primitives::warp::LANES;
use primitives::{shared_bytes, shared_plan};

use crate::decode::config::Element;
use crate::mma::config::{SHARED_BYTES, WARP_ROWS};
use crate::mma::tile::{Height, Registers, Shape, check};

/// Stages of the ring.
pub const STAGES: u32 = 2;
/// The value of the type of rings.
pub const RING: Stages<STAGES> = Stages;

/// Warps that share a row of the kernel of keys, of so long rows: one with dK and dV, or one for each of them
/// where both are more than a thread's registers.
const fn sharers(head: u32) -> u32 {
    if head > 128 { 2 } else { 1 }
}

/// Threads of a block of the kernel of queries that owns so many rows.
pub const fn query_threads(own: u32) -> u32 {
    own / WARP_ROWS * LANES
}

/// Threads of a block of the kernel of keys that owns so many, of so long rows.
pub const fn key_threads(own: u32, head: u32) -> u32 {
    sharers(head) * query_threads(own)
}

/// Kernels. Constants with values follow from the others.
pub trait Config: Copy + 'static {
    /// The element type.
    type Element: Element;
    /// A thread's scores: of two of its warp's rows, `OTHER` columns.
    type Scores: Registers;
    /// A thread's sums of a gradient: of two rows, `HEAD` columns.
    type Sums: Registers;

    /// Rows that a block owns: keys, or queries. Each warp has [`WARP_ROWS`] of them.
    const OWN: u32;
    /// Rows of the others that come at a time: queries, or keys.
    const OTHER: u32 = size_of::<Self::Scores>() as u32 / 4 * LANES / WARP_ROWS;
    /// Largest head size.
    const HEAD: u32 = size_of::<Self::Sums>() as u32 / 4 * LANES / WARP_ROWS;
    /// Bytes of a tile of other rows.
    const OTHER_BYTES: u32 = Self::OTHER * OfKeys::<Self>::BYTES;
    /// Whether dK and dV of a row belong to two warps.
    const IS_SHARED: bool = OfKeys::<Self>::SHARERS > 1;
    /// Bytes of shared memory of a block.
    const SHARED: u32 = Plan::<Self>::TOTAL;

    /// Checks that hold for all kernels; named in a `const` block of them.
    const CHECKED: () = {
        assert!(Self::SHARED <= SHARED_BYTES, "shared memory of a block");
        assert!(Self::OWN.is_multiple_of(Self::OTHER), "tiles of queries reach as far as L and D");
        assert!(Self::OTHER <= if Self::IS_SHARED { 64 } else { 128 }, "loops are counted out");
        assert!(Self::OTHER / 2 <= OfKeys::<Self>::THREADS, "a thread for four numbers of L and D");
        check::<OfKeys<Self>, Own<Self>>();
        check::<OfKeys<Self>, Stage<Self>>();
        check::<OfQueries<Self>, Own<Self>>();
        check::<OfQueries<Self>, Stage<Self>>();
    };
}

/// Tiles of the kernel of keys.
#[derive(Clone, Copy)]
pub struct OfKeys<C>(PhantomData<C>);

impl<C: Config> Shape for OfKeys<C> {
    type Element = C::Element;
    const HEAD: u32 = C::HEAD;
    const THREADS: u32 = key_threads(C::OWN, C::HEAD);
    const SHARERS: u32 = sharers(C::HEAD);
}

/// Tiles of the kernel of queries.
#[derive(Clone, Copy)]
pub struct OfQueries<C>(PhantomData<C>);

impl<C: Config> Shape for OfQueries<C> {
    type Element = C::Element;
    const HEAD: u32 = C::HEAD;
    const THREADS: u32 = query_threads(C::OWN);
}

shared_plan! {
    /// The shared memory of a block.
    pub struct Plan<C: Config> {
        /// K and V, or Q and dO: the rows that the block owns. Then their gradients.
        own[2]: Own<C>,
        /// The ring of the other rows.
        ring[STAGES]: Stage<C>,
        /// Weights of a turn, rounded, for the warps that have dK.
        weights[if C::IS_SHARED { C::OWN / WARP_ROWS } else { 0 }]: Weights<C>,
    }
}

shared_bytes! {
    /// A tile of own rows.
    pub struct Own<C: Config>(C::OWN * OfKeys::<C>::BYTES, align 128);
}

shared_bytes! {
    /// Q and dO with L and D of their rows; or K and V.
    pub struct Stage<C: Config>(2 * C::OTHER_BYTES + 2 * C::OTHER * size_of::<f32>() as u32, align 128);
}

shared_bytes! {
    /// Weights of a warp's rows and all columns, in the order of registers.
    pub struct Weights<C: Config>(WARP_ROWS * C::OTHER * 2, align 128);
}

impl<C: Config> Height for Own<C> {
    const LINES: u32 = C::OWN;
}

impl<C: Config> Height for Stage<C> {
    const LINES: u32 = C::OTHER;
}
