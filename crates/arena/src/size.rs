//! Sizes: what a request is rounded to, and what is reserved for it.

/// Bytes that every block is a multiple of. Blocks are aligned as their segments are, up to this.
pub const GRANULE: u64 = 512;
/// Requests up to this many bytes share small segments; larger ones never lie among them, so that a small block that lives
/// long does not keep a large one from being whole again.
pub const SMALL_LIMIT: u64 = 1 << 20;
/// Bytes of a segment of small blocks, and the unit of all others: the page of device memory.
pub const PAGE: u64 = 2 << 20;
/// Requests up to this many bytes are carved from segments of [`SHARED_SEGMENT`]; beyond it a request gets a segment that fits.
const SHARED_LIMIT: u64 = 16 << 20;
/// Bytes of a segment that several large blocks share.
pub(crate) const SHARED_SEGMENT: u64 = 32 << 20;
/// Large requests are multiples of this: ragged sizes meet in fewer classes, and a remainder is worth keeping.
const LARGE_GRANULE: u64 = 64 << 10;

/// The two kinds of segments, by the size of the blocks in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Of blocks up to [`SMALL_LIMIT`].
    Small,
    /// Of larger blocks.
    Large,
}

impl Kind {
    /// The kind of a block of `bytes` bytes.
    pub(crate) fn of(bytes: u64) -> Kind {
        if bytes <= SMALL_LIMIT { Kind::Small } else { Kind::Large }
    }

    /// Bytes that are worth splitting off: what no request of this kind would ask for stays with the block.
    pub(crate) fn least_remainder(self) -> u64 {
        match self {
            Kind::Small => GRANULE,
            Kind::Large => SMALL_LIMIT,
        }
    }
}

/// The size of the block for a request; `None` when there is no such size.
pub fn block_bytes(requested: u64) -> Option<u64> {
    let granule = if requested <= SMALL_LIMIT { GRANULE } else { LARGE_GRANULE };
    requested.max(1).checked_next_multiple_of(granule)
}

/// The size of the segment to reserve for a block; `None` when there is no such size.
pub fn segment_bytes(block: u64) -> Option<u64> {
    if block <= SMALL_LIMIT {
        Some(PAGE)
    } else if block <= SHARED_LIMIT {
        Some(SHARED_SEGMENT)
    } else {
        least_segment_bytes(block)
    }
}

/// The smallest segment that holds a block: what is tried when memory is short.
pub fn least_segment_bytes(block: u64) -> Option<u64> {
    block.checked_next_multiple_of(PAGE)
}
