//! Operands of 32 bits as they lie: all threads of the producer copy them, by `cp.async` of single elements,
//! straight to the swizzled tiles along k that the tensor cores read. The copy engine takes lines that begin
//! at multiples of 16 bytes, and leaves a line along m or n as it lies, which the tensor cores do not read in
//! 32 bits. Here any line will do, and no copy of the operand comes first.
//!
//! ```text
//!   along k             a warp: 32 elements of a line; memory and a tile's line of 128 bytes side by side
//!   along k, aligned    8 or 16 bytes a lane: two or four lines
//!   along m or n        a warp: 8 lines x 4 of k.    memory     4 sectors of 32 bytes
//!                                                    the tile   8 units of 16 bytes, one of each line:
//!                                                               the swizzle has them in different banks
//! ```
//! What lies outside becomes zeros, but for groups of lines outside, which are left out. A barrier of a stage
//! counts one arrival of each thread, which comes when its copies are over. They write by the generic proxy,
//! so the consumers pass a proxy fence before they multiply; it hides behind the products before.
//!
//! # When it pays
//! A multiprocessor starts a warp's copy of single elements in 3.8 ns on an H200, along k and across, and one
//! of 16 bytes a lane in 8: a step of a 64 x 128 tile takes 0.73 us of copies, where the copy engine and the
//! products need 0.12. So it pays where that is less than a launch that copies the operand first: few steps
//! (1688 x 176 x 169 with A transposed: 7.7 us, before 9.6), or an operand so large that copying it is most
//! of the work (64 x 16157 x 21863 with both transposed: 523 us, before 1107). It does not where a block has
//! many steps (1000 cubed: 24.0, before 13.6). Tiles of 128 x 128 by two consumers, with 256 copies for twice
//! the products, were the fastest at one product only (656 x 4469 x 176: 18.5, here 19.9). A warp's copy
//! across of 32 lines by one of k was slower too (1688 x 176 x 169: 8.6): not sectors count, but copies.

use cuda_std::{KernelArgs, async_copy, misc, shared};
use primitives::shared_plan::SharedType;
use primitives::tma::LINE_BYTES;
use primitives::unroll;
use primitives::warp::LANES;

use super::config::{Block, Config, Stage, WARPS};
use super::mainloop::Loader;
use super::tile_scheduler::{GemmShape, TileCoord};

/// Bytes of an element.
const WORD: u32 = size_of::<u32>() as u32;
/// Elements of a unit of 16 bytes.
const UNIT: u32 = layout::UNIT_BYTES / WORD;
/// Units of a tile's line, and lines of the swizzle's pattern.
const UNITS: u32 = LINE_BYTES / layout::UNIT_BYTES;
/// Bytes of those lines.
const PATTERN_BYTES: u32 = UNITS * LINE_BYTES;
/// Lines that come or are left out together.
pub const CHUNK: u32 = 32;
/// Chunks of a tile at most: copies count them out.
pub(super) const MOST_CHUNKS: u32 = 4;

/// How an operand lies: lines of contiguous elements along k (rows of A, columns of B), or along m or n.
/// Strides in elements.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, KernelArgs)]
pub struct OperandLines {
    /// From a line to the next.
    pub leading: u64,
    /// From a matrix to the next.
    pub matrix: u64,
    /// Whether lines are along k.
    pub along_k: bool,
    /// Bytes that all begin at multiples of: 4, 8 or 16.
    pub alignment: u32,
}

/// How operands lie, for kernels of [`Kind::Direct`](super::instances::Kind::Direct).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, KernelArgs)]
pub struct DirectParams {
    /// Columns of A, of all parts.
    pub k: u32,
    /// A.
    pub a: OperandLines,
    /// B.
    pub b: OperandLines,
}

impl DirectParams {
    /// For other kernels.
    pub const NONE: Self = {
        let none = OperandLines { leading: 0, matrix: 0, along_k: true, alignment: layout::UNIT_BYTES };
        Self { k: 0, a: none, b: none }
    };
}

/// The [`Loader`] of operands as they lie, in one thread of the producer.
pub struct Direct<'a> {
    params: &'a DirectParams,
    /// First elements of A and B.
    data: [*const u32; 2],
    /// Rows of A and columns of B.
    sides: [u32; 2],
    /// Number of the thread in its warpgroup.
    thread: u32,
    /// Of the tile: its first elements of A and B, and lines from there to the operand's end.
    from: [*const u32; 2],
    lines: [u32; 2],
}

impl<'a> Direct<'a> {
    /// The loader of a thread of this number in the producer.
    #[inline(always)]
    pub fn new<C: Config>(
        params: &'a DirectParams,
        data: [*const u32; 2],
        shape: &GemmShape,
        block: Block<C>,
        thread: u32,
    ) -> Self {
        if thread == 0 {
            shared::leave_unwritten(block.shared.stage(0).a(), C::STAGES * Stage::<C>::BYTES);
        }
        Self { params, data, sides: [shape.m, shape.n], thread, from: data, lines: [0; 2] }
    }
}

impl<C: Config> Loader<C> for Direct<'_> {
    #[inline(always)]
    fn begin(&mut self, tile: TileCoord) {
        let [a, b] = self.data;
        self.from =
            [self.params.a.tile(a, tile.batch, tile.row), self.params.b.tile(b, tile.group, tile.column)];
        self.lines = [self.sides[0] - tile.row, self.sides[1] - tile.column];
    }

    #[inline(always)]
    unsafe fn load(&mut self, stage: Stage<C>, full: u32, _: TileCoord, k: u32) {
        let DirectParams { k: end, a, b } = self.params;
        let left = end.saturating_sub(k);
        // Derived anew in each step, from few registers.
        let thread = misc::opaque(self.thread);
        let part = |lines, to, operand: &OperandLines, from| Part {
            warp: thread / LANES,
            lane: thread % LANES,
            to,
            from: operand.along(from, k),
            lines,
            left,
        };
        // SAFETY: the caller's contract: the operands are valid for reads, and the stage is empty.
        unsafe {
            part(self.lines[0], stage.a(), a, self.from[0]).copy(a, C::BLOCK_M);
            part(self.lines[1], stage.b(), b, self.from[1]).copy(b, C::BLOCK_N);
            async_copy::arrive_noinc(full);
        }
    }
}

impl OperandLines {
    /// The first element, where k begins, of a tile whose first row (column) is `first`.
    #[inline(always)]
    fn tile(&self, data: *const u32, matrix: u32, first: u32) -> *const u32 {
        let lines = if self.along_k { self.leading } else { 1 };
        data.wrapping_add((u64::from(matrix) * self.matrix + u64::from(first) * lines) as usize)
    }

    /// The element so far along k.
    #[inline(always)]
    fn along(&self, from: *const u32, k: u32) -> *const u32 {
        let stride = if self.along_k { 1 } else { self.leading };
        from.wrapping_add((u64::from(k) * stride) as usize)
    }
}

/// A thread's part of the copies of an operand to a stage.
#[derive(Clone, Copy)]
struct Part {
    warp: u32,
    lane: u32,
    /// Shared address of the tile.
    to: u32,
    /// Its first element.
    from: *const u32,
    /// Lines of the operand from there on, and elements of k.
    lines: u32,
    left: u32,
}

impl Part {
    /// Starts the copies, of `rows` lines of the tile: a constant, a multiple of a chunk.
    ///
    /// # Safety
    /// The operand's elements from `from` on are valid for reads; nothing uses the tile.
    #[inline(always)]
    unsafe fn copy(self, operand: &OperandLines, rows: u32) {
        // SAFETY: the caller's contract.
        unsafe {
            // A whole tile needs no test for each copy.
            if self.lines >= rows {
                self.copy_as::<true>(operand, rows);
            } else {
                self.copy_as::<false>(operand, rows);
            }
        }
    }

    /// The same. With `WHOLE` the operand has all lines.
    ///
    /// # Safety
    /// As [`copy`](Self::copy).
    #[inline(always)]
    unsafe fn copy_as<const WHOLE: bool>(self, operand: &OperandLines, rows: u32) {
        let leading = operand.leading as usize;
        // SAFETY: the caller's contract.
        unsafe {
            if !operand.along_k {
                self.across::<WHOLE>(leading, rows);
            } else {
                match operand.alignment {
                    16 => self.units::<WHOLE, 16>(leading, rows),
                    8 => self.units::<WHOLE, 8>(leading, rows),
                    _ => self.words::<WHOLE>(leading, rows),
                }
            }
        }
    }

    /// Elements along k: each warp every fourth line.
    ///
    /// # Safety
    /// As [`copy_as`](Self::copy_as).
    #[inline(always)]
    unsafe fn words<const WHOLE: bool>(self, leading: usize, rows: u32) {
        const { assert!(CHUNK == 8 * WARPS && UNITS == 2 * WARPS) };
        let Self { warp, lane, to, left, .. } = self;
        let from = self.from.wrapping_add(warp as usize * leading + lane as usize);
        // Lines four apart are swizzled in one of two ways.
        let even = to + warp * LINE_BYTES + ((lane / UNIT) ^ warp) * layout::UNIT_BYTES + lane % UNIT * WORD;
        let odd = (even + WARPS * LINE_BYTES) ^ (WARPS * layout::UNIT_BYTES);
        let bytes = if lane < left { WORD } else { 0 };
        self.each_chunk::<WHOLE>(rows, warp, bytes, |first, bytes| {
            unroll!(I in 0..8, {
                let line = first + I as u32 * WARPS;
                let to = if I % 2 == 0 { even } else { odd } + line / UNITS * PATTERN_BYTES;
                let from = from.wrapping_add(line as usize * leading);
                // SAFETY: the caller's contract; of what lies outside nothing is read.
                unsafe { async_copy::copy_ca_zfill::<WORD, _>(to, from, bytes.of(I as u32 * WARPS)) }
            });
        });
    }

    /// The same, 8 or 16 bytes at once.
    ///
    /// # Safety
    /// As [`copy_as`](Self::copy_as), and all lines begin at multiples of so many bytes.
    #[inline(always)]
    unsafe fn units<const WHOLE: bool, const BYTES: u32>(self, leading: usize, rows: u32) {
        // Lanes of a line, and lines of all warps.
        let (lanes, lines) = const { (LINE_BYTES / BYTES, WARPS * LANES * BYTES / LINE_BYTES) };
        // Lines so far apart are swizzled alike.
        const { assert!((WARPS * LANES * BYTES / LINE_BYTES).is_multiple_of(UNITS)) };
        let Self { warp, lane, to, left, .. } = self;
        let (line, column) = ((warp * LANES + lane) / lanes, lane % lanes * BYTES);
        let from = self.from.wrapping_add(line as usize * leading + (column / WORD) as usize);
        let to = to + line * LINE_BYTES + (column ^ (line % UNITS * layout::UNIT_BYTES));
        let bytes = (left.min(LINE_BYTES / WORD) * WORD).saturating_sub(column).min(BYTES);
        self.each_chunk::<WHOLE>(rows, line, bytes, |first, bytes| {
            unroll!(I in 0..4, {
                let behind = I as u32 * lines;
                if behind < CHUNK {
                    let line = first + behind;
                    let (to, from) = (to + line * LINE_BYTES, from.wrapping_add(line as usize * leading));
                    // SAFETY: the caller's contract; of what lies outside nothing is read.
                    unsafe {
                        if BYTES == layout::UNIT_BYTES {
                            async_copy::copy_cg_zfill(to, from, bytes.of(behind));
                        } else {
                            async_copy::copy_ca_zfill::<BYTES, _>(to, from, bytes.of(behind));
                        }
                    }
                }
            });
        });
    }

    /// Elements along m or n: each warp two units of k of all lines.
    ///
    /// # Safety
    /// As [`copy_as`](Self::copy_as).
    #[inline(always)]
    unsafe fn across<const WHOLE: bool>(self, leading: usize, rows: u32) {
        const { assert!(UNITS == 2 * WARPS && LANES == UNITS * UNIT && CHUNK == 4 * UNITS) };
        let Self { warp, lane, to, left, .. } = self;
        let (line, k) = (lane % UNITS, warp * UNIT + lane / UNITS);
        let to = to + line * LINE_BYTES + (warp ^ line) * layout::UNIT_BYTES + lane / UNITS * WORD;
        unroll!(HALF in 0..2, {
            let k = k + HALF as u32 * WARPS * UNIT;
            let to = to ^ (HALF as u32 * WARPS * layout::UNIT_BYTES);
            let from = self.from.wrapping_add(k as usize * leading + line as usize);
            let bytes = if k < left { WORD } else { 0 };
            self.each_chunk::<WHOLE>(rows, line, bytes, |first, bytes| {
                unroll!(I in 0..4, {
                    let behind = first + I as u32 * UNITS;
                    let (to, from) = (to + behind * LINE_BYTES, from.wrapping_add(behind as usize));
                    // SAFETY: the caller's contract; of what lies outside nothing is read.
                    unsafe { async_copy::copy_ca_zfill::<WORD, _>(to, from, bytes.of(I as u32 * UNITS)) }
                });
            });
        });
    }

    /// Calls `copy` for the chunks of lines that the operand has some of, with the first line of each. The
    /// thread's own first line is `line`, of which it copies so many bytes at a time.
    #[inline(always)]
    fn each_chunk<const WHOLE: bool>(self, rows: u32, line: u32, bytes: u32, copy: impl Fn(u32, Bytes)) {
        unroll!(PART in 0..4, {
            let first = PART as u32 * CHUNK;
            if first < rows && (WHOLE || first < self.lines) {
                let inside = if WHOLE { u32::MAX } else { (self.lines - first).saturating_sub(line) };
                copy(first, Bytes { bytes, inside });
            }
        });
    }
}

/// How many bytes a thread copies of the lines of a chunk.
#[derive(Clone, Copy)]
struct Bytes {
    bytes: u32,
    /// Lines of the operand from the thread's first one on.
    inside: u32,
}

impl Bytes {
    /// Of the line so far behind the thread's first one.
    #[inline(always)]
    const fn of(self, behind: u32) -> u32 {
        if behind < self.inside { self.bytes } else { 0 }
    }
}
