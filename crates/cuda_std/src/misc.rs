//! Clock, breakpoint, profiler events, bytes of registers, what the compiler must not know.

#[cfg(target_arch = "nvptx64")]
use core::arch::asm;

/// Number of hardware profiler events that [`profiler_counter`] knows.
pub const PROFILER_COUNTERS: u32 = 8;

/// Stops the kernel for a debugger. PTX `brkpt`. Does nothing on the host.
#[inline(always)]
pub fn breakpoint() {
    arms! {
        // SAFETY: stops for a debugger, changes nothing.
        ptx: { unsafe { asm!("brkpt;") } }
        sim: {}
    }
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
    arms! {
        ptx: {
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
        sim: {}
    }
}

/// Clock cycles of this multiprocessor, from an arbitrary start. PTX `%clock64`. On the host, steps of the
/// executor.
#[inline(always)]
#[track_caller]
pub fn clock() -> u64 {
    arms! {
        ptx: {
            let cycles: u64;
            // SAFETY: reads a special register. Not `pure`: every read must stay where it is.
            unsafe { asm!("mov.u64 {}, %clock64;", out(reg64) cycles) };
            cycles
        }
        sim: { simt::clock() }
    }
}

/// The same number, but the compiler does not know that: what is computed from it is computed behind this
/// place, and not before a loop around it, where the results would hold registers for long. No instruction
/// that costs.
#[inline(always)]
#[must_use]
pub fn opaque(x: u32) -> u32 {
    arms! {
        ptx: {
            let same: u32;
            // SAFETY: copies a register. Not `pure`: it must stay where it is.
            unsafe {
                asm!("mov.b32 {0}, {1};", out(reg32) same, in(reg32) x, options(nomem, nostack, preserves_flags))
            };
            same
        }
        sim: { x }
    }
}

/// The largest of three numbers. Hopper and later have an instruction for it, which PTX does not name: the
/// assembler makes it of two.
#[inline(always)]
#[must_use]
pub fn max3(a: i32, b: i32, c: i32) -> i32 {
    arms! {
        ptx: {
            let most: i32;
            // SAFETY: computes registers from registers.
            unsafe {
                asm!("max.s32 {0}, {1}, {2};", "max.s32 {0}, {0}, {3};", out(reg32) most, in(reg32) a,
                    in(reg32) b, in(reg32) c, options(pure, nomem, nostack, preserves_flags));
            }
            most
        }
        sim: { a.max(b).max(c) }
    }
}

/// The least of three numbers; see [`max3`].
#[inline(always)]
#[must_use]
pub fn min3(a: i32, b: i32, c: i32) -> i32 {
    arms! {
        ptx: {
            let least: i32;
            // SAFETY: computes registers from registers.
            unsafe {
                asm!("min.s32 {0}, {1}, {2};", "min.s32 {0}, {0}, {3};", out(reg32) least, in(reg32) a,
                    in(reg32) b, in(reg32) c, options(pure, nomem, nostack, preserves_flags));
            }
            least
        }
        sim: { a.min(b).min(c) }
    }
}

/// Four of the eight bytes of `low` (0 to 3) and `high` (4 to 7): byte `n` of the result is the one that
/// nibble `n` of `selector` names, or with 8 added, eight times its top bit. PTX `prmt.b32`.
#[inline(always)]
#[must_use]
pub fn permute_bytes<const SELECTOR: u32>(low: u32, high: u32) -> u32 {
    const { assert!(SELECTOR <= 0xffff, "a nibble for each of four bytes") };
    arms! {
        ptx: {
            let bytes: u32;
            // SAFETY: registers only.
            unsafe {
                asm!("prmt.b32 {0}, {1}, {2}, {3};", out(reg32) bytes, in(reg32) low, in(reg32) high,
                    const SELECTOR, options(pure, nomem, nostack, preserves_flags));
            }
            bytes
        }
        sim: {
            let bytes = u64::from(high) << 32 | u64::from(low);
            u32::from_le_bytes([0, 4, 8, 12].map(|nibble| {
                let byte = (bytes >> ((SELECTOR >> nibble & 7) * 8)) as u8;
                if SELECTOR >> nibble & 8 == 0 { byte } else { (byte.cast_signed() >> 7).cast_unsigned() }
            }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{max3, min3, permute_bytes};

    #[test]
    fn extremes_of_three() {
        for [a, b, c] in [[-3, 2, 1], [2, -3, 1], [2, 1, -3]] {
            assert_eq!([max3(a, b, c), min3(a, b, c)], [2, -3]);
        }
    }

    #[test]
    fn bytes_are_those_of_the_nibbles() {
        let [low, high] = [0x3322_1100, 0x7766_5544];
        assert_eq!(permute_bytes::<0x6420>(low, high), 0x6644_2200);
        assert_eq!(permute_bytes::<0x7531>(low, high), 0x7755_3311);
        assert_eq!(permute_bytes::<0x3210>(low, high), low);
        // Top bits of 0x7f, 0x80, 0x00 and 0xff.
        assert_eq!(permute_bytes::<0xfe98>(0x807f, 0xff00_0000), 0xff00_ff00);
    }
}
