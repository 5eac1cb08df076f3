//! A kernel's configuration: operands, tile, cluster, pipeline depth, and the plan of its shared memory.

use core::marker::PhantomData;

use cuda_std::misc;
use primitives::cluster::{Cluster, Coord, MOST_BLOCKS};
use primitives::pipeline::{Depth, Pipeline};
use primitives::shared_plan::{Mbarrier, SharedPlan, SharedType};
use primitives::tma::{LINE_BYTES, Major};
use primitives::warp::LANES;
use primitives::{shared_bytes, shared_plan};

use super::cluster_split_k::Inbox;
use super::column_store::WIDE_COLUMNS;
use super::direct::{CHUNK, MOST_CHUNKS};
use super::operands::{AccumulatorTile, GROUP_ROWS, Operands};
pub use super::subtile::{MOST_PLACES, SUBTILES, SourceBarriers, Subtile};
use super::tile_scheduler::GemmShape;

/// Threads of a warpgroup.
pub const WARPGROUP: u32 = 128;
/// Warps of it.
pub(super) const WARPS: u32 = WARPGROUP / LANES;
/// Bytes of shared memory that a block of sm_90 can have.
const SHARED_BYTES: u32 = 227 * 1024;
/// More stages than this hide nothing more.
const MAX_STAGES: u32 = 12;
/// The same where threads copy.
const DIRECT_STAGES: u32 = 5;
/// Bytes of an element of a result that goes through shared memory, but for 8-bit ones and f32.
pub(super) const ELEMENT16_BYTES: u32 = 2;
/// Columns of the widest tile: one instruction's.
const WIDEST: u32 = 256;
/// Columns of four registers of an accumulator.
const STEP: u32 = 8;
/// Accumulators of a thread that leave room for sixteen more numbers.
const MOST_BESIDE_WIDE_CHUNKS: u32 = 128;
/// Alignment of everything that the copy engine touches, and of the swizzle's pattern.
pub(super) const ALIGN: u32 = 1024;

/// A kernel: what it multiplies and how the work is cut. Constants with values follow from the others.
pub trait Config: Copy + 'static {
    /// Types and orders.
    type Operands: Operands;
    /// A consumer's accumulators.
    type Tile: AccumulatorTile;
    /// Those that it stores: all, or half of the columns for [`cluster_split_k`](super::cluster_split_k).
    type Stored: AccumulatorTile;
    /// The shared memory of a consumer's epilogue: [`EpiloguePlan`], or another package's plan.
    type EpiloguePlan: SharedType;
    /// Warpgroups that multiply; one more copies.
    const CONSUMERS: u32;
    /// Whether each consumer has a tile, so that one stores while the other multiplies (CUTLASS's ping-pong).
    /// Else they share a tile by rows (cooperative).
    const PING_PONG: bool;
    /// Blocks of a cluster below each other: they share columns of B.
    const CLUSTER_M: u32;
    /// Blocks of a cluster beside each other: they share rows of A.
    const CLUSTER_N: u32;
    /// Whether launches say both, in place of these, by [`GemmShape::cluster`].
    const ANY_CLUSTER: bool = false;
    /// Whether the result is stored transposed.
    const TRANSPOSED: bool;
    /// Whether launches may ask for narrower tiles, if the rest allows it.
    const MAY_NARROW: bool = false;
    /// Whether the copy engine can store results in f32, those that are the product itself.
    const STORES_F32: bool = false;
    /// Whether all threads of the producer copy the operands, by themselves ([`direct`](super::direct)).
    const DIRECT: bool = false;

    /// Bytes of k in a line of A: a stage's, or less where A comes in several boxes, one behind the other,
    /// swizzled over as many bytes.
    const LINE_A: u32 = LINE_BYTES;

    /// Rows of a consumer's tile.
    const CONSUMER_ROWS: u32 = Self::Tile::GROUPS as u32 * GROUP_ROWS;
    /// Rows of a block's tile.
    const BLOCK_M: u32 = if Self::PING_PONG { 1 } else { Self::CONSUMERS } * Self::CONSUMER_ROWS;
    /// Columns of a block's tile.
    const BLOCK_N: u32 = Self::Tile::COLUMNS;
    /// Columns of a block's tile that it stores.
    const STORED_N: u32 = Self::Stored::COLUMNS;
    /// Blocks of a cluster that multiply the same tile, each a share of k: one or two.
    const CLUSTER_K: u32 = Self::BLOCK_N / Self::STORED_N;
    /// Blocks of a cluster.
    const CLUSTER: u32 = Self::CLUSTER_M * Self::CLUSTER_N * Self::CLUSTER_K;
    /// Accumulators of a thread.
    const ACCUMULATORS: u32 = Self::Tile::COLUMNS / 2 * Self::Tile::GROUPS as u32;
    /// Whether the producer gives more registers away, since consumers find the next tile while they store.
    /// Where 232 suffice, it keeps its own: some producers need more than 24.
    const SPARES: bool = Self::PING_PONG && Self::ACCUMULATORS > MOST_BESIDE_WIDE_CHUNKS;
    /// Whether its producer leaves out what lies outside of the operands. One that gives its registers away
    /// has too few for that.
    const SKIPS: bool = !Self::SPARES;
    /// Whether launches may ask for narrower tiles
    /// ([`GemmShape::tile_n`](super::tile_scheduler::GemmShape::tile_n)): the widest, of 8 and 16 bits, are
    /// too wide where they leave the last wave of multiprocessors idle, or C ends within one.
    const NARROWS: bool = Self::MAY_NARROW
        && Self::BLOCK_N == WIDEST
        && Self::Tile::GROUPS == 1
        && <Self::Operands as Operands>::BLOCK_K * ELEMENT16_BYTES >= LINE_BYTES
        && !Self::TRANSPOSED;
    /// Whether, without those, registers are too few for what the assembler would keep over an epilogue.
    const CROWDED: bool = Self::ACCUMULATORS > MOST_BESIDE_WIDE_CHUNKS && !Self::SPARES;
    /// Threads of a block.
    const THREADS: u32 = (1 + Self::CONSUMERS) * WARPGROUP;

    /// Columns of the subtiles, of 64 rows, in which a consumer stores its tile.
    const STORE_COLUMNS: u32 = store_columns(Self::STORED_N);
    /// Steps of 8 columns that the fusion takes at a time: four, in whole subtiles, if registers suffice.
    const CHUNK_STEPS: u32 = {
        let has_room = Self::ACCUMULATORS <= MOST_BESIDE_WIDE_CHUNKS;
        if has_room && Self::STORE_COLUMNS.is_multiple_of(4 * STEP) && !Self::TRANSPOSED { 4 } else { 2 }
    };
    /// Columns of that.
    const CHUNK_COLUMNS: u32 = Self::CHUNK_STEPS * STEP;
    /// Places for subtiles that a consumer has, [`SUBTILES`] or [`MOST_PLACES`].
    const PLACES: u32 = SUBTILES;
    /// Whether rows of the result that begin anywhere leave over shared memory, if registers suffice.
    const BY_ROWS: bool = !Self::TRANSPOSED && Self::ACCUMULATORS <= MOST_BESIDE_WIDE_CHUNKS;
    /// Whether whole tiles go through a fusion by columns alone in subtiles, if registers suffice.
    const BY_COLUMN: bool = Self::BY_ROWS && Self::STORE_COLUMNS == WIDE_COLUMNS;
    /// Whether they do where the result has 8 bits: as operands have, of products that such results come of.
    const NARROW: bool = Self::BY_COLUMN && Self::Operands::BLOCK_K == LINE_BYTES;
    /// Columns of the result that a consumer's tile has; the epilogue has a number for each.
    const RESULT_COLUMNS: u32 = if Self::TRANSPOSED { Self::CONSUMER_ROWS } else { Self::STORED_N };

    /// Consumers that get sums of another share of k.
    const INBOXES: u32 = if Self::CLUSTER_K > 1 { Self::CONSUMERS } else { 0 };
    /// Stages of the pipeline: as many as there is room for, or as copies by threads keep under way. (What
    /// they leave is L1's, which copies of single elements pass.)
    const STAGES: u32 = {
        let consumers = Self::CONSUMERS * (Self::EpiloguePlan::BYTES + SourceBarriers::BYTES);
        let inboxes = Self::INBOXES * (Inbox::<Self>::BYTES + 2 * Mbarrier::BYTES);
        let room = SHARED_BYTES - consumers - inboxes - 2 * MAX_STAGES * Mbarrier::BYTES;
        let stages = room / Stage::<Self>::BYTES;
        let most = if Self::DIRECT { DIRECT_STAGES } else { MAX_STAGES };
        if stages < most { stages } else { most }
    };

    /// Bytes of shared memory of a block.
    const SHARED: u32 = Plan::<Self>::TOTAL;

    /// Checks that hold for every kernel; named in a `const` block of it.
    const CHECKED: () = {
        assert!(Self::STAGES >= 2, "no room for two stages");
        assert!(
            Self::CONSUMERS == 1 || Self::CONSUMERS == 2,
            "registers are shared out for one or two consumers"
        );
        assert!(!Self::PING_PONG || Self::CONSUMERS == 2, "two take turns");
        assert!(Self::CLUSTER <= MOST_BLOCKS, "beyond what is portable");
        assert!(
            Self::CLUSTER_K <= 2
                && Self::BLOCK_N == Self::CLUSTER_K * Self::STORED_N
                && Self::Tile::GROUPS == Self::Stored::GROUPS,
            "a block stores the whole tile, or half of the columns"
        );
        assert!(
            Self::CLUSTER_K == 1
                || (Self::CLUSTER == Self::CLUSTER_K && !Self::PING_PONG && !Self::TRANSPOSED),
            "blocks that split k share nothing else"
        );
        assert!(
            !Self::DIRECT
                || (Self::CLUSTER == 1
                    && Self::CONSUMERS == 1
                    && matches!(Self::Operands::MAJOR_A, Major::K)
                    && matches!(Self::Operands::MAJOR_B, Major::K)
                    && is_in_chunks(Self::BLOCK_M)
                    && is_in_chunks(Self::BLOCK_N)
                    && <Self::Operands as Operands>::BLOCK_K * 4 == LINE_BYTES),
            "threads copy elements of 32 bits to a block's own tiles along k, of a few whole chunks of lines"
        );
        assert!(
            !Self::ANY_CLUSTER || (Self::CLUSTER == 1 && !Self::DIRECT && !Self::SPARES),
            "blocks share boxes alone, and a producer that gives its registers away has too few for that"
        );
        assert!(
            Self::LINE_A == LINE_BYTES
                || (matches!(Self::Operands::MAJOR_A, Major::K)
                    && (Self::LINE_A == LINE_BYTES / 2 || Self::LINE_A == LINE_BYTES / 4)),
            "boxes of A are swizzled over 128, 64 or 32 bytes of k"
        );
        assert!(
            Self::CLUSTER_M.is_power_of_two() && Self::CLUSTER_N.is_power_of_two(),
            "places in a cluster are found by shifts"
        );
        let [a, b] = [Self::Operands::MAJOR_A, Self::Operands::MAJOR_B];
        let span = <Self::Operands as Operands>::BLOCK_K;
        assert!(a.can_share(Self::BLOCK_M, span, Self::CLUSTER_N), "A cannot be shared out");
        assert!(b.can_share(Self::BLOCK_N, span, Self::CLUSTER_M), "B cannot be shared out");
    };
}

/// Whether threads can copy so many lines ([`direct`](super::direct)).
const fn is_in_chunks(lines: u32) -> bool {
    lines.is_multiple_of(CHUNK) && lines <= MOST_CHUNKS * CHUNK
}

/// Places for the subtiles of a product's kernel. Consumers that take turns store while the other one
/// multiplies, and a copy out of a place waits behind those that fill stages. So they have as many places as
/// a tile of 128 x 128 has subtiles, for a stage less. Tiles of more accumulators keep two, since the code
/// for four takes registers that they do not have, and so do 8-bit operands: their stage is twice as much
/// of k.
pub const fn places<C: Config>() -> u32 {
    let has_room = C::PING_PONG && C::ACCUMULATORS <= MOST_BESIDE_WIDE_CHUNKS;
    if has_room && <C::Operands as Operands>::BLOCK_K < LINE_BYTES { MOST_PLACES } else { SUBTILES }
}

/// The widest subtile, at most the swizzle's span, that divides the tile.
const fn store_columns(block_n: u32) -> u32 {
    let mut columns = LINE_BYTES / ELEMENT16_BYTES;
    while !block_n.is_multiple_of(columns) {
        columns /= 2;
    }
    columns
}

shared_plan! {
    /// The shared memory of a block.
    pub struct Plan<C: Config> {
        /// The stages of the pipeline.
        stage[C::STAGES]: Stage<C>,
        /// The consumers' epilogues.
        epilogue[C::CONSUMERS]: C::EpiloguePlan,
        /// Where a consumer gets the sums of the other share of k.
        inbox[C::INBOXES]: Inbox<C>,
        /// Says that all of them have come.
        inbox_full[C::INBOXES]: Mbarrier,
        /// Says that the other block's consumer of this number may be sent more.
        other_empty[C::INBOXES]: Mbarrier,
        /// The barriers of the stages.
        pipeline: Pipeline<Of<C>>,
        /// Say that what a consumer's epilogue adds has come.
        source[C::CONSUMERS]: SourceBarriers,
    }
}

shared_plan! {
    /// A stage: the tiles of A and B for 128 bytes of k.
    pub struct Stage<C: Config> {
        /// The tile of A.
        a: TileA<C>,
        /// The tile of B.
        b: TileB<C>,
    }
}

shared_bytes! {
    /// A block's rows of A.
    pub struct TileA<C: Config>(C::Operands::MAJOR_A.bytes(C::BLOCK_M), align ALIGN);
}

shared_bytes! {
    /// A block's columns of B.
    pub struct TileB<C: Config>(C::Operands::MAJOR_B.bytes(C::BLOCK_N), align ALIGN);
}

shared_plan! {
    /// The shared memory of a consumer's epilogue. The result leaves through subtiles.
    pub struct EpiloguePlan<C: Config> {
        /// One fills while the others leave.
        subtile[C::PLACES]: Subtile<C>,
        /// A number for each column of the result: the bias.
        column_vector[C::RESULT_COLUMNS]: f32,
    }
}

/// The depth of a kernel's pipeline, for [`primitives`].
pub struct Of<C>(PhantomData<C>);

impl<C: Config> Depth for Of<C> {
    const STAGES: u32 = C::STAGES;
}

/// The shape of a kernel's cluster: its own, or with [`Config::ANY_CLUSTER`] the launch's.
pub struct Clusters<C> {
    launched: [u32; 2],
    config: PhantomData<fn() -> C>,
}

impl<C> Clone for Clusters<C> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<C> Copy for Clusters<C> {}

impl<C: Config> Clusters<C> {
    /// Whether its blocks may write each other's stages.
    pub const SHARES: bool = C::ANY_CLUSTER || C::CLUSTER_M * C::CLUSTER_N > 1;

    /// Those of a launch of this shape.
    #[inline(always)]
    pub fn of(shape: &GemmShape) -> Self {
        Self { launched: shape.cluster, config: PhantomData }
    }
}

impl<C: Config> Cluster for Clusters<C> {
    const IS_ALONE: bool = C::CLUSTER == 1 && !C::ANY_CLUSTER;

    #[inline(always)]
    fn m(self) -> u32 {
        if C::ANY_CLUSTER { self.launched[0] } else { C::CLUSTER_M }
    }

    #[inline(always)]
    fn n(self) -> u32 {
        if C::ANY_CLUSTER { self.launched[1] } else { C::CLUSTER_N }
    }

    /// Without a division, of powers of two.
    #[inline(always)]
    fn place(self, rank: u32) -> [u32; 3] {
        let (m, n) = (self.m(), self.n());
        let behind = rank >> m.trailing_zeros();
        [rank & (m - 1), behind & (n - 1), behind >> n.trailing_zeros()]
    }
}

/// A block: its shared memory and its place in the cluster.
#[derive(Clone, Copy)]
pub struct Block<C: Config> {
    /// The plan of the shared memory.
    pub shared: Plan<C>,
    /// The place in the cluster.
    pub coord: Coord<Clusters<C>>,
}

impl<C: Config> Block<C> {
    /// This block, whose shared memory begins at `base`, of a launch of this shape.
    #[inline(always)]
    pub fn new(base: u32, shape: &GemmShape) -> Self {
        Self { shared: Plan::new(base), coord: Coord::within(Clusters::of(shape)) }
    }

    /// The same block, in a cluster of its own: for the compiler, which then knows its place.
    #[inline(always)]
    #[must_use]
    pub fn alone(self) -> Self {
        let cluster = Clusters { launched: [1; 2], config: PhantomData };
        Self { coord: Coord { row: 0, column: 0, cluster, ..self.coord }, ..self }
    }

    /// The same block. The compiler derives addresses from it behind this place: ahead of the mainloop they
    /// would take registers beside the accumulators.
    #[inline(always)]
    #[must_use]
    pub fn opaque(self) -> Self {
        Self { shared: Plan::new(misc::opaque(self.shared.base)), ..self }
    }

    /// Blocks whose copies write this block's stages, itself included: those of its row and of its column.
    #[inline(always)]
    pub fn peers(self) -> u32 {
        if Clusters::<C>::SHARES { self.coord.cluster.peers() } else { 1 }
    }

    /// Releases a stage that the consumer has read. All threads of the consumer call it.
    ///
    /// # Safety
    /// As for [`Pipeline::consumer_release`].
    #[inline(always)]
    pub unsafe fn release(self, stage: u32, thread: u32) {
        // SAFETY: the caller's contract; a cluster's blocks live until all meet at the kernel's end.
        unsafe { self.shared.pipeline().consumer_release(stage, thread, self.coord) }
    }
}
