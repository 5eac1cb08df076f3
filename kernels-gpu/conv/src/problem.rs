//! The contract of host and kernels: the shape of a convolution, and which positions meet which taps.

/// One spatial axis of a convolution. Position `p` of the result meets, at tap `r` of the filter, position
/// `p * stride + r * dilation - padding` of the input. Host: all below 2^30, stride and dilation at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Axis {
    /// Positions of the input.
    pub input: u32,
    /// Positions of the result.
    pub output: u32,
    /// Taps.
    pub filter: u32,
    /// Positions of the input from a window to the next.
    pub stride: u32,
    /// Zeros before the input, and behind it.
    pub padding: u32,
    /// Positions from a tap to the next.
    pub dilation: u32,
}

impl Axis {
    /// Positions of the input that a window covers, from its first tap to its last.
    pub const fn window(&self) -> u64 {
        self.dilation as u64 * (self.filter as u64).saturating_sub(1) + 1
    }

    /// Positions of the result that such an axis has: windows inside of the padded input.
    pub const fn windows(&self) -> u64 {
        let padded = self.input as u64 + 2 * self.padding as u64;
        let stride = if self.stride == 0 { 1 } else { self.stride as u64 };
        if padded < self.window() { 0 } else { (padded - self.window()) / stride + 1 }
    }

    /// Residue classes of the input's positions, modulo the stride, that have positions.
    pub const fn classes(&self) -> u32 {
        if self.stride < self.input { self.stride } else { self.input }
    }
}

/// The direction of a [gather](crate::gather).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Pass {
    /// The result, from the input.
    Forward = 0,
    /// The input's gradient, from the result's.
    Backward = 1,
}

/// How a gather goes along an axis: position `i` of `count` of what it computes, which is position
/// `first + i * step`, meets at tap `j` of `taps`, which is tap `filter_first + j * filter_step`, position
/// `i * multiply + from + j * advance` of what it reads, if that is below `limit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the text above says it")]
pub struct Walk {
    pub count: u32,
    pub first: u32,
    pub step: u32,
    pub taps: u32,
    pub filter_first: u32,
    pub filter_step: u32,
    pub multiply: u32,
    pub from: i32,
    pub advance: i32,
    pub limit: u32,
}

impl Walk {
    /// From the input to the result.
    #[inline(always)]
    pub const fn forward(axis: &Axis) -> Self {
        Self {
            count: axis.output,
            first: 0,
            step: 1,
            taps: axis.filter,
            filter_first: 0,
            filter_step: 1,
            multiply: axis.stride,
            from: -(axis.padding as i32),
            advance: axis.dilation as i32,
            limit: axis.input,
        }
    }

    /// From the result's gradient to the input's, at positions `class`, `class + stride`, ...: those meet the
    /// same taps, at successive positions of the result. No multiplication is spent on taps that they miss.
    #[inline(always)]
    pub const fn backward(axis: &Axis, class: u32) -> Self {
        let stride = at_least_1(axis.stride);
        // Position `class` meets position `(reach - r * dilation) / stride` at tap r, where that is whole.
        let reach = class + axis.padding;
        let common = at_least_1(gcd(stride, axis.dilation));
        let period = stride / common;
        let candidates = if period < axis.filter { period } else { axis.filter };
        let mut first = 0;
        while first < candidates && (reach % stride) != (first * axis.dilation) % stride {
            first += 1;
        }
        let has_taps = first < candidates;
        let taps = if has_taps { (axis.filter - first).div_ceil(at_least_1(period)) } else { 0 };
        Self {
            count: axis.input.saturating_sub(class).div_ceil(stride),
            first: class,
            step: stride,
            taps,
            filter_first: first,
            filter_step: period,
            multiply: 1,
            from: (reach as i32).wrapping_sub((first * axis.dilation) as i32).wrapping_div(stride as i32),
            advance: -((axis.dilation / common) as i32),
            limit: axis.output,
        }
    }
}

const fn at_least_1(x: u32) -> u32 {
    if x == 0 { 1 } else { x }
}

/// The greatest common divisor (Euclid).
const fn gcd(mut a: u32, mut b: u32) -> u32 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// A convolution in two dimensions of images `[images, height, width, groups * channels]` with filters
/// `[groups * filters, height, width, channels]`. The result is `[images, height, width, groups * filters]`;
/// all of them dense. Host: each has less than 2^31 positions, and fewer channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Convolution {
    /// Images.
    pub images: u32,
    /// Groups, each of channels and filters of its own.
    pub groups: u32,
    /// Channels of a group.
    pub channels: u32,
    /// Filters of a group.
    pub filters: u32,
    /// Rows.
    pub height: Axis,
    /// Columns.
    pub width: Axis,
}

impl Convolution {
    /// Elements of a filter.
    pub const fn filter_elements(&self) -> u32 {
        self.height.filter * self.width.filter * self.channels
    }

    /// Positions of the result, in all images.
    pub const fn outputs(&self) -> u32 {
        self.images * self.height.output * self.width.output
    }
}

/// A number in mixed radix, of three digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Odometer {
    /// The high digit, which has no end.
    pub high: u32,
    /// The middle digit, below `middle_end`.
    pub middle: u32,
    /// The low digit, below `low_end`.
    pub low: u32,
    middle_end: u32,
    low_end: u32,
}

impl Odometer {
    /// The digits of `number`. An end of 0 counts as 1.
    #[inline(always)]
    pub const fn new(number: u32, middle_end: u32, low_end: u32) -> Self {
        let (middle_end, low_end) = (at_least_1(middle_end), at_least_1(low_end));
        let above = number / low_end;
        Self {
            high: above / middle_end,
            middle: above % middle_end,
            low: number % low_end,
            middle_end,
            low_end,
        }
    }

    /// Adds the number with the same ends and these digits, without a division.
    #[inline(always)]
    pub const fn add(&mut self, digits: [u32; 3]) {
        let [high, middle, low] = digits;
        self.low += low;
        self.middle += middle;
        self.high += high;
        if self.low >= self.low_end {
            self.low -= self.low_end;
            self.middle += 1;
        }
        if self.middle >= self.middle_end {
            self.middle -= self.middle_end;
            self.high += 1;
        }
    }

    /// The digits, the highest first.
    #[inline(always)]
    pub const fn digits(&self) -> [u32; 3] {
        [self.high, self.middle, self.low]
    }
}

#[cfg(test)]
mod tests {
    use super::{Axis, Odometer, Walk};
    use std::collections::BTreeSet;

    /// Every meeting of a position of the input, a tap and a position of the result.
    fn meetings(axis: &Axis) -> BTreeSet<(u32, u32, u32)> {
        let mut all = BTreeSet::new();
        for p in 0..axis.output {
            for r in 0..axis.filter {
                let h = i64::from(p * axis.stride + r * axis.dilation) - i64::from(axis.padding);
                if let Ok(h) = u32::try_from(h)
                    && h < axis.input
                {
                    all.insert((h, r, p));
                }
            }
        }
        all
    }

    /// Those of a walk: computed position, tap, position read; each once.
    fn walked(walk: &Walk) -> Vec<(u32, u32, u32)> {
        let mut all = Vec::new();
        for i in 0..walk.count {
            for j in 0..walk.taps {
                let read = (i * walk.multiply) as i32 + walk.from + j as i32 * walk.advance;
                if (read as u32) < walk.limit {
                    let tap = walk.filter_first + j * walk.filter_step;
                    all.push((walk.first + i * walk.step, tap, read as u32));
                }
            }
        }
        all
    }

    #[test]
    fn walks_meet_what_the_definition_says_once() {
        let mut axes = 0;
        for (input, filter) in [(1, 1), (1, 3), (5, 2), (6, 3), (9, 5), (12, 7)] {
            for (stride, padding, dilation) in (0..64).map(|i| (1 + i % 4, i / 4 % 4, 1 + i / 16)) {
                let mut axis = Axis { input, output: 0, filter, stride, padding, dilation };
                axis.output = axis.windows() as u32;
                let want = meetings(&axis);
                let forward: Vec<_> =
                    walked(&Walk::forward(&axis)).into_iter().map(|(p, r, h)| (h, r, p)).collect();
                assert_eq!(forward.len(), want.len(), "{axis:?}");
                assert_eq!(forward.into_iter().collect::<BTreeSet<_>>(), want, "{axis:?}");
                let classes = 0..axis.classes();
                let backward: Vec<_> =
                    classes.clone().flat_map(|class| walked(&Walk::backward(&axis, class))).collect();
                assert_eq!(backward.len(), want.len(), "{axis:?}");
                assert_eq!(backward.into_iter().collect::<BTreeSet<_>>(), want, "{axis:?}");
                let mut computed: Vec<u32> = classes
                    .map(|class| Walk::backward(&axis, class))
                    .flat_map(|walk| (0..walk.count).map(move |i| walk.first + i * walk.step))
                    .collect();
                computed.sort_unstable();
                assert!(computed.into_iter().eq(0..input), "{axis:?}");
                axes += 1;
            }
        }
        assert_eq!(axes, 6 * 64);
    }

    /// Multiplications of an input's gradient: those of the forward pass, and none by zeros between strides.
    #[test]
    fn classes_share_the_taps_out() {
        for (filter, stride, dilation) in (0..96).map(|i| (1 + i % 8, 1 + i / 8 % 4, 1 + i / 32)) {
            let axis = Axis { input: 23, output: 9, filter, stride, padding: 2, dilation };
            let taps = (0..axis.classes()).map(|class| Walk::backward(&axis, class).taps);
            assert_eq!(taps.sum::<u32>(), filter, "{axis:?}");
        }
    }

    #[test]
    fn an_odometer_counts() {
        for (middle, low) in [(1, 1), (3, 1), (1, 5), (3, 5), (7, 2)] {
            for step in [1, 2, 16, 32, 100] {
                let by = Odometer::new(step, middle, low).digits();
                let mut counted = Odometer::new(3, middle, low);
                for number in (3..2000).step_by(step as usize) {
                    assert_eq!(counted, Odometer::new(number, middle, low), "{middle} {low} {step}");
                    counted.add(by);
                }
            }
        }
    }
}
