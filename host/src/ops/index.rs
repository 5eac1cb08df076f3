//! Rows by their numbers: gathered, scattered, added up.
//!
//! [`Indices`] are checked against their bound once, when they are made, on the host or by a reduction on the
//! device; what uses them does not look again and waits for nothing. Everything repeats bit for bit, also
//! where several indices are the same.
//!
//! ```no_run
//! use ironwarp::{Device, Tensor};
//! use ironwarp::ops::index::{Indices, gather};
//!
//! # fn main() -> ironwarp::Result<()> {
//! let stream = Device::open(0)?.stream()?;
//! let table = Tensor::from_slice(&stream, &[3, 2], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
//! let tokens = Indices::from_slice(&stream, &[2, 0, 2], 3)?;
//! let rows = gather(&stream, &table, 0, &tokens)?;
//! assert_eq!(rows.to_vec::<f32>(&stream)?, [5.0, 6.0, 1.0, 2.0, 5.0, 6.0]);
//! # Ok(())
//! # }
//! ```

use bytemuck::Pod;
use cuda_std::kernel::{Kernel, Ptr, PtrMut, Value};
use half::{bf16, f16};
use layout::Divisor;
use tensor::THREADS;
use tensor::index::{
    Additions, Moves, Unit16, add_alone_f32, add_alone_f64, add_alone_i32, add_alone_i64, add_rows_f32,
    add_rows_f64, add_rows_i32, add_rows_i64, count_indices, gather_b1, gather_b2, gather_b4, gather_b8,
    gather_b16, mark_last, scatter_b1, scatter_b2, scatter_b4, scatter_b8, scatter_b16,
};

use super::convert::{convert, convert_into};
use super::elementwise::{contiguous, copy_into, made, same_dtype};
use super::reduce::{ReduceOp, reduce};
use crate::error::Result;
use crate::launch::{LaunchConfig, launch};
use crate::memory::{DeviceBuffer, DevicePtr, Within};
use crate::ops::dispatch::by_dtype;
use crate::stream::Stream;
use crate::tensor::{DType, Dim, Element, Named, Shape, Tensor, TensorError, TensorMut};

/// Bytes of the widest unit that moves at a time.
const UNIT: usize = size_of::<Unit16>();
/// Most indices that every block looks through without counting them first: launches would take longer than
/// it saves.
const FEW: usize = 1024;

/// Numbers of places along an axis, all of them below a bound.
#[derive(Debug, Clone)]
pub struct Indices {
    /// i64, contiguous, one axis. It never leaves the crate, and its memory is its own: all that is written
    /// is checked.
    tensor: Tensor,
    bound: usize,
}

impl Indices {
    /// Indices from the host, below `bound`.
    ///
    /// # Errors
    /// [`TensorError::Index`] for one that is not, [`crate::Error::OutOfMemory`],
    /// [`crate::Error::NotCapturable`] on a stream that is being captured, or the driver's error.
    #[track_caller]
    pub fn from_slice(stream: &Stream, indices: &[usize], bound: usize) -> Result<Self> {
        let indices = below("Indices::from_slice", indices, bound)?;
        Ok(Indices { tensor: Tensor::from_slice(stream, &[indices.len()], &indices)?, bound })
    }

    /// The elements of an i64 or i32 tensor, in order, checked to be from 0 to below `bound`; waits for that
    /// check. The tensor is copied: what is checked stays as it is.
    ///
    /// # Errors
    /// [`TensorError::Index`] with the smallest or largest element where one is outside,
    /// [`TensorError::DType`], [`crate::Error::DeviceMismatch`], [`crate::Error::OutOfMemory`],
    /// [`crate::Error::NotCapturable`] on a stream that is being captured, or the driver's error.
    #[track_caller]
    pub fn from_tensor(stream: &Stream, tensor: &Tensor, bound: usize) -> Result<Self> {
        Ok(Indices { tensor: checked_on_device("Indices::from_tensor", stream, tensor, bound)?, bound })
    }

    /// Writes others over these, as many, below the same bound: replays of a graph that captured a use of
    /// these read the new ones.
    ///
    /// # Errors
    /// [`TensorError::Index`] for one that is not below the bound, [`TensorError::Elements`] for more or
    /// fewer, [`TensorError::Shared`] while a clone of these lives, [`crate::Error::DeviceMismatch`],
    /// [`crate::Error::NotCapturable`], or the driver's error. These are then as before.
    #[track_caller]
    pub fn copy_from_slice(&mut self, stream: &Stream, indices: &[usize]) -> Result<()> {
        let operation = "Indices::copy_from_slice";
        let indices = below(operation, indices, self.bound)?;
        self.tensor.view_mut().named(operation)?.copy_from_slice(stream, &indices).named(operation)
    }

    /// As [`copy_from_slice`](Self::copy_from_slice), the elements of an i64 or i32 tensor, in order; waits
    /// for the check of them.
    ///
    /// # Errors
    /// As there, and [`TensorError::DType`].
    #[track_caller]
    pub fn copy_from_tensor(&mut self, stream: &Stream, tensor: &Tensor) -> Result<()> {
        let operation = "Indices::copy_from_tensor";
        let (got, wanted) = (tensor.elements(), self.len());
        if got != wanted {
            let shape = self.tensor.shape().clone();
            return Err(TensorError::Elements { operation, shape, wanted, got }.into());
        }
        let checked = checked_on_device(operation, stream, tensor, self.bound)?;
        copy_into(stream, &checked, self.tensor.view_mut().named(operation)?).named(operation)
    }

    /// Numbers that are known to be from 0 to below `bound`: i64, contiguous, of one axis, in memory that
    /// nothing else shows.
    pub(crate) fn known(tensor: Tensor, bound: usize) -> Self {
        Indices { tensor, bound }
    }

    /// The numbers themselves: i64, of one axis, to be read.
    pub(crate) fn as_tensor(&self) -> &Tensor {
        &self.tensor
    }

    /// Their address, for kernels on `stream`.
    pub(super) fn read(&self, stream: &Stream) -> Result<Within<'_, i64>> {
        self.tensor.read(stream)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.tensor.elements()
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bound: all indices are less than this.
    pub fn bound(&self) -> usize {
        self.bound
    }
}

/// Indices of the host as the device has them, where all are below the bound.
#[track_caller]
fn below(operation: &'static str, indices: &[usize], bound: usize) -> Result<Vec<i64>> {
    let outside = |&&index: &&usize| index >= bound || i64::try_from(index).is_err();
    if let Some(&index) = indices.iter().find(outside) {
        let index = i64::try_from(index).unwrap_or(i64::MAX);
        return Err(TensorError::Index { operation, index, bound }.into());
    }
    // All fit: they are below the bound.
    Ok(indices.iter().map(|&index| index as i64).collect())
}

/// A copy of the elements, on one axis, in i64, where all are from 0 to below the bound; waits for that.
#[track_caller]
fn checked_on_device(
    operation: &'static str,
    stream: &Stream,
    tensor: &Tensor,
    bound: usize,
) -> Result<Tensor> {
    if !matches!(tensor.dtype(), DType::I64 | DType::I32) {
        let (what, got, wanted) = ("the tensor", tensor.dtype(), "i64 or i32".to_owned());
        let hint = "convert the operand first (`ops::convert`)";
        return Err(TensorError::DType { operation, what, got, wanted, hint }.into());
    }
    let tensor = convert(stream, tensor, DType::I64)?.view_as(&[tensor.elements()])?;
    if !tensor.is_empty() {
        for op in [ReduceOp::Amin, ReduceOp::Amax] {
            let index: i64 = reduce(stream, op, &tensor, &[])?.item_on(stream)?;
            if usize::try_from(index).map_or(true, |index| index >= bound) {
                return Err(TensorError::Index { operation, index, bound }.into());
            }
        }
    }
    Ok(tensor)
}

/// The places `indices` of `axis` of `x`, in their order: `y[.., i, ..] = x[.., indices[i], ..]`.
///
/// # Errors
/// [`TensorError::Axis`]; [`TensorError::Index`] when the bound of the indices is beyond the axis,
/// [`crate::Error::DeviceMismatch`], [`crate::Error::OutOfMemory`], or the driver's error.
#[track_caller]
pub fn gather(stream: &Stream, x: &Tensor, axis: usize, indices: &Indices) -> Result<Tensor> {
    let operation = "gather";
    let sides = Sides::of(operation, x.shape(), x.dtype(), axis, indices)?;
    let shape = sides.dense_shape(x.shape(), axis)?;
    let x = contiguous(stream, x)?;
    made(stream, &shape, x.dtype(), |out| {
        let alignment = x.address() | out.address();
        let (from, to) = (x.read::<u8>(stream)?, out.write::<u8>(stream)?);
        let job = Job { stream, sides, indices: indices.tensor.read(stream)? };
        match sides.unit(alignment) {
            16 => job.gather::<gather_b16, Unit16>(from, to),
            8 => job.gather::<gather_b8, u64>(from, to),
            4 => job.gather::<gather_b4, u32>(from, to),
            2 => job.gather::<gather_b2, u16>(from, to),
            _ => job.gather::<gather_b1, u8>(from, to),
        }
    })
}

/// Writes `x` over the places `indices` of `axis` of `out`, contiguous: `out[.., indices[i], ..] = x[.., i,
/// ..]`. Of several written to one place the last stays.
///
/// # Errors
/// [`TensorError::Axis`], [`TensorError::Shape`], [`TensorError::DType`], [`TensorError::NotContiguous`];
/// [`TensorError::Index`] when the bound of the indices is beyond the axis, [`crate::Error::DeviceMismatch`],
/// [`crate::Error::OutOfMemory`], or the driver's error.
#[track_caller]
pub fn scatter(
    stream: &Stream,
    out: TensorMut<'_>,
    axis: usize,
    indices: &Indices,
    x: &Tensor,
) -> Result<()> {
    let operation = "scatter";
    let sides = checked(operation, &out, axis, indices, x)?;
    if sides.is_nothing() {
        return Ok(());
    }
    let x = contiguous(stream, x)?;
    let count = indices.len() as u64;
    let mut last = Tensor::zeros(stream, &[indices.bound], DType::I64)?;
    let marked = last.view_mut()?;
    let mark = marked.write(stream)?;
    let config = grid(count.div_ceil(THREADS.into()));
    let names = indices.tensor.read(stream)?;
    // SAFETY: every index is below the bound, which is the length of `last`.
    unsafe { launch::<mark_last>(stream, config, (count, names, mark))? };
    let alignment = x.address() | out.address();
    let (from, to) = (x.read::<u8>(stream)?, out.write::<u8>(stream)?);
    let (job, last) = (Job { stream, sides, indices: names }, last.read(stream)?);
    match sides.unit(alignment) {
        16 => job.scatter::<scatter_b16, Unit16>(last, from, to),
        8 => job.scatter::<scatter_b8, u64>(last, from, to),
        4 => job.scatter::<scatter_b4, u32>(last, from, to),
        2 => job.scatter::<scatter_b2, u16>(last, from, to),
        _ => job.scatter::<scatter_b1, u8>(last, from, to),
    }
}

/// Adds `x` to the places `indices` of `axis` of `out`, contiguous: `out[.., indices[i], ..] += x[.., i,
/// ..]`, in the order of `i`.
///
/// 16-bit floats are added up in f32 and rounded once; integers wrap around.
///
/// # Errors
/// As [`scatter`]; [`TensorError::DType`] for 8-bit floats, u8 and bool.
#[track_caller]
pub fn scatter_add(
    stream: &Stream,
    mut out: TensorMut<'_>,
    axis: usize,
    indices: &Indices,
    x: &Tensor,
) -> Result<()> {
    let operation = "scatter_add";
    let sides = checked(operation, &out, axis, indices, x)?;
    let job = Job { stream, sides, indices: indices.tensor.read(stream)? };
    by_dtype!(out.dtype(), (operation, "out", None), {
        F64 => job.add::<add_rows_f64, add_alone_f64, f64>(x, &mut out),
        F32 => job.add::<add_rows_f32, add_alone_f32, f32>(x, &mut out),
        F16 => job.add_wide::<f16>(x, out),
        BF16 => job.add_wide::<bf16>(x, out),
        I64 => job.add::<add_rows_i64, add_alone_i64, i64>(x, &mut out),
        I32 => job.add::<add_rows_i32, add_alone_i32, i32>(x, &mut out),
    })
}

/// The sides of a scatter, when its operands fit.
fn checked(
    operation: &'static str,
    out: &TensorMut<'_>,
    axis: usize,
    indices: &Indices,
    x: &Tensor,
) -> Result<Sides> {
    let sides = Sides::of(operation, out.shape(), out.dtype(), axis, indices)?;
    same_dtype(operation, "x", out.dtype(), x.dtype())?;
    let wanted = sides.dense_shape(out.shape(), axis)?;
    if *x.shape() != wanted {
        let (what, got, wanted) = ("x", x.shape().clone(), wanted.to_string());
        let hint = "the shape of the output with as many places along the axis as there are indices";
        return Err(TensorError::Shape { operation, what, got, wanted, hint }.into());
    }
    if !out.layout().is_contiguous() {
        let (shape, strides) = (out.shape().clone(), out.layout().strides().to_vec());
        return Err(TensorError::NotContiguous { operation, shape, strides }.into());
    }
    Ok(sides)
}

/// A tensor as `[outer, places, inner]`, and its indices.
#[derive(Debug, Clone, Copy)]
struct Sides {
    outer: usize,
    places: usize,
    inner: usize,
    indices: usize,
    /// Bytes of an element.
    size: usize,
}

impl Sides {
    fn of(
        operation: &'static str,
        shape: &Shape,
        dtype: DType,
        axis: usize,
        indices: &Indices,
    ) -> Result<Self> {
        if axis >= shape.rank() {
            return Err(TensorError::Axis { operation, axis: axis.given(), rank: shape.rank() }.into());
        }
        let (places, bound) = (shape[axis], indices.bound);
        if bound > places && !indices.is_empty() {
            // The bound is what was checked; the largest index may be less.
            let index = i64::try_from(bound - 1).unwrap_or(i64::MAX);
            return Err(TensorError::Index { operation, index, bound: places }.into());
        }
        let (outer, inner) = (shape[..axis].iter().product(), shape[axis + 1..].iter().product());
        Ok(Sides { outer, places, inner, indices: indices.len(), size: dtype.size() })
    }

    /// The shape with the indices in place of the places.
    fn dense_shape(&self, shape: &Shape, axis: usize) -> Result<Shape> {
        let mut sides = shape.to_vec();
        sides[axis] = self.indices;
        Shape::of("gather", &sides)
    }

    fn is_nothing(&self) -> bool {
        self.outer * self.indices * self.inner == 0
    }

    /// Bytes that move at a time between addresses whose bits are in `alignment`.
    fn unit(&self, alignment: u64) -> usize {
        let row = (self.inner * self.size) as u64 | alignment | UNIT as u64;
        1 << row.trailing_zeros()
    }

    /// The launches for units of `unit` bytes.
    fn moves(&self, unit: usize) -> Vec<Moves> {
        if self.is_nothing() {
            return Vec::new();
        }
        let (rows, inner) = ((self.outer * self.indices) as u64, (self.inner * self.size / unit) as u64);
        // A row has to fit in a launch: 2^31 units of it are more than any device's memory, but for the
        // narrowest.
        let most = (u64::from(Divisor::MAX) / inner).max(1);
        let narrow = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let starts = (0..rows).step_by(usize::try_from(most).unwrap_or(usize::MAX));
        let moves = |first: u64| Moves {
            places: self.places as u64,
            indices: self.indices as u64,
            first,
            rows: narrow(most.min(rows - first)),
            inner: narrow(inner),
            by_inner: Divisor::new(narrow(inner)),
        };
        starts.map(moves).collect()
    }
}

/// Work under way.
struct Job<'a> {
    stream: &'a Stream,
    sides: Sides,
    indices: Within<'a, i64>,
}

impl Job<'_> {
    /// The launches for units of `unit` bytes.
    fn moves_of(&self, unit: usize) -> Result<Vec<Moves>> {
        let inner = self.sides.inner * self.sides.size / unit;
        if inner > Divisor::MAX as usize {
            return Err(crate::Error::InvalidArgument {
                operation: "gather, scatter",
                argument: "the tensor",
                got: format!("rows of {inner} units of {unit} bytes"),
                wanted: format!("at most {}", Divisor::MAX),
                hint: "begin at a 16-byte boundary with rows of whole 16 bytes, or take rows in parts",
            });
        }
        Ok(self.sides.moves(unit))
    }

    #[track_caller]
    fn gather<K, T>(&self, x: Within<'_, u8>, y: Within<'_, u8>) -> Result<()>
    where
        K: Kernel<Params = (Value<Moves>, Ptr<i64>, Ptr<T>, PtrMut<T>)>,
    {
        let (x, y) = (x.cast::<T>(), y.cast::<T>());
        self.moves_of(size_of::<T>())?.into_iter().try_for_each(|moves| {
            // SAFETY: the indices are below the places of x; y has a row for each, exclusively borrowed; both
            // are whole units.
            unsafe { launch::<K>(self.stream, grid(moves.blocks()), (moves, self.indices, x, y)) }
        })
    }

    #[track_caller]
    fn scatter<K, T>(&self, last: Within<'_, u64>, x: Within<'_, u8>, y: Within<'_, u8>) -> Result<()>
    where
        K: Kernel<Params = (Value<Moves>, Ptr<i64>, Ptr<u64>, Ptr<T>, PtrMut<T>)>,
    {
        let (x, y) = (x.cast::<T>(), y.cast::<T>());
        self.moves_of(size_of::<T>())?.into_iter().try_for_each(|moves| {
            // SAFETY: as for the gather, with x and y exchanged; `last` was marked for these indices.
            unsafe { launch::<K>(self.stream, grid(moves.blocks()), (moves, self.indices, last, x, y)) }
        })
    }

    /// The rows of `x` by the kernel `K`, and, where there are many, those that are alone by `Alone`.
    #[track_caller]
    fn add<K, Alone, T: Pod>(&self, x: &Tensor, out: &mut TensorMut<'_>) -> Result<()>
    where
        K: Kernel<Params = (Value<Additions>, Ptr<i64>, Ptr<u64>, Ptr<T>, PtrMut<T>)>,
        Alone: Kernel<Params = (Value<Moves>, Value<u32>, Ptr<i64>, Ptr<u64>, Ptr<T>, PtrMut<T>)>,
    {
        if self.sides.is_nothing() {
            return Ok(());
        }
        let Sides { outer, places, inner, indices, size } = self.sides;
        let shape = Additions::new(outer as u64, places as u64, indices as u64, inner as u64);
        let x = contiguous(self.stream, x)?;
        let alignment = x.address() | out.address();
        let (x, y) = (x.read::<T>(self.stream)?, out.write::<T>(self.stream)?);
        // A length beyond the divisor's limit takes the simple path too.
        if indices <= FEW || inner > Divisor::MAX as usize {
            let none = DevicePtr::null();
            // SAFETY: the indices are below the places of y, exclusively borrowed; x has a row for each.
            return unsafe {
                launch::<K>(self.stream, grid(shape.blocks()), (shape, self.indices, none, x, y))
            };
        }
        let mut counts = Tensor::zeros(self.stream, &[places], DType::I64)?;
        let counted = counts.view_mut()?;
        let count = counted.write(self.stream)?;
        let config = grid((indices as u64).div_ceil(THREADS.into()));
        // SAFETY: every index is below the places.
        unsafe { launch::<count_indices>(self.stream, config, (indices as u64, self.indices, count))? };
        let counts = counts.read::<u64>(self.stream)?;
        let wide = self.sides.unit(alignment) == UNIT;
        for moves in self.moves_of(if wide { UNIT } else { size })? {
            let arguments = (moves, u32::from(wide), self.indices, counts, x, y);
            // SAFETY: as above; wide units are whole and aligned.
            unsafe { launch::<Alone>(self.stream, grid(moves.blocks()), arguments)? };
        }
        // SAFETY: as above; the counts are those of these indices.
        unsafe { launch::<K>(self.stream, grid(shape.blocks()), (shape, self.indices, counts, x, y)) }
    }
}

impl Job<'_> {
    /// `out`, whose elements are `T`s, plus the rows of `x`, in f32.
    #[track_caller]
    fn add_wide<T: Element + Pod>(&self, x: &Tensor, mut out: TensorMut<'_>) -> Result<()> {
        if self.sides.is_nothing() {
            return Ok(());
        }
        let mut old = DeviceBuffer::<T>::zeroed(self.stream, out.layout().elements())?;
        old.view_mut().copy_from_device(self.stream, out.view_mut().into_view::<T>()?.view())?;
        let old = Tensor::from_buffer(old, out.shape())?;
        let mut wide = convert(self.stream, &old, DType::F32)?;
        let sides = Sides { size: DType::F32.size(), ..self.sides };
        let job = Job { sides, ..*self };
        job.add::<add_rows_f32, add_alone_f32, f32>(
            &convert(self.stream, x, DType::F32)?,
            &mut wide.view_mut()?,
        )?;
        convert_into(self.stream, &wide, out)
    }
}

fn grid(blocks: u64) -> LaunchConfig {
    // More blocks than a grid holds become an error of the launch.
    LaunchConfig::new([u32::try_from(blocks).unwrap_or(u32::MAX), 1, 1], [THREADS, 1, 1])
        .overlapping_previous()
}
