//! Results of groups of few channels, and inputs' gradients: for each class of positions ([`Walk`]) the same
//! walk over the result's gradient.
//!
//! A lane's columns are chosen so that it has four channels side by side: 8 bytes a store, a sector for the
//! four lanes of a position.
//!
//! [`Walk`]: crate::problem::Walk

use cuda_std::async_copy;
use cuda_std::fastmath::fma;
use cuda_std::{kernel, matrix, misc, shared, thread, vector, warp};
use half::{bf16, f16};
use primitives::activation::{Activation, Fast};
use primitives::element::Element as _;
use primitives::mma::{Bf16, F16};
use primitives::unroll;

use super::{
    ALL, BLOCK, ELEMENT, ENTRY, Grouped, MOST_TAPS, Place, RESIDENT, STAGES, Share, Slab, THREADS, UNIT,
    multiply, unit_of_lane,
};
use crate::element::{Multiplied, copy_unit};
use crate::problem::{Convolution, Odometer};

/// Sums of a lane: of two positions, four channels each.
const SUMS: usize = 8;

macro_rules! kernels {
    ($($name:ident: $element:ident, $stored:ident, $doc:literal;)*) => { $(
        #[doc = $doc]
        /// See the module.
        ///
        /// # Safety
        /// Groups have 2, 4, 8 or 16 channels and as many filters; all channels are a multiple of 8, and a
        /// position meets at most [`MOST_TAPS`] taps. All tensors begin at whole units. `read` is valid for
        /// reads of what the gather's problem says: the input or, backward, the result's gradient; `filter`
        /// of its filters, and `bias`, if there is one, of a number for each channel. `result` is valid for
        /// writes of all positions, apart from all else. Sides of a tile are from 1 to
        /// [`MOST_SIDE`](super::MOST_SIDE). [`Grouped::slabs`] blocks along x, any number along y,
        /// [`Grouped::classes`] along z, of [`THREADS`] threads with [`Grouped::shared_bytes`] of dynamic
        /// shared memory.
        #[kernel(launch_bounds(THREADS, RESIDENT))]
        pub unsafe fn $name(
            grouped: Grouped,
            read: *const $stored,
            filter: *const $stored,
            bias: *const $stored,
            result: *mut $stored,
        ) {
            let operands = Operands::<$element> { grouped: &grouped, read, filter, bias, result };
            // SAFETY: the caller's contract.
            unsafe { operands.run() }
        }
    )* };
}

kernels! {
    conv_grouped_f16: F16, f16, "f16.";
    conv_grouped_bf16: Bf16, bf16, "bf16.";
}

struct Operands<'a, E: Multiplied> {
    grouped: &'a Grouped,
    read: *const E::Stored,
    filter: *const E::Stored,
    bias: *const E::Stored,
    result: *mut E::Stored,
}

/// A warp's own, for all of its tiles.
struct Held {
    slab: Slab,
    share: Share,
    /// Fragments of the filters at each tap.
    filters: [[u32; 4]; MOST_TAPS as usize],
    /// Where the taps are.
    taps: [u32; MOST_TAPS as usize],
    /// Shared address of the table.
    table: u32,
}

impl Held {
    /// The first of the lane's channels.
    #[inline(always)]
    fn channel(&self) -> u32 {
        self.slab.first + self.share.block * BLOCK + warp::lane_id() % 4 * 4
    }
}

impl<E: Multiplied> Operands<'_, E> {
    /// The block's tiles.
    ///
    /// # Safety
    /// As the kernels.
    #[inline(always)]
    unsafe fn run(&self) {
        let slab = Slab::new(self.grouped);
        let base = shared::address_of(shared::dynamic_shared_mem::<u8>());
        let stage_bytes = self.grouped.stage_bytes(self.grouped.met()) as u32;
        let table = base + STAGES * stage_bytes;
        let tiles = slab.tiles(self.grouped.gather.problem.images);
        let mut tile = thread::block_idx_y();
        let mut stage = 0;
        // SAFETY: the caller's contract; a stage is read after the wait for its copies and a barrier, and
        // written again after another.
        unsafe {
            slab.tabulate(table, self.grouped.positions() as u32);
            if tile < tiles[2] {
                slab.copy_met(self.read, base, slab.place(tile, tiles));
            }
            // The filters come first, to where the second tile goes.
            let filters = base + stage_bytes;
            self.copy_filters(&slab, filters);
            async_copy::commit_group();
            async_copy::wait_all();
            thread::sync_threads();
            let held = self.held(slab, table, filters);
            thread::sync_threads();
            while tile < tiles[2] {
                let next = tile + thread::grid_dim_y();
                if next < tiles[2] {
                    slab.copy_met(self.read, base + (stage_bytes - stage), slab.place(next, tiles));
                }
                async_copy::commit_group();
                async_copy::wait_group::<1>();
                thread::sync_threads();
                self.tile(&held, base + stage, slab.place(tile, tiles));
                thread::sync_threads();
                stage = stage_bytes - stage;
                tile = next;
            }
        }
    }

    /// Starts the copies of the slab's filters to this shared address.
    ///
    /// # Safety
    /// As the kernels; the block calls it together, and nobody uses the memory.
    #[inline(always)]
    unsafe fn copy_filters(&self, slab: &Slab, to: u32) {
        let length = self.grouped.gather.problem.filter_elements();
        let filters =
            if slab.channels - slab.first < slab.slab { slab.channels - slab.first } else { slab.slab };
        let (first, count) = (u64::from(slab.first) * u64::from(length), filters * length);
        let mut index = thread::thread_idx_x() * UNIT;
        while index < count {
            // SAFETY: filters of the slab are a multiple of 8, so whole units; the thread's own place.
            unsafe { copy_unit(to + index * ELEMENT, self.filter, Some(first + u64::from(index))) }
            index += THREADS * UNIT;
        }
    }

    /// # Safety
    /// As the kernels; the slab's filters are at the shared address `filters`.
    #[inline(always)]
    unsafe fn held(&self, slab: Slab, table: u32, filters: u32) -> Held {
        let (share, lane) = (Share::new(slab.slab), warp::lane_id());
        let mut fragments = [[0; 4]; MOST_TAPS as usize];
        let block = slab.first + share.block * BLOCK;
        let mut at = Odometer::new(0, slab.height.taps, slab.width.taps);
        let mut left = misc::opaque(MOST_TAPS);
        // Not unrolled: the fragments move up, so that every index is a constant.
        while left > 0 {
            let mut own = [0; 4];
            if at.high == 0 && slab.taps() > 0 {
                unroll!(I in 0..4, {
                    // The lane's row of k, and its column: four channels side by side become the columns of
                    // two lanes in both products.
                    let k = block + lane % 4 * 2 + I as u32 % 2 * 8;
                    let column = block + lane / 8 * 4 + I as u32 / 2 * 2 + lane / 4 % 2;
                    own[I] = self.pair(&slab, [at.middle, at.low], k, column, |element| {
                        // SAFETY: an element of the slab's filters.
                        unsafe { vector::load_shared_b16(filters + element * ELEMENT) }
                    });
                });
            }
            let [_, b, c, d, e, f, g, h, i] = fragments;
            fragments = [b, c, d, e, f, g, h, i, own];
            at.add([0, 0, 1]);
            left -= 1;
        }
        Held { slab, share, filters: fragments, taps: slab.all_taps(), table }
    }

    /// The filter of a channel of the result, at a tap, for two channels of what is read, `k` and the next
    /// one: the bits of two numbers, zeros for other groups. `load` has elements of the slab's filters.
    #[inline(always)]
    fn pair(
        &self,
        slab: &Slab,
        [down, across]: [u32; 2],
        k: u32,
        column: u32,
        load: impl Fn(u32) -> u16,
    ) -> u32 {
        let problem = &self.grouped.gather.problem;
        let Convolution { channels, width, .. } = *problem;
        let shift = channels.trailing_zeros();
        if k >> shift != column >> shift || k >= slab.channels {
            return 0;
        }
        let (down_walk, across_walk) = (&slab.height, &slab.width);
        let tap = (down_walk.filter_first + down * down_walk.filter_step) * width.filter
            + across_walk.filter_first
            + across * across_walk.filter_step;
        let element = |filter: u32, channel: u32| {
            let within = tap * channels + (channel & (channels - 1));
            load((filter - slab.first) * problem.filter_elements() + within)
        };
        let [low, high] = if self.grouped.gather.is_forward() {
            [element(column, k), element(column, k + 1)]
        } else {
            [element(k, column), element(k + 1, column)]
        };
        u32::from(low) | u32::from(high) << u16::BITS
    }

    /// The warp's part of the tile whose windows are in the stage at the shared address `stage`.
    ///
    /// # Safety
    /// As the kernels; the warp is here together.
    #[inline(always)]
    unsafe fn tile(&self, held: &Held, stage: u32, place: Place) {
        let Held { slab, share, table, .. } = held;
        let positions = slab.positions();
        let lane = warp::lane_id();
        let mut first = share.split * BLOCK;
        // SAFETY: entries of the table, and positions of the stage; the caller's contract.
        unsafe {
            while first < positions {
                let met: u32 = vector::load_shared(table + (first + lane % BLOCK) * ENTRY);
                let row = stage + met + share.block * BLOCK * ELEMENT + unit_of_lane();
                let mut sums = [[0.0; 4]; 2];
                unroll!(TAP in 0..16, { if TAP < MOST_TAPS as usize && (TAP as u32) < slab.taps() {
                    let a = matrix::ldmatrix_x4(row + held.taps[TAP]);
                    multiply::<E>(a, held.filters[TAP], &mut sums);
                } });
                let [[a, b, e, f], [c, d, g, h]] = sums;
                self.finish(held, stage, place, first + lane / 4, [a, b, c, d, e, f, g, h]);
                warp::sync_warp(ALL);
                first += share.splits * BLOCK;
            }
        }
    }

    /// Finishes and stores the lane's sums, of the positions `first` and `first + 8` of the tile.
    ///
    /// # Safety
    /// As the kernels; the positions and channels are the lane's alone.
    #[inline(always)]
    unsafe fn finish(&self, held: &Held, stage: u32, place: Place, first: u32, mut sums: [f32; SUMS]) {
        let slab = &held.slab;
        let channel = held.channel();
        if channel >= slab.channels {
            return;
        }
        let [a, b, c, d, e, f, g, h] = sums;
        let all = (a + b) + (c + d) + ((e + f) + (g + h));
        if !all.is_finite() && self.grouped.gather.problem.channels < BLOCK {
            // SAFETY: the caller's word.
            sums = unsafe { self.again(held, stage, first, sums) };
        }
        if self.grouped.gather.has_bias != 0 {
            // SAFETY: channels of the bias, whose number is a multiple of 8, aligned.
            let bias: [E::Stored; 4] = unsafe { vector::load_array(self.bias.add(channel as usize)) };
            let bias = E::Stored::widen(bias);
            unroll!(I in 0..8, { sums[I] += bias[I % 4]; });
        }
        let activation = Activation::from_code(self.grouped.gather.activation);
        if activation != Activation::None {
            let mut left = misc::opaque(SUMS as u32);
            // Not unrolled, and no index into the sums: the functions are long.
            while left > 0 {
                let [a, b, c, d, e, f, g, h] = sums;
                sums = [b, c, d, e, f, g, h, activation.apply::<Fast>(a)];
                left -= 1;
            }
        }
        let [a, b, c, d, e, f, g, h] = sums;
        // SAFETY: the caller's word.
        unsafe {
            self.store(held, place, first, [a, b, c, d]);
            self.store(held, place, first + 8, [e, f, g, h]);
        }
    }

    /// Stores a position's four channels, if there is such a position.
    ///
    /// # Safety
    /// As for [`finish`](Self::finish).
    #[inline(always)]
    unsafe fn store(&self, held: &Held, place: Place, index: u32, values: [f32; 4]) {
        let Slab { height, width, channels, .. } = &held.slab;
        let problem = &self.grouped.gather.problem;
        let [rows, columns] = if self.grouped.gather.is_forward() {
            [problem.height.output, problem.width.output]
        } else {
            [problem.height.input, problem.width.input]
        };
        // SAFETY: an entry of the table; a position of the result, whose channels are whole fours.
        unsafe {
            let at: u32 = vector::load_shared(held.table + index * ENTRY + ENTRY / 2);
            let (row, column) = (place.row + (at >> 16), place.column + (at & 0xffff));
            if row < height.count && column < width.count {
                let row = place.image * rows + height.first + row * height.step;
                let position = row * columns + width.first + column * width.step;
                let to = u64::from(position) * u64::from(*channels) + u64::from(held.channel());
                vector::store_array(self.result.add(to as usize), E::Stored::narrow(values));
            }
        }
    }

    /// The sums, those that are not finite computed again from their own group alone.
    ///
    /// # Safety
    /// As for [`finish`](Self::finish).
    #[inline(always)]
    unsafe fn again(&self, held: &Held, stage: u32, first: u32, mut sums: [f32; SUMS]) -> [f32; SUMS] {
        let mut index = 0;
        // Not unrolled, and no index into the sums.
        while index < misc::opaque(SUMS as u32) {
            let [mut sum, b, c, d, e, f, g, h] = sums;
            if !sum.is_finite() {
                // SAFETY: the caller's word.
                sum = unsafe { self.alone(held, stage, first + index / 4 * 8, held.channel() + index % 4) };
            }
            sums = [b, c, d, e, f, g, h, sum];
            index += 1;
        }
        sums
    }

    /// A channel of the result at a position of the tile, from its own group alone.
    ///
    /// # Safety
    /// As for [`finish`](Self::finish).
    #[inline(always)]
    unsafe fn alone(&self, held: &Held, stage: u32, position: u32, column: u32) -> f32 {
        let slab = &held.slab;
        // Nothing of this is to be computed before the loop over tiles, and kept.
        let channels = misc::opaque(self.grouped.gather.problem.channels);
        let group = column & !(channels - 1);
        let mut sum = 0.0;
        let numbers = |pair: u32| E::Stored::widen(of_word::<E::Stored>(pair));
        let length = misc::opaque(self.grouped.gather.problem.filter_elements());
        let filters = self.filter.wrapping_add((u64::from(slab.first) * u64::from(length)) as usize);
        // SAFETY: an element of the slab's filters.
        let filter = |element: u32| unsafe { *filters.wrapping_add(element as usize).cast::<u16>() };
        // SAFETY: an entry of the table, pairs of a position of the stage.
        unsafe {
            let met: u32 = vector::load_shared(held.table + position * ENTRY);
            let (mut down, mut across) = (misc::opaque(0), misc::opaque(0));
            while down < slab.height.taps {
                let mut k = group;
                while k < group + channels {
                    let at = stage + met + slab.tap(down, across) + (k - slab.first) * ELEMENT;
                    let x = numbers(vector::load_shared(at));
                    let w = numbers(self.pair(slab, [down, across], k, column, filter));
                    sum = fma(x[1], w[1], fma(x[0], w[0], sum));
                    k += 2;
                }
                across += 1;
                if across == slab.width.taps {
                    across = 0;
                    down += 1;
                }
            }
        }
        sum
    }
}

/// The two elements of a word.
#[inline(always)]
fn of_word<T: vector::Plain>(word: u32) -> [T; 2] {
    let [low, high, ..]: [T; 8] = vector::from_words([word, 0, 0, 0]);
    [low, high]
}
