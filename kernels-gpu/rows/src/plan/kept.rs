//! Rows in registers: which norms, and how many rows a block takes.
//!
//! Layer norm with a weight and a bias, on one H200, 2026-11-27, in turns with rows in shared memory: the
//! time with so many rows a block as a share of theirs. "-" was not measured; * is what runs.
//!
//! | columns | bf16: 1, 2, 4 | with GELU: 2, 4 | with a residual: 1, 2, 4 |
//! |---|---|---|---|
//! | 768 | 1.53, 1.04, 1.01 | .98, .98; 8: .95* | -, 1.00, 1.03 |
//! | 4096 | 1.05, .97*, .99 | .88, .85* | 1.00, 1.02, - |
//! | 8192 | 1.09, .96*, .98 | .90, .89* | .98, 1.00, 1.03 |
//! | 16384 | 1.18, 1.02, .97* | .99, .93* | 1.05, .97*, .99 |
//! | 32768 | 1.27, 1.05, .97* | 1.01, .96* | -, .95*, .95 |
//! | 65536 | 1.28, 1.08, .98* | 1.01, .96* | -, .94*, .93 |
//!
//! | columns | f32: 1, 2, 4 | with GELU: 1, 2, 4 | with a residual: 1, 2 |
//! |---|---|---|---|
//! | 768 | .99, 1.01, - | -, .92*, .92 | - |
//! | 4096 | .96*, 1.00, 1.03 | .85, .86*, - | 1.01, - |
//! | 8192 | .92*, .96, .98 | .92, .92*, - | 1.00, - |
//! | 16384 | .95*, 1.04, 1.02 | .95, .95, .93* | .96*, 1.00 |
//! | 32768 | .96, .96, .91* | .96, .91, .88* | .96*, .96 |
//! | 65536 | 1.00, 1.01, .98* | -, .93, .92* | .99*, .99 |
//!
//! More rows a block save instructions, and wait more for memory: each has one row on its way. So 16 bits and
//! an activation, which are short of instructions, have many, and f32 and residuals have few. Short rows
//! without an activation, and rows up to 8192 with a residual, stay in shared memory: nothing was below .98
//! there. The longest rows take as many as those of 32768. A residual with an activation was not measured: it
//! goes by the residual. f16 goes by bf16, and a length by the nearest power of two.

use super::{MAX_CLUSTER, MAX_ROWS, Plan, Shape};
use primitives::access::VECTOR_BYTES;

/// Vectors of a row that a thread has in registers: 32 elements.
pub const fn kept_vectors(size: usize) -> usize {
    2 * size
}
/// Most warps of a block that has rows in registers.
pub const KEPT_WARPS: u32 = 8;
/// Blocks of as many warps that a multiprocessor has registers for.
pub const KEPT_RESIDENT: u32 = 3;
/// Most rows that a cluster takes one after the other.
pub const CLUSTER_TURNS: u32 = 24;
/// Bytes of shared memory before the row, of a block that has whole rows.
pub const KEPT_ALONE_BYTES: u32 = 256;
/// The same of a block in a cluster.
pub const KEPT_BYTES: u32 = KEPT_ALONE_BYTES + 3328;

/// Which norm, as far as this engine asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptNorm {
    /// Whether the mean is subtracted.
    pub is_centered: bool,
    /// Whether there is a weight.
    pub has_weight: bool,
    /// Whether there is a bias.
    pub has_bias: bool,
    /// Whether there is an activation.
    pub has_activation: bool,
}

impl KeptNorm {
    /// Whether the engine has code for it: a weight and a bias, or no bias and no activation.
    pub const fn has_code(self) -> bool {
        if self.has_bias { self.has_weight } else { !self.has_activation }
    }

    /// Whether it is one of those that were measured.
    const fn is_measured(self) -> bool {
        self.is_centered && self.has_weight && self.has_bias
    }
}

impl Plan {
    /// The plan of the engine that has rows in registers, where it is the faster one. `None` too for rows
    /// that [`in_registers`](Self::in_registers) has no plan for.
    pub const fn kept(shape: &Shape, norm: KeptNorm, multiprocessors: u32) -> Option<Self> {
        match turns(shape, norm) {
            0 => None,
            turns => Self::in_registers(shape, turns, multiprocessors),
        }
    }

    /// The plan of the engine that has rows in registers, with so many rows a block, or fewer where there are
    /// few. `None` for rows that do not begin at 16-byte boundaries, that are too long for a cluster, or that
    /// leave more than a quarter of its lanes' registers empty.
    pub const fn in_registers(shape: &Shape, turns: u32, multiprocessors: u32) -> Option<Self> {
        let (vectors, of_warp) = (shape.vectors(), 32 * kept_vectors(shape.size) as u64);
        let is_whole = (shape.columns as u64 * shape.size as u64).is_multiple_of(VECTOR_BYTES as u64);
        if !shape.is_even() || !is_whole || shape.inputs > 2 || shape.rows > MAX_ROWS {
            return None;
        }
        let mut cluster = 1;
        while vectors.div_ceil(cluster) > KEPT_WARPS as u64 * of_warp {
            cluster *= 2;
        }
        let piece = vectors.div_ceil(cluster);
        let warps = piece.div_ceil(of_warp);
        if cluster > MAX_CLUSTER as u64 || 4 * vectors < 3 * cluster * warps * of_warp {
            return None;
        }
        let resident = multiprocessors as u64 * (KEPT_RESIDENT * KEPT_WARPS) as u64 / (warps * cluster);
        let turns = if cluster > 1 && turns > CLUSTER_TURNS { CLUSTER_TURNS } else { turns };
        let turns = filling(turns, shape.rows, resident);
        let (warps, row_bytes) = (warps as u32, piece as u32 * VECTOR_BYTES as u32);
        let part_bytes = warps * of_warp as u32 * VECTOR_BYTES as u32;
        let before = if cluster > 1 { KEPT_BYTES } else { KEPT_ALONE_BYTES };
        let shared = before + shape.inputs * part_bytes;
        let blocks = shape.rows.div_ceil(turns as u64) * cluster;
        // More blocks than a grid holds become an error of the launch.
        let blocks = if blocks > u32::MAX as u64 { u32::MAX } else { blocks as u32 };
        let plan = Self { cluster: cluster as u32, ..Self::new(shape) }.with_team(warps * 32, warps * 32);
        Some(Self { tile: turns, row_bytes, part_bytes, blocks, shared, ..plan })
    }

    /// Whether all threads have as many vectors of a row in registers.
    pub const fn is_full(&self, size: usize) -> bool {
        let elements =
            self.consumers * self.cluster * kept_vectors(size) as u32 * VECTOR_BYTES as u32 / size as u32;
        self.columns == elements
    }
}

/// Rows that a block takes one after the other, where there are many; 0 where rows in shared memory are as
/// fast. The module's page has what was measured.
const fn turns(shape: &Shape, norm: KeptNorm) -> u32 {
    if !norm.is_measured() {
        return 0;
    }
    let (power, is_narrow) = (nearest_power(shape.columns), shape.size == size_of::<u16>());
    let (is_short, is_long) = (power <= 10, power >= 14);
    if shape.inputs > 1 {
        return match (is_long, is_narrow) {
            (false, _) => 0,
            (true, true) => 2,
            (true, false) => 1,
        };
    }
    match (norm.has_activation, is_narrow) {
        (true, true) if is_short => 8,
        (true, true) => 4,
        (true, false) if is_long => 4,
        (true, false) => 2,
        (false, _) if is_short => 0,
        (false, true) if is_long => 4,
        (false, true) => 2,
        (false, false) if power >= 15 => 4,
        (false, false) => 1,
    }
}

/// The exponent of the power of two whose ratio to the number is nearest to 1. The number is not 0.
const fn nearest_power(number: u32) -> u32 {
    (number as u64 * number as u64).ilog2().div_ceil(2)
}

/// So many rows a cluster, or fewer where some of the clusters that run at once would have none.
const fn filling(mut turns: u32, rows: u64, resident: u64) -> u32 {
    while turns > 1 && rows.div_ceil(turns as u64) < resident {
        turns /= 2;
    }
    turns
}

#[cfg(test)]
mod tests {
    use super::super::tests::{MULTIPROCESSOR, RESERVED, holds, shapes};
    use super::{
        CLUSTER_TURNS, KEPT_RESIDENT, KEPT_WARPS, KeptNorm, Plan, Shape, kept_vectors, nearest_power, turns,
    };

    /// Layer norm with a weight and a bias.
    fn layer(has_activation: bool) -> KeptNorm {
        KeptNorm { is_centered: true, has_weight: true, has_bias: true, has_activation }
    }

    fn of(columns: u32, size: usize, inputs: u32) -> Shape {
        let strides = [u64::from(columns); 3];
        let output_strides = [u64::from(columns); 2];
        Shape { rows: 1 << 20, columns, size, inputs, shared: 2, input_strides: strides, output_strides }
    }

    #[test]
    fn registers_have_all_columns() {
        let mut plans = 0;
        for (shape, has_activation) in shapes().flat_map(|shape| [(shape, false), (shape, true)]) {
            let Some(plan) = Plan::kept(&shape, layer(has_activation), 132) else { continue };
            let warps = plan.consumers / 32;
            holds(&shape, &Plan { tile: 1, ..plan });
            assert!(warps <= KEPT_WARPS && plan.inputs <= 2, "{plan:?}");
            assert!(plan.cluster == 1 || plan.tile <= CLUSTER_TURNS, "places for exchanges: {plan:?}");
            assert!(u64::from(plan.blocks / plan.cluster) * u64::from(plan.tile) >= shape.rows, "{plan:?}");
            assert!(plan.row_bytes <= plan.part_bytes, "{plan:?}");
            let elements = kept_vectors(shape.size) as u32 * 16 / shape.size as u32 * plan.consumers;
            assert!(plan.cluster * elements >= shape.columns, "{plan:?}");
            let last = shape.columns * shape.size as u32 / 16 * 16 - (plan.cluster - 1) * plan.row_bytes;
            assert!(last > 0 && last <= plan.row_bytes, "the last block has a part: {plan:?}");
            let resident = KEPT_RESIDENT * KEPT_WARPS / warps;
            assert!(resident * (plan.shared + RESERVED) <= MULTIPROCESSOR, "{plan:?}");
            plans += 1;
        }
        assert!(plans > 0);
    }

    #[test]
    fn blocks_take_as_many_rows_as_was_fastest() {
        let rows = |columns, size, inputs, has_activation| {
            Plan::kept(&of(columns, size, inputs), layer(has_activation), 132).map_or(0, |plan| plan.tile)
        };
        let lengths = [768, 4096, 8192, 16_384, 32_768, 65_536];
        for (size, inputs, has_activation, wanted) in [
            (2, 1, false, [0, 2, 2, 4, 4, 4]),
            (2, 1, true, [8, 4, 4, 4, 4, 4]),
            (2, 2, false, [0, 0, 0, 2, 2, 2]),
            (2, 2, true, [0, 0, 0, 2, 2, 2]),
            (4, 1, false, [0, 1, 1, 1, 4, 4]),
            (4, 1, true, [2, 2, 2, 4, 4, 4]),
            (4, 2, false, [0, 0, 0, 1, 1, 1]),
        ] {
            assert_eq!(lengths.map(|columns| rows(columns, size, inputs, has_activation)), wanted);
        }
        assert_eq!([1448, 1449, 2896, 2897, 1 << 31, 1].map(nearest_power), [10, 11, 11, 12, 31, 0]);
    }

    #[test]
    fn few_rows_have_a_block_each() {
        let rows =
            |rows| Plan::kept(&Shape { rows, ..of(8192, 2, 1) }, layer(true), 132).map(|plan| plan.tile);
        assert_eq!([1, 395, 2 * 396 - 2, 2 * 396 - 1, 4 * 396].map(rows), [1, 1, 1, 2, 4].map(Some));
    }

    #[test]
    fn rows_that_others_take() {
        let whole = of(4096, 2, 1);
        assert!(Plan::kept(&whole, layer(true), 132).is_some());
        let odd = Shape { input_strides: [4100, 0, 0], ..whole };
        for shape in [
            odd,
            of(4100, 2, 1),
            of(5, 2, 1),
            of(40, 2, 1),
            of(1280, 2, 1),
            of(65_544, 2, 1),
            of(1 << 31, 4, 1),
        ] {
            assert_eq!(Plan::kept(&shape, layer(true), 132), None, "{shape:?}");
        }
        assert!(
            Plan::kept(&Shape { rows: 1, ..odd }, layer(true), 132).is_some(),
            "a single row lies evenly"
        );
        assert_eq!(turns(&of(768, 2, 1), layer(false)), 0);
    }
}
