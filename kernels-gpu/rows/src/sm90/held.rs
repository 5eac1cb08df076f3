//! The engine that holds rows in shared memory: a block, or a cluster, for each row.
//!
//! ```text
//!   global ==> shared memory --take--> warps --> block --> cluster --finish--> map --> global
//! ```
//! A row is read once, and its threads have all their vectors under way at the same time. Other blocks of the
//! multiprocessor load while one of them reduces. L1 is free for what rows share.

use super::reduce::PARTS_BYTES;
use super::ring::{Piece, Staged};
use crate::function::{Direct, RowFunction, Statistics, Tensors};
use crate::plan::{HELD_BYTES, HELD_THREADS, MAX_CLUSTER, Plan};
use cuda_std::{cluster, grid, mbarrier, misc, shared, thread, tma, vector};
use primitives::access::VECTOR_BYTES;
use primitives::element::InF32;
use primitives::shared_plan::{Mbarrier, SharedPlan};
use primitives::warp::LANES;
use primitives::{shared_bytes, shared_plan, unroll};

/// Most warps of a block.
const WARPS: u32 = HELD_THREADS / LANES;

shared_plan! {
    /// Words between threads.
    pub struct Exchange {
        /// Statistics of the block's warps.
        warps[WARPS]: Parts,
        /// Those of the cluster's blocks.
        blocks[MAX_CLUSTER]: Parts,
        /// Says that those have come.
        full[1]: Mbarrier,
        /// Says that the rows are there.
        loaded[1]: Mbarrier,
        /// Rows begin at a multiple of 128.
        rest: Rest,
    }
}
shared_bytes! {
    /// Statistics.
    pub struct Parts(PARTS_BYTES, align 16);
}
shared_bytes! {
    /// Nothing.
    pub struct Rest(0, align 128);
}

const _: () = assert!(<Exchange as SharedPlan>::TOTAL == HELD_BYTES);

/// Applies the function to all rows.
///
/// # Safety
/// As for [`crate::direct::run`], and the plan is one for this engine; all tensors of a row lie alike within
/// 16 bytes.
#[inline(always)]
pub unsafe fn run<T: InF32, F: RowFunction<T>, const N: usize>(
    plan: &Plan,
    function: &F,
    tensors: &Tensors<T>,
) {
    grid::launch_dependents();
    let exchange_base = shared::address_of(shared::dynamic_shared_mem::<u8>());
    let exchange = Exchange::new(exchange_base);
    let thread = thread::thread_idx_x();
    let rank = if plan.cluster > 1 { cluster::block_rank() } else { 0 };
    // SAFETY: the block's own barrier, which nothing uses yet; all threads of the cluster come here.
    unsafe {
        if thread == 0 {
            mbarrier::init(exchange.loaded(0), plan.tile);
            mbarrier::init(exchange.full(0), 1);
            mbarrier::fence_init();
            if plan.cluster > 1 {
                mbarrier::arrive_expect_tx(exchange.full(0), plan.cluster * PARTS_BYTES as u32);
            }
        }
        thread::sync_threads();
        if plan.cluster > 1 {
            cluster::arrive_relaxed();
        }
    }
    let (team, member) = plan.member(thread);
    let number = (thread::block_idx_x() >> plan.cluster.trailing_zeros()) * plan.tile + team;
    let exists = u64::from(number) < plan.rows;
    let number = if exists { number } else { 0 };
    let piece = Piece::of(plan, tensors.input_row(plan, 0, number.into()), rank, exists);
    let edges = if rank == 0 { piece.span.edges } else { 0 };
    grid::wait_dependencies();
    let base = exchange_base + HELD_BYTES + team * plan.row_bytes;
    // SAFETY: places of the row, each of one thread; the branches on the plan are the same for all threads.
    unsafe {
        if member == 0 {
            fill(plan, &of_number(plan, tensors, number), &piece, [base, exchange.loaded(0)]);
        }
        let of_row = function.begin(number.into());
        let mut statistics = F::Statistics::empty();
        let mut edge = member;
        while edge < edges {
            let row = of_number(plan, tensors, number);
            let place: Direct<T> = row.place(piece.span.edge::<T>(edge));
            statistics = RowFunction::take::<1>(function, of_row, statistics, &place);
            edge += plan.team;
        }
        mbarrier::wait_parity(exchange.loaded(0), 0);
        let place = |outputs: Tensors<T>, index: u32| Staged {
            address: base + index * VECTOR_BYTES as u32,
            part: plan.part_bytes,
            outputs,
            column: piece.span.vector::<T>(piece.first + index),
            head: piece.span.head,
        };
        let (row, mut index) = (of_number(plan, tensors, number), misc::opaque(member));
        while index < piece.count {
            statistics = RowFunction::take::<N>(function, of_row, statistics, &place(row, index));
            index += plan.team;
        }
        let statistics = reduce(plan, exchange, statistics, misc::opaque(thread));
        // The first block of a row that exists. The row's number and the block's rank would take registers.
        let is_first = member == 0 && piece.first == 0 && (piece.count > 0 || edges > 0);
        let mut of = function.finish(of_row, statistics, number.into(), plan.columns, is_first);
        let (row, mut index) = (of_number(plan, tensors, number), misc::opaque(member));
        while index < piece.count {
            RowFunction::map::<N>(function, &mut of, &place(row, index));
            index += plan.team;
        }
        let mut edge = member;
        while edge < edges {
            let row = of_number(plan, tensors, number);
            RowFunction::map::<1>(function, &mut of, &row.place(piece.span.edge::<T>(edge)));
            edge += plan.team;
        }
        function.end(of);
    }
}

/// The tensors of a row, computed here: those of all inputs serve one thread of a team, and edges.
#[inline(always)]
fn of_number<T>(plan: &Plan, tensors: &Tensors<T>, number: u32) -> Tensors<T> {
    tensors.row(plan, misc::opaque(number).into())
}

/// Begins to copy the block's part of a row, for a barrier.
///
/// # Safety
/// One thread of the team calls it; the row exists, or the part is empty.
#[inline(always)]
unsafe fn fill<T>(plan: &Plan, row: &Tensors<T>, piece: &Piece, [to, loaded]: [u32; 2]) {
    let (bytes, column) = (piece.count * VECTOR_BYTES as u32, piece.span.vector::<T>(piece.first));
    // SAFETY: vectors of the row, and as much room in shared memory.
    unsafe {
        mbarrier::arrive_expect_tx(loaded, bytes * plan.inputs);
        if bytes > 0 {
            unroll!(INPUT in 0..3, {
                if (INPUT as u32) < plan.inputs {
                    let from = row.inputs[INPUT].wrapping_add(column as usize);
                    tma::bulk_load(to + INPUT as u32 * plan.part_bytes, from, bytes, loaded);
                }
            });
        }
    }
}

/// The statistics of the whole row: of some lanes, of the team's warps, of the cluster's blocks.
///
/// # Safety
/// All threads of the cluster call it once, after the barrier of the cluster's has been arrived at.
#[inline(always)]
unsafe fn reduce<S: Statistics<f32>>(plan: &Plan, exchange: Exchange, own: S, thread: u32) -> S {
    // SAFETY: the caller's contract; a slot is written by one thread before the barrier and read after it.
    unsafe {
        if plan.team <= LANES {
            return own.reduce(plan.team);
        }
        let of_warp = own.reduce(LANES);
        let (warp, lane, warps) = (thread / LANES, thread % LANES, plan.team / LANES);
        let (team, _) = plan.member(thread);
        if lane == 0 {
            vector::store_shared_v4(exchange.warps(warp), of_warp.parts());
        }
        thread::sync_threads();
        let slot = exchange.warps(team * warps + (lane & (warps - 1)));
        let of_block = S::from_parts(vector::load_shared_v4(slot)).reduce(warps);
        if plan.cluster == 1 {
            return of_block;
        }
        // The others' barriers are ready.
        cluster::wait();
        if thread < plan.cluster {
            let to = cluster::map_shared(exchange.blocks(cluster::block_rank()), thread);
            cluster::store_async_v4(to, of_block.parts(), cluster::map_shared(exchange.full(0), thread));
        }
        mbarrier::wait_parity(exchange.full(0), 0);
        let slot = exchange.blocks(lane & (plan.cluster - 1));
        S::from_parts(vector::load_shared_v4(slot)).reduce(plan.cluster)
    }
}
