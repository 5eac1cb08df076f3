//! Shapes: the sides of a tensor, outermost first.

use std::fmt;
use std::ops::Deref;

use arrayvec::ArrayVec;

use super::TensorError;
use crate::error::Result;

/// Axes that a tensor may have.
pub const MAX_RANK: usize = 8;

/// One number an axis, kept in place.
pub(crate) type PerAxis = ArrayVec<usize, MAX_RANK>;

/// The sides of a tensor, outermost first. Without axes it is the shape of a single element.
///
/// The product of the sides that are not 0 fits in an `isize`, and so does every product of some of them.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Shape(PerAxis);

impl Shape {
    /// The shape with these sides.
    ///
    /// # Errors
    /// [`TensorError::Rank`], [`TensorError::TooLarge`].
    pub fn new(sides: &[usize]) -> Result<Self> {
        Shape::of("shape", sides)
    }

    /// As [`Shape::new`], in the name of `operation`.
    pub(crate) fn of(operation: &'static str, sides: &[usize]) -> Result<Self> {
        if sides.len() > MAX_RANK {
            return Err(TensorError::Rank { operation, got: sides.len(), max: MAX_RANK }.into());
        }
        let elements =
            sides.iter().filter(|&&side| side != 0).try_fold(1usize, |n, &side| n.checked_mul(side));
        if elements.is_none_or(|n| isize::try_from(n).is_err()) {
            return Err(TensorError::TooLarge { operation, shape: sides.to_vec() }.into());
        }
        Ok(Shape(sides.iter().copied().collect()))
    }

    /// Axes.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// Elements; 1 without axes.
    pub fn elements(&self) -> usize {
        self.0.iter().product()
    }

    /// The sides.
    pub fn sides(&self) -> &[usize] {
        &self.0
    }

    /// The shape that both broadcast to: aligned from the right, sides are equal or one of them is 1.
    ///
    /// # Errors
    /// [`TensorError::Broadcast`], [`TensorError::TooLarge`].
    pub fn broadcast(&self, other: &Shape) -> Result<Shape> {
        self.broadcast_in("broadcast", other)
    }

    pub(crate) fn broadcast_in(&self, operation: &'static str, other: &Shape) -> Result<Shape> {
        let rank = self.rank().max(other.rank());
        let side = |shape: &Shape, axis: usize| {
            (axis + shape.rank()).checked_sub(rank).map_or(1, |axis| shape.0[axis])
        };
        let mut sides = PerAxis::new();
        for axis in 0..rank {
            sides.push(match (side(self, axis), side(other, axis)) {
                (a, b) if a == b => a,
                (1, b) => b,
                (a, 1) => a,
                _ => {
                    let (left, right) = (self.clone(), other.clone());
                    return Err(TensorError::Broadcast { operation, left, right }.into());
                }
            });
        }
        Shape::of(operation, &sides)
    }
}

impl Deref for Shape {
    type Target = [usize];

    fn deref(&self) -> &[usize] {
        &self.0
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.sides())
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.sides())
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_RANK, Shape};

    fn shape(sides: &[usize]) -> Shape {
        Shape::new(sides).unwrap()
    }

    #[test]
    fn elements_are_counted() {
        for (sides, elements) in [(&[][..], 1), (&[3], 3), (&[2, 0, 5], 0), (&[2, 3, 4], 24)] {
            assert_eq!(shape(sides).elements(), elements);
        }
    }

    #[test]
    fn what_cannot_be_addressed_is_refused() {
        assert!(Shape::new(&[1; MAX_RANK]).is_ok());
        assert!(Shape::new(&[1; MAX_RANK + 1]).is_err());
        assert!(Shape::new(&[1 << 32, 1 << 31]).is_err());
        assert!(Shape::new(&[1 << 31, 1 << 31]).is_ok());
        // Slices of it with other sides would not be empty.
        assert!(Shape::new(&[usize::MAX, 0, 2]).is_err());
    }

    #[test]
    fn broadcasting_aligns_from_the_right() {
        for (a, b, both) in [
            (&[][..], &[2, 3][..], Some(&[2, 3][..])),
            (&[3], &[2, 3], Some(&[2, 3])),
            (&[2, 1], &[1, 3], Some(&[2, 3])),
            (&[2, 1, 4], &[5, 4], Some(&[2, 5, 4])),
            (&[0], &[1], Some(&[0])),
            (&[2, 1], &[2, 0], Some(&[2, 0])),
            (&[2], &[3], None),
            (&[0], &[2], None),
            (&[2, 3], &[2, 1, 2], None),
        ] {
            for (x, y) in [(a, b), (b, a)] {
                let got = shape(x).broadcast(&shape(y)).ok();
                assert_eq!(got.as_deref(), both, "{x:?} and {y:?}");
            }
        }
        assert!(shape(&[1 << 40, 1]).broadcast(&shape(&[1, 1 << 40])).is_err());
    }
}
