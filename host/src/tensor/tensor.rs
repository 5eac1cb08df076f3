//! The tensor itself.

use std::fmt;
use std::ops::RangeBounds;
use std::sync::Arc;

use bytemuck::Pod;

use super::{DType, Dim, Element, Layout, Named, Shape, TensorError, TensorMut, dim};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::memory::{DeviceBuffer, DeviceView, Within};
use crate::stream::{On, Stream};

/// Device memory with an element type, a shape and strides; see the [module](crate::tensor).
#[derive(Clone)]
pub struct Tensor {
    storage: Arc<DeviceBuffer<u8>>,
    dtype: DType,
    layout: Layout,
}

impl Tensor {
    /// A contiguous tensor of zeros (`false`), made on a stream, or on the current stream of a device.
    ///
    /// # Errors
    /// [`TensorError::Rank`], [`TensorError::TooLarge`], [`Error::OutOfMemory`], or the driver's error.
    #[track_caller]
    pub fn zeros(on: impl On, shape: &[usize], dtype: DType) -> Result<Self> {
        Tensor::zeros_in(&on.stream()?, Layout::contiguous(Shape::of("Tensor::zeros", shape)?), dtype)
    }

    /// A tensor of zeros whose rows (along the last axis) begin at multiples of `row_bytes` bytes: 16 for a
    /// tensor map, 128 for whole cache lines. `row_bytes` is rounded up to a whole element.
    ///
    /// # Errors
    /// As [`Tensor::zeros`]; [`TensorError::TooLarge`] for a multiple of 0.
    #[track_caller]
    pub fn zeros_padded(on: impl On, shape: &[usize], dtype: DType, row_bytes: usize) -> Result<Self> {
        let shape = Shape::of("Tensor::zeros_padded", shape)?;
        Tensor::zeros_in(&on.stream()?, Layout::padded(shape, row_bytes.div_ceil(dtype.size()))?, dtype)
    }

    #[track_caller]
    fn zeros_in(stream: &Stream, layout: Layout, dtype: DType) -> Result<Self> {
        let storage = DeviceBuffer::zeroed(stream, storage_bytes(&layout, dtype)?)?;
        Ok(Tensor { storage: Arc::new(storage), dtype, layout })
    }

    /// A contiguous tensor of unknown contents.
    ///
    /// # Safety
    /// Every element is written before anything reads it; those of a bool tensor with 0 or 1.
    #[track_caller]
    pub(crate) unsafe fn uninit(stream: &Stream, shape: Shape, dtype: DType) -> Result<Self> {
        let layout = Layout::contiguous(shape);
        // SAFETY: the caller's promise.
        let storage = unsafe { DeviceBuffer::uninit(stream, storage_bytes(&layout, dtype)?)? };
        Ok(Tensor { storage: Arc::new(storage), dtype, layout })
    }

    /// A copy of `data`: the elements in order, the last axis fastest. `data` is free again when this
    /// returns.
    ///
    /// # Errors
    /// [`TensorError::Elements`] when the length is not that of the shape, [`Error::NotCapturable`] on a
    /// stream that is being captured, or as [`Tensor::zeros`].
    #[track_caller]
    pub fn from_slice<T: Element>(on: impl On, shape: &[usize], data: &[T]) -> Result<Self> {
        let shape = fitting("Tensor::from_slice", shape, data.len())?;
        let bytes = bytemuck::cast_slice::<T, u8>(data);
        let storage = Arc::new(DeviceBuffer::from_slice(&on.stream()?, bytes)?);
        Ok(Tensor { storage, dtype: T::DTYPE, layout: Layout::contiguous(shape) })
    }

    /// The tensor over a buffer's memory; no element moves.
    ///
    /// # Errors
    /// [`TensorError::Elements`] when the length is not that of the shape, [`TensorError::Rank`],
    /// [`TensorError::TooLarge`].
    pub fn from_buffer<T: Element + Pod>(buffer: DeviceBuffer<T>, shape: &[usize]) -> Result<Self> {
        let shape = fitting("Tensor::from_buffer", shape, buffer.len())?;
        let storage = Arc::new(buffer.cast());
        Ok(Tensor { storage, dtype: T::DTYPE, layout: Layout::contiguous(shape) })
    }

    /// The memory as a buffer; no element moves.
    ///
    /// # Errors
    /// [`TensorError::DType`] when its elements are no `T`, [`TensorError::NotContiguous`] when it does not
    /// begin at the memory's start and lie in one piece, [`TensorError::Shared`] when other tensors share the
    /// memory.
    pub fn into_buffer<T: Element + Pod>(self) -> Result<DeviceBuffer<T>> {
        let operation = "Tensor::into_buffer";
        self.expect_dtype::<T>(operation)?;
        let whole = self.layout.offset() == 0 && self.storage.len() == self.elements() * self.dtype.size();
        if !whole || !self.is_contiguous() {
            return Err(self.not_contiguous(operation));
        }
        let tensors = Arc::strong_count(&self.storage);
        let storage = Arc::into_inner(self.storage).ok_or(TensorError::Shared { operation, tensors })?;
        Ok(storage.cast())
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

    /// The size of a dimension.
    ///
    /// # Errors
    /// [`TensorError::Axis`].
    pub fn size(&self, dim: impl Dim) -> Result<usize> {
        Ok(self.shape()[dim::axis("size", dim, self.rank())?])
    }

    /// Axes.
    pub fn rank(&self) -> usize {
        self.layout.rank()
    }

    /// Elements.
    pub fn elements(&self) -> usize {
        self.layout.elements()
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.elements() == 0
    }

    /// Do the elements lie in one piece, in order?
    pub fn is_contiguous(&self) -> bool {
        self.layout.is_contiguous()
    }

    /// The device that holds it.
    pub fn device(&self) -> &Device {
        self.storage.device()
    }

    /// The bytes from the first element's to the last one's.
    pub(crate) fn span_bytes(&self) -> Result<DeviceView<'_, u8>> {
        let size = self.dtype.size();
        let start = self.layout.offset() * size;
        self.storage.slice(start..start + self.layout.span() * size)
    }

    /// Address of the first element; null without elements.
    pub(crate) fn address(&self) -> u64 {
        address(&self.storage, self.dtype, &self.layout)
    }

    /// Address of the first element, for kernels on `stream` that read the tensor.
    pub(crate) fn read<T>(&self, stream: &Stream) -> Result<Within<'_, T>> {
        stream.same_device("the tensor", self.device())?;
        Ok(self.storage.view().within().at(self.address()))
    }

    /// The elements of a contiguous tensor, shared: for kernels and ops over plain vectors.
    ///
    /// # Errors
    /// [`TensorError::DType`], [`TensorError::NotContiguous`].
    pub fn as_view<T: Element + Pod>(&self) -> Result<DeviceView<'_, T>> {
        let operation = "Tensor::as_view";
        self.expect_dtype::<T>(operation)?;
        if !self.is_contiguous() {
            return Err(self.not_contiguous(operation));
        }
        let start = self.layout.offset() * self.dtype.size();
        let end = start + self.elements() * self.dtype.size();
        Ok(self.storage.slice(start..end)?.cast())
    }

    /// Write access, if no other tensor shares the memory.
    ///
    /// # Errors
    /// [`TensorError::Shared`], or [`TensorError::Overlapping`] for a broadcast tensor.
    pub fn view_mut(&mut self) -> Result<TensorMut<'_>> {
        let operation = "Tensor::view_mut";
        if self.layout.may_overlap() {
            let (shape, strides) = (self.shape().clone(), self.layout.strides().to_vec());
            return Err(TensorError::Overlapping { operation, shape, strides }.into());
        }
        let tensors = Arc::strong_count(&self.storage);
        let storage = Arc::get_mut(&mut self.storage).ok_or(TensorError::Shared { operation, tensors })?;
        Ok(TensorMut::new(storage, self.dtype, self.layout.clone()))
    }

    /// The elements in order, on the host; waits for `stream` and for earlier writers.
    ///
    /// # Errors
    /// [`TensorError::DType`], [`TensorError::HostMemory`], [`TensorError::Unwritten`] for bools of a graph
    /// that was never replayed, [`Error::DeviceMismatch`], [`Error::NotCapturable`] on a stream that is being
    /// captured, or the driver's error.
    pub fn to_vec<T: Element>(&self, stream: &Stream) -> Result<Vec<T>> {
        let operation = "Tensor::to_vec";
        self.expect_dtype::<T>(operation)?;
        let mut elements = self.room::<T>(operation, self.elements())?;
        let (bytes, size) = (self.span_to_host(operation, stream)?, size_of::<T>());
        for place in self.layout.places_from_first() {
            let element = bytemuck::checked::try_pod_read_unaligned(&bytes[place * size..][..size]);
            // Only bool has bytes that mean nothing, and no operation writes them.
            elements.push(element.map_err(|_| TensorError::Unwritten { operation })?);
        }
        Ok(elements)
    }

    /// [`Tensor::to_vec`] by the current stream.
    ///
    /// # Errors
    /// As [`Tensor::to_vec`].
    pub fn tolist<T: Element>(&self) -> Result<Vec<T>> {
        self.to_vec(&self.device().current_stream()?)
    }

    /// The one element of a tensor of one element, on the host, by the current stream; waits as
    /// [`Tensor::to_vec`].
    ///
    /// # Errors
    /// [`TensorError::Shape`] for any other number of elements, or as [`Tensor::to_vec`].
    pub fn item<T: Element>(&self) -> Result<T> {
        self.item_on(&self.device().current_stream()?)
    }

    /// [`Tensor::item`] by `stream`.
    ///
    /// # Errors
    /// As [`Tensor::item`].
    pub fn item_on<T: Element>(&self, stream: &Stream) -> Result<T> {
        if self.elements() != 1 {
            return Err(TensorError::Shape {
                operation: "Tensor::item",
                what: "the tensor",
                got: self.shape().clone(),
                wanted: "one element".to_owned(),
                hint: "`select` an element first, or take all with `tolist`",
            }
            .into());
        }
        Ok(self.to_vec(stream)?[0])
    }

    /// The bytes of the elements in order, on the host, for `operation`; waits and fails as
    /// [`Tensor::to_vec`].
    pub(super) fn to_bytes(&self, operation: &'static str, stream: &Stream) -> Result<Vec<u8>> {
        let size = self.dtype.size();
        let elements = if self.is_contiguous() {
            self.span_to_host(operation, stream)?
        } else {
            let mut elements = self.room(operation, self.elements().saturating_mul(size))?;
            let bytes = self.span_to_host(operation, stream)?;
            for place in self.layout.places_from_first() {
                elements.extend_from_slice(&bytes[place * size..][..size]);
            }
            elements
        };
        if self.dtype == DType::Bool && elements.iter().any(|&byte| byte > 1) {
            return Err(TensorError::Unwritten { operation }.into());
        }
        Ok(elements)
    }

    /// An empty vector with room for `len` values, which hold the elements.
    fn room<T>(&self, operation: &'static str, len: usize) -> Result<Vec<T>> {
        room_on_host(operation, self.shape(), len)
    }

    /// All from the first element to the last, with what lies between: one transfer.
    fn span_to_host(&self, operation: &'static str, stream: &Stream) -> Result<Vec<u8>> {
        let start = self.layout.offset() * self.dtype.size();
        let span = self.storage.slice(start..start + self.layout.span() * self.dtype.size())?;
        span.to_vec_in(stream, self.room(operation, span.len())?)
    }

    /// As [`Tensor::from_slice`] of the elements' bytes.
    ///
    /// # Safety
    /// They are valid elements: of a bool tensor 0 or 1. There are as many as the shape says.
    #[track_caller]
    pub(super) unsafe fn from_bytes(
        stream: &Stream,
        shape: Shape,
        dtype: DType,
        bytes: &[u8],
    ) -> Result<Self> {
        let storage = Arc::new(DeviceBuffer::from_slice(stream, bytes)?);
        Ok(Tensor { storage, dtype, layout: Layout::contiguous(shape) })
    }

    fn expect_dtype<T: Element>(&self, operation: &'static str) -> Result<()> {
        expect_dtype::<T>(operation, self.dtype)
    }

    fn not_contiguous(&self, operation: &'static str) -> Error {
        not_contiguous(operation, &self.layout)
    }

    fn with(&self, layout: Layout) -> Self {
        Tensor { storage: self.storage.clone(), dtype: self.dtype, layout }
    }
}

/// An empty vector with room for `len` values, which hold the elements of a tensor.
pub(super) fn room_on_host<T>(operation: &'static str, shape: &Shape, len: usize) -> Result<Vec<T>> {
    let mut values = Vec::new();
    values.try_reserve_exact(len).map_err(|_| TensorError::HostMemory {
        operation,
        shape: shape.clone(),
        bytes: len.saturating_mul(size_of::<T>()),
    })?;
    Ok(values)
}

/// Views: the same memory under another layout. No element moves. Dimensions may be counted from the end.
impl Tensor {
    /// The dimensions in another order: dimension `i` of the result is dimension `dims[i]`.
    ///
    /// # Errors
    /// [`TensorError::Axes`] when not every dimension is named exactly once.
    pub fn permute<D: Dim>(&self, dims: &[D]) -> Result<Self> {
        Ok(self.with(self.layout.permute(&dim::order(dims, self.rank())?)?))
    }

    /// With dimensions `a` and `b` exchanged.
    ///
    /// # Errors
    /// [`TensorError::Axis`].
    pub fn transpose(&self, a: impl Dim, b: impl Dim) -> Result<Self> {
        Ok(self.with(self.layout.transpose(self.axis("transpose", a)?, self.axis("transpose", b)?)?))
    }

    /// A matrix with rows for columns; tensors of fewer dimensions as they are.
    ///
    /// # Errors
    /// [`TensorError::Shape`] for more than two dimensions.
    pub fn t(&self) -> Result<Self> {
        match self.rank() {
            0 | 1 => Ok(self.clone()),
            2 => self.transpose(0, 1),
            _ => Err(TensorError::Shape {
                operation: "t",
                what: "the tensor",
                got: self.shape().clone(),
                wanted: "at most two dimensions".to_owned(),
                hint: "name the two dimensions: `x.transpose(-2, -1)`",
            }
            .into()),
        }
    }

    /// `length` places of `dim` from `start` on.
    ///
    /// # Errors
    /// [`TensorError::Axis`], [`TensorError::Slice`].
    pub fn narrow(&self, dim: impl Dim, start: usize, length: usize) -> Result<Self> {
        self.slice(dim, start..start.saturating_add(length)).named("narrow")
    }

    /// Places `range` of `dim`.
    ///
    /// # Errors
    /// [`TensorError::Axis`], [`TensorError::Slice`].
    pub fn slice(&self, dim: impl Dim, range: impl RangeBounds<usize>) -> Result<Self> {
        self.slice_by(dim, range, 1)
    }

    /// Every `step`-th place of `range` of `dim`.
    ///
    /// # Errors
    /// [`TensorError::Axis`], [`TensorError::Slice`].
    pub fn slice_by(&self, dim: impl Dim, range: impl RangeBounds<usize>, step: usize) -> Result<Self> {
        Ok(self.with(self.layout.slice(self.axis("slice", dim)?, range, step)?))
    }

    /// The part at `index` of `dim`, which is removed. `index` may be counted from the end.
    ///
    /// # Errors
    /// [`TensorError::Axis`], [`TensorError::Place`].
    pub fn select(&self, dim: impl Dim, index: impl Dim) -> Result<Self> {
        let axis = self.axis("select", dim)?;
        let place = dim::place("select", axis, index, self.shape()[axis])?;
        Ok(self.with(self.layout.select(axis, place)?))
    }

    /// Without the dimension `dim` of size 1.
    ///
    /// # Errors
    /// [`TensorError::Axis`], [`TensorError::Shape`].
    pub fn squeeze(&self, dim: impl Dim) -> Result<Self> {
        Ok(self.with(self.layout.squeeze(self.axis("squeeze", dim)?)?))
    }

    /// With a new dimension of size 1, number `dim` of the result; `-1` makes it the last.
    ///
    /// # Errors
    /// [`TensorError::Axis`], [`TensorError::Rank`].
    pub fn unsqueeze(&self, dim: impl Dim) -> Result<Self> {
        let axis = dim::counted(dim.given(), self.rank() + 1).ok_or_else(|| TensorError::Axis {
            operation: "unsqueeze",
            axis: dim.given(),
            rank: self.rank(),
        })?;
        Ok(self.with(self.layout.unsqueeze(axis)?))
    }

    /// As [`Layout::broadcast_to`].
    ///
    /// # Errors
    /// [`TensorError::Broadcast`], [`TensorError::Rank`], [`TensorError::TooLarge`].
    pub fn broadcast_to(&self, shape: &[usize]) -> Result<Self> {
        Ok(self.with(self.layout.broadcast_to(&Shape::of("broadcast_to", shape)?)?))
    }

    /// The same elements under another shape, without a copy.
    ///
    /// # Errors
    /// [`TensorError::Shape`] when the number of elements differs, [`TensorError::NotContiguous`] when it
    /// needs a copy.
    pub fn view_as(&self, shape: &[usize]) -> Result<Self> {
        let operation = "view_as";
        let layout = self.layout.reshape(Shape::of(operation, shape)?)?;
        Ok(self.with(layout.ok_or_else(|| self.not_contiguous(operation))?))
    }

    fn axis(&self, operation: &'static str, dim: impl Dim) -> Result<usize> {
        dim::axis(operation, dim, self.rank())
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        describe("Tensor", self.dtype, &self.layout, self.device(), f)
    }
}

/// Bytes of memory for a layout that begins at 0.
fn storage_bytes(layout: &Layout, dtype: DType) -> Result<usize> {
    let (len, element_bytes) = (layout.span(), dtype.size());
    let bytes = len.checked_mul(element_bytes).filter(|&bytes| isize::try_from(bytes).is_ok());
    bytes.ok_or(Error::SizeOverflow { len, element_bytes })
}

pub(super) fn address(storage: &DeviceBuffer<u8>, dtype: DType, layout: &Layout) -> u64 {
    storage.as_ptr().raw() + (layout.offset() * dtype.size()) as u64
}

pub(super) fn expect_dtype<T: Element>(operation: &'static str, got: DType) -> Result<()> {
    if T::DTYPE == got {
        return Ok(());
    }
    let (what, wanted, hint) =
        ("the tensor", T::DTYPE.to_string(), "name the type that it has, or convert it with `to`");
    Err(TensorError::DType { operation, what, got, wanted, hint }.into())
}

pub(super) fn not_contiguous(operation: &'static str, layout: &Layout) -> Error {
    TensorError::NotContiguous {
        operation,
        shape: layout.shape().clone(),
        strides: layout.strides().to_vec(),
    }
    .into()
}

pub(super) fn describe(
    name: &str,
    dtype: DType,
    layout: &Layout,
    device: &Device,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    write!(
        f,
        "{name}({dtype} {}, strides {:?}, device {})",
        layout.shape(),
        layout.strides(),
        device.ordinal()
    )
}

/// `sides` as a shape of `elements` elements.
fn fitting(operation: &'static str, sides: &[usize], elements: usize) -> Result<Shape> {
    let shape = Shape::of(operation, sides)?;
    if shape.elements() == elements {
        return Ok(shape);
    }
    let wanted = shape.elements();
    Err(TensorError::Elements { operation, shape, wanted, got: elements }.into())
}
