//! The tensor family: element-wise kernels, conversions, reductions, gathers and scatters over tensors of any
//! layout.
//!
//! A kernel is one body for all element types, with an entry point for each; the operation is a parameter,
//! the same for all threads, whose switch is taken once for each vector of elements: its cost hides behind
//! memory.
//!
//! | module | kernels |
//! |---|---|
//! | [`unary`], [`binary`], [`compare`], [`select`], [`copy`] | element by element; strides: see [`place`] |
//! | [`power`] | powers, likewise |
//! | [`turned`] | copies between two dense axes |
//! | [`convert`] | from every element type to every other |
//! | [`quantize`] | matrices in e4m3, with a factor for each part of 128 columns |
//! | [`reduce`] | sums, products, maxima, and where they stand, along rows and columns |
//! | [`index`] | rows by their numbers: gathered, scattered, added up |
//! | [`embedding`] | the gradient of an embedding: rows added up by their tokens |
//! | [`dropout`] | elements dropped at random, without a mask |
//! | [`rotary`] | rotary position embedding |
//! | [`activation`] | gradients of activations, with a bias's, and gated ones |
//! | [`loss`] | losses of pairs of numbers, with their gradients |
//! | [`fill`] | constants, progressions, random numbers |
#![cfg_attr(target_arch = "nvptx64", no_std)]
// Iterators by value over arrays end up in memory of the thread's own, indices that unroll to constants do
// not.
#![allow(clippy::needless_range_loop)]

pub mod activation;
pub mod binary;
pub mod compare;
pub mod convert;
pub mod copy;
pub mod dropout;
pub mod embedding;
pub mod fill;
pub mod index;
mod integer;
pub mod loss;
pub mod piece;
pub mod place;
pub mod power;
pub mod quantize;
pub mod reduce;
pub mod rotary;
pub mod select;
pub mod turned;
pub mod unary;

pub use primitives::access::{self, VECTOR_BYTES};
pub use primitives::element;

/// Threads of a block.
pub const THREADS: u32 = 256;
/// Elements of a thread that go one by one, all under way before the first is used.
const LANES: usize = 4;
