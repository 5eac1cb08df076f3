//! Vector loads and stores: 4, 8 and 16 bytes in one instruction, with cache hints.
//!
//! Plain Rust splits a 16-byte copy into smaller ones and reaches shared memory through generic addresses;
//! these functions are one `ld` or `st` each.
//!
//! * Global memory is named by raw pointers, which must be aligned to the whole access (8 bytes for `_v2`,
//!   16 for `_v4`). The pointee is any [`Word`].
//! * [`load_array`] and [`store_array`] move elements of every type: `load_array::<bf16, 8>(ptr)` is one load
//!   of 16 bytes. [`from_words`] and [`to_words`] do it for the other accesses of 16 bytes.
//! * Shared memory is named by its 32-bit address, a plain `u32` of bytes into the block's shared window (see
//!   [`shared`](crate::shared)). Byte offsets are added to it as integers.
//!
//! Each is an instruction for one memory. A pointer to shared memory or to a local variable is no valid
//! address where global memory is named, although a plain access reaches it. A pointer to global memory or to
//! a local variable has no 32-bit address: [`shared::address_of`](crate::shared::address_of) it names wrong
//! bytes of shared memory, or none. The checker reports both.
//!
//! Element `i` of a returned array is the one at the `i`-th place in memory.
//!
//! # Safety
//! All functions here read or write memory as `*ptr` would: the whole access must lie in live memory of the
//! right address space, be aligned to its size, and not race with another thread.

mod elements;

#[cfg(target_arch = "nvptx64")]
use core::arch::asm;

pub use elements::{Plain, VECTOR_BYTES, from_words, load_array, store_array, to_words};

#[cfg(not(target_arch = "nvptx64"))]
use simt::memory::{self, global};

#[cfg(not(target_arch = "nvptx64"))]
use crate::fastmath::flush;

/// One load of 1, 2 or 4 words of type `T`. Not `pure`: it stays where the kernel puts it, which is what a
/// software pipeline needs.
#[cfg(target_arch = "nvptx64")]
macro_rules! load_words {
    // A register has no fewer than 16 bits.
    (($narrow:ident), $op:literal, $class:ident $address:ident) => {{
        let value: u16;
        core::arch::asm!(concat!($op, " {0}, [{1}];"), out(reg16) value, in($class) $address,
            options(readonly, nostack, preserves_flags));
        value as $narrow
    }};
    (1, $op:literal, $class:ident $address:ident) => {{
        let a: u32;
        core::arch::asm!(concat!($op, " {0}, [{1}];"), out(reg32) a, in($class) $address,
            options(readonly, nostack, preserves_flags));
        T::from_word(a)
    }};
    (2, $op:literal, $class:ident $address:ident) => {{
        let (a, b): (u32, u32);
        core::arch::asm!(concat!($op, " {{{0}, {1}}}, [{2}];"), out(reg32) a, out(reg32) b, in($class) $address,
            options(readonly, nostack, preserves_flags));
        [T::from_word(a), T::from_word(b)]
    }};
    (4, $op:literal, $class:ident $address:ident) => {{
        let (a, b, c, d): (u32, u32, u32, u32);
        core::arch::asm!(concat!($op, " {{{0}, {1}, {2}, {3}}}, [{4}];"), out(reg32) a, out(reg32) b, out(reg32) c,
            out(reg32) d, in($class) $address, options(readonly, nostack, preserves_flags));
        [T::from_word(a), T::from_word(b), T::from_word(c), T::from_word(d)]
    }};
}

/// One store of 1, 2 or 4 words, and the barrier object to which an asynchronous one reports.
#[cfg(target_arch = "nvptx64")]
macro_rules! store_words {
    (($narrow:ident), $op:literal, $class:ident $address:ident, $value:ident) => {
        core::arch::asm!(concat!($op, " [{0}], {1};"), in($class) $address, in(reg16) u16::from($value),
            options(nostack, preserves_flags))
    };
    (1, $op:literal, $class:ident $address:ident, $value:ident $(, $bar:ident)?) => {
        core::arch::asm!(concat!($op, " [{0}], {1}" $(, ", [{", stringify!($bar), "}]")?, ";"),
            in($class) $address, in(reg32) $value.to_word(), $($bar = in(reg32) $bar,)?
            options(nostack, preserves_flags))
    };
    (2, $op:literal, $class:ident $address:ident, $value:ident $(, $bar:ident)?) => {
        core::arch::asm!(concat!($op, " [{0}], {{{1}, {2}}}" $(, ", [{", stringify!($bar), "}]")?, ";"),
            in($class) $address, in(reg32) $value[0].to_word(), in(reg32) $value[1].to_word(),
            $($bar = in(reg32) $bar,)? options(nostack, preserves_flags))
    };
    (4, $op:literal, $class:ident $address:ident, $value:ident $(, $bar:ident)?) => {
        core::arch::asm!(concat!($op, " [{0}], {{{1}, {2}, {3}, {4}}}" $(, ", [{", stringify!($bar), "}]")?, ";"),
            in($class) $address, in(reg32) $value[0].to_word(), in(reg32) $value[1].to_word(),
            in(reg32) $value[2].to_word(), in(reg32) $value[3].to_word(), $($bar = in(reg32) $bar,)?
            options(nostack, preserves_flags))
    };
}
#[cfg(target_arch = "nvptx64")]
#[cfg(any(not(target_arch = "nvptx64"), target_feature = "compute_90"))]
pub(crate) use {load_words, store_words};

/// Words with the alignment that an access to all of them wants, so that a misaligned or racing one is seen
/// whole.
#[cfg(not(target_arch = "nvptx64"))]
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Pair<T>([T; 2]);

/// As [`Pair`], of four.
#[cfg(not(target_arch = "nvptx64"))]
#[derive(Clone, Copy)]
#[repr(C, align(16))]
struct Quad<T>([T; 4]);

/// The executor's load of 1, 2 or 4 words. Of cache hints only the read-only path matters.
#[cfg(not(target_arch = "nvptx64"))]
macro_rules! checked_load {
    (($narrow:ident), $op:literal, $ptr:expr) => {
        load_by::<{ path($op) }, _>($ptr)
    };
    (1, $op:literal, $ptr:expr) => {
        load_by::<{ path($op) }, _>($ptr)
    };
    (2, $op:literal, $ptr:expr) => {
        load_by::<{ path($op) }, _>($ptr.cast::<Pair<T>>()).0
    };
    (4, $op:literal, $ptr:expr) => {
        load_by::<{ path($op) }, _>($ptr.cast::<Quad<T>>()).0
    };
}

/// Global memory, through the read-only path.
#[cfg(not(target_arch = "nvptx64"))]
const READ_ONLY: u8 = 0;
/// Global memory.
#[cfg(not(target_arch = "nvptx64"))]
const GLOBAL: u8 = 1;
/// Shared memory.
#[cfg(not(target_arch = "nvptx64"))]
const SHARED: u8 = 2;

/// The memory that a PTX instruction names, as one of these three.
#[cfg(not(target_arch = "nvptx64"))]
const fn path(op: &str) -> u8 {
    if has(op, ".global.nc") {
        READ_ONLY
    } else if has(op, ".global") {
        GLOBAL
    } else {
        assert!(has(op, ".shared"), "the instruction names its memory");
        SHARED
    }
}

/// Whether a PTX instruction has a part.
#[cfg(not(target_arch = "nvptx64"))]
const fn has(op: &str, part: &str) -> bool {
    let (op, part) = (op.as_bytes(), part.as_bytes());
    let mut at = 0;
    while at + part.len() <= op.len() {
        let mut same = 0;
        while same < part.len() && op[at + same] == part[same] {
            same += 1;
        }
        if same == part.len() {
            return true;
        }
        at += 1;
    }
    false
}

/// The executor's load.
///
/// # Safety
///
/// As for [`memory::load`].
#[cfg(not(target_arch = "nvptx64"))]
#[track_caller]
unsafe fn load_by<const PATH: u8, T: Copy>(ptr: *const T) -> T {
    // SAFETY: the caller's promise.
    unsafe {
        match PATH {
            READ_ONLY => global::load_read_only(ptr),
            GLOBAL => global::load(ptr),
            _ => memory::load(ptr),
        }
    }
}

/// The executor's store of 1, 2 or 4 words.
#[cfg(not(target_arch = "nvptx64"))]
macro_rules! checked_store {
    (($narrow:ident), $op:literal, $ptr:expr, $value:ident) => {
        store_by::<{ path($op) }, _>($ptr, $value)
    };
    (1, $op:literal, $ptr:expr, $value:ident) => {
        store_by::<{ path($op) }, _>($ptr, $value)
    };
    (2, $op:literal, $ptr:expr, $value:ident) => {
        store_by::<{ path($op) }, _>($ptr.cast(), Pair($value))
    };
    (4, $op:literal, $ptr:expr, $value:ident) => {
        store_by::<{ path($op) }, _>($ptr.cast(), Quad($value))
    };
}

/// The executor's store.
///
/// # Safety
///
/// As for [`memory::store`].
#[cfg(not(target_arch = "nvptx64"))]
#[track_caller]
unsafe fn store_by<const PATH: u8, T: Copy>(ptr: *mut T, value: T) {
    // SAFETY: the caller's promise.
    unsafe { if PATH == SHARED { memory::store(ptr, value) } else { global::store(ptr, value) } }
}

#[cfg(not(target_arch = "nvptx64"))]
#[track_caller]
fn pointer<T>(address: u32) -> *mut T {
    simt::shared::from_address(address).cast()
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for u32 {}
    impl Sealed for i32 {}
    impl Sealed for f32 {}
}

/// A 32-bit value that fills one register: `u32`, `i32` or `f32`.
pub trait Word: Copy + sealed::Sealed + 'static {
    /// The bits of the value.
    fn to_word(self) -> u32;
    /// The value with these bits.
    fn from_word(word: u32) -> Self;
}

impl Word for u32 {
    #[inline(always)]
    fn to_word(self) -> u32 {
        self
    }
    #[inline(always)]
    fn from_word(word: u32) -> Self {
        word
    }
}

impl Word for i32 {
    #[inline(always)]
    fn to_word(self) -> u32 {
        self.cast_unsigned()
    }
    #[inline(always)]
    fn from_word(word: u32) -> Self {
        word.cast_signed()
    }
}

impl Word for f32 {
    #[inline(always)]
    fn to_word(self) -> u32 {
        self.to_bits()
    }
    #[inline(always)]
    fn from_word(word: u32) -> Self {
        f32::from_bits(word)
    }
}

/// A load from global memory: name, words, return type, PTX, documentation.
macro_rules! global_load {
    ($($name:ident -> $n:tt $ret:ty, $ptx:literal: $($what:literal)+;)*) => { $(
        $(#[doc = $what])+
        ///
        /// # Safety
        /// `ptr` is aligned to the size of the result and readable for it; see the module.
        ///
        /// # PTX
        #[doc = concat!("`", $ptx, "`")]
        #[inline(always)]
        #[track_caller]
        pub unsafe fn $name<T: Word>(ptr: *const T) -> $ret {
            // SAFETY: one load; the caller vouches for the address.
            unsafe {
                arms! {
                    ptx: { load_words!($n, $ptx, reg64 ptr) }
                    sim: { checked_load!($n, $ptx, ptr) }
                }
            }
        }
    )* };
}

global_load! {
    load -> 1 T, "ld.global.b32": "Loads one word, cached at all levels.";
    load_v2 -> 2 [T; 2], "ld.global.v2.b32": "Loads 8 bytes, cached at all levels.";
    load_v4 -> 4 [T; 4], "ld.global.v4.b32": "Loads 16 bytes, cached at all levels.";
    load_nc -> 1 T, "ld.global.nc.b32":
        "Loads one word through the read-only path. Nothing may write it while the kernel runs.";
    load_nc_v2 -> 2 [T; 2], "ld.global.nc.v2.b32":
        "Loads 8 bytes through the read-only path. Nothing may write them while the kernel runs.";
    load_nc_v4 -> 4 [T; 4], "ld.global.nc.v4.b32":
        "Loads 16 bytes through the read-only path. Nothing may write them while the kernel runs.";
    load_stream -> 1 T, "ld.global.nc.L1::no_allocate.b32":
        "Loads one word that is read once: read-only path, leaves L1 alone. Nothing may write it while the kernel runs.";
    load_stream_v2 -> 2 [T; 2], "ld.global.nc.L1::no_allocate.v2.b32":
        "Loads 8 bytes that are read once: read-only path, leaves L1 alone. Nothing may write them while the kernel runs.";
    load_stream_v4 -> 4 [T; 4], "ld.global.nc.L1::no_allocate.v4.b32":
        "Loads 16 bytes that are read once: read-only path, leaves L1 alone. Nothing may write them while the kernel runs.";
    load_l2 -> 1 T, "ld.global.cg.b32":
        "Loads one word from L2, past L1: for data that another block wrote during this launch.";
    load_l2_v2 -> 2 [T; 2], "ld.global.cg.v2.b32":
        "Loads 8 bytes from L2, past L1: for data that another block wrote during this launch.";
    load_l2_v4 -> 4 [T; 4], "ld.global.cg.v4.b32":
        "Loads 16 bytes from L2, past L1: for data that another block wrote during this launch.";
}

/// Loads one word, or zero where `is_there` is false: without a branch, so that several such loads are under
/// way together.
///
/// # Safety
/// Where `is_there`, `ptr` is aligned to 4 bytes and readable for them; see the module.
///
/// # PTX
/// `@is_there ld.global.b32`
#[inline(always)]
#[track_caller]
pub unsafe fn load_if<T: Word>(ptr: *const T, is_there: bool) -> T {
    // SAFETY: one load, if any; the caller vouches for the address.
    unsafe {
        arms! {
            ptx: {
                let word: u32;
                asm!("{{ .reg .pred there; setp.ne.u32 there, {2}, 0; mov.b32 {0}, 0; @there ld.global.b32 {0}, [{1}]; }}",
                    out(reg32) word, in(reg64) ptr, in(reg32) u32::from(is_there),
                    options(readonly, nostack, preserves_flags));
                T::from_word(word)
            }
            sim: { if is_there { checked_load!(1, "ld.global.b32", ptr) } else { T::from_word(0) } }
        }
    }
}

/// Loads one 16-bit value, or zero where `is_there` is false, as [`load_if`].
///
/// # Safety
/// Where `is_there`, `ptr` is aligned to 2 bytes and readable for them; see the module.
///
/// # PTX
/// `@is_there ld.global.b16`
#[inline(always)]
#[track_caller]
pub unsafe fn load_b16_if(ptr: *const u16, is_there: bool) -> u16 {
    // SAFETY: one load, if any; the caller vouches for the address.
    unsafe {
        arms! {
            ptx: {
                let value: u16;
                asm!("{{ .reg .pred there; setp.ne.u32 there, {2}, 0; mov.b16 {0}, 0; @there ld.global.b16 {0}, [{1}]; }}",
                    out(reg16) value, in(reg64) ptr, in(reg32) u32::from(is_there),
                    options(readonly, nostack, preserves_flags));
                value
            }
            sim: { if is_there { global::load(ptr) } else { 0 } }
        }
    }
}

/// A store to global memory: name, words, value type, PTX, documentation.
macro_rules! global_store {
    ($($name:ident($n:tt $value:ty), $ptx:literal: $what:literal;)*) => { $(
        #[doc = $what]
        ///
        /// # Safety
        /// `ptr` is aligned to the size of `value` and writable for it; see the module.
        ///
        /// # PTX
        #[doc = concat!("`", $ptx, "`")]
        #[inline(always)]
        #[track_caller]
        pub unsafe fn $name<T: Word>(ptr: *mut T, value: $value) {
            // SAFETY: one store; the caller vouches for the address.
            unsafe {
                arms! {
                    ptx: { store_words!($n, $ptx, reg64 ptr, value) }
                    sim: { checked_store!($n, $ptx, ptr, value) }
                }
            }
        }
    )* };
}

global_store! {
    store(1 T), "st.global.b32": "Stores one word.";
    store_v2(2 [T; 2]), "st.global.v2.b32": "Stores 8 bytes.";
    store_v4(4 [T; 4]), "st.global.v4.b32": "Stores 16 bytes.";
    store_stream(1 T), "st.global.cs.b32": "Stores one word that will not be read soon: first to leave the cache.";
    store_stream_v2(2 [T; 2]), "st.global.cs.v2.b32":
        "Stores 8 bytes that will not be read soon: first to leave the cache.";
    store_stream_v4(4 [T; 4]), "st.global.cs.v4.b32":
        "Stores 16 bytes that will not be read soon: first to leave the cache.";
}

/// Adds each of the four to the float at its place, atomically among all threads of the device; the four
/// additions are apart from each other, and flush subnormal numbers. Nothing is read back. sm_90.
///
/// # Safety
/// `ptr` is aligned to 16 bytes, and no other thread reaches its 16 bytes meanwhile but by atomic operations;
/// see the module.
///
/// # PTX
/// `red.relaxed.gpu.global.add.v4.f32`
#[cfg(any(not(target_arch = "nvptx64"), target_feature = "compute_90"))]
#[inline(always)]
#[track_caller]
pub unsafe fn red_add_v4(ptr: *mut f32, value: [f32; 4]) {
    let [a, b, c, d] = value;
    // SAFETY: the caller vouches for the address.
    unsafe {
        arms! {
            ptx: {
                asm!("red.relaxed.gpu.global.add.v4.f32 [{0}], {{{1}, {2}, {3}, {4}}};", in(reg64) ptr,
                    in(reg32) a, in(reg32) b, in(reg32) c, in(reg32) d, options(nostack, preserves_flags))
            }
            sim: {
                for (index, value) in [a, b, c, d].into_iter().enumerate() {
                    let (order, scope) = (std::sync::atomic::Ordering::Relaxed, simt::memory::Scope::Device);
                    global::atomic(ptr.add(index), order, scope, |old| flush(flush(old) + flush(value)));
                }
            }
        }
    }
}

macro_rules! global_load_b16 {
    ($($name:ident, $op:literal: $doc:literal;)*) => { $(
        #[doc = $doc]
        ///
        /// # Safety
        /// `ptr` is aligned to 2 bytes and readable; see the module.
        ///
        /// # PTX
        #[doc = concat!("`", $op, "`")]
        #[inline(always)]
        #[track_caller]
        pub unsafe fn $name(ptr: *const u16) -> u16 {
            arms! {
                ptx: {
                    let value: u16;
                    // SAFETY: one load; the caller vouches for the address.
                    unsafe {
                        asm!(concat!($op, " {0}, [{1}];"), out(reg16) value, in(reg64) ptr,
                            options(readonly, nostack, preserves_flags));
                    }
                    value
                }
                // SAFETY: the caller vouches for the address.
                sim: { unsafe { load_by::<{ path($op) }, _>(ptr) } }
            }
        }
    )* };
}

global_load_b16! {
    load_b16, "ld.global.b16": "Loads one 16-bit value.";
    load_nc_b16, "ld.global.nc.b16":
        "Loads one 16-bit value through the read-only path. Nothing may write it while the kernel runs.";
}

/// Asks for the cache line of `ptr` to be brought into L2. A hint: the address need not be aligned.
///
/// # Safety
/// `ptr` lies in global memory.
///
/// # PTX
/// `prefetch.global.L2`
#[inline(always)]
pub unsafe fn prefetch_l2<T>(ptr: *const T) {
    arms! {
        ptx: {
            // SAFETY: a hint without effect on values.
            unsafe { asm!("prefetch.global.L2 [{0}];", in(reg64) ptr, options(readonly, nostack, preserves_flags)) }
        }
        // A hint; there is no cache to warm.
        sim: { let _ = ptr; }
    }
}

/// A load from shared memory and the store beside it: names, words or the narrow type's conversions, PTX,
/// what moves.
macro_rules! shared_access {
    ($(
        $load:ident, $store:ident, $ty:ty $(, $word:ident)?; $ld:literal, $st:literal, $size:literal, $n:tt;
    )*) => { $(
        #[doc = concat!("Loads ", $size, " from shared memory.")]
        ///
        /// # Safety
        /// `address` is aligned to the size of the access, which lies in this block's shared memory; see the
        /// module.
        ///
        /// # PTX
        #[doc = concat!("`", $ld, "`")]
        #[inline(always)]
        #[track_caller]
        pub unsafe fn $load$(<T: $word>)?(address: u32) -> $ty {
            // SAFETY: one load; the caller vouches for the address.
            unsafe {
                arms! {
                    ptx: { load_words!($n, $ld, reg32 address) }
                    sim: { checked_load!($n, $ld, pointer::<$ty>(address)) }
                }
            }
        }

        #[doc = concat!("Stores ", $size, " to shared memory.")]
        ///
        /// # Safety
        /// `address` is aligned to the size of the access, which lies in this block's shared memory; see the
        /// module.
        ///
        /// # PTX
        #[doc = concat!("`", $st, "`")]
        #[inline(always)]
        #[track_caller]
        pub unsafe fn $store$(<T: $word>)?(address: u32, value: $ty) {
            // SAFETY: one store; the caller vouches for the address.
            unsafe {
                arms! {
                    ptx: { store_words!($n, $st, reg32 address, value) }
                    sim: { checked_store!($n, $st, pointer::<$ty>(address), value) }
                }
            }
        }
    )* };
}

shared_access! {
    load_shared_b8, store_shared_b8, u8; "ld.shared.b8", "st.shared.b8", "one byte", (u8);
    load_shared_b16, store_shared_b16, u16; "ld.shared.b16", "st.shared.b16", "2 bytes", (u16);
    load_shared, store_shared, T, Word; "ld.shared.b32", "st.shared.b32", "one word", 1;
    load_shared_v2, store_shared_v2, [T; 2], Word; "ld.shared.v2.b32", "st.shared.v2.b32", "8 bytes", 2;
    load_shared_v4, store_shared_v4, [T; 4], Word; "ld.shared.v4.b32", "st.shared.v4.b32", "16 bytes", 4;
}
