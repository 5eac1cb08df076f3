//! Data races within a block and between blocks, and the synchronisation that prevents them.

use std::sync::atomic::Ordering;

use crate::common::{Device, fails, fails_at, passes};
use ironwarp_simt::barrier::{arrive, sync};
use ironwarp_simt::memory::{Scope, Tracked, atomic, fence};
use ironwarp_simt::shared::alloc_static;
use ironwarp_simt::{FaultKind, LaunchConfig, StaticKey, thread};

impl Device<u32> {
    #[track_caller]
    fn add(&self, index: usize, order: Ordering) -> u32 {
        // SAFETY: as for `get`.
        unsafe { atomic(self.0.wrapping_add(index), order, Scope::Device, |old| old + 1) }
    }
}

static TILE: StaticKey = StaticKey::new("TILE");

fn tile() -> Device<u32> {
    Device(alloc_static(&TILE, 1024 * 4, 16).cast())
}

fn rank() -> usize {
    thread::rank() as usize
}

#[test]
fn neighbours_without_a_barrier() {
    let line = line!();
    let fault = fails_at(LaunchConfig::linear(2, 64), FaultKind::SharedRace, &[line + 2, line + 4], || {
        tile().set(rank(), 1);
        if rank() > 0 {
            tile().get(rank() - 1);
        }
    });
    let report = fault.to_string();
    assert!(report.contains("conflicts with") && report.contains("of shared `TILE`"), "{report}");
    passes(LaunchConfig::linear(2, 64), || {
        tile().set(rank(), 1);
        sync(0, None);
        tile().get((rank() + 1) % 64);
    });
}

#[test]
fn write_after_read() {
    let body = |second_barrier: bool| {
        tile().set(rank(), 1);
        sync(0, None);
        tile().get(63 - rank());
        if second_barrier {
            sync(0, None);
        }
        tile().set(rank(), 2);
    };
    fails(LaunchConfig::linear(1, 64), FaultKind::SharedRace, || body(false));
    passes(LaunchConfig::linear(1, 64), || body(true));
}

#[test]
fn same_value_written_twice_is_a_race() {
    let line = line!() + 1;
    let fault = fails_at(LaunchConfig::linear(1, 32), FaultKind::SharedRace, &[line], || tile().set(0, 7));
    assert_ne!(fault.thread, fault.other.unwrap().thread);
}

#[test]
fn bytes_of_a_word_are_apart() {
    passes(LaunchConfig::linear(1, 64), || Device(tile().0.cast::<u8>()).set(rank(), 1));
    passes(LaunchConfig::linear(1, 64), || Device(tile().0.cast::<u16>()).set(rank(), 1));
    fails(LaunchConfig::linear(1, 64), FaultKind::SharedRace, || {
        Device(tile().0.cast::<u16>()).set(rank() / 2, 1)
    });
}

#[test]
fn warp_sync_orders_its_lanes_only() {
    passes(LaunchConfig::linear(1, 64), || {
        tile().set(rank(), 1);
        ironwarp_simt::warp::sync(u32::MAX);
        tile().get(rank() ^ 1);
        ironwarp_simt::warp::sync(u32::MAX);
        tile().set(rank(), 2);
    });
    fails(LaunchConfig::linear(1, 64), FaultKind::SharedRace, || {
        tile().set(rank(), 1);
        ironwarp_simt::warp::sync(u32::MAX);
        tile().get(rank() ^ 32);
    });
    // All threads of the block read; one warp syncs, then writes.
    fails(LaunchConfig::linear(1, 64), FaultKind::SharedRace, || {
        if rank() == 0 {
            tile().set(0, 1);
        }
        sync(0, None);
        tile().get(0);
        ironwarp_simt::warp::sync(u32::MAX);
        if rank() == 32 {
            tile().set(0, 2);
        }
    });
}

#[test]
fn shuffles_do_not_order_memory() {
    fails(LaunchConfig::linear(1, 32), FaultKind::SharedRace, || {
        tile().set(rank(), 1);
        ironwarp_simt::warp::collective("shfl", u32::MAX, 1u32);
        tile().get(rank() ^ 1);
    });
}

#[test]
fn named_barriers_order_their_threads() {
    let pipeline = |hand_back: bool| {
        tile().set(rank(), 0);
        sync(0, None);
        for round in 0..3 {
            if thread::warp() == 0 {
                if hand_back && round > 0 {
                    sync(2, Some(64));
                }
                tile().set(rank(), round);
                arrive(1, 64);
            } else {
                sync(1, Some(64));
                assert_eq!(tile().get(rank() - 32), round);
                if hand_back && round < 2 {
                    arrive(2, 64);
                }
            }
        }
    };
    passes(LaunchConfig::linear(1, 64), || pipeline(true));
    for seed in 0..crate::common::SEEDS {
        let fault = crate::common::fault(LaunchConfig::linear(1, 64), seed, || pipeline(false));
        // Depending on which thread is faster, the consumer sees a later round first.
        assert!(
            matches!(fault.kind, FaultKind::SharedRace | FaultKind::Panic | FaultKind::Deadlock),
            "{fault}"
        );
    }
}

#[test]
fn arriving_does_not_learn() {
    fails(LaunchConfig::linear(1, 64), FaultKind::SharedRace, || {
        if thread::warp() == 0 {
            arrive(1, 64);
            tile().get(rank() + 32);
        } else {
            tile().set(rank(), 1);
            sync(1, Some(64));
        }
    });
}

#[test]
fn atomics_do_not_race_with_each_other() {
    passes(LaunchConfig::linear(2, 64), || {
        if rank() < 4 {
            tile().set(rank(), 0);
        }
        sync(0, None);
        tile().add(rank() % 4, Ordering::Relaxed);
        sync(0, None);
        assert_eq!(tile().get(rank() % 4), 16);
    });
    fails(LaunchConfig::linear(1, 64), FaultKind::SharedRace, || {
        if rank() < 4 {
            tile().set(rank(), 0);
        }
        sync(0, None);
        tile().add(rank() % 4, Ordering::Relaxed);
        tile().get((rank() + 1) % 4);
    });
}

#[test]
fn lock_in_shared_memory() {
    let count = |release: Ordering| {
        if rank() == 0 {
            tile().set(0, 0);
            tile().set(1, 0);
        }
        sync(0, None);
        let try_lock = || {
            // SAFETY: checking is on.
            unsafe {
                atomic(tile().0, Ordering::Acquire, Scope::Block, |old| if old == 0 { 1 } else { old }) == 0
            }
        };
        while !try_lock() {}
        let old = tile().get(1);
        tile().set(1, old + 1);
        // SAFETY: checking is on.
        unsafe { atomic(tile().0, release, Scope::Block, |_| 0) };
        sync(0, None);
        assert_eq!(tile().get(1), 64);
    };
    passes(LaunchConfig::linear(1, 64), || count(Ordering::Release));
    fails(LaunchConfig::linear(1, 64), FaultKind::SharedRace, || count(Ordering::Relaxed));
}

#[test]
fn global_race_in_a_block() {
    let mut host = vec![0u32; 64];
    let buffer = Tracked::new(&mut host, "data");
    let data = Device(buffer.as_ptr());
    fails(LaunchConfig::linear(1, 64), FaultKind::GlobalRace, || {
        data.set(rank(), 1);
        data.get(rank() ^ 1);
    });
    passes(LaunchConfig::linear(1, 64), || {
        data.set(rank(), 1);
        sync(0, None);
        data.get(rank() ^ 1);
    });
}

#[test]
fn race_between_blocks() {
    let mut host = vec![0u32; 64];
    let buffer = Tracked::new(&mut host, "data");
    let data = Device(buffer.as_ptr());
    let line = line!() + 2;
    let fault =
        fails_at(LaunchConfig::linear(3, 32), FaultKind::InterBlockRace, &[line], || data.set(rank(), 1));
    assert_ne!(fault.block, fault.other.as_ref().unwrap().block);
    // A barrier of the block does not help.
    fails(LaunchConfig::linear(2, 32), FaultKind::InterBlockRace, || {
        let block = thread::block_idx()[0] as usize;
        data.set(block * 32 + rank(), 1);
        sync(0, None);
        data.get((1 - block) * 32 + rank());
    });
    // All threads read; each writes its own element.
    passes(LaunchConfig::linear(2, 16), || {
        let block = thread::block_idx()[0] as usize;
        data.get(63);
        data.set(block * 16 + rank(), 1);
    });
}

#[test]
fn grid_sync_orders_blocks() {
    let mut host = vec![0u32; 96];
    let buffer = Tracked::new(&mut host, "data");
    let data = Device(buffer.as_ptr());
    passes(LaunchConfig::linear(3, 32).cooperative(), || {
        let index = thread::block_idx()[0] as usize * 32 + rank();
        for round in 0..3 {
            data.set(index, round);
            ironwarp_simt::grid::sync();
            assert_eq!(data.get((index + 32) % 96), round);
            ironwarp_simt::grid::sync();
        }
    });
    fails(LaunchConfig::linear(3, 32).cooperative(), FaultKind::InterBlockRace, || {
        let index = thread::block_idx()[0] as usize * 32 + rank();
        data.set(index, 1);
        ironwarp_simt::grid::sync();
        data.get((index + 32) % 96);
        data.set(index, 2);
    });
}

/// Every block writes its part; the block that is last to count itself reads all parts.
fn last_block_sums(parts: Device<u32>, counter: Device<u32>, fenced: bool) {
    const BLOCKS: usize = 8;
    let block = thread::block_idx()[0] as usize;
    if rank() == 0 {
        parts.set(block, block as u32);
        if fenced {
            fence(Scope::Device);
        }
        tile().set(0, counter.add(0, Ordering::Relaxed));
    }
    sync(0, None);
    if tile().get(0) as usize == BLOCKS - 1 && rank() < BLOCKS {
        assert_eq!(parts.get(rank()), rank() as u32);
        if rank() == 0 {
            counter.set(0, 0);
        }
    }
}

#[test]
fn last_block_pattern() {
    let (mut parts, mut counter) = (vec![0u32; 8], vec![0u32; 1]);
    let (parts, counter) = (Tracked::new(&mut parts, "parts"), Tracked::new(&mut counter, "counter"));
    let (parts, counter) = (Device(parts.as_ptr()), Device(counter.as_ptr()));
    let config = LaunchConfig::linear(8, 32);
    passes(config, || last_block_sums(parts, counter, true));
    for seed in 0..crate::common::SEEDS {
        // SAFETY: no kernel runs now.
        unsafe { counter.0.write(0) };
        let fault = crate::common::fault(config, seed, || last_block_sums(parts, counter, false));
        assert_eq!(fault.kind, FaultKind::InterBlockRace, "{fault}");
    }
}

#[test]
fn fence_in_every_thread_then_one_counts() {
    let (mut parts, mut counter) = (vec![0u32; 128], vec![0u32; 1]);
    let (parts, counter) = (Tracked::new(&mut parts, "parts"), Tracked::new(&mut counter, "counter"));
    let (parts, counter) = (Device(parts.as_ptr()), Device(counter.as_ptr()));
    passes(LaunchConfig::linear(4, 32), || {
        let block = thread::block_idx()[0] as usize;
        parts.set(block * 32 + rank(), 1);
        fence(Scope::Device);
        sync(0, None);
        if rank() == 0 {
            tile().set(0, counter.add(0, Ordering::Relaxed));
        }
        sync(0, None);
        if tile().get(0) == 3 {
            (0..4).for_each(|other| assert_eq!(parts.get(other * 32 + rank()), 1));
            if rank() == 0 {
                counter.set(0, 0);
            }
        }
    });
}

#[test]
fn block_scope_fence_is_too_narrow() {
    let (mut parts, mut counter) = (vec![0u32; 2], vec![0u32; 1]);
    let (parts, counter) = (Tracked::new(&mut parts, "parts"), Tracked::new(&mut counter, "counter"));
    let (parts, counter) = (Device(parts.as_ptr()), Device(counter.as_ptr()));
    let body = |scope: Scope| {
        let block = thread::block_idx()[0] as usize;
        parts.set(block, 1);
        fence(scope);
        if counter.add(0, Ordering::Relaxed) % 2 == 1 {
            parts.get(1 - block);
        }
    };
    passes(LaunchConfig::linear(2, 1), || body(Scope::Device));
    fails(LaunchConfig::linear(2, 1), FaultKind::InterBlockRace, || body(Scope::Block));
}

/// Another block acquires what was released for the whole device, then what was released only for the block.
#[test]
fn a_wide_release_makes_a_later_narrow_one_no_wider() {
    let run = |seed: u64, scope: Scope| {
        let mut words = vec![0u32; 3];
        let tracked = Tracked::new(&mut words, "words");
        let words = Device(tracked.as_ptr());
        // SAFETY: as for `get`.
        let set = |index, scope| unsafe {
            atomic(words.at(index), Ordering::Release, scope, |_| 1);
        };
        // SAFETY: as for `get`.
        let poll = |index| unsafe { atomic(words.at(index), Ordering::Acquire, Scope::Device, |old| old) };
        let kernel = || {
            if thread::block_idx()[0] == 0 {
                set(0, Scope::Device);
                words.set(2, 5);
                set(1, scope);
            } else {
                while poll(0) == 0 {}
                while poll(1) == 0 {}
                words.get(2);
            }
        };
        let options = ironwarp_simt::Options::default().seed(seed).check(true);
        ironwarp_simt::run(&LaunchConfig::linear(2, 1).cooperative(), &options, kernel)
    };
    for seed in 0..crate::common::SEEDS {
        run(seed, Scope::Device).unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
        let fault = run(seed, Scope::Block).unwrap_err();
        assert_eq!(fault.kind, FaultKind::InterBlockRace, "{fault}");
    }
}
