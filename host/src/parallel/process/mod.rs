//! Groups over peer memory whose ranks are processes of one machine. A rank reaches the memory that each
//! peer allocates when it joins, and no other: users' buffers pass through it (`peer/staged.rs`).
//!
//! | file | |
//! |---|---|
//! | `offer` | what ranks tell each other when they join, and why they cannot reach each other |
//! | `join` | joining: peers' memory, NCCL, or both |
//! | `seat` | a rank's own memory and its peers', from the join to the end |
//! | `words` | host memory that all ranks have |
//! | `book` | calls, compared through it |
//! | `watch` | a thread that sees peers die |

mod book;
mod join;
mod offer;
mod seat;
mod watch;
mod words;

pub use book::Book;
pub use join::{EXCHANGES, join};
pub use seat::Seat;
