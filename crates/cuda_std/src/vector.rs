//! Vector loads and stores: 4, 8 and 16 bytes in one instruction, with cache hints.
//!
//! Plain Rust splits a 16-byte copy into smaller ones and reaches shared memory through generic addresses; these
//! functions are one `ld` or `st` each.
//!
//! * Global memory is named by raw pointers, which must be aligned to the whole access (8 bytes for `_v2`, 16 for
//!   `_v4`). The pointee is any [`Word`]; two f16 or bf16 travel as one `u32`.
//! * Shared memory is named by its 32-bit address, a plain `u32` of bytes into the block's shared window
//!   (see [`shared`](crate::shared)). Byte offsets are added to it as integers.
//!
//! Element `i` of a returned array is the one at the `i`-th place in memory.
//!
//! # Safety
//! All functions here read or write memory as `*ptr` would: the whole access must lie in live memory of the right
//! address space, be aligned to its size, and not race with another thread.

use crate::arch::vector as arch;

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

/// A load from global memory: documentation, name, return type, PTX.
macro_rules! global_load {
    ($($name:ident -> $ret:ty, $ptx:literal: $($what:literal)+;)*) => { $(
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
            // SAFETY: the caller keeps this function's contract, which is the same.
            unsafe { arch::$name(ptr) }
        }
    )* };
}

global_load! {
    load -> T, "ld.global.b32": "Loads one word, cached at all levels.";
    load_v2 -> [T; 2], "ld.global.v2.b32": "Loads 8 bytes, cached at all levels.";
    load_v4 -> [T; 4], "ld.global.v4.b32": "Loads 16 bytes, cached at all levels.";
    load_nc -> T, "ld.global.nc.b32":
        "Loads one word through the read-only path. Nothing may write it while the kernel runs.";
    load_nc_v2 -> [T; 2], "ld.global.nc.v2.b32":
        "Loads 8 bytes through the read-only path. Nothing may write them while the kernel runs.";
    load_nc_v4 -> [T; 4], "ld.global.nc.v4.b32":
        "Loads 16 bytes through the read-only path. Nothing may write them while the kernel runs.";
    load_stream -> T, "ld.global.nc.L1::no_allocate.b32":
        "Loads one word that is read once: read-only path, leaves L1 alone. Nothing may write it while the kernel runs.";
    load_stream_v2 -> [T; 2], "ld.global.nc.L1::no_allocate.v2.b32":
        "Loads 8 bytes that are read once: read-only path, leaves L1 alone. Nothing may write them while the kernel runs.";
    load_stream_v4 -> [T; 4], "ld.global.nc.L1::no_allocate.v4.b32":
        "Loads 16 bytes that are read once: read-only path, leaves L1 alone. Nothing may write them while the kernel runs.";
    load_l2 -> T, "ld.global.cg.b32":
        "Loads one word from L2, past L1: for data that another block wrote during this launch.";
    load_l2_v2 -> [T; 2], "ld.global.cg.v2.b32":
        "Loads 8 bytes from L2, past L1: for data that another block wrote during this launch.";
    load_l2_v4 -> [T; 4], "ld.global.cg.v4.b32":
        "Loads 16 bytes from L2, past L1: for data that another block wrote during this launch.";
}

/// A store to global memory: documentation, name, value type, PTX.
macro_rules! global_store {
    ($($name:ident($value:ty), $ptx:literal: $what:literal;)*) => { $(
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
            // SAFETY: the caller keeps this function's contract, which is the same.
            unsafe { arch::$name(ptr, value) }
        }
    )* };
}

global_store! {
    store(T), "st.global.b32": "Stores one word.";
    store_v2([T; 2]), "st.global.v2.b32": "Stores 8 bytes.";
    store_v4([T; 4]), "st.global.v4.b32": "Stores 16 bytes.";
    store_stream(T), "st.global.cs.b32": "Stores one word that will not be read soon: first to leave the cache.";
    store_stream_v2([T; 2]), "st.global.cs.v2.b32":
        "Stores 8 bytes that will not be read soon: first to leave the cache.";
    store_stream_v4([T; 4]), "st.global.cs.v4.b32":
        "Stores 16 bytes that will not be read soon: first to leave the cache.";
}

/// Loads one 16-bit value through the read-only path. Nothing may write it while the kernel runs.
///
/// # Safety
/// `ptr` is aligned to 2 bytes and readable; see the module.
///
/// # PTX
/// `ld.global.nc.b16`
#[inline(always)]
#[track_caller]
pub unsafe fn load_nc_b16(ptr: *const u16) -> u16 {
    // SAFETY: the caller keeps this function's contract, which is the same.
    unsafe { arch::load_nc_b16(ptr) }
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
    // SAFETY: the caller keeps this function's contract, which is the same.
    unsafe { arch::prefetch_l2(ptr) }
}

macro_rules! shared_access {
    ($($load:ident, $store:ident, $ty:ty $(, $word:ident)?; $ld:literal, $st:literal, $size:literal;)*) => { $(
        #[doc = concat!("Loads ", $size, " from shared memory.")]
        ///
        /// # Safety
        /// `address` is aligned to the size of the access, which lies in this block's shared memory; see the module.
        ///
        /// # PTX
        #[doc = concat!("`", $ld, "`")]
        #[inline(always)]
        #[track_caller]
        pub unsafe fn $load$(<T: $word>)?(address: u32) -> $ty {
            // SAFETY: the caller keeps this function's contract, which is the same.
            unsafe { arch::$load(address) }
        }

        #[doc = concat!("Stores ", $size, " to shared memory.")]
        ///
        /// # Safety
        /// `address` is aligned to the size of the access, which lies in this block's shared memory; see the module.
        ///
        /// # PTX
        #[doc = concat!("`", $st, "`")]
        #[inline(always)]
        #[track_caller]
        pub unsafe fn $store$(<T: $word>)?(address: u32, value: $ty) {
            // SAFETY: the caller keeps this function's contract, which is the same.
            unsafe { arch::$store(address, value) }
        }
    )* };
}

shared_access! {
    load_shared_b8, store_shared_b8, u8; "ld.shared.b8", "st.shared.b8", "one byte";
    load_shared_b16, store_shared_b16, u16; "ld.shared.b16", "st.shared.b16", "2 bytes";
    load_shared, store_shared, T, Word; "ld.shared.b32", "st.shared.b32", "one word";
    load_shared_v2, store_shared_v2, [T; 2], Word; "ld.shared.v2.b32", "st.shared.v2.b32", "8 bytes";
    load_shared_v4, store_shared_v4, [T; 4], Word; "ld.shared.v4.b32", "st.shared.v4.b32", "16 bytes";
}
