//! A kernel's configuration, and the plan of its shared memory.

use core::marker::PhantomData;

use cuda_std::wgmma::Accumulator;
use primitives::cluster::{ClusterCoord, ClusterShape};
use primitives::pipeline::{Depth, Pipeline, PipelineState};
use primitives::shared_plan::{Mbarrier, SharedPlan};
use primitives::tma::LINE_BYTES;
use primitives::{shared_bytes, shared_plan};

use super::super::config::{ALIGN, CONSUMER_ROWS, SHARED_BYTES, TicketBytes, Tickets, WARPGROUP};
use super::super::fragments::Fragment;
use super::super::schedule::Board;

/// Warpgroups that multiply; one more copies and turns.
pub const CONSUMERS: u32 = 2;
/// Queries of a block's tile.
pub const BLOCK_M: u32 = CONSUMERS * CONSUMER_ROWS;
/// Keys of a block: a line of turned values.
pub const BLOCK_N: u32 = LINE_BYTES;
/// Rows with one scale, where scales are of blocks.
pub const SCALE_BLOCK: u32 = 128;
/// Threads of a block.
pub const THREADS: u32 = (1 + CONSUMERS) * WARPGROUP;
/// Columns of a box: 128 bytes, the span of the swizzle.
pub const BOX_COLUMNS: u32 = LINE_BYTES;
/// Bytes of a box of queries.
pub const QUERY_BOX: u32 = CONSUMER_ROWS * LINE_BYTES;
/// Bytes of a box of keys, or of values.
pub const KEY_BOX: u32 = BLOCK_N * LINE_BYTES;

const _: () = assert!(SCALE_BLOCK == BLOCK_M && SCALE_BLOCK == BLOCK_N, "one scale a tile, and a block");

/// A thread's scores.
pub type Scores = [f32; BLOCK_N as usize / 2];

/// A kernel. Constants with values follow from the others.
pub trait Config: Copy + 'static {
    /// A thread's results: 64 queries x `HEAD` columns.
    type Result: Fragment;
    /// Stages of keys, and as many of values.
    const STAGES: u32;

    /// Largest head size.
    const HEAD: u32 = Self::Result::N;
    /// Boxes beside each other in a tile.
    const BOXES: u32 = Self::HEAD / BOX_COLUMNS;
    /// Bytes of shared memory of a block.
    const SHARED: u32 = Plan::<Self>::TOTAL;

    /// Checks that hold for every kernel; named in a `const` block of it.
    const CHECKED: () = {
        assert!(Self::SHARED <= SHARED_BYTES, "shared memory of a block");
        assert!(Self::HEAD.is_multiple_of(BOX_COLUMNS) && Self::HEAD <= 256, "whole boxes, one product wide");
    };
}

/// Turned values in global memory: of each matrix and head of keys a line a column, which has all keys,
/// padded to whole blocks with zeros. Packed sequences begin with a block.
///
/// The order of k is free, so keys lie in that in which weights do: `slot 4 q + r` of 16 is key
/// `8 (r / 2) + 2 q + r % 2`. Of 16 columns the even ones come first: a thread of a consumer gets four
/// neighbours of each row.
#[derive(Clone, Copy)]
pub struct Turned;

impl Turned {
    /// Columns whose lines are in an order of their own.
    pub const COLUMNS: u32 = 16;

    /// Lines of a head.
    #[inline(always)]
    #[must_use]
    pub const fn lines(head_size: u32) -> u32 {
        head_size.next_multiple_of(Self::COLUMNS)
    }

    /// Bytes of a line, of sequences of so many keys; or of all `rows` of `sequences` that are packed.
    #[must_use]
    pub const fn line_bytes(keys: u32, packed: Option<[u32; 2]>) -> u64 {
        match packed {
            None => keys.next_multiple_of(BLOCK_N) as u64,
            Some([rows, sequences]) => {
                rows.next_multiple_of(BLOCK_N) as u64 + sequences as u64 * BLOCK_N as u64
            }
        }
    }

    /// Where the keys of packed sequence `batch` begin in a line, whose first one is row `first_key`: behind
    /// the blocks of all earlier ones, each of which has less than one more than its keys.
    #[inline(always)]
    #[must_use]
    pub const fn first(first_key: u32, batch: u32) -> u32 {
        first_key.next_multiple_of(BLOCK_N) + batch * BLOCK_N
    }
}

shared_plan! {
    /// The shared memory of a block.
    pub struct Plan<C: Config> {
        /// The consumers' queries.
        queries[CONSUMERS]: Queries<C>,
        /// The stages of keys.
        keys[C::STAGES]: Keys<C>,
        /// The stages of turned values: a line of `BLOCK_N` keys for each column.
        values[C::STAGES]: Keys<C>,
        /// Say that a consumer's queries have come.
        queries_full[CONSUMERS]: Mbarrier,
        /// Say that they may be overwritten.
        queries_empty[CONSUMERS]: Mbarrier,
        /// The barriers of the stages of keys.
        key_pipeline: Pipeline<Of<C>>,
        /// The barriers of the stages of values.
        value_pipeline: Pipeline<Of<C>>,
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
    pub struct Keys<C: Config>(C::BOXES * KEY_BOX, align ALIGN);
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
