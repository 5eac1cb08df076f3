//! Asynchronous copies arrive when a thread waits for them, and no earlier.

use crate::common::{fails, get, passes, put};
use ironwarp_simt::async_copy::{arrive_noinc, commit, copy, wait, wait_all};
use ironwarp_simt::barrier::sync;
use ironwarp_simt::mbarrier::{self, wait_parity};
use ironwarp_simt::memory::{Tracked, store};
use ironwarp_simt::shared::{alloc_static, to_address};
use ironwarp_simt::{FaultKind, LaunchConfig, StaticKey, thread};

static STAGES: StaticKey = StaticKey::new("STAGES");
const THREADS: usize = 64;

#[derive(Clone, Copy)]
struct Source(*mut u32);
// SAFETY: kernels only read through it.
unsafe impl Sync for Source {}

impl Source {
    fn at(&self, index: usize) -> *const u8 {
        self.0.wrapping_add(index).cast()
    }
}

fn stage(stage: usize, index: usize) -> *mut u32 {
    alloc_static(&STAGES, 4 * THREADS * 4, 16).cast::<u32>().wrapping_add(stage * THREADS + index)
}

/// Copies one word.
#[track_caller]
fn fetch(to: *mut u32, from: *const u8) {
    // SAFETY: checking is on.
    unsafe { copy(to.cast(), from, 4, 4) }
}

fn rank() -> usize {
    thread::rank() as usize
}

fn with_source(test: impl Fn(Source)) {
    let mut host: Vec<u32> = (0..4 * THREADS as u32).collect();
    let buffer = Tracked::new(&mut host, "source");
    test(Source(buffer.as_ptr()));
}

const CONFIG: fn() -> LaunchConfig = || LaunchConfig::linear(2, THREADS as u32);

#[test]
fn pipeline_of_four_stages() {
    with_source(|source| {
        passes(CONFIG(), || {
            for step in 0..4 {
                fetch(stage(step, rank()), source.at(step * THREADS + rank()));
                commit();
            }
            for step in 0..4 {
                wait(3 - step as u32);
                sync(0, None);
                let other = THREADS - 1 - rank();
                assert_eq!(get(stage(step, other)), (step * THREADS + other) as u32);
            }
        });
    });
}

#[test]
fn forgotten_wait() {
    with_source(|source| {
        let fault = fails(CONFIG(), FaultKind::AsyncCopyPending, || {
            fetch(stage(0, rank()), source.at(rank()));
            commit();
            sync(0, None);
            get(stage(0, rank()));
        });
        assert_eq!(fault.other.unwrap().site.line, fault.site.line - 3);
    });
}

#[test]
fn waited_for_too_few() {
    with_source(|source| {
        fails(CONFIG(), FaultKind::AsyncCopyPending, || {
            for step in 0..2 {
                fetch(stage(step, rank()), source.at(step * THREADS + rank()));
                commit();
            }
            wait(1);
            sync(0, None);
            get(stage(1, rank()));
        });
    });
}

#[test]
fn uncommitted_copies_are_not_waited_for() {
    with_source(|source| {
        fails(CONFIG(), FaultKind::AsyncCopyPending, || {
            fetch(stage(0, rank()), source.at(rank()));
            wait(0);
            get(stage(0, rank()));
        });
        passes(CONFIG(), || {
            fetch(stage(0, rank()), source.at(rank()));
            wait_all();
            assert_eq!(get(stage(0, rank())), rank() as u32);
        });
    });
}

#[test]
fn waiting_is_no_barrier() {
    with_source(|source| {
        fails(CONFIG(), FaultKind::SharedRace, || {
            fetch(stage(0, rank()), source.at(rank()));
            commit();
            wait(0);
            // The other thread's copy has arrived only once that thread signals it.
            ironwarp_simt::warp::collective("shfl", u32::MAX, 0u32);
            get(stage(0, rank() ^ 1));
        });
    });
}

#[test]
fn overwriting_what_others_still_read() {
    with_source(|source| {
        fails(CONFIG(), FaultKind::SharedRace, || {
            // SAFETY: checking is on.
            unsafe { store(stage(0, rank()), 1) };
            sync(0, None);
            get(stage(0, rank() ^ 1));
            ironwarp_simt::warp::collective("shfl", u32::MAX, 0u32);
            fetch(stage(0, rank()), source.at(rank()));
        });
    });
}

#[test]
fn zero_fill_and_bad_sizes() {
    with_source(|source| {
        passes(CONFIG(), || {
            if rank() < 16 {
                // SAFETY: checking is on.
                unsafe { copy(stage(0, 4 * rank()).cast(), source.at(4 * rank()), 16, 8) };
                wait_all();
                let words = [0, 1, 2, 3].map(|i| get(stage(0, 4 * rank() + i)));
                assert_eq!(words, [4 * rank() as u32, 4 * rank() as u32 + 1, 0, 0]);
            }
        });
        let bad = |bytes: usize, offset: usize| {
            fails(CONFIG(), FaultKind::AsyncCopyInvalid, move || {
                // SAFETY: checking is on.
                unsafe { copy(stage(0, offset).cast(), source.at(0), bytes, bytes) };
            });
        };
        bad(12, 0);
        bad(16, 1);
        fails(CONFIG(), FaultKind::OutOfBounds, || fetch(stage(0, 0), source.at(4 * THREADS)));
        fails(CONFIG(), FaultKind::OutOfBounds, || fetch(stage(4, 0), source.at(0)));
    });
}

static BARS: StaticKey = StaticKey::new("BARS");

fn bar(index: u32) -> u32 {
    to_address(alloc_static(&BARS, 16, 8)) + 8 * index
}

/// Makes two mbarriers of so many arrivals.
fn make_bars(arrivals: u32) {
    if rank() == 0 {
        mbarrier::init(bar(0), arrivals);
        mbarrier::init(bar(1), arrivals);
    }
    sync(0, None);
}

#[test]
fn an_mbarrier_is_told_of_copies() {
    with_source(|source| {
        passes(CONFIG(), || {
            make_bars(THREADS as u32);
            for step in 0..4 {
                fetch(stage(step, rank()), source.at(step * THREADS + rank()));
                arrive_noinc(bar(step as u32 % 2));
                if step % 2 == 1 {
                    for step in [step - 1, step] {
                        wait_parity(bar(step as u32 % 2), step as u32 / 2);
                        let other = THREADS - 1 - rank();
                        assert_eq!(get(stage(step, other)), (step * THREADS + other) as u32);
                    }
                }
            }
        });
    });
}

#[test]
fn only_the_mbarrier_tells_of_them() {
    with_source(|source| {
        let fault = fails(CONFIG(), FaultKind::AsyncCopyPending, || {
            make_bars(THREADS as u32);
            fetch(stage(0, rank()), source.at(rank()));
            arrive_noinc(bar(0));
            sync(0, None);
            get(stage(0, rank() ^ 1));
        });
        assert_eq!(fault.other.unwrap().site.line, fault.site.line - 3);
        // Of the thread's own copies too.
        fails(CONFIG(), FaultKind::AsyncCopyPending, || {
            make_bars(THREADS as u32);
            fetch(stage(0, rank()), source.at(rank()));
            arrive_noinc(bar(0));
            get(stage(0, rank()));
        });
    });
}

/// The arrival says that copies are over, and nothing of other writes.
#[test]
fn an_arrival_of_copies_tells_of_nothing_else() {
    with_source(|source| {
        fails(CONFIG(), FaultKind::SharedRace, || {
            make_bars(THREADS as u32);
            put(stage(1, rank()), 7);
            fetch(stage(0, rank()), source.at(rank()));
            arrive_noinc(bar(0));
            wait_parity(bar(0), 0);
            get(stage(1, (rank() + 32) % THREADS));
        });
        // Nor do several that are under way, of writes before and after.
        for written_late in [false, true] {
            fails(CONFIG(), FaultKind::SharedRace, || {
                let write = |is_now: bool| {
                    if is_now {
                        put(stage(1, rank()), 7);
                    }
                };
                make_bars(THREADS as u32);
                write(!written_late);
                fetch(stage(0, rank()), source.at(rank()));
                arrive_noinc(bar(0));
                fetch(stage(2, rank()), source.at(rank()));
                arrive_noinc(bar(1));
                write(written_late);
                [0, 1].iter().for_each(|&index| wait_parity(bar(index), 0));
                get(stage(1, (rank() + 32) % THREADS));
            });
        }
    });
}

#[test]
fn copies_may_be_waited_for_twice() {
    with_source(|source| {
        passes(CONFIG(), || {
            make_bars(THREADS as u32);
            for step in 0..2 {
                fetch(stage(step, rank()), source.at(step * THREADS + rank()));
                commit();
            }
            arrive_noinc(bar(0));
            wait(1);
            assert_eq!(get(stage(0, rank())), rank() as u32);
            wait_parity(bar(0), 0);
            let other = THREADS - 1 - rank();
            assert_eq!(get(stage(0, other)), other as u32);
            assert_eq!(get(stage(1, rank())), (THREADS + rank()) as u32);
            fetch(stage(2, rank()), source.at(rank()));
            arrive_noinc(bar(1));
            commit();
            wait(0);
            assert_eq!(get(stage(2, rank())), rank() as u32);
            wait_parity(bar(1), 0);
        });
    });
}

/// A later arrival may come before an earlier one, which is of copies that are over too.
#[test]
fn arrivals_under_way_may_overtake_each_other() {
    with_source(|source| {
        passes(CONFIG(), || {
            make_bars(THREADS as u32);
            for step in 0..2 {
                fetch(stage(step, rank()), source.at(step * THREADS + rank()));
                arrive_noinc(bar(step as u32));
                commit();
            }
            wait_parity(bar(1), 0);
            wait(0);
            for step in 0..2 {
                assert_eq!(get(stage(step, rank())), (step * THREADS + rank()) as u32);
            }
            // The second phase tells of the first copies too.
            for step in 0..2 {
                let other = THREADS - 1 - rank();
                assert_eq!(get(stage(step, other)), (step * THREADS + other) as u32);
            }
            wait_parity(bar(0), 0);
        });
    });
}

#[test]
fn copies_may_be_over_before_their_commit() {
    with_source(|source| {
        passes(CONFIG(), || {
            make_bars(THREADS as u32);
            for step in 0..2 {
                fetch(stage(step, rank()), source.at(step * THREADS + rank()));
                arrive_noinc(bar(step as u32));
                sync(0, None);
            }
            commit();
            wait(0);
            for step in 0..2 {
                assert_eq!(get(stage(step, rank())), (step * THREADS + rank()) as u32);
            }
            [0, 1].iter().for_each(|&index| wait_parity(bar(index), 0));
        });
    });
}

/// Whoever knows of copies by the mbarrier may read and overwrite them, whenever their thread waits.
#[test]
fn a_late_wait_changes_nothing_for_others() {
    with_source(|source| {
        passes(CONFIG(), || {
            make_bars(THREADS as u32);
            for step in 0..2 {
                fetch(stage(step, rank()), source.at(step * THREADS + rank()));
            }
            arrive_noinc(bar(0));
            let other = (rank() + 32) % THREADS;
            wait_parity(bar(0), 0);
            for step in 0..3 {
                get(stage(0, other));
                if step == 1 {
                    put(stage(1, other), 5);
                    wait_all();
                }
                ironwarp_simt::warp::collective("shfl", u32::MAX, 0u32);
            }
            assert_eq!(get(stage(1, other)), 5);
        });
    });
}

#[test]
fn a_wait_tells_of_the_threads_own_copies_only() {
    with_source(|source| {
        fails(CONFIG(), FaultKind::AsyncCopyPending, || {
            make_bars(THREADS as u32);
            fetch(stage(0, rank()), source.at(rank()));
            arrive_noinc(bar(0));
            commit();
            sync(0, None);
            if rank() == 0 {
                wait(0);
                assert_eq!(get(stage(0, 0)), 0);
                get(stage(0, 1));
            }
        });
        // And of those only that it waits for.
        fails(CONFIG(), FaultKind::AsyncCopyPending, || {
            make_bars(THREADS as u32);
            for step in 0..2 {
                fetch(stage(step, rank()), source.at(step * THREADS + rank()));
                commit();
            }
            arrive_noinc(bar(0));
            sync(0, None);
            if rank() == 0 {
                wait(1);
                get(stage(1, 0));
            }
        });
    });
}

#[test]
fn an_arrival_without_copies_comes_too() {
    passes(CONFIG(), || {
        make_bars(THREADS as u32);
        arrive_noinc(bar(0));
        wait_parity(bar(0), 0);
    });
}

#[test]
fn somebody_waits_for_the_arrival() {
    with_source(|source| {
        fails(LaunchConfig::linear(1, 1), FaultKind::CopyUnfinished, || {
            make_bars(1);
            fetch(stage(0, 0), source.at(0));
            arrive_noinc(bar(0));
        });
    });
}
