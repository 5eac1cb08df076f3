//! Oracles of convolutions and pooling: direct sums over windows, position by position. Channels come last.

use crate::matmul::{Activation, activate};
use crate::{Accumulated, Exact};
use rayon::prelude::*;

/// One axis: sides, and how windows move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Positions of the input.
    pub input: usize,
    /// Taps of a filter.
    pub filter: usize,
    /// Positions from a window to the next.
    pub stride: usize,
    /// Zeros on each side.
    pub padding: usize,
    /// Positions from a tap to the next.
    pub dilation: usize,
}

impl Axis {
    /// Windows.
    pub fn windows(&self) -> usize {
        (self.input + 2 * self.padding - self.dilation * (self.filter - 1) - 1) / self.stride + 1
    }

    /// The position that window `p` has at tap `r`, or none where that is padding.
    fn meets(&self, p: usize, r: usize) -> Option<usize> {
        (p * self.stride + r * self.dilation).checked_sub(self.padding).filter(|&h| h < self.input)
    }
}

/// A convolution of `[images, height, width, groups * channels]` by `[groups * filters, taps, taps, channels]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conv {
    /// Images.
    pub images: usize,
    /// Groups.
    pub groups: usize,
    /// Channels of a group.
    pub channels: usize,
    /// Filters of a group.
    pub filters: usize,
    /// Rows.
    pub height: Axis,
    /// Columns.
    pub width: Axis,
}

/// A sum, and that of its terms' magnitudes.
#[derive(Clone, Copy, Default)]
struct Sum(f64, f64);

impl Sum {
    fn add(&mut self, term: f64) {
        self.0 += term;
        self.1 += term.abs();
    }
}

/// The place of an element of a tensor with these sides.
fn place([_, b, c, d]: [usize; 4], [i, j, k, l]: [usize; 4]) -> usize {
    ((i * b + j) * c + k) * d + l
}

/// A sum for each element of a tensor with these sides.
fn each([a, b, c, d]: [usize; 4], sum: impl Fn([usize; 4]) -> Sum + Sync) -> Accumulated {
    let of = |index: usize| sum([index / d / c / b, index / d / c % b, index / d % c, index % d]);
    let sums: Vec<Sum> = (0..a * b * c * d).into_par_iter().map(of).collect();
    Accumulated {
        value: sums.iter().map(|sum| sum.0).collect(),
        magnitude: sums.iter().map(|sum| sum.1).collect(),
    }
}

impl Conv {
    /// Sides of the input, the filters and the result.
    pub fn sides(&self) -> [[usize; 4]; 3] {
        let Self { images, groups, channels, filters, height, width } = *self;
        [
            [images, height.input, width.input, groups * channels],
            [groups * filters, height.filter, width.filter, channels],
            [images, height.windows(), width.windows(), groups * filters],
        ]
    }

    /// Taps along both axes.
    fn taps(&self) -> impl Iterator<Item = (usize, usize)> {
        let (down, across) = (self.height.filter, self.width.filter);
        (0..down).flat_map(move |r| (0..across).map(move |s| (r, s)))
    }

    /// `activation(result + bias)`. Padding is zeros that are multiplied like others.
    pub fn forward<T: Exact>(
        &self,
        x: &[T],
        filters: &[T],
        bias: Option<&[T]>,
        activation: Activation,
    ) -> Accumulated {
        let [of_x, of_filters, of_y] = self.sides();
        each(of_y, |[n, p, q, filter]| {
            let first = filter / self.filters * self.channels;
            let mut sum = Sum::default();
            for (r, s) in self.taps() {
                let met = self.height.meets(p, r).zip(self.width.meets(q, s));
                for c in 0..self.channels {
                    let value = met.map_or(0.0, |(h, w)| x[place(of_x, [n, h, w, first + c])].into());
                    sum.add(value * filters[place(of_filters, [filter, r, s, c])].into());
                }
            }
            if let Some(bias) = bias {
                sum.add(bias[filter].into());
            }
            let (value, scale) = activate(activation, (sum.0, sum.1));
            Sum(value, scale)
        })
    }

    /// The input's gradient. Windows that a position is not in have no part in it.
    pub fn input_gradient<T: Exact>(&self, gradient: &[T], filters: &[T]) -> Accumulated {
        let [of_x, of_filters, of_y] = self.sides();
        each(of_x, |[n, h, w, channel]| {
            let (group, c) = (channel / self.channels, channel % self.channels);
            let mut sum = Sum::default();
            for (r, s) in self.taps() {
                for p in (0..of_y[1]).filter(|&p| self.height.meets(p, r) == Some(h)) {
                    for q in (0..of_y[2]).filter(|&q| self.width.meets(q, s) == Some(w)) {
                        for filter in group * self.filters..(group + 1) * self.filters {
                            let value: f64 = gradient[place(of_y, [n, p, q, filter])].into();
                            sum.add(value * filters[place(of_filters, [filter, r, s, c])].into());
                        }
                    }
                }
            }
            sum
        })
    }

    /// The filters' gradient. Padding is zeros that are multiplied like others.
    pub fn filter_gradient<T: Exact>(&self, x: &[T], gradient: &[T]) -> Accumulated {
        let [of_x, of_filters, of_y] = self.sides();
        each(of_filters, |[filter, r, s, c]| {
            let channel = filter / self.filters * self.channels + c;
            let mut sum = Sum::default();
            for n in 0..self.images {
                for (p, q) in (0..of_y[1]).flat_map(|p| (0..of_y[2]).map(move |q| (p, q))) {
                    let met = self.height.meets(p, r).zip(self.width.meets(q, s));
                    let value = met.map_or(0.0, |(h, w)| x[place(of_x, [n, h, w, channel])].into());
                    sum.add(value * gradient[place(of_y, [n, p, q, filter])].into());
                }
            }
            sum
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Axis, Conv};
    use crate::matmul::Activation;

    /// Numbers without a pattern that a mistake would keep.
    fn numbers(count: usize, seed: usize) -> Vec<f64> {
        (0..count).map(|i| (((i * 37 + seed) * 7919 % 211) as f64 - 105.0) / 64.0).collect()
    }

    fn cases() -> Vec<Conv> {
        let axis = |input, filter, stride, padding, dilation| Axis { input, filter, stride, padding, dilation };
        let conv = |groups, channels, filters, height, width| Conv {
            images: 2,
            groups,
            channels,
            filters,
            height,
            width,
        };
        vec![
            conv(1, 3, 2, axis(5, 3, 1, 1, 1), axis(4, 2, 1, 0, 1)),
            conv(2, 2, 3, axis(7, 3, 2, 1, 2), axis(6, 3, 3, 2, 1)),
            conv(4, 1, 1, axis(1, 3, 1, 1, 1), axis(5, 5, 4, 2, 1)),
        ]
    }

    /// The sum of the result times `weights`, a function of the input and the filters.
    fn loss(conv: &Conv, x: &[f64], filters: &[f64], weights: &[f64]) -> f64 {
        conv.forward(x, filters, None, Activation::Identity).value.iter().zip(weights).map(|(y, weight)| y * weight).sum()
    }

    /// The result is linear in each operand, so a difference over any step is the derivative.
    fn difference(numbers: &[f64], at: usize, loss: impl Fn(&[f64]) -> f64) -> f64 {
        let mut moved = numbers.to_vec();
        moved[at] += 1.0;
        let above = loss(&moved);
        moved[at] -= 2.0;
        (above - loss(&moved)) / 2.0
    }

    #[test]
    fn gradients_are_finite_differences() {
        for conv in cases() {
            let [x, filters, y] = conv.sides().map(|sides| sides.iter().product::<usize>());
            let (x, filters, dy) = (numbers(x, 1), numbers(filters, 2), numbers(y, 3));
            let dx = conv.input_gradient(&dy, &filters);
            for (at, got) in dx.value.iter().enumerate() {
                let want = difference(&x, at, |x| loss(&conv, x, &filters, &dy));
                assert!((got - want).abs() < 1e-9, "{conv:?}: dx[{at}] = {got}, wanted {want}");
            }
            let dw = conv.filter_gradient(&x, &dy);
            for (at, got) in dw.value.iter().enumerate() {
                let want = difference(&filters, at, |filters| loss(&conv, &x, filters, &dy));
                assert!((got - want).abs() < 1e-9, "{conv:?}: dw[{at}] = {got}, wanted {want}");
            }
        }
    }

    #[test]
    fn a_small_result_by_hand() {
        let axis = Axis { input: 3, filter: 2, stride: 1, padding: 0, dilation: 1 };
        let conv = Conv { images: 1, groups: 1, channels: 1, filters: 1, height: axis, width: axis };
        let x: Vec<f64> = (1..=9).map(f64::from).collect();
        let got = conv.forward(&x, &[1.0, 10.0, 100.0, 1000.0], Some(&[0.5]), Activation::Identity);
        assert_eq!(got.value, [5421.5, 6532.5, 8754.5, 9865.5]);
        assert_eq!(got.magnitude, got.value);
    }

    #[test]
    fn a_single_tap_moves_the_image() {
        let axis = Axis { input: 4, filter: 3, stride: 1, padding: 1, dilation: 1 };
        let conv = Conv { images: 1, groups: 1, channels: 1, filters: 1, height: axis, width: axis };
        let x = numbers(16, 5);
        // The tap at (0, 2) sees the row above and the column to the right.
        let mut filter = [0.0; 9];
        filter[2] = 1.0;
        let got = conv.forward(&x, &filter, None, Activation::Identity).value;
        for (p, q) in (0..4).flat_map(|p| (0..4).map(move |q| (p, q))) {
            let want = if p == 0 || q == 3 { 0.0 } else { x[(p - 1) * 4 + q + 1] };
            assert_eq!(got[p * 4 + q], want);
        }
    }
}
