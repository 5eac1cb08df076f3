//! Which kernels of [`gemm::sm90`] can do a problem, and how long each should take.

use cuda_std::wgmma::ElementType;
use gemm::epilogue::Activation;
use gemm::sm90::epilogue::OutputType;
use gemm::sm90::instances::{Entry, Kind, TABLE};
use primitives::tma::box_width;

use crate::device::Arch;
use crate::ops::gemm::bands;
use crate::ops::gemm::config::{Band, Candidate, Config, Kernel, Rejection, Repack, Terms};
use crate::ops::gemm::matrix::ROW_ALIGNMENT;
use crate::ops::gemm::problem::{EpilogueDesc, Operand, Order, Precision, Problem};
use crate::ops::gemm::repack::{self, LINE_BYTES};
use crate::ops::gemm::select::{CandidateSink, DeviceCapabilities};
use crate::ops::gemm::split_k;
use crate::tensor::DType;

use super::clusters::{CLUSTERS, blocks, clusters, in_reach, is_timed, resident};
use super::cost::{self, Work};
use super::launch::output_type;
use super::maps::K_BYTES;

pub(crate) const ARCH: Arch = Arch { major: 9, minor: 0 };

/// Multiprocessors' worth of tiles that run at a time, for the height of a raster group.
const TILES_AT_ONCE: f64 = 132.0;
/// Bytes of C from which on it leaves the L2 cache for memory while a product goes on.
const LARGE_RESULT: f64 = 32e6;
/// Bytes of C for one of A and B from which on a product does little but store.
const ALL_RESULT: f64 = 12.0;

/// Whole waves of the first of two bands, at most: of more of them the rest is too small a part.
const MOST_WAVES: u32 = 12;
/// Columns of a tile at least, where it is narrower than the kernel's, and columns of tiles more than of the
/// widest, at most.
const NARROWEST: u32 = 136;
// Else boxes would be as wide as the last tile for the kernel, and as wide as n for the map.
const _: () = assert!(NARROWEST >= K_BYTES / 2, "a line of 16 bits is a tile's at most");
const MORE_COLUMNS: u32 = 8;
/// Waves of a block of C, where it is computed in blocks.
const WAVES_OF_BLOCKS: [u32; 3] = [1, 2, 4];
/// Parts of k, at most, by blocks that share out each. On an H200, and in parts alone: 1024 x 256 x 12544 in
/// four 17.8 us, 20.0; 256 x 512 x 50176 in eight 33.0, 32.2; 512 x 128 x 50176 in sixteen 25.1, 23.3.
const MOST_PARTS_IN_SHARES: u32 = 4;
/// How much longer two bands take than each of them, and how much shorter they are to be estimated than one:
/// where they were estimated to gain 2 or 3 %, they lost 10 to 30 (three of eight products on an H100).
const BETWEEN_BANDS_US: f64 = 3.3;
const WORTH_TWO_BANDS: f64 = 0.96;

/// The name of a kernel.
pub(crate) fn name(index: u8) -> &'static str {
    TABLE.get(usize::from(index)).map_or("gemm_sm90", |entry| entry.name)
}

/// The product as a kernel computes it: as it is, or transposed.
#[derive(Clone, Copy)]
pub(super) struct View {
    pub m: u32,
    pub n: u32,
    /// `[m, k]` and `[k, n]`.
    pub a: Operand,
    pub b: Operand,
}

fn flip(operand: Operand) -> Operand {
    let order = match operand.order {
        Order::Rows => Order::Columns,
        Order::Columns => Order::Rows,
        Order::Strided => Order::Strided,
    };
    Operand { order, ..operand }
}

impl View {
    pub fn new(problem: &Problem, swap: bool) -> Self {
        let Problem { m, n, a, b, .. } = *problem;
        if swap { View { m: n, n: m, a: flip(b), b: flip(a) } } else { View { m, n, a, b } }
    }
}

/// Why no kernel here takes the problem, if none does.
fn rejection(problem: &Problem, device: &DeviceCapabilities) -> Option<&'static str> {
    let Problem { k, a, b, c, epilogue, batch, .. } = problem;
    let shared = |operand: &Operand| *batch > 1 && operand.batch_stride == 0;
    if device.arch != ARCH {
        Some("needs compute capability 9.0, no more and no less")
    } else if a.dtype == DType::F32 && b.dtype == DType::F32 && problem.precision == Precision::F32 {
        Some("multiplies f32 as tf32, which has not been allowed")
    } else if *k == 0 {
        Some("there is nothing to multiply")
    } else if c.order == Order::Strided {
        Some("wants the elements of C's rows or columns side by side")
    } else if c.order == Order::Columns && epilogue.is_by_line() {
        Some("adds a bias, and pairs columns, along contiguous rows of C only")
    } else if epilogue.residual.is_some_and(|residual| residual.order != c.order) {
        Some("wants the residual in C's order")
    } else if epilogue.source && c.dtype.size() == 1 {
        Some("adds no source C of 8 bits")
    } else if shared(a) || shared(b) {
        Some("wants an operand of its own for each product of a batch")
    } else {
        None
    }
}

pub(super) fn candidates(problem: &Problem, device: &DeviceCapabilities, sink: &mut dyn CandidateSink) {
    offer(problem, device, true, sink);
}

/// With those of products in bands, or without.
fn offer(problem: &Problem, device: &DeviceCapabilities, with_bands: bool, sink: &mut dyn CandidateSink) {
    if let Some(why) = rejection(problem, device) {
        return sink.reject(Rejection { kernel: "gemm::sm90", why });
    }
    let mut none = true;
    for (index, entry) in TABLE.iter().enumerate() {
        let is_direct = entry.kind == Kind::Direct;
        if !is_direct && entry.kind != Kind::Dense || is_direct && is_along_k(problem) {
            continue;
        }
        // A kernel that stores transposed serves the other way round.
        let swap = entry.transposed != (problem.c.order == Order::Columns);
        let view = View::new(problem, swap);
        if !takes(entry, &view, problem) || entry.shared > device.shared_bytes {
            continue;
        }
        none = false;
        for across in CLUSTERS {
            if in_reach(entry, across, &view) {
                let entry = &Entry { cluster: [across[0], across[1], entry.cluster[2]], ..*entry };
                let with_bands = with_bands && is_timed(entry);
                offer_as(index as u8, entry, &view, problem, device, [swap, with_bands], sink);
            }
        }
    }
    if none {
        let why = "has no kernel for these element types (16-bit and 8-bit alike or mixed, tf32; a bias and a residual in f32 or the 16-bit type)";
        sink.reject(Rejection { kernel: "gemm::sm90", why });
    }
}

/// The kernel in clusters of one shape, with all copies and parts.
fn offer_as(
    index: u8,
    entry: &Entry,
    view: &View,
    problem: &Problem,
    device: &DeviceCapabilities,
    [swap, with_bands]: [bool; 2],
    sink: &mut dyn CandidateSink,
) {
    let mut last = None;
    for copy_straddling in [false, true] {
        let copies = copies(entry, view, problem.k, copy_straddling);
        if last.replace(copies) == Some(copies) {
            continue;
        }
        let [_, width, _] = entry.block;
        let work = Work { entry, width, view, problem, copies, device };
        let whole = candidate(index, work, swap);
        in_parts(&whole, work, sink);
        if with_bands && copies == [Repack::No; 2] {
            in_bands(&whole, work, sink);
        }
        in_blocks(&whole, work, sink);
        sink.add(whole);
        for width in narrower(entry, view, problem) {
            let work = Work { width, ..work };
            let narrow = candidate(index, work, swap);
            in_parts(&narrow, work, sink);
            sink.add(narrow);
        }
    }
}

/// Can the copy engine bring both operands as the tensor cores read them in 32 bits?
fn is_along_k(problem: &Problem) -> bool {
    copy(&problem.a, Order::Rows, false) == Repack::No
        && copy(&problem.b, Order::Columns, false) == Repack::No
}

/// Widths of tiles that cut C into as few columns of tiles as the widest, or some more: all as wide but the
/// last one. Fuller waves, and fewer columns beside C, can be worth them.
fn narrower(entry: &Entry, view: &View, problem: &Problem) -> impl Iterator<Item = u32> {
    let ([_, widest, _], n) = (entry.block, view.n);
    // Threads store a part of a subtile, in 16-bit elements.
    let can = entry.narrows && problem.epilogue.activation.columns() == 1 && problem.c.dtype.size() > 1;
    // Whole subtiles of C are fetched, and the next tile's part may have been stored meanwhile.
    let step = if source(problem) == Source::C { entry.store_columns } else { BOX_GRANULE };
    let fewest = n.div_ceil(widest).max(1);
    let widths =
        (fewest..=fewest + MORE_COLUMNS).map(move |columns| n.div_ceil(columns).next_multiple_of(step));
    let mut last = widest;
    widths.filter(move |&width| can && width >= NARROWEST && width < std::mem::replace(&mut last, width))
}

/// With k in parts, where that is estimated to be faster.
fn in_parts(whole: &Candidate, work: Work<'_>, sink: &mut dyn CandidateSink) {
    let Work { entry, width, view, problem, device, .. } = work;
    // Parts in shares of one consumer were slower than either alone.
    let in_shares = entry.cluster[2] > 1;
    if in_shares && entry.consumers == 1 {
        return;
    }
    let [.., block_k] = entry.block;
    let (tiles, stages) = (clusters(entry, width, view, problem.batch), problem.k.div_ceil(block_k));
    for count in split_k::counts(tiles, resident(entry, device), stages) {
        // A share without a stage of its own would take one of the next part.
        let has_empty_shares = split_k::stages_of(problem, count, block_k) < entry.cluster[2];
        if in_shares && (count > MOST_PARTS_IN_SHARES || has_empty_shares) {
            continue;
        }
        let Some(parts) = split_k::cut_each(problem, count, block_k) else { continue };
        let parts_us = cost::estimate_us(Work { problem: &parts, ..work });
        let estimate_us = parts_us + split_k::estimate_us(problem, count);
        if estimate_us < whole.estimate_us {
            let config = Config { split_k: count, ..whole.config };
            let why = "wgmma; k is cut into parts, since the tiles alone leave multiprocessors idle";
            sink.add(Candidate { config, estimate_us, why });
        }
    }
}

/// In two bands, the first one of whole waves, where that is estimated to be clearly faster.
fn in_bands(whole: &Candidate, work: Work<'_>, sink: &mut dyn CandidateSink) {
    let Work { entry, width, view, problem, device, .. } = work;
    let ([block_m, ..], [across_m, across_n, _], swap) = (entry.block, entry.cluster, whole.config.swap);
    let (tile_m, tile_n) = (block_m * across_m, width * across_n);
    let whole_waves = clusters(entry, width, view, 1) / resident(entry, device);
    let is_whole = clusters(entry, width, view, 1).is_multiple_of(resident(entry, device));
    if !bands::can_be_cut(problem) || is_whole || !(1..=MOST_WAVES).contains(&whole_waves) {
        return;
    }
    let at_once = whole_waves * resident(entry, device);
    let rows = at_once / view.n.div_ceil(tile_n) * tile_m;
    let columns = at_once / view.m.div_ceil(tile_m) * tile_n;
    let [rows, columns] = if swap {
        [Band::Columns(rows), Band::Rows(columns)]
    } else {
        [Band::Rows(rows), Band::Columns(columns)]
    };
    for band in [rows, columns] {
        let (Band::Rows(side) | Band::Columns(side)) = band else { continue };
        let all = if matches!(band, Band::Rows(_)) { problem.m } else { problem.n };
        if side == 0 || side >= all {
            continue;
        }
        let first = bands::of(problem, band);
        let mut least = Least(f64::INFINITY);
        offer(&bands::rest_of(problem, band), device, false, &mut least);
        let first_us = cost::estimate_us(Work { view: &View::new(&first, swap), problem: &first, ..work });
        let estimate_us = first_us + least.0 + BETWEEN_BANDS_US;
        if estimate_us < WORTH_TWO_BANDS * whole.estimate_us {
            let config = Config { band, ..whole.config };
            let why = "wgmma; whole waves of tiles, and a product of its own for the rest of C";
            sink.add(Candidate { config, estimate_us, why });
        }
    }
}

/// In blocks of some waves each, where that is estimated to be faster. Products of a batch come one after the
/// other.
fn in_blocks(whole: &Candidate, work: Work<'_>, sink: &mut dyn CandidateSink) {
    let Work { entry, width, view, problem, device, .. } = work;
    let at_once = resident(entry, device);
    let is_short = clusters(entry, width, view, problem.batch) <= at_once || !cost::can_drift(work);
    if is_short || !bands::can_be_in_blocks(problem) || whole.config.swap {
        return;
    }
    let ([block_m, ..], [across_m, across_n, _]) = (entry.block, entry.cluster);
    let (tile_m, tile_n) = (block_m * across_m, width * across_n);
    let down = view.m.div_ceil(tile_m);
    let height = down.div_ceil(down.div_ceil(square(at_once, [tile_m, tile_n])));
    for waves in WAVES_OF_BLOCKS {
        let rows = height * tile_m;
        let columns = (waves * at_once / height).max(1) * tile_n;
        let is_whole = rows >= view.m && columns >= view.n;
        if is_whole && problem.batch == 1 {
            break;
        }
        let of = |m: u32, n: u32| {
            let (problem, view) = (&Problem { m, n, batch: 1, ..*problem }, &View { m, n, ..*view });
            if m == 0 || n == 0 { 0.0 } else { cost::launch_us(Work { view, problem, ..work }) }
        };
        let (full_m, full_n) = (f64::from(view.m / rows), f64::from(view.n / columns));
        let (rest_m, rest_n) = (view.m % rows, view.n % columns);
        let blocks_us = full_m * (full_n * of(rows, columns) + of(rows, rest_n))
            + full_n * of(rest_m, columns)
            + of(rest_m, rest_n);
        let estimate_us = cost::copies_us(work) + f64::from(problem.batch) * blocks_us;
        if estimate_us < whole.estimate_us {
            let config = Config { band: Band::Blocks(rows, columns), ..whole.config };
            let why = "wgmma; a launch for some waves of tiles each, so that they read together";
            sink.add(Candidate { config, estimate_us, why });
        }
        if is_whole {
            break;
        }
    }
}

/// The terms of a configuration's estimate: of its first launch of a kernel here.
pub(crate) fn terms(problem: &Problem, device: &DeviceCapabilities, config: &Config) -> Option<Terms> {
    let Kernel::Sm90(index) = config.kernel else { return None };
    let entry = &Entry { cluster: config.cluster, ..*TABLE.get(usize::from(index))? };
    let part = match config.band {
        Band::Blocks(rows, columns) => {
            Problem { m: rows.min(problem.m), n: columns.min(problem.n), batch: 1, ..*problem }
        }
        band => bands::of(problem, band),
    };
    let part =
        if config.split_k > 1 { split_k::cut_each(&part, config.split_k, entry.block[2])? } else { part };
    let [to_a, to_b] = config.repack;
    let copies = if config.swap { [flip_copy(to_b), flip_copy(to_a)] } else { [to_a, to_b] };
    let (view, [_, width, _]) = (&View::new(&part, config.swap), config.tile);
    Some(cost::terms(Work { entry, width, view, problem: &part, copies, device }))
}

/// Clusters' tiles below each other of a wave whose sides are the shortest, of those that leave next to no
/// multiprocessor idle.
fn square(at_once: u32, [tile_m, tile_n]: [u32; 2]) -> u32 {
    let fills = |height: u32| 20 * height * (at_once / height) >= 19 * at_once;
    let sides = |height: u32| height * tile_m + at_once / height * tile_n;
    (1..=at_once).filter(|height| fills(*height)).min_by_key(|height| sides(*height)).unwrap_or(1)
}

/// The lowest estimate.
struct Least(f64);

impl CandidateSink for Least {
    fn add(&mut self, candidate: Candidate) {
        self.0 = self.0.min(candidate.estimate_us);
    }

    fn reject(&mut self, _: Rejection) {}
}

pub(crate) fn element(dtype: DType) -> Option<ElementType> {
    match dtype {
        DType::F32 => Some(ElementType::Tf32),
        DType::F16 => Some(ElementType::F16),
        DType::BF16 => Some(ElementType::Bf16),
        DType::F8E4M3 => Some(ElementType::E4m3),
        DType::F8E5M2 => Some(ElementType::E5m2),
        _ => None,
    }
}

/// Can the copy engine store C of at most 16 bits: in whole units of 16 bytes, and not 8 bits of SwiGLU?
pub(super) fn by_tma(problem: &Problem) -> bool {
    let Problem { m, n, c, epilogue, .. } = problem;
    let columns = epilogue.activation.columns();
    let length = if c.order == Order::Rows { *n / columns } else { *m };
    let size = c.dtype.size();
    in_units(c, length as usize) && size <= 2 && size >= columns as usize
}

/// Can it store C in f32: by a kernel that has a way for it, the product alone, in whole units?
pub(super) fn f32_by_tma(entry: &Entry, problem: &Problem) -> bool {
    let Problem { m, n, c, epilogue, .. } = problem;
    let length = if c.order == Order::Rows { *n } else { *m };
    entry.stores_f32 && c.dtype.size() > 2 && epilogue.is_plain() && in_units(c, length as usize)
}

/// Does it store C?
pub(super) fn is_copied(entry: &Entry, problem: &Problem) -> bool {
    by_tma(problem) || f32_by_tma(entry, problem)
}

/// Do lines of so many elements consist of whole units of 16 bytes, where the copy engine can store them?
pub(crate) fn in_units(operand: &Operand, length: usize) -> bool {
    u64::from(operand.alignment) == ROW_ALIGNMENT
        && (length as u64 * operand.dtype.size() as u64).is_multiple_of(ROW_ALIGNMENT)
}

/// Does C take the shortest way: copied, in 16 bits or f32, and nothing but the product?
pub(super) fn is_plain(entry: &Entry, problem: &Problem) -> bool {
    problem.epilogue.is_plain() && is_copied(entry, problem) && problem.c.dtype.size() >= 2
}

/// Is C copied, and what the epilogue makes of an element depends on its column alone, and on what the copy
/// engine brings for it?
pub(super) fn is_by_column(problem: &Problem) -> bool {
    let Problem { c, epilogue, .. } = problem;
    let EpilogueDesc { activation, source: adds_c, residual, scaled_result, amax, .. } = epilogue;
    // Factors of results, and their largest magnitude, are those of 8 bits.
    let is_as_narrow = (*scaled_result || *amax) && c.dtype.size() > 1;
    let is_brought = match source(problem) {
        Source::Nothing => !*adds_c && residual.is_none(),
        Source::C => true,
        Source::Residual => !*adds_c,
    };
    by_tma(problem) && is_short(*activation) && is_brought && !is_as_narrow
}

/// Those of few instructions: kernels have them for many elements at a time.
pub(crate) fn is_short(activation: Activation) -> bool {
    matches!(activation, Activation::None | Activation::Relu | Activation::GeluTanh | Activation::Silu)
}

/// The matrix that TMA can load to where it stores C from: one that the epilogue adds, of C's type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Nothing,
    C,
    Residual,
}

/// The matrix that TMA loads for the problem.
pub(super) fn source(problem: &Problem) -> Source {
    let Problem { c, batch, epilogue, .. } = problem;
    if !by_tma(problem) || c.dtype.size() != 2 || epilogue.activation.columns() != 1 {
        return Source::Nothing;
    }
    match epilogue.residual {
        Some(residual) => {
            let Operand { dtype, order, leading, batch_stride, alignment } = residual;
            let is_alike = dtype == c.dtype && order == c.order && u64::from(alignment) == ROW_ALIGNMENT;
            if is_alike && leading > 0 && (*batch == 1 || batch_stride > 0) {
                Source::Residual
            } else {
                Source::Nothing
            }
        }
        None if epilogue.source => Source::C,
        None => Source::Nothing,
    }
}

/// Are the types the kernel's?
fn takes(entry: &Entry, view: &View, problem: &Problem) -> bool {
    let Problem { c, epilogue, .. } = problem;
    let is_16_bit = |dtype: DType| element(dtype) == Some(entry.element16);
    // Types that the epilogue reads.
    let mut read = epilogue.bias.into_iter().chain(epilogue.residual.map(|residual| residual.dtype));
    element(view.a.dtype) == Some(entry.a)
        && element(view.b.dtype) == Some(entry.b)
        && (output_type(c.dtype) != OutputType::Element16 || is_16_bit(c.dtype))
        && read.all(|dtype| dtype == DType::F32 || is_16_bit(dtype))
}

/// The copies that a kernel needs of its operands.
fn copies(entry: &Entry, view: &View, k: u32, straddling_too: bool) -> [Repack; 2] {
    let of = |operand: &Operand, wanted, length: u32| {
        if entry.kind == Kind::Direct && operand.order != Order::Strided {
            return Repack::No;
        }
        // A copy of short rows straddles too.
        let gains = !copy_straddles(length, operand.dtype.size());
        copy(operand, wanted, straddling_too && gains)
    };
    let View { m, n, a, b } = view;
    [
        if entry.trans_a { of(a, Order::Columns, *m) } else { of(a, Order::Rows, k) },
        if entry.trans_b { of(b, Order::Rows, *n) } else { of(b, Order::Columns, k) },
    ]
}

/// The copy that brings an operand into the order, and to aligned rows.
pub(crate) fn copy(operand: &Operand, wanted: Order, straddling_too: bool) -> Repack {
    let is_addressable = operand.order == wanted && u64::from(operand.alignment) == ROW_ALIGNMENT;
    if is_addressable && !(straddling_too && straddles(operand)) {
        return Repack::No;
    }
    if wanted == Order::Rows { Repack::Rows } else { Repack::Columns }
}

/// Do boxes lie across cache lines?
pub(super) fn straddles(operand: &Operand) -> bool {
    !(operand.leading * operand.dtype.size() as u64).is_multiple_of(LINE_BYTES as u64)
}

/// Do they in a copy of lines of so many elements?
pub(super) fn copy_straddles(length: u32, element_bytes: usize) -> bool {
    !(repack::pitch(length as usize, element_bytes) * element_bytes).is_multiple_of(LINE_BYTES)
}

fn candidate(index: u8, work: Work<'_>, swap: bool) -> Candidate {
    let Work { entry, width, copies: [to_a, to_b], .. } = work;
    let [block_m, _, block_k] = entry.block;
    let estimate_us = cost::estimate_us(work);
    let config = Config {
        cluster: entry.cluster,
        swap,
        // In the order of A and B, not of the kernel's operands.
        repack: if swap { [flip_copy(to_b), flip_copy(to_a)] } else { [to_a, to_b] },
        ..Config::new(Kernel::Sm90(index), [block_m, width, block_k], entry.stages)
    };
    Candidate { config, estimate_us, why: why(entry, swap, [to_a, to_b]) }
}

fn flip_copy(to: Repack) -> Repack {
    match to {
        Repack::No => Repack::No,
        Repack::Rows => Repack::Columns,
        Repack::Columns => Repack::Rows,
    }
}

fn why(entry: &Entry, swap: bool, copies: [Repack; 2]) -> &'static str {
    if entry.kind == Kind::Direct && copies == [Repack::No; 2] {
        "wgmma fed by threads, which take operands as they lie, without a copy's launch"
    } else if entry.kind == Kind::Direct {
        "wgmma fed by threads; operands of any strides are copied to rows first"
    } else if copies != [Repack::No; 2] {
        "wgmma fed by TMA; operands that it cannot address, or not at full speed, are copied to aligned rows first"
    } else if swap {
        "wgmma fed by TMA, computing the transpose: C's columns fill the tile's rows"
    } else if entry.cluster[2] > 1 {
        "wgmma fed by TMA; two blocks share k out, since the tiles alone leave multiprocessors idle"
    } else if entry.ping_pong {
        "wgmma fed by TMA; one warpgroup stores while the other multiplies"
    } else {
        "wgmma fed by TMA; the fewest and fullest waves of tiles"
    }
}

/// Boxes that a block's part of an operand's tile is cut into, at most, so that those outside of the matrix
/// can be left out. A thread starts each.
const MOST_BOXES: u32 = 4;
/// Rows outside of the matrix that cost as much as one more box, which all tiles start. With four boxes in
/// place of one, 1000 cubed by 64 x 128 in clusters takes 11.7 us on an H200; before boxes were left out 7.8.
const BOX_START: u32 = 8;
/// Tiles along a side beyond which those that lie outside in part are too few to matter.
const MOST_TILES_IN_BOXES: u32 = 16;
/// Rows of a box are multiples of the swizzle's.
const BOX_GRANULE: u32 = 8;

/// Lines of the boxes of A and B: of operands that are contiguous along k rows, a block's part of the tile,
/// or less where that leaves boxes out; else elements of k.
pub(super) fn box_rows(entry: &Entry, width: u32, view: &View) -> [u32; 2] {
    let ([block_m, block_n, span], [across_m, across_n, _]) = (entry.block, entry.cluster);
    // A narrower tile ends as a matrix does.
    let n = if width == block_n { view.n } else { width };
    let of = |is_trans: bool, side: u32, tile: u32, sharers: u32| {
        if is_trans {
            span.min(tile.next_multiple_of(span) / sharers)
        } else if entry.skips {
            box_of(side, tile, sharers)
        } else {
            tile / sharers
        }
    };
    [of(entry.trans_a, view.m, block_m, across_n), of(entry.trans_b, n, block_n, across_m)]
}

/// Elements along m or n of the boxes of both operands, where those may be narrower than a line.
pub(super) fn box_widths(entry: &Entry, view: &View) -> [Option<u32>; 2] {
    let [across_m, across_n, _] = entry.cluster;
    let of = |is_trans: bool, span: u32, side: u32, sharers: u32| {
        (is_trans && entry.skips && sharers == 1).then(|| box_width(side, span))
    };
    let span = K_BYTES / entry.a.bytes();
    [of(entry.trans_a, span, view.m, across_n), of(entry.trans_b, span, view.n, across_m)]
}

fn box_of(side: u32, tile: u32, sharers: u32) -> u32 {
    let (part, last) = (tile / sharers, side % tile);
    if side <= tile && sharers == 1 {
        return side.max(1).next_multiple_of(BOX_GRANULE);
    }
    let can = |boxes: &u32| part.is_multiple_of(boxes * BOX_GRANULE);
    let cost = |&boxes: &u32| boxes * BOX_START + last.next_multiple_of(part / boxes);
    if last == 0 || side.div_ceil(tile) > MOST_TILES_IN_BOXES {
        return part;
    }
    (1..=MOST_BOXES).filter(can).min_by_key(cost).map_or(part, |boxes| part / boxes)
}

/// Rows of clusters' tiles of a raster group: those under way at a time make a square, so that they share
/// their operands in the L2 cache. Where what moves is C, they are tiles of the same rows of C: then its
/// lines are whole when they leave the cache for memory.
pub(super) fn raster_group(entry: &Entry, width: u32, problem: &Problem, view: &View) -> u32 {
    let [block_m, ..] = entry.block;
    let [across_m, across_n, _] = entry.cluster;
    let tile_m = block_m * across_m;
    if is_all_result(problem) {
        return if entry.transposed { view.m.div_ceil(tile_m).max(1) } else { 1 };
    }
    let ratio = f64::from(width * across_n) / f64::from(tile_m);
    let at_once = TILES_AT_ONCE / f64::from(blocks(entry));
    ((at_once * ratio).sqrt().round() as u32).max(1)
}

/// Is C larger than a cache, and A and B next to nothing beside it?
fn is_all_result(problem: &Problem) -> bool {
    let Problem { m, n, k, a, b, c, .. } = problem;
    let bytes =
        |rows: u32, columns: u32, dtype: DType| f64::from(rows) * f64::from(columns) * dtype.size() as f64;
    let result = bytes(*m, *n, c.dtype);
    let operands = bytes(*m, *k, a.dtype) + bytes(*k, *n, b.dtype);
    result >= LARGE_RESULT && result >= ALL_RESULT * operands
}

#[cfg(test)]
mod tests;
