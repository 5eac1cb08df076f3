//! The block's roles, and the thread that copies.

use cuda_std::tma::TensorMap;
use cuda_std::warp::{FULL_MASK, warp_shuffle_idx};
use cuda_std::{grid, mbarrier, misc, registers, shared, thread, tma};
use primitives::shared_plan::SharedType;
use primitives::warp::LANES;

use super::config::{
    BLOCK_M, BOX_COLUMNS, CONSUMERS, Config, Keys, Plan, QUERY_BOX, Queries, State, TURNERS,
};
use super::consumer::Consumer;
use super::scales::{Scales, TileHeads};
use super::turn::turn;
use crate::problem::{AttentionParams, Sequence, Tiles};
use crate::score::Identity;
use crate::sm90::config::{CONSUMER_ROWS, WARPGROUP};
use crate::sm90::forward;
use crate::sm90::schedule::{Drawn, Work, releases};

/// Registers of the producer's and a consumer's thread.
const REGISTERS: [u32; 2] = [40, 232];

/// The arguments of a launch. Results are bf16, and do not leave by the copy engine.
#[derive(Clone, Copy)]
pub struct Arguments<'a> {
    /// As for the other kernels, in boxes of 128 columns.
    pub base: forward::Arguments<'a, Identity>,
    /// The scales.
    pub scales: Scales,
}

/// Attention of all tiles of queries, by the whole grid.
///
/// # Safety
/// As for [`forward::run`], for this configuration; the scales are as [`Scale`](super::scales::Scale) says.
#[inline(always)]
pub unsafe fn run<C: Config>(arguments: Arguments<'_>) {
    const { C::CHECKED };
    let shared = Plan::<C>::new(shared::address_of(shared::dynamic_shared_mem::<u8>()));
    let thread = thread::thread_idx_x();
    // SAFETY: one thread makes the barriers before all meet; a warpgroup has one role; the caller's contract.
    unsafe {
        if thread == 0 {
            tma::prefetch(arguments.base.maps.queries);
            tma::prefetch(arguments.base.maps.keys);
            tma::prefetch(arguments.base.maps.values);
            make_barriers(shared);
        }
        thread::sync_threads();
        // Earlier grids may still write the operands or read the result.
        grid::wait_dependencies();
        grid::launch_dependents();
        if thread < WARPGROUP {
            registers::set_max_registers_dec::<{ REGISTERS[0] }>();
            if thread == 0 {
                produce::<C>(arguments, shared);
            } else if let Some(thread) = thread.checked_sub(LANES) {
                turn::<C>(shared, thread);
            }
        } else {
            registers::set_max_registers_inc::<{ REGISTERS[1] }>();
            let thread = thread - WARPGROUP;
            // The assembler keeps what a warp's lanes agree on in registers of the warp.
            let (consumer, _) = warp_shuffle_idx(FULL_MASK, thread / WARPGROUP, 0, 32);
            let thread = thread % WARPGROUP;
            Consumer::<C> { arguments, shared, consumer, thread }.run();
        }
    }
}

/// # Safety
/// As for [`run`]; one thread calls it before all others wait.
#[inline(always)]
unsafe fn make_barriers<C: Config>(shared: Plan<C>) {
    // SAFETY: the barriers' own places, which nothing uses yet.
    unsafe {
        let mut consumer = 0;
        while consumer < CONSUMERS {
            mbarrier::init(shared.queries_full(consumer), 1);
            mbarrier::init(shared.queries_empty(consumer), 1);
            consumer += 1;
        }
        shared.key_pipeline().init(CONSUMERS);
        shared.value_pipeline().init(TURNERS);
        let mut stage = 0;
        while stage < C::STAGES {
            mbarrier::init(shared.turned_full(stage), TURNERS);
            mbarrier::init(shared.turned_empty(stage), CONSUMERS);
            stage += 1;
        }
        shared.schedule().init(releases(CONSUMERS) + TURNERS);
        mbarrier::fence_init();
    }
}

/// Fills the stages of keys and values for one tile after the other.
///
/// # Safety
/// As for [`run`]; one thread calls it after the barriers are made.
#[inline(always)]
unsafe fn produce<C: Config>(arguments: Arguments<'_>, shared: Plan<C>) {
    let forward::Arguments { maps, params, counter, .. } = arguments.base;
    let tiles = Tiles::new(params, BLOCK_M).count();
    let mut drawn = Drawn::first(shared.board(), counter, tiles);
    let (mut keys, mut values) = (State::<C>::START, State::<C>::START);
    let mut parity = 0;
    while let Some(number) = drawn.number() {
        // SAFETY: the caller's contract. A stage that was acquired is empty, and expects a block's bytes; a
        // consumer has left its queries when their barrier says so, and before the first tile.
        unsafe {
            // All that follows from the numbers of the problem is computed for each tile: it would hold
            // registers.
            let (queries, heads) = (misc::opaque(params.queries), misc::opaque(params.heads));
            let params = AttentionParams { queries, heads, ..*params };
            let base = forward::Arguments { params: &params, ..arguments.base };
            let work = base.work(number, [BLOCK_M, C::BLOCK_N]);
            let Work { tile, sequence, blocks } = work;
            drawn.tell(Some(work), |slot| {
                TileHeads { address: shared.heads(slot) }.write(arguments, tile);
            });
            if work.has_queries() && blocks.count > 0 {
                let [head, matrix] = [(tile.head / params.group.max(1)) as i32, sequence.matrix as i32];
                let load_values = |state: State<C>, block: u32| {
                    let full = shared.value_pipeline().producer_acquire(state, Keys::<C>::BYTES);
                    let (row, to) = (row_of::<C>(sequence, block), shared.values(state.stage));
                    load_boxes::<C>(maps.values, to, C::KEY_BOX, full, [row, head, matrix]);
                };
                let (mut index, mut earlier) = (0, 0);
                while index < blocks.count {
                    let block = blocks.get(index).block;
                    let full = shared.key_pipeline().producer_acquire(keys, Keys::<C>::BYTES);
                    let (row, to) = (row_of::<C>(sequence, block), shared.keys(keys.stage));
                    load_boxes::<C>(maps.keys, to, C::KEY_BOX, full, [row, head, matrix]);
                    keys = keys.next();
                    if index == 0 {
                        load_queries::<C>(maps.queries, shared, work, parity);
                    } else {
                        load_values(values, earlier);
                        values = values.next();
                    }
                    earlier = block;
                    index += 1;
                }
                load_values(values, earlier);
                values = values.next();
                parity ^= 1;
            }
            drawn.draw();
        }
    }
    // SAFETY: the caller's contract.
    unsafe { drawn.tell(None, |_| ()) }
}

/// The first row of a block of keys, and of values.
#[inline(always)]
const fn row_of<C: Config>(sequence: Sequence, block: u32) -> i32 {
    (sequence.first_key + block * C::BLOCK_N) as i32
}

/// Starts the copies of a tile's boxes from this row, head and matrix.
///
/// # Safety
/// As for [`produce`]; the barrier expects the bytes.
#[inline(always)]
unsafe fn load_boxes<C: Config>(
    map: *const TensorMap,
    to: u32,
    box_bytes: u32,
    full: u32,
    [row, head, matrix]: [i32; 3],
) {
    let mut column = 0;
    while column < C::BOXES {
        let coords = [(column * BOX_COLUMNS) as i32, row, head, matrix];
        // SAFETY: the caller's contract.
        unsafe { tma::load_4d(to + column * box_bytes, map, full, coords) }
        column += 1;
    }
}

/// Starts the copies of all consumers' queries.
///
/// # Safety
/// As for [`produce`]; `parity` is that of the tiles with keys before this one.
#[inline(always)]
unsafe fn load_queries<C: Config>(map: *const TensorMap, shared: Plan<C>, work: Work, parity: u32) {
    let Work { tile, sequence, .. } = work;
    let mut consumer = 0;
    while consumer < CONSUMERS {
        let row = (sequence.first_query + tile.first_row + consumer * CONSUMER_ROWS) as i32;
        let full = shared.queries_full(consumer);
        // SAFETY: the caller's contract; the phase before the first counts as over.
        unsafe {
            mbarrier::wait_parity(shared.queries_empty(consumer), parity ^ 1);
            mbarrier::arrive_expect_tx(full, Queries::<C>::BYTES);
            let place = [row, tile.head as i32, sequence.matrix as i32];
            load_boxes::<C>(map, shared.queries(consumer), QUERY_BOX, full, place);
        }
        consumer += 1;
    }
}
