//! The executor's barrier objects, which it keeps outside of the kernel's memory; a thread that waits there sleeps.

use simt::mbarrier;

pub use simt::mbarrier::fence_init;

macro_rules! forwarded {
    ($($name:ident => $function:ident($($arg:ident),*) $(-> $ret:ty)?;)*) => { $(
        #[track_caller]
        pub unsafe fn $name($($arg: u32),*) $(-> $ret)? {
            mbarrier::$function($($arg),*)
        }
    )* };
}

forwarded! {
    init => init(bar, count);
    invalidate => invalidate(bar);
    arrive => arrive(bar);
    arrive_count => arrive_count(bar, n);
    expect_tx => expect_tx(bar, bytes);
    arrive_expect_tx => arrive_expect_tx(bar, bytes);
    test_wait_parity => test_wait_parity(bar, parity) -> bool;
    try_wait_parity => try_wait_parity(bar, parity) -> bool;
    wait_parity => wait_parity(bar, parity);
    arrive_remote => arrive_remote(bar_cluster);
    arrive_remote_async => arrive_remote_async(bar_cluster);
    wait_parity_cluster => wait_parity(bar, parity);
}
