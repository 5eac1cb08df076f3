//! Collectives by kernels of our own, over the memory of peers: threads' buffers, or the stages of processes.

mod fused;
mod launches;
mod member;
mod plan;
mod shared;
mod staged;

pub(super) use launches::{Order, format};
pub(super) use member::Member;
pub use plan::{Algorithm, Explanation, Plan};
pub(super) use shared::{LINE, Place, Shared, hindrance};
pub(super) use staged::STAGE;
