//! Attention of few queries a sequence on many keys: as fast as keys and values come from memory.
//!
//! ```text
//!                   keys of a sequence          a block of 4 warps, each with its own ring of stages:
//!             +----+----+----+----+----+----
//!   rows of   | w0 | w1 | w2 | w3 | w0 | ..       copy 0 | copy 1 | wait 0, copy 2, use 0 | wait 1, copy 0, use 1 | ..
//!   queries   | 16 | 16 | 16 | 16 |    |
//!   (16)      +----+----+----+----+----+----     at the end of the sequence: O = sum of the warps' O, weighted
//!               chunk 0             chunk 1
//! ```
//! * **Rows.** The heads of queries that share a head of keys, times the queries of the sequence, are the
//!   rows of a product of `mma.m16n8k16`: keys and values are read once for all of them, up to 16. More rows
//!   are more tiles, which read them again, mostly from L2.
//! * **Copies.** A warp copies tiles of 16 keys and their values by `cp.async`, 16 bytes a lane. It waits for
//!   no other warp: the block has no barrier but at the end of a sequence. All its stages but one are under
//!   way, 100 KiB or more a multiprocessor, where 36 KiB hide the latency of an H200's memory.
//! * **Shares.** Every block gets as many keys as the next, over the borders of sequences and heads
//!   ([`schedule`]). What is cut into parts is put together by [`combine`], in a fixed order.
//! * **Softmax** as on [Hopper](crate::softmax). The running sums are multiplied only when a maximum has
//!   risen.
//! * **Pages.** A table may name the page of each so many keys of a sequence. If their number is a multiple
//!   of 16, a tile takes one look at the table, else each key takes one.
//! * **New keys** are not in the cache yet. The warp that has one in its tile copies it from where it comes,
//!   rotates it in its stage, and stores it and its value to the cache, which nobody reads there.
//! * **Score functions** are applied to the scores of a tile in front of the mask.
//! * **In e4m3**, with a scale for each head of keys, a cache has half the bytes: on Hopper.
//!
//! A length counts as no less than 0 and no more than the most. The keys of a page that there is not are
//! zeros, as are their values.
//!
//! | file | |
//! |---|---|
//! | [`instances`] | the kernels and the table of them |
//! | [`compiled`] | kernels with a score function |
//! | `with_pattern` | those with ALiBi or a soft cap |
//! | [`config`] | what a kernel is made of; the plan of its shared memory |
//! | [`problem`] | the arguments; which keys are seen |
//! | [`schedule`] | how the work is shared out |
//! | [`cache`] | where keys and values lie |
//! | [`rotary`] | rotation of queries and new keys |
//! | [`forward`] | copies, and the softmax |
//! | [`bits`] | products with a cache of the queries' type, and new keys for it |
//! | [`results`] | from a block's warps to memory |
//! | [`combine`] | from blocks' parts to results |
//! | `sm90` | what [`bits`] has, of a cache in e4m3; its kernels |

pub mod bits;
pub mod cache;
pub mod combine;
pub mod compiled;
pub mod config;
pub mod forward;
pub mod instances;
pub mod problem;
pub mod results;
pub mod rotary;
pub mod schedule;
#[cfg(any(not(target_arch = "nvptx64"), ironwarp_sm = "90a"))]
pub mod sm90;
#[cfg(feature = "kernels")]
pub mod with_pattern;
