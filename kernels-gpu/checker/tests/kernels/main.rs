//! The kernels of this package under the checker: it reports bugs and passes correct kernels.
//!
//! `tables` says of each kernel what is expected, `not_yet` which expectations the checker does not meet,
//! and `walk` runs all of it under several seeds and prints how many were found. `sanitizers` tests what the
//! program `corpus` makes of compute-sanitizer's output.

mod launch;
#[path = "../corpus/list.rs"]
#[allow(dead_code, reason = "the other program launches its kernels")]
mod list;
#[path = "../corpus/log.rs"]
mod log;
mod marks;
mod not_yet;
mod report;
#[path = "../corpus/results.rs"]
mod results;
mod sanitizers;
mod shape;
mod speed;
#[path = "../corpus/table.rs"]
mod table;
mod tables;
mod walk;
