//! The model of shared memory for tests of layouts: 32 banks, each 4 bytes wide.

/// Banks of shared memory.
pub const BANKS: u32 = 32;
/// Bytes that a bank delivers in one pass.
pub const BANK_BYTES: u32 = 4;

/// Passes of a 4-byte access per lane at these byte addresses: the largest number of different words in one
/// bank.
pub fn wavefronts_4(addresses: &[u32]) -> u32 {
    let word = |address: &u32| address / BANK_BYTES;
    let conflicts = |bank: u32| {
        let mut words = 0;
        for (index, address) in addresses.iter().enumerate() {
            let first = !addresses[..index].iter().any(|earlier| word(earlier) == word(address));
            words += u32::from(first && word(address) % BANKS == bank);
        }
        words
    };
    (0..BANKS).map(conflicts).max().unwrap_or(0)
}

/// Passes of a 16-byte access by a quarter of a warp (up to 8 lanes) at these byte addresses.
pub fn wavefronts_16(addresses: &[u32]) -> u32 {
    (0..4).map(|word| wavefronts_4_at(addresses, word * BANK_BYTES)).max().unwrap_or(0)
}

fn wavefronts_4_at(addresses: &[u32], offset: u32) -> u32 {
    let mut moved = [0; 32];
    let count = addresses.len().min(moved.len());
    for (to, from) in moved.iter_mut().zip(addresses) {
        *to = from + offset;
    }
    wavefronts_4(&moved[..count])
}

#[cfg(test)]
mod tests {
    use super::{wavefronts_4, wavefronts_16};

    #[test]
    fn known_patterns() {
        let stride = |bytes: u32| -> [u32; 32] { core::array::from_fn(|lane| lane as u32 * bytes) };
        assert_eq!(wavefronts_4(&stride(0)), 1, "broadcast");
        assert_eq!(wavefronts_4(&stride(4)), 1);
        assert_eq!(wavefronts_4(&stride(8)), 2);
        assert_eq!(wavefronts_4(&stride(128)), 32);
        assert_eq!(wavefronts_4(&stride(132)), 1);
        assert_eq!(wavefronts_16(&stride(16)[..8]), 1);
        assert_eq!(wavefronts_16(&stride(32)[..8]), 2);
        assert_eq!(wavefronts_16(&stride(128)[..8]), 8);
    }
}
