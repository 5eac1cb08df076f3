//! Operands of attention: where the rows of their heads lie, with the type known at run time.

use attention::problem::Strides;
use bytemuck::Pod;

use crate::device::Device;
use crate::error::{Error, Result};
use crate::memory::{DeviceView, DeviceViewMut};
use crate::tensor::{DType, Element, Layout, Tensor, TensorMut};

use super::OPERATION;
use super::check::invalid;

/// Bytes that rows begin at multiples of.
pub(super) const ROW_ALIGNMENT: u64 = 16;

/// Where the elements lie, `[batch, rows, heads, head size]`. Strides in elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub sides: [usize; 4],
    pub strides: [usize; 4],
    /// The strides were not given: the elements lie in one piece and are all there are.
    is_dense: bool,
}

impl Shape {
    fn dense(sides: [usize; 4]) -> Self {
        let [_, rows, heads, size] = sides;
        let row = heads.saturating_mul(size);
        Shape { sides, strides: [rows.saturating_mul(row), row, size, 1], is_dense: true }
    }

    fn strided(self, [batch, row, head]: [usize; 3]) -> Self {
        Shape { strides: [batch, row, head, 1], is_dense: false, ..self }
    }

    fn heads_first(self) -> Self {
        let turned = |[batch, rows, heads, size]: [usize; 4]| [batch, heads, rows, size];
        Shape { sides: turned(self.sides), strides: turned(self.strides), ..self }
    }

    /// Every `stride`-th row as a sequence of its own, or as heads of its own where there are several
    /// sequences.
    fn dilated(self, stride: usize) -> Result<Self> {
        let Shape { sides: [batch, rows, heads, size], strides: [matrix, row, head, element], .. } = self;
        if stride == 0 || !rows.is_multiple_of(stride) {
            let (got, hint) = (
                format!("{stride} of {rows} rows"),
                "under a causal mask, add as many rows of zeros behind the queries as behind the keys",
            );
            return Err(invalid("the stride", got, "a part of the rows' number".to_owned(), hint));
        }
        let (of_each, far) = (rows / stride, row.saturating_mul(stride));
        if batch == 1 {
            let (sides, strides) = ([stride, of_each, heads, size], [row, far, head, element]);
            return Ok(Shape { sides, strides, ..self });
        }
        if heads > 1 && row != heads.saturating_mul(head) {
            return Err(invalid(
                "the rows",
                format!("strides {:?} of {heads} heads, {batch} sequences", self.strides),
                format!("one sequence, or rows of {heads} heads without a gap"),
                "call once for each sequence, or copy to `[batch, rows, heads, head size]` without gaps",
            ));
        }
        let head = if heads > 1 { head } else { row };
        let sides = [batch, of_each, heads.saturating_mul(stride), size];
        Ok(Shape { sides, strides: [matrix, far, head, element], ..self })
    }

    /// Some of the heads, from a place of their own on.
    fn with_heads(self, heads: usize) -> Self {
        let [batch, rows, _, size] = self.sides;
        Shape { sides: [batch, rows, heads, size], is_dense: false, ..self }
    }

    /// The same elements. The stride of an axis with one place means nothing and may be any number: here a
    /// row's length, rounded up to 16 bytes or more.
    pub fn bounded(self) -> Self {
        let Shape { sides, mut strides, .. } = self;
        for axis in 0..3 {
            if sides[axis] <= 1 {
                strides[axis] =
                    sides[3].checked_next_multiple_of(ROW_ALIGNMENT as usize).unwrap_or(usize::MAX);
            }
        }
        Shape { strides, ..self }
    }

    /// Elements from the first one to behind the last one; saturates.
    pub fn span(self) -> usize {
        if self.is_empty() {
            return 0;
        }
        let reach = |(side, stride): (usize, usize)| (side - 1).saturating_mul(stride);
        self.sides.into_iter().zip(self.strides).map(reach).fold(1, usize::saturating_add)
    }

    pub fn is_empty(self) -> bool {
        self.sides.contains(&0)
    }

    /// Whether two of the elements may lie in one place.
    fn may_overlap(self) -> bool {
        if self.is_empty() {
            return false;
        }
        let mut axes: [(usize, usize); 4] =
            std::array::from_fn(|axis| (self.strides[axis], self.sides[axis]));
        axes.sort_unstable();
        // From the innermost axis on, each stride must reach over all that lies inside.
        let mut inside = 0usize;
        axes.into_iter().filter(|(_, side)| *side > 1).any(|(stride, side)| {
            let overlaps = stride <= inside;
            inside = inside.saturating_add((side - 1).saturating_mul(stride));
            overlaps
        })
    }

    /// Whether rows are contiguous and begin at multiples of 16 bytes, from this address on.
    pub fn is_addressable(self, address: u64, element_bytes: usize) -> bool {
        let Shape { strides, .. } = self.bounded();
        let places = strides[..3].iter().map(|&stride| (stride as u64).wrapping_mul(element_bytes as u64));
        let bits = places.fold(address, |bits, place| bits | place);
        self.is_empty() || (strides[3] == 1 && bits.is_multiple_of(ROW_ALIGNMENT))
    }

    /// `data` has the elements that the shape says.
    fn check_length(self, what: &'static str, len: usize) -> Result<()> {
        let expected = self.span();
        if len == expected || (!self.is_dense && len > expected) {
            return Ok(());
        }
        Err(Error::Length { operation: OPERATION, what, expected, got: len })
    }

    /// Kernels can address the rows.
    fn check_rows(self, what: &'static str, address: u64, element_bytes: usize) -> Result<()> {
        if self.is_addressable(address, element_bytes) {
            return Ok(());
        }
        let remainder = address % ROW_ALIGNMENT;
        let row_bytes = self.sides[3] as u64 * element_bytes as u64;
        let hint = if row_bytes.is_multiple_of(ROW_ALIGNMENT) {
            "the last stride is 1 and the others are multiples of 16 bytes; `copy` makes a tensor so"
        } else {
            "rows are no multiple of 16 bytes long: leave gaps between them, and give their `strides`"
        };
        Err(invalid(
            what,
            format!("strides {:?} in elements, {remainder} bytes behind a 16-byte boundary", self.strides),
            "rows that are contiguous and begin at 16-byte boundaries".to_owned(),
            hint,
        ))
    }

    fn check_places(self, what: &'static str) -> Result<()> {
        if !self.may_overlap() {
            return Ok(());
        }
        Err(invalid(
            what,
            format!("{:?} by strides {:?}", self.sides, self.strides),
            "strides that give every element a place of its own".to_owned(),
            "results cannot be broadcast: no stride is 0, and each reaches over what lies inside",
        ))
    }
}

/// Rows of heads on the device, shared: `[batch, rows, heads, head size]` of bf16, f16 or e4m3. The elements
/// of a row lie side by side; rows begin at 16-byte boundaries, in any order.
#[derive(Debug, Clone, Copy)]
pub struct Heads<'a> {
    pub(super) data: DeviceView<'a, u8>,
    pub(super) dtype: DType,
    pub(super) shape: Shape,
}

impl<'a> Heads<'a> {
    /// `data` as `[batch, rows, heads, head size]` without gaps, or whatever the methods below make of it.
    pub fn new<T: Element + Pod>(data: impl Into<DeviceView<'a, T>>, sides: [usize; 4]) -> Self {
        Heads { data: data.into().bytes(), dtype: T::DTYPE, shape: Shape::dense(sides) }
    }

    /// With so many elements from a place of the first three axes to the next. There may be more data than
    /// the rows reach; 0 repeats an axis.
    #[must_use]
    pub fn strides(self, strides: [usize; 3]) -> Self {
        Heads { shape: self.shape.strided(strides), ..self }
    }

    /// Second and third axis change places: for sides that were given as `[batch, heads, rows, head size]`.
    #[must_use]
    pub fn heads_first(self) -> Self {
        Heads { shape: self.shape.heads_first(), ..self }
    }

    /// For dilated attention, where a query sees only keys that are a multiple of `stride` rows away: rows
    /// `r`, `r + stride`, and so on belong together, for each `r` below the stride. Nothing moves, and no
    /// score is computed in vain. One sequence becomes `[stride, rows / stride, heads, head size]`, and
    /// several become `[batch, rows / stride, stride * heads, head size]`: head `r * heads + h`.
    ///
    /// Take it of all operands. A window of the mask then counts in strides: `Mask::window(Some(3), Some(0))`
    /// are the query's own place and three before it, each a stride apart. So do the distances of ALiBi and
    /// of biases by distance, and the keys of ranges and of block-sparse layouts.
    /// Results lie where they would without it; log-sum-exps, slopes and biases are of the new sides.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the stride does not divide the rows, and for several sequences whose
    /// rows have gaps between their heads.
    pub fn dilated(self, stride: usize) -> Result<Self> {
        Ok(Heads { shape: self.shape.dilated(stride)?, ..self })
    }

    /// A tensor `[batch, rows, heads, head size]`, or `[rows, heads, head size]` for packed sequences and for
    /// a batch of one, of any strides: nothing moves.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for another number of axes.
    pub fn of(tensor: &'a Tensor) -> Result<Self> {
        Ok(Heads { data: tensor.span_bytes()?, dtype: tensor.dtype(), shape: of_layout(tensor.layout())? })
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// `[batch, rows, heads, head size]`.
    pub fn sides(&self) -> [usize; 4] {
        self.shape.sides
    }

    pub(super) fn device(&self) -> &'a Device {
        self.data.device()
    }

    /// Elements from a row to the next, a head, a sequence.
    pub(super) fn strides_of_rows(&self) -> Strides {
        let [matrix, row, head, _] = self.shape.bounded().strides.map(|stride| stride as u64);
        Strides { row, head, matrix }
    }

    /// The data has the elements that the sides say, where kernels can address them.
    pub(super) fn check(&self, what: &'static str) -> Result<()> {
        let bytes = self.dtype.size();
        self.shape.check_length(what, self.data.len() / bytes)?;
        self.shape.check_rows(what, self.data.as_ptr().raw(), bytes)
    }
}

/// Rows of heads on the device, exclusive. As [`Heads`].
#[derive(Debug)]
pub struct HeadsMut<'a> {
    pub(super) data: DeviceViewMut<'a, u8>,
    pub(super) dtype: DType,
    pub(super) shape: Shape,
}

impl<'a> HeadsMut<'a> {
    /// As [`Heads::new`].
    pub fn new<T: Element + Pod>(data: impl Into<DeviceViewMut<'a, T>>, sides: [usize; 4]) -> Self {
        HeadsMut { data: data.into().bytes(), dtype: T::DTYPE, shape: Shape::dense(sides) }
    }

    /// As [`Heads::strides`]; no two elements share a place.
    #[must_use]
    pub fn strides(self, strides: [usize; 3]) -> Self {
        HeadsMut { shape: self.shape.strided(strides), ..self }
    }

    /// As [`Heads::heads_first`].
    #[must_use]
    pub fn heads_first(self) -> Self {
        HeadsMut { shape: self.shape.heads_first(), ..self }
    }

    /// As [`Heads::dilated`].
    ///
    /// # Errors
    /// As [`Heads::dilated`].
    pub fn dilated(self, stride: usize) -> Result<Self> {
        Ok(HeadsMut { shape: self.shape.dilated(stride)?, ..self })
    }

    /// As [`Heads::of`].
    ///
    /// # Errors
    /// As [`Heads::of`].
    pub fn of(tensor: TensorMut<'a>) -> Result<Self> {
        let (dtype, shape) = (tensor.dtype(), of_layout(tensor.layout())?);
        Ok(HeadsMut { data: tensor.into_span_bytes()?, dtype, shape })
    }

    /// `[batch, rows, heads, head size]`.
    pub fn sides(&self) -> [usize; 4] {
        self.shape.sides
    }

    /// Heads `..at` and `at..`: the parts of a packed tensor of queries, keys and values, say.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for more heads than there are, and when elements share places, or rows do
    /// not begin at 16-byte boundaries; [`Error::Length`] when the data does not have the elements that the
    /// sides say.
    pub fn split_heads(self, at: usize) -> Result<[HeadsMut<'a>; 2]> {
        self.check("the heads")?;
        let HeadsMut { data, dtype, shape } = self;
        let heads = shape.sides[2];
        let Some(rest) = heads.checked_sub(at) else {
            let hint = "the first part has so many heads, the second one the others";
            return Err(invalid("the place to split at", at.to_string(), format!("at most {heads}"), hint));
        };
        // SAFETY: no two elements share a place, and each belongs to one of the parts: kernels write the
        // elements that a shape names, and no bytes between them.
        let [first, second] = unsafe { data.twins() };
        let part = |data: DeviceViewMut<'a, u8>, place: usize, heads: usize| -> Result<_> {
            let shape = shape.with_heads(heads);
            // Nothing lies where there is nothing.
            let start = if shape.is_empty() { 0 } else { place * shape.strides[2] };
            let range = start * dtype.size()..(start + shape.span()) * dtype.size();
            Ok(HeadsMut { data: data.slice_mut(range)?, dtype, shape })
        };
        Ok([part(first, 0, at)?, part(second, at, rest)?])
    }

    /// The same for a shorter time.
    pub(super) fn reborrow(&mut self) -> HeadsMut<'_> {
        HeadsMut { data: self.data.view_mut(), dtype: self.dtype, shape: self.shape }
    }

    /// The same, to look at.
    pub(super) fn view(&self) -> Heads<'_> {
        Heads { data: self.data.view(), dtype: self.dtype, shape: self.shape }
    }

    pub(super) fn device(&self) -> &'a Device {
        self.data.device()
    }

    pub(super) fn check(&self, what: &'static str) -> Result<()> {
        self.view().check(what)?;
        self.shape.check_places(what)
    }
}

fn of_layout(layout: &Layout) -> Result<Shape> {
    let (sides, strides) = match (layout.shape().sides(), layout.strides()) {
        (&[rows, heads, size], &[row, head, element]) => ([1, rows, heads, size], [0, row, head, element]),
        (&[batch, rows, heads, size], &[matrix, row, head, element]) => {
            ([batch, rows, heads, size], [matrix, row, head, element])
        }
        (sides, _) => {
            return Err(invalid(
                "the tensor",
                format!("{} axes", sides.len()),
                "[batch, rows, heads, head size], or [rows, heads, head size]".to_owned(),
                "`unsqueeze` adds an axis, `view_as` splits one",
            ));
        }
    };
    Ok(Shape { sides, strides, is_dense: false })
}

#[cfg(test)]
mod tests {
    use super::Shape;

    const SIDES: [usize; 4] = [2, 3, 4, 8];

    #[test]
    fn spans_reach_the_last_element() {
        let shape = Shape::dense(SIDES);
        assert_eq!((shape.span(), shape.strides), (192, [96, 32, 8, 1]));
        assert_eq!(shape.heads_first().span(), 192);
        assert_eq!(shape.strided([1000, 96, 16]).span(), 1000 + 2 * 96 + 3 * 16 + 8);
        assert_eq!(Shape::dense([0, 3, 4, 8]).span(), 0);
        assert_eq!(Shape::dense([usize::MAX; 4]).span(), usize::MAX);
    }

    #[test]
    fn heads_before_rows() {
        let shape = Shape::dense([2, 4, 3, 8]).heads_first();
        assert_eq!((shape.sides, shape.strides), ([2, 3, 4, 8], [96, 8, 24, 1]));
        assert_eq!(shape.heads_first(), Shape::dense([2, 4, 3, 8]));
    }

    #[test]
    fn overlaps_are_seen() {
        let shape = Shape::dense(SIDES);
        for (strides, overlaps) in [
            ([96, 32, 8], false),
            ([96, 8, 24], false),
            ([0, 32, 8], true),
            ([96, 32, 0], true),
            ([96, 24, 8], true),
            // Heads of one sequence between those of another.
            ([32, 64, 8], false),
        ] {
            assert_eq!(shape.strided(strides).may_overlap(), overlaps, "{strides:?}");
        }
        let one = Shape { sides: [1, 3, 4, 8], ..shape };
        assert!(!one.strided([0, 32, 8]).may_overlap());
        assert!(!Shape { sides: [0, 3, 4, 8], ..shape }.strided([0; 3]).may_overlap());
    }

    #[test]
    fn rows_begin_at_boundaries() {
        let shape = Shape::dense(SIDES);
        assert!(shape.is_addressable(1024, 2));
        assert!(!shape.is_addressable(1032, 2));
        assert!(!shape.strided([96, 36, 8]).is_addressable(1024, 2));
        // A shared sequence; the stride of a single one.
        assert!(shape.strided([0, 32, 8]).is_addressable(1024, 2));
        assert!(Shape { sides: [1, 3, 4, 8], ..shape }.strided([3, 32, 8]).is_addressable(1024, 2));
        assert!(!Shape { strides: [96, 1, 24, 3], ..shape }.is_addressable(1024, 2));
        // A head of 40 bytes between gaps.
        assert!(Shape { sides: [1, 3, 1, 40], ..shape }.strided([144, 48, 40]).is_addressable(1024, 1));
        assert!(Shape { sides: [0, 3, 4, 8], ..shape }.is_addressable(3, 2));
    }
}
