//! Tiles of an operand that the copy engine (TMA) brings to shared memory, alone or shared out over a
//! cluster.

use cuda_std::tma::{self, TensorMap};
use layout::wgmma::Swizzle;

/// Bytes of a line of a box: the span of the widest swizzle.
pub const LINE_BYTES: u32 = Swizzle::B128.span();
/// Lines of a box of an operand whose contiguous dimension is not k, and its elements along that dimension.
/// 16-bit types.
pub const BOX_ELEMENTS: u32 = 64;
/// Bytes of such a box.
pub const BOX_BYTES: u32 = BOX_ELEMENTS * LINE_BYTES;

/// How the operand lies in memory, and so in a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Major {
    /// k is contiguous: a box is all rows of m (or n) by 128 bytes of k.
    K,
    /// m (or n) is contiguous: boxes of 64 elements of it by 64 of k, one behind the other.
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
}

impl TmaTile {
    /// Starts this block's part of the copies: of the rows from `first` on, and of a stage's worth of k from
    /// `k` on, of matrix `batch`.
    ///
    /// # Safety
    /// The map has dimensions `[k, rows, batch]` (or `[rows, k, batch]`) and boxes as [`Major`] says; there
    /// is room for the tile at `to`, in the shared memory of all sharers, which no thread uses until the
    /// barrier `full` has counted [`Major::bytes`].
    #[inline(always)]
    pub unsafe fn load(self, map: *const TensorMap, to: u32, full: u32, first: u32, k: u32, batch: u32) {
        match self.major {
            Major::K => {
                let part = self.rows / self.sharers;
                let row = self.index * part;
                let coords = [k as i32, (first + row) as i32, batch as i32];
                // SAFETY: the part's place in the stage; the caller's contract.
                unsafe { self.copy(map, to + row * LINE_BYTES, full, coords) }
            }
            Major::Mn => {
                let boxes = self.rows.div_ceil(BOX_ELEMENTS) / self.sharers;
                let mut index = self.index * boxes;
                let end = index + boxes;
                while index < end {
                    let coords = [(first + index * BOX_ELEMENTS) as i32, k as i32, batch as i32];
                    // SAFETY: as above.
                    unsafe { self.copy(map, to + index * BOX_BYTES, full, coords) }
                    index += 1;
                }
            }
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
