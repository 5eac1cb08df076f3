//! Matrices that lie in memory otherwise than results do.

use ironwarp::tensor::Element;
use ironwarp::{Error, Stream, Tensor};
use testkit::{Family, input};

/// Columns up to which all ways to lie are tried.
const SHORT: usize = 4096;

/// As f64, exactly.
pub fn exact<T: Copy + Into<f64>>(values: &[T]) -> Vec<f64> {
    values.iter().map(|&v| v.into()).collect()
}

/// A matrix whose first element does not begin at a vector: rows lie otherwise than those of results.
fn shifted<T: Element + testkit::Element>(
    stream: &Stream,
    [rows, columns]: [usize; 2],
    values: &[T],
) -> Result<Tensor, Error> {
    let mut padded = vec![input::<T>(Family::Normal, 9, 1)[0]];
    padded.extend_from_slice(values);
    Tensor::from_slice(stream, &[values.len() + 1], &padded)?.slice(0, 1..)?.view_as(&[rows, columns])
}

/// A matrix with as many columns more behind each row as keep rows aligned.
fn strided<T: Element + testkit::Element>(
    stream: &Stream,
    [rows, columns]: [usize; 2],
    values: &[T],
) -> Result<Tensor, Error> {
    let pitch = columns.next_multiple_of(8) + 8;
    let mut padded = input::<T>(Family::Normal, 9, rows * pitch);
    for (row, to) in values.chunks(columns).zip(padded.chunks_mut(pitch)) {
        to[..columns].copy_from_slice(row);
    }
    Tensor::from_slice(stream, &[rows, pitch], &padded)?.slice(1, ..columns)
}

/// How operands lie in memory.
#[derive(Clone, Copy, Debug)]
pub enum Lying {
    Dense,
    Shifted,
    Strided,
}

impl Lying {
    /// Those that rows of so many columns are tried with.
    pub const fn of(columns: usize) -> &'static [Self] {
        if columns > SHORT { &[Self::Dense] } else { &[Self::Dense, Self::Shifted, Self::Strided] }
    }

    pub fn matrix<T: Element + testkit::Element>(
        self,
        stream: &Stream,
        sides: [usize; 2],
        values: &[T],
    ) -> Result<Tensor, Error> {
        match self {
            Self::Dense => Tensor::from_slice(stream, &sides, values),
            Self::Shifted => shifted(stream, sides, values),
            Self::Strided => strided(stream, sides, values),
        }
    }
}
