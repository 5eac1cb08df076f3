//! A list of the best `k` candidates in shared memory, kept by one warp.

use crate::key::{EMPTY, join, split};
use cuda_std::warp::FULL_MASK;
use cuda_std::{shared, vector, warp};
use primitives::warp::{LANES, broadcast};

/// Bytes of a key in shared and in global memory.
pub const KEY_BYTES: u32 = size_of::<u64>() as u32;

/// The 32-bit shared address of the block's dynamic shared memory, aligned to [`shared::DYNAMIC_ALIGN`].
#[inline(always)]
pub fn dynamic_shared_address() -> u32 {
    shared::address_of(shared::dynamic_shared_mem::<u8>())
}

/// Loads a key from shared memory.
///
/// # Safety
/// `address` is that of a key in this block's shared memory, aligned to 8.
#[inline(always)]
pub unsafe fn load_key(address: u32) -> u64 {
    // SAFETY: the caller's contract.
    let [low, high] = unsafe { vector::load_shared_v2::<u32>(address) };
    join(high, low)
}

/// Stores a key to shared memory.
///
/// # Safety
/// As [`load_key`].
#[inline(always)]
pub unsafe fn store_key(address: u32, key: u64) {
    let (high, low) = split(key);
    // SAFETY: the caller's contract.
    unsafe { vector::store_shared_v2(address, [low, high]) }
}

/// `k` keys in shared memory, best first. All of a warp's lanes call each function together, with the same
/// list.
#[derive(Clone, Copy)]
pub struct TopList {
    address: u32,
    k: u32,
}

impl TopList {
    /// The list of `k >= 1` keys at this shared address.
    #[inline(always)]
    pub fn new(address: u32, k: u32) -> Self {
        TopList { address, k }
    }

    #[inline(always)]
    fn place(self, rank: u32) -> u32 {
        self.address + rank * KEY_BYTES
    }

    /// Empties the list.
    ///
    /// # Safety
    /// The list lies in this block's shared memory and no other warp uses it.
    #[inline(always)]
    pub unsafe fn clear(self) {
        let mut rank = warp::lane_id();
        while rank < self.k {
            // SAFETY: `rank < k`, inside the list.
            unsafe { store_key(self.place(rank), EMPTY) };
            rank += LANES;
        }
        // SAFETY: the whole warp is here.
        unsafe { warp::sync_warp(FULL_MASK) };
    }

    /// The key at `rank`, [`EMPTY`] past the end.
    ///
    /// # Safety
    /// As [`clear`](Self::clear), but other warps may read too.
    #[inline(always)]
    pub unsafe fn get(self, rank: u32) -> u64 {
        // SAFETY: `rank < k`, inside the list.
        if rank < self.k { unsafe { load_key(self.place(rank)) } } else { EMPTY }
    }

    /// The worst key of the list: what a candidate must beat.
    ///
    /// # Safety
    /// As [`get`](Self::get).
    #[inline(always)]
    pub unsafe fn worst(self) -> u64 {
        // SAFETY: the list has at least one key.
        unsafe { load_key(self.place(self.k - 1)) }
    }

    /// Puts `key`, the same in all lanes, in its place when it beats [`worst`](Self::worst), which is
    /// returned.
    ///
    /// # Safety
    /// As [`clear`](Self::clear).
    #[inline(always)]
    pub unsafe fn insert(self, key: u64) -> u64 {
        // SAFETY: every rank is below `k`; the barriers order this warp's loads before its stores and those
        // before the next loads.
        unsafe {
            if key <= self.worst() {
                return self.worst();
            }
            let lane = warp::lane_id();
            // From the worst segment up: a segment's stores touch no place that is still to be read.
            let mut first = (self.k - 1) / LANES * LANES;
            loop {
                let rank = first + lane;
                let inside = rank < self.k;
                let here = self.get(rank);
                let above = if inside && rank > 0 { self.get(rank - 1) } else { u64::MAX };
                warp::sync_warp(FULL_MASK);
                if inside && here < key {
                    store_key(self.place(rank), if above > key { key } else { above });
                }
                warp::sync_warp(FULL_MASK);
                let placed = inside && here < key && above > key;
                if warp::warp_vote_any(FULL_MASK, placed) {
                    return self.worst();
                }
                first -= LANES;
            }
        }
    }

    /// Offers each lane's key ([`EMPTY`] for none) and returns the worst key of the list after that.
    ///
    /// # Safety
    /// As [`clear`](Self::clear).
    #[inline(always)]
    pub unsafe fn offer(self, key: u64) -> u64 {
        // SAFETY: the caller's contract.
        unsafe {
            let mut worst = self.worst();
            let mut waiting = warp::warp_vote_ballot(FULL_MASK, key > worst);
            while waiting != 0 {
                worst = self.insert(broadcast(key, waiting.trailing_zeros()));
                waiting &= waiting - 1;
            }
            worst
        }
    }

    /// Offers all keys of another list, which no thread writes.
    ///
    /// # Safety
    /// As [`clear`](Self::clear) for this list and [`get`](Self::get) for the other.
    #[inline(always)]
    pub unsafe fn merge(self, other: TopList) {
        let mut first = 0;
        while first < other.k {
            // SAFETY: the caller's contract.
            unsafe { self.offer(other.get(first + warp::lane_id())) };
            first += LANES;
        }
    }
}
