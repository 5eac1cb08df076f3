//! The main pass of short sequences: a block, or a pair of them, goes through all tiles of keys of a head,
//! and through one head after the other.
//!
//! ```text
//!   warp 0       Q, dO of each turn, with its ticket                                              (1 thread)
//!   warp 1       K, V of a tile | of the next one | dK, dV of the first, K, V of the third | ...  (1 thread)
//!   warp 2, 3    zeros for queries that see no key (2); in a pair, turns of the consumers' parts of dQ
//!   consumers    turns of a tile | dK, dV to shared memory | turns of the next one | ...
//! ```
//! Parts of dQ of a head are left in the order of keys ([`heads`](super::heads)): the same bits in every run.
//! So the first part is stored, and no zeros are needed before; the last one is added to what lies there,
//! rounded and stored as dQ, and no kernel is needed behind. The sums are the block's or pair's own, and
//! serve all of its heads, so L2 keeps a part of them, or all.
//!
//! There are two places for K and V: the next tile is there when a tile begins, and dK and dV leave from a
//! place while the other one is used.

use cuda_std::tma::{TensorMap, policy};
use cuda_std::warp::{FULL_MASK, sync_warp, warp_shuffle_idx};
use cuda_std::{fence, grid, mbarrier, registers, shared, thread, tma, vector};
use primitives::pipeline::PipelineState;
use primitives::shared_plan::SharedType;

use super::arguments::Arguments;
use super::config::{BLOCK_N, CONSUMER_KEYS, CONSUMERS, Config, Keys, Of, Plan, Queries, Statistics};
use super::consumer::Consumer;
use super::heads::{OfTurn, Tiles, give_turns, sequence};
use super::main_pass::{REGISTERS, WARPS};
use super::queries::Part;
use super::work::{Ticket, Work};
use crate::problem::{KeyBlocks, KeyTile, Sequence};
use crate::sm90::config::{BOX_COLUMNS, WARPGROUP};
use crate::sm90::fragments::zero;

/// The gradients of all heads.
///
/// # Safety
/// As for [`main_pass::run`](super::main_pass::run), but the launch has clusters of `C::SHARERS` blocks, at
/// most one for each head of keys of each sequence; no sequences are packed, and each has queries and keys.
/// There are sums for each cluster, of all queries that share its keys. If blocks share heads out there are
/// counts of the [order](crate::backward::order), for a tile of queries of each cluster.
#[inline(always)]
pub unsafe fn run<C: Config>(arguments: Arguments<'_>, function: &C::Function) {
    const { C::CHECKED };
    let shared = Plan::<C>::new(shared::address_of(shared::dynamic_shared_mem::<u8>()));
    let thread = thread::thread_idx_x();
    // SAFETY: one thread makes the barriers before all meet; a warpgroup has one role, and so has a warp of
    // the first one; the caller's contract.
    unsafe {
        if thread == 0 {
            tma::prefetch(arguments.maps.keys);
            tma::prefetch(arguments.maps.queries);
            make_barriers(shared);
        }
        // Earlier grids may still write the operands or read the results.
        grid::wait_dependencies();
        grid::launch_dependents();
        thread::sync_threads();
        if thread < WARPGROUP {
            registers::set_max_registers_dec::<{ REGISTERS[0] }>();
            if thread == 0 {
                bring_queries::<C>(arguments, shared);
            } else if thread == 32 {
                bring_keys::<C>(arguments, shared);
            } else if let Some(consumer) = (thread / 32).checked_sub(2) {
                if consumer == 0 {
                    clear_unseen::<C>(arguments, thread % 32);
                }
                if C::SHARERS > 1 {
                    give_turns::<C>(arguments, consumer);
                }
            }
        } else {
            registers::set_max_registers_inc::<{ REGISTERS[1] }>();
            let thread = thread - WARPGROUP;
            // The assembler keeps what a warp's lanes agree on in registers of the warp.
            let (consumer, _) = warp_shuffle_idx(FULL_MASK, thread / WARPGROUP, 0, 32);
            let (rank, thread, place) = (0, thread % WARPGROUP, PipelineState::START);
            Consumer::<C> { arguments, function, shared, rank, consumer, thread, place }.run_whole();
        }
    }
}

/// Makes the barriers.
///
/// # Safety
/// One thread calls it, before anything uses the shared memory.
#[inline(always)]
unsafe fn make_barriers<C: Config>(shared: Plan<C>) {
    // SAFETY: the caller's contract.
    unsafe {
        let mut place = 0;
        while place < C::PLACES {
            mbarrier::init(shared.keys_full(place), 1);
            mbarrier::init(shared.values_full(place), 1);
            mbarrier::init(shared.results_full(place), CONSUMERS * WARPS);
            place += 1;
        }
        mbarrier::init(shared.scores_full(0), CONSUMERS * WARPS);
        shared.query_pipeline().init(CONSUMERS * WARPS);
        shared.gradient_pipeline().init(CONSUMERS * WARPS);
        mbarrier::fence_init();
    }
}

/// Brings keys and values to the places that their results have left, tile by tile, and sends results.
///
/// # Safety
/// As for [`run`]; one thread calls it after the barriers are made.
#[inline(always)]
unsafe fn bring_keys<C: Config>(arguments: Arguments<'_>, shared: Plan<C>) {
    let mut tiles = Tiles::new::<C>(arguments.params);
    let mut place = PipelineState::<Of<C>>::START;
    let mut count = 0;
    // SAFETY: the caller's contract. A place whose results were sent is empty.
    unsafe {
        while let Some((work, _)) = tiles.own::<C>() {
            if count >= C::PLACES {
                send_results(arguments, shared, place);
            }
            load(arguments, shared, place, work);
            place = place.next();
            tiles.advance::<C>();
            count += 1;
        }
        if count >= C::PLACES {
            send_results(arguments, shared, place);
        }
        // Without keys: there is no tile left.
        let sequence = Sequence { first_query: 0, queries: 0, first_key: 0, keys: 0, matrix: 0 };
        let none = Work { tile: KeyTile { first_key: 0, head: 0, batch: 0 }, sequence, turns: 0 };
        load(arguments, shared, place, none);
        if count > 0 {
            send_results(arguments, shared, place.next());
        }
    }
}

/// Brings keys and values of a tile, and tells of it. Where no query sees them, tells alone.
///
/// # Safety
/// As for [`bring_keys`]; the place is empty.
#[inline(always)]
unsafe fn load<C: Config>(
    arguments: Arguments<'_>,
    shared: Plan<C>,
    place: PipelineState<Of<C>>,
    work: Work,
) {
    let Work { tile, sequence, turns } = work;
    let (keys_full, values_full) = (shared.keys_full(place.stage), shared.values_full(place.stage));
    // SAFETY: the caller's contract.
    unsafe {
        work.tell(shared.work(place.stage));
        if turns == 0 {
            mbarrier::arrive(keys_full);
            mbarrier::arrive(values_full);
            return;
        }
        let copy = |map: *const TensorMap, full: u32, to: u32| {
            mbarrier::arrive_expect_tx(full, Keys::<C>::BYTES);
            let mut column = 0;
            while column < C::BOXES {
                let row = (sequence.first_key + tile.first_key) as i32;
                let coords = [(column * BOX_COLUMNS) as i32, row, tile.head as i32, sequence.matrix as i32];
                // Read once, where queries, gradients and sums are used again and want the room.
                tma::load_4d_hint(to + column * C::KEY_BOX, map, full, coords, policy::evict_first());
                column += 1;
            }
        };
        copy(arguments.maps.keys, keys_full, shared.keys(place.stage));
        copy(arguments.maps.values, values_full, shared.values(place.stage));
    }
}

/// Sends dK and dV of the tile before this state of its place, when consumers have left them there, and waits
/// until the place is empty.
///
/// # Safety
/// As for [`bring_keys`].
#[inline(always)]
unsafe fn send_results<C: Config>(arguments: Arguments<'_>, shared: Plan<C>, place: PipelineState<Of<C>>) {
    // SAFETY: the caller's contract. Who wrote the results has fenced them.
    unsafe {
        mbarrier::wait_parity(shared.results_full(place.stage), place.phase ^ 1);
        let Work { tile, sequence, .. } = Work::told(shared.work(place.stage));
        let send = |map: *const TensorMap, from: u32| {
            let mut index = 0;
            while index < CONSUMERS * C::BOXES {
                let (part, column) = (index / C::BOXES, index % C::BOXES);
                let from = from + column * C::KEY_BOX + part * (C::KEY_BOX / CONSUMERS);
                let row = (sequence.first_key + tile.first_key + part * CONSUMER_KEYS) as i32;
                let coords = [(column * BOX_COLUMNS) as i32, row, tile.head as i32, sequence.matrix as i32];
                tma::store_4d_hint(map, from, coords, policy::evict_first());
                index += 1;
            }
        };
        send(arguments.maps.key_gradients, shared.keys(place.stage));
        send(arguments.maps.value_gradients, shared.values(place.stage));
        tma::commit_group();
        tma::wait_group_read::<0>();
    }
}

/// Brings queries and gradients of all turns, and tells of each.
///
/// # Safety
/// As for [`run`]; one thread calls it after the barriers are made.
#[inline(always)]
unsafe fn bring_queries<C: Config>(arguments: Arguments<'_>, shared: Plan<C>) {
    let mut tiles = Tiles::new::<C>(arguments.params);
    let mut state = PipelineState::<Of<C>>::START;
    // SAFETY: the caller's contract.
    unsafe {
        while let Some(tile) = tiles.own::<C>() {
            let mut index = 0;
            while index < tile.0.turns {
                bring_turn(arguments, shared, state, (tile.0, OfTurn::new::<C>(tile, index)));
                state = state.next();
                index += 1;
            }
            tiles.advance::<C>();
        }
    }
}

/// Brings queries and gradients of a turn, and tells of it.
///
/// # Safety
/// As for [`bring_queries`].
#[inline(always)]
unsafe fn bring_turn<C: Config>(
    arguments: Arguments<'_>,
    shared: Plan<C>,
    state: PipelineState<Of<C>>,
    (work, of): (Work, OfTurn),
) {
    let Arguments { maps, rows, params, .. } = arguments;
    let (turn, part) = of.tell::<C>(params, work);
    let stage = state.stage;
    let bytes = Queries::<C>::BYTES + Statistics::<C>::BYTES;
    let copy = |map: *const TensorMap, full: u32, to: u32| {
        let mut column = 0;
        while column < C::BOXES {
            let row = (turn.block * C::BLOCK_M) as i32;
            let coords = [(column * BOX_COLUMNS) as i32, row, turn.head as i32, work.sequence.matrix as i32];
            // SAFETY: a stage that is empty, and expects the copy.
            unsafe { tma::load_4d(to + column * C::QUERY_BOX, map, full, coords) };
            column += 1;
        }
    };
    // SAFETY: the caller's contract. A stage that was acquired is empty, and expects the bytes of its copies.
    unsafe {
        shared.query_pipeline().producer_wait(state);
        Ticket::at(shared.tickets(stage)).write(turn);
        part.tell(shared.parts(Part::number(state)));
        let full = shared.query_pipeline().producer_expect(state, bytes);
        copy(maps.queries, full, shared.queries(stage));
        tma::bulk_load(shared.logarithms(stage), rows.logarithms.add(turn.row), C::BLOCK_M * 4, full);
        shared.gradient_pipeline().producer_wait(state);
        let full = shared.gradient_pipeline().producer_expect(state, bytes);
        copy(maps.gradients, full, shared.gradients(stage));
        tma::bulk_load(shared.deltas(stage), rows.deltas.add(turn.row), C::BLOCK_M * 4, full);
    }
}

/// Writes zeros to dQ of the tiles of queries that see no key.
///
/// # Safety
/// As for [`run`]; a warp calls it, each lane with its number.
#[inline(always)]
unsafe fn clear_unseen<C: Config>(arguments: Arguments<'_>, lane: u32) {
    /// Elements of 16 bytes.
    const UNIT: u32 = layout::UNIT_BYTES / 2;
    let Arguments { params, queries, .. } = arguments;
    let units = (params.head_size / UNIT).max(1);
    let mut block = 0;
    while block * C::BLOCK_M < params.queries {
        let first_row = block * C::BLOCK_M;
        block += 1;
        let seen = KeyBlocks::new(params.band, sequence(params, 0), first_row, C::BLOCK_M, BLOCK_N);
        if seen.count() > 0 {
            continue;
        }
        let (heads, rows) = (params.heads.max(1), (params.queries - first_row).min(C::BLOCK_M));
        let of_head = (rows * units).max(1);
        let mut number = thread::block_idx_x() * params.group;
        while number < heads * params.batch {
            let mut index = lane;
            while index < params.group * of_head {
                let (head, inside) = (number + index / of_head, index % of_head);
                let (row, unit) = (first_row + inside / units, inside % units);
                let at = queries.strides.at(row, head % heads, head / heads);
                // SAFETY: a unit of a row of dQ, which nobody else writes.
                unsafe { vector::store_v4(queries.data.add(at + (unit * UNIT) as usize).cast(), [0u32; 4]) };
                index += 32;
            }
            number += thread::grid_dim_x() * params.group;
        }
    }
}

impl<C: Config> Consumer<'_, C> {
    /// Computes the gradients of the consumer's keys of each tile.
    ///
    /// # Safety
    /// As for [`run`]; all threads of all consumers call it.
    #[inline(always)]
    unsafe fn run_whole(mut self) {
        let mut state = PipelineState::<Of<C>>::START;
        // SAFETY: the caller's contract.
        unsafe {
            loop {
                mbarrier::wait_parity(self.shared.keys_full(self.place.stage), self.place.phase);
                let work = self.work();
                if !work.has_keys() {
                    break;
                }
                let mut gradients: [C::Gradient; 2] = [zero(), zero()];
                if work.turns > 0 {
                    state = self.sum(&mut gradients, state);
                }
                self.leave_results(gradients);
                self.place = self.place.next();
            }
        }
    }

    /// Leaves dK and dV in the places of K and V, for another warp to send.
    ///
    /// # Safety
    /// All threads of both consumers are here, and all products are over.
    #[inline(always)]
    unsafe fn leave_results(self, gradients: [C::Gradient; 2]) {
        // SAFETY: the caller's contract; the barrier counts each warp once a tile.
        unsafe {
            self.write_results(gradients);
            fence::proxy_async_shared();
            sync_warp(FULL_MASK);
            if self.thread.is_multiple_of(32) {
                mbarrier::arrive(self.shared.results_full(self.place.stage));
            }
        }
    }
}
