//! Attention: `O = softmax(scale Q K^T) V`, a row of queries at a time, with no matrix of scores in memory.
//!
//! Q is `[batch, queries, heads, d]`, K and V are `[batch, keys, kv heads, d]`, with any strides of 16 bytes
//! but a contiguous `d`, which may be another one in V and O for kernels of [`sm90`]. Heads of queries share
//! heads of keys in groups. Sequences have one length, or lie packed one behind the other
//! ([`problem::AttentionParams`]).
//!
//! | kernel | when | bound by |
//! |---|---|---|
//! | [`sm90::forward`] | Hopper | tensor cores; at head size 64 also exponentials |
//! | [`sm90::fp8`] | operands in e4m3, on Hopper | exponentials and tensor cores |
//! | [`mma`] | many queries a sequence, on Ampere and later; on Hopper after the first one | not measured |
//! | [`mma::backward`] | the gradients, on Ampere and later; on Hopper after its own | not measured |
//! | [`decode::forward`] | few queries a sequence, on Ampere and later | memory |
//! | [`bias_gradient`] | the gradient of a bias of scores, on Ampere and later | loads |
//! | [`diagonals`] | that of a bias for each distance, from it | memory |
//!
//! # Which keys a query sees
//! Query `i` of `Sq` sees key `j` of `Sk` if `-left <= j - (i + diagonal) <= right`. The diagonal ends in the
//! last query and the last key (`diagonal = Sk - Sq`), or begins in the first of both (0). A query that sees
//! no key gets zeros, and a log-sum-exp of minus infinity.
//!
//! Results repeat bit for bit: a tile's keys are summed in one order by one block, or by several whose parts
//! are summed in one order.
//!
//! Without its feature `kernels` the package is what kernels elsewhere are built on: those with a score
//! function of their own ([`score_kernels!`], [`decode_score_kernels!`]).
#![cfg_attr(target_arch = "nvptx64", no_std)]
// Said here for those packages, whose build does not say it for this one.
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx, asm_experimental_arch, stdarch_nvptx))]

/// Items that exist on hosts and in the PTX for sm_90a alone. Macros have it from here: a package of their
/// caller need not know the `cfg`.
#[cfg(any(not(target_arch = "nvptx64"), ironwarp_sm = "90a"))]
#[doc(hidden)]
#[macro_export]
macro_rules! on_sm90 {
    ($($items:tt)*) => { $($items)* };
}
#[cfg(all(target_arch = "nvptx64", not(ironwarp_sm = "90a")))]
#[doc(hidden)]
#[macro_export]
macro_rules! on_sm90 {
    ($($items:tt)*) => {};
}

pub mod backward;
#[cfg(feature = "kernels")]
pub mod bias_gradient;
pub mod block_lists;
pub mod compiled;
pub mod decode;
#[cfg(feature = "kernels")]
pub mod diagonals;
pub mod dropout;
pub mod functions;
mod lines;
#[cfg(feature = "kernels")]
pub mod mma;
pub mod problem;
pub mod score;
pub mod softmax;
// Kernels for Hopper: they exist in the PTX for sm_90a alone.
#[cfg(any(not(target_arch = "nvptx64"), ironwarp_sm = "90a"))]
pub mod sm90;
