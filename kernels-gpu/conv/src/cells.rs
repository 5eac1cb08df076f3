//! Inputs' gradients whose classes of positions lie side by side: sums that are not finite, from their own
//! taps alone.
//!
//! With strides, few channels are computed as one product for a whole cell of the strides' size, whose
//! filters have zeros where a class has no tap. A zero times NaN or infinity is NaN, so such a number of
//! the gradient comes into positions that no window of its own has. [`conv_cells`](fn@conv_cells) reads
//! what was computed once, and computes again what is not finite: a thread has 16 bytes, and most threads
//! end there.

use cuda_std::{kernel, thread, vector};
use half::{bf16, f16};
use primitives::element::Element;
use primitives::unroll;

use crate::problem::{Convolution, Walk};
use crate::weight::Stored;

/// Threads of a block.
pub const THREADS: u32 = 256;
/// Elements of 16 bytes, of 16 bits and of f32.
const HALVES: usize = 8;
const WORDS: usize = 4;

/// A gradient by cells: `[images, rows, columns, classes down, classes across, channels]`. Host: both sides
/// of the input are multiples of the strides, and there are fewer than 2^31 elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Cells {
    /// The convolution, of one group.
    pub problem: Convolution,
    /// Elements of the result's gradient from a position to the next.
    pub row: u32,
    /// A [`Stored`].
    pub stored: u32,
}

impl Cells {
    /// Elements.
    const fn elements(&self) -> u32 {
        let Convolution { images, channels, height, width, .. } = self.problem;
        images * height.input * width.input * channels
    }

    /// Blocks of threads, each with 16 bytes.
    pub const fn blocks(&self) -> u32 {
        let unit = if self.stored == Stored::F32 as u32 { WORDS } else { HALVES };
        self.elements().div_ceil(unit as u32 * THREADS)
    }
}

/// Takes the lowest digit off a number.
#[inline(always)]
const fn take_digit(number: &mut u32, end: u32) -> u32 {
    let end = if end == 0 { 1 } else { end };
    let digit = *number % end;
    *number /= end;
    digit
}

/// The sum of an element's own taps.
///
/// # Safety
/// As the kernel, of an element that there is.
#[inline(always)]
unsafe fn sum<T: Element<Wide = f32>>(
    cells: &Cells,
    gradient: *const T,
    filters: *const T,
    element: u32,
) -> f32 {
    let Convolution { channels, filters: count, height, width, .. } = cells.problem;
    let mut rest = element;
    let channel = take_digit(&mut rest, channels);
    let classes = [take_digit(&mut rest, width.stride), take_digit(&mut rest, height.stride)];
    let [across, down] = [Walk::backward(&width, classes[0]), Walk::backward(&height, classes[1])];
    let at = [take_digit(&mut rest, across.count), take_digit(&mut rest, down.count)];
    let read = |walk: &Walk, at: u32, tap: u32| {
        ((at * walk.multiply) as i32 + walk.from + tap as i32 * walk.advance) as u32
    };
    let mut sum = 0.0;
    for r in 0..down.taps {
        for s in 0..across.taps {
            let [y, x] = [read(&down, at[1], r), read(&across, at[0], s)];
            if y >= down.limit || x >= across.limit {
                continue;
            }
            let position = (u64::from(rest) * u64::from(down.limit) + u64::from(y)) * u64::from(across.limit)
                + u64::from(x);
            let tap = (down.filter_first + r * down.filter_step) * width.filter
                + across.filter_first
                + s * across.filter_step;
            for filter in 0..count {
                let of_gradient = position * u64::from(cells.row) + u64::from(filter);
                let of_tap = u64::from(filter) * u64::from(height.filter * width.filter) + u64::from(tap);
                let of_filters = of_tap * u64::from(channels) + u64::from(channel);
                // SAFETY: a position of the gradient, a tap, a filter and a channel that there are.
                let [g, w] = unsafe {
                    [(gradient, of_gradient), (filters, of_filters)].map(|(base, place)| {
                        let [number] =
                            T::widen(vector::load_array::<T, 1>(base.wrapping_add(place as usize)));
                        number
                    })
                };
                sum += g * w;
            }
        }
    }
    sum
}

/// # Safety
/// As the kernel.
#[inline(always)]
unsafe fn mend<T: Element<Wide = f32>, const N: usize>(
    cells: &Cells,
    gradient: *const T,
    filters: *const T,
    result: *mut T,
) {
    let thread = thread::block_idx_x() * THREADS + thread::thread_idx_x();
    let (first, elements) = (thread * N as u32, cells.elements());
    let end = if first + N as u32 <= elements { first + N as u32 } else { elements };
    if end == first + N as u32 {
        // SAFETY: a whole unit of the result, which begins at one.
        let values: [f32; N] =
            T::widen(unsafe { vector::load_array(result.wrapping_add(first as usize).cast_const()) });
        let mut are_finite = true;
        unroll!(I in 0..8, { if I < N { are_finite &= values[I].is_finite(); } });
        if are_finite {
            return;
        }
    }
    let mut element = first;
    while element < end {
        let place = result.wrapping_add(element as usize);
        // SAFETY: an element of the result, the thread's alone.
        unsafe {
            let [value] = T::widen(vector::load_array::<T, 1>(place.cast_const()));
            if !value.is_finite() {
                vector::store_array(place, T::narrow([sum(cells, gradient, filters, element)]));
            }
        }
        element += 1;
    }
}

/// Computes what is not finite of `result` again: see the module.
///
/// # Safety
/// `gradient` is valid for reads of the result's gradient, `filters` of `[filters, height, width, channels]`,
/// both dense but for the rows of the first; `result` is valid for reads and writes of [`Cells`], apart from
/// both, and begins at a multiple of 16 bytes. The grid has [`Cells::blocks`] blocks.
#[kernel(launch_bounds(THREADS))]
pub unsafe fn conv_cells(cells: Cells, gradient: *const u8, filters: *const u8, result: *mut u8) {
    // SAFETY: the caller's contract.
    unsafe {
        if cells.stored == Stored::F32 as u32 {
            mend::<f32, WORDS>(&cells, gradient.cast(), filters.cast(), result.cast());
        } else if cells.stored == Stored::F16 as u32 {
            mend::<f16, HALVES>(&cells, gradient.cast(), filters.cast(), result.cast());
        } else {
            mend::<bf16, HALVES>(&cells, gradient.cast(), filters.cast(), result.cast());
        }
    }
}
