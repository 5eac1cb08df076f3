//! Tiles of an operand that the copy engine (TMA) brings to shared memory, alone or shared out over a
//! cluster.

use cuda_std::tma::{self, TensorMap};
use layout::wgmma::Swizzle;

/// Bytes of a line of a box: the span of the widest swizzle.
pub const LINE_BYTES: u32 = Swizzle::B128.span();
/// Lines of a box of an operand of 16 bits whose contiguous dimension is not k, and its elements along that
/// dimension.
pub const BOX_ELEMENTS: u32 = 64;
/// Bytes of such a box.
pub const BOX_BYTES: u32 = BOX_ELEMENTS * LINE_BYTES;

/// How the operand lies in memory, and so in a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Major {
    /// k is contiguous: a box is [`TmaTile::box_rows`] rows of m (or n) by 128 bytes of k.
    K,
    /// m (or n) is contiguous: boxes of 128 bytes of it by as many elements of k, one behind the other.
    Mn,
}

impl Major {
    /// Bytes in a stage of so many rows of m (or n).
    #[inline(always)]
    #[must_use]
    pub const fn bytes(self, rows: u32) -> u32 {
        match self {
            Self::K => rows * LINE_BYTES,
            Self::Mn => rows.div_ceil(BOX_ELEMENTS) * BOX_BYTES,
        }
    }

    /// Rows that go to one block, at least, where blocks share a tile out: whole rows of the swizzle's
    /// pattern, or whole boxes.
    #[must_use]
    pub const fn granule(self) -> u32 {
        match self {
            Self::K => 8,
            Self::Mn => BOX_ELEMENTS,
        }
    }
}

/// A block's part of the copies of a tile: all of it, or, where blocks of a cluster need the same tile, an
/// equal part that goes to all of them at once.
#[derive(Clone, Copy)]
pub struct TmaTile {
    /// How the operand lies.
    pub major: Major,
    /// Rows of m or n of the tile.
    pub rows: u32,
    /// Blocks that need it.
    pub sharers: u32,
    /// This one's number among them.
    pub index: u32,
    /// A bit for the rank of each of them.
    pub mask: u16,
    /// Rows of a box. It divides this block's part, or is all of the matrix; where k is not contiguous, it is
    /// 128 bytes of elements.
    pub box_rows: u32,
}

impl TmaTile {
    /// Rows of the boxes that have rows of a matrix which ends at `end`, where the tile begins at `first`.
    #[inline(always)]
    #[must_use]
    pub const fn rows_inside(self, first: u32, end: u32) -> u32 {
        let left = end.saturating_sub(first);
        let inside = if left < self.rows { left } else { self.rows };
        inside.div_ceil(self.box_rows) * self.box_rows
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
        let part = self.major.bytes(self.rows) / LINE_BYTES / self.sharers;
        let mut row = self.index * part;
        let end = if rows < row + part { rows } else { row + part };
        while row < end {
            let (k, row_of_map, batch) = (k as i32, (first + row) as i32, batch as i32);
            let coords = match self.major {
                Major::K => [k, row_of_map, batch],
                Major::Mn => [row_of_map, k, batch],
            };
            // SAFETY: a box's place in the stage; the caller's contract.
            unsafe { self.copy(map, to + row * LINE_BYTES, full, coords) }
            row += self.box_rows;
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
            if self.sharers > 1 {
                tma::load_3d_multicast(to, map, full, coords, self.mask);
            } else {
                tma::load_3d(to, map, full, coords);
            }
        }
    }
}
