//! The positions of the 32 lanes of a warp in the tile that the warp computes.

/// Row and column of a lane when the warp's 32 lanes form `8 rows x 4 columns` in the interleaved order:
///
/// ```text
///   lane:  0  2  4  6        rows 0, 1: lanes 0..8, neighbours stacked in pairs
///          1  3  5  7
///          8 10 12 14        rows 2, 3: lanes 8..16
///          9 11 13 15
///          ..                rows 4..8: lanes 16..32
/// ```
/// Lanes `i` and `i ^ 1` share their column, `i` and `i ^ 2` their row. For these two patterns of equal
/// addresses the hardware serves two quarters of a warp at once in a 16-byte shared-memory load. So operands
/// read by row and by column both take two passes. A plain order takes four.
#[inline(always)]
pub const fn interleaved_lane(lane: u32) -> (u32, u32) {
    (lane / 8 * 2 + lane % 2, lane % 8 / 2)
}

#[cfg(test)]
mod tests {
    use super::interleaved_lane;

    #[test]
    fn lanes_cover_the_grid_once() {
        let mut seen = [[false; 4]; 8];
        for lane in 0..32 {
            let (row, column) = interleaved_lane(lane);
            assert!(!core::mem::replace(&mut seen[row as usize][column as usize], true));
        }
    }

    #[test]
    fn neighbours_share_columns_and_rows() {
        for lane in 0..32 {
            assert_eq!(interleaved_lane(lane).1, interleaved_lane(lane ^ 1).1);
            assert_eq!(interleaved_lane(lane).0, interleaved_lane(lane ^ 2).0);
        }
    }
}
