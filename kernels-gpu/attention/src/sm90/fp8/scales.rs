//! The scales of operands.

use core::f32::consts::LOG2_E;

use cuda_std::vector;

use super::config::SCALE_BLOCK;
use super::forward::Arguments;
use crate::problem::Tile;

/// A scale for each sequence, head and block of rows: `[batch, heads, blocks]`. With fewer blocks than there
/// are, the last one's is that of all that follow: of one block, a head's.
#[derive(Clone, Copy)]
pub struct Scale {
    /// Positive numbers; a block of zeros may have 0.
    pub data: *const f32,
    /// Blocks of a head, at least 1.
    pub blocks: u32,
}

/// The scales of all operands; those of keys and values are of heads of keys.
#[derive(Clone, Copy)]
pub struct Scales {
    /// Of queries.
    pub queries: Scale,
    /// Of keys.
    pub keys: Scale,
    /// Of values.
    pub values: Scale,
}

impl Scale {
    /// That of a block of a head, which has this number among those of all sequences.
    ///
    /// # Safety
    /// There is such a head.
    #[inline(always)]
    unsafe fn get(self, head: u32, block: u32) -> f32 {
        let at = head as u64 * self.blocks as u64 + block.min(self.blocks - 1) as u64;
        // SAFETY: the caller's word.
        unsafe { *self.data.add(at as usize) }
    }
}

/// The numbers of a tile's heads, of queries and of keys, among those of all sequences: in shared memory, as
/// a [`Ticket`](crate::sm90::schedule::Ticket) is.
#[derive(Clone, Copy)]
pub(super) struct TileHeads {
    pub address: u32,
}

impl TileHeads {
    /// Writes them for a tile.
    ///
    /// # Safety
    /// The place is the caller's alone; there is such a tile.
    #[inline(always)]
    pub unsafe fn write(self, arguments: Arguments<'_>, tile: Tile) {
        let params = arguments.base.params;
        // There are fewer than 2^32 heads in all, and each sequence has whole groups of them.
        let head = tile.batch * params.heads + tile.head;
        // SAFETY: the caller's word.
        unsafe { vector::store_shared_v2(self.address, [head, head / params.group.max(1)]) }
    }

    /// # Safety
    /// They have been written for the tile, and are not written again meanwhile.
    #[inline(always)]
    unsafe fn read(self) -> [u32; 2] {
        // SAFETY: the caller's word.
        unsafe { vector::load_shared_v2(self.address) }
    }

    /// The factor of a tile's scores in base 2, but for that of the keys.
    ///
    /// # Safety
    /// They have been written for the tile, and are not written again meanwhile.
    #[inline(always)]
    pub unsafe fn queries(self, arguments: Arguments<'_>, first_row: u32) -> f32 {
        // SAFETY: the caller's word.
        let scale = unsafe { arguments.scales.queries.get(self.read()[0], first_row / SCALE_BLOCK) };
        scale * arguments.base.params.scale * LOG2_E
    }

    /// The factor of a block's scores, with that of the queries. (Not 0, which has no product with what is
    /// hidden.)
    ///
    /// # Safety
    /// As for [`queries`](Self::queries).
    #[inline(always)]
    pub unsafe fn factor(self, arguments: Arguments<'_>, queries: f32, block: u32) -> f32 {
        // SAFETY: the caller's word.
        let factor = queries * unsafe { arguments.scales.keys.get(self.read()[1], block) };
        if factor == 0.0 { f32::MIN_POSITIVE } else { factor }
    }

    /// The scale of a block of values.
    ///
    /// # Safety
    /// As for [`queries`](Self::queries).
    #[inline(always)]
    pub unsafe fn values(self, arguments: Arguments<'_>, block: u32) -> f32 {
        // SAFETY: the caller's word.
        unsafe { arguments.scales.values.get(self.read()[1], block) }
    }
}
