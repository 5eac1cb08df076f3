//! Hopper's tensor cores: [`gemm::sm90`].
//!
//! The kernels read both operands through tensor maps, in one of two orders each; an operand in another
//! order, or whose rows do not begin at 16-byte boundaries, is copied first. Those whose rows begin at such a
//! boundary but not at a cache line take twice the requests: where that is estimated to cost more than a copy
//! does, they are copied too. Operands of 32 bits that are not both along k and addressable have a kernel
//! besides that takes them as they lie ([`gemm::sm90::direct`]).
//!
//! A product can also be computed as its transpose, `C^T = B^T A^T`: by kernels that store their result
//! transposed, for few rows of C, and by the others for a C whose columns lie contiguous.

use gemm::sm90::direct::DirectParams;

mod candidates;
mod clusters;
mod cost;
mod launch;
mod maps;

use super::backend::Backend;
use super::config::Kernel;
use super::epilogue::Vector;
use crate::memory::DeviceView;

pub(super) use candidates::{ARCH, copy, element, in_units, name, terms};
pub(super) use cost::beside;
pub(super) use launch::{Launch, launch, output};
pub(super) use maps::{BOX, K_BYTES, map, operand_map, paired, result_maps};

pub(super) const BACKEND: Backend = Backend {
    candidates: candidates::candidates,
    has: |kernel| matches!(kernel, Kernel::Sm90(_)),
    launch: launch::launch_matmul,
};

/// Offsets of groups, and how many groups there are.
#[derive(Clone, Copy)]
pub(super) struct Groups<'a> {
    pub offsets: Vector<'a>,
    pub count: u32,
}

/// Inputs that a kernel reads by itself, of A's side and of B's.
#[derive(Clone, Copy)]
pub(super) enum Read<'a> {
    /// Factors of blocks.
    Scales(Scales<'a>),
    /// The operands, and how they lie.
    Operands([DeviceView<'a, f32>; 2], DirectParams),
}

/// Factors of blocks, of A and B, and from a block of k to the next in those of A.
#[derive(Clone, Copy)]
pub(super) struct Scales<'a> {
    pub a: DeviceView<'a, f32>,
    pub b: DeviceView<'a, f32>,
    pub a_pitch: u32,
}
