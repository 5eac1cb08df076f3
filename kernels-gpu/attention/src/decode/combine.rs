//! After the pass: items that several blocks have parts of.
//!
//! A launch of its own, and not the last block of an item: that would take counters which are zero before
//! each launch, so a launch to clear them. This one waits ready until the pass has ended.

use cuda_std::fastmath::{fma, max};
use cuda_std::{grid, shared, thread, vector};
use primitives::op::Max;
use primitives::unroll;
use primitives::warp::{LANES, reduce};

use super::config::{Element, TILE_ROWS, UNIT};
use super::problem::DecodeParams;
use super::results::{ENDED_WORDS, Ended, Outputs, place};
use crate::softmax::{Total, factor};

/// Threads of a block.
pub const THREADS: u32 = 256;
/// Bytes of shared memory of a block: eight columns of each thread, and the sum of the weights.
pub const SHARED: u32 = THREADS * (UNIT + 1) * 4;
/// Parts of a thread that are under way at a time.
const AT_ONCE: usize = 4;

/// The arguments of a launch.
#[derive(Clone, Copy)]
pub struct Arguments<'a> {
    /// The problem, as the pass had it.
    pub params: &'a DecodeParams,
    /// Columns of a part: the pass's `HEAD`.
    pub columns: u32,
    /// The results and their parts.
    pub outputs: Outputs,
}

/// Block `[x, y]` combines row `y` of the item that block `x` of the pass has ended, if another one began it.
///
/// ```text
///   thread           0 .. 15   16 .. 31   ..   240 .. 255      (128 columns)
///   parts            0 16 32   1 17 33         15 31 47        of which it sums eight columns
/// ```
/// All parts are added in a fixed order.
///
/// # Safety
/// The arguments are as their types say. The launch has as many blocks along x as the pass, one along y for
/// each row of a tile, [`THREADS`] threads a block and [`SHARED`] bytes of dynamic shared memory.
#[inline(always)]
pub unsafe fn run<E: Element>(arguments: Arguments<'_>) {
    let Arguments { params, columns, outputs } = arguments;
    grid::wait_dependencies();
    grid::launch_dependents();
    let (block, row, thread) = (thread::block_idx_x(), thread::block_idx_y(), thread::thread_idx_x());
    // SAFETY: the pass has written the words of each of its blocks, and all parts of items; the barrier lies
    // between what all threads write to shared memory and what is read.
    unsafe {
        let words = vector::load_v4(outputs.parts.ended.add((block * ENDED_WORDS) as usize));
        let Some(Ended { first_block, head, row_tile, sequence }) = Ended::of_words(words) else { return };
        let number = row_tile * TILE_ROWS + row;
        if number >= params.rows() {
            return;
        }
        let item = Item { first_block, count: block - first_block + 1, row, outputs };
        let units = (columns / UNIT).max(1);
        let (group, groups, column) = (thread / units, THREADS / units, thread % units * UNIT);
        let most = item.max();
        let (values, sum) = item.sum(columns, column, [group, groups], most, factor(params.scale));
        let base = shared::address_of(shared::dynamic_shared_mem::<u8>());
        let sums = base + THREADS * UNIT * 4;
        let [a, b, c, d, e, f, g, h] = values;
        vector::store_shared_v4(base + thread * UNIT * 4, [a, b, c, d]);
        vector::store_shared_v4(base + thread * UNIT * 4 + 16, [e, f, g, h]);
        vector::store_shared(sums + thread * 4, sum);
        thread::sync_threads();
        if group != 0 {
            return;
        }
        let (mut values, mut total) = ([0.0; 8], Total { max: most, sum: 0.0 });
        let mut from = thread;
        while from < THREADS {
            let low: [f32; 4] = vector::load_shared_v4(base + from * UNIT * 4);
            let high: [f32; 4] = vector::load_shared_v4(base + from * UNIT * 4 + 16);
            unroll!(I in 0..4, {
                values[I] += low[I];
                values[4 + I] += high[I];
            });
            total.sum += vector::load_shared::<f32>(sums + from * 4);
            from += units;
        }
        outputs.store::<E>(params, sequence, params.row(head, number), column, values, total);
    }
}

/// A row of an item that several blocks have parts of.
#[derive(Clone, Copy)]
struct Item {
    first_block: u32,
    /// Parts.
    count: u32,
    /// The row of the tile.
    row: u32,
    outputs: Outputs,
}

impl Item {
    /// The row in the part of this number.
    #[inline(always)]
    fn part(self, number: u32) -> usize {
        place(self.first_block + number, number == 0) as usize * TILE_ROWS as usize + self.row as usize
    }

    /// The total of a part.
    ///
    /// # Safety
    /// There is one of this number.
    #[inline(always)]
    unsafe fn total(self, number: u32) -> Total {
        // SAFETY: the caller's word.
        let [max, sum] = unsafe { vector::load_v2(self.outputs.parts.totals.add(2 * self.part(number))) };
        Total { max, sum }
    }

    /// The largest score of all parts.
    ///
    /// # Safety
    /// The pass is over, and has them; the whole warp calls it.
    #[inline(always)]
    unsafe fn max(self) -> f32 {
        let mut most = f32::NEG_INFINITY;
        let mut number = thread::thread_idx_x() % LANES;
        while number < self.count {
            // SAFETY: the caller's word.
            most = max(most, unsafe { self.total(number) }.max);
            number += LANES;
        }
        // SAFETY: the whole warp is here.
        unsafe { reduce(Max, most) }
    }

    /// Eight columns and the sum of weights, of every `groups`-th part from `group` on.
    ///
    /// # Safety
    /// The pass is over, and has the parts.
    #[inline(always)]
    unsafe fn sum(
        self,
        columns: u32,
        column: u32,
        [group, groups]: [u32; 2],
        most: f32,
        factor: f32,
    ) -> ([f32; 8], f32) {
        let (mut values, mut sum) = ([0.0; 8], 0.0);
        let mut first = group;
        while first < self.count {
            let mut totals = [Total::NONE; AT_ONCE];
            let mut loaded = [[0.0; 4]; 2 * AT_ONCE];
            // Behind the last part that one is loaded again.
            unroll!(I in 0..4, {
                let number = (first + I as u32 * groups).min(self.count - 1);
                // SAFETY: the caller's word.
                unsafe {
                    let from = self.outputs.parts.sums.add(self.part(number) * columns as usize);
                    let from = from.add(column as usize);
                    totals[I] = self.total(number);
                    loaded[2 * I] = vector::load_v4(from);
                    loaded[2 * I + 1] = vector::load_v4(from.add(4));
                }
            });
            unroll!(I in 0..4, {
                if first + (I as u32) * groups < self.count {
                    let weight = totals[I].weight(most, factor);
                    sum = fma(totals[I].sum, weight, sum);
                    unroll!(J in 0..4, {
                        values[J] = fma(loaded[2 * I][J], weight, values[J]);
                        values[4 + J] = fma(loaded[2 * I + 1][J], weight, values[4 + J]);
                    });
                }
            });
            first += AT_ONCE as u32 * groups;
        }
        (values, sum)
    }
}
