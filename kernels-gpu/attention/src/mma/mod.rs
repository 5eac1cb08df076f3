//! Attention by the tensor cores of every device since Ampere (`mma.sync`, `cp.async`).
//!
//! ```text
//!               keys of the sequence, from the last block that a query of the tile sees to the first
//!             +--------+--------+--------+
//!   warp 0    |   S0   |   S1   |  ...   |     copy 0 | wait 0, copy 1, use 0 | wait 1, copy 2, use 1 | ..
//!   warp 1    |        |        |        |
//!   warp 2    |        |        |        |     use: S = Q K^T, mask, softmax, O += P V
//!   warp 3    |        |        |        |
//!             +--------+--------+--------+
//! ```
//! A block of four warps has a tile of 64 queries of a head, 16 a warp. Keys and values come by `cp.async` in
//! a ring of two stages, the next block while one is used. Scores stay in registers, where they become the
//! weights of values. Results leave through the place of the queries, so that rows are stored 16 bytes a
//! lane.
//!
//! Tiles, masks, packed sequences, sinks and log-sum-exps are those of [Hopper's kernels](crate::problem),
//! and so is the [softmax](crate::softmax). Keys and values behind the sequence's last one are zeros in
//! shared memory.
//!
//! | file | |
//! |---|---|
//! | [`instances`] | the kernels and the table of them |
//! | [`config`] | what a kernel is made of; the plan of its shared memory |
//! | [`forward`] | the pass |
//! | `tile` | how tiles are copied and multiplied, in the backward pass too |
//! | [`backward`] | the gradients |

pub mod backward;
pub mod config;
pub mod forward;
pub mod instances;
mod tile;
