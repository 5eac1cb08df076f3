//! Collectives by kernels of our own, over the memory of peers in one process.

mod launches;
mod plan;
mod shared;

pub use plan::{Algorithm, Plan};
pub(super) use launches::{Order, format};
pub(super) use shared::Shared;
