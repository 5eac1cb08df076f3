//! Words of shared memory whose history a plain read does not change.
//!
//! A word is settled when it is written, all threads of the block know of its last write, and two reads of
//! the block's present tick are remembered. One more read by the same warp is not remembered then, nor one
//! by any warp if the two are by two ([`super::cell::Cell::read_below`]). Most reads of a tile are such
//! reads, and end at one comparison.
//!
//! Whatever orders these reads before a write of another thread ends the tick, and with it the mark: no
//! access has to clear it.

use std::cell::Cell;

use super::cell::Readers;
use super::sync::BlockSync;
use crate::exec::context::{Thread, WARP_SIZE};

pub(super) const WORD: usize = 4;

/// For each word a mark: the epoch of its tick, and whose reads change nothing.
#[derive(Default)]
pub(super) struct Settled(Vec<Cell<u64>>);

/// In place of a warp's number in a mark: reads of all warps.
const ALL: u64 = 63;
const EPOCH_SHIFT: u32 = ALL.count_ones();

impl Settled {
    pub fn resize(&mut self, bytes: usize) {
        self.0.resize(bytes.div_ceil(WORD), Cell::new(0));
    }

    /// Records that reads by these threads change nothing from now on in the words of `len` bytes from
    /// `offset`, whole words.
    #[inline]
    pub fn settle(&self, offset: usize, len: usize, sync: &BlockSync, readers: Readers) {
        let whose = match readers {
            Readers::Warp(warp) => warp.into(),
            Readers::All => ALL,
        };
        let mark = sync.epoch() << EPOCH_SHIFT | whose;
        self.0[offset / WORD..(offset + len) / WORD].iter().for_each(|word| word.set(mark));
    }

    /// Whether a read of `SIZE` aligned bytes by the thread changes nothing.
    #[inline(always)]
    pub fn is_settled<const SIZE: usize>(&self, thread: &Thread, offset: usize, sync: &BlockSync) -> bool {
        let epoch = sync.epoch() << EPOCH_SHIFT;
        let warp = u64::from(thread.rank / WARP_SIZE);
        let is_for = |mark: &Cell<u64>| {
            let whose = mark.get() ^ epoch;
            whose == warp || whose == ALL
        };
        let word = offset / WORD;
        if SIZE <= WORD {
            return self.0.get(word).is_some_and(is_for);
        }
        self.0
            .get(word..)
            .and_then(|marks| marks.get(..SIZE / WORD))
            .is_some_and(|marks| marks.iter().all(is_for))
    }
}
