//! Tests of both drivers behind the table: every function, faults, fault injection, the environment.
//!
//! Tests of one program run one after the other, because captures and faults affect the whole process. A test
//! runs in its own process if it loses the context or needs a driver that is not loaded yet.

#[path = "../common/mod.rs"]
mod common;

mod before_init;
mod conformance_context;
mod conformance_copy;
mod conformance_fault;
mod conformance_graph;
mod conformance_ipc;
mod conformance_launch;
mod conformance_memory;
mod conformance_pool;
mod conformance_stream;
mod conformance_tensor_map;
mod cust_on_it;
mod environment;
mod fault_injection;
mod names;
