//! Atomic operations of the processor on words whose size is known when the program runs. They are
//! sequentially consistent.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

/// Calls `$then!` with the atomic and plain types of a size, and `$arguments`.
macro_rules! by_size {
    ($size:expr, $then:ident!($($arguments:ident),*)) => {
        match $size {
            1 => $then!(AtomicU8, u8, $($arguments),*),
            2 => $then!(AtomicU16, u16, $($arguments),*),
            4 => $then!(AtomicU32, u32, $($arguments),*),
            8 => $then!(AtomicU64, u64, $($arguments),*),
            size => unreachable!("an atomic operation on {size} bytes"),
        }
    };
}

/// Copies the word at `ptr` to `out`.
///
/// # Safety
/// The word has 1, 2, 4 or 8 bytes, and is aligned to them and readable. Only atomic operations write there
/// meanwhile. `out` is writable for as many bytes.
#[inline]
pub(super) unsafe fn load(ptr: *const u8, out: *mut u8, size: usize) {
    macro_rules! load {
        ($atomic:ident, $plain:ident, $ptr:ident, $out:ident) => {{
            // SAFETY: forwarded from the caller.
            unsafe {
                let word = $atomic::from_ptr($ptr.cast_mut().cast());
                $out.cast::<$plain>().write_unaligned(word.load(SeqCst));
            }
        }};
    }
    by_size!(size, load!(ptr, out))
}

/// Puts `new` at `ptr` if `old` is there, and tells so. Else copies what is there to `old`.
///
/// # Safety
/// As [`load`]; the word is writable too, `old` and `new` are as large.
#[inline]
pub(super) unsafe fn replace(ptr: *mut u8, old: *mut u8, new: *const u8, size: usize) -> bool {
    macro_rules! replace {
        ($atomic:ident, $plain:ident, $ptr:ident, $old:ident, $new:ident) => {{
            // SAFETY: forwarded from the caller.
            unsafe {
                let (word, old) = ($atomic::from_ptr($ptr.cast()), $old.cast::<$plain>());
                let (expected, new) = (old.read_unaligned(), $new.cast::<$plain>().read_unaligned());
                let found = word.compare_exchange(expected, new, SeqCst, SeqCst);
                found.map_err(|found| old.write_unaligned(found)).is_ok()
            }
        }};
    }
    by_size!(size, replace!(ptr, old, new))
}
