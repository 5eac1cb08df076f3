//! A picture of a cache at one moment: as data, JSON and SVG.

use std::collections::BTreeMap;

use crate::heap::{Block, Heap, Site, State};
use crate::size::Kind;
use crate::stats::Stats;

/// Every segment and block of a cache.
#[derive(Debug, Clone, serde::Serialize)]
#[non_exhaustive]
pub struct Snapshot {
    /// The same in numbers.
    pub stats: Stats,
    /// One a stream (or captured graph).
    pub heaps: Vec<HeapSnapshot>,
}

/// The segments of one stream.
#[derive(Debug, Clone, serde::Serialize)]
#[non_exhaustive]
pub struct HeapSnapshot {
    /// Number of the heap.
    pub id: u64,
    /// Belongs it to a captured graph?
    pub private: bool,
    /// Its segments, by address.
    pub segments: Vec<SegmentSnapshot>,
}

/// A piece of memory taken from the system.
#[derive(Debug, Clone, serde::Serialize)]
#[non_exhaustive]
pub struct SegmentSnapshot {
    /// Where it begins.
    pub address: u64,
    /// Its size.
    pub bytes: u64,
    /// What blocks it holds.
    pub kind: Kind,
    /// Its blocks, by address; they fill it.
    pub blocks: Vec<BlockSnapshot>,
}

/// What a block is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BlockState {
    /// Waits for a request.
    Free,
    /// In use.
    Live,
    /// Given up, while other streams may still work on it.
    Pending,
}

/// A block.
#[derive(Debug, Clone, serde::Serialize)]
#[non_exhaustive]
pub struct BlockSnapshot {
    /// Where it begins.
    pub address: u64,
    /// Its size.
    pub bytes: u64,
    /// What it is doing.
    pub state: BlockState,
    /// Bytes asked for by its last user.
    #[serde(skip_serializing_if = "is_zero")]
    pub requested: u64,
    /// `file:line` of its user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// What one line of the program has in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// `file:line`.
    pub site: String,
    /// Blocks.
    pub blocks: u64,
    /// Their sizes in all.
    pub bytes: u64,
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {} bytes in {} blocks", self.site, self.bytes, self.blocks)
    }
}

fn site_text(site: Site) -> String {
    format!("{}:{}", site.file(), site.line())
}

impl BlockSnapshot {
    fn of(block: &Block) -> Self {
        let state = match block.state {
            State::Free | State::Recent => BlockState::Free,
            State::Live => BlockState::Live,
            State::Pending => BlockState::Pending,
        };
        let used = state != BlockState::Free;
        BlockSnapshot {
            address: block.address,
            bytes: block.bytes,
            state,
            requested: if used { block.requested } else { 0 },
            site: used.then(|| site_text(block.site)),
        }
    }
}

impl HeapSnapshot {
    pub(crate) fn of(id: u64, private: bool, heap: &Heap) -> Self {
        let mut segments: Vec<SegmentSnapshot> = (heap.segments())
            .map(|segment| SegmentSnapshot {
                address: segment.address,
                bytes: segment.bytes,
                kind: segment.kind,
                blocks: heap.blocks_of(segment).map(BlockSnapshot::of).collect(),
            })
            .collect();
        segments.sort_by_key(|segment| segment.address);
        HeapSnapshot { id, private, segments }
    }
}

impl Snapshot {
    /// Every block.
    pub fn blocks(&self) -> impl Iterator<Item = &BlockSnapshot> {
        self.heaps.iter().flat_map(|heap| &heap.segments).flat_map(|segment| &segment.blocks)
    }

    /// The lines of the program that have most in use, the greatest first, at most `count`.
    pub fn holders(&self, count: usize) -> Vec<Holder> {
        let mut by_site: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for block in self.blocks().filter(|block| block.state == BlockState::Live) {
            let (blocks, bytes) = by_site.entry(block.site.as_deref().unwrap_or("unknown")).or_default();
            (*blocks, *bytes) = (*blocks + 1, *bytes + block.bytes);
        }
        let mut holders: Vec<Holder> = (by_site.into_iter())
            .map(|(site, (blocks, bytes))| Holder { site: site.to_owned(), blocks, bytes })
            .collect();
        holders.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.site.cmp(&b.site)));
        holders.truncate(count);
        holders
    }

    /// As JSON: `stats`, and `heaps` of `segments` of `blocks`.
    ///
    /// # Errors
    /// None that is known; serde_json's signature has one.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self)
    }

    /// As a picture that a browser shows: a bar a segment, to scale, its blocks coloured by what they do; the size and line of
    /// a block appear under the pointer.
    pub fn to_svg(&self) -> String {
        crate::svg::picture(self)
    }
}
