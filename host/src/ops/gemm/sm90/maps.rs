//! Tensor maps of operands and results.

use gemm::sm90::instances::Entry;

use crate::error::Result;
use crate::memory::DeviceView;
use crate::memory::tensor_map::{L2Promotion, Swizzle, TensorMap, Tiling};
use crate::ops::gemm::epilogue::Epilogue;
use crate::ops::gemm::matrix::{Matrix, ROW_ALIGNMENT, Shape};
use crate::ops::gemm::problem::{Operand, Order, Problem};
use crate::tensor::DType;

use super::candidates::{Source, is_copied, source};

/// Bytes of k that the kernels load at a time, and the rows of a subtile of the result.
pub(crate) const K_BYTES: u32 = 128;
pub(crate) const BOX: u32 = 64;

/// The map of an operand `[m, k]` (or `[n, k]`), contiguous along k, in boxes of so many rows, or along m, of
/// so many elements of k. Boxes are as wide as a line, or as `width` says.
pub(crate) fn operand_map<'a>(
    matrix: Matrix<'a>,
    along_k: bool,
    lines_of_box: u32,
    width: Option<u32>,
) -> Result<TensorMap<'a>> {
    let Shape { rows: m, columns: k, row, column, batch, matrix: stride, .. } = matrix.shape;
    let span = K_BYTES / matrix.dtype.size() as u32;
    let box_dims = [width.unwrap_or(span), lines_of_box];
    let lines = if along_k { (k, m, row) } else { (m, k, column) };
    swizzled_map(matrix.data, matrix.dtype, lines, (batch, stride), box_dims, Swizzle::B128)
}

/// A map of a batch of matrices: lines of contiguous elements, in boxes of `box_dims` elements and lines,
/// with the swizzle of lines that long.
pub(crate) fn map<'a>(
    data: DeviceView<'a, u8>,
    dtype: DType,
    (length, lines, leading): (usize, usize, usize),
    (batch, matrix): (usize, usize),
    box_dims: [u32; 2],
) -> Result<TensorMap<'a>> {
    let swizzle = match box_dims[0] as usize * dtype.size() {
        128 => Swizzle::B128,
        64 => Swizzle::B64,
        32 => Swizzle::B32,
        _ => Swizzle::None,
    };
    swizzled_map(data, dtype, (length, lines, leading), (batch, matrix), box_dims, swizzle)
}

fn swizzled_map<'a>(
    data: DeviceView<'a, u8>,
    dtype: DType,
    (length, lines, leading): (usize, usize, usize),
    (batch, matrix): (usize, usize),
    box_dims: [u32; 2],
    swizzle: Swizzle,
) -> Result<TensorMap<'a>> {
    let bytes = dtype.size() as u64;
    let line = leading as u64 * bytes;
    let matrix = if batch > 1 { matrix as u64 * bytes } else { line * lines as u64 };
    let tiling = Tiling::new([length, lines, batch], [box_dims[0], box_dims[1], 1])
        .stride(1, line.next_multiple_of(ROW_ALIGNMENT))
        .stride(2, matrix.next_multiple_of(ROW_ALIGNMENT))
        .swizzle(swizzle)
        // Whole lines. For rows that do not begin at a line, more would fetch bytes that no block reads.
        .l2_promotion(L2Promotion::B128);
    match bytes {
        1 => TensorMap::new(data, &tiling),
        2 => TensorMap::new(data.cast::<u16>(), &tiling),
        _ => TensorMap::new(data.cast::<u32>(), &tiling),
    }
}

/// The lines of C, or of what lies like it, as rows.
pub(super) fn lines(problem: &Problem, shape: Shape) -> Shape {
    if problem.c.order == Order::Columns { shape.transposed() } else { shape }
}

/// Do lines of so many elements consist of pairs that each begin at a multiple of their size?
pub(crate) fn paired(operand: &Operand, length: usize) -> bool {
    let pair = 2 * operand.dtype.size();
    length.is_multiple_of(2) && (operand.alignment as usize).is_multiple_of(pair)
}

/// The maps of C and of the matrix that TMA adds to it. Where there are none, another map, which is not read.
pub(crate) fn result_maps<'a>(
    entry: &Entry,
    problem: &Problem,
    c: Matrix<'a>,
    epilogue: &Epilogue<'a>,
    none: TensorMap<'a>,
) -> Result<[TensorMap<'a>; 2]> {
    if !is_copied(entry, problem) {
        return Ok([none; 2]);
    }
    let (columns, halves) = (entry.store_columns, problem.epilogue.activation.columns());
    let boxes = match (problem.c.dtype.size() > 2, entry.transposed) {
        (false, true) => [BOX / halves, columns],
        (false, false) => [columns / halves, BOX],
        // A subtile of f32 has half of the columns, and the transpose is copied in two boxes.
        (true, true) => [BOX / 2, columns / 2],
        (true, false) => [columns / 2, BOX],
    };
    let lines_map = |matrix: Matrix<'a>| {
        let Shape { rows, columns, row, batch, matrix: stride, .. } = lines(problem, matrix.shape);
        map(matrix.data, matrix.dtype, (columns, rows, row), (batch, stride), boxes)
    };
    let map_c = lines_map(c)?;
    let map_source = match (source(problem), epilogue.residual) {
        (Source::Residual, Some(residual)) => lines_map(residual)?,
        _ => map_c,
    };
    Ok([map_c, map_source])
}
