//! Layouts: where the elements of a tensor lie. Pure arithmetic; no memory is touched here.

use std::ops::{Bound, RangeBounds};

use arrayvec::ArrayVec;

use super::shape::PerAxis;
use super::{Dim, MAX_RANK, Shape, TensorError};
use crate::error::Result;

/// Where the elements of a tensor lie in its memory: element `[i, j, ..]` at `offset + i * strides[0] + j *
/// strides[1] + ..`, in elements.
///
/// ```text
///   contiguous [2, 3]    padded to 4         transposed [3, 2]    broadcast [2, 3]
///   strides [3, 1]       strides [4, 1]      strides [1, 3]       strides [0, 1]
///   a b c d e f          a b c . d e f .     a d b e c f          a b c a b c
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    shape: Shape,
    strides: PerAxis,
    offset: usize,
}

impl Layout {
    /// All elements in one piece, the last axis the densest.
    pub fn contiguous(shape: Shape) -> Self {
        Layout::with_pitch(shape, 1)
            .unwrap_or_else(|| unreachable!("a pitch of 1 adds nothing to a checked shape"))
    }

    /// Rows (along the last axis) that begin at multiples of `elements` elements, as tensor cores and tensor
    /// maps want them: 16 bytes for a tensor map, 128 for whole cache lines.
    ///
    /// # Errors
    /// [`TensorError::TooLarge`] when the padded rows cannot be addressed, or for a multiple of 0.
    pub fn padded(shape: Shape, elements: usize) -> Result<Self> {
        let sides = shape.to_vec();
        let layout = if elements == 0 { None } else { Layout::with_pitch(shape, elements) };
        layout.ok_or_else(|| TensorError::TooLarge { operation: "Layout::padded", shape: sides }.into())
    }

    fn with_pitch(shape: Shape, multiple: usize) -> Option<Self> {
        let mut strides: PerAxis = shape.iter().map(|_| 0).collect();
        let mut stride = 1usize;
        for axis in (0..shape.rank()).rev() {
            strides[axis] = stride;
            stride = stride.checked_mul(shape[axis].max(1))?;
            if axis + 1 == shape.rank() && axis > 0 {
                stride = stride.checked_next_multiple_of(multiple)?;
            }
        }
        isize::try_from(stride).ok()?;
        Some(Layout { shape, strides, offset: 0 })
    }

    /// The sides.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Distance of neighbours along each axis, elements.
    pub fn strides(&self) -> &[usize] {
        &self.strides
    }

    /// Place of the first element.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Axes.
    pub fn rank(&self) -> usize {
        self.shape.rank()
    }

    /// Elements.
    pub fn elements(&self) -> usize {
        self.shape.elements()
    }

    /// Places from the first element's to the last one's, both counted; 0 without elements.
    pub fn span(&self) -> usize {
        if self.elements() == 0 {
            return 0;
        }
        self.shape.iter().zip(&self.strides).map(|(&side, &stride)| (side - 1) * stride).sum::<usize>() + 1
    }

    /// Do the elements lie one behind the other, in order?
    pub fn is_contiguous(&self) -> bool {
        let mut dense = 1;
        self.elements() == 0
            || self.shape.iter().zip(&self.strides).rev().all(|(&side, &stride)| {
                let fits = side == 1 || stride == dense;
                dense *= side;
                fits
            })
    }

    /// May two elements lie at one place? False is certain; true may also be said of odd layouts that no
    /// sequence of slices and permutations of a contiguous one gives.
    pub fn may_overlap(&self) -> bool {
        if self.is_contiguous() {
            return false;
        }
        let mut axes: ArrayVec<(usize, usize), MAX_RANK> = self
            .strides
            .iter()
            .copied()
            .zip(self.shape.iter().copied())
            .filter(|&(_, side)| side > 1)
            .collect();
        axes.sort_unstable();
        let mut reach = 0;
        axes.iter().any(|&(stride, side)| {
            let overlaps = stride <= reach;
            reach += (side - 1) * stride;
            overlaps
        })
    }

    /// Place of the element at `index`, which has one number an axis; `None` outside of the shape.
    pub fn place(&self, index: &[usize]) -> Option<usize> {
        let inside =
            index.len() == self.rank() && index.iter().zip(self.shape.iter()).all(|(i, side)| i < side);
        inside.then(|| {
            self.offset + index.iter().zip(&self.strides).map(|(i, stride)| i * stride).sum::<usize>()
        })
    }

    /// Places of the elements, in order, counted from that of the first one.
    pub(crate) fn places_from_first(&self) -> impl Iterator<Item = usize> + '_ {
        let mut index: PerAxis = self.shape.iter().map(|_| 0).collect();
        let mut place = 0;
        (0..self.elements()).map(move |_| {
            let current = place;
            for axis in (0..index.len()).rev() {
                index[axis] += 1;
                place += self.strides[axis];
                if index[axis] < self.shape[axis] {
                    break;
                }
                place -= index[axis] * self.strides[axis];
                index[axis] = 0;
            }
            current
        })
    }

    /// The axes in another order: axis `i` of the result is axis `axes[i]`.
    ///
    /// # Errors
    /// [`TensorError::Axes`] when not every axis is named exactly once.
    pub fn permute(&self, axes: &[usize]) -> Result<Self> {
        let rank = self.rank();
        let named_once = (0..rank).all(|axis| axes.iter().filter(|&&other| other == axis).count() == 1);
        if axes.len() != rank || !named_once {
            let (operation, wanted) = ("permute", "exactly once");
            let axes = axes.iter().map(|axis| axis.given()).collect();
            return Err(TensorError::Axes { operation, axes, rank, wanted }.into());
        }
        let sides: PerAxis = axes.iter().map(|&axis| self.shape[axis]).collect();
        let strides = axes.iter().map(|&axis| self.strides[axis]).collect();
        Ok(Layout { shape: Shape::of("permute", &sides)?, strides, offset: self.offset })
    }

    /// Axes `a` and `b` exchanged.
    ///
    /// # Errors
    /// [`TensorError::Axis`].
    pub fn transpose(&self, a: usize, b: usize) -> Result<Self> {
        let mut axes: PerAxis = (0..self.rank()).collect();
        axes.swap(self.axis("transpose", a)?, self.axis("transpose", b)?);
        self.permute(&axes)
    }

    /// Places `range` of `axis`, every `step`-th of them.
    ///
    /// # Errors
    /// [`TensorError::Axis`], [`TensorError::Slice`].
    pub fn slice(&self, axis: usize, range: impl RangeBounds<usize>, step: usize) -> Result<Self> {
        let operation = "slice";
        let len = self.shape[self.axis(operation, axis)?];
        let start = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&last) => last.saturating_add(1),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => len,
        };
        if start > end || end > len || step == 0 {
            return Err(TensorError::Slice { operation, axis, start, end, step, len }.into());
        }
        let mut sides: PerAxis = self.shape.iter().copied().collect();
        sides[axis] = (end - start).div_ceil(step);
        let shape = Shape::of(operation, &sides)?;
        let mut strides = self.strides.clone();
        // Without elements nothing is reached, and an offset could lie past the memory's end.
        let offset = if shape.elements() == 0 { self.offset } else { self.offset + start * strides[axis] };
        // With one place left the stride is never used, and could overflow.
        strides[axis] = if sides[axis] > 1 { strides[axis] * step } else { strides[axis] };
        Ok(Layout { shape, strides, offset })
    }

    /// The part at `index` of `axis`, which is removed.
    ///
    /// # Errors
    /// [`TensorError::Axis`], [`TensorError::Slice`].
    pub fn select(&self, axis: usize, index: usize) -> Result<Self> {
        let mut layout = self.slice(axis, index..index.saturating_add(1), 1)?;
        layout.remove(axis)?;
        Ok(layout)
    }

    /// A new axis of one place in front of `axis`, which may be the rank.
    ///
    /// # Errors
    /// [`TensorError::Axis`], [`TensorError::Rank`].
    pub fn unsqueeze(&self, axis: usize) -> Result<Self> {
        let (operation, rank) = ("unsqueeze", self.rank());
        if axis > rank {
            return Err(TensorError::Axis { operation, axis: axis.given(), rank }.into());
        }
        let mut sides = self.shape.to_vec();
        sides.insert(axis, 1);
        let shape = Shape::of(operation, &sides)?;
        let mut strides = self.strides.clone();
        strides.insert(axis, 1);
        Ok(Layout { shape, strides, offset: self.offset })
    }

    /// Without `axis`, which has one place.
    ///
    /// # Errors
    /// [`TensorError::Axis`], [`TensorError::Shape`].
    pub fn squeeze(&self, axis: usize) -> Result<Self> {
        let operation = "squeeze";
        if self.shape[self.axis(operation, axis)?] != 1 {
            return Err(TensorError::Shape {
                operation,
                what: "the tensor",
                got: self.shape.clone(),
                wanted: format!("1 at axis {axis}"),
                hint: "only an axis of one place can go; `select` takes one place of a longer one",
            }
            .into());
        }
        let mut layout = self.clone();
        layout.remove(axis)?;
        Ok(layout)
    }

    fn remove(&mut self, axis: usize) -> Result<()> {
        let mut sides = self.shape.to_vec();
        sides.remove(axis);
        self.shape = Shape::of("squeeze", &sides)?;
        self.strides.remove(axis);
        Ok(())
    }

    /// Repeated to `shape`, without a copy: new axes in front, and axes of one place along which nothing
    /// moves.
    ///
    /// # Errors
    /// [`TensorError::Broadcast`] when `shape` is not what both broadcast to.
    pub fn broadcast_to(&self, shape: &Shape) -> Result<Self> {
        self.broadcast_to_in("broadcast_to", shape)
    }

    pub(crate) fn broadcast_to_in(&self, operation: &'static str, shape: &Shape) -> Result<Self> {
        let strides = self.broadcast_strides(operation, shape)?;
        Ok(Layout { shape: shape.clone(), strides, offset: self.offset })
    }

    /// The strides of [`Layout::broadcast_to_in`].
    pub(crate) fn broadcast_strides(&self, operation: &'static str, shape: &Shape) -> Result<PerAxis> {
        let refused = || TensorError::Broadcast { operation, left: self.shape.clone(), right: shape.clone() };
        let added = shape.rank().checked_sub(self.rank()).ok_or_else(refused)?;
        let mut strides: PerAxis = shape.iter().map(|_| 0).collect();
        let own = self.shape.iter().zip(&self.strides);
        for ((&side, &stride), (&wanted, to)) in own.zip(shape[added..].iter().zip(&mut strides[added..])) {
            if side == wanted {
                *to = stride;
            } else if side != 1 {
                return Err(refused().into());
            }
        }
        Ok(strides)
    }

    /// The same elements in the same order under another shape, or `None` when that needs a copy.
    ///
    /// # Errors
    /// [`TensorError::Shape`] when the number of elements differs.
    pub fn reshape(&self, shape: Shape) -> Result<Option<Self>> {
        if shape.elements() != self.elements() {
            return Err(TensorError::Shape {
                operation: "reshape",
                what: "the tensor",
                got: self.shape.clone(),
                wanted: format!("{} elements for {shape}", shape.elements()),
                hint: "the product of the sides stays the same",
            }
            .into());
        }
        if self.elements() == 0 {
            return Ok(Some(Layout { offset: self.offset, ..Layout::contiguous(shape) }));
        }
        Ok(self.split_runs(&shape).map(|strides| Layout { shape, strides, offset: self.offset }))
    }

    /// Strides for `shape`, each of whose axes has to lie in one run of merged axes of `self`.
    fn split_runs(&self, shape: &Shape) -> Option<PerAxis> {
        let runs = merge(&self.shape, [&self.strides]);
        let mut strides: PerAxis = shape.iter().map(|_| 1).collect();
        let mut runs = runs.iter().rev();
        let (mut left, mut stride) = (1, 1);
        for axis in (0..shape.rank()).rev().filter(|&axis| shape[axis] != 1) {
            if left == 1 {
                let run = runs.next()?;
                (left, stride) = (run.extent, run.strides[0]);
            }
            if left % shape[axis] != 0 {
                return None;
            }
            strides[axis] = stride;
            stride *= shape[axis];
            left /= shape[axis];
        }
        Some(strides)
    }

    fn axis(&self, operation: &'static str, axis: usize) -> Result<usize> {
        if axis < self.rank() {
            Ok(axis)
        } else {
            Err(TensorError::Axis { operation, axis: axis.given(), rank: self.rank() }.into())
        }
    }
}

/// An axis, or several that are as good as one, with the strides of every operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run<const K: usize> {
    /// Places.
    pub(crate) extent: usize,
    /// Distance of neighbours in each operand, elements.
    pub(crate) strides: [usize; K],
}

/// As many axes as a tensor may have, kept in place.
pub(crate) type Runs<const K: usize> = ArrayVec<Run<K>, MAX_RANK>;

/// The axes of `shape`, outermost first, without those of one place; neighbours merged where every operand's
/// elements go on from one to the next at the same pace.
pub(crate) fn merge<const K: usize>(shape: &[usize], strides: [&[usize]; K]) -> Runs<K> {
    let mut runs = Runs::<K>::new();
    for (axis, &extent) in shape.iter().enumerate().filter(|&(_, &extent)| extent != 1) {
        let inner = Run { extent, strides: strides.map(|strides| strides[axis]) };
        match runs.last_mut() {
            Some(outer) if (0..K).all(|k| outer.strides[k] == inner.strides[k] * extent) => {
                *outer = Run { extent: outer.extent * extent, strides: inner.strides };
            }
            _ => runs.push(inner),
        }
    }
    runs
}
