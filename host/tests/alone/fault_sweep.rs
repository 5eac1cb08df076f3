//! Each driver call of a set of scenarios is made to fail, once only or from then on. Each time the scenario
//! has to return a typed error that names the call, without a panic, a hang or a leak. It may succeed where a
//! failure does not matter (see `harmless`). The same scenario has to work right after.
//!
//! Only on the software driver, whose calls can be made to fail at no cost.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::sweep::{SCENARIOS, Scenario};
use driver::code;
use driver::fault::{Rule, Times};
use ironwarp::{Device, Error, Result};

/// Longest time that one run may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Calls that release something. Drops make them, and a drop cannot return an error. What they would have
/// freed goes with the context.
const RELEASES: &[&str] = &[
    "cuMemFreeAsync",
    "cuMemFree_v2",
    "cuMemFreeHost",
    "cuEventDestroy_v2",
    "cuStreamDestroy_v2",
    "cuModuleUnload",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuDevicePrimaryCtxRelease_v2",
];

/// Ends a capture. Where that never succeeds, the stream stays captured, and nothing that it used last can be
/// freed in its order.
const END_CAPTURE: &str = "cuStreamEndCapture";

/// Calls that the scenarios of products must make: if the choice of kernels changes, the sweep must not lose
/// them.
const NEEDED: &[&str] = &["cuTensorMapEncodeTiled", "cuLaunchKernelEx", "cuFuncSetAttribute"];

/// One call made to fail.
#[derive(Debug, Clone, Copy)]
struct Injection {
    function: &'static str,
    nth: u64,
    times: Times,
    code: u32,
}

impl Injection {
    /// The failures of a call: one after which the next call works, and one after which no later call works.
    fn of(function: &'static str, nth: u64) -> [Injection; 2] {
        let lasting = if function.contains("Alloc") { code::OUT_OF_MEMORY } else { code::ILLEGAL_ADDRESS };
        [
            Injection { function, nth, times: Times::Once, code: code::INVALID_VALUE },
            Injection { function, nth, times: Times::Always, code: lasting },
        ]
    }
}

/// The number of calls of `function` that may fail with no harm to the scenario, of the `calls` that it
/// makes:
///
/// * every release, and each bind before a release, since the release is tried all the same;
/// * the text of an error, since its code replaces it;
/// * the calls by which a drop puts a free behind the work of another stream: it then waits for the stream
///   instead;
/// * the mark at the end of a stream that had memory: without it that memory stays unused;
/// * the wait of a closing device for its caches, one of device memory and one of page-locked memory, which
///   frees wait too.
fn harmless(scenario: &Scenario, function: &str, calls: &BTreeMap<&'static str, u64>) -> u64 {
    let made = |f: &str| calls.get(f).copied().unwrap_or(0);
    let own = scenario.harmless.iter().find(|(name, ..)| *name == function).map_or(0, |&(_, calls, _)| calls);
    let ended_streams = made("cuStreamDestroy_v2");
    own + match function {
        "cuGetErrorName" | "cuGetErrorString" => made(function),
        "cuCtxSetCurrent" => {
            RELEASES.iter().map(|f| made(f)).sum::<u64>() + scenario.frees_behind + ended_streams
        }
        "cuEventCreate" | "cuEventRecord" => scenario.frees_behind + ended_streams,
        "cuCtxSynchronize" => made("cuMemFree_v2").min(1) + made("cuMemFreeHost").min(1),
        release if RELEASES.contains(&release) => made(release),
        _ => 0,
    }
}

/// The results of the failures.
#[derive(Default)]
struct Tally {
    errors: u64,
    /// Failures that did not matter, by function.
    succeeded: BTreeMap<&'static str, u64>,
}

impl Tally {
    fn injected(&self) -> u64 {
        self.errors + self.succeeded.values().sum::<u64>()
    }
}

/// Whether this is the injected failure, reported correctly.
fn is_told(error: &Error, injection: &Injection) -> bool {
    if matches!(error, Error::OutOfMemory(_)) {
        return ["cuMemAlloc_v2", "cuMemAllocAsync"].contains(&injection.function);
    }
    if matches!(error, Error::PinnedMemory { .. }) {
        return injection.function == "cuMemHostAlloc";
    }
    error.driver_error().is_some_and(|e| e.function == injection.function && e.code == injection.code as i32)
}

/// Device memory in use, with nothing kept by the pool.
fn memory_in_use() -> Result<usize> {
    let device = Device::open(0)?;
    device.synchronize()?;
    device.trim_pool()?;
    let info = device.memory_info()?;
    Ok(info.total - info.free)
}

/// Calls that one run makes, by function.
fn calls_of(scenario: &Scenario) -> Result<BTreeMap<&'static str, u64>> {
    let before: BTreeMap<_, _> = driver::fault::calls().into_iter().collect();
    (scenario.run)()?;
    let after = driver::fault::calls();
    let new = after.into_iter().map(|(f, n)| (f, n - before.get(f).copied().unwrap_or(0)));
    Ok(new.filter(|&(_, n)| n > 0).collect())
}

fn put_through(scenario: &Scenario, injection: Injection, tally: &mut Tally) -> Result<()> {
    let what = format!("{}: {injection:?}", scenario.name);
    let in_use = memory_in_use()?;
    let Injection { function, nth, times, code } = injection;
    let rules = driver::fault::scoped(&[Rule { function, nth, code, times }]).expect("a rule that fits");
    let outcome = catch_unwind(AssertUnwindSafe(scenario.run));
    drop(rules);
    match outcome {
        Err(_) => panic!("{what}: panicked"),
        Ok(Err(error)) => {
            assert!(is_told(&error, &injection), "{what}: another error: {error:?}");
            assert!(error.to_string().contains("\nhint: "), "{what}: no hint: {error}");
            tally.errors += 1;
        }
        Ok(Ok(())) => {
            *tally.succeeded.entry(function).or_default() += 1;
        }
    }
    // Only a release that is made to fail leaks: it leaks what it would have released.
    let never_ends = function == END_CAPTURE && matches!(times, Times::Always);
    if !RELEASES.contains(&function) && !never_ends {
        assert_eq!(memory_in_use()?, in_use, "{what}: leaked device memory");
    }
    (scenario.run)().unwrap_or_else(|e| panic!("{what}: the next run failed: {e}"));
    Ok(())
}

/// Ends the program when no run finishes for a while.
fn watch(progress: &'static AtomicU64) {
    std::thread::spawn(|| {
        let mut seen = progress.load(Ordering::Relaxed);
        loop {
            std::thread::sleep(PATIENCE);
            let now = progress.load(Ordering::Relaxed);
            if now == seen {
                eprintln!("run {now} hangs");
                std::process::abort();
            }
            seen = now;
        }
    });
}

#[test]
fn every_call_may_fail() -> Result<()> {
    testkit::own_process!("IRONWARP_CHECK" = "0");
    static RUNS: AtomicU64 = AtomicU64::new(0);
    if !Device::open(0)?.is_software() {
        testkit::skip("calls are made to fail on the software driver only");
        return Ok(());
    }
    watch(&RUNS);
    // Keeps the context, so that leaks of a scenario can be seen after its last handle is gone.
    let _context = cust::context::Context::new(cust::device::Device::get_device(0)?)?;
    let (mut total, mut functions) = (0, BTreeSet::new());
    for scenario in SCENARIOS {
        let begun = Instant::now();
        let calls = calls_of(scenario)?;
        let mut tally = Tally::default();
        for (&function, &count) in &calls {
            for injection in (1..=count).flat_map(|nth| Injection::of(function, nth)) {
                put_through(scenario, injection, &mut tally)?;
                RUNS.fetch_add(1, Ordering::Relaxed);
            }
            let unnoticed = tally.succeeded.get(function).copied().unwrap_or(0);
            // Each call was tried with two failures.
            let most = 2 * harmless(scenario, function, &calls);
            assert!(
                unnoticed <= most,
                "{}: {unnoticed} failures of {function} unnoticed, {most} are harmless",
                scenario.name
            );
        }
        assert_eq!(
            tally.injected(),
            2 * calls.values().sum::<u64>(),
            "{}: a failure is not accounted for",
            scenario.name
        );
        println!(
            "{:12} {:5.1} s, {:5} failures: {:5} typed errors, without harm: {:?}",
            scenario.name,
            begun.elapsed().as_secs_f64(),
            tally.injected(),
            tally.errors,
            tally.succeeded
        );
        total += tally.injected();
        functions.extend(calls.keys().copied());
    }
    println!("{total} injected failures of {} functions, all accounted for", functions.len());
    let missing: Vec<_> = NEEDED.iter().filter(|function| !functions.contains(*function)).collect();
    assert!(missing.is_empty(), "no scenario calls {missing:?}");
    Ok(())
}
