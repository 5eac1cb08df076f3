//! Text and assertions from threads.

use cuda_std::prelude::*;
use cuda_std::{assert_eq, assert_ne};

#[kernel]
#[allow(improper_ctypes_definitions)]
pub unsafe fn print_lines(values: &[f32]) {
    let idx = thread::index_1d() as usize;
    if idx < values.len() {
        println!("thread {idx} of block {}: {:.2} is 100% fine", thread::block_idx_x(), values[idx]);
    }
    if thread::first() {
        print!("done");
        println!();
    }
}

/// Prints a text that is longer than the buffer, and a text built on the heap.
#[kernel]
pub unsafe fn print_long(repeat: u32) {
    if thread::first() {
        let heap: String = (0..repeat).map(|i| format!("{i},")).collect();
        println!("{heap}{}", "x".repeat(repeat as usize));
    }
}

#[kernel]
#[allow(improper_ctypes_definitions)]
pub unsafe fn refuse_zeros(values: &[u32]) {
    let idx = thread::index_1d() as usize;
    if idx < values.len() {
        assert_ne!(values[idx], 0);
        assert_eq!(values[idx].min(1), 1, "in thread {idx}");
    }
}
