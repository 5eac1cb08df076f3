//! Stacks of simulated threads: what fits, and what an overflow says.

use std::hint::black_box;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;

use ironwarp_simt::{Fault, FaultKind, LaunchConfig, LaunchStats, Options};

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

fn read_of_nothing(options: &Options) -> Result<LaunchStats, Box<Fault>> {
    ironwarp_simt::run(&LaunchConfig::linear(1, 1), options, || {
        // SAFETY: not sound: nothing is mapped there.
        let byte = unsafe { std::ptr::with_exposed_provenance::<u8>(black_box(8)).read_volatile() };
        black_box(byte);
    })
}

/// Under the checker an access that the processor refuses is a fault of its thread, with its line. This
/// package has no callbacks that would find it before.
#[test]
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
fn refused_accesses_are_faults() {
    for _ in 0..3 {
        let fault = read_of_nothing(&Options { check: true, ..Options::default() }).unwrap_err();
        assert_eq!(fault.kind, FaultKind::WildPointer, "{fault}");
        assert!(fault.message.contains("refused an access to address 0x8"), "{fault}");
        assert!(fault.site.file.ends_with("tests/executor/stacks.rs"), "{fault}");
    }
}

/// An address that is no multiple of 16, where the instruction needs one.
#[test]
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn refused_alignments_are_faults() {
    use std::arch::x86_64::{__m128i, _mm_load_si128};
    let fault = ironwarp_simt::run(
        &LaunchConfig::linear(1, 2),
        &Options { check: true, ..Options::default() },
        || {
            let words = [0u64; 5];
            let odd = words.as_ptr().wrapping_add(1 - (words.as_ptr().addr() / 8) % 2).cast::<__m128i>();
            // SAFETY: not sound: the address is a multiple of 8 alone.
            black_box(unsafe { _mm_load_si128(black_box(odd)) });
        },
    )
    .unwrap_err();
    assert_eq!(fault.kind, FaultKind::Misaligned, "{fault}");
}

/// Without the checker a fault that is no overflow ends the process as it would without the executor.
#[test]
fn other_faults_are_the_systems() {
    if std::env::var_os(CHILD).is_some() {
        let result = read_of_nothing(&Options { check: false, ..Options::default() });
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
