//! Instructions for one memory, with addresses in another.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::{Device, fails, fails_at, get, passes, put, tensors};
use ironwarp_simt::async_copy::{copy, wait_all};
use ironwarp_simt::cluster::map_shared;
use ironwarp_simt::memory::{Scope, Tracked, global, is_global, is_local, track, untrack};
use ironwarp_simt::reduction::Reduction;
use ironwarp_simt::shared::{alloc_static, contains, from_address, to_address};
use ironwarp_simt::tensor_map::DataType;
use ironwarp_simt::{Fault, FaultKind, LaunchConfig, Place, StaticKey, bulk, grid, mbarrier, thread, tma};

static TILE: StaticKey = StaticKey::new("TILE");
static BAR: StaticKey = StaticKey::new("BAR");
const TILE_BYTES: usize = 256;

fn tile() -> *mut u32 {
    alloc_static(&TILE, TILE_BYTES, 16).cast()
}

fn one() -> LaunchConfig {
    LaunchConfig::linear(1, 1)
}

/// Every kind of access by an instruction for global memory.
const ACCESSES: [fn(*mut u32); 6] = [
    |at| {
        // SAFETY: checking is on.
        unsafe { global::load(at) };
    },
    |at| {
        // SAFETY: checking is on.
        unsafe { global::load_read_only(at) };
    },
    |at| {
        // SAFETY: checking is on.
        unsafe { global::store(at, 1) }
    },
    |at| {
        // SAFETY: checking is on.
        unsafe { global::atomic(at, Ordering::Relaxed, Scope::Device, |old| old + 1) };
    },
    |at| {
        // SAFETY: checking is on.
        unsafe { global::atomic_store(at, 1, Ordering::Relaxed, Scope::System) }
    },
    |at| {
        // SAFETY: checking is on.
        unsafe { global::atomic_load(at, Ordering::Relaxed, Scope::System) };
    },
];

#[track_caller]
fn says(fault: &Fault, sentence: &str) {
    let report = fault.to_string();
    assert!(report.contains(sentence) && report.contains("instruction for another memory"), "{report}");
}

/// Checks that the fix of a fault begins with these words.
#[track_caller]
fn advises(fault: &Fault, remedy: &str) {
    assert!(fault.hint().starts_with(remedy), "{fault}");
    assert!(fault.to_string().contains(&format!("\n  hint: {remedy}")), "{fault}");
}

#[test]
fn instructions_for_global_memory_reach_no_other() {
    let mut host = [1u32; 4];
    let buffer = Tracked::new(&mut host, "words");
    let words = Device(buffer.as_ptr());
    for (number, access) in ACCESSES.into_iter().enumerate() {
        passes(one(), || access(words.at(1)));
        // Unwritten memory too: the address is wrong before its contents are.
        let fault = fails(one(), FaultKind::WrongMemory, || access(tile().wrapping_add(2)));
        says(&fault, "names `.global`, but the address lies in the block's shared memory");
        says(&fault, "of 4 bytes at byte 8 of shared `TILE` (256 bytes)");
        let is_atomic = number >= 3;
        advises(
            &fault,
            if is_atomic { "take an atomic that names no memory" } else { "take `vector::load_shared`" },
        );
        let fault = fails(one(), FaultKind::WrongMemory, || {
            let mut local = 1u32;
            access(&raw mut local);
        });
        says(&fault, "but the address lies in the thread's local memory");
        advises(&fault, "take a plain access");
        assert!(matches!(fault.access.as_ref().unwrap().place, Place::Local { .. }), "{fault}");
        let wild = Device(0x1234_5678_9000usize as *mut u32);
        fails(one(), FaultKind::WildPointer, || access(wild.at(0)));
    }
}

#[test]
fn generic_accesses_reach_every_memory() {
    let mut host = [1u32; 4];
    let buffer = Tracked::new(&mut host, "words");
    let words = Device(buffer.as_ptr());
    passes(one(), || {
        let mut local = 1u32;
        for at in [words.at(0), tile(), &raw mut local] {
            put(at, 5);
            assert_eq!(get(at), 5);
        }
        // To a GPU, atomics on local variables are errors.
        for at in [words.at(0), tile()] {
            // SAFETY: checking is on.
            unsafe { ironwarp_simt::memory::atomic(at, Ordering::Relaxed, Scope::Block, |old| old + 1) };
            assert_eq!(get(at), 6);
        }
    });
}

#[test]
fn pointers_tell_their_memory() {
    let mut host = [1u32; 4];
    let buffer = Tracked::new(&mut host, "words");
    let words = Device(buffer.as_ptr());
    let (shared, local) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let spaces = |at: *const u32| [is_global(at), contains(at), is_local(at)];
    let config = LaunchConfig { cooperative: true, ..LaunchConfig::linear(2, 1) };
    passes(config, || {
        let own = 1u32;
        if thread::block_idx()[0] == 0 {
            shared.store(tile().expose_provenance(), Ordering::Relaxed);
            local.store((&raw const own).expose_provenance(), Ordering::Relaxed);
        }
        assert_eq!(spaces(words.at(1)), [true, false, false]);
        assert_eq!(spaces(tile()), [false, true, false]);
        assert_eq!(spaces(&raw const own), [false, false, true]);
        // The closure's captures stand for global memory.
        assert_eq!(spaces((&raw const shared).cast()), [true, false, false]);
        grid::sync();
        if thread::block_idx()[0] == 1 {
            assert_eq!(spaces(shared.load(Ordering::Relaxed) as *const u32), [false; 3]);
            assert_eq!(spaces(local.load(Ordering::Relaxed) as *const u32), [false, false, true]);
        }
        grid::sync();
    });
}

#[test]
fn nothing_lies_around_shared_memory() {
    for bytes in [-(1 << 30), -4096, 1 << 20, 1 << 30, 2 << 30] {
        let fault = fails(one(), FaultKind::OutOfBounds, || put(tile().wrapping_byte_offset(bytes), 1));
        let report = fault.to_string();
        let place = match bytes {
            ..0 => "shared memory at offset -".into(),
            _ => format!("byte {bytes} of shared `TILE` (256 bytes)"),
        };
        assert!(report.contains(&place), "{report}");
    }
}

#[test]
fn copies_from_and_to_global_memory() {
    let bar = || to_address(alloc_static(&BAR, 8, 8));
    let upper = || tile().wrapping_add(TILE_BYTES / 8);
    let line = line!() + 4;
    let copies: [&(dyn Fn() + Sync); 4] = [
        &|| {
            // SAFETY: checking is on.
            unsafe { copy(upper().cast(), tile().cast(), 4, 4) };
        },
        &|| {
            mbarrier::init(bar(), 1);
            mbarrier::fence_init();
            mbarrier::expect_tx(bar(), 128);
            // SAFETY: checking is on.
            unsafe { bulk::load(to_address(upper()), tile().cast(), 128, bar()) };
        },
        &|| {
            // SAFETY: checking is on.
            unsafe { bulk::store(upper().cast(), to_address(tile()), 128) };
        },
        &|| {
            let (to, from) = (upper().cast(), to_address(tile()));
            // SAFETY: checking is on.
            unsafe { bulk::reduce(Reduction::Add, DataType::U32, to, from, 128) };
        },
    ];
    let lines: Vec<u32> = (line..line + 22).collect();
    for copy in copies {
        let fault = fails_at(one(), FaultKind::WrongMemory, &lines, || {
            (0..TILE_BYTES / 4).for_each(|word| put(tile().wrapping_add(word), 1));
            ironwarp_simt::memory::proxy_fence();
            copy();
        });
        says(&fault, "names `.global`, but the address lies in the block's shared memory");
        advises(&fault, "asynchronous copies go between global and shared memory");
    }
    // Nothing is copied from there.
    passes(one(), || {
        // SAFETY: checking is on.
        unsafe { copy(upper().cast(), tile().cast(), 4, 0) };
        wait_all();
    });
}

#[test]
fn tensor_maps_are_not_in_shared_memory() {
    let fault = fails(tensors::config(), FaultKind::WrongMemory, || {
        // SAFETY: the map is refused before it is read.
        unsafe { tma::prefetch(from_address(tensors::tile(0)).cast()) }
    });
    says(&fault, "prefetch.tensormap: its tensor map lies in the block's shared memory");
    advises(&fault, "pass the map by value");
}

#[test]
fn shared_memory_of_another_block() {
    let place = AtomicUsize::new(0);
    let config = LaunchConfig { cooperative: true, ..LaunchConfig::linear(2, 1) };
    let access = |kind, access: &(dyn Fn(*mut u32) + Sync)| {
        fails(config, kind, || {
            if thread::block_idx()[0] == 0 {
                place.store(tile().expose_provenance(), Ordering::Relaxed);
            }
            grid::sync();
            if thread::block_idx()[0] == 1 {
                access(place.load(Ordering::Relaxed) as *mut u32);
            }
        })
    };
    let accesses: [&(dyn Fn(*mut u32) + Sync); 3] = [
        // SAFETY: checking is on.
        &|at| unsafe { global::store(at, 1) },
        &|at| {
            to_address(at);
        },
        // SAFETY: checking is on.
        &|at| unsafe { tma::prefetch(at.cast()) },
    ];
    for one in accesses {
        says(&access(FaultKind::WrongMemory, one), "lies in the shared memory of block 0");
    }
    for one in &accesses[..2] {
        advises(&access(FaultKind::WrongMemory, one), "no pointer reaches another block's shared memory");
    }
    let fault = access(FaultKind::WildPointer, &|at| put(at, 1));
    assert!(fault.message.contains("the address lies in the shared memory of block 0"), "{fault}");
}

#[test]
fn pointers_that_are_none_to_shared_memory() {
    let mut host = [1u32; 4];
    let buffer = Tracked::new(&mut host, "words");
    let words = Device(buffer.as_ptr());
    let line = line!() + 2;
    let fault = fails_at(one(), FaultKind::WrongMemory, &[line], || {
        to_address(words.at(3));
    });
    says(
        &fault,
        "names `.shared`, but the address lies in global memory: byte 12 of global allocation `words`",
    );
    advises(&fault, "take `vector::load` and `store`");
    let fault = fails(one(), FaultKind::WrongMemory, || {
        let local = 1u32;
        to_address(&raw const local);
    });
    says(&fault, "names `.shared`, but the address lies in the thread's local memory");
    advises(&fault, "take a plain access");
}

#[test]
fn numbers_that_are_no_addresses_of_the_own_window() {
    /// No memory is there, and none is accessed.
    const START: usize = 0x5_8000_0000;
    track(START as *const u8, 4096, "far away");
    let fault = fails(one(), FaultKind::WrongMemory, || {
        from_address((START + 16) as u32);
    });
    says(&fault, "names `.shared`, but 0x80000010 may be the low half of an address in global memory");
    advises(&fault, "pointers to global memory have 64 bits");
    untrack(START as *const u8);
    let pair = LaunchConfig { cluster: [2, 1, 1], ..LaunchConfig::linear(2, 1) };
    let fault = fails(pair, FaultKind::WrongMemory, || {
        from_address(map_shared(to_address(tile()), 1));
    });
    says(&fault, "is an address of the cluster's window, which the functions of `cluster` take");
    advises(&fault, "take `cluster::load_shared`");
    fails(pair, FaultKind::WildPointer, || {
        from_address(to_address(tile()) | 9 << 24);
    });
}
