//! The counts by which blocks of the backward pass on Hopper keep an order; see `sm90::backward::order`.

#[cfg(any(not(target_arch = "nvptx64"), ironwarp_sm = "90a"))]
use cuda_std::atomic::intrinsics::atomic_fetch_add_relaxed_u32_device;

/// Parts of dQ of a tile of queries, at most, each with a count of its own.
pub const MAX_PARTS: u32 = 4;
/// Words before the counts: the number of the next tile of keys.
const DRAWN: usize = 1;

/// Counts of blocks, all 0 before the launch; or null where the order is free.
#[derive(Clone, Copy, Debug)]
pub struct Order(pub *mut u32);

impl Order {
    /// Words for this many tiles of queries.
    #[must_use]
    pub const fn words(tiles: usize) -> usize {
        DRAWN + MAX_PARTS as usize * tiles
    }

    /// Whether it is fixed.
    #[inline(always)]
    #[must_use]
    pub const fn is_fixed(self) -> bool {
        !self.0.is_null()
    }

    /// The number of a tile of keys: drawn, or this one where the order is free.
    ///
    /// # Safety
    /// One thread calls it for the tile; the counts are as the type says.
    #[cfg(any(not(target_arch = "nvptx64"), ironwarp_sm = "90a"))]
    #[inline(always)]
    pub(crate) unsafe fn draw(self, number: u32) -> u32 {
        if self.is_fixed() {
            // SAFETY: the counts' first word.
            unsafe { atomic_fetch_add_relaxed_u32_device(self.0, 1) }
        } else {
            number
        }
    }

    /// Makes the number of the next tile of keys 0.
    ///
    /// # Safety
    /// One thread calls it, in a launch before the one that draws.
    #[inline(always)]
    pub(crate) unsafe fn clear_drawn(self) {
        if self.is_fixed() {
            // SAFETY: the counts' first word.
            unsafe { *self.0 = 0 }
        }
    }

    /// Makes the counts of a tile of queries 0.
    ///
    /// # Safety
    /// One thread calls it for the tile, in a launch before the one that counts.
    #[inline(always)]
    pub(crate) unsafe fn clear_counts(self, tile: usize) {
        let mut part = 0;
        while self.is_fixed() && part < MAX_PARTS {
            // SAFETY: the tile's own words.
            unsafe { *self.count(tile, part) = 0 }
            part += 1;
        }
    }

    #[inline(always)]
    pub(crate) fn count(self, tile: usize, part: u32) -> *mut u32 {
        self.0.wrapping_add(DRAWN + MAX_PARTS as usize * tile + part as usize)
    }
}
