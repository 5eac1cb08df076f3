//! Cosine similarity search on tensor cores: for each query the `k` most similar rows of a corpus of 16-bit
//! vectors.
//!
//! `score = dot(row, query) / (|row| |query|)`, dot products and norms summed in f32 by `mma`; the matrix of
//! scores is never written. Rows rank by score, ties to the lower row; a zero vector scores 0 against
//! everything finite, a vector with a NaN or an infinity scores NaN against everything, and NaN ranks last.
//! Past the end of the corpus stand ([`key::NO_SCORE`], [`key::NO_ROW`]).
//!
//! | kernel | when | bound by |
//! |---|---|---|
//! | [`stream`] | up to 16 queries a launch | memory: the corpus is read once |
//! | [`tile`] | more | tensor cores |
//! | [`sm90`] | more, on Hopper | tensor cores |
//! | [`norms`] | before them, on the queries; before the last two, on a corpus that is not prepared | memory |
//! | [`merge`] | after them: one list a block and query to one a query | - |
//!
//! Results repeat bit for bit: see [`key`].
#![cfg_attr(target_arch = "nvptx64", no_std)]

mod collect;
pub mod half;
pub mod key;
mod list;
pub mod merge;
pub mod norms;
mod rows;
// Kernels for Hopper: they exist in the PTX for sm_90a alone.
#[cfg(any(not(target_arch = "nvptx64"), ironwarp_sm = "90a"))]
pub mod sm90;
pub mod stream;
pub mod tile;

/// Longest list of results.
pub const MAX_K: u32 = 128;

pub use merge::cosine_merge;
pub use norms::{cosine_norms_bf16, cosine_norms_f16};
#[cfg(any(not(target_arch = "nvptx64"), ironwarp_sm = "90a"))]
pub use sm90::{cosine_wgmma_bf16, cosine_wgmma_f16, cosine_wgmma_long_bf16, cosine_wgmma_long_f16};
pub use stream::{cosine_stream_bf16, cosine_stream_f16};
pub use tile::{cosine_tile_bf16, cosine_tile_f16};
