//! The executor's clusters.

use crate::vector::Word;

macro_rules! not_modelled {
    ($($name:ident() -> $ret:ty;)*) => { $(
        #[track_caller]
        pub fn $name() -> $ret {
            simt::trap(concat!("cluster::", stringify!($name), " is not modelled yet"))
        }
    )* };
    ($(unsafe $name:ident $(<$t:ident>)? ($($arg:ident: $ty:ty),*) $(-> $ret:ty)?;)*) => { $(
        #[track_caller]
        pub unsafe fn $name$(<$t: Word>)?($($arg: $ty),*) $(-> $ret)? {
            $(let _ = $arg;)*
            simt::trap(concat!("cluster::", stringify!($name), " is not modelled yet"))
        }
    )* };
}

not_modelled! {
    block_rank() -> u32;
    blocks() -> u32;
    block_idx() -> [u32; 3];
    dim() -> [u32; 3];
    id() -> [u32; 3];
    count() -> [u32; 3];
}

not_modelled! {
    unsafe arrive();
    unsafe arrive_relaxed();
    unsafe wait();
    unsafe load_shared<T>(addr: u32) -> T;
    unsafe load_shared_v2<T>(addr: u32) -> [T; 2];
    unsafe load_shared_v4<T>(addr: u32) -> [T; 4];
    unsafe store_shared<T>(addr: u32, value: T);
    unsafe store_shared_v2<T>(addr: u32, value: [T; 2]);
    unsafe store_shared_v4<T>(addr: u32, value: [T; 4]);
}

#[track_caller]
pub fn map_shared(addr: u32, rank: u32) -> u32 {
    let _ = (addr, rank);
    simt::trap("cluster::map_shared is not modelled yet")
}
