//! Results of filters that slide, and inputs' gradients with strides of 1: the same, by filters that are
//! turned.
//!
//! A step adds the products of a row of x to the K rows of the result that have it in their windows, in
//! registers, and stores the one whose window ends there. Taps of an element are added row by row, in
//! ascending order of rows of x. A thread's filters, turned or not, stay in registers.

use cuda_std::fastmath::fma;
use cuda_std::{kernel, misc, shared, thread, vector};
use half::{bf16, f16};
use primitives::activation::{Activation, Fast};
use primitives::element::Element;
use primitives::unroll;

use super::{Item, MOST, MOST_MET, PAIR, Rows, Sliding, THREADS, Taps, Window, load_met, resident, widen};
use crate::depthwise::{Depthwise, F32, Operands, STRIP};
use crate::problem::{Convolution, Odometer};

macro_rules! kernels {
    ($($name:ident: $stored:ident, $taps:literal, $doc:literal;)*) => { $(
        #[doc = $doc]
        /// See the module.
        ///
        /// # Safety
        /// The filters have so many taps along both axes, both strides are 1, or both 2, and dilations are 1.
        /// Backward, strides are 1. Channels are even, and tensors but the filters and the bias aligned to 4
        /// bytes. `read` is valid for reads of what the gather's problem says, which has elements: the input
        /// or, backward, the result's gradient. So are `filter` of its filters and `bias`, if there is one,
        /// of a number for each channel. `result` is valid for writes of all positions, apart from all else.
        /// [`Depthwise::slabs`](crate::depthwise::Depthwise::slabs) blocks along x, any number along y, of
        /// [`THREADS`] threads with
        /// [`Depthwise::shared_bytes`](crate::depthwise::Depthwise::shared_bytes) of dynamic shared memory.
        #[kernel(launch_bounds(THREADS, resident($taps)))]
        pub unsafe fn $name(
            sliding: Sliding,
            read: *const $stored,
            filter: *const $stored,
            bias: *const $stored,
            result: *mut $stored,
        ) {
            let operands = Operands { depthwise: &sliding.depthwise, read, filter, bias, result };
            let gather = &sliding.depthwise.gather;
            // SAFETY: the caller's contract.
            unsafe {
                if gather.is_forward() && gather.problem.height.stride == 2 {
                    operands.slide::<$taps, 2>(&sliding)
                } else {
                    operands.slide::<$taps, 1>(&sliding)
                }
            }
        }
    )* };
}

kernels! {
    conv_depthwise_3x3_f16: f16, 3, "3 x 3, f16.";
    conv_depthwise_3x3_bf16: bf16, 3, "3 x 3, bf16.";
    conv_depthwise_5x5_f16: f16, 5, "5 x 5, f16.";
    conv_depthwise_5x5_bf16: bf16, 5, "5 x 5, bf16.";
    conv_depthwise_7x7_f16: f16, 7, "7 x 7, f16.";
    conv_depthwise_7x7_bf16: bf16, 7, "7 x 7, bf16.";
}

/// A thread's own, for all of its items.
struct Held {
    filters: Taps,
    bias: [f32; PAIR],
    channel: u32,
    /// Rows and columns of what is read, of the result, and of zeros before what is read.
    read: [u32; 2],
    result: [u32; 2],
    padding: [i32; 2],
}

impl<T: Element<Wide = f32> + vector::Plain> Operands<'_, T> {
    /// The block's items.
    ///
    /// # Safety
    /// As the kernels.
    #[inline(always)]
    unsafe fn slide<const K: usize, const STRIDE: usize>(&self, sliding: &Sliding) {
        let gather = sliding.depthwise.gather;
        let Convolution { images, groups, .. } = gather.problem;
        let base = shared::address_of(shared::dynamic_shared_mem::<u8>());
        // SAFETY: the caller's contract.
        unsafe { self.stage(base) }
        thread::sync_threads();
        let units = sliding.depthwise.units.max(1);
        let (own, line, lines) =
            (thread::thread_idx_x() % units, thread::thread_idx_x() / units, sliding.lines());
        let channel = thread::block_idx_x() * units * PAIR as u32 + own * PAIR as u32;
        if line >= lines || channel >= groups {
            return;
        }
        // SAFETY: filters and biases of the thread's channels, which the block brought.
        let held = unsafe { self.held::<K>(base + own * PAIR as u32 * F32, channel) };
        let [rows, columns] = held.result;
        let (segments, strips) = (rows.div_ceil(sliding.rows.max(1)), columns.div_ceil(STRIP as u32));
        let mut number = thread::block_idx_y() * lines + line;
        while number < images * segments * strips {
            // SAFETY: a segment of a strip; the caller's contract.
            unsafe {
                self.segment::<K, STRIDE>(&held, &Odometer::new(number, segments, strips), sliding.rows);
            }
            number += thread::grid_dim_y() * lines;
        }
    }

    /// # Safety
    /// As the kernels; at `address` are the first tap of the pair of channels, and behind it the others.
    #[inline(always)]
    unsafe fn held<const K: usize>(&self, address: u32, channel: u32) -> Held {
        let gather = self.depthwise.gather;
        let Convolution { height, width, .. } = gather.problem;
        let tap_bytes = self.depthwise.slab() * F32;
        let turned = !gather.is_forward();
        let mut filters: Taps = [[[0.0; PAIR]; MOST]; MOST];
        // SAFETY: the caller's word.
        let bias = unsafe {
            unroll!(R in 0..7, { if R < K {
                unroll!(S in 0..7, { if S < K {
                    let tap = R * K + S;
                    let tap = if turned { K * K - 1 - tap } else { tap };
                    filters[R][S] = vector::load_shared_v2(address + tap as u32 * tap_bytes);
                } });
            } });
            vector::load_shared_v2(address + (K * K) as u32 * tap_bytes)
        };
        let [input, output] = [[height.input, width.input], [height.output, width.output]];
        let padding = [height.padding as i32, width.padding as i32];
        if turned {
            let padding = padding.map(|before| K as i32 - 1 - before);
            Held { filters, bias, channel, read: output, result: input, padding }
        } else {
            Held { filters, bias, channel, read: input, result: output, padding }
        }
    }

    /// Computes a segment of a strip.
    ///
    /// # Safety
    /// As the kernels; the item is one of the convolution.
    #[inline(always)]
    unsafe fn segment<const K: usize, const STRIDE: usize>(&self, held: &Held, item: &Item, rows: u32) {
        let groups = self.depthwise.gather.problem.groups;
        let depth = K.div_ceil(STRIDE);
        let column = item.low * STRIP as u32;
        let x = Rows::new::<{ MOST_MET as u32 }>(
            self.read.wrapping_add(held.channel as usize),
            item.high,
            held.read,
            groups,
            (column * STRIDE as u32) as i32 - held.padding[1],
        );
        let first = item.middle * rows;
        let count = if first + rows < held.result[0] { rows } else { held.result[0] - first };
        // A step behind the last row's first one, for each other row of its window.
        let steps = count + depth as u32 - 1;
        let fetch = |step: u32| {
            let mut read = [[0; MOST_MET]; 2];
            unroll!(I in 0..2, { if I < STRIDE {
                let row = ((first + step) * STRIDE as u32 + I as u32) as i32 - held.padding[0];
                // SAFETY: the caller's contract.
                read[I] = unsafe { load_met::<T, K, STRIDE>(&x, row, step < steps) };
            } });
            read
        };
        let mut sums: Window = [[[0.0; PAIR]; STRIP]; MOST];
        // Under way: the next step's.
        let mut next = fetch(0);
        let mut step = 0;
        while step < steps {
            let read = next;
            next = fetch(step + 1);
            unroll!(J in 0..7, { if J + 1 < depth {
                sums[depth - 1 - J] = sums[depth - 2 - J];
            } });
            sums[0] = [held.bias; STRIP];
            unroll!(I in 0..2, { if I < STRIDE {
                let met = widen::<T, MOST_MET>(&read[I]);
                unroll!(J in 0..7, { if J * STRIDE + I < K && step.wrapping_sub(J as u32) < count {
                    unroll!(S in 0..7, { if S < K {
                        unroll!(Q in 0..4, {
                            unroll!(C in 0..2, {
                                let filter = held.filters[J * STRIDE + I][S][C];
                                sums[J][Q][C] = fma(filter, met[Q * STRIDE + S][C], sums[J][Q][C]);
                            });
                        });
                    } });
                } });
            } });
            let done = step.wrapping_sub(depth as u32 - 1);
            if done < count {
                // SAFETY: a row of the strip, which is the thread's alone.
                unsafe { self.store_row(held, item.high, [first + done, column], sums[depth - 1]) }
            }
            step += 1;
        }
    }

    /// Stores a row of a strip.
    ///
    /// # Safety
    /// As the kernels; the positions are the thread's alone.
    #[inline(always)]
    unsafe fn store_row(
        &self,
        held: &Held,
        image: u32,
        [row, column]: [u32; 2],
        mut sums: [[f32; PAIR]; STRIP],
    ) {
        let Depthwise { gather, .. } = self.depthwise;
        let [rows, columns] = held.result;
        let activation = Activation::from_code(gather.activation);
        let position = (image * rows + row) * columns;
        let to = |index: u32| {
            let place = u64::from(position + index) * u64::from(gather.problem.groups);
            self.result.wrapping_add((place + u64::from(held.channel)) as usize)
        };
        if activation == Activation::None {
            unroll!(Q in 0..4, {
                let index = column + Q as u32;
                if index < columns {
                    // SAFETY: the caller's word.
                    unsafe { vector::store_array(to(index), T::narrow(sums[Q])) }
                }
            });
            return;
        }
        let mut index = column;
        // Not unrolled, and no index into the sums: the functions are long.
        let end = column + misc::opaque(STRIP as u32);
        while index < end {
            if index < columns {
                let values = [activation.apply::<Fast>(sums[0][0]), activation.apply::<Fast>(sums[0][1])];
                // SAFETY: the caller's word.
                unsafe { vector::store_array(to(index), T::narrow(values)) }
            }
            sums = [sums[1], sums[2], sums[3], sums[0]];
            index += 1;
        }
    }
}
