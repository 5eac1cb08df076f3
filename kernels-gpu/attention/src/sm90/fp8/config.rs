//! A kernel's configuration, and the plan of its shared memory.

use core::marker::PhantomData;

use cuda_std::wgmma::Accumulator;
use primitives::cluster::{ClusterCoord, ClusterShape};
use primitives::pipeline::{Depth, Pipeline, PipelineState};
use primitives::shared_plan::{Mbarrier, SharedPlan};
use primitives::tma::LINE_BYTES;
use primitives::warp::LANES;
use primitives::{shared_bytes, shared_plan};

use super::super::config::{ALIGN, CONSUMER_ROWS, SHARED_BYTES, TicketBytes, Tickets, WARPGROUP};
use super::super::fragments::Fragment;
use super::super::schedule::Board;

/// Warpgroups that multiply; one more copies and turns.
pub const CONSUMERS: u32 = 2;
/// Queries of a block's tile.
pub const BLOCK_M: u32 = CONSUMERS * CONSUMER_ROWS;
/// Threads of a block.
pub const THREADS: u32 = (1 + CONSUMERS) * WARPGROUP;
/// Keys of a line of turned values.
pub const LINE_KEYS: u32 = LINE_BYTES;
/// Rows with one scale, where scales are of blocks.
pub const SCALE_BLOCK: u32 = 128;
/// Warps that turn values: the producer's warpgroup but for its first warp.
pub const TURNERS: u32 = WARPGROUP / LANES - 1;
/// Columns of a box: 128 bytes, the span of the swizzle.
pub const BOX_COLUMNS: u32 = LINE_BYTES;
/// Bytes of a box of queries.
pub const QUERY_BOX: u32 = CONSUMER_ROWS * LINE_BYTES;

const _: () = assert!(SCALE_BLOCK == BLOCK_M, "one scale a tile");

/// A kernel. Constants with values follow from the others.
pub trait Config: Copy + 'static {
    /// A thread's scores: 64 queries x `BLOCK_N` keys of a consumer.
    type Scores: Fragment;
    /// A thread's results: 64 queries x `HEAD` columns.
    type Result: Fragment;
    /// Stages of keys, of values, and of turned values.
    const STAGES: u32;

    /// Keys of a block.
    const BLOCK_N: u32 = Self::Scores::N;
    /// Bytes of a box of keys, or of values.
    const KEY_BOX: u32 = Self::BLOCK_N * LINE_BYTES;
    /// Bytes of a box of turned values: a line for each column.
    const TURNED_BOX: u32 = Self::HEAD * LINE_BYTES;

    /// Largest head size.
    const HEAD: u32 = Self::Result::N;
    /// Boxes beside each other in a tile.
    const BOXES: u32 = Self::HEAD / BOX_COLUMNS;
    /// Bytes of shared memory of a block.
    const SHARED: u32 = Plan::<Self>::TOTAL;

    /// Checks that hold for every kernel; named in a `const` block of it.
    const CHECKED: () = {
        assert!(Self::SHARED <= SHARED_BYTES, "shared memory of a block");
        assert!(Self::BLOCK_N.is_multiple_of(LINE_KEYS) && Self::BLOCK_N <= 256, "whole lines, one box high");
        assert!(Self::HEAD.is_multiple_of(BOX_COLUMNS) && Self::HEAD <= 256, "whole boxes, one product wide");
    };
}

shared_plan! {
    /// The shared memory of a block.
    pub struct Plan<C: Config> {
        /// The consumers' queries.
        queries[CONSUMERS]: Queries<C>,
        /// The stages of keys.
        keys[C::STAGES]: Keys<C>,
        /// The stages of values.
        values[C::STAGES]: Keys<C>,
        /// The stages of turned values.
        turned[C::STAGES]: Keys<C>,
        /// Say that a consumer's queries have come.
        queries_full[CONSUMERS]: Mbarrier,
        /// Say that they may be overwritten.
        queries_empty[CONSUMERS]: Mbarrier,
        /// The barriers of the stages of keys.
        key_pipeline: Pipeline<Of<C>>,
        /// The barriers of the stages of values.
        value_pipeline: Pipeline<Of<C>>,
        /// Say that a stage of turned values is complete.
        turned_full[C::STAGES]: Mbarrier,
        /// Say that it may be overwritten.
        turned_empty[C::STAGES]: Mbarrier,
        /// The barriers of the tickets.
        schedule: Pipeline<Tickets>,
        /// The tiles that are computed next.
        ticket[Tickets::STAGES]: TicketBytes,
        /// The numbers of their heads.
        heads[Tickets::STAGES]: HeadBytes,
    }
}

impl<C: Config> Plan<C> {
    /// The tickets.
    #[inline(always)]
    pub(super) fn board(self) -> Board {
        Board { barriers: self.schedule(), first: self.ticket(0) }
    }
}

shared_bytes! {
    /// The numbers of a tile's heads.
    pub struct HeadBytes(8, align 8);
}

shared_bytes! {
    /// The queries of a consumer: boxes of 64 rows, one behind the other.
    pub struct Queries<C: Config>(C::BOXES * QUERY_BOX, align ALIGN);
}

shared_bytes! {
    /// A block of keys, boxes of `BLOCK_N` rows one behind the other; or of turned values, as many bytes in
    /// one box.
    pub struct Keys<C: Config>(C::BOXES * C::KEY_BOX, align ALIGN);
}

/// The depth of a kernel's pipelines and the shape of its cluster, for [`primitives`].
pub struct Of<C>(PhantomData<C>);

impl<C: Config> Depth for Of<C> {
    const STAGES: u32 = C::STAGES;
}

impl<C: Config> ClusterShape for Of<C> {
    const M: u32 = 1;
    const N: u32 = 1;
    const K: u32 = 1;
}

/// A place in a pipeline of the kernel's depth.
pub type State<C> = PipelineState<Of<C>>;

/// The place of a block in its cluster: there is no other.
pub type Alone<C> = ClusterCoord<Of<C>>;
