//! The gradient of filters that slide: a thread's sums of all K x K taps, over its strips.
//!
//! A step reads a row of dY, which the window takes in, and the rows of x that the newest row meets first.
//! Rows and columns of dY that there are not take no part, whatever x is there. A block adds its threads'
//! sums in ascending order, eight taps at a time, and
//! [`conv_sum_parts`](fn@crate::weight::conv_sum_parts) those of the blocks: the same bits in every run.

use cuda_std::fastmath::fma;
use cuda_std::{kernel, shared, thread, vector};
use half::{bf16, f16};
use primitives::element::Element;
use primitives::unroll;

use super::{
    Item, MOST, MOST_MET, PAIR, Row, Rows, Sliding, THREADS, Taps, Window, depth, load_met, resident, strip,
    widen,
};
use crate::depthwise::{F32, STRIP};
use crate::problem::{Convolution, Odometer};

/// Taps whose sums a block adds at a time.
const ROUND: usize = 8;
/// Bytes of dynamic shared memory: so many sums of each thread.
pub const SHARED_BYTES: u32 = THREADS * (ROUND * PAIR) as u32 * F32;

impl Sliding {
    /// Steps of a strip: rows of the result, and those until the last one's window has ended.
    pub const fn weight_steps(&self) -> u32 {
        let Convolution { height, .. } = self.depthwise.gather.problem;
        height.output + depth(height.filter, height.stride) - 1
    }
}

macro_rules! kernels {
    ($($name:ident: $stored:ident, $taps:literal, $doc:literal;)*) => { $(
        #[doc = $doc]
        /// See the module.
        ///
        /// # Safety
        /// The filters have so many taps along both axes, both strides are 1, or both 2, and dilations are 1.
        /// Channels are even, and tensors aligned to 4 bytes. `gradient` and `input` are valid for reads of
        /// what the problem says, which have elements; `sums` for writes of a number for each tap and
        /// channel, for each block along y, apart from all else.
        /// [`Depthwise::slabs`](crate::depthwise::Depthwise::slabs) blocks along x, any number along y, of
        /// [`THREADS`] threads with [`SHARED_BYTES`] of dynamic shared memory.
        #[kernel(launch_bounds(THREADS, resident($taps)))]
        pub unsafe fn $name(
            sliding: Sliding,
            gradient: *const $stored,
            input: *const $stored,
            sums: *mut f32,
        ) {
            let operands = Operands { sliding: &sliding, gradient, input, sums };
            // SAFETY: the caller's contract.
            unsafe {
                if sliding.depthwise.gather.problem.height.stride == 1 {
                    operands.run::<$taps, 1>()
                } else {
                    operands.run::<$taps, 2>()
                }
            }
        }
    )* };
}

kernels! {
    conv_depthwise_weight_3x3_f16: f16, 3, "3 x 3, f16.";
    conv_depthwise_weight_3x3_bf16: bf16, 3, "3 x 3, bf16.";
    conv_depthwise_weight_5x5_f16: f16, 5, "5 x 5, f16.";
    conv_depthwise_weight_5x5_bf16: bf16, 5, "5 x 5, bf16.";
    conv_depthwise_weight_7x7_f16: f16, 7, "7 x 7, f16.";
    conv_depthwise_weight_7x7_bf16: bf16, 7, "7 x 7, bf16.";
}

struct Operands<'a, T> {
    sliding: &'a Sliding,
    gradient: *const T,
    input: *const T,
    sums: *mut f32,
}

/// The rows that a step reads.
#[derive(Clone, Copy)]
struct Step {
    gradient: Row,
    x: [Row; 2],
}

impl<T: Element<Wide = f32> + vector::Plain> Operands<'_, T> {
    /// The block's items.
    ///
    /// # Safety
    /// As the kernels.
    #[inline(always)]
    unsafe fn run<const K: usize, const STRIDE: usize>(&self) {
        let Sliding { depthwise, rows } = *self.sliding;
        let Convolution { images, groups, width, .. } = depthwise.gather.problem;
        let units = depthwise.units.max(1);
        let (own, line, lines) =
            (thread::thread_idx_x() % units, thread::thread_idx_x() / units, self.sliding.lines());
        let first = thread::block_idx_x() * units * PAIR as u32;
        let channel = first + own * PAIR as u32;
        let mut sums = [[[0.0; PAIR]; MOST]; MOST];
        if line < lines && channel < groups {
            let segments = self.sliding.weight_steps().div_ceil(rows.max(1));
            let strips = width.output.div_ceil(STRIP as u32);
            let mut number = thread::block_idx_y() * lines + line;
            while number < images * segments * strips {
                // SAFETY: a segment of a strip; the caller's contract.
                unsafe {
                    self.item::<K, STRIDE>(&mut sums, &Odometer::new(number, segments, strips), channel)
                }
                number += thread::grid_dim_y() * lines;
            }
        }
        // SAFETY: the whole block is here.
        unsafe { self.add::<K>(&sums, first, line < lines) }
    }

    /// Adds a segment's products.
    ///
    /// # Safety
    /// As the kernels; the item is one of the convolution.
    #[inline(always)]
    unsafe fn item<const K: usize, const STRIDE: usize>(&self, sums: &mut Taps, item: &Item, channel: u32) {
        let Convolution { groups, height, width, .. } = self.sliding.depthwise.gather.problem;
        let depth = K.div_ceil(STRIDE);
        let column = item.low * STRIP as u32;
        let gradient = Rows::new::<{ STRIP as u32 }>(
            self.gradient.wrapping_add(channel as usize),
            item.high,
            [height.output, width.output],
            groups,
            column as i32,
        );
        let x = Rows::new::<{ MOST_MET as u32 }>(
            self.input.wrapping_add(channel as usize),
            item.high,
            [height.input, width.input],
            groups,
            (column * STRIDE as u32) as i32 - width.padding as i32,
        );
        let steps = self.sliding.weight_steps();
        let mut y = item.middle * self.sliding.rows;
        let end = if y + self.sliding.rows < steps { y + self.sliding.rows } else { steps };
        let fetch = |y: u32| {
            let mut step = Step { gradient: [0; MOST_MET], x: [[0; MOST_MET]; 2] };
            // SAFETY: the caller's contract.
            unsafe {
                step.gradient = gradient.load::<STRIP>(y as i32, y < end);
                unroll!(I in 0..2, { if I < STRIDE {
                    let row = (y * STRIDE as u32 + I as u32) as i32 - height.padding as i32;
                    step.x[I] = load_met::<T, K, STRIDE>(&x, row, y < end);
                } });
            }
            step
        };
        let mut window: Window = [[[0.0; PAIR]; STRIP]; MOST];
        unroll!(J in 0..7, { if J + 1 < depth {
            // SAFETY: the caller's contract.
            let row = unsafe { gradient.load::<STRIP>(y as i32 - 1 - J as i32, true) };
            window[J] = strip(widen::<T, STRIP>(&row));
        } });
        // Under way: the next step's.
        let mut next = fetch(y);
        while y < end {
            let step = next;
            next = fetch(y + 1);
            unroll!(J in 0..7, { if J + 1 < depth {
                window[depth - 1 - J] = window[depth - 2 - J];
            } });
            window[0] = strip(widen::<T, STRIP>(&step.gradient));
            unroll!(I in 0..2, { if I < STRIDE {
                let met = widen::<T, MOST_MET>(&step.x[I]);
                unroll!(J in 0..7, { if J * STRIDE + I < K && y.wrapping_sub(J as u32) < height.output {
                    // Three taps at a time: so few instructions under a condition need no branch.
                    unroll!(H in 0..3, { if H * 3 < K {
                        unroll!(Q in 0..4, { if Q == 0 || gradient.columns & (1 << Q) != 0 {
                            unroll!(I3 in 0..3, { if H * 3 + I3 < K {
                                let across = (H * 3 + I3) % MOST;
                                unroll!(C in 0..2, {
                                    let sum = &mut sums[J * STRIDE + I][across][C];
                                    *sum = fma(window[J][Q][C], met[Q * STRIDE + across][C], *sum);
                                });
                            } });
                        } });
                    } });
                } });
            } });
            y += 1;
        }
    }

    /// Adds the threads' sums, and stores them.
    ///
    /// # Safety
    /// As the kernels; the whole block calls it.
    #[inline(always)]
    unsafe fn add<const K: usize>(&self, sums: &Taps, first: u32, has_line: bool) {
        let Sliding { depthwise, .. } = *self.sliding;
        let groups = depthwise.gather.problem.groups;
        let (slab, lines) = (depthwise.slab().max(1), self.sliding.lines());
        let base = shared::address_of(shared::dynamic_shared_mem::<u8>());
        let taps = (K * K) as u32;
        let part = u64::from(thread::block_idx_y()) * u64::from(groups) * u64::from(taps);
        unroll!(R in 0..7, { if R * ROUND < K * K {
            // SAFETY: the thread's places in shared memory, which lines follow each other in; numbers of the
            // part, each one thread's.
            unsafe {
                thread::sync_threads();
                if has_line {
                    unroll!(I in 0..8, { if R * ROUND + I < K * K {
                        let tap = R * ROUND + I;
                        let place = (I as u32 * THREADS + thread::thread_idx_x()) * PAIR as u32;
                        vector::store_shared_v2(base + place * F32, sums[tap / K][tap % K]);
                    } });
                }
                thread::sync_threads();
                let mut own = thread::thread_idx_x();
                while own < slab * ROUND as u32 {
                    let (round, channel) = (own / slab, own % slab);
                    let tap = (R * ROUND) as u32 + round;
                    if tap < taps && first + channel < groups {
                        let mut sum = 0.0;
                        let mut line = 0;
                        while line < lines {
                            let place = round * THREADS * PAIR as u32 + line * slab + channel;
                            sum += f32::from_bits(vector::load_shared(base + place * F32));
                            line += 1;
                        }
                        let place = u64::from(first + channel) * u64::from(taps) + u64::from(tap);
                        *self.sums.add((part + place) as usize) = sum;
                    }
                    own += THREADS;
                }
            }
        } });
    }
}
