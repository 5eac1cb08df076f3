//! Clock, text output and traps.

use std::panic::Location;

use crate::exec::context::current;
use crate::fault::FaultKind;

/// A counter that grows with every call and every switch between threads. Replays under the same seed.
#[track_caller]
pub fn clock() -> u64 {
    current("simt::clock").group().tick()
}

/// Writes text to standard output.
#[track_caller]
#[inline(never)]
pub fn print(text: &str) {
    let _inside = current("simt::print");
    print!("{text}");
}

/// Prints a line to standard error. Where that cannot take it, the line is lost, and nothing else.
pub fn note(text: std::fmt::Arguments<'_>) {
    // `eprintln` alone panics there, and only what it prints is kept by the harness of a test.
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| eprintln!("{text}")));
}

/// Ends the launch with a [`FaultKind::Trap`] fault.
#[track_caller]
pub fn trap(message: &str) -> ! {
    let location = Location::caller();
    current("simt::trap").fail(FaultKind::Trap, location, message.into())
}
