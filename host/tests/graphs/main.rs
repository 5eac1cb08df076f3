//! Graphs. A program of its own: while one of its tests captures, no other may wait for the whole device.

#[path = "../common/mod.rs"]
mod common;

mod graph_cache;
mod graphs;
mod optimizers;
mod uses;
