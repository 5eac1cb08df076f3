//! The memory of graphs that are gone serves later ones, also while memory is short.

use crate::common::{Bench, expect_error};
use ironwarp::graph::Graph;
use ironwarp::{DeviceBuffer, Error, Result, Stream, with_oom_retry};

const MIB: usize = 1 << 20;
/// Room for four small segments.
const LIMIT: usize = 8 * MIB;
/// More than the limit has room for, if each round kept a segment.
const ROUNDS: usize = 300;

type Bytes = DeviceBuffer<u8>;
type Bound<'a> = Graph<'a, (), Bytes>;

fn limited(bytes: usize) -> Result<Bench> {
    let bench = Bench::open()?;
    bench.device.trim_pool()?;
    bench.device.set_memory_limit(Some(bytes));
    Ok(bench)
}

/// A graph that copies a workspace to its output, both of its own memory.
fn captured(stream: &Stream, bytes: usize) -> Result<Bound<'static>> {
    Graph::capture(stream, (), move |stream, ()| {
        let workspace = Bytes::zeroed(stream, bytes)?;
        let mut output = Bytes::zeroed(stream, bytes)?;
        output.copy_from_device(stream, &workspace)?;
        Ok(output)
    })
}

#[test]
fn a_dropped_graph_gives_its_memory_back() -> Result<()> {
    testkit::own_process!();
    let Bench { device, stream } = limited(LIMIT)?;
    for round in 0..ROUNDS {
        let mut graph = captured(&stream, 4096)?;
        graph.replay(&stream)?;
        if round % 3 == 0 {
            assert_eq!(graph.outputs().to_vec(&stream)?, [0; 4096]);
        }
    }
    let stats = device.memory_stats();
    assert_eq!(stats.live, 0, "{stats:?}");
    assert!(stats.reserved <= 4 * MIB as u64, "{stats:?}");
    Ok(())
}

/// Inside a capture nobody can wait for the device: what other streams have finished with is given back.
#[test]
fn memory_is_given_back_during_a_capture() -> Result<()> {
    testkit::own_process!();
    let Bench { device, stream } = limited(LIMIT)?;
    let other = device.stream()?;
    drop(Bytes::zeroed(&other, 3 * MIB)?);
    let kept = device.memory_stats().reserved;
    let graph = Graph::capture(&stream, (), |stream, ()| {
        device.trim_pool()?;
        assert!(device.memory_stats().reserved < kept, "{:?}", device.memory_stats());
        let (batch, buffer) = with_oom_retry(&device, 4, |batch| Bytes::zeroed(stream, batch * 3 * MIB))?;
        assert_eq!(batch, 2);
        Ok(buffer)
    })?;
    drop(graph);
    Ok(())
}

#[test]
fn a_graph_that_was_never_replayed_gives_its_memory_back_too() -> Result<()> {
    testkit::own_process!();
    let Bench { device, stream } = limited(LIMIT)?;
    for _ in 0..ROUNDS {
        captured(&stream, 4096)?;
    }
    assert!(device.memory_stats().reserved <= 4 * MIB as u64);
    Ok(())
}

#[test]
fn graphs_that_are_updated_keep_no_more_than_they_use() -> Result<()> {
    testkit::own_process!();
    let Bench { device, stream } = limited(LIMIT)?;
    let mut graph = captured(&stream, 4096)?;
    for _ in 0..ROUNDS {
        graph.update(&stream, |stream, ()| {
            let mut output = Bytes::zeroed(stream, 4096)?;
            output.copy_from_device(stream, &Bytes::zeroed(stream, 4096)?)?;
            Ok(output)
        })?;
        graph.replay(&stream)?;
    }
    assert!(device.memory_stats().reserved <= 6 * MIB as u64);
    Ok(())
}

/// The output of a graph stays while the owner keeps it, and only the rest serves later graphs.
#[test]
fn an_output_outlives_its_graph() -> Result<()> {
    testkit::own_process!();
    let Bench { device, stream } = limited(LIMIT)?;
    let other = device.stream()?;
    let source = Bytes::from_slice(&stream, &[7; 4096])?;
    let mut kept: Vec<Bytes> = Vec::new();
    for round in 0..ROUNDS {
        let mut graph = Graph::capture(&stream, None, |stream, kept| {
            let workspace = Bytes::zeroed(stream, 4096)?;
            let mut output = Bytes::zeroed(stream, 4096)?;
            output.copy_from_device(stream, &workspace)?;
            output.copy_from_device(stream, &source)?;
            *kept = Some(output);
            Ok(())
        })?;
        graph.replay(if round % 2 == 0 { &stream } else { &other })?;
        kept.extend(graph.inputs_mut().take());
        if kept.len() > 10 {
            assert_eq!(kept.remove(0).to_vec(&other)?, [7; 4096], "round {round}");
        }
    }
    assert!(device.memory_stats().reserved <= 6 * MIB as u64);
    Ok(())
}

/// Replays of several threads, each with graphs of its own.
#[test]
fn threads_pass_the_memory_of_graphs_on() -> Result<()> {
    testkit::own_process!();
    let Bench { device, .. } = Bench::open()?;
    let work = |value: u8| -> Result<()> {
        let stream = device.stream()?;
        let source = Bytes::from_slice(&stream, &[value; 1000])?;
        for _ in 0..50 {
            let mut graph = Graph::capture(&stream, (), |stream, ()| {
                let mut one = Bytes::zeroed(stream, 1000)?;
                one.copy_from_device(stream, &source)?;
                let mut two = Bytes::zeroed(stream, 1000)?;
                two.copy_from_device(stream, &one)?;
                Ok(two)
            })?;
            graph.replay(&stream)?;
            graph.replay(&stream)?;
            assert_eq!(graph.outputs().to_vec(&stream)?, [value; 1000]);
        }
        Ok(())
    };
    std::thread::scope(|threads| {
        let running: Vec<_> = (1..5).map(|value| threads.spawn(move || work(value))).collect();
        running.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })
}

/// Inside a capture the device cannot be waited for. The memory of graphs that are gone is given back all
/// the same.
#[test]
fn a_capture_at_the_limit_gets_what_dropped_graphs_had() -> Result<()> {
    testkit::own_process!();
    let Bench { device, stream } = limited(40 * MIB)?;
    let mut several = [captured(&stream, 5 * MIB)?, captured(&stream, 4096)?, captured(&stream, 4096)?];
    several.iter_mut().try_for_each(|graph| graph.replay(&stream))?;
    drop(several);
    let before = device.memory_stats();
    // Its one segment fits only when the other three are gone.
    let mut large = Graph::capture(&stream, (), |stream, ()| Bytes::zeroed(stream, 39 * MIB))?;
    large.replay(&stream)?;
    assert_eq!(large.outputs().to_vec(&stream)?, vec![0; 39 * MIB]);
    let after = device.memory_stats();
    assert!(after.releases >= before.releases + 3, "{before:?}, {after:?}");
    // A request that has no room is refused, and spoils nothing.
    let refused = captured(&stream, 4096);
    expect_error("no room", refused, |error| matches!(error, Error::OutOfMemory(_)))?;
    drop(large);
    captured(&stream, 4096)?.replay(&stream)
}

/// A stream that is not captured can be waited for also inside a capture.
#[test]
fn a_capture_at_the_limit_gets_what_streams_keep() -> Result<()> {
    testkit::own_process!();
    let Bench { device, stream } = limited(40 * MIB)?;
    let other = device.stream()?;
    // Their memory stays with the streams, whose work on it may not be done.
    for (stream, bytes) in [(&stream, 10 * MIB), (&other, 4096)] {
        drop(Bytes::zeroed(stream, bytes)?);
    }
    let kept = Bytes::from_slice(&other, &[7; 4096])?;
    let before = device.memory_stats();
    let mut graph = Graph::capture(&stream, (), |stream, ()| Bytes::zeroed(stream, 37 * MIB))?;
    graph.replay(&other)?;
    assert_eq!(graph.outputs().to_vec(&stream)?, vec![0; 37 * MIB]);
    assert_eq!(kept.to_vec(&stream)?, [7; 4096]);
    let after = device.memory_stats();
    assert!(after.releases > before.releases, "{before:?}, {after:?}");
    Ok(())
}
