//! Runs a kernel under many schedules.

#![allow(dead_code, reason = "not every test program needs all of it")]

pub mod tensors;

use ironwarp_simt::memory::{load, store};
use ironwarp_simt::{Fault, FaultKind, LaunchConfig, Options};

/// Schedules that every kernel is run under.
pub const SEEDS: u64 = 20;

/// Runs a kernel that must be correct under all seeds.
#[track_caller]
pub fn passes(config: LaunchConfig, body: impl Fn() + Sync) {
    for seed in 0..SEEDS {
        if let Err(fault) = ironwarp_simt::run(&config, &Options::default().seed(seed).check(true), &body) {
            panic!("seed {seed}: {fault}");
        }
    }
}

/// Runs a kernel that must fail under all seeds. Returns the fault of the last one.
#[track_caller]
pub fn fails(config: LaunchConfig, kind: FaultKind, body: impl Fn() + Sync) -> Box<Fault> {
    fails_at(config, kind, &[], body)
}

/// Runs a kernel that must fail under one seed.
#[track_caller]
pub fn fault(config: LaunchConfig, seed: u64, body: impl Fn() + Sync) -> Box<Fault> {
    match ironwarp_simt::run(&config, &Options::default().seed(seed).check(true), &body) {
        Ok(_) => panic!("seed {seed}: no fault"),
        Err(fault) => fault,
    }
}

/// Runs a kernel that must fail under all seeds, with both sides (or the one there is) on one of `lines`.
#[track_caller]
pub fn fails_at(config: LaunchConfig, kind: FaultKind, lines: &[u32], body: impl Fn() + Sync) -> Box<Fault> {
    let mut last = None;
    for seed in 0..SEEDS {
        let fault = fault(config, seed, &body);
        assert_eq!(fault.kind, kind, "seed {seed}: {fault}");
        assert_eq!(fault.seed, seed);
        let sites = [Some(&fault.site), fault.other.as_ref().map(|other| &other.site)];
        for site in sites.into_iter().flatten().filter(|_| !lines.is_empty()) {
            assert!(lines.contains(&site.line), "seed {seed}: expected lines {lines:?}: {fault}");
        }
        last = Some(fault);
    }
    last.expect("at least one seed")
}

/// Stores a word.
#[track_caller]
pub fn put(to: *mut u32, value: u32) {
    // SAFETY: checking is on.
    unsafe { store(to, value) }
}

/// Loads a word.
#[track_caller]
pub fn get(from: *const u32) -> u32 {
    // SAFETY: checking is on.
    unsafe { load(from) }
}

/// A device pointer that closures can share between threads.
#[derive(Clone, Copy)]
pub struct Device<T>(pub *mut T);
// SAFETY: the executor decides which thread accesses which element; these tests test that.
unsafe impl<T> Sync for Device<T> {}

impl<T: Copy> Device<T> {
    pub fn at(&self, index: usize) -> *mut T {
        self.0.wrapping_add(index)
    }

    #[track_caller]
    pub fn get(&self, index: usize) -> T {
        // SAFETY: checking is on, so a bad address is a fault and not an access.
        unsafe { load(self.at(index)) }
    }

    #[track_caller]
    pub fn set(&self, index: usize, value: T) {
        // SAFETY: as for `get`.
        unsafe { store(self.at(index), value) }
    }
}
