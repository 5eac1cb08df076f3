//! Write access to a tensor.

use std::fmt;
use std::ops::RangeBounds;

use bytemuck::Pod;

use super::tensor::{address, describe, expect_dtype, not_contiguous};
use super::{DType, Dim, Element, Layout, Shape, TensorError, dim};
use crate::device::Device;
use crate::error::Result;
use crate::memory::{DeviceBuffer, DeviceView, DeviceViewMut, Within};
use crate::stream::Stream;

/// A tensor, or a part of one, to which no other code has access: operations write to it. No two of its
/// elements share a place.
pub struct TensorMut<'a> {
    storage: &'a mut DeviceBuffer<u8>,
    dtype: DType,
    layout: Layout,
}

impl<'a> TensorMut<'a> {
    pub(super) fn new(storage: &'a mut DeviceBuffer<u8>, dtype: DType, layout: Layout) -> Self {
        TensorMut { storage, dtype, layout }
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The sides, outermost first.
    pub fn shape(&self) -> &Shape {
        self.layout.shape()
    }

    /// Where the elements lie.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The device that holds it.
    pub fn device(&self) -> &Device {
        self.storage.device()
    }

    /// The same access, for a shorter time.
    pub fn view_mut(&mut self) -> TensorMut<'_> {
        TensorMut { storage: self.storage, dtype: self.dtype, layout: self.layout.clone() }
    }

    /// Places `range` of `dim`; uses the access up, `view_mut()` first keeps it.
    ///
    /// # Errors
    /// [`TensorError::Axis`], [`TensorError::Slice`].
    pub fn slice(self, dim: impl Dim, range: impl RangeBounds<usize>) -> Result<Self> {
        self.slice_by(dim, range, 1)
    }

    /// Every `step`-th place of `range` of `dim`, as [`TensorMut::slice`].
    ///
    /// # Errors
    /// [`TensorError::Axis`], [`TensorError::Slice`].
    pub fn slice_by(self, dim: impl Dim, range: impl RangeBounds<usize>, step: usize) -> Result<Self> {
        let layout = self.layout.slice(dim::axis("slice", dim, self.layout.rank())?, range, step)?;
        Ok(TensorMut { layout, ..self })
    }

    /// As [`Tensor::select`](crate::Tensor::select).
    ///
    /// # Errors
    /// [`TensorError::Axis`], [`TensorError::Place`].
    pub fn select(self, dim: impl Dim, index: impl Dim) -> Result<Self> {
        let axis = dim::axis("select", dim, self.layout.rank())?;
        let place = dim::place("select", axis, index, self.layout.shape()[axis])?;
        let layout = self.layout.select(axis, place)?;
        Ok(TensorMut { layout, ..self })
    }

    /// As [`Tensor::permute`](crate::Tensor::permute).
    ///
    /// # Errors
    /// [`TensorError::Axes`].
    pub fn permute<D: Dim>(self, dims: &[D]) -> Result<Self> {
        let layout = self.layout.permute(&dim::order(dims, self.layout.rank())?)?;
        Ok(TensorMut { layout, ..self })
    }

    /// The same elements under another shape, without a copy.
    ///
    /// # Errors
    /// [`TensorError::Shape`] when the number of elements differs, [`TensorError::NotContiguous`] when it
    /// needs a copy.
    pub fn reshape(self, shape: &[usize]) -> Result<Self> {
        let operation = "TensorMut::reshape";
        let layout = self.layout.reshape(Shape::of(operation, shape)?)?;
        let layout = layout.ok_or_else(|| not_contiguous(operation, &self.layout))?;
        Ok(TensorMut { layout, ..self })
    }

    /// The elements of a contiguous tensor, exclusive.
    ///
    /// # Errors
    /// [`TensorError::DType`], [`TensorError::NotContiguous`].
    pub fn into_view<T: Element + Pod>(self) -> Result<DeviceViewMut<'a, T>> {
        let operation = "TensorMut::into_view";
        expect_dtype::<T>(operation, self.dtype)?;
        if !self.layout.is_contiguous() {
            return Err(not_contiguous(operation, &self.layout));
        }
        let start = self.layout.offset() * self.dtype.size();
        let end = start + self.layout.elements() * self.dtype.size();
        Ok(self.storage.slice_mut(start..end)?.cast())
    }

    /// Copies `data`, the elements in order, to a contiguous tensor; `data` is free again when this returns.
    ///
    /// # Errors
    /// [`TensorError::DType`], [`TensorError::Elements`], [`TensorError::NotContiguous`],
    /// [`crate::Error::DeviceMismatch`], [`crate::Error::NotCapturable`] on a stream that is being captured,
    /// or the driver's error.
    pub fn copy_from_slice<T: Element>(&mut self, stream: &Stream, data: &[T]) -> Result<()> {
        let operation = "TensorMut::copy_from_slice";
        expect_dtype::<T>(operation, self.dtype)?;
        let (shape, wanted) = (self.shape().clone(), self.layout.elements());
        if data.len() != wanted {
            return Err(TensorError::Elements { operation, shape, wanted, got: data.len() }.into());
        }
        if !self.layout.is_contiguous() {
            return Err(not_contiguous(operation, &self.layout));
        }
        let start = self.layout.offset() * self.dtype.size();
        let bytes = bytemuck::cast_slice::<T, u8>(data);
        self.storage.slice_mut(start..start + bytes.len())?.copy_from_slice(stream, bytes)
    }

    /// As [`Tensor::span_bytes`](super::Tensor).
    pub(crate) fn span_bytes(&self) -> Result<DeviceView<'_, u8>> {
        let size = self.dtype.size();
        let start = self.layout.offset() * size;
        self.storage.slice(start..start + self.layout.span() * size)
    }

    /// As [`Tensor::span_bytes`](super::Tensor), exclusive.
    pub(crate) fn into_span_bytes(self) -> Result<DeviceViewMut<'a, u8>> {
        let size = self.dtype.size();
        let start = self.layout.offset() * size;
        self.storage.slice_mut(start..start + self.layout.span() * size)
    }

    /// Address of the first element; null without elements.
    pub(crate) fn address(&self) -> u64 {
        address(self.storage, self.dtype, &self.layout)
    }

    /// Address of the first element, for kernels on `stream` that write the tensor.
    pub(crate) fn write<T>(&self, stream: &Stream) -> Result<Within<'_, T>> {
        stream.same_device("the tensor", self.device())?;
        Ok(self.storage.view().within().at(self.address()))
    }

    /// Are its elements `T`s? Otherwise the error, in the name of `operation`.
    pub(crate) fn expect_dtype<T: Element>(&self, operation: &'static str) -> Result<()> {
        expect_dtype::<T>(operation, self.dtype)
    }
}

impl fmt::Debug for TensorMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        describe("TensorMut", self.dtype, &self.layout, self.device(), f)
    }
}
