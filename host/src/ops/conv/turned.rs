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

/// The convolution whose result is the gradient of so many channels; `None` with strides.
fn turned(problem: Convolution, columns: u32) -> Option<Convolution> {
    let turn = |axis: Axis| {
        let padding = u32::try_from(axis.window() - 1).ok()?.checked_sub(axis.padding)?;
        (axis.stride == 1).then_some(Axis { input: axis.output, output: axis.input, padding, ..axis })
    };
    let (height, width) = (turn(problem.height)?, turn(problem.width)?);
    Some(Convolution { channels: problem.filters, filters: columns, height, width, ..problem })
}

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
        let turned = turned(gather.problem, gather.columns)?;
        let is_asked_for = matches!(algorithm, Algorithm::TallWindows | Algorithm::WindowsInParts(_));
        if !(is_asked_for || algorithm == Algorithm::Auto) || turned.groups != 1 {
            return None;
        }
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

#[cfg(test)]
mod tests {
    use super::turned;
    use crate::ops::conv::check::Problem;
    use crate::ops::conv::depth_to_space::DepthToSpace;
    use crate::ops::conv::maps::Walk;
    use crate::ops::conv::{Algorithm, Conv2d};
    use crate::tensor::Shape;
    use conv::problem::Convolution;

    /// The copy engine goes on in the next line behind the map's last window, kernels behind the problem's.
    fn check(problem: Convolution) {
        let Some(Walk { sides, counts, strides, lower, upper, .. }) = Walk::new(&problem) else { return };
        for i in [0, 1] {
            let beyond = i64::from(sides[i]) - 1 + i64::from(upper[i]) - i64::from(lower[i]);
            assert_eq!(beyond / i64::from(strides[i]) + 1, i64::from(counts[i]), "{problem:?}");
        }
    }

    fn problem(side: usize, filter: usize, stride: usize, padding: usize) -> Option<Problem> {
        let op = Conv2d { stride: [stride; 2], padding: [padding; 2], ..Conv2d::default() };
        let filters = Shape::of("", &[64, filter, filter, 4]).ok()?;
        op.problem_of("", [1, side, side, 4], &filters).ok()
    }

    #[test]
    fn a_map_has_the_windows_of_its_problem() {
        let mut by_classes = 0;
        for (side, filter) in (8..=20).flat_map(|side| (1..8).map(move |filter| (side, filter))) {
            for (stride, padding) in (1..=3).flat_map(|stride| (0..5).map(move |padding| (stride, padding))) {
                let Some(of) = problem(side, filter, stride, padding) else { continue };
                check(of.shape);
                turned(of.shape, 8).into_iter().for_each(check);
                if let Some(classes) = DepthToSpace::new(Algorithm::Auto, &of) {
                    turned(classes.problem.shape, 8).into_iter().for_each(check);
                    by_classes += 1;
                }
            }
        }
        assert!(by_classes > 100, "what the test is about: {by_classes}");
    }
}
