//! Devices, buffers, streams, launches: tests of the runtime that may run beside each other in one process.
//!
//! A test that captures a graph takes a process of its own, because a capture forbids other tests to wait for
//! the device and to hand buffers to cust.

#[path = "../common/mod.rs"]
mod common;

mod buffers;
mod compile_fail;
mod devices;
mod interop;
mod launches;
mod pinned;
mod streams;
mod tensor_maps;
