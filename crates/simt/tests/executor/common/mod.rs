//! Runs a kernel under many schedules.

#![allow(dead_code, reason = "not every test program needs all of it")]

pub mod tensors;

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
