//! Tensor and bulk copies: the order of uses of their memory, and their rules.

use crate::common::tensors::*;
use crate::common::{fails, fails_at, passes};
use ironwarp_simt::barrier::sync;
use ironwarp_simt::bulk::{self, commit_group, wait_group, wait_group_read};
use ironwarp_simt::cluster::{block_rank, blocks, map_shared, sync as cluster_sync};
use ironwarp_simt::mbarrier::{
    arrive, arrive_expect_tx, arrive_remote, arrive_remote_async, fence_init, init, wait_parity,
};
use ironwarp_simt::memory::{Tracked, load, proxy_fence};
use ironwarp_simt::tensor_map::{Interleave, Swizzle};
use ironwarp_simt::{FaultKind, LaunchConfig, thread, tma};

#[test]
fn a_ring_of_stages() {
    const STAGES: u32 = 3;
    const STEPS: u32 = 12;
    words(&[32, 8 * STEPS as u64], &[32, 8], Swizzle::B128, |map, _| {
        passes(config(), || {
            let (full, empty) = (|stage| bar(stage), |stage| bar(STAGES + stage));
            ready(&[1, 1, 1, 32, 32, 32]);
            for step in 0..STEPS {
                let (stage, parity) = (step % STAGES, (step / STAGES) & 1);
                if rank() == 0 {
                    wait_parity(empty(stage), parity ^ 1);
                    arrive_expect_tx(full(stage), 1024);
                    fetch(tile(1024 * stage), map, full(stage), &[0, (8 * step) as i32]);
                } else if rank() >= 32 {
                    wait_parity(full(stage), parity);
                    for row in 0..8 {
                        let at = tile(1024 * stage) + 128 * row + ((4 * (rank() - 32)) ^ (16 * row));
                        assert_eq!(get(at), 32 * (8 * step + row) + rank() - 32);
                    }
                    arrive(empty(stage));
                }
            }
        });
    });
}

#[test]
fn forgotten_wait() {
    words(&[32, 8], &[32, 8], Swizzle::None, |map, _| {
        let line = line!();
        let fault = fails_at(config(), FaultKind::AsyncCopyPending, &[line + 5, line + 8], || {
            ready(&[1]);
            if rank() == 0 {
                arrive_expect_tx(bar(0), 1024);
                fetch(tile(0), map, bar(0), &[0, 0]);
            }
            sync(0, None);
            get(tile(4 * rank()));
        });
        assert_eq!(fault.other.unwrap().thread, [0; 3]);
    });
}

#[test]
fn wait_by_one_thread_is_no_wait_by_another() {
    words(&[32, 8], &[32, 8], Swizzle::None, |map, _| {
        let kernel = |with_barrier: bool| {
            ready(&[1]);
            if rank() == 0 {
                arrive_expect_tx(bar(0), 1024);
                fetch(tile(0), map, bar(0), &[0, 0]);
            }
            sync(0, None);
            if rank() == 0 {
                wait_parity(bar(0), 0);
            }
            if with_barrier {
                sync(0, None);
            }
            assert_eq!(get(tile(4 * rank())), rank());
        };
        passes(config(), || kernel(true));
        fails(config(), FaultKind::AsyncCopyPending, || kernel(false));
    });
}

#[test]
fn a_grid_barrier_passes_on_waits_and_proxy_fences() {
    words(&[32, 8], &[32, 8], Swizzle::None, |map, _| {
        let kernel = |fence: fn(), meet_after: fn()| {
            ready(&[1]);
            put(tile(4 * rank()), 1);
            fence();
            ironwarp_simt::grid::sync();
            if rank() == 0 {
                arrive_expect_tx(bar(0), 1024);
                fetch(tile(0), map, bar(0), &[0, 0]);
                wait_parity(bar(0), 0);
            }
            meet_after();
            get(tile(4 * rank()));
        };
        let config = config().cooperative();
        passes(config, || kernel(proxy_fence, ironwarp_simt::grid::sync));
        fails(config, FaultKind::ProxyFence, || kernel(|| (), ironwarp_simt::grid::sync));
        fails(config, FaultKind::AsyncCopyPending, || kernel(proxy_fence, || ()));
    });
}

#[test]
fn the_wrong_stage() {
    words(&[32, 8], &[32, 8], Swizzle::None, |map, _| {
        fails(config(), FaultKind::AsyncCopyPending, || {
            ready(&[1, 1]);
            if rank() == 0 {
                for stage in 0..2 {
                    arrive_expect_tx(bar(stage), 1024);
                    fetch(tile(1024 * stage), map, bar(stage), &[0, 0]);
                }
            }
            wait_parity(bar(0), 0);
            get(tile(1024 + 4 * rank()));
            wait_parity(bar(1), 0);
        });
    });
}

#[test]
fn reuse_before_the_consumers_have_arrived() {
    words(&[32, 16], &[32, 8], Swizzle::None, |map, _| {
        let line = line!();
        let fault = fails_at(config(), FaultKind::AsyncCopyPending, &[line + 6, line + 10], || {
            ready(&[1, 1]);
            for step in 0..2 {
                if rank() == 0 {
                    arrive_expect_tx(bar(step), 1024);
                    fetch(tile(0), map, bar(step), &[0, 8 * step as i32]);
                    wait_parity(bar(step), 0);
                } else {
                    wait_parity(bar(step), 0);
                    get(tile(4 * rank()));
                }
            }
        });
        assert!(fault.other.is_some());
    });
}

#[test]
fn expected_bytes_that_are_wrong() {
    words(&[32, 8], &[32, 8], Swizzle::None, |map, _| {
        for bytes in [512, 2048] {
            let fault = fails(config(), FaultKind::Deadlock, || {
                ready(&[1]);
                if rank() == 0 {
                    arrive_expect_tx(bar(0), bytes);
                    fetch(tile(0), map, bar(0), &[0, 0]);
                }
                wait_parity(bar(0), 0);
            });
            let state = if bytes == 512 { "512 bytes that nobody expected" } else { "1024 bytes" };
            assert!(fault.message.contains(state), "{fault}");
        }
        // Half the bytes of two copies: the phase ends when the first has arrived.
        fails(config(), FaultKind::AsyncCopyPending, || {
            ready(&[1]);
            if rank() == 0 {
                arrive_expect_tx(bar(0), 1024);
                fetch(tile(0), map, bar(0), &[0, 0]);
                fetch(tile(1024), map, bar(0), &[0, 0]);
            }
            wait_parity(bar(0), 0);
            get(tile(4 * rank()));
            get(tile(1024 + 4 * rank()));
        });
    });
}

#[test]
fn the_end_before_the_copy() {
    words(&[32, 8], &[32, 8], Swizzle::None, |map, _| {
        fails(config(), FaultKind::CopyUnfinished, || {
            ready(&[1]);
            if rank() == 0 {
                arrive_expect_tx(bar(0), 1024);
                fetch(tile(0), map, bar(0), &[0, 0]);
            }
        });
    });
}

#[test]
fn a_barrier_that_copies_do_not_see() {
    words(&[32, 8], &[32, 8], Swizzle::None, |map, _| {
        let kernel = |fence: fn()| {
            if rank() == 0 {
                init(bar(0), 1);
                fence();
            }
            sync(0, None);
            if rank() == 0 {
                arrive_expect_tx(bar(0), 1024);
                fetch(tile(0), map, bar(0), &[0, 0]);
                wait_parity(bar(0), 0);
            }
        };
        fails(config(), FaultKind::ProxyFence, || kernel(|| ()));
        passes(config(), || kernel(fence_init));
        passes(config(), || kernel(proxy_fence));
    });
}

#[test]
fn writing_before_the_copy_writes() {
    words(&[32, 8], &[32, 8], Swizzle::None, |map, _| {
        let kernel = |fence: fn()| {
            ready(&[1]);
            put(tile(4 * rank()), 1);
            fence();
            sync(0, None);
            if rank() == 0 {
                arrive_expect_tx(bar(0), 1024);
                fetch(tile(0), map, bar(0), &[0, 0]);
            }
            wait_parity(bar(0), 0);
        };
        fails(config(), FaultKind::ProxyFence, || kernel(|| ()));
        passes(config(), || kernel(proxy_fence));
    });
}

#[test]
fn stores_and_their_faults() {
    let fault_of = |kind, kernel: &(dyn Fn(&Map) + Sync)| {
        words(&[32, 8], &[32, 8], Swizzle::B128, |map, _| {
            fails(config(), kind, || kernel(map));
        });
    };
    let go = |map: &Map| {
        send(map, tile(0), &[0, 0]);
        commit_group();
    };
    fault_of(FaultKind::ProxyFence, &|map| {
        fill_box();
        sync(0, None);
        if thread::block_idx()[0] == 0 && rank() == 0 {
            go(map);
            wait_group(0);
        }
    });
    fault_of(FaultKind::AsyncCopyPending, &|map| {
        fill_box();
        proxy_fence();
        if thread::block_idx()[0] == 0 && rank() == 63 {
            go(map);
            wait_group(0);
        }
        sync(0, None);
    });
    fault_of(FaultKind::AsyncCopyPending, &|map| {
        fill_box();
        proxy_fence();
        sync(0, None);
        if thread::block_idx()[0] == 0 && rank() == 0 {
            go(map);
        }
        sync(0, None);
        fill_box();
        wait_group(0);
    });
    fault_of(FaultKind::AsyncCopyPending, &|map| {
        fill_box();
        proxy_fence();
        sync(0, None);
        if thread::block_idx()[0] == 0 && rank() == 0 {
            go(map);
            go(map);
            // The second group is still pending.
            wait_group_read(1);
            put(tile(0), 0);
        }
    });
    fault_of(FaultKind::CopyUnfinished, &|map| {
        fill_box();
        proxy_fence();
        sync(0, None);
        if thread::block_idx()[0] == 0 && rank() == 0 {
            go(map);
        }
    });
    fault_of(FaultKind::UninitialisedShared, &|map| {
        if thread::block_idx()[0] == 0 && rank() == 0 {
            go(map);
            wait_group(0);
        }
        sync(0, None);
    });
}

#[test]
fn a_fence_on_the_way_is_enough() {
    stored(
        [0, 0],
        |map| {
            fill_box();
            sync(0, None);
            if rank() == 33 {
                // The sending thread fences: accesses that it knows of through the barrier count too.
                proxy_fence();
                send(map, tile(0), &[0, 0]);
                commit_group();
                wait_group(0);
            }
        },
        true,
    );
}

#[test]
fn what_was_stored_is_read_after_the_full_wait() {
    words(&[32, 8], &[32, 8], Swizzle::B128, |map, _| {
        let first = {
            let words = ironwarp_simt::tensor_map::decode(&map.0).unwrap();
            words.address as usize
        };
        let kernel = |wait: fn(u32)| {
            fill_box();
            proxy_fence();
            sync(0, None);
            if rank() == 0 {
                send(map, tile(0), &[0, 0]);
                commit_group();
                wait(0);
                // SAFETY: checking is on.
                assert_eq!(unsafe { load(first as *const u32) }, 0);
                wait_group(0);
            }
        };
        let config = LaunchConfig::linear(1, THREADS).shared(4096);
        passes(config, || kernel(wait_group));
        fails(config, FaultKind::AsyncCopyPending, || kernel(wait_group_read));
    });
}

/// Two blocks, each of which fetches half of the data that both read, stage by stage: the ring of a multicast
/// GEMM.
fn multicast_ring(map: &Map, waits_for_both: bool) {
    let (full, empty) = (bar(0), bar(1));
    ready(&[1, if waits_for_both { 2 } else { 1 }]);
    cluster_sync();
    for step in 0..6 {
        if rank() == 0 {
            wait_parity(empty, (step & 1) ^ 1);
            arrive_expect_tx(full, 2048);
            let dst = tile(1024 * block_rank());
            let row = 16 * step as i32 + 8 * block_rank() as i32;
            // SAFETY: checking is on, and the map is one.
            unsafe { tma::load(dst, map.at(), full, &[0, row], Some(0b11)) };
        }
        if rank() >= 32 {
            wait_parity(full, step & 1);
            for row in 0..16 {
                assert_eq!(get(tile(128 * row + 4 * (rank() - 32))), 32 * (16 * step + row) + rank() - 32);
            }
            ironwarp_simt::warp::sync(u32::MAX);
            if rank() == 32 {
                arrive_remote(map_shared(empty, block_rank()));
                if waits_for_both {
                    arrive_remote(map_shared(empty, block_rank() ^ 1));
                }
            }
        }
    }
    cluster_sync();
}

#[test]
fn a_ring_across_the_cluster() {
    let config = LaunchConfig { cluster: [2, 1, 1], ..LaunchConfig::linear(4, THREADS) }.shared(8192);
    words(&[32, 96], &[32, 8], Swizzle::None, |map, _| {
        passes(config, || {
            assert_eq!(blocks(), 2);
            multicast_ring(map, true);
        });
        // A producer that waits only for its own consumers overwrites data that the other block still reads.
        fails(config, FaultKind::AsyncCopyPending, || multicast_ring(map, false));
    });
}

/// Two blocks hand each other a tile that a copy has read, for the other's copy to fill.
#[test]
fn an_arrival_for_copies_tells_of_copies_alone() {
    let config = LaunchConfig { cluster: [2, 1, 1], ..LaunchConfig::linear(2, 1) }.shared(4096);
    let kernel = |map: &Map, by_hand: bool| {
        let (own, other) = (block_rank(), block_rank() ^ 1);
        ready(&[1, 1, 1]);
        arrive_expect_tx(bar(2), 1024);
        cluster_sync();
        arrive_expect_tx(bar(0), 2048);
        fetch(tile(0), map, bar(0), &[0, 8 * own as i32]);
        fetch(tile(1024), map, bar(0), &[0, 8 * own as i32]);
        wait_parity(bar(0), 0);
        if by_hand {
            get(tile(0));
        } else {
            send(map, tile(0), &[0, 8 * own as i32]);
            commit_group();
            wait_group_read(0);
        }
        arrive_remote_async(map_shared(bar(1), other));
        wait_parity(bar(1), 0);
        // SAFETY: checking is on.
        unsafe {
            bulk::copy_shared(map_shared(tile(0), other), tile(1024), 1024, map_shared(bar(2), other));
        }
        wait_parity(bar(2), 0);
        cluster_sync();
    };
    words(&[32, 16], &[32, 8], Swizzle::None, |map, _| {
        passes(config, || kernel(map, false));
        fails(config, FaultKind::AsyncCopyPending, || kernel(map, true));
    });
}

#[test]
fn rules_of_tensor_copies() {
    let broken = |what: &str, dims: &[u64], kernel: &(dyn Fn(&Map) + Sync)| {
        words(dims, &[32, 8][..dims.len()], Swizzle::None, |map, _| {
            let fault = fails(config(), FaultKind::BulkCopyInvalid, || {
                ready(&[1]);
                kernel(map);
            });
            assert!(fault.message.contains(what), "{fault}");
        });
    };
    let dims = [32, 8];
    broken("not aligned to 128", &dims, &|map| fetch(tile(64), map, bar(0), &[0, 0]));
    broken("not aligned to 128", &dims, &|map| send(map, tile(16), &[0, 0]));
    broken("1 coordinates in a tensor of 2", &dims, &|map| fetch(tile(0), map, bar(0), &[0]));
    for first in [1, -2, 63, i32::MAX] {
        broken("no multiple of 16", &dims, &|map| fetch(tile(0), map, bar(0), &[first, 0]));
        broken("no multiple of 16", &dims, &|map| send(map, tile(0), &[first, 0]));
    }
    broken("begins before its tensor", &dims, &|map| send(map, tile(0), &[-4, 0]));
    broken("begins before its tensor", &dims, &|map| send(map, tile(0), &[0, -1]));
    broken("no tensor map", &dims, &|_| fetch(tile(0), &Map([1; 16]), bar(0), &[0, 0]));
    broken("not aligned to 64", &dims, &|map| {
        // SAFETY: the copy is refused before it reads the map.
        unsafe { tma::load(tile(0), map.at().byte_add(32), bar(0), &[0, 0], None) }
    });
    broken("multicast mask 0x0002", &dims, &|map| {
        // SAFETY: checking is on, and the map is one.
        unsafe { tma::load(tile(0), map.at(), bar(0), &[0, 0], Some(2)) }
    });
    broken("interleaved", &dims, &|map| {
        let mut description = ironwarp_simt::tensor_map::decode(&map.0).unwrap();
        description.interleave = Interleave::B16;
        fetch(tile(0), &Map::new(&description), bar(0), &[0, 0]);
    });
    words(&[32, 8], &[32, 8], Swizzle::None, |map, _| {
        fails(config(), FaultKind::MbarrierInvalid, || fetch(tile(0), map, bar(0), &[0, 0]));
        fails(config(), FaultKind::OutOfBounds, || {
            ready(&[1]);
            fetch(tile(64 * 1024 - 512), map, bar(0), &[0, 0]);
        });
        fails(config(), FaultKind::OutOfBounds, || {
            ready(&[1]);
            let mut description = ironwarp_simt::tensor_map::decode(&map.0).unwrap();
            description.dims[1] = 9;
            fetch(tile(0), &Map::new(&description), bar(0), &[0, 4]);
        });
    });
}

#[test]
fn a_box_over_its_own_barrier() {
    words(&[32, 8], &[32, 8], Swizzle::None, |map, _| {
        fails(config(), FaultKind::MbarrierInvalid, || {
            let within = tile(512);
            if rank() == 0 {
                init(within, 1);
                fence_init();
                fetch(tile(0), map, within, &[0, 0]);
            }
        });
    });
}

#[test]
fn rules_of_bulk_copies() {
    let mut host = vec![0u8; 1024];
    let buffer = Tracked::new(&mut host, "buffer");
    let at = buffer.as_ptr() as usize;
    for (global, shared, bytes, what) in
        [(8, 0, 64, "global address"), (0, 4, 64, "shared address"), (0, 0, 40, "size")]
    {
        let fault = fails(config(), FaultKind::BulkCopyInvalid, || {
            ready(&[1]);
            // SAFETY: checking is on.
            unsafe {
                bulk::load(tile(shared), (at.next_multiple_of(16) + global) as *const u8, bytes, bar(0))
            };
        });
        assert!(fault.message.contains(what), "{fault}");
    }
    fails(config(), FaultKind::OutOfBounds, || {
        ready(&[1]);
        // SAFETY: checking is on.
        unsafe { bulk::load(tile(0), at.next_multiple_of(16) as *const u8, 2048, bar(0)) };
    });
}
