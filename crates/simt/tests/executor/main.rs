//! The executor and its checker, through the functions that kernels and the software driver call.

mod async_copy;
mod barriers;
mod clusters;
mod common;
mod devices;
mod launches;
mod mbarriers;
mod memory;
mod races;
mod spaces;
mod stacks;
mod tensor_copies;
mod tensor_copy_order;
mod warps;
mod wgmma;
