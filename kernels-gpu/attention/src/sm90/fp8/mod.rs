//! The forward pass of e4m3 operands with scales: tensor cores multiply them at twice the rate.
//!
//! ```text
//!  producer   K0 | Q | K1 | V0 | K2 | V1 | ... (1 thread)
//!  turners    . V0 turned | V1 turned | ...    (3 warps)
//!  consumer 0 S0 | softmax     | P0 V0, S1   | softmax     | P1 V1, S2   | ...
//!  consumer 1 S0 | . softmax   |  softmax    | P0 V0, S1   | softmax     | ...
//! ```
//! * **Values are turned** by warps beside the consumers (`turn`). 8-bit operands lie along k: keys side by
//!   side, for `P V`. Some 40 instructions turn 128 keys by 16 columns.
//! * **Blocks of 256 keys** at head size 128: a consumer's waits come once a block, and so half as often.
//! * **Keys of a weight.** A thread's scores are those of other keys than its registers of a left operand
//!   have room for. The order of k is free, so the turned values take the order in which weights lie:
//!   `slot 4 q + r` of 16 is key `8 (r / 2) + 2 q + r % 2`.
//! * **Columns of the results** lie so that a thread has four neighbours of each row, which it stores itself,
//!   32 bytes a row and instruction.
//! * **Turns** at tensor cores: while one consumer multiplies a block's values and the next one's scores, the
//!   other one computes its softmax. It gives its turn when its products are over.
//! * **Weights** are scaled by 2^8, so that small ones are not lost: at most 256 of 448.
//! * **Scales** are one a head, or one a block of [`SCALE_BLOCK`](config::SCALE_BLOCK) rows, and cost nothing
//!   an element: those of queries and keys are part of the factor of the exponents, maxima being kept with
//!   it; those of values are part of the factor by which sums are rescaled.
//! * **Sums** of tensor cores keep about 14 bits of the larger term. Each block's products are summed apart,
//!   and added in f32 by the multiply-add that rescales sums anyway: 128 columns at a time, in the registers
//!   of the scores.

pub mod config;
mod consumer;
pub mod forward;
pub mod instances;
pub mod scales;
mod softmax;
mod turn;
