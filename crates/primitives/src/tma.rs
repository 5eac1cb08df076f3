//! Tiles of an operand that the copy engine (TMA) brings to shared memory, alone or shared out over a
//! cluster.

use cuda_std::tma::{self, TensorMap};
use layout::wgmma::Swizzle;

/// Bytes of a line of a box: the span of the widest swizzle.
pub const LINE_BYTES: u32 = Swizzle::B128.span();
/// Lines of a box of an operand of 16 bits whose contiguous dimension is not k, and its elements along that
/// dimension.
pub const BOX_ELEMENTS: u32 = 64;
/// Lines after which the swizzle's pattern repeats.
const PATTERN_LINES: u32 = 8;
/// Bytes of such a box.
pub const BOX_BYTES: u32 = BOX_ELEMENTS * LINE_BYTES;
/// Units of 16 bytes in a line.
const LINE_UNITS: u32 = LINE_BYTES / 16;

/// Elements along m (or n) of the boxes of an operand whose `side` is contiguous, where 128 bytes are `span`
/// elements and blocks share no tile: those of a line or, where the side is shorter, of the units of 16 bytes
/// that it has. The copy engine would fill the rest of each line with zeros, which takes longer than to copy
/// it; so it stays as it was, and what is multiplied there goes nowhere. An empty side has the line.
#[inline(always)]
#[must_use]
pub const fn box_width(side: u32, span: u32) -> u32 {
    if side == 0 || side >= span { span } else { side.next_multiple_of(span / LINE_UNITS) }
}

/// How the operand lies in memory, and so in a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Major {
    /// k is contiguous: a box is [`TmaTile::box_lines`] rows of m (or n) by 128 bytes of k.
    K,
    /// m (or n) is contiguous: boxes of 128 bytes of it ([`box_width`]) by as many elements of k, one behind
    /// the other; or by fewer, where blocks share a tile out.
    Mn,
}

impl Major {
    /// By whether m (or n) is contiguous: as the operand is said to be transposed.
    #[must_use]
    pub const fn of(is_transposed: bool) -> Self {
        if is_transposed { Self::Mn } else { Self::K }
    }

    /// Bytes in a stage of so many rows of m (or n).
    #[inline(always)]
    #[must_use]
    pub const fn bytes(self, rows: u32) -> u32 {
        match self {
            Self::K => rows * LINE_BYTES,
            Self::Mn => rows.div_ceil(BOX_ELEMENTS) * BOX_BYTES,
        }
    }

    /// Can so many blocks share out the copies of a tile of so many rows, where 128 bytes are `span`
    /// elements? Each copies whole rows of the swizzle's pattern, in boxes of equal size.
    #[must_use]
    pub const fn can_share(self, rows: u32, span: u32, sharers: u32) -> bool {
        let lines = self.bytes(rows) / LINE_BYTES;
        let part = lines / sharers;
        lines.is_multiple_of(sharers * PATTERN_LINES)
            && match self {
                Self::K => true,
                Self::Mn => part.is_multiple_of(span) || span.is_multiple_of(part),
            }
    }
}

/// A block's part of the copies of a tile: all of it, or, where blocks of a cluster need the same tile, an
/// equal part that goes to all of them at once. A tile has a line of 128 bytes for each row of m or n; where
/// k is not contiguous, a line is an element of k, of `span` rows.
#[derive(Clone, Copy)]
pub struct TmaTile {
    /// How the operand lies.
    pub major: Major,
    /// Rows of m or n of the tile.
    pub rows: u32,
    /// Elements in 128 bytes.
    pub span: u32,
    /// Lines of this block's part.
    pub part: u32,
    /// The first of them.
    pub first: u32,
    /// A bit for the rank of each block that needs the tile.
    pub mask: u16,
    /// Whether those are several.
    pub is_shared: bool,
    /// Lines of a box. They divide the part, or are all of the matrix; where k is not contiguous, they divide
    /// `span` too.
    pub box_lines: u32,
}

impl TmaTile {
    /// The part of a block that is number `index` of `sharers`, a power of two.
    #[inline(always)]
    #[must_use]
    pub fn new(major: Major, [rows, span]: [u32; 2], [index, sharers]: [u32; 2], mask: u16) -> Self {
        let is_shared = sharers > 1;
        let lines = major.bytes(rows) / LINE_BYTES;
        let part = lines >> sharers.trailing_zeros();
        let box_lines = match major {
            Major::K => part,
            Major::Mn => part.min(span),
        };
        Self { major, rows, span, part, first: index * part, mask, is_shared, box_lines }
    }

    /// Rows of the boxes that have rows of a matrix which ends at `end`, where the tile begins at `first`.
    #[inline(always)]
    #[must_use]
    pub const fn rows_inside(self, first: u32, end: u32) -> u32 {
        let left = end.saturating_sub(first);
        let inside = if left < self.rows { left } else { self.rows };
        let of_box = match self.major {
            Major::K => self.box_lines,
            Major::Mn if self.is_shared => self.span,
            Major::Mn => box_width(end, self.span),
        };
        // The other branch is for the compiler, which sees a division by 0.
        if of_box > 0 { inside.div_ceil(of_box) * of_box } else { inside }
    }

    /// Starts this block's part of the copies of a tile's first `rows` rows, whole boxes: of the rows from
    /// `first` on, and of a stage's worth of k from `k` on, of matrix `batch`.
    ///
    /// # Safety
    /// The map has dimensions `[k, rows, batch]` (or `[rows, k, batch]`) and boxes as [`Major`] says; there
    /// is room for the tile at `to`, in the shared memory of all sharers, which no thread uses until the
    /// barrier `full` has counted 128 bytes for each of `rows` rows.
    #[inline(always)]
    pub unsafe fn load(
        self,
        map: *const TensorMap,
        to: u32,
        full: u32,
        [first, k, batch]: [u32; 3],
        rows: u32,
    ) {
        let mut line = self.first;
        let end = if rows < line + self.part { rows } else { line + self.part };
        while line < end {
            let coords = match self.major {
                Major::K => [k, first + line, batch],
                Major::Mn => [first + line / self.span * self.span, k + line % self.span, batch],
            };
            // SAFETY: a box's place in the stage; the caller's contract.
            unsafe { self.copy(map, to + line * LINE_BYTES, full, coords.map(|at| at as i32)) }
            line += self.box_lines;
        }
    }

    /// One box, to all sharers.
    ///
    /// # Safety
    /// As for [`load`](Self::load).
    #[inline(always)]
    unsafe fn copy(self, map: *const TensorMap, to: u32, full: u32, coords: [i32; 3]) {
        // SAFETY: the caller's contract.
        unsafe {
            if self.is_shared {
                tma::load_3d_multicast(to, map, full, coords, self.mask);
            } else {
                tma::load_3d(to, map, full, coords);
            }
        }
    }
}
