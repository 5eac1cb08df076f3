//! The free list of one kind of block, indexed by size.
//!
//! Bins hold rising sizes, eight bins per power of two. Each bin is sorted, and a bitmap says which bins have
//! blocks. The best fit is the smallest block that is large enough; among equals, the one at the lowest
//! address. It is the last entry of the first non-empty bin above the request's own bin, or bisection finds
//! it in that bin.

use crate::size::GRANULE;

/// Bins for sizes up to this many granules hold one size each.
const EXACT: u64 = 16;
/// Base-2 logarithm of the number of bins per power of two above that.
const STEPS_LOG2: u32 = 3;
const STEPS: usize = 1 << STEPS_LOG2;
/// Sizes are below 2^64 bytes.
const BINS: usize = EXACT as usize + (64 - GRANULE.ilog2() as usize - EXACT.ilog2() as usize) * STEPS;
const WORDS: usize = BINS.div_ceil(64);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    bytes: u64,
    address: u64,
    block: u32,
}

#[derive(Debug)]
pub(crate) struct Bins {
    /// Each bin is in falling order, so that the best entry is popped from the end.
    bins: Vec<Vec<Entry>>,
    filled: [u64; WORDS],
}

/// The bin for blocks of this size.
fn bin_of(bytes: u64) -> usize {
    let granules = bytes / GRANULE;
    if granules < EXACT {
        return granules as usize;
    }
    let octave = granules.ilog2();
    let step = (granules >> (octave - STEPS_LOG2)) as usize & (STEPS - 1);
    EXACT as usize + (octave - EXACT.ilog2()) as usize * STEPS + step
}

impl Bins {
    pub fn new() -> Self {
        Bins { bins: vec![Vec::new(); BINS], filled: [0; WORDS] }
    }

    pub fn insert(&mut self, bytes: u64, address: u64, block: u32) {
        let entry = Entry { bytes, address, block };
        let bin = bin_of(bytes);
        let entries = &mut self.bins[bin];
        let place = entries.partition_point(|e| *e > entry);
        entries.insert(place, entry);
        self.filled[bin / 64] |= 1 << (bin % 64);
    }

    pub fn remove(&mut self, bytes: u64, address: u64) {
        let bin = bin_of(bytes);
        let entries = &mut self.bins[bin];
        let place = entries.partition_point(|e| (e.bytes, e.address) > (bytes, address));
        debug_assert!(entries.get(place).is_some_and(|e| (e.bytes, e.address) == (bytes, address)));
        entries.remove(place);
        self.note(bin);
    }

    /// Takes the smallest block of at least that size.
    pub fn take(&mut self, bytes: u64) -> Option<u32> {
        let own = bin_of(bytes);
        let fitting = self.bins[own].partition_point(|e| e.bytes >= bytes);
        let (bin, place) = match fitting.checked_sub(1) {
            Some(smallest) => (own, smallest),
            None => {
                let bin = self.first_filled(own + 1)?;
                (bin, self.bins[bin].len() - 1)
            }
        };
        let entry = self.bins[bin].remove(place);
        self.note(bin);
        Some(entry.block)
    }

    /// Bytes of the largest block, or 0.
    pub fn largest(&self) -> u64 {
        let last = self.filled.iter().enumerate().rev().find(|(_, bits)| **bits != 0);
        let bin = last.map(|(word, bits)| word * 64 + 63 - bits.leading_zeros() as usize);
        bin.and_then(|bin| self.bins[bin].first()).map_or(0, |e| e.bytes)
    }

    fn first_filled(&self, from: usize) -> Option<usize> {
        let mut word = from / 64;
        let mut bits = self.filled.get(word)? & (u64::MAX << (from % 64));
        while bits == 0 {
            word += 1;
            bits = *self.filled.get(word)?;
        }
        Some(word * 64 + bits.trailing_zeros() as usize)
    }

    fn note(&mut self, bin: usize) {
        if self.bins[bin].is_empty() {
            self.filled[bin / 64] &= !(1 << (bin % 64));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{BINS, Bins, bin_of};
    use crate::size::GRANULE;

    #[test]
    fn bins_rise_with_sizes() {
        let mut last = 0;
        for granules in (1..5000).chain((13..54).map(|p| 1u64 << p)).chain([(1 << 55) - 1]) {
            let bin = bin_of(granules * GRANULE);
            assert!((last..BINS).contains(&bin), "{granules}: {bin} after {last}");
            last = bin;
        }
    }

    #[test]
    fn the_best_fit_is_the_smallest_at_the_lowest_address() {
        let mut bins = Bins::new();
        let blocks = [(17, 90), (17, 10), (18, 5), (40, 1), (3, 7), (1 << 30, 8)];
        for (i, (granules, address)) in blocks.into_iter().enumerate() {
            bins.insert(granules * GRANULE, address, i as u32);
        }
        assert_eq!(bins.largest(), GRANULE << 30);
        // 17 and 18 share a bin with 16.
        let order = [(16, Some(1)), (16, Some(0)), (17, Some(2)), (4, Some(3)), (1, Some(4)), (1, Some(5))];
        for (granules, block) in order.into_iter().chain([(1, None)]) {
            assert_eq!(bins.take(granules * GRANULE), block, "{granules}");
        }
        assert_eq!(bins.largest(), 0);
    }

    #[test]
    fn a_block_is_removed_by_its_place() {
        let mut bins = Bins::new();
        for address in 0..4 {
            bins.insert(GRANULE, address, address as u32);
        }
        bins.remove(GRANULE, 0);
        bins.remove(GRANULE, 2);
        assert_eq!([bins.take(GRANULE), bins.take(GRANULE), bins.take(GRANULE)], [Some(1), Some(3), None]);
    }
}
