//! A block's warpgroups: a producer copies, consumers multiply and store. [`super`] has the picture.

use cuda_std::{cluster, fence, grid, mbarrier, misc, registers, shared, thread, tma, warp, wgmma};
use layout::wgmma::units;
use primitives::cluster::Cluster;
use primitives::pipeline::PipelineState;
use primitives::shared_plan::SharedType;
use primitives::tma::{LINE_BYTES, Major, TmaTile};
use primitives::unroll;
use primitives::warp::{LANES, uniform};

use super::barriers::{OrderedBarrier, init, leave, sync_cluster, sync_split_k};
use super::config::{Block, Clusters, Config, Of, Stage, WARPGROUP, WARPS};
use super::epilogue::Epilogue;
use super::operands::{AccumulatorTile, Operands, STEPS, SharedOperand};
pub use super::output::Maps;
use super::tile_scheduler::{GemmShape, TileCoord, TileScheduler, share};

/// Registers of a producer's and a consumer's thread: `128 * 40 + 256 * 232` of the block's `384 * 168`.
const REGISTERS: [u32; 2] = [40, 232];
/// The same with [`Config::SPARES`].
const SPARING_REGISTERS: [u32; 2] = [24, 240];

/// Multiplies the tiles of `scheduler`, by the whole grid. `mainloop` sums a tile. `epilogue` gets a block
/// and a thread's number among all consumers, and makes the epilogue that takes the sums.
///
/// # Safety
/// The maps are as [`Maps`] says for `C` and the shape. The launch has blocks of `C::THREADS` threads along x
/// with `C::SHARED` bytes of dynamic shared memory, in clusters of `C::CLUSTER` along x, or with
/// [`Config::ANY_CLUSTER`] of as many as [`GemmShape::cluster`] says. The scheduler's tiles are tiles of the
/// product, in the same order for all callers, and each is one cluster's. Before the first `has_tile`, and
/// unless it [reads](TileScheduler::READS) before the first tile's place is known, it reads no memory; nor
/// does what makes the epilogue, unless it waits for earlier launches itself. The epilogue may write the
/// tiles.
#[inline(always)]
pub unsafe fn run<C: Config, S: TileScheduler<C>, M: Mainloop<C>, E: Epilogue<C>>(
    maps: Maps,
    shape: GemmShape,
    scheduler: S,
    mainloop: M,
    epilogue: impl FnOnce(Block<C>, u32) -> E,
) {
    // SAFETY: the caller's contract.
    unsafe {
        let loader = move |maps, block| Boxes::new::<C>(maps, shape, block);
        run_from::<C, S, _, M, E>(maps, shape, scheduler, loader, mainloop, epilogue)
    }
}

/// As [`run`], with operands that another [`Loader`] brings: `loader` makes it, in the thread that copies, or
/// with [`Config::DIRECT`] in all threads of the producer. Then the maps of A and B mean nothing.
///
/// # Safety
/// As [`run`]; the loader's operands are valid for reads, its copies bring all bytes of each stage, and it
/// reads no memory before the first of them.
#[inline(always)]
pub unsafe fn run_from<C: Config, S: TileScheduler<C>, L: Loader<C>, M: Mainloop<C>, E: Epilogue<C>>(
    maps: Maps,
    shape: GemmShape,
    scheduler: S,
    loader: impl Fn(Maps, Block<C>) -> L + Copy,
    mainloop: M,
    epilogue: impl FnOnce(Block<C>, u32) -> E,
) {
    const { C::CHECKED };
    let block = Block::<C>::new(shared::address_of(shared::dynamic_shared_mem::<u8>()), &shape);
    let thread = thread::thread_idx_x();
    // SAFETY: one thread makes the barriers before all meet; a warpgroup has one role; the caller's contract.
    unsafe {
        if thread == 0 {
            if !C::DIRECT {
                tma::prefetch(maps.a);
                tma::prefetch(maps.b);
            }
            init(block);
            mbarrier::fence_init();
        }
        sync_cluster::<C>();
        // Earlier grids may still write what is read from here on, or read the result. Where tiles are needs
        // no memory, but some hundred instructions: they are over when earlier grids are.
        if S::READS {
            grid::wait_dependencies();
        }
        grid::launch_dependents();
        let warp = uniform(thread / LANES);
        if warp < WARPS {
            if C::SPARES {
                registers::set_max_registers_dec::<{ SPARING_REGISTERS[0] }>();
            } else if C::CONSUMERS == 2 {
                registers::set_max_registers_dec::<{ REGISTERS[0] }>();
            }
            // Of a lane that is elected the assembler knows that it is alone: a copy of one that is merely
            // the first it puts in a loop over all lanes that there might be.
            if C::DIRECT || warp == 0 && warp::elect() {
                // A block that is alone has a loop without what sharing takes.
                if C::ANY_CLUSTER && block.peers() == 1 {
                    produce(shape, scheduler, block.alone(), loader(maps, block.alone()));
                } else {
                    produce(shape, scheduler, block, loader(maps, block));
                }
            }
            sync_split_k::<C>();
        } else {
            if C::SPARES {
                registers::set_max_registers_inc::<{ SPARING_REGISTERS[1] }>();
            } else if C::CONSUMERS == 2 {
                registers::set_max_registers_inc::<{ REGISTERS[1] }>();
            }
            sync_split_k::<C>();
            let thread = thread - WARPGROUP;
            consume(shape, scheduler, block, mainloop, epilogue(block, thread), [warp / WARPS - 1, thread]);
        }
        // Others of the cluster still arrive at this block's barriers.
        if Clusters::<C>::SHARES {
            cluster::sync();
        }
    }
}

/// Brings the operands of a tile, stage after stage.
pub trait Loader<C: Config> {
    /// A tile begins, of this block.
    fn begin(&mut self, tile: TileCoord);

    /// Bytes that come into each of its stages, from all blocks that copy to it: those of whole tiles of A
    /// and B.
    #[inline(always)]
    fn bytes(&self) -> u32 {
        C::Operands::MAJOR_A.bytes(C::BLOCK_M) + C::Operands::MAJOR_B.bytes(C::BLOCK_N)
    }

    /// Starts the copies of the tile's elements of k from `k` on into a stage.
    ///
    /// # Safety
    /// The stage is empty, and `full` expects [`Loader::bytes`]; or, with [`Config::DIRECT`], an arrival of
    /// each thread of the producer, which comes with or behind its copies.
    unsafe fn load(&mut self, stage: Stage<C>, full: u32, tile: TileCoord, k: u32);
}

/// The [`Loader`] of operands that lie as their [`Maps`] say. Boxes that have no rows of an operand are left
/// out where [`GemmShape::box_m`] and [`GemmShape::box_n`] cut tiles into several: the copy engine would take
/// longer to fill them with zeros than to copy. What is multiplied in their places goes nowhere.
pub struct Boxes {
    maps: Maps,
    a: TmaTile,
    b: TmaTile,
    /// Rows of A.
    m: u32,
    /// Columns of B.
    n: u32,
    /// Rows of A's tile that come.
    rows_a: u32,
    /// Columns of B's.
    rows_b: u32,
}

impl Boxes {
    /// A block's part of the copies.
    #[inline(always)]
    fn new<C: Config>(maps: Maps, shape: GemmShape, block: Block<C>) -> Self {
        let GemmShape { m, n, box_m, box_n, .. } = shape;
        let at = block.coord;
        let span = <C::Operands as Operands>::BLOCK_K;
        let [box_m, box_n] = if C::SKIPS { [box_m, box_n] } else { [0; 2] };
        let tile = |major, rows, place: [u32; 2], mask, wanted| {
            let tile = TmaTile::new(major, [rows, span], place, mask);
            let box_lines = if wanted > 0 && major == Major::K { wanted } else { tile.box_lines };
            TmaTile { box_lines, ..tile }
        };
        let a = tile(C::Operands::MAJOR_A, C::BLOCK_M, [at.column, at.cluster.n()], at.row_mask(), box_m);
        let b = tile(C::Operands::MAJOR_B, C::BLOCK_N, [at.row, at.cluster.m()], at.column_mask(), box_n);
        // Where all boxes are to come, all rows count as the operand's.
        let (m, n) = (if box_m == 0 { u32::MAX } else { m }, if box_n == 0 { u32::MAX } else { n });
        if C::SKIPS && box_m | box_n != 0 {
            shared::leave_unwritten(block.shared.stage(0).a(), C::STAGES * Stage::<C>::BYTES);
        }
        Self { maps, a, b, m, n, rows_a: C::BLOCK_M, rows_b: C::BLOCK_N }
    }
}

impl<C: Config> Loader<C> for Boxes {
    #[inline(always)]
    fn begin(&mut self, tile: TileCoord) {
        if !C::SKIPS {
            return;
        }
        let n = if C::NARROWS && self.n != u32::MAX { tile.right } else { self.n };
        self.rows_a = self.a.rows_inside(tile.row, self.m);
        self.rows_b = self.b.rows_inside(tile.column, n);
    }

    #[inline(always)]
    fn bytes(&self) -> u32 {
        (self.rows_a + self.rows_b) * LINE_BYTES
    }

    #[inline(always)]
    unsafe fn load(&mut self, stage: Stage<C>, full: u32, tile: TileCoord, k: u32) {
        // SAFETY: the caller's contract.
        unsafe {
            self.a.load(self.maps.a, stage.a(), full, [tile.row, k, tile.batch], self.rows_a);
            self.b.load(self.maps.b, stage.b(), full, [tile.column, k, tile.group], self.rows_b);
        }
    }
}

/// Fills stages with the operands of one tile after the other.
///
/// # Safety
/// * One thread of the producer calls it, or all of them with [`Config::DIRECT`], once, after the barriers
///   are made.
/// * The loader's operands are valid for reads. All blocks of the cluster run the same tiles.
#[inline(always)]
unsafe fn produce<C: Config, S: TileScheduler<C>, L: Loader<C>>(
    shape: GemmShape,
    mut scheduler: S,
    block: Block<C>,
    mut loader: L,
) {
    let at = block.coord;
    let mut state = PipelineState::START;
    let mut is_first = true;
    while scheduler.has_tile() {
        let k_tiles = share::<C>(scheduler.k_tiles(&shape), at.share);
        let tile = scheduler.coord([at.row, at.column]);
        let (first_k, [batch, group]) = shape.origin(tile);
        let tile = TileCoord { batch, group, ..tile };
        loader.begin(tile);
        if is_first {
            // Earlier grids may still write the operands.
            grid::wait_dependencies();
            is_first = false;
        }
        let mut k_tile = 0;
        loop {
            let k = first_k + (k_tile * C::CLUSTER_K + at.share) * C::Operands::BLOCK_K;
            // SAFETY: an acquired stage is empty, and expects the bytes of all copies from its cluster
            // or, with `DIRECT`, an arrival of each thread.
            unsafe {
                let pipeline = block.shared.pipeline();
                let full = if C::DIRECT {
                    pipeline.producer_wait(state);
                    pipeline.full(state.stage)
                } else {
                    pipeline.producer_acquire(state, loader.bytes())
                };
                loader.load(block.shared.stage(state.stage), full, tile, k);
            }
            state = state.next();
            k_tile += 1;
            if k_tile >= k_tiles {
                break;
            }
        }
        scheduler.advance(1);
    }
}

/// Multiplies what comes through the pipeline, and hands it to the epilogue.
///
/// # Safety
/// * All consumers' threads call it, once, after the barriers are made, with the consumer's number and their
///   own among all of them.
/// * The producer fills stages for the same tiles. What `mainloop` and `epilogue` ask holds for all of them.
#[inline(always)]
unsafe fn consume<C: Config, S: TileScheduler<C>, M: Mainloop<C>, E: Epilogue<C>>(
    shape: GemmShape,
    mut scheduler: S,
    block: Block<C>,
    mainloop: M,
    mut epilogue: E,
    [consumer, thread]: [u32; 2],
) {
    let mut state = PipelineState::START;
    if C::PING_PONG {
        state = state.skip(consumer * scheduler.k_tiles(&shape));
        scheduler.advance(consumer);
    }
    let mut is_first = true;
    let mut parity = 0;
    while scheduler.has_tile() {
        // Numbers derived from the thread's number take no registers beside the accumulators.
        let thread = misc::opaque(thread) % WARPGROUP;
        let mut tile = scheduler.coord([block.coord.row, block.coord.column]);
        let first_row = if C::PING_PONG { 0 } else { consumer * C::CONSUMER_ROWS };
        tile.row += first_row;
        let is_empty = tile.is_bounded && tile.row >= tile.end;
        if is_empty && Clusters::<C>::IS_ALONE && !C::PING_PONG {
            let k_tiles = scheduler.k_tiles(&shape);
            // SAFETY: the whole warpgroup is here.
            unsafe { leave(block, state, k_tiles, consumer, thread) }
            state = state.skip(k_tiles);
            scheduler.advance(1);
            continue;
        }
        // SAFETY: the whole warpgroup is here; the rest is the caller's contract.
        unsafe {
            let mut stored = tile;
            stored.column += block.coord.share * C::STORED_N;
            if is_first {
                // Earlier grids may still write what the epilogue reads, or read the result.
                grid::wait_dependencies();
            }
            epilogue.prepare(stored);
            let order = OrderedBarrier { consumer, is_followed: scheduler.is_followed() };
            OrderedBarrier::wait::<C>(consumer, consumer == 0 && is_first);
            let k_tiles = share::<C>(scheduler.k_tiles(&shape), block.coord.share);
            let task = Task { block, tile, first_row, k_tiles, shape, thread, order, parity };
            let sums = mainloop.accumulate(task, &mut state);
            epilogue.store(&sums, stored);
            is_first = false;
            parity ^= 1;
        }
        scheduler.advance(1);
        if C::PING_PONG {
            // The other one's tile.
            state = state.skip(scheduler.k_tiles(&shape));
            scheduler.advance(1);
        }
    }
    // SAFETY: the whole warpgroup is here.
    unsafe { epilogue.finish() }
}

/// A tile to be summed, as one thread of a consumer sees it.
#[derive(Clone, Copy)]
pub struct Task<C: Config> {
    /// The stages.
    pub block: Block<C>,
    /// The consumer's part of the tile.
    pub tile: TileCoord,
    /// Where it begins in the stage's rows of A.
    pub first_row: u32,
    /// Stages of the tile, at least 1.
    pub k_tiles: u32,
    /// The product.
    pub shape: GemmShape,
    /// Number of the thread in its warpgroup.
    pub thread: u32,
    /// When others may multiply.
    pub order: OrderedBarrier,
    /// Parity of the number of the consumer's tiles before this one.
    pub parity: u32,
}

/// How a consumer sums the products of a tile's stages.
pub trait Mainloop<C: Config>: Copy {
    /// Sums a tile from stage `state` on, moves `state` behind it, and lets the other consumer multiply.
    ///
    /// # Safety
    /// The whole warpgroup is here, with the same task but for the thread, and the stages come.
    unsafe fn accumulate(self, task: Task<C>, state: &mut PipelineState<Of<C>>) -> C::Stored;
}

/// Sums all stages in the accumulators. One group of products is in flight while the next stage is awaited.
#[derive(Clone, Copy)]
pub struct InAccumulators;

impl<C: Config<Stored = <C as Config>::Tile>> Mainloop<C> for InAccumulators {
    #[inline(always)]
    unsafe fn accumulate(self, task: Task<C>, state: &mut PipelineState<Of<C>>) -> C::Stored {
        // SAFETY: the caller's contract is the same.
        unsafe { task.sum(state) }
    }
}

/// Repeats `$sum` for the instructions that are narrower than the widest, each at tiles that it covers.
macro_rules! narrowest {
    ($task:ident, $state:ident of $config:ident: $($columns:literal)*) => {
        $(
            if $task.shape.columns::<$config>() <= $columns {
                // SAFETY: the caller's contract.
                let sums: [[f32; $columns / 2]; 1] = unsafe { $task.sum_in($state) };
                return widened(&sums);
            }
        )*
    };
}

/// The sums of a narrower tile of one group of rows, in the place of a tile's first columns.
#[inline(always)]
fn widened<C: AccumulatorTile, T: AccumulatorTile>(narrow: &T) -> C {
    let mut tile = C::zero();
    unroll!(STEP in 0..32, {
        if (8 * STEP as u32) < T::COLUMNS {
            unroll!(I in 0..4, { tile.set(0, 4 * STEP + I, narrow.get(0, 4 * STEP + I)); });
        }
    });
    tile
}

impl<C: Config> Task<C> {
    /// The sums of all stages, by the narrowest instruction that covers the tile's columns.
    ///
    /// # Safety
    /// As for [`Mainloop::accumulate`].
    #[inline(always)]
    pub(super) unsafe fn sum(&self, state: &mut PipelineState<Of<C>>) -> C::Tile {
        if C::NARROWS {
            narrowest!(self, state of C: 160 192 224);
        }
        // SAFETY: the caller's contract.
        unsafe { self.sum_in(state) }
    }

    /// The sums of all stages in the first columns of the tile.
    ///
    /// # Safety
    /// As for [`Mainloop::accumulate`].
    #[inline(always)]
    unsafe fn sum_in<T: AccumulatorTile>(&self, state: &mut PipelineState<Of<C>>) -> T {
        let mut tile = T::zero();
        let mut previous = state.stage;
        let mut k_tile = 0;
        // At least once: else the assembler would find other instructions between a product and its wait.
        loop {
            // SAFETY: the caller's contract; a stage is released after the products that read it.
            unsafe {
                self.multiply(&mut tile, *state, k_tile > 0);
                wgmma::wait_group::<1>();
                tile.fence();
                if k_tile > 0 {
                    self.block.release(previous, self.thread);
                }
            }
            previous = state.stage;
            *state = state.next();
            k_tile += 1;
            if k_tile >= self.k_tiles {
                break;
            }
        }
        // SAFETY: as above.
        unsafe {
            self.order.arrive::<C>();
            wgmma::wait_group::<0>();
            tile.fence();
            self.block.release(previous, self.thread);
        }
        tile
    }

    /// Waits for the stage and issues its products as one group, after `tile`'s fence.
    ///
    /// # Safety
    /// The whole warpgroup is here, and the stage comes.
    #[inline(always)]
    pub(super) unsafe fn multiply<T: AccumulatorTile>(
        &self,
        tile: &mut T,
        state: PipelineState<Of<C>>,
        accumulate: bool,
    ) {
        let first = self.block.shared.stage(0);
        // Else the compiler would keep an address for each of both.
        let start = misc::opaque(units(first.a()) + state.stage * units(Stage::<C>::BYTES));
        let a = if C::LINE_A == LINE_BYTES {
            SharedOperand::new(C::Operands::MAJOR_A, start, 0, self.first_row)
        } else {
            SharedOperand::in_boxes([C::LINE_A, C::BLOCK_M], start, 0, self.first_row)
        };
        let b = SharedOperand::new(C::Operands::MAJOR_B, start, first.b() - first.a(), 0);
        // SAFETY: the caller's contract; the stage is full.
        unsafe {
            self.block.shared.pipeline().consumer_wait(state);
            if C::DIRECT {
                // Threads have written the stage.
                fence::proxy_async_shared();
            }
            tile.fence();
            wgmma::fence();
            unroll!(STEP in 0..4, {
                const { assert!(STEPS == 4) };
                tile.multiply::<C::Operands>(STEP, a, b, STEP != 0 || accumulate);
            });
            wgmma::commit_group();
        }
    }
}
