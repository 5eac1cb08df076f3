//! Pooling over windows of positions: the largest number or the mean, and their gradients.
//!
//! A thread has a position and a unit of channels: 16 bytes of them where rows of channels are whole, aligned
//! units, else one. It reads the window's positions one after the other; a gradient reads the results whose
//! windows have its position, so that nothing is added by atomics and the same bits come out in every run.
//!
//! | kernel | bytes a result (a gradient) of 16 bits, without what caches save |
//! |---|---|
//! | `conv_pool_max` | 2 a tap, 2 for the result, 4 for the place of the largest |
//! | `conv_pool_max_backward` | 6 a window with the position, 2 for the gradient |
//! | `conv_pool_average` | 2 a tap, 2 for the result |
//! | `conv_pool_average_backward` | 2 a window with the position, 2 for the gradient |

use cuda_std::{kernel, thread, vector};
use half::{bf16, f16};
use primitives::element::Element;
use primitives::unroll;

use crate::problem::{Axis, Odometer};
use crate::weight::Stored;

/// Threads of a block.
pub const THREADS: u32 = 256;
/// The place of a window that lies in padding.
pub const NOWHERE: i32 = -1;
/// Elements of a unit of 16 bits, and of f32.
const HALVES: usize = 8;
const WORDS: usize = 4;

/// Windows over `[images, height, width, channels]`, dense. Host: fewer than 2^31 positions, and threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Pool {
    /// Images.
    pub images: u32,
    /// Channels.
    pub channels: u32,
    /// Rows.
    pub height: Axis,
    /// Columns.
    pub width: Axis,
    /// A [`Stored`].
    pub stored: u32,
    /// 1: all units of channels are of 16 bytes, and aligned.
    pub is_wide: u32,
    /// 1: a mean counts padding. Gradients of means and means alone read it.
    pub counts_padding: u32,
}

impl Pool {
    /// Threads: for each unit of results or, backward, of the input.
    pub const fn threads(&self, is_backward: bool) -> u64 {
        let (down, across) = if is_backward {
            (self.height.input, self.width.input)
        } else {
            (self.height.output, self.width.output)
        };
        self.images as u64 * down as u64 * across as u64 * self.units() as u64
    }

    const fn units(&self) -> u32 {
        if self.is_wide == 0 { self.channels } else { self.channels / self.unit() }
    }

    const fn unit(&self) -> u32 {
        if self.is_wide == 0 {
            1
        } else if self.stored == Stored::F32 as u32 {
            WORDS as u32
        } else {
            HALVES as u32
        }
    }
}

/// Positions of the input from the window's `first` on, as many as are in the image, and the first tap of
/// them.
#[inline(always)]
fn positions(axis: &Axis, window: u32) -> [u32; 2] {
    let (start, dilation) = (window * axis.stride, axis.dilation.max(1));
    let skipped = axis.padding.saturating_sub(start).div_ceil(dilation);
    let first = (start + skipped * dilation).wrapping_sub(axis.padding);
    let (left, inside) =
        (axis.filter.saturating_sub(skipped), axis.input.saturating_sub(first).div_ceil(dilation));
    [first, if inside < left { inside } else { left }]
}

/// The first window that has a position, and the one behind the last; those between may miss it where taps
/// are apart.
#[inline(always)]
fn windows(axis: &Axis, position: u32) -> [u32; 2] {
    let (reach, stride) = (position + axis.padding, axis.stride.max(1));
    let before = axis.window() as u32;
    let first = if reach < before { 0 } else { (reach - before) / stride + 1 };
    let end = reach / stride + 1;
    [first, if end < axis.output { end } else { axis.output }]
}

/// Numbers of a thread.
///
/// # Safety
/// `N` elements from `from` on are readable, and aligned as a whole.
#[inline(always)]
unsafe fn read<T: Element<Wide = f32>, const N: usize>(from: *const T) -> [f32; N] {
    // SAFETY: the caller's word; every bit pattern is a number.
    T::widen(unsafe { vector::load_array(from) })
}

/// # Safety
/// As [`read`], for writes.
#[inline(always)]
unsafe fn write<T: Element<Wide = f32>, const N: usize>(to: *mut T, values: [f32; N]) {
    // SAFETY: the caller's word.
    unsafe { vector::store_array(to, T::narrow(values)) }
}

/// A thread's place: a position of what it computes, as digits, and its first element there.
struct Place {
    at: Odometer,
    element: u64,
    channel: u32,
}

/// The thread's, if it has any.
#[inline(always)]
fn place(pool: &Pool, is_backward: bool) -> Option<Place> {
    let number = thread::block_idx_x() * THREADS + thread::thread_idx_x();
    if u64::from(number) >= pool.threads(is_backward) {
        return None;
    }
    let units = pool.units().max(1);
    let (position, channel) = (number / units, number % units * pool.unit());
    let (down, across) = if is_backward {
        (pool.height.input, pool.width.input)
    } else {
        (pool.height.output, pool.width.output)
    };
    let element = u64::from(position) * u64::from(pool.channels) + u64::from(channel);
    Some(Place { at: Odometer::new(position, down, across), element, channel })
}

/// Element of the input (or the result) of an image, a row and a column.
#[inline(always)]
fn element(pool: &Pool, sides: [u32; 2], image: u32, at: [u32; 2], channel: u32) -> usize {
    let position = (image * sides[0] + at[0]) * sides[1] + at[1];
    (u64::from(position) * u64::from(pool.channels) + u64::from(channel)) as usize
}

/// # Safety
/// As the kernels.
#[inline(always)]
unsafe fn max<T: Element<Wide = f32>, const N: usize>(pool: &Pool, x: *const T, y: *mut T, places: *mut i32) {
    let Some(Place { at, element: to, channel }) = place(pool, false) else { return };
    let Pool { height, width, .. } = pool;
    let [[top, rows], [left, columns]] = [positions(height, at.middle), positions(width, at.low)];
    let mut largest = [f32::NEG_INFINITY; N];
    let mut found = [NOWHERE; N];
    // SAFETY: positions of the image; the result's elements are the thread's alone.
    unsafe {
        for row in 0..rows {
            for column in 0..columns {
                let (h, w) = (top + row * height.dilation, left + column * width.dilation);
                let from = element(pool, [height.input, width.input], at.high, [h, w], channel);
                let values = read::<T, N>(x.add(from));
                let here = (h * width.input + w) as i32;
                unroll!(I in 0..8, { if I < N {
                    // The first of equals, and the first NaN.
                    let is_more = values[I] > largest[I] || (values[I].is_nan() && !largest[I].is_nan());
                    if is_more || found[I] == NOWHERE {
                        largest[I] = values[I];
                        found[I] = here;
                    }
                } });
            }
        }
        write::<T, N>(y.add(to as usize), largest);
        vector::store_array(places.add(to as usize), found);
    }
}

/// # Safety
/// As the kernels.
#[inline(always)]
unsafe fn max_backward<T: Element<Wide = f32>, const N: usize>(
    pool: &Pool,
    gradient: *const T,
    places: *const i32,
    dx: *mut T,
) {
    let Some(Place { at, element: to, channel }) = place(pool, true) else { return };
    let Pool { height, width, .. } = pool;
    let [[top, bottom], [left, right]] = [windows(height, at.middle), windows(width, at.low)];
    let here = (at.middle * width.input + at.low) as i32;
    let mut sums = [0.0; N];
    // SAFETY: results of the image; the gradient's elements are the thread's alone.
    unsafe {
        for p in top..bottom {
            for q in left..right {
                let from = element(pool, [height.output, width.output], at.high, [p, q], channel);
                let values = read::<T, N>(gradient.add(from));
                let found: [i32; N] = vector::load_array(places.add(from));
                unroll!(I in 0..8, { if I < N { sums[I] += if found[I] == here { values[I] } else { 0.0 }; } });
            }
        }
        write::<T, N>(dx.add(to as usize), sums);
    }
}

/// The number that a window's sum is divided by.
#[inline(always)]
fn divisor(pool: &Pool, rows: u32, columns: u32) -> f32 {
    let all = pool.height.filter * pool.width.filter;
    let count = if pool.counts_padding == 0 { rows * columns } else { all };
    if count == 0 { 1.0 } else { count as f32 }
}

/// # Safety
/// As the kernels.
#[inline(always)]
unsafe fn average<T: Element<Wide = f32>, const N: usize>(pool: &Pool, x: *const T, y: *mut T) {
    let Some(Place { at, element: to, channel }) = place(pool, false) else { return };
    let Pool { height, width, .. } = pool;
    let [[top, rows], [left, columns]] = [positions(height, at.middle), positions(width, at.low)];
    let mut sums = [0.0; N];
    // SAFETY: positions of the image; the result's elements are the thread's alone.
    unsafe {
        for row in 0..rows {
            for column in 0..columns {
                let at_input = [top + row, left + column];
                let from = element(pool, [height.input, width.input], at.high, at_input, channel);
                let values = read::<T, N>(x.add(from));
                unroll!(I in 0..8, { if I < N { sums[I] += values[I]; } });
            }
        }
        let divisor = divisor(pool, rows, columns);
        unroll!(I in 0..8, { if I < N { sums[I] /= divisor; } });
        write::<T, N>(y.add(to as usize), sums);
    }
}

/// # Safety
/// As the kernels.
#[inline(always)]
unsafe fn average_backward<T: Element<Wide = f32>, const N: usize>(
    pool: &Pool,
    gradient: *const T,
    dx: *mut T,
) {
    let Some(Place { at, element: to, channel }) = place(pool, true) else { return };
    let Pool { height, width, .. } = pool;
    let [[top, bottom], [left, right]] = [windows(height, at.middle), windows(width, at.low)];
    let mut sums = [0.0; N];
    // SAFETY: results of the image; the gradient's elements are the thread's alone.
    unsafe {
        for p in top..bottom {
            for q in left..right {
                let from = element(pool, [height.output, width.output], at.high, [p, q], channel);
                let values = read::<T, N>(gradient.add(from));
                let divisor = divisor(pool, positions(height, p)[1], positions(width, q)[1]);
                unroll!(I in 0..8, { if I < N { sums[I] += values[I] / divisor; } });
            }
        }
        write::<T, N>(dx.add(to as usize), sums);
    }
}

/// Runs the function for the type and the unit.
macro_rules! by_type {
    ($pool:expr, $function:ident($($pointer:expr),+)) => {
        if $pool.stored == Stored::F32 as u32 {
            if $pool.is_wide == 0 { $function::<f32, 1>(&$pool, $($pointer.cast()),+) } else { $function::<f32, WORDS>(&$pool, $($pointer.cast()),+) }
        } else if $pool.stored == Stored::F16 as u32 {
            if $pool.is_wide == 0 { $function::<f16, 1>(&$pool, $($pointer.cast()),+) } else { $function::<f16, HALVES>(&$pool, $($pointer.cast()),+) }
        } else if $pool.is_wide == 0 {
            $function::<bf16, 1>(&$pool, $($pointer.cast()),+)
        } else {
            $function::<bf16, HALVES>(&$pool, $($pointer.cast()),+)
        }
    };
}

/// The largest of each window, and its place in its image; NaN if there is one.
///
/// # Safety
/// `x` is valid for reads of the input, `y` and `places` for writes of as many elements as there are results,
/// apart from all else, aligned as `is_wide` says. The grid has [`Pool::threads`] threads.
#[kernel(launch_bounds(THREADS))]
pub unsafe fn conv_pool_max(pool: Pool, x: *const u8, y: *mut u8, places: *mut i32) {
    // SAFETY: the caller's contract.
    unsafe { by_type!(pool, max(x, y, places)) }
}

/// The gradient of [`conv_pool_max`](fn@conv_pool_max)'s input: each result's goes to the place of its
/// largest.
///
/// # Safety
/// As there, with `gradient` and `places` of the results, and `dx` of the input.
#[kernel(launch_bounds(THREADS))]
pub unsafe fn conv_pool_max_backward(pool: Pool, gradient: *const u8, places: *const i32, dx: *mut u8) {
    // SAFETY: the caller's contract.
    unsafe { by_type!(pool, max_backward(gradient, places, dx)) }
}

/// The mean of each window. Taps are side by side.
///
/// # Safety
/// As [`conv_pool_max`](fn@conv_pool_max).
#[kernel(launch_bounds(THREADS))]
pub unsafe fn conv_pool_average(pool: Pool, x: *const u8, y: *mut u8) {
    // SAFETY: the caller's contract.
    unsafe { by_type!(pool, average(x, y)) }
}

/// The gradient of [`conv_pool_average`](fn@conv_pool_average)'s input.
///
/// # Safety
/// As [`conv_pool_max_backward`](fn@conv_pool_max_backward).
#[kernel(launch_bounds(THREADS))]
pub unsafe fn conv_pool_average_backward(pool: Pool, gradient: *const u8, dx: *mut u8) {
    // SAFETY: the caller's contract.
    unsafe { by_type!(pool, average_backward(gradient, dx)) }
}
