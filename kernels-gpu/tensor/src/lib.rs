//! The tensor family: element-wise kernels, conversions, reductions, gathers and scatters over tensors of any layout.
//!
//! A kernel is one body for all element types, with an entry point for each; the operation is a parameter, the same for all
//! threads, whose switch is taken once for each vector of elements: its cost hides behind memory.
//!
//! | module | kernels |
//! |---|---|
//! | [`unary`], [`binary`], [`compare`], [`select`], [`copy`] | element by element, over operands with strides: see [`place`] |
//! | [`turned`] | copies between two dense axes |
//! | [`convert`] | from every element type to every other |
//! | [`reduce`] | sums, products, maxima, and where they stand, along rows and columns |
//! | [`index`] | rows by their numbers: gathered, scattered, added up |
//! | [`fill`] | constants, progressions, random numbers |
#![cfg_attr(target_arch = "nvptx64", no_std)]
// Iterators by value over arrays end up in memory of the thread's own, indices that unroll to constants do not.
#![allow(clippy::needless_range_loop)]

pub mod access;
pub mod binary;
pub mod compare;
pub mod convert;
pub mod copy;
pub mod element;
pub mod fill;
pub mod index;
pub mod place;
pub mod reduce;
pub mod select;
pub mod turned;
pub mod unary;

use cuda_std::grid;

/// Threads of a block.
pub const THREADS: u32 = 256;
/// Elements of a thread that go one by one, all under way before the first is used.
const LANES: usize = 4;
/// Bytes of the widest access of a thread.
pub const VECTOR_BYTES: usize = layout::UNIT_BYTES as usize;

/// What every kernel of the family does first, so that it can be launched before the one ahead of it has ended: lets the next one begin, and waits.
/// Between the two it may compute where its elements lie.
#[inline(always)]
fn begin<R>(locate: impl FnOnce() -> R) -> R {
    begin_if(true, locate)
}

/// The same for a block that lets the next grid begin, or leaves it to others to say so.
#[inline(always)]
fn begin_if<R>(says: bool, locate: impl FnOnce() -> R) -> R {
    if says {
        grid::launch_dependents();
    }
    let place = locate();
    grid::wait_dependencies();
    place
}
