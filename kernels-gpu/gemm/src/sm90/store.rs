//! From the accumulators to global memory.
//!
//! A consumer's part of a tile leaves in one of two ways:
//!
//! * **plain**: rounded to 16 bits, `stmatrix` into a piece of 64 rows in shared memory, and the copy engine takes it from there while
//!   the next piece fills. What lies outside of the result it leaves out. All of it is unrolled.
//! * **through the epilogue**: in a loop over chunks of 64 rows and 32 columns, sixteen accumulators of a thread; half of that next to 192 accumulators,
//!   where there is no room. A jump picks them, since registers have no index; so the epilogue is there once, whatever it does. The results go the same way
//!   over a piece in shared memory, or, where the copy engine cannot store them, from the registers to global memory.
//!
//! Of kernels that store the transpose, neighbours in a row of the result are in neighbouring lanes: those change one of two before the epilogue.

use cuda_std::warp::{FULL_MASK, warp_shuffle_xor};
use cuda_std::{barrier, convert, fence, matrix, misc, tma, vector};
use layout::wgmma::Swizzle;

use super::config::{Config, WARPGROUP};
use super::epilogue::{At, Columns, Epilogue, Pairs, each_pair};
use super::kernel::FIRST_CONSUMER_BARRIER;
use super::operands::{GROUP_ROWS, Half, Operands, Tile};
use super::pipeline::Ring;
use super::problem::{Corner, Maps, Problem};
use crate::unroll::unrolled;

/// Element types of results.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// The kernel's 16-bit type.
    Half = 0,
    /// f32.
    F32 = 1,
    /// 8 bits, up to 448; what is beyond becomes that.
    E4m3 = 2,
    /// 8 bits, up to 57344; what is beyond becomes that.
    E5m2 = 3,
}

impl Number {
    /// Bytes of an element.
    #[inline(always)]
    #[must_use]
    pub const fn bytes(self) -> u32 {
        match self {
            Self::F32 => 4,
            Self::Half => 2,
            Self::E4m3 | Self::E5m2 => 1,
        }
    }

    /// Rounds pairs, of types of at most 16 bits: the first one's bits are the lower ones.
    #[inline(always)]
    fn pack<H: Half, const N: usize>(self, x: &Pairs<N>) -> [u32; N] {
        let mut bits = [0; N];
        match self {
            Self::E4m3 => each_pair!(PAIR of N {
                bits[PAIR] = convert::e4m3x2_from_f32(x[PAIR][0], x[PAIR][1]).into();
            }),
            Self::E5m2 => each_pair!(PAIR of N {
                bits[PAIR] = convert::e5m2x2_from_f32(x[PAIR][0], x[PAIR][1]).into();
            }),
            Self::Half | Self::F32 => each_pair!(PAIR of N { bits[PAIR] = H::pack(x[PAIR][0], x[PAIR][1]); }),
        }
        bits
    }
}

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
    /// Type of the elements.
    pub number: Number,
    /// Rows have an even number of elements and begin at multiples of two elements' size.
    pub paired: bool,
    /// The copy engine stores. It writes whole units of 16 bytes, so rows have a multiple of that many bytes. Not for
    /// f32, nor for 8 bits where two elements become one.
    pub copied: bool,
    /// Copied, in the kernel's 16-bit type, and the product itself: there is no epilogue.
    pub plain: bool,
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
    /// Pieces that have been copied, modulo their places: they take turns over the tiles' borders.
    copies: u32,
}

/// A thread's place at a store.
#[derive(Clone, Copy)]
struct Place {
    /// The consumer's pieces in shared memory.
    pieces: u32,
    /// Its epilogue's numbers.
    numbers: u32,
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
}

/// Bytes of a 16-byte unit.
const UNIT: u32 = layout::UNIT_BYTES;
/// Columns of an accumulator's step: four registers.
const STEP_COLUMNS: u32 = 8;
/// Columns of an `stmatrix` of four registers: two steps.
const WIDE: u32 = 2 * STEP_COLUMNS;

impl<C: Config> Store<C> {
    /// For the consumers' thread of this number.
    #[inline(always)]
    pub fn new(maps: Maps, problem: Problem, output: Output, ring: Ring<C>, thread: u32) -> Self {
        Self { maps, problem, output, ring, thread, copies: 0 }
    }

    /// Prepares the epilogue of the tile whose first element will be at `corner`.
    ///
    /// # Safety
    /// The whole warpgroup is here.
    #[inline(always)]
    pub unsafe fn prepare<E: Epilogue>(&self, mut epilogue: E, corner: Corner) {
        if self.output.plain && !corner.is_bounded {
            return;
        }
        let place = self.place();
        let [_, end] = self.sides(corner);
        let first = in_result::<C>(corner, 0, 0).column;
        let columns = Columns { first, count: C::RESULT_COLUMNS, end, numbers: place.numbers };
        // SAFETY: the caller's contract. Between the barriers nobody reads the numbers.
        unsafe {
            place.meet();
            epilogue.enter(corner.group);
            epilogue.prepare(columns, place.thread);
            place.meet();
        }
    }

    /// Rows and columns of the result.
    #[inline(always)]
    fn sides(&self, corner: Corner) -> [u32; 2] {
        let Problem { m, n, .. } = self.problem;
        if C::TRANSPOSED { [n, m] } else { [corner.end, n] }
    }

    /// Stores the tile whose first element is at `corner`.
    ///
    /// # Safety
    /// The whole warpgroup is here; maps and output are valid for the result.
    #[inline(always)]
    pub unsafe fn tile<E: Epilogue>(&mut self, tile: &C::Tile, mut epilogue: E, corner: Corner) {
        // The copy engine would write rows behind the product's last one too.
        let is_whole = !corner.is_bounded || corner.row + C::CONSUMER_ROWS <= corner.end;
        // SAFETY: the caller's contract.
        unsafe {
            if self.output.plain && is_whole {
                self.plain(tile, corner);
            } else {
                epilogue.enter(corner.group);
                let copied = self.output.copied && is_whole;
                if C::CHUNK_STEPS == 4 {
                    self.through::<E, 8>(tile, epilogue, corner, copied);
                } else {
                    self.through::<E, 4>(tile, epilogue, corner, copied);
                }
            }
        }
        self.copies = (self.copies + C::Tile::GROUPS as u32 * Self::PIECES) % C::STORE_BUFFERS;
    }

    /// The thread's place. What follows from the thread's number is not kept beside the accumulators.
    #[inline(always)]
    fn place(&self) -> Place {
        let thread = misc::opaque(self.thread);
        let consumer = thread / WARPGROUP;
        Place {
            pieces: self.ring.output(consumer),
            numbers: self.ring.numbers(consumer),
            barrier: FIRST_CONSUMER_BARRIER + consumer,
            thread: thread % WARPGROUP,
        }
    }

    #[inline(always)]
    unsafe fn plain(&self, tile: &C::Tile, corner: Corner) {
        let place = self.place();
        let lines = Lines::new::<C>(place.thread);
        unrolled!(GROUP in [0 1] { if GROUP < C::Tile::GROUPS {
            unrolled!(PIECE in [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31] {
                if (PIECE as u32) < Self::PIECES {
                    // SAFETY: the caller's contract.
                    unsafe {
                        let piece = self.piece(place, GROUP as u32 * Self::PIECES + PIECE as u32);
                        self.begin_piece(place);
                        lines.write::<C>(tile, GROUP, PIECE, piece);
                        let at = in_result::<C>(corner, GROUP as u32, PIECE as u32 * C::STORE_COLUMNS);
                        self.copy_piece(place, piece, at);
                    }
                }
            });
        } });
    }

    /// Pieces of a group.
    const PIECES: u32 = C::BLOCK_N / C::STORE_COLUMNS;

    /// The place of the tile's piece of this number.
    #[inline(always)]
    fn piece(&self, place: Place, index: u32) -> u32 {
        place.pieces + (self.copies + index) % C::STORE_BUFFERS * C::STORE_BYTES
    }

    /// Waits until nobody reads the piece any more.
    #[inline(always)]
    unsafe fn begin_piece(&self, place: Place) {
        const { assert!(C::STORE_BUFFERS == 2) };
        // SAFETY: the copy before the last one, which read this piece, is done before anyone writes.
        unsafe {
            if place.thread == 0 {
                tma::wait_group_read::<1>();
            }
            place.meet();
        }
    }

    /// Has the piece, of which each thread has written its part, copied to the result: its first element is that of the
    /// product at `at`, in the result's rows and columns.
    #[inline(always)]
    unsafe fn copy_piece(&self, place: Place, piece: u32, at: Corner) {
        let column = if self.output.halved { at.column / 2 } else { at.column };
        let (row, column, batch) = (at.row as i32, column as i32, at.batch as i32);
        // SAFETY: the fence and the barrier order the writes before the copy.
        unsafe {
            fence::proxy_async_shared();
            place.meet();
            if place.thread == 0 {
                tma::store_3d(self.maps.d, piece, [column, row, batch]);
                tma::commit_group();
            }
        }
    }

    #[inline(always)]
    unsafe fn through<E: Epilogue, const N: usize>(
        &self,
        tile: &C::Tile,
        mut epilogue: E,
        corner: Corner,
        copied: bool,
    ) {
        const { assert!(C::STORE_COLUMNS.is_multiple_of(C::CHUNK_COLUMNS), "a chunk is of one piece") };
        let mut number = 0;
        while number < C::Tile::GROUPS as u32 * Self::CHUNKS {
            // Next to the accumulators there is no room for what could be computed ahead of the loop.
            let place = self.place();
            let corner = Corner { batch: misc::opaque(corner.batch), ..corner };
            let spot = Spot::new::<C>(place.thread);
            let (group, column) = (number / Self::CHUNKS, number % Self::CHUNKS * C::CHUNK_COLUMNS);
            let along = column % C::STORE_COLUMNS;
            let first = in_result::<C>(corner, 0, 0).column;
            let at = self.at(in_result::<C>(corner, group, column), spot, place.numbers, first);
            // SAFETY: the whole warpgroup is here; elements of the product, places in the piece.
            unsafe {
                let mut x = chunk::<C, N>(tile, number);
                if C::TRANSPOSED {
                    const { assert!(!C::TRANSPOSED || C::CHUNK_STEPS == 2, "chunks of two rows of two pairs") };
                    exchange(&mut x, place.thread);
                }
                epilogue.apply(at, &mut x);
                if copied {
                    let piece = self.piece(place, number * C::CHUNK_COLUMNS / C::STORE_COLUMNS);
                    if along == 0 {
                        self.begin_piece(place);
                    }
                    let spot = if C::TRANSPOSED { spot.below(along) } else { spot.beside(along) };
                    self.output.write_piece::<C, N>(piece, spot, &x);
                    if along + C::CHUNK_COLUMNS == C::STORE_COLUMNS {
                        self.copy_piece(place, piece, in_result::<C>(corner, group, column - along));
                    }
                } else {
                    self.output.write::<<C::Operands as Operands>::Half, N>(at, &x);
                }
            }
            number = misc::opaque(number) + 1;
        }
        // SAFETY: the whole warpgroup is here.
        unsafe { epilogue.finish() }
    }

    /// Chunks of a group.
    const CHUNKS: u32 = C::BLOCK_N / C::CHUNK_COLUMNS;

    /// Where the thread's pairs are in the product, of a chunk that begins at `from` in a tile whose numbers of columns begin at
    /// `numbers` with that of column `first`.
    #[inline(always)]
    fn at(&self, from: Corner, spot: Spot, numbers: u32, first: u32) -> At {
        let (row, column) = (from.row + spot.row, from.column + spot.column);
        let numbers = numbers + (column - first) * size_of::<f32>() as u32;
        At { batch: from.batch, row, column, sides: self.sides(from), width: 2, numbers }
    }
}

/// The first element of a chunk or a piece in the result's rows and columns: it begins at a column of a group of the tile at `corner`.
#[inline(always)]
fn in_result<C: Config>(corner: Corner, group: u32, column: u32) -> Corner {
    let (row, column) = (corner.row + group * GROUP_ROWS, corner.column + column);
    let (row, column) = if C::TRANSPOSED { (column, row) } else { (row, column) };
    Corner { row, column, ..corner }
}

/// A chunk of the accumulators, as pairs of neighbours in a row of the tile: rows 0 and 8, then 8 columns on.
#[inline(always)]
fn chunk<C: Config, const N: usize>(tile: &C::Tile, number: u32) -> Pairs<N> {
    let chunks = (C::BLOCK_N / C::CHUNK_COLUMNS) as usize;
    let mut x = [[0.0; 2]; N];
    unrolled!(GROUP in [0 1] { if GROUP < C::Tile::GROUPS {
        unrolled!(INDEX in [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15] {
            if INDEX < chunks && number == (GROUP * chunks + INDEX) as u32 {
                each_pair!(PAIR of N {
                    let first = 2 * (N * INDEX + PAIR);
                    x[PAIR] = [tile.get(GROUP, first), tile.get(GROUP, first + 1)];
                });
                return x;
            }
        });
    } });
    x
}

/// Lanes that a neighbouring row of the tile is away.
const ROW_LANES: u32 = 4;

/// Of pairs beside each other makes pairs below each other: lanes of odd rows give their first column to the row above, for its second.
#[inline(always)]
unsafe fn exchange<const N: usize>(x: &mut Pairs<N>, thread: u32) {
    let odd = thread / ROW_LANES % 2 == 1;
    each_pair!(PAIR of N {
        let [first, second] = x[PAIR];
        let given = if odd { first } else { second };
        // SAFETY: the caller says that the whole warp is here.
        let (got, _) = unsafe { warp_shuffle_xor(FULL_MASK, given, ROW_LANES, 32) };
        x[PAIR] = if odd { [got, second] } else { [first, got] };
    });
    // The columns of the tile are the rows of the result.
    x.swap(1, 2);
}

/// Where a thread's pairs begin in a chunk, in the result's rows and columns.
#[derive(Clone, Copy)]
struct Spot {
    row: u32,
    column: u32,
}

impl Spot {
    #[inline(always)]
    fn new<C: Config>(thread: u32) -> Self {
        let (lane, warp) = (thread % 32, thread / 32);
        let (down, across) = (lane / ROW_LANES, lane % ROW_LANES * 2);
        if C::TRANSPOSED {
            Self { row: across + down % 2, column: warp * 16 + (down & !1) }
        } else {
            Self { row: warp * 16 + down, column: across }
        }
    }

    #[inline(always)]
    fn below(self, rows: u32) -> Self {
        Self { row: self.row + rows, ..self }
    }

    #[inline(always)]
    fn beside(self, columns: u32) -> Self {
        Self { column: self.column + columns, ..self }
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
        Self { line: address, unit, flip: (Swizzle::of_span(bytes).apply(address) ^ address) / UNIT }
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
                        let columns = PAIR as u32 * WIDE * GROUP_ROWS * 2;
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
    /// Writes the thread's pairs of a chunk, which begin at `spot` of a piece. Units of a line change places as the copy engine's swizzle has
    /// it, so that the eight rows of a warp's store do not meet in one bank.
    #[inline(always)]
    unsafe fn write_piece<C: Config, const N: usize>(self, piece: u32, spot: Spot, x: &Pairs<N>) {
        let length = if C::TRANSPOSED { GROUP_ROWS } else { C::STORE_COLUMNS };
        // Half of what a pair becomes; a line is as long as the swizzle's span.
        let bytes = if self.halved { self.number.bytes() / 2 } else { self.number.bytes() };
        let bits = self.number.pack::<<C::Operands as Operands>::Half, N>(x);
        let address = |pair: usize, bytes: u32| {
            let line = spot.row * (length * bytes);
            // Lines 8 apart are flipped alike.
            let flip = Swizzle::of_span(length * bytes).apply(line) ^ line;
            let down = pair as u32 % 2 * STEP_COLUMNS * (length * bytes);
            let along = (spot.column + pair as u32 / 2 * STEP_COLUMNS) * bytes;
            piece + line + down + (along ^ flip)
        };
        // SAFETY: the caller's contract: places in the piece, this thread's alone.
        unsafe {
            if bytes == 2 {
                each_pair!(PAIR of N { vector::store_shared(address(PAIR, 2), bits[PAIR]); });
            } else {
                each_pair!(PAIR of N { vector::store_shared_b16(address(PAIR, 1), bits[PAIR] as u16); });
            }
        }
    }

    /// Stores the pairs' elements of the result.
    #[inline(always)]
    unsafe fn write<H: Half, const N: usize>(self, at: At, x: &Pairs<N>) {
        let at = if self.halved { at.halved() } else { at };
        // SAFETY: the caller's contract.
        unsafe {
            match self.number {
                Number::F32 => each_pair!(PAIR of N {
                    let both = x[PAIR].map(f32::to_bits);
                    self.put(at, PAIR, both, u64::from(both[0]) | u64::from(both[1]) << u32::BITS);
                }),
                Number::Half => {
                    let bits = self.number.pack::<H, N>(x);
                    each_pair!(PAIR of N {
                        let both = bits[PAIR];
                        self.put(at, PAIR, [both as u16, (both >> u16::BITS) as u16], both);
                    });
                }
                Number::E4m3 | Number::E5m2 => {
                    let bits = self.number.pack::<H, N>(x);
                    each_pair!(PAIR of N {
                        let both = bits[PAIR] as u16;
                        self.put(at, PAIR, [both as u8, (both >> u8::BITS) as u8], both);
                    });
                }
            }
        }
    }

    /// Stores a pair, as far as it is of the result: `both` at once where that is possible.
    #[inline(always)]
    unsafe fn put<One, Two>(self, at: At, pair: usize, [low, high]: [One; 2], both: Two) {
        let index = u64::from(at.batch) * self.matrix
            + u64::from(at.row(pair)) * self.row
            + u64::from(at.column(pair));
        let count = at.count(pair);
        // SAFETY: elements of the result, aligned as `paired` says.
        unsafe {
            let to = self.data.cast::<One>().add(index as usize);
            if self.paired && count == 2 {
                to.cast::<Two>().write(both);
            } else {
                if count > 0 {
                    to.write(low);
                }
                if count > 1 {
                    to.add(1).write(high);
                }
            }
        }
    }
}
