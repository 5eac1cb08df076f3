//! Rows in shared memory as tensor cores read them: units of 16 bytes, permuted by the swizzle.

use layout::UNIT_BYTES;
#[cfg(feature = "kernels")]
use layout::swizzle_units;

/// The part of a tile in shared memory that a lane reads, two units of 16 bytes after the other.
#[derive(Clone, Copy)]
pub(crate) struct Lines {
    /// Address of the lane's line.
    first: u32,
    /// Place of the first unit in it.
    unit: u32,
}

impl Lines {
    /// From the line at this address on, whose unit has that place in it.
    #[inline(always)]
    pub(crate) const fn new(first: u32, unit: u32) -> Self {
        Self { first, unit }
    }

    /// The same of a tile of lines of `bytes` bytes, in the pattern of [`swizzle_units`].
    #[cfg(feature = "kernels")]
    #[inline(always)]
    pub(crate) const fn of_tile(tile: u32, bytes: u32, line: u32, unit: u32) -> Self {
        Self::new(tile + line * bytes, swizzle_units(unit, line))
    }

    /// Address of the unit two times `step` behind the first.
    #[inline(always)]
    pub(crate) fn at(self, step: usize) -> u32 {
        // Units of even distance: the exclusive or is that of `swizzle_units`. It changes three bits of the
        // unit; those above them become a part of the instruction.
        let unit = 2 * step as u32;
        self.first + (self.unit ^ (unit % 8)) * UNIT_BYTES + unit / 8 * (8 * UNIT_BYTES)
    }
}
