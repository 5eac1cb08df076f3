//! Swizzles: the place of a 16-byte unit in a shared-memory tile. Rows and columns can both be read without
//! bank conflicts.

/// The place of unit `unit` within line `line`: its low three bits are XORed with those of the line.
///
/// Eight consecutive lines put the same unit into eight different 16-byte bank groups. The units of one line
/// are permuted within aligned groups of eight. An involution: applying it twice gives `unit` back.
#[inline(always)]
pub const fn swizzle_units(unit: u32, line: u32) -> u32 {
    unit ^ (line % 8)
}

#[cfg(test)]
mod tests {
    use super::swizzle_units;
    use crate::banks::wavefronts_16;

    #[test]
    fn rows_and_columns_are_free_of_conflicts() {
        for units_per_line in [8, 16, 32] {
            let address = |line: u32, unit: u32| (line * units_per_line + swizzle_units(unit, line)) * 16;
            for first in 0..32 {
                for unit in 0..units_per_line {
                    let down: [u32; 8] = core::array::from_fn(|lane| address(first + lane as u32, unit));
                    assert_eq!(wavefronts_16(&down), 1);
                }
                for group in 0..units_per_line / 8 {
                    let across: [u32; 8] =
                        core::array::from_fn(|lane| address(first, group * 8 + lane as u32));
                    assert_eq!(wavefronts_16(&across), 1);
                }
            }
        }
    }

    #[test]
    fn it_is_an_involution_that_stays_in_its_line() {
        for line in 0..64 {
            for unit in 0..64 {
                assert_eq!(swizzle_units(swizzle_units(unit, line), line), unit);
                assert_eq!(swizzle_units(unit, line) / 8, unit / 8);
            }
        }
    }
}
