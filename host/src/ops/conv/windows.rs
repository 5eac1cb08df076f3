//! Convolutions by [`conv::sm90`]: which of them can be, how they are cut, and their maps.

use conv::problem::Convolution;
use conv::sm90::{
    Arguments, ArgumentsArgs, Bf16x64, Bf16x128, Bf16x128By16, Bf16x128By32, Bf16x256, Bf16x256By16,
    Bf16x256By32, DEPTH, Entry, F16x64, F16x128, F16x128By16, F16x128By32, F16x256, F16x256By16, F16x256By32,
    WeightBf16x128, WeightBf16x192, WeightF16x128, WeightF16x192, Windows, conv_weight_windows_bf16_128x128,
    conv_weight_windows_bf16_128x192, conv_weight_windows_f16_128x128, conv_weight_windows_f16_128x192,
    conv_windows_bf16_128x64, conv_windows_bf16_128x128, conv_windows_bf16_256x128,
    conv_windows_c16_bf16_128x128, conv_windows_c16_bf16_128x256, conv_windows_c16_f16_128x128,
    conv_windows_c16_f16_128x256, conv_windows_c32_bf16_128x128, conv_windows_c32_bf16_128x256,
    conv_windows_c32_f16_128x128, conv_windows_c32_f16_128x256, conv_windows_f16_128x64,
    conv_windows_f16_128x128, conv_windows_f16_256x128, filters_of_box,
};
use conv::weight::{Parts as SumParts, Stored};
use cuda_std::kernel::{Kernel, Map, PtrMut, Value};
use gemm::element::{Layout, Type};
use gemm::epilogue::EpilogueParamsArgs;
use gemm::sm90::epilogue::{OutputFlag, OutputFormat, OutputParams, OutputType};
use gemm::sm90::tile_scheduler::GemmShape;
use primitives::tma::box_width;

use crate::device::Arch;
use crate::error::Result;
use crate::launch::{LaunchConfig, launch};
use crate::memory::tensor_map::TensorMap;
use crate::memory::{DeviceBuffer, DeviceView, DeviceViewMut, Within};
use crate::ops::elementwise::copy_into;
use crate::stream::Stream;
use crate::tensor::{DType, Tensor};

use super::cut::{Cut, Sides};
use super::maps::{BYTES, Walk, boxes, boxes_in_lines};
use super::{Activation, Algorithm, FEW_CHANNELS, Tile};

/// The only architecture with these kernels.
const ARCH: Arch = Arch { major: 9, minor: 0 };
/// Tensors of fewer bytes are not read by windows: drivers before 13.2 write maps for them that the copy
/// engine misreads, as CUTLASS tells.
const LEAST_BYTES: u64 = 128 * 1024;
/// Channels from which a stage of 64 is worth it.
const LEAST_CHANNELS: u32 = 32;
/// Channels of a tap in stages of several taps, where there are no more and at least [`LEAST_FEW`].
const FEW: [u32; 2] = [16, 32];
const LEAST_FEW: u32 = 9;
/// Rows of tiles of a raster group.
pub(super) const RASTER_GROUP: u32 = 8;
/// Microseconds of a stage of filters' gradients: of 128 x 192 (512 filters of 512 channels, 3 x 3, at 7 x 7)
/// and 128 x 128; where channels do not fill stages, this many times as long.
const WEIGHT_STAGE_US: [f64; 2] = [0.48, 0.41];
const UNALIGNED: f64 = 1.3;
/// Microseconds of a wave of these beside its stages where it stores sums, of which products of other tiles
/// hide a part.
const WEIGHT_STORE_US: [f64; 2] = [8.0, 4.0];

type Parameters = (Map, Map, Map, Value<Arguments>, PtrMut<u8>);

/// A kernel, and its launch.
#[derive(Clone, Copy)]
pub(super) struct WindowKernel {
    entry: Entry,
    launch: unsafe fn(&Stream, LaunchConfig, Launch<'_>) -> Result<()>,
}

/// The kernels of an element type: wide ones first.
pub(super) struct WindowKernels {
    forward: [WindowKernel; 3],
    /// Of several taps a stage, of [`FEW`] channels.
    few: [[WindowKernel; 2]; 2],
    weight: [WindowKernel; 2],
    ty: Type,
}

const fn kernel<K: Kernel<Params = Parameters>>(entry: Entry) -> WindowKernel {
    WindowKernel { entry, launch: launch_as::<K> }
}

pub(super) const BF16: WindowKernels = WindowKernels {
    forward: [
        kernel::<conv_windows_bf16_256x128>(Bf16x256::ENTRY),
        kernel::<conv_windows_bf16_128x128>(Bf16x128::ENTRY),
        kernel::<conv_windows_bf16_128x64>(Bf16x64::ENTRY),
    ],
    few: [
        [
            kernel::<conv_windows_c16_bf16_128x256>(Bf16x256By16::ENTRY),
            kernel::<conv_windows_c16_bf16_128x128>(Bf16x128By16::ENTRY),
        ],
        [
            kernel::<conv_windows_c32_bf16_128x256>(Bf16x256By32::ENTRY),
            kernel::<conv_windows_c32_bf16_128x128>(Bf16x128By32::ENTRY),
        ],
    ],
    weight: [
        kernel::<conv_weight_windows_bf16_128x192>(WeightBf16x192::ENTRY),
        kernel::<conv_weight_windows_bf16_128x128>(WeightBf16x128::ENTRY),
    ],
    ty: Type::Bf16,
};

pub(super) const F16: WindowKernels = WindowKernels {
    forward: [
        kernel::<conv_windows_f16_256x128>(F16x256::ENTRY),
        kernel::<conv_windows_f16_128x128>(F16x128::ENTRY),
        kernel::<conv_windows_f16_128x64>(F16x64::ENTRY),
    ],
    few: [
        [
            kernel::<conv_windows_c16_f16_128x256>(F16x256By16::ENTRY),
            kernel::<conv_windows_c16_f16_128x128>(F16x128By16::ENTRY),
        ],
        [
            kernel::<conv_windows_c32_f16_128x256>(F16x256By32::ENTRY),
            kernel::<conv_windows_c32_f16_128x128>(F16x128By32::ENTRY),
        ],
    ],
    weight: [
        kernel::<conv_weight_windows_f16_128x192>(WeightF16x192::ENTRY),
        kernel::<conv_weight_windows_f16_128x128>(WeightF16x128::ENTRY),
    ],
    ty: Type::F16,
};

/// The arguments of a launch.
struct Launch<'a> {
    maps: [TensorMap<'a>; 3],
    shape: GemmShape,
    output: OutputParams,
    windows: Windows,
    bias: Option<DeviceView<'a, u8>>,
    bias_type: Type,
    activation: Activation,
    data: Within<'a, u8>,
}

/// # Safety
/// As for the kernel.
unsafe fn launch_as<K: Kernel<Params = Parameters>>(
    stream: &Stream,
    config: LaunchConfig,
    launched: Launch<'_>,
) -> Result<()> {
    let Launch { maps: [a, b, c], shape, output, windows, bias, bias_type, activation, data } = launched;
    let epilogue = EpilogueParamsArgs {
        alpha: 1.0,
        beta: 0.0,
        activation: activation as u32,
        bias_type: bias_type as u32,
        bias,
        residual: None::<DeviceView<'_, u8>>,
        residual_layout: Layout::NONE,
        scale_a: None::<DeviceView<'_, f32>>,
        scale_b: None::<DeviceView<'_, f32>>,
        scale_c: None::<DeviceView<'_, f32>>,
        amax: None::<DeviceViewMut<'_, u32>>,
    }
    .pass();
    let arguments = ArgumentsArgs { shape, output, epilogue, windows }.pass();
    // SAFETY: the caller's contract.
    unsafe { launch::<K>(stream, config, (a, b, c, arguments, data)) }
}

/// Whether tensors of so many channels are read by windows on this device: as many as a stage is worth.
pub(super) fn can_read(stream: &Stream, groups: u32, channels: u32) -> bool {
    has_windows(stream, groups) && channels >= LEAST_CHANNELS
}

/// Whether tensors of so many groups are read by windows on this device.
fn has_windows(stream: &Stream, groups: u32) -> bool {
    stream.device().arch() == ARCH && groups == 1
}

/// Whether a tensor of these sides has [`LEAST_BYTES`].
pub(super) fn is_large(sides: [u32; 4]) -> bool {
    sides.iter().fold(BYTES, |bytes, &side| bytes.saturating_mul(side.into())) >= LEAST_BYTES
}

/// Whether a convolution of 1 x 1 that reads a tensor of these sides is a product of matrices: with more than
/// [`FEW_CHANNELS`], and on a device with windows all but those that windows bring.
pub(super) fn leaves_to_products(stream: &Stream, dtype: DType, read: [u32; 4]) -> bool {
    let [.., channels] = read;
    let has_windows = kernels(dtype).is_some() && stream.device().arch() == ARCH;
    let is_brought = !has_windows || can_read(stream, 1, channels) && is_large(read);
    channels > FEW_CHANNELS || !is_brought
}

/// A forward pass that these kernels can do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pass {
    /// With channels in whole units.
    problem: Convolution,
    walk: Walk,
}

impl Pass {
    /// The pass of a problem whose operands lie in whole units, if it can be done: on this device, without
    /// groups, with filters in whole units, and at least one of them and of positions, without which there is
    /// no map.
    pub fn new(stream: &Stream, problem: Convolution) -> Option<Self> {
        let Convolution { groups, channels, filters, .. } = problem;
        let pass = Self { problem, walk: Walk::new(&problem)? };
        let least = if pass.few().is_some() { LEAST_FEW } else { LEAST_CHANNELS };
        let has_positions = problem.height.input > 0 && problem.width.input > 0;
        let is_possible = channels >= least && filters > 0 && filters.is_multiple_of(8) && has_positions;
        Some(pass).filter(|_| is_possible && has_windows(stream, groups))
    }

    /// Which of [`FEW`] a tap has, if stages have several.
    fn few(&self) -> Option<usize> {
        let has_taps = self.walk.taps != [1; 2];
        FEW.iter().position(|&few| has_taps && self.problem.channels <= few)
    }

    /// Channels of a tap in the filters' matrix, or of a stage.
    fn depth(&self) -> u32 {
        self.few().map_or(DEPTH, |index| FEW[index])
    }

    /// Whether filters are copied, with channels of zeros.
    pub fn pads(&self) -> bool {
        self.few().is_some() && self.problem.channels < self.depth()
    }

    /// Whether these filters still are to be copied so.
    pub fn pads_these(&self, filters: &Tensor) -> bool {
        self.pads() && filters.shape().sides().last() != Some(&(self.depth() as usize))
    }

    /// The same with the filters' taps from the last one on.
    pub fn reversed(self) -> Self {
        Self { walk: Walk { is_reversed: true, ..self.walk }, ..self }
    }

    /// Whether what it reads has [`LEAST_BYTES`].
    pub fn is_large(&self) -> bool {
        let Convolution { images, channels, height, width, .. } = self.problem;
        is_large([images, height.input, width.input, channels])
    }

    /// The tensor that it reads, with so many images of zeros behind it that it has [`LEAST_BYTES`].
    pub fn with_room(&self, stream: &Stream, read: &Tensor) -> Result<Tensor> {
        let sides = read.shape().sides();
        let of_image = (read.elements() / sides[0].max(1)).max(1) * BYTES as usize;
        let images = (LEAST_BYTES as usize).div_ceil(of_image);
        let mut room = Tensor::zeros(stream, &[&[images], &sides[1..]].concat(), read.dtype())?;
        copy_into(stream, read, room.view_mut()?.slice(0, 0..sides[0])?)?;
        Ok(room)
    }

    /// The filters, with any strides, with as many channels as a tap has in stages of several, if they
    /// [lack](Self::pads) some.
    pub fn padded(&self, stream: &Stream, filters: &Tensor) -> Result<Tensor> {
        let sides = filters.shape().sides();
        let (last, depth) = (sides.len() - 1, self.depth() as usize);
        let mut padded = Tensor::zeros(stream, &[&sides[..last], &[depth]].concat(), filters.dtype())?;
        copy_into(stream, filters, padded.view_mut()?.slice(last, 0..sides[last])?)?;
        Ok(padded)
    }

    /// Windows, and filters.
    fn sides(&self) -> [u32; 2] {
        [self.problem.images * self.walk.counts[0] * self.walk.counts[1], self.problem.filters]
    }

    /// The tile, and parts of k, that are asked for or estimated to take the least time.
    pub fn cut(&self, stream: &Stream, kernels: &WindowKernels, algorithm: Algorithm) -> Cut {
        let (Self { problem, walk }, [m, n]) = (self, self.sides());
        let taps = walk.taps[0] * walk.taps[1];
        match self.few() {
            Some(index) => {
                let entries = kernels.few[index].map(|kernel| kernel.entry);
                let sides = Sides::few([m, n], taps, [problem.channels, FEW[index]], entries);
                sides.cut(stream, algorithm, entries)
            }
            None => {
                let sides = Sides::new([1, m, n], taps, problem.channels);
                sides.cut(stream, algorithm, kernels.forward.map(|kernel| kernel.entry))
            }
        }
    }

    /// The sums of so many parts, and what becomes of them.
    pub fn parts(&self, count: u32, stored: Stored, activation: Activation) -> SumParts {
        let [m, n] = self.sides();
        SumParts {
            sums: u64::from(m) * u64::from(n),
            parts: count,
            stored: stored as u32,
            activation: activation as u32,
            groups: 1,
            filters: [m; 2],
            taps: 1,
            channels: [n; 2],
        }
    }

    /// Queues it, or the sums of its parts, if the cut has more than one: these without bias and activation.
    pub fn run(
        &self,
        stream: &Stream,
        kernels: &WindowKernels,
        cut: &Cut,
        [read, filters]: [&Tensor; 2],
        (bias, activation): (Option<&Tensor>, Activation),
        target: Target<'_>,
    ) -> Result<()> {
        let Self { problem, walk } = *self;
        let (channels, images) = (problem.channels, read.shape().sides()[0] as u32);
        let (depth, [m, n]) = (self.depth(), self.sides());
        let windows = walk.windows(channels.next_multiple_of(depth));
        let kernel = match self.few() {
            Some(index) => kernels.few[index][cut.index],
            None => kernels.forward[cut.index],
        };
        let [block_m, block_n] = kernel.entry.block;
        let (taps, box_n) = (windows.taps[1], filters_of_box(n, block_n));
        let filter_map = match self.few() {
            Some(_) => boxes(filters.span_bytes()?, [depth * taps, n, 1], [DEPTH, box_n, 1])?,
            None => boxes(filters.span_bytes()?, [channels, taps, n], [DEPTH, 1, box_n])?,
        };
        let is_plain = bias.is_none() && activation == Activation::None;
        let (format, out_map, data) = match &target {
            Target::Sums(sums) => {
                let format = OutputFormat::new(OutputType::F32)
                    .with(OutputFlag::Paired, true)
                    .with(OutputFlag::Identity, true);
                (format, filter_map, sums.view().bytes().within())
            }
            Target::Result(out) => {
                let format = OutputFormat::new(OutputType::Element16)
                    .with(OutputFlag::Paired, true)
                    .with(OutputFlag::ByTma, true)
                    .with(OutputFlag::Plain, is_plain)
                    .with(OutputFlag::Identity, is_plain);
                let store_box = [kernel.entry.store_columns, DEPTH, 1];
                (format, boxes(out.view(), [n, m, 1], store_box)?, out.view().within())
            }
        };
        let launched = Launch {
            maps: [walk.map(read.span_bytes()?, images, channels, [depth, block_m])?, filter_map, out_map],
            shape: GemmShape::new([m, n, cut.stages * DEPTH], cut.parts, RASTER_GROUP),
            output: OutputParams { row: n.into(), matrix: u64::from(m) * u64::from(n), format },
            windows,
            bias: bias.map(Tensor::span_bytes).transpose()?,
            bias_type: kernels.ty,
            activation,
            data,
        };
        // SAFETY: the maps are what the kernel asks for; the sums are as long as their parts, and the result
        // is exclusively borrowed; the bias has a number for each column.
        unsafe { queue(stream, kernel, cut.tiles, launched) }
    }
}

/// The launch of an entry, as many blocks as run at once.
pub(super) fn config(stream: &Stream, entry: Entry, tiles: u64) -> LaunchConfig {
    let blocks = tiles.min(stream.device().properties().sm_count.into()) as u32;
    LaunchConfig::new([blocks, 1, 1], [entry.threads, 1, 1])
        .with_shared(entry.shared)
        .cluster([1, 1, 1])
        .overlapping_previous()
}

/// Queues a kernel by as many blocks as run at once.
///
/// # Safety
/// As for the kernel.
unsafe fn queue(stream: &Stream, kernel: WindowKernel, tiles: u64, launched: Launch<'_>) -> Result<()> {
    let config = config(stream, kernel.entry, tiles);
    // SAFETY: the caller's contract; the configuration is the entry's; the kernel waits for earlier launches.
    unsafe { (kernel.launch)(stream, config, launched) }
}

/// Filters' gradients that these kernels can do: in parts of positions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    problem: Convolution,
    walk: Walk,
    /// Which kernel.
    index: usize,
    /// Positions of a part, a multiple of [`DEPTH`].
    part: u32,
    tiles: u64,
    /// Estimated microseconds.
    pub time_us: f64,
}

/// Where results go.
pub(super) enum Target<'a> {
    /// The sums of each part.
    Sums(&'a DeviceBuffer<f32>),
    /// The result, of one part.
    Result(DeviceViewMut<'a, u8>),
}

impl Parts {
    /// As [`Pass::new`], in at most `most` parts. The sums of several parts, or of channels that do not fill
    /// stages, take `add_us` of so many bytes to be added.
    pub fn new(
        stream: &Stream,
        problem: Convolution,
        algorithm: Algorithm,
        kernels: &WindowKernels,
        add_us: impl Fn(f64) -> f64,
        most: u32,
    ) -> Option<Self> {
        let is_possible = can_read(stream, problem.groups, problem.channels);
        let pass = Pass::new(stream, problem).filter(|pass| is_possible && pass.is_large())?;
        let summed = in_stages(problem);
        let multiprocessors = u64::from(stream.device().properties().sm_count.max(1));
        let columns = summed.filter_elements();
        let sums = f64::from(columns) * f64::from(problem.filters) * size_of::<f32>() as f64;
        let positions = problem.outputs();
        let plan = |(index, count): (usize, u32)| {
            let [block_m, block_n] = kernels.weight[index].entry.block;
            let of_part = u64::from(problem.filters.div_ceil(block_m)) * u64::from(columns.div_ceil(block_n));
            let part = positions.div_ceil(count).next_multiple_of(DEPTH);
            let parts = positions.div_ceil(part);
            let tiles = of_part * u64::from(parts);
            let stage_us = WEIGHT_STAGE_US[index] * if summed == problem { 1.0 } else { UNALIGNED };
            let tile_us = f64::from(part / DEPTH) * stage_us;
            let store_us = if parts == 1 && summed == problem {
                0.0
            } else {
                tiles.div_ceil(multiprocessors) as f64 * WEIGHT_STORE_US[index]
                    + add_us(f64::from(parts) * sums)
            };
            let time_us = tiles.div_ceil(multiprocessors) as f64 * tile_us + store_us;
            Self { problem, walk: pass.walk, index, part, tiles, time_us }
        };
        let indices = match algorithm {
            Algorithm::Windows(Tile::Wide) | Algorithm::TallWindows => 0..1,
            Algorithm::Windows(Tile::Narrow) => 1..2,
            Algorithm::Auto | Algorithm::Gather(_) | Algorithm::WindowsInParts(_) => 0..2,
        };
        let counts = 1..=most.min(positions.div_ceil(DEPTH));
        indices
            .flat_map(|index| counts.clone().map(move |count| (index, count)))
            .map(plan)
            .min_by(|a, b| a.time_us.total_cmp(&b.time_us))
    }

    /// How many.
    pub fn count(&self) -> u32 {
        self.problem.outputs().div_ceil(self.part)
    }

    /// The convolution as the sums have it: with channels of whole stages.
    pub fn summed(&self) -> Convolution {
        in_stages(self.problem)
    }

    /// Queues the sums of each part, or the gradient.
    pub fn run(
        &self,
        stream: &Stream,
        kernels: &WindowKernels,
        [x, gradient]: [&Tensor; 2],
        target: Target<'_>,
    ) -> Result<()> {
        let Self { problem, walk, index, part, tiles, .. } = *self;
        let Convolution { images, channels, filters, .. } = problem;
        let (columns, kernel) = (self.summed().filter_elements(), kernels.weight[index]);
        let of_box = [box_width(filters, DEPTH), DEPTH, 1];
        let map = boxes_in_lines(gradient.span_bytes()?, [filters, problem.outputs(), 1], of_box)?;
        let (element, is_gradient) = match &target {
            Target::Sums(_) => (OutputType::F32, false),
            Target::Result(_) => (OutputType::Element16, true),
        };
        let format = OutputFormat::new(element)
            .with(OutputFlag::Paired, true)
            .with(OutputFlag::Identity, true)
            .with(OutputFlag::Plain, is_gradient);
        let (out_map, data) = match &target {
            Target::Sums(sums) => (map, sums.view().bytes().within()),
            Target::Result(out) => {
                let store_box = [kernel.entry.store_columns, DEPTH, 1];
                (boxes(out.view(), [columns, filters, 1], store_box)?, out.view().within())
            }
        };
        let matrix = u64::from(filters) * u64::from(columns);
        let launched = Launch {
            maps: [map, walk.map(x.span_bytes()?, images, channels, [DEPTH; 2])?, out_map],
            shape: GemmShape::new([filters, columns, part], self.count(), RASTER_GROUP),
            output: OutputParams { row: columns.into(), matrix, format },
            windows: walk.windows(channels.next_multiple_of(DEPTH)),
            bias: None,
            bias_type: Type::F32,
            activation: Activation::None,
            data,
        };
        // SAFETY: the maps are what the kernel asks for; the sums are as long as their parts, and the
        // gradient is exclusively borrowed.
        unsafe { queue(stream, kernel, tiles, launched) }
    }
}

/// The convolution with channels of whole stages.
const fn in_stages(problem: Convolution) -> Convolution {
    Convolution { channels: problem.channels.next_multiple_of(DEPTH), ..problem }
}

/// The kernels of a type, if it has any.
pub(super) const fn kernels(dtype: DType) -> Option<&'static WindowKernels> {
    match dtype {
        DType::BF16 => Some(&BF16),
        DType::F16 => Some(&F16),
        _ => None,
    }
}
