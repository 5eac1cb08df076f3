//! From the numbers of parts to those of groups, by a warp a group or a channel, in f64.

use super::{Channels, THREADS, divided};
use crate::function::narrow;
use cuda_std::{KernelArgs, kernel, thread};
use half::{bf16, f16};
use primitives::element::InF32;
use primitives::grid::begin;
use primitives::math::single::rsqrt;
use primitives::warp::{LANES, fold_sections};

/// Groups of a block.
pub const WARPS: u32 = THREADS / LANES;

/// The numbers of parts.
#[derive(Clone, Copy)]
struct Parts<'a> {
    plan: &'a Channels,
    partials: *const f32,
}

/// A place in the numbers of parts.
#[derive(Clone, Copy)]
struct At {
    image: u32,
    part: u32,
    channel: u32,
}

impl Parts<'_> {
    /// Parts of a group.
    #[inline(always)]
    const fn of_group(&self) -> u32 {
        let all = self.plan.parts * self.plan.group;
        if self.plan.is_joined == 0 { all } else { all * self.plan.images }
    }

    /// The `index`-th part of a group.
    #[inline(always)]
    const fn at(&self, group: u32, index: u32) -> At {
        let plan = self.plan;
        let [row, channel] = divided(index, plan.group);
        if plan.is_joined == 0 {
            let [image, of_image] = divided(group, plan.of_image());
            return At { image, part: row, channel: of_image * plan.group + channel };
        }
        let [image, part] = divided(row, plan.parts);
        At { image, part, channel: group * plan.group + channel }
    }

    /// # Safety
    /// The part exists.
    #[inline(always)]
    unsafe fn number(&self, at: At, which: usize) -> f64 {
        let row = at.image as usize * self.plan.parts as usize + at.part as usize;
        let index = row * self.plan.channels as usize + at.channel as usize;
        // SAFETY: the caller's promise.
        f64::from(unsafe { *self.partials.add(which * self.plan.partials() + index) })
    }

    /// The sum of a function of all parts `0..count`, which each lane gets.
    ///
    /// # Safety
    /// All lanes of the warp call it with the same count.
    #[inline(always)]
    unsafe fn sum(&self, count: u32, lane: u32, term: impl Fn(u32) -> f64) -> f64 {
        let (mut sum, mut index) = (0.0, lane);
        while index < count {
            sum += term(index);
            index += LANES;
        }
        // SAFETY: the caller's promise.
        unsafe { fold_sections(sum, LANES, |a, b| a + b) }
    }
}

/// The group or channel of the calling thread's warp, and the lane.
#[inline(always)]
fn place() -> [u32; 2] {
    begin(|| {
        let thread = thread::thread_idx_x();
        [thread::block_idx_x() * WARPS + thread / LANES, thread % LANES]
    })
}

/// Statistics of batch norm that go on from one step to the next; null pointers: none.
#[repr(C)]
#[derive(Clone, Copy, Debug, KernelArgs)]
pub struct Running {
    /// Of each channel.
    pub mean: *mut f32,
    /// Of each channel, with a correction of 1.
    pub variance: *mut f32,
    /// The share of the new ones.
    pub momentum: f64,
    /// 1 over the numbers of a group.
    pub share: f64,
    /// 1 over one fewer.
    pub corrected: f64,
    /// Is added before the root.
    pub eps: f64,
}

/// The mean of each group and the inverse of its deviation, from the numbers of its parts; and the running
/// statistics.
///
/// # Safety
/// `partials` are what the sums of the plan left; `moments` has two numbers for each group, and so has
/// `running`, unless its pointers are null. A warp for each group, in blocks of [`THREADS`] threads.
#[kernel(launch_bounds(THREADS))]
pub unsafe fn channel_moments(plan: Channels, running: Running, partials: *const f32, moments: *mut f32) {
    let [group, lane] = place();
    if group >= plan.groups() {
        return;
    }
    let parts = Parts { plan: &plan, partials };
    let count = parts.of_group();
    // SAFETY: the caller's promise; the whole warp has the same group.
    unsafe {
        let mean = parts.sum(count, lane, |index| {
            let at = parts.at(group, index);
            f64::from(plan.len(at.part)) * parts.number(at, 0)
        }) * running.share;
        let squares = parts.sum(count, lane, |index| {
            let at = parts.at(group, index);
            let distance = parts.number(at, 0) - mean;
            parts.number(at, 1) + f64::from(plan.len(at.part)) * distance * distance
        });
        if lane > 0 {
            return;
        }
        let (group, groups) = (group as usize, plan.groups() as usize);
        *moments.add(group) = mean as f32;
        *moments.add(groups + group) = rsqrt((squares * running.share + running.eps) as f32);
        if !running.mean.is_null() {
            let step = |old: *mut f32, new: f64| {
                let at = old.add(group);
                *at = (f64::from(*at) + running.momentum * (new - f64::from(*at))) as f32;
            };
            step(running.mean, mean);
            step(running.variance, squares * running.corrected);
        }
    }
}

/// Numbers of the groups, by which elements are mapped and gradients made.
#[repr(C)]
#[derive(Clone, Copy, Debug, KernelArgs)]
pub struct Gradients {
    /// A mean for each group, and behind them the inverse of each one's deviation; or, apart, variances.
    pub means: *const f32,
    /// The second of them.
    pub scales: *const f32,
    /// Means over each group of `g = dy weight`, and behind them those of `g` times the normalised elements.
    pub of_groups: *mut f32,
    /// Added to variances before the root.
    pub eps: f32,
    /// 1 when the scales are variances, else 0.
    pub of_variances: u32,
    /// 1 over the numbers of a group.
    pub share: f64,
}

impl Gradients {
    /// The inverse of a group's deviation.
    ///
    /// # Safety
    /// The group exists.
    #[inline(always)]
    pub(super) unsafe fn factor(&self, group: u32) -> f32 {
        // SAFETY: the caller's promise.
        let scale = unsafe { *self.scales.add(group as usize) };
        if self.of_variances != 0 { rsqrt(scale + self.eps) } else { scale }
    }
}

/// A warp's group, or the channel of one behind the groups.
///
/// # Safety
/// As for the entry points.
#[inline(always)]
unsafe fn gradients<T: InF32>(
    plan: &Channels,
    of: &Gradients,
    partials: *const f32,
    weight: *const T,
    outputs: [*mut T; 2],
) {
    let [number, lane] = place();
    let (parts, groups) = (Parts { plan, partials }, plan.groups());
    // SAFETY: the caller's promise; the whole warp has the same group or channel.
    unsafe {
        if number < groups {
            if of.of_groups.is_null() {
                return;
            }
            let mean = |which: usize| {
                parts.sum(parts.of_group(), lane, |index| {
                    let at = parts.at(number, index);
                    let weight =
                        if weight.is_null() { 1.0 } else { T::widen([*weight.add(at.channel as usize)])[0] };
                    parts.number(at, which) * f64::from(weight)
                }) * of.share
            };
            let (of_g, of_dg) = (mean(0), mean(1));
            if lane == 0 {
                *of.of_groups.add(number as usize) = of_g as f32;
                *of.of_groups.add((groups + number) as usize) = (of_dg * f64::from(of.factor(number))) as f32;
            }
            return;
        }
        let channel = number - groups;
        if channel >= plan.channels {
            return;
        }
        let place = |index: u32| {
            let [image, part] = divided(index, plan.parts);
            At { image, part, channel }
        };
        let count = plan.images * plan.parts;
        let by_weight = parts.sum(count, lane, |index| {
            let at = place(index);
            parts.number(at, 1) * f64::from(of.factor(plan.group_of(at.image, channel)))
        });
        let by_bias = parts.sum(count, lane, |index| parts.number(place(index), 0));
        if lane == 0 {
            for (output, sum) in [(outputs[0], by_weight), (outputs[1], by_bias)] {
                if !output.is_null() {
                    *output.add(channel as usize) = narrow::<T, 1>([sum as f32])[0];
                }
            }
        }
    }
}

macro_rules! gradients {
    ($($name:ident $ty:ident;)*) => { $(
        /// The means that gradients by elements need, of each group, and the gradients by weight and bias.
        ///
        /// # Safety
        /// `partials` are what the sums of the plan left of a gradient; `of` has numbers for each group, and
        /// room for two unless that is null. `weight`, `of_weight` and `of_bias` are null or hold a number
        /// for each channel. A warp for each group and, behind them, for each channel; blocks of
        /// [`THREADS`].
        #[kernel(launch_bounds(THREADS))]
        pub unsafe fn $name(
            plan: Channels,
            of: Gradients,
            partials: *const f32,
            weight: *const $ty,
            of_weight: *mut $ty,
            of_bias: *mut $ty,
        ) {
            // SAFETY: the caller's promise.
            unsafe { gradients::<$ty>(&plan, &of, partials, weight, [of_weight, of_bias]) }
        }
    )* };
}

gradients! { channel_gradients_f32 f32; channel_gradients_f16 f16; channel_gradients_bf16 bf16; }
