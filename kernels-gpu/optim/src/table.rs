//! The tensors of a model as a table on the device.
//!
//! Entries come as arguments of launches, so no copy from the host's memory is queued and a capture can have
//! one. A chunk never crosses the end of a tensor: small tensors have one each, and blocks are as even for
//! many tensors as for one.

use crate::THREADS;
use cuda_std::{kernel, thread};
use primitives::grid::begin;
use primitives::unroll;

/// Elements of a chunk, but for the last of a tensor.
pub const CHUNK: u64 = 8192;
/// Entries of a launch of [`write_table()`]: all are looked at for each.
pub const ENTRIES: usize = 32;
/// Elements that the moments of a tensor begin at a multiple of: 16 bytes of any type.
pub const ALIGNMENT: u64 = 8;
/// Most tensors of a table: their numbers take their part of a counter of random blocks.
pub const MAX_TENSORS: usize = 1 << 20;

/// The element types of a parameter and of its gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Format {
    /// Both f32.
    F32,
    /// An f32 parameter with a bf16 gradient.
    F32WithBf16,
    /// Both bf16.
    Bf16,
    /// A bf16 parameter with an f32 gradient.
    Bf16WithF32,
    /// Both f16.
    F16,
    /// An f16 parameter with an f32 gradient.
    F16WithF32,
}

/// A tensor. Its parameter and its gradient are dense.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct Entry {
    /// Address of the parameter; 0 in a table of gradients.
    pub parameter: u64,
    /// Address of the gradient; 0 in a table of parameters.
    pub gradient: u64,
    /// Elements.
    pub length: u64,
    /// Where its moments begin in those of all tensors: a multiple of [`ALIGNMENT`].
    pub state: u64,
    /// Number of its first chunk.
    pub first_chunk: u32,
    /// Element types; a table of gradients says them of the gradient.
    pub format: Format,
    /// Weight decay.
    pub weight_decay: f32,
    /// Factor of the learning rate.
    pub rate_factor: f32,
    /// 1 when parameter and gradient begin at 16-byte boundaries.
    pub is_aligned: u32,
    /// Fills it up to whole words of 8 bytes.
    pub reserved: u32,
}

impl Entry {
    /// No tensor: fills up the arguments of a launch.
    pub const NONE: Self = Self {
        parameter: 0,
        gradient: 0,
        length: 0,
        state: 0,
        first_chunk: 0,
        format: Format::F32,
        weight_decay: 0.0,
        rate_factor: 1.0,
        is_aligned: 0,
        reserved: 0,
    };

    /// Chunks of the tensor.
    pub const fn chunks(&self) -> u64 {
        self.length.div_ceil(CHUNK)
    }
}

/// Entries on their way to the device.
pub type Entries = [Entry; ENTRIES];

/// A part of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Chunk {
    /// Number of the tensor.
    pub tensor: u32,
    /// Number of the chunk among the tensor's.
    pub number: u32,
}

impl Chunk {
    /// Its first element in the tensor, and how many it has.
    #[inline(always)]
    pub fn range(self, entry: &Entry) -> (u64, u32) {
        let start = u64::from(self.number) * CHUNK;
        // At most CHUNK.
        (start, CHUNK.min(entry.length.saturating_sub(start)) as u32)
    }
}

/// Writes entries, the first of which has number `first`, and the chunks of their tensors.
///
/// # Safety
/// `tensors` has a place for each entry and `chunks` one for each of its chunks. Blocks of [`THREADS`]
/// threads, one for each entry, at most [`ENTRIES`].
#[kernel(launch_bounds(THREADS))]
pub unsafe fn write_table(first: u32, entries: Entries, tensors: *mut Entry, chunks: *mut Chunk) {
    let (block, thread) = begin(|| (thread::block_idx_x(), thread::thread_idx_x()));
    let (mut entry, tensor) = (Entry::NONE, first + block);
    // An index that is no constant would put the arguments in local memory.
    unroll!(i in 0..32, {
        if i as u32 == block {
            entry = entries[i];
        }
    });
    // SAFETY: the caller's promise; a place has one thread.
    unsafe {
        if thread == 0 {
            *tensors.add(tensor as usize) = entry;
        }
        let mut number = thread;
        while u64::from(number) < entry.chunks() {
            *chunks.add(entry.first_chunk as usize + number as usize) = Chunk { tensor, number };
            number += THREADS;
        }
    }
}
