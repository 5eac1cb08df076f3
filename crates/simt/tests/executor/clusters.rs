//! Clusters: ranks, their barrier, and each other's shared memory.

use std::sync::Mutex;

use crate::common::{fails, fails_at, get, passes, put};
use ironwarp_simt::barrier::sync;
use ironwarp_simt::cluster::{
    arrive, arrive_relaxed, block_idx, block_rank, blocks, count, dim, id, load_shared, map_shared,
    store_shared, sync as cluster_sync, wait,
};
use ironwarp_simt::mbarrier::{arrive_expect_tx, arrive_remote, fence_init, init, wait_parity};
use ironwarp_simt::remote::store_async;
use ironwarp_simt::shared::{alloc_static, from_address, to_address};
use ironwarp_simt::{FaultKind, LaunchConfig, StaticKey, mbarrier, thread};

static BARS: StaticKey = StaticKey::new("BARS");
static DATA: StaticKey = StaticKey::new("DATA");
const THREADS: u32 = 64;
const BLOCKS: u32 = 4;

fn config() -> LaunchConfig {
    LaunchConfig { cluster: [BLOCKS, 1, 1], ..LaunchConfig::linear(2 * BLOCKS, THREADS) }
}

fn bar(index: u32) -> u32 {
    to_address(alloc_static(&BARS, 64, 8)) + 8 * index
}

fn word(index: u32) -> *mut u32 {
    alloc_static(&DATA, 4 * THREADS as usize, 16).cast::<u32>().wrapping_add(index as usize)
}

fn there(index: u32, block: u32) -> u32 {
    map_shared(to_address(word(index)), block)
}

#[track_caller]
fn get_from(addr: u32) -> u32 {
    // SAFETY: checking is on.
    unsafe { load_shared(addr) }
}

#[track_caller]
fn put_to(addr: u32, value: u32) {
    // SAFETY: checking is on.
    unsafe { store_shared(addr, value) }
}

fn rank() -> u32 {
    thread::rank()
}

fn next() -> u32 {
    (block_rank() + 1) % blocks()
}

#[test]
fn every_block_has_its_place() {
    let seen: Mutex<Vec<_>> = Mutex::default();
    let config =
        LaunchConfig { grid: [4, 6, 2], block: [1; 3], cluster: [2, 3, 1], ..LaunchConfig::default() };
    ironwarp_simt::run(&config, &ironwarp_simt::Options::default(), || {
        assert_eq!((blocks(), dim(), count()), (6, [2, 3, 1], [2, 2, 2]));
        let (inner, outer, block) = (block_idx(), id(), thread::block_idx());
        assert!((0..3).all(|axis| outer[axis] * dim()[axis] + inner[axis] == block[axis]));
        assert_eq!(block_rank(), inner[0] + 2 * inner[1]);
        seen.lock().unwrap().push((outer, block_rank()));
    })
    .unwrap();
    let mut seen = seen.into_inner().unwrap();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 48);
}

#[test]
fn without_clusters_a_block_is_alone() {
    passes(LaunchConfig::linear(3, 32), || {
        assert_eq!((block_rank(), blocks()), (0, 1));
        put(word(rank()), rank());
        cluster_sync();
        assert_eq!(get_from(there(31 - rank(), 0)), 31 - rank());
        cluster_sync();
    });
}

#[test]
fn a_ring_through_shared_memory() {
    passes(config(), || {
        put(word(rank()), 100 * block_rank() + rank());
        cluster_sync();
        let got = get_from(there(rank(), next()));
        assert_eq!(got, 100 * next() + rank());
        cluster_sync();
        put_to(there(THREADS - 1 - rank(), next()), got + 1);
        cluster_sync();
        assert_eq!(get(word(rank())), 100 * block_rank() + THREADS - rank());
    });
}

#[test]
fn the_split_barrier_lets_work_between() {
    passes(config(), || {
        put(word(rank()), rank());
        arrive();
        let own = rank() * 3;
        wait();
        assert_eq!(get_from(there(rank() ^ 1, next())), rank() ^ 1);
        arrive();
        assert_eq!(own, rank() * 3);
        wait();
    });
}

#[test]
fn a_store_after_the_arrival_is_not_ordered() {
    fails(config(), FaultKind::SharedRace, || {
        arrive();
        put(word(rank()), rank());
        wait();
        get_from(there(rank(), next()));
        cluster_sync();
    });
}

#[test]
fn a_relaxed_arrival_orders_nothing() {
    fails(config(), FaultKind::SharedRace, || {
        put(word(rank()), rank());
        arrive_relaxed();
        wait();
        get_from(there(rank(), next()));
        cluster_sync();
    });
    passes(config(), || {
        put(word(rank()), rank());
        ironwarp_simt::memory::fence(ironwarp_simt::memory::Scope::Cluster);
        arrive_relaxed();
        wait();
        get_from(there(rank(), next()));
        cluster_sync();
    });
}

#[test]
fn block_barriers_are_not_enough() {
    let line = line!();
    let fault = fails_at(config(), FaultKind::SharedRace, &[line + 3, line + 5], || {
        cluster_sync();
        put(word(rank()), rank());
        sync(0, None);
        get_from(there(rank(), next()));
        cluster_sync();
    });
    assert_ne!(fault.block, fault.other.unwrap().block);
}

#[test]
fn remote_arrivals_hand_data_over() {
    passes(config(), || {
        if rank() == 0 {
            init(bar(0), THREADS);
            fence_init();
        }
        cluster_sync();
        put_to(there(rank(), next()), 10 * block_rank() + rank());
        arrive_remote(map_shared(bar(0), next()));
        wait_parity(bar(0), 0);
        let from = (block_rank() + blocks() - 1) % blocks();
        assert_eq!(get(word(THREADS - 1 - rank())), 10 * from + THREADS - 1 - rank());
        cluster_sync();
    });
}

#[test]
fn a_message_and_its_answer() {
    passes(config(), || {
        if rank() == 0 {
            init(bar(0), 1);
            init(bar(1), 1);
            fence_init();
        }
        arrive_relaxed();
        wait();
        // Thread 0 sends, thread 32 of the next block answers, thread 40 of the first reads.
        match rank() {
            0 => {
                put_to(there(0, next()), block_rank());
                arrive_remote(map_shared(bar(0), next()));
            }
            32 => {
                wait_parity(bar(0), 0);
                let from = get(word(0));
                put(word(0), 7);
                put_to(there(1, from), 50 + from);
                arrive_remote(map_shared(bar(1), from));
            }
            40 => {
                wait_parity(bar(1), 0);
                assert_eq!(get(word(1)), 50 + block_rank());
                assert_eq!(get_from(there(0, next())), 7);
            }
            _ => {}
        }
        cluster_sync();
    });
}

#[test]
fn a_forgotten_remote_wait() {
    fails(config(), FaultKind::SharedRace, || {
        if rank() == 0 {
            init(bar(0), 1);
            fence_init();
        }
        cluster_sync();
        if rank() == 0 {
            put_to(there(0, next()), 1);
            arrive_remote(map_shared(bar(0), next()));
            get(word(0));
            wait_parity(bar(0), 0);
        }
        cluster_sync();
    });
}

#[test]
fn access_before_the_other_block_has_begun() {
    fails(config(), FaultKind::ClusterInvalid, || {
        get_from(there(rank(), next()));
        cluster_sync();
    });
}

#[test]
fn access_after_the_other_block_has_ended() {
    let fault = fails(config(), FaultKind::ClusterInvalid, || {
        put(word(rank()), rank());
        cluster_sync();
        get_from(there(rank(), next()));
    });
    assert!(fault.message.contains("end"), "{fault}");
}

#[test]
fn arrival_after_the_other_block_has_ended() {
    fails(config(), FaultKind::ClusterInvalid, || {
        if rank() == 0 {
            init(bar(0), 1);
            fence_init();
        }
        cluster_sync();
        if rank() == 0 {
            arrive_remote(map_shared(bar(0), next()));
        }
    });
}

#[test]
fn use_of_a_remote_barrier_before_its_initialisation_is_known() {
    fails(config(), FaultKind::MbarrierInvalid, || {
        arrive();
        wait();
        if rank() == 0 {
            init(bar(0), 1);
            fence_init();
            arrive_remote(map_shared(bar(0), next()));
        }
        cluster_sync();
    });
}

/// As on a GPU, the rank is in the high bits of a block's own addresses.
#[test]
fn addresses_have_the_rank_above_their_offset() {
    passes(config(), || {
        let own = to_address(word(0));
        assert_eq!((own >> 24, own), (block_rank(), map_shared(own, block_rank())));
        assert_eq!(map_shared(own, next()) >> 24, next());
        assert_eq!((own ^ map_shared(own, next())) << 8, 0);
        assert_eq!(from_address(own), word(0).cast());
    });
    let cut: [fn(u32); 3] = [
        |address| assert!(!from_address(address).is_null()),
        |address| init(address, 1),
        |address| assert_eq!(get_from(address), 0),
    ];
    for operation in cut {
        let fault = fails(config(), FaultKind::WrongMemory, || operation(to_address(word(0)) & 0x3_ffff));
        assert!(fault.message.contains("lacks the bits"), "{fault}");
    }
}

#[test]
fn ranks_and_addresses_that_are_not() {
    fails(config(), FaultKind::ClusterInvalid, || {
        map_shared(to_address(word(0)), BLOCKS);
    });
    fails(config(), FaultKind::WildPointer, || {
        get_from(to_address(word(0)) | 9 << 24);
    });
    fails(config(), FaultKind::OutOfBounds, || {
        cluster_sync();
        get_from(there(THREADS, next()));
        cluster_sync();
    });
    fails(config(), FaultKind::Misaligned, || {
        cluster_sync();
        get_from(there(0, next()) + 2);
        cluster_sync();
    });
    fails(config(), FaultKind::MbarrierInvalid, || {
        cluster_sync();
        wait_parity(map_shared(bar(0), next()), 0);
    });
    let for_own: [fn(u32); 4] = [
        mbarrier::arrive,
        |bar| mbarrier::arrive_count(bar, 1),
        |bar| arrive_expect_tx(bar, 16),
        |bar| mbarrier::expect_tx(bar, 16),
    ];
    for operation in for_own {
        let fault = fails(config(), FaultKind::MbarrierInvalid, || {
            if rank() == 0 {
                init(bar(0), THREADS);
                fence_init();
            }
            cluster_sync();
            operation(map_shared(bar(0), next()));
            cluster_sync();
        });
        assert!(fault.message.contains("`arrive_remote`"), "{fault}");
    }
}

#[test]
fn threads_that_have_ended_are_not_waited_for() {
    passes(config(), || {
        if rank() >= 32 {
            return;
        }
        put(word(rank()), rank());
        cluster_sync();
        assert_eq!(get_from(there(31 - rank(), next())), 31 - rank());
        cluster_sync();
    });
}

#[test]
fn divergence_at_the_barrier() {
    fails(config(), FaultKind::BarrierDivergence, || {
        if rank() != 5 {
            cluster_sync();
        }
    });
    fails(config(), FaultKind::BarrierDivergence, || {
        if rank().is_multiple_of(2) {
            cluster_sync();
        }
        if !rank().is_multiple_of(2) {
            cluster_sync();
        }
    });
    fails(config(), FaultKind::Deadlock, || {
        if rank() < 32 { cluster_sync() } else { ironwarp_simt::barrier::sync(1, Some(64)) }
    });
}

#[test]
fn arrivals_and_waits_take_turns() {
    fails(config(), FaultKind::ClusterInvalid, wait);
    fails(config(), FaultKind::ClusterInvalid, || {
        arrive();
        arrive();
    });
}

#[test]
fn clusters_of_a_cooperative_grid() {
    passes(config().cooperative(), || {
        put(word(rank()), thread::block_idx()[0]);
        cluster_sync();
        let first = id()[0] * BLOCKS;
        assert_eq!(get_from(there(rank(), next())), first + next());
        ironwarp_simt::grid::sync();
    });
}

/// Each thread of a cluster's first block stores a word in the last block, whose threads read it.
fn store_asynchronously(waits: bool) {
    begin_to_store(waits);
    cluster_sync();
}

/// The same, and the blocks end as soon as they have done their part.
fn begin_to_store(waits: bool) {
    let (rank, last) = (thread::rank(), BLOCKS - 1);
    // This store and those that follow are made by the generic proxy, so no proxy fence is needed between
    // them.
    put(word(rank), 0);
    if rank == 0 && block_rank() == last {
        init(bar(0), 1);
        fence_init();
        arrive_expect_tx(bar(0), 4 * THREADS);
    }
    cluster_sync();
    if block_rank() == 0 {
        // SAFETY: checking is on.
        unsafe { store_async(there(rank, last), &[rank + 7], map_shared(bar(0), last)) };
    }
    if block_rank() == last {
        if waits {
            wait_parity(bar(0), 0);
        }
        let got = get(word(rank));
        assert!(!waits || got == rank + 7);
    }
}

#[test]
fn asynchronous_stores_complete_on_an_mbarrier() {
    passes(config(), || store_asynchronously(true));
}

#[test]
fn asynchronous_stores_have_to_be_waited_for() {
    fails(config(), FaultKind::AsyncCopyPending, || store_asynchronously(false));
}

/// A block knows of the stores that it has waited for, and no other block accesses its memory.
#[test]
fn a_block_may_end_when_it_has_what_others_store() {
    passes(config(), || begin_to_store(true));
}

/// A store that has begun may not have ended.
#[test]
fn a_block_may_not_end_while_others_store() {
    fails(config(), FaultKind::CopyUnfinished, || {
        let is_first = thread::rank() == 0 && block_rank() == 0;
        if is_first {
            init(bar(0), 1);
            init(bar(1), 1);
            fence_init();
            arrive_expect_tx(bar(0), 4);
        }
        cluster_sync();
        if thread::rank() == 0 && block_rank() == 1 {
            // SAFETY: checking is on.
            unsafe { store_async(there(0, 0), &[1], map_shared(bar(0), 0)) };
            arrive_remote(map_shared(bar(1), 0));
        }
        if is_first {
            wait_parity(bar(1), 0);
        }
    });
}

#[test]
fn asynchronous_stores_and_their_mbarrier_are_in_one_block() {
    fails(config(), FaultKind::BulkCopyInvalid, || {
        if thread::rank() == 0 {
            init(bar(0), 1);
            fence_init();
        }
        cluster_sync();
        if block_rank() == 0 {
            // SAFETY: checking is on.
            unsafe { store_async(there(0, 1), &[1], bar(0)) };
        }
    });
}
