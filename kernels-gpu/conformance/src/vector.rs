//! Vector loads and stores.

use cuda_std::{E4M3, E5M2, bf16, f16, kernel, shared, shared_array, thread, vector};

/// Copies of the input that the `vector_copy_*` kernels write: one for each kind of load.
pub const COPIES: usize = 4;

/// Copies word by word, with each kind of load. The first two copies use plain stores, the last two streaming
/// stores.
///
/// # Safety
/// `x` holds a word for each thread, `out` [`COPIES`] times as many.
#[kernel]
pub unsafe fn vector_copy_v1(x: &[u32], out: *mut u32) {
    let (n, i) = (x.len(), thread::index_1d() as usize);
    let from = x.as_ptr().wrapping_add(i);
    let to = out.wrapping_add(i);
    // SAFETY: in range for every thread, and no two threads share a word.
    unsafe {
        vector::store(to, vector::load(from));
        vector::store(to.add(n), vector::load_nc(from));
        vector::store_stream(to.add(2 * n), vector::load_stream(from));
        vector::store_stream(to.add(3 * n), vector::load_l2(from));
    }
}

/// Copies the words of threads whose number is no multiple of 3, and zeros for the others, whose address is
/// none; behind them all the words' lower halves in the same way.
///
/// # Safety
/// `x` holds a word for each thread, `out` two.
#[kernel]
pub unsafe fn vector_load_if(x: &[u32], out: *mut u32) {
    let i = thread::index_1d() as usize;
    let is_there = !i.is_multiple_of(3);
    let from = if is_there { x.as_ptr().wrapping_add(i) } else { core::ptr::null() };
    // SAFETY: in range for every thread that loads, and no two threads share a word.
    unsafe {
        vector::store(out.wrapping_add(i), vector::load_if(from, is_there));
        let low = vector::load_b16_if(from.cast(), is_there);
        vector::store(out.wrapping_add(x.len() + i), u32::from(low));
    }
}

/// As [`vector_copy_v1()`] by 8 bytes.
///
/// # Safety
/// `x`, 8-byte aligned, holds two words for each thread, `out` [`COPIES`] times as many.
#[kernel]
pub unsafe fn vector_copy_v2(x: &[i32], out: *mut i32) {
    let (n, i) = (x.len(), 2 * thread::index_1d() as usize);
    let from = x.as_ptr().wrapping_add(i);
    let to = out.wrapping_add(i);
    // SAFETY: in range and aligned for every thread, and no two threads share a word.
    unsafe {
        vector::store_v2(to, vector::load_v2(from));
        vector::store_v2(to.add(n), vector::load_nc_v2(from));
        vector::store_stream_v2(to.add(2 * n), vector::load_stream_v2(from));
        vector::store_stream_v2(to.add(3 * n), vector::load_l2_v2(from));
    }
}

/// As [`vector_copy_v1()`] by 16 bytes. Prefetches the next block's data first.
///
/// # Safety
/// `x`, 16-byte aligned, holds four words for each thread, `out` [`COPIES`] times as many.
#[kernel]
pub unsafe fn vector_copy_v4(x: &[f32], out: *mut f32) {
    let (n, i) = (x.len(), 4 * thread::index_1d() as usize);
    let from = x.as_ptr().wrapping_add(i);
    let to = out.wrapping_add(i);
    // SAFETY: in range and aligned for every thread, and no two threads share a word.
    unsafe {
        vector::prefetch_l2(from);
        vector::store_v4(to, vector::load_v4(from));
        vector::store_v4(to.add(n), vector::load_nc_v4(from));
        vector::store_stream_v4(to.add(2 * n), vector::load_stream_v4(from));
        vector::store_stream_v4(to.add(3 * n), vector::load_l2_v4(from));
    }
}

/// Threads in the only block of the `vector_shared_*` kernels.
pub const SHARED_THREADS: u32 = 128;

/// Reverses bytes, 16-bit values, words, pairs and quads through shared memory. Each thread writes its own
/// slot and reads its mirror thread's. `x` and `out` hold quads. The narrower results follow, one per thread:
/// pairs, words, then 16-bit values and bytes widened to words.
///
/// # Safety
/// One block of [`SHARED_THREADS`]; `x` has 4 words per thread, 16-byte aligned, `out` 9 words per thread,
/// 16-byte aligned.
#[kernel]
pub unsafe fn vector_shared_mirror(x: &[u32], out: *mut u32) {
    const N: usize = SHARED_THREADS as usize;
    let tile = shared::address_of(shared_array![[u32; 4]; N]);
    let t = thread::thread_idx_x();
    let mirror = SHARED_THREADS - 1 - t;
    let at = t as usize;
    // SAFETY: every address is that of one of `N` slots of 16 bytes; barriers separate writes from reads and
    // reads from the next writes; each thread has its own place in the outputs.
    unsafe {
        let quad: [u32; 4] = vector::load_nc_v4(x.as_ptr().add(4 * at));
        vector::store_shared_v4(tile + 16 * t, quad);
        thread::sync_threads();
        vector::store_v4(out.add(4 * at), vector::load_shared_v4(tile + 16 * mirror));
        thread::sync_threads();
        vector::store_shared_v2(tile + 8 * t, [quad[0], quad[1]]);
        thread::sync_threads();
        vector::store_v2(out.add(4 * N + 2 * at), vector::load_shared_v2(tile + 8 * mirror));
        thread::sync_threads();
        vector::store_shared(tile + 4 * t, quad[0]);
        thread::sync_threads();
        vector::store(out.add(6 * N + at), vector::load_shared(tile + 4 * mirror));
        thread::sync_threads();
        vector::store_shared_b16(tile + 2 * t, quad[0] as u16);
        thread::sync_threads();
        vector::store(out.add(7 * N + at), u32::from(vector::load_shared_b16(tile + 2 * mirror)));
        thread::sync_threads();
        vector::store_shared_b8(tile + t, quad[0] as u8);
        thread::sync_threads();
        vector::store(out.add(8 * N + at), u32::from(vector::load_shared_b8(tile + mirror)));
    }
}

/// Widens 16-bit values to words.
///
/// # Safety
/// An element of both for each thread.
#[kernel]
pub unsafe fn vector_widen_b16(x: &[u16], out: *mut u32) {
    let i = thread::index_1d() as usize;
    // SAFETY: in range for every thread.
    unsafe { vector::store(out.add(i), u32::from(vector::load_nc_b16(x.as_ptr().add(i)))) }
}

/// Bytes of an element, and elements, of the arrays that [`vector_reverse_elements()`] moves.
pub const REVERSED: [(usize, usize); 17] = [
    (1, 16),
    (1, 16),
    (1, 16),
    (1, 16),
    (2, 8),
    (2, 8),
    (2, 8),
    (2, 8),
    (4, 4),
    (4, 4),
    (4, 4),
    (8, 2),
    (8, 4),
    (2, 4),
    (2, 2),
    (1, 2),
    (1, 1),
];
/// Bytes of `x` and of `out` that a thread of [`vector_reverse_elements()`] has: its arrays, and some it
/// leaves alone.
pub const REVERSED_BYTES: usize = 256;

/// Loads arrays of every element type and stores each in reverse order, those of [`REVERSED`] in turn.
///
/// # Safety
/// `x` and `out`, 16-byte aligned, have [`REVERSED_BYTES`] for each thread.
#[kernel]
pub unsafe fn vector_reverse_elements(x: &[u8], out: *mut u8) {
    let at = thread::index_1d() as usize * REVERSED_BYTES;
    let mut next = 0;
    /// One array.
    macro_rules! reverse {
        ($($ty:ty, $n:literal;)*) => { $(
            // SAFETY: the arrays lie one after the other, each aligned to its size, in the thread's part.
            unsafe {
                let array: [$ty; $n] = vector::load_array(x.as_ptr().add(at + next).cast());
                let reversed = core::array::from_fn(|i| array[$n - 1 - i]);
                vector::store_array::<$ty, $n>(out.add(at + next).cast(), reversed);
                next += size_of::<[$ty; $n]>();
            }
        )* };
    }
    reverse! { u8, 16; i8, 16; E4M3, 16; E5M2, 16; u16, 8; i16, 8; f16, 8; bf16, 8; u32, 4; i32, 4; f32, 4; u64, 2; }
    reverse! { f64, 4; u16, 4; f16, 2; u8, 2; u8, 1; }
    let _ = next;
}

/// Copies through words: elements of shared memory and of the read-only path.
///
/// # Safety
/// One block of [`SHARED_THREADS`]; `x`, 16-byte aligned, and `out` have 8 elements for each thread.
#[kernel]
pub unsafe fn vector_elements_by_words(x: &[bf16], out: *mut bf16) {
    const N: usize = SHARED_THREADS as usize;
    let tile = shared::address_of(shared_array![[bf16; 8]; N]);
    let t = thread::thread_idx_x();
    let mirror = SHARED_THREADS - 1 - t;
    // SAFETY: slots of 16 bytes; the barrier separates writes from reads.
    unsafe {
        let words: [u32; 4] = vector::load_nc_v4(x.as_ptr().add(8 * t as usize).cast());
        let [a, rest @ ..] = vector::from_words::<bf16, 8>(words);
        let [b, c, d, e, f, g, h] = rest;
        vector::store_shared_v4(tile + 16 * t, vector::to_words([h, g, f, e, d, c, b, a]));
        thread::sync_threads();
        let mirrored: [u32; 4] = vector::load_shared_v4(tile + 16 * mirror);
        vector::store_v4(out.add(8 * t as usize).cast(), mirrored);
    }
}
