//! Launches that run at the same time, on two devices: what they see of each other, and what hangs.

use std::sync::atomic::Ordering::{self, Acquire, Relaxed, Release};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ironwarp_simt::memory::{Scope, Tracked, atomic_load, atomic_store, fence, load, store};
use ironwarp_simt::{Fault, FaultKind, LaunchConfig, Options, Site, grid, run};

use crate::common::SEEDS;

/// Words that both devices reach.
#[derive(Clone, Copy)]
struct Words(*mut u32);

// SAFETY: the words are `Tracked` and outlive the launches; the executor checks the accesses.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Words {
    fn at(self, index: usize) -> *mut u32 {
        self.0.wrapping_add(index)
    }
    #[track_caller]
    fn get(self, index: usize) -> u32 {
        // SAFETY: checking is on.
        unsafe { load(self.at(index)) }
    }
    #[track_caller]
    fn set(self, index: usize, value: u32) {
        // SAFETY: as above.
        unsafe { store(self.at(index), value) }
    }
    fn tell(self, index: usize, value: u32, order: Ordering, scope: Scope) {
        // SAFETY: as above.
        unsafe { atomic_store(self.at(index), value, order, scope) }
    }
    fn wait(self, index: usize, value: u32, order: Ordering, scope: Scope) {
        // SAFETY: as above.
        while unsafe { atomic_load(self.at(index), order, scope) } != value {}
    }
}

const DATA: usize = 0;
const READY: usize = 1;
const THERE: usize = 2;
const READ: usize = 3;
const SYSTEM: Scope = Scope::System;

/// How long one waits for the other to begin, on a machine that is busy.
const LIMIT: Duration = Duration::from_secs(1);
/// Schedules for kernels with a bug: one of the two then waits until it counts as hung.
const FEW: u64 = 2;

/// Launches of other tests must not keep those that hang from counting as hung.
static ONE_TEST_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Runs a kernel of one thread; its fault.
type Launch<'a> = &'a dyn Fn(&(dyn Fn() + Sync)) -> Option<Box<Fault>>;

/// Runs two kernels of one thread at the same time, on devices 0 and 1.
fn both(seed: u64, first: impl Fn(Words) + Sync, second: impl Fn(Words) + Sync) -> [Option<Box<Fault>>; 2] {
    beside(seed, |words, launch| launch(&|| first(words)), second)
}

/// Runs launches on device 0 one after the other, and at the same time a kernel on device 1.
fn beside(
    seed: u64,
    launches: impl FnOnce(Words, Launch<'_>) -> Option<Box<Fault>>,
    second: impl Fn(Words) + Sync,
) -> [Option<Box<Fault>>; 2] {
    let mut words = [0u32; 8];
    let tracked = Tracked::new(&mut words, "words");
    let words = Words(tracked.as_ptr());
    let options =
        |device| Options { spin_limit: LIMIT, ..Options::default().seed(seed).check(true).device(device) };
    let config = LaunchConfig::linear(1, 1);
    std::thread::scope(|scope| {
        let second = scope.spawn(|| run(&config, &options(1), || second(words)).err());
        let first = launches(words, &|kernel| run(&config, &options(0), kernel).err());
        [first, second.join().expect("no panic")]
    })
}

fn passes(first: impl Fn(Words) + Sync, second: impl Fn(Words) + Sync) {
    for seed in 0..SEEDS {
        assert_eq!(both(seed, &first, &second), [None, None], "seed {seed}");
    }
}

/// A line of this file.
fn line_of(site: &Site) -> &'static str {
    include_str!("devices.rs").lines().nth(site.line.saturating_sub(1) as usize).unwrap_or_default()
}

/// One of the two is at fault; the other may hang for want of it.
fn races(first: impl Fn(Words) + Sync, second: impl Fn(Words) + Sync) -> Box<Fault> {
    let mut last = None;
    for seed in 0..FEW {
        let faults = both(seed, &first, &second);
        let mut found = faults.iter().flatten();
        let race = found.find(|fault| fault.kind == FaultKind::LaunchRace);
        let Some(fault) = race else { panic!("seed {seed}: {faults:?}") };
        assert!(fault.other.as_ref().is_some_and(|other| other.launch.is_some()), "{fault}");
        last = Some(fault.clone());
    }
    last.expect("at least one seed")
}

/// The same, on the lines of the write and of the read.
fn races_on_data(first: impl Fn(Words) + Sync, second: impl Fn(Words) + Sync) {
    let fault = races(first, second);
    let sites = [Some(&fault.site), fault.other.as_ref().map(|other| &other.site)];
    let lines = sites.map(|site| site.map_or("", line_of));
    assert!(["set(DATA", "get(DATA"].iter().all(|it| lines.iter().any(|line| line.contains(it))), "{fault}");
}

/// The producer waits until the consumer runs, so that both run at the same time.
fn produces(release: Ordering, fenced: Option<Scope>, scope: Scope) -> impl Fn(Words) + Sync {
    move |words| {
        words.wait(THERE, 1, Relaxed, SYSTEM);
        words.set(DATA, 7);
        if let Some(scope) = fenced {
            fence(scope);
        }
        words.tell(READY, 1, release, scope);
        words.wait(READ, 1, Relaxed, SYSTEM);
    }
}

fn consumes(acquire: Ordering, fenced: Option<Scope>, scope: Scope) -> impl Fn(Words) + Sync {
    move |words| {
        words.tell(THERE, 1, Relaxed, SYSTEM);
        words.wait(READY, 1, acquire, scope);
        if let Some(scope) = fenced {
            fence(scope);
        }
        assert_eq!(words.get(DATA), 7);
        words.tell(READ, 1, Relaxed, SYSTEM);
    }
}

#[test]
fn devices_pass_data_on_at_system_scope() {
    let _alone = ONE_TEST_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    passes(produces(Release, None, SYSTEM), consumes(Acquire, None, SYSTEM));
    passes(produces(Relaxed, Some(SYSTEM), SYSTEM), consumes(Relaxed, Some(SYSTEM), SYSTEM));
}

#[test]
fn a_flag_without_an_order_passes_nothing_on() {
    let _alone = ONE_TEST_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    races_on_data(produces(Relaxed, None, SYSTEM), consumes(Acquire, None, SYSTEM));
    races_on_data(produces(Release, None, SYSTEM), consumes(Relaxed, None, SYSTEM));
}

#[test]
fn device_scope_ends_at_the_device() {
    let _alone = ONE_TEST_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let text = races(produces(Release, None, Scope::Device), consumes(Acquire, None, SYSTEM)).to_string();
    assert!(text.contains("`_system` form") && text.contains("of kernel `closure` on device"), "{text}");
    races(produces(Release, None, SYSTEM), consumes(Acquire, None, Scope::Device));
    races(produces(Relaxed, Some(Scope::Device), SYSTEM), consumes(Acquire, None, SYSTEM));
    races(produces(Release, None, SYSTEM), consumes(Relaxed, Some(Scope::Device), SYSTEM));
}

/// A device passes on what it has learnt.
#[test]
fn knowledge_passes_through_devices() {
    let _alone = ONE_TEST_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let relay = |scope: Scope| {
        move |words: Words| {
            words.tell(THERE, 1, Relaxed, SYSTEM);
            words.wait(READY, 1, Acquire, SYSTEM);
            words.tell(4, 1, Release, scope);
            words.wait(READ, 1, Relaxed, SYSTEM);
        }
    };
    let reads = |words: Words| {
        words.wait(4, 1, Acquire, SYSTEM);
        assert_eq!(words.get(DATA), 7);
        words.tell(READ, 1, Relaxed, SYSTEM);
    };
    let three = |seed, scope| {
        let mut words = [0u32; 8];
        let tracked = Tracked::new(&mut words, "words");
        let words = Words(tracked.as_ptr());
        let options = |device| Options {
            spin_limit: LIMIT,
            ..Options::default().seed(seed).check(true).device(device)
        };
        let config = LaunchConfig::linear(1, 1);
        std::thread::scope(|threads| {
            let relay = threads.spawn(move || run(&config, &options(1), || relay(scope)(words)).err());
            let reads = threads.spawn(move || run(&config, &options(2), || reads(words)).err());
            let first = run(&config, &options(0), || produces(Release, None, SYSTEM)(words)).err();
            [first, relay.join().expect("no panic"), reads.join().expect("no panic")]
        })
    };
    for seed in 0..SEEDS {
        assert_eq!(three(seed, SYSTEM), [None, None, None], "seed {seed}");
        if seed >= FEW {
            continue;
        }
        let faults = three(seed, Scope::Device);
        assert!(faults.iter().flatten().any(|fault| fault.kind == FaultKind::LaunchRace), "{faults:?}");
    }
}

/// A slot may be written again once its reader has said so.
#[test]
fn slots_are_not_reused_before_they_are_read() {
    let _alone = ONE_TEST_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let writer = |waits: bool| {
        move |words: Words| {
            produces(Release, None, SYSTEM)(words);
            if waits {
                words.wait(5, 1, Acquire, SYSTEM);
            }
            words.set(DATA, 8);
            words.wait(5, 1, Acquire, SYSTEM);
        }
    };
    let reader = |words: Words| {
        consumes(Acquire, None, SYSTEM)(words);
        words.tell(5, 1, Release, SYSTEM);
    };
    passes(writer(true), reader);
    races_on_data(writer(false), reader);
}

/// A launch that has ended has told the next what it learnt of one that still runs.
#[test]
fn knowledge_of_a_running_launch_outlives_its_hearer() {
    let _alone = ONE_TEST_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let reader_after = |seed, acquire: Ordering| {
        let mut words = [0u32; 8];
        let tracked = Tracked::new(&mut words, "words");
        let words = Words(tracked.as_ptr());
        let options = |device| Options {
            spin_limit: LIMIT,
            ..Options::default().seed(seed).check(true).device(device)
        };
        let config = LaunchConfig::linear(1, 1);
        std::thread::scope(|scope| {
            let runs_on = scope.spawn(move || {
                run(&config, &options(1), || {
                    words.wait(THERE, 1, Relaxed, SYSTEM);
                    words.set(DATA, 7);
                    words.tell(READY, 1, Release, SYSTEM);
                    words.wait(READ, 1, Relaxed, SYSTEM);
                })
            });
            let hearer = run(&config, &options(0), || {
                words.tell(THERE, 1, Relaxed, SYSTEM);
                words.wait(READY, 1, acquire, SYSTEM);
            });
            hearer.expect("no fault");
            let next = run(&config, &options(0), || {
                assert_eq!(words.get(DATA), 7);
                words.tell(READ, 1, Relaxed, SYSTEM);
            });
            // It may hang for want of the reader.
            let other = runs_on.join().expect("no panic");
            next.err().or(other.err())
        })
    };
    for seed in 0..SEEDS {
        assert_eq!(reader_after(seed, Acquire), None, "seed {seed}");
    }
    for seed in 0..FEW {
        let fault = reader_after(seed, Relaxed).expect("nothing orders the read");
        assert_eq!(fault.kind, FaultKind::LaunchRace, "{fault}");
    }
}

/// Later launches come after those that have ended, and so does whoever hears from them.
#[test]
fn launches_come_after_those_that_have_ended() {
    let _alone = ONE_TEST_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    for seed in 0..SEEDS {
        let mut words = [0u32; 8];
        let tracked = Tracked::new(&mut words, "words");
        let words = Words(tracked.as_ptr());
        let options = |device| Options::default().seed(seed).check(true).device(device);
        let config = LaunchConfig::linear(1, 1);
        std::thread::scope(|scope| {
            // Runs all the time, so that the others are checked against each other.
            let late = scope.spawn(move || {
                run(&config, &options(1), || {
                    words.tell(THERE, 1, Relaxed, SYSTEM);
                    words.wait(READY, 1, Acquire, SYSTEM);
                    assert_eq!(words.get(DATA), 8);
                })
            });
            let ok = |body: &(dyn Fn() + Sync)| run(&config, &options(0), body).expect("no fault");
            ok(&|| words.wait(THERE, 1, Relaxed, SYSTEM));
            ok(&|| words.set(DATA, 7));
            ok(&|| words.set(DATA, words.get(DATA) + 1));
            ok(&|| words.tell(READY, 1, Release, SYSTEM));
            late.join().expect("no panic").expect("no fault");
        });
    }
}

/// A producer of two launches: the second one tells, by a relaxed word, what the first one wrote while the
/// consumer ran. What the second one writes itself is another matter.
fn produces_before(seed: u64, publishes: bool, writes_late: bool) -> [Option<Box<Fault>>; 2] {
    let launches = |words: Words, launch: Launch<'_>| {
        let write = |is_now| {
            if is_now {
                words.set(DATA, 7);
            }
        };
        let earlier = launch(&|| {
            words.wait(THERE, 1, Relaxed, SYSTEM);
            write(!writes_late);
        });
        earlier.or_else(|| {
            launch(&|| {
                write(writes_late);
                if publishes {
                    grid::publish_dependencies();
                }
                words.tell(READY, 1, Relaxed, SYSTEM);
                words.wait(READ, 1, Relaxed, SYSTEM);
            })
        })
    };
    beside(seed, launches, consumes(Acquire, None, SYSTEM))
}

#[test]
fn what_earlier_launches_wrote_can_be_published_without_a_release() {
    let _alone = ONE_TEST_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    for seed in 0..FEW {
        assert_eq!(produces_before(seed, true, false), [None, None], "seed {seed}");
        for (publishes, writes_late) in [(false, false), (true, true)] {
            let faults = produces_before(seed, publishes, writes_late);
            let race = faults.iter().flatten().any(|fault| fault.kind == FaultKind::LaunchRace);
            assert!(
                race,
                "seed {seed}, published: {publishes}, by the second launch: {writes_late}: {faults:?}"
            );
        }
    }
}

#[test]
fn launches_that_wait_for_each_other_in_vain_hang() {
    let _alone = ONE_TEST_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let waits = |index| move |words: Words| words.wait(index, 1, Acquire, SYSTEM);
    let faults = both(1, waits(6), waits(7));
    let kinds = faults.map(|fault| fault.map(|fault| fault.kind));
    assert_eq!(kinds, [Some(FaultKind::Livelock), Some(FaultKind::Livelock)]);
}

/// It gives up by itself, after more than the limit for threads that spin.
#[test]
fn a_wait_with_a_time_limit_is_no_hang() {
    let _alone = ONE_TEST_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let begun = Instant::now();
    let limited = |words: Words| {
        let start = ironwarp_simt::thread::global_timer();
        let mut polls = 0;
        // SAFETY: checking is on.
        while unsafe { atomic_load(words.at(6), Relaxed, SYSTEM) } == 0 {
            polls += 1;
            if polls % 64 == 0 && ironwarp_simt::thread::global_timer() - start > 2 * LIMIT.as_nanos() as u64
            {
                return;
            }
        }
    };
    assert_eq!(both(0, limited, limited), [None, None]);
    assert!(begun.elapsed() > 2 * LIMIT);
}

/// A reader that takes the flag of the round before for that of this one.
#[test]
fn a_flag_of_an_earlier_round_is_no_flag() {
    let _alone = ONE_TEST_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let writer = |words: Words| {
        produces(Release, None, SYSTEM)(words);
        words.wait(5, 1, Acquire, SYSTEM);
        words.set(DATA, 8);
        words.tell(READY, 2, Release, SYSTEM);
        words.wait(6, 1, Acquire, SYSTEM);
    };
    let reader = |round: u32| {
        move |words: Words| {
            consumes(Acquire, None, SYSTEM)(words);
            words.tell(5, 1, Release, SYSTEM);
            // SAFETY: checking is on.
            while unsafe { atomic_load(words.at(READY), Acquire, SYSTEM) } < round {}
            words.get(DATA);
            words.tell(6, 1, Release, SYSTEM);
        }
    };
    passes(writer, reader(2));
    races_on_data(writer, reader(1));
}
