//! What the warpgroups of a block do. See [`super`] for the picture.

use cuda_std::tma::TensorMap;
use cuda_std::{barrier, cluster, grid, mbarrier, misc, registers, shared, thread, tma};

use super::config::{Config, WARPGROUP};
use super::exchange;
use super::operands::{BOX_BYTES, BOX_ELEMENTS, Operands, ROW_BYTES};
use super::pipeline::{Position, Ring};
use super::problem::{Corner, Maps, Problem, Walk};
use super::sum::{Sum, Task, Turn};

/// Registers of a copying thread.
const PRODUCER_REGISTERS: u32 = 40;
/// Registers of a multiplying thread: `128 * 40 + 256 * 232` of the block's `384 * 168`.
const CONSUMER_REGISTERS: u32 = 232;
/// The same with [`Config::SPARES`]: `128 * 24 + 256 * 240`.
const SPARING_PRODUCER_REGISTERS: u32 = 24;
const SPARED_CONSUMER_REGISTERS: u32 = 240;

/// Barrier of the first consumer; the others' follow. Number 0 is that of the block.
pub const FIRST_CONSUMER_BARRIER: u32 = 1;

/// What becomes of a consumer's part of each tile.
///
/// # Safety of its functions
/// The whole warpgroup is here, for the same tile.
pub trait Sink<C: Config> {
    /// Called before the products of the tile of which the block's part begins at `corner`.
    ///
    /// # Safety
    /// See [`Sink`].
    unsafe fn prepare(&mut self, corner: Corner);

    /// Takes the tile that [`prepare`](Sink::prepare) announced.
    ///
    /// # Safety
    /// See [`Sink`].
    unsafe fn tile(&mut self, tile: &C::Stored, corner: Corner);

    /// Called last, once.
    ///
    /// # Safety
    /// See [`Sink`].
    unsafe fn finish(&mut self);
}

/// Multiplies the tiles of `walk`, by the whole grid: `sum` says how, and `sink` makes of a consumer's thread, by its number among all consumers,
/// what takes their elements.
///
/// # Safety
/// The maps are as [`Maps`] says for `C` and [`Problem`], whose `band` is not 0; the launch has blocks of `C::THREADS` threads along
/// x with `C::SHARED` bytes of dynamic shared memory, in clusters of `C::CLUSTER` along x. The walk's tiles are tiles of the product, in the same
/// order for whoever asks, and each is one cluster's; nothing is read for them before the first question. The sink may do with the
/// tiles what it does.
#[inline(always)]
pub unsafe fn run<C: Config, W: Walk<C>, S: Sum<C>, K: Sink<C>>(
    maps: Maps,
    problem: Problem,
    walk: W,
    sum: S,
    sink: impl FnOnce(Ring<C>, u32) -> K,
) {
    const { C::CHECKED };
    let ring = Ring::<C>::new(shared::address_of(shared::dynamic_shared_mem::<u8>()));
    let thread = thread::thread_idx_x();
    // SAFETY: one thread makes the barriers before all meet; roles are those of whole warpgroups; the rest is the caller's contract.
    unsafe {
        if thread == 0 {
            tma::prefetch(maps.a);
            tma::prefetch(maps.b);
            ring.init();
            if C::CLUSTER_K > 1 {
                exchange::init(ring);
            }
            mbarrier::fence_init();
        }
        meet::<C>();
        // What came before may still write the operands or read the result.
        grid::wait_dependencies();
        grid::launch_dependents();
        if thread < WARPGROUP {
            if C::SPARES {
                registers::set_max_registers_dec::<SPARING_PRODUCER_REGISTERS>();
            } else if C::CONSUMERS == 2 {
                registers::set_max_registers_dec::<PRODUCER_REGISTERS>();
            }
            if thread == 0 {
                produce::<C, W>(maps, problem, walk, ring);
            }
            meet_late::<C>();
        } else {
            if C::SPARES {
                registers::set_max_registers_inc::<SPARED_CONSUMER_REGISTERS>();
            } else if C::CONSUMERS == 2 {
                registers::set_max_registers_inc::<CONSUMER_REGISTERS>();
            }
            meet_late::<C>();
            let thread = thread - WARPGROUP;
            consume(problem, walk, ring, sum, sink(ring, thread), thread);
        }
        // Others of the cluster still arrive at this block's barriers; but what comes through an exchange has been waited for.
        if Ring::<C>::WRITERS > 1 {
            cluster::sync();
        }
    }
}

/// A barrier of all whom the ring's copies concern: the cluster, or the block.
#[inline(always)]
unsafe fn meet<C: Config>() {
    // SAFETY: all threads of the cluster are here. The fence has released the barriers.
    unsafe {
        if C::CLUSTER > 1 {
            cluster::arrive_relaxed();
        }
        if Ring::<C>::WRITERS > 1 {
            cluster::wait();
        } else {
            thread::sync_threads();
        }
    }
}

/// The rest of the cluster, whom only the exchange concerns: the first copies are under way meanwhile.
#[inline(always)]
unsafe fn meet_late<C: Config>() {
    if C::CLUSTER > 1 && Ring::<C>::WRITERS == 1 {
        // SAFETY: all threads have arrived when they met.
        unsafe { cluster::wait() }
    }
}

/// Fills stages with the operands of one tile after the other.
#[inline(always)]
unsafe fn produce<C: Config, W: Walk<C>>(maps: Maps, problem: Problem, mut walk: W, ring: Ring<C>) {
    let k_tiles = problem.share::<C>(ring.cluster_share);
    let mut position = Position::START;
    while walk.is_left() {
        let corner = walk.corner([ring.cluster_row, ring.cluster_column]);
        let mut k_tile = 0;
        loop {
            let k = (k_tile * C::CLUSTER_K + ring.cluster_share) * <C::Operands as Operands>::BLOCK_K;
            // SAFETY: the stage is empty once waited for, and expects the bytes of all boxes that come, from this block's
            // copies and from those of its cluster.
            unsafe {
                ring.wait_empty(position);
                let full = ring.full(position.stage);
                mbarrier::arrive_expect_tx(full, C::A_BYTES + C::B_BYTES);
                Share::a(ring).load(maps.a, ring.a(position.stage), full, corner.row, k, corner.batch);
                Share::b(ring).load(maps.b, ring.b(position.stage), full, corner.column, k, corner.group);
            }
            position = position.next::<C>();
            k_tile += 1;
            if k_tile >= k_tiles {
                break;
            }
        }
        walk.skip(1);
    }
}

/// A block's part of the copies of an operand: all of it, or a part that it copies to all blocks that need it.
#[derive(Clone, Copy)]
struct Share {
    trans: u32,
    /// Rows of m or n in the block's tile.
    rows: u32,
    /// Blocks that share them, and this one's number among them.
    sharers: u32,
    index: u32,
    mask: u16,
}

impl Share {
    #[inline(always)]
    fn a<C: Config>(ring: Ring<C>) -> Self {
        Self {
            trans: <C::Operands as Operands>::TRANS_A,
            rows: C::BLOCK_M,
            sharers: C::CLUSTER_N,
            index: ring.cluster_column,
            mask: ring.row_mask(),
        }
    }

    #[inline(always)]
    fn b<C: Config>(ring: Ring<C>) -> Self {
        Self {
            trans: <C::Operands as Operands>::TRANS_B,
            rows: C::BLOCK_N,
            sharers: C::CLUSTER_M,
            index: ring.cluster_row,
            mask: ring.column_mask(),
        }
    }

    /// Starts the copies of the rows from `first` on and of a stage's worth of k from `k` on.
    #[inline(always)]
    unsafe fn load(self, map: *const TensorMap, to: u32, full: u32, first: u32, k: u32, batch: u32) {
        if self.trans == 0 {
            let part = self.rows / self.sharers;
            let row = self.index * part;
            let coords = [k as i32, (first + row) as i32, batch as i32];
            // SAFETY: the part's place in the stage; the caller's contract.
            unsafe { self.copy(map, to + row * ROW_BYTES, full, coords) }
        } else {
            let boxes = self.rows.div_ceil(BOX_ELEMENTS) / self.sharers;
            let mut index = self.index * boxes;
            let end = index + boxes;
            while index < end {
                let coords = [(first + index * BOX_ELEMENTS) as i32, k as i32, batch as i32];
                // SAFETY: as above.
                unsafe { self.copy(map, to + index * BOX_BYTES, full, coords) }
                index += 1;
            }
        }
    }

    #[inline(always)]
    unsafe fn copy(self, map: *const TensorMap, to: u32, full: u32, coords: [i32; 3]) {
        // SAFETY: the caller's contract.
        unsafe {
            if self.sharers > 1 {
                tma::load_3d_multicast(to, map, full, coords, self.mask);
            } else {
                tma::load_3d(to, map, full, coords);
            }
        }
    }
}

/// Multiplies what comes through the ring, and hands it on.
#[inline(always)]
unsafe fn consume<C: Config, W: Walk<C>, S: Sum<C>, K: Sink<C>>(
    problem: Problem,
    mut walk: W,
    ring: Ring<C>,
    sum: S,
    mut sink: K,
    thread: u32,
) {
    let mut position = Position::START;
    if C::PING_PONG {
        let consumer = thread / WARPGROUP;
        walk.skip(consumer);
        position = position.skip::<C>(consumer * problem.k_tiles::<C>());
    }
    let mut is_first = true;
    let mut parity = 0;
    while walk.is_left() {
        // What follows from the thread's number is not kept beside the accumulators.
        let number = misc::opaque(thread);
        let (consumer, thread) = (number / WARPGROUP, number % WARPGROUP);
        let mut corner = walk.corner([ring.cluster_row, ring.cluster_column]);
        let first_row = if C::PING_PONG { 0 } else { consumer * C::CONSUMER_ROWS };
        corner.row += first_row;
        let is_empty = corner.is_bounded && corner.row >= corner.end;
        if is_empty && C::CLUSTER == 1 && !C::PING_PONG {
            let k_tiles = problem.k_tiles::<C>();
            // SAFETY: the whole warpgroup is here.
            unsafe { leave(ring, position, k_tiles, consumer, thread) }
            position = position.skip::<C>(k_tiles);
            walk.skip(1);
            continue;
        }
        // SAFETY: the whole warpgroup is here; the rest is the caller's contract.
        unsafe {
            let mut stored = corner;
            stored.column += ring.cluster_share * C::STORED_N;
            sink.prepare(stored);
            let turn = Turn { consumer, is_passed: walk.is_followed() };
            Turn::wait::<C>(consumer, consumer == 0 && is_first);
            let k_tiles = problem.share::<C>(ring.cluster_share);
            let task = Task { ring, corner, first_row, k_tiles, problem, thread, turn, parity };
            let tile = sum.tile(task, &mut position);
            sink.tile(&tile, stored);
            is_first = false;
            parity ^= 1;
        }
        walk.skip(1);
        if C::PING_PONG {
            // The other one's tile.
            walk.skip(1);
            position = position.skip::<C>(problem.k_tiles::<C>());
        }
    }
    // SAFETY: the whole warpgroup is here.
    unsafe { sink.finish() }
}

/// Leaves the stages of a tile of which the consumer has nothing to do: power for the others.
///
/// # Safety
/// The whole warpgroup is here, and the stages come, from `position` on.
#[inline(always)]
unsafe fn leave<C: Config>(ring: Ring<C>, mut position: Position, k_tiles: u32, consumer: u32, thread: u32) {
    // SAFETY: one thread waits for all, since those who are late could miss a round; without a cluster it also releases alone.
    unsafe {
        if thread == 0 {
            let mut left = k_tiles;
            while left > 0 {
                ring.wait_full(position);
                ring.release(position.stage, thread);
                position = position.next::<C>();
                left -= 1;
            }
        }
        barrier::sync(FIRST_CONSUMER_BARRIER + consumer, WARPGROUP);
    }
}
