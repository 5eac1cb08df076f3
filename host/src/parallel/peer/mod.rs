//! Collectives by kernels of our own, over the memory of peers in one process.

mod launches;
mod plan;
mod shared;

pub(super) use launches::{Order, format};
pub use plan::{Algorithm, Plan};
pub(super) use shared::Shared;
