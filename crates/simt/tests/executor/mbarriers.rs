//! mbarriers: phases, what arrivals and waits order, and every way to use them wrong.

use crate::common::{fails, fails_at, fault, get, passes, put};
use ironwarp_simt::barrier::sync;
use ironwarp_simt::mbarrier::{
    arrive, arrive_count, arrive_expect_tx, expect_tx, fence_init, init, invalidate, test_wait_parity,
    try_wait_parity, wait_parity,
};
use ironwarp_simt::shared::{alloc_static, to_address};
use ironwarp_simt::{FaultKind, LaunchConfig, StaticKey, thread};

static BARS: StaticKey = StaticKey::new("BARS");
static DATA: StaticKey = StaticKey::new("DATA");
const THREADS: u32 = 96;
const CONFIG: fn() -> LaunchConfig = || LaunchConfig::linear(2, THREADS);

fn bar(index: u32) -> u32 {
    to_address(alloc_static(&BARS, 64, 8)) + 8 * index
}

fn word(index: u32) -> *mut u32 {
    alloc_static(&DATA, 4 * THREADS as usize, 16).cast::<u32>().wrapping_add(index as usize)
}

fn rank() -> u32 {
    thread::rank()
}

/// Initialises barrier `index` with `count` by thread 0, for all.
#[track_caller]
fn ready(index: u32, count: u32) {
    if rank() == 0 {
        init(bar(index), count);
    }
    sync(0, None);
}

#[test]
fn arrivals_hand_data_over() {
    passes(CONFIG(), || {
        ready(0, THREADS);
        for round in 0..6 {
            put(word(rank()), round + rank());
            arrive(bar(0));
            wait_parity(bar(0), round & 1);
            assert_eq!(get(word(THREADS - 1 - rank())), round + THREADS - 1 - rank());
            sync(0, None);
        }
    });
}

#[test]
fn one_producer_and_a_ring_of_consumers() {
    const STAGES: u32 = 3;
    passes(CONFIG(), || {
        if rank() == 0 {
            for stage in 0..STAGES {
                init(bar(stage), 1);
                init(bar(STAGES + stage), THREADS - 32);
            }
        }
        sync(0, None);
        for step in 0..10 {
            let (stage, parity) = (step % STAGES, (step / STAGES) & 1);
            if rank() == 0 {
                wait_parity(bar(STAGES + stage), parity ^ 1);
                put(word(stage), 7 * step);
                arrive(bar(stage));
            } else if rank() >= 32 {
                wait_parity(bar(stage), parity);
                assert_eq!(get(word(stage)), 7 * step);
                arrive(bar(STAGES + stage));
            }
        }
    });
}

#[test]
fn reuse_without_waiting_for_empty() {
    let line = line!();
    let fault = fails_at(CONFIG(), FaultKind::SharedRace, &[line + 7, line + 11], || {
        ready(0, 1);
        ready(1, 1);
        ready(2, 32);
        for step in 0..2 {
            if rank() == 0 {
                put(word(0), step);
                arrive(bar(step));
            } else if (32..64).contains(&rank()) {
                wait_parity(bar(step), 0);
                get(word(0));
                arrive(bar(2));
            }
        }
    });
    assert!(fault.other.is_some(), "{fault}");
}

#[test]
fn a_producer_that_laps_its_consumers() {
    // A thread that looks only when the phase after its own is over too finds that the parity that it waits
    // for is not over.
    fails(CONFIG(), FaultKind::Deadlock, || {
        ready(0, 1);
        if rank() == 0 {
            arrive(bar(0));
            arrive(bar(0));
        }
        sync(0, None);
        wait_parity(bar(0), 0);
    });
}

#[test]
fn wrong_parity() {
    fails(CONFIG(), FaultKind::SharedRace, || {
        ready(0, 1);
        if rank() == 0 {
            put(word(0), 1);
            arrive(bar(0));
        } else {
            wait_parity(bar(0), 1);
            get(word(0));
        }
    });
}

#[test]
fn an_arrival_is_no_wait() {
    fails(CONFIG(), FaultKind::SharedRace, || {
        ready(0, THREADS);
        put(word(rank()), 1);
        arrive(bar(0));
        get(word(rank() ^ 1));
    });
}

#[test]
fn what_comes_after_the_arrival_is_not_told() {
    fails(LaunchConfig::linear(1, 64), FaultKind::SharedRace, || {
        ready(0, 1);
        if rank() == 0 {
            arrive(bar(0));
            put(word(0), 1);
        } else if rank() == 32 {
            wait_parity(bar(0), 0);
            get(word(0));
        }
    });
}

#[test]
fn what_is_known_passes_on() {
    passes(CONFIG(), || {
        if rank() == 0 {
            init(bar(0), 1);
            init(bar(1), 1);
        }
        sync(0, None);
        match rank() {
            0 => {
                put(word(0), 5);
                arrive(bar(0));
            }
            40 => {
                wait_parity(bar(0), 0);
                arrive(bar(1));
            }
            80 => {
                wait_parity(bar(1), 0);
                assert_eq!(get(word(0)), 5);
            }
            _ => {}
        }
    });
}

#[test]
fn polling() {
    passes(CONFIG(), || {
        ready(0, THREADS - 1);
        if rank() == 0 {
            while !test_wait_parity(bar(0), 0) {}
            while !try_wait_parity(bar(0), 0) {}
            assert_eq!((1..THREADS).map(|i| get(word(i))).sum::<u32>(), (1..THREADS).sum());
        } else {
            put(word(rank()), rank());
            arrive(bar(0));
        }
    });
}

#[test]
fn a_try_can_fail_and_the_thread_go_on() {
    passes(CONFIG(), || {
        ready(0, THREADS);
        if rank() == 0 {
            assert!(!try_wait_parity(bar(0), 0));
            assert!(!test_wait_parity(bar(0), 0));
            arrive(bar(0));
        } else {
            arrive(bar(0));
        }
        wait_parity(bar(0), 0);
    });
}

#[test]
fn polling_for_ever_is_a_deadlock() {
    let fault = fails(CONFIG(), FaultKind::Deadlock, || {
        ready(0, 2);
        if rank() == 0 {
            arrive(bar(0));
            while !try_wait_parity(bar(0), 0) {}
        }
    });
    assert!(fault.message.contains("phase 0 lacks 1 of 2 arrivals"), "{fault}");
}

#[test]
fn deadlock_names_what_is_lacking() {
    let fault = fails(CONFIG(), FaultKind::Deadlock, || {
        ready(2, 3);
        if rank() == 1 {
            arrive_expect_tx(bar(2), 4096);
        } else if rank() >= 32 {
            wait_parity(bar(2), 0);
        }
    });
    assert!(fault.message.contains("byte 16 of shared `BARS`"), "{fault}");
    assert!(fault.message.contains("phase 0 lacks 2 of 3 arrivals and 4096 bytes"), "{fault}");
    assert!(
        fault.waits.iter().any(|line| line.contains("threads 32..=95 wait for the phase of parity 0")),
        "{fault}"
    );
}

#[test]
fn too_many_arrivals() {
    fails(CONFIG(), FaultKind::MbarrierOverflow, || {
        ready(0, 4);
        if rank() == 0 {
            arrive_count(bar(0), 3);
            arrive_count(bar(0), 2);
        }
    });
    fails(CONFIG(), FaultKind::MbarrierOverflow, || {
        ready(0, 1);
        expect_tx(bar(0), 1 << 19);
    });
}

#[test]
fn expected_bytes_that_never_come() {
    let fault = fails(CONFIG(), FaultKind::MbarrierUnbalanced, || {
        ready(0, 1);
        if rank() == 0 {
            arrive_expect_tx(bar(0), 64);
        }
    });
    assert!(fault.message.contains("64 bytes"), "{fault}");
}

#[test]
fn bytes_that_are_expected_behind_the_own_arrival() {
    // The other thread's arrival keeps the phase, and comes behind the expectation.
    passes(CONFIG(), || {
        ready(0, 2);
        if rank() == 0 {
            arrive(bar(0));
            expect_tx(bar(0), 0);
        }
        sync(0, None);
        if rank() == 40 {
            arrive(bar(0));
        }
        wait_parity(bar(0), 0);
    });
    // So does the thread's own, if it arrives twice.
    passes(CONFIG(), || {
        ready(0, 2);
        if rank() == 0 {
            arrive(bar(0));
            expect_tx(bar(0), 0);
            arrive(bar(0));
        }
        wait_parity(bar(0), 0);
    });
}

#[test]
fn bytes_that_are_expected_while_the_phase_may_end() {
    let line = line!();
    // The seed 0 runs thread 0 first.
    let fault = fault(CONFIG(), 0, || {
        ready(0, 2);
        if rank() == 0 {
            arrive(bar(0));
            expect_tx(bar(0), 0);
        } else if rank() == 40 {
            arrive(bar(0));
        }
        wait_parity(bar(0), 0);
    });
    assert_eq!(fault.kind, FaultKind::MbarrierInvalid, "{fault}");
    let lines = (fault.site.line, fault.other.as_ref().unwrap().site.line);
    assert_eq!(lines, (line + 8, line + 6), "{fault}");
}

#[test]
fn use_without_initialisation() {
    let uses: [fn(u32); 4] =
        [arrive, |bar| wait_parity(bar, 0), |bar| expect_tx(bar, 16), |bar| init(bar + 4, 1)];
    for misuse in uses {
        fails(CONFIG(), FaultKind::MbarrierInvalid, || misuse(bar(0)));
    }
    fails(CONFIG(), FaultKind::MbarrierInvalid, || init(bar(0), 0));
    fails(CONFIG(), FaultKind::MbarrierInvalid, || init(bar(0), 1 << 20));
    fails(CONFIG(), FaultKind::MbarrierInvalid, || init(bar(0), 1));
    fails(CONFIG(), FaultKind::MbarrierInvalid, || {
        ready(0, 1);
        wait_parity(bar(0), 2);
    });
    fails(CONFIG(), FaultKind::MbarrierInvalid, || {
        if rank() == 0 {
            init(bar(0), 1);
            invalidate(bar(0));
            arrive(bar(0));
        }
    });
}

#[test]
fn use_before_the_barrier_after_initialisation() {
    fails(CONFIG(), FaultKind::MbarrierInvalid, || {
        if rank() == 0 {
            init(bar(0), THREADS);
            fence_init();
        }
        arrive(bar(0));
    });
}

#[test]
fn life_and_death() {
    passes(CONFIG(), || {
        for round in 0..4 {
            ready(0, THREADS);
            arrive(bar(0));
            wait_parity(bar(0), 0);
            sync(0, None);
            if rank() == 0 {
                invalidate(bar(0));
                let bytes = ironwarp_simt::shared::from_address(bar(0)).cast::<u32>();
                put(bytes, round);
                assert_eq!(get(bytes), round);
            }
            sync(0, None);
        }
    });
}

#[test]
fn plain_access_to_a_live_barrier() {
    let line = line!();
    fails_at(CONFIG(), FaultKind::MbarrierInvalid, &[line + 4], || {
        ready(0, THREADS);
        if rank() == 7 {
            get(ironwarp_simt::shared::from_address(bar(0)).cast());
        }
        arrive(bar(0));
    });
}

#[test]
fn overwritten_barriers_are_found_without_the_checker() {
    let body = || {
        ready(0, THREADS);
        if rank() == 0 {
            // SAFETY: the bytes are shared memory of the block, which runs on one OS thread.
            unsafe { ironwarp_simt::shared::from_address(bar(0)).cast::<u32>().write(0) };
        }
        sync(0, None);
        arrive(bar(0));
    };
    let fault =
        ironwarp_simt::run(&CONFIG(), &ironwarp_simt::Options::default().check(false), body).unwrap_err();
    assert_eq!(fault.kind, FaultKind::MbarrierInvalid);
    assert!(fault.message.contains("overwritten"), "{fault}");
}

#[test]
fn works_without_the_checker() {
    let body = || {
        ready(0, THREADS);
        for round in 0..100 {
            arrive(bar(0));
            wait_parity(bar(0), round & 1);
        }
    };
    ironwarp_simt::run(&CONFIG(), &ironwarp_simt::Options::default().check(false), body).unwrap();
}
