//! Kernels that test the checker: at least one for every kind of bug that it reports, and correct kernels
//! that must pass.
//!
//! All take the same arguments. `data` is `n` words of global memory. `aux` is [`AUX_WORDS`] words; they are
//! zero at first, or begin with a tensor map of `data`: rows of [`BOX_ROW_WORDS`] words, in boxes of
//! [`BOX_ROWS`] rows. The report must name the lines marked `// bug`, for a race one of each side. Memory is
//! accessed by plain Rust unless the bug needs a device function: the checker sees plain accesses through
//! load and store callbacks.
//!
//! Each kernel has a row in `tests/kernels/tables`: the class of its bug, or the class that it comes near to,
//! and its launch.

#![allow(clippy::missing_safety_doc, reason = "the arguments are documented above, for all kernels")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "most are unsound on purpose; the checker stops them")]

pub mod addresses;
pub mod barrier_patterns;
pub mod barriers;
pub mod bounds;
pub mod cluster_patterns;
pub mod clusters;
pub mod copies;
pub mod copy_patterns;
pub mod core_atomics;
pub mod correct_atomics;
pub mod correct_blocks;
pub mod correct_copies;
pub mod correct_engines;
pub mod correct_grids;
pub mod correct_lanes;
pub mod correct_patterns;
pub mod correct_pipelines;
pub mod correct_programs;
pub mod correct_programs_2;
pub mod correct_programs_3;
pub mod correct_warps;
pub mod flags;
pub mod giving_up;
pub mod global_patterns;
pub mod global_races;
pub mod mbarriers;
pub mod memories;
pub mod product_patterns;
pub mod products;
pub mod programs;
pub mod programs_2;
pub mod programs_3;
pub mod programs_4;
pub mod programs_5;
pub mod programs_6;
pub mod shared_patterns;
pub mod shared_races;
pub mod sources;
pub mod speed;
pub mod stacks;
pub mod uninitialised;
pub mod unwritten;
pub mod warp_patterns;
pub mod warps;
pub mod wide_copies;

/// Words of `aux`.
pub const AUX_WORDS: usize = 64;

/// Threads per block in most launches. Kernels that rely on it use this name.
pub const BLOCK: usize = 64;

/// Words per row of the tensor in `aux`'s map, and per row of its boxes.
pub const BOX_ROW_WORDS: usize = 32;

/// Rows of a box.
pub const BOX_ROWS: u32 = 4;

const BOX_WORDS: usize = BOX_ROW_WORDS * BOX_ROWS as usize;
const BOX_BYTES: u32 = 4 * BOX_WORDS as u32;

/// The tensor map at the start of `aux`.
fn map(aux: *mut u32) -> *const cuda_std::tma::TensorMap {
    aux.cast_const().cast()
}

/// A word as an atomic one.
///
/// # Safety
///
/// The word lives and is aligned while the result is used.
unsafe fn atomic<'a>(word: *mut u32) -> &'a core::sync::atomic::AtomicU32 {
    // SAFETY: as the caller promises.
    unsafe { core::sync::atomic::AtomicU32::from_ptr(word) }
}

/// The thread's index in its block.
fn rank() -> usize {
    cuda_std::thread::thread_idx_x() as usize
}

/// The block's index in the grid.
fn block() -> usize {
    cuda_std::thread::block_idx_x() as usize
}

/// The thread's index in the grid.
fn global() -> usize {
    cuda_std::thread::index_1d() as usize
}
