//! Tensors of a model as a table on the device, made by launches.

use std::sync::Arc;

use optim::THREADS;
use optim::table::{Chunk, ENTRIES, Entries, Entry, write_table};

use crate::error::Result;
use crate::launch::{LaunchConfig, launch};
use crate::memory::{DeviceBuffer, Within};
use crate::stream::Stream;

const _: () =
    assert!(size_of::<Chunk>() == size_of::<u64>() && size_of::<Entry>().is_multiple_of(size_of::<u64>()));

/// Entries and their chunks on the device. A table never changes once it is written, so graphs may hold it.
pub(super) struct Table {
    entries: Vec<Entry>,
    tensors: DeviceBuffer<u64>,
    chunks: DeviceBuffer<u64>,
    /// Number of chunks.
    pub count: u32,
}

impl Table {
    /// Queues the launches that write it. `entries` are complete, but for their first chunks.
    #[track_caller]
    fn write(stream: &Stream, mut entries: Vec<Entry>) -> Result<Self> {
        let mut count = 0;
        for entry in &mut entries {
            entry.first_chunk = count;
            // More chunks than a grid has blocks become an error of the launch.
            count = count.saturating_add(u32::try_from(entry.chunks()).unwrap_or(u32::MAX));
        }
        let words = size_of::<Entry>() / size_of::<u64>();
        // SAFETY: the launches below write all of them.
        let (tensors, chunks) = unsafe {
            (
                DeviceBuffer::uninit(stream, entries.len() * words)?,
                DeviceBuffer::uninit(stream, count as usize)?,
            )
        };
        let table = Table { entries, tensors, chunks, count };
        for (part, first) in table.entries.chunks(ENTRIES).zip((0..).step_by(ENTRIES)) {
            let mut arguments: Entries = [Entry::NONE; ENTRIES];
            arguments[..part.len()].copy_from_slice(part);
            let config = blocks(part.len() as u32);
            // SAFETY: there is a place for each entry and each chunk; nothing else knows the buffers yet.
            unsafe {
                launch::<write_table>(stream, config, (first, arguments, table.tensors(), table.chunks()))?;
            }
        }
        Ok(table)
    }

    pub fn tensors(&self) -> Within<'_, Entry> {
        self.tensors.view().within().cast()
    }

    pub fn chunks(&self) -> Within<'_, Chunk> {
        self.chunks.view().within().cast()
    }
}

/// The table of the last tensors: most steps have the same.
#[derive(Default)]
pub(super) struct Tables(Option<Arc<Table>>);

impl Tables {
    /// The table of `entries`, which are complete but for their first chunks.
    #[track_caller]
    pub fn of(&mut self, stream: &Stream, entries: Vec<Entry>) -> Result<Arc<Table>> {
        let same = |table: &&Arc<Table>| {
            let pairs = table.entries.iter().zip(&entries);
            table.entries.len() == entries.len()
                && pairs
                    .map(|(old, new)| (*old, Entry { first_chunk: old.first_chunk, ..*new }))
                    .all(|(a, b)| a == b)
        };
        if let Some(table) = self.0.as_ref().filter(same) {
            return Ok(table.clone());
        }
        let table = Arc::new(Table::write(stream, entries)?);
        // One that a capture records is written by replays alone.
        if stream.capture()?.is_none() {
            self.0 = Some(table.clone());
        }
        Ok(table)
    }
}

/// A launch of so many blocks.
pub(super) fn blocks(count: u32) -> LaunchConfig {
    LaunchConfig::new([count, 1, 1], [THREADS, 1, 1]).overlapping_previous()
}
