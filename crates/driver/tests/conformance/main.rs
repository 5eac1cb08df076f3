//! Both drivers behind the table: what every function does, faults, rules, the environment.
//!
//! Tests of one program run one after the other, since captures and faults touch the whole process. A test
//! that loses the context, or needs a driver that nothing has loaded yet, takes a process of its own.

#[path = "../common/mod.rs"]
mod common;

mod before_init;
mod conformance_context;
mod conformance_copy;
mod conformance_fault;
mod conformance_graph;
mod conformance_launch;
mod conformance_memory;
mod conformance_pool;
mod conformance_stream;
mod conformance_tensor_map;
mod cust_on_it;
mod environment;
mod fault_injection;
mod names;
