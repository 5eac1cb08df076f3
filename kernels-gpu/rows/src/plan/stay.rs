//! Rows of which a lane has the same columns, in a ring of its own, for gradients with sums of columns.

use super::{MAX_CLUSTER, MAX_ROWS, MULTIPROCESSOR_BYTES, Plan, RESERVED_BYTES, Shape, power_of_two};
use crate::function::MAX_INPUTS;
use primitives::access::VECTOR_BYTES;

/// Warps of a multiprocessor that have columns, at most: so many have 128 registers each.
pub const STAY_WARPS: u32 = 16;
/// The same of norms with an activation behind them: so many have 255 registers each, and what is once for a
/// row is shared by more columns.
pub const STAY_ACTIVATED_WARPS: u32 = 8;
/// Vectors of 16 bits that their lanes have of a row, at most: 32 columns.
pub const STAY_ACTIVATED_VECTORS: usize = 4;
/// Vectors that there is a loop for, at least.
pub const STAY_ACTIVATED_LEAST: u32 = 2;
/// Warps of a row of f32, at least.
const STAY_SHORTEST: u32 = 3;
/// Most warps of a row that is short: of such rows of f32 with a third input, those of a power of two of
/// vectors stay with the ring of a block.
const STAY_SHORT: u32 = 4;
/// Bytes of a block's shared memory before the rings.
pub const STAY_CONTROL_BYTES: u32 = 1536;
/// Bytes behind them in a cluster, before the statistics of its warps.
pub const STAY_CLUSTER_BYTES: u32 = 1024;
/// Places of statistics in all blocks of a cluster: each has one for a row.
pub const STAY_PLACES: u32 = 256;
/// Bytes of a warp's statistics there.
pub const STAY_PAIR_BYTES: u32 = 2 * size_of::<f32>() as u32;
/// Most stages of the rings.
pub const STAY_STAGES: u32 = 6;

/// Vectors of a row that a lane has, at most, of elements of this size: 16 columns.
pub const fn stay_vectors(size: usize) -> usize {
    16 * size / VECTOR_BYTES
}

/// The same of a row of whole vectors that a warp has alone: of 16 bits one more.
pub const fn lone_vectors(size: usize) -> usize {
    if size == size_of::<u16>() { stay_vectors(size) + 1 } else { stay_vectors(size) }
}

/// How blocks and lanes share out rows.
#[derive(Clone, Copy)]
struct Lanes {
    /// Most warps of a block.
    warps: u32,
    /// Vectors of a row that a lane has, at most.
    vectors: usize,
    /// The same of a row of whole vectors that a warp has alone.
    alone: usize,
    /// Vectors of such a row at least, some of which may be none of it.
    least: u32,
}

impl Lanes {
    /// For norms without an activation, of elements of this size.
    const fn of_norms(size: usize) -> Self {
        Self { warps: STAY_WARPS, vectors: stay_vectors(size), alone: lone_vectors(size), least: 1 }
    }

    /// For norms with one, of 16 bits.
    const ACTIVATED: Self = Self {
        warps: STAY_ACTIVATED_WARPS,
        vectors: STAY_ACTIVATED_VECTORS,
        alone: STAY_ACTIVATED_VECTORS,
        least: STAY_ACTIVATED_LEAST,
    };
}

impl Shape {
    /// Rows from one to the next that begins alike within 16 bytes: a power of two.
    const fn period(&self) -> u32 {
        let stride = self.input_strides[0] * self.size as u64;
        // A single row has no next one.
        if self.rows > 1 { VECTOR_BYTES as u32 >> (stride | VECTOR_BYTES as u64).trailing_zeros() } else { 1 }
    }
}

impl Plan {
    /// The plan of rows in rings of lanes, where they were the faster engine or have not been timed by the
    /// other. `None` too as for [`staying`](Self::staying).
    ///
    /// Rows of 16 bits all go by it: a layer norm of 768 columns takes .0861 ms by it and .0881 by the ring
    /// of a block, with a residual .1050 and .1041. Of f32, on one H200, layer norm: ms by that ring, and
    /// by this engine; * is what runs. The first lines are of 2026-11-29, 48 Mi elements at 768 columns, 64
    /// Mi from 4096 on, else 32 Mi. The last ones are of 2026-11-28, 64 Mi, when its loops were not yet
    /// compiled for numbers of vectors.
    ///
    /// | columns | busy warps | f32 | f32 and residual |
    /// |---|---|---|---|
    /// | 768 | 16 | .1580*, .1579 | .1961*, .1953 |
    /// | 1200 | 15 | .1138, .1088* | .1338, .1348* |
    /// | 1280 | 15 | .1099, .1059* | .1337, .1320* |
    /// | 1600 | 16 | .1062*, .1069 | .1462, .1324* |
    /// | 1848 | 16 | .1061*, .1079 | .1403, .1358* |
    /// | 3136 | 14 | .1070*, .1082 | |
    /// | 4096 | 16 | .1966*, .2082 | |
    /// | 8192 | 16 | .2000*, .2074 | |
    /// | 2048 | 16 | .2135*, .2238 | .2628*, .3028 |
    /// | 2560 | 15 | .2143, .2067* | .2568, .2591* |
    /// | 3072 | 12 | .2009*, .2070 | .3322, .2597* |
    /// | 5120 | 10 | .2151, .1934* | .2559*, .2559 |
    /// | 6144 | 12 | .2089*, .2083 | .3208, .2620* |
    /// | 7168 | 14 | .2009*, .2120 | |
    ///
    /// Rows of f32 in clusters take as long by either, within 3 %, rows that begin anywhere less by this
    /// engine: the ring of a block leaves their sums of columns to a pass of their own.
    pub const fn stay_sums(shape: &Shape, multiprocessors: u32) -> Option<Self> {
        let Some(plan) = Self::staying(shape, multiprocessors) else { return None };
        if plan.is_fastest(shape) { Some(plan) } else { None }
    }

    /// The same of norms with an activation behind them: rows of 16 bits that a cluster's lanes keep sums of.
    /// Layer norm and GELU (tanh) of 64 Mi elements of bf16 take .126 to .140 ms by this engine on an H200,
    /// where the ring of a block took .199 to .219; 65536 x 768 .095 and .143.
    pub const fn stay_activated_sums(shape: &Shape, multiprocessors: u32) -> Option<Self> {
        if shape.size == size_of::<u16>() {
            Self::by_lanes(shape, multiprocessors, Lanes::ACTIVATED)
        } else {
            None
        }
    }

    /// Whether it is faster than the ring of a block.
    const fn is_fastest(&self, shape: &Shape) -> bool {
        if !shape.is_whole() || shape.size == size_of::<u16>() {
            return true;
        }
        let warps = self.warps();
        if self.cluster > 1 || warps < STAY_SHORTEST {
            return false;
        }
        // A block's ring has threads for the next power of two of vectors.
        let (vectors, of_ring) = (shape.vectors(), power_of_two(shape.vectors()));
        if shape.inputs == MAX_INPUTS as u32 {
            return STAY_WARPS / warps * warps >= 12 && (warps > STAY_SHORT || vectors < of_ring);
        }
        // More than a quarter of them idles.
        4 * vectors < 3 * of_ring
    }

    /// Warps of a block that have a row.
    const fn warps(&self) -> u32 {
        self.team / 32
    }

    /// The plan of rows in rings of lanes. `None` for rows that are longer than what a cluster's lanes keep
    /// sums of. They all lie alike, and the first begins at a 16-byte boundary.
    pub const fn staying(shape: &Shape, multiprocessors: u32) -> Option<Self> {
        Self::by_lanes(shape, multiprocessors, Lanes::of_norms(shape.size))
    }

    const fn by_lanes(shape: &Shape, multiprocessors: u32, lanes: Lanes) -> Option<Self> {
        let elements = VECTOR_BYTES / shape.size;
        // Where rows begin anywhere, a part of a vector may come before them, and one behind.
        let parts = if shape.is_whole() { 0 } else { elements as u64 - 1 };
        let vectors = (shape.columns as u64 + parts).div_ceil(elements as u64);
        let is_alone = shape.is_whole() && vectors <= lanes.alone as u64 * 32;
        let warps = if is_alone { 1 } else { vectors.div_ceil(lanes.vectors as u64 * 32) };
        let mut cluster = 1;
        while warps.div_ceil(cluster) > lanes.warps as u64 {
            cluster *= 2;
        }
        if cluster > MAX_CLUSTER as u64 || warps == 0 || shape.rows > MAX_ROWS {
            return None;
        }
        let (warps, cluster) = (warps.div_ceil(cluster) as u32, cluster as u32);
        // Of whole rows of f32 there is one loop, in which a lane computes with as many as it may have.
        let of_lane = if shape.is_whole() && shape.size == size_of::<f32>() {
            stay_vectors(shape.size) as u32
        } else {
            vectors.div_ceil((cluster * warps * 32) as u64) as u32
        };
        let of_lane = if of_lane < lanes.least { lanes.least } else { of_lane };
        let tile = if cluster > 1 { 1 } else { lanes.warps / warps };
        // Of few rows a block has fewer teams, so that about as many blocks as multiprocessors have some.
        let needed = shape.rows.div_ceil(multiprocessors as u64);
        let tile = if needed < tile as u64 { needed as u32 } else { tile };
        let tile = if tile == 0 { 1 } else { tile };
        let part_bytes = of_lane * 32 * VECTOR_BYTES as u32;
        let stage_bytes = shape.inputs * part_bytes;
        let plan = Self::new(shape).with_team(warps * 32, tile * warps * 32);
        let tiles = STAY_PLACES / cluster;
        let plan = Self { tile, tiles, cluster, stage_vectors: of_lane, part_bytes, stage_bytes, ..plan };
        let all = plan.consumers / 32 * stage_bytes;
        let stages = (MULTIPROCESSOR_BYTES - RESERVED_BYTES - plan.rings()) / all;
        let stages = if stages > STAY_STAGES { STAY_STAGES } else { stages };
        if stages < 2 {
            return None;
        }
        let plan = Self { stages, shared: plan.rings() + stages * all, ..plan };
        Some(plan.with_staying(shape, multiprocessors / cluster))
    }

    /// The same with so many clusters at most, as many as run at once, where a team's rows all begin alike.
    pub const fn with_staying(self, shape: &Shape, most: u32) -> Self {
        let (period, bits) = (shape.period(), self.tile.trailing_zeros());
        let unit = if period >> bits == 0 { 1 } else { period >> bits };
        let clusters = if most < unit { unit } else { most / unit * unit };
        let needed = shape.rows.div_ceil(self.tile as u64);
        let running = if needed < clusters as u64 { needed as u32 } else { clusters };
        Self { step: clusters * self.tile, blocks: running * self.cluster, ..self }
    }

    /// Bytes of a block's shared memory before the rings of its lanes.
    #[inline(always)]
    pub const fn rings(&self) -> u32 {
        let of_cluster = STAY_CLUSTER_BYTES + STAY_PLACES * STAY_WARPS * STAY_PAIR_BYTES;
        STAY_CONTROL_BYTES + if self.cluster > 1 { of_cluster } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::shapes;
    use super::{
        Lanes, MAX_CLUSTER, MULTIPROCESSOR_BYTES, Plan, RESERVED_BYTES, STAY_STAGES, Shape, VECTOR_BYTES,
    };

    #[test]
    fn warps_with_rings_of_their_own_have_all_columns() {
        let (mut plans, mut clusters) = (0, 0);
        for (rows, shape, is_activated) in [1000, 140, 3]
            .into_iter()
            .flat_map(|rows| shapes().map(move |shape| (rows, shape)))
            .flat_map(|(rows, shape)| [false, true].map(|is_activated| (rows, shape, is_activated)))
        {
            let shape = Shape { rows, ..shape };
            let (plan, lanes) = match is_activated {
                true => (Plan::stay_activated_sums(&shape, 132), Lanes::ACTIVATED),
                false => (Plan::staying(&shape, 132), Lanes::of_norms(shape.size)),
            };
            let Some(plan) = plan else { continue };
            assert!(
                plan.stages >= 2 && plan.stages <= STAY_STAGES && plan.cluster <= MAX_CLUSTER,
                "{plan:?}"
            );
            let warps = plan.consumers / 32;
            assert!(warps <= lanes.warps && plan.team * plan.tile == plan.consumers, "{plan:?}");
            assert!(plan.cluster == 1 || plan.tile == 1, "{plan:?}");
            // Their kernels have a loop for so many vectors alone.
            if shape.is_whole() && (shape.size == 4 || plan.cluster > 1) {
                assert_eq!(plan.stage_vectors as usize, lanes.vectors, "{plan:?}");
            }
            assert!(plan.shared + RESERVED_BYTES <= MULTIPROCESSOR_BYTES, "{plan:?}");
            assert!(plan.rings().is_multiple_of(128), "{plan:?}");
            assert_eq!(plan.shared, plan.rings() + warps * plan.stages * plan.stage_bytes, "{plan:?}");
            // The sums of teams come to the rings.
            let sums = if plan.tile > 1 { plan.tile * 2 * shape.columns * 4 } else { 0 };
            assert!(sums <= plan.shared - plan.rings(), "{plan:?}");
            let columns = plan.team / 32 * plan.cluster * plan.part_bytes / shape.size as u32;
            let before = if shape.is_whole() { 0 } else { (VECTOR_BYTES / shape.size) as u32 - 1 };
            assert!(columns >= shape.columns + before, "{plan:?}");
            let running = plan.blocks / plan.cluster;
            assert!(running * plan.cluster == plan.blocks && plan.blocks <= 132, "{plan:?}");
            assert!(u64::from(running * plan.tile) >= rows.min(u64::from(plan.step)), "{plan:?}");
            assert!(u64::from((running - 1) * plan.tile) < rows, "a block has a row: {plan:?}");
            (plans, clusters) = (plans + 1, clusters + u32::from(plan.cluster > 1));
        }
        assert!(plans > clusters && clusters > 0);
    }

    #[test]
    fn rows_of_f32_have_the_ring_that_was_faster() {
        let stays = |columns, inputs| {
            let strides = [u64::from(columns); 3];
            let (rows, size, shared) = (10_000, size_of::<f32>(), 1);
            let output_strides = [strides[0], 0];
            let shape = Shape { rows, columns, size, inputs, shared, input_strides: strides, output_strides };
            Plan::stay_sums(&shape, 132).is_some()
        };
        for (columns, alone, with_residual) in [
            (768, false, false),
            (1200, true, true),
            (1280, true, true),
            (1600, false, true),
            (1848, false, true),
            (2048, false, false),
            (2560, true, true),
            (3072, false, true),
            (4096, false, true),
            (5120, true, false),
            (7168, false, true),
            (8192, false, true),
            (16_384, false, false),
        ] {
            assert_eq!([stays(columns, 2), stays(columns, 3)], [alone, with_residual], "{columns}");
        }
    }

    #[test]
    fn rows_of_a_team_begin_alike() {
        for columns in 1..2000 {
            for (size, multiprocessors) in [(2, 132), (4, 132), (2, 1), (4, 114)] {
                let strides = [u64::from(columns); 3];
                let shape = Shape {
                    rows: 100_000,
                    columns,
                    size,
                    inputs: 2,
                    shared: 1,
                    input_strides: strides,
                    output_strides: [strides[0], 0],
                };
                let Some(plan) = Plan::staying(&shape, multiprocessors) else { continue };
                let bytes = u64::from(plan.step) * u64::from(columns) * size as u64;
                assert_eq!(bytes % VECTOR_BYTES as u64, 0, "{plan:?}");
                assert_eq!(plan.step, plan.blocks * plan.tile, "{plan:?}");
            }
        }
    }
}
