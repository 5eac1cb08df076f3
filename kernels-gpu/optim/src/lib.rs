//! Optimisers: one launch updates all parameters of a model, from a table on the device.
//!
//! ```text
//!   table     entries (a tensor each) and chunks of CHUNK elements: a block reads its chunk, then the entry
//!   norm      chunk -> sum of squares -> partials, added up in order -> norm, clip factor, skip or not
//!   advance   one thread: the step's number, bias corrections, factors -> Step
//!   update    Step, and each chunk: weights, gradients, moments in; weights, moments out
//! ```
//! What changes from step to step lies in device memory, so a captured step replays with new values.
//!
//! | module | |
//! |---|---|
//! | [`table`] | the tensors of a model, cut into chunks |
//! | [`norm`] | the norm of all gradients, and the factor that clips it |
//! | [`step`] | the numbers of a step |
//! | [`update`] | how a block goes through its chunk, whatever the rule and the element types |
//! | [`rules`] | AdamW, SGD, Lion, and the momentum of Muon |
//! | [`factored`] | Adafactor, whose averages of squares are factors of rows and columns |
//! | [`loss_scale`] | the factor of a loss, which the norm changes |
//! | [`orthogonal`] | what Muon does beside matrix products: each direction over its norm |
#![cfg_attr(target_arch = "nvptx64", no_std)]
// Iterators by value over arrays end up in local memory. Indices that unroll to constants do not.
#![allow(clippy::needless_range_loop)]

pub mod factored;
pub mod loss_scale;
pub mod norm;
pub mod orthogonal;
pub mod rules;
pub mod step;
pub mod table;
pub mod update;

/// Threads of a block.
pub const THREADS: u32 = 256;
