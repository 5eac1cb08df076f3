//! Reductions.

use super::stream_of;
use crate::error::Result;
use crate::ops::reduce::{self as ops, ReduceOp};
use crate::tensor::{DType, Dim, Named, Tensor, dim};

/// Names of a reduction (the dimensions go; they stay with one place; all of them go), its row of the op
/// table, and what it computes.
macro_rules! reduce_methods {
    ($($name:ident, $keepdim:ident, $all:ident = $op:ident: $formula:literal;)*) => {
        /// Reductions along the dimensions `dims`, which may be counted from the end; with none named, along
        /// all.
        ///
        /// The errors of all of them: [`crate::TensorError::Axes`] for a dimension that is not there or named
        /// twice; [`crate::TensorError::DType`] for 8-bit floats, and for means and norms of integers;
        /// [`crate::TensorError::Empty`] for a mean or an extreme of nothing, [`crate::Error::OutOfMemory`],
        /// or the driver's error.
        impl Tensor { $(
            #[doc = concat!($formula, " along `dims`, which are removed.")]
            ///
            /// # Errors
            /// See the head of this block.
            #[track_caller]
            pub fn $name<D: Dim>(&self, dims: &[D]) -> Result<Tensor> {
                reduce(stringify!($name), ReduceOp::$op, self, dims, false)
            }

            #[doc = concat!($formula, " along `dims`, which stay with size 1: PyTorch's `keepdim=True`.")]
            ///
            /// # Errors
            /// See the head of this block.
            #[track_caller]
            pub fn $keepdim<D: Dim>(&self, dims: &[D]) -> Result<Tensor> {
                reduce(stringify!($keepdim), ReduceOp::$op, self, dims, true)
            }

            #[doc = concat!($formula, " of all elements: a tensor without dimensions.")]
            ///
            /// # Errors
            /// See the head of this block.
            #[track_caller]
            pub fn $all(&self) -> Result<Tensor> {
                reduce::<usize>(stringify!($all), ReduceOp::$op, self, &[], false)
            }
        )* }
    };
}

reduce_methods! {
    sum, sum_keepdim, sum_all = Sum: "The sum (an i64 of integers and bools)";
    prod, prod_keepdim, prod_all = Prod: "The product (an i64 of integers and bools)";
    mean, mean_keepdim, mean_all = Mean: "The mean";
    norm, norm_keepdim, norm_all = Norm: "The Euclidean norm";
    amax, amax_keepdim, amax_all = Amax: "The largest element; NaN if there is one";
    amin, amin_keepdim, amin_all = Amin: "The smallest element; NaN if there is one";
}

#[track_caller]
fn reduce<D: Dim>(
    operation: &'static str,
    op: ReduceOp,
    x: &Tensor,
    dims: &[D],
    keepdim: bool,
) -> Result<Tensor> {
    let mut axes = dim::axes(operation, dims, x.rank(), "at most once")?;
    let reduced = ops::reduce(&stream_of(x)?, op, x, &axes).named(operation)?;
    if !keepdim {
        return Ok(reduced);
    }
    if axes.is_empty() {
        axes.extend(0..x.rank());
    }
    // From the front on, so that each is inserted where it was.
    axes.sort_unstable();
    axes.iter().try_fold(reduced, |reduced, &axis| reduced.unsqueeze(axis))
}

/// Extremes and where they stand; truth of all and any.
impl Tensor {
    /// The index of the largest element along `dim`, which is removed: i64, the first of several; NaN counts
    /// as largest.
    ///
    /// # Errors
    /// [`crate::TensorError::Axis`], [`crate::TensorError::DType`] for 8-bit floats,
    /// [`crate::TensorError::Empty`] where the dimension has no places, [`crate::Error::OutOfMemory`], or the
    /// driver's error.
    #[track_caller]
    pub fn argmax(&self, dim: impl Dim) -> Result<Tensor> {
        ops::argmax(&stream_of(self)?, self, dim::axis("argmax", dim, self.rank())?)
    }

    /// As [`Tensor::argmax`], of the smallest element; NaN counts as smallest.
    ///
    /// # Errors
    /// As [`Tensor::argmax`].
    #[track_caller]
    pub fn argmin(&self, dim: impl Dim) -> Result<Tensor> {
        ops::argmin(&stream_of(self)?, self, dim::axis("argmin", dim, self.rank())?)
    }

    /// The number of the largest of all elements, counted in order.
    ///
    /// # Errors
    /// As [`Tensor::argmax`].
    #[track_caller]
    pub fn argmax_all(&self) -> Result<Tensor> {
        self.reshape(&[-1])?.argmax(0).named("argmax_all")
    }

    /// The number of the smallest of all elements, counted in order.
    ///
    /// # Errors
    /// As [`Tensor::argmax`].
    #[track_caller]
    pub fn argmin_all(&self) -> Result<Tensor> {
        self.reshape(&[-1])?.argmin(0).named("argmin_all")
    }

    /// The largest elements along `dim`, which is removed, and their indices: `(amax, argmax)`.
    ///
    /// # Errors
    /// As [`Tensor::argmax`].
    #[track_caller]
    pub fn max(&self, dim: impl Dim) -> Result<(Tensor, Tensor)> {
        let places = self.argmax(dim).named("max")?;
        Ok((self.amax(&[dim])?, places))
    }

    /// The smallest elements along `dim`, which is removed, and their indices: `(amin, argmin)`.
    ///
    /// # Errors
    /// As [`Tensor::argmax`].
    #[track_caller]
    pub fn min(&self, dim: impl Dim) -> Result<(Tensor, Tensor)> {
        let places = self.argmin(dim).named("min")?;
        Ok((self.amin(&[dim])?, places))
    }

    /// Whether all elements along `dims`, which are removed, are true or not 0; true of no elements.
    ///
    /// # Errors
    /// As [`Tensor::sum`].
    #[track_caller]
    pub fn all<D: Dim>(&self, dims: &[D]) -> Result<Tensor> {
        // A product, since that of nothing is 1: true.
        self.truth("all")?.prod(dims).named("all")?.ne(0)
    }

    /// Whether any element along `dims`, which are removed, is true or not 0; false of no elements.
    ///
    /// # Errors
    /// As [`Tensor::sum`].
    #[track_caller]
    pub fn any<D: Dim>(&self, dims: &[D]) -> Result<Tensor> {
        self.truth("any")?.sum(dims).named("any")?.ne(0)
    }

    #[track_caller]
    fn truth(&self, operation: &'static str) -> Result<Tensor> {
        if self.dtype() == DType::Bool { Ok(self.clone()) } else { self.ne(0).named(operation) }
    }
}
