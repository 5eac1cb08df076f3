//! The allocator's policy against a model of a device.

mod common;
mod model;
mod training_trace;
