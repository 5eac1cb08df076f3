//! Parts of the backward passes of all devices: numbers of rows of queries, and the gradients of sinks. The
//! [`order`] of sums in memory is that of Hopper's pass alone.
//!
//! | kernel | |
//! |---|---|
//! | [`prepare`] | before the others: `D = rowsum(dO O)` and the log-sum-exps in base 2, a row each |
//! | [`sinks`] | the gradients of sinks, if there are any |

#[cfg(feature = "kernels")]
pub mod instances;
pub mod order;
pub mod prepare;
pub mod sinks;

use cuda_std::KernelArgs;

use crate::problem::Strides;

/// Where rows of dK and dV begin.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, KernelArgs)]
pub struct ResultStrides {
    /// Of dK.
    pub keys: Strides,
    /// Of dV.
    pub values: Strides,
}
