//! The heaps of many streams over one source of memory.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::backend::{Backend, Failure};
use crate::heap::{BlockId, Heap, Idle, Site, Tally};
use crate::size::{Kind, PAGE, SHARED_SEGMENT, block_bytes, least_segment_bytes, segment_bytes};
use crate::snapshot::{HeapSnapshot, Snapshot};
use crate::stats::{Stats, Totals};

/// No limit.
const UNLIMITED: u64 = u64::MAX;
/// The limit of a heap's idle memory. Before a heap reserves another segment it releases idle ones, until it
/// holds at most its peak of bytes in use, plus this part of the peak, plus [`SPARE_BYTES`]. Without this
/// limit, sizes that change from step to step would leave a segment behind for each size. With a lower limit,
/// memory that is needed at intervals would move between the heap and the system each time.
const SPARE_PART: u64 = 64;
const SPARE_BYTES: u64 = SHARED_SEGMENT + 2 * PAGE;

/// Bytes that a heap may free without updating the shared totals.
const LIVE_SLACK: u64 = 1 << 20;

struct Pending<E> {
    block: BlockId,
    /// Events that may not be reached yet.
    events: Vec<E>,
}

struct Inner<E> {
    heap: Heap,
    /// Freed blocks that other streams may still use.
    pending: VecDeque<Pending<E>>,
    /// The time when the present graph got the heap. It uses none of the segments that are idle since then.
    claimed: u64,
    /// Bytes in use, as published in the totals of all heaps. Never less than the true value, and at most
    /// [`LIVE_SLACK`] more. So heaps seldom write to the shared totals.
    published: u64,
}

impl<E> Inner<E> {
    /// Queries at most `count` pending blocks and frees those whose events are reached.
    fn poll<B: Backend<Event = E>>(&mut self, backend: &B, count: usize) -> Result<(), B::Error> {
        for _ in 0..count.min(self.pending.len()) {
            let Some(mut waiting) = self.pending.pop_front() else { break };
            while let Some(event) = waiting.events.pop() {
                match backend.is_reached(&event) {
                    Ok(true) => backend.recycle(event),
                    Ok(false) => {
                        waiting.events.push(event);
                        break;
                    }
                    Err(error) => {
                        waiting.events.push(event);
                        self.pending.push_front(waiting);
                        return Err(error);
                    }
                }
            }
            if waiting.events.is_empty() {
                self.heap.resume(waiting.block);
            } else {
                self.pending.push_back(waiting);
            }
        }
        Ok(())
    }
}

/// The blocks of one stream. A block that its owner frees can be reused at once, because the stream runs its
/// work in order.
pub struct StreamHeap<E> {
    id: u64,
    /// Excluded from [`Cache::release_idle`]: replays of a graph also use its free blocks.
    private: AtomicBool,
    inner: Mutex<Inner<E>>,
}

impl<E> StreamHeap<E> {
    fn lock(&self) -> MutexGuard<'_, Inner<E>> {
        // No code under this lock panics half-way.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds segments that were removed and could not be released.
    fn put_back(&self, segments: Vec<Idle>) {
        let mut inner = self.lock();
        segments.into_iter().for_each(|Idle { address, bytes, kind }| {
            inner.heap.add_segment(address, bytes, kind);
        });
    }

    /// The heap's number. It is unique in the process.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Whether the heap belongs to a graph.
    pub fn is_private(&self) -> bool {
        self.private.load(Ordering::Relaxed)
    }
}

/// A block in use, until [`Cache::free`] or [`Cache::free_after`] frees it.
#[must_use = "a lease that is dropped stays in use for good"]
#[derive(Debug)]
pub struct Lease {
    /// The heap's number.
    heap: u64,
    block: BlockId,
    address: u64,
    bytes: u64,
}

impl Lease {
    /// The block's address.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The block's size: at least the requested size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// A heap whose stream is gone, and the events that end that stream's work.
struct Retired<E> {
    heap: Arc<StreamHeap<E>>,
    events: Vec<E>,
}

struct Registry<E> {
    /// Every heap, including the retired and the disowned ones.
    heaps: Vec<Arc<StreamHeap<E>>>,
    retired: Vec<Retired<E>>,
    /// Heaps of graphs that are gone. No work uses their free blocks.
    disowned: Vec<Arc<StreamHeap<E>>>,
}

/// Heaps of many streams over one source of memory. See the [crate's documentation](crate).
pub struct Cache<E> {
    totals: Totals,
    limit: AtomicU64,
    registry: Mutex<Registry<E>>,
}

impl<E> Default for Cache<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E> Cache<E> {
    /// An empty cache.
    pub fn new() -> Self {
        let registry = Registry { heaps: Vec::new(), retired: Vec::new(), disowned: Vec::new() };
        Cache { totals: Totals::default(), limit: AtomicU64::new(UNLIMITED), registry: Mutex::new(registry) }
    }

    fn registry(&self) -> MutexGuard<'_, Registry<E>> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn heaps(&self) -> Vec<Arc<StreamHeap<E>>> {
        self.registry().heaps.clone()
    }

    /// Limits the bytes that may be reserved. `None`: no limit. Memory that is already reserved stays.
    pub fn set_limit(&self, bytes: Option<u64>) {
        self.limit.store(bytes.unwrap_or(UNLIMITED), Ordering::Relaxed);
    }

    /// A heap for a new stream: a retired heap whose work is done, else a new heap.
    pub fn heap<B: Backend<Event = E>>(&self, backend: &B) -> Arc<StreamHeap<E>> {
        let mut registry = self.registry();
        if backend.may_wait() {
            // On an error the heap stays retired. The next use of the device reports the error.
            let done = |r: &Retired<E>| r.events.iter().all(|e| matches!(backend.is_reached(e), Ok(true)));
            if let Some(place) = registry.retired.iter().position(done) {
                let Retired { heap, events } = registry.retired.swap_remove(place);
                events.into_iter().for_each(|event| backend.recycle(event));
                return heap;
            }
        }
        registry.add(false)
    }

    /// A new heap, independent of all others.
    pub fn new_heap(&self) -> Arc<StreamHeap<E>> {
        self.registry().add(false)
    }

    /// A heap for the allocations of a captured graph: the heap of a graph that is gone, else a new heap. No
    /// other heap gets its memory until it is [disowned](Cache::disown).
    pub fn private_heap(&self) -> Arc<StreamHeap<E>> {
        let mut registry = self.registry();
        match registry.disowned.pop() {
            Some(heap) => {
                let mut inner = heap.lock();
                inner.claimed = inner.heap.now();
                heap.private.store(true, Ordering::Relaxed);
                drop(inner);
                heap
            }
            None => registry.add(true),
        }
    }

    /// Retires the heap of a stream that is gone. Nothing uses its free blocks once `events` are reached.
    pub fn retire(&self, heap: Arc<StreamHeap<E>>, events: Vec<E>) {
        self.registry().retired.push(Retired { heap, events });
    }

    /// Takes the private heap of a graph that is gone. The next private heap is this one, and its idle
    /// segments return to the system when memory runs short. No work that uses its free blocks is queued any
    /// more; blocks in use are freed to it later, as usual.
    pub fn disown(&self, heap: Arc<StreamHeap<E>>) {
        heap.private.store(false, Ordering::Relaxed);
        self.registry().disowned.push(heap);
    }

    /// Takes the private heap of a graph that is gone while its work may still run. Its memory returns to the
    /// system after a wait for all work, when memory runs short.
    pub fn abandon(&self, heap: &StreamHeap<E>) {
        heap.private.store(false, Ordering::Relaxed);
    }

    /// Frees the pending blocks of disowned heaps whose events are reached. Call it before a capture: inside
    /// of one, nothing can be queried.
    ///
    /// # Errors
    /// The backend's error.
    pub fn poll_disowned<B: Backend<Event = E>>(&self, backend: &B) -> Result<(), B::Error> {
        let heaps = self.registry().disowned.clone();
        heaps.iter().try_for_each(|heap| heap.lock().poll(backend, usize::MAX))
    }

    /// Allocates a block of at least `bytes` bytes.
    ///
    /// # Errors
    /// [`Failure`]. Then nothing has changed, except that memory may have been returned to the system.
    #[inline]
    pub fn allocate<B: Backend<Event = E>>(
        &self,
        backend: &B,
        heap: &StreamHeap<E>,
        bytes: u64,
        site: Site,
    ) -> Result<Lease, Failure<B::Error>> {
        let mut inner = heap.lock();
        if !inner.pending.is_empty() && backend.may_wait() {
            inner.poll(backend, 1)?;
        }
        if let Some(lease) = self.lease(heap, &mut inner, bytes, site) {
            return Ok(lease);
        }
        drop(inner);
        self.allocate_slowly(backend, heap, bytes, site)
    }

    fn lease(&self, heap: &StreamHeap<E>, inner: &mut Inner<E>, bytes: u64, site: Site) -> Option<Lease> {
        let taken = inner.heap.take(bytes, site)?;
        if inner.heap.tally.live > inner.published {
            self.totals.raise_live(inner.heap.tally.live - inner.published);
            inner.published = inner.heap.tally.live;
        }
        Some(Lease { heap: heap.id, block: taken.id, address: taken.address, bytes: taken.bytes })
    }

    /// Tries in this order: blocks that other streams have finished with, the system, and, after waiting for
    /// all work, idle memory of any heap. Inside a capture: idle memory of graphs that are gone, and of
    /// streams that are not captured.
    #[cold]
    fn allocate_slowly<B: Backend<Event = E>>(
        &self,
        backend: &B,
        heap: &StreamHeap<E>,
        bytes: u64,
        site: Site,
    ) -> Result<Lease, Failure<B::Error>> {
        let block = block_bytes(bytes).ok_or(Failure::OutOfMemory)?;
        let segment = segment_bytes(block).ok_or(Failure::OutOfMemory)?;
        let least = least_segment_bytes(block).ok_or(Failure::OutOfMemory)?;
        let found = |inner: &mut Inner<E>| self.lease(heap, inner, bytes, site);
        if backend.may_wait() {
            let mut inner = heap.lock();
            inner.poll(backend, usize::MAX)?;
            if let Some(lease) = found(&mut inner) {
                return Ok(lease);
            }
            drop(inner);
            self.trim(backend, heap, segment, block)?;
        }
        let extend = |bytes| self.extend(backend, heap, bytes, Kind::of(block), found);
        if let Some(lease) = extend(segment)? {
            return Ok(lease);
        }
        self.totals.reclaims.fetch_add(1, Ordering::Relaxed);
        if backend.may_wait() {
            self.release_idle(backend)?;
            if let Some(lease) = found(&mut heap.lock()) {
                return Ok(lease);
            }
        } else {
            self.release_unclaimed(backend, Some(heap))?;
            self.release_settled(backend)?;
        }
        if let Some(lease) = extend(segment)? {
            return Ok(lease);
        }
        extend(least)?.ok_or(Failure::OutOfMemory)
    }

    /// Adds a segment to the heap and takes the block from it, atomically.
    fn extend<B: Backend<Event = E>>(
        &self,
        backend: &B,
        heap: &StreamHeap<E>,
        bytes: u64,
        kind: Kind,
        found: impl FnOnce(&mut Inner<E>) -> Option<Lease>,
    ) -> Result<Option<Lease>, B::Error> {
        if !self.totals.claim(bytes, self.limit.load(Ordering::Relaxed)) {
            return Ok(None);
        }
        match backend.reserve(bytes) {
            Ok(Some(address)) => {
                self.totals.reserve(bytes);
                let mut inner = heap.lock();
                inner.heap.add_segment(address, bytes, kind);
                Ok(found(&mut inner))
            }
            other => {
                self.totals.disclaim(bytes);
                other.map(|_| None)
            }
        }
    }

    /// Releases the heap's least recently used idle segments, if it would otherwise hold too much. Called
    /// before it reserves `segment` bytes for a block of `block` bytes.
    fn trim<B: Backend<Event = E>>(
        &self,
        backend: &B,
        heap: &StreamHeap<E>,
        segment: u64,
        block: u64,
    ) -> Result<(), B::Error> {
        if heap.is_private() {
            return Ok(());
        }
        let mut inner = heap.lock();
        let Tally { reserved, live, peak, .. } = inner.heap.tally;
        let peak = peak.max(live + block);
        let wanted = peak + peak / SPARE_PART + SPARE_BYTES;
        let Some(excess) = (reserved + segment).checked_sub(wanted).filter(|&excess| excess > 0) else {
            return Ok(());
        };
        let removed = inner.heap.remove_idle(excess);
        drop(inner);
        self.release_when_settled(backend, vec![(heap, removed)])
    }

    /// Waits for all work and releases every idle segment, except those of graphs. While something is being
    /// captured, it waits for heaps whose streams can be waited for one by one. Returns the released bytes.
    ///
    /// # Errors
    /// The backend's error.
    pub fn release_idle<B: Backend<Event = E>>(&self, backend: &B) -> Result<u64, B::Error> {
        let before = self.totals.stats().reserved;
        let released = |cache: &Self| before.saturating_sub(cache.totals.stats().reserved);
        if !backend.settle()? {
            self.release_unclaimed(backend, None)?;
            self.release_settled(backend)?;
            return Ok(released(self));
        }
        let heaps = self.heaps();
        let mut removed = Vec::new();
        let mut polled = Ok(());
        for heap in &heaps {
            let mut inner = heap.lock();
            polled = polled.and(inner.poll(backend, usize::MAX));
            if !heap.is_private() {
                removed.push((&**heap, inner.heap.remove_idle(u64::MAX)));
            }
        }
        self.release_when_settled(backend, removed)?;
        polled?;
        drop(heaps);
        self.registry().forget_empty();
        Ok(released(self))
    }

    /// Releases segments that were taken from their heaps, after a wait. The wait comes after the taking:
    /// work on their blocks was queued before the blocks were freed. Where that cannot be waited for, all of
    /// them return to their heaps.
    fn release_when_settled<B: Backend<Event = E>>(
        &self,
        backend: &B,
        removed: Vec<(&StreamHeap<E>, Vec<Idle>)>,
    ) -> Result<(), B::Error> {
        if removed.iter().all(|(_, segments)| segments.is_empty()) {
            return Ok(());
        }
        let settled = backend.settle();
        if let Ok(true) = settled {
            return self.release_removed(backend, removed);
        }
        removed.into_iter().for_each(|(heap, segments)| heap.put_back(segments));
        settled.map(drop)
    }

    /// Releases, without a wait, every idle segment of disowned heaps, and those of the private heap `own`
    /// that its graph has not used: no work uses them.
    fn release_unclaimed<B: Backend<Event = E>>(
        &self,
        backend: &B,
        own: Option<&StreamHeap<E>>,
    ) -> Result<(), B::Error> {
        let heaps = self.registry().disowned.clone();
        let mut removed = Vec::new();
        if let Some(own) = own.filter(|own| own.is_private()) {
            let mut inner = own.lock();
            let claimed = inner.claimed;
            removed.push((own, inner.heap.remove_idle_since(claimed, u64::MAX)));
        }
        for heap in &heaps {
            let mut inner = heap.lock();
            // Another graph may have got it meanwhile.
            if !heap.is_private() {
                removed.push((&**heap, inner.heap.remove_idle(u64::MAX)));
            }
        }
        self.release_removed(backend, removed)
    }

    /// Inside a capture: releases the idle segments of heaps whose streams can be waited for one by one.
    fn release_settled<B: Backend<Event = E>>(&self, backend: &B) -> Result<(), B::Error> {
        for heap in self.heaps() {
            let mut inner = heap.lock();
            if heap.is_private() {
                continue;
            }
            let removed = inner.heap.remove_idle(u64::MAX);
            drop(inner);
            if removed.is_empty() {
                continue;
            }
            // The wait comes after the taking, as in `release_when_settled`.
            match backend.settle_heap(heap.id) {
                Ok(true) => self.release_removed(backend, vec![(&*heap, removed)])?,
                Ok(false) => heap.put_back(removed),
                Err(error) => {
                    heap.put_back(removed);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Releases segments that were taken from their heaps and that no work uses. Segments that could not be
    /// released return to their heaps. Returns the first error.
    fn release_removed<B: Backend<Event = E>>(
        &self,
        backend: &B,
        removed: Vec<(&StreamHeap<E>, Vec<Idle>)>,
    ) -> Result<(), B::Error> {
        let mut outcome = Ok(());
        for (heap, mut segments) in removed {
            segments.retain(|segment| {
                let release = || backend.release(segment.address, segment.bytes);
                let released = self.totals.release(segment.bytes, release);
                let failed = released.is_err();
                if outcome.is_ok() {
                    outcome = released;
                }
                failed
            });
            heap.put_back(segments);
        }
        outcome
    }

    /// Frees a block to its heap. Every use of the block must be on the heap's stream, or ordered before that
    /// stream's next work.
    #[inline]
    pub fn free(&self, heap: &StreamHeap<E>, lease: Lease) {
        if lease.heap == heap.id {
            let mut inner = heap.lock();
            inner.heap.give_back(lease.block);
            self.lower_live(&mut inner);
        } else {
            // A mistake of the caller. The block stays in use, because no other heap can take it.
            debug_assert!(false, "a block of heap {} given to heap {}", lease.heap, heap.id);
        }
    }

    /// Frees a block to its heap. It can be reused once all of `events` are reached.
    pub fn free_after(&self, heap: &StreamHeap<E>, lease: Lease, events: Vec<E>) {
        if events.is_empty() || lease.heap != heap.id {
            return self.free(heap, lease);
        }
        let mut inner = heap.lock();
        let block = inner.heap.suspend(lease.block);
        inner.pending.push_back(Pending { block, events });
        self.lower_live(&mut inner);
    }

    /// Publishes a lower number of bytes in use, if the difference is large.
    fn lower_live(&self, inner: &mut Inner<E>) {
        let unsaid = inner.published - inner.heap.tally.live;
        if unsaid > LIVE_SLACK {
            self.totals.lower_live(unsaid);
            inner.published -= unsaid;
        }
    }

    /// Releases everything, including blocks in use: nothing uses them any more.
    ///
    /// # Errors
    /// The first error of the backend. All segments were tried.
    pub fn close<B: Backend<Event = E>>(&self, backend: &B) -> Result<(), B::Error> {
        let mut registry = self.registry();
        let holds = |heap: &Arc<StreamHeap<E>>| heap.lock().heap.segments().next().is_some();
        let mut outcome = if registry.heaps.iter().any(holds) { backend.settle().map(drop) } else { Ok(()) };
        registry.disowned.clear();
        for retired in registry.retired.drain(..) {
            retired.events.into_iter().for_each(|event| backend.recycle(event));
        }
        for heap in registry.heaps.drain(..) {
            let mut inner = heap.lock();
            let pending = std::mem::take(&mut inner.pending);
            pending.into_iter().flat_map(|p| p.events).for_each(|event| backend.recycle(event));
            let heap = std::mem::replace(&mut inner.heap, Heap::new());
            for segment in heap.segments() {
                let release = || backend.release(segment.address, segment.bytes);
                outcome = outcome.and(self.totals.release(segment.bytes, release));
            }
        }
        outcome
    }

    /// Statistics of the cache.
    pub fn stats(&self) -> Stats {
        let mut stats = self.totals.stats();
        let limit = self.limit.load(Ordering::Relaxed);
        stats.limit = (limit != UNLIMITED).then_some(limit);
        for heap in self.heaps() {
            let mut inner = heap.lock();
            let tally = inner.heap.tally;
            stats.live += tally.live;
            stats.requested += tally.requested;
            stats.pending += tally.pending;
            stats.live_blocks += tally.live_blocks;
            stats.allocations += tally.allocations;
            stats.segments += inner.heap.segments().count() as u64;
            stats.largest_free = stats.largest_free.max(inner.heap.largest_free());
        }
        stats
    }

    /// Resets the peaks to the current values.
    pub fn reset_peaks(&self) {
        self.totals.reset_peaks();
    }

    /// Every segment and block.
    pub fn snapshot(&self) -> Snapshot {
        let heaps = self.heaps();
        let heaps = heaps.iter().map(|heap| HeapSnapshot::of(heap.id, heap.is_private(), &heap.lock().heap));
        Snapshot { heaps: heaps.collect(), stats: self.stats() }
    }
}

impl<E> Registry<E> {
    /// Drops heaps that hold nothing and that cannot be allocated from.
    fn forget_empty(&mut self) {
        self.disowned.retain(|heap| heap.lock().heap.segments().next().is_some());
        self.heaps.retain(|heap| Arc::strong_count(heap) > 1 || heap.lock().heap.segments().next().is_some());
    }

    fn add(&mut self, private: bool) -> Arc<StreamHeap<E>> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let inner = Inner { heap: Heap::new(), pending: VecDeque::new(), claimed: 0, published: 0 };
        let (id, private) = (NEXT_ID.fetch_add(1, Ordering::Relaxed), AtomicBool::new(private));
        let heap = Arc::new(StreamHeap { id, private, inner: Mutex::new(inner) });
        self.heaps.push(heap.clone());
        heap
    }
}
