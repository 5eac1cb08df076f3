//! A program whose first launch is one of a thread that unwinds. Apart from the other tests: the first
//! launch of a program changes its panic hook.

use std::panic::catch_unwind;

use ironwarp_simt::{FaultKind, LaunchConfig, Options, run};

/// Launches a kernel when it goes.
struct Launching;

impl Drop for Launching {
    fn drop(&mut self) {
        run(&LaunchConfig::linear(1, 1), &Options::default(), || {})
            .expect("a launch of a thread that unwinds");
    }
}

#[test]
fn a_first_launch_while_a_thread_unwinds_spoils_none_that_follow() {
    let panicked = catch_unwind(|| {
        let _launching = Launching;
        panic!("on purpose");
    });
    panicked.expect_err("a panic");
    let fault = run(&LaunchConfig::linear(1, 1), &Options::default(), || panic!("of the kernel"));
    let fault = fault.map(drop).unwrap_err();
    assert_eq!((fault.kind, &*fault.message), (FaultKind::Panic, "of the kernel"));
}
