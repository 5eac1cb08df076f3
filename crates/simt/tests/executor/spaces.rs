//! Instructions for one memory, with addresses in another.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::{Device, fails, fails_at, get, passes, put, tensors};
use ironwarp_simt::async_copy::{copy, wait_all};
use ironwarp_simt::cluster::map_shared;
use ironwarp_simt::memory::{Scope, Tracked, global, track, untrack};
use ironwarp_simt::reduction::Reduction;
use ironwarp_simt::shared::{alloc_static, from_address, to_address};
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

#[test]
fn instructions_for_global_memory_reach_no_other() {
    let mut host = [1u32; 4];
    let buffer = Tracked::new(&mut host, "words");
    let words = Device(buffer.as_ptr());
    for access in ACCESSES {
        passes(one(), || access(words.at(1)));
        // Unwritten memory too: the address is wrong before its contents are.
        let fault = fails(one(), FaultKind::WrongMemory, || access(tile().wrapping_add(2)));
        says(&fault, "names `.global`, but the address lies in the block's shared memory");
        says(&fault, "of 4 bytes at byte 8 of shared `TILE` (256 bytes)");
        let fault = fails(one(), FaultKind::WrongMemory, || {
            let mut local = 1u32;
            access(&raw mut local);
        });
        says(&fault, "but the address lies in the thread's local memory");
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
            // SAFETY: checking is on.
            unsafe { ironwarp_simt::memory::atomic(at, Ordering::Relaxed, Scope::Block, |old| old + 1) };
            assert_eq!(get(at), 6);
        }
    });
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
}

#[test]
fn shared_memory_of_another_block() {
    let place = AtomicUsize::new(0);
    let config = LaunchConfig { cooperative: true, ..LaunchConfig::linear(2, 1) };
    let fault = fails(config, FaultKind::WrongMemory, || {
        if thread::block_idx()[0] == 0 {
            place.store(tile().expose_provenance(), Ordering::Relaxed);
        }
        grid::sync();
        if thread::block_idx()[0] == 1 {
            // SAFETY: checking is on.
            unsafe { global::load(place.load(Ordering::Relaxed) as *const u32) };
        }
    });
    says(&fault, "but the address lies in the shared memory of block 0");
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
    let fault = fails(one(), FaultKind::WrongMemory, || {
        let local = 1u32;
        to_address(&raw const local);
    });
    says(&fault, "names `.shared`, but the address lies in the thread's local memory");
}

#[test]
fn numbers_that_are_no_addresses_of_the_own_window() {
    /// No memory is there, and none is accessed.
    const START: usize = 0x5_8000_0000;
    track(START as *const u8, 4096, "far away");
    let fault = fails(one(), FaultKind::WrongMemory, || {
        from_address((START + 16) as u32);
    });
    says(&fault, "names `.shared`, but 0x80000010 is the low half of an address in global memory");
    untrack(START as *const u8);
    let pair = LaunchConfig { cluster: [2, 1, 1], ..LaunchConfig::linear(2, 1) };
    let fault = fails(pair, FaultKind::WrongMemory, || {
        from_address(map_shared(to_address(tile()), 1));
    });
    says(&fault, "is an address of the cluster's window, which the functions of `cluster` take");
    fails(pair, FaultKind::WildPointer, || {
        from_address(to_address(tile()) | 9 << 24);
    });
}
