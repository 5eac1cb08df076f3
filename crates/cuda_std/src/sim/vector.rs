//! Checked accesses of the whole width, so that a misaligned or racing vector access is seen as one.

use simt::memory;

use crate::vector::Word;

/// Gives two words the alignment that a `v2` access wants.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Pair<T>([T; 2]);

/// Gives four words the alignment that a `v4` access wants.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
struct Quad<T>([T; 4]);

macro_rules! load {
    ($($name:ident, $name_v2:ident, $name_v4:ident;)*) => { $(
        #[track_caller]
        pub unsafe fn $name<T: Word>(ptr: *const T) -> T {
            // SAFETY: the caller vouches for the address.
            unsafe { memory::load(ptr) }
        }

        #[track_caller]
        pub unsafe fn $name_v2<T: Word>(ptr: *const T) -> [T; 2] {
            // SAFETY: the caller vouches for the address.
            unsafe { memory::load(ptr.cast::<Pair<T>>()).0 }
        }

        #[track_caller]
        pub unsafe fn $name_v4<T: Word>(ptr: *const T) -> [T; 4] {
            // SAFETY: the caller vouches for the address.
            unsafe { memory::load(ptr.cast::<Quad<T>>()).0 }
        }
    )* };
}

// The cache hints change no value, so all of a row's relatives are one function here.
load! {
    load, load_v2, load_v4;
    load_nc, load_nc_v2, load_nc_v4;
    load_stream, load_stream_v2, load_stream_v4;
    load_l2, load_l2_v2, load_l2_v4;
}

macro_rules! store {
    ($($name:ident, $name_v2:ident, $name_v4:ident;)*) => { $(
        #[track_caller]
        pub unsafe fn $name<T: Word>(ptr: *mut T, value: T) {
            // SAFETY: the caller vouches for the address.
            unsafe { memory::store(ptr, value) }
        }

        #[track_caller]
        pub unsafe fn $name_v2<T: Word>(ptr: *mut T, value: [T; 2]) {
            // SAFETY: the caller vouches for the address.
            unsafe { memory::store(ptr.cast(), Pair(value)) }
        }

        #[track_caller]
        pub unsafe fn $name_v4<T: Word>(ptr: *mut T, value: [T; 4]) {
            // SAFETY: the caller vouches for the address.
            unsafe { memory::store(ptr.cast(), Quad(value)) }
        }
    )* };
}

store! {
    store, store_v2, store_v4;
    store_stream, store_stream_v2, store_stream_v4;
}

#[track_caller]
pub unsafe fn load_nc_b16(ptr: *const u16) -> u16 {
    // SAFETY: the caller vouches for the address.
    unsafe { memory::load(ptr) }
}

/// A hint; there is no cache to warm.
///
/// # Safety
/// None: the address is not used.
pub unsafe fn prefetch_l2<T>(_ptr: *const T) {}

#[track_caller]
fn pointer<T>(address: u32) -> *mut T {
    simt::shared::from_address(address).cast()
}

macro_rules! shared {
    ($($load:ident, $store:ident, $ty:ty;)*) => { $(
        #[track_caller]
        pub unsafe fn $load(address: u32) -> $ty {
            // SAFETY: the caller vouches for the address.
            unsafe { memory::load(pointer(address)) }
        }

        #[track_caller]
        pub unsafe fn $store(address: u32, value: $ty) {
            // SAFETY: the caller vouches for the address.
            unsafe { memory::store(pointer(address), value) }
        }
    )* };
}

shared! {
    load_shared_b8, store_shared_b8, u8;
    load_shared_b16, store_shared_b16, u16;
}

#[track_caller]
pub unsafe fn load_shared<T: Word>(address: u32) -> T {
    // SAFETY: the caller vouches for the address.
    unsafe { memory::load(pointer(address)) }
}

#[track_caller]
pub unsafe fn load_shared_v2<T: Word>(address: u32) -> [T; 2] {
    // SAFETY: the caller vouches for the address.
    unsafe { memory::load(pointer::<Pair<T>>(address)).0 }
}

#[track_caller]
pub unsafe fn load_shared_v4<T: Word>(address: u32) -> [T; 4] {
    // SAFETY: the caller vouches for the address.
    unsafe { memory::load(pointer::<Quad<T>>(address)).0 }
}

#[track_caller]
pub unsafe fn store_shared<T: Word>(address: u32, value: T) {
    // SAFETY: the caller vouches for the address.
    unsafe { memory::store(pointer(address), value) }
}

#[track_caller]
pub unsafe fn store_shared_v2<T: Word>(address: u32, value: [T; 2]) {
    // SAFETY: the caller vouches for the address.
    unsafe { memory::store(pointer(address), Pair(value)) }
}

#[track_caller]
pub unsafe fn store_shared_v4<T: Word>(address: u32, value: [T; 4]) {
    // SAFETY: the caller vouches for the address.
    unsafe { memory::store(pointer(address), Quad(value)) }
}
