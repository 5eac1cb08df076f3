//! Elements at other places: reversed, rotated, repeated, padded; on another device.

use super::number::filled;
use super::stream_of;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::ops::elementwise::{copy_into, made};
use crate::ops::fill;
use crate::ops::index::{self, Indices};
use crate::ops::peer::copy_to_peer;
use crate::tensor::promote::Scalar;
use crate::tensor::{DType, Dim, Named, Shape, Tensor, dim};

/// Elements at other places. Each makes a copy, but for `to_device` to the device of the tensor.
impl Tensor {
    /// The elements in reverse along each of `dims`.
    ///
    /// # Errors
    /// [`crate::TensorError::Axes`] for a dimension that is not there or named twice,
    /// [`Error::OutOfMemory`], or the driver's error.
    #[track_caller]
    pub fn flip<D: Dim>(&self, dims: &[D]) -> Result<Tensor> {
        let (stream, axes) = (stream_of(self)?, dim::axes("flip", dims, self.rank(), "at most once")?);
        if axes.is_empty() {
            return self.copy();
        }
        let mut flipped = self.clone();
        for axis in axes {
            let places = self.shape()[axis];
            let backwards = fill::arange(&stream, places as f64 - 1.0, -1.0, places, DType::I64)?;
            flipped = index::gather(&stream, &flipped, axis, &Indices::known(backwards, places))?;
        }
        Ok(flipped)
    }

    /// The elements `shift` places further along `dim`; what leaves at one end enters at the other.
    ///
    /// # Errors
    /// [`crate::TensorError::Axis`], [`Error::OutOfMemory`], or the driver's error.
    #[track_caller]
    pub fn roll(&self, shift: i64, dim: impl Dim) -> Result<Tensor> {
        let places = self.size(dim).named("roll")?;
        if places == 0 {
            return self.copy();
        }
        // In i128, since `-i64::MIN` is no i64.
        let first = (-i128::from(shift)).rem_euclid(places as i128) as usize;
        Tensor::cat(&[&self.slice(dim, first..)?, &self.slice(dim, ..first)?], dim).named("roll")
    }

    /// The tensor `repeats[i]` times along dimension `i`. With more repeats than dimensions, dimensions of
    /// size 1 come in front.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for fewer repeats than dimensions, [`crate::TensorError::Rank`],
    /// [`crate::TensorError::TooLarge`], [`Error::OutOfMemory`], or the driver's error.
    #[track_caller]
    pub fn repeat(&self, repeats: &[usize]) -> Result<Tensor> {
        let (operation, rank) = ("repeat", self.rank());
        let Some(more) = repeats.len().checked_sub(rank) else {
            return Err(Error::InvalidArgument {
                operation,
                argument: "repeats",
                got: repeats.len().to_string(),
                wanted: format!("at least {rank}, one for each dimension"),
                hint: "a repeat of 1 leaves a dimension as it is",
            });
        };
        let mut sides = vec![1; more];
        sides.extend_from_slice(self.shape());
        if repeats.iter().all(|&count| count == 1) {
            return self.copy()?.view_as(&sides).named(operation);
        }
        let product =
            |sides: &[usize]| sides.iter().fold(1usize, |product, &side| product.saturating_mul(side));
        let mut repeated = self.reshape(&sides).named(operation)?;
        for (axis, &count) in repeats.iter().enumerate().filter(|&(_, &count)| count != 1) {
            let (outer, inner) = (product(&sides[..axis]), product(&sides[axis..]));
            sides[axis] = sides[axis].saturating_mul(count);
            // Each run of `inner` elements as often.
            let once = repeated.reshape(&[outer, 1, inner])?;
            let runs = once.broadcast_to(&[outer, count, inner]).named(operation)?;
            repeated = runs.copy()?.view_as(&sides).named(operation)?;
        }
        Ok(repeated)
    }

    /// The tensor with `value` around it: `padding[0]` has the places before and after those of the last
    /// dimension, `padding[1]` those of the one before it, and so on.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for padding of more dimensions than there are, or for a number that the
    /// integer type does not have; [`crate::TensorError::TooLarge`], [`Error::OutOfMemory`], or the driver's
    /// error.
    #[track_caller]
    pub fn pad(&self, padding: &[[usize; 2]], value: impl Into<Scalar>) -> Result<Tensor> {
        let (operation, rank) = ("pad", self.rank());
        if padding.len() > rank {
            return Err(Error::InvalidArgument {
                operation,
                argument: "padding",
                got: padding.len().to_string(),
                wanted: format!("at most {rank}, one for each dimension"),
                hint: "the first pair is the last dimension's",
            });
        }
        let axes = || (0..rank).rev().zip(padding);
        let mut sides = self.shape().to_vec();
        for (axis, &[before, after]) in axes() {
            sides[axis] = sides[axis].saturating_add(before).saturating_add(after);
        }
        let (stream, shape) = (stream_of(self)?, Shape::of(operation, &sides)?);
        let value = filled(operation, &stream, &[], value.into(), self.dtype())?;
        made(&stream, &shape, self.dtype(), |mut out| {
            copy_into(&stream, &value, out.view_mut())?;
            let inner = axes().try_fold(out, |out, (axis, &[before, _])| {
                out.slice(axis, before..before + self.shape()[axis])
            })?;
            copy_into(&stream, self, inner)
        })
    }

    /// The tensor on `device`; the tensor itself where it is there already. The copy is contiguous, and in
    /// order with the current streams of both devices: see [`copy_to_peer`].
    ///
    /// # Errors
    /// As [`copy_to_peer`].
    #[track_caller]
    pub fn to_device(&self, device: &Device) -> Result<Tensor> {
        if self.device() == device {
            return Ok(self.clone());
        }
        copy_to_peer(&stream_of(self)?, self, &device.current_stream()?)
    }
}
