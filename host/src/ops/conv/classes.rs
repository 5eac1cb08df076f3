//! Inputs' gradients by [`conv::sm90::classes`]: which of them can be, and their classes and maps.

use conv::problem::{Axis, Convolution, Walk as Meetings};
use conv::sm90::classes::{
    AxisClasses, BackwardBf16x64, BackwardBf16x128, BackwardF16x64, BackwardF16x128, ClassArguments,
    MOST_CLASSES, conv_windows_backward_bf16_128x64, conv_windows_backward_bf16_128x128,
    conv_windows_backward_f16_128x64, conv_windows_backward_f16_128x128,
};
use conv::sm90::{DEPTH, Entry};
use cuda_std::kernel::{Kernel, Map, PtrMut, Value};
use gemm::sm90::tile_scheduler::GemmShape;
use primitives::tma::box_width;

use crate::error::Result;
use crate::launch::{LaunchConfig, launch};
use crate::memory::DeviceViewMut;
use crate::memory::tensor_map::TensorMap;
use crate::stream::Stream;
use crate::tensor::{DType, Tensor};

use super::Algorithm;
use super::cut::{Cut, Sides, keeps_to_lines};
use super::maps::{CORNERS, MOST_OFFSET, Walk, boxes_in_lines};
use super::windows::{RASTER_GROUP, can_read, config, is_large};

type Parameters = (Map, Map, Value<ClassArguments>, Value<u32>, PtrMut<u16>);

/// A kernel, and its launch.
#[derive(Clone, Copy)]
pub(super) struct ClassKernel {
    entry: Entry,
    launch: unsafe fn(&Stream, LaunchConfig, Launch<'_>) -> Result<()>,
}

/// The arguments of a launch.
struct Launch<'a> {
    maps: [TensorMap<'a>; 2],
    arguments: ClassArguments,
    images: u32,
    out: DeviceViewMut<'a, u8>,
}

/// # Safety
/// As for the kernel.
unsafe fn launch_as<K: Kernel<Params = Parameters>>(
    stream: &Stream,
    config: LaunchConfig,
    launched: Launch<'_>,
) -> Result<()> {
    let Launch { maps: [gradient, filters], arguments, images, out } = launched;
    // SAFETY: the caller's contract.
    unsafe { launch::<K>(stream, config, (gradient, filters, arguments, images, out.cast::<u16>())) }
}

const fn kernel<K: Kernel<Params = Parameters>>(entry: Entry) -> ClassKernel {
    ClassKernel { entry, launch: launch_as::<K> }
}

/// The kernels of a type, if it has any: the wide one first.
pub(super) const fn kernels(dtype: DType) -> Option<[ClassKernel; 2]> {
    match dtype {
        DType::BF16 => Some([
            kernel::<conv_windows_backward_bf16_128x128>(BackwardBf16x128::ENTRY),
            kernel::<conv_windows_backward_bf16_128x64>(BackwardBf16x64::ENTRY),
        ]),
        DType::F16 => Some([
            kernel::<conv_windows_backward_f16_128x128>(BackwardF16x128::ENTRY),
            kernel::<conv_windows_backward_f16_128x64>(BackwardF16x64::ENTRY),
        ]),
        _ => None,
    }
}

/// The windows of an axis over the result's gradient, and its classes.
struct Windows {
    counts: u32,
    lower: i32,
    upper: i32,
    dilation: u32,
    classes: AxisClasses,
}

impl Windows {
    /// `None` where no map can say it.
    fn new(axis: &Axis) -> Option<Self> {
        let count = axis.classes();
        if axis.stride > MOST_CLASSES || count == 0 {
            return None;
        }
        let mut meetings = [Meetings::backward(axis, 0), Meetings::backward(axis, count - 1)];
        let (counts, dilation) = (meetings[0].count, meetings[0].advance.unsigned_abs());
        // Longer tiles first.
        meetings.sort_by_key(|class| std::cmp::Reverse(class.taps));
        let reach = |class: &Meetings| i64::from(class.taps.saturating_sub(1)) * i64::from(dilation);
        let first = |class: &Meetings| i64::from(class.from) - reach(class);
        let with_taps = || meetings.iter().filter(|class| class.taps > 0);
        let lower = with_taps().map(first).min().unwrap_or(0);
        let upper = i64::from(counts) + lower - i64::from(axis.output);
        let farthest = with_taps().map(|class| first(class) - lower + reach(class)).max().unwrap_or(0);
        let fits = CORNERS.contains(&lower) && CORNERS.contains(&upper) && farthest <= MOST_OFFSET as i64;
        let tap = |class: &Meetings| class.filter_first + class.taps.saturating_sub(1) * class.filter_step;
        let offset = |class: &Meetings| if class.taps == 0 { 0 } else { (first(class) - lower) as u32 };
        fits.then(|| Self {
            counts,
            lower: lower as i32,
            upper: upper as i32,
            dilation,
            classes: AxisClasses {
                count,
                first: meetings.map(|class| class.first),
                step: axis.stride,
                side: axis.input,
                taps: meetings.map(|class| class.taps),
                tap: meetings.each_ref().map(tap),
                tap_step: meetings[0].filter_step,
                offset: meetings.each_ref().map(offset),
            },
        })
    }
}

/// An input's gradient that these kernels can do.
#[derive(Clone, Copy, Debug)]
pub(super) struct ByClasses {
    /// With channels and filters in whole units.
    problem: Convolution,
    /// Channels that are computed.
    columns: u32,
    walk: Walk,
    classes: [AxisClasses; 2],
}

impl ByClasses {
    /// The gradient of `columns` channels, of a problem whose operands lie in whole units, if it can be done:
    /// on this device, without groups, with strides up to [`MOST_CLASSES`].
    pub fn new(stream: &Stream, problem: Convolution, columns: u32) -> Option<Self> {
        let Convolution { images, groups, filters, height, width, .. } = problem;
        let read = [images, height.output, width.output, filters];
        if !can_read(stream, groups, filters) || !is_large(read) {
            return None;
        }
        let axes = [&width, &height];
        let windows = [Windows::new(&width)?, Windows::new(&height)?];
        let along = |of: fn(&Windows) -> i32| windows.each_ref().map(of);
        let walk = Walk {
            sides: axes.map(|axis| axis.output),
            counts: windows.each_ref().map(|windows| windows.counts),
            strides: [1; 2],
            lower: along(|windows| windows.lower),
            upper: along(|windows| windows.upper),
            dilations: windows.each_ref().map(|windows| windows.dilation),
            taps: axes.map(|axis| axis.filter),
            is_reversed: false,
        };
        Some(Self { problem, columns, walk, classes: windows.map(|windows| windows.classes) })
    }

    /// Its tiles.
    pub fn cut(&self, stream: &Stream, kernels: [ClassKernel; 2], algorithm: Algorithm) -> Cut {
        let Self { problem, columns, walk, classes: [width, height] } = *self;
        let m = problem.images * walk.counts[0] * walk.counts[1];
        let batch = width.count * height.count;
        // Of a class, about.
        let taps = (walk.taps[0] * walk.taps[1]).div_ceil(batch.max(1));
        // Filters lie along channels.
        let is_in_lines = keeps_to_lines(problem.channels);
        let sides = Sides::by_lines([batch, m, columns], taps, problem.filters, is_in_lines);
        sides.tiles(stream, algorithm, kernels.map(|kernel| kernel.entry))
    }

    /// Queues it.
    pub fn run(
        &self,
        stream: &Stream,
        kernels: [ClassKernel; 2],
        algorithm: Algorithm,
        [gradient, filters]: [&Tensor; 2],
        out: DeviceViewMut<'_, u8>,
    ) -> Result<()> {
        let Self { problem, columns, walk, classes: [width, height] } = *self;
        let Convolution { images, channels, filters: depth, .. } = problem;
        let windows = walk.windows(depth.next_multiple_of(DEPTH));
        let m = images * walk.counts[0] * walk.counts[1];
        let batch = width.count * height.count;
        let Cut { index, tiles, .. } = self.cut(stream, kernels, algorithm);
        let ClassKernel { entry, launch } = kernels[index];
        let of_box = [box_width(columns, DEPTH), 1, DEPTH];
        let maps = [
            walk.map(gradient.span_bytes()?, images, depth, [DEPTH, entry.block[0]])?,
            boxes_in_lines(filters.span_bytes()?, [channels, windows.taps[1], depth], of_box)?,
        ];
        // Classes have a k of their own.
        let shape = GemmShape::new([m, columns, DEPTH], batch, RASTER_GROUP);
        let arguments = ClassArguments { shape, windows, width, height };
        // SAFETY: the maps are what the kernel asks for; the result, exclusively borrowed, has the columns of
        // all positions, and begins at a whole unit, as what was just made does; the configuration is the
        // entry's, and the kernel waits for earlier launches.
        unsafe { launch(stream, config(stream, entry, tiles), Launch { maps, arguments, images, out }) }
    }
}
