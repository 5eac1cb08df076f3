//! Graphs hold what they borrow, and nothing else.

use ironwarp::graph::Graph;
use ironwarp::ops::saxpy::saxpy;
use ironwarp::{Device, DeviceBuffer, Result, Stream};

const LEN: usize = 300;

fn buffer(stream: &Stream, value: f32) -> Result<DeviceBuffer<f32>> {
    DeviceBuffer::from_slice(stream, &[value; LEN])
}

/// A capture has a stream of its own: what other threads do on the stream that it was asked for is done at
/// once. Before, their work became part of the graph, which went on to use buffers that it did not borrow.
#[test]
fn work_of_other_threads_is_no_part_of_a_graph() -> Result<()> {
    let stream = Device::open(0)?.stream()?;
    let mut mine = buffer(&stream, 1.0)?;
    let mut graph = Graph::capture(&stream, buffer(&stream, 0.0)?, |own, y| {
        let x = buffer(&stream, 3.0)?;
        let on_a_thread = || -> Result<_> {
            let mut y = DeviceBuffer::zeroed(&stream, LEN)?;
            saxpy(&stream, 2.0, &x, &mut y)?;
            mine.copy_from_device(&stream, &y)?;
            y.to_vec(&stream)
        };
        let seen = std::thread::scope(|threads| threads.spawn(on_a_thread).join().expect("no panic"))?;
        assert_eq!(seen, [6.0; LEN]);
        y.fill_zero(own)
    })?;
    assert_eq!(graph.launches().len(), 0);
    graph.replay(&stream)?;
    drop(graph);
    assert_eq!(mine.to_vec(&stream)?, [6.0; LEN]);
    Ok(())
}
