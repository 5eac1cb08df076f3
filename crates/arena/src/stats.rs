//! What a cache holds, in numbers.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a cache holds. Sizes in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Stats {
    /// In blocks that are in use.
    pub live: u64,
    /// The most that `live` has been since the start or [`reset_peaks`](crate::Cache::reset_peaks), or up to 1 MiB a stream more.
    pub peak_live: u64,
    /// Asked for by those who use the blocks; `live` is this, rounded up.
    pub requested: u64,
    /// Taken from the system: in use, waiting, or kept for later.
    pub reserved: u64,
    /// The most that `reserved` has been since the start or [`reset_peaks`](crate::Cache::reset_peaks).
    pub peak_reserved: u64,
    /// Given up by their owners while other streams may still work on them.
    pub pending: u64,
    /// The largest free block.
    pub largest_free: u64,
    /// What `reserved` may come to at most.
    pub limit: Option<u64>,
    /// Blocks in use.
    pub live_blocks: u64,
    /// Segments held.
    pub segments: u64,
    /// Blocks given out so far.
    pub allocations: u64,
    /// Segments taken from the system so far.
    pub reserves: u64,
    /// Segments given back to the system so far.
    pub releases: u64,
    /// Times that memory ran short, so that pending blocks were waited for and idle segments released.
    pub reclaims: u64,
}

impl Stats {
    /// Kept for later requests, in bytes.
    pub fn free(&self) -> u64 {
        self.reserved.saturating_sub(self.live + self.pending)
    }

    /// How scattered the free memory is: 0 when it is one block, near 1 when it is crumbs.
    pub fn fragmentation(&self) -> f64 {
        if self.free() == 0 { 0.0 } else { 1.0 - self.largest_free as f64 / self.free() as f64 }
    }
}

/// What has to be right across heaps at every moment; everything else is added up when asked for.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    /// As heaps have told: see `Cache`.
    live: AtomicU64,
    peak_live: AtomicU64,
    /// What is held and what is being asked for, for the limit.
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
    /// A heap has so much more in use.
    pub fn raise_live(&self, bytes: u64) {
        raise(&self.peak_live, self.live.fetch_add(bytes, Ordering::Relaxed) + bytes);
    }

    /// A heap has so much less in use.
    pub fn lower_live(&self, bytes: u64) {
        self.live.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Claims `bytes` before they are asked for, unless that goes beyond `limit`.
    pub fn claim(&self, bytes: u64, limit: u64) -> bool {
        let within = |claimed: u64| claimed.checked_add(bytes).filter(|&total| total <= limit);
        self.claimed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).is_ok()
    }

    /// What was claimed has not been had.
    pub fn disclaim(&self, bytes: u64) {
        self.claimed.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// What was claimed has been had.
    pub fn reserve(&self, bytes: u64) {
        self.reserves.fetch_add(1, Ordering::Relaxed);
        raise(&self.peak_reserved, self.reserved.fetch_add(bytes, Ordering::Relaxed) + bytes);
    }

    /// Counts a segment as gone while `release` gives it back, and for good when that succeeds: from then on another heap may have
    /// its bytes.
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

    /// The part of the statistics that is kept here.
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
