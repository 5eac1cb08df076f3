//! Two numbers of each part of a channel: mean and sum of squared deviations, or two sums for gradients.

use super::{Channels, Columns, Strip, THREADS, UNROLL, count, load, widen};
use crate::direct::{Span, elements};
use cuda_std::{kernel, shared, shared_array, thread};
use half::{bf16, f16};
use primitives::access::{VECTOR_BYTES, Words};
use primitives::element::InF32;
use primitives::grid::begin;
use primitives::moments::Shifted;
use primitives::unroll;
use primitives::warp;

/// Sums of `N` neighbours: of `d` and of `d^2`, where `d = x - centre`; with a gradient of `dy` and `dy d`.
#[derive(Clone, Copy)]
struct Sums<const N: usize> {
    centre: [f32; N],
    first: [f32; N],
    second: [f32; N],
}

impl<const N: usize> Sums<N> {
    #[inline(always)]
    const fn new(centre: [f32; N]) -> Self {
        Self { centre, first: [0.0; N], second: [0.0; N] }
    }

    #[inline(always)]
    fn add(&mut self, x: [f32; N], dy: [f32; N], has_dy: bool) {
        for i in 0..N {
            let d = x[i] - self.centre[i];
            let factor = if has_dy { dy[i] } else { d };
            self.first[i] += factor;
            self.second[i] += factor * d;
        }
    }
}

/// The operands of a launch.
#[derive(Clone, Copy)]
struct Operands<T> {
    x: *const T,
    /// Null without a gradient.
    dy: *const T,
}

impl<T: InF32> Operands<T> {
    /// `N` neighbours of both from an element on; zeros of a gradient that is not there.
    ///
    /// # Safety
    /// They are readable, and begin at a boundary of theirs.
    #[inline(always)]
    unsafe fn load<const N: usize>(&self, at: u64) -> [Words; 2] {
        // SAFETY: the caller's promise.
        unsafe {
            let x = load::<T, N>(self.x.add(at as usize));
            let dy =
                if self.dy.is_null() { Words::default() } else { load::<T, N>(self.dy.add(at as usize)) };
            [x, dy]
        }
    }

    /// Adds `count` pieces of `N` elements, `step` elements from one to the next, from `at` on.
    ///
    /// # Safety
    /// As for [`load`](Self::load), for all of them.
    #[inline(always)]
    unsafe fn add<const N: usize>(&self, sums: &mut Sums<N>, mut at: u64, step: u64, mut count: u32) {
        let has_dy = !self.dy.is_null();
        // SAFETY: the caller's promise.
        unsafe {
            while count >= UNROLL as u32 {
                // All are under way before the first is used.
                let mut four = [[Words::default(); 2]; UNROLL];
                unroll!(K in 0..4, { four[K] = self.load::<N>(at + K as u64 * step); });
                unroll!(K in 0..4, { sums.add(widen::<T, N>(four[K][0]), widen::<T, N>(four[K][1]), has_dy); });
                at += UNROLL as u64 * step;
                count -= UNROLL as u32;
            }
            while count > 0 {
                let [x, dy] = self.load::<N>(at);
                sums.add(widen::<T, N>(x), widen::<T, N>(dy), has_dy);
                at += step;
                count -= 1;
            }
        }
    }
}

/// Where the two numbers of a part's channel go.
#[derive(Clone, Copy)]
struct Partials {
    to: *mut f32,
    /// From the first to the second.
    distance: usize,
}

impl Partials {
    #[inline(always)]
    fn new(plan: &Channels, to: *mut f32) -> Self {
        Self { to, distance: plan.partials() }
    }

    /// # Safety
    /// The part exists, and the thread is the one that writes it.
    #[inline(always)]
    unsafe fn write(&self, plan: &Channels, [image, part, channel]: [u32; 3], [first, second]: [f32; 2]) {
        let row = image as usize * plan.parts as usize + part as usize;
        let at = row * plan.channels as usize + channel as usize;
        // SAFETY: the caller's promise.
        unsafe {
            *self.to.add(at) = first;
            *self.to.add(self.distance + at) = second;
        }
    }
}

/// A team's part of a channel whose positions are neighbours.
///
/// # Safety
/// As for the entry points.
#[inline(always)]
unsafe fn strip<T: InF32, const N: usize>(
    plan: &Channels,
    strip: Strip,
    operands: &Operands<T>,
    means: *const f32,
    partials: Partials,
) {
    let Strip { image, channel, part, member, len, first } = strip;
    let (bits, has_dy) = (plan.team.trailing_zeros(), !operands.dy.is_null());
    // SAFETY: elements of the part; all lanes come to the reductions.
    unsafe {
        let x = operands.x.add(first as usize);
        let is_alike =
            !has_dy || (x as usize ^ operands.dy.add(first as usize) as usize).is_multiple_of(VECTOR_BYTES);
        let span = if is_alike { Span::of(x, len) } else { Span::of_elements(len) };
        let (vectors, edges) = (count(span.vectors, member, bits), count(span.edges, member, bits));
        // The thread's own first element: where it is far from the mean, the variance is as large as what
        // cancels.
        let centre = if has_dy && len > 0 {
            *means.add(plan.group_of(image, channel) as usize)
        } else if vectors > 0 {
            T::widen([*x.add(span.vector::<T>(member) as usize)])[0]
        } else if edges > 0 {
            T::widen([*x.add(span.edge::<T>(member) as usize)])[0]
        } else {
            0.0
        };
        let mut sums = Sums::new([centre; N]);
        let at = first + u64::from(span.vector::<T>(member));
        operands.add(&mut sums, at, u64::from(elements::<T>()) << bits, vectors);
        let (mut others, mut edge) = (Sums::new([centre; 1]), member);
        while edge < span.edges {
            operands.add(&mut others, first + u64::from(span.edge::<T>(edge)), 0, 1);
            edge += plan.team;
        }
        let (mut of_first, mut of_second) = (others.first[0], others.second[0]);
        for i in 0..N {
            of_first += sums.first[i];
            of_second += sums.second[i];
        }
        let both = if has_dy {
            let plus = |a, b| a + b;
            [of_first, of_second].map(|sum| warp::fold_sections(sum, plan.team, plus))
        } else {
            let own = (vectors * elements::<T>() + edges) as f32;
            let own =
                Shifted::<T::Precision> { count: own, shift: centre, sum: of_first, squares: of_second };
            let all = own.reduce_sections(plan.team);
            [all.shift, all.squares]
        };
        if member == 0 && len > 0 {
            partials.write(plan, [image, part, channel], both);
        }
    }
}

/// A block's part of some channels that are neighbours. `slots` is shared memory for two numbers of `N`
/// channels of each thread.
///
/// # Safety
/// As for the entry points.
#[inline(always)]
unsafe fn columns<T: InF32, const N: usize>(
    plan: &Channels,
    [block, thread]: [u32; 2],
    operands: &Operands<T>,
    means: *const f32,
    partials: Partials,
    slots: *mut f32,
) {
    let columns = Columns::of(plan, [block, thread], N as u32);
    let (has_dy, len, bits) = (!operands.dy.is_null(), plan.len(columns.part), columns.rows.trailing_zeros());
    let width = plan.team * N as u32;
    let slot = |row: u32, which: u32, channel: u32| ((row * 2 + which) * width + channel) as usize;
    // SAFETY: elements of the part. A slot is written by one thread before the barrier, and read after it.
    unsafe {
        if columns.channel < plan.channels {
            let (own, first) = (count(len, columns.row, bits), columns.first(plan));
            let mut centre = [0.0; N];
            if has_dy {
                for i in 0..N {
                    centre[i] = *means.add(plan.group_of(columns.image, columns.channel + i as u32) as usize);
                }
            } else if own > 0 {
                centre = widen::<T, N>(operands.load::<N>(first)[0]);
            }
            let mut sums = Sums::new(centre);
            operands.add(&mut sums, first, u64::from(plan.channels) << bits, own);
            for i in 0..N {
                let both = if has_dy {
                    [sums.first[i], sums.second[i]]
                } else {
                    let [sum, squares] = [sums.first[i], sums.second[i]];
                    let own = Shifted::<T::Precision> { count: own as f32, shift: centre[i], sum, squares };
                    let own = own.about_mean();
                    [own.shift, own.squares]
                };
                let channel = columns.channel - columns.slab + i as u32;
                *slots.add(slot(columns.row, 0, channel)) = both[0];
                *slots.add(slot(columns.row, 1, channel)) = both[1];
            }
        }
        thread::sync_threads();
        let mut channel = thread;
        while channel < width && columns.slab + channel < plan.channels {
            let at = |row: u32, which: u32| *slots.add(slot(row, which, channel));
            let rows = if columns.rows < len { columns.rows } else { len };
            let both = if has_dy { added(rows, at) } else { merged(len, rows, bits, at) };
            partials.write(plan, [columns.image, columns.part, columns.slab + channel], both);
            channel += THREADS;
        }
    }
}

/// The sums of all rows.
#[inline(always)]
fn added(rows: u32, at: impl Fn(u32, u32) -> f32) -> [f32; 2] {
    let (mut both, mut row) = ([0.0; 2], 0);
    while row < rows {
        both = [both[0] + at(row, 0), both[1] + at(row, 1)];
        row += 1;
    }
    both
}

/// Mean and squared deviations of all rows (Chan et al. 1979). Means are added as differences from one of
/// them: of equal ones that is exact.
#[inline(always)]
fn merged(len: u32, rows: u32, bits: u32, at: impl Fn(u32, u32) -> f32) -> [f32; 2] {
    let (base, mut sum, mut row) = (at(0, 0), 0.0, 0);
    while row < rows {
        sum += count(len, row, bits) as f32 * (at(row, 0) - base);
        row += 1;
    }
    let mean = base + sum / len as f32;
    let (mut squares, mut row) = (0.0, 0);
    while row < rows {
        let distance = at(row, 0) - mean;
        squares += at(row, 1) + count(len, row, bits) as f32 * distance * distance;
        row += 1;
    }
    [mean, squares]
}

macro_rules! sums {
    ($($name:ident $ty:ident;)*) => { $(
        /// Mean and squared deviations of each part of each channel; with a gradient `dy` the sums of that,
        /// and of that times the distance from the mean of the channel's group.
        ///
        /// # Safety
        /// `x` holds the plan's elements, and `dy` too unless it is null; `means` then has one for each
        /// group. `partials` has room for [`Channels::partials`] numbers twice. As many blocks as the plan
        /// says, of [`THREADS`] threads.
        #[kernel(launch_bounds(THREADS))]
        pub unsafe fn $name(
            plan: Channels,
            x: *const $ty,
            dy: *const $ty,
            means: *const f32,
            partials: *mut f32,
        ) {
            const N: usize = VECTOR_BYTES / size_of::<$ty>();
            let slots = shared::generic(shared_array![f32; 2 * N * THREADS as usize]);
            let at = begin(|| [thread::block_idx_x(), thread::thread_idx_x()]);
            let (operands, partials) = (Operands { x, dy }, Partials::new(&plan, partials));
            // SAFETY: the caller's promise.
            unsafe {
                if plan.is_last == 0 {
                    strip::<$ty, N>(&plan, Strip::of(&plan, at), &operands, means, partials);
                } else if plan.is_wide == 0 {
                    columns::<$ty, 1>(&plan, at, &operands, means, partials, slots);
                } else {
                    columns::<$ty, N>(&plan, at, &operands, means, partials, slots);
                }
            }
        }
    )* };
}

sums! { channel_sums_f32 f32; channel_sums_f16 f16; channel_sums_bf16 bf16; }
