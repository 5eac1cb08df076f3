//! Convolutions of groups of few channels, by [`conv::grouped`].

use conv::gather::Gather;
use conv::grouped::gather::{conv_grouped_bf16, conv_grouped_f16};
use conv::grouped::weight::{conv_grouped_weight_bf16, conv_grouped_weight_f16};
use conv::grouped::{BLOCK, Grouped, MOST_SIDE, MOST_SLAB, MOST_TAPS, RESIDENT, THREADS};
use conv::problem::{Convolution, Pass};
use half::{bf16, f16};

use crate::DType;
use crate::device::RESERVED_SHARED;
use crate::error::Result;
use crate::launch::LaunchConfig;
use crate::memory::DeviceBuffer;
use crate::ops::elementwise::made;
use crate::stream::Stream;
use crate::tensor::{Shape, Tensor};

use super::check::Problem;
use super::launched::{Launches, gathers, sums};
use super::operand::{Kernels, aligned};
use super::weight::{MAX_PARTS, add_parts, parts_of};
use super::{Activation, Algorithm, Fused};
use crate::config::MAX_BLOCKS;

/// Positions that are tried along an axis of a tile.
const SIDES: [u32; 15] = [1, 2, 3, 4, 5, 7, 8, 10, 14, 19, 28, 32, 64, 128, 256];
const _: () = assert!(SIDES[SIDES.len() - 1] <= MOST_SIDE);
/// The cost of a tile beside its positions, in positions, guessed: barriers, and the wait for the first
/// bytes.
const OF_TILE: u64 = 48;

/// The pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    Results,
    InputsGradient,
    FiltersGradient,
}

/// A convolution that these kernels compute, its kernels, and how it is cut.
pub(super) struct Plan {
    kernels: Launches<Grouped>,
    grouped: Grouped,
    /// Blocks along y.
    blocks: u32,
}

fn kernels(dtype: DType) -> Option<Launches<Grouped>> {
    match dtype {
        DType::F16 => Some(Launches {
            gathers: gathers::<_, f16, conv_grouped_f16>,
            sums: sums::<_, f16, conv_grouped_weight_f16>,
        }),
        DType::BF16 => Some(Launches {
            gathers: gathers::<_, bf16, conv_grouped_bf16>,
            sums: sums::<_, bf16, conv_grouped_weight_bf16>,
        }),
        _ => None,
    }
}

impl Plan {
    /// Of 16 bits, as many filters as channels of a group, 2, 4, 8 or 16, and few taps.
    pub fn new(
        stream: &Stream,
        dtype: DType,
        algorithm: Algorithm,
        problem: &Problem,
        of: Of,
    ) -> Option<Self> {
        let shape = problem.shape;
        let kernels = kernels(dtype)?;
        let [taps, classes] = [
            u64::from(shape.height.filter) * u64::from(shape.width.filter),
            u64::from(shape.height.classes()) * u64::from(shape.width.classes()),
        ];
        let has_elements =
            [problem.x, problem.y, problem.filters].iter().all(|sides| sides.iter().all(|&side| side > 0));
        let is_possible = algorithm == Algorithm::Auto
            && shape.channels == shape.filters
            && [2, 4, 8, 16].contains(&shape.channels)
            && (shape.groups * shape.channels).is_multiple_of(<f16 as Kernels>::UNIT as u32)
            && taps <= MOST_TAPS.into()
            && classes <= MAX_BLOCKS.into()
            && has_elements;
        if !is_possible {
            return None;
        }
        let device = stream.device().properties();
        let shared = (device.shared_per_sm / RESIDENT)
            .saturating_sub(RESERVED_SHARED)
            .min(device.shared_per_block_optin);
        let (grouped, blocks) = cut(&shape, of, device.sm_count * RESIDENT, shared.into())?;
        Some(Self { kernels, grouped, blocks })
    }

    #[track_caller]
    pub fn forward(
        &self,
        stream: &Stream,
        of: &Problem,
        operands: [&Tensor; 2],
        fused: Fused<'_>,
    ) -> Result<Tensor> {
        let shape = Shape::of("Conv2d::forward", &of.y)?;
        let bias = fused.bias.map(|bias| aligned(stream, bias)).transpose()?;
        let (activation, has_bias) = (fused.activation as u32, bias.is_some().into());
        let gather = Gather { activation, has_bias, ..self.grouped.gather };
        self.gathered(stream, &shape, Grouped { gather, ..self.grouped }, operands, bias.as_ref())
    }

    #[track_caller]
    pub fn input_gradient(&self, stream: &Stream, of: &Problem, operands: [&Tensor; 2]) -> Result<Tensor> {
        let shape = Shape::of("Conv2d::input_gradient", &of.x)?;
        self.gathered(stream, &shape, self.grouped, operands, None)
    }

    fn gathered(
        &self,
        stream: &Stream,
        shape: &Shape,
        grouped: Grouped,
        [read, filters]: [&Tensor; 2],
        bias: Option<&Tensor>,
    ) -> Result<Tensor> {
        let (read, filters) = (aligned(stream, read)?, aligned(stream, filters)?);
        let grid = [grouped.slabs(), self.blocks, grouped.classes()];
        let config =
            LaunchConfig::new(grid, [THREADS, 1, 1]).with_shared(grouped.shared_bytes(grouped.met()) as u32);
        made(stream, shape, read.dtype(), |out| {
            // SAFETY: `new` takes such groups and taps alone, and `cut` such tiles; the operands have the
            // sides that the problem says, and lie at whole units, as does the result, which was just made;
            // the bias has a number for each channel; grid, block and shared memory are the kernel's.
            unsafe { (self.kernels.gathers)(stream, config, grouped, [&read, &filters], bias, out) }
        })
    }

    #[track_caller]
    pub fn filter_gradient<T: Kernels>(
        &self,
        stream: &Stream,
        of: &Problem,
        [x, gradient]: [&Tensor; 2],
    ) -> Result<Tensor> {
        let shape = Shape::of("Conv2d::filter_gradient", &of.filters)?;
        let (x, gradient) = (aligned(stream, x)?, aligned(stream, gradient)?);
        let (grouped, parts) = (self.grouped, self.blocks);
        let config = LaunchConfig::new([grouped.slabs(), parts, 1], [THREADS, 1, 1])
            .with_shared(grouped.weight_shared_bytes(grouped.met()) as u32);
        made(stream, &shape, x.dtype(), |out| {
            // SAFETY: the first launch writes all of it, the second reads it.
            let sums = unsafe {
                DeviceBuffer::<f32>::uninit(stream, shape.elements().saturating_mul(parts as usize))?
            };
            // SAFETY: `new` takes such groups and taps alone, and `cut` such tiles; the operands have the
            // sides that the problem says, and lie at whole units; the sums are as long as the parts, of
            // which each block along y has one; grid, block and shared memory are the kernel's.
            unsafe { (self.kernels.sums)(stream, config, grouped, [&x, &gradient], &sums)? };
            add_parts::<T>(stream, parts_of::<T>(of, &of.shape, parts), &sums, None, out)
        })
    }
}

/// The slab that is padded by the fewest channels, the tile whose rounds of blocks meet the fewest
/// positions, and blocks along y, of so many that run at once with so many bytes of shared memory each.
/// Nothing where no tile fits: taps far apart.
fn cut(problem: &Convolution, of: Of, at_once: u32, shared: u64) -> Option<(Grouped, u32)> {
    let is_backward = of == Of::InputsGradient;
    let gather = Gather {
        problem: *problem,
        columns: problem.channels,
        pass: if is_backward { Pass::Backward } else { Pass::Forward } as u32,
        activation: Activation::None as u32,
        has_bias: 0,
    };
    let channels = problem.groups * problem.channels;
    let slabs = [MOST_SLAB, MOST_SLAB / 2, BLOCK];
    let slab = slabs.into_iter().min_by_key(|&slab| channels.next_multiple_of(slab))?;
    let whole = Grouped { gather, tile: [1, 1], slab };
    let most = if of == Of::FiltersGradient { MAX_PARTS } else { MAX_BLOCKS };
    let others = u64::from(whole.slabs()) * u64::from(whole.classes());
    let blocks = (u64::from(at_once) / others).clamp(1, most.into());
    let [down, across] = whole.spans();
    let mut best: Option<(u64, Grouped)> = None;
    for rows in sides(down.count()) {
        for columns in sides(across.count()) {
            let grouped = Grouped { tile: [rows, columns], ..whole };
            let met = down.met(rows) * across.met(columns);
            let bytes = match of {
                Of::FiltersGradient => grouped.weight_shared_bytes(met),
                Of::Results | Of::InputsGradient => grouped.shared_bytes(met),
            };
            if bytes > shared {
                break;
            }
            let tiles = u64::from(problem.images) * down.tiles(rows) * across.tiles(columns);
            let time = tiles.div_ceil(blocks) * (met + grouped.positions() + OF_TILE);
            if best.is_none_or(|(least, _)| time < least) {
                best = Some((time, grouped));
            }
        }
    }
    best.map(|(_, grouped)| (grouped, grouped.tiles().min(blocks) as u32))
}

/// Sides of a tile along an axis of so many positions, each once: tiles of equal length, as long as those of
/// [`SIDES`] at most.
fn sides(count: u32) -> impl Iterator<Item = u32> {
    let mut last = 0;
    SIDES.into_iter().filter_map(move |most| {
        let side = count.div_ceil(count.div_ceil(most));
        (side > std::mem::replace(&mut last, side)).then_some(side)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use conv::problem::Axis;

    /// Of an H100: blocks that run at once, and the shared memory of each.
    const AT_ONCE: u32 = 132 * RESIDENT;
    const SHARED: u64 = 112 << 10;

    /// 32 groups of 4 channels and a window of 3 x 3 on images of so many positions a side.
    fn of(input: u32, stride: u32, dilation: u32) -> Convolution {
        let output = (input - 1) / stride + 1;
        let axis = Axis { input, output, filter: 3, stride, padding: dilation, dilation };
        Convolution { images: 64, groups: 32, channels: 4, filters: 4, height: axis, width: axis }
    }

    #[test]
    fn usual_groups_are_cut_into_tiles_that_fit() {
        for problem in [of(56, 1, 1), of(56, 2, 1), of(28, 1, 2)] {
            for pass in [Of::Results, Of::InputsGradient, Of::FiltersGradient] {
                let (grouped, blocks) = cut(&problem, pass, AT_ONCE, SHARED).expect("a tile");
                let bytes = match pass {
                    Of::FiltersGradient => grouped.weight_shared_bytes(grouped.met()),
                    Of::Results | Of::InputsGradient => grouped.shared_bytes(grouped.met()),
                };
                assert!(bytes <= SHARED && blocks > 0, "{problem:?}: {pass:?}");
            }
        }
    }

    /// Every call of a convolution looks for its tile again, so none is looked at twice.
    #[test]
    fn sides_are_tried_once_up_to_the_whole_axis() {
        let most = SIDES[SIDES.len() - 1];
        assert_eq!(sides(14).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 7, 14]);
        for count in [1, 2, 13, 56, 224, 256, 300, 100_000] {
            let tried: Vec<_> = sides(count).collect();
            assert!(tried.is_sorted_by(|a, b| a < b), "{count}: {tried:?}");
            assert!(tried.contains(&count) || count > most, "{count}: {tried:?}");
            assert!(tried.iter().all(|&side| side <= count.min(most)), "{count}: {tried:?}");
        }
    }

    #[test]
    fn nothing_fits_into_too_little_shared_memory() {
        assert!(cut(&of(56, 1, 1), Of::Results, AT_ONCE, 64).is_none());
    }
}
