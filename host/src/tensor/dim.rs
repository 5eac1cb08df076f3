//! Dimensions and places that may be counted from the end.

use super::TensorError;
use crate::error::Result;

/// The number of a dimension, or of a place along one: `0` is the first, `-1` the last.
///
/// It is `i32` (the type of a plain literal), `i64`, `isize` or `usize`. Negative numbers count from the end.
pub trait Dim: Copy + sealed::Sealed {
    /// The number as it was given. One that does not fit is out of every range and stays so.
    fn given(self) -> isize;
}

macro_rules! dims {
    ($($ty:ty),*) => { $(
        impl sealed::Sealed for $ty {}
        impl Dim for $ty {
            fn given(self) -> isize {
                let edge = if self > 0 { isize::MAX } else { isize::MIN };
                isize::try_from(self).unwrap_or(edge)
            }
        }
    )* };
}

dims!(i32, i64, isize, usize);

mod sealed {
    pub trait Sealed {}
}

/// `given` counted from the front of `len` places; `None` outside of them.
pub(crate) fn counted(given: isize, len: usize) -> Option<usize> {
    let place = if given < 0 { len.checked_sub(given.unsigned_abs())? } else { given.unsigned_abs() };
    (place < len).then_some(place)
}

/// The dimension `dim` of a tensor with `rank` dimensions.
///
/// # Errors
/// [`TensorError::Axis`].
pub(crate) fn axis(operation: &'static str, dim: impl Dim, rank: usize) -> Result<usize> {
    let axis = dim.given();
    counted(axis, rank).ok_or_else(|| TensorError::Axis { operation, axis, rank }.into())
}

/// The dimensions `dims` of a tensor with `rank` dimensions, each of which may be named once.
///
/// # Errors
/// [`TensorError::Axes`].
pub(crate) fn axes(
    operation: &'static str,
    dims: &[impl Dim],
    rank: usize,
    wanted: &'static str,
) -> Result<Vec<usize>> {
    let found: Option<Vec<usize>> = dims.iter().map(|dim| counted(dim.given(), rank)).collect();
    let distinct = |axes: &Vec<usize>| (1..axes.len()).all(|i| !axes[..i].contains(&axes[i]));
    found.filter(distinct).ok_or_else(|| {
        let axes = dims.iter().map(|dim| dim.given()).collect();
        TensorError::Axes { operation, axes, rank, wanted }.into()
    })
}

/// The dimensions `dims`, all of the `rank` that there are, as the order of a permutation.
///
/// # Errors
/// [`TensorError::Axes`].
pub(crate) fn order(dims: &[impl Dim], rank: usize) -> Result<Vec<usize>> {
    let wanted = "exactly once";
    if dims.len() != rank {
        let axes = dims.iter().map(|dim| dim.given()).collect();
        return Err(TensorError::Axes { operation: "permute", axes, rank, wanted }.into());
    }
    axes("permute", dims, rank, wanted)
}

/// The place `index` of axis `axis`, which has `len` places.
///
/// # Errors
/// [`TensorError::Place`].
pub(crate) fn place(operation: &'static str, axis: usize, index: impl Dim, len: usize) -> Result<usize> {
    let place = index.given();
    counted(place, len).ok_or_else(|| TensorError::Place { operation, axis, place, len }.into())
}

#[cfg(test)]
mod tests {
    use super::{Dim, axes, axis, counted};

    #[test]
    fn negative_numbers_count_from_the_end() {
        for (given, len, place) in [
            (0, 3, Some(0)),
            (2, 3, Some(2)),
            (3, 3, None),
            (-1, 3, Some(2)),
            (-3, 3, Some(0)),
            (-4, 3, None),
            (0, 0, None),
            (-1, 0, None),
            (isize::MIN, 3, None),
            (isize::MAX, 3, None),
        ] {
            assert_eq!(counted(given, len), place, "{given} of {len}");
        }
    }

    #[test]
    fn all_integer_types_mean_the_same() {
        for axis in [axis("op", 1i32, 3), axis("op", 1i64, 3), axis("op", 1isize, 3), axis("op", 1usize, 3)] {
            assert_eq!(axis.ok(), Some(1));
        }
        assert_eq!(usize::MAX.given(), isize::MAX);
        assert!(axis("op", usize::MAX, 3).is_err());
    }

    #[test]
    fn a_dimension_is_named_once() {
        assert_eq!(axes("op", &[-1, 0], 2, "").ok(), Some(vec![1, 0]));
        assert!(axes("op", &[1, -1], 2, "").is_err());
        assert!(axes("op", &[2], 2, "").is_err());
    }
}
