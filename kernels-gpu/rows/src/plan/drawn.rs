//! Rows in registers that blocks draw from a counter: which norms, and whether weights go to shared memory.
//!
//! One H200, 2026-11-29, in this form: ms of the rule without draws (`kept.rs`), with draws, and
//! with draws and weights in shared memory; * is what runs. `record/h200/2026-11-29/rows_fewer_*.csv` in
//! `benches` have the samples. Two numbers in one place are of two runs.
//!
//! | bf16 | layer norm | and GELU | residual and layer norm |
//! |---|---|---|---|
//! | 4096 | .0669*, .0666 | .0703, .0678, .0675* | .1313 .1318*, .1329 |
//! | 8192 | .0682, .0661, .0662* | .0710, .0674, .0670* | .1314 .1311*, .1333 |
//! | 16384 | .0706, .0667, .0665* | .0740, .0698 .0704*, .0703 | .1347 .1351*, .1346 |
//! | 32768 | .0727, .0708, .0699* | .0789, .0760 .0765*, .0779 | .1359 .1348*, .1359 |
//! | 65536 | .0746, .0731, .0715* | .0822, .0798 .0800*, .0812 | .1395, .1366, .1361* |
//!
//! RMS norms and f32, which changed by 2 % at most, go by the same times of 2026-11-28, before that, in
//! turns; `record/h200/2026-11-28/rows_drawn_trial.txt` has the others.
//!
//! | bf16 | RMS norm |
//! |---|---|
//! | 4096 | .0668*, .0666, .0668 |
//! | 8192 | .0671, .0665, .0665* |
//! | 16384 | .0688, .0668, .0668* |
//! | 32768 | .0707, .0688, .0690* |
//! | 65536 | .0725, .0703, .0702* |
//!
//! | f32 | layer norm | and GELU | RMS norm | residual and layer norm |
//! |---|---|---|---|---|
//! | 8192 | .1316*, .1346 | .1416*, .1427 | .1305*, .1339 | .2626*, .2720 |
//! | 16384 | .1406, .1359* | .1457, .1421* | .1336*, .1355 | .2662*, .2781 |
//! | 32768 | .1404, .1385* | .1457, .1426* | .1372, .1355* | .2742*, .2792 |
//! | 65536 | .1424*, .1422 | .1504*, .1505 | .1372, .1357* | .2827*, .2807 |
//!
//! Since then a cluster's blocks ask for the row behind the next one in L2, in 16 bits (`kept/drawn.rs`). ms
//! without and with that (`rows_prefetch_none.csv`, `rows_prefetch_drawn.csv` of that day). f32 does without:
//!
//! | | layer norm | and GELU | RMS norm | residual and layer norm |
//! |---|---|---|---|---|
//! | bf16 16384 | .0665, .0663 | .0701, .0692 | .0663, .0658 | |
//! | bf16 32768 | .0698, .0685 | .0758, .0749 | .0684, .0677 | |
//! | bf16 65536 | .0714, .0689 | .0795, .0786 | .0698, .0681 | .1361, .1343 |
//! | f32 16384 | .1350, .1420 | .1382, .1458 | | |
//! | f32 32768 | .1377, .1391 | .1406, .1425 | .1353, .1366 | |
//! | f32 65536 | | | .1355, .1358 | |
//!
//! At 768 columns draws take 1.11 to 1.68 times as long: a row is too short for one. The trial's clusters
//! wrote 16 places of exchanges again without a barrier, which nothing makes safe. Here there are 64, and
//! barriers from the 49th row of a cluster on: one every eight rows took away most of the gain.
//! With those (`rows_drawn.csv` of that day) layer norm in f32 takes .1367 and .1405: at 32768 no gain.
//!
//! The trial had a weight and a bias, or in RMS norms a weight alone. Layer norms with a weight alone go by
//! RMS norm's here as in `kept.rs`; those with nothing, and RMS norms of residuals, do not draw. f16 goes by
//! bf16, a length by the nearest power of two, and rows that leave some threads less do not draw.

use super::kept::{nearest_power, resident};
use super::{
    KEPT_ALONE_BYTES, KEPT_BYTES, KEPT_RESIDENT, KEPT_WARPS, KeptNorm, MULTIPROCESSOR_BYTES, Plan,
    RESERVED_BYTES, Shape,
};

/// Places of a cluster's exchanges, one for a row, that are used again.
pub const CLUSTER_PLACES: u32 = 64;
/// Bytes of shared memory before the row, of a block in a cluster that draws rows.
pub const DRAWN_BYTES: u32 = KEPT_ALONE_BYTES + 8704;
/// Parts of rows that weights in shared memory take: of a weight and a bias.
pub const WEIGHT_PARTS: u32 = 2;

/// How blocks draw rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drawing {
    /// Weight and bias stay in global memory.
    Plain,
    /// They go to shared memory.
    Shared,
}

impl Drawing {
    /// How, where that is faster than rows that blocks have. The module's page has what was measured.
    pub const fn of(shape: &Shape, norm: KeptNorm) -> Option<Self> {
        let (power, is_narrow) = (nearest_power(shape.columns), shape.size == size_of::<u16>());
        let KeptNorm { is_centered, has_weight, has_bias, has_activation } = norm;
        if !has_weight || has_bias && !is_centered || has_activation && !has_bias {
            return None;
        }
        match (is_narrow, shape.inputs, power) {
            (true, 1, 12 | 13) if has_activation => Some(Self::Shared),
            (true, 1, 14..) if has_activation => Some(Self::Plain),
            (true, 1, 13..) if !has_activation => Some(Self::Shared),
            (true, 2, 16..) if has_bias && !has_activation => Some(Self::Shared),
            (false, 1, 14 | 15) if has_bias => Some(Self::Plain),
            (false, 1, 15..) if !has_bias => Some(Self::Plain),
            _ => None,
        }
    }

    /// Bytes of shared memory that weight and bias take, of parts of so many.
    const fn bytes(self, part_bytes: u32) -> u32 {
        match self {
            Self::Plain => 0,
            Self::Shared => WEIGHT_PARTS * part_bytes,
        }
    }
}

impl Plan {
    /// The plan of blocks that draw rows, and how, where that is the fastest. `None` too as for
    /// [`drawing`](Self::drawing).
    pub const fn drawn(shape: &Shape, norm: KeptNorm, multiprocessors: u32) -> Option<(Self, Drawing)> {
        let Some(how) = Drawing::of(shape, norm) else { return None };
        match Self::drawing(shape, how, multiprocessors) {
            Some(plan) => Some((plan, how)),
            None => None,
        }
    }

    /// The plan of blocks that draw rows, as many as run at once. `None` where all rows run at once, where
    /// threads have different numbers of vectors, where shared memory is short, and for rows that
    /// [`in_registers`](Self::in_registers) has no plan for.
    pub const fn drawing(shape: &Shape, how: Drawing, multiprocessors: u32) -> Option<Self> {
        let Some(plan) = Self::in_registers(shape, 1, multiprocessors) else { return None };
        let warps = plan.consumers / 32;
        let clusters = resident(multiprocessors, warps as u64, plan.cluster as u64);
        let places = if plan.cluster > 1 { DRAWN_BYTES - KEPT_BYTES } else { 0 };
        let shared = plan.shared + places + how.bytes(plan.part_bytes);
        let bytes = KEPT_RESIDENT * KEPT_WARPS / warps * (shared + RESERVED_BYTES);
        if shape.rows <= clusters || !plan.is_full(shape.size) || bytes > MULTIPROCESSOR_BYTES {
            return None;
        }
        // A block draws once for each row that it begins, a cluster for each but its first one.
        let draws = if plan.cluster > 1 { shape.rows - clusters } else { shape.rows };
        let step = clusters as u32;
        Some(Self { tiles: draws as u32 - 1, step, blocks: step * plan.cluster, shared, ..plan })
    }
}

#[cfg(test)]
mod tests {
    use super::super::kept::tests::{layer, of};
    use super::super::tests::shapes;
    use super::super::{MULTIPROCESSOR_BYTES, RESERVED_BYTES};
    use super::{Drawing, KEPT_RESIDENT, KEPT_WARPS, KeptNorm, Plan, Shape};

    #[test]
    fn blocks_draw_where_that_was_fastest() {
        let (both, gelu) = (layer(false), layer(true));
        let weight = KeptNorm { has_bias: false, ..both };
        let rms = KeptNorm { is_centered: false, ..weight };
        let lengths = [768, 4096, 8192, 16_384, 32_768, 65_536];
        for (size, inputs, norm, wanted) in [
            (2, 1, both, "..ssss"),
            (2, 1, gelu, ".ssppp"),
            (2, 1, weight, "..ssss"),
            (2, 1, rms, "..ssss"),
            (2, 2, both, ".....s"),
            (2, 2, gelu, "......"),
            (2, 2, rms, "......"),
            (4, 1, both, "...pp."),
            (4, 1, gelu, "...pp."),
            (4, 1, weight, "....pp"),
            (4, 1, rms, "....pp"),
            (4, 2, both, "......"),
            (2, 1, KeptNorm { has_weight: false, ..weight }, "......"),
            (2, 1, KeptNorm { has_weight: false, ..rms }, "......"),
            (2, 1, KeptNorm { has_activation: true, ..weight }, "......"),
            (2, 1, KeptNorm { has_bias: true, ..rms }, "......"),
            (4, 1, KeptNorm { has_bias: true, ..rms }, "......"),
        ] {
            let how = |columns| match Plan::drawn(&of(columns, size, inputs), norm, 132) {
                None => '.',
                Some((_, Drawing::Plain)) => 'p',
                Some((_, Drawing::Shared)) => 's',
            };
            assert_eq!(lengths.map(how).iter().collect::<String>(), wanted, "{size} {inputs} {norm:?}");
        }
    }

    /// The draws of a launch whose clusters run one behind the other. Each row is taken once.
    fn draws(plan: &Plan) -> u64 {
        let (rows, step) = (plan.rows, u64::from(plan.step));
        let (mut drawn, mut taken) = (0, vec![0; rows as usize]);
        let mut draw = |given: u64| {
            drawn += 1;
            given + drawn - 1
        };
        for first in 0..step {
            if plan.cluster == 1 {
                let mut row = first;
                while row < rows {
                    taken[row as usize] += 1;
                    row = draw(step);
                }
                continue;
            }
            let (mut row, mut next) = (first, first + step);
            while row < rows {
                taken[row as usize] += 1;
                let behind = if next < rows { draw(2 * step) } else { next };
                (row, next) = (next, behind);
            }
        }
        assert!(taken.iter().all(|&times| times == 1), "{plan:?}");
        drawn
    }

    #[test]
    fn blocks_that_draw_run_at_once_and_count_all_draws() {
        let mut plans = 0;
        for (shape, how) in shapes().flat_map(|shape| [(shape, Drawing::Plain), (shape, Drawing::Shared)]) {
            let Some(plan) = Plan::drawing(&shape, how, 132) else { continue };
            let warps = plan.consumers / 32;
            let resident = KEPT_RESIDENT * KEPT_WARPS / warps;
            assert!(resident * (plan.shared + RESERVED_BYTES) <= MULTIPROCESSOR_BYTES, "{plan:?}");
            assert!(plan.blocks <= 132 * resident && plan.blocks == plan.step * plan.cluster, "{plan:?}");
            assert!(plan.is_full(shape.size) && u64::from(plan.step) < shape.rows, "{plan:?}");
            assert_eq!(u64::from(plan.tiles) + 1, draws(&plan), "{plan:?}");
            plans += 1;
        }
        assert!(plans > 0);
    }

    #[test]
    fn few_rows_and_parts_of_threads_are_not_drawn() {
        let plan = |shape: Shape| Plan::drawn(&shape, layer(false), 132).map(|(plan, _)| plan);
        let long = of(16_384, 2, 1);
        assert_eq!(plan(Shape { rows: 198, ..long }), None, "all rows run at once");
        let more = plan(Shape { rows: 199, ..long }).map(|plan| [plan.step, plan.tiles, plan.blocks]);
        assert_eq!(more, Some([198, 0, 396]));
        assert_eq!(plan(of(14_000, 2, 1)), None, "some threads have less");
        // Blocks of six warps, of which four run at once: with a residual and weights they have no room.
        let wide = of(49_152, 2, 2);
        assert_eq!(Plan::drawing(&wide, Drawing::Shared, 132), None);
        assert!(Plan::drawing(&wide, Drawing::Plain, 132).is_some());
    }
}
