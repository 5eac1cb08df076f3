//! A kernel that dies inside a graph: the error names the graph and its line. A process of its own, since the
//! device is lost to it.

use crate::common::{Bench, kernels};
use ironwarp::graph::Graph;
use ironwarp::{DeviceBuffer, Error, LaunchConfig, Result};

#[test]
fn a_graph_that_dies_is_named() -> Result<()> {
    testkit::own_process!();
    let Bench { device, stream } = Bench::open()?;
    let config = LaunchConfig::linear(64, 32);
    let line = line!() + 1;
    let mut graph = Graph::capture(&stream, DeviceBuffer::<f32>::zeroed(&stream, 64)?, |stream, x| {
        // SAFETY: 64 elements; the other kernel dies and touches nothing.
        unsafe {
            ironwarp::launch::<kernels::fill>(stream, config, (64u32, 1.0, &mut *x))?;
            ironwarp::launch::<kernels::die>(stream, config, ())
        }
    })?;
    // Captured launches are no suspects.
    stream.synchronize()?;
    graph.replay(&stream)?;
    let error = stream.synchronize().expect_err("the kernel died");
    let Error::Sticky { first } = &error else { panic!("{error:?}") };
    let culprit = first.suspects.culprit().expect("the only launch");
    assert_eq!((culprit.kernel, culprit.config), ("graph of 2 launches", None));
    assert_eq!((culprit.location.file(), culprit.location.line()), (file!(), line));
    // A dead device refuses, and nothing panics.
    assert!(graph.replay(&stream).is_err());
    assert!(graph.update(&stream, |_, _| Ok(())).is_err());
    assert!(Graph::capture(&stream, (), |_, ()| Ok(())).is_err());
    drop((graph, stream, device));
    Ok(())
}
