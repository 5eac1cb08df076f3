//! Graphs keep the code of their kernels. A process of its own, since it counts calls.

use crate::common::{Bench, kernels};
use cuda_std::kernel::{Kernel, PtrMut, Value};
use ironwarp::graph::{Graph, Update};
use ironwarp::{DeviceBuffer, LaunchConfig, Module, Result, Stream};

const LEN: usize = 100;

/// Modules unloaded so far; not counted on a GPU.
fn unloaded() -> u64 {
    let calls = driver::fault::calls();
    calls.into_iter().find(|(function, _)| *function == "cuModuleUnload").map_or(0, |(_, calls)| calls)
}

/// Captures a kernel of a module that has no other owner afterwards.
fn fill(stream: &Stream, value: f32, out: &mut DeviceBuffer<f32>) -> Result<()> {
    let text = kernels::PTX.replace("runtime_tests", kernels::fill::FAMILY);
    let kernel = Module::from_ptx(stream.device(), &text)?.function("fill")?;
    let config = LaunchConfig::linear(LEN, 32);
    // SAFETY: the kernel's parameters, and LEN elements.
    unsafe {
        kernel.launch::<(Value<u32>, Value<f32>, PtrMut<f32>)>(stream, config, (LEN as u32, value, out))
    }
}

#[test]
fn a_graph_keeps_the_modules_of_its_kernels() -> Result<()> {
    testkit::own_process!();
    let Bench { stream, .. } = Bench::open()?;
    let software = stream.device().is_software();
    let before = unloaded();
    let out = DeviceBuffer::<f32>::zeroed(&stream, LEN)?;
    let mut graph = Graph::capture(&stream, out, |stream, out| fill(stream, 1.0, out))?;
    assert_eq!(unloaded(), before);
    graph.replay(&stream)?;
    assert_eq!(graph.inputs().to_vec(&stream)?, [1.0; LEN]);

    // An update brings its own modules and releases the others.
    assert_eq!(graph.update(&stream, |stream, out| fill(stream, 2.0, out))?, Update::InPlace);
    assert_eq!(unloaded() - before, u64::from(software));
    graph.replay(&stream)?;
    assert_eq!(graph.inputs().to_vec(&stream)?, [2.0; LEN]);
    drop(graph);
    assert_eq!(unloaded() - before, 2 * u64::from(software));
    Ok(())
}
