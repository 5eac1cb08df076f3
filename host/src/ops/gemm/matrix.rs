//! Operands of matrix products: where their elements lie, with the type known at run time.

use bytemuck::Pod;

use crate::device::Device;
use crate::error::{Error, Result};
use crate::memory::{DeviceView, DeviceViewMut};
use crate::tensor::{DType, Element, Layout, Tensor, TensorMut};

use super::OPERATION;
use super::problem::Operand;

/// Bytes that the copy engine and 16-byte loads want rows to begin at multiples of.
pub(crate) const ROW_ALIGNMENT: u64 = 16;

/// Where the elements of a batch of matrices lie. Strides in elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    pub rows: usize,
    pub columns: usize,
    /// From a row to the next.
    pub row: usize,
    /// From a column to the next.
    pub column: usize,
    /// Matrices.
    pub batch: usize,
    /// From a matrix to the next.
    pub matrix: usize,
    /// Columns lead: rows that were transposed. Both strides are 1 where lines have one element, so they do
    /// not tell.
    pub by_columns: bool,
    /// The stride from a matrix to the next was given, and does not follow from the others.
    pub matrix_given: bool,
    /// The strides were not given one by one: the elements lie in one piece and are all there are.
    pub dense: bool,
}

impl Shape {
    fn dense(rows: usize, columns: usize) -> Self {
        let matrix = rows.saturating_mul(columns);
        let (by_columns, matrix_given) = (false, false);
        Shape {
            rows,
            columns,
            row: columns,
            column: 1,
            batch: 1,
            matrix,
            by_columns,
            matrix_given,
            dense: true,
        }
    }

    pub(super) fn transposed(self) -> Self {
        let Shape { rows, columns, row, column, by_columns, .. } = self;
        Shape { rows: columns, columns: rows, row: column, column: row, by_columns: !by_columns, ..self }
    }

    fn leading(self, elements: usize) -> Self {
        let (shape, lines) = if self.by_columns {
            (Shape { column: elements, ..self }, self.columns)
        } else {
            (Shape { row: elements, ..self }, self.rows)
        };
        let matrix = if self.matrix_given { self.matrix } else { lines.saturating_mul(elements) };
        Shape { matrix, dense: false, ..shape }
    }

    fn batch_by(self, count: usize, elements: usize) -> Self {
        Shape { batch: count, matrix: elements, matrix_given: true, dense: false, ..self }
    }

    /// The same elements, by strides that fit in the arithmetic of kernels and of tensor maps. The stride of
    /// a single line means nothing and may be any number, so here it is at most what the other axes reach.
    pub(super) fn bounded(self) -> Self {
        let Shape { rows, columns, row, column, batch, matrix, .. } = self;
        let reach = |count: usize, stride: usize| if count > 1 { count.saturating_mul(stride) } else { 1 };
        // A batch of single lines folds to one matrix, whose lines then lie a matrix stride apart.
        let least = if batch > 1 { matrix } else { 0 };
        Shape {
            row: if rows > 1 { row } else { row.min(reach(columns, column).max(least)) },
            column: if columns > 1 { column } else { column.min(reach(rows, row).max(least)) },
            ..self
        }
    }

    /// The rows of all matrices of the batch as those of one, if they lie so.
    pub(super) fn folded(self) -> Option<Self> {
        let follows = self.matrix == self.rows.saturating_mul(self.row) || self.batch <= 1;
        follows.then(|| Shape { rows: self.rows.saturating_mul(self.batch), batch: 1, matrix: 0, ..self })
    }

    /// Elements from the first one to behind the last one; saturates.
    pub(super) fn span(self) -> usize {
        if self.rows == 0 || self.columns == 0 || self.batch == 0 {
            return 0;
        }
        let reach = |count: usize, stride: usize| (count - 1).saturating_mul(stride);
        reach(self.rows, self.row)
            .saturating_add(reach(self.columns, self.column))
            .saturating_add(reach(self.batch, self.matrix))
            .saturating_add(1)
    }

    /// Whether two of the elements may lie in one place.
    fn may_overlap(self) -> bool {
        if self.span() == 0 {
            return false;
        }
        let mut axes = [(self.row, self.rows), (self.column, self.columns), (self.matrix, self.batch)];
        axes.sort_unstable();
        // From the innermost axis on, each stride must reach over all that lies inside.
        let mut inside = 0usize;
        for (stride, count) in axes.into_iter().filter(|(_, count)| *count > 1) {
            if stride <= inside {
                return true;
            }
            inside = inside.saturating_add((count - 1).saturating_mul(stride));
        }
        false
    }

    /// The largest power of two, up to 16 bytes, that every line begins at a multiple of, when lines run
    /// along rows (else columns).
    fn alignment(self, address: u64, bytes: usize) -> u32 {
        let line = if self.column == 1 { self.row } else { self.column };
        let lines = if self.column == 1 { self.rows } else { self.columns };
        let mut bits = address;
        if lines > 1 {
            bits |= (line as u64).wrapping_mul(bytes as u64);
        }
        if self.batch > 1 {
            bits |= (self.matrix as u64).wrapping_mul(bytes as u64);
        }
        1 << bits.trailing_zeros().min(ROW_ALIGNMENT.trailing_zeros())
    }

    /// `data` has the elements that the shape says.
    fn check(self, what: &'static str, len: usize) -> Result<()> {
        let expected = self.span();
        if len == expected || (!self.dense && len > expected) {
            return Ok(());
        }
        Err(Error::Length { operation: OPERATION, what, expected, got: len })
    }
}

/// A matrix on the device, or a batch of them, shared: `[rows, columns]` of f32, f16, bf16, [`num::E4M3`] or
/// [`num::E5M2`].
#[derive(Debug, Clone, Copy)]
pub struct Matrix<'a> {
    pub(super) data: DeviceView<'a, u8>,
    pub(super) dtype: DType,
    pub(super) shape: Shape,
}

impl<'a> Matrix<'a> {
    /// `data` as a dense row-major matrix, or whatever the methods below make of it.
    pub fn new<T: Element + Pod>(data: impl Into<DeviceView<'a, T>>, rows: usize, columns: usize) -> Self {
        Matrix { data: data.into().bytes(), dtype: T::DTYPE, shape: Shape::dense(rows, columns) }
    }

    /// With `elements` from the beginning of a row to that of the next (of a column, once transposed).
    /// Matrices of a batch follow each other at once, unless [`Matrix::batch_by`] says otherwise, before or
    /// after. There may be more data than the matrix reaches.
    #[must_use]
    pub fn leading(self, elements: usize) -> Self {
        Matrix { shape: self.shape.leading(elements), ..self }
    }

    /// As many matrices one behind the other.
    #[must_use]
    pub fn batch(self, count: usize) -> Self {
        Matrix { shape: Shape { batch: count, ..self.shape }, ..self }
    }

    /// As many matrices, `elements` from the beginning of one to that of the next; 0 for the same one every
    /// time. There may be more data than the matrices reach.
    #[must_use]
    pub fn batch_by(self, count: usize, elements: usize) -> Self {
        Matrix { shape: self.shape.batch_by(count, elements), ..self }
    }

    /// Rows for columns: nothing moves.
    #[must_use]
    pub fn transposed(self) -> Self {
        Matrix { shape: self.shape.transposed(), ..self }
    }

    /// The last two axes of a tensor of two axes, or of three for a batch: of any strides, nothing moves.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for another number of axes.
    pub fn of(tensor: &'a Tensor) -> Result<Self> {
        Ok(Matrix { data: tensor.span_bytes()?, dtype: tensor.dtype(), shape: of_layout(tensor.layout())? })
    }

    /// See [`Shape::bounded`].
    pub(super) fn bounded(self) -> Self {
        Matrix { shape: self.shape.bounded(), ..self }
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Rows and columns.
    pub fn sides(&self) -> (usize, usize) {
        (self.shape.rows, self.shape.columns)
    }

    pub(super) fn device(&self) -> &'a Device {
        self.data.device()
    }

    /// In plain numbers.
    pub(super) fn operand(&self) -> Operand {
        let alignment = self.shape.alignment(self.data.as_ptr().raw(), self.dtype.size());
        Operand::new(self.dtype, self.shape, alignment)
    }

    pub(super) fn check(&self, what: &'static str) -> Result<()> {
        self.shape.check(what, self.data.len() / self.dtype.size())
    }
}

/// A matrix on the device, or a batch of them, exclusive. As [`Matrix`].
#[derive(Debug)]
pub struct MatrixMut<'a> {
    pub(super) data: DeviceViewMut<'a, u8>,
    pub(super) dtype: DType,
    pub(super) shape: Shape,
}

impl<'a> MatrixMut<'a> {
    /// As [`Matrix::new`].
    pub fn new<T: Element + Pod>(data: impl Into<DeviceViewMut<'a, T>>, rows: usize, columns: usize) -> Self {
        let data = data.into().bytes();
        MatrixMut { data, dtype: T::DTYPE, shape: Shape::dense(rows, columns) }
    }

    /// As [`Matrix::leading`].
    #[must_use]
    pub fn leading(self, elements: usize) -> Self {
        MatrixMut { shape: self.shape.leading(elements), ..self }
    }

    /// As [`Matrix::batch`].
    #[must_use]
    pub fn batch(self, count: usize) -> Self {
        MatrixMut { shape: Shape { batch: count, ..self.shape }, ..self }
    }

    /// As [`Matrix::batch_by`]; matrices must not overlap.
    #[must_use]
    pub fn batch_by(self, count: usize, elements: usize) -> Self {
        MatrixMut { shape: self.shape.batch_by(count, elements), ..self }
    }

    /// As [`Matrix::transposed`].
    #[must_use]
    pub fn transposed(self) -> Self {
        MatrixMut { shape: self.shape.transposed(), ..self }
    }

    /// As [`Matrix::of`].
    ///
    /// # Errors
    /// As [`Matrix::of`].
    pub fn of(tensor: TensorMut<'a>) -> Result<Self> {
        let (dtype, shape) = (tensor.dtype(), of_layout(tensor.layout())?);
        Ok(MatrixMut { data: tensor.into_span_bytes()?, dtype, shape })
    }

    /// See [`Shape::bounded`].
    pub(super) fn bounded(self) -> Self {
        MatrixMut { shape: self.shape.bounded(), ..self }
    }

    pub(super) fn device(&self) -> &'a Device {
        self.data.device()
    }

    pub(super) fn check(&self, what: &'static str) -> Result<()> {
        self.shape.check(what, self.data.len() / self.dtype.size())?;
        if !self.shape.may_overlap() {
            return Ok(());
        }
        let Shape { rows, columns, row, column, batch, matrix, .. } = self.shape;
        Err(Error::InvalidArgument {
            operation: OPERATION,
            argument: what,
            got: format!("[{batch}, {rows}, {columns}] by strides [{matrix}, {row}, {column}]"),
            wanted: "strides that give every element a place of its own".to_owned(),
            hint: "the leading dimension of a row-major matrix is at least its columns, the batch stride at least the matrix; none is 0",
        })
    }
}

fn of_layout(layout: &Layout) -> Result<Shape> {
    let shape = |[batch, rows, columns]: [usize; 3], [matrix, row, column]: [usize; 3]| Shape {
        rows,
        columns,
        row,
        column,
        batch,
        matrix,
        by_columns: column != 1,
        matrix_given: layout.strides().len() == 3,
        dense: false,
    };
    match (layout.shape().sides(), layout.strides()) {
        (&[rows, columns], &[row, column]) => {
            // Of a batch: behind all lines, as without a tensor.
            let matrix = rows.saturating_mul(row).max(columns.saturating_mul(column));
            Ok(shape([1, rows, columns], [matrix, row, column]))
        }
        (&[batch, rows, columns], &[matrix, row, column]) => {
            Ok(shape([batch, rows, columns], [matrix, row, column]))
        }
        (sides, _) => Err(Error::InvalidArgument {
            operation: OPERATION,
            argument: "the tensor",
            got: format!("{} axes", sides.len()),
            wanted: "2 axes, or 3 for a batch".to_owned(),
            hint: "`view_as` merges outer axes, `unsqueeze` adds one",
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::Shape;

    const PLAIN: Shape = Shape {
        rows: 3,
        columns: 5,
        row: 5,
        column: 1,
        batch: 1,
        matrix: 15,
        by_columns: false,
        matrix_given: false,
        dense: true,
    };

    #[test]
    fn strides_do_not_depend_on_the_order_they_are_given_in() {
        for (rows, columns) in [(3, 5), (3, 1), (1, 5), (1, 1)] {
            let shape = Shape::dense(rows, columns);
            assert_eq!(shape.transposed().leading(8), shape.leading(8).transposed());
            assert_eq!(shape.transposed().transposed(), shape);
            for stride in [0, 100] {
                let by = |shape: Shape| shape.batch_by(2, stride);
                assert_eq!(by(shape).leading(8), by(shape.leading(8)));
                assert_eq!(by(shape).transposed().leading(8), by(shape.leading(8).transposed()));
            }
        }
        // Unless it is given it follows.
        assert_eq!(PLAIN.leading(8).matrix, 24);
        assert_eq!(PLAIN.transposed().leading(8).matrix, 24);
    }

    #[test]
    fn spans_reach_the_last_element() {
        assert_eq!(PLAIN.span(), 15);
        assert_eq!(PLAIN.leading(8).span(), 21);
        assert_eq!(PLAIN.transposed().leading(8).span(), 21);
        assert_eq!(Shape { batch: 4, matrix: 100, ..PLAIN }.span(), 315);
        assert_eq!(Shape { batch: 0, ..PLAIN }.span(), 0);
        assert_eq!(Shape { rows: usize::MAX, ..PLAIN }.span(), usize::MAX);
    }

    #[test]
    fn overlaps_are_seen() {
        let batch = |matrix| Shape { batch: 2, matrix, ..PLAIN };
        for (shape, overlaps) in [
            (PLAIN, false),
            (PLAIN.transposed(), false),
            (PLAIN.leading(4), true),
            (PLAIN.leading(0), true),
            (batch(15), false),
            (batch(14), true),
            (batch(0), true),
            (Shape { batch: 1, matrix: 0, ..PLAIN }, false),
            // Rows of one matrix between those of another.
            (Shape { batch: 2, matrix: 5, row: 10, ..PLAIN }, false),
            (Shape { rows: 0, row: 0, ..PLAIN }, false),
        ] {
            assert_eq!(shape.may_overlap(), overlaps, "{shape:?}");
        }
    }

    #[test]
    fn strides_of_single_lines_are_bounded() {
        let (row, column) = (Shape { rows: 1, ..PLAIN }, Shape { columns: 1, ..PLAIN });
        assert_eq!(Shape { row: 1 << 62, ..row }.bounded(), row);
        assert_eq!(row.leading(3).bounded(), row.leading(3));
        assert_eq!(Shape { column: usize::MAX, ..column }.bounded(), Shape { column: 15, ..column });
        let batch = row.leading(100).batch_by(4, 100);
        assert_eq!(batch.bounded(), batch);
        let one = Shape { rows: 1, columns: 1, row: 1 << 62, column: 1 << 63, ..PLAIN };
        assert_eq!(one.bounded(), Shape { row: 1, column: 1, ..one });
        assert_eq!(PLAIN.leading(1 << 62).bounded(), PLAIN.leading(1 << 62));
    }

    #[test]
    fn batches_fold_where_rows_go_on() {
        let batch = Shape { batch: 4, ..PLAIN };
        assert_eq!(batch.folded(), Some(Shape { rows: 12, batch: 1, matrix: 0, ..PLAIN }));
        assert_eq!(Shape { batch: 4, ..PLAIN.leading(8) }.folded().map(|shape| shape.rows), Some(12));
        assert_eq!(Shape { matrix: 16, ..batch }.folded(), None);
        assert_eq!(Shape { matrix: 0, ..batch }.folded(), None);
        assert_eq!(batch.transposed().folded(), None);
    }

    #[test]
    fn alignment_is_of_every_line() {
        assert_eq!(PLAIN.leading(8).alignment(256, 2), 16);
        assert_eq!(PLAIN.leading(8).alignment(264, 2), 8);
        assert_eq!(PLAIN.leading(6).alignment(256, 2), 4);
        assert_eq!(PLAIN.alignment(256, 2), 2);
        assert_eq!(Shape { rows: 1, ..PLAIN }.alignment(256, 2), 16);
        assert_eq!(Shape { batch: 2, matrix: 17, rows: 1, ..PLAIN }.alignment(256, 4), 4);
        assert_eq!(PLAIN.transposed().leading(8).alignment(256, 2), 16);
    }
}
