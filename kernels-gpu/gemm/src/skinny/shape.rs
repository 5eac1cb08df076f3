//! The shape of a block, its stages in shared memory, and where 16-byte units lie in them.

use layout::{UNIT_BYTES, swizzle_units};
use primitives::warp::LANES;

/// Most rows of the left factor and of the result.
pub const MAX_M: u32 = 4 * ROWS;
/// Threads of a block.
pub const THREADS: u32 = 256;
/// Stages of the pipeline: all but one are under way while that one is used.
pub const STAGES: u32 = 6;

pub(crate) const WARPS: u32 = THREADS / LANES;
/// Columns of the result that a warp computes: the M of `mma`, for which the factors change places.
pub(crate) const GROUP: u32 = 16;
/// Rows of the left factor that one `mma` takes: its N.
pub(crate) const ROWS: u32 = 8;
/// Words of k that one `mma` takes. Shapes are counted in 16-bit words, whatever they hold.
pub(crate) const STEP: u32 = 16;
/// Words of k of a stage that a warp takes.
pub(crate) const SLICE: u32 = 4 * STEP;
/// Words of a 16-byte unit.
pub(crate) const UNIT: u32 = 8;
pub(crate) const WORD_BYTES: u32 = UNIT_BYTES / UNIT;
/// Bytes of the right factor in a stage.
const RIGHT_BYTES: u32 = WARPS * GROUP * SLICE * WORD_BYTES;
/// Floats between the rows of partial sums beyond the columns: lanes of a fragment then meet all banks.
pub(crate) const PARTIAL_PAD: u32 = 4;

/// The shape of a block; everything follows from the first four.
pub(crate) trait Tile {
    /// Warps beside each other; the others take other slices of k.
    const GROUPS: u32;
    /// Eights of rows: 1, 2 or 4.
    const EIGHTS: u32;
    /// Columns of the right factor are contiguous, else its rows.
    const ALONG_K: bool;
    /// Words of an element, where there are not several in a word.
    const WORDS: u32;

    /// Columns of the result that the block computes at a time.
    const COLUMNS: u32 = Self::GROUPS * GROUP;
    /// Warps that share a group of columns.
    const SLICES: u32 = WARPS / Self::GROUPS;
    /// Words of k in a stage.
    const DEPTH: u32 = Self::SLICES * SLICE;
    /// Rows of the left factor, with those that may be missing.
    const ROWS: u32 = Self::EIGHTS * ROWS;

    /// Units of a line of the right factor in a stage.
    const RIGHT_UNITS: u32 = if Self::ALONG_K { Self::DEPTH } else { Self::COLUMNS * Self::WORDS } / UNIT;
    /// Lines of the right factor in a stage.
    const RIGHT_LINES: u32 = if Self::ALONG_K { Self::COLUMNS } else { Self::DEPTH / Self::WORDS };
    /// Units of a row of the left factor in a stage; of a column, where columns are contiguous.
    const LEFT_UNITS: u32 = Self::DEPTH / UNIT;
    const LEFT_UNITS_DOWN: u32 = Self::ROWS * Self::WORDS / UNIT;

    /// Bytes of a stage: the right factor, then the left one.
    const STAGE_BYTES: u32 = RIGHT_BYTES + Self::ROWS * Self::DEPTH * WORD_BYTES;
    /// Where the sums go.
    const PARTIALS: Partials = Partials {
        at: STAGES * Self::STAGE_BYTES,
        slices: Self::SLICES,
        slice: Self::ROWS * (Self::COLUMNS + PARTIAL_PAD),
        pitch: Self::COLUMNS + PARTIAL_PAD,
        columns: Self::COLUMNS,
    };
    /// Bytes of shared memory.
    const SHARED: u32 = Self::PARTIALS.at + Self::SLICES * Self::PARTIALS.slice * size_of::<f32>() as u32;

    /// Offset in a stage of a unit of the right factor: `line` is a column, or a k where rows are contiguous.
    #[inline(always)]
    fn right(line: u32, unit: u32) -> u32 {
        place(Self::RIGHT_UNITS, line, unit)
    }

    /// Offset in a stage of a unit of the left factor.
    #[inline(always)]
    fn left(row: u32, unit: u32) -> u32 {
        RIGHT_BYTES + place(Self::LEFT_UNITS, row, unit)
    }

    /// The same where columns of it are contiguous.
    #[inline(always)]
    fn left_down(k: u32, unit: u32) -> u32 {
        RIGHT_BYTES + place(Self::LEFT_UNITS_DOWN, k, unit)
    }
}

/// A [`Tile`].
pub(crate) struct Shape<const GROUPS: u32, const EIGHTS: u32, const ALONG_K: bool, const WORDS: u32>;

impl<const GROUPS: u32, const EIGHTS: u32, const ALONG_K: bool, const WORDS: u32> Tile
    for Shape<GROUPS, EIGHTS, ALONG_K, WORDS>
{
    const GROUPS: u32 = GROUPS;
    const EIGHTS: u32 = EIGHTS;
    const ALONG_K: bool = ALONG_K;
    const WORDS: u32 = WORDS;
}

/// Where the sums of the slices lie, row by row of f32.
#[derive(Clone, Copy)]
pub(crate) struct Partials {
    /// Bytes before them.
    at: u32,
    /// Slices.
    pub slices: u32,
    /// From a slice to the next.
    slice: u32,
    /// From a row to the next.
    pitch: u32,
    /// Columns.
    pub columns: u32,
}

impl Partials {
    /// Those of so many slices, rows and columns, from the beginning of the shared memory on.
    #[inline(always)]
    pub fn new(slices: u32, rows: u32, columns: u32) -> Self {
        let pitch = columns + PARTIAL_PAD;
        Self { at: 0, slices, slice: rows * pitch, pitch, columns }
    }

    /// Shared address of a sum, for shared memory that begins at `base`.
    #[inline(always)]
    pub fn address(self, base: u32, slice: u32, row: u32, column: u32) -> u32 {
        base + self.at + (slice * self.slice + row * self.pitch + column) * size_of::<f32>() as u32
    }
}

/// Offset of a unit in lines of `units` units. Eight lines put the same unit into eight different groups of
/// banks, whether or not a line fills all of them.
#[inline(always)]
const fn place(units: u32, line: u32, unit: u32) -> u32 {
    let index = if units >= 8 {
        line * units + swizzle_units(unit, line)
    } else {
        let plain = line * units + unit;
        plain / 8 * 8 + swizzle_units(plain % 8, plain / 8)
    };
    index * UNIT_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use layout::banks::{wavefronts_4, wavefronts_16};

    fn check<S: Tile>() {
        assert!(S::SHARED <= 227 * 1024, "{} bytes", S::SHARED);
        let mut seen = vec![false; (S::STAGE_BYTES / UNIT_BYTES) as usize];
        let mut visit = |offset: u32| {
            assert!(!std::mem::replace(&mut seen[(offset / UNIT_BYTES) as usize], true));
        };
        for line in 0..S::RIGHT_LINES {
            (0..S::RIGHT_UNITS).for_each(|unit| visit(S::right(line, unit)));
        }
        for row in 0..S::ROWS {
            (0..S::LEFT_UNITS).for_each(|unit| visit(S::left(row, unit)));
        }
        assert!(seen.into_iter().all(|seen| seen));
        let mut seen: Vec<u32> = (0..S::DEPTH / S::WORDS)
            .flat_map(|k| (0..S::LEFT_UNITS_DOWN).map(move |unit| S::left_down(k, unit)))
            .collect();
        seen.sort_unstable();
        let all = (RIGHT_BYTES..S::STAGE_BYTES).step_by(UNIT_BYTES as usize);
        assert!(seen.into_iter().eq(all), "columns of the left factor fill its part of the stage");
        // `ldmatrix` reads one unit of eight lines at a time.
        for first in (0..S::RIGHT_LINES).step_by(8) {
            for unit in 0..S::RIGHT_UNITS {
                let matrix: [u32; 8] = std::array::from_fn(|line| S::right(first + line as u32, unit));
                assert_eq!(wavefronts_16(&matrix), 1);
            }
        }
        for first in (0..S::DEPTH / S::WORDS).step_by(8) {
            for unit in 0..if S::WORDS == 1 { S::LEFT_UNITS_DOWN } else { 0 } {
                let matrix: [u32; 8] = std::array::from_fn(|k| S::left_down(first + k as u32, unit));
                assert_eq!(wavefronts_16(&matrix), 1);
            }
        }
        for unit in 0..S::LEFT_UNITS {
            let matrix: [u32; 8] = std::array::from_fn(|row| S::left(row as u32, unit));
            assert_eq!(wavefronts_16(&matrix), 1);
        }
        // `cp.async` writes units one behind the other.
        for first in (0..S::RIGHT_LINES * S::RIGHT_UNITS).step_by(8) {
            let copies: [u32; 8] = std::array::from_fn(|unit| {
                let unit = first + unit as u32;
                S::right(unit / S::RIGHT_UNITS, unit % S::RIGHT_UNITS)
            });
            assert_eq!(wavefronts_16(&copies), 1);
        }
        // A register of a fragment of sums: lane `4 g + t` has column `g` of row `2 t`.
        let sums: [u32; 32] =
            std::array::from_fn(|lane| S::PARTIALS.address(0, 0, lane as u32 % 4 * 2, lane as u32 / 4));
        assert_eq!(wavefronts_4(&sums), 1);
        let last = S::PARTIALS.address(0, S::SLICES - 1, S::ROWS - 1, S::COLUMNS - 1);
        assert!(last < S::SHARED);
    }

    #[test]
    fn stages_are_full_and_free_of_conflicts() {
        check::<Shape<1, 1, true, 1>>();
        check::<Shape<2, 1, true, 1>>();
        check::<Shape<4, 2, true, 1>>();
        check::<Shape<8, 2, true, 1>>();
        check::<Shape<1, 2, false, 1>>();
        check::<Shape<2, 2, false, 1>>();
        check::<Shape<4, 1, false, 1>>();
        check::<Shape<8, 1, false, 1>>();
        check::<Shape<1, 2, false, 2>>();
        check::<Shape<2, 4, false, 2>>();
        check::<Shape<4, 4, false, 2>>();
        check::<Shape<8, 1, false, 2>>();
    }
}
