//! Elements at other places: reversed, rotated, repeated, with a border; on another device.

use super::number::single;
use super::stream_of;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::memory::copy_to_peer;
use crate::ops::elementwise::{copy_into, made};
use crate::ops::fill;
use crate::ops::index::{self, Indices};
use crate::tensor::promote::Scalar;
use crate::tensor::{DType, Dim, Named, Shape, Tensor, dim};

/// Elements at other places. Each is a copy.
impl Tensor {
    /// The elements in reverse along each of `dims`.
    ///
    /// # Errors
    /// [`TensorError::Axes`] for a dimension that is not there or named twice, [`Error::OutOfMemory`], or the
    /// driver's error.
    #[track_caller]
    pub fn flip<D: Dim>(&self, dims: &[D]) -> Result<Tensor> {
        let stream = stream_of(self)?;
        let mut flipped = self.copy()?;
        for axis in dim::axes("flip", dims, self.rank(), "at most once")? {
            let places = self.shape()[axis];
            let backwards = fill::arange(&stream, places as f64 - 1.0, -1.0, places, DType::I64)?;
            flipped = index::gather(&stream, &flipped, axis, &Indices::known(backwards, places))?;
        }
        Ok(flipped)
    }

    /// The elements `shift` places further along `dim`; what leaves at one end enters at the other.
    ///
    /// # Errors
    /// [`TensorError::Axis`], [`Error::OutOfMemory`], or the driver's error.
    #[track_caller]
    pub fn roll(&self, shift: i64, dim: impl Dim) -> Result<Tensor> {
        let places = self.size(dim).named("roll")?;
        if places == 0 {
            return self.copy();
        }
        // As many places as there are fit in an i64, and so does what is left of the shift.
        let first = (-i128::from(shift)).rem_euclid(places as i128) as usize;
        Tensor::cat(&[&self.slice(dim, first..)?, &self.slice(dim, ..first)?], dim).named("roll")
    }

    /// The tensor `counts[i]` times along dimension `i`. With more counts than dimensions, dimensions of size
    /// 1 come in front.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for fewer counts than dimensions, [`TensorError::Rank`],
    /// [`TensorError::TooLarge`], [`Error::OutOfMemory`], or the driver's error.
    #[track_caller]
    pub fn repeat(&self, counts: &[usize]) -> Result<Tensor> {
        let (operation, rank) = ("repeat", self.rank());
        let Some(more) = counts.len().checked_sub(rank) else {
            return Err(Error::InvalidArgument {
                operation,
                argument: "counts",
                got: counts.len().to_string(),
                wanted: format!("at least {rank}, one for each dimension"),
                hint: "a count of 1 leaves a dimension as it is",
            });
        };
        let mut sides = vec![1; more];
        sides.extend_from_slice(self.shape());
        let mut repeated = self.reshape(&sides).named(operation)?;
        for (axis, &count) in counts.iter().enumerate().filter(|&(_, &count)| count != 1) {
            let mut one_more = repeated.shape().to_vec();
            one_more.insert(axis, count);
            sides[axis] = sides[axis].saturating_mul(count);
            repeated = repeated
                .unsqueeze(axis)
                .and_then(|x| x.broadcast_to(&one_more)?.reshape(&sides))
                .named(operation)?;
        }
        if counts.iter().all(|&count| count == 1) { repeated.copy() } else { Ok(repeated) }
    }

    /// The tensor with a border of `value`: `borders[0]` has the places before and after those of the last
    /// dimension, `borders[1]` those of the one before it, and so on.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for more borders than dimensions, or for a number that the integer type
    /// does not have; [`TensorError::TooLarge`], [`Error::OutOfMemory`], or the driver's error.
    #[track_caller]
    pub fn pad(&self, borders: &[[usize; 2]], value: impl Into<Scalar>) -> Result<Tensor> {
        let (operation, rank) = ("pad", self.rank());
        if borders.len() > rank {
            return Err(Error::InvalidArgument {
                operation,
                argument: "borders",
                got: borders.len().to_string(),
                wanted: format!("at most {rank}, one for each dimension"),
                hint: "the first border is the last dimension's",
            });
        }
        let axes = || (0..rank).rev().zip(borders);
        let mut sides = self.shape().to_vec();
        for (axis, &[before, after]) in axes() {
            sides[axis] = sides[axis].saturating_add(before).saturating_add(after);
        }
        let (stream, shape) = (stream_of(self)?, Shape::of(operation, &sides)?);
        let value = single(operation, &stream, value.into(), self.dtype())?;
        made(&stream, &shape, self.dtype(), |mut out| {
            copy_into(&stream, &value, out.view_mut())?;
            let inner = axes().try_fold(out, |out, (axis, &[before, _])| {
                out.slice(axis, before..before + self.shape()[axis])
            })?;
            copy_into(&stream, self, inner)
        })
    }

    /// The tensor on `device`; the tensor itself where it is there already. The copy is contiguous, and in
    /// order with the current streams of both devices. The host does not wait.
    ///
    /// # Errors
    /// [`Error::NotCapturable`] while one of the streams is captured, [`Error::OutOfMemory`], or the driver's
    /// error.
    #[track_caller]
    pub fn to_device(&self, device: &Device) -> Result<Tensor> {
        if self.device() == device {
            return Ok(self.clone());
        }
        let (own, theirs) = (stream_of(self)?, device.current_stream()?);
        let x = self.contiguous()?;
        made(&theirs, x.shape(), x.dtype(), |out| {
            let bytes = x.elements() * x.dtype().size();
            copy_to_peer((&own, x.read(&own)?), (&theirs, out.write(&theirs)?), bytes)
        })
    }
}
