//! Clock, breakpoint, profiler events.

use core::arch::asm;

#[inline(always)]
pub fn breakpoint() {
    // SAFETY: stops for a debugger, changes nothing.
    unsafe { asm!("brkpt;") }
}

#[inline(always)]
pub fn profiler_counter(counter: u32) {
    macro_rules! event {
        ($($number:literal)*) => {
            match counter {
                // SAFETY: counts an event, changes nothing.
                $($number => unsafe { asm!(concat!("pmevent ", $number, ";")) },)*
                _ => {}
            }
        };
    }
    // The instruction takes its number as an immediate.
    event!(0 1 2 3 4 5 6 7)
}

#[inline(always)]
pub fn clock() -> u64 {
    let cycles: u64;
    // SAFETY: reads a special register. Not `pure`: every read must stay where it is.
    unsafe { asm!("mov.u64 {}, %clock64;", out(reg64) cycles) };
    cycles
}

#[inline(always)]
pub fn opaque(x: u32) -> u32 {
    let same: u32;
    // SAFETY: copies a register. Not `pure`: it must stay where it is.
    unsafe {
        asm!("mov.b32 {0}, {1};", out(reg32) same, in(reg32) x, options(nomem, nostack, preserves_flags))
    };
    same
}
