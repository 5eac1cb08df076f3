//! Small launches that repeat go by graphs: nothing but their cost may show it. What the driver is asked for is counted where that can
//! be, on the software driver.

use std::collections::BTreeMap;

use crate::common::Bench;
use crate::common::kernels::{bounded, fill, scale};
use driver::code;
use driver::fault::{Rule, Scope, Times, inject, scoped};
use ironwarp::graph::Graph;
use ironwarp::ops::saxpy::saxpy;
use ironwarp::{Device, DeviceBuffer, LaunchConfig, Result, Stream, launch};

/// More launches than it takes until one goes by a graph.
const MANY: u32 = 100;

/// Counts of calls are the whole process's: one test at a time.
fn alone() -> Scope {
    scoped(&[]).expect("no rules fit")
}

/// How often each driver function is called by `work`; nothing where calls are not counted.
fn calls_of(work: impl FnOnce() -> Result<()>) -> Result<BTreeMap<&'static str, u64>> {
    let before: BTreeMap<_, _> = driver::fault::calls().into_iter().collect();
    work()?;
    let after = driver::fault::calls();
    Ok(after.into_iter().map(|(f, n)| (f, n - before.get(f).copied().unwrap_or(0))).collect())
}

/// Of these calls, how many launched a kernel, made a graph, and launched a graph.
fn ways(calls: &BTreeMap<&'static str, u64>) -> [u64; 3] {
    let made = |function| calls.get(function).copied().unwrap_or(0);
    let kernels = ["cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchCooperativeKernel"].map(made);
    [kernels.iter().sum(), made("cuGraphInstantiateWithFlags"), made("cuGraphLaunch")]
}

fn counts(device: &Device) -> bool {
    device.is_software()
}

/// Adds 1 to every element, `times` times.
fn count_up(stream: &Stream, config: LaunchConfig, out: &mut DeviceBuffer<u32>, times: u32) -> Result<()> {
    // SAFETY: no more than a thread an element, and the kernel looks at its length.
    (0..times).try_for_each(|_| unsafe { launch::<bounded>(stream, config, (&mut *out,)) })
}

#[test]
fn arguments_are_those_of_each_launch() -> Result<()> {
    testkit::own_process!();
    let _alone = alone();
    let Bench { device, stream } = Bench::open()?;
    let x: Vec<f32> = (0..100).map(|i| i as f32).collect();
    let x = DeviceBuffer::from_slice(&stream, &x)?;
    let mut ys: Vec<DeviceBuffer<f32>> =
        (0..MANY).map(|_| DeviceBuffer::zeroed(&stream, 100)).collect::<Result<_>>()?;
    let calls = calls_of(|| {
        for (factor, y) in ys.iter_mut().enumerate() {
            // SAFETY: both have 100 elements.
            unsafe { launch::<scale>(&stream, LaunchConfig::linear(100, 64), (factor as f32, &x, y))? };
        }
        Ok(())
    })?;
    for (factor, y) in ys.iter().enumerate() {
        let got = y.to_vec(&stream)?;
        assert!(got.iter().enumerate().all(|(i, &v)| v == (factor * i) as f32), "launch {factor}");
    }
    let [kernels, made, graphs] = ways(&calls);
    if counts(&device) {
        assert_eq!((kernels + graphs, made), (u64::from(MANY), 1));
        assert!(graphs > kernels, "{kernels} kernels, {graphs} graphs");
    }
    Ok(())
}

#[test]
fn launches_that_are_not_small_go_the_usual_way() -> Result<()> {
    testkit::own_process!();
    let _alone = alone();
    let Bench { device, stream } = Bench::open()?;
    let properties = device.properties();
    let small = LaunchConfig::linear(128, 64);
    // The last of these fills half of the device's threads; blocks have 64, and most find nothing to do.
    let blocks = properties.sm_count * 16;
    let mut configs = vec![
        (small.cooperative(), false),
        (small.with_shared(properties.shared_per_block + 16), false),
        (LaunchConfig::new([blocks + 1, 1, 1], [64, 1, 1]), false),
        (LaunchConfig::new([blocks, 1, 1], [64, 1, 1]), true),
    ];
    if properties.clusters {
        configs.push((small.cluster([2, 1, 1]), false));
    }
    for (config, by_graph) in configs {
        let stream = device.stream()?;
        let mut out = DeviceBuffer::<u32>::zeroed(&stream, 128)?;
        let calls = calls_of(|| count_up(&stream, config, &mut out, MANY))?;
        assert_eq!(out.to_vec(&stream)?, [MANY; 128], "{config}");
        assert!(!counts(&device) || (ways(&calls)[2] > 0) == by_graph, "{config}: {calls:?}");
    }
    // Nor do those that stand between them, nor kernels that a program has found by name and may unload.
    let mut out = DeviceBuffer::<u32>::zeroed(&stream, 128)?;
    let calls = calls_of(|| {
        (0..MANY).try_for_each(|_| {
            count_up(&stream, small, &mut out, 10)?;
            count_up(&stream, small.cooperative(), &mut out, 1)
        })
    })?;
    assert_eq!(out.to_vec(&stream)?, [11 * MANY; 128]);
    assert_eq!(ways(&calls)[2], 0);
    // Nor, on the software driver, those that overlap: its checker wants to see that.
    let (x, mut y) = (DeviceBuffer::zeroed(&stream, 8)?, DeviceBuffer::zeroed(&stream, 8)?);
    let calls = calls_of(|| (0..MANY).try_for_each(|_| saxpy(&stream, 1.0, &x, &mut y)))?;
    assert_eq!(ways(&calls)[2], 0);
    let function = crate::common::load_kernels(&device)?.function("bounded")?;
    let calls = calls_of(|| {
        // SAFETY: the kernel's parameters, and a thread an element.
        (0..MANY).try_for_each(|_| unsafe {
            function.launch::<(cuda_std::kernel::SliceMut<u32>,)>(&stream, small, (&mut out,))
        })
    })?;
    assert_eq!(out.to_vec(&stream)?, [12 * MANY; 128]);
    assert_eq!(ways(&calls)[2], 0);
    Ok(())
}

#[test]
fn graphs_are_few_and_change_hands() -> Result<()> {
    testkit::own_process!();
    let _alone = alone();
    let Bench { device, stream } = Bench::open()?;
    let mut out = DeviceBuffer::<u32>::zeroed(&stream, 64)?;
    // More launches in turn than are kept.
    const KINDS: u32 = 40;
    let mut in_turn = |first: u32, rounds: u32| {
        let out = &mut out;
        calls_of(|| {
            (0..rounds).try_for_each(|_| {
                stream.synchronize()?;
                (first..first + KINDS).try_for_each(|kind| {
                    count_up(&stream, LaunchConfig::linear(64, 64).with_shared(16 * kind), out, 1)
                })
            })
        })
    };
    let calls = in_turn(1, MANY)?;
    let later = in_turn(1, 10)?;
    // Others take over, once these are not seen any more and nothing runs.
    let others = in_turn(1 + KINDS, 2 * MANY)?;
    assert_eq!(out.to_vec(&stream)?, [KINDS * (3 * MANY + 10); 64]);
    if counts(&device) {
        let [kernels, made, graphs] = ways(&calls);
        assert_eq!((kernels + graphs, made), (u64::from(KINDS * MANY), 32));
        let [kernels, made, graphs] = ways(&later);
        assert_eq!((kernels, made, graphs), (80, 0, 320));
        let [_, made, graphs] = ways(&others);
        assert!(graphs > 0 && others["cuGraphExecDestroy"] == made, "{others:?}");
    }
    Ok(())
}

#[test]
fn streams_take_their_graphs_along() -> Result<()> {
    testkit::own_process!();
    let _alone = alone();
    let Bench { device, stream } = Bench::open()?;
    let config = LaunchConfig::linear(64, 64);
    let mut out = DeviceBuffer::<u32>::zeroed(&stream, 64)?;
    // Dropped with launches under way: one that goes, and one that is the next user's.
    let calls = calls_of(|| {
        count_up(&device.stream()?, config, &mut out, MANY)?;
        for _ in 0..10 {
            count_up(&device.pooled_stream()?, config, &mut out, MANY)?;
            // The buffer now remembers this stream, and the pool has the other one.
            count_up(&stream, config, &mut out, 1)?;
            device.synchronize()?;
        }
        Ok(())
    })?;
    assert_eq!(out.to_vec(&stream)?, [11 * MANY + 10; 64]);
    if counts(&device) {
        assert_eq!((ways(&calls)[1], calls["cuGraphExecDestroy"]), (2, 1));
    }
    Ok(())
}

#[test]
fn threads_may_share_a_stream() -> Result<()> {
    testkit::own_process!();
    let _alone = alone();
    let Bench { device: _device, stream } = Bench::open()?;
    let totals: Vec<u32> = std::thread::scope(|threads| {
        let running: Vec<_> = (1..=4)
            .map(|factor| {
                let stream = stream.clone();
                threads.spawn(move || {
                    // The same kernel with other arguments, by all of them at once.
                    let mut out = DeviceBuffer::<f32>::zeroed(&stream, 64)?;
                    for step in 1..=MANY {
                        let value = (factor * step) as f32;
                        // SAFETY: 64 elements.
                        unsafe {
                            launch::<fill>(&stream, LaunchConfig::linear(64, 64), (64u32, value, &mut out))?;
                        }
                        if step % 10 == 0 {
                            assert_eq!(out.to_vec(&stream)?, [value; 64], "thread {factor}");
                        }
                    }
                    Ok(factor)
                })
            })
            .collect();
        running.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Result<_>>()
    })?;
    assert_eq!(totals, [1, 2, 3, 4]);
    Ok(())
}

#[test]
fn a_capture_takes_the_kernel_itself() -> Result<()> {
    testkit::own_process!();
    let _alone = alone();
    let Bench { device, stream } = Bench::open()?;
    let config = LaunchConfig::linear(64, 64);
    let mut out = DeviceBuffer::<u32>::zeroed(&stream, 64)?;
    count_up(&stream, config, &mut out, MANY)?;
    let mut graph = Graph::capture(&stream, out, |stream, out| {
        let calls = calls_of(|| count_up(stream, config, out, MANY))?;
        assert!(!counts(&device) || ways(&calls) == [u64::from(MANY), 0, 0], "{calls:?}");
        Ok(())
    })?;
    assert_eq!(graph.launches().len(), MANY as usize);
    graph.replay(&stream)?;
    count_up(&stream, config, graph.inputs_mut(), MANY)?;
    assert_eq!(graph.inputs().to_vec(&stream)?, [3 * MANY; 64]);
    Ok(())
}

#[test]
fn without_a_graph_the_launch_goes_the_usual_way() -> Result<()> {
    testkit::own_process!();
    for function in ["cuGraphCreate", "cuGraphAddKernelNode", "cuGraphInstantiateWithFlags"] {
        let _scope = scoped(&[Rule { function, nth: 1, code: code::OUT_OF_MEMORY, times: Times::Always }])
            .expect("a rule that fits");
        let Bench { stream, .. } = Bench::open()?;
        let mut out = DeviceBuffer::<u32>::zeroed(&stream, 64)?;
        let calls = calls_of(|| count_up(&stream, LaunchConfig::linear(64, 64), &mut out, MANY))?;
        assert_eq!(out.to_vec(&stream)?, [MANY; 64], "{function}");
        // Not asked for again and again.
        assert_eq!((calls[function], ways(&calls)[2]), (1, 0), "{function}");
    }
    Ok(())
}

#[test]
fn prepared_launches_go_the_usual_way_where_a_graph_cannot_be_had_or_hides_something() -> Result<()> {
    testkit::own_process!();
    let count_up = |device: &Device, stream: &Stream, config| -> Result<_> {
        let mut out = DeviceBuffer::<u32>::zeroed(stream, 64)?;
        let mut prepared = device.kernel::<bounded>()?.prepare(stream, config)?;
        // SAFETY: a thread an element.
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
        // The checker is to see that launches overlap, and that this kernel does not wait for the one before.
        let mut out = DeviceBuffer::<u32>::zeroed(&stream, 64)?;
        let mut prepared = device.kernel::<bounded>()?.prepare(&stream, config.overlapping_previous())?;
        let calls = calls_of(|| {
            // SAFETY: a thread an element.
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
        // Alone until the rule is set, too: tests that load the kernels anew make these launches others, which have no graph yet.
        let _alone = alone();
        let Bench { stream, .. } = Bench::open()?;
        let config = LaunchConfig::linear(64, 64);
        let mut out = DeviceBuffer::<u32>::zeroed(&stream, 64)?;
        count_up(&stream, config, &mut out, MANY)?;
        inject(Rule { function, nth: 1, code: code::INVALID_VALUE, times: Times::Once })
            .expect("a rule that fits");
        let error = count_up(&stream, config, &mut out, 1).expect_err("the call fails");
        assert!(error.driver_error().is_some_and(|error| error.function == function), "{error}");
        count_up(&stream, config, &mut out, 1)?;
        assert_eq!(out.to_vec(&stream)?, [MANY + 1; 64], "{function}");
    }
    Ok(())
}
