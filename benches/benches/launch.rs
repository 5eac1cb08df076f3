//! The host's cost of a launch: chains of kernels of a few elements, launched eagerly and as a graph. The
//! chain that torch also runs is its `x.add_(1)`, by the op on tensors. `saxpy` shows the cost of a kernel
//! with few parameters.
//!
//! The host's clock measures from an idle device to an idle device, divided by the number of kernels. So a
//! time is the greater of the host's and the device's time from one kernel of a chain to the next. Rows that
//! end in `_call` measure only the host's part.

use std::ffi::c_void;
use std::process::ExitCode;

use basic::saxpy as kernel;
use ironwarp::graph::Graph;
use ironwarp::ops::elementwise::{BinaryOp, binary_assign};
use ironwarp::ops::saxpy::saxpy;
use ironwarp::{DeviceBuffer, LaunchConfig, Stream, Tensor, launch};
use ironwarp_benches::{Outcome, Session, Work};
use serde_json::{Value, json};

/// Elements of the vectors: one block.
const ELEMENTS: usize = 1024;
/// Kernels in the chain.
const CHAIN: u64 = 1000;
/// The same on the software driver.
const SMALL_CHAIN: u64 = 50;

fn main() -> ExitCode {
    Session::run("launch", |session| {
        let kernels = if session.small() { SMALL_CHAIN } else { CHAIN };
        bench_eager(session)?;
        bench_add(session)?;
        bench_handle(session)?;
        bench_plain(session)?;
        bench_prepared(session)?;
        bench_graph(session, "launch_replay", 1)?;
        bench_graph(session, "launch_graph", kernels)?;
        bench_add_graph(session, kernels)
    })
}

/// torch's chain of in-place additions.
fn torch(op: &str, kernels: u64) -> [Value; 1] {
    [json!({ "prepare": format!("system.{op}"), "elements": ELEMENTS, "kernels": kernels })]
}

/// `x`, all 1, and `y`, all 0.
fn vectors(session: &Session) -> ironwarp::Result<(DeviceBuffer<f32>, DeviceBuffer<f32>)> {
    let stream = &session.stream;
    Ok((DeviceBuffer::from_slice(stream, &[1.0; ELEMENTS])?, DeviceBuffer::zeroed(stream, ELEMENTS)?))
}

/// The sum of `runs` additions of 1 counts the runs, as long as it is exact.
fn check(what: &str, y: &[f32], runs: u64) -> Outcome {
    const EXACT: u64 = 1 << f32::MANTISSA_DIGITS;
    let want = runs.min(EXACT) as f32;
    if y.iter().all(|&sum| sum == want) { Ok(()) } else { Err(format!("{what}: not {want} runs").into()) }
}

/// `x`, all 0, and a 1 that is added to each of its elements.
fn tensors(session: &Session) -> ironwarp::Result<(Tensor, Tensor)> {
    let stream = &session.stream;
    let zeros = Tensor::from_slice(stream, &[ELEMENTS], &[0.0f32; ELEMENTS])?;
    Ok((zeros, Tensor::from_slice(stream, &[1], &[1.0f32])?))
}

/// `x += 1`.
fn add(stream: &Stream, x: &mut Tensor, one: &Tensor) -> ironwarp::Result<()> {
    binary_assign(stream, BinaryOp::Add, x.view_mut()?, one)
}

/// Measures the rows `name` and `name_call`. Returns the number of runs.
fn measure(
    session: &mut Session,
    name: &str,
    peers: &[Value],
    mut run: impl FnMut() -> ironwarp::Result<()>,
) -> Outcome<u64> {
    let mut count = 0;
    let mut run = |runs: u64| {
        count += runs;
        (0..runs).try_for_each(|_| run())
    };
    let (shape, work) = ("1 kernel", Work::Calls(1));
    session.measure_host(name, shape, work, peers, &mut run)?;
    session.measure_calls(&format!("{name}_call"), shape, work, &mut run)?;
    Ok(count)
}

/// Through the op, with all of its checks.
fn bench_eager(session: &mut Session) -> Outcome {
    if !session.wants("launch_eager") {
        return Ok(());
    }
    let (x, mut y) = vectors(session)?;
    let stream = session.stream.clone();
    let count = measure(session, "launch_eager", &[], || saxpy(&stream, 1.0, &x, &mut y))?;
    check("launch_eager", &y.to_vec(&stream)?, count)
}

/// Through the op on tensors.
fn bench_add(session: &mut Session) -> Outcome {
    if !session.wants("launch_add_eager") {
        return Ok(());
    }
    let (mut x, one) = tensors(session)?;
    let stream = session.stream.clone();
    let peers = torch("chain_eager", 1);
    let count = measure(session, "launch_add_eager", &peers, || add(&stream, &mut x, &one))?;
    check("launch_add_eager", &x.to_vec(&stream)?, count)
}

/// The launch configuration of `saxpy`.
fn config() -> LaunchConfig {
    LaunchConfig::new([kernel::blocks(ELEMENTS) as u32, 1, 1], [kernel::THREADS, 1, 1])
}

/// Through a kernel handle and addresses, the least that ironwarp does for a launch: as it is, and as kernels
/// are launched that are not small, one after the other and overlapping.
fn bench_handle(session: &mut Session) -> Outcome {
    let shared = session.device.properties().shared_per_block + 1;
    let large = config().with_shared(shared);
    let rows = [
        ("launch_handle", config()),
        ("launch_large", large),
        ("launch_large_overlap", large.overlapping_previous()),
    ];
    for (name, config) in rows {
        if !session.wants(name) {
            continue;
        }
        let (x, y) = vectors(session)?;
        let (stream, to) = (session.stream.clone(), y.as_ptr());
        let handle = session.device.kernel::<kernel::saxpy>()?;
        // SAFETY: grid and block match the kernel; both have ELEMENTS elements; nothing else uses `y`.
        let run = || unsafe { handle.launch(&stream, config, (1.0, &x, to)) };
        let count = measure(session, name, &[], run)?;
        check(name, &y.to_vec(&stream)?, count)?;
    }
    Ok(())
}

/// `cuLaunchKernel`, as CUDA declares it.
type CuLaunchKernel = unsafe extern "C" fn(
    *mut c_void,
    u32,
    u32,
    u32,
    u32,
    u32,
    u32,
    u32,
    *mut c_void,
    *mut *mut c_void,
    *mut *mut c_void,
) -> i32;

/// A plain launch beside a bare loop of the driver's own call: the same kernel, configuration and parameters,
/// alternating sample by sample. Only the host's part is measured. Each uses its own stream. We pass `x` and
/// `y` as buffers; the loop passes addresses.
fn bench_plain(session: &mut Session) -> Outcome {
    if !session.wants("launch_plain_call") {
        return Ok(());
    }
    let (x, mut y) = vectors(session)?;
    let (_, bare_y) = vectors(session)?;
    let stream = session.stream.clone();
    let bare_stream = session.device.stream()?;
    let function = session.device.kernel::<kernel::saxpy>()?.function();
    let address = driver::proc_address("cuLaunchKernel").ok_or("no cuLaunchKernel")?;
    // SAFETY: the driver's function of that name has this type.
    let bare_launch = unsafe { std::mem::transmute::<*const c_void, CuLaunchKernel>(address) };
    let ([grid, ..], [block, ..]) = (config().grid, config().block);
    let (queue, handle) = (bare_stream.raw().cast(), function.raw().cast());
    let (mut a, mut from, mut len, mut to) = (1.0f32, x.as_ptr().raw(), x.len(), bare_y.as_ptr().raw());
    let mut values: [*mut c_void; 4] =
        [(&raw mut a).cast(), (&raw mut from).cast(), (&raw mut len).cast(), (&raw mut to).cast()];
    let (mut count, mut bare_count) = (0, 0);
    let ours = |runs: u64| {
        count += runs;
        // SAFETY: grid and block match the kernel; both have ELEMENTS elements.
        (0..runs).try_for_each(|_| unsafe { launch::<kernel::saxpy>(&stream, config(), (1.0, &x, &mut y)) })
    };
    let bare = |runs: u64| {
        bare_count += runs;
        for _ in 0..runs {
            // SAFETY: a loaded function, a live stream, and the values of its parameters; the rest as above.
            let code = unsafe {
                bare_launch(
                    handle,
                    grid,
                    1,
                    1,
                    block,
                    1,
                    1,
                    0,
                    queue,
                    values.as_mut_ptr(),
                    std::ptr::null_mut(),
                )
            };
            assert_eq!(code, 0, "cuLaunchKernel");
        }
        Ok(())
    };
    session.measure_calls_beside(
        "launch_plain_call",
        "1 kernel",
        Work::Calls(1),
        ours,
        ("cuLaunchKernel", bare),
    )?;
    check("launch_plain_call", &y.to_vec(&stream)?, count)?;
    check("cuLaunchKernel", &bare_y.to_vec(&bare_stream)?, bare_count)
}

/// Through a prepared kernel.
fn bench_prepared(session: &mut Session) -> Outcome {
    if !session.wants("launch_prepared") {
        return Ok(());
    }
    let (x, y) = vectors(session)?;
    let (stream, to) = (session.stream.clone(), y.as_ptr());
    let mut prepared = session.device.kernel::<kernel::saxpy>()?.prepare(&stream, config())?;
    // SAFETY: grid and block match the kernel; both have ELEMENTS elements; nothing else uses `y`.
    let run = || unsafe { prepared.launch((1.0, &x, to)) };
    let count = measure(session, "launch_prepared", &[], run)?;
    check("launch_prepared", &y.to_vec(&stream)?, count)
}

/// Replays a graph of `kernels` kernels. A graph of one shows the cost of a prepared launch.
fn bench_graph(session: &mut Session, name: &str, kernels: u64) -> Outcome {
    if !session.wants(name) {
        return Ok(());
    }
    let stream = session.stream.clone();
    let mut graph = Graph::capture(&stream, vectors(session)?, |stream, (x, y)| {
        (0..kernels).try_for_each(|_| saxpy(stream, 1.0, &*x, &mut *y))
    })?;
    let count = measure_replays(session, name, kernels, &[], &mut graph)?;
    check(name, &graph.inputs().1.to_vec(&stream)?, kernels * count)
}

fn bench_add_graph(session: &mut Session, kernels: u64) -> Outcome {
    if !session.wants("launch_add_graph") {
        return Ok(());
    }
    let stream = session.stream.clone();
    let mut graph = Graph::capture(&stream, tensors(session)?, |stream, (x, one)| {
        (0..kernels).try_for_each(|_| add(stream, x, one))
    })?;
    let peers = torch("chain_graph", kernels);
    let count = measure_replays(session, "launch_add_graph", kernels, &peers, &mut graph)?;
    check("launch_add_graph", &graph.inputs().0.to_vec(&stream)?, kernels * count)
}

/// Measures replays of a graph of `kernels` kernels. Returns the number of replays.
fn measure_replays<I, O>(
    session: &mut Session,
    name: &str,
    kernels: u64,
    peers: &[Value],
    graph: &mut Graph<I, O>,
) -> Outcome<u64> {
    let (stream, mut count) = (session.stream.clone(), 0);
    let shape = if kernels == 1 { "1 kernel".to_owned() } else { format!("{kernels} kernels") };
    session.measure_host(name, &shape, Work::Calls(kernels), peers, |replays| {
        count += replays;
        (0..replays).try_for_each(|_| graph.replay(&stream))
    })?;
    Ok(count)
}
