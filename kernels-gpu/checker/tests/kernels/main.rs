//! The kernels of this package under the checker: it reports bugs and passes correct kernels.
//!
//! `tables` says of each kernel what is expected, `not_yet` which expectations the checker does not meet,
//! and `walk` runs all of it under several seeds and prints how many were found.

mod launch;
mod marks;
mod not_yet;
mod report;
mod speed;
mod tables;
mod walk;
