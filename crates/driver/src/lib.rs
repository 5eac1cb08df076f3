//! The CUDA driver API, bound when the program runs.
//!
//! cust links `libcuda` at build time, so a program that uses it builds and starts only where CUDA is
//! installed. This package defines the `cu*` symbols that cust refers to. Each symbol jumps through a table.
//! `cuInit` fills the table from NVIDIA's driver library or from the software driver in [`soft`]. A program
//! that links this package and cust runs on either.
//!
//! | variable | values | default |
//! |---|---|---|
//! | `IRONWARP_DRIVER` | `nvidia`, `soft` | NVIDIA's driver if it has a device, else the software driver |
//! | `IRONWARP_LIBCUDA` | path of a driver library, tried first | none |
//! | `IRONWARP_SOFT_DEVICES` | 1 to 64 | 1 |
//! | `IRONWARP_SOFT_ARCH` | compute capability of the devices: 7.5, 8.0, 8.6, 8.9, 9.0, 10.0, 12.0 | 9.0 |
//! | `IRONWARP_SOFT_MEMORY` | bytes per device, for example `4G` | half of the machine's memory, shared among the devices |
//! | `IRONWARP_NCCL` | path of an NCCL library, tried first | none |
//! | `IRONWARP_FAULT` | `FUNCTION:NTH:CODE[:always]`, separated by commas | none |
//!
//! The only platforms are Linux on x86-64 and aarch64.

pub mod code;
mod env;
pub mod fault;
mod load;
mod names;
pub mod nccl;
mod nvidia;
pub mod soft;
mod table;
pub mod tensor_map;
pub mod topology;

pub use load::{Backend, InitError, backend, init_error, proc_address};
pub use simt::note;
