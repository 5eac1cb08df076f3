//! Pipelines on the executor, with the checker on, under 20 schedules.

use cuda_std::{async_copy, mbarrier, shared, thread, tma, vector};
use ironwarp_primitives::cluster::{ClusterCoord, ClusterShape};
use ironwarp_primitives::pipeline::{CopyPipeline, Depth, Pipeline, PipelineState, Stages};
use ironwarp_primitives::shared_plan::{SharedPlan, SharedType};
use ironwarp_primitives::tma::{LINE_BYTES, Major, TmaTile};
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

/// Blocks of a cluster share out a tile, each line once, in boxes of equal size that do not cross 128 bytes
/// of rows where k is not contiguous.
#[test]
fn blocks_share_out_every_line_of_a_tile_once() {
    for (major, rows, span, sharers) in [
        (Major::K, 128, 64, 4),
        (Major::K, 144, 64, 2),
        (Major::Mn, 128, 64, 4),
        (Major::Mn, 96, 64, 2),
        (Major::Mn, 256, 64, 2),
        (Major::Mn, 64, 32, 4),
    ] {
        assert!(major.can_share(rows, span, sharers), "{major:?} {rows} {sharers}");
        let lines = (major.bytes(rows) / LINE_BYTES) as usize;
        let mut seen = vec![0; lines];
        for index in 0..sharers {
            let TmaTile { first, part, box_lines, .. } =
                TmaTile::new(major, [rows, span], [index, sharers], 0);
            assert!(part.is_multiple_of(box_lines), "{major:?} {rows} {sharers}");
            for start in (first..first + part).step_by(box_lines as usize) {
                let end = start + box_lines;
                assert!(major == Major::K || start / span == (end - 1) / span, "{start} to {end}");
                seen[start as usize..end as usize].iter_mut().for_each(|count| *count += 1);
            }
        }
        assert_eq!(seen, vec![1; lines], "{major:?} {rows} {sharers}");
    }
    // 36 rows a block are no whole pattern; 96 lines of a block are a box and a half.
    assert!(!Major::K.can_share(144, 64, 4));
    assert!(!Major::Mn.can_share(144, 64, 2));
}
