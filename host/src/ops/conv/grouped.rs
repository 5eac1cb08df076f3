//! Convolutions of groups of few channels, by [`conv::grouped`].

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use conv::gather::Gather;
use conv::grouped::gather::{conv_grouped_bf16, conv_grouped_f16};
use conv::grouped::weight::{conv_grouped_weight_bf16, conv_grouped_weight_f16};
use conv::grouped::{BLOCK, Grouped, MOST_SIDE, MOST_SLAB, MOST_TAPS, RESIDENT, THREADS};
use conv::problem::{Convolution, Pass, Walk};
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
use super::{Activation, Algorithm, Fused, MAX_BLOCKS};

/// Positions that are tried along an axis of a tile.
const SIDES: [u32; 15] = [1, 2, 3, 4, 5, 7, 8, 10, 14, 19, 28, 32, 64, 128, 256];
const _: () = assert!(SIDES[SIDES.len() - 1] <= MOST_SIDE);
/// The cost of a tile beside its positions, in positions, guessed: barriers, and the wait for the first
/// bytes.
const OF_TILE: u64 = 48;

/// The pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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
        let (grouped, blocks) = known_cut(&shape, of, device.sm_count * RESIDENT, shared.into())?;
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
        let config = LaunchConfig::new(grid, [THREADS, 1, 1]).with_shared(grouped.shared_bytes() as u32);
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
            .with_shared(grouped.weight_shared_bytes() as u32);
        made(stream, &shape, x.dtype(), |out| {
            // SAFETY: the first launch writes all of it, the second reads it.
            let sums = unsafe {
                DeviceBuffer::<f32>::uninit(stream, shape.elements().saturating_mul(parts as usize))?
            };
            // SAFETY: `new` takes such groups and taps alone, and `cut` such tiles; the operands have the
            // sides that the problem says, and lie at whole units; the sums are as long as the parts, of
            // which each block along y has one; grid, block and shared memory are the kernel's.
            unsafe { (self.kernels.sums)(stream, config, grouped, [&x, &gradient], &sums)? };
            add_parts::<T>(stream, parts_of::<T>(of, &of.shape, parts), &sums, out)
        })
    }
}

/// Results of [`cut`] by its arguments.
type Cuts = HashMap<(Convolution, Of, u32, u64), Option<(Grouped, u32)>>;
/// Cuts that are remembered, at most.
const MOST_KNOWN: usize = 1024;

/// As [`cut`], which tries hundreds of tiles, once for each problem.
fn known_cut(problem: &Convolution, of: Of, at_once: u32, shared: u64) -> Option<(Grouped, u32)> {
    static KNOWN: Mutex<Option<Cuts>> = Mutex::new(None);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_default();
    let key = (*problem, of, at_once, shared);
    if let Some(cut) = known.get(&key) {
        return *cut;
    }
    if known.len() >= MOST_KNOWN {
        known.clear();
    }
    *known.entry(key).or_insert(cut(problem, of, at_once, shared))
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
    // Positions of the class with the most.
    let [rows, columns] = [problem.height, problem.width].map(|axis| {
        let walk = if is_backward { Walk::backward(&axis, 0) } else { Walk::forward(&axis) };
        walk.count
    });
    // Sides of equal length, as long as those that are tried at most.
    let side = |count: u32, most: u32| count.div_ceil(count.div_ceil(most));
    let mut best: Option<(u64, Grouped)> = None;
    for most_rows in SIDES {
        for most_columns in SIDES {
            let grouped = Grouped { tile: [side(rows, most_rows), side(columns, most_columns)], ..whole };
            let bytes = match of {
                Of::FiltersGradient => grouped.weight_shared_bytes(),
                Of::Results | Of::InputsGradient => grouped.shared_bytes(),
            };
            if bytes > shared {
                break;
            }
            let time = grouped.tiles().div_ceil(blocks) * (grouped.met() + grouped.positions() + OF_TILE);
            if best.is_none_or(|(least, _)| time < least) {
                best = Some((time, grouped));
            }
            if most_columns >= columns {
                break; // Longer ones are the same.
            }
        }
        if most_rows >= rows {
            break;
        }
    }
    best.map(|(_, grouped)| (grouped, grouped.tiles().min(blocks) as u32))
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
                    Of::FiltersGradient => grouped.weight_shared_bytes(),
                    Of::Results | Of::InputsGradient => grouped.shared_bytes(),
                };
                assert!(bytes <= SHARED && blocks > 0, "{problem:?}: {pass:?}");
            }
        }
    }

    #[test]
    fn nothing_fits_into_too_little_shared_memory() {
        assert!(cut(&of(56, 1, 1), Of::Results, AT_ONCE, 64).is_none());
    }
}
