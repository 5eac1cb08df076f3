//! The arguments of the main kernel.

use cuda_std::tma::TensorMap;

use super::config::Config;
use crate::backward::{ResultStrides, order::Order};
use crate::block_lists::Lists;
use crate::problem::{AttentionParams, Packing, Strides};

/// Maps of `[batch, heads, rows, d]`, d contiguous, in boxes of 64 columns with a swizzle of 128 bytes:
/// `BLOCK_M` rows of queries and gradients, 128 of keys and values, 64 of their gradients.
#[derive(Clone, Copy)]
pub struct Maps {
    /// Q.
    pub queries: *const TensorMap,
    /// K.
    pub keys: *const TensorMap,
    /// V.
    pub values: *const TensorMap,
    /// dO.
    pub gradients: *const TensorMap,
    /// dK.
    pub key_gradients: *const TensorMap,
    /// dV.
    pub value_gradients: *const TensorMap,
}

/// The numbers that [`prepare`](crate::backward::prepare) writes, and the sums. Rows are padded to whole
/// tiles of queries ([`AttentionParams::padded_row`]).
#[derive(Clone, Copy)]
pub struct Statistics32 {
    /// L in base 2; plus infinity where the row is not to count.
    pub logarithms: *const f32,
    /// D.
    pub deltas: *const f32,
    /// Sums of dQ, in the order of registers: `[tile][half][quad][thread][4]`.
    pub sums: *mut f32,
}

/// dK and dV, for rows of packed sequences whose tile reaches into the next sequence.
#[derive(Clone, Copy)]
pub struct Results {
    /// First element of dK.
    pub keys: *mut u16,
    /// First element of dV.
    pub values: *mut u16,
    /// Where their rows begin.
    pub strides: ResultStrides,
}

impl Results {
    /// Sequences are not packed.
    pub const NONE: Self = {
        let strides = Strides { row: 0, head: 0, matrix: 0 };
        let strides = ResultStrides { keys: strides, values: strides };
        Self { keys: core::ptr::null_mut(), values: core::ptr::null_mut(), strides }
    };
}

/// dQ, where the main kernel writes it.
#[derive(Clone, Copy)]
pub struct QueryResults {
    /// First element.
    pub data: *mut u16,
    /// Where its rows begin.
    pub strides: Strides,
}

impl QueryResults {
    /// Another kernel writes it.
    pub const NONE: Self =
        Self { data: core::ptr::null_mut(), strides: Strides { row: 0, head: 0, matrix: 0 } };
}

/// The arguments of a launch.
#[derive(Clone, Copy)]
pub struct Arguments<'a> {
    /// The maps.
    pub maps: Maps,
    /// The tensors of the maps of gradients.
    pub results: Results,
    /// dQ, of [`whole`](super::whole) heads.
    pub queries: QueryResults,
    /// The problem.
    pub params: &'a AttentionParams,
    /// Where packed sequences begin.
    pub packing: Packing,
    /// Numbers of rows, and sums.
    pub rows: Statistics32,
    /// In which order blocks add to the sums.
    pub order: Order,
    /// The blocks of queries that tiles of keys look at; none where the order is fixed.
    pub lists: Lists,
}

impl Arguments<'_> {
    /// Whether sequences are packed: never for kernels of two sizes.
    #[inline(always)]
    pub(super) const fn is_packed<C: Config>(&self) -> bool {
        C::IS_OF_ONE_SIZE && !self.packing.queries.is_null()
    }
}
