//! Stacks of simulated threads: what fits, and what an overflow says.

use std::hint::black_box;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;

use ironwarp_simt::{LaunchConfig, Options};

/// The most local memory that a thread of a GPU can have.
const LOCAL_BYTES: usize = 512 << 10;
/// Set for the child that overflows.
const CHILD: &str = "SIMT_TEST_OVERFLOW";

/// An array of `N` bytes, of which each page is touched.
#[inline(never)]
fn local<const N: usize>() -> usize {
    let array = black_box([1u8; N]);
    array.iter().step_by(1024).map(|&byte| usize::from(black_box(byte))).sum()
}

#[inline(never)]
fn endless(depth: u64) -> u64 {
    let array = black_box([depth; 64]);
    if black_box(depth) == u64::MAX { 0 } else { endless(depth + 1) + array[(depth % 64) as usize] }
}

#[test]
fn a_thread_has_as_much_local_memory_as_on_a_gpu() {
    let config = LaunchConfig::linear(2, 64);
    let stats = ironwarp_simt::run(&config, &Options::default(), || {
        assert_eq!(local::<{ 312 << 10 }>(), 312);
        ironwarp_simt::barrier::sync(0, None);
        assert_eq!(local::<LOCAL_BYTES>(), 512);
    });
    assert_eq!(stats.unwrap().threads, 128);
}

/// The process ends, so this test runs itself as another one.
#[test]
fn an_overflow_names_its_kernel() {
    if let Ok(how) = std::env::var(CHILD) {
        let config = LaunchConfig::linear(4, 32);
        let result = ironwarp_simt::run(&config, &Options::default(), || match how.as_str() {
            "recursion" => drop(black_box(endless(0))),
            _ => drop(black_box(local::<{ 8 << 20 }>())),
        });
        panic!("the overflow was not noticed: {result:?}");
    }
    for how in ["recursion", "array"] {
        let program = std::env::current_exe().unwrap();
        let mut child = Command::new(program);
        child.args(["--exact", "stacks::an_overflow_names_its_kernel", "--nocapture"]).env(CHILD, how);
        let output = child.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains("stack overflow in kernel `closure`, block ["), "{how}: {text}");
        assert!(text.contains("hint: "), "{how}: {text}");
        const SIGABRT: i32 = 6;
        assert_eq!(output.status.signal(), Some(SIGABRT), "{how}: {}", output.status);
    }
}

/// A fault that is no overflow ends the process as it would without the executor.
#[test]
fn other_faults_are_the_systems() {
    if std::env::var_os(CHILD).is_some() {
        let result = ironwarp_simt::run(&LaunchConfig::linear(1, 1), &Options::default(), || {
            // SAFETY: not sound: nothing is mapped there. The process ends here.
            let byte = unsafe { std::ptr::with_exposed_provenance::<u8>(black_box(8)).read_volatile() };
            black_box(byte);
        });
        panic!("the fault was not noticed: {result:?}");
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "stacks::other_faults_are_the_systems", "--nocapture"]).env(CHILD, "null");
    let output = child.output().unwrap();
    const SIGSEGV: i32 = 11;
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(SIGSEGV), "{}: {text}", output.status);
    assert!(!text.contains("stack overflow"), "{text}");
}
