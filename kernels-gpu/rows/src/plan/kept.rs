//! Rows in registers: which norms, and how many rows a block takes. [`Drawing`](super::Drawing) goes before
//! what is here.
//!
//! One H200, 2026-11-28, in turns with rows in shared memory: the time as a share of theirs, with 1 row a
//! block, with 2, and with 8 in full waves and then 2; * is what runs, shares without one stay in shared
//! memory. `record/h200/2026-11-28/rows_trial.txt` in `benches` has more settings and lengths.
//!
//! | bf16 | layer norm | and GELU | weight alone | RMS norm | nothing |
//! |---|---|---|---|---|---|
//! | 768 | 1.54, 1.04, 1.00* | 1.23, .98, .96* | 1.57, 1.03, 1.01 | 1.58, 1.01, 1.01 | 1.61, 1.04, 1.03 |
//! | 4096 | 1.01, .96*, .98 | .96, .87, .82* | 1.01, .97*, 1.00 | .97, .98*, 1.00 | 1.00, .99*, 1.02 |
//! | 8192 | .97, .87*, .86 | 1.05, .93, .88* | 1.07, .99*, .99 | 1.01, .97*, .99 | 1.02, .95*, .96 |
//! | 16384 | 1.18, 1.03, .95* | 1.08, 1.02, .89* | 1.22, 1.08, 1.01 | 1.12, 1.02, 1.00 | 1.21, 1.07, 1.04 |
//! | 32768 | 1.24, 1.05, .93* | 1.12, .99, .91* | 1.32, 1.13, 1.01 | 1.19, 1.03, .99 | 1.34, 1.12, 1.05 |
//! | 65536 | 1.24, 1.01, .91* | 1.11, .97, .90* | 1.23, 1.01, .90* | 1.13, .94, .89* | 1.44, 1.16, 1.08 |
//!
//! | f32 | layer norm | and GELU | weight alone | RMS norm | nothing |
//! |---|---|---|---|---|---|
//! | 768 | .98*, 1.01, 1.02 | 1.00, .93, .91* | .99*, 1.00, 1.02 | .99*, 1.00, 1.02 | .97*, .98, 1.01 |
//! | 4096 | .97*, 1.02, 1.03 | .95*, 1.00, 1.01 | .98*, 1.02, 1.03 | .99*, 1.02, 1.03 | .99*, 1.01, 1.03 |
//! | 8192 | .95*, .98, 1.00 | .92*, .94, .95 | .99*, 1.03, 1.05 | .99*, 1.02, 1.04 | .98*, 1.01, 1.04 |
//! | 16384 | .96, 1.07, .96* | .94, .93, .90* | 1.04, 1.09, 1.03 | 1.01, 1.03, 1.03 | .98*, 1.00, 1.03 |
//! | 32768 | .96, .96, .89* | .95, .89, .84* | .95, .94, .91* | .93, .93, .93* | .98*, 1.02, 1.04 |
//! | 65536 | .99, .99, .89* | .96, .89, .85* | .95, .91, .86* | .91, .90, .87* | 1.01, 1.02, 1.03 |
//!
//! | with a residual | bf16: layer norm | RMS norm | f32: layer norm | RMS norm |
//! |---|---|---|---|---|
//! | 768 | .99*, 1.00, 1.02 | .99, 1.00, 1.02 | 1.00, 1.02, 1.04 | 1.00, 1.01, 1.03 |
//! | 4096 | .99*, 1.01, 1.04 | .99, 1.01, 1.04 | 1.01, 1.04, 1.06 | 1.00, 1.03, 1.05 |
//! | 8192 | .98*, 1.01, 1.02 | .99, 1.01, 1.03 | 1.01, 1.04, 1.06 | 1.00, 1.03, 1.05 |
//! | 16384 | 1.02, .96*, .97 | 1.00, 1.01, 1.02 | .97*, .99, 1.01 | .97*, .99, 1.01 |
//! | 32768 | 1.03, .94*, .94 | .96, .93*, .94 | .95*, .97, .97 | .93*, .97, .98 |
//! | 65536 | 1.04, .93*, .91 | .93, .88*, .88 | .98*, .98, .98 | .91*, .92, .92 |
//!
//! More rows a block save instructions, and wait more for memory: each has one row on its way. So 16 bits and
//! an activation, which are short of instructions, have many, and f32 and residuals have few. The rule was
//! chosen by these lengths: in geometric mean its times are 1.003 of the best of all settings there, 0.955
//! of those of shared memory; at seven others (1000 to 50000 columns, which decided only that f32 with GELU
//! near 2048 columns goes by 768) 1.012 and 0.963. There it lost most at 1536 columns of bf16 with GELU,
//! whose threads lacked a quarter of four vectors (1.10 of shared memory; they have three since), and at 5120
//! with a weight alone, whose blocks of five warps leave four of 24 without work (1.03).
//!
//! In fewer instructions, 2026-11-29 (`plan/drawn.rs` has longer rows): rows of 16 bits that are
//! whole with three vectors a thread, and not with four, have three. 768 columns, ms before and in this form:
//! layer norm .0525, .0511, and GELU .0601, .0520 with eight rows a block, .0515 with four, .0535 with 16;
//! with a residual .0987, .0983 with a row a block, .1011 with four. The other such lengths, 1536, 2304 and
//! 4608 columns, were not measured, nor those near 1024, which have four rows with GELU too.
//!
//! A residual with an activation was not measured: it goes by the residual. Nor was layer norm of a residual
//! with a weight alone, which goes by RMS norm's. Residuals with nothing, RMS norms with nothing or with a
//! bias were not either: they stay in shared memory. f16 goes by bf16, and a length by the nearest power of
//! two.

use super::{MAX_CLUSTER, MAX_ROWS, Plan, Shape};
use primitives::access::VECTOR_BYTES;

/// Vectors of a row that a thread has in registers: 32 elements.
pub const fn kept_vectors(size: usize) -> usize {
    2 * size
}
/// The same where rows of 16 bits so leave no register empty and four vectors would: 24 elements.
pub const KEPT_FEWER: usize = 3;
/// Most warps of a block that has rows in registers.
pub const KEPT_WARPS: u32 = 8;
/// Blocks of as many warps that a multiprocessor has registers for.
pub const KEPT_RESIDENT: u32 = 3;
/// Most rows that a cluster takes one after the other.
pub const CLUSTER_TURNS: u32 = 24;
/// Rows of a block where there are to be many.
const MANY: u32 = 8;
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
    /// Whether it is one of those that were measured, with so many inputs, or goes by one.
    const fn is_measured(self, inputs: u32) -> bool {
        match (self.has_weight, self.has_bias) {
            (true, true) => self.is_centered,
            (true, false) => !self.has_activation,
            (false, has_bias) => self.is_centered && inputs == 1 && !has_bias && !self.has_activation,
        }
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
    /// few. From four rows a block on, those that make no full wave go to blocks of a quarter as many. `None`
    /// for rows that do not begin at 16-byte boundaries, that are too long for a cluster, or that leave more
    /// than a quarter of its lanes' registers empty.
    pub const fn in_registers(shape: &Shape, turns: u32, multiprocessors: u32) -> Option<Self> {
        let (vectors, of_warp) = (shape.vectors(), 32 * vectors_of_thread(shape) as u64);
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
        let resident = resident(multiprocessors, warps, cluster);
        let turns = if cluster > 1 && turns > CLUSTER_TURNS { CLUSTER_TURNS } else { turns };
        let turns = filling(turns, shape.rows, resident);
        let tiles = shape.rows / (turns as u64 * resident) * resident;
        let step = if turns < 4 { turns } else { turns / 4 };
        let (warps, row_bytes) = (warps as u32, piece as u32 * VECTOR_BYTES as u32);
        let part_bytes = warps * of_warp as u32 * VECTOR_BYTES as u32;
        let before = if cluster > 1 { KEPT_BYTES } else { KEPT_ALONE_BYTES };
        let shared = before + shape.inputs * part_bytes;
        let left = shape.rows - tiles * turns as u64;
        let blocks = (tiles + left.div_ceil(step as u64)) * cluster;
        // More blocks than a grid holds become an error of the launch.
        let blocks = if blocks > u32::MAX as u64 { u32::MAX } else { blocks as u32 };
        let plan = Self { cluster: cluster as u32, ..Self::new(shape) }.with_team(warps * 32, warps * 32);
        Some(Self { tile: turns, tiles: tiles as u32, step, row_bytes, part_bytes, blocks, shared, ..plan })
    }

    /// Whether all threads have [`KEPT_FEWER`] vectors of a row in registers.
    pub const fn has_fewer(&self, size: usize) -> bool {
        let vectors = self.consumers * self.cluster * KEPT_FEWER as u32;
        size == size_of::<u16>() && self.columns == vectors * VECTOR_BYTES as u32 / size as u32
    }

    /// Whether all threads have [`kept_vectors`] of a row in registers.
    pub const fn is_full(&self, size: usize) -> bool {
        let elements =
            self.consumers * self.cluster * kept_vectors(size) as u32 * VECTOR_BYTES as u32 / size as u32;
        self.columns == elements
    }
}

/// Vectors of a row that a thread has in registers.
const fn vectors_of_thread(shape: &Shape) -> usize {
    let (all, vectors) = (kept_vectors(shape.size), shape.vectors());
    let of_warp = 32 * KEPT_FEWER as u64;
    let warps = vectors / of_warp;
    // Others, as five warps a block, would leave some of a multiprocessor's without work.
    let are_all = warps > 0 && ((KEPT_RESIDENT * KEPT_WARPS) as u64).is_multiple_of(warps);
    let are_full = vectors.is_multiple_of(of_warp) && warps <= KEPT_WARPS as u64 && are_all;
    let is_narrow = shape.size == size_of::<u16>();
    if is_narrow && are_full && !vectors.is_multiple_of(32 * all as u64) { KEPT_FEWER } else { all }
}

/// Rows that a block takes one after the other, where there are many and it does not draw them; 0 where rows
/// in shared memory are as fast. The module's page has what was measured.
const fn turns(shape: &Shape, norm: KeptNorm) -> u32 {
    if !norm.is_measured(shape.inputs) {
        return 0;
    }
    let (power, is_narrow) = (nearest_power(shape.columns), shape.size == size_of::<u16>());
    if shape.inputs > 1 {
        return match (is_narrow, power) {
            (true, 15..) => 2,
            (true, 14) if norm.has_bias => 2,
            (true, _) if norm.has_bias => 1,
            (false, 14..) => 1,
            _ => 0,
        };
    }
    match (is_narrow, power) {
        (true, 10) if norm.has_activation => MANY / 2,
        (true, _) if norm.has_activation => MANY,
        (true, 12 | 13) => 2,
        (true, _) if norm.has_bias => MANY,
        (true, 16..) if norm.has_weight => MANY,
        (true, _) => 0,
        (false, ..=11 | 14..) if norm.has_activation => MANY,
        (false, 14..) if norm.has_bias => MANY,
        (false, 15..) if norm.has_weight => MANY,
        (false, 14) if norm.has_weight => 0,
        (false, 16..) => 0,
        (false, _) => 1,
    }
}

/// The exponent of the power of two whose ratio to the number is nearest to 1. The number is not 0.
pub(super) const fn nearest_power(number: u32) -> u32 {
    (number as u64 * number as u64).ilog2().div_ceil(2)
}

/// Clusters of blocks of so many warps that run at once.
pub(super) const fn resident(multiprocessors: u32, warps: u64, cluster: u64) -> u64 {
    let blocks = (KEPT_RESIDENT * KEPT_WARPS) as u64 / warps;
    let clusters = multiprocessors as u64 * blocks / cluster;
    match clusters {
        0 => 1,
        // Parts of a card may have a few multiprocessors over; measured with an even number.
        2.. if cluster > 2 => clusters / 2 * 2,
        _ => clusters,
    }
}

/// So many rows a cluster, or fewer where some of the clusters that run at once would have none.
const fn filling(mut turns: u32, rows: u64, resident: u64) -> u32 {
    while turns > 1 && rows.div_ceil(turns as u64) < resident {
        turns /= 2;
    }
    turns
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::tests::{holds, shapes};
    use super::super::{MULTIPROCESSOR_BYTES, RESERVED_BYTES};
    use super::{
        CLUSTER_TURNS, KEPT_FEWER, KEPT_RESIDENT, KEPT_WARPS, KeptNorm, Plan, Shape, kept_vectors,
        nearest_power, resident, vectors_of_thread,
    };

    /// Layer norm with a weight and a bias.
    pub(in crate::plan) fn layer(has_activation: bool) -> KeptNorm {
        KeptNorm { is_centered: true, has_weight: true, has_bias: true, has_activation }
    }

    pub(in crate::plan) fn of(columns: u32, size: usize, inputs: u32) -> Shape {
        let strides = [u64::from(columns); 3];
        let output_strides = [u64::from(columns); 2];
        Shape { rows: 1 << 20, columns, size, inputs, shared: 2, input_strides: strides, output_strides }
    }

    #[test]
    fn registers_have_all_columns() {
        let (mut plans, mut fewer) = (0, 0);
        for (shape, has_activation) in shapes().flat_map(|shape| [(shape, false), (shape, true)]) {
            let Some(plan) = Plan::kept(&shape, layer(has_activation), 132) else { continue };
            let warps = plan.consumers / 32;
            holds(&shape, &Plan { tile: 1, ..plan });
            assert!(warps <= KEPT_WARPS && plan.inputs <= 2, "{plan:?}");
            assert!(plan.cluster == 1 || plan.tile <= CLUSTER_TURNS, "places for exchanges: {plan:?}");
            let clusters = plan.blocks / plan.cluster;
            let last = u64::from(clusters - plan.tiles) * u64::from(plan.step);
            let taken = u64::from(plan.tiles) * u64::from(plan.tile) + last;
            assert!((shape.rows..shape.rows + u64::from(plan.step)).contains(&taken), "{plan:?}");
            assert!(plan.row_bytes <= plan.part_bytes, "{plan:?}");
            let has_fewer = plan.has_fewer(shape.size);
            assert!(!has_fewer || plan.cluster == 1, "no barriers of a cluster: {plan:?}");
            assert_eq!(has_fewer, vectors_of_thread(&shape) == KEPT_FEWER, "{plan:?}");
            let vectors = if has_fewer { KEPT_FEWER } else { kept_vectors(shape.size) } as u32;
            fewer += u32::from(has_fewer);
            let elements = vectors * 16 / shape.size as u32 * plan.consumers;
            assert!(plan.cluster * elements >= shape.columns, "{plan:?}");
            let last = shape.columns * shape.size as u32 / 16 * 16 - (plan.cluster - 1) * plan.row_bytes;
            assert!(last > 0 && last <= plan.row_bytes, "the last block has a part: {plan:?}");
            let resident = KEPT_RESIDENT * KEPT_WARPS / warps;
            assert!(resident * (plan.shared + RESERVED_BYTES) <= MULTIPROCESSOR_BYTES, "{plan:?}");
            plans += 1;
        }
        assert!(fewer > 0 && plans > fewer);
    }

    #[test]
    fn blocks_take_as_many_rows_as_was_fastest() {
        let (both, gelu) = (layer(false), layer(true));
        let weight = KeptNorm { has_bias: false, ..both };
        let (rms, nothing) =
            (KeptNorm { is_centered: false, ..weight }, KeptNorm { has_weight: false, ..weight });
        let lengths = [768, 2048, 4096, 8192, 16_384, 32_768, 65_536];
        for (size, inputs, norm, wanted) in [
            (2, 1, both, [8, 8, 2, 2, 8, 8, 8]),
            (2, 1, gelu, [4, 8, 8, 8, 8, 8, 8]),
            (2, 1, weight, [0, 0, 2, 2, 0, 0, 8]),
            (2, 1, rms, [0, 0, 2, 2, 0, 0, 8]),
            (2, 1, nothing, [0, 0, 2, 2, 0, 0, 0]),
            (2, 2, both, [1, 1, 1, 1, 2, 2, 2]),
            (2, 2, gelu, [1, 1, 1, 1, 2, 2, 2]),
            (2, 2, rms, [0, 0, 0, 0, 0, 2, 2]),
            (2, 2, nothing, [0; 7]),
            (4, 1, both, [1, 1, 1, 1, 8, 8, 8]),
            (4, 1, gelu, [8, 8, 1, 1, 8, 8, 8]),
            (4, 1, weight, [1, 1, 1, 1, 0, 8, 8]),
            (4, 1, rms, [1, 1, 1, 1, 0, 8, 8]),
            (4, 1, nothing, [1, 1, 1, 1, 1, 1, 0]),
            (4, 2, both, [0, 0, 0, 0, 1, 1, 1]),
            (4, 2, rms, [0, 0, 0, 0, 1, 1, 1]),
            (4, 1, KeptNorm { is_centered: false, ..both }, [0; 7]),
            (4, 1, KeptNorm { is_centered: false, ..nothing }, [0; 7]),
            (4, 1, KeptNorm { has_activation: true, ..weight }, [0; 7]),
            (4, 1, KeptNorm { has_activation: true, ..nothing }, [0; 7]),
            (4, 1, KeptNorm { has_weight: false, ..both }, [0; 7]),
        ] {
            let rows = lengths
                .map(|columns| Plan::kept(&of(columns, size, inputs), norm, 132).map_or(0, |plan| plan.tile));
            assert_eq!(rows, wanted, "{size} {inputs} {norm:?}");
        }
        assert_eq!([1448, 1449, 2896, 2897, 1 << 31, 1].map(nearest_power), [10, 11, 11, 12, 31, 0]);
    }

    #[test]
    fn few_rows_have_a_block_each_and_those_that_make_no_full_wave_blocks_of_a_quarter() {
        let plan = |rows| {
            let plan = Plan::kept(&Shape { rows, ..of(8192, 2, 1) }, layer(true), 132);
            plan.map(|plan| [plan.tile, plan.tiles, plan.step, plan.blocks])
        };
        for (rows, wanted) in [
            (1, [1, 0, 1, 1]),
            (395, [1, 0, 1, 395]),
            (2 * 396 - 2, [1, 396, 1, 790]),
            (2 * 396 - 1, [2, 0, 2, 396]),
            (4 * 396, [4, 396, 1, 396]),
            (4 * 396 + 3, [4, 396, 1, 399]),
            (8 * 396, [8, 396, 2, 396]),
            (8192, [8, 792, 2, 792 + 928]),
            (8192 - 1, [8, 792, 2, 792 + 928]),
            (8192 - 2, [8, 792, 2, 792 + 927]),
        ] {
            assert_eq!(plan(rows), Some(wanted), "{rows} rows");
        }
    }

    #[test]
    fn clusters_at_once_are_of_whole_blocks() {
        // Five warps: four blocks a multiprocessor, not 24/5.
        for (warps, cluster, wanted) in [(1, 1, 3168), (5, 1, 528), (8, 2, 198), (8, 4, 98), (7, 8, 48)] {
            assert_eq!(resident(132, warps, cluster), wanted, "{warps} {cluster}");
        }
        assert_eq!([resident(1, 8, 4), resident(1, 8, 8)], [1, 1]);
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
    }
}
