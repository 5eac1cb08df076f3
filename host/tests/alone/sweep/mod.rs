//! The scenarios of the sweep: each opens the device, uses one part of the library, checks the results, and
//! drops everything.

mod allocator;
mod graphs;
mod ops;
mod streams;
mod tensors;
mod training;

use ironwarp::{
    Device, DeviceBuffer, Error, Event, LaunchConfig, Module, PinnedBuffer, Result, Stream, launch,
};

use crate::common::kernels::{bounded, fill, last_of_dynamic_shared, scale};
use crate::common::{Bench, load_kernels};

pub struct Scenario {
    pub name: &'static str,
    pub run: fn() -> Result<()>,
    /// The number of drops that put a free behind the work of another stream.
    pub frees_behind: u64,
    /// Further calls whose failure does no harm here: function, number of calls, reason.
    pub harmless: &'static [(&'static str, u64, &'static str)],
}

impl Scenario {
    const fn new(name: &'static str, run: fn() -> Result<()>) -> Self {
        Scenario { name, run, frees_behind: 0, harmless: &[] }
    }
}

pub const SCENARIOS: &[Scenario] = &[
    Scenario::new("open", open),
    Scenario::new("memory", memory),
    Scenario {
        harmless: &[("cuMemAlloc_v2", 3, "it is refused in any case")],
        ..Scenario::new("exhaustion", exhaustion)
    },
    Scenario { frees_behind: 1, ..Scenario::new("reuse", allocator::reuse) },
    Scenario::new("trim", allocator::trim),
    Scenario::new("limit", allocator::limit),
    Scenario { frees_behind: 1, ..Scenario::new("pinned", pinned) },
    Scenario { frees_behind: 1, ..Scenario::new("order", order) },
    Scenario::new("events", events),
    Scenario::new("streams", streams::pool_and_scope),
    Scenario::new("overlap", streams::overlap),
    Scenario {
        frees_behind: 1,
        harmless: &[
            ("cuStreamEndCapture", 1, "it ends a capture that has failed already"),
            ("cuStreamSynchronize", 2, "a graph that is dropped waits for its last run"),
            ("cuCtxSetCurrent", 2, "before those waits"),
        ],
        ..Scenario::new("graphs", graphs::capture)
    },
    Scenario {
        harmless: &[
            ("cuStreamSynchronize", 1, "a graph that is dropped waits for its last run"),
            ("cuCtxSetCurrent", 1, "before that wait"),
        ],
        ..Scenario::new("graph cache", graphs::cache)
    },
    Scenario::new("launches", launches),
    Scenario {
        harmless: &[
            ("cuGraphCreate", 1, "without a graph a launch goes the usual way"),
            ("cuGraphAddKernelNode", 1, "as above"),
            ("cuGraphInstantiateWithFlags", 1, "as above"),
            ("cuStreamSynchronize", 1, "a prepared launch that is dropped waits for its last run"),
            ("cuCtxSetCurrent", 1, "before that wait"),
        ],
        ..Scenario::new("prepared", prepared)
    },
    Scenario::new("by name", by_name),
    Scenario::new("cust", with_cust),
    Scenario::new("basic ops", ops::basic),
    Scenario::new("gemm", ops::gemm),
    Scenario::new("matmul", ops::matmul),
    Scenario::new("matmul, else", ops::matmul_elsewhere),
    Scenario::new("cosine", ops::cosine),
    Scenario::new("cosine, many", ops::cosine_many),
    Scenario::new("tensors", tensors::chain),
    Scenario::new("tensor files", tensors::files),
    Scenario::new("training", training::step),
];

fn open() -> Result<()> {
    let device = Device::open(0)?;
    assert!(device.memory_info()?.total > 0);
    let stack = device.stack_limit()?;
    device.set_stack_limit(stack)?;
    device.stream()?.synchronize()
}

fn memory() -> Result<()> {
    let (_device, stream) = plain()?;
    let x = DeviceBuffer::from_slice(&stream, &[1u32, 2, 3, 4])?;
    let mut y = DeviceBuffer::<u32>::zeroed(&stream, 4)?;
    y.copy_from_device(&stream, &x)?;
    y.slice_mut(1..3)?.fill_zero(&stream)?;
    assert_eq!(y.to_vec(&stream)?, [1, 0, 0, 4]);
    Ok(())
}

/// The path of a refused allocation.
fn exhaustion() -> Result<()> {
    let (device, stream) = plain()?;
    let asked = 4 * device.memory_info()?.total;
    match DeviceBuffer::<u8>::zeroed(&stream, asked) {
        Err(Error::OutOfMemory(error)) if error.requested == asked => Ok(()),
        Err(other) => Err(other),
        Ok(_) => panic!("more memory than there is"),
    }
}

fn pinned() -> Result<()> {
    let (device, stream) = plain()?;
    let other = device.stream()?;
    let from = PinnedBuffer::from_slice(&device, &[1u32, 2, 3])?;
    let buffer = DeviceBuffer::from_pinned(&stream, &from)?;
    let mut to = PinnedBuffer::<u32>::zeroed(&device, 3)?;
    buffer.copy_into_pinned(&other, &mut to)?;
    assert_eq!(to.as_slice()?, [1, 2, 3]);
    // Dropped with a copy under way.
    buffer.copy_into_pinned(&stream, &mut to)
}

/// A buffer that goes from stream to stream and is dropped while several use it.
fn order() -> Result<()> {
    let Bench { device, stream } = Bench::open()?;
    let other = device.stream()?;
    let mut x = DeviceBuffer::<f32>::zeroed(&stream, 64)?;
    let mut y = DeviceBuffer::<f32>::zeroed(&other, 64)?;
    // SAFETY: both have 64 elements.
    unsafe {
        launch::<fill>(&stream, LaunchConfig::linear(64, 32), (64u32, 2.0, &mut x))?;
        launch::<scale>(&other, LaunchConfig::linear(64, 32), (3.0, &x, &mut y))?;
        launch::<fill>(&stream, LaunchConfig::linear(64, 32), (64u32, 0.0, &mut x))?;
        launch::<scale>(&other, LaunchConfig::linear(64, 32), (1.0, &x, None::<&mut DeviceBuffer<f32>>))?;
    }
    drop(x);
    assert_eq!(y.to_vec(&other)?, [6.0; 64]);
    Ok(())
}

fn events() -> Result<()> {
    let (device, stream) = plain()?;
    let (start, end) = (Event::new(&device)?, Event::new(&device)?);
    stream.record(&start)?;
    stream.record(&end)?;
    assert!(Event::elapsed_ms(&start, &end)? >= 0.0);
    assert!(end.is_reached()?);
    stream.synchronize()?;
    assert!(stream.is_idle()?);
    device.synchronize()
}

fn launches() -> Result<()> {
    let Bench { device, stream } = Bench::open()?;
    let mut out = DeviceBuffer::<u32>::zeroed(&stream, 64)?;
    let bytes = device.properties().shared_per_block + 16;
    // SAFETY: the kernels stay within what they are given.
    unsafe {
        launch::<bounded>(&stream, LaunchConfig::linear(64, 64), (&mut out,))?;
        launch::<bounded>(&stream, LaunchConfig::linear(64, 64).cooperative(), (&mut out,))?;
        assert_eq!(out.to_vec(&stream)?, [2; 64]);
        let config = LaunchConfig::new([1, 1, 1], [32, 1, 1]).with_shared(bytes);
        launch::<last_of_dynamic_shared>(&stream, config, (bytes, &mut out))?;
    }
    assert_eq!(out.slice(..1)?.to_vec(&stream)?, [7]);
    Ok(())
}

fn prepared() -> Result<()> {
    let Bench { device, stream } = Bench::open()?;
    let mut out = DeviceBuffer::<f32>::zeroed(&stream, 64)?;
    let mut prepared = device.kernel::<fill>()?.prepare(&stream, LaunchConfig::linear(64, 32))?;
    for value in [1.0, 2.0] {
        // SAFETY: 64 elements.
        unsafe { prepared.launch((64u32, value, &mut out))? };
    }
    assert_eq!(out.to_vec(&stream)?, [2.0; 64]);
    Ok(())
}

fn by_name() -> Result<()> {
    let Bench { device, .. } = Bench::open()?;
    let module = load_kernels(&device)?;
    assert!(module.function("fill")?.attributes().max_threads_per_block > 0);
    // Expected errors, with the driver's texts.
    match module.function("no_such_kernel") {
        Err(Error::NoSuchKernel { source, .. }) if source.code == driver::code::NOT_FOUND as i32 => {}
        Err(other) => return Err(other),
        Ok(_) => panic!("a kernel that is not there"),
    }
    match Module::from_ptx(&device, "this is no PTX") {
        Err(Error::InvalidModule { source, .. })
            if source.code != driver::code::INVALID_VALUE as i32 && !source.is_sticky() =>
        {
            Ok(())
        }
        Err(other) => Err(other),
        Ok(_) => panic!("a module of nothing"),
    }
}

fn with_cust() -> Result<()> {
    let (_device, stream) = plain()?;
    let theirs = DeviceBuffer::from_slice(&stream, &[1u32, 2, 3])?.into_cust()?;
    // SAFETY: it comes from this device, and nothing uses it.
    let ours = unsafe { DeviceBuffer::from_cust(&stream, theirs) };
    assert_eq!(ours.to_vec(&stream)?, [1, 2, 3]);
    Ok(())
}

fn plain() -> Result<(Device, Stream)> {
    let device = Device::open(0)?;
    let stream = device.stream()?;
    Ok((device, stream))
}
