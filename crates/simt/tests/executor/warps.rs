//! Warp collectives exchange values, and report a fault when lanes disagree.

use crate::common::{fails, passes};
use ironwarp_simt::warp::{active_mask, collective, collective_from, combine, sync};
use ironwarp_simt::{FaultKind, LaunchConfig, thread};

const FULL: u32 = u32::MAX;

#[test]
fn every_lane_gets_every_value() {
    passes(LaunchConfig::linear(2, 96), || {
        let rank = thread::rank();
        for round in 0..4u32 {
            let all = collective("shfl", FULL, (rank, u64::from(round)));
            for (lane, value) in all.into_iter().enumerate() {
                assert_eq!(value, Some((rank / 32 * 32 + lane as u32, u64::from(round))));
            }
        }
    });
}

#[test]
fn lanes_that_do_not_exist_give_nothing() {
    passes(LaunchConfig::linear(1, 40), || {
        let all = collective("vote", FULL, true);
        let lanes = if thread::warp() == 0 { 32 } else { 8 };
        assert_eq!(all.iter().flatten().count(), lanes);
        sync(FULL);
    });
}

#[test]
fn halves_of_a_warp_work_apart() {
    passes(LaunchConfig::linear(1, 32), || {
        let lane = thread::lane();
        let mask = if lane < 16 { 0xffff } else { 0xffff_0000 };
        for _ in 0..=lane / 16 {
            let sum: u32 = collective("shfl", mask, lane).into_iter().flatten().sum();
            assert_eq!(sum, if lane < 16 { 120 } else { 376 });
        }
        sync(FULL);
    });
}

#[test]
fn caller_must_be_in_its_mask() {
    let fault = fails(LaunchConfig::linear(1, 32), FaultKind::WarpMask, || {
        collective("shfl", 0x7fff_ffff, 0u32);
    });
    assert_eq!(fault.thread, [31, 0, 0]);
}

/// The ISA waits for the lanes of the mask that have not exited.
#[test]
fn lanes_that_are_gone_are_not_waited_for() {
    passes(LaunchConfig::linear(1, 48), || {
        let lane = thread::lane();
        // Some lanes leave before the others wait, some after they have begun to.
        if lane % 3 == 1 {
            (0..lane % 4).for_each(|_| thread::give_way());
            return;
        }
        let values = collective("shfl", FULL, lane);
        let lanes = if thread::warp() == 0 { 32 } else { 16 };
        for (other, value) in values.iter().enumerate() {
            let expected = (other % 3 != 1 && other < lanes).then_some(other as u32);
            assert_eq!(*value, expected, "lane {other}");
        }
        for source in [0, 1, lane, (lane + 7) % 32, 31] {
            assert_eq!(collective_from("shfl", FULL, lane, source), values[source as usize], "of {source}");
        }
        sync(FULL);
    });
}

#[test]
fn matrix_products_need_every_lane() {
    let fault = fails(LaunchConfig::linear(1, 32), FaultKind::WarpMask, || {
        if thread::lane() < 20 {
            combine("mma", 0u32, |inputs| *inputs);
        }
    });
    assert!(fault.message.contains("exited"), "{fault}");
}

#[test]
fn lanes_must_make_the_same_call() {
    fails(LaunchConfig::linear(1, 32), FaultKind::WarpDivergence, || {
        collective(if thread::lane() < 16 { "shfl" } else { "vote" }, FULL, 0u32);
    });
    fails(LaunchConfig::linear(1, 32), FaultKind::WarpDivergence, || {
        collective("shfl", if thread::lane() < 16 { FULL } else { 0xffff_8000 }, 0u32);
    });
}

#[test]
fn waiting_for_lanes_that_wait_at_a_barrier() {
    let fault = fails(LaunchConfig::linear(1, 32), FaultKind::Deadlock, || {
        if thread::lane() < 16 {
            sync(FULL);
        }
        ironwarp_simt::barrier::sync(0, None);
    });
    let report = fault.to_string();
    assert!(report.contains("threads 0..=15 wait in warp sync for the lanes of mask 0xffffffff"), "{report}");
}

#[test]
fn active_mask_is_the_lanes_on_the_line() {
    passes(LaunchConfig::linear(1, 64), || {
        assert_eq!(active_mask(), FULL);
        if thread::lane().is_multiple_of(2) {
            assert_eq!(active_mask(), 0x5555_5555);
        }
        sync(FULL);
    });
}

#[test]
fn the_last_lane_computes_for_all() {
    passes(LaunchConfig::linear(2, 64), || {
        for round in 0..3 {
            let lane = thread::lane();
            let result = combine("mma", (lane, round), |all| {
                std::array::from_fn(|to| u64::from(all[31 - to].0 + all[to].1))
            });
            assert_eq!(result, u64::from(31 - lane + round));
        }
    });
    let fault = fails(LaunchConfig::linear(1, 40), FaultKind::WarpMask, || {
        combine("mma", 0u32, |all| *all);
    });
    assert!(fault.message.contains("this one has 8"), "{fault}");
}
