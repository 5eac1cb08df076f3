//! Captures, replays, updates, and a step that is captured automatically.

use ironwarp::graph::{Graph, GraphCache, Update};
use ironwarp::ops::saxpy::saxpy;
use ironwarp::{DeviceBuffer, Error, Result, Stream};

use super::plain;

type Buffer = DeviceBuffer<f32>;

fn multiply(a: f32) -> impl Fn(&Stream, &mut Buffer) -> Result<Buffer> {
    move |stream, x| {
        let mut y = DeviceBuffer::zeroed(stream, x.len())?;
        saxpy(stream, a, &*x, &mut y)?;
        Ok(y)
    }
}

pub fn capture() -> Result<()> {
    let (device, stream) = plain()?;
    let other = device.stream()?;
    let x = DeviceBuffer::from_slice(&other, &[1.0f32, 2.0])?;
    let mut graph = Graph::capture(&stream, x, multiply(2.0))?;
    graph.replay(&stream)?;
    assert_eq!(graph.outputs().to_vec(&other)?, [2.0, 4.0]);
    assert_eq!(graph.update(&stream, multiply(3.0))?, Update::InPlace);
    graph.replay(&stream)?;
    assert_eq!(graph.outputs().to_vec(&stream)?, [3.0, 6.0]);
    let rebuilt = graph.update(&stream, |stream, x| {
        stream.scope(|scope| multiply(4.0)(&scope.fork()?, x).map(drop))?;
        multiply(5.0)(stream, x)
    })?;
    assert_eq!(rebuilt, Update::Rebuilt);
    graph.replay(&stream)?;
    assert_eq!(graph.outputs().to_vec(&stream)?, [5.0, 10.0]);
    // A capture that fails.
    match Graph::capture(&stream, (), |stream, ()| stream.synchronize()) {
        Err(Error::NotCapturable { .. }) => Ok(()),
        Err(other) => Err(other),
        Ok(_) => panic!("a wait in a graph"),
    }
}

pub fn cache() -> Result<()> {
    let (_device, stream) = plain()?;
    let mut cache = GraphCache::new(|stream, &len: &usize| DeviceBuffer::zeroed(stream, len), multiply(2.0));
    for value in [1.0f32, 2.0, 3.0] {
        let y = cache.run(&stream, &3, |stream, x| x.copy_from_slice(stream, &[value; 3]))?;
        assert_eq!(y.to_vec(&stream)?, [2.0 * value; 3]);
    }
    Ok(())
}
