//! From the accumulators to global memory.
//!
//! A consumer's tile leaves in pieces of 64 rows, each through shared memory, in one of two ways:
//!
//! * **copied**: rounded to 16 bits in registers, `stmatrix` into a piece, and the copy engine takes it from there while the next piece
//!   fills. What lies outside of the result it leaves out. For dense results without an epilogue.
//! * **by threads**: the piece in f32, from which each thread takes eight neighbours at a time through the epilogue into memory.
//!   For everything else.

use cuda_std::{barrier, fence, matrix, misc, tma, vector};
use layout::wgmma::Swizzle;

use super::config::{Config, WARPGROUP};
use super::epilogue::{At, Epilogue, VECTOR};
use super::kernel::FIRST_CONSUMER_BARRIER;
use super::operands::{GROUP_ROWS, Half, Operands, Tile};
use super::pipeline::Ring;
use super::problem::{Corner, Maps, Problem};
use crate::unroll::unrolled;

/// Where the result goes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// First element; aligned to its size.
    pub data: *mut u8,
    /// Elements from a row to the next.
    pub row: u64,
    /// Elements from a matrix to the next.
    pub matrix: u64,
    /// Elements are f32, else of the kernel's 16-bit type.
    pub is_f32: bool,
    /// Every row begins at a multiple of 16 bytes.
    pub aligned: bool,
    /// The copy engine stores, and there is no epilogue: for 16-bit elements. It writes whole units of 16 bytes, so rows have
    /// a multiple of 8 elements.
    pub copied: bool,
    /// The epilogue makes one element of two neighbours, whose result has half of the columns.
    pub halved: bool,
}

/// A consumer's way to the result.
pub(crate) struct Store<C> {
    maps: Maps,
    problem: Problem,
    output: Output,
    ring: Ring<C>,
    /// Number of the thread among all consumers.
    thread: u32,
    /// Pieces that have been copied: they take turns over the tiles' borders.
    copies: u32,
}

/// A thread's place at a store.
#[derive(Clone, Copy)]
struct Place {
    /// The consumer's pieces in shared memory.
    pieces: u32,
    /// The consumer's barrier.
    barrier: u32,
    /// Number of the thread in its warpgroup.
    thread: u32,
}

impl Place {
    /// All threads of the warpgroup meet.
    #[inline(always)]
    unsafe fn meet(self) {
        // SAFETY: the caller says that they are here, and the barrier is theirs.
        unsafe { barrier::sync(self.barrier, WARPGROUP) }
    }

    /// Writes a piece in f32: lines along the result's rows.
    #[inline(always)]
    unsafe fn write_f32<C: Config>(self, tile: &C::Tile, group: usize, piece: usize) {
        let (lane, warp) = (self.thread % 32, self.thread / 32);
        let (row, column) = (warp * 16 + lane / 4, lane % 4 * 2);
        let steps = (C::STORE_COLUMNS / STEP_COLUMNS) as usize;
        unrolled!(STEP in [0 1 2 3 4 5 6 7] { if STEP < steps {
            let index = 4 * (piece * steps + STEP);
            let column = STEP as u32 * STEP_COLUMNS + column;
            let x = |register: usize| tile.get(group, index + register);
            // SAFETY: places inside of the piece.
            unsafe {
                if C::TRANSPOSED {
                    vector::store_shared(self.f32_at::<C>(column, row), x(0));
                    vector::store_shared(self.f32_at::<C>(column + 1, row), x(1));
                    vector::store_shared(self.f32_at::<C>(column, row + 8), x(2));
                    vector::store_shared(self.f32_at::<C>(column + 1, row + 8), x(3));
                } else {
                    vector::store_shared_v2(self.f32_at::<C>(row, column), [x(0), x(1)]);
                    vector::store_shared_v2(self.f32_at::<C>(row + 8, column), [x(2), x(3)]);
                }
            }
        } });
    }

    /// Address of element `place` of line `line` of a piece in f32. Units change places so that neither rows nor columns
    /// meet in one bank.
    #[inline(always)]
    fn f32_at<C: Config>(self, line: u32, place: u32) -> u32 {
        const WORD: u32 = size_of::<f32>() as u32;
        let length = if C::TRANSPOSED { GROUP_ROWS } else { C::STORE_COLUMNS };
        // A line is one unit pair or more; pairs stay together.
        let units = length * WORD / UNIT;
        let turn = if C::TRANSPOSED { line } else { line * 2 } & (units - 1) & !1;
        self.pieces + line * length * WORD + ((place * WORD) ^ (turn * UNIT))
    }
}

/// Bytes of a 16-byte unit.
const UNIT: u32 = layout::UNIT_BYTES;
/// Columns of an accumulator's step: four registers.
const STEP_COLUMNS: u32 = 8;

impl<C: Config> Store<C> {
    /// For the consumers' thread of this number.
    #[inline(always)]
    pub fn new(maps: Maps, problem: Problem, output: Output, ring: Ring<C>, thread: u32) -> Self {
        Self { maps, problem, output, ring, thread, copies: 0 }
    }

    /// Stores the tile whose first element is at `corner`.
    ///
    /// # Safety
    /// The whole warpgroup is here; maps and output are valid for the result.
    #[inline(always)]
    pub unsafe fn tile<E: Epilogue>(&mut self, tile: &C::Tile, epilogue: &mut E, corner: Corner) {
        // What follows from the thread's number is not kept beside the accumulators.
        let thread = misc::opaque(self.thread);
        let consumer = thread / WARPGROUP;
        let barrier = FIRST_CONSUMER_BARRIER + consumer;
        let place = Place { pieces: self.ring.output(consumer), barrier, thread: thread % WARPGROUP };
        // SAFETY: the caller's contract.
        unsafe {
            // The copy engine would write rows behind the product's last one too.
            let is_whole = !corner.is_bounded || corner.row + C::CONSUMER_ROWS <= corner.end;
            if C::COPIES_ONLY || (self.output.copied && is_whole) {
                self.by_copies(place, tile, corner);
            } else {
                self.by_threads(place, tile, epilogue, corner);
            }
        }
    }

    #[inline(always)]
    unsafe fn by_copies(&mut self, place: Place, tile: &C::Tile, corner: Corner) {
        const { assert!(C::STORE_BUFFERS == 2) };
        let lines = Lines::new::<C>(place.thread);
        unrolled!(GROUP in [0 1] { if GROUP < C::Tile::GROUPS {
            unrolled!(PIECE in [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31] {
                if (PIECE as u32) < C::BLOCK_N / C::STORE_COLUMNS {
                    let piece = place.pieces + self.copies % C::STORE_BUFFERS * C::STORE_BYTES;
                    self.copies += 1;
                    let row = (corner.row + GROUP as u32 * GROUP_ROWS) as i32;
                    let column = (corner.column + PIECE as u32 * C::STORE_COLUMNS) as i32;
                    let coords = if C::TRANSPOSED { [row, column] } else { [column, row] };
                    // SAFETY: the copy before the last one, which read this piece, is done before anyone writes; the fence and the
                    // barrier order the writes before the copy.
                    unsafe {
                        if place.thread == 0 {
                            tma::wait_group_read::<1>();
                        }
                        place.meet();
                        lines.write::<C>(tile, GROUP, PIECE, piece);
                        fence::proxy_async_shared();
                        place.meet();
                        if place.thread == 0 {
                            tma::store_3d(self.maps.d, piece, [coords[0], coords[1], corner.batch as i32]);
                            tma::commit_group();
                        }
                    }
                }
            });
        } });
    }

    #[inline(always)]
    unsafe fn by_threads<E: Epilogue>(&self, place: Place, tile: &C::Tile, epilogue: &mut E, corner: Corner) {
        let pieces = C::BLOCK_N / C::STORE_COLUMNS;
        if corner.is_bounded && place.thread == 0 {
            // The tile before may have left by copies.
            tma::wait_group_read::<0>();
        }
        let mut number = 0;
        while number < C::Tile::GROUPS as u32 * pieces {
            // SAFETY: between the barriers the piece is written, then read, never both.
            unsafe {
                place.meet();
                unrolled!(GROUP in [0 1] { if GROUP < C::Tile::GROUPS {
                    unrolled!(PIECE in [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31] {
                        if (PIECE as u32) < pieces && number == GROUP as u32 * pieces + PIECE as u32 {
                            place.write_f32::<C>(tile, GROUP, PIECE);
                        }
                    });
                } });
                place.meet();
                let from = Corner {
                    row: corner.row + number / pieces * GROUP_ROWS,
                    column: corner.column + number % pieces * C::STORE_COLUMNS,
                    ..corner
                };
                self.read_f32::<E>(place, epilogue, from);
            }
            number += 1;
        }
    }

    /// Takes a piece through the epilogue into memory.
    #[inline(always)]
    unsafe fn read_f32<E: Epilogue>(&self, place: Place, epilogue: &mut E, from: Corner) {
        let (lines, length) =
            if C::TRANSPOSED { (C::STORE_COLUMNS, GROUP_ROWS) } else { (GROUP_ROWS, C::STORE_COLUMNS) };
        // In the result's own rows and columns.
        let (row, column) = if C::TRANSPOSED { (from.column, from.row) } else { (from.row, from.column) };
        let (rows, columns) =
            if C::TRANSPOSED { (self.problem.n, self.problem.m) } else { (from.end, self.problem.n) };
        let across = length / VECTOR;
        let mut index = place.thread;
        while index < lines * across {
            let (line, along) = (index / across, index % across * VECTOR);
            let at = At { batch: from.batch, row: row + line, column: column + along, count: 0 };
            if at.row < rows && at.column < columns {
                let left = columns - at.column;
                let at = At { count: if left < VECTOR { left } else { VECTOR }, ..at };
                // SAFETY: places inside of the piece, elements of the result.
                unsafe {
                    let [a, b, c, d] = vector::load_shared_v4(place.f32_at::<C>(line, along));
                    let [e, f, g, h] = vector::load_shared_v4(place.f32_at::<C>(line, along + 4));
                    let mut x = [a, b, c, d, e, f, g, h];
                    epilogue.apply(at, &mut x);
                    self.output.store::<<C::Operands as Operands>::Half>(at, &x);
                }
            }
            index += WARPGROUP;
        }
    }
}

/// Where a thread writes a piece of 16-bit elements by `stmatrix`.
#[derive(Clone, Copy)]
struct Lines {
    /// Bytes of the thread's line from the beginning of the piece.
    line: u32,
    /// Unit of the line in the first step.
    unit: u32,
    /// What the unit's number is flipped by: the copy engine's swizzle.
    flip: u32,
}

impl Lines {
    /// Columns of an `x4`: two steps.
    const WIDE: u32 = 2 * STEP_COLUMNS;

    #[inline(always)]
    fn new<C: Config>(thread: u32) -> Self {
        let (lane, warp) = (thread % 32, thread / 32);
        if C::TRANSPOSED {
            // Lines are columns of the tile, 64 rows long: a unit is 8 rows. Matrices: rows 0.., rows 8.., then 8 columns on.
            let column = lane % 8 + lane / 16 * STEP_COLUMNS;
            Self::at(column, GROUP_ROWS, warp * 2 + lane / 8 % 2)
        } else {
            // Matrices: rows 0.., rows 8.., then 8 columns on.
            Self::at(warp * 16 + lane % 16, C::STORE_COLUMNS, lane / 16)
        }
    }

    #[inline(always)]
    fn at(line: u32, elements: u32, unit: u32) -> Self {
        let bytes = elements * 2;
        let address = line * bytes;
        // Pieces begin where the pattern does.
        let flipped = match bytes {
            128 => Swizzle::B128.apply(address),
            64 => Swizzle::B64.apply(address),
            32 => Swizzle::B32.apply(address),
            _ => address,
        };
        Self { line: address, unit, flip: (flipped ^ address) / UNIT }
    }

    #[inline(always)]
    unsafe fn write<C: Config>(self, tile: &C::Tile, group: usize, piece: usize, to: u32) {
        let steps = (C::STORE_COLUMNS / STEP_COLUMNS) as usize;
        let half = |index: usize| {
            <C::Operands as Operands>::Half::pack(tile.get(group, index), tile.get(group, index + 1))
        };
        unrolled!(PAIR in [0 1 2 3] {
            let index = 4 * (piece * steps + 2 * PAIR);
            // SAFETY: all lanes of the warp are here; lines of the piece.
            unsafe {
                if 2 * PAIR + 1 < steps {
                    let registers = [half(index), half(index + 2), half(index + 4), half(index + 6)];
                    if C::TRANSPOSED {
                        let columns = PAIR as u32 * Self::WIDE * GROUP_ROWS * 2;
                        matrix::stmatrix_x4_trans(to + self.line + columns + (self.unit ^ self.flip) * UNIT, registers);
                    } else {
                        let unit = self.unit + PAIR as u32 * 2;
                        matrix::stmatrix_x4(to + self.line + (unit ^ self.flip) * UNIT, registers);
                    }
                } else if 2 * PAIR < steps {
                    let registers = [half(index), half(index + 2)];
                    if C::TRANSPOSED {
                        matrix::stmatrix_x2_trans(to + self.line + (self.unit ^ self.flip) * UNIT, registers);
                    } else {
                        matrix::stmatrix_x2(to + self.line + (self.unit ^ self.flip) * UNIT, registers);
                    }
                }
            }
        });
    }
}

impl Output {
    /// Stores the first elements of `x`, as many as `at` counts.
    #[inline(always)]
    unsafe fn store<H: Half>(self, at: At, x: &[f32; VECTOR as usize]) {
        let (column, count) =
            if self.halved { (at.column / 2, at.count.div_ceil(2)) } else { (at.column, at.count) };
        let index = u64::from(at.batch) * self.matrix + u64::from(at.row) * self.row + u64::from(column);
        // SAFETY: elements of the result, aligned as `aligned` says.
        unsafe {
            if self.is_f32 {
                let to = self.data.cast::<f32>().add(index as usize);
                if self.aligned && count == VECTOR {
                    vector::store_v4(to, [x[0], x[1], x[2], x[3]]);
                    vector::store_v4(to.add(4), [x[4], x[5], x[6], x[7]]);
                } else {
                    unrolled!(I in [0 1 2 3 4 5 6 7] { if (I as u32) < count { to.add(I).write(x[I]); } });
                }
            } else {
                let to = self.data.cast::<u16>().add(index as usize);
                let pairs =
                    [H::pack(x[0], x[1]), H::pack(x[2], x[3]), H::pack(x[4], x[5]), H::pack(x[6], x[7])];
                if self.aligned && count == VECTOR {
                    vector::store_v4(to.cast::<u32>(), pairs);
                } else if self.aligned && self.halved && count == VECTOR / 2 {
                    vector::store_v2(to.cast::<u32>(), [pairs[0], pairs[1]]);
                } else {
                    unrolled!(I in [0 1 2 3 4 5 6 7] {
                        if (I as u32) < count { to.add(I).write((pairs[I / 2] >> (16 * (I % 2))) as u16); }
                    });
                }
            }
        }
    }
}
