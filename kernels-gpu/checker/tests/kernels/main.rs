//! The kernels of this package under the checker: it reports bugs and passes correct kernels.

mod bugs;
mod common;
mod correct;
