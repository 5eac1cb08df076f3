//! Sizes: how requests are rounded, and how much is reserved for them.

/// Every block's size is a multiple of this many bytes. Blocks are aligned as their segments are, up to this.
pub const GRANULE: u64 = 512;
/// Requests up to this many bytes share small segments. Larger requests never use those segments, so that a
/// long-lived small block does not split the space of a large one.
pub const SMALL_LIMIT: u64 = 1 << 20;
/// Bytes of a segment of small blocks, and the unit of all others: the page size of device memory.
pub const PAGE: u64 = 2 << 20;
/// Requests up to this many bytes share segments of [`SHARED_SEGMENT`]. A larger request gets its own
/// segment.
const SHARED_LIMIT: u64 = 16 << 20;
/// Bytes of a segment that several large blocks share.
pub(crate) const SHARED_SEGMENT: u64 = 32 << 20;
/// Large requests are rounded to multiples of this. So there are fewer distinct sizes, and a remainder is
/// worth keeping.
const LARGE_GRANULE: u64 = 64 << 10;

/// The two kinds of segments, by block size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Blocks up to [`SMALL_LIMIT`].
    Small,
    /// Larger blocks.
    Large,
}

impl Kind {
    /// The kind of a block of `bytes` bytes.
    pub(crate) fn of(bytes: u64) -> Kind {
        if bytes <= SMALL_LIMIT { Kind::Small } else { Kind::Large }
    }

    /// The least bytes worth splitting off. A smaller remainder fits no request of this kind and stays with
    /// the block.
    pub(crate) fn least_remainder(self) -> u64 {
        match self {
            Kind::Small => GRANULE,
            Kind::Large => SMALL_LIMIT,
        }
    }
}

/// The block size for a request. `None` if it overflows.
pub fn block_bytes(requested: u64) -> Option<u64> {
    let granule = if requested <= SMALL_LIMIT { GRANULE } else { LARGE_GRANULE };
    requested.max(1).checked_next_multiple_of(granule)
}

/// The segment size to reserve for a block. `None` if it overflows.
pub fn segment_bytes(block: u64) -> Option<u64> {
    if block <= SMALL_LIMIT {
        Some(PAGE)
    } else if block <= SHARED_LIMIT {
        Some(SHARED_SEGMENT)
    } else {
        least_segment_bytes(block)
    }
}

/// The smallest segment that holds a block. It is tried when memory is short.
pub fn least_segment_bytes(block: u64) -> Option<u64> {
    block.checked_next_multiple_of(PAGE)
}

/// A number of bytes, shown in the unit that people count so many in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl std::fmt::Display for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
        match units.into_iter().find(|(bits, _)| self.0 >> bits > 0) {
            Some((bits, unit)) => write!(f, "{:.2} {unit}", self.0 as f64 / (1u64 << bits) as f64),
            None => write!(f, "{} bytes", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Bytes;

    #[test]
    fn sizes_have_units() {
        let sizes = [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (1536, "1.50 KiB"),
            (3 << 29, "1.50 GiB"),
            (1 << 41, "2048.00 GiB"),
        ];
        for (bytes, text) in sizes {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
    }
}
