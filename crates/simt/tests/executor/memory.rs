//! Accesses outside of allocations, or to memory that was never written.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::common::{Device, fails, fails_at, passes};
use ironwarp_simt::memory;
use ironwarp_simt::memory::{Scope, Tracked, track, untrack};
use ironwarp_simt::shared::{alloc_static, dynamic, dynamic_len, from_address, to_address};
use ironwarp_simt::{DeviceMemory, FaultKind, LaunchConfig, Options, Place, StaticKey, thread};

#[test]
fn global_bounds() {
    let mut host = vec![1.0f32; 60];
    let buffer = Tracked::new(&mut host, "weights");
    let device = Device(buffer.as_ptr());
    passes(LaunchConfig::linear(1, 60), || device.set(thread::rank() as usize, 2.0));
    let line = line!() + 2;
    let fault = fails_at(LaunchConfig::linear(1, 64), FaultKind::OutOfBounds, &[line], || {
        device.set(thread::rank() as usize, 2.0)
    });
    assert!(fault.thread[0] >= 60, "{fault}");
    let place = &fault.access.as_ref().unwrap().place;
    let offset = i64::from(fault.thread[0]) * 4;
    assert_eq!(*place, Place::Global { label: "weights".into(), offset, len: 240, parameter: None });
    fails(LaunchConfig::linear(1, 1), FaultKind::OutOfBounds, || {
        device.get(usize::MAX);
    });
}

#[test]
fn access_across_the_end() {
    let mut host = [0u64; 4];
    let buffer = Tracked::new(&mut host[..3], "pairs");
    let device = Device(buffer.as_ptr().cast::<[u64; 2]>());
    let fault = fails(LaunchConfig::linear(1, 1), FaultKind::OutOfBounds, || {
        device.get(1);
    });
    assert!(fault.message.contains("last 8 bytes"), "{fault}");
}

#[test]
fn misaligned_null_and_wild() {
    let config = LaunchConfig::linear(1, 1);
    let mut host = vec![0u32; 4];
    let buffer = Tracked::new(&mut host, "words");
    let odd = Device(buffer.as_ptr().wrapping_byte_add(2));
    let line = line!() + 1;
    fails_at(config, FaultKind::Misaligned, &[line], || odd.set(0, 1));
    let null = Device(std::ptr::null_mut::<u32>());
    fails(config, FaultKind::NullPointer, || null.set(100, 1));
    let wild = Device(0x1234_5678_9000usize as *mut u32);
    fails(config, FaultKind::WildPointer, || wild.set(0, 1));
}

#[test]
fn constants_and_locals_are_no_faults() {
    static TABLE: [u32; 4] = [1, 2, 3, 4];
    passes(LaunchConfig::linear(1, 4), || {
        let local = [5u32; 4];
        let index = thread::rank() as usize;
        assert_eq!(Device(TABLE.as_ptr().cast_mut()).get(index), index as u32 + 1);
        assert_eq!(Device(local.as_ptr().cast_mut()).get(index), 5);
    });
}

#[test]
fn use_after_free() {
    let mut host = vec![0u32; 4096];
    let device = Device(host.as_mut_ptr());
    track(device.0, 4096 * 4, "scratch");
    passes(LaunchConfig::linear(1, 1), || device.set(7, 1));
    untrack(device.0);
    let fault = fails(LaunchConfig::linear(1, 1), FaultKind::UseAfterFree, || device.set(7, 1));
    assert!(fault.message.contains("byte 28 of `scratch`"), "{fault}");
}

static TILE: StaticKey = StaticKey::new("TILE");
static OTHER: StaticKey = StaticKey::new("OTHER");

fn tile() -> Device<f32> {
    Device(alloc_static(&TILE, 64 * 4, 16).cast())
}

#[test]
fn shared_bounds() {
    passes(LaunchConfig::linear(3, 64), || tile().set(thread::rank() as usize, 0.0));
    let line = line!() + 2;
    let fault = fails_at(LaunchConfig::linear(3, 65), FaultKind::OutOfBounds, &[line], || {
        tile().set(thread::rank() as usize, 0.0)
    });
    assert_eq!(fault.thread, [64, 0, 0]);
    assert!(fault.to_string().contains("byte 256 of shared `TILE` (256 bytes)"), "{fault}");
}

#[test]
fn dynamic_shared_bounds() {
    let body = || {
        assert_eq!(dynamic_len(), 128);
        Device(dynamic().cast::<u32>()).set(thread::rank() as usize, 1);
    };
    passes(LaunchConfig::linear(1, 32).shared(128), body);
    fails(LaunchConfig::linear(1, 33).shared(128), FaultKind::OutOfBounds, body);
    fails(LaunchConfig::linear(1, 1).shared(128), FaultKind::OutOfBounds, || {
        Device(dynamic().cast::<u32>()).get(usize::MAX);
    });
}

#[test]
fn uninitialised_shared() {
    let line = line!() + 5;
    fails_at(LaunchConfig::linear(2, 32), FaultKind::UninitialisedShared, &[line], || {
        if thread::rank() != 3 {
            tile().set(thread::rank() as usize, 0.0)
        };
        tile().get(thread::rank() as usize);
    });
    // Byte by byte: one byte of a word is missing.
    fails(LaunchConfig::linear(1, 1), FaultKind::UninitialisedShared, || {
        let bytes = Device(tile().0.cast::<u8>());
        (0..3).for_each(|i| bytes.set(i, 1));
        tile().get(0);
    });
}

#[test]
fn shared_window() {
    passes(LaunchConfig::linear(1, 2), || {
        let (tile, other) = (tile().0, alloc_static(&OTHER, 8, 8));
        let address = to_address(tile.wrapping_add(5));
        assert_ne!(address, 0);
        assert_eq!(from_address(address), tile.wrapping_add(5).cast());
        assert_eq!(address % 4, 0);
        assert!(to_address(other) >= to_address(tile) + 256);
        assert_eq!(to_address(dynamic()) % 1024, 0);
    });
    fails(LaunchConfig::linear(1, 1), FaultKind::WildPointer, || {
        from_address(0);
    });
    let local = 1u8;
    fails(LaunchConfig::linear(1, 1), FaultKind::WildPointer, || {
        to_address(&local);
    });
}

#[test]
fn shared_limits() {
    let config = LaunchConfig::linear(1, 1).shared(200 * 1024);
    let fault = fails(config, FaultKind::SharedAllocation, || {
        alloc_static(&OTHER, 28 * 1024, 16);
    });
    assert!(fault.message.contains("limit is 232448"), "{fault}");
    passes(config, || {
        alloc_static(&OTHER, 27 * 1024, 16);
    });
    fails(LaunchConfig::linear(1, 1), FaultKind::SharedAllocation, || {
        tile();
        alloc_static(&TILE, 8, 8);
    });
}

#[test]
fn unchecked_launches_see_the_same_memory() {
    let mut host = vec![0u32; 8];
    let device = Device(host.as_mut_ptr());
    ironwarp_simt::run(&LaunchConfig::linear(1, 8), &Options::default().check(false), || {
        let index = thread::rank() as usize;
        let shared = Device(dynamic_or_static());
        shared.set(index, index as u32 * 3);
        ironwarp_simt::barrier::sync(0, None);
        device.set(index, shared.get(7 - index));
    })
    .unwrap();
    assert_eq!(host, [21, 18, 15, 12, 9, 6, 3, 0]);
}

fn dynamic_or_static() -> *mut u32 {
    alloc_static(&OTHER, 64, 16).cast()
}

/// Values of global memory are followed byte by byte: by writes of the program and of kernels, and by copies.
#[test]
fn unwritten_global_memory() {
    const WORDS: usize = 100;
    let memories = [(); 2].map(|()| DeviceMemory::new(4 * WORDS).unwrap());
    let [from, to] = memories.each_ref().map(|memory| memory.as_ptr() as usize);
    for address in [from, to] {
        memory::track_unwritten(address as *const u8, 4 * WORDS, "words");
    }
    let read = |address: usize, word: usize| {
        ironwarp_simt::run(&LaunchConfig::linear(1, 1), &Options::default().check(true), || {
            // SAFETY: inside the memory; the checker stops a read of unwritten bytes.
            unsafe { memory::load((address as *const u32).add(word)) };
        })
    };
    let is_unwritten = |address, word| match read(address, word) {
        Ok(_) => false,
        Err(fault) => fault.kind == FaultKind::UninitialisedGlobal,
    };
    assert!((0..WORDS).all(|word| is_unwritten(from, word)));
    // Words 10 to 59, but for the last byte of word 59.
    memory::written((from + 40) as *const u8, 199);
    memory::written(to as *const u8, 4 * WORDS);
    memory::copied((to + 4) as *const u8, from as *const u8, 320);
    for word in 0..WORDS {
        assert_eq!(is_unwritten(from, word), !(10..59).contains(&word), "word {word}");
        // Words 1 to 80 are copies of 0 to 79; the others had values before.
        let expected = (1..=80).contains(&word) && !(11..60).contains(&word);
        assert_eq!(is_unwritten(to, word), expected, "copy of word {word}");
    }
    [from, to].into_iter().for_each(|address| memory::untrack(address as *const u8));
}

/// Sums of additions by blocks through the executor, by blocks through `core`, and by the host meanwhile.
#[test]
fn atomics_of_all_kinds_lose_nothing() {
    const BY_HOST: u32 = 1_000_000;
    const TIMES: u32 = 500;
    const BLOCKS: u32 = 16;
    let add = |word: *mut u32| {
        // SAFETY: the word is tracked and alive, and all access to it is atomic.
        unsafe { memory::atomic(word, Ordering::Relaxed, Scope::System, |old| old + 1) };
    };
    // SAFETY: as above.
    let add_by_core = |word: *mut u32| unsafe { AtomicU32::from_ptr(word) }.fetch_add(1, Ordering::Relaxed);
    for check in [false, true] {
        let mut host = [0];
        let word = Tracked::new(&mut host, "word");
        let device = Device(word.as_ptr());
        let mut launches = 0;
        std::thread::scope(|scope| {
            let host = scope.spawn(|| {
                for _ in 0..BY_HOST {
                    add_by_core(device.at(0));
                }
            });
            while launches == 0 || !host.is_finished() {
                let config = LaunchConfig::linear(BLOCKS, 1);
                let result = ironwarp_simt::run(&config, &Options::default().check(check), || {
                    for _ in 0..TIMES {
                        if thread::block_idx()[0].is_multiple_of(2) {
                            add(device.at(0));
                        } else {
                            add_by_core(device.at(0));
                        }
                    }
                });
                result.unwrap();
                launches += 1;
            }
        });
        drop(word);
        assert_eq!(host, [BY_HOST + launches * TIMES * BLOCKS], "check: {check}");
    }
}
