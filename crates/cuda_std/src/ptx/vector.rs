//! `ld`, `st`, `prefetch`.
//!
//! Loads are not `pure`: they stay where the kernel puts them, which is what a software pipeline needs.

use core::arch::asm;

use crate::vector::Word;

macro_rules! load {
    ($($name:ident, $name_v2:ident, $name_v4:ident, $op:literal;)*) => { $(
        #[inline(always)]
        pub unsafe fn $name<T: Word>(ptr: *const T) -> T {
            let a: u32;
            // SAFETY: one load; the caller vouches for the address.
            unsafe {
                asm!(concat!($op, ".b32 {0}, [{1}];"), out(reg32) a, in(reg64) ptr,
                    options(readonly, nostack, preserves_flags));
            }
            T::from_word(a)
        }

        #[inline(always)]
        pub unsafe fn $name_v2<T: Word>(ptr: *const T) -> [T; 2] {
            let (a, b): (u32, u32);
            // SAFETY: one load; the caller vouches for the address.
            unsafe {
                asm!(concat!($op, ".v2.b32 {{{0}, {1}}}, [{2}];"), out(reg32) a, out(reg32) b, in(reg64) ptr,
                    options(readonly, nostack, preserves_flags));
            }
            [T::from_word(a), T::from_word(b)]
        }

        #[inline(always)]
        pub unsafe fn $name_v4<T: Word>(ptr: *const T) -> [T; 4] {
            let (a, b, c, d): (u32, u32, u32, u32);
            // SAFETY: one load; the caller vouches for the address.
            unsafe {
                asm!(concat!($op, ".v4.b32 {{{0}, {1}, {2}, {3}}}, [{4}];"), out(reg32) a, out(reg32) b,
                    out(reg32) c, out(reg32) d, in(reg64) ptr, options(readonly, nostack, preserves_flags));
            }
            [T::from_word(a), T::from_word(b), T::from_word(c), T::from_word(d)]
        }
    )* };
}

load! {
    load, load_v2, load_v4, "ld.global";
    load_nc, load_nc_v2, load_nc_v4, "ld.global.nc";
    load_stream, load_stream_v2, load_stream_v4, "ld.global.nc.L1::no_allocate";
    load_l2, load_l2_v2, load_l2_v4, "ld.global.cg";
}

macro_rules! store {
    ($($name:ident, $name_v2:ident, $name_v4:ident, $op:literal;)*) => { $(
        #[inline(always)]
        pub unsafe fn $name<T: Word>(ptr: *mut T, value: T) {
            // SAFETY: one store; the caller vouches for the address.
            unsafe {
                asm!(concat!($op, ".b32 [{0}], {1};"), in(reg64) ptr, in(reg32) value.to_word(),
                    options(nostack, preserves_flags));
            }
        }

        #[inline(always)]
        pub unsafe fn $name_v2<T: Word>(ptr: *mut T, value: [T; 2]) {
            // SAFETY: one store; the caller vouches for the address.
            unsafe {
                asm!(concat!($op, ".v2.b32 [{0}], {{{1}, {2}}};"), in(reg64) ptr, in(reg32) value[0].to_word(),
                    in(reg32) value[1].to_word(), options(nostack, preserves_flags));
            }
        }

        #[inline(always)]
        pub unsafe fn $name_v4<T: Word>(ptr: *mut T, value: [T; 4]) {
            // SAFETY: one store; the caller vouches for the address.
            unsafe {
                asm!(concat!($op, ".v4.b32 [{0}], {{{1}, {2}, {3}, {4}}};"), in(reg64) ptr,
                    in(reg32) value[0].to_word(), in(reg32) value[1].to_word(), in(reg32) value[2].to_word(),
                    in(reg32) value[3].to_word(), options(nostack, preserves_flags));
            }
        }
    )* };
}

store! {
    store, store_v2, store_v4, "st.global";
    store_stream, store_stream_v2, store_stream_v4, "st.global.cs";
}

#[inline(always)]
pub unsafe fn load_nc_b16(ptr: *const u16) -> u16 {
    let value: u16;
    // SAFETY: one load; the caller vouches for the address.
    unsafe {
        asm!("ld.global.nc.b16 {0}, [{1}];", out(reg16) value, in(reg64) ptr,
            options(readonly, nostack, preserves_flags));
    }
    value
}

#[inline(always)]
pub unsafe fn prefetch_l2<T>(ptr: *const T) {
    // SAFETY: a hint without effect on values.
    unsafe { asm!("prefetch.global.L2 [{0}];", in(reg64) ptr, options(readonly, nostack, preserves_flags)) }
}

#[inline(always)]
pub unsafe fn load_shared_b8(address: u32) -> u8 {
    let value: u16;
    // SAFETY: one load; the caller vouches for the address.
    unsafe {
        asm!("ld.shared.b8 {0}, [{1}];", out(reg16) value, in(reg32) address,
            options(readonly, nostack, preserves_flags));
    }
    value as u8
}

#[inline(always)]
pub unsafe fn load_shared_b16(address: u32) -> u16 {
    let value: u16;
    // SAFETY: one load; the caller vouches for the address.
    unsafe {
        asm!("ld.shared.b16 {0}, [{1}];", out(reg16) value, in(reg32) address,
            options(readonly, nostack, preserves_flags));
    }
    value
}

#[inline(always)]
pub unsafe fn load_shared<T: Word>(address: u32) -> T {
    let a: u32;
    // SAFETY: one load; the caller vouches for the address.
    unsafe {
        asm!("ld.shared.b32 {0}, [{1}];", out(reg32) a, in(reg32) address,
            options(readonly, nostack, preserves_flags));
    }
    T::from_word(a)
}

#[inline(always)]
pub unsafe fn load_shared_v2<T: Word>(address: u32) -> [T; 2] {
    let (a, b): (u32, u32);
    // SAFETY: one load; the caller vouches for the address.
    unsafe {
        asm!("ld.shared.v2.b32 {{{0}, {1}}}, [{2}];", out(reg32) a, out(reg32) b, in(reg32) address,
            options(readonly, nostack, preserves_flags));
    }
    [T::from_word(a), T::from_word(b)]
}

#[inline(always)]
pub unsafe fn load_shared_v4<T: Word>(address: u32) -> [T; 4] {
    let (a, b, c, d): (u32, u32, u32, u32);
    // SAFETY: one load; the caller vouches for the address.
    unsafe {
        asm!("ld.shared.v4.b32 {{{0}, {1}, {2}, {3}}}, [{4}];", out(reg32) a, out(reg32) b, out(reg32) c,
            out(reg32) d, in(reg32) address, options(readonly, nostack, preserves_flags));
    }
    [T::from_word(a), T::from_word(b), T::from_word(c), T::from_word(d)]
}

#[inline(always)]
pub unsafe fn store_shared_b8(address: u32, value: u8) {
    // SAFETY: one store; the caller vouches for the address.
    unsafe {
        asm!("st.shared.b8 [{0}], {1};", in(reg32) address, in(reg16) u16::from(value),
            options(nostack, preserves_flags));
    }
}

#[inline(always)]
pub unsafe fn store_shared_b16(address: u32, value: u16) {
    // SAFETY: one store; the caller vouches for the address.
    unsafe {
        asm!("st.shared.b16 [{0}], {1};", in(reg32) address, in(reg16) value, options(nostack, preserves_flags));
    }
}

#[inline(always)]
pub unsafe fn store_shared<T: Word>(address: u32, value: T) {
    // SAFETY: one store; the caller vouches for the address.
    unsafe {
        asm!("st.shared.b32 [{0}], {1};", in(reg32) address, in(reg32) value.to_word(),
            options(nostack, preserves_flags));
    }
}

#[inline(always)]
pub unsafe fn store_shared_v2<T: Word>(address: u32, value: [T; 2]) {
    // SAFETY: one store; the caller vouches for the address.
    unsafe {
        asm!("st.shared.v2.b32 [{0}], {{{1}, {2}}};", in(reg32) address, in(reg32) value[0].to_word(),
            in(reg32) value[1].to_word(), options(nostack, preserves_flags));
    }
}

#[inline(always)]
pub unsafe fn store_shared_v4<T: Word>(address: u32, value: [T; 4]) {
    // SAFETY: one store; the caller vouches for the address.
    unsafe {
        asm!("st.shared.v4.b32 [{0}], {{{1}, {2}, {3}, {4}}};", in(reg32) address, in(reg32) value[0].to_word(),
            in(reg32) value[1].to_word(), in(reg32) value[2].to_word(), in(reg32) value[3].to_word(),
            options(nostack, preserves_flags));
    }
}
