//! Graphs hold what they borrow, and nothing else.

use std::sync::atomic::{AtomicBool, Ordering};

use ironwarp::graph::Graph;
use ironwarp::ops::elementwise::copy;
use ironwarp::ops::saxpy::saxpy;
use ironwarp::{DType, Device, DeviceBuffer, Result, Stream, Tensor, TensorError};

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

/// A graph writes its outputs at each replay, also where a tensor shows them to another thread. Before, an op
/// checked a copy of its indices and read them again.
#[test]
fn indices_are_read_as_they_were_checked() -> Result<()> {
    let device = Device::open(0)?;
    let stream = device.stream()?;
    let given = Tensor::from_slice(&stream, &[LEN], &[1i64; LEN])?;
    let mut graph = Graph::capture(&stream, given, |own, given| copy(own, given))?;
    graph.replay(&stream)?;
    let index = graph.outputs().clone();
    let ended = AtomicBool::new(false);
    let replay = || -> Result<()> {
        while !ended.load(Ordering::Relaxed) {
            for value in [1i64 << 40, 1] {
                graph.inputs_mut().view_mut()?.copy_from_slice(&stream, &[value; LEN])?;
                graph.replay(&stream)?;
            }
        }
        Ok(())
    };
    let call = || -> Result<()> {
        let x = Tensor::ones(&device, &[LEN], DType::F32)?;
        for _ in 0..50 {
            for result in [x.scatter_add(0, &index, &x), x.scatter(0, &index, &x), x.gather(0, &index)] {
                match result.and_then(|y| y.tolist::<f32>()) {
                    Ok(y) => assert!(y.iter().all(|y| [1.0, 1.0 + LEN as f32].contains(y)), "{y:?}"),
                    Err(error) if matches!(error.tensor_error(), Some(TensorError::Index { .. })) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    };
    std::thread::scope(|threads| {
        let replays = threads.spawn(replay);
        let called = call();
        ended.store(true, Ordering::Relaxed);
        called.and(replays.join().expect("no panic"))
    })
}
