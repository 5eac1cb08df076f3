//! The kernels of this package under the checker: bugs are reported, correct kernels pass.

mod bugs;
mod common;
mod correct;
