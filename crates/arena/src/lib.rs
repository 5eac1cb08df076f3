//! The policy of a caching allocator: which block a request gets. It accesses no address and calls no driver,
//! so tests can check millions of operations against a model.
//!
//! A [`Cache`] has one heap per stream. A heap reserves *segments* from the system and divides them into
//! *blocks*. A request gets the best fit: the smallest free block that is large enough, and the lowest among
//! equals. The block is split if the rest is worth keeping, and merged with its free neighbours when it is
//! freed. Small blocks (up to [`SMALL_LIMIT`]) and large blocks never share a segment.
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
//! A stream runs its work in order. So a block that only its heap's stream has used can be reused while that
//! work is still queued: the next use comes later in the same queue. A block that other streams have used
//! waits for *events* in those streams. The heap queries the events when it allocates, and waits for them
//! only when memory runs short. Then it takes these steps: wait for all queued work, free pending blocks,
//! release idle segments of all heaps, and try the request once more.
//!
//! The allocations of a captured graph come from a private heap, since each replay uses its blocks again.
//! When the graph is gone, the next graph gets the heap. A capture cannot wait for the device. If memory runs
//! short in one, heaps of graphs that are gone release their idle segments, and then each heap whose stream
//! can be waited for.

mod backend;
mod bins;
mod cache;
mod heap;
mod size;
mod snapshot;
mod stats;
mod svg;

pub use backend::{Backend, Failure};
pub use cache::{Cache, Lease, StreamHeap};
pub use heap::Site;
pub use size::{Bytes, GRANULE, Kind, PAGE, SMALL_LIMIT, block_bytes};
pub use snapshot::{BlockSnapshot, BlockState, HeapSnapshot, Holder, SegmentSnapshot, Snapshot};
pub use stats::Stats;
