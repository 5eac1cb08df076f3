//! The configuration of the backward pass: types, tiles, and the plan of its shared memory.

use core::marker::PhantomData;

use cuda_std::wgmma::{Accumulator, Operand};
use primitives::cluster::ClusterShape;
use primitives::pipeline::{Depth, Pipeline};
use primitives::shared_plan::{Mbarrier, SharedPlan};
use primitives::tma::LINE_BYTES;
use primitives::wgmma::Element16;
use primitives::{named_barriers, shared_bytes, shared_plan};

use crate::backward::order::MAX_PARTS;
use crate::score::ScoreFunction;
use crate::sm90::config::{BOX_COLUMNS, SHARED_BYTES, WARPGROUP, With};
use crate::sm90::fragments::Fragment;

/// Warpgroups that multiply; one more copies.
pub const CONSUMERS: u32 = 2;
/// Keys of a consumer.
pub const CONSUMER_KEYS: u32 = 64;
/// Keys of a tile: those of a block, or of both blocks of a pair.
pub const BLOCK_N: u32 = 2 * CONSUMER_KEYS;
/// Threads of a block.
pub const THREADS: u32 = (1 + CONSUMERS) * WARPGROUP;
/// Buffers of dS: while one is multiplied, the next one is written; or, of each turn that is kept, the
/// block's own keys, and those of the other block of its pair.
pub const SCORE_BUFFERS: u32 = 2;
const ALIGN: u32 = 1024;

const PAIR: u32 = CONSUMERS * WARPGROUP;
/// A consumer, and the warp that gives it its turns.
const WITH_WARP: u32 = WARPGROUP + 32;

named_barriers! {
    /// The named barriers of a block.
    pub enum Barrier {
        /// The threads of a consumer.
        Consumer[2]: WARPGROUP threads,
        /// All of both consumers.
        Two[1]: PAIR threads,
        /// A consumer may add to the sums of a tile.
        Turn[2]: WITH_WARP threads,
        /// A consumer has added to them.
        Added[2]: WITH_WARP threads,
        /// The weights of a tile lie in shared memory, for the other consumer. Of two turns, as that of dV
        /// may be one ahead.
        Weights[2]: PAIR threads,
    }
}

/// A kernel. Constants with values follow from the others.
pub trait Config: Copy + 'static {
    /// The element type.
    type Element: Operand + Element16;
    /// A thread's scores: 64 keys x `BLOCK_M` queries.
    type Scores: Fragment;
    /// A thread's part of dK: 64 keys x `HEAD` columns.
    type Gradient: Fragment;
    /// A thread's part of dV: 64 keys x `VALUE_HEAD` columns.
    type ValueGradient: Fragment;
    /// A thread's part of dQ: 64 queries x a half or a quarter of the columns, or all columns of half of 128
    /// queries.
    type QueryGradient: Fragment;
    /// The score function of the forward pass.
    type Function: ScoreFunction;

    /// Queries of a tile.
    const BLOCK_M: u32 = Self::Scores::N;
    /// Largest head size of queries and keys.
    const HEAD: u32 = Self::Gradient::N;
    /// Largest head size of values and results.
    const VALUE_HEAD: u32 = Self::ValueGradient::N;
    /// Whether values may be as long as keys. Else no sequences are packed: the last rows of one are stored
    /// by one head size.
    const IS_OF_ONE_SIZE: bool = Self::HEAD == Self::VALUE_HEAD;
    /// Blocks of a cluster that share the keys of a tile out: a pair where accumulators of 128 keys are more
    /// than a block's registers.
    const BLOCKS: u32 = if Self::HEAD > 128 { 2 } else { 1 };
    /// Keys of a block.
    const BLOCK_KEYS: u32 = BLOCK_N / Self::BLOCKS;
    /// Boxes beside each other in a tile of queries or keys.
    const BOXES: u32 = Self::HEAD / BOX_COLUMNS;
    /// Boxes beside each other in a tile of values, or of the result's gradient.
    const VALUE_BOXES: u32 = Self::VALUE_HEAD / BOX_COLUMNS;
    /// Whether the blocks of a pair halve the box in the middle of dQ's columns.
    const HALVES_BOX: bool = Self::BLOCKS == 2 && Self::BOXES % 2 == 1;
    /// Consumers of a block that compute parts of dQ, the first ones. Where blocks halve a box, that of dV
    /// computes all of its block: a box and a half are no two parts of whole boxes.
    const PART_CONSUMERS: u32 = if Self::HALVES_BOX { 1 } else { CONSUMERS };
    /// Parts of dQ of a tile, one for each of those consumers of all blocks.
    const PARTS: u32 = Self::PART_CONSUMERS * Self::BLOCKS;
    /// Boxes of keys of the other block of a pair, those of the columns of dQ that a block computes.
    const OTHER_BOXES: u32 = if Self::BLOCKS == 2 { Self::BOXES.div_ceil(2) } else { 0 };
    /// Stages of queries and gradients.
    const STAGES: u32 = if Self::HALVES_BOX { 3 } else { 2 };
    /// Turns of which a pair of blocks keeps dS: while that of one is on its way or multiplied, that of the
    /// next one is written, where there is room.
    const SCORE_TURNS: u32 = if Self::HALVES_BOX { 2 } else { 1 };
    /// Bytes of a box of keys.
    const KEY_BOX: u32 = Self::BLOCK_KEYS * LINE_BYTES;
    /// Bytes of a box of queries.
    const QUERY_BOX: u32 = Self::BLOCK_M * LINE_BYTES;
    /// Whether dS is computed of weights in f32. In tiles of 128 queries they would need 64 registers beside
    /// those of the rounded weights, so there dS takes the rounded ones, as dV does: an error of `2^-9` (f16:
    /// `2^-12`) of dS, as large as that of its own rounding.
    /// In a pair another consumer computes it.
    const KEEPS_WEIGHTS: bool = Self::BLOCK_M == 64 && Self::BLOCKS == 1;
    /// Whether a block, or a pair of them, goes through all keys of a head, tile after tile
    /// ([`whole`](super::whole)).
    const IS_WHOLE: bool = false;
    /// Blocks of a cluster that share whole heads out, tile by tile ([`heads`](super::heads)): two where what
    /// a head uses again, by as many heads as there are multiprocessors, is more than L2 has room for.
    const SHARERS: u32 = if Self::IS_WHOLE && Self::HEAD > 64 { 2 } else { 1 };
    /// Blocks of a cluster.
    const CLUSTER: u32 = Self::BLOCKS * Self::SHARERS;
    /// Places of keys and values: while results leave one of them, the next tile is in the other one.
    const PLACES: u32 = if Self::IS_WHOLE { 2 } else { 1 };
    /// Places whose results another warp than the consumers' stores.
    const RESULTS: u32 = if Self::IS_WHOLE { Self::PLACES } else { 0 };
    /// Parts of dQ of which the producer tells: those of the turns under way, and of the turn before.
    const TOLD_PARTS: u32 = if Self::IS_WHOLE { 2 * Of::<Self>::STAGES } else { 0 };
    /// Bytes of shared memory of a block.
    const SHARED: u32 = Plan::<Self>::TOTAL;

    /// Checks that hold for every kernel; named in a `const` block of it.
    const CHECKED: () = {
        assert!(Self::SHARED <= SHARED_BYTES, "shared memory of a block");
        assert!(Self::BLOCK_M == 64 || Self::BLOCK_M == 128, "dQ is cut in two in one way or the other");
        assert!(Self::PARTS <= MAX_PARTS, "counts of a tile's parts");
        assert!(Self::QueryGradient::N * 64 * Self::PARTS == Self::HEAD * Self::BLOCK_M, "parts of dQ");
        assert!(Self::HEAD.is_multiple_of(BOX_COLUMNS) && Self::HEAD <= 256, "accumulators of dK and dV");
        assert!(Self::VALUE_HEAD.is_multiple_of(BOX_COLUMNS), "whole boxes");
        assert!(Self::VALUE_HEAD <= Self::HEAD, "boxes of values are those of keys, or fewer");
        assert!(
            Self::IS_OF_ONE_SIZE != Self::HALVES_BOX,
            "values of another size go with rows of three boxes"
        );
        assert!(Self::IS_OF_ONE_SIZE || Self::BLOCKS == 2, "one consumer sums dV, and the other one dK");
        assert!(!Self::HALVES_BOX || Self::BOXES == 3, "a box and a half for each block");
        assert!(Self::BLOCKS == 1 || !Self::IS_WHOLE, "a block has all keys of a head");
        assert!(Self::BLOCKS == 1 || Self::BLOCK_M == 64, "a box of dS for each block of a pair");
    };
}

impl<C: Config, F: ScoreFunction> Config for With<C, F> {
    type Element = C::Element;
    type Scores = C::Scores;
    type Gradient = C::Gradient;
    type ValueGradient = C::ValueGradient;
    type QueryGradient = C::QueryGradient;
    type Function = F;
}

/// The kernel whose blocks go through all keys of a head ([`whole`](super::whole)).
#[derive(Clone, Copy)]
pub struct Whole<C>(PhantomData<C>);

impl<C: Config> Config for Whole<C> {
    type Element = C::Element;
    type Scores = C::Scores;
    type Gradient = C::Gradient;
    type ValueGradient = C::ValueGradient;
    type QueryGradient = C::QueryGradient;
    type Function = C::Function;

    const IS_WHOLE: bool = true;
}

shared_plan! {
    /// The shared memory of a block.
    pub struct Plan<C: Config> {
        /// K, and dK at the end.
        keys[C::PLACES]: Keys<C>,
        /// V, and dV at the end.
        values[C::PLACES]: Values<C>,
        /// K of the pair's other block, the columns of dQ that this one computes.
        other_keys[C::OTHER_BOXES]: KeyBox<C>,
        /// Q.
        queries[Of::<C>::STAGES]: Queries<C>,
        /// dO.
        gradients[Of::<C>::STAGES]: Gradients<C>,
        /// dS^T, keys by queries.
        scores[SCORE_BUFFERS * C::SCORE_TURNS]: Scores<C>,
        /// L, with Q.
        logarithms[Of::<C>::STAGES]: Statistics<C>,
        /// D, with dO.
        deltas[Of::<C>::STAGES]: Statistics<C>,
        /// The work of the block, with its keys.
        work[C::PLACES]: Words,
        /// Which tile of queries a stage holds, with Q.
        tickets[Of::<C>::STAGES]: TicketWords,
        /// Where the part of dQ goes that a turn computes.
        parts[C::TOLD_PARTS]: TicketWords,
        /// Says that K has come.
        keys_full[C::PLACES]: Mbarrier,
        /// Says that V has come.
        values_full[C::PLACES]: Mbarrier,
        /// Says that dK and dV have taken the places of K and V.
        results_full[C::RESULTS]: Mbarrier,
        /// Says that both consumers have written their part of dS, and read the one before; or that dS of
        /// both blocks of a pair is there.
        scores_full[C::SCORE_TURNS]: Mbarrier,
        /// Says that both blocks of a pair have read what this one wrote of dS.
        scores_empty[C::SCORE_TURNS]: Mbarrier,
        /// The barriers of the stages of Q.
        query_pipeline: Pipeline<Of<C>>,
        /// The barriers of the stages of dO.
        gradient_pipeline: Pipeline<Of<C>>,
    }
}

shared_bytes! {
    /// A block of keys: boxes of a line for each key, one behind the other.
    pub struct Keys<C: Config>(C::BOXES * C::KEY_BOX, align ALIGN);
}

shared_bytes! {
    /// A block of values, as of keys.
    pub struct Values<C: Config>(C::VALUE_BOXES * C::KEY_BOX, align ALIGN);
}

shared_bytes! {
    /// A box of keys.
    pub struct KeyBox<C: Config>(C::KEY_BOX, align ALIGN);
}

shared_bytes! {
    /// A tile of queries: boxes of `BLOCK_M` lines, one behind the other.
    pub struct Queries<C: Config>(C::BOXES * C::QUERY_BOX, align ALIGN);
}

shared_bytes! {
    /// The result's gradients of a tile of queries, as these.
    pub struct Gradients<C: Config>(C::VALUE_BOXES * C::QUERY_BOX, align ALIGN);
}

shared_bytes! {
    /// A block's keys by `BLOCK_M` queries: boxes of 64 queries.
    pub struct Scores<C: Config>(C::BLOCK_M / BOX_COLUMNS * C::KEY_BOX, align ALIGN);
}

shared_bytes! {
    /// Nine words: a [`Work`](super::work::Work).
    pub struct Words(3 * layout::UNIT_BYTES, align layout::UNIT_BYTES);
}

shared_bytes! {
    /// Four words: a [`Ticket`](super::work::Ticket).
    pub struct TicketWords(layout::UNIT_BYTES, align layout::UNIT_BYTES);
}

shared_bytes! {
    /// A number for each query of a tile.
    pub struct Statistics<C: Config>(C::BLOCK_M * 4, align 128);
}

/// The depth of a kernel's pipelines and the shape of its cluster, for [`primitives`].
pub struct Of<C>(PhantomData<C>);

impl<C: Config> Depth for Of<C> {
    const STAGES: u32 = C::STAGES;
}

/// The depth of the ring of dS of a pair of blocks, for [`primitives`].
pub struct OfScores<C>(PhantomData<C>);

impl<C: Config> Depth for OfScores<C> {
    const STAGES: u32 = C::SCORE_TURNS;
}

impl<C: Config> ClusterShape for Of<C> {
    const M: u32 = C::BLOCKS;
    const N: u32 = 1;
    const K: u32 = 1;
}
