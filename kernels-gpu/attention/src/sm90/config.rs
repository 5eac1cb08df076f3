//! A kernel's configuration: types, tiles, pipeline depth, and the plan of its shared memory.

use core::marker::PhantomData;

use cuda_std::wgmma::{Accumulator, Operand};
use primitives::cluster::{ClusterCoord, ClusterShape};
use primitives::pipeline::{Depth, Pipeline, Stages};
use primitives::shared_plan::{Mbarrier, SharedPlan};
use primitives::tma::LINE_BYTES;
use primitives::wgmma::Element16;
use primitives::{shared_bytes, shared_plan};

use super::fragments::Fragment;
use super::line::bytes_of;
use super::schedule::{Board, TICKET_WORDS};
use crate::score::ScoreFunction;

/// Threads of a warpgroup.
pub const WARPGROUP: u32 = 128;
/// Queries of a consumer.
pub const CONSUMER_ROWS: u32 = 64;
/// Columns of a box: 128 bytes, the span of the swizzle.
pub const BOX_COLUMNS: u32 = 64;
/// Bytes of shared memory that a block can have.
pub(super) const SHARED_BYTES: u32 = 227 * 1024;
/// Alignment of everything that the copy engine touches, and of the swizzle's pattern.
pub(super) const ALIGN: u32 = 1024;

/// A kernel. Constants with values follow from the others.
pub trait Config: Copy + 'static {
    /// The element type.
    type Element: Operand + Element16;
    /// A thread's scores: 64 queries x `BLOCK_N` keys of a consumer.
    type Scores: Fragment;
    /// A thread's results: 64 queries x `VALUE_HEAD` columns.
    type Result: Fragment;
    /// Changes scores before the softmax, and says which keys a query sees.
    type Function: ScoreFunction;
    /// Warpgroups that multiply; one more copies.
    const CONSUMERS: u32;
    /// Stages of keys, and as many of values.
    const STAGES: u32;
    /// Whether results leave through shared memory of their own, else through that of their queries.
    const OWN_OUTPUT: bool;
    /// Whether consumers take turns at issuing products.
    const TURNS: bool;

    /// Keys of a block.
    const BLOCK_N: u32 = Self::Scores::N;
    /// Largest head size of values and results.
    const VALUE_HEAD: u32 = Self::Result::N;
    /// Largest head size of queries and keys: as of values, if a kernel does not say more.
    const HEAD: u32 = Self::VALUE_HEAD;
    /// Queries of a block's tile.
    const BLOCK_M: u32 = Self::CONSUMERS * CONSUMER_ROWS;
    /// Boxes beside each other in a tile of queries or keys.
    const BOXES: u32 = Self::HEAD / BOX_COLUMNS;
    /// Boxes beside each other in a tile of values or results.
    const VALUE_BOXES: u32 = Self::VALUE_HEAD / BOX_COLUMNS;
    /// Bytes of a box of keys, or of values.
    const KEY_BOX: u32 = Self::BLOCK_N * LINE_BYTES;
    /// Bytes of a box of queries.
    const QUERY_BOX: u32 = CONSUMER_ROWS * LINE_BYTES;
    /// Threads of a block.
    const THREADS: u32 = (1 + Self::CONSUMERS) * WARPGROUP;
    /// Tiles of shared memory for results alone.
    const OUTPUTS: u32 = if Self::OWN_OUTPUT { Self::CONSUMERS } else { 0 };
    /// Boxes of results that leave at a time: those that shared memory of their own has room for.
    const OUTPUT_BOXES: u32 = if Self::OWN_OUTPUT && Self::VALUE_BOXES > 2 { 2 } else { Self::VALUE_BOXES };
    /// Places for the queries of a consumer. With two, those of the next tile come while a tile is computed;
    /// there is room for one where results leave through the place of their queries, or in parts: then the
    /// next ones come beside a tile's last product.
    const QUERY_STAGES: u32 = if Self::OWN_OUTPUT && Self::OUTPUT_BOXES == Self::VALUE_BOXES { 2 } else { 1 };
    /// Bytes of shared memory of a block.
    const SHARED: u32 = Plan::<Self>::TOTAL;

    /// Checks that hold for every kernel; named in a `const` block of it.
    const CHECKED: () = {
        assert!(Self::SHARED <= SHARED_BYTES, "shared memory of a block");
        assert!(Self::CONSUMERS == 2 || Self::CONSUMERS == 3, "registers are shared out for two or three");
        assert!(Self::HEAD.is_multiple_of(BOX_COLUMNS) && Self::HEAD <= 256, "whole boxes, counted out");
        assert!(Self::VALUE_HEAD.is_multiple_of(BOX_COLUMNS), "whole boxes");
        assert!(
            Self::VALUE_HEAD <= Self::HEAD,
            "one product wide; results fit in the place of their queries"
        );
        let parts = [Self::OUTPUT_BOXES, 2 * Self::OUTPUT_BOXES];
        assert!(
            Self::VALUE_BOXES == parts[0] || Self::VALUE_BOXES == parts[1],
            "results whole, or in two parts"
        );
        assert!(Self::BLOCK_N.is_multiple_of(16) && Self::BLOCK_N <= 256, "whole steps of P V, one box high");
    };
}

/// A configuration with another score function.
pub struct With<C, F>(PhantomData<(C, F)>);

impl<C, F> Clone for With<C, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C, F> Copy for With<C, F> {}

impl<C: Config, F: ScoreFunction> Config for With<C, F> {
    type Element = C::Element;
    type Scores = C::Scores;
    type Result = C::Result;
    type Function = F;
    const HEAD: u32 = C::HEAD;
    const CONSUMERS: u32 = C::CONSUMERS;
    const STAGES: u32 = C::STAGES;
    const OWN_OUTPUT: bool = C::OWN_OUTPUT;
    const TURNS: bool = C::TURNS;
}

shared_plan! {
    /// The shared memory of a block.
    pub struct Plan<C: Config> {
        /// The consumers' queries, stage by stage.
        queries[C::CONSUMERS * C::QUERY_STAGES]: Queries<C>,
        /// The stages of keys.
        keys[C::STAGES]: Keys<C>,
        /// The stages of values.
        values[C::STAGES]: Values<C>,
        /// The consumers' results.
        output[C::OUTPUTS]: Output<C>,
        /// Say that a consumer's queries have come.
        queries_full[C::CONSUMERS * C::QUERY_STAGES]: Mbarrier,
        /// Say that they may be overwritten.
        queries_empty[C::CONSUMERS * C::QUERY_STAGES]: Mbarrier,
        /// The numbers of a block's columns, for a function with a slope.
        columns[C::Function::HAS_SLOPE as u32]: Columns<C>,
        /// The barriers of the stages of keys.
        key_pipeline: Pipeline<Of<C>>,
        /// The barriers of the stages of values.
        value_pipeline: Pipeline<Of<C>>,
        /// The barriers of the tickets.
        schedule: Pipeline<Tickets>,
        /// The tiles that are computed next.
        ticket[Tickets::STAGES]: TicketBytes,
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
    /// The queries of a consumer, then its results: boxes of 64 rows, one behind the other.
    pub struct Queries<C: Config>(C::BOXES * C::QUERY_BOX, align ALIGN);
}

shared_bytes! {
    /// The results of a consumer that leave at a time.
    pub struct Output<C: Config>(C::OUTPUT_BOXES * C::QUERY_BOX, align ALIGN);
}

shared_bytes! {
    /// A block of keys: boxes of `BLOCK_N` rows, one behind the other.
    pub struct Keys<C: Config>(C::BOXES * C::KEY_BOX, align ALIGN);
}

shared_bytes! {
    /// A block of values, as of keys.
    pub struct Values<C: Config>(C::VALUE_BOXES * C::KEY_BOX, align ALIGN);
}

shared_bytes! {
    /// The right operand of biases.
    pub struct Columns<C: Config>(bytes_of(C::BLOCK_N), align 128);
}

shared_bytes! {
    /// A [`Ticket`](super::schedule::Ticket).
    pub struct TicketBytes(TICKET_WORDS * 4, align 16);
}

/// The depth of a kernel's pipelines and the shape of its cluster, for [`primitives`].
pub struct Of<C>(PhantomData<C>);

impl<C: Config> Depth for Of<C> {
    const STAGES: u32 = C::STAGES;
}

/// The stages of queries.
pub struct QueriesOf<C>(PhantomData<C>);

impl<C: Config> Depth for QueriesOf<C> {
    const STAGES: u32 = C::QUERY_STAGES;
}

impl<C: Config> ClusterShape for Of<C> {
    const M: u32 = 1;
    const N: u32 = 1;
    const K: u32 = 1;
}

/// The tile that consumers compute, and those that the producer is ahead at most.
pub type Tickets = Stages<3>;

/// The place of a block in its cluster: there is no other.
pub type Alone<C> = ClusterCoord<Of<C>>;
