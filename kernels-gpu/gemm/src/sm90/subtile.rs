//! Where a thread's elements are in a subtile of the result in shared memory, and how they get there.

use cuda_std::matrix;
use cuda_std::warp::{FULL_MASK, warp_shuffle_xor};
use layout::wgmma::Swizzle;

use super::config::{ALIGN, Config, ELEMENT16_BYTES};
use super::fusion::{Pairs, each_pair};
use super::operands::{AccumulatorTile, Element16, GROUP_ROWS, Operands};
use primitives::shared_plan::Mbarrier;
use primitives::{shared_bytes, shared_plan, unroll};

/// Subtiles that every consumer has room for.
pub const SUBTILES: u32 = 2;
/// Those that a consumer has room for at most ([`Config::PLACES`]).
pub const MOST_PLACES: u32 = 4;

shared_bytes! {
    /// 64 rows of a consumer's tile, in 16-bit elements; of half as many columns in f32.
    pub struct Subtile<C: Config>(C::STORE_COLUMNS * GROUP_ROWS * ELEMENT16_BYTES, align ALIGN);
}

shared_plan! {
    /// A barrier for each of a consumer's places for a subtile. The first [`Config::PLACES`] are made.
    pub struct SourceBarriers {
        /// Says that what is added has come to this place.
        subtile[MOST_PLACES]: Mbarrier,
    }
}

/// Bytes of a 16-byte unit.
const UNIT: u32 = layout::UNIT_BYTES;
/// Columns of an accumulator's step: four registers.
pub(super) const STEP_COLUMNS: u32 = 8;
/// Columns of an `stmatrix` of four registers: two steps.
const WIDE: u32 = 2 * STEP_COLUMNS;

/// A chunk of the accumulators, as pairs of neighbours in a row of the tile: rows 0 and 8, then 8 columns on.
#[inline(always)]
pub(super) fn chunk<C: Config, const N: usize>(tile: &C::Stored, number: u32) -> Pairs<N> {
    let chunks = (C::STORED_N / C::CHUNK_COLUMNS) as usize;
    let mut x = [[0.0; 2]; N];
    unroll!(GROUP in 0..2, { if GROUP < C::Stored::GROUPS {
        unroll!(INDEX in 0..16, {
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

/// Of pairs beside each other makes pairs below each other: lanes of odd rows give their first column to the
/// row above, for its second.
///
/// # Safety
/// The whole warp calls it.
#[inline(always)]
pub(super) unsafe fn exchange<const N: usize>(x: &mut Pairs<N>, thread: u32) {
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
pub(super) struct Spot {
    pub row: u32,
    pub column: u32,
}

impl Spot {
    #[inline(always)]
    pub fn new<C: Config>(thread: u32) -> Self {
        let (lane, warp) = (thread % 32, thread / 32);
        let (down, across) = (lane / ROW_LANES, lane % ROW_LANES * 2);
        if C::TRANSPOSED {
            Self { row: across + down % 2, column: warp * 16 + (down & !1) }
        } else {
            Self::of_tile(thread)
        }
    }

    /// In the tile's own rows and columns.
    #[inline(always)]
    pub fn of_tile(thread: u32) -> Self {
        let (lane, warp) = (thread % 32, thread / 32);
        Self { row: warp * 16 + lane / ROW_LANES, column: lane % ROW_LANES * 2 }
    }

    #[inline(always)]
    pub fn below(self, rows: u32) -> Self {
        Self { row: self.row + rows, ..self }
    }

    #[inline(always)]
    pub fn beside(self, columns: u32) -> Self {
        Self { column: self.column + columns, ..self }
    }
}

/// Where a thread's pairs of a chunk are in a subtile in shared memory. Units of a line change places as the
/// copy engine's swizzle has it, so that the eight rows of a warp's store do not meet in one bank.
#[derive(Clone, Copy, Debug)]
pub struct Slots {
    /// Shared address of the first pair.
    first: u32,
    /// Elements of a line.
    length: u32,
    /// Bytes of an element.
    bytes: u32,
}

impl Slots {
    /// Of pairs that begin at `spot` of a subtile, whose elements take so many bytes.
    #[inline(always)]
    pub(super) fn new<C: Config>(subtile: u32, spot: Spot, bytes: u32) -> Self {
        Self::in_lines(subtile, spot, if C::TRANSPOSED { GROUP_ROWS } else { C::STORE_COLUMNS }, bytes)
    }

    /// The same in lines of so many elements.
    #[inline(always)]
    pub(super) fn in_lines(subtile: u32, spot: Spot, length: u32, bytes: u32) -> Self {
        let line = spot.row * (length * bytes);
        // A line is as long as the swizzle's span; lines 8 apart are flipped alike.
        let flip = Swizzle::of_span(length * bytes).apply(line) ^ line;
        Self { first: subtile + line + ((spot.column * bytes) ^ flip), length, bytes }
    }

    /// Shared address of a pair.
    #[inline(always)]
    #[must_use]
    pub const fn address(self, pair: usize) -> u32 {
        let (right, down) = (pair as u32 / 2 * STEP_COLUMNS, pair as u32 % 2 * STEP_COLUMNS * self.length);
        // Chunks begin at multiples of their length: within one, bits are flipped where others would be
        // added, before the swizzle's flips or after.
        (self.first ^ (right * self.bytes)) + down * self.bytes
    }
}

/// Where a thread writes a subtile of 16-bit elements by `stmatrix`.
#[derive(Clone, Copy)]
pub(super) struct Lines {
    /// Bytes of the thread's line from the beginning of the subtile.
    line: u32,
    /// Unit of the line in the first step.
    unit: u32,
    /// The copy engine's swizzle: the unit's number is XORed with this.
    flip: u32,
}

impl Lines {
    #[inline(always)]
    pub fn new<C: Config>(thread: u32) -> Self {
        let (lane, warp) = (thread % 32, thread / 32);
        if C::TRANSPOSED {
            // Lines are columns of the tile, 64 rows long: a unit is 8 rows. Matrices: rows 0.., rows 8..,
            // then 8 columns on.
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
        // Subtiles begin where the pattern does.
        Self { line: address, unit, flip: (Swizzle::of_span(bytes).apply(address) ^ address) / UNIT }
    }

    /// Writes the warp's lines of a subtile.
    ///
    /// # Safety
    /// The whole warp calls it. `to` is the shared address of a subtile, aligned to its swizzle, that no
    /// thread reads.
    #[inline(always)]
    pub unsafe fn write<C: Config>(self, tile: &C::Stored, group: usize, subtile: usize, to: u32) {
        let steps = (C::STORE_COLUMNS / STEP_COLUMNS) as usize;
        let pair = |index: usize| {
            <C::Operands as Operands>::Element16::pack(tile.get(group, index), tile.get(group, index + 1))
        };
        unroll!(PAIR in 0..4, {
            let index = 4 * (subtile * steps + 2 * PAIR);
            // SAFETY: all lanes of the warp are here; lines of the subtile.
            unsafe {
                if 2 * PAIR + 1 < steps {
                    let registers = [pair(index), pair(index + 2), pair(index + 4), pair(index + 6)];
                    if C::TRANSPOSED {
                        let columns = PAIR as u32 * WIDE * GROUP_ROWS * 2;
                        matrix::stmatrix_x4_trans(to + self.line + columns + (self.unit ^ self.flip) * UNIT, registers);
                    } else {
                        self.write_four(PAIR as u32, registers, to);
                    }
                } else if 2 * PAIR < steps {
                    let registers = [pair(index), pair(index + 2)];
                    if C::TRANSPOSED {
                        matrix::stmatrix_x2_trans(to + self.line + (self.unit ^ self.flip) * UNIT, registers);
                    } else {
                        matrix::stmatrix_x2(to + self.line + (self.unit ^ self.flip) * UNIT, registers);
                    }
                }
            }
        });
    }

    /// Writes the lines' sixteen columns of this number, where lines are rows.
    ///
    /// # Safety
    /// As for [`Lines::write`].
    #[inline(always)]
    pub(super) unsafe fn write_four(self, number: u32, registers: [u32; 4], to: u32) {
        let unit = self.unit + number * 2;
        // SAFETY: the caller's contract.
        unsafe { matrix::stmatrix_x4(to + self.line + (unit ^ self.flip) * UNIT, registers) }
    }

    /// Reads what [`Lines::write_four`] writes.
    ///
    /// # Safety
    /// As for [`Lines::write`], where no thread writes the subtile.
    #[inline(always)]
    pub(super) unsafe fn read_four(self, number: u32, from: u32) -> [u32; 4] {
        let unit = self.unit + number * 2;
        // SAFETY: the caller's contract.
        unsafe { matrix::ldmatrix_x4(from + self.line + (unit ^ self.flip) * UNIT) }
    }
}
