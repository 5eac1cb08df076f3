//! How rows are shared out: what the host decides and the engines follow.

mod drawn;
mod kept;
mod stay;

use crate::function::{MAX_INPUTS, MAX_OUTPUTS, MAX_SUMS};
use primitives::access::VECTOR_BYTES;

pub use drawn::{CLUSTER_PLACES, DRAWN_BYTES, Drawing, WEIGHT_PARTS};
pub use kept::{
    CLUSTER_TURNS, KEPT_ALONE_BYTES, KEPT_BYTES, KEPT_FEWER, KEPT_RESIDENT, KEPT_WARPS, KeptNorm,
    kept_vectors,
};
pub use stay::{
    STAY_ACTIVATED_LEAST, STAY_ACTIVATED_VECTORS, STAY_ACTIVATED_WARPS, STAY_CLUSTER_BYTES,
    STAY_CONTROL_BYTES, STAY_PAIR_BYTES, STAY_PLACES, STAY_STAGES, STAY_WARPS, lone_vectors, stay_vectors,
};

/// Threads of a block that work on rows, for most functions.
pub const CONSUMERS: u32 = 256;
/// Most of them, for functions with sums of columns.
pub const MAX_CONSUMERS: u32 = 512;
/// Most threads of a block that holds rows.
pub const HELD_THREADS: u32 = 512;
/// Vectors that a thread has of a row, or half as many, or twice.
const HELD_VECTORS: u64 = 8;
/// Blocks of as many threads that a multiprocessor has registers for.
pub const HELD_RESIDENT: u32 = 2;
/// Threads of the ring that have no columns, in a cluster: a warp that copies, one that hands statistics on.
pub const HELPERS: u32 = 64;
/// Vectors of a row that a thread of the direct engine takes, at most, where rows are short.
const THREAD_VECTORS: u64 = 4;
/// Vectors of a row of whose columns a thread keeps sums in the ring of a block, at most, of elements of this
/// size: of 16 bits three, so that a warp has a row of 768.
pub const fn sum_vectors(size: usize) -> usize {
    if size == size_of::<u16>() { 3 } else { MAX_SUM_VECTORS }
}
/// Most of them.
pub const MAX_SUM_VECTORS: usize = 4;
/// Most stages of a ring.
pub const MAX_STAGES: u32 = 32;
/// Most blocks that share a row.
pub const MAX_CLUSTER: u32 = 8;
/// Rows whose statistics are on their way between warps at a time.
pub const EXCHANGES: u32 = 4;
/// Bytes of a block's rows: two blocks fill a multiprocessor.
const BLOCK_BYTES: u64 = 104 << 10;
/// Bytes of a block's part of the weights that all rows share, as far as clusters go.
const SHARED_BYTES: u64 = 64 << 10;
/// Bytes of a ring whose block has all shared memory that a block can have.
const LONG_BYTES: u64 = (227 << 10) - CONTROL_BYTES as u64;
/// Most rows of a launch for Hopper: their numbers, and those of a few tiles behind them, take 32 bits.
const MAX_ROWS: u64 = 1 << 31;

/// How rows are shared out.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct Plan {
    /// Rows.
    pub rows: u64,
    /// Elements from a row to the next, of each input.
    pub input_strides: [u64; MAX_INPUTS],
    /// Of each output.
    pub output_strides: [u64; MAX_OUTPUTS],
    /// Elements of a row.
    pub columns: u32,
    /// Inputs that there are.
    pub inputs: u32,
    /// Threads of a block that share a row: a power of two, but where lanes have rings of their own.
    pub team: u32,
    /// Threads of a block that work on rows.
    pub consumers: u32,
    /// Vectors of a row in a stage; where lanes have rings of their own, those of a lane.
    pub stage_vectors: u32,
    /// Rows that the teams of a block take together; of rows in registers, those that each of the first
    /// blocks takes one after the other.
    pub tile: u32,
    /// Tiles of all rows; of rows in registers, those of the first blocks, or all of the launch's draws but
    /// one; where lanes have rings of their own, rows of whose statistics a block in a cluster has places.
    pub tiles: u32,
    /// Tiles from one of a block's to the next: the clusters of the grid, also where they draw rows; of other
    /// rows in registers, rows that each of the last blocks takes; where lanes have rings of their own, rows
    /// from one of a team's to the next.
    pub step: u32,
    /// The team as a power of two.
    pub team_bits: u32,
    /// Bytes of a row of an input in a stage.
    pub row_bytes: u32,
    /// Bytes of an input in a stage.
    pub part_bytes: u32,
    /// Bytes of a stage.
    pub stage_bytes: u32,
    /// Stages of the ring.
    pub stages: u32,
    /// Warps of a block that work on rows.
    pub slots: u32,
    /// Rows that a team takes in before it maps one: 1, or 0 where no third would come meanwhile.
    pub ahead: u32,
    /// Blocks that share a row.
    pub cluster: u32,
    /// Blocks.
    pub blocks: u32,
    /// Bytes of dynamic shared memory.
    pub shared: u32,
}

/// Rows, as far as plans ask.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Rows.
    pub rows: u64,
    /// Elements of a row, fewer than 2^32.
    pub columns: u32,
    /// Bytes of an element.
    pub size: usize,
    /// Inputs.
    pub inputs: u32,
    /// Weights that all rows share, of a row's length each.
    pub shared: u32,
    /// Elements from a row to the next, of each input.
    pub input_strides: [u64; MAX_INPUTS],
    /// Of each output.
    pub output_strides: [u64; MAX_OUTPUTS],
}

impl Shape {
    /// Vectors of 16 bytes in a row, at most.
    const fn vectors(&self) -> u64 {
        self.columns as u64 * self.size as u64 / VECTOR_BYTES as u64
    }

    /// Bytes of a vector of each input.
    const fn vector_bytes(&self) -> u64 {
        VECTOR_BYTES as u64 * self.inputs as u64
    }

    /// Bytes of three stages of so many rows each, or of a cluster's parts of them, and of rows that all
    /// share.
    const fn ring(&self, rows: u64, cluster: u64) -> u64 {
        let part = self.vectors().div_ceil(cluster) * VECTOR_BYTES as u64;
        (3 * self.inputs as u64 * rows + self.kept()) * part
    }

    /// Rows that all share for which the ring has room: at least one.
    const fn kept(&self) -> u64 {
        if self.shared == 0 { 1 } else { self.shared as u64 }
    }

    /// Whether vectors have the same columns in all rows, if they have in the first.
    pub const fn is_even(&self) -> bool {
        let (mut index, mut is_even) = (0, true);
        while index < MAX_INPUTS {
            // A single row has no next one.
            if index < self.inputs as usize && self.rows > 1 {
                is_even &= (self.input_strides[index] * self.size as u64).is_multiple_of(VECTOR_BYTES as u64);
            }
            index += 1;
        }
        is_even
    }

    /// Whether rows begin and end at vectors, if the first one begins at one.
    pub const fn is_whole(&self) -> bool {
        self.is_even() && (self.columns as u64 * self.size as u64).is_multiple_of(VECTOR_BYTES as u64)
    }
}

/// The least power of two that is not below, at least 1.
const fn power_of_two(number: u64) -> u64 {
    number.next_power_of_two()
}

impl Plan {
    const fn new(shape: &Shape) -> Self {
        Self {
            rows: shape.rows,
            input_strides: shape.input_strides,
            output_strides: shape.output_strides,
            columns: shape.columns,
            inputs: shape.inputs,
            team: 1,
            consumers: CONSUMERS,
            stage_vectors: 0,
            tile: CONSUMERS,
            tiles: 0,
            step: 0,
            team_bits: 0,
            row_bytes: 0,
            part_bytes: 0,
            stage_bytes: 0,
            stages: 0,
            slots: 0,
            ahead: 0,
            cluster: 1,
            blocks: 0,
            shared: 0,
        }
    }

    /// The plan of the direct engine: a thread, some lanes, or a block a row.
    pub const fn direct(shape: &Shape) -> Self {
        let vectors = shape.vectors();
        let team = power_of_two(vectors.div_ceil(THREAD_VECTORS));
        let team = if team > 32 { CONSUMERS } else { team as u32 };
        let blocks = shape.rows.div_ceil((CONSUMERS / team) as u64);
        // More blocks than a grid holds become an error of the launch.
        let blocks = if blocks > u32::MAX as u64 { u32::MAX } else { blocks as u32 };
        Self { blocks, ..Self::new(shape) }.with_team(team, CONSUMERS)
    }

    /// The plan of the engine that holds rows in shared memory; `None` for rows that are longer than what a
    /// cluster holds, or shorter than a vector.
    pub const fn held(shape: &Shape) -> Option<Self> {
        let vectors = shape.vectors();
        if vectors == 0 || shape.rows > MAX_ROWS {
            return None;
        }
        let mut cluster = 1;
        while vectors.div_ceil(cluster) * shape.vector_bytes() > BLOCK_BYTES {
            cluster *= 2;
        }
        if cluster > MAX_CLUSTER as u64 {
            return None;
        }
        // Blocks with less of a row leave L1 room for their part of what rows share.
        while shape.inputs == 1
            && cluster < MAX_CLUSTER as u64
            && vectors.div_ceil(cluster) * (VECTOR_BYTES as u32 * shape.shared) as u64 > SHARED_BYTES
        {
            cluster *= 2;
        }
        let piece = vectors.div_ceil(cluster);
        // Measured: a few lanes are best for a short row, and for one of middling length many threads, unless
        // what is done once for a row is much.
        let is_short = piece <= 16 * HELD_VECTORS;
        let is_long = piece > HELD_LEAST as u64 * HELD_VECTORS;
        let of_thread = if shape.inputs > 1 {
            if cluster > 1 && shape.shared > 1 { HELD_VECTORS } else { HELD_VECTORS / 2 }
        } else if is_short || shape.shared > 0 {
            HELD_VECTORS
        } else if is_long {
            2 * HELD_VECTORS
        } else {
            HELD_VECTORS / 2
        };
        let team = power_of_two(piece.div_ceil(of_thread)) as u32;
        let team = if team > HELD_THREADS { HELD_THREADS } else { team };
        let consumers = if team < HELD_LEAST { HELD_LEAST } else { team };
        let plan = Self { cluster: cluster as u32, ..Self::new(shape) }.with_team(team, consumers);
        let blocks = shape.rows.div_ceil(plan.tile as u64) * cluster;
        // More blocks than a grid holds become an error of the launch.
        let blocks = if blocks > u32::MAX as u64 { u32::MAX } else { blocks as u32 };
        let row_bytes = vectors.div_ceil(cluster) as u32 * VECTOR_BYTES as u32;
        let part_bytes = plan.tile * row_bytes;
        let shared = HELD_BYTES + shape.inputs * part_bytes;
        Some(Self { blocks, row_bytes, part_bytes, shared, ..plan })
    }

    /// The plan of the engine that also sums up columns; `None` for rows that do not lie alike, or are longer
    /// than what a cluster's threads keep sums of.
    pub const fn sums(shape: &Shape, multiprocessors: u32) -> Option<Self> {
        let vectors = shape.vectors();
        if vectors == 0 || !shape.is_whole() || shape.rows > MAX_ROWS {
            return None;
        }
        let threads = power_of_two(vectors.div_ceil(sum_vectors(shape.size) as u64));
        let least = if threads < 32 { 32 } else { threads };
        // One large block has more room for a row than two: what they reserve, and what all rows share.
        let is_long = threads > CONSUMERS as u64
            || shape.ring(CONSUMERS as u64 / least, 1) > BLOCK_BYTES
                && shape.ring(MAX_CONSUMERS as u64 / least, 1) <= LONG_BYTES;
        let (mut consumers, ring, resident) =
            if is_long { (MAX_CONSUMERS, LONG_BYTES, 1) } else { (CONSUMERS, BLOCK_BYTES, 2) };
        while consumers as u64 > least && shape.ring(consumers as u64 / least, 1) > ring {
            consumers /= 2;
        }
        let mut cluster = threads.div_ceil(consumers as u64);
        if cluster > MAX_CLUSTER as u64 {
            return None;
        }
        let mut team = if cluster > 1 { consumers } else { least as u32 };
        while cluster < MAX_CLUSTER as u64 && shape.ring((consumers / team) as u64, cluster) > ring {
            (cluster, team) = (2 * cluster, consumers);
        }
        let piece = vectors.div_ceil(cluster);
        let kept = shape.kept() * piece * VECTOR_BYTES as u64;
        let plan = Self { cluster: cluster as u32, ..Self::new(shape) }.with_team(team, consumers);
        let plan = plan.with_ring(piece, ring - kept, resident * multiprocessors);
        let plan = Self { shared: plan.shared + kept as u32, ..plan };
        // The sums of teams come to the ring at the end.
        let columns = sum_vectors(shape.size) * VECTOR_BYTES / shape.size;
        let least = CONTROL_BYTES + plan.consumers * (columns * MAX_SUMS * size_of::<f32>()) as u32;
        Some(if plan.shared < least { Self { shared: least, ..plan } } else { plan })
    }

    /// The same, with teams of so many threads of so many.
    const fn with_team(self, team: u32, consumers: u32) -> Self {
        let (tile, team_bits) = (consumers / team, team.trailing_zeros());
        Self { team, team_bits, consumers, tile, ..self }
    }

    /// The same with stages of so many vectors of each row, in a ring of so many bytes, and at most so many
    /// blocks.
    const fn with_ring(self, stage_vectors: u64, bytes: u64, blocks: u32) -> Self {
        let stage_vectors = stage_vectors as u32;
        let row_bytes = stage_vectors * VECTOR_BYTES as u32;
        let part_bytes = self.tile * row_bytes;
        let stage_bytes = self.inputs * part_bytes;
        let stages = bytes as u32 / stage_bytes;
        let stages = if stages > MAX_STAGES { MAX_STAGES } else { stages };
        let stages = if stages == 0 { 1 } else { stages };
        let shared = CONTROL_BYTES + stages * stage_bytes;
        // At most MAX_ROWS.
        let tiles = self.rows.div_ceil(self.tile as u64) as u32;
        let clusters = blocks / self.cluster;
        // A device has room for one at least.
        let clusters = if clusters == 0 { 1 } else { clusters };
        let step = if tiles < clusters { tiles } else { clusters };
        let blocks = step * self.cluster;
        let slots = self.consumers / 32;
        let ahead = if self.team > 32 && stages > 2 { 1 } else { 0 };
        Self {
            slots,
            ahead,
            stage_vectors,
            row_bytes,
            part_bytes,
            stage_bytes,
            stages,
            shared,
            tiles,
            step,
            blocks,
            ..self
        }
    }

    /// The same with so many clusters at most, as many as run at once: one more would begin when they end.
    pub const fn with_clusters(self, most: u32) -> Self {
        let most = if most == 0 { 1 } else { most };
        let step = if self.step < most { self.step } else { most };
        Self { step, blocks: step * self.cluster, ..self }
    }

    /// Threads of a block of the ring.
    pub const fn ring_threads(&self) -> u32 {
        // Without one there is nobody to hand them to.
        self.consumers + if self.cluster > 1 { HELPERS } else { HELPERS / 2 }
    }

    /// The number of a thread's team, and the thread's in that.
    #[inline(always)]
    pub const fn member(&self, thread: u32) -> (u32, u32) {
        (thread >> self.team_bits, thread & (self.team - 1))
    }
}

/// Bytes of shared memory before the rows that are held.
pub const HELD_BYTES: u32 = 512;
/// Fewest threads of a block that does.
const HELD_LEAST: u32 = 128;
/// Bytes of shared memory before the ring.
pub const CONTROL_BYTES: u32 = 2432;
/// Bytes of shared memory of a multiprocessor, and what the system takes of them for each block.
const MULTIPROCESSOR_BYTES: u32 = 228 << 10;
const RESERVED_BYTES: u32 = 1 << 10;

#[cfg(test)]
mod tests {
    use super::{
        CONTROL_BYTES, HELD_BYTES, MAX_CLUSTER, MAX_STAGES, MULTIPROCESSOR_BYTES, Plan, RESERVED_BYTES, Shape,
    };

    pub(super) fn shapes() -> impl Iterator<Item = Shape> {
        let columns = [1, 7, 8, 33, 768, 1000, 4096, 8192, 16_384, 32_768, 50_257, 65_536, 128_256, 1 << 20];
        columns.into_iter().flat_map(|columns| {
            [2, 4].into_iter().flat_map(move |size| {
                (1..=3).flat_map(move |inputs| {
                    [0, 1, 2].map(|shared| {
                        let strides = [u64::from(columns); 3];
                        let output_strides = [u64::from(columns), 0];
                        Shape {
                            rows: 1000,
                            columns,
                            size,
                            inputs,
                            shared,
                            input_strides: strides,
                            output_strides,
                        }
                    })
                })
            })
        })
    }

    pub(super) fn holds(shape: &Shape, plan: &Plan) {
        assert!(plan.team.is_power_of_two() && plan.team * plan.tile == plan.consumers, "{plan:?}");
        assert!(plan.cluster.is_power_of_two() && plan.cluster <= MAX_CLUSTER, "{plan:?}");
        assert!(plan.cluster == 1 || plan.team == plan.consumers, "a cluster's blocks are a team: {plan:?}");
        let vectors = shape.columns * shape.size as u32 / 16;
        assert!(plan.cluster * plan.row_bytes >= vectors * 16, "{plan:?}");
        assert!(plan.shared + RESERVED_BYTES <= MULTIPROCESSOR_BYTES, "{plan:?}");
        assert_eq!(plan.blocks % plan.cluster, 0, "{plan:?}");
    }

    #[test]
    fn rows_that_are_held_fit() {
        for shape in shapes() {
            let Some(plan) = Plan::held(&shape) else { continue };
            holds(&shape, &plan);
            assert!(u64::from(plan.blocks / plan.cluster * plan.tile) >= shape.rows, "{plan:?}");
            assert!(plan.shared >= HELD_BYTES + shape.inputs * plan.tile * plan.row_bytes, "{plan:?}");
            assert!(2 * (plan.shared + RESERVED_BYTES) <= MULTIPROCESSOR_BYTES, "{plan:?}");
        }
        let long = Shape {
            rows: 1,
            columns: 1 << 20,
            size: 2,
            inputs: 1,
            shared: 0,
            input_strides: [0; 3],
            output_strides: [0; 2],
        };
        assert_eq!(Plan::held(&long), None);
        assert_eq!(Plan::held(&Shape { columns: 7, ..long }), None);
    }

    #[test]
    fn sums_have_a_thread_for_each_column() {
        for shape in shapes() {
            let Some(plan) = Plan::sums(&shape, 132) else { continue };
            holds(&shape, &plan);
            assert!(plan.stages > 2 * plan.ahead && plan.stages <= MAX_STAGES, "{plan:?}");
            assert_eq!(plan.blocks, plan.step * plan.cluster);
            assert!(u64::from(plan.tiles) * u64::from(plan.tile) >= shape.rows, "{plan:?}");
            let used = plan.stages * plan.stage_bytes + shape.kept() as u32 * plan.row_bytes;
            assert!(plan.shared >= CONTROL_BYTES + used, "{plan:?}");
            let of_thread = (super::sum_vectors(shape.size) * 16 / shape.size) as u32;
            let columns = plan.team * of_thread * plan.cluster;
            assert!(columns >= shape.columns, "{plan:?}");
            let sums = plan.consumers * of_thread * 2 * 4;
            assert!(CONTROL_BYTES + sums <= plan.shared, "{plan:?}");
        }
    }

    #[test]
    fn the_direct_engine_has_a_team_for_each_row() {
        for shape in shapes() {
            let plan = Plan::direct(&shape);
            assert!(plan.team <= 32 || plan.team == plan.consumers, "{plan:?}");
            assert!(u64::from(plan.blocks) * u64::from(plan.tile) >= shape.rows, "{plan:?}");
        }
    }
}
