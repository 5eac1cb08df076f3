//! The builder on packages outside this workspace.

mod corpus;
mod damaged;
mod edited_meanwhile;
mod external_package;
mod instructions;
mod rust_cuda;
#[cfg(unix)]
mod stand_in;
mod together;
