//! Holes that safe code could go through while a program runs. `src/lib.rs` lists them all.
#![forbid(unsafe_code)]

mod executor;
mod graphs;
