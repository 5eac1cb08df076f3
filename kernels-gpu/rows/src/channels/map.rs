//! The last pass: each element from its own, the gradient's, and the numbers of its channel.

use super::finish::Gradients;
use super::{Channels, Columns, Strip, THREADS, UNROLL, load, widen};
use crate::direct::{Span, elements};
use crate::function::narrow;
use cuda_std::{kernel, thread};
use half::{bf16, f16};
use primitives::access::{self, VECTOR_BYTES, Words};
use primitives::element::InF32;
use primitives::grid::begin;
use primitives::unroll;

/// `(x - mean) slope + offset + dy gain`, of `N` neighbours.
#[derive(Clone, Copy)]
struct Line<const N: usize> {
    mean: [f32; N],
    slope: [f32; N],
    offset: [f32; N],
    gain: [f32; N],
}

/// Numbers that the lines of channels are made of.
#[derive(Clone, Copy)]
struct Source<'a, T> {
    plan: &'a Channels,
    of: &'a Gradients,
    weight: *const T,
    bias: *const T,
    has_dy: bool,
}

impl<T: InF32> Source<'_, T> {
    /// The number of a channel, or what stands for one that is not there.
    ///
    /// # Safety
    /// The channel exists.
    #[inline(always)]
    unsafe fn shared(of: *const T, channel: u32, without: f32) -> f32 {
        // SAFETY: the caller's promise.
        if of.is_null() { without } else { unsafe { T::widen([*of.add(channel as usize)])[0] } }
    }

    /// Mean, slope, offset and gain of a channel.
    ///
    /// # Safety
    /// The channel exists.
    #[inline(always)]
    unsafe fn channel(&self, image: u32, channel: u32) -> [f32; 4] {
        let group = self.plan.group_of(image, channel);
        // SAFETY: the caller's promise.
        unsafe {
            let (mean, factor) = (*self.of.means.add(group as usize), self.of.factor(group));
            let weight = Self::shared(self.weight, channel, 1.0);
            if !self.has_dy {
                return [mean, factor * weight, Self::shared(self.bias, channel, 0.0), 0.0];
            }
            if self.of.of_groups.is_null() {
                return [mean, 0.0, 0.0, factor * weight];
            }
            let of_g = *self.of.of_groups.add(group as usize);
            let of_zg = *self.of.of_groups.add((self.plan.groups() + group) as usize);
            [mean, -(factor * factor * of_zg), -(factor * of_g), factor * weight]
        }
    }

    /// Those of so many channels side by side.
    ///
    /// # Safety
    /// They exist.
    #[inline(always)]
    unsafe fn line<const N: usize>(&self, image: u32, channel: u32) -> Line<N> {
        let zeros = [0.0; N];
        let mut line = Line { mean: zeros, slope: zeros, offset: zeros, gain: zeros };
        // Copied out: the arrays would be in local memory.
        unroll!(I in 0..8, {
            if I < N {
                // SAFETY: the caller's promise.
                let numbers = unsafe { self.channel(image, channel + I as u32) };
                [line.mean[I], line.slope[I], line.offset[I], line.gain[I]] = numbers;
            }
        });
        line
    }
}

/// The tensors of a launch.
#[derive(Clone, Copy)]
struct Tensors<T> {
    x: *const T,
    /// Null in the forward pass.
    dy: *const T,
    y: *mut T,
}

impl<T: InF32> Tensors<T> {
    /// # Safety
    /// `N` elements from there on are readable, and begin at a boundary of theirs.
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

    /// # Safety
    /// As for [`load`](Self::load), and the thread has these elements to itself.
    #[inline(always)]
    unsafe fn store<const N: usize>(&self, line: &Line<N>, at: u64, [x, dy]: [Words; 2]) {
        let (x, dy, mut y) = (widen::<T, N>(x), widen::<T, N>(dy), [0.0; N]);
        for i in 0..N {
            y[i] = (x[i] - line.mean[i]) * line.slope[i] + line.offset[i];
            if !self.dy.is_null() {
                y[i] += dy[i] * line.gain[i];
            }
        }
        // SAFETY: the caller's promise.
        unsafe { access::store(self.y.add(at as usize), narrow::<T, N>(y)) }
    }

    /// Writes `count` pieces of `N` elements, `step` elements from one to the next, from `at` on.
    ///
    /// # Safety
    /// As for [`store`](Self::store), for all of them.
    #[inline(always)]
    unsafe fn map<const N: usize>(&self, line: &Line<N>, mut at: u64, step: u64, mut count: u32) {
        // SAFETY: the caller's promise.
        unsafe {
            while count >= UNROLL as u32 {
                // All are under way before the first is used.
                let mut four = [[Words::default(); 2]; UNROLL];
                unroll!(K in 0..4, { four[K] = self.load::<N>(at + K as u64 * step); });
                unroll!(K in 0..4, { self.store(line, at + K as u64 * step, four[K]); });
                at += UNROLL as u64 * step;
                count -= UNROLL as u32;
            }
            while count > 0 {
                self.store(line, at, self.load::<N>(at));
                at += step;
                count -= 1;
            }
        }
    }

    /// A team's part of a channel whose positions are neighbours.
    ///
    /// # Safety
    /// As for the entry points.
    #[inline(always)]
    unsafe fn strip<const N: usize>(&self, plan: &Channels, strip: Strip, source: &Source<'_, T>) {
        let Strip { image, channel, member, len, first, .. } = strip;
        let bits = plan.team.trailing_zeros();
        let address = |of: *const T| if of.is_null() { 0 } else { of.wrapping_add(first as usize) as usize };
        let [x, dy, y] = [self.x, self.dy, self.y.cast_const()].map(address);
        let differs = (x ^ y) | if self.dy.is_null() { 0 } else { x ^ dy };
        let span = if differs.is_multiple_of(VECTOR_BYTES) {
            Span::of(self.x.wrapping_add(first as usize), len)
        } else {
            Span::of_elements(len)
        };
        // SAFETY: elements of the part.
        unsafe {
            let [mean, slope, offset, gain] = source.channel(image, channel);
            let wide = Line { mean: [mean; N], slope: [slope; N], offset: [offset; N], gain: [gain; N] };
            let at = first + u64::from(span.vector::<T>(member));
            self.map(&wide, at, u64::from(elements::<T>()) << bits, super::count(span.vectors, member, bits));
            let narrow = Line { mean: [mean], slope: [slope], offset: [offset], gain: [gain] };
            let mut edge = member;
            while edge < span.edges {
                self.map(&narrow, first + u64::from(span.edge::<T>(edge)), 0, 1);
                edge += plan.team;
            }
        }
    }

    /// A thread's positions of `N` channels that are neighbours.
    ///
    /// # Safety
    /// As for the entry points.
    #[inline(always)]
    unsafe fn columns<const N: usize>(&self, plan: &Channels, at: [u32; 2], source: &Source<'_, T>) {
        let columns = Columns::of(plan, at, N as u32);
        if columns.channel >= plan.channels {
            return;
        }
        let bits = columns.rows.trailing_zeros();
        let count = super::count(plan.len(columns.part), columns.row, bits);
        // SAFETY: elements of the part; a thread has its own.
        unsafe {
            let line = source.line::<N>(columns.image, columns.channel);
            self.map(&line, columns.first(plan), u64::from(plan.channels) << bits, count);
        }
    }
}

macro_rules! maps {
    ($($name:ident $ty:ident;)*) => { $(
        /// The normalised elements, times a weight and plus a bias of their channel; with a gradient `dy` by
        /// those, the gradient by `x`.
        ///
        /// # Safety
        /// `x` and `y` hold the plan's elements, and so does `dy` unless it is null; `y` overlaps none but
        /// that it may be one of them. `of` has numbers for each group; null means of gradients are zeros.
        /// `weight` and `bias` are null or hold a number for each channel. As many blocks as the plan says,
        /// of [`THREADS`] threads.
        #[kernel(launch_bounds(THREADS))]
        pub unsafe fn $name(
            plan: Channels,
            of: Gradients,
            x: *const $ty,
            dy: *const $ty,
            weight: *const $ty,
            bias: *const $ty,
            y: *mut $ty,
        ) {
            const N: usize = VECTOR_BYTES / size_of::<$ty>();
            let at = begin(|| [thread::block_idx_x(), thread::thread_idx_x()]);
            let source = Source { plan: &plan, of: &of, weight, bias, has_dy: !dy.is_null() };
            let tensors = Tensors { x, dy, y };
            // SAFETY: the caller's promise.
            unsafe {
                if plan.is_last == 0 {
                    tensors.strip::<N>(&plan, Strip::of(&plan, at), &source);
                } else if plan.is_wide == 0 {
                    tensors.columns::<1>(&plan, at, &source);
                } else {
                    tensors.columns::<N>(&plan, at, &source);
                }
            }
        }
    )* };
}

maps! { channel_map_f32 f32; channel_map_f16 f16; channel_map_bf16 bf16; }
