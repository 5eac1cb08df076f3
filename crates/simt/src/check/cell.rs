//! The checker's history of a piece of memory: its last write and up to two reads since.
//!
//! Accesses of the async proxy that a thread can wait for are *tracked*: their stamp holds the number of an
//! operation ([`super::proxy`]) in place of a tick. Their moment is unknown; only the threads that have
//! waited for them are known.

use crate::exec::context::WARP_SIZE;
use crate::fault::AccessKind;
use crate::site::RawSite;

/// One access: its thread, its time and its place in the source.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// Number of the block, its low 32 bits; launches have fewer.
    pub block: u32,
    /// Tick of the block; of a tracked access the number of its operation.
    pub time: u32,
    /// Site, rank in the block and kind; 0 for no access.
    tag: u64,
}

const RANK_SHIFT: u32 = RawSite::BITS;
const RANK_BITS: u32 = 10;
const KIND_SHIFT: u32 = RANK_SHIFT + RANK_BITS;
const KIND_MASK: u64 = 15;
const TRACKED: u64 = 1 << 62;
const PRESENT: u64 = 1 << 63;

/// The kinds that a stamp tells apart, by their codes.
const KINDS: [AccessKind; 1 + KIND_MASK as usize] = {
    let mut kinds = [AccessKind::Read; 1 + KIND_MASK as usize];
    kinds[1] = AccessKind::Write;
    kinds[2] = AccessKind::VolatileRead;
    kinds[3] = AccessKind::VolatileWrite;
    kinds[4] = AccessKind::Atomic;
    kinds[5] = AccessKind::AtomicRead;
    kinds[6] = AccessKind::BlockAtomic;
    kinds[7] = AccessKind::BlockAtomicRead;
    kinds[8] = AccessKind::AsyncRead;
    kinds[9] = AccessKind::AsyncWrite;
    kinds[10] = AccessKind::ReadOnly;
    kinds[11] = AccessKind::AsyncAtomic;
    kinds[12] = AccessKind::SystemAtomic;
    kinds[13] = AccessKind::SystemAtomicRead;
    kinds
};

#[inline]
const fn code(kind: AccessKind) -> u64 {
    match kind {
        AccessKind::Read | AccessKind::CopyRead | AccessKind::Wait => 0,
        AccessKind::Write => 1,
        AccessKind::VolatileRead => 2,
        AccessKind::VolatileWrite => 3,
        AccessKind::Atomic => 4,
        AccessKind::AtomicRead => 5,
        AccessKind::BlockAtomic => 6,
        AccessKind::BlockAtomicRead => 7,
        AccessKind::AsyncRead => 8,
        AccessKind::AsyncWrite => 9,
        AccessKind::ReadOnly => 10,
        AccessKind::AsyncAtomic => 11,
        AccessKind::SystemAtomic => 12,
        AccessKind::SystemAtomicRead => 13,
    }
}

impl Stamp {
    pub fn new(block: u64, time: u32, rank: u32, kind: AccessKind, site: RawSite) -> Self {
        let tag = site.bits() | u64::from(rank) << RANK_SHIFT | code(kind) << KIND_SHIFT | PRESENT;
        Self { block: block as u32, time, tag }
    }

    /// The stamp of an access that is part of asynchronous operation number `operation`.
    pub fn tracked(block: u64, operation: u32, rank: u32, kind: AccessKind, site: RawSite) -> Self {
        let stamp = Self::new(block, operation, rank, kind, site);
        Self { tag: stamp.tag | TRACKED, ..stamp }
    }

    pub fn is_tracked(self) -> bool {
        self.tag & TRACKED != 0
    }

    pub fn is_present(self) -> bool {
        self.tag != 0
    }

    pub fn rank(self) -> u32 {
        (self.tag >> RANK_SHIFT) as u32 & ((1 << RANK_BITS) - 1)
    }

    pub fn site(self) -> RawSite {
        RawSite::from_bits(self.tag)
    }

    pub fn kind(self) -> AccessKind {
        KINDS[(self.tag >> KIND_SHIFT & KIND_MASK) as usize]
    }

    /// Whether it is of an asynchronous operation that only its own thread can wait for, and has not yet:
    /// until then nothing orders it.
    #[inline(always)]
    fn is_pending(self) -> bool {
        const PENDING: u64 = 1 << code(AccessKind::AsyncRead)
            | 1 << code(AccessKind::AsyncWrite)
            | 1 << code(AccessKind::AsyncAtomic);
        self.tag & TRACKED == 0 && PENDING >> (self.tag >> KIND_SHIFT & KIND_MASK) & 1 != 0
    }

    /// Whether there is no access, or a thread knows of it that knows of all accesses of its block before
    /// `floor`, and makes the access `now`.
    #[inline(always)]
    fn is_absent_or_below(self, now: Self, floor: u32) -> bool {
        let is_known = self.tag & TRACKED == 0
            && self.block == now.block
            && (self.time < floor || self.rank() == now.rank())
            && !self.is_pending();
        !self.is_present() || is_known
    }

    /// Whether both are of one warp.
    #[inline]
    fn is_beside(self, other: Self) -> bool {
        (self.block, self.rank() / WARP_SIZE) == (other.block, other.rank() / WARP_SIZE)
    }

    /// Whether program order puts this access before `later`. Asynchronous operations that a thread has begun
    /// are not in program order.
    fn is_of(self, later: Self) -> bool {
        !self.is_tracked() && (self.block, self.rank()) == (later.block, later.rank())
    }
}

/// History of 1 to 16 bytes.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Cell {
    write: Stamp,
    reads: [Stamp; 2],
}

/// Threads of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readers {
    Warp(u32),
    All,
}

/// Whether an earlier access happened before the present one.
pub(crate) trait Order {
    fn is_before(&self, earlier: Stamp) -> bool;

    /// Whether it was of a launch that has ended: then all is in order.
    fn is_over(&self, earlier: Stamp) -> bool;

    /// Whether it happened before the present block began, by a launch that may still run.
    fn is_before_block(&self, earlier: Stamp) -> bool;

    /// Whether it was made on the device of the present one.
    fn is_of_device(&self, earlier: Stamp) -> bool;

    /// Whether a proxy fence stands between a generic write and the present access by the async proxy.
    fn is_fenced(&self, earlier: Stamp) -> bool;

    /// Whether two tracked accesses are of operations that complete in order.
    fn in_sequence(&self, earlier: Stamp, later: Stamp) -> bool;
}

/// Why an access may not follow an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clash {
    /// Nothing orders them.
    Race(Stamp),
    /// The earlier is a write, the later reads through the read-only path.
    ReadOnly(Stamp),
    /// They are ordered, but the earlier was made by the generic proxy, the later by the async proxy, and no
    /// proxy fence stands between.
    Unfenced(Stamp),
}

impl Cell {
    /// The block that wrote or read last, if any did.
    pub fn block(&self) -> Option<u32> {
        [self.write, self.reads[0]].into_iter().find(|stamp| stamp.is_present()).map(|stamp| stamp.block)
    }

    /// Records an access, or returns the earlier one that it conflicts with.
    #[inline]
    pub fn access(&mut self, now: Stamp, order: &impl Order) -> Result<(), Clash> {
        if now.kind().is_read() { self.read(now, order) } else { self.write(now, order) }
    }

    /// Records a plain read as [`Self::access`] does, for a thread that knows of all accesses of its block
    /// before `floor` and of no others. False: the last write may not be known, and nothing is recorded.
    #[inline(always)]
    pub fn read_below(&mut self, now: Stamp, floor: u32) -> bool {
        if !self.write.is_absent_or_below(now, floor) {
            return false;
        }
        let [first, second] = self.reads;
        if (first.tag | second.tag) & TRACKED != 0 {
            return false;
        }
        if first.is_absent_or_below(now, floor) {
            self.reads[0] = now;
        } else if second.is_absent_or_below(now, floor) || first.is_beside(second) && !first.is_beside(now) {
            self.reads[1] = now;
        }
        true
    }

    /// Records a plain write as [`Self::access`] does, for such a thread. False: an earlier access may not be
    /// known, and nothing is recorded.
    #[inline(always)]
    pub fn write_below(&mut self, now: Stamp, floor: u32) -> bool {
        let [first, second] = self.reads;
        let is_known = [self.write, first, second].iter().all(|access| access.is_absent_or_below(now, floor));
        if is_known {
            *self = Self { write: now, reads: Default::default() };
        }
        is_known
    }

    /// The reads that [`Self::read_below`] would let pass without a change after it has recorded `now`, until
    /// the block's next tick.
    #[inline(always)]
    pub fn settled_for(&self, now: Stamp, floor: u32) -> Option<Readers> {
        let [first, second] = self.reads;
        // Only reads of this tick: an older one of a thread gives way to its next.
        let is_full =
            first.is_present() && second.is_present() && (first.time, second.time) == (now.time, now.time);
        let is_over = !self.write.is_present() || self.write.time < floor;
        (is_full && is_over).then(|| match first.is_beside(second) {
            true => Readers::Warp(first.rank() / WARP_SIZE),
            false => Readers::All,
        })
    }

    /// Whether all its accesses were by one block.
    #[inline(always)]
    pub fn is_of_block(&self, block: u32) -> bool {
        let [first, second] = self.reads;
        [self.write, first, second].iter().all(|stamp| !stamp.is_present() || stamp.block == block)
    }

    #[inline]
    fn read(&mut self, now: Stamp, order: &impl Order) -> Result<(), Clash> {
        may_follow(self.write, now, order)?;
        if now.kind() == AccessKind::ReadOnly && self.write.is_present() {
            // A peer's launch that has written may go on to other things.
            if !order.is_over(self.write) && !order.is_before_block(self.write) {
                return Err(Clash::ReadOnly(self.write));
            }
        }
        let slot = self.slot_for(now, order);
        if let Some(slot) = slot {
            self.reads[slot] = now;
        }
        Ok(())
    }

    /// The slot for a read: in place of a read that it follows, else a free slot, else in place of a read of
    /// the same warp as the other, so that readers of two warps are remembered.
    fn slot_for(&self, now: Stamp, order: &impl Order) -> Option<usize> {
        let [first, second] = self.reads;
        let replaceable = |read: Stamp| {
            let is_over = || read.is_of(now) || order.in_sequence(read, now) || order.is_before(read);
            !read.is_present() || !read.is_pending() && is_over()
        };
        if replaceable(first) {
            return Some(0);
        }
        if replaceable(second) {
            return Some(1);
        }
        (first.is_beside(second) && !first.is_beside(now)).then_some(1)
    }

    fn write(&mut self, now: Stamp, order: &impl Order) -> Result<(), Clash> {
        for earlier in [self.write, self.reads[0], self.reads[1]] {
            may_follow(earlier, now, order)?;
        }
        *self = Self { write: now, reads: Default::default() };
        Ok(())
    }

    /// Records that this is the latest of several atomic operations.
    pub fn atomic_arrived(&mut self, now: Stamp) {
        if self.write.kind().is_strong() {
            self.write = now;
        }
    }

    /// Records the arrival of an asynchronous write.
    pub fn arrived(&mut self, now: Stamp) {
        *self = Self { write: now, reads: Default::default() };
    }

    /// Records that the asynchronous reads and reductions of the thread of `now` are over.
    pub fn waited_for(&mut self, now: Stamp) {
        let [first, second] = &mut self.reads;
        for earlier in [&mut self.write, first, second] {
            if earlier.is_pending() && earlier.is_of(now) {
                *earlier = now;
            }
        }
    }
}

#[inline]
fn may_follow(earlier: Stamp, now: Stamp, order: &impl Order) -> Result<(), Clash> {
    if !earlier.is_present() || order.is_over(earlier) {
        return Ok(());
    }
    if conflicts(earlier, now, order) {
        return Err(Clash::Race(earlier));
    }
    // Reads need no fence: they already have their value, so the async proxy cannot overtake them.
    let is_generic_write = !(earlier.kind().is_read() || earlier.is_tracked() && earlier.kind().is_async());
    if now.is_tracked() && is_generic_write && !order.is_fenced(earlier) {
        return Err(Clash::Unfenced(earlier));
    }
    Ok(())
}

#[inline]
fn conflicts(earlier: Stamp, now: Stamp, order: &impl Order) -> bool {
    if earlier.is_tracked() {
        return !order.is_before(earlier);
    }
    if are_atomic_together(earlier, now, order) {
        return false;
    }
    earlier.is_pending() || !earlier.is_of(now) && !order.is_before(earlier)
}

/// Whether no order is needed between two accesses: both are atomic, for each other too.
#[inline]
fn are_atomic_together(earlier: Stamp, now: Stamp, order: &impl Order) -> bool {
    let (before, after) = (earlier.kind(), now.kind());
    let is_wide_enough = || {
        earlier.block == now.block
            || before.is_system_wide() && after.is_system_wide()
            || !(before.is_narrow() || after.is_narrow()) && order.is_of_device(earlier)
    };
    before.is_strong() && after.is_strong() && is_wide_enough()
}

/// Bytes of a page.
pub(crate) const PAGE_BYTES: usize = 1024;

/// Cells of [`PAGE_BYTES`] bytes, as fine as the accesses so far.
#[derive(Default)]
pub(crate) struct Page {
    /// Cells cover `1 << shift` bytes.
    shift: u32,
    cells: Vec<Cell>,
}

/// Cells are at most 16 bytes: matrices and tensors move in pieces of that size.
const PIECE_SHIFT: u32 = 4;

impl Page {
    /// Calls `visit` for the cells of `bytes` bytes from `offset` in the page, which lie in one page.
    #[inline]
    pub fn visit<E>(
        &mut self,
        offset: usize,
        bytes: usize,
        mut visit: impl FnMut(&mut Cell) -> Result<(), E>,
    ) -> Result<(), E> {
        self.refine(offset | bytes);
        let first = offset >> self.shift;
        let last = (offset + bytes - 1) >> self.shift;
        self.cells[first..=last].iter_mut().try_for_each(&mut visit)
    }

    /// The cell that covers just `bytes` bytes from `offset` in the page.
    #[inline(always)]
    pub fn sole_cell(&mut self, offset: usize, bytes: usize) -> Option<&mut Cell> {
        let is_one = 1 << self.shift == bytes && offset & (bytes - 1) == 0;
        self.cells.get_mut(offset >> self.shift).filter(|_| is_one)
    }

    /// Makes cells fine enough for an access with these low bits in its offset or size.
    #[inline]
    fn refine(&mut self, bits: usize) {
        let wanted = bits.trailing_zeros().min(PIECE_SHIFT);
        if self.cells.is_empty() {
            self.shift = wanted;
            self.cells = vec![Cell::default(); PAGE_BYTES >> wanted];
        } else if wanted < self.shift {
            let copies = 1 << (self.shift - wanted);
            self.cells = self.cells.iter().flat_map(|cell| std::iter::repeat_n(*cell, copies)).collect();
            self.shift = wanted;
        }
    }
}

/// Splits a range at page borders: page number, offset in the page, bytes.
pub(crate) fn pages(offset: usize, bytes: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    let mut at = offset;
    let end = offset + bytes;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let (page, within) = (at / PAGE_BYTES, at % PAGE_BYTES);
        let bytes = (PAGE_BYTES - within).min(end - at);
        at += bytes;
        Some((page, within, bytes))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Before(bool);
    impl Order for Before {
        fn is_before(&self, _: Stamp) -> bool {
            self.0
        }
        fn is_over(&self, _: Stamp) -> bool {
            false
        }
        fn is_before_block(&self, _: Stamp) -> bool {
            false
        }
        fn is_of_device(&self, _: Stamp) -> bool {
            true
        }
        fn is_fenced(&self, _: Stamp) -> bool {
            false
        }
        fn in_sequence(&self, _: Stamp, _: Stamp) -> bool {
            false
        }
    }

    fn stamp(rank: u32, kind: AccessKind) -> Stamp {
        Stamp::new(1, 5, rank, kind, RawSite::default())
    }

    #[test]
    fn stamps_keep_their_parts() {
        use AccessKind::{AsyncRead, AsyncWrite, Atomic, Read, Write};
        for kind in [Read, Write, Atomic, AsyncWrite, AsyncRead] {
            for rank in [0, 31, 1023] {
                let site = RawSite::return_address(0x7fff_ffff_f001);
                let stamp = Stamp::new(u32::MAX.into(), 9, rank, kind, site);
                assert_eq!(
                    (stamp.rank(), stamp.kind(), stamp.site(), stamp.is_present()),
                    (rank, kind, site, true)
                );
                let tracked = Stamp::tracked(7, 9, rank, kind, site);
                assert_eq!((tracked.rank(), tracked.kind(), tracked.site()), (rank, kind, site));
                assert!(tracked.is_tracked() && !stamp.is_tracked());
            }
        }
    }

    #[test]
    fn reads_never_conflict_with_reads() {
        let mut cell = Cell::default();
        for rank in 0..8 {
            assert_eq!(cell.access(stamp(rank, AccessKind::Read), &Before(false)), Ok(()));
        }
        assert!(cell.access(stamp(0, AccessKind::Write), &Before(false)).is_err());
        assert!(cell.access(stamp(0, AccessKind::Write), &Before(true)).is_ok());
    }

    /// A write of a launch that still runs, known when the block began.
    struct BeforeBlock;
    impl Order for BeforeBlock {
        fn is_before(&self, _: Stamp) -> bool {
            true
        }
        fn is_over(&self, _: Stamp) -> bool {
            false
        }
        fn is_before_block(&self, _: Stamp) -> bool {
            true
        }
        fn is_of_device(&self, _: Stamp) -> bool {
            false
        }
        fn is_fenced(&self, _: Stamp) -> bool {
            false
        }
        fn in_sequence(&self, _: Stamp, _: Stamp) -> bool {
            false
        }
    }

    #[test]
    fn read_only_loads_may_follow_writes_from_before_the_block() {
        let (write, read) = (stamp(0, AccessKind::Write), stamp(1, AccessKind::ReadOnly));
        let mut cell = Cell::default();
        assert_eq!(cell.access(write, &Before(true)), Ok(()));
        assert_eq!(cell.access(read, &Before(true)), Err(Clash::ReadOnly(write)));
        assert_eq!(cell.access(read, &BeforeBlock), Ok(()));
    }

    #[test]
    fn the_async_proxy_needs_a_fence_after_writes_alone() {
        let by_copy = |kind| Stamp::tracked(1, 0, 0, kind, RawSite::default());
        for kind in [AccessKind::AsyncRead, AccessKind::AsyncWrite] {
            let mut cell = Cell::default();
            assert_eq!(cell.access(stamp(0, AccessKind::Read), &Before(true)), Ok(()));
            assert_eq!(cell.access(by_copy(kind), &Before(true)), Ok(()));
            let mut cell = Cell::default();
            let write = stamp(0, AccessKind::Write);
            assert_eq!(cell.access(write, &Before(true)), Ok(()));
            assert_eq!(cell.access(by_copy(kind), &Before(true)), Err(Clash::Unfenced(write)));
        }
    }

    #[test]
    fn begun_by_the_thread_is_not_done() {
        let copy = Stamp::tracked(1, 0, 3, AccessKind::AsyncWrite, RawSite::default());
        let mut cell = Cell::default();
        assert_eq!(cell.access(copy, &Before(false)), Ok(()));
        assert_eq!(cell.access(stamp(3, AccessKind::Read), &Before(false)), Err(Clash::Race(copy)));
        assert_eq!(cell.access(stamp(3, AccessKind::Read), &Before(true)), Ok(()));
    }

    #[test]
    fn settled_reads_change_nothing() {
        let read = |rank| Stamp::new(1, 5, rank, AccessKind::Read, RawSite::default());
        let history = |cell: &Cell| [cell.write, cell.reads[0], cell.reads[1]];
        let mut seen = [0; 3];
        for (first, second, third) in (0..96 * 96 * 96).map(|n| (n % 96, n / 96 % 96, n / 96 / 96)).step_by(7)
        {
            let mut cell =
                Cell { write: Stamp::new(1, 3, 2, AccessKind::Write, RawSite::default()), ..Cell::default() };
            assert!(cell.read_below(read(first), 4) && cell.read_below(read(second), 4));
            let readers = cell.settled_for(read(second), 4);
            let is_settled =
                readers.is_some_and(|all| all == Readers::All || all == Readers::Warp(third / WARP_SIZE));
            let before = history(&cell);
            assert!(cell.read_below(read(third), 4));
            assert!(!is_settled || history(&cell) == before, "{first}, {second}, {third}");
            seen[readers.map_or(0, |all| 1 + usize::from(all == Readers::All))] += 1;
        }
        assert!(seen.iter().all(|&times| times > 1000), "{seen:?}");
    }

    #[test]
    fn reads_settle_only_where_all_know_the_write() {
        let read = |time, rank| Stamp::new(1, time, rank, AccessKind::Read, RawSite::default());
        let written = |time| Cell {
            write: Stamp::new(1, time, 0, AccessKind::Write, RawSite::default()),
            ..Cell::default()
        };
        let settled = |mut cell: Cell, reads: [Stamp; 2]| {
            reads.into_iter().for_each(|read| assert!(cell.read_below(read, 4)));
            cell.settled_for(reads[1], 4)
        };
        assert_eq!(settled(written(3), [read(5, 0), read(5, 40)]), Some(Readers::All));
        assert_eq!(settled(written(3), [read(5, 33), read(5, 40)]), Some(Readers::Warp(1)));
        // The reader's own write, of which the others do not know.
        assert_eq!(settled(written(5), [read(5, 0), read(5, 0)]), None);
        // An older read gives way to the same thread's next.
        assert_eq!(settled(written(3), [read(4, 0), read(5, 40)]), None);
    }

    #[test]
    fn pages_become_finer_when_needed() {
        let mut page = Page::default();
        let write = |rank| stamp(rank, AccessKind::Write);
        let access = |page: &mut Page, at, bytes, rank| {
            page.visit(at, bytes, |cell| cell.access(write(rank), &Before(false)))
        };
        assert!(access(&mut page, 8, 4, 1).is_ok());
        assert!(access(&mut page, 12, 2, 1).is_ok());
        assert!(access(&mut page, 14, 2, 2).is_ok());
        assert_eq!(access(&mut page, 11, 1, 2), Err(Clash::Race(write(1))));
        assert!(access(&mut page, 4, 1, 2).is_ok());
        assert!(access(&mut page, 5, 1, 3).is_ok());
    }

    #[test]
    fn ranges_split_at_pages() {
        let split: Vec<_> = pages(PAGE_BYTES - 4, 16).collect();
        assert_eq!(split, [(0, PAGE_BYTES - 4, 4), (1, 0, 12)]);
    }
}
