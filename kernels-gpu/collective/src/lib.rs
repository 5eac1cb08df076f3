//! Collectives: kernels of several GPUs that read and write each other's memory by plain pointers.
//!
//! Each rank launches the same kernel with the same grid. Block `b` of a rank works with the blocks `b` of
//! the others, and with no other block:
//!
//! ```text
//!   meet    tell every peer where my buffers are; wait until every peer has told me
//!   move    load from the peers' buffers, combine, store to the peers' buffers
//!   leave   tell every peer that I am done; wait until every peer has told me
//! ```
//! | module | |
//! |---|---|
//! | [`team`] | who takes part, and the memory that ranks write to each other |
//! | [`meeting`] | `meet` and `leave`: flags, epochs, time limits |
//! | [`number`] | the element types and how they are combined |
//! | [`reduce`] | sums: each element by one owner, who reads it from all and writes it to all (or keeps it) |
//! | [`gradients`] | sums of gradients in f32, with the sum of their squares |
//! | [`low_latency`] | small sums without a meeting: data travel with their flags |
//! | [`small_gather`] | small all-gather and broadcast like that |
//! | [`norm`] | small all-reduce with the residual and the norm that follow it |
//! | [`stage`] | copies to and from memory that peers reach, for ranks in processes of their own |
//! | [`transfer`] | all-gather, broadcast, all-to-all, send, receive, barrier |
//! | [`tick`] | marks around calls of another library |
//!
//! # Flags
//! A flag is a 64-bit word in the memory of the rank that waits for it. It holds an *epoch*, which grows with
//! each launch, and is kept on the device, so that graphs replay. Flags are never reset. They are written by
//! `st.release.sys` and polled by `ld.acquire.sys`.
//!
//! # Who is resident
//! Blocks wait for blocks of other devices, so all blocks of a launch must fit on the device at once: at most
//! one for each multiprocessor.
//!
//! # When a rank is missing
//! A wait looks at the clock now and then. After the limit it writes a [`team::Report`] where the host reads
//! it, and the group's abort word, so that the other ranks stop waiting too. No rank's data move before all
//! ranks have met, so a rank that gives up at a meeting can be sure that nobody writes to its buffers later.
#![cfg_attr(target_arch = "nvptx64", no_std)]
// Iterators by value over arrays end up in local memory. Indices that unroll to constants do not.
#![allow(clippy::needless_range_loop)]

pub mod gradients;
pub mod low_latency;
pub mod meeting;
pub mod norm;
pub mod number;
pub mod reduce;
pub mod small_gather;
pub mod stage;
pub mod team;
pub mod tick;
pub mod transfer;

/// Threads of a block: a warp for each peer, and enough to keep the link busy.
pub const THREADS: u32 = 512;
/// Most blocks of a launch.
pub const MAX_BLOCKS: usize = 64;
/// Most ranks of a group.
pub const MAX_RANKS: usize = 8;
/// Bytes of a thread's access.
pub const UNIT: u64 = 16;

const _: () = assert!(THREADS as usize / 32 >= MAX_RANKS, "a warp for each peer");
