//! The shape of a block, its place in a cluster, and its shared memory.

use cuda_std::mbarrier;

use super::operands::{BOX_BYTES, BOX_ELEMENTS, GROUP_ROWS, Operands, ROW_BYTES, Tile};

/// Threads of a warpgroup.
pub const WARPGROUP: u32 = 128;
/// Bytes of shared memory that a block of sm_90 can have.
const SHARED_BYTES: u32 = 227 * 1024;
/// More stages than this hide nothing more.
const MAX_STAGES: u32 = 12;
/// Bytes of an element of a result that goes through shared memory, but for 8-bit ones.
pub(super) const HALF_BYTES: u32 = 2;
/// Columns of four registers of an accumulator.
const STEP: u32 = 8;
/// Accumulators of a thread that leave room for sixteen more numbers.
const MOST_BESIDE_WIDE_CHUNKS: u32 = 128;
/// Bytes of a number of the epilogue's.
const NUMBER_BYTES: u32 = 4;
/// Alignment of everything that the copy engine touches, and of the swizzle's pattern.
const ALIGN: u32 = 1024;

/// A kernel: what it multiplies and how the work is cut. The constants below the line follow from those above it.
pub trait Config {
    /// Types and orders.
    type Operands: Operands;
    /// A consumer's accumulators.
    type Tile: Tile;
    /// Those that it stores: all of them, or, where two blocks of a cluster share k out, half of the columns; see [`exchange`](super::exchange).
    type Stored: Tile;
    /// Warpgroups that multiply; one more copies.
    const CONSUMERS: u32;
    /// Each consumer takes a tile of its own, so that one stores while the other multiplies. Else they share a tile, one
    /// below the other.
    const PING_PONG: bool;
    /// Blocks of a cluster below each other: they share columns of B.
    const CLUSTER_M: u32;
    /// Blocks of a cluster beside each other: they share rows of A.
    const CLUSTER_N: u32;
    /// Stores the result transposed.
    const TRANSPOSED: bool;

    // ---

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
    /// The copying threads give away more registers: where a consumer stores a tile of its own, next to all of its accumulators it keeps what
    /// leads to its next one. Where 232 suffice they are left alone: some copying threads do not fit in 24.
    const SPARES: bool = Self::PING_PONG && Self::ACCUMULATORS > MOST_BESIDE_WIDE_CHUNKS;
    /// Nor is there room, without those, for what the assembler would keep over an epilogue.
    const CROWDED: bool = Self::ACCUMULATORS > MOST_BESIDE_WIDE_CHUNKS && !Self::SPARES;
    /// Threads of a block.
    const THREADS: u32 = (1 + Self::CONSUMERS) * WARPGROUP;

    /// Bytes of A in a stage.
    const A_BYTES: u32 = operand_bytes(Self::BLOCK_M, <Self::Operands as Operands>::TRANS_A);
    /// Bytes of B in a stage.
    const B_BYTES: u32 = operand_bytes(Self::BLOCK_N, <Self::Operands as Operands>::TRANS_B);
    /// Bytes from a stage to the next.
    const STAGE_BYTES: u32 = (Self::A_BYTES + Self::B_BYTES).next_multiple_of(ALIGN);

    /// Columns of the pieces, of 64 rows, in which a consumer stores its tile.
    const STORE_COLUMNS: u32 = store_columns(Self::STORED_N);
    /// Steps of 8 columns that go through the epilogue at a time: four, in pieces of whole ones, where there are registers for them.
    const CHUNK_STEPS: u32 = {
        let has_room = Self::ACCUMULATORS <= MOST_BESIDE_WIDE_CHUNKS;
        if has_room && Self::STORE_COLUMNS.is_multiple_of(4 * STEP) && !Self::TRANSPOSED { 4 } else { 2 }
    };
    /// Columns of that.
    const CHUNK_COLUMNS: u32 = Self::CHUNK_STEPS * STEP;
    /// Bytes of such a piece in 16-bit elements.
    const STORE_BYTES: u32 = Self::STORE_COLUMNS * GROUP_ROWS * HALF_BYTES;
    /// Pieces that a consumer has room for: one fills while the other leaves.
    const STORE_BUFFERS: u32 = 2;

    /// Columns of the result that a consumer's tile has; the epilogue has a number for each.
    const RESULT_COLUMNS: u32 = if Self::TRANSPOSED { Self::CONSUMER_ROWS } else { Self::STORED_N };
    /// Bytes of a consumer's pieces and of its epilogue's numbers.
    const CONSUMER_BYTES: u32 = (Self::STORE_BUFFERS * Self::STORE_BYTES
        + Self::RESULT_COLUMNS * NUMBER_BYTES)
        .next_multiple_of(ALIGN);

    /// Bytes of the consumers'.
    const OUTPUT_BYTES: u32 = Self::CONSUMERS * Self::CONSUMER_BYTES;
    /// Bytes of the sums that a consumer gets of the other share of k.
    const INBOX_BYTES: u32 = Self::CONSUMER_ROWS * Self::STORED_N * NUMBER_BYTES;
    /// Bytes of the consumers' and of their two barriers each.
    const INBOXES_BYTES: u32 =
        if Self::CLUSTER_K > 1 { Self::CONSUMERS * (Self::INBOX_BYTES + 2 * mbarrier::BYTES) } else { 0 };
    /// Barriers that tell that what an epilogue adds has come: one a piece.
    const FETCH_BARRIERS: u32 = Self::CONSUMERS * Self::STORE_BUFFERS;
    /// Stages of the ring: as many as there is room for.
    const STAGES: u32 = {
        let barriers = 2 * MAX_STAGES + Self::FETCH_BARRIERS;
        let room = SHARED_BYTES - Self::OUTPUT_BYTES - Self::INBOXES_BYTES - barriers * mbarrier::BYTES;
        let stages = room / Self::STAGE_BYTES;
        if stages < MAX_STAGES { stages } else { MAX_STAGES }
    };
    /// Where the result's pieces begin.
    const OUTPUT: u32 = Self::STAGES * Self::STAGE_BYTES;
    /// Where the consumers' inboxes begin, then the barriers of these.
    const INBOXES: u32 = Self::OUTPUT + Self::OUTPUT_BYTES;
    /// Where the barriers of the ring begin: one a stage that says full, then one a stage that says empty, then those of the consumers' pieces.
    const BARRIERS: u32 = Self::INBOXES + Self::INBOXES_BYTES;
    /// Bytes of shared memory of a block.
    const SHARED: u32 = Self::BARRIERS + (2 * Self::STAGES + Self::FETCH_BARRIERS) * mbarrier::BYTES;

    /// Checks that hold for every kernel; named in a `const` block of it.
    const CHECKED: () = {
        assert!(Self::STAGES >= 2, "no room for two stages");
        assert!(
            Self::CONSUMERS == 1 || Self::CONSUMERS == 2,
            "registers are shared out for one or two consumers"
        );
        assert!(!Self::PING_PONG || Self::CONSUMERS == 2, "two take turns");
        assert!(Self::CLUSTER <= 8, "beyond what is portable");
        assert!(
            Self::CLUSTER_K <= 2
                && Self::BLOCK_N == Self::CLUSTER_K * Self::STORED_N
                && Self::Tile::GROUPS == Self::Stored::GROUPS,
            "a block stores the whole tile, or half of the columns"
        );
        assert!(
            Self::CLUSTER_K == 1
                || (Self::CLUSTER == Self::CLUSTER_K && !Self::PING_PONG && !Self::TRANSPOSED),
            "blocks that share k out share nothing else"
        );
        // A block loads its part of what it shares; a part is whole rows of the swizzle's pattern, or whole boxes.
        let a = if <Self::Operands as Operands>::TRANS_A == 0 { 8 } else { BOX_ELEMENTS };
        let b = if <Self::Operands as Operands>::TRANS_B == 0 { 8 } else { BOX_ELEMENTS };
        assert!(Self::BLOCK_M.is_multiple_of(a * Self::CLUSTER_N), "A cannot be shared out");
        assert!(Self::BLOCK_N.is_multiple_of(b * Self::CLUSTER_M), "B cannot be shared out");
    };
}

/// Bytes of `rows` rows (or columns) of an operand in a stage.
const fn operand_bytes(rows: u32, trans: u32) -> u32 {
    if trans == 0 { rows * ROW_BYTES } else { rows.div_ceil(BOX_ELEMENTS) * BOX_BYTES }
}

/// The widest piece, at most the swizzle's span, that divides the tile.
const fn store_columns(block_n: u32) -> u32 {
    let mut columns = ROW_BYTES / HALF_BYTES;
    while !block_n.is_multiple_of(columns) {
        columns /= 2;
    }
    columns
}
