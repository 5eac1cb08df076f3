//! Few rows: [`gemm::skinny`], as fast as B comes from memory.

use gemm::any::StridedGemm;
use gemm::skinny::{self, Width};
use gemm::sm90::skinny as narrow;

use crate::error::Result;
use crate::launch::{LaunchConfig, launch};
use crate::stream::Stream;
use crate::tensor::DType;

use super::any::strided_gemm;
use super::backend::Backend;
use super::check::invalid;
use super::config::{Candidate, Config, Kernel, Rejection, Repack};
use super::matmul::Matmul;
use super::matrix::ROW_ALIGNMENT;
use super::problem::{Operand, Order, Precision, Problem};
use super::repack::{self, MAX_BATCH_BLOCKS};
use super::select::{CandidateSink, DeviceCapabilities};
use super::sm90::ARCH as HOPPER;
use super::split_k;

pub(super) const BACKEND: Backend =
    Backend { candidates, has: |kernel| kernel == Kernel::Skinny, launch: launch_skinny };

/// How much of memory's rate the device has, and bytes of both factors a microsecond of one multiprocessor
/// while others idle: measured on an H200, 8192 x 8192 and 28672 x 8192, and on an H100 with products drawn
/// at random. A limit of the copies alone: whole launches with their start take in less, 32e3 (NOTES.md). Of
/// 8-bit factors, which become f16 first, in seven products of 8 and 16 rows on an H200.
const READ: f64 = 0.86;
const BLOCK_BYTES_PER_US: f64 = 52e3;
const NARROW_BLOCK_BYTES_PER_US: f64 = 38e3;
/// A launch that overlaps with the one before it, and the way of the first bytes.
const START_US: f64 = 2.4;
/// The end of a tile that another one follows: 3 x 26144 x 160 takes 13.4 us in tiles of 16 columns, 5.5 in
/// those of 128.
const FOLLOWED_US: f64 = 0.8;
/// The same where the other one is of another matrix, or part of k: its copies begin anew.
const BEGUN_US: f64 = 1.5;
/// Sums of parts take this much longer where the last wave of the product's blocks leaves them fewer than one
/// multiprocessor in [`CROWDED`]: three products of 8 and 16 rows on an H200, with 125 to 130 blocks of 132.
const CROWDED_US: f64 = 1.0;
/// See [`CROWDED_US`].
const CROWDED: u32 = 16;
/// A column's part in the end of a tile.
const COLUMN_US: f64 = 0.003;
/// Until what is added to a tile has come, which the threads ask for behind the last product, and a column's
/// part in that: one product, 16 x 2616 x 176 with a residual on an H200, in tiles of 16 to 128 columns.
const ADDED_US: f64 = 1.3;
const ADDED_COLUMN_US: f64 = 0.017;
/// Where lines of B begin at no multiple of these bytes, copies take more of them from memory, and take so
/// much longer.
const SECTOR_BYTES: u64 = 32;
const STRADDLING: f64 = 1.1;
/// How much longer products take than their copies, on an H200: those of 24 and 32 rows 1.1 to 1.5 times,
/// where A lies by columns or B by rows 1.25 to 2; of tf32 beyond 8 rows 1.1 to 2.2. Columns of A and batches
/// at fewer rows 1 to 1.3.
const MANY_ROWS: f64 = 1.3;
const MANY_TURNED: f64 = 1.6;
const MANY_TF32: f64 = 2.0;
const FEW_ROWS: f64 = 1.15;
/// Rows that the copies hide.
const HIDDEN_M: u32 = 16;
const HIDDEN_M_TF32: u32 = 8;
/// Cost of a byte of A, which comes from the L2 cache, relative to a byte of B.
const CACHED: f64 = 0.07;

fn candidates(problem: &Problem, device: &DeviceCapabilities, sink: &mut dyn CandidateSink) {
    let alignment = ROW_ALIGNMENT as u32;
    let copied = Problem { a: Operand { order: Order::Rows, alignment, ..problem.a }, ..*problem };
    let (lies, to_a) = match (lacks(problem, device), lacks(&copied, device)) {
        (None, _) => (problem, Repack::No),
        (_, None) => (&copied, Repack::Rows),
        (_, Some(why)) => return sink.reject(Rejection { kernel: Kernel::Skinny.name(), why }),
    };
    let copy_us = repack::estimate_us(to_a, &problem.a, [problem.m, problem.k], problem.batch, device);
    for width in Width::ALL {
        if width.takes(problem.m) && width.shared_bytes(problem.m) <= device.shared_bytes {
            add(width, lies, (to_a, copy_us), device, sink);
        }
    }
}

/// The candidate, and those with k in parts that are estimated to be faster.
fn add(
    width: Width,
    problem: &Problem,
    (to_a, copy_us): (Repack, f64),
    device: &DeviceCapabilities,
    sink: &mut dyn CandidateSink,
) {
    let depth = width.depth(problem.b.dtype.size() as u32);
    let tile = [skinny::MAX_M, width.columns(), depth];
    let config = Config { repack: [to_a, Repack::No], ..Config::new(Kernel::Skinny, tile, skinny::STAGES) };
    let whole_us = copy_us + estimate_us(width, problem, device);
    let why = "few rows: streams B once, as fast as it comes from memory";
    sink.add(Candidate { config, estimate_us: whole_us, why });
    // The kernel that adds the parts' sums is built for Hopper alone.
    if device.arch != HOPPER {
        return;
    }
    let (tiles, stages) = (width.tiles(problem.n), problem.k.div_ceil(depth));
    for count in split_k::counts(tiles, device.sm_count.max(1), stages) {
        let Some(parts) = split_k::cut(problem, count, depth) else { continue };
        let sums_us = split_k::estimate_us(problem, count) + crowded_us(tiles * count, problem, device);
        let estimate_us = copy_us + estimate_us(width, &parts, device) + sums_us;
        if estimate_us < whole_us {
            let why = "few rows: streams B once; k is cut into parts, since there are few columns";
            sink.add(Candidate { config: Config { split_k: count, ..config }, estimate_us, why });
        }
    }
}

/// How much longer the sums of parts take behind so many blocks.
fn crowded_us(blocks: u32, problem: &Problem, device: &DeviceCapabilities) -> f64 {
    let sm_count = device.sm_count.max(1);
    let idle = blocks.next_multiple_of(sm_count) - blocks;
    let is_crowded = problem.epilogue.is_factors_and_source() && idle * CROWDED < sm_count;
    if is_crowded { CROWDED_US } else { 0.0 }
}

/// Why the kernels cannot do the problem.
fn lacks(problem: &Problem, device: &DeviceCapabilities) -> Option<&'static str> {
    let Problem { m, n, k, batch, a, b, precision, .. } = *problem;
    let is_narrow = b.dtype.size() == 1;
    // Elements of a 16-byte unit.
    let unit = ROW_ALIGNMENT as u32 / b.dtype.size() as u32;
    let is_tf32 = b.dtype == DType::F32;
    let rules = [
        (device.arch.major >= 8, "wants a device of sm_80 or later"),
        (m <= skinny::MAX_M, "takes up to 32 rows"),
        (batch <= MAX_BATCH_BLOCKS, "takes up to 65535 products"),
        (
            a.dtype == b.dtype
                && matches!(a.dtype, DType::F16 | DType::BF16 | DType::F32 | DType::F8E4M3 | DType::F8E5M2),
            "A and B are both f16, bf16, f32, E4M3 or E5M2",
        ),
        (!is_tf32 || precision == Precision::Tf32, "reads f32 as tf32, which is not allowed"),
        (!is_tf32 || b.order == Order::Rows, "wants B by rows for tf32"),
        (!is_narrow || device.arch == HOPPER, "wants a device of compute capability 9.0 for 8-bit elements"),
        (!is_narrow || b.order == Order::Columns, "wants B by columns for 8-bit elements"),
        (k > 0 && k.is_multiple_of(unit), "k is a multiple of 8 (of 16 for 8 bits, 4 for tf32), and not 0"),
        (a.order != Order::Strided, "wants A by rows or by columns"),
        (!is_narrow || a.order == Order::Rows, "wants A by rows for 8-bit elements"),
        (
            a.order != Order::Columns || m.is_multiple_of(unit),
            "m is a multiple of 8 (4 for tf32) where A lies by columns",
        ),
        (b.order != Order::Strided, "wants B by rows or by columns"),
        (
            b.order != Order::Rows || n.is_multiple_of(unit),
            "n is a multiple of 8 (4 for tf32) where B lies by rows",
        ),
        (
            u64::from(a.alignment.min(b.alignment)) >= ROW_ALIGNMENT,
            "every row of A, and row or column of B, begins at a multiple of 16 bytes",
        ),
    ];
    rules.iter().find(|(holds, _)| !holds).map(|(_, why)| *why)
}

/// The copies, and the ends of tiles. Full waves of blocks share the memory, those of the last one have more
/// each.
fn estimate_us(width: Width, problem: &Problem, device: &DeviceCapabilities) -> f64 {
    let sm_count = u64::from(device.sm_count.max(1));
    let tiles = u64::from(width.tiles(problem.n)) * u64::from(problem.batch);
    let (columns, rows) = (f64::from(width.columns()), f64::from(problem.m));
    let line = f64::from(problem.k) * problem.b.dtype.size() as f64;
    let rate = if problem.b.dtype.size() == 1 { NARROW_BLOCK_BYTES_PER_US } else { BLOCK_BYTES_PER_US };
    let wave = |blocks: u64| {
        let share = READ * device.memory_rate / blocks.max(1) as f64;
        let busy = line * ((columns + CACHED * rows) / share).max((columns + rows) / rate);
        if blocks == 0 { 0.0 } else { busy }
    };
    let time = (tiles / sm_count) as f64 * wave(sm_count) + wave(tiles % sm_count);
    let leading = problem.b.leading * problem.b.dtype.size() as u64;
    let straddling = if leading.is_multiple_of(SECTOR_BYTES) { 1.0 } else { STRADDLING };
    let copies = straddling * time / efficiency(width, problem.b.order);
    let followed = tiles.div_ceil(sm_count) as f64 - 1.0;
    let followed_us = if problem.batch > 1 { BEGUN_US } else { FOLLOWED_US };
    let is_added_to = problem.epilogue.residual.is_some() || problem.epilogue.source;
    let added_us = if is_added_to { ADDED_US + ADDED_COLUMN_US * columns } else { 0.0 };
    let end_us = COLUMN_US * columns + added_us;
    START_US + copies * products(problem) + followed.max(0.0) * followed_us + end_us
}

/// How much the products add to the time of the copies.
fn products(problem: &Problem) -> f64 {
    let Problem { m, batch, a, b, .. } = *problem;
    let by_column = a.order == Order::Columns;
    match b.dtype {
        DType::F32 if m > HIDDEN_M_TF32 => MANY_TF32,
        DType::F32 => 1.0,
        _ if m > HIDDEN_M && (by_column || b.order == Order::Rows) => MANY_TURNED,
        _ if m > HIDDEN_M => MANY_ROWS,
        _ if by_column || batch > 1 => FEW_ROWS,
        _ => 1.0,
    }
}

/// Rows of B are read in pieces as wide as the block: short ones use the memory less well.
fn efficiency(width: Width, order: Order) -> f64 {
    match (order, width.columns()) {
        (Order::Rows, 16) => 0.69,
        (Order::Rows, 32) => 0.87,
        _ => 1.0,
    }
}

fn launch_skinny(stream: &Stream, problem: &Problem, config: &Config, product: Matmul<'_>) -> Result<()> {
    if config.split_k > 1 {
        return split_k::launch(stream, problem, config, product, |parts, of_parts| {
            let gemm = split_k::strided(problem.k, parts, &of_parts);
            launch_blocks(stream, gemm, parts, config, of_parts, parts.k)
        });
    }
    launch_blocks(stream, strided_gemm(problem, &product), problem, config, product, 0)
}

/// A batch of products; or parts of k of one, each of so many columns of A.
fn launch_blocks(
    stream: &Stream,
    gemm: StridedGemm,
    problem: &Problem,
    config: &Config,
    product: Matmul<'_>,
    part: u32,
) -> Result<()> {
    let Some(width) = Width::of_columns(config.tile[1]) else {
        return Err(invalid(
            "the configuration",
            config.to_string(),
            "a tile of 16, 32, 64 or 128 columns".to_owned(),
            "take one of `candidates`",
        ));
    };
    let Matmul { a, b, c, epilogue, .. } = product;
    let (dtype, order) = (a.dtype, problem.b.order);
    let blocks = width.tiles(problem.n).min(stream.device().properties().sm_count);
    let config = LaunchConfig::new([blocks, 1, problem.batch], [skinny::THREADS, 1, 1])
        .with_shared(width.shared_bytes(problem.m))
        .overlapping_previous();
    let arguments = (gemm, epilogue.args(false), a.data, b.data, c.data, width.groups(), part);
    // SAFETY: the shapes have been checked against the data and each other, and alignment and order by
    // `lacks`; parts of k are those of `split_k::cut`, of which none is empty; C is exclusively borrowed and
    // does not overlap itself; for SwiGLU n is even; grid, block and shared memory are what the kernel asks
    // for, and it waits for earlier launches before it touches memory.
    unsafe {
        match (dtype, order) {
            (DType::F16, Order::Columns) => launch::<skinny::gemm_skinny_f16_nt>(stream, config, arguments),
            (DType::F16, _) => launch::<skinny::gemm_skinny_f16_nn>(stream, config, arguments),
            (DType::F8E4M3, _) => launch::<narrow::gemm_skinny_e4m3_nt>(stream, config, arguments),
            (DType::F8E5M2, _) => launch::<narrow::gemm_skinny_e5m2_nt>(stream, config, arguments),
            (DType::F32, _) => launch::<skinny::gemm_skinny_tf32_nn>(stream, config, arguments),
            (_, Order::Columns) => launch::<skinny::gemm_skinny_bf16_nt>(stream, config, arguments),
            _ => launch::<skinny::gemm_skinny_bf16_nn>(stream, config, arguments),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::gemm::problem::EpilogueDesc;
    use crate::ops::gemm::select::All;

    const H200: DeviceCapabilities = DeviceCapabilities::H200;

    fn problem(m: u32, n: u32, k: u32, order: Order) -> Problem {
        let operand = |order, leading: u32| Operand {
            dtype: DType::BF16,
            order,
            leading: leading.into(),
            batch_stride: 0,
            alignment: 16,
        };
        let (a, c) = (operand(Order::Rows, k), operand(Order::Rows, n));
        let b = operand(order, if order == Order::Rows { n } else { k });
        Problem { m, n, k, batch: 1, a, b, c, precision: Precision::F32, epilogue: EpilogueDesc::default() }
    }

    fn best(m: u32, n: u32, k: u32, order: Order) -> Candidate {
        let mut all = All::default();
        candidates(&problem(m, n, k, order), &H200, &mut all);
        assert!(all.rejections.is_empty());
        all.candidates.into_iter().min_by(|a, b| a.estimate_us.total_cmp(&b.estimate_us)).unwrap()
    }

    /// The fastest of the four where they were measured (`benches/NOTES.md`), or one within 4 % of it.
    #[test]
    fn the_estimate_chooses_what_was_fastest() {
        let (nt, nn) = (Order::Columns, Order::Rows);
        let measured = [
            ((1, 8192, 8192, nt), 64, 33.6),
            ((1, 8192, 8192, nn), 64, 33.2),
            ((16, 8192, 8192, nt), 64, 34.8),
            ((1, 4096, 4096, nt), 32, 10.7),
            ((1, 4096, 4096, nn), 32, 11.2),
            ((1, 28_672, 8192, nt), 128, 112.3),
            ((1, 28_672, 8192, nn), 128, 109.5),
            ((1, 1024, 8192, nt), 16, 7.5),
        ];
        for ((m, n, k, order), columns, us) in measured {
            let Candidate { config, estimate_us, .. } = best(m, n, k, order);
            assert_eq!(config.tile[1], columns, "{m} x {n} x {k} {order:?}");
            assert!((estimate_us / us - 1.0).abs() < 0.1, "{estimate_us} us, measured {us}: {config}");
        }
    }

    #[test]
    fn a_device_with_little_shared_memory_gets_what_fits() {
        let mut all = All::default();
        candidates(
            &problem(16, 64, 64, Order::Columns),
            &DeviceCapabilities { shared_bytes: 163 << 10, ..H200 },
            &mut all,
        );
        let columns: Vec<u32> = all.candidates.iter().map(|candidate| candidate.config.tile[1]).collect();
        assert_eq!(columns, [128, 64, 32]);
        assert!(all.candidates.iter().all(|candidate| candidate.config.split_k == 1));
    }
}
