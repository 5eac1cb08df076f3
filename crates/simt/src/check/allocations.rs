//! Global allocations that the program has made known.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

/// A range of global memory.
#[derive(Debug)]
pub(crate) struct Allocation {
    pub start: usize,
    pub len: usize,
    pub label: String,
}

impl Allocation {
    pub fn contains(&self, address: usize) -> bool {
        address.wrapping_sub(self.start) < self.len
    }

    fn end(&self) -> usize {
        self.start + self.len
    }

    /// Bytes between the allocation and an address outside.
    pub fn distance(&self, address: usize) -> usize {
        if address < self.start { self.start - address } else { (address + 1).saturating_sub(self.end()) }
    }
}

/// Freed allocations remembered.
const FREED: usize = 256;

#[derive(Default)]
struct Table {
    live: BTreeMap<usize, Arc<Allocation>>,
    freed: VecDeque<Arc<Allocation>>,
    snapshot: OnceLock<Arc<[Arc<Allocation>]>>,
}

static TABLE: RwLock<Table> =
    RwLock::new(Table { live: BTreeMap::new(), freed: VecDeque::new(), snapshot: OnceLock::new() });

/// The table of all allocations.
pub(crate) struct Allocations;

impl Allocations {
    pub fn add(start: usize, len: usize, label: &str) {
        let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
        let end = start.saturating_add(len);
        table.freed.retain(|freed| freed.end() <= start || end <= freed.start);
        table.live.retain(|_, live| live.end() <= start || end <= live.start);
        table.live.insert(start, Arc::new(Allocation { start, len, label: label.into() }));
        table.snapshot.take();
    }

    /// Removes a freed allocation: later accesses are use after free.
    pub fn remove(start: usize) {
        let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(allocation) = table.live.remove(&start) {
            table.freed.push_back(allocation);
            if table.freed.len() > FREED {
                table.freed.pop_front();
            }
            table.snapshot.take();
        }
    }

    /// Forgets an allocation: the memory stays valid, but unknown.
    pub fn forget(start: usize) {
        let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
        table.live.remove(&start);
        table.snapshot.take();
    }

    /// All live allocations, sorted by address.
    pub fn snapshot() -> Arc<[Arc<Allocation>]> {
        let table = TABLE.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(table.snapshot.get_or_init(|| table.live.values().cloned().collect()))
    }

    /// Whether an address is in an allocation now.
    pub fn is_live(address: usize) -> bool {
        let table = TABLE.read().unwrap_or_else(PoisonError::into_inner);
        table.live.range(..=address).next_back().is_some_and(|(_, allocation)| allocation.contains(address))
    }

    /// The freed allocation that held an address.
    pub fn freed(address: usize) -> Option<Arc<Allocation>> {
        let table = TABLE.read().unwrap_or_else(PoisonError::into_inner);
        table.freed.iter().rev().find(|allocation| allocation.contains(address)).cloned()
    }
}
