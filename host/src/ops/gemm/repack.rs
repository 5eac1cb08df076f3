//! Copies of operands that a kernel cannot address as they lie: rows that do not begin at 16-byte boundaries,
//! or that run the other way.

use gemm::repack::{self as kernel, RepackShape};

#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::launch::{LaunchConfig, launch};
use crate::memory::DeviceBuffer;
use crate::stream::Stream;
use crate::tensor::DType;

use super::check::invalid;
use super::config::Repack;
use super::matrix::{Matrix, ROW_ALIGNMENT, Shape};
use super::problem::{Operand, Order, side};
use super::select::DeviceCapabilities;

/// Blocks along z at most.
pub(super) const MAX_BATCH_BLOCKS: u32 = 65_535;

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
    /// [`Error::InvalidArgument`] when a side is too long, or `to` is [`Repack::No`],
    /// [`Error::DeviceMismatch`], [`Error::OutOfMemory`], or the driver's error.
    pub fn new(stream: &Stream, matrix: Matrix<'_>, to: Repack) -> Result<Self> {
        matrix.check("the matrix")?;
        repack(stream, matrix, to)?.ok_or_else(|| {
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

/// Queues the copy of `matrix` that is wanted, if one is.
pub(super) fn repack(stream: &Stream, matrix: Matrix<'_>, to: Repack) -> Result<Option<Packed>> {
    let (columns, dtype) = (matrix.shape.columns, matrix.dtype);
    match to {
        Repack::No => Ok(None),
        Repack::Rows => to_rows(stream, matrix, pitch(columns, dtype.size())).map(Some),
        Repack::Columns => {
            let pitch = pitch(matrix.shape.rows, dtype.size());
            let Packed { data, dtype, shape } = to_rows(stream, matrix.transposed(), pitch)?;
            let shape = Matrix { data: data.view(), dtype, shape }.transposed().shape;
            Ok(Some(Packed { data, dtype, shape }))
        }
    }
}

/// How much of memory's rate a copy has, where lines are copied as they lie and where they are turned: 2.7
/// and 2.36 TB/s on an H100 alone, less in front of a product, and on an H200.
const ALONG: f64 = 0.806;
const ACROSS: f64 = 0.6;
/// Its launch and the allocation, microseconds, by what products on an H200 take that have one.
const START_US: f64 = 2.8;

/// How long a copy of so many rows and columns of an operand takes.
pub(super) fn estimate_us(
    to: Repack,
    operand: &Operand,
    [rows, columns]: [u32; 2],
    batch: u32,
    device: &DeviceCapabilities,
) -> f64 {
    let as_it_lies = match to {
        Repack::No => return 0.0,
        Repack::Rows => Order::Rows,
        Repack::Columns => Order::Columns,
    };
    let share = if operand.order == as_it_lies { ALONG } else { ACROSS };
    let elements = f64::from(rows) * f64::from(columns) * f64::from(batch);
    START_US + 2.0 * elements * operand.dtype.size() as f64 / (share * device.memory_rate)
}

/// A copy whose rows are `pitch` elements apart, a multiple of 16 bytes.
fn to_rows(stream: &Stream, matrix: Matrix<'_>, pitch: usize) -> Result<Packed> {
    let Matrix { data, dtype, shape } = matrix;
    // A matrix that every product of the batch takes is copied once.
    let batch = if shape.matrix == 0 { shape.batch.min(1) } else { shape.batch };
    let each = shape.rows.saturating_mul(pitch);
    let bytes = each.saturating_mul(batch).saturating_mul(dtype.size());
    // SAFETY: the kernel writes every element; nothing reads behind the last column of a row.
    let mut scratch = unsafe { DeviceBuffer::<u8>::uninit(stream, bytes)? };
    let problem = RepackShape {
        rows: side("rows", shape.rows)?,
        columns: side("columns", shape.columns)?,
        batch: side("the batch", batch)?,
        row: shape.row as u64,
        column: shape.column as u64,
        matrix: shape.matrix as u64,
        pitch: pitch as u64,
    };
    let size = dtype.size() as u32;
    // More blocks than a grid holds become an error of the launch.
    let blocks = u32::try_from(problem.blocks(size)).unwrap_or(u32::MAX);
    let grid = [blocks, 1, problem.batch.min(MAX_BATCH_BLOCKS)];
    let config = LaunchConfig::new(grid, [kernel::THREADS, 1, 1]).overlapping_previous();
    let to = scratch.view_mut();
    // SAFETY: the matrix's strides stay within its data, which has been checked; the scratch has `batch *
    // rows * pitch` elements and begins at a 16-byte boundary, as allocations do; grid and block are what the
    // kernel asks for, and it waits for earlier launches before it touches memory.
    unsafe {
        match size {
            1 => launch::<kernel::gemm_repack_b8>(stream, config, (problem, data, to))?,
            2 => launch::<kernel::gemm_repack_b16>(
                stream,
                config,
                (problem, data.cast::<u16>(), to.cast::<u16>()),
            )?,
            _ => launch::<kernel::gemm_repack_b32>(
                stream,
                config,
                (problem, data.cast::<u32>(), to.cast::<u32>()),
            )?,
        }
    }
    let matrix = if shape.matrix == 0 { 0 } else { each };
    let shape = Shape { row: pitch, column: 1, matrix, by_columns: false, dense: false, ..shape };
    Ok(Packed { data: scratch, dtype, shape })
}
