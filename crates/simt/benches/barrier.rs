//! The costs of the executor: of a barrier for each thread, a warp collective for each lane, a thread, and a
//! checked access.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ironwarp_simt::{LaunchConfig, Options, barrier, memory, shared, thread, warp};

const BARRIERS: u64 = 64;
const THREADS: u64 = 256;

/// One OS thread, so that figures are per core.
fn options(check: bool) -> Options {
    Options { check, workers: 1, ..Options::default() }
}

fn thread_barriers(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("thread_barriers");
    group.throughput(Throughput::Elements(BARRIERS * THREADS));
    for (name, check) in [("plain", false), ("checked", true)] {
        group.bench_function(name, |bencher| {
            let config = LaunchConfig::linear(1, THREADS as u32);
            bencher.iter(|| {
                ironwarp_simt::run(&config, &options(check), || {
                    (0..BARRIERS).for_each(|_| barrier::sync(0, None))
                })
            });
        });
    }
    group.finish();
}

fn warp_collectives(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("warp_collectives");
    group.throughput(Throughput::Elements(BARRIERS * THREADS));
    group.bench_function("shuffle", |bencher| {
        let config = LaunchConfig::linear(1, THREADS as u32);
        bencher.iter(|| {
            ironwarp_simt::run(&config, &options(false), || {
                let mut value = thread::lane();
                for _ in 0..BARRIERS {
                    value += warp::collective("shfl", u32::MAX, value)[5].unwrap_or_default();
                }
                std::hint::black_box(value);
            })
        });
    });
    group.finish();
}

fn threads(criterion: &mut Criterion) {
    const BLOCKS: u32 = 256;
    let mut group = criterion.benchmark_group("threads");
    group.throughput(Throughput::Elements(u64::from(BLOCKS) * THREADS));
    group.bench_function("empty", |bencher| {
        let config = LaunchConfig::linear(BLOCKS, THREADS as u32);
        bencher.iter(|| ironwarp_simt::run(&config, &options(false), || ()));
    });
    group.finish();
}

fn accesses(criterion: &mut Criterion) {
    static TILE: shared::StaticKey = shared::StaticKey::new("TILE");
    const ROUNDS: usize = 16;
    let mut group = criterion.benchmark_group("shared_accesses");
    group.throughput(Throughput::Elements(2 * ROUNDS as u64 * THREADS));
    for (name, check) in [("plain", false), ("checked", true)] {
        group.bench_function(name, |bencher| {
            let config = LaunchConfig::linear(1, THREADS as u32);
            bencher.iter(|| {
                ironwarp_simt::run(&config, &options(check), || {
                    let tile = shared::alloc_static(&TILE, THREADS as usize * 4, 4).cast::<u32>();
                    let mine = tile.wrapping_add(thread::rank() as usize);
                    for _ in 0..ROUNDS {
                        // SAFETY: the tile has an element for every thread.
                        unsafe {
                            memory::store(mine, 1);
                            std::hint::black_box(memory::load(mine));
                        }
                    }
                })
            });
        });
    }
    group.finish();
}

criterion_group!(benches, thread_barriers, warp_collectives, threads, accesses);
criterion_main!(benches);
