//! The order in which thread blocks process the tiles of a matrix.

/// Coordinates `(row, column)` of the tile with number `index`. A `rows x columns` grid of tiles is traversed
/// in bands of `band` rows, column by column inside a band:
///
/// ```text
///  band = 2:   0 2 4 6
///              1 3 5 7
///              8 a c e
///              9 b d f
/// ```
/// So blocks that run at the same time touch few rows and few columns, and share their operands in the L2
/// cache. The last band may have fewer rows.
///
/// Requires `index < rows * columns` and `band > 0`. Otherwise the result is meaningless; it still does not
/// panic as long as `band * columns` is not 0.
#[inline(always)]
pub const fn grouped_tile(index: u32, rows: u32, columns: u32, band: u32) -> (u32, u32) {
    let per_band = band * columns;
    // `max(1)` tells the compiler that the divisor is not zero, so it emits no panic.
    let per_band = if per_band == 0 { 1 } else { per_band };
    let first_row = index / per_band * band;
    let within = index % per_band;
    let left = rows.wrapping_sub(first_row);
    let height = if left < band { left } else { band };
    let height = if height == 0 { 1 } else { height };
    (first_row + within % height, within / height)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::grouped_tile;
    use std::{vec, vec::Vec};

    #[test]
    fn the_picture_in_the_documentation() {
        let walk: Vec<_> = (0..10).map(|index| grouped_tile(index, 4, 4, 2)).collect();
        let want = [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 0), (3, 0)];
        assert_eq!(walk, want);
    }

    #[test]
    fn every_tile_is_taken_once() {
        for rows in 1..12 {
            for columns in 1..12 {
                for band in 1..10 {
                    let mut seen = vec![false; (rows * columns) as usize];
                    for index in 0..rows * columns {
                        let (row, column) = grouped_tile(index, rows, columns, band);
                        assert!(row < rows && column < columns);
                        let place = &mut seen[(row * columns + column) as usize];
                        assert!(!*place, "{rows}x{columns} band {band}: ({row}, {column}) twice");
                        *place = true;
                    }
                }
            }
        }
    }
}
