//! Prepared launches by the driver calls that they make. Calls are counted only on the software driver.

use std::collections::BTreeMap;

use crate::common::Bench;
use crate::common::kernels::bounded;
use driver::code;
use driver::fault::{Rule, Scope, Times, inject, scoped};
use ironwarp::{Device, DeviceBuffer, LaunchConfig, Result, Stream, launch};

/// Launches of each test.
const MANY: u32 = 100;

/// Counts of calls are the whole process's: one test at a time.
fn alone() -> Scope {
    scoped(&[]).expect("no rules fit")
}

/// The number of calls of each driver function by `work`; empty where calls are not counted.
fn calls_of(work: impl FnOnce() -> Result<()>) -> Result<BTreeMap<&'static str, u64>> {
    let before: BTreeMap<_, _> = driver::fault::calls().into_iter().collect();
    work()?;
    let after = driver::fault::calls();
    Ok(after.into_iter().map(|(f, n)| (f, n - before.get(f).copied().unwrap_or(0))).collect())
}

/// The numbers of these calls that launched a kernel, made a graph, and launched a graph.
fn ways(calls: &BTreeMap<&'static str, u64>) -> [u64; 3] {
    let made = |function| calls.get(function).copied().unwrap_or(0);
    let kernels = ["cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchCooperativeKernel"].map(made);
    [kernels.iter().sum(), made("cuGraphInstantiateWithFlags"), made("cuGraphLaunch")]
}

fn counts(device: &Device) -> bool {
    device.is_software()
}

#[test]
fn without_a_graph_a_prepared_launch_goes_the_usual_way() -> Result<()> {
    testkit::own_process!();
    let count_up = |device: &Device, stream: &Stream, config| -> Result<_> {
        let mut out = DeviceBuffer::<u32>::zeroed(stream, 64)?;
        let mut prepared = device.kernel::<bounded>()?.prepare(stream, config)?;
        // SAFETY: there is one thread for each element.
        let calls = calls_of(|| (0..MANY).try_for_each(|_| unsafe { prepared.launch((&mut out,)) }))?;
        stream.synchronize()?;
        assert_eq!(out.to_vec(stream)?, [MANY; 64]);
        Ok(calls)
    };
    let config = LaunchConfig::linear(64, 64);
    for function in ["cuGraphCreate", "cuGraphAddKernelNode", "cuGraphInstantiateWithFlags"] {
        let rule = Rule { function, nth: 1, code: code::OUT_OF_MEMORY, times: Times::Always };
        let _scope = scoped(&[rule]).expect("a rule that fits");
        let Bench { device, stream } = Bench::open()?;
        let calls = count_up(&device, &stream, config)?;
        assert_eq!((calls[function], ways(&calls)[2]), (1, 0), "{function}");
    }
    let _alone = alone();
    let Bench { device, stream } = Bench::open()?;
    if counts(&device) {
        let calls = count_up(&device, &stream, config)?;
        assert_eq!(ways(&calls), [0, 1, u64::from(MANY)]);
        // The checker must find that launches overlap, and that this kernel does not wait for the one before.
        let mut out = DeviceBuffer::<u32>::zeroed(&stream, 64)?;
        let mut prepared = device.kernel::<bounded>()?.prepare(&stream, config.overlapping_previous())?;
        let calls = calls_of(|| {
            // SAFETY: there is one thread for each element.
            unsafe { prepared.launch((&mut out,)) }
        })?;
        assert_eq!(ways(&calls), [1, 0, 0]);
    }
    Ok(())
}

#[test]
fn an_error_names_the_call_and_the_next_launch_works() -> Result<()> {
    testkit::own_process!();
    for function in ["cuGraphExecKernelNodeSetParams", "cuGraphLaunch"] {
        let _alone = alone();
        let Bench { device, stream } = Bench::open()?;
        let mut out = DeviceBuffer::<u32>::zeroed(&stream, 64)?;
        let mut prepared = device.kernel::<bounded>()?.prepare(&stream, LaunchConfig::linear(64, 64))?;
        // SAFETY: there is one thread for each element.
        let mut count_up = || unsafe { prepared.launch((&mut out,)) };
        count_up()?;
        inject(Rule { function, nth: 1, code: code::INVALID_VALUE, times: Times::Once })
            .expect("a rule that fits");
        let error = count_up().expect_err("the call fails");
        assert!(error.driver_error().is_some_and(|error| error.function == function), "{error}");
        count_up()?;
        assert_eq!(out.to_vec(&stream)?, [2; 64], "{function}");
    }
    Ok(())
}

#[test]
fn a_plain_launch_is_one_call_however_often_it_comes() -> Result<()> {
    testkit::own_process!();
    let _alone = alone();
    let Bench { device, stream } = Bench::open()?;
    let mut out = DeviceBuffer::<u32>::zeroed(&stream, 64)?;
    let calls = calls_of(|| {
        // SAFETY: there is one thread for each element.
        (0..MANY).try_for_each(|_| unsafe {
            launch::<bounded>(&stream, LaunchConfig::linear(64, 64), (&mut out,))
        })
    })?;
    assert_eq!(out.to_vec(&stream)?, [MANY; 64]);
    assert!(!counts(&device) || ways(&calls) == [u64::from(MANY), 0, 0], "{calls:?}");
    Ok(())
}
