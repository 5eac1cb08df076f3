//! How long a kernel of [`gemm::sm90`] should take.
//!
//! ```text
//!   start, copies of operands
//!   tiles    full waves of clusters of tiles, then a last wave of fewer
//!            a wave: steps of 128 bytes of k, and stores
//!            a step: multiplications beside what L2 sends to all blocks; at least the latencies
//!   memory   operands once, or once for each wave
//!            with long k, blocks of many waves drift apart, and L2 shares less
//! ```
//! Tiles and memory go on at a time. What L2 sends is counted in lines: a row that does not begin at one is
//! two, and a row outside of the operand, which the copy engine fills with zeros, costs more than one inside.
//! The figures are fitted to half of some three hundred products drawn at random, each by many
//! configurations, on an H100, to older sweeps, and to what was fastest on an H200 (`benches/NOTES.md`).

use gemm::sm90::direct::CHUNK;
use gemm::sm90::instances::{Entry, Kind};

use super::candidates::{
    Source, View, box_rows, box_widths, by_tma, f32_by_tma, is_by_column, is_copied, source,
};
use super::clusters::{blocks, clusters, is_timed, resident};
use super::maps::{K_BYTES, paired};
use crate::ops::gemm::config::{Repack, Terms};
use crate::ops::gemm::matrix::ROW_ALIGNMENT;
use crate::ops::gemm::problem::{Operand, Order, Problem};
use crate::ops::gemm::repack::{self, LINE_BYTES};
use crate::ops::gemm::select::DeviceCapabilities;

/// Bytes of a sector: what L2 reads of memory at least.
const SECTOR_BYTES: usize = 32;
/// A launch, the first stage's way, and how much longer clusters of blocks take to start.
const START_US: f64 = 1.78;
const CLUSTER_US: f64 = 0.44;
/// By so much a cluster of the launch's shape has to be ahead, where few of them were timed. The choice over
/// 30 products takes 0.4 % longer than without, and listed products keep what was fastest. The terms of an
/// estimate are without it.
const SHAPED_MARGIN: f64 = 1.10;
/// Rates of one multiprocessor in a microsecond: operations on 16-bit types, bytes that it asks L2 for, and
/// bytes that come into its shared memory, those that another block of the cluster asks for too.
const FLOPS_PER_US: f64 = 8.9e6;
const LOAD_BYTES_PER_US: f64 = 269e3;
const INTAKE_BYTES_PER_US: f64 = 124.5e3;
/// Bytes that L2 sends in a microsecond, to all of them.
const L2_BYTES_PER_US: f64 = 16.3e6;
/// How often a row counts that does not begin at a line: where it begins at a sector of 32 bytes, and where
/// it does not. And one outside of the operand.
const FROM_SECTORS: f64 = 1.75;
const FROM_UNITS: f64 = 2.48;
const OUTSIDE: f64 = 3.76;
/// How much longer steps take in tiles narrower than the kernel's: on an H200, 2 to 9 %, and by choices of
/// 93 products there (`gemm_every_153072576.txt` and older samples). And the store of a part of a subtile,
/// whose rows the threads store: in 160 products of 16-bit results.
const NARROWER: f64 = 1.08;
const PART_US: f64 = 1.0;
/// Columns from an instruction for a part of a tile's columns to the next wider one.
const INSTRUCTION_STEP: u32 = 32;
/// Requests for one line, in a step, of an operand whose rows are no whole lines: times the square root of
/// its lines, as the part of L2 that has most of them has more than its share. How many of such rows along m
/// or n count, and of rows shorter than a line, which begin in one and may end in the next.
const HOT_US: f64 = 0.29e-3;
const HOT_ACROSS: f64 = 0.75;
const SHORT_ROW: f64 = 1.3;
/// Columns of a narrow tile ([`Work::has_few`]), and the part of memory's rate that its short pieces leave.
const FEW: u32 = 16;
const FEW_READ: f64 = 0.93;
/// A step's barriers, and the latencies of its instructions.
const STEP_US: f64 = 0.108;
/// The same where consumers bring A to registers, since it does not lie along k: tf32 on an H200, tiles of
/// 64 x 16, 0.27 to 0.30; of 64 x 128, 0.31 to 0.39.
const STEP_BY_REGISTERS_US: f64 = 0.27;
/// The same of 8-bit operands whose rows begin off the lines: set by 23 drawn products on an H200, since the
/// copying lane is known to be alone (before, 0.2). And what an 8-bit step takes besides for each column of a
/// tile that one consumer multiplies alone, fitted to 36 older products there and those of an H100; and of a
/// tile in a cluster (64 x 160 in 4 x 1), to 48 timings of an H200, which were estimated 10 % too high.
const STEP_OFF_LINES_US: f64 = 0.13;
const ALONE_COLUMN_US: f64 = 0.36e-3;
const ALONE_IN_CLUSTER_US: f64 = 0.2e-3;
/// A line of a step where threads copy, which is a warp's copy of single elements, along k or across; and
/// along k where lines begin at multiples of 8 and of 16 bytes, which a copy brings two and four of. By 26
/// products on an H200, of which 25 are foreseen within 9 %, but for 8 bytes: half-way in bytes. And the
/// lines that come or are left out together.
const COPY_US: f64 = 3.8e-3;
const COPY_BY_8_US: f64 = 2.6e-3;
const COPY_BY_16_US: f64 = 2.0e-3;
const COPIED_LINES: f64 = CHUNK as f64;
/// How often a line counts that does not begin at a sector, where threads copy.
const OFF_SECTORS: f64 = 1.25;
/// Elements of C that a multiprocessor stores in a microsecond: of 16 bits, and of f32, by the copy engine,
/// as many bytes; and of f32 by threads.
const STORED_PER_US: f64 = 22e3;
const STORED_F32_BY_TMA_PER_US: f64 = STORED_PER_US / 2.0;
const STORED_F32_PER_US: f64 = 5.4e3;
/// A subtile of 64 rows and less than 64 columns.
const THIN_US: f64 = 0.0625;
/// Columns of a subtile of 16-bit elements that is as wide as a line.
const WIDE_COLUMNS: f64 = 64.0;
/// An epilogue's first loads, a chunk of columns of 64 rows of a consumer, and 64 columns where the epilogue
/// asks for the column alone: of consumers that store together, and of those that take turns. The last
/// two by 170 timings of 16 products with a bias on an H200, which were estimated a quarter too high.
const EPILOGUE_US: f64 = 0.1;
const CHUNK_US: f64 = 0.55;
const BY_COLUMN_US: f64 = 0.8;
const BY_COLUMN_IN_TURN_US: f64 = 0.6;
/// The same of the product itself in 8 bits, and a chunk of that.
const NARROW_US: f64 = 0.37;
const NARROW_CHUNK_US: f64 = 0.25;
/// Elements of C in at most 16 bits that are stored one at a time, and where all but the ends of rows leave
/// 16 bytes at once. How much of that is left beside an epilogue.
const STORED_ALONE_PER_US: f64 = 1.93e3;
const STORED_BY_ROWS_PER_US: f64 = 4.1e3;
const BESIDE_EPILOGUE: f64 = 0.55;
/// How much of a store shows that the next tile's first copies follow; an epilogue's shows whole, and of
/// columns more: less than this changes the choice for 4096 cubed, which has not been timed by both. With
/// ping-pong the other consumer's multiplications hide it, but for so much of an epilogue in chunks, whose
/// instructions they wait for.
const FOLLOWED: f64 = 0.52;
const FOLLOWED_BY_COLUMN: f64 = 2.0;
/// A tile waits so long for the part of what is added to C that has no room until others have left: the third
/// subtile and those behind it, of consumers that do not take turns. 20 configurations of two products on an
/// H200, 1.5 to 2.7.
const FETCHED_US: f64 = 2.0;
/// Subtiles of a consumer that have room.
const SUBTILES_AHEAD: f64 = 2.0;
const SHARED_ISSUE: f64 = 0.25;
/// From a tile's last product to the next one's first, where nobody multiplies meanwhile.
const REFILLED_US: f64 = 0.3;
/// How much longer steps take where k is shared out although there are tiles for all multiprocessors. Why has
/// not been found.
const SHARED_AGAIN: f64 = 1.15;
/// Bytes that a multiprocessor gets of another's shared memory.
const EXCHANGE_BYTES_PER_US: f64 = 40e3;
/// How much of memory's rate reading, writing, and writing in subtiles below 64 columns have.
const READ: f64 = 0.96;
const WRITTEN: f64 = 0.61;
const WRITTEN_NARROW: f64 = 0.5;
/// Bytes of L2 that operands find room in.
const CACHE_BYTES: f64 = 40e6;
/// The part of their bytes that blocks read from memory anew which have drifted apart for long, and steps
/// after which it is half of that: 22059 x 23304 x 18552 of tf32 reads at memory's rate what L2 should have
/// sent. Two consumers that share a tile drift less, and blocks in clusters have not been seen to.
const DRIFTED: f64 = 0.8;
const DRIFTED_TOGETHER: f64 = 0.48;
const DRIFT_STEPS: f64 = 2400.0;
/// Long products slow the clock down. Operations on 16-bit types in a microsecond that power is enough for,
/// and what a byte from L2 takes of that.
const POWER_FLOPS_PER_US: f64 = 905e6;
const POWER_US_PER_BYTE: f64 = 0.006e-6;
/// Blocks without a cluster take so much longer behind so many microseconds for each operand that was copied
/// just before: of 167 timings of 150 us and more with copies 1.08 to 1.12 of the estimate, of 44 without
/// 0.97. In clusters 0.87 to 0.92. Perhaps L2 keeps lines that were written in one of its halves alone.
const FRESH: f64 = 0.1;
const FRESH_US: f64 = 100.0;
/// The part of their power that multiplications beside C take: those are of zeros.
const ZEROS: f64 = 0.5;

/// A product as a kernel computes it.
#[derive(Clone, Copy)]
pub(super) struct Work<'a> {
    pub entry: &'a Entry,
    /// Columns of a tile: the kernel's, or fewer.
    pub width: u32,
    pub view: &'a View,
    pub problem: &'a Problem,
    /// Of the kernel's operands.
    pub copies: [Repack; 2],
    pub device: &'a DeviceCapabilities,
}

/// Microseconds of a product, with the copies of operands that come first.
pub(super) fn estimate_us(work: Work<'_>) -> f64 {
    copies_us(work) + launch_us(work)
}

/// Microseconds of the copies.
pub(super) fn copies_us(work: Work<'_>) -> f64 {
    let Work { view: View { m, n, a, b }, problem: Problem { k, batch, .. }, copies, device, .. } = work;
    repack::estimate_both_us(copies, [a, b], [*m, *n, *k], *batch, device)
}

/// Microseconds of the product of operands that have been copied.
pub(super) fn launch_us(work: Work<'_>) -> f64 {
    let margin = if is_timed(work.entry) { 1.0 } else { SHAPED_MARGIN };
    let (tiles, memory) = (work.tiles_us(), work.memory_us());
    let us = if work.has_few() { overlapped(tiles, memory / FEW_READ) } else { tiles.hypot(memory) };
    margin * (start_us(work.entry) + us)
}

/// The terms of the estimate.
pub(super) fn terms(work: Work<'_>) -> Terms {
    let (running, steps) = (work.tiles().min(resident(work.entry, work.device)), work.waves() * work.steps());
    let (loads_us, products_us) = work.step_parts(work.load_bytes(), running * blocks(work.entry));
    Terms {
        copies_us: copies_us(work),
        start_us: start_us(work.entry),
        products_us: steps * products_us,
        loads_us: steps * loads_us,
        power_us: work.power_us(),
        store_us: work.store_us(),
        tiles_us: work.tiles_us(),
        memory_us: work.memory_us(),
    }
}

fn start_us(entry: &Entry) -> f64 {
    if blocks(entry) > 1 { START_US + CLUSTER_US } else { START_US }
}

/// Does it matter when multiprocessors read: do they drift apart, and is there more for a wave to read than
/// the cache holds?
pub(super) fn can_drift(work: Work<'_>) -> bool {
    drifted(work.entry) > 0.0 && work.wave_bytes() > CACHE_BYTES
}

fn drifted(entry: &Entry) -> f64 {
    if blocks(entry) > 1 {
        0.0
    } else if entry.ping_pong || entry.consumers == 1 {
        DRIFTED
    } else {
        DRIFTED_TOGETHER
    }
}

/// Time of two things that go on at once, microseconds: the longer one, and more where both are as long.
pub(in crate::ops::gemm) fn beside(a: f64, b: f64) -> f64 {
    (a.powi(3) + b.powi(3)).cbrt()
}

/// The same, of what hides well.
fn overlapped(a: f64, b: f64) -> f64 {
    (a * a).hypot(b * b).sqrt()
}

impl Work<'_> {
    /// Is a narrow tile as wide as the product? Then each byte of the other operand goes to one block: copies
    /// hide well, and few lines are asked for by all. By 61 products of 1 to 32 rows on an H200.
    fn has_few(&self) -> bool {
        self.entry.block[1] <= FEW && self.view.n <= self.entry.block[1]
    }

    /// Clusters' worth of tiles that run one after the other.
    fn waves(&self) -> f64 {
        let (tiles, at_once) = (self.tiles(), resident(self.entry, self.device));
        f64::from(tiles.div_ceil(at_once))
    }

    fn tiles(&self) -> u32 {
        clusters(self.entry, self.width, self.view, self.problem.batch)
    }

    /// Steps of a tile.
    fn steps(&self) -> f64 {
        let [_, _, block_k] = self.entry.block;
        f64::from(self.problem.k.div_ceil(block_k).div_ceil(self.entry.cluster[2]))
    }

    /// Rows of A's tile and columns of B's that are in the matrices, on an average.
    fn inside(&self) -> [f64; 2] {
        let ([block_m, ..], [across_m, across_n, _]) = (self.entry.block, self.entry.cluster);
        let part = |side: u32, tile: u32| f64::from(side) / f64::from(side.div_ceil(tile).max(1));
        [
            part(self.view.m, block_m * across_m) / f64::from(across_m),
            part(self.view.n, self.width * across_n) / f64::from(across_n),
        ]
    }

    /// Those in boxes that are not left out, and of clusters' tiles all where the matrix does not end.
    fn come(&self) -> [f64; 2] {
        let Work { entry, width, view, .. } = *self;
        let ([block_m, ..], [across_m, across_n, _]) = (entry.block, entry.cluster);
        // Rows come by whole boxes, and what is contiguous along them by the lines of one.
        let span = K_BYTES / entry.a.bytes();
        let ([lines_m, lines_n], [width_m, width_n]) =
            (box_rows(entry, width, view), box_widths(entry, view));
        let box_m = if entry.trans_a { width_m.unwrap_or(span) } else { lines_m };
        let box_n = if entry.trans_b { width_n.unwrap_or(span) } else { lines_n };
        let of = |side: u32, tile: u32, across: u32, rows: u32| {
            let tiles = side.div_ceil(tile * across).max(1) * across;
            let come = side.next_multiple_of(rows).min(tiles * tile);
            if entry.skips { f64::from(come) / f64::from(tiles) } else { f64::from(tile) }
        };
        let of_b = if self.is_narrower() {
            f64::from(width.next_multiple_of(box_n))
        } else {
            of(view.n, width, across_n, box_n)
        };
        [of(view.m, block_m, across_m, box_m), of_b]
    }

    /// Is the tile narrower than the kernel's?
    fn is_narrower(&self) -> bool {
        self.width < self.entry.block[1]
    }

    /// Bytes that a block asks L2 for in a step, with what counts more than once. Blocks of a cluster ask for
    /// a part each of what they share.
    fn load_bytes(&self) -> f64 {
        let Work { entry, view, problem, copies, .. } = *self;
        if entry.kind == Kind::Direct {
            return self.copied().iter().map(|operand| operand.bytes).sum();
        }
        let [across_m, across_n, _] = entry.cluster;
        let [in_a, in_b] = self.inside();
        let along_a = if entry.trans_a { view.m } else { problem.k };
        let along_b = if entry.trans_b { view.n } else { problem.k };
        let [come_a, come_b] = self.come();
        let rows = |inside: f64, outside: f64, shared: u32, times: f64| {
            (inside * times + outside * OUTSIDE) / f64::from(shared)
        };
        let of_a = rows(in_a, come_a - in_a, across_n, lines(&view.a, copies[0], along_a));
        // The columns beside a narrow tile are the next one's.
        let (in_b, out_b) = if self.is_narrower() { (come_b, 0.0) } else { (in_b, come_b - in_b) };
        let of_b = rows(in_b, out_b, across_m, lines(&view.b, copies[1], along_b));
        (of_a + of_b) * f64::from(K_BYTES)
    }

    /// The parts of A and of B that threads copy in a step, where they do.
    fn copied(&self) -> [Copied; 2] {
        let Work { view, copies: [to_a, to_b], .. } = *self;
        let [in_a, in_b] = self.inside();
        let of = |operand: &Operand, to: Repack, along: Order, inside: f64| {
            let is_along = to != Repack::No || operand.order == along;
            let chunks = (inside / COPIED_LINES).ceil() * COPIED_LINES;
            let alignment = if to == Repack::No { u64::from(operand.alignment) } else { ROW_ALIGNMENT };
            let us = match (is_along, alignment) {
                (true, ROW_ALIGNMENT) => COPY_BY_16_US,
                (true, 8) => COPY_BY_8_US,
                _ => COPY_US,
            };
            let times = if alignment == ROW_ALIGNMENT { 1.0 } else { OFF_SECTORS };
            Copied { bytes: inside * times * f64::from(K_BYTES), us: chunks * us }
        };
        [of(&view.a, to_a, Order::Rows, in_a), of(&view.b, to_b, Order::Columns, in_b)]
    }

    /// Do rows of 8-bit operands, all along k, begin off the lines?
    fn is_off_lines(&self) -> bool {
        let Work { view, problem, copies: [to_a, to_b], .. } = *self;
        lines(&view.a, to_a, problem.k).max(lines(&view.b, to_b, problem.k)) > 1.0
    }

    /// A step, where so many blocks run.
    fn step_us(&self, loads: f64, running: u32) -> f64 {
        let (loads, products) = self.step_parts(loads, running);
        let Entry { a, trans_a, block: [_, block_n, _], consumers, .. } = *self.entry;
        let least = match a.bytes() {
            _ if self.entry.kind == Kind::Direct => self.copied().iter().map(|operand| operand.us).sum(),
            1 if self.is_off_lines() => STEP_OFF_LINES_US,
            4 if trans_a => STEP_BY_REGISTERS_US,
            _ => STEP_US,
        };
        let is_alone = a.bytes() == 1 && consumers == 1;
        let column_us = if blocks(self.entry) > 1 { ALONE_IN_CLUSTER_US } else { ALONE_COLUMN_US };
        let alone = if is_alone { f64::from(block_n) * column_us } else { 0.0 };
        let narrower = if self.is_narrower() { NARROWER } else { 1.0 };
        narrower * (overlapped(products, loads) + alone).max(least)
    }

    /// Until so many blocks have what they all ask for, of an operand whose rows are no whole lines, or
    /// shorter than one: lines that many ask for lie in few parts of L2 (24 x 8480 x 2792 with A transposed,
    /// 72 x 10944 x 9040 of 8 bits). Operands that threads copy are without it: none was timed beside it.
    fn hot_us(&self, running: u32) -> f64 {
        let Work { entry, width, view, problem, copies: [to_a, to_b], .. } = *self;
        let ([block_m, ..], [across_m, across_n, shares]) = (entry.block, entry.cluster);
        // Blocks that run at a time make a square of tiles, or as much of one as there is.
        let down = f64::from(view.m.div_ceil(block_m * across_m) * across_m);
        let across = f64::from(view.n.div_ceil(width * across_n) * across_n);
        let tiles = f64::from(running / shares).min(down * across).max(1.0);
        let square = (tiles * f64::from(width) / f64::from(block_m)).sqrt();
        let rows = square.max(tiles / across).max(1.0).min(down);
        let span = f64::from(K_BYTES / entry.a.bytes());
        let asked = |trans: bool, side: u32, operand: &Operand, to: Repack| {
            let row = if trans { side } else { problem.k };
            (trans, f64::from(row), lines(operand, to, row))
        };
        let [in_a, in_b] = self.inside();
        let of_a = hot(asked(entry.trans_a, view.m, &view.a, to_a), in_a, span);
        let of_b = hot(asked(entry.trans_b, view.n, &view.b, to_b), in_b, span);
        let us = |[requests, own]: [f64; 2], sharers: f64, shared: u32| {
            let distinct = (f64::from(running) / sharers * own).max(1.0);
            HOT_US * f64::from(running) * requests / f64::from(shared) / distinct.sqrt()
        };
        us(of_a, tiles / rows, across_n).max(us(of_b, rows, across_m))
    }

    /// Until its operands have come, and its multiplications.
    fn step_parts(&self, loads: f64, running: u32) -> (f64, f64) {
        let intake = self.inside().iter().sum::<f64>() * f64::from(K_BYTES) / INTAKE_BYTES_PER_US;
        let from_l2 = (f64::from(running) * loads / L2_BYTES_PER_US).max(loads / LOAD_BYTES_PER_US);
        let hot_us =
            if self.entry.kind == Kind::Direct || self.has_few() { 0.0 } else { self.hot_us(running) };
        (from_l2.max(hot_us).max(intake), self.step_flops() / FLOPS_PER_US)
    }

    /// Operations of a block's step, in multiplications of 16-bit types that take as long: the tensor cores
    /// take bytes.
    fn step_flops(&self) -> f64 {
        let [block_m, block_n, _] = self.entry.block;
        let block_n =
            if self.is_narrower() { self.width.next_multiple_of(INSTRUCTION_STEP) } else { block_n };
        2.0 * f64::from(block_m) * f64::from(block_n) * f64::from(K_BYTES / 2)
    }

    /// All tiles, one wave after the other, but not faster than power allows; and what stores show.
    fn tiles_us(&self) -> f64 {
        let Work { entry, device, problem, .. } = *self;
        let (tiles, at_once) = (self.tiles(), resident(entry, device));
        let (full, rest) = (tiles / at_once, tiles % at_once);
        let again = if entry.cluster[2] > 1 && tiles > at_once { SHARED_AGAIN } else { 1.0 };
        let loads = self.load_bytes();
        let tile = |running: u32| again * self.steps() * self.step_us(loads, running * blocks(entry));
        let (main, store) = (tile(at_once), self.store_us());
        let is_plain = problem.epilogue.is_plain();
        let (before, last, of_last) =
            if rest > 0 { (full, tile(rest), rest) } else { (full - 1, main, at_once) };
        // A last wave of few tiles has the power that it wants.
        let (power, in_last) = (self.power_us(), f64::from(of_last) / f64::from(tiles));
        let waves = f64::from(before);
        let shown = if entry.ping_pong {
            let issue = if is_plain || self.is_by_column() { 0.0 } else { SHARED_ISSUE };
            // Two consumers' stores go on at a time: every other tile waits for one.
            f64::from(before / 2) * (store - main).max(0.0) + waves * issue * store
        } else {
            let followed = match (is_plain, self.is_by_column()) {
                (true, _) => FOLLOWED,
                (false, true) => FOLLOWED_BY_COLUMN,
                (false, false) => 1.0,
            };
            waves * (store * followed + REFILLED_US)
        };
        let us = overlapped(waves * main, (1.0 - in_last) * power)
            + shown
            + overlapped(last, in_last * power)
            + store;
        us + self.beyond_fresh(us)
    }

    /// Added to tiles of this time where blocks without a cluster read fresh copies.
    fn beyond_fresh(&self, us: f64) -> f64 {
        let fresh = self.copies.iter().filter(|copy| **copy != Repack::No).count();
        if blocks(self.entry) > 1 { 0.0 } else { FRESH * fresh as f64 * (us - FRESH_US).max(0.0) }
    }

    /// A tile's store.
    fn store_us(&self) -> f64 {
        let Work { entry, width, problem, .. } = *self;
        let [block_m, ..] = entry.block;
        let shares = f64::from(entry.cluster[2]);
        let elements = f64::from(block_m * width) / shares;
        // Of a consumer: groups of 64 rows, and columns.
        let consumers = if entry.ping_pong { 1 } else { entry.consumers };
        let groups = f64::from(block_m / consumers / 64);
        let columns = f64::from(width) / shares;
        let by_column_us = if entry.ping_pong { BY_COLUMN_IN_TURN_US } else { BY_COLUMN_US };
        let stored = if f32_by_tma(entry, problem) {
            elements / STORED_F32_BY_TMA_PER_US + self.thin_us(groups * columns)
        } else if problem.c.dtype.size() > 2 {
            elements / STORED_F32_PER_US
        } else if problem.epilogue.is_plain() && problem.c.dtype.size() == 2 {
            elements / STORED_PER_US + self.thin_us(groups * columns)
        } else if problem.epilogue.is_plain() && self.is_by_column() {
            groups * columns / WIDE_COLUMNS * NARROW_US
        } else if problem.epilogue.is_plain() && by_tma(problem) && problem.c.dtype.size() == 1 {
            groups * columns / f64::from(entry.chunk_columns) * NARROW_CHUNK_US
        } else if self.is_by_column() {
            EPILOGUE_US + groups * columns / WIDE_COLUMNS * by_column_us
        } else {
            EPILOGUE_US + groups * columns / f64::from(entry.chunk_columns) * CHUNK_US
        };
        let by_subtiles = problem.c.dtype.size() >= 2 && is_copied(entry, problem);
        let of_subtile = if problem.c.dtype.size() > 2 { WIDE_COLUMNS / 2.0 } else { WIDE_COLUMNS };
        let has_part = self.is_narrower() && by_subtiles && columns % of_subtile > 0.0;
        let part_us = if has_part { PART_US } else { 0.0 };
        let is_fetched = !entry.ping_pong && source(problem) != Source::Nothing;
        let waits = is_fetched && groups * columns > SUBTILES_AHEAD * f64::from(entry.store_columns);
        let fetched_us = if waits { FETCHED_US } else { 0.0 };
        self.exchange_us() + stored.max(self.stored_alone_us()) + part_us + fetched_us
    }

    /// How much longer subtiles of so many columns take that are not as wide as a line.
    fn thin_us(&self, columns: f64) -> f64 {
        let wide = f64::from(self.entry.store_columns);
        if wide < WIDE_COLUMNS { columns / wide * THIN_US } else { 0.0 }
    }

    /// Does the epilogue take subtiles?
    fn is_by_column(&self) -> bool {
        let is_possible = self.problem.c.dtype.size() > 1 || self.entry.narrow;
        self.entry.by_rows
            && f64::from(self.entry.store_columns) == WIDE_COLUMNS
            && is_possible
            && is_by_column(self.problem)
    }

    /// A tile's store of one element at a time, where C has no pairs of elements that can be stored at once.
    fn stored_alone_us(&self) -> f64 {
        let Work { entry, width, view, problem: Problem { m, n, c, epilogue, .. }, .. } = self;
        let length = if c.order == Order::Rows { *n / epilogue.activation.columns() } else { *m };
        if c.dtype.size() > 2 || paired(c, length as usize) {
            return 0.0;
        }
        let [block_m, ..] = entry.block;
        let by_rows = entry.by_rows && c.dtype.size() == 2;
        let rate = if by_rows { STORED_BY_ROWS_PER_US } else { STORED_ALONE_PER_US };
        let left = if epilogue.is_plain() { 1.0 } else { BESIDE_EPILOGUE };
        f64::from(block_m.min(view.m)) * f64::from(view.n.min(*width)) / (rate * left)
    }

    /// Until a block has the sums of the other shares of k.
    fn exchange_us(&self) -> f64 {
        let ([block_m, block_n, _], [.., shares]) = (self.entry.block, self.entry.cluster);
        let sums = block_m * block_n / shares * (shares - 1);
        f64::from(sums) * size_of::<f32>() as f64 / EXCHANGE_BYTES_PER_US
    }

    /// Bytes of a row of A, or of a column of B.
    fn line_bytes(&self) -> f64 {
        f64::from(self.problem.k) * self.view.a.dtype.size() as f64
    }

    /// Bytes of operands that a wave's tiles need. They make a square.
    fn wave_bytes(&self) -> f64 {
        let Work { entry, width, view, device, .. } = *self;
        let ([block_m, ..], [.., shares]) = (entry.block, entry.cluster);
        let side = (f64::from(device.sm_count / shares) * f64::from(block_m * width)).sqrt();
        (f64::from(view.m).min(side) + f64::from(view.n).min(side)) * self.line_bytes()
    }

    /// Bytes that come from memory and go there.
    fn memory_us(&self) -> f64 {
        let Work { entry, view, problem, device, .. } = *self;
        let (m, n, batch) = (f64::from(view.m), f64::from(view.n), f64::from(problem.batch));
        let (line, wave) = (self.line_bytes(), self.wave_bytes());
        let once = (m + n) * line * batch;
        let ([in_a, in_b], [across_m, across_n, _]) = (self.inside(), entry.cluster);
        let asked = f64::from(resident(entry, device))
            * (in_a * f64::from(across_m) + in_b * f64::from(across_n))
            * line;
        let (waves, since) = (self.waves(), (self.waves() - 1.0) * self.steps());
        let drifted = drifted(entry) * since / (since + DRIFT_STEPS) * (1.0 - CACHE_BYTES / wave).max(0.0);
        let again = waves * (wave + drifted * (asked - wave).max(0.0));
        let operands = if once > CACHE_BYTES { once.max(again) } else { once };
        let c = m * n * batch * problem.c.dtype.size() as f64;
        let added = if problem.epilogue.residual.is_some() || problem.epilogue.source { c } else { 0.0 };
        let written = if f64::from(entry.store_columns) < WIDE_COLUMNS { WRITTEN_NARROW } else { WRITTEN };
        ((operands + added) / READ + c / written) / device.memory_rate
    }

    fn power_us(&self) -> f64 {
        let Work { entry, view, problem, .. } = *self;
        let ([in_a, in_b], [across_m, across_n, _]) = (self.inside(), entry.cluster);
        let loads = (in_a / f64::from(across_n) + in_b / f64::from(across_m)) * f64::from(K_BYTES);
        let steps = f64::from(self.tiles()) * self.steps() * f64::from(blocks(entry));
        let sent = steps * loads;
        // As in `step_flops`.
        let inside = problem.flops() * view.a.dtype.size() as f64 / 2.0;
        let flops = inside + ZEROS * (steps * self.step_flops() - inside);
        flops / POWER_FLOPS_PER_US + sent * POWER_US_PER_BYTE
    }
}

/// The part of an operand that threads copy in a step: bytes that L2 sends, and how long it takes.
struct Copied {
    bytes: f64,
    us: f64,
}

/// Requests of a block for lines that many ask for, in a step, and lines that it would have for itself: of an
/// operand whose rows, of so many elements along m or n or else k, count so often, where so many are inside
/// of the tile and so many elements fill a line.
fn hot((trans, row, times): (bool, f64, f64), inside: f64, span: f64) -> [f64; 2] {
    let part = inside / span;
    match trans {
        true if row < span => [span * SHORT_ROW, row],
        _ if times == 1.0 => [0.0, 1.0],
        true => [span * part.ceil() * times * HOT_ACROSS, span * part],
        false => [inside * times, inside],
    }
}

/// How often each row of an operand's tile counts, of lines of so many elements in a copy.
fn lines(operand: &Operand, to: Repack, length: u32) -> f64 {
    let size = operand.dtype.size();
    let bytes = match to {
        Repack::No => operand.leading as usize * size,
        Repack::Rows | Repack::Columns => repack::pitch(length as usize, size) * size,
    };
    if bytes.is_multiple_of(LINE_BYTES) {
        1.0
    } else if bytes.is_multiple_of(SECTOR_BYTES) {
        FROM_SECTORS
    } else {
        FROM_UNITS
    }
}

#[cfg(test)]
mod tests;
