//! All kernels of the tables in one list, with what this program needs of them.

use crate::shape::Shape;
use crate::tables::{self, IsRight};

/// A kernel.
#[derive(Clone, Copy)]
pub struct Kernel {
    pub name: &'static str,
    /// The class of its bug, or the one that it comes near to.
    pub class: &'static str,
    pub shape: Shape,
    /// For correct kernels: whether `data` and `aux` are right afterwards.
    pub is_right: Option<IsRight>,
}

/// The buggy kernels, then the correct ones. The index of a kernel is its place here.
pub fn all() -> Vec<Kernel> {
    let bugs = tables::bugs();
    let bugs = bugs.map(|bug| Kernel { name: bug.name, class: bug.class, shape: bug.shape, is_right: None });
    let correct = tables::correct().map(|correct| Kernel {
        name: correct.name,
        class: correct.near,
        shape: correct.shape,
        is_right: Some(correct.is_right),
    });
    bugs.chain(correct).collect()
}
