//! The forward pass of e4m3 operands with scales: tensor cores multiply them at twice the rate.
//!
//! ```text
//!  producer   warp 0      K0 | Q | K1 | V0 | K2 | V1 | ...                                    (1 thread)
//!             warps 1..4  V0 turned | V1 turned | ...
//!  consumers  S0, softmax | S1 beside P0 V0 | softmax | ...                   as in the other forward pass
//! ```
//! * **Values are turned.** 8-bit operands lie along k: keys side by side, for `P V`. Three warps of the
//!   producer read a block of values by `ldmatrix.trans`, which turns pairs of bytes, sort the bytes, and
//!   write it to a stage of its own (`turn.rs`).
//! * **Keys of a weight.** A thread's scores are those of other keys than its registers of a left operand
//!   have room for. The order of k is free, so the turned values take the order in which weights lie:
//!   `slot 4 q + r` of 16 is key `8 (r / 2) + 2 q + r % 2`.
//! * **Columns of the results** lie in the order in which turned rows fall into different banks: a thread has
//!   four neighbours of each row, which it stores itself, 32 bytes a row and instruction.
//! * **No turns** between consumers: with them both kernels were slower (`benches/NOTES.md`).
//! * **Weights** are scaled by 2^8, so that small ones are not lost: at most 256 of 448.
//! * **Scales** are one a head, or one a block of [`SCALE_BLOCK`](config::SCALE_BLOCK) rows, and cost nothing
//!   an element: those of queries and keys are part of the factor of the exponents, maxima being kept with
//!   it; those of values are part of the factor by which sums are rescaled.
//! * **Sums** of tensor cores keep about 14 bits of the larger term. Each block's products are summed apart,
//!   and added in f32 by the multiply-add that rescales sums anyway. For that, rows of 256 are computed in
//!   two parts, and without overlap inside a consumer: scores, softmax, values.

pub mod config;
mod consumer;
pub mod forward;
pub mod instances;
pub mod scales;
mod softmax;
mod turn;
