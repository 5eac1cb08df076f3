//! Oracles of convolutions and pooling: direct sums over windows, position by position. Channels come last.

use crate::matmul::{Activation, activate};
use crate::{Accumulated, Exact, exact};
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

/// A convolution of `[images, height, width, groups * channels]` by `[groups * filters, taps, taps,
/// channels]`.
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
        self.forward_exact(&exact(x), &exact(filters), bias.map(exact).as_deref(), activation)
    }

    fn forward_exact(
        &self,
        x: &[f64],
        filters: &[f64],
        bias: Option<&[f64]>,
        activation: Activation,
    ) -> Accumulated {
        let [of_x, of_filters, of_y] = self.sides();
        each(of_y, |[n, p, q, filter]| {
            let first = filter / self.filters * self.channels;
            let mut sum = Sum::default();
            for (r, s) in self.taps() {
                let met = self.height.meets(p, r).zip(self.width.meets(q, s));
                for c in 0..self.channels {
                    let value = met.map_or(0.0, |(h, w)| x[place(of_x, [n, h, w, first + c])]);
                    sum.add(value * filters[place(of_filters, [filter, r, s, c])]);
                }
            }
            if let Some(bias) = bias {
                sum.add(bias[filter]);
            }
            let (value, scale) = activate(activation, (sum.0, sum.1));
            Sum(value, scale)
        })
    }

    /// The input's gradient. Windows that a position is not in have no part in it.
    pub fn input_gradient<T: Exact>(&self, gradient: &[T], filters: &[T]) -> Accumulated {
        self.input_gradient_exact(&exact(gradient), &exact(filters))
    }

    fn input_gradient_exact(&self, gradient: &[f64], filters: &[f64]) -> Accumulated {
        let [of_x, of_filters, of_y] = self.sides();
        each(of_x, |[n, h, w, channel]| {
            let (group, c) = (channel / self.channels, channel % self.channels);
            let mut sum = Sum::default();
            for (r, s) in self.taps() {
                for p in (0..of_y[1]).filter(|&p| self.height.meets(p, r) == Some(h)) {
                    for q in (0..of_y[2]).filter(|&q| self.width.meets(q, s) == Some(w)) {
                        for filter in group * self.filters..(group + 1) * self.filters {
                            let value = gradient[place(of_y, [n, p, q, filter])];
                            sum.add(value * filters[place(of_filters, [filter, r, s, c])]);
                        }
                    }
                }
            }
            sum
        })
    }

    /// The filters' gradient. Padding is zeros that are multiplied like others.
    pub fn filter_gradient<T: Exact>(&self, x: &[T], gradient: &[T]) -> Accumulated {
        self.filter_gradient_exact(&exact(x), &exact(gradient))
    }

    fn filter_gradient_exact(&self, x: &[f64], gradient: &[f64]) -> Accumulated {
        let [of_x, of_filters, of_y] = self.sides();
        each(of_filters, |[filter, r, s, c]| {
            let channel = filter / self.filters * self.channels + c;
            let mut sum = Sum::default();
            for n in 0..self.images {
                for (p, q) in (0..of_y[1]).flat_map(|p| (0..of_y[2]).map(move |q| (p, q))) {
                    let met = self.height.meets(p, r).zip(self.width.meets(q, s));
                    let value = met.map_or(0.0, |(h, w)| x[place(of_x, [n, h, w, channel])]);
                    sum.add(value * gradient[place(of_y, [n, p, q, filter])]);
                }
            }
            sum
        })
    }
}

/// Pooling over windows of `[images, height, width, channels]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Images.
    pub images: usize,
    /// Channels.
    pub channels: usize,
    /// Rows.
    pub height: Axis,
    /// Columns.
    pub width: Axis,
}

impl Pool {
    /// Sides of the input and the result.
    pub fn sides(&self) -> [[usize; 4]; 2] {
        let Self { images, channels, height, width } = *self;
        [[images, height.input, width.input, channels], [images, height.windows(), width.windows(), channels]]
    }

    /// The elements of a window, by their place in the image.
    fn window<T: Exact>(&self, x: &[T], [n, p, q, c]: [usize; 4]) -> Vec<(usize, f64)> {
        let [of_x, _] = self.sides();
        let mut found = Vec::new();
        for (r, s) in (0..self.height.filter).flat_map(|r| (0..self.width.filter).map(move |s| (r, s))) {
            if let Some((h, w)) = self.height.meets(p, r).zip(self.width.meets(q, s)) {
                found.push((h * self.width.input + w, x[place(of_x, [n, h, w, c])].into()));
            }
        }
        found
    }

    fn windows<T: Exact>(&self, x: &[T]) -> Vec<Vec<(usize, f64)>> {
        let [_, [a, b, c, d]] = self.sides();
        let of =
            |index: usize| self.window(x, [index / d / c / b, index / d / c % b, index / d % c, index % d]);
        (0..a * b * c * d).into_par_iter().map(of).collect()
    }

    /// The largest of each window, and its place: the first of equals, a NaN before all, -1 where there is
    /// none.
    pub fn max<T: Exact>(&self, x: &[T]) -> (Vec<f64>, Vec<i32>) {
        let largest = |window: Vec<(usize, f64)>| {
            let nan = window.iter().find(|(_, value)| value.is_nan());
            let top = window.iter().map(|&(_, value)| value).fold(f64::NEG_INFINITY, f64::max);
            let found = nan.or_else(|| window.iter().find(|(_, value)| *value == top));
            found.map_or((f64::NEG_INFINITY, -1), |&(place, value)| (value, place as i32))
        };
        self.windows(x).into_iter().map(largest).unzip()
    }

    /// The mean of each window, of all its positions or of those in the image.
    pub fn average<T: Exact>(&self, x: &[T], counts_padding: bool) -> Accumulated {
        let mean = |window: Vec<(usize, f64)>| {
            let all = self.height.filter * self.width.filter;
            let count = if counts_padding { all } else { window.len().max(1) } as f64;
            let mut sum = Sum::default();
            window.iter().for_each(|(_, value)| sum.add(value / count));
            (sum.0, sum.1)
        };
        let (value, magnitude) = self.windows(x).into_iter().map(mean).unzip();
        Accumulated { value, magnitude }
    }

    /// The gradient of [`Pool::max`]'s input: to the place of each largest.
    pub fn max_gradient<T: Exact>(&self, x: &[T], gradient: &[T]) -> Accumulated {
        let (_, places) = self.max(x);
        let [of_x, [_, b, c, d]] = self.sides();
        let mut sums = vec![Sum::default(); of_x.iter().product()];
        for (index, &at) in places.iter().enumerate().filter(|(_, at)| **at >= 0) {
            let (n, channel, at) = (index / d / c / b, index % d, at as usize);
            let to = place(of_x, [n, at / self.width.input, at % self.width.input, channel]);
            sums[to].add(gradient[index].into());
        }
        Accumulated {
            value: sums.iter().map(|sum| sum.0).collect(),
            magnitude: sums.iter().map(|sum| sum.1).collect(),
        }
    }

    /// The gradient of [`Pool::average`]'s input.
    pub fn average_gradient<T: Exact>(&self, gradient: &[T], counts_padding: bool) -> Accumulated {
        let all = self.height.filter * self.width.filter;
        let zeros = vec![0.0f64; self.sides()[0].iter().product()];
        let gradient: Vec<f64> = gradient.iter().map(|&value| value.into()).collect();
        let [of_x, [_, b, c, d]] = self.sides();
        let mut sums = vec![Sum::default(); zeros.len()];
        for (index, window) in self.windows(&zeros).iter().enumerate() {
            let count = if counts_padding { all } else { window.len() } as f64;
            for &(at, _) in window {
                let at = [index / d / c / b, at / of_x[2], at % of_x[2], index % d];
                sums[place(of_x, at)].add(gradient[index] / count);
            }
        }
        Accumulated {
            value: sums.iter().map(|sum| sum.0).collect(),
            magnitude: sums.iter().map(|sum| sum.1).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Axis, Conv, Pool};
    use crate::matmul::Activation;

    /// Numbers without a pattern that a mistake would keep.
    fn numbers(count: usize, seed: usize) -> Vec<f64> {
        (0..count).map(|i| (((i * 37 + seed) * 7919 % 211) as f64 - 105.0) / 64.0).collect()
    }

    fn cases() -> Vec<Conv> {
        let axis =
            |input, filter, stride, padding, dilation| Axis { input, filter, stride, padding, dilation };
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
        conv.forward(x, filters, None, Activation::Identity)
            .value
            .iter()
            .zip(weights)
            .map(|(y, weight)| y * weight)
            .sum()
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
    fn gradients_of_pooling_are_finite_differences() {
        let axis =
            |input, filter, stride, padding, dilation| Axis { input, filter, stride, padding, dilation };
        let (height, width) = (axis(7, 3, 2, 1, 1), axis(6, 2, 1, 1, 1));
        let pool = Pool { images: 2, channels: 2, height, width };
        let [x, y] = pool.sides().map(|sides| sides.iter().product::<usize>());
        // All different, so that small steps change no order.
        let x: Vec<f64> = (0..x).map(|i| ((i * 37) % 211) as f64).collect();
        let dy = numbers(y, 3);
        let weigh = |y: &[f64]| y.iter().zip(&dy).map(|(y, weight)| y * weight).sum::<f64>();
        let close = |got: &[f64], loss: &dyn Fn(&[f64]) -> f64| {
            for (at, got) in got.iter().enumerate() {
                let mut moved = x.clone();
                moved[at] += 0.25;
                let above = loss(&moved);
                moved[at] -= 0.5;
                let want = (above - loss(&moved)) / 0.5;
                assert!((got - want).abs() < 1e-9, "{at}: {got}, wanted {want}");
            }
        };
        close(&pool.max_gradient(&x, &dy).value, &|x| weigh(&pool.max(x).0));
        for counts in [false, true] {
            close(&pool.average_gradient(&dy, counts).value, &|x| weigh(&pool.average(x, counts).value));
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
