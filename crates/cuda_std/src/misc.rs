//! Clock, breakpoint, profiler events, what the compiler must not know.

use crate::arch::misc as arch;

/// Number of hardware profiler events that [`profiler_counter`] knows.
pub const PROFILER_COUNTERS: u32 = 8;

/// Stops the kernel for a debugger. PTX `brkpt`. Does nothing on the host.
#[inline(always)]
pub fn breakpoint() {
    arch::breakpoint()
}

/// Triggers profiler event `counter`, once for a warp. PTX `pmevent`. Does nothing on the host.
///
/// # Panics
///
/// When `counter` is not in `0..8`.
#[inline(always)]
#[track_caller]
pub fn profiler_counter(counter: u32) {
    assert!(counter < PROFILER_COUNTERS, "the profiler counters are 0 to 7");
    arch::profiler_counter(counter)
}

/// Clock cycles of this multiprocessor, from an arbitrary start. PTX `%clock64`. On the host, steps of the executor.
#[inline(always)]
#[track_caller]
pub fn clock() -> u64 {
    arch::clock()
}

/// The same number, but the compiler does not know that: what is computed from it is computed behind this place, and not before a loop
/// around it, where the results would hold registers for long. No instruction that costs.
#[inline(always)]
#[must_use]
pub fn opaque(x: u32) -> u32 {
    arch::opaque(x)
}
