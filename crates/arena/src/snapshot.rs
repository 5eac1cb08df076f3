//! A snapshot of a cache, as data, JSON and SVG.

use std::collections::BTreeMap;

use crate::heap::{Block, Heap, Site, State};
use crate::size::{Bytes, Kind};
use crate::stats::Stats;

/// Every segment and block of a cache.
#[derive(Debug, Clone, serde::Serialize)]
#[non_exhaustive]
pub struct Snapshot {
    /// Statistics of the cache.
    pub stats: Stats,
    /// One per stream or captured graph.
    pub heaps: Vec<HeapSnapshot>,
}

/// The segments of one stream.
#[derive(Debug, Clone, serde::Serialize)]
#[non_exhaustive]
pub struct HeapSnapshot {
    /// Number of the heap.
    pub id: u64,
    /// Whether it belongs to a captured graph.
    pub private: bool,
    /// Its segments, by address.
    pub segments: Vec<SegmentSnapshot>,
}

/// A piece of memory taken from the system.
#[derive(Debug, Clone, serde::Serialize)]
#[non_exhaustive]
pub struct SegmentSnapshot {
    /// Its address.
    pub address: u64,
    /// Its size.
    pub bytes: u64,
    /// The kind of its blocks.
    pub kind: Kind,
    /// Its blocks, by address. Together they fill it.
    pub blocks: Vec<BlockSnapshot>,
}

/// The state of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BlockState {
    /// Available to a request.
    Free,
    /// In use.
    Live,
    /// Freed; other streams may still use it.
    Pending,
}

/// A block.
#[derive(Debug, Clone, serde::Serialize)]
#[non_exhaustive]
pub struct BlockSnapshot {
    /// Its address.
    pub address: u64,
    /// Its size.
    pub bytes: u64,
    /// Its state.
    pub state: BlockState,
    /// Bytes requested by its last user.
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

/// The blocks in use that one line of the program requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// `file:line`.
    pub site: String,
    /// Blocks.
    pub blocks: u64,
    /// Sum of their sizes.
    pub bytes: u64,
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let blocks = if self.blocks == 1 { "block" } else { "blocks" };
        write!(f, "{}: {} in {} {blocks}", self.site, Bytes(self.bytes), self.blocks)
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

    /// The lines of the program with the most bytes in use, in descending order, at most `count`.
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

    /// The snapshot as JSON: `stats`, and `heaps` of `segments` of `blocks`.
    ///
    /// # Errors
    /// No known case. serde_json's signature requires it.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self)
    }

    /// The snapshot as an SVG picture. Each segment is a bar, drawn to scale, with its blocks coloured by
    /// state. A tooltip shows a block's size and line.
    pub fn to_svg(&self) -> String {
        crate::svg::picture(self)
    }
}
