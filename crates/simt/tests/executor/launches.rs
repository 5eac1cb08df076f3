//! Launches: refused configurations, parameters, and the replay of schedules.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use crate::common::{fails, passes};
use ironwarp_simt::registry::{FindError, Registration, find};
use ironwarp_simt::{FaultKind, KernelEntry, LaunchBounds, LaunchConfig, Options, ParamLayout, thread};

/// `data[i] *= factor`, for `i < len`.
///
/// # Safety
/// `params` points to pointers to a `*mut f32`, a `u32` and an `f32`.
unsafe fn invoke_scale(params: *const *const c_void) {
    // SAFETY: the launches below pass a pointer, a length and a factor.
    unsafe {
        let data = *(*params).cast::<*mut f32>();
        let len = *(*params.add(1)).cast::<u32>();
        let factor = *(*params.add(2)).cast::<f32>();
        let index = thread::block_idx()[0] * thread::block_dim()[0] + thread::thread_idx()[0];
        if index < len {
            let at = data.add(index as usize);
            ironwarp_simt::memory::store(at, ironwarp_simt::memory::load(at) * factor);
        }
    }
}

ironwarp_simt::inventory::submit! {
    Registration::Linked(&KernelEntry {
        name: "scale",
        family: "launches",
        file: file!(),
        line: line!(),
        params: &[ParamLayout::of::<*mut f32>(), ParamLayout::of::<u32>(), ParamLayout::of::<f32>()],
        bounds: LaunchBounds { max_threads: 128, min_blocks: 0 },
        checked: true,
        invoke: invoke_scale,
    })
}

/// Two functions of one package with one name, in files `a.rs` and `b.rs`.
const fn twin(file: &'static str) -> KernelEntry {
    let bounds = LaunchBounds { max_threads: 0, min_blocks: 0 };
    let (name, family, params) = ("twin", "launches", &[]);
    KernelEntry { name, family, file, line: 7, params, bounds, checked: true, invoke: invoke_scale }
}

static TWINS: [KernelEntry; 2] = [twin("b.rs"), twin("a.rs")];

ironwarp_simt::inventory::submit! { Registration::Linked(&TWINS[0]) }
ironwarp_simt::inventory::submit! { Registration::Linked(&TWINS[1]) }

#[test]
fn kernels_of_one_name_are_named_with_their_lines() {
    let error = find(Some("launches"), "twin").unwrap_err();
    assert!(matches!(&error, FindError::Twice { sites, .. } if *sites == ["a.rs:7", "b.rs:7"]), "{error}");
    assert_eq!(find(None, "twin").unwrap_err(), error);
    let told = "2 kernels of `launches` are called `twin`: a.rs:7, b.rs:7; rename all but one";
    assert_eq!(error.to_string(), told);
}

#[test]
fn kernel_from_the_registry() {
    let entry = find(None, "scale").unwrap();
    assert_eq!(find(Some("launches"), "scale").unwrap().line, entry.line);
    let mut data: Vec<f32> = (0..1000).map(|i| i as f32).collect();
    let len = data.len() as u32;
    let tracked = ironwarp_simt::memory::Tracked::new(&mut data, "data");
    let (pointer, factor) = (tracked.as_ptr(), 2.0f32);
    let params = [(&raw const pointer).cast::<c_void>(), (&raw const len).cast(), (&raw const factor).cast()];
    // SAFETY: the parameters are those of the kernel.
    let stats = unsafe {
        ironwarp_simt::launch(
            entry,
            &LaunchConfig::linear(8, 128),
            params.as_ptr(),
            &Options::default().check(true),
        )
    };
    let stats = stats.unwrap();
    assert_eq!((stats.blocks, stats.threads), (8, 1024));
    // SAFETY: as above.
    let wide = unsafe {
        ironwarp_simt::launch(entry, &LaunchConfig::linear(8, 160), params.as_ptr(), &Options::default())
    };
    let fault = wide.unwrap_err();
    assert_eq!(fault.kind, FaultKind::InvalidLaunch);
    assert!(fault.message.contains("launch bounds allow 128"), "{fault}");
    drop(tracked);
    assert!((0..1000).all(|i| data[i] == 2.0 * i as f32));
}

/// Copies the first of two words to the second one, over shared memory, by stores that the checker does not
/// see: this package has no callbacks.
///
/// # Safety
/// `params` points to a pointer to a `*mut u32`.
unsafe fn invoke_unseen(params: *const *const c_void) {
    // SAFETY: the launch below passes a pointer to two words; the shared variable has room for one.
    unsafe {
        let words = *(*params).cast::<*mut u32>();
        words.write(7);
        static WORD: ironwarp_simt::StaticKey = ironwarp_simt::StaticKey::new("WORD");
        let shared = ironwarp_simt::shared::alloc_static(&WORD, 4, 4).cast::<u32>();
        shared.write(words.read());
        ironwarp_simt::memory::store(words.add(1), ironwarp_simt::memory::load(shared));
        ironwarp_simt::barrier::sync(0, None);
    }
}

/// A kernel that was compiled without callbacks, as those of a dependency are: what it may have written is no
/// uninitialised memory, neither to itself nor to kernels after it.
#[test]
fn unseen_stores_give_values() {
    let bounds = LaunchBounds { max_threads: 0, min_blocks: 0 };
    const PARAMS: &[ParamLayout] = &[ParamLayout::of::<*mut u32>()];
    let entry = |checked| KernelEntry {
        name: "unseen",
        family: "ironwarp_launches",
        file: file!(),
        line: line!(),
        params: PARAMS,
        bounds,
        checked,
        invoke: invoke_unseen,
    };
    let launch = |entry: &KernelEntry| {
        let memory = ironwarp_simt::DeviceMemory::new(8).unwrap();
        let words = memory.as_ptr().cast::<u32>();
        ironwarp_simt::memory::track_unwritten(words, 8, "words");
        let params = [(&raw const words).cast::<c_void>()];
        let (config, options) = (LaunchConfig::linear(1, 1), Options::default().check(true));
        // SAFETY: the parameter is the kernel's.
        let result = unsafe { ironwarp_simt::launch(entry, &config, params.as_ptr(), &options) };
        let start = words as usize;
        let read = ironwarp_simt::run(&config, &options, || {
            let load = |word| {
                // SAFETY: both words are in the memory.
                unsafe { ironwarp_simt::memory::load((start as *const u32).add(word)) }
            };
            assert_eq!([0, 1].map(load), [7; 2]);
        });
        ironwarp_simt::memory::untrack(words);
        result.and(read).map_err(|fault| fault.kind)
    };
    assert!(launch(&entry(false)).is_ok(), "{:?}", launch(&entry(false)));
    // A kernel with callbacks would have been seen to write.
    assert_eq!(launch(&entry(true)).unwrap_err(), FaultKind::UninitialisedShared);
}

#[test]
fn kernels_that_are_not_there() {
    let error = find(Some("other"), "scale").unwrap_err();
    assert!(
        matches!(&error, FindError::NotFound { known, .. } if known.contains(&"launches::scale".to_owned())),
        "{error}"
    );
    assert!(error.to_string().contains("`scale` in family `other`"));
}

#[test]
fn every_thread_runs_once_with_its_own_index() {
    let seen: Mutex<Vec<_>> = Mutex::default();
    let config = LaunchConfig { grid: [2, 3, 2], block: [4, 2, 3], ..LaunchConfig::default() };
    for seed in [0, 5] {
        seen.lock().unwrap().clear();
        let stats = ironwarp_simt::run(&config, &Options::default().seed(seed), || {
            assert_eq!((thread::grid_dim(), thread::block_dim()), (config.grid, config.block));
            let [x, y, z] = thread::thread_idx();
            assert_eq!(thread::rank(), x + 4 * (y + 2 * z));
            assert_eq!((thread::lane(), thread::warp()), (thread::rank(), 0));
            seen.lock().unwrap().push((thread::block_idx(), thread::thread_idx()));
        });
        assert_eq!(stats.unwrap().threads, 288);
        let mut seen = seen.lock().unwrap();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 288);
    }
}

#[test]
fn launches_that_cannot_be() {
    let base = LaunchConfig::linear(2, 32);
    let refused = [
        (LaunchConfig { grid: [0, 1, 1], ..base }, "grid is [0, 1, 1]"),
        (LaunchConfig { block: [32, 0, 1], ..base }, "block is"),
        (LaunchConfig { block: [33, 32, 1], ..base }, "1056 threads"),
        (LaunchConfig { grid: [1, 70_000, 1], ..base }, "too large"),
        (LaunchConfig { dynamic_shared: 300_000, ..base }, "limit is 232448"),
        (LaunchConfig { cluster: [4, 1, 1], ..base }, "no multiple of cluster"),
        (LaunchConfig { grid: [32, 1, 1], cluster: [32, 1, 1], ..base }, "limit is 16"),
        (LaunchConfig { grid: [1000, 1, 1], cooperative: true, ..base }, "16384 threads in all"),
    ];
    for (config, text) in refused {
        let fault =
            ironwarp_simt::run(&config, &Options::default(), || unreachable!("must not run")).unwrap_err();
        assert_eq!(fault.kind, FaultKind::InvalidLaunch);
        assert!(fault.message.contains(text), "{fault}");
        assert!(!fault.to_string().contains("seed"), "{fault}");
    }
}

#[test]
fn panics_become_faults() {
    let line = line!() + 3;
    let fault = fails(LaunchConfig::linear(4, 64), FaultKind::Panic, || {
        let values = [0u8; 40];
        std::hint::black_box(values[thread::rank() as usize]);
    });
    assert_eq!((fault.site.file.as_str(), fault.site.line), (file!(), line));
    assert!(fault.thread[0] >= 40);
    assert!(fault.message.contains("the len is 40"), "{fault}");
    assert!(!thread::in_kernel());
}

#[test]
fn traps_tell_why() {
    let fault = fails(LaunchConfig::linear(1, 1), FaultKind::Trap, || ironwarp_simt::trap("no such mode"));
    assert_eq!(fault.message, "no such mode");
}

#[test]
fn the_same_seed_replays() {
    let order = |seed| {
        let order: Mutex<Vec<_>> = Mutex::default();
        let options = Options { seed, workers: 1, ..Options::default() };
        ironwarp_simt::run(&LaunchConfig::linear(3, 40), &options, || {
            order.lock().unwrap().push((thread::block_idx()[0], thread::rank()));
            ironwarp_simt::barrier::sync(0, None);
            order.lock().unwrap().push((thread::block_idx()[0], thread::rank()));
        })
        .unwrap();
        order.into_inner().unwrap()
    };
    assert!(order(0).iter().take(40).copied().eq((0..40).map(|rank| (0, rank))));
    assert_eq!(order(7), order(7));
    assert_ne!(order(7), order(8));
}

#[test]
fn the_launch_after_a_fault_is_clean() {
    for _ in 0..3 {
        fails(LaunchConfig::linear(2, 64), FaultKind::BarrierDivergence, || {
            if thread::rank() != 0 {
                ironwarp_simt::barrier::sync(0, None);
            }
        });
        passes(LaunchConfig::linear(2, 64), || ironwarp_simt::barrier::sync(0, None));
    }
}

#[test]
fn endless_spinning_is_found() {
    let mut flag = vec![0u32; 1];
    let flag = ironwarp_simt::memory::Tracked::new(&mut flag, "flag");
    let address = flag.as_ptr() as usize;
    let options = Options { spin_limit: Duration::from_millis(50), ..Options::default() };
    let fault = ironwarp_simt::run(&LaunchConfig::linear(1, 64), &options, || {
        let scope = ironwarp_simt::memory::Scope::Device;
        // SAFETY: the flag is tracked.
        let poll = || unsafe {
            ironwarp_simt::memory::atomic(address as *mut u32, Ordering::Acquire, scope, |old| old)
        };
        while poll() == 0 {}
    });
    let fault = fault.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Livelock);
    assert!(fault.to_string().contains(concat!("threads 0..=63 spin (", file!(), ":")), "{fault}");
}

/// The first block works for longer than threads may spin; the other waits for it on another worker.
#[test]
fn waiting_for_a_block_that_works_is_no_endless_spinning() {
    const LIMIT: Duration = Duration::from_millis(50);
    let mut words = vec![0u32; 2];
    let tracked = ironwarp_simt::memory::Tracked::new(&mut words, "words");
    let address = tracked.as_ptr() as usize;
    let options = Options { spin_limit: LIMIT, workers: 2, ..Options::default() };
    let launched = ironwarp_simt::run(&LaunchConfig::linear(2, 1), &options, || {
        let scope = ironwarp_simt::memory::Scope::Device;
        // SAFETY: the words are tracked.
        let add = |index: usize, more: u32| unsafe {
            let word = (address as *mut u32).add(index);
            ironwarp_simt::memory::atomic(word, Ordering::AcqRel, scope, |old| old + more)
        };
        if add(0, 1) == 0 {
            // Atomics, as in a histogram, are no spinning if something else follows them.
            let begun = Instant::now();
            while begun.elapsed() < LIMIT * 4 / 5 {
                add(0, 1);
            }
            while begun.elapsed() < 4 * LIMIT {}
            add(1, 1);
        }
        while add(1, 0) == 0 {}
    });
    launched.unwrap_or_else(|fault| panic!("{fault}"));
}

#[test]
fn waiting_for_a_block_that_fails_is_no_fault_of_its_own() {
    for seed in 0..4 {
        let mut words = vec![0u32; 2];
        let tracked = ironwarp_simt::memory::Tracked::new(&mut words, "words");
        let address = tracked.as_ptr() as usize;
        // Longer than a busy machine takes to start the other worker: until then, one spins alone.
        let options = Options { seed, spin_limit: Duration::from_secs(5), workers: 2, ..Options::default() };
        let launched = ironwarp_simt::run(&LaunchConfig::linear(2, 1), &options, || {
            // SAFETY: the words are tracked.
            let add = |index: usize, more: u32| unsafe {
                let word = (address as *mut u32).add(index);
                ironwarp_simt::memory::atomic(
                    word,
                    Ordering::AcqRel,
                    ironwarp_simt::memory::Scope::Device,
                    |old| old + more,
                )
            };
            if add(0, 1) == 1 {
                ironwarp_simt::trap("no more");
            }
            while add(1, 0) == 0 {}
        });
        assert_eq!(launched.unwrap_err().kind, FaultKind::Trap, "seed {seed}");
    }
}

#[test]
fn clock_grows() {
    let last = AtomicU64::new(0);
    passes(LaunchConfig::linear(1, 2), || {
        let (first, second) = (ironwarp_simt::clock(), ironwarp_simt::clock());
        assert!(first < second);
        last.store(second, Ordering::Relaxed);
    });
}

#[test]
#[should_panic(expected = "simt::barrier::sync was called outside a simulated thread")]
fn device_functions_outside_a_kernel() {
    ironwarp_simt::barrier::sync(0, None);
}

/// Does nothing.
///
/// # Safety
/// None: no parameter is read.
unsafe fn invoke_nothing(_: *const *const c_void) {}

ironwarp_simt::inventory::submit! {
    Registration::WhenUsed { name: "later", family: "launches" }
}

#[test]
fn a_kernel_is_found_once_it_is_used() {
    static LATER: KernelEntry = KernelEntry {
        name: "later",
        family: "launches",
        file: file!(),
        line: line!(),
        params: &[],
        bounds: LaunchBounds { max_threads: 0, min_blocks: 0 },
        checked: true,
        invoke: invoke_nothing,
    };
    let names = || ironwarp_simt::registry::names().filter(|name| *name == ("launches", "later")).count();
    let unused = FindError::Unused { family: "launches", name: "later".into() };
    assert_eq!(find(None, "later").unwrap_err(), unused);
    assert_eq!(find(Some("launches"), "later").unwrap_err(), unused);
    assert!(matches!(find(Some("others"), "later"), Err(FindError::NotFound { .. })));
    for _ in 0..2 {
        ironwarp_simt::registry::link(&LATER);
        assert_eq!(find(None, "later").unwrap().line, LATER.line);
        assert_eq!(names(), 1, "named once, used or not");
    }
}

/// Runs `body` on a thread of its own, which must end soon.
fn ends(body: impl FnOnce() + Send + 'static) {
    let (done, is_done) = mpsc::channel();
    std::thread::spawn(move || {
        body();
        done.send(()).unwrap();
    });
    is_done.recv_timeout(Duration::from_secs(20)).expect("the launch waits for ever, or has failed");
}

#[test]
fn launches_end_while_all_of_rayons_threads_wait_for_them() {
    static RUNS: Mutex<()> = Mutex::new(());
    ends(|| {
        let runs = RUNS.lock().unwrap();
        rayon_core::spawn_broadcast(|_| drop(RUNS.lock()));
        ironwarp_simt::run(&LaunchConfig::linear(64, 1), &Options::default(), || ()).unwrap();
        drop(runs);
    });
}

#[test]
fn a_launch_on_rayons_thread_runs_no_other_work_of_the_pool() {
    thread_local! {
        static LAUNCHES: Cell<bool> = const { Cell::new(false) };
    }
    // It waits for the slower block, on whichever thread that runs.
    let launch = || {
        LAUNCHES.set(true);
        let slow = || std::thread::sleep(Duration::from_millis(5 * u64::from(thread::block_idx()[0])));
        ironwarp_simt::run(&LaunchConfig::linear(3, 1), &Options::default(), slow).unwrap();
        LAUNCHES.set(false);
    };
    ends(move || {
        rayon_core::scope(|scope| {
            for _ in 0..100 {
                scope.spawn(move |_| {
                    assert!(!LAUNCHES.get(), "work of the pool within a launch");
                    launch();
                });
            }
        });
    });
}

#[test]
fn boxes_beyond_all_numbers_are_refused() {
    let huge = [u32::MAX; 3];
    // Of so many threads a multiple of 2^64.
    let none = [1 << 31, 1 << 31, 4];
    for config in [
        LaunchConfig { block: huge, ..LaunchConfig::default() },
        LaunchConfig { block: none, ..LaunchConfig::default() },
        LaunchConfig { grid: huge, ..LaunchConfig::default() },
        LaunchConfig { grid: huge, cluster: huge, ..LaunchConfig::default() },
    ] {
        let fault = ironwarp_simt::run(&config, &Options::default(), || ()).unwrap_err();
        assert_eq!(fault.kind, FaultKind::InvalidLaunch, "{fault}");
    }
    let config = LaunchConfig { grid: huge, block: none, cluster: huge, ..LaunchConfig::default() };
    let counts = [config.blocks(), config.threads_per_block(), config.blocks_per_cluster()];
    assert_eq!(counts, [u64::MAX; 3]);
}
