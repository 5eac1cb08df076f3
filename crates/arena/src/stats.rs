//! Statistics of a cache.

use std::sync::atomic::{AtomicU64, Ordering};

/// Statistics of a cache. Sizes are in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Stats {
    /// Bytes of blocks in use.
    pub live: u64,
    /// The peak of `live` since the start or [`reset_peaks`](crate::Cache::reset_peaks). May be up to 1 MiB
    /// per stream too high.
    pub peak_live: u64,
    /// Bytes that users requested. `live` is this, rounded up per block.
    pub requested: u64,
    /// Bytes reserved from the system: in use, pending or free.
    pub reserved: u64,
    /// The peak of `reserved` since the start or [`reset_peaks`](crate::Cache::reset_peaks).
    pub peak_reserved: u64,
    /// Bytes of freed blocks that other streams may still use.
    pub pending: u64,
    /// Bytes of the largest free block.
    pub largest_free: u64,
    /// The upper limit of `reserved`.
    pub limit: Option<u64>,
    /// Blocks in use.
    pub live_blocks: u64,
    /// Segments that are reserved now.
    pub segments: u64,
    /// Allocations so far.
    pub allocations: u64,
    /// Segments reserved from the system so far.
    pub reserves: u64,
    /// Segments released to the system so far.
    pub releases: u64,
    /// How often memory ran short: pending blocks were waited for and idle segments released.
    pub reclaims: u64,
}

impl Stats {
    /// Free bytes, kept for later requests.
    pub fn free(&self) -> u64 {
        self.reserved.saturating_sub(self.live + self.pending)
    }

    /// Fragmentation of the free memory: 0 if it is one block, near 1 if it is many small blocks.
    pub fn fragmentation(&self) -> f64 {
        if self.free() == 0 { 0.0 } else { 1.0 - self.largest_free as f64 / self.free() as f64 }
    }
}

/// Totals over all heaps that must be correct at every moment. The other totals are computed on request.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    /// The bytes that heaps have published, see `Cache`.
    live: AtomicU64,
    peak_live: AtomicU64,
    /// Bytes reserved, plus bytes being requested. The limit applies to this.
    claimed: AtomicU64,
    reserved: AtomicU64,
    peak_reserved: AtomicU64,
    reserves: AtomicU64,
    releases: AtomicU64,
    pub reclaims: AtomicU64,
}

fn raise(peak: &AtomicU64, to: u64) {
    // The usual case writes nothing.
    if to > peak.load(Ordering::Relaxed) {
        peak.fetch_max(to, Ordering::Relaxed);
    }
}

impl Totals {
    /// Publishes that a heap uses `bytes` more.
    pub fn raise_live(&self, bytes: u64) {
        raise(&self.peak_live, self.live.fetch_add(bytes, Ordering::Relaxed) + bytes);
    }

    /// Publishes that a heap uses `bytes` less.
    pub fn lower_live(&self, bytes: u64) {
        self.live.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Claims `bytes` before they are reserved. Fails if the sum would exceed `limit`.
    pub fn claim(&self, bytes: u64, limit: u64) -> bool {
        let within = |claimed: u64| claimed.checked_add(bytes).filter(|&total| total <= limit);
        self.claimed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).is_ok()
    }

    /// Cancels a claim: the reservation failed.
    pub fn disclaim(&self, bytes: u64) {
        self.claimed.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Confirms a claim: the reservation succeeded.
    pub fn reserve(&self, bytes: u64) {
        self.reserves.fetch_add(1, Ordering::Relaxed);
        raise(&self.peak_reserved, self.reserved.fetch_add(bytes, Ordering::Relaxed) + bytes);
    }

    /// Subtracts a segment while `release` returns it to the system, and for good if that succeeds. From then
    /// on another heap may reserve its bytes.
    pub fn release<T>(&self, bytes: u64, release: impl FnOnce() -> Result<(), T>) -> Result<(), T> {
        self.reserved.fetch_sub(bytes, Ordering::Relaxed);
        let released = release();
        if released.is_ok() {
            self.disclaim(bytes);
            self.releases.fetch_add(1, Ordering::Relaxed);
        } else {
            self.reserved.fetch_add(bytes, Ordering::Relaxed);
        }
        released
    }

    pub fn reset_peaks(&self) {
        self.peak_live.store(self.live.load(Ordering::Relaxed), Ordering::Relaxed);
        self.peak_reserved.store(self.reserved.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// The statistics that are kept here.
    pub fn stats(&self) -> Stats {
        let get = |value: &AtomicU64| value.load(Ordering::Relaxed);
        Stats {
            peak_live: get(&self.peak_live),
            reserved: get(&self.reserved),
            peak_reserved: get(&self.peak_reserved),
            reserves: get(&self.reserves),
            releases: get(&self.releases),
            reclaims: get(&self.reclaims),
            ..Stats::default()
        }
    }
}
