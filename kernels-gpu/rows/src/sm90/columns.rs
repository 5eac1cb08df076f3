//! The engine for functions with sums of columns: a thread has the same columns of every row that its team
//! gets, and keeps their sums in registers.
//!
//! ```text
//!   team 0   row 0, row 4, ..  \
//!   team 1   row 1, row 5, ..   } shared memory, added in order -> a row of sums a block -> [`crate::finish`]
//!   team 2   row 2, row 6, ..  /
//! ```

use super::consumer::{Consumer, Walk, begin, leave};
use super::reduce::{hand_on, receive, send};
use super::ring::Staged;
use crate::direct::elements;
use crate::function::{ColumnSums, MAX_SHARED, MAX_SUMS, Place, RowFunction, Statistics, Tensors};
use crate::plan::{MAX_SUM_VECTORS, Plan};
use cuda_std::{barrier, fence, misc, vector};
use primitives::access::{self, VECTOR_BYTES, from_words};
use primitives::element::InF32;
use primitives::unroll;
use primitives::warp::LANES;

/// Named barrier of the threads that work on rows. Number 0 is the block's own.
const CONSUMERS_BARRIER: u32 = 1;

/// Sums of a thread's columns.
type Accumulators<const N: usize> = [[[f32; N]; MAX_SUMS]; MAX_SUM_VECTORS];

/// A place in a stage, and where what all rows share there lies in shared memory.
struct Kept<T> {
    staged: Staged<T>,
    /// Of the first of those rows.
    shared: u32,
    /// Bytes from one of them to the next.
    step: u32,
}

impl<T: InF32, const N: usize> Place<T, N> for Kept<T> {
    #[inline(always)]
    fn column(&self) -> u32 {
        self.staged.column
    }

    #[inline(always)]
    unsafe fn input(&self, which: usize) -> [f32; N] {
        // SAFETY: the caller's promise.
        unsafe { self.staged.input(which) }
    }

    #[inline(always)]
    unsafe fn output(&self, which: usize, values: [f32; N]) {
        // SAFETY: the caller's promise.
        unsafe { self.staged.output(which, values) }
    }

    /// Not in the stage, which the copy engine will write again.
    #[inline(always)]
    unsafe fn keep(&self, which: usize, values: [f32; N]) {
        // SAFETY: the caller's promise.
        unsafe { self.staged.output(which, values) }
    }

    #[inline(always)]
    unsafe fn kept(&self, which: usize) -> [f32; N] {
        let from = self.staged.outputs.outputs[which].wrapping_add(self.staged.column as usize);
        // SAFETY: the caller's promise; this thread wrote them.
        unsafe { T::widen(access::load::<T, N>(from)) }
    }

    const REPLACES: bool = true;

    /// In the stage: [`rows`] tells the copy engine, which will write it again.
    #[inline(always)]
    unsafe fn replace(&self, which: usize, values: [f32; N]) {
        // SAFETY: the caller's promise.
        unsafe { self.staged.replace(which, values) }
    }

    /// Of the first rows that are kept, the only ones that the function asks for.
    #[inline(always)]
    unsafe fn shared<const K: usize>(&self, _: [*const T; K]) -> [[f32; N]; K] {
        const { assert!(K <= MAX_SHARED) };
        // SAFETY: written before the first row; every bit pattern is a number.
        unsafe {
            let mut rows = [T::widen(from_words::<T, N>(vector::load_shared_v4(self.shared))); K];
            if K > 1 {
                rows[1] = T::widen(from_words::<T, N>(vector::load_shared_v4(self.shared + self.step)));
            }
            rows
        }
    }
}

/// Applies the function to all rows, and writes the sums of each block's rows to `partials`, in rows of
/// `plan.columns` for each sum of each cluster.
///
/// # Safety
/// As for [`super::held::run`]; vectors have the same columns in all rows, and a thread has up to `VECTORS`
/// of a row. The plan has room for each row of [`ColumnSums::shared`] that is not null, and those begin at
/// 16-byte boundaries. `partials` has [`MAX_SUMS`] rows for each cluster.
#[inline(always)]
pub unsafe fn run<T: InF32, F: ColumnSums<T>, const N: usize, const VECTORS: usize>(
    plan: &Plan,
    function: &F,
    tensors: &Tensors<T>,
    partials: *mut f32,
) {
    // SAFETY: the caller's contract; the branches are those of warps.
    unsafe {
        let (consumer, tiles) = begin(plan, *tensors);
        if consumer.thread >= plan.consumers {
            let lane = consumer.thread - plan.consumers;
            if lane < LANES {
                consumer.produce(tiles);
            } else if plan.cluster > 1 {
                let place = [lane - LANES, consumer.rank];
                hand_on::<F::Statistics>(plan, consumer.shared, place, tiles);
            }
            leave(plan);
            return;
        }
        // All zero bits are zeros.
        let mut sums: Accumulators<N> = core::mem::zeroed();
        rows::<T, F, N, VECTORS>(&consumer, function, tiles, &mut sums);
        leave(plan);
        add_teams::<T, N, VECTORS>(
            &consumer,
            &sums,
            partials.wrapping_add(tiles[0] as usize * MAX_SUMS * plan.columns as usize),
        );
    }
}

/// All rows of the team.
///
/// # Safety
/// As for [`run`].
#[inline(always)]
unsafe fn rows<T: InF32, F: ColumnSums<T>, const N: usize, const VECTORS: usize>(
    consumer: &Consumer<'_, T>,
    function: &F,
    tiles: [u32; 2],
    sums: &mut Accumulators<N>,
) {
    let plan = consumer.plan;
    let mut walk = Walk::new(tiles);
    // All rows begin at a boundary, so their pieces are alike: the first of the block's vectors, and how many
    // there are. What follows from numbers of the thread and the block is computed again for each row, twice:
    // kept, it would take registers from sums.
    let piece = || {
        let first = misc::opaque(consumer.rank) * plan.stage_vectors;
        let left = (plan.columns / N as u32).saturating_sub(first);
        [first, if left < plan.stage_vectors { left } else { plan.stage_vectors }]
    };
    // Behind the ring: what all rows share.
    let kept = consumer.shared.ring + plan.stages * plan.stage_bytes;
    unroll!(ROW in 0..2, { if ROW < F::SHARED {
        let shared = function.shared()[ROW];
        let (mut index, [begin, count]) = (consumer.thread, piece());
        while index < count && !shared.is_null() {
            let column = (begin + index) * N as u32;
            let to = kept + ROW as u32 * plan.row_bytes + index * VECTOR_BYTES as u32;
            // SAFETY: the caller's contract; the row begins at a boundary, and there is room for the piece.
            unsafe {
                let words = access::load_words(shared.wrapping_add(column as usize));
                vector::store_shared_v4(to, words);
            }
            index += plan.consumers;
        }
    } });
    // SAFETY: all consumers come here.
    unsafe { barrier::sync(CONSUMERS_BARRIER, plan.consumers) };
    let place = |outputs: Tensors<T>, stage: u32, [begin, first]: [u32; 2], index: u32| Kept {
        staged: Staged {
            address: first + stage * plan.stage_bytes + index * VECTOR_BYTES as u32,
            part: plan.part_bytes,
            outputs,
            column: (begin + index) * N as u32,
            head: 0,
        },
        shared: kept + index * VECTOR_BYTES as u32,
        step: plan.row_bytes,
    };
    // SAFETY: the caller's contract; a stage is read between its wait and its release.
    unsafe {
        let [mut coming, mut taken] = [function.begin(consumer.row(walk.taken).0); 2];
        let mut sent = F::Statistics::empty();
        while walk.mapped < plan.tiles {
            let (mut of_row, mut received) = (taken, sent);
            if walk.taken < plan.tiles {
                taken = coming;
                let (number, exists) = consumer.row(walk.taken);
                let row = consumer.tensors.row(plan, number);
                coming = function.begin(consumer.row(walk.taken + walk.step).0);
                consumer.wait(walk.ahead);
                let [begin, count] = piece();
                let count = if exists { count } else { 0 };
                let (team, mut index) = plan.member(misc::opaque(consumer.thread));
                let first = consumer.shared.ring + team * plan.row_bytes;
                let mut statistics = F::Statistics::empty();
                unroll!(K in 0..4, {
                    if K < VECTORS && index < count {
                        let place = place(row, walk.ahead.stage, [begin, first], index);
                        statistics = RowFunction::take::<N>(function, taken, statistics, &place);
                    }
                    index += plan.team;
                });
                sent = send(plan, consumer.shared, statistics, consumer.of_exchange(), walk.turn);
            }
            if let Some(turn) = walk.map(plan) {
                if plan.ahead == 0 {
                    (of_row, received) = (taken, sent);
                }
                let (number, exists) = consumer.row(walk.mapped);
                if F::REPLACES {
                    // Kept while the other row was taken in, they would take registers from that. A team that
                    // takes in a row ahead does not ask for what was sent.
                    (of_row, received) = (function.begin(number), sent);
                }
                let row = consumer.tensors.row(plan, number);
                let statistics = receive(plan, consumer.shared, received, consumer.of_exchange(), turn);
                let of = function.finish(of_row, statistics, number, plan.columns, false);
                let [begin, count] = piece();
                let count = if exists { count } else { 0 };
                let (team, mut index) = plan.member(misc::opaque(consumer.thread));
                let first = consumer.shared.ring + team * plan.row_bytes;
                unroll!(K in 0..4, {
                    if K < VECTORS && index < count {
                        let place = place(row, walk.behind(plan), [begin, first], index);
                        ColumnSums::map_and_add::<N>(function, of, &place, &mut sums[K]);
                    }
                    index += plan.team;
                });
                if F::REPLACES {
                    fence::proxy_async_shared();
                }
                consumer.release(walk.behind(plan));
            }
            walk.next(plan);
        }
    }
}

/// Adds the sums of all teams of the block, in order, and writes them.
///
/// # Safety
/// As for [`run`]; all copies to the ring have been waited for.
#[inline(always)]
unsafe fn add_teams<T: InF32, const N: usize, const VECTORS: usize>(
    consumer: &Consumer<'_, T>,
    sums: &Accumulators<N>,
    partials: *mut f32,
) {
    let &Consumer { plan, shared, thread, member, team, rank, .. } = consumer;
    let width = plan.team * (VECTORS * N) as u32;
    let words = size_of::<f32>() as u32;
    // SAFETY: the caller's contract. All consumers come to both barriers. A place of the ring is written by
    // one thread, between them; a column is written by one.
    unsafe {
        barrier::sync(CONSUMERS_BARRIER, plan.consumers);
        unroll!(K in 0..4, {
            if K < VECTORS {
                let column = (member + K as u32 * plan.team) * N as u32;
                unroll!(S in 0..2, {
                    let row = shared.ring + ((team * MAX_SUMS as u32 + S as u32) * width + column) * words;
                    unroll!(I in 0..4, {
                        if 2 * I < N {
                            vector::store_shared_v2(row + 8 * I as u32, [sums[K][S][2 * I], sums[K][S][2 * I + 1]]);
                        }
                    });
                });
            }
        });
        barrier::sync(CONSUMERS_BARRIER, plan.consumers);
        let of_block = plan.stage_vectors * elements::<T>();
        let first = rank * of_block;
        let columns = of_block.min(plan.columns - first.min(plan.columns));
        let mut column = thread;
        while column < columns {
            let mut sum = 0;
            while sum < MAX_SUMS as u32 {
                let (mut total, mut of_team) = (0.0, 0);
                while of_team < plan.tile {
                    let row = (of_team * MAX_SUMS as u32 + sum) * width;
                    total += vector::load_shared::<f32>(shared.ring + (row + column) * words);
                    of_team += 1;
                }
                let to = sum as usize * plan.columns as usize + (first + column) as usize;
                *partials.wrapping_add(to) = total;
                sum += 1;
            }
            column += plan.consumers;
        }
    }
}
