//! Neighbours of any type in as few accesses as can be.

use half::{bf16, f16};
use num::{E4M3, E5M2};

use super::{load, load_v2, load_v4, store, store_v2, store_v4};

/// Bytes of a thread's widest access.
pub const VECTOR_BYTES: usize = 16;

/// The bits of a value as another type of the same size.
///
/// # Safety
/// `To` has the size of `From`, and the bits are a value of it.
#[inline(always)]
unsafe fn cast<From: Copy, To: Copy>(from: From) -> To {
    // SAFETY: the caller's promise.
    unsafe { core::ptr::read_unaligned((&raw const from).cast()) }
}

/// Numbers of 1, 2, 4 or 8 bytes.
///
/// # Safety
/// Every bit pattern is a value, and there is no padding.
pub unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($ty:ty),*) => { $(
        // SAFETY: a primitive number, or one of a crate that is an integer and nothing else.
        unsafe impl Plain for $ty {}
    )* };
}

plain!(u8, u16, u32, u64, i8, i16, i32, i64, f32, f64, f16, bf16, E4M3, E5M2);

/// The elements in sixteen bytes: of a word from [`load_nc_v4`](super::load_nc_v4),
/// [`load_shared_v4`](super::load_shared_v4) and the like.
#[inline(always)]
#[must_use]
pub fn from_words<T: Plain, const N: usize>(words: [u32; 4]) -> [T; N] {
    const { assert!(N * size_of::<T>() == VECTOR_BYTES) };
    // SAFETY: sizes are the same, and every bit pattern is an element.
    unsafe { cast(words) }
}

/// Sixteen bytes of elements as words: for [`store_stream_v4`](super::store_stream_v4),
/// [`store_shared_v4`](super::store_shared_v4) and the like.
#[inline(always)]
#[must_use]
pub fn to_words<T: Plain, const N: usize>(elements: [T; N]) -> [u32; 4] {
    const { assert!(N * size_of::<T>() == VECTOR_BYTES) };
    // SAFETY: sizes are the same, and every bit pattern is a word.
    unsafe { cast(elements) }
}

/// Loads `N` neighbours, 1, 2, 4, 8, 16 or 32 bytes: up to 16 bytes in one access, 32 in two.
///
/// # Safety
/// `pointer`, to global memory, is readable for them and aligned to them all, at most to 16 bytes. Every bit
/// pattern is a `T`.
///
/// # PTX
/// For 16 bytes `ld.global.v4.b32`
#[inline(always)]
#[track_caller]
pub unsafe fn load_array<T: Copy, const N: usize>(pointer: *const T) -> [T; N] {
    const { assert!((N * size_of::<T>()).is_power_of_two() && N * size_of::<T>() <= 2 * VECTOR_BYTES) };
    // SAFETY: the caller's promise; the arm taken has the size of the result.
    unsafe {
        match N * size_of::<T>() {
            1 => cast(*pointer.cast::<u8>()),
            2 => cast(*pointer.cast::<u16>()),
            4 => cast(load::<u32>(pointer.cast())),
            8 => cast(load_v2::<u32>(pointer.cast())),
            16 => cast(load_v4::<u32>(pointer.cast())),
            _ => {
                let units = pointer.cast::<[u32; 4]>();
                cast([load_v4::<u32>(units.cast()), load_v4::<u32>(units.add(1).cast())])
            }
        }
    }
}

/// Stores `N` neighbours, as [`load_array`] loads them.
///
/// # Safety
/// `pointer`, to global memory, is writable for them, aligned as for [`load_array`], and no other thread
/// touches them.
///
/// # PTX
/// For 16 bytes `st.global.v4.b32`
#[inline(always)]
#[track_caller]
pub unsafe fn store_array<T: Copy, const N: usize>(pointer: *mut T, values: [T; N]) {
    const { assert!((N * size_of::<T>()).is_power_of_two() && N * size_of::<T>() <= 2 * VECTOR_BYTES) };
    // SAFETY: the caller's promise; the arm taken has the size of the values.
    unsafe {
        match N * size_of::<T>() {
            1 => *pointer.cast::<u8>() = cast(values),
            2 => *pointer.cast::<u16>() = cast(values),
            4 => store::<u32>(pointer.cast(), cast(values)),
            8 => store_v2::<u32>(pointer.cast(), cast(values)),
            16 => store_v4::<u32>(pointer.cast(), cast(values)),
            _ => {
                let [low, high]: [[u32; 4]; 2] = cast(values);
                let units = pointer.cast::<[u32; 4]>();
                store_v4::<u32>(units.cast(), low);
                store_v4::<u32>(units.add(1).cast(), high);
            }
        }
    }
}
