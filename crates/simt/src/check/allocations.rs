//! Global allocations that the program has made known.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

/// The contents of a new allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contents {
    /// Values, in every byte.
    Given,
    /// Nothing: its bytes have no values.
    Unwritten,
}

/// A range of global memory.
#[derive(Debug)]
pub(crate) struct Allocation {
    pub start: usize,
    pub len: usize,
    pub label: String,
    /// A bit for each byte that has a value; `None` if all have.
    written: Option<Box<[AtomicU64]>>,
    /// Whether code whose stores are not seen may have written any byte.
    may_be_written: AtomicBool,
}

impl Allocation {
    pub fn contains(&self, address: usize) -> bool {
        address.wrapping_sub(self.start) < self.len
    }

    /// The words of `written` for `bytes` bytes from `offset`, with the bits of these.
    fn words(&self, offset: usize, bytes: usize) -> impl Iterator<Item = (&AtomicU64, u64)> {
        let end = offset + bytes;
        let first = offset / 64;
        let all = self.written.as_deref().unwrap_or_default();
        let words = all.get(first..end.div_ceil(64)).unwrap_or_default();
        words.iter().zip(first..).map(move |(word, number)| {
            let from = offset.saturating_sub(64 * number);
            let to = (end - 64 * number).min(64);
            (word, u64::MAX >> (64 - to) & u64::MAX << from)
        })
    }

    /// Records that bytes have values.
    pub fn written(&self, offset: usize, bytes: usize) {
        for (word, bits) in self.words(offset, bytes) {
            if word.load(Ordering::Relaxed) & bits != bits {
                word.fetch_or(bits, Ordering::Relaxed);
            }
        }
    }

    /// Records that bytes have no values.
    fn forgotten(&self, offset: usize, bytes: usize) {
        self.words(offset, bytes).for_each(|(word, bits)| {
            word.fetch_and(!bits, Ordering::Relaxed);
        });
    }

    /// Whether all of these bytes have values, or may have.
    pub fn is_written(&self, offset: usize, bytes: usize) -> bool {
        self.words(offset, bytes).all(|(word, bits)| word.load(Ordering::Relaxed) & bits == bits)
            || self.may_be_written.load(Ordering::Relaxed)
    }

    /// Runs of bytes without values among `bytes` bytes from `offset`: their offsets and lengths.
    fn unwritten(&self, offset: usize, bytes: usize) -> impl Iterator<Item = (usize, usize)> {
        let (mut at, end) = (offset, offset + bytes);
        let next = move |at: usize, wanted: bool| (at..end).find(|&at| self.is_written(at, 1) == wanted);
        std::iter::from_fn(move || {
            let start = next(at, false)?;
            at = next(start, true).unwrap_or(end);
            Some((start, at - start))
        })
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

/// Counts the changes of the table.
static CHANGES: AtomicU64 = AtomicU64::new(0);

impl Table {
    /// Live allocations have changed.
    fn changed(&mut self) {
        self.snapshot.take();
        CHANGES.fetch_add(1, Ordering::Release);
    }
}

static TABLE: RwLock<Table> =
    RwLock::new(Table { live: BTreeMap::new(), freed: VecDeque::new(), snapshot: OnceLock::new() });

/// A walk over the table, which need not be done again while live allocations stay the same.
struct Walk(AtomicU64);

impl Walk {
    const fn new() -> Self {
        Self(AtomicU64::new(u64::MAX))
    }

    /// `changes` is read before the walk: what is new since then is met by the next one.
    fn unless_done_at(&self, changes: u64, walk: impl FnOnce()) {
        if self.0.load(Ordering::Acquire) != changes {
            walk();
            self.0.store(changes, Ordering::Release);
        }
    }
}

/// The table of all allocations.
pub(crate) struct Allocations;

impl Allocations {
    pub fn add(start: usize, len: usize, label: &str, contents: Contents) {
        let bits = || (0..len.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        let written = (contents == Contents::Unwritten).then(bits);
        let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
        let end = start.saturating_add(len);
        table.freed.retain(|freed| freed.end() <= start || end <= freed.start);
        table.live.retain(|_, live| live.end() <= start || end <= live.start);
        let may_be_written = AtomicBool::new(false);
        let allocation = Allocation { start, len, label: label.into(), written, may_be_written };
        table.live.insert(start, Arc::new(allocation));
        table.changed();
    }

    /// Removes a freed allocation: later accesses are use after free.
    pub fn remove(start: usize) {
        let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(allocation) = table.live.remove(&start) {
            table.freed.push_back(allocation);
            if table.freed.len() > FREED {
                table.freed.pop_front();
            }
            table.changed();
        }
    }

    /// Forgets an allocation: the memory stays valid, but unknown.
    pub fn forget(start: usize) {
        let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
        table.live.remove(&start);
        table.changed();
    }

    /// Bytes have been written.
    pub fn written(start: usize, bytes: usize) {
        Self::each_part(start, bytes, |allocation, offset, bytes| allocation.written(offset, bytes));
    }

    /// A kernel whose stores are not seen may write all live allocations.
    pub fn may_be_written() {
        static WALK: Walk = Walk::new();
        WALK.unless_done_at(Self::changes(), || {
            Self::snapshot()
                .iter()
                .for_each(|allocation| allocation.may_be_written.store(true, Ordering::Relaxed));
        });
    }

    /// Bytes have been copied; those that have no values take none along.
    pub fn copied(to: usize, from: usize, bytes: usize) {
        Self::written(to, bytes);
        Self::each_part(from, bytes, |source, offset, bytes| {
            if source.is_written(offset, bytes) {
                return;
            }
            let to = to + (source.start + offset - from);
            for (at, bytes) in source.unwritten(offset, bytes) {
                Self::each_part(to + at - offset, bytes, |copy, offset, bytes| copy.forgotten(offset, bytes));
            }
        });
    }

    /// Calls `each` with the live allocations in a range, and the parts of them that lie in it.
    fn each_part(start: usize, bytes: usize, each: impl Fn(&Allocation, usize, usize)) {
        let all = Self::snapshot();
        let first = all.partition_point(|allocation| allocation.end() <= start);
        let end = start.saturating_add(bytes);
        for allocation in all[first..].iter().take_while(|allocation| allocation.start < end) {
            let from = start.max(allocation.start);
            each(allocation, from - allocation.start, end.min(allocation.end()) - from);
        }
    }

    /// How many times live allocations have changed.
    pub fn changes() -> u64 {
        CHANGES.load(Ordering::Acquire)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_walked_again_once_it_has_changed() {
        let (walk, mut walks) = (Walk::new(), 0);
        for changes in [0, 0, 1, 1, 1, 2] {
            walk.unless_done_at(changes, || walks += 1);
        }
        assert_eq!(walks, 3);
    }
}
