//! Reductions, scans and broadcasts of warps and blocks, of every size, against loops.

use super::{Global, run};
use cuda_std::{shared_array, thread};
use ironwarp_primitives::op::{ArgMax, Indexed, Max, Min, Operation, Product, Sum};
use ironwarp_primitives::warp::{Exchange, LANES};
use ironwarp_primitives::{block, warp};
use simt::LaunchConfig;

/// Block sizes: one warp, powers of two, others, the largest.
const SIZES: [u32; 7] = [32, 64, 96, 256, 352, 992, 1024];
/// Warps of the largest block.
const SLOTS: usize = block::slots(1024);

/// Values that no reordering of a scan would leave as they are: affine maps `x -> a x + b` modulo 2^32 do not
/// commute.
#[derive(Clone, Copy)]
struct Compose;

impl Operation<(u32, u32)> for Compose {
    fn identity(self) -> (u32, u32) {
        (1, 0)
    }
    fn combine(self, a: (u32, u32), b: (u32, u32)) -> (u32, u32) {
        (a.0.wrapping_mul(b.0), a.1.wrapping_mul(b.0).wrapping_add(b.1))
    }
}

/// Runs `body(thread)` on a block of `threads`, which returns what it leaves.
fn each_thread<R: Copy + Send + Sync + Default>(
    threads: u32,
    seed: u64,
    body: impl Fn(u32) -> R + Sync,
) -> Vec<R> {
    let mut out = Global::new(vec![R::default(); threads as usize], "results");
    let address = out.address();
    run(seed, LaunchConfig::linear(1, threads), || {
        let thread = thread::thread_idx_x();
        let value = body(thread);
        // SAFETY: an element for each thread.
        unsafe { *(address as *mut R).add(thread as usize) = value };
    });
    std::mem::take(&mut out.data)
}

fn word(thread: u32) -> u32 {
    thread.wrapping_mul(2_654_435_761) ^ 0x5bd1_e995
}

fn number(thread: u32) -> i64 {
    i64::from(word(thread).cast_signed())
}

/// Reduces the threads' numbers by blocks of every size, and compares with a loop.
fn reduces<O: Operation<i64> + Sync>(op: O) {
    for threads in SIZES {
        let got = each_thread(threads, 3, |thread| {
            let slots = shared_array![i64; SLOTS];
            // SAFETY: all threads call it; the slots are unused.
            unsafe { block::reduce(op, number(thread), slots) }
        });
        let want = (0..threads).map(number).fold(op.identity(), |a, b| op.combine(a, b));
        assert!(got.iter().all(|&got| got == want), "{threads} threads");
    }
}

#[test]
fn a_block_reduces_by_each_operation() {
    reduces(Sum);
    reduces(Product);
    reduces(Max);
    reduces(Min);
}

#[test]
fn groups_of_a_block_reduce_apart() {
    for (threads, group) in [(256, 32), (256, 64), (256, 128), (256, 256), (1024, 512), (96, 32)] {
        let got = each_thread(threads, 5, |thread| {
            let slots = shared_array![i64; SLOTS];
            // SAFETY: all threads call it; the group is a power of two that divides the block; the slots are
            // unused.
            unsafe { block::reduce_groups(Sum, number(thread), group, slots) }
        });
        for (thread, &got) in got.iter().enumerate() {
            let first = thread as u32 / group * group;
            let want: i64 = (first..first + group).map(number).sum();
            assert_eq!(got, want, "thread {thread} of {threads} in groups of {group}");
        }
    }
}

#[test]
fn sections_of_a_warp_reduce_apart() {
    for lanes in [1, 2, 4, 8, 16, 32] {
        let got = each_thread(LANES, 1, |thread| {
            // SAFETY: all lanes call it.
            unsafe { warp::reduce_sections(Sum, number(thread), lanes) }
        });
        for (lane, &got) in got.iter().enumerate() {
            let first = lane as u32 / lanes * lanes;
            assert_eq!(got, (first..first + lanes).map(number).sum::<i64>(), "lane {lane} of {lanes}");
        }
    }
}

#[test]
fn the_first_largest_is_found_and_a_nan_before_all() {
    for threads in SIZES {
        for nan in [None, Some(threads - 1), Some(threads / 2)] {
            let value = |thread: u32| match nan {
                Some(at) if thread >= at => f32::NAN,
                _ => (word(thread) % 7) as f32 - 9.0,
            };
            let got = each_thread(threads, 2, |thread| {
                let slots = shared_array![Indexed<f32>; SLOTS];
                // SAFETY: all threads call it; the slots are unused.
                let found =
                    unsafe { block::reduce(ArgMax, Indexed { value: value(thread), index: thread }, slots) };
                found.index
            });
            let mut want = 0;
            for thread in 1..threads {
                let (best, here) = (value(want), value(thread));
                if here > best || here.is_nan() && !best.is_nan() {
                    want = thread;
                }
            }
            assert!(got.iter().all(|&got| got == want), "{threads} threads, NaN from {nan:?}: {want}");
        }
    }
}

/// Both scans of non-commutative values, by `scan`.
fn scans(threads: u32, exclusive: bool, scan: impl Fn((u32, u32)) -> (u32, u32) + Sync) {
    let value = |thread: u32| (word(thread) | 1, thread);
    let got = each_thread(threads, 4, |thread| scan(value(thread)));
    let mut state = Compose.identity();
    for (thread, &got) in got.iter().enumerate() {
        let before = state;
        state = Compose.combine(state, value(thread as u32));
        assert_eq!(got, if exclusive { before } else { state }, "thread {thread} of {threads}");
    }
}

#[test]
fn scans_keep_the_order() {
    // SAFETY: all lanes call them.
    unsafe {
        scans(LANES, false, |value| warp::inclusive_scan(Compose, value));
        scans(LANES, true, |value| warp::exclusive_scan(Compose, value));
    }
    for threads in SIZES {
        scans(threads, false, |value| {
            let slots = shared_array![(u32, u32); SLOTS];
            // SAFETY: all threads call it; the slots are unused.
            unsafe { block::inclusive_scan(Compose, value, slots) }
        });
        scans(threads, true, |value| {
            let slots = shared_array![(u32, u32); SLOTS];
            // SAFETY: as above.
            unsafe { block::exclusive_scan(Compose, value, slots) }
        });
    }
}

#[test]
fn a_value_reaches_all() {
    for threads in SIZES {
        let source = threads - 3;
        let got = each_thread(threads, 6, |thread| {
            let slot = shared_array![(i64, u32); 1];
            // SAFETY: all threads call it; the slot is unused.
            let (number, _) = unsafe { block::broadcast((number(thread), thread), source, slot) };
            number
        });
        assert!(got.iter().all(|&got| got == number(source)), "{threads} threads");
    }
    let got = each_thread(LANES, 1, |lane| {
        // SAFETY: all lanes call it.
        unsafe { warp::broadcast(word(lane), 17) }
    });
    assert_eq!(got, [word(17); LANES as usize]);
}

/// A type whose parts travel together.
#[test]
fn pairs_are_exchanged_whole() {
    let got = each_thread(LANES, 1, |lane| {
        // SAFETY: all lanes call it.
        unsafe { (lane, -f64::from(lane)).exchange(warp::From::Xor(5)) }
    });
    assert!(got.iter().enumerate().all(|(lane, &got)| got == (lane as u32 ^ 5, -f64::from(lane as u32 ^ 5))));
}
