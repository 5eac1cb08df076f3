//! Collectives by kernels of our own, over the memory of peers in one process.

mod fused;
mod launches;
mod member;
mod plan;
mod shared;

pub(super) use launches::{Order, format};
pub(super) use member::Member;
pub use plan::{Algorithm, Plan};
pub(super) use shared::{Shared, reaches_all};
