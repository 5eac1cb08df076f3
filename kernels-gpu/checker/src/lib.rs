//! Kernels that test the checker: one or more for every bug that it names, and correct ones that it must let pass.
//!
//! All take the same arguments: `data`, `n` words of global memory; `aux`, [`AUX_WORDS`] words that are zero at first, or
//! begin with a tensor map of `data`: rows of [`BOX_ROW_WORDS`] words, in boxes of [`BOX_ROWS`] rows.
//! Lines marked `// bug` are those that the report must name, both sides of a race among them. Memory is accessed by
//! plain Rust, unless the bug needs a device function: the checker sees it through load/store callbacks.

#![allow(clippy::missing_safety_doc, reason = "the arguments are documented above, for all kernels")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "most are unsound on purpose; the checker stops them")]

pub mod barriers;
pub mod bounds;
pub mod clusters;
pub mod copies;
pub mod correct_blocks;
pub mod correct_grids;
pub mod correct_pipelines;
pub mod correct_warps;
pub mod giving_up;
pub mod global_races;
pub mod mbarriers;
pub mod products;
pub mod shared_races;
pub mod uninitialised;
pub mod warps;

/// Words of `aux`.
pub const AUX_WORDS: usize = 64;

/// Threads of a block in most launches; kernels that rely on it say so by this name.
pub const BLOCK: usize = 64;

/// Words of a row of the tensor that a map in `aux` describes, and of its boxes.
pub const BOX_ROW_WORDS: usize = 32;

/// Rows of a box.
pub const BOX_ROWS: u32 = 4;

const BOX_WORDS: usize = BOX_ROW_WORDS * BOX_ROWS as usize;
const BOX_BYTES: u32 = 4 * BOX_WORDS as u32;

/// The tensor map with which `aux` begins.
fn map(aux: *mut u32) -> *const cuda_std::tma::TensorMap {
    aux.cast_const().cast()
}

/// Position of the thread in its block.
fn rank() -> usize {
    cuda_std::thread::thread_idx_x() as usize
}

/// Position of the block in the grid.
fn block() -> usize {
    cuda_std::thread::block_idx_x() as usize
}

/// Position of the thread in the grid.
fn global() -> usize {
    cuda_std::thread::index_1d() as usize
}
