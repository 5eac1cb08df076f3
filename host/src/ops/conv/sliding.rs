//! Depthwise convolutions of filters that slide, by [`conv::depthwise::sliding`].

use conv::depthwise::sliding::forward::{
    conv_depthwise_3x3_bf16, conv_depthwise_3x3_f16, conv_depthwise_5x5_bf16, conv_depthwise_5x5_f16,
    conv_depthwise_7x7_bf16, conv_depthwise_7x7_f16,
};
use conv::depthwise::sliding::weight::{
    SHARED_BYTES, conv_depthwise_weight_3x3_bf16, conv_depthwise_weight_3x3_f16,
    conv_depthwise_weight_5x5_bf16, conv_depthwise_weight_5x5_f16, conv_depthwise_weight_7x7_bf16,
    conv_depthwise_weight_7x7_f16,
};
use conv::depthwise::sliding::{PAIR, Sliding, THREADS, depth, resident};
use conv::depthwise::{Depthwise, STRIP};
use conv::gather::Gather;
use half::{bf16, f16};

use crate::DType;
use crate::error::Result;
use crate::launch::LaunchConfig;
use crate::memory::DeviceBuffer;
use crate::stream::Stream;
use crate::tensor::{Tensor, TensorMut};

use super::depthwise::units;
use super::launched::{Launches, gathers, sums};
use super::weight::MAX_PARTS;
use crate::config::MAX_BLOCKS;

/// Channels, at most: bytes from a column to the next are 31 bits.
const MAX_CHANNELS: u32 = 1 << 29;
/// Segments of a strip that are considered, at least.
const SEGMENTS: u64 = 64;

/// The kernels that compute it, if there are any.
fn kernels(dtype: DType, taps: u32) -> Option<Launches<Sliding>> {
    macro_rules! table {
        ($($dtype:ident $taps:literal: $ty:ty, $forward:ty, $weight:ty;)*) => {
            match (dtype, taps) {
                $((DType::$dtype, $taps) => {
                    Some(Launches { gathers: gathers::<_, $ty, $forward>, sums: sums::<_, $ty, $weight> })
                })*
                _ => None,
            }
        };
    }
    table! {
        F16 3: f16, conv_depthwise_3x3_f16, conv_depthwise_weight_3x3_f16;
        BF16 3: bf16, conv_depthwise_3x3_bf16, conv_depthwise_weight_3x3_bf16;
        F16 5: f16, conv_depthwise_5x5_f16, conv_depthwise_weight_5x5_f16;
        BF16 5: bf16, conv_depthwise_5x5_bf16, conv_depthwise_weight_5x5_bf16;
        F16 7: f16, conv_depthwise_7x7_f16, conv_depthwise_weight_7x7_f16;
        BF16 7: bf16, conv_depthwise_7x7_bf16, conv_depthwise_weight_7x7_bf16;
    }
}

/// A convolution that slides, and its kernels.
pub(super) struct Plan {
    kernels: Launches<Sliding>,
    gather: Gather,
    taps: u32,
    /// Blocks that run at once.
    blocks: u32,
}

impl Plan {
    /// Of square filters of 3, 5 or 7 taps, without dilation, by 1, or forward by 2.
    pub fn new(stream: &Stream, dtype: DType, gather: Gather) -> Option<Self> {
        let [height, width] = [gather.problem.height, gather.problem.width];
        let taps = height.filter;
        let kernels = kernels(dtype, taps)?;
        let strides = if gather.is_forward() { 1..=2 } else { 1..=1 };
        let slides = width.filter == taps
            && width.stride == height.stride
            && strides.contains(&height.stride)
            && [height, width].iter().all(|axis| axis.dilation == 1)
            && gather.problem.groups.is_multiple_of(PAIR as u32)
            && gather.problem.groups <= MAX_CHANNELS;
        let blocks = stream.device().properties().sm_count * resident(taps);
        slides.then_some(Self { kernels, gather, taps, blocks })
    }

    /// How it is cut: steps of a segment, of `steps` that a strip has, and blocks along y.
    fn cut(&self, strips: u64, steps: u32, most_blocks: u32) -> (Sliding, u32) {
        let channels = self.gather.problem.groups;
        let units = units(channels, PAIR as u32, size_of::<f16>(), THREADS);
        let depthwise = Depthwise { gather: self.gather, units, unit: PAIR as u32 };
        let lines = u64::from(Sliding { depthwise, rows: 1 }.lines());
        let blocks = u64::from((self.blocks / depthwise.slabs()).clamp(1, most_blocks));
        // A segment costs more than its own steps: about as many as a window has rows.
        let others = u64::from(depth(self.taps, self.gather.problem.height.stride));
        let items = |rows: u32| strips * u64::from(steps.div_ceil(rows));
        let time = |&rows: &u32| items(rows).div_ceil(blocks * lines) * (u64::from(rows) + others);
        let segments = SEGMENTS.max(2 * blocks * lines / strips.max(1)).min(steps.into()) as u32;
        let rows = (1..=segments).map(|count| steps.div_ceil(count)).min_by_key(time).unwrap_or(steps);
        (Sliding { depthwise, rows }, items(rows).div_ceil(lines).min(blocks) as u32)
    }

    /// Results, or the input's gradient.
    pub fn forward(
        &self,
        stream: &Stream,
        operands: [&Tensor; 2],
        bias: Option<&Tensor>,
        out: TensorMut<'_>,
    ) -> Result<()> {
        let problem = self.gather.problem;
        let [rows, columns] = [problem.height, problem.width]
            .map(|axis| if self.gather.is_forward() { axis.output } else { axis.input });
        let strips = u64::from(problem.images) * u64::from(columns.div_ceil(STRIP as u32));
        let (sliding, blocks) = self.cut(strips, rows, MAX_BLOCKS);
        let config = LaunchConfig::new([sliding.depthwise.slabs(), blocks, 1], [THREADS, 1, 1])
            .with_shared(sliding.depthwise.shared_bytes());
        // SAFETY: `new` takes such filters, strides and channels alone; the operands have the sides that the
        // problem says, and elements; what is read lies at whole units, as does the result, which was just
        // made; the bias has a number for each channel; grid, block and shared memory are the kernel's.
        unsafe { (self.kernels.gathers)(stream, config, sliding, operands, bias, out) }
    }

    /// Sums of the filters' gradient, in parts, and how many there are.
    pub fn filter_gradient(
        &self,
        stream: &Stream,
        [x, gradient]: [&Tensor; 2],
    ) -> Result<(DeviceBuffer<f32>, u32)> {
        let problem = self.gather.problem;
        let strips = u64::from(problem.images) * u64::from(problem.width.output.div_ceil(STRIP as u32));
        let depthwise = Depthwise { gather: self.gather, units: 1, unit: PAIR as u32 };
        let steps = Sliding { depthwise, rows: 1 }.weight_steps();
        let (sliding, parts) = self.cut(strips, steps, MAX_PARTS);
        let of_part = problem.groups as usize * (self.taps * self.taps) as usize;
        // SAFETY: the launch writes all of it, and what is launched later reads it.
        let sums = unsafe { DeviceBuffer::<f32>::uninit(stream, of_part.saturating_mul(parts as usize))? };
        let config = LaunchConfig::new([sliding.depthwise.slabs(), parts, 1], [THREADS, 1, 1])
            .with_shared(SHARED_BYTES);
        // SAFETY: `new` takes such filters, strides and channels alone; the operands have the sides that the
        // problem says, and elements, and lie at whole units; the sums are as long as the parts, of which
        // each block along y has one; grid, block and shared memory are the kernel's.
        unsafe { (self.kernels.sums)(stream, config, sliding, [x, gradient], &sums)? };
        Ok((sums, parts))
    }
}
