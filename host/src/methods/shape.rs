//! Other shapes: reshapes, joins, splits, triangles.

use super::stream_of;
use crate::error::{Error, Result};
use crate::ops::elementwise::{self, copy_into, made};
use crate::tensor::{DType, Dim, Named, Shape, Tensor, TensorError, dim};

/// Other shapes.
impl Tensor {
    /// The same elements in the same order under another shape; a copy only where that needs one. One side
    /// may be `-1`: it follows from the others.
    ///
    /// # Errors
    /// [`TensorError::Shape`] when the number of elements differs or no side can be found for `-1`,
    /// [`Error::OutOfMemory`], or the driver's error.
    #[track_caller]
    pub fn reshape<D: Dim>(&self, shape: &[D]) -> Result<Tensor> {
        elementwise::reshape(&stream_of(self)?, self, &sides(self, shape)?).named("reshape")
    }

    /// Dimensions `start` to `end`, both counted, as one; a copy only where that needs one.
    ///
    /// # Errors
    /// [`TensorError::Axis`]; [`TensorError::Axes`] when `start` is behind `end`, [`Error::OutOfMemory`], or
    /// the driver's error.
    #[track_caller]
    pub fn flatten(&self, start: impl Dim, end: impl Dim) -> Result<Tensor> {
        let operation = "flatten";
        if self.rank() == 0 {
            return self.reshape(&[1]);
        }
        let rank = self.rank();
        let (first, last) = (dim::axis(operation, start, rank)?, dim::axis(operation, end, rank)?);
        if first > last {
            let (axes, wanted) =
                (vec![start.given(), end.given()], "in order: the first is not behind the last");
            return Err(TensorError::Axes { operation, axes, rank, wanted }.into());
        }
        let mut sides = self.shape().to_vec();
        let merged = sides.drain(first..=last).product();
        sides.insert(first, merged);
        self.reshape(&sides)
    }

    /// The tensors one behind the other along `dim`. The other sides are equal; types are promoted.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for no tensors, [`TensorError::Shape`], [`TensorError::Axis`],
    /// [`TensorError::DType`] where an 8-bit float meets another type, [`Error::DeviceMismatch`],
    /// [`Error::OutOfMemory`], or the driver's error.
    #[track_caller]
    pub fn cat(tensors: &[&Tensor], dim: impl Dim) -> Result<Tensor> {
        join("cat", tensors, |first| dim::axis("cat", dim, first.rank()))
    }

    /// The tensors, all of one shape, one behind the other along a new dimension, number `dim` of the result.
    ///
    /// # Errors
    /// As [`Tensor::cat`].
    #[track_caller]
    pub fn stack(tensors: &[&Tensor], dim: impl Dim) -> Result<Tensor> {
        let views: Vec<Tensor> =
            tensors.iter().map(|tensor| tensor.unsqueeze(dim)).collect::<Result<_>>().named("stack")?;
        if let Some(other) = tensors.iter().find(|tensor| tensor.shape() != tensors[0].shape()) {
            return Err(unequal("stack", other.shape(), tensors[0].shape().to_string()));
        }
        let views: Vec<&Tensor> = views.iter().collect();
        join("stack", &views, |first| dim::axis("stack", dim, first.rank()))
    }

    /// Views of `size` places of `dim` each; the last may have fewer.
    ///
    /// # Errors
    /// [`TensorError::Axis`], [`Error::InvalidArgument`] for a size of 0.
    pub fn split(&self, size: usize, dim: impl Dim) -> Result<Vec<Tensor>> {
        let places = self.size(dim).named("split")?;
        if size == 0 {
            return Err(no_parts("split", "size"));
        }
        // Nothing is one part of nothing.
        let starts = (0..places.max(1)).step_by(size);
        starts.map(|start| self.narrow(dim, start, size.min(places - start))).collect()
    }

    /// At most `chunks` views of equally many places of `dim`; the last may have fewer.
    ///
    /// # Errors
    /// [`TensorError::Axis`], [`Error::InvalidArgument`] for no chunks.
    pub fn chunk(&self, chunks: usize, dim: impl Dim) -> Result<Vec<Tensor>> {
        if chunks == 0 {
            return Err(no_parts("chunk", "chunks"));
        }
        self.split(self.size(dim).named("chunk")?.div_ceil(chunks).max(1), dim)
    }

    /// The lower triangle of each matrix: elements above diagonal `diagonal` become 0. Diagonal 0 is the main
    /// one, and 1 the one above it.
    ///
    /// # Errors
    /// [`TensorError::Shape`] for fewer than two dimensions, [`Error::OutOfMemory`], or the driver's error.
    #[track_caller]
    pub fn tril(&self, diagonal: i64) -> Result<Tensor> {
        let above = self.distance("tril")?.gt(diagonal)?;
        self.masked_fill(&above, 0)
    }

    /// The upper triangle of each matrix: elements below diagonal `diagonal` become 0.
    ///
    /// # Errors
    /// As [`Tensor::tril`].
    #[track_caller]
    pub fn triu(&self, diagonal: i64) -> Result<Tensor> {
        let below = self.distance("triu")?.lt(diagonal)?;
        self.masked_fill(&below, 0)
    }

    /// Column minus row of each element of a matrix.
    #[track_caller]
    fn distance(&self, operation: &'static str) -> Result<Tensor> {
        let &[.., rows, columns] = self.shape().sides() else {
            let (what, got) = ("the tensor", self.shape().clone());
            let (wanted, hint) = ("at least two dimensions".to_owned(), "`unsqueeze` a vector first");
            return Err(TensorError::Shape { operation, what, got, wanted, hint }.into());
        };
        let stream = stream_of(self)?;
        let column = Tensor::arange(&stream, 0, columns as i64, 1, DType::I64)?;
        let row = Tensor::arange(&stream, 0, rows as i64, 1, DType::I64)?;
        column.sub(&row.unsqueeze(1)?)
    }
}

/// The sides that `shape` says, with -1 found.
fn sides<D: Dim>(x: &Tensor, shape: &[D]) -> Result<Vec<usize>> {
    let unknown = shape.iter().filter(|side| side.given() == -1).count();
    let known = shape.iter().filter(|side| side.given() != -1);
    let product = known
        .clone()
        .try_fold(1usize, |product, side| product.checked_mul(usize::try_from(side.given()).ok()?));
    let found = match (unknown, product) {
        (0, Some(_)) => Some(0),
        (1, Some(product)) if product > 0 && x.elements().is_multiple_of(product) => {
            Some(x.elements() / product)
        }
        _ => None,
    };
    let found = found.ok_or_else(|| TensorError::Shape {
        operation: "reshape",
        what: "the tensor",
        got: x.shape().clone(),
        wanted: format!("{:?}", shape.iter().map(|side| side.given()).collect::<Vec<_>>()),
        hint: "at most one side is -1, and the product of the others divides the number of elements",
    })?;
    Ok(shape.iter().map(|side| usize::try_from(side.given()).unwrap_or(found)).collect())
}

fn no_parts(operation: &'static str, argument: &'static str) -> Error {
    let (got, wanted) = ("0".to_owned(), "at least 1".to_owned());
    let hint = "`split` takes the places of a part, `chunk` the number of parts";
    Error::InvalidArgument { operation, argument, got, wanted, hint }
}

fn unequal(operation: &'static str, got: &Shape, wanted: String) -> Error {
    let hint = "the tensors have equal sides, but for the dimension of a `cat`";
    TensorError::Shape { operation, what: "a tensor", got: got.clone(), wanted, hint }.into()
}

#[track_caller]
fn join(
    operation: &'static str,
    tensors: &[&Tensor],
    axis: impl FnOnce(&Tensor) -> Result<usize>,
) -> Result<Tensor> {
    let Some((&first, others)) = tensors.split_first() else {
        return Err(Error::InvalidArgument {
            operation,
            argument: "tensors",
            got: "none".to_owned(),
            wanted: "at least one".to_owned(),
            hint: "a shape for nothing is not known: make it with `Tensor::zeros`",
        });
    };
    let axis = axis(first)?;
    let mut sides = first.shape().to_vec();
    for other in others {
        let mut expected = sides.clone();
        expected[axis] = *other.shape().get(axis).unwrap_or(&0);
        if other.shape().sides() != expected {
            expected[axis] = first.shape()[axis];
            return Err(unequal(operation, other.shape(), format!("{expected:?} but for dimension {axis}")));
        }
        sides[axis] = sides[axis].saturating_add(other.shape()[axis]);
    }
    let operands: Vec<_> = tensors.iter().map(|&tensor| tensor.into()).collect();
    let dtype = super::number::promoted(operation, &operands)?;
    let stream = stream_of(first)?;
    made(&stream, &Shape::of(operation, &sides)?, dtype, |mut out| {
        let mut start = 0;
        for tensor in tensors {
            let end = start + tensor.shape()[axis];
            copy_into(&stream, &tensor.to(dtype)?, out.view_mut().slice(axis, start..end)?)?;
            start = end;
        }
        Ok(())
    })
}
