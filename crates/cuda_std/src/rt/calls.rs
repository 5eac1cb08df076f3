//! Functions that compiled code calls by name: comparisons of memory, for `==` on slices. Elsewhere the C
//! library has them. The builder drops those that a module does not call.

/// The first difference of `len` bytes, as C's `memcmp` gives it: its sign counts.
///
/// # Safety
/// Both are readable for `len` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, len: usize) -> i32 {
    for i in 0..len {
        // SAFETY: the caller's promise.
        let (a, b) = unsafe { (a.add(i).read(), b.add(i).read()) };
        if a != b {
            return i32::from(a) - i32::from(b);
        }
    }
    0
}

/// Whether `len` bytes differ: 0 if they are the same.
///
/// # Safety
/// As [`memcmp`].
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, len: usize) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { memcmp(a, b, len) }
}
