//! Windows over tensors, and the maps by which the copy engine reads them.

use conv::problem::{Axis, Convolution};
use conv::sm90::Windows;

use crate::error::Result;
use crate::memory::DeviceView;
use crate::memory::tensor_map::{L2Promotion, Swizzle, TensorMap, Tiling};

/// Bytes of an element.
pub(super) const BYTES: u64 = 2;
/// Corners of windows, and steps to their taps, that a map can have in two dimensions.
pub(super) const CORNERS: std::ops::Range<i64> = -128..128;
pub(super) const MOST_OFFSET: u64 = 255;
/// Steps from a window to the next that a map can have.
const MOST_STRIDE: u32 = 8;

/// Windows over a tensor, along the width and the height.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walk {
    /// Positions of the tensor, and windows.
    pub sides: [u32; 2],
    pub counts: [u32; 2],
    pub strides: [u32; 2],
    pub lower: [i32; 2],
    pub upper: [i32; 2],
    pub dilations: [u32; 2],
    pub taps: [u32; 2],
    /// Filters' taps are met from the last one on.
    pub is_reversed: bool,
}

impl Walk {
    /// Of the forward pass, over the input; `None` where no map can say it.
    pub fn new(problem: &Convolution) -> Option<Self> {
        let axes = [&problem.width, &problem.height];
        let along = |of: fn(&Axis) -> u32| axes.map(of);
        let is_possible =
            axes.iter().all(|axis| axis.window() - 1 <= MOST_OFFSET && axis.stride <= MOST_STRIDE);
        // Of the windows that the problem has, not of its padding: behind the input that may be another one.
        let corner = |axis: &Axis| -> Option<[i64; 2]> {
            let [output, stride, input] = [axis.output, axis.stride, axis.input].map(i64::from);
            let lower = -i64::from(axis.padding);
            let upper = (output - 1) * stride + lower - (input - 1);
            (CORNERS.contains(&lower) && CORNERS.contains(&upper)).then_some([lower, upper])
        };
        let [x, y] = [corner(axes[0])?, corner(axes[1])?];
        is_possible.then(|| Self {
            sides: along(|axis| axis.input),
            counts: along(|axis| axis.output),
            strides: along(|axis| axis.stride),
            lower: [x[0] as i32, y[0] as i32],
            upper: [x[1] as i32, y[1] as i32],
            dilations: along(|axis| axis.dilation),
            taps: along(|axis| axis.filter),
            is_reversed: false,
        })
    }

    /// The windows as a kernel takes them, of so many channels: see [`Windows::channels`].
    pub fn windows(&self, channels: u32) -> Windows {
        let Self { counts, strides, lower, dilations, taps, is_reversed, .. } = *self;
        let taps = [taps[0], taps[0] * taps[1]];
        let tap = if is_reversed { [taps[1] - 1, u32::MAX] } else { [0, 1] };
        Windows { counts, strides, lower, dilations, taps, tap, channels }
    }

    /// The map of `windows` windows of `depth` channels at a time over a tensor of `images` and `channels`.
    pub fn map<'a>(
        &self,
        tensor: DeviceView<'a, u8>,
        images: u32,
        channels: u32,
        [depth, windows]: [u32; 2],
    ) -> Result<TensorMap<'a>> {
        let [width, height] = self.sides.map(|side| side as usize);
        let [strides, lower, upper] = [self.strides.map(|stride| stride as i32), self.lower, self.upper];
        let dims = [channels as usize, width, height, images as usize];
        let tiling = Tiling::windows(dims, depth, windows, [lower[0], lower[1], 0], [upper[0], upper[1], 0])
            .element_strides([1, strides[0] as u32, strides[1] as u32, 1])
            .swizzle(swizzle(depth))
            .l2_promotion(L2Promotion::B128);
        TensorMap::new(tensor.cast::<u16>(), &tiling)
    }
}

/// The swizzle of lines of so many elements.
fn swizzle(elements: u32) -> Swizzle {
    match u64::from(elements) * BYTES {
        128 => Swizzle::B128,
        64 => Swizzle::B64,
        _ => Swizzle::B32,
    }
}

/// A map of a dense tensor of three dimensions, swizzled over the lines of its boxes.
pub(super) fn boxes<'a>(
    tensor: DeviceView<'a, u8>,
    dims: [u32; 3],
    box_dims: [u32; 3],
) -> Result<TensorMap<'a>> {
    boxes_over(tensor, dims, box_dims, swizzle(box_dims[0]))
}

/// As [`boxes`], whose lines lie 128 bytes apart in shared memory however short they are.
pub(super) fn boxes_in_lines<'a>(
    tensor: DeviceView<'a, u8>,
    dims: [u32; 3],
    box_dims: [u32; 3],
) -> Result<TensorMap<'a>> {
    boxes_over(tensor, dims, box_dims, Swizzle::B128)
}

fn boxes_over<'a>(
    tensor: DeviceView<'a, u8>,
    dims: [u32; 3],
    box_dims: [u32; 3],
    swizzle: Swizzle,
) -> Result<TensorMap<'a>> {
    let tiling =
        Tiling::new(dims.map(|dim| dim as usize), box_dims).swizzle(swizzle).l2_promotion(L2Promotion::B128);
    TensorMap::new(tensor.cast::<u16>(), &tiling)
}
