//! One row for each kernel: what the checker must say of it.

mod correct_engines;
mod correct_memory;
mod correct_races;
mod correct_sync;
mod engines;
mod memory;
mod programs;
mod programs_2;
mod races;
mod sync;

use simt::FaultKind;

use crate::shape::*;

/// A buggy kernel.
pub struct Bug {
    pub class: &'static str,
    pub name: &'static str,
    /// Where the idea comes from.
    pub source: &'static str,
    /// The kinds of fault that are right. The lines must be those that are marked in the source.
    pub kinds: &'static [FaultKind],
    pub shape: Shape,
    /// Whether it depends on the schedule that the bug can be seen: then some seeds are enough.
    pub depends_on_schedule: bool,
}

/// Judges `data` and `aux` after a launch.
pub type IsRight = fn(&[u32], &[u32]) -> bool;

/// A correct kernel.
pub struct Correct {
    /// The class of the bug that it comes near to.
    pub near: &'static str,
    pub name: &'static str,
    /// Where the idea comes from.
    pub source: &'static str,
    pub shape: Shape,
    /// Whether `data` and `aux` are right afterwards.
    pub is_right: IsRight,
}

/// All buggy kernels.
pub fn bugs() -> impl Iterator<Item = &'static Bug> {
    [memory::ROWS, races::ROWS, sync::ROWS, engines::ROWS, programs::BUGS, programs_2::BUGS]
        .into_iter()
        .flatten()
}

/// All correct kernels.
pub fn correct() -> impl Iterator<Item = &'static Correct> {
    let parts = [correct_memory::ROWS, correct_races::ROWS, correct_sync::ROWS, correct_engines::ROWS];
    parts.into_iter().chain([programs::CORRECT, programs_2::CORRECT]).flatten()
}

const fn bug(
    class: &'static str,
    name: &'static str,
    source: &'static str,
    kinds: &'static [FaultKind],
    shape: Shape,
) -> Bug {
    Bug { class, name, source, kinds, shape, depends_on_schedule: false }
}

impl Bug {
    const fn by_schedule(self) -> Self {
        Self { depends_on_schedule: true, ..self }
    }
}

const fn right(
    near: &'static str,
    name: &'static str,
    source: &'static str,
    shape: Shape,
    is_right: IsRight,
) -> Correct {
    Correct { near, name, source, shape, is_right }
}

// The classes.
const BOUNDS: &str = "bounds";
const ALIGNMENT: &str = "alignment";
const OTHERS: &str = "another buffer";
const COPIES: &str = "array and struct copies";
const UNWRITTEN: &str = "unwritten memory";
const SHARED: &str = "races in shared memory";
const GLOBAL: &str = "races in global memory";
const ATOMICS: &str = "core::sync::atomic";
const SCOPES: &str = "flags, fences, scopes";
const STACKS: &str = "another thread's stack";
const MEMORIES: &str = "another memory";
const BARRIERS: &str = "barriers";
const WARPS: &str = "warps";
const ENDS: &str = "panics and hangs";
const CP_ASYNC: &str = "cp.async";
const MBARRIERS: &str = "mbarriers";
const BULK: &str = "bulk and tensor copies";
const WGMMA: &str = "wgmma";
const CLUSTERS: &str = "clusters";

// The sources.
const MEMCHECK: &str = "compute-sanitizer memcheck";
const INITCHECK: &str = "compute-sanitizer initcheck";
const RACECHECK: &str = "compute-sanitizer racecheck";
const SYNCCHECK: &str = "compute-sanitizer synccheck";
const SAMPLES: &str = "CUDA samples";
const GUIDE: &str = "CUDA programming guide";
const GROUPS: &str = "cooperative groups";
const PTX: &str = "PTX ISA";
const CUTLASS: &str = "CUTLASS";
const GKLEE: &str = "GKLEE, PPoPP 2012";
const CURD: &str = "CURD, PLDI 2018";
const BARRACUDA: &str = "BARRACUDA, PLDI 2017";
const IGUARD: &str = "iGUARD, SOSP 2021";
const SCORD: &str = "ScoRD, ISCA 2020";
const LITMUS: &str = "GPU litmus tests, ASPLOS 2015";
const CWE: &str = "CWE: index and length mistakes";
const RUST: &str = "Rust that compilers lower to wide copies";
const LOOK_BACK: &str = "single-pass scan with decoupled look-back, 2016";

/// Whether something holds for all indices below `n`.
fn all(n: usize, holds: impl Fn(usize) -> bool) -> bool {
    (0..n).all(holds)
}
