//! `simt::run` and what its body may call.

use std::marker::PhantomPinned;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use simt::barrier::{BarrierReduce, reduce, sync};
use simt::{FaultKind, LaunchConfig, MAX_STACK_BYTES, Options, StaticKey, thread};

/// Counts its drops.
struct Counted<'a>(&'a AtomicU32);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_fault_drops_what_every_thread_holds() {
    let (made, dropped) = (AtomicU32::new(0), AtomicU32::new(0));
    let config = LaunchConfig::linear(1, 64);
    let fault = simt::run(&config, &Options::default().check(true), || {
        made.fetch_add(1, Ordering::Relaxed);
        let _counted = Counted(&dropped);
        sync(0, None);
        // Half of the threads wait for the other half, which waits at another barrier.
        sync(1 + thread::thread_idx()[0] / 32, Some(64));
    });
    assert_eq!(fault.unwrap_err().kind, FaultKind::Deadlock);
    assert_eq!((made.into_inner(), dropped.into_inner()), (64, 64));
}

/// In an earlier version the scoped thread continued with a stack that another coroutine had been given.
#[test]
fn a_fault_waits_for_threads_that_borrow() {
    let ended = AtomicBool::new(false);
    let fault = simt::run(&LaunchConfig::linear(1, 2), &Options::default(), || {
        if thread::thread_idx()[0] == 1 {
            sync(0, None);
            simt::trap("on purpose");
        }
        let local = AtomicU32::new(0);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                for _ in 0..30 {
                    local.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(1));
                }
                ended.store(true, Ordering::Release);
            });
            sync(0, None);
            sync(0, None);
        });
    });
    assert!(fault.is_err());
    assert!(ended.load(Ordering::Acquire), "the scope was left before its thread had ended");
}

/// A pinned value that reports its address, and records whether it is dropped there.
struct Pinned<'a> {
    at: AtomicU32,
    moved: &'a AtomicU32,
    dropped: &'a AtomicU32,
    _pinned: PhantomPinned,
}

impl Pinned<'_> {
    fn place(self: Pin<&Self>) -> u32 {
        std::ptr::from_ref(self.get_ref()) as usize as u32
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        let place = std::ptr::from_ref(self) as usize as u32;
        if *self.at.get_mut() != place {
            self.moved.fetch_add(1, Ordering::Relaxed);
        }
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_fault_drops_pinned_values_before_their_place_is_used_again() {
    let (moved, dropped) = (AtomicU32::new(0), AtomicU32::new(0));
    for _ in 0..3 {
        let fault = simt::run(&LaunchConfig::linear(2, 32), &Options::default(), || {
            let value =
                Pinned { at: AtomicU32::new(0), moved: &moved, dropped: &dropped, _pinned: PhantomPinned };
            let value = pin!(value);
            value.at.store(value.as_ref().place(), Ordering::Relaxed);
            reduce(BarrierReduce::Popc, true);
            assert_ne!(thread::thread_idx()[0], 7, "on purpose");
            sync(0, None);
        });
        assert_eq!(fault.unwrap_err().kind, FaultKind::Panic);
    }
    assert_eq!(moved.into_inner(), 0);
    assert!(dropped.into_inner() >= 3 * 32);
}

/// The body may catch the panic that unwinds it, and then has no simulated thread.
#[test]
fn a_body_that_catches_the_unwinding_ends_too() {
    let after = AtomicU32::new(0);
    let fault = simt::run(&LaunchConfig::linear(1, 32), &Options::default(), || {
        let caught = std::panic::catch_unwind(|| {
            assert_ne!(thread::lane(), 3, "on purpose");
            sync(0, None);
        });
        if thread::in_kernel() {
            std::panic::resume_unwind(caught.unwrap_err());
        }
        after.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(fault.unwrap_err().kind, FaultKind::Panic);
    assert!(after.into_inner() > 0);
}

#[test]
fn shared_variables_of_any_size_and_alignment_are_refused_or_fit() {
    static FIRST: StaticKey = StaticKey::new("FIRST");
    static SECOND: StaticKey = StaticKey::new("SECOND");
    for (size, align) in
        [(usize::MAX, 1), (usize::MAX - 8, 8), (8, usize::MAX), (8, 0), (8, 3), (1 << 20, 16)]
    {
        let fault = simt::run(&LaunchConfig::linear(1, 32), &Options::default(), || {
            simt::shared::alloc_static(&FIRST, 8, 8);
            simt::shared::alloc_static(&SECOND, size, align);
        });
        let fault = fault.unwrap_err();
        assert_eq!(fault.kind, FaultKind::SharedAllocation, "{fault}");
        assert!(fault.message.contains("`SECOND`"), "{fault}");
    }
}

#[test]
fn a_simulated_thread_cannot_launch() {
    let inner = LaunchConfig::linear(1, 1);
    simt::run(&LaunchConfig::linear(1, 32), &Options::default(), || {
        let fault = simt::run(&inner, &Options::default(), || ()).unwrap_err();
        assert_eq!(fault.kind, FaultKind::InvalidLaunch);
        assert!(fault.message.contains("a simulated thread cannot launch"), "{fault}");
        // The outer launch continues.
        assert_eq!(reduce(BarrierReduce::Popc, true), 32);
    })
    .unwrap();
}

#[test]
fn stacks_have_a_limit() {
    let config = LaunchConfig::linear(1, 1);
    for stack_bytes in [usize::MAX, MAX_STACK_BYTES + 1] {
        let options = Options { stack_bytes, ..Options::default() };
        let fault = simt::run(&config, &options, || ()).unwrap_err();
        assert_eq!(fault.kind, FaultKind::InvalidLaunch);
        assert!(fault.message.contains("the limit is 268435456"), "{fault}");
    }
    simt::run(&config, &Options { stack_bytes: 0, ..Options::default() }, || ()).unwrap();
}
