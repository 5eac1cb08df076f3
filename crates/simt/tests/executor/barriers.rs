//! Barriers synchronise threads, and report a fault when they cannot.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::common::{fails, passes};
use ironwarp_simt::barrier::{BarrierReduce, arrive, reduce, sync};
use ironwarp_simt::{FaultKind, LaunchConfig, thread};

#[test]
fn full_barrier_separates_phases() {
    const THREADS: u32 = 100;
    const BLOCKS: u32 = 7;
    let phases: Vec<AtomicU32> = (0..BLOCKS).map(|_| AtomicU32::new(0)).collect();
    passes(LaunchConfig::linear(BLOCKS, THREADS), || {
        let phase = &phases[thread::block_idx()[0] as usize];
        for round in 1..=5 {
            phase.fetch_add(1, Ordering::Relaxed);
            sync(0, None);
            assert_eq!(phase.load(Ordering::Relaxed), round * THREADS);
            sync(0, None);
        }
        if thread::rank() == 0 {
            phase.store(0, Ordering::Relaxed);
        }
    });
}

#[test]
fn reductions_combine_all_threads() {
    passes(LaunchConfig::linear(2, 70), || {
        let rank = thread::rank();
        assert_eq!(reduce(BarrierReduce::Popc, rank.is_multiple_of(7)), 10);
        assert_eq!(reduce(BarrierReduce::And, rank < 69), 0);
        assert_eq!(reduce(BarrierReduce::And, rank < 70), 1);
        assert_eq!(reduce(BarrierReduce::Or, rank == 69), 1);
        assert_eq!(reduce(BarrierReduce::Or, rank == 70), 0);
    });
}

#[test]
fn named_barrier_of_some_warps() {
    let produced = AtomicU32::new(0);
    passes(LaunchConfig::linear(1, 96), || {
        if thread::warp() == 0 {
            produced.fetch_add(1, Ordering::Relaxed);
            arrive(3, 96);
        } else {
            sync(3, Some(96));
            assert_eq!(produced.load(Ordering::Relaxed), 32);
        }
        sync(0, None);
        produced.store(0, Ordering::Relaxed);
    });
}

#[test]
fn partial_warp_counts_as_a_whole() {
    passes(LaunchConfig::linear(1, 48), || {
        sync(1, Some(64));
        sync(0, None);
    });
}

#[test]
fn early_exit_is_divergence() {
    let line = line!() + 3;
    let fault = fails(LaunchConfig::linear(1, 64), FaultKind::BarrierDivergence, || {
        if thread::rank() < 48 {
            sync(0, None);
        }
    });
    assert_eq!((fault.site.file.as_str(), fault.site.line), (file!(), line));
    let report = fault.to_string();
    assert!(report.contains("threads 48..=63 have exited"), "{report}");
    assert!(report.contains("threads 0..=47 wait at barrier 0: 48 of 64 are there"), "{report}");
    assert!(report.contains("IRONWARP_SEED=19"), "{report}");
}

#[test]
#[allow(clippy::if_same_then_else, reason = "the two places are what the test is about")]
fn lanes_of_a_warp_in_two_branches() {
    let line = line!();
    let fault = fails(LaunchConfig::linear(1, 32), FaultKind::BarrierDivergence, || {
        if thread::rank().is_multiple_of(2) {
            sync(0, None);
        } else {
            sync(0, None);
        }
    });
    let lines = [fault.site.line, fault.other.as_ref().unwrap().site.line];
    assert!(lines == [line + 3, line + 5] || lines == [line + 5, line + 3], "{fault}");
}

#[test]
#[allow(clippy::if_same_then_else, reason = "as above")]
fn a_lane_that_comes_late_to_a_barrier_of_its_own() {
    // Under the seed 0 it comes behind all lanes of the other warp.
    let line = line!();
    let fault = fails(LaunchConfig::linear(1, 64), FaultKind::BarrierDivergence, || {
        if thread::rank() == 0 {
            thread::give_way();
            sync(0, None);
        } else {
            sync(0, None);
        }
    });
    let lines = [fault.site.line, fault.other.as_ref().unwrap().site.line];
    assert!(lines == [line + 4, line + 6] || lines == [line + 6, line + 4], "{fault}");
    for split in [1, 31] {
        fails(LaunchConfig::linear(1, 64), FaultKind::BarrierDivergence, || match thread::rank() {
            rank if rank < split => arrive(1, 64),
            0..32 => arrive(1, 64),
            _ => sync(1, Some(64)),
        });
    }
}

#[test]
fn warps_come_to_one_barrier_in_different_places() {
    passes(LaunchConfig::linear(1, 96), || {
        for _ in 0..3 {
            match thread::warp() {
                0 => arrive(1, 96),
                1 => sync(1, Some(96)),
                _ => sync(1, Some(96)),
            }
            sync(0, None);
            sync(1, Some(96));
        }
    });
}

#[test]
fn two_barriers_deadlock() {
    let fault = fails(LaunchConfig::linear(1, 64), FaultKind::Deadlock, || {
        if thread::warp() == 0 { sync(1, Some(64)) } else { sync(2, Some(64)) }
    });
    let report = fault.to_string();
    let first = concat!("threads 0..=31 wait at barrier 1: 32 of 64 are there (", file!(), ":");
    assert!(report.contains(first), "{report}");
    assert!(report.contains("threads 32..=63 wait at barrier 2: 32 of 64"), "{report}");
}

#[test]
fn counts_must_agree() {
    let fault = fails(LaunchConfig::linear(1, 96), FaultKind::BarrierMismatch, || {
        sync(1, Some(if thread::warp() == 0 { 64 } else { 96 }));
    });
    assert!(fault.message.contains("barrier 1"), "{fault}");
}

#[test]
fn operations_must_agree() {
    fails(LaunchConfig::linear(1, 64), FaultKind::BarrierMismatch, || {
        if thread::warp() == 0 {
            sync(0, None);
        } else {
            reduce(BarrierReduce::And, true);
        }
    });
}

#[test]
fn ids_and_counts_that_do_not_exist() {
    let config = LaunchConfig::linear(1, 64);
    fails(config, FaultKind::BarrierInvalid, || sync(16, None));
    fails(config, FaultKind::BarrierInvalid, || sync(1, Some(33)));
    fails(config, FaultKind::BarrierInvalid, || sync(1, Some(0)));
    fails(config, FaultKind::BarrierInvalid, || arrive(1, 96));
}

#[test]
fn grid_sync_orders_blocks() {
    let arrived = AtomicU32::new(0);
    passes(LaunchConfig::linear(5, 40).cooperative(), || {
        arrived.fetch_add(1, Ordering::Relaxed);
        ironwarp_simt::grid::sync();
        assert_eq!(arrived.load(Ordering::Relaxed), 200);
        ironwarp_simt::grid::sync();
        arrived.store(0, Ordering::Relaxed);
    });
}

#[test]
fn grid_sync_needs_a_cooperative_launch() {
    fails(LaunchConfig::linear(2, 32), FaultKind::GridSync, ironwarp_simt::grid::sync);
}

#[test]
fn grid_sync_of_some_blocks() {
    let fault = fails(LaunchConfig::linear(3, 32).cooperative(), FaultKind::BarrierDivergence, || {
        if thread::block_idx()[0] != 1 {
            ironwarp_simt::grid::sync();
        }
    });
    assert!(fault.to_string().contains("block (1, 0, 0): threads 0..=31 have exited"), "{fault}");
}
