//! Copies of operands that a kernel cannot address as they lie: rows that do not begin at 16-byte boundaries,
//! or that run the other way.

use bytemuck::Pod;
use cuda_std::kernel::{Kernel, Ptr, PtrMut, Value};
use gemm::repack::{self as kernel, RepackPair, RepackShape};

use crate::config::MAX_BLOCKS;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::launch::{LaunchConfig, launch};
use crate::memory::{DeviceBuffer, DeviceView, DeviceViewMut};
use crate::stream::Stream;
use crate::tensor::DType;

use super::check::{check_type, invalid};
use super::config::Repack;
use super::matrix::{Matrix, ROW_ALIGNMENT, Shape};
use super::problem::{Operand, Order, side};
use super::select::DeviceCapabilities;

/// Blocks along z, one for each product of a batch, at most.
pub(super) const MAX_BATCH_BLOCKS: u32 = MAX_BLOCKS;

/// A copy of a matrix, or of a batch of them, whose rows or columns begin at 16-byte boundaries.
#[derive(Debug)]
pub struct Packed {
    data: DeviceBuffer<u8>,
    dtype: DType,
    shape: Shape,
}

impl Packed {
    /// Queues a copy of `matrix` with its rows, or its columns, side by side and aligned: for an operand that
    /// many products take, each of which would else make its own.
    ///
    /// # Errors
    /// [`Error::Length`] when the matrix does not have the elements that its shape says,
    /// [`Error::InvalidArgument`] for a type that products do not take, when a side is too long, or `to` is
    /// [`Repack::No`], [`Error::DeviceMismatch`], [`Error::OutOfMemory`], or the driver's error.
    pub fn new(stream: &Stream, matrix: Matrix<'_>, to: Repack) -> Result<Self> {
        check_type("the matrix", matrix.dtype)?;
        matrix.check("the matrix")?;
        let [packed, _] = repack(stream, [matrix; 2], [to, Repack::No])?;
        packed.ok_or_else(|| {
            let wanted = "Repack::Rows or Repack::Columns".to_owned();
            invalid("the order", "Repack::No".to_owned(), wanted, "a matrix that needs no copy is its own")
        })
    }

    /// The copy.
    pub fn matrix(&self) -> Matrix<'_> {
        Matrix { data: self.data.view(), dtype: self.dtype, shape: self.shape }
    }
}

/// Bytes of a line of the caches. The copy engine's boxes are as wide, and cost two requests a row when rows
/// begin elsewhere.
pub(super) const LINE_BYTES: usize = 128;
/// Rows of so many bytes, or more, begin at a line in a copy: shorter ones would be stretched by more than an
/// eighth.
const LONG_ROW_BYTES: usize = 8 * LINE_BYTES;

/// Elements from the beginning of a row of a copy to the next.
pub(super) fn pitch(columns: usize, element_bytes: usize) -> usize {
    let long = columns.saturating_mul(element_bytes) >= LONG_ROW_BYTES;
    columns.next_multiple_of(if long { LINE_BYTES } else { ROW_ALIGNMENT as usize } / element_bytes)
}

/// Queues the copies of two operands that are wanted, in one launch if they can be.
pub(super) fn repack(
    stream: &Stream,
    [a, b]: [Matrix<'_>; 2],
    [to_a, to_b]: [Repack; 2],
) -> Result<[Option<Packed>; 2]> {
    let (mut a, mut b) = (Copying::new(stream, a, to_a)?, Copying::new(stream, b, to_b)?);
    match (&mut a, &mut b) {
        (Some(a), Some(b)) if a.to.dtype.size() == b.to.dtype.size() => launch_both(stream, a, Some(b))?,
        (a, b) => {
            for copying in [a, b].into_iter().flatten() {
                launch_both(stream, copying, None)?;
            }
        }
    }
    Ok([(a, to_a), (b, to_b)].map(|(copying, to)| copying.map(|copying| copying.packed(to))))
}

/// How much of memory's rate a copy has, where lines are copied as they lie and where they are turned: 2.7
/// and 2.36 TB/s on an H100 alone, less in front of a product, and on an H200. Fitted while elements were
/// read one by one. By units products take 7.2 us for an estimate of 8.0 (32 x 12936 x 133), 52.0 for 49.4
/// (6 x 9 x 31592 x 131, both transposed), 759 for 689 (24 x 16457 x 27760, B as `[k, n]`).
const ALONG: f64 = 0.806;
const ACROSS: f64 = 0.6;
/// The launch, which copies both operands if both are to be, and the allocation, microseconds, by what
/// products on an H200 took that had one.
const START_US: f64 = 2.8;

/// How long the copies of both operands take, if they are wanted: of `[m, k]` and of `[k, n]`.
pub(super) fn estimate_both_us(
    [to_a, to_b]: [Repack; 2],
    [a, b]: [&Operand; 2],
    [m, n, k]: [u32; 3],
    batch: u32,
    device: &DeviceCapabilities,
) -> f64 {
    let both = [(to_a, a, [m, k]), (to_b, b, [k, n])];
    let copying = both.map(|(to, operand, sides)| copying_us(to, operand, sides, batch, device));
    let start_us = if copying == [None; 2] { 0.0 } else { START_US };
    start_us + copying.into_iter().flatten().sum::<f64>()
}

/// How long a copy of so many rows and columns of an operand takes.
pub(super) fn estimate_us(
    to: Repack,
    operand: &Operand,
    sides: [u32; 2],
    batch: u32,
    device: &DeviceCapabilities,
) -> f64 {
    copying_us(to, operand, sides, batch, device).map_or(0.0, |us| START_US + us)
}

/// The same without its start; `None` if there is no copy.
fn copying_us(
    to: Repack,
    operand: &Operand,
    [rows, columns]: [u32; 2],
    batch: u32,
    device: &DeviceCapabilities,
) -> Option<f64> {
    let (as_it_lies, [lines, length]) = match to {
        Repack::No => return None,
        Repack::Rows => (Order::Rows, [rows, columns]),
        Repack::Columns => (Order::Columns, [columns, rows]),
    };
    let share = if operand.order == as_it_lies { ALONG } else { ACROSS };
    let read = u64::from(length) * operand.dtype.size() as u64;
    let each = read + read.next_multiple_of(ROW_ALIGNMENT);
    Some(f64::from(lines) * f64::from(batch) * each as f64 / (share * device.memory_rate))
}

/// A copy that is about to be launched: what is copied, with its rows as the copy's, and the copy.
struct Copying<'a> {
    from: DeviceView<'a, u8>,
    to: Packed,
    shape: RepackShape,
}

impl<'a> Copying<'a> {
    /// The copy of a matrix that is wanted, if one is.
    fn new(stream: &Stream, matrix: Matrix<'a>, to: Repack) -> Result<Option<Self>> {
        let Matrix { data, dtype, shape } = match to {
            Repack::No => return Ok(None),
            Repack::Rows => matrix,
            Repack::Columns => matrix.transposed(),
        };
        // A matrix that every product of the batch takes is copied once.
        let batch = if shape.matrix == 0 { shape.batch.min(1) } else { shape.batch };
        let sides = [side("rows", shape.rows)?, side("columns", shape.columns)?, side("the batch", batch)?];
        let pitch = pitch(shape.columns, dtype.size());
        let each = shape.rows.saturating_mul(pitch);
        let bytes = each.saturating_mul(batch).saturating_mul(dtype.size());
        // SAFETY: the kernel writes every element; nothing reads behind the last column of a row.
        let scratch = unsafe { DeviceBuffer::<u8>::uninit(stream, bytes)? };
        let copied = RepackShape {
            rows: sides[0],
            columns: sides[1],
            batch: sides[2],
            row: shape.row as u64,
            column: shape.column as u64,
            matrix: shape.matrix as u64,
            pitch: pitch as u64,
        };
        let matrix = if shape.matrix == 0 { 0 } else { each };
        let shape = Shape { row: pitch, column: 1, matrix, by_columns: false, dense: false, ..shape };
        Ok(Some(Self { from: data, to: Packed { data: scratch, dtype, shape }, shape: copied }))
    }

    /// The copy, in the order that was wanted.
    fn packed(self, to: Repack) -> Packed {
        let Packed { data, dtype, shape } = self.to;
        let rows = Matrix { data: data.view(), dtype, shape };
        let shape = if to == Repack::Columns { rows.transposed().shape } else { shape };
        Packed { data, dtype, shape }
    }
}

/// Queues one copy, or two of elements of the same size.
fn launch_both(stream: &Stream, first: &mut Copying<'_>, second: Option<&mut Copying<'_>>) -> Result<()> {
    let size = first.to.dtype.size() as u32;
    let pair = RepackPair {
        first: first.shape,
        second: second.as_ref().map_or(RepackShape::NONE, |second| second.shape),
    };
    // More blocks than a grid holds become an error of the launch.
    let blocks = u32::try_from(pair.first.blocks(size) + pair.second.blocks(size)).unwrap_or(u32::MAX);
    let grid = [blocks, 1, pair.first.batch.max(pair.second.batch).min(MAX_BATCH_BLOCKS)];
    let config = LaunchConfig::new(grid, [kernel::THREADS, 1, 1]).overlapping_previous();
    let other = second.map(|second| (second.from, second.to.data.view_mut()));
    let operands = (pair, first.from, first.to.data.view_mut(), other);
    // SAFETY: the matrices' strides stay within their data, which has been checked; each scratch has `batch *
    // rows * pitch` elements and begins at a 16-byte boundary, as allocations do; grid and block are what the
    // kernel asks for, and it waits for earlier launches before it touches memory.
    unsafe {
        match size {
            1 => launch_as::<kernel::gemm_repack_b8, u8>(stream, config, operands),
            2 => launch_as::<kernel::gemm_repack_b16, u16>(stream, config, operands),
            _ => launch_as::<kernel::gemm_repack_b32, u32>(stream, config, operands),
        }
    }
}

/// Two matrices and the places of their copies.
type Operands<'a> = (
    RepackPair,
    DeviceView<'a, u8>,
    DeviceViewMut<'a, u8>,
    Option<(DeviceView<'a, u8>, DeviceViewMut<'a, u8>)>,
);

/// Queues a kernel.
///
/// # Safety
/// As for the kernel.
unsafe fn launch_as<K, T: Pod>(stream: &Stream, config: LaunchConfig, operands: Operands<'_>) -> Result<()>
where
    K: Kernel<Params = (Value<RepackPair>, Ptr<T>, PtrMut<T>, Ptr<T>, PtrMut<T>)>,
{
    let (pair, x, y, other) = operands;
    let (other_x, other_y) = other.map(|(x, y)| (x.cast::<T>(), y.cast::<T>())).unzip();
    // SAFETY: the caller's contract.
    unsafe { launch::<K>(stream, config, (pair, x.cast::<T>(), y.cast::<T>(), other_x, other_y)) }
}
