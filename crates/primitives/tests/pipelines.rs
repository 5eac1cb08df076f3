//! Pipelines on the executor, with the checker on, under 20 schedules.

use cuda_std::{async_copy, mbarrier, shared, thread, tma, vector};
use ironwarp_primitives::cluster::{ClusterCoord, ClusterShape};
use ironwarp_primitives::pipeline::{CopyPipeline, Depth, Pipeline, PipelineState, Stages};
use ironwarp_primitives::shared_plan::{SharedPlan, SharedType};
use simt::{LaunchConfig, Options};

const SEEDS: u64 = 20;
/// Tiles that go through a pipeline: more than twice its stages.
const TILES: u32 = 9;
/// Numbers of a tile, one a consumer.
const LEN: u32 = 32;
const STAGES: u32 = 3;

ironwarp_primitives::shared_bytes! {
    /// A tile.
    struct Tile(LEN * 4, align 128);
}

ironwarp_primitives::shared_plan! {
    /// Stages, and the barriers of their pipeline.
    struct Plan<D: Depth> {
        tile[D::STAGES]: Tile,
        pipeline: Pipeline<D>,
    }
}

ironwarp_primitives::named_barriers! {
    enum Barrier {
        Consumers[1]: 32 threads,
    }
}

struct Alone;

impl ClusterShape for Alone {
    const M: u32 = 1;
    const N: u32 = 1;
    const K: u32 = 1;
}

/// Addresses of arrays that closures of threads may share.
#[derive(Clone, Copy)]
struct Memory {
    from: usize,
    to: usize,
}

/// Runs `body` under each schedule; it adds all tiles' numbers of a consumer.
fn check(threads: u32, shared: u32, body: impl Fn(Memory) + Sync) {
    let from: Vec<f32> = (0..TILES * LEN).map(|i| (i * i % 97) as f32).collect();
    let want: Vec<f32> =
        (0..LEN).map(|i| (0..TILES).map(|tile| from[(tile * LEN + i) as usize]).sum()).collect();
    for seed in 0..SEEDS {
        let mut to = vec![0.0f32; LEN as usize];
        simt::memory::track(from.as_ptr(), size_of_val(from.as_slice()), "from");
        simt::memory::track(to.as_ptr(), size_of_val(to.as_slice()), "to");
        let memory = Memory { from: from.as_ptr() as usize, to: to.as_mut_ptr() as usize };
        let options = Options { seed, check: true, ..Options::from_env() };
        let config = LaunchConfig::linear(1, threads).shared(shared);
        let result = simt::run(&config, &options, || body(memory));
        simt::memory::untrack(from.as_ptr());
        simt::memory::untrack(to.as_ptr());
        if let Err(fault) = result {
            panic!("seed {seed}: {fault}");
        }
        assert_eq!(to, want, "seed {seed}");
    }
}

#[test]
fn a_producer_feeds_a_consumer_by_tma() {
    type Pipe = Stages<STAGES>;
    check(64, Plan::<Pipe>::TOTAL, |memory| {
        let plan = Plan::<Pipe>::new(shared::address_of(shared::dynamic_shared_mem::<u8>()));
        let (warp, lane) = (thread::thread_idx_x() / 32, thread::thread_idx_x() % 32);
        let mut state = PipelineState::<Pipe>::START;
        // SAFETY: one thread makes the barriers before all meet; the arrays have as many numbers.
        unsafe {
            if warp == 0 && lane == 0 {
                plan.pipeline().init(1);
                mbarrier::fence_init();
            }
            thread::sync_threads();
            if warp == 0 {
                if lane == 0 {
                    for tile in 0..TILES {
                        let full = plan.pipeline().producer_acquire(state, Tile::BYTES);
                        let from = (memory.from as *const f32).add((tile * LEN) as usize);
                        tma::bulk_load(plan.tile(state.stage), from, Tile::BYTES, full);
                        state = state.next();
                    }
                }
            } else {
                let mut sum = 0.0;
                for _ in 0..TILES {
                    plan.pipeline().consumer_wait(state);
                    sum += vector::load_shared::<f32>(plan.tile(state.stage) + lane * 4);
                    Barrier::Consumers(0).sync();
                    plan.pipeline().consumer_release(state.stage, lane, ClusterCoord::<Alone>::this());
                    state = state.next();
                }
                simt::memory::store((memory.to as *mut f32).add(lane as usize), sum);
            }
        }
    });
}

#[test]
fn all_threads_copy_and_use_by_cp_async() {
    const COPIES: u32 = LEN * 4 / 16;
    check(LEN, STAGES * Tile::BYTES, |memory| {
        let base = shared::address_of(shared::dynamic_shared_mem::<u8>());
        let thread = thread::thread_idx_x();
        let mut pipeline: CopyPipeline<Stages<STAGES>> = CopyPipeline::new(Stages, Tile::BYTES);
        let load = |pipeline: &mut CopyPipeline<Stages<STAGES>>, tile: u32| {
            if tile < TILES && thread < COPIES {
                let to = base + pipeline.stage_to_load() + thread * 16;
                // SAFETY: the thread's place in the stage; numbers of the array.
                unsafe {
                    let from = (memory.from as *const f32).add((tile * LEN + thread * 4) as usize);
                    async_copy::copy_cg(to, from);
                }
            }
            pipeline.commit();
        };
        let prologue = pipeline.prologue();
        for tile in 0..prologue {
            load(&mut pipeline, tile);
        }
        let mut sum = 0.0;
        for tile in 0..TILES {
            let stage = pipeline.wait();
            load(&mut pipeline, tile + prologue);
            // SAFETY: a number of the stage.
            sum += unsafe { vector::load_shared::<f32>(base + stage + thread * 4) };
            pipeline.release();
        }
        // SAFETY: the thread's own number.
        unsafe { simt::memory::store((memory.to as *mut f32).add(thread as usize), sum) };
    });
}
