//! The policy of a caching allocator: which block a request gets. No address is touched and no driver called here, so that the
//! policy can be checked against a model, millions of operations at a time.
//!
//! A [`Cache`] has a heap a stream. A heap takes *segments* from the system and cuts *blocks* from them: the best fit (the
//! smallest free block that is large enough, of those the lowest), split where the rest is worth keeping, and merged with
//! its free neighbours when it comes back. Small blocks (up to [`SMALL_LIMIT`]) and large ones never share a segment.
//!
//! ```text
//!                    reserve                    take (best fit, split)
//!   the system  ----------------->  Free  ------------------------------->  Live
//!        ^                          |  ^                                      |
//!        |     release (whole       |  |   give_back (merged): used           |
//!        |     segments, when       |  +-- by the heap's own stream alone ----+
//!        |     nothing runs)        |  |                                      |
//!        +--------------------------+  |   every event                        |  suspend: other streams
//!                                      +-- reached ------  Pending  <---------+  may still work on it
//! ```
//!
//! A stream does its work in order, so a block that only its heap's stream has used can be given out again while that work is
//! still queued: whoever gets it comes later in the same queue. A block that other streams have used waits until marks
//! (*events*) in those streams are reached; they are asked for when the heap allocates, and never waited for unless
//! memory runs short. Then, in this order: everything that is queued is waited for, pending blocks are freed, idle segments
//! of all heaps go back to the system, and the request is tried once more.

mod bins;
mod cache;
mod heap;
mod size;
mod snapshot;
mod stats;
mod svg;

pub use cache::{Backend, Cache, Failure, Lease, StreamHeap};
pub use heap::Site;
pub use size::{GRANULE, Kind, PAGE, SMALL_LIMIT, block_bytes};
pub use snapshot::{BlockSnapshot, BlockState, HeapSnapshot, Holder, SegmentSnapshot, Snapshot};
pub use stats::Stats;
