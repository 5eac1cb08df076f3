//! Inputs' gradients without strides as results of another convolution: of the result's gradient, by filters
//! whose taps are in reverse and whose channels are the filters.
//!
//! ```text
//!   dX[p, c] = sum over taps r and filters k of dY[p + padding - r, k] * W[k, r, c]
//! ```
//! It needs a copy of the filters, `[channels, taps, filters]`, and can be cut into parts of k, which
//! gradients by [`classes`](super::classes) cannot.

use conv::gather::Gather;
use conv::problem::{Axis, Convolution};

use crate::error::Result;
use crate::ops::elementwise::{copy, made};
use crate::stream::Stream;
use crate::tensor::{Shape, Tensor};

use super::check::Problem;
use super::gather::{by_windows, copies_us, time_us as time_us_of_gather};
use super::operand::Kernels;
use super::windows::{self, Pass, WindowKernels};
use super::{Activation, Algorithm, classes};

/// Microseconds until filters are copied: the launch, and bytes. Not timed alone: what small launches take,
/// and a quarter of memory's rate.
const COPY_US: f64 = 2.5;
const COPY_BYTES_PER_US: f64 = 1e6;
/// Of other ways' estimated time, at most: estimates are off by as much.
const CLEARLY: f64 = 0.9;

/// Such a gradient.
pub(super) struct Turned {
    kernels: &'static WindowKernels,
    pass: Pass,
    algorithm: Algorithm,
}

impl Turned {
    /// Of a gather of one group without strides whose operands lie in whole units, where it is asked for, or
    /// the estimates of all ways say that this is the fastest by far.
    pub fn new<T: Kernels>(stream: &Stream, algorithm: Algorithm, gather: &Gather) -> Option<Self> {
        let Convolution { images, groups, filters, height, width, .. } = gather.problem;
        let turn = |axis: Axis| {
            let padding = u32::try_from(axis.window() - 1).ok()?.checked_sub(axis.padding)?;
            (axis.stride == 1).then_some(Axis { input: axis.output, output: axis.input, padding, ..axis })
        };
        let (height, width) = (turn(height)?, turn(width)?);
        let is_asked_for = matches!(algorithm, Algorithm::TallWindows | Algorithm::WindowsInParts(_));
        if !(is_asked_for || algorithm == Algorithm::Auto) || groups != 1 {
            return None;
        }
        let turned =
            Convolution { images, groups, channels: filters, filters: gather.columns, height, width };
        let (kernels, pass) = (windows::kernels(T::DTYPE)?, Pass::new(stream, turned)?.reversed());
        if is_asked_for {
            return pass.is_large().then_some(Self { kernels, pass, algorithm });
        }
        let filter_bytes =
            f64::from(turned.filter_elements()) * f64::from(turned.filters) * T::DTYPE.size() as f64;
        // Padded filters are turned by the same copy.
        let launch_us = if pass.pads() { 0.0 } else { COPY_US };
        let copy_us = copies_us(&pass) + launch_us + filter_bytes / COPY_BYTES_PER_US;
        let time_us = pass.cut(stream, kernels, algorithm).time_us + copy_us;
        let classes = classes::ByClasses::new(stream, gather.problem, gather.columns);
        let other_us = match (classes, classes::kernels(T::DTYPE)) {
            (Some(classes), Some(kernels)) => classes.cut(stream, kernels, algorithm).time_us,
            _ => time_us_of_gather(stream, gather),
        };
        (time_us < CLEARLY * other_us).then_some(Self { kernels, pass, algorithm })
    }

    /// Queues it. The operands lie in whole units.
    pub fn run<T: Kernels>(
        &self,
        stream: &Stream,
        problem: &Problem,
        [gradient, filters]: [&Tensor; 2],
    ) -> Result<Tensor> {
        let turned = filters.permute(&[3, 1, 2, 0])?;
        let turned =
            if self.pass.pads() { self.pass.padded(stream, &turned)? } else { copy(stream, &turned)? };
        let shape = Shape::of("Conv2d::input_gradient", &problem.x)?;
        made(stream, &shape, gradient.dtype(), |out| {
            let (pass, plain) = ((self.pass, self.algorithm), (None, Activation::None));
            by_windows::<T>(stream, self.kernels, pass, [gradient, &turned], plain, out)
        })
    }
}
