//! Elements by their numbers, and by masks.

use super::number::{Operand, filled, promoted};
use super::stream_of;
use crate::error::Result;
use crate::ops::elementwise;
use crate::ops::fill;
use crate::ops::index::{self, Indices};
use crate::stream::Stream;
use crate::tensor::promote::Scalar;
use crate::tensor::{DType, Dim, Layout, Named, Tensor, TensorError, dim};

/// Elements by their numbers. Index tensors are i64 or i32; their elements are checked, for which the host
/// waits. [`crate::ops::index`] takes indices that were checked before.
impl Tensor {
    /// The places `index` (of one dimension) of `dim`, in their order: `y[.., i, ..] = x[.., index[i], ..]`.
    ///
    /// # Errors
    /// [`TensorError::Axis`], [`TensorError::Shape`], [`TensorError::Index`] for an index outside,
    /// [`TensorError::DType`], [`crate::Error::DeviceMismatch`], [`crate::Error::OutOfMemory`],
    /// [`crate::Error::NotCapturable`] on a stream that is being captured, or the driver's error.
    #[track_caller]
    pub fn index_select(&self, dim: impl Dim, index: &Tensor) -> Result<Tensor> {
        let operation = "index_select";
        let axis = dim::axis(operation, dim, self.rank())?;
        if index.rank() > 1 {
            let (what, got, wanted) = ("index", index.shape().clone(), "one dimension".to_owned());
            let hint = "`flatten` the indices, and `reshape` the result; `gather` takes an index an element";
            return Err(TensorError::Shape { operation, what, got, wanted, hint }.into());
        }
        let stream = stream_of(self)?;
        let indices = Indices::from_tensor(&stream, index, self.shape()[axis]).named(operation)?;
        index::gather(&stream, self, axis, &indices).named(operation)
    }

    /// `y[i][j] = x[index[i][j]][j]` for `dim` 0, and so on: the shape of `index`, which is no longer than
    /// `x` along the other dimensions.
    ///
    /// # Errors
    /// As [`Tensor::index_select`].
    #[track_caller]
    pub fn gather(&self, dim: impl Dim, index: &Tensor) -> Result<Tensor> {
        let stream = stream_of(self)?;
        let x = elementwise::contiguous(&stream, self)?.view_as(&[self.elements()])?;
        let places = places(&stream, "gather", self, dim, index)?;
        index::gather(&stream, &x, 0, &places)?.view_as(index.shape())
    }

    /// A copy with `y[index[i][j]][j] = source[i][j]` for `dim` 0, and so on. Of several written to one place
    /// the last stays.
    ///
    /// # Errors
    /// As [`Tensor::index_select`]; [`TensorError::Shape`] also when `source` is not shaped as `index`.
    #[track_caller]
    pub fn scatter(&self, dim: impl Dim, index: &Tensor, source: &Tensor) -> Result<Tensor> {
        self.scattered("scatter", index::scatter, dim, index, source)
    }

    /// A copy with `y[index[i][j]][j] += source[i][j]` for `dim` 0, and so on, in the order of the elements:
    /// the same bits in every run.
    ///
    /// # Errors
    /// As [`Tensor::scatter`].
    #[track_caller]
    pub fn scatter_add(&self, dim: impl Dim, index: &Tensor, source: &Tensor) -> Result<Tensor> {
        self.scattered("scatter_add", index::scatter_add, dim, index, source)
    }

    /// For each index a row of `classes` places with 1 at its place and 0 elsewhere, i64: the index tensor's
    /// shape and one more dimension.
    ///
    /// # Errors
    /// [`TensorError::Index`] for an index that is no class, [`TensorError::DType`] where the tensor is no
    /// i64 or i32, [`TensorError::Rank`], [`crate::Error::OutOfMemory`], [`crate::Error::NotCapturable`] on a
    /// stream that is being captured, or the driver's error.
    #[track_caller]
    pub fn one_hot(&self, classes: usize) -> Result<Tensor> {
        let (operation, stream) = ("one_hot", stream_of(self)?);
        let checked = Indices::from_tensor(&stream, self, classes).named(operation)?;
        let class = fill::arange(&stream, 0.0, 1.0, classes, DType::I64)?;
        let rows = checked.as_tensor().view_as(self.shape())?.unsqueeze(-1).named(operation)?;
        rows.eq(&class)?.to(DType::I64)
    }

    #[track_caller]
    fn scattered(
        &self,
        operation: &'static str,
        scatter: impl FnOnce(&Stream, crate::TensorMut<'_>, usize, &Indices, &Tensor) -> Result<()>,
        dim: impl Dim,
        index: &Tensor,
        source: &Tensor,
    ) -> Result<Tensor> {
        let stream = stream_of(self)?;
        if source.shape() != index.shape() {
            let (what, got, wanted) = ("source", source.shape().clone(), index.shape().to_string());
            let hint = "the source has an element for each index";
            return Err(TensorError::Shape { operation, what, got, wanted, hint }.into());
        }
        let places = places(&stream, operation, self, dim, index)?;
        let source = elementwise::contiguous(&stream, source)?.view_as(&[source.elements()])?;
        let mut out = elementwise::copy(&stream, self)?;
        let flat = [self.elements()];
        scatter(&stream, out.view_mut()?.reshape(&flat)?, 0, &places, &source).named(operation)?;
        Ok(out)
    }
}

/// The numbers, among all elements of `x` in order, of those that `index` names along `dim`.
#[track_caller]
fn places(
    stream: &Stream,
    operation: &'static str,
    x: &Tensor,
    dim: impl Dim,
    index: &Tensor,
) -> Result<Indices> {
    let axis = dim::axis(operation, dim, x.rank())?;
    let fits = |(other, (&theirs, &ours)): (usize, (&usize, &usize))| other == axis || theirs <= ours;
    if index.rank() != x.rank() || !index.shape().iter().zip(x.shape().iter()).enumerate().all(fits) {
        return Err(TensorError::Shape {
            operation,
            what: "index",
            got: index.shape().clone(),
            wanted: format!("at most {} but along dimension {axis}", x.shape()),
            hint: "the index has as many dimensions as the tensor and is no longer along the others",
        }
        .into());
    }
    // Checked along the dimension: among all elements, an index that is too large would name another row.
    let checked = Indices::from_tensor(stream, index, x.shape()[axis]).named(operation)?;
    let strides = Layout::contiguous(x.shape().clone());
    // Of the copy that was checked: another thread may replay a graph that writes `index`.
    let along = checked.as_tensor().view_as(index.shape())?;
    let mut numbers = along.mul(strides.strides()[axis] as i64)?;
    for other in (0..x.rank()).filter(|&other| other != axis) {
        let (places, stride) = (index.shape()[other], strides.strides()[other]);
        let along = fill::arange(stream, 0.0, stride as f64, places, DType::I64)?;
        let mut sides = vec![1; x.rank()];
        sides[other] = places;
        numbers = numbers.add(&along.view_as(&sides)?)?;
    }
    Ok(Indices::known(numbers.view_as(&[index.elements()])?, x.elements()))
}

/// Choices by masks.
impl Tensor {
    /// The element where `condition` holds, else that of `other`. The three shapes broadcast, and the two
    /// types are promoted. As `torch.where(condition, self, other)`.
    ///
    /// # Errors
    /// [`TensorError::DType`] when the condition is no bool, or as [`Tensor::add`].
    #[track_caller]
    pub fn where_<'a>(&self, condition: &Tensor, other: impl Into<Operand<'a>>) -> Result<Tensor> {
        let (operation, other) = ("where_", other.into());
        let dtype = promoted(operation, &[self.into(), other])?;
        is_mask(operation, "condition", condition)?;
        let stream = stream_of(self)?;
        let (x, other) = (self.to(dtype)?, other.to(operation, &stream, dtype)?);
        elementwise::select(&stream, condition, &x, &other).named(operation)
    }

    /// `value`, in the tensor's type, where `mask` holds, else the element. The shapes broadcast.
    ///
    /// # Errors
    /// [`TensorError::DType`] when the mask is no bool, or as [`Tensor::full`].
    #[track_caller]
    pub fn masked_fill(&self, mask: &Tensor, value: impl Into<Scalar>) -> Result<Tensor> {
        let operation = "masked_fill";
        is_mask(operation, "mask", mask)?;
        let stream = stream_of(self)?;
        let value = filled(operation, &stream, &[], value.into(), self.dtype())?;
        elementwise::select(&stream, mask, &value, self).named(operation)
    }
}

fn is_mask(operation: &'static str, what: &'static str, mask: &Tensor) -> Result<()> {
    if mask.dtype() == DType::Bool {
        return Ok(());
    }
    let (got, wanted, hint) = (mask.dtype(), "bool".to_owned(), "compare first: `x.ne(0)`, say");
    Err(TensorError::DType { operation, what, got, wanted, hint }.into())
}
