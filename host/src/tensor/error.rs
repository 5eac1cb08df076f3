//! Errors of calls on tensors.

use std::fmt;
use std::path::PathBuf;

use super::{DType, Shape};
use crate::error::{Error, first_of, quoted, shown};

/// A call on tensors that cannot be done: what was called, what it got, what it wanted, and a hint. `Debug`
/// prints the same sentence as `Display`.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum TensorError {
    /// More axes than a tensor may have.
    #[error(
        "{operation}: {got} axes where at most {max} are supported\nhint: merge neighbouring axes with `reshape`"
    )]
    Rank {
        /// The function called.
        operation: &'static str,
        /// Axes asked for.
        got: usize,
        /// Axes that a tensor may have.
        max: usize,
    },

    /// An axis that the tensor does not have.
    #[error(
        "{operation}: dimension {axis} of a tensor with {rank} dimensions\nhint: dimensions are counted from 0, the outermost first, or from -1, the innermost first"
    )]
    Axis {
        /// The function called.
        operation: &'static str,
        /// The axis named.
        axis: isize,
        /// Axes of the tensor.
        rank: usize,
    },

    /// Axes that are no permutation, or named twice.
    #[error("{operation}: axes {} of a tensor with {rank} axes\nhint: name each axis {wanted}", first_of(.axes))]
    Axes {
        /// The function called.
        operation: &'static str,
        /// The axes named.
        axes: Vec<isize>,
        /// Axes of the tensor.
        rank: usize,
        /// `exactly once` or `at most once`.
        wanted: &'static str,
    },

    /// A shape that does not fit.
    #[error("{operation}: {what} has shape {got}, wanted {wanted}\nhint: {hint}")]
    Shape {
        /// The function called.
        operation: &'static str,
        /// The argument at fault.
        what: &'static str,
        /// Its shape.
        got: Shape,
        /// The requirement.
        wanted: String,
        /// How to mend it.
        hint: &'static str,
    },

    /// More elements than can be counted.
    #[error(
        "{operation}: shape {} has more elements than can be addressed\nhint: check the shape's arithmetic",
        first_of(.shape)
    )]
    TooLarge {
        /// The function called.
        operation: &'static str,
        /// The shape.
        shape: Vec<usize>,
    },

    /// Data whose length is not that of the shape.
    #[error(
        "{operation}: shape {shape} has {wanted} elements, the data {got}\nhint: check the order of the axes and the length of the data"
    )]
    Elements {
        /// The function called.
        operation: &'static str,
        /// The shape.
        shape: Shape,
        /// Its elements.
        wanted: usize,
        /// Elements of the data.
        got: usize,
    },

    /// Two shapes that cannot be broadcast to one.
    #[error(
        "{operation}: shapes {left} and {right} do not broadcast\nhint: aligned from the right, sides must be equal or 1: insert axes of 1 with `unsqueeze`"
    )]
    Broadcast {
        /// The function called.
        operation: &'static str,
        /// One shape.
        left: Shape,
        /// The other.
        right: Shape,
    },

    /// A range or step that does not lie in an axis.
    #[error(
        "{operation}: {start}..{end} by {step} of axis {axis}, which has {len} places\nhint: 0 <= start <= end <= length, and a step of at least 1"
    )]
    Slice {
        /// The function called.
        operation: &'static str,
        /// The axis.
        axis: usize,
        /// First place.
        start: usize,
        /// One past the last place.
        end: usize,
        /// Distance of the places taken.
        step: usize,
        /// Places of the axis.
        len: usize,
    },

    /// A place that an axis does not have.
    #[error(
        "{operation}: place {place} of axis {axis}, which has {len} places\nhint: places are counted from 0, or from -1, which is the last"
    )]
    Place {
        /// The function called.
        operation: &'static str,
        /// The axis.
        axis: usize,
        /// The place named.
        place: isize,
        /// Places of the axis.
        len: usize,
    },

    /// An element type that the operation does not know.
    #[error("{operation}: {what} has element type {got}, wanted {wanted}\nhint: {hint}")]
    DType {
        /// The function called.
        operation: &'static str,
        /// The argument at fault.
        what: &'static str,
        /// Its element type.
        got: DType,
        /// The requirement.
        wanted: String,
        /// How to mend it.
        hint: &'static str,
    },

    /// A tensor that has to lie in one piece and does not.
    #[error(
        "{operation}: shape {shape} with strides {strides:?} is not contiguous\nhint: make a copy in one piece with `contiguous`"
    )]
    NotContiguous {
        /// The function called.
        operation: &'static str,
        /// The shape.
        shape: Shape,
        /// Distance of neighbours along each axis, elements.
        strides: Vec<usize>,
    },

    /// A write to memory that other tensors show too.
    #[error(
        "{operation}: the memory is shared by {tensors} tensors\nhint: drop the other views, or write to a copy of its own (`copy`)"
    )]
    Shared {
        /// The function called.
        operation: &'static str,
        /// Tensors that hold the memory, this one among them.
        tensors: usize,
    },

    /// A write to a layout in which elements lie on top of each other.
    #[error(
        "{operation}: in shape {shape} with strides {strides:?} several elements share a place\nhint: write to a tensor that is not broadcast (`copy`)"
    )]
    Overlapping {
        /// The function called.
        operation: &'static str,
        /// The shape.
        shape: Shape,
        /// Distance of neighbours along each axis, elements.
        strides: Vec<usize>,
    },

    /// An index that lies outside of its axis.
    #[error(
        "{operation}: index {index} where the axis has {bound} places\nhint: indices run from 0 to the length of the axis, exclusive; negative ones do not count from the end"
    )]
    Index {
        /// The function called.
        operation: &'static str,
        /// The smallest or the largest index given.
        index: i64,
        /// Places of the axis.
        bound: usize,
    },

    /// A reduction of nothing that has no value.
    #[error(
        "{operation}: shape {shape} has no element to choose along the reduced axes\nhint: sums and products of nothing are 0 and 1; maxima and means need an element"
    )]
    Empty {
        /// The function called.
        operation: &'static str,
        /// The shape.
        shape: Shape,
    },

    /// Elements that nothing has written yet.
    #[error(
        "{operation}: a bool that is neither true nor false: nothing has written it yet\nhint: the outputs of a graph mean nothing before its first replay"
    )]
    Unwritten {
        /// The function called.
        operation: &'static str,
    },

    /// More elements than the host has memory for.
    #[error(
        "{operation}: shape {shape} takes {bytes} bytes, for which the host has no memory\nhint: copy it part by part, or, if it is broadcast, as it was before"
    )]
    HostMemory {
        /// The function called.
        operation: &'static str,
        /// The shape.
        shape: Shape,
        /// Bytes of its elements.
        bytes: usize,
    },

    /// A safetensors file that cannot be understood.
    #[error("{}: {}\nhint: the file is damaged, cut short, or no safetensors file", shown(.path), quoted(.reason))]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },

    /// A name that a file of tensors does not have.
    #[error("{} has no tensor `{}`; it has {}\nhint: names are case-sensitive", shown(.path), quoted(.name), some(.names))]
    NoSuchTensor {
        /// The file.
        path: PathBuf,
        /// The name asked for.
        name: String,
        /// The names that there are.
        names: Vec<String>,
    },
}

/// The first names of a list.
fn some(names: &[String]) -> String {
    let names: Vec<_> = names.iter().map(|name| quoted(name)).collect();
    /// Names that an error message shows.
    const SHOWN: usize = 8;
    match names.len() {
        0 => "none".to_owned(),
        n if n <= SHOWN => names.join(", "),
        n => format!("{}, and {} more", names[..SHOWN].join(", "), n - SHOWN),
    }
}

impl fmt::Debug for TensorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl TensorError {
    /// The function called, if the error names one.
    fn operation_mut(&mut self) -> Option<&mut &'static str> {
        match self {
            TensorError::Rank { operation, .. }
            | TensorError::Axis { operation, .. }
            | TensorError::Axes { operation, .. }
            | TensorError::Shape { operation, .. }
            | TensorError::TooLarge { operation, .. }
            | TensorError::Elements { operation, .. }
            | TensorError::Broadcast { operation, .. }
            | TensorError::Slice { operation, .. }
            | TensorError::Place { operation, .. }
            | TensorError::DType { operation, .. }
            | TensorError::NotContiguous { operation, .. }
            | TensorError::Shared { operation, .. }
            | TensorError::Overlapping { operation, .. }
            | TensorError::Index { operation, .. }
            | TensorError::Empty { operation, .. }
            | TensorError::Unwritten { operation }
            | TensorError::HostMemory { operation, .. } => Some(operation),
            TensorError::File { .. } | TensorError::NoSuchTensor { .. } => None,
        }
    }
}

/// Results of functions that other functions are built on.
pub(crate) trait Named {
    /// The same, with `operation` as the function called in an error of tensors: the one that the program
    /// called, instead of the one that found the error.
    fn named(self, operation: &'static str) -> Self;
}

impl<T> Named for crate::error::Result<T> {
    fn named(mut self, operation: &'static str) -> Self {
        if let Err(Error::Tensor(error)) = &mut self
            && let Some(called) = error.downcast_mut().and_then(TensorError::operation_mut)
        {
            *called = operation;
        }
        self
    }
}

impl From<TensorError> for Error {
    fn from(error: TensorError) -> Self {
        Error::Tensor(Box::new(error))
    }
}

impl Error {
    /// The error of a call on tensors behind this one.
    pub fn tensor_error(&self) -> Option<&TensorError> {
        if let Error::Tensor(error) = self { error.downcast_ref() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_main_that_returns_the_error_prints_its_sentence() {
        let error = || TensorError::Rank { operation: "permute", got: 9, max: 8 };
        let sentence =
            "permute: 9 axes where at most 8 are supported\nhint: merge neighbouring axes with `reshape`";
        assert_eq!(format!("{:?}", error()), sentence);
        assert_eq!(format!("{:?}", Error::from(error())), format!("{}", Error::from(error())));
        assert!(format!("{:?}", Error::from(error())).contains(sentence));
    }
}
