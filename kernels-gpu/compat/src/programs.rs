//! Ordinary Rust in kernels: the heap, structures, traits, closures, wide integers.
#![allow(unsafe_op_in_unsafe_fn)]

use alloc::collections::BTreeMap;

use cuda_std::mem::{free, malloc};
use cuda_std::prelude::*;

/// Sorts rows by way of a `Vec` each.
#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn sort_rows(values: &[u32], width: usize, out: *mut u32) {
    let row = thread::index_1d() as usize;
    let Some(values) = values.chunks_exact(width).nth(row) else { return };
    let mut sorted: Vec<u32> = values.to_owned();
    sorted.sort_unstable();
    for (i, value) in sorted.into_iter().enumerate() {
        *out.add(row * width + i) = value;
    }
}

/// The sum of squares below a number, by way of C's heap.
#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn squares_on_heap(out: *mut u64) {
    let count = thread::index_1d() as usize;
    let squares = malloc(count * size_of::<u64>()).cast::<u64>();
    if squares.is_null() {
        return;
    }
    for i in 0..count {
        *squares.add(i) = (i * i) as u64;
    }
    *out.add(count) = (0..count).map(|i| *squares.add(i)).sum();
    free(squares.cast());
    free(core::ptr::null_mut());
}

trait Shape {
    fn area(&self) -> f32;
}

struct Square(f32);
struct Disc(f32);

impl Shape for Square {
    fn area(&self) -> f32 {
        self.0 * self.0
    }
}

impl Shape for Disc {
    fn area(&self) -> f32 {
        core::f32::consts::PI * self.0 * self.0
    }
}

/// Boxes, and calls through a table.
#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn areas(sizes: &[f32], out: *mut f32) {
    let i = thread::index_1d() as usize;
    if i < sizes.len() {
        let shape: Box<dyn Shape> =
            if i.is_multiple_of(2) { Box::new(Square(sizes[i])) } else { Box::new(Disc(sizes[i])) };
        *out.add(i) = shape.area();
    }
}

/// Text from `format!`, its bytes and how many owners it has.
#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn texts(out: *mut [u8; 8]) {
    let i = thread::index_1d();
    let text: Rc<String> = Rc::new(i.to_string() + &format!("-{:02x}", i + 10));
    let other = Rc::clone(&text);
    let mut bytes = [0; 8];
    bytes[..other.len()].copy_from_slice(other.as_bytes());
    bytes[7] = Rc::strong_count(&text) as u8;
    *out.add(i as usize) = bytes;
}

/// How often the most frequent value occurs, by a map.
#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn most_frequent(values: &[u32], out: *mut [u32; 2]) {
    if thread::first() {
        let mut counts = BTreeMap::new();
        for value in values {
            *counts.entry(*value).or_insert(0) += 1;
        }
        *out =
            counts.iter().max_by_key(|(_, count)| **count).map_or([0; 2], |(value, count)| [*value, *count]);
    }
}

#[derive(Clone, Copy, KernelArgs)]
#[repr(C)]
pub struct Camera {
    pub position: [f32; 3],
    pub zoom: f32,
}

/// A structure by value, and one behind a reference.
#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn by_value(camera: Camera, other: &Camera, out: *mut f32) {
    let i = thread::thread_idx_x() as usize;
    *out.add(i) = camera.position[i] * other.zoom + other.position[i] * camera.zoom;
}

enum Step {
    Add(i64),
    Multiply(i64),
    Stop,
}

fn decode(word: u32) -> Step {
    match (word >> 8, (word & 0xff) as i64) {
        (1, by) => Step::Add(by),
        (2, by) => Step::Multiply(by),
        _ => Step::Stop,
    }
}

/// A little machine: steps up to the first that is unknown.
#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn machine(program: &[u32], out: *mut i64) {
    let mut value = thread::index_1d() as i64;
    for step in program.iter().copied().map(decode) {
        match step {
            Step::Add(by) => value += by,
            Step::Multiply(by) => value *= by,
            Step::Stop => break,
        }
    }
    *out.add(thread::index_1d() as usize) = value;
}

fn apply<const N: usize>(x: u64, f: impl Fn(u64) -> u64) -> u64 {
    (0..N).fold(x, |x, _| f(x))
}

/// A generator of random numbers with 128 bits of state, by closures and constants as parameters.
#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn wide_random(seed: u64, out: *mut u64) {
    let i = thread::index_1d() as usize;
    let mixed = apply::<5>(seed + i as u64, |x| {
        let wide = x as u128 * 0x9e37_79b9_7f4a_7c15;
        (wide >> 64) as u64 ^ wide as u64
    });
    *out.add(i) = mixed % 1_000_003;
}

/// Writes through an exclusive slice.
#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn double_all(values: &mut [u32]) {
    let i = thread::index_1d() as usize;
    if i < values.len() {
        values[i] *= 2;
    }
}

/// Forces between bodies, a step of time.
#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn bodies(positions: &[glam::Vec3], masses: &[f32], out: *mut glam::Vec3) {
    let i = thread::index_1d() as usize;
    if i >= positions.len() {
        return;
    }
    let mut force = glam::Vec3::ZERO;
    for (other, mass) in positions.iter().zip(masses) {
        let apart = *other - positions[i];
        let squared = apart.length_squared() + 0.01;
        force += apart * (*mass / (squared * cuda_std::GpuFloat::sqrt(squared)));
    }
    *out.add(i) = force;
}
