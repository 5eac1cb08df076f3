//! The CUDA driver API, bound when the program runs.
//!
//! cust links `libcuda` when a program is built, and so builds and starts only where CUDA is installed. This package
//! defines the `cu*` symbols that cust refers to; each jumps through a table that `cuInit` fills, from NVIDIA's driver
//! library or with the software driver of [`soft`]. A program links this package and cust, and runs on either.
//!
//! | variable | values | default |
//! |---|---|---|
//! | `IRONWARP_DRIVER` | `nvidia`, `soft` | NVIDIA's where it has a device, else the software driver |
//! | `IRONWARP_LIBCUDA` | path of a driver library, tried first | none |
//! | `IRONWARP_SOFT_DEVICES` | 1 to 64 | 1 |
//! | `IRONWARP_SOFT_MEMORY` | bytes a device, as in `4G` | half of the machine's memory, shared among the devices |
//! | `IRONWARP_FAULT` | `FUNCTION:NTH:CODE[:always]`, comma between several | none |
//!
//! The only platforms are Linux on x86-64 and aarch64.

pub mod code;
mod env;
pub mod fault;
mod load;
mod names;
mod nvidia;
pub mod soft;
mod table;
pub mod tensor_map;

pub use load::{Backend, InitError, backend, init_error, proc_address};
