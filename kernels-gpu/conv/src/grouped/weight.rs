//! Filters' gradients of groups of few channels.
//!
//! ```text
//!   dW[filter, tap, channel] = sum over positions of dY[position, filter] * x[position at the tap, channel]
//! ```
//! A warp sums 16 filters by 16 channels at all taps over its positions, 16 at a time; of the 16 x 16 what
//! lies in a group is kept. What both lie in is read by `ldmatrix.trans`. Positions that a tile has beyond
//! the result meet zeros on both sides, so special numbers of x come where the definition has them.
//!
//! A block adds its warps' sums one after the other, and
//! [`conv_sum_parts`](fn@crate::weight::conv_sum_parts) those of the blocks: no atomics, and the same bits in
//! every run.

use cuda_std::async_copy;
use cuda_std::{kernel, matrix, shared, thread, vector, warp};
use half::{bf16, f16};
use primitives::mma::{Bf16, F16};
use primitives::unroll;

use super::{
    BLOCK, ELEMENT, ENTRY, Grouped, MOST_TAPS, Place, RESIDENT, STAGES, Share, Slab, THREADS, UNIT, multiply,
    unit_of_lane,
};
use crate::element::Multiplied;
use crate::problem::Convolution;

/// Bytes of a sum.
const F32: u32 = size_of::<f32>() as u32;

impl Grouped {
    /// Bytes of a stage: what a tile meets, so many positions, and its positions of the gradient.
    const fn weight_stage(&self, met: u64) -> u64 {
        (met + self.positions()) * self.pitch() as u64
    }

    /// Bytes of dynamic shared memory, of tiles that meet so many positions: both stages, where the sums are
    /// afterwards, a position of zeros, and the table.
    pub const fn weight_shared_bytes(&self, met: u64) -> u64 {
        let (stages, sums) =
            (STAGES as u64 * self.weight_stage(met), self.slab_filters() as u64 * F32 as u64);
        let most = if stages > sums { stages } else { sums };
        most + self.pitch() as u64 + self.positions() * ENTRY as u64
    }
}

macro_rules! kernels {
    ($($name:ident: $element:ident, $stored:ident, $doc:literal;)*) => { $(
        #[doc = $doc]
        /// See the module.
        ///
        /// # Safety
        /// The gather is a forward one, of groups of 2, 4, 8 or 16 channels and as many filters; all channels
        /// are a multiple of 8, and there are at most [`MOST_TAPS`] taps. All tensors begin at whole units;
        /// `gradient` and `input` are valid for reads of what the problem says, `sums` for writes of a number
        /// for each element of the filters, for each block along y, apart from all else. Sides of a tile are
        /// from 1 to [`MOST_SIDE`](super::MOST_SIDE). [`Grouped::slabs`] blocks along x, any number along y,
        /// of [`THREADS`] threads with [`Grouped::weight_shared_bytes`] of dynamic shared memory.
        #[kernel(launch_bounds(THREADS, RESIDENT))]
        pub unsafe fn $name(
            grouped: Grouped,
            gradient: *const $stored,
            input: *const $stored,
            sums: *mut f32,
        ) {
            let operands = Operands::<$element> { grouped: &grouped, gradient, input, sums };
            // SAFETY: the caller's contract.
            unsafe { operands.run() }
        }
    )* };
}

kernels! {
    conv_grouped_weight_f16: F16, f16, "f16.";
    conv_grouped_weight_bf16: Bf16, bf16, "bf16.";
}

struct Operands<'a, E: Multiplied> {
    grouped: &'a Grouped,
    gradient: *const E::Stored,
    input: *const E::Stored,
    sums: *mut f32,
}

/// Sums of a warp: at each tap 16 filters by twice 8 channels.
type Sums = [[[f32; 4]; 2]; MOST_TAPS as usize];

/// A warp's own, for all of its tiles.
struct Held {
    slab: Slab,
    share: Share,
    taps: [u32; MOST_TAPS as usize],
    /// Shared addresses of the table and of the zeros, and where the gradient is in a stage.
    table: u32,
    zeros: u32,
    gradient: u32,
}

impl<E: Multiplied> Operands<'_, E> {
    /// The block's tiles.
    ///
    /// # Safety
    /// As the kernels.
    #[inline(always)]
    unsafe fn run(&self) {
        let grouped = self.grouped;
        let slab = Slab::new(grouped);
        let base = shared::address_of(shared::dynamic_shared_mem::<u8>());
        let positions = grouped.positions() as u32;
        let stage_bytes = grouped.weight_stage(grouped.met()) as u32;
        let table = base + grouped.weight_shared_bytes(grouped.met()) as u32 - positions * ENTRY;
        let zeros = table - slab.pitch;
        let gradient = grouped.met() as u32 * slab.pitch;
        let held = Held { slab, share: Share::new(slab.slab), taps: slab.all_taps(), table, zeros, gradient };
        let tiles = slab.tiles(grouped.gather.problem.images);
        let mut tile = thread::block_idx_y();
        let mut stage = 0;
        let mut sums: Sums = [[[0.0; 4]; 2]; MOST_TAPS as usize];
        // SAFETY: the caller's contract; a stage is read after the wait for its copies and a barrier, and
        // written again after another; zeros lie behind the stages and the sums.
        unsafe {
            slab.tabulate(table, positions);
            let own = thread::thread_idx_x() * F32;
            if own < slab.pitch {
                vector::store_shared(zeros + own, 0u32);
            }
            if tile < tiles[2] {
                self.copy(&held, base, slab.place(tile, tiles));
            }
            async_copy::commit_group();
            while tile < tiles[2] {
                let next = tile + thread::grid_dim_y();
                if next < tiles[2] {
                    self.copy(&held, base + (stage_bytes - stage), slab.place(next, tiles));
                }
                async_copy::commit_group();
                async_copy::wait_group::<1>();
                thread::sync_threads();
                self.tile(&held, base + stage, slab.place(tile, tiles), &mut sums);
                thread::sync_threads();
                stage = stage_bytes - stage;
                tile = next;
            }
            async_copy::wait_all();
            self.add(&held, base, &sums);
        }
    }

    /// Starts the copies of a tile.
    ///
    /// # Safety
    /// As for [`Slab::copy_met`].
    #[inline(always)]
    unsafe fn copy(&self, held: &Held, stage: u32, place: Place) {
        let Held { slab, gradient, .. } = held;
        let limits = [slab.height.count, slab.width.count];
        let rest = self.grouped.positions() as u32 - slab.positions();
        // SAFETY: the caller's word; positions of the gradient, and those behind a tile's last that make
        // whole products, which are zeros.
        unsafe {
            slab.copy_met(self.input, stage, place);
            let first = [place.row as i32, place.column as i32];
            slab.copy(self.gradient, stage + gradient, place.image, first, slab.tile, limits);
            let behind = stage + gradient + slab.positions() * slab.pitch;
            slab.copy(self.gradient, behind, 0, [-1, 0], [1, rest], limits);
        }
    }

    /// Adds the products of a tile.
    ///
    /// # Safety
    /// As the kernels; the warp is here together, and the tile in the stage at this shared address.
    #[inline(always)]
    unsafe fn tile(&self, held: &Held, stage: u32, place: Place, sums: &mut Sums) {
        let Held { slab, share, .. } = held;
        let lane = warp::lane_id();
        let channels = share.block * BLOCK * ELEMENT;
        // The lane's row of dY: positions go along k, so the right unit and the lower positions swap.
        let of_gradient = (lane % 8 + lane / 16 * 8) * slab.pitch + lane / 8 % 2 * UNIT * ELEMENT + channels;
        let mut first = share.split * BLOCK;
        // SAFETY: entries of the table, positions of the stage, and the zeros; the caller's contract.
        unsafe {
            while first < slab.positions() {
                let [met, at]: [u32; 2] = vector::load_shared_v2(held.table + (first + lane % BLOCK) * ENTRY);
                let (row, column) = (place.row + (at >> 16), place.column + (at & 0xffff));
                let is_there = row < slab.height.count && column < slab.width.count;
                let from = if is_there { stage + met } else { held.zeros } + channels + unit_of_lane();
                let mask = u32::from(is_there).wrapping_neg();
                let gradient = stage + held.gradient + first * slab.pitch + of_gradient;
                let a = matrix::ldmatrix_x4_trans(gradient);
                unroll!(TAP in 0..16, { if TAP < MOST_TAPS as usize && (TAP as u32) < slab.taps() {
                    let b = matrix::ldmatrix_x4_trans(from + (held.taps[TAP] & mask));
                    multiply::<E>(a, b, &mut sums[TAP]);
                } });
                first += share.splits * BLOCK;
            }
        }
    }

    /// Adds the warps' sums, one after the other, and stores the block's.
    ///
    /// # Safety
    /// As the kernels; the whole block calls it, and nobody uses the stages at `base`.
    #[inline(always)]
    unsafe fn add(&self, held: &Held, base: u32, sums: &Sums) {
        let Held { slab, share, .. } = held;
        let Convolution { channels, .. } = self.grouped.gather.problem;
        let (lane, shift, taps) = (warp::lane_id(), channels.trailing_zeros(), slab.taps());
        let mut turn = 0;
        // SAFETY: sums of the lane's filters, each one lane's of a warp, and a warp's with that block of
        // channels in each turn; numbers of the part, each one thread's.
        unsafe {
            while turn < share.splits {
                thread::sync_threads();
                if share.split == turn {
                    unroll!(TAP in 0..16, { if TAP < MOST_TAPS as usize && (TAP as u32) < taps {
                        unroll!(I in 0..4, {
                            let (filter, channel) = (lane / 4 + I as u32 % 2 * 8, lane % 4 * 2 + I as u32 / 2 * 8);
                            if filter >> shift == channel >> shift {
                                let line = (share.block * BLOCK + filter) * taps + TAP as u32;
                                let at = base + ((line << shift) + (channel & (channels - 1))) * F32;
                                let four = sums[TAP][I / 2];
                                let own = [four[I % 2 * 2], four[I % 2 * 2 + 1]];
                                let before: [f32; 2] =
                                    if turn == 0 { [0.0; 2] } else { vector::load_shared_v2(at) };
                                vector::store_shared_v2(at, [before[0] + own[0], before[1] + own[1]]);
                            }
                        });
                    } });
                }
                turn += 1;
            }
            thread::sync_threads();
            let length = u64::from(self.grouped.gather.problem.filter_elements());
            let all = u64::from(slab.channels) * length;
            let first = u64::from(slab.first) * length;
            let to = self.sums.add((u64::from(thread::block_idx_y()) * all + first) as usize);
            let count = self.grouped.slab_filters();
            let left = all - first;
            let mut index = thread::thread_idx_x();
            while index < count && u64::from(index) < left {
                *to.add(index as usize) = f32::from_bits(vector::load_shared(base + index * F32));
                index += THREADS;
            }
        }
    }
}
