//! The executor's barrier objects.

macro_rules! not_modelled {
    ($($name:ident($($arg:ident: $ty:ty),*) $(-> $ret:ty)?;)*) => { $(
        #[track_caller]
        pub unsafe fn $name($($arg: $ty),*) $(-> $ret)? {
            let _ = ($($arg,)*);
            simt::trap(concat!("mbarrier::", stringify!($name), " is not modelled yet"))
        }
    )* };
}

not_modelled! {
    init(bar: u32, count: u32);
    invalidate(bar: u32);
    arrive(bar: u32);
    arrive_count(bar: u32, n: u32);
    expect_tx(bar: u32, bytes: u32);
    arrive_expect_tx(bar: u32, bytes: u32);
    test_wait_parity(bar: u32, parity: u32) -> bool;
    try_wait_parity(bar: u32, parity: u32) -> bool;
    wait_parity(bar: u32, parity: u32);
    arrive_remote(bar_cluster: u32);
    wait_parity_cluster(bar: u32, parity: u32);
}

#[track_caller]
pub fn fence_init() {
    simt::trap("mbarrier::fence_init is not modelled yet")
}
