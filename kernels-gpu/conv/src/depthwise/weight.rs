//! The gradient of filters of one channel each.
//!
//! ```text
//!   a thread     a unit of channels, 3 x 3 taps; strips of 4 positions of the result, one after the other:
//!                dY dY dY dY      times x at each tap, to 9 sums of each channel
//!   a block      some units side by side by many strips: a part of all; sums meet in shared memory
//! ```
//! Blocks along y take a part of the strips each, blocks along z other taps. A block adds its threads' sums
//! in ascending order, and [`conv_sum_parts`](fn@crate::weight::conv_sum_parts) those of the parts: no
//! atomics, and the same bits in every run.

use cuda_std::fastmath::fma;
use cuda_std::{kernel, shared, thread, vector};
use half::{bf16, f16};
use primitives::element::Element;
use primitives::unroll;

use super::{Depthwise, F32, MET, STRIP, TAPS, THREADS, unit};
use crate::problem::{Convolution, Odometer};

/// Bytes of dynamic shared memory: eight sums of each thread.
pub const SHARED_BYTES: u32 = THREADS * 8 * F32;

/// Filters' gradients in parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DepthwiseWeights {
    /// The convolution, forward.
    pub depthwise: Depthwise,
    /// Strips of a part, at least 1.
    pub part: u32,
}

impl DepthwiseWeights {
    /// Parts: blocks along y.
    pub const fn parts(&self) -> u32 {
        (self.depthwise.strips() as u32).div_ceil(self.part)
    }

    /// Squares of taps: blocks along z.
    pub const fn squares(&self) -> u32 {
        let Convolution { height, width, .. } = self.depthwise.gather.problem;
        height.filter.div_ceil(TAPS as u32) * width.filter.div_ceil(TAPS as u32)
    }

    /// Elements of a part's sums.
    pub const fn sums(&self) -> u64 {
        self.depthwise.gather.problem.groups as u64 * self.depthwise.taps() as u64
    }
}

macro_rules! kernels {
    ($($name:ident: $stored:ident, $doc:literal;)*) => { $(
        #[doc = $doc]
        /// See the module.
        ///
        /// # Safety
        /// `gradient` and `input` are valid for reads of what the problem says, which have elements; `sums`
        /// for writes of [`DepthwiseWeights::sums`] numbers for each part, apart from all else. Where units
        /// are of 16 bytes, all of them are aligned. [`Depthwise::slabs`] blocks along x,
        /// [`DepthwiseWeights::parts`] along y, [`DepthwiseWeights::squares`] along z, of [`THREADS`] threads
        /// with [`SHARED_BYTES`] of dynamic shared memory.
        #[kernel(launch_bounds(THREADS, 1))]
        pub unsafe fn $name(
            weights: DepthwiseWeights,
            gradient: *const $stored,
            input: *const $stored,
            sums: *mut f32,
        ) {
            const WIDE: usize = layout::UNIT_BYTES as usize / size_of::<$stored>();
            let operands = Operands { weights: &weights, gradient, input, sums };
            // SAFETY: the caller's contract.
            unsafe {
                if weights.depthwise.unit == 1 { operands.run::<1>() } else { operands.run::<WIDE>() }
            }
        }
    )* };
}

kernels! {
    conv_depthwise_weight_f16: f16, "f16.";
    conv_depthwise_weight_bf16: bf16, "bf16.";
    conv_depthwise_weight_f32: f32, "f32, with all of its bits.";
}

struct Operands<'a, T> {
    weights: &'a DepthwiseWeights,
    gradient: *const T,
    input: *const T,
    sums: *mut f32,
}

impl<T: Element<Wide = f32>> Operands<'_, T> {
    /// The block's part, at its taps.
    ///
    /// # Safety
    /// As the kernels.
    #[inline(always)]
    unsafe fn run<const N: usize>(&self) {
        let DepthwiseWeights { depthwise, part } = *self.weights;
        let Depthwise { gather, units, .. } = depthwise;
        let Convolution { images, groups, height, width, .. } = gather.problem;
        let squares = width.filter.div_ceil(TAPS as u32).max(1);
        let square = thread::block_idx_z();
        let tap = [square / squares * TAPS as u32, square % squares * TAPS as u32];
        let units = units.max(1);
        let (own, line, lines) =
            (thread::thread_idx_x() % units, thread::thread_idx_x() / units, depthwise.lines());
        let first = thread::block_idx_x() * units * N as u32;
        let channel = first + own * N as u32;
        let mut sums = [[0.0; N]; TAPS * TAPS];
        if line < lines && channel < groups {
            let strips_across = width.output.div_ceil(STRIP as u32);
            let strips = images * height.output * strips_across;
            let mut number = thread::block_idx_y() * part + line;
            let end = strips.min((thread::block_idx_y() + 1) * part);
            let mut at = Odometer::new(number, height.output, strips_across);
            let digits = Odometer::new(lines, height.output, strips_across).digits();
            while number < end {
                // SAFETY: a strip of the result; the caller's contract.
                unsafe { self.strip(&mut sums, &at, channel, tap) }
                at.add(digits);
                number += lines;
            }
        }
        // SAFETY: the whole block is here.
        unsafe { self.add(&sums, first, line < lines, tap) }
    }

    /// Adds a strip's products.
    ///
    /// # Safety
    /// As the kernels; `at` is a strip of the result: image, row, and strip of the row.
    #[inline(always)]
    unsafe fn strip<const N: usize>(
        &self,
        sums: &mut [[f32; N]; TAPS * TAPS],
        at: &Odometer,
        channel: u32,
        tap: [u32; 2],
    ) {
        let Convolution { groups, height, width, .. } = self.weights.depthwise.gather.problem;
        let first = at.low * STRIP as u32;
        let row = (at.high * height.output + at.middle) * width.output;
        let of = |position: u32| u64::from(position) * u64::from(groups) + u64::from(channel);
        let slides = width.stride == 1 && width.dilation == 1;
        let mut gradient = [[0.0; N]; STRIP];
        // SAFETY: units of channels of positions, or of the first one; the caller's contract.
        unsafe {
            unroll!(I in 0..4, {
                let column = first + I as u32;
                gradient[I] = unit(self.gradient, column < width.output, of(row + column), channel);
            });
            unroll!(DOWN in 0..3, { if tap[0] + (DOWN as u32) < height.filter {
                let y = (at.middle * height.stride + (tap[0] + DOWN as u32) * height.dilation)
                    .wrapping_sub(height.padding);
                let row = (at.high * height.input).wrapping_add(y).wrapping_mul(width.input);
                let read = |column: u32, tap: u32| {
                    // Behind the last position it may be any number.
                    let x = column
                        .wrapping_mul(width.stride)
                        .wrapping_add(tap * width.dilation)
                        .wrapping_sub(width.padding);
                    let is_inside = (y < height.input) & (x < width.input);
                    unit::<T, N>(self.input, is_inside, of(row.wrapping_add(x)), channel)
                };
                let mut met = [[0.0; N]; MET];
                if slides {
                    unroll!(I in 0..6, { met[I] = read(first + I as u32, tap[1]); });
                }
                unroll!(ACROSS in 0..3, {
                    let tap = tap[1] + ACROSS as u32;
                    if !slides && tap < width.filter {
                        unroll!(I in 0..4, { met[I] = read(first + I as u32, tap); });
                    }
                    if tap < width.filter {
                        unroll!(I in 0..4, {
                            // Behind the last position there may be anything, but no part of the sums.
                            if first + (I as u32) < width.output {
                                let x = if slides { met[I + ACROSS] } else { met[I] };
                                unroll!(C in 0..8, { if C < N {
                                    let sum = &mut sums[DOWN * TAPS + ACROSS][C];
                                    *sum = fma(gradient[I][C], x[C], *sum);
                                } });
                            }
                        });
                    }
                });
            } });
        }
    }

    /// Adds the threads' sums, and stores them.
    ///
    /// # Safety
    /// As the kernels; the whole block calls it.
    #[inline(always)]
    unsafe fn add<const N: usize>(
        &self,
        sums: &[[f32; N]; TAPS * TAPS],
        first: u32,
        has_line: bool,
        tap: [u32; 2],
    ) {
        let Depthwise { gather, .. } = self.weights.depthwise;
        let Convolution { groups, height, width, .. } = gather.problem;
        let (slab, lines) = (self.weights.depthwise.slab(), self.weights.depthwise.lines());
        let base = shared::address_of(shared::dynamic_shared_mem::<u8>());
        let part = u64::from(thread::block_idx_y()) * self.weights.sums();
        unroll!(TAP in 0..16, { if TAP < TAPS * TAPS {
            let (down, across) = (tap[0] + (TAP / TAPS) as u32, tap[1] + (TAP % TAPS) as u32);
            if down < height.filter && across < width.filter {
                // SAFETY: the thread's places in shared memory, which lines follow each other in; numbers of
                // the part, each one thread's.
                unsafe {
                    thread::sync_threads();
                    if has_line {
                        unroll!(C in 0..8, { if C < N {
                            let place = thread::thread_idx_x() * N as u32 + C as u32;
                            vector::store_shared(base + place * F32, sums[TAP][C].to_bits());
                        } });
                    }
                    thread::sync_threads();
                    let mut own = thread::thread_idx_x();
                    while own < slab && first + own < groups {
                        let mut sum = 0.0;
                        let mut line = 0;
                        while line < lines {
                            sum += f32::from_bits(vector::load_shared(base + (line * slab + own) * F32));
                            line += 1;
                        }
                        let place = (first + own) * height.filter * width.filter + down * width.filter + across;
                        *self.sums.add((part + u64::from(place)) as usize) = sum;
                        own += THREADS;
                    }
                }
            }
        } });
    }
}
