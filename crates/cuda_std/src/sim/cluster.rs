//! The executor's clusters.

use crate::vector::Word;

pub use simt::cluster::{block_idx, block_rank, blocks, count, dim, id, map_shared};

macro_rules! barrier {
    ($($name:ident)*) => { $(
        #[track_caller]
        pub unsafe fn $name() {
            simt::cluster::$name();
        }
    )* };
}

barrier! { arrive arrive_relaxed wait }

macro_rules! accesses {
    ($($load:ident, $store:ident: $value:ty;)*) => { $(
        #[track_caller]
        pub unsafe fn $load<T: Word>(addr: u32) -> $value {
            // SAFETY: the caller keeps this function's contract, which is the same.
            unsafe { simt::cluster::load_shared(addr) }
        }

        #[track_caller]
        pub unsafe fn $store<T: Word>(addr: u32, value: $value) {
            // SAFETY: the caller keeps this function's contract, which is the same.
            unsafe { simt::cluster::store_shared(addr, value) }
        }
    )* };
}

accesses! {
    load_shared, store_shared: T;
    load_shared_v2, store_shared_v2: [T; 2];
    load_shared_v4, store_shared_v4: [T; 4];
}

#[track_caller]
pub unsafe fn store_async<T: Word>(addr: u32, value: T, bar: u32) {
    // SAFETY: the caller keeps this function's contract, which is the same.
    unsafe { simt::remote::store_async(addr, &[value.to_word()], bar) }
}

macro_rules! async_stores {
    ($($name:ident: $words:literal;)*) => { $(
        #[track_caller]
        pub unsafe fn $name<T: Word>(addr: u32, value: [T; $words], bar: u32) {
            // SAFETY: the caller keeps this function's contract, which is the same.
            unsafe { simt::remote::store_async(addr, &value.map(T::to_word), bar) }
        }
    )* };
}

async_stores! { store_async_v2: 2; store_async_v4: 4; }
