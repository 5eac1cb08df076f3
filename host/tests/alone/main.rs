//! Tests that each need a process of their own: they set environment variables that are read once, lose the
//! device, count driver calls, measure memory, or make driver calls fail.
//!
//! Each begins with [`testkit::own_process!`], so that each has its process, and they run one at a time.

#[path = "../common/mod.rs"]
mod common;
#[path = "../gemm/gemm_case/mod.rs"]
mod gemm_case;
#[path = "../common/norms.rs"]
mod norms;

mod attention_counter;
mod fault_sweep;
mod graph_memory;
mod graph_modules;
mod graph_sticky;
mod host_memory;
mod launch_blocking;
mod launch_prepared;
mod memory;
mod memory_bounds;
mod memory_guards;
mod memory_passthrough;
mod memory_sites;
mod multi_device;
mod occupancy;
mod ops_gemm_tune_memory;
mod out_of_memory;
mod peer_copies;
mod pinned_lost;
mod sticky;
mod stream_events;
mod suspects;
mod sweep;
mod wrong_calls;
