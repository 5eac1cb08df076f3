//! Parameters that a kernel cannot have.
use cuda_std::prelude::*;

pub struct Plain {
    pub a: f32,
}

#[kernel]
pub unsafe fn a_struct(plain: Plain) {}

#[kernel]
pub unsafe fn a_vector(x: Vec<f32>) {}

#[kernel]
pub unsafe fn a_vector_by_reference(x: &Vec<f32>) {}

#[kernel]
pub unsafe fn texts(x: &[String]) {}

fn main() {}
