//! The main pass of short sequences by pairs of blocks: two blocks of a cluster go through the tiles of keys
//! of a head, two at a time, and through one head after the other.
//!
//! ```text
//!   warp 0       half of the columns of Q and dO of each turn, to both blocks; V of a tile        (1 thread)
//!   warp 1       K of a tile; tells the other block that parts of dQ have been read               (1 thread)
//!   warps 2, 3   parts of dQ of both blocks: added up, kept in f32, or rounded and stored
//!   consumers    turns of tile 0 | dK, dV to shared memory, and sent | turns of tile 1 | ...
//! ```
//! In a turn both blocks look at the same queries, each with a tile of keys of its own. A block's consumer
//! computes half of the columns of dQ, of the block's keys. Those halves belong to the blocks: consumer 0 of
//! both blocks sends its part to block 0, consumer 1 to block 1, through the cluster's shared memory. Two
//! warps there add both parts to what the tiles of keys before have left, in the order of keys: the same bits
//! in every run. Of the last two tiles they round and store dQ.
//!
//! Where one block has all keys of a head ([`whole`](super::whole)), as many heads are under way as there are
//! blocks, and L2 does not keep the queries, gradients and sums of all. Here they are half as many; Q and dO
//! are read once for both blocks; and a sum is written and read once for two tiles of keys.
//!
//! K has two places: the next tile's is there when a tile begins, and dK leaves from a place while the other
//! one is used. V has one, which is empty in a tile's last turn, once dP is computed: the next tile's V comes
//! beside the rest of that turn. dV leaves from the places of dS, each consumer's from its own lines, before
//! the first dS of the next tile is written there.
//!
//! Every query sees all keys: with fewer, turns that one block does not need would be computed by both.

use cuda_std::tma::TensorMap;
use cuda_std::warp::{FULL_MASK, sync_warp, warp_shuffle_idx};
use cuda_std::{cluster, fence, grid, mbarrier, registers, shared, thread, tma, vector, wgmma};
use primitives::pipeline::PipelineState;
use primitives::shared_plan::SharedType;
use primitives::unroll;

use super::adder::{ADDERS, Adder};
use super::arguments::Arguments;
use super::config::{BLOCK_N, Barrier, CONSUMERS, Config, Keys, Of, Plan, Queries, Statistics};
use super::consumer::Consumer;
use super::main_pass::WARPS;
use super::whole::sequence;
use super::work::{Ticket, Turn, Work};
use crate::problem::{AttentionParams, KeyTile};
use crate::sm90::config::{BOX_COLUMNS, WARPGROUP};
use crate::sm90::fragments::{steps, zero};

/// Registers of a thread that copies or adds up, and of a consumer's thread.
const REGISTERS: [u32; 2] = [56, 224];
/// A bit for each block of the cluster.
const BOTH: u16 = 0b11;

/// The gradients of all heads.
///
/// # Safety
/// As for [`main_pass::run`](super::main_pass::run), but the launch has at most a cluster of two blocks for
/// each head of keys of each sequence; no sequences are packed, each has queries and keys, and each query
/// sees all keys. There are sums for each cluster, of all queries that share its keys.
#[inline(always)]
pub unsafe fn run<C: Config>(arguments: Arguments<'_>, function: &C::Function) {
    const { C::CHECKED };
    let shared = Plan::<C>::new(shared::address_of(shared::dynamic_shared_mem::<u8>()));
    let (thread, rank) = (thread::thread_idx_x(), cluster::block_rank());
    // SAFETY: one thread makes the barriers before all meet; a warpgroup has one role, and so has a warp of
    // the first one; the caller's contract.
    unsafe {
        if thread == 0 {
            tma::prefetch(arguments.maps.keys);
            tma::prefetch(arguments.maps.queries);
            make_barriers(shared, rank);
        }
        // Earlier grids may still write the operands or read the results.
        grid::wait_dependencies();
        grid::launch_dependents();
        cluster::sync();
        if thread < WARPGROUP {
            registers::set_max_registers_dec::<{ REGISTERS[0] }>();
            if thread == 0 {
                bring_queries::<C>(arguments, shared, rank);
            } else if thread == 32 {
                bring_keys::<C>(arguments, shared, rank);
            } else if thread / 32 >= WARPS - ADDERS {
                let (warp, lane) = (thread / 32 + ADDERS - WARPS, thread % 32);
                Adder::<C> { arguments, shared, rank, warp, lane }.run();
            }
        } else {
            registers::set_max_registers_inc::<{ REGISTERS[1] }>();
            let thread = thread - WARPGROUP;
            // The assembler keeps what a warp's lanes agree on in registers of the warp.
            let (consumer, _) = warp_shuffle_idx(FULL_MASK, thread / WARPGROUP, 0, 32);
            let (thread, place) = (thread % WARPGROUP, PipelineState::START);
            Consumer::<C> { arguments, function, shared, rank, consumer, thread, place }.run_halves();
        }
        // The other block still arrives at this one's barriers.
        sync_warp(FULL_MASK);
        cluster::sync();
    }
}

/// Makes the barriers.
///
/// # Safety
/// One thread calls it, before anything uses the shared memory.
#[inline(always)]
unsafe fn make_barriers<C: Config>(shared: Plan<C>, rank: u32) {
    let warps = CONSUMERS * WARPS;
    // SAFETY: the caller's contract.
    unsafe {
        let mut place = 0;
        while place < C::PLACES {
            mbarrier::init(shared.keys_full(place), 1);
            mbarrier::init(shared.keys_empty(place), CONSUMERS);
            place += 1;
        }
        mbarrier::init(shared.values_full(0), 1);
        mbarrier::init(shared.values_empty(0), warps);
        mbarrier::init(shared.scores_full(), warps);
        // An adder that expects the other block's part, and the warps that write the own one.
        mbarrier::init(shared.inbox_full(0), 1 + WARPS);
        let mut block = 0;
        while block < C::CLUSTER {
            // Those of this block, or the thread of the other one that has waited for those there.
            mbarrier::init(shared.inbox_empty(block), if block == rank { ADDERS } else { 1 });
            block += 1;
        }
        shared.query_pipeline().init(warps * C::CLUSTER);
        shared.gradient_pipeline().init(warps * C::CLUSTER);
        mbarrier::fence_init();
    }
}

/// The heads of keys of a cluster, and of each one its passes: a tile of keys for each block.
#[derive(Clone, Copy)]
pub(super) struct Passes<'a> {
    params: &'a AttentionParams,
    /// The head, among those of all sequences.
    pub number: u32,
    /// The pass of the head.
    pub pass: u32,
}

impl<'a> Passes<'a> {
    #[inline(always)]
    pub fn new<C: Config>(params: &'a AttentionParams) -> Self {
        Self { params, number: thread::block_idx_x() / C::CLUSTER, pass: 0 }
    }

    /// The tile of the block with its sequence and its turns; none behind the last pass.
    #[inline(always)]
    pub fn get<C: Config>(self, rank: u32) -> Option<Work> {
        let params = self.params;
        let heads = (params.heads / params.group.max(1)).max(1);
        if self.number >= heads * params.batch {
            return None;
        }
        let (head, batch) = (self.number % heads, self.number / heads);
        let tile = KeyTile { first_key: (self.pass * C::CLUSTER + rank) * BLOCK_N, head, batch };
        Some(Work { tile, sequence: sequence(params, batch), turns: self.turns::<C>() })
    }

    /// The pass of one of the cluster's turns, counted over all of its heads, and the turn's number in it.
    #[inline(always)]
    pub fn of_turn<C: Config>(params: &'a AttentionParams, turn: u32) -> (Self, u32) {
        let first = Self::new::<C>(params);
        let of_pass = first.turns::<C>().max(1);
        let of_head = (of_pass * first.count::<C>()).max(1);
        let number = first.number + turn / of_head * (thread::grid_dim_x() / C::CLUSTER);
        (Self { params, number, pass: turn % of_head / of_pass }, turn % of_pass)
    }

    /// Turns of a pass.
    #[inline(always)]
    fn turns<C: Config>(self) -> u32 {
        self.params.queries.div_ceil(C::BLOCK_M) * self.params.group
    }

    /// The tile of queries of the turn with this number, and the head among those that share the keys. Back
    /// from the last one in every other pass.
    #[inline(always)]
    pub fn turn<C: Config>(self, work: Work, index: u32) -> (u32, u32) {
        let of_head = self.params.queries.div_ceil(C::BLOCK_M).max(1);
        let turn = if self.pass.is_multiple_of(2) { index } else { work.turns - 1 - index };
        (turn % of_head, turn / of_head)
    }

    /// Passes of a head.
    #[inline(always)]
    pub fn count<C: Config>(self) -> u32 {
        self.params.keys.div_ceil(C::CLUSTER * BLOCK_N)
    }

    /// One pass on.
    #[inline(always)]
    fn advance<C: Config>(&mut self) {
        self.pass += 1;
        if self.pass >= self.count::<C>() {
            self.pass = 0;
            self.number += thread::grid_dim_x() / C::CLUSTER;
        }
    }
}

/// Brings K tile by tile, to the place that dK of the tile before the last one has left, and tells the other
/// block of each turn whose parts of dQ have been read here.
///
/// # Safety
/// As for [`run`]; one thread calls it after the barriers are made.
#[inline(always)]
unsafe fn bring_keys<C: Config>(arguments: Arguments<'_>, shared: Plan<C>, rank: u32) {
    let mut passes = Passes::new::<C>(arguments.params);
    let mut place = PipelineState::<Of<C>>::START;
    let empty = shared.inbox_empty(rank);
    let mut parity = 0;
    // SAFETY: the caller's contract. Consumers say in the first turn of a tile that the one before has left;
    // by the second one they have.
    unsafe {
        let mut turns = load_keys(arguments, shared, place, passes.get::<C>(rank));
        while turns > 0 {
            place = place.next();
            passes.advance::<C>();
            let of_tile = turns;
            let mut index = 0;
            while index < of_tile {
                mbarrier::wait_parity(empty, parity);
                mbarrier::arrive_remote(cluster::map_shared(empty, rank ^ 1));
                parity ^= 1;
                if index == 1 || of_tile == 1 {
                    turns = load_keys(arguments, shared, place, passes.get::<C>(rank));
                }
                index += 1;
            }
        }
    }
}

/// Brings K of a tile when the place is empty, and tells of the tile; or tells that there is none. The tile's
/// turns.
///
/// # Safety
/// As for [`bring_keys`].
#[inline(always)]
unsafe fn load_keys<C: Config>(
    arguments: Arguments<'_>,
    shared: Plan<C>,
    place: PipelineState<Of<C>>,
    work: Option<Work>,
) -> u32 {
    let full = shared.keys_full(place.stage);
    // SAFETY: the caller's contract.
    unsafe {
        wait_for_place(shared, place);
        if let Some(work) = work {
            work.tell(shared.work(place.stage));
            load::<C>(arguments.maps.keys, full, shared.keys(place.stage), work);
            return work.turns;
        }
        let tile = KeyTile { first_key: 0, head: 0, batch: 0 };
        Work { tile, sequence: sequence(arguments.params, 0), turns: 0 }.tell(shared.work(place.stage));
        mbarrier::arrive(full);
        0
    }
}

/// Waits until a place of K is empty: after a turn of the tile in the other place, if there is one.
///
/// # Safety
/// As for [`bring_keys`].
#[inline(always)]
unsafe fn wait_for_place<C: Config>(shared: Plan<C>, place: PipelineState<Of<C>>) {
    // SAFETY: the caller's contract. The first tile waits for nobody, so place 0 is a phase behind.
    unsafe { mbarrier::wait_parity(shared.keys_empty(place.stage), place.phase ^ place.stage ^ 1) }
}

/// Brings K or V of a tile.
///
/// # Safety
/// As for [`bring_keys`]; the place is empty.
#[inline(always)]
unsafe fn load<C: Config>(map: *const TensorMap, full: u32, to: u32, work: Work) {
    let Work { tile, sequence, .. } = work;
    // SAFETY: the caller's contract.
    unsafe {
        mbarrier::arrive_expect_tx(full, Keys::<C>::BYTES);
        let mut column = 0;
        while column < C::BOXES {
            let row = (sequence.first_key + tile.first_key) as i32;
            let coords = [(column * BOX_COLUMNS) as i32, row, tile.head as i32, sequence.matrix as i32];
            tma::load_4d(to + column * C::KEY_BOX, map, full, coords);
            column += 1;
        }
    }
}

/// Brings the block's columns of queries and gradients of all turns to both blocks, and tells of each turn.
/// Brings V of each tile behind its first queries.
///
/// # Safety
/// As for [`run`]; one thread calls it after the barriers are made.
#[inline(always)]
unsafe fn bring_queries<C: Config>(arguments: Arguments<'_>, shared: Plan<C>, rank: u32) {
    let Arguments { maps, params, rows, .. } = arguments;
    let mut passes = Passes::new::<C>(params);
    let mut state = PipelineState::<Of<C>>::START;
    let mut parity = 1;
    let bytes = Queries::<C>::BYTES + Statistics::<C>::BYTES;
    // SAFETY: the caller's contract. A stage that was acquired is empty in both blocks, and expects the bytes
    // of its copies, whichever block makes them.
    unsafe {
        while let Some(work) = passes.get::<C>(rank) {
            let (blocks, Work { tile, sequence, turns }) = (work.blocks::<C>(&arguments), work);
            let mut index = 0;
            while index < turns {
                let (block, of_group) = passes.turn::<C>(work, index);
                index += 1;
                let head = tile.head * params.group + of_group;
                let first_row = block * C::BLOCK_M;
                let of_matrix = (tile.batch * params.heads + head) as usize * params.padded_rows as usize;
                let (row, is_partial) = (of_matrix + first_row as usize, blocks.is_partial(block));
                let turn = Turn { block, is_partial, is_last: index == turns, head, row };
                let copy = |map: *const TensorMap, full: u32, to: u32| {
                    let boxes = C::BOXES / C::CLUSTER;
                    let mut column = rank * boxes;
                    let end = column + boxes;
                    while column < end {
                        let matrix = sequence.matrix as i32;
                        let coords = [(column * BOX_COLUMNS) as i32, first_row as i32, head as i32, matrix];
                        tma::load_4d_multicast(to + column * C::QUERY_BOX, map, full, coords, BOTH);
                        column += 1;
                    }
                };
                let stage = state.stage;
                shared.query_pipeline().producer_wait(state);
                Ticket::at(shared.tickets(stage)).write(turn);
                let full = shared.query_pipeline().producer_expect(state, bytes);
                copy(maps.queries, full, shared.queries(stage));
                tma::bulk_load(shared.logarithms(stage), rows.logarithms.add(row), C::BLOCK_M * 4, full);
                shared.gradient_pipeline().producer_wait(state);
                let full = shared.gradient_pipeline().producer_expect(state, bytes);
                copy(maps.gradients, full, shared.gradients(stage));
                tma::bulk_load(shared.deltas(stage), rows.deltas.add(row), C::BLOCK_M * 4, full);
                state = state.next();
                if index == 1 {
                    // Of the tile before, read in its last turn.
                    mbarrier::wait_parity(shared.values_empty(0), parity);
                    load::<C>(maps.values, shared.values_full(0), shared.values(0), work);
                    parity ^= 1;
                }
            }
            passes.advance::<C>();
        }
    }
}

impl<C: Config> Consumer<'_, C> {
    /// Computes the gradients of the consumer's keys of each tile of the block.
    ///
    /// # Safety
    /// As for [`run`]; all threads of all consumers call it.
    #[inline(always)]
    unsafe fn run_halves(mut self) {
        let mut state = PipelineState::<Of<C>>::START;
        // SAFETY: the caller's contract.
        unsafe {
            loop {
                mbarrier::wait_parity(self.shared.keys_full(self.place.stage), self.place.phase);
                if self.work().turns == 0 {
                    break;
                }
                let mut gradients: [C::Gradient; 2] = [zero(), zero()];
                state = self.sum(&mut gradients, state);
                self.write_results(gradients);
                fence::proxy_async_shared();
                Barrier::Consumer(self.consumer).sync();
                self.send_results();
                self.place = self.place.next();
            }
            if self.thread == 0 {
                tma::wait_group_read::<0>();
            }
        }
    }

    /// Begins to send dK and dV of the consumer's keys.
    ///
    /// # Safety
    /// The whole warpgroup is here; it has written its lines, fenced them, and met.
    #[inline(always)]
    unsafe fn send_results(self) {
        let Arguments { maps, .. } = self.arguments;
        // SAFETY: the caller's contract.
        unsafe {
            if self.thread == 0 {
                let Work { tile, sequence, .. } = self.work();
                let row = sequence.first_key + tile.first_key + self.own_keys();
                let place = [row, tile.head, sequence.matrix];
                self.send_lines(maps.key_gradients, self.keys() + self.first_line(), place);
                self.send_lines(maps.value_gradients, self.shared.scores(0) + self.first_line(), place);
                tma::commit_group();
            }
        }
    }

    /// Waits until dK and dV of the tile before have left shared memory, if there was one, and gives the
    /// place of its K back.
    ///
    /// # Safety
    /// The whole warpgroup is here, in the first turn of a tile.
    #[inline(always)]
    pub(super) unsafe fn wait_until_sent(self) {
        // SAFETY: the caller's contract; the barrier counts each consumer once a tile.
        unsafe {
            if self.thread == 0 {
                tma::wait_group_read::<0>();
                mbarrier::arrive(self.shared.keys_empty(self.place.stage ^ 1));
            }
            Barrier::Consumer(self.consumer).sync();
        }
    }

    /// Leaves V, in the last turn of a tile.
    ///
    /// # Safety
    /// The whole warp is here, and the products that read V are over; the stage is full.
    #[inline(always)]
    pub(super) unsafe fn leave_values(self, stage: u32) {
        // SAFETY: the caller's contract; the barrier counts each warp once a tile.
        unsafe {
            if self.ticket(stage).read().is_last && self.thread.is_multiple_of(32) {
                mbarrier::arrive(self.shared.values_empty(0));
            }
        }
    }

    /// Sends the consumer's part of dQ of the turn before this state of the pipeline to the block whose
    /// columns it has, when that has read the part before.
    ///
    /// # Safety
    /// The whole warpgroup is here, once a turn, and so it is.
    #[inline(always)]
    pub(super) unsafe fn send_part(self, part: &C::QueryGradient, state: PipelineState<Of<C>>) {
        let (shared, to) = (self.shared, self.consumer);
        let own = shared.inbox(self.rank) + self.thread * layout::UNIT_BYTES;
        let x = part.as_ref();
        let quad = |step: usize| [x[4 * step], x[4 * step + 1], x[4 * step + 2], x[4 * step + 3]];
        // SAFETY: the caller's contract. At first the inbox is empty: the phase before the first counts as
        // over. The other block lives until all that is sent to it has come.
        unsafe {
            mbarrier::wait_parity_cluster(shared.inbox_empty(to), state.stage);
            if to == self.rank {
                unroll!(STEP in 0..16, {
                    if STEP < steps::<C::QueryGradient>() {
                        vector::store_shared_v4(own + STEP as u32 * STEP_BYTES, quad(STEP));
                    }
                });
                sync_warp(FULL_MASK);
                if self.thread.is_multiple_of(32) {
                    mbarrier::arrive(shared.inbox_full(0));
                }
            } else {
                let (own, full) =
                    (cluster::map_shared(own, to), cluster::map_shared(shared.inbox_full(0), to));
                unroll!(STEP in 0..16, {
                    if STEP < steps::<C::QueryGradient>() {
                        cluster::store_async_v4(own + STEP as u32 * STEP_BYTES, quad(STEP), full);
                    }
                });
            }
        }
    }

    /// Passes on a part of dQ when all but `PENDING` groups of products are over.
    ///
    /// # Safety
    /// As for [`send_part`](Self::send_part); the part's products have been started.
    #[inline(always)]
    pub(super) unsafe fn pass_part<const PENDING: u32>(
        self,
        part: &mut C::QueryGradient,
        state: PipelineState<Of<C>>,
    ) {
        // SAFETY: the caller's contract.
        unsafe {
            wgmma::wait_group::<PENDING>();
            wgmma::fence_registers(part);
            self.send_part(part, state);
        }
    }
}

/// Bytes of a part from a step of eight columns to the next.
const STEP_BYTES: u32 = WARPGROUP * layout::UNIT_BYTES;
