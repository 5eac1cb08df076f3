//! The memory of one stream: segments that are divided into blocks. This is pure bookkeeping: it accesses no
//! address and calls no driver.

use std::panic::Location;

use crate::bins::Bins;
use crate::size::{Kind, block_bytes};

/// The place in the program that requested a block.
pub type Site = &'static Location<'static>;

/// No block.
const NONE: u32 = u32::MAX;

/// A block in use. It cannot be copied, so it is freed at most once.
#[derive(Debug)]
#[must_use = "a block that is not given back stays in use"]
pub(crate) struct BlockId(u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Free,
    /// Free, but not merged with its neighbours yet. The next request of this size takes it unchanged.
    Recent,
    Live,
    /// Freed by its owner. Other streams may still use it.
    Pending,
}

#[derive(Debug)]
pub(crate) struct Block {
    pub address: u64,
    pub bytes: u64,
    /// The requested bytes.
    pub requested: u64,
    pub site: Site,
    pub state: State,
    segment: u32,
    /// Neighbours in the segment.
    before: u32,
    after: u32,
}

#[derive(Debug)]
pub(crate) struct Segment {
    pub address: u64,
    pub bytes: u64,
    pub kind: Kind,
    first: u32,
    /// The time when its last block was freed. The oldest segment is released first.
    idle_since: u64,
}

/// A block found for a request.
#[derive(Debug)]
pub(crate) struct Taken {
    pub id: BlockId,
    pub address: u64,
    pub bytes: u64,
}

/// A segment that was removed from its heap.
#[derive(Debug)]
pub(crate) struct Idle {
    pub address: u64,
    pub bytes: u64,
    pub kind: Kind,
}

/// Bytes and counts of one heap.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    pub reserved: u64,
    pub live: u64,
    pub requested: u64,
    pub pending: u64,
    /// Bytes of segments that are entirely free.
    pub idle: u64,
    /// The peak of bytes in use.
    pub peak: u64,
    pub live_blocks: u64,
    pub allocations: u64,
}

/// The number of blocks that are kept unmerged.
const RECENT: usize = 8;

#[derive(Debug)]
pub(crate) struct Heap {
    blocks: Vec<Block>,
    /// The last freed blocks. A program that allocates and frees one size repeatedly finds its block here, so
    /// the neighbours are not merged and split each time.
    recent: Vec<(u64, u32)>,
    /// Unused entries of `blocks`.
    vacant: Vec<u32>,
    segments: Vec<Option<Segment>>,
    small: Bins,
    large: Bins,
    clock: u64,
    pub tally: Tally,
}

impl Heap {
    pub fn new() -> Self {
        Heap {
            blocks: Vec::new(),
            recent: Vec::with_capacity(RECENT),
            vacant: Vec::new(),
            segments: Vec::new(),
            small: Bins::new(),
            large: Bins::new(),
            clock: 0,
            tally: Tally::default(),
        }
    }

    /// A block for a request: a recently freed block of that size, else the best fit. `None` if none fits.
    pub fn take(&mut self, requested: u64, site: Site) -> Option<Taken> {
        let wanted = block_bytes(requested)?;
        let id = match self.recent.iter().rposition(|&(bytes, _)| bytes == wanted) {
            Some(place) => self.recent.swap_remove(place).1,
            None => self.take_best(wanted)?,
        };
        let block = &mut self.blocks[id as usize];
        (block.state, block.requested, block.site) = (State::Live, requested, site);
        let (address, bytes) = (block.address, block.bytes);
        self.tally.live += bytes;
        self.tally.peak = self.tally.peak.max(self.tally.live);
        self.tally.requested += requested;
        self.tally.live_blocks += 1;
        self.tally.allocations += 1;
        Some(Taken { id: BlockId(id), address, bytes })
    }

    fn take_best(&mut self, wanted: u64) -> Option<u32> {
        self.merge_recent();
        let kind = Kind::of(wanted);
        let id = self.bins(kind).take(wanted)?;
        if self.is_whole_segment(id) {
            self.tally.idle -= self.blocks[id as usize].bytes;
        }
        if self.blocks[id as usize].bytes - wanted >= kind.least_remainder() {
            self.split(id, wanted, kind);
        }
        Some(id)
    }

    /// Frees a block. It can be reused at once.
    pub fn give_back(&mut self, id: BlockId) {
        let id = id.0;
        self.end_use(id);
        let block = &mut self.blocks[id as usize];
        block.state = State::Recent;
        self.recent.push((block.bytes, id));
        if self.recent.len() == RECENT {
            self.merge_recent();
        }
    }

    fn merge_recent(&mut self) {
        while let Some((_, id)) = self.recent.pop() {
            self.free(id);
        }
    }

    /// Marks a freed block as pending: other streams may still use it.
    pub fn suspend(&mut self, id: BlockId) -> BlockId {
        self.end_use(id.0);
        let block = &mut self.blocks[id.0 as usize];
        block.state = State::Pending;
        self.tally.pending += block.bytes;
        id
    }

    /// Makes a pending block free.
    pub fn resume(&mut self, id: BlockId) {
        self.tally.pending -= self.blocks[id.0 as usize].bytes;
        self.free(id.0);
    }

    /// Adds a segment.
    pub fn add_segment(&mut self, address: u64, bytes: u64, kind: Kind) {
        let place = self.segments.iter().position(Option::is_none).unwrap_or_else(|| {
            self.segments.push(None);
            self.segments.len() - 1
        });
        let block = Block {
            address,
            bytes,
            requested: 0,
            site: Location::caller(),
            state: State::Free,
            segment: place as u32,
            before: NONE,
            after: NONE,
        };
        let first = self.add_block(block);
        self.segments[place] = Some(Segment { address, bytes, kind, first, idle_since: self.clock });
        self.tally.reserved += bytes;
        self.tally.idle += bytes;
        self.bins(kind).insert(bytes, address, first);
    }

    /// The time now. Segments that are idle now and stay so are idle since this time or before.
    pub fn now(&mut self) -> u64 {
        self.merge_recent();
        self.clock
    }

    /// Removes segments that are entirely free, the least recently used first, until their sum is at least
    /// `bytes` or none is left.
    pub fn remove_idle(&mut self, bytes: u64) -> Vec<Idle> {
        self.remove_idle_since(u64::MAX, bytes)
    }

    /// The same for segments that are idle since `time` or before.
    pub fn remove_idle_since(&mut self, time: u64, bytes: u64) -> Vec<Idle> {
        self.merge_recent();
        let mut idle: Vec<(u64, usize)> = (self.segments.iter().enumerate())
            .filter_map(|(place, segment)| segment.as_ref().map(|s| (place, s)))
            .filter(|(_, s)| s.idle_since <= time && self.is_idle(s))
            .map(|(place, s)| (s.idle_since, place))
            .collect();
        idle.sort_unstable();
        let mut removed = Vec::new();
        let mut total = 0;
        for (_, place) in idle {
            if total >= bytes {
                break;
            }
            let Some(segment) = self.segments[place].take() else { continue };
            self.bins(segment.kind).remove(segment.bytes, segment.address);
            self.vacant.push(segment.first);
            self.tally.reserved -= segment.bytes;
            self.tally.idle -= segment.bytes;
            total += segment.bytes;
            removed.push(Idle { address: segment.address, bytes: segment.bytes, kind: segment.kind });
        }
        removed
    }

    pub fn segments(&self) -> impl Iterator<Item = &Segment> {
        self.segments.iter().flatten()
    }

    /// The blocks of a segment, by address.
    pub fn blocks_of(&self, segment: &Segment) -> impl Iterator<Item = &Block> {
        let block = |id: u32| self.blocks.get(id as usize);
        std::iter::successors(block(segment.first), move |b| block(b.after))
    }

    /// Bytes of the largest free block.
    pub fn largest_free(&mut self) -> u64 {
        self.merge_recent();
        self.small.largest().max(self.large.largest())
    }

    fn is_idle(&self, segment: &Segment) -> bool {
        let first = &self.blocks[segment.first as usize];
        first.state == State::Free && first.bytes == segment.bytes
    }

    fn is_whole_segment(&self, id: u32) -> bool {
        let block = &self.blocks[id as usize];
        block.before == NONE && block.after == NONE
    }

    fn bins(&mut self, kind: Kind) -> &mut Bins {
        match kind {
            Kind::Small => &mut self.small,
            Kind::Large => &mut self.large,
        }
    }

    fn kind_of(&self, id: u32) -> Kind {
        let segment = self.blocks[id as usize].segment as usize;
        self.segments[segment].as_ref().map_or(Kind::Large, |s| s.kind)
    }

    fn add_block(&mut self, block: Block) -> u32 {
        if let Some(id) = self.vacant.pop() {
            self.blocks[id as usize] = block;
            return id;
        }
        self.blocks.push(block);
        (self.blocks.len() - 1) as u32
    }

    /// Shortens the block to `bytes` and makes a free block of the rest.
    fn split(&mut self, id: u32, bytes: u64, kind: Kind) {
        let block = &mut self.blocks[id as usize];
        let rest = Block {
            address: block.address + bytes,
            bytes: block.bytes - bytes,
            requested: 0,
            site: block.site,
            state: State::Free,
            segment: block.segment,
            before: id,
            after: block.after,
        };
        block.bytes = bytes;
        let (rest_bytes, rest_address, after) = (rest.bytes, rest.address, rest.after);
        let rest = self.add_block(rest);
        self.blocks[id as usize].after = rest;
        if after != NONE {
            self.blocks[after as usize].before = rest;
        }
        self.bins(kind).insert(rest_bytes, rest_address, rest);
    }

    fn end_use(&mut self, id: u32) {
        let block = &self.blocks[id as usize];
        debug_assert_eq!(block.state, State::Live);
        self.tally.live -= block.bytes;
        self.tally.requested -= block.requested;
        self.tally.live_blocks -= 1;
    }

    /// Merges the block with its free neighbours and adds it to the free list.
    fn free(&mut self, id: u32) {
        let kind = self.kind_of(id);
        self.blocks[id as usize].state = State::Free;
        let mut id = id;
        let before = self.blocks[id as usize].before;
        if self.is_free(before) {
            self.unfile(before, kind);
            self.absorb_next(before);
            id = before;
        }
        let after = self.blocks[id as usize].after;
        if self.is_free(after) {
            self.unfile(after, kind);
            self.absorb_next(id);
        }
        let (bytes, address) = (self.blocks[id as usize].bytes, self.blocks[id as usize].address);
        if self.is_whole_segment(id) {
            self.tally.idle += bytes;
            self.clock += 1;
            let segment = self.blocks[id as usize].segment as usize;
            if let Some(segment) = &mut self.segments[segment] {
                segment.idle_since = self.clock;
            }
        }
        self.bins(kind).insert(bytes, address, id);
    }

    fn is_free(&self, id: u32) -> bool {
        self.blocks.get(id as usize).is_some_and(|block| block.state == State::Free)
    }

    fn unfile(&mut self, id: u32, kind: Kind) {
        let (bytes, address) = (self.blocks[id as usize].bytes, self.blocks[id as usize].address);
        self.bins(kind).remove(bytes, address);
    }

    /// Merges this block with the next one.
    fn absorb_next(&mut self, id: u32) {
        let next = self.blocks[id as usize].after;
        let (bytes, after) = (self.blocks[next as usize].bytes, self.blocks[next as usize].after);
        let block = &mut self.blocks[id as usize];
        (block.bytes, block.after) = (block.bytes + bytes, after);
        if after != NONE {
            self.blocks[after as usize].before = id;
        }
        self.vacant.push(next);
    }
}
