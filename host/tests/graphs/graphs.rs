//! Graphs: capture, replay, update, the memory that they keep alive, and calls that cannot be captured.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::common::kernels::{fill, scale};
use crate::common::{Bench, bits, expect_error, is_cached};
use half::f16;
use ironwarp::graph::{Graph, Update};
use ironwarp::ops::cosine::{Vectors, cosine_topk};
use ironwarp::ops::fill::{fill as fill_tensor, full};
use ironwarp::ops::gemm::{Gemm, gemm_f32};
use ironwarp::ops::saxpy::saxpy;
use ironwarp::ops::transpose::transpose;
use ironwarp::{
    DType, DeviceBuffer, Error, Event, LaunchConfig, PinnedBuffer, Result, Stream, Tensor, launch,
};

const LEN: usize = 300;
const CONFIG: LaunchConfig = LaunchConfig::linear(LEN, 64);

/// `y = a x`.
fn scaled(stream: &Stream, a: f32, x: &DeviceBuffer<f32>, y: &mut DeviceBuffer<f32>) -> Result<()> {
    // SAFETY: the tests' buffers have LEN elements.
    unsafe { launch::<scale>(stream, CONFIG, (a, x, y)) }
}

fn buffer(stream: &Stream, value: f32) -> Result<DeviceBuffer<f32>> {
    DeviceBuffer::from_slice(stream, &[value; LEN])
}

fn not_capturable(error: &Error) -> bool {
    matches!(error, Error::NotCapturable { .. })
}

#[test]
fn a_capture_does_nothing_and_a_replay_does_it() -> Result<()> {
    let Bench { stream, .. } = Bench::open()?;
    let state = (buffer(&stream, 1.0)?, buffer(&stream, 7.0)?);
    let mut graph = Graph::capture(&stream, state, |stream, (x, y)| scaled(stream, 2.0, x, y))?;
    assert_eq!(graph.inputs().1.to_vec(&stream)?, [7.0; LEN]);
    assert_eq!(graph.launches().len(), 1);
    assert_eq!(graph.launches()[0].kernel, "scale");
    for step in 0..20 {
        graph.inputs_mut().0.copy_from_slice(&stream, &[step as f32; LEN])?;
        graph.replay(&stream)?;
        assert_eq!(graph.inputs().1.to_vec(&stream)?, [2.0 * step as f32; LEN]);
    }
    // Replays follow each other.
    let mut counter =
        Graph::capture(&stream, (buffer(&stream, 1.0)?, buffer(&stream, 0.0)?), |s, (one, sum)| {
            saxpy(s, 1.0, &*one, sum)
        })?;
    for _ in 0..50 {
        counter.replay(&stream)?;
    }
    assert_eq!(counter.inputs().1.to_vec(&stream)?, [50.0; LEN]);
    Ok(())
}

/// A few ops with workspaces and outputs of their own.
#[allow(clippy::type_complexity, reason = "what the ops give")]
fn ops(
    stream: &Stream,
    (a, b): &mut (DeviceBuffer<f32>, DeviceBuffer<f32>),
    vectors: &DeviceBuffer<f16>,
) -> Result<(DeviceBuffer<f32>, DeviceBuffer<f32>, DeviceBuffer<u32>)> {
    const SIDE: usize = 24;
    let mut turned = DeviceBuffer::zeroed(stream, SIDE * SIDE)?;
    transpose(stream, SIDE, SIDE, &*a, &mut turned)?;
    let mut product = DeviceBuffer::zeroed(stream, SIDE * SIDE)?;
    let problem = Gemm { m: SIDE, n: SIDE, k: SIDE, alpha: 1.0, beta: 0.0 };
    gemm_f32(stream, problem, &turned, &*b, &mut product)?;
    saxpy(stream, 0.5, &*a, &mut product)?;
    let mut copy = DeviceBuffer::zeroed(stream, SIDE * SIDE)?;
    copy.copy_from_device(stream, &product)?;
    copy.slice_mut(..SIDE)?.fill_zero(stream)?;
    let found = cosine_topk(stream, Vectors::new(vectors, 16)?, Vectors::new(vectors, 16)?, 3)?;
    Ok((product, copy, found.indices))
}

#[test]
fn ops_give_the_same_bits_in_a_graph() -> Result<()> {
    let Bench { stream, .. } = Bench::open()?;
    let values = |seed: u32| -> Vec<f32> {
        (0..576u32).map(|i| ((i * 37 + seed * 11) % 101) as f32 / 17.0 - 3.0).collect()
    };
    let vectors: Vec<f16> = values(5).iter().map(|&v| f16::from_f32(v)).collect();
    let vectors = DeviceBuffer::from_slice(&stream, &vectors)?;
    let state = || -> Result<_> {
        Ok((DeviceBuffer::from_slice(&stream, &values(1))?, DeviceBuffer::from_slice(&stream, &values(2))?))
    };
    let mut graph = Graph::capture(&stream, state()?, |stream, state| ops(stream, state, &vectors))?;
    let mut eager = state()?;
    for seed in 0..3 {
        eager.0.copy_from_slice(&stream, &values(seed))?;
        graph.inputs_mut().0.copy_from_slice(&stream, &values(seed))?;
        let (product, copy, indices) = ops(&stream, &mut eager, &vectors)?;
        for _ in 0..3 {
            graph.replay(&stream)?;
            let outputs = graph.outputs();
            assert_eq!(bits(&outputs.0.to_vec(&stream)?), bits(&product.to_vec(&stream)?), "product {seed}");
            assert_eq!(bits(&outputs.1.to_vec(&stream)?), bits(&copy.to_vec(&stream)?), "copy {seed}");
            assert_eq!(outputs.2.to_vec(&stream)?, indices.to_vec(&stream)?, "indices {seed}");
        }
    }
    Ok(())
}

#[test]
fn a_graph_keeps_the_memory_that_it_uses() -> Result<()> {
    let Bench { stream, .. } = Bench::open()?;
    let weights = Arc::new(buffer(&stream, 3.0)?);
    let last_owner = weights.clone();
    let mut graph = Graph::capture(&stream, buffer(&stream, 1.0)?, move |stream, x| {
        // A workspace that is dropped before the capture ends, and weights that have no other owner then.
        let mut workspace = DeviceBuffer::zeroed(stream, LEN)?;
        scaled(stream, 2.0, x, &mut workspace)?;
        let mut out = DeviceBuffer::zeroed(stream, LEN)?;
        saxpy(stream, 1.0, &workspace, &mut out)?;
        saxpy(stream, 1.0, &*weights, &mut out)?;
        Ok(out)
    })?;
    drop(last_owner);
    // The graph still reads an input that was taken out. If its memory had been freed, this buffer would get
    // it.
    drop(std::mem::replace(graph.inputs_mut(), buffer(&stream, 50.0)?));
    let others = (0..20).map(|_| buffer(&stream, -100.0)).collect::<Result<Vec<_>>>()?;
    for _ in 0..3 {
        graph.replay(&stream)?;
        assert_eq!(graph.outputs().to_vec(&stream)?, [5.0; LEN]);
    }
    for other in &others {
        assert_eq!(other.to_vec(&stream)?, [-100.0; LEN]);
    }
    // Dropped with a replay under way.
    graph.replay(&stream)?;
    drop(graph);
    let fresh = (0..20).map(|_| buffer(&stream, 9.0)).collect::<Result<Vec<_>>>()?;
    stream.synchronize()?;
    for buffer in &fresh {
        assert_eq!(buffer.to_vec(&stream)?, [9.0; LEN]);
    }
    Ok(())
}

#[test]
fn replays_are_in_order_with_other_streams() -> Result<()> {
    let Bench { device, stream } = Bench::open()?;
    let (upload, run, read) = (device.stream()?, device.stream()?, device.stream()?);
    let x = buffer(&upload, 0.0)?;
    let mut graph = Graph::capture(&stream, x, |stream, x| {
        let mut y = DeviceBuffer::zeroed(stream, LEN)?;
        scaled(stream, 2.0, x, &mut y)?;
        Ok(y)
    })?;
    for step in 1..10 {
        let value = step as f32;
        // SAFETY: LEN elements.
        unsafe { launch::<fill>(&upload, CONFIG, (LEN as u32, value, graph.inputs_mut()))? };
        graph.replay(if step % 2 == 0 { &run } else { &stream })?;
        // Overwritten behind the replay.
        // SAFETY: LEN elements.
        unsafe { launch::<fill>(&upload, CONFIG, (LEN as u32, -1.0, graph.inputs_mut()))? };
        assert_eq!(graph.outputs().to_vec(&read)?, [2.0 * value; LEN]);
    }
    Ok(())
}

#[test]
fn forked_streams_are_captured_with_it() -> Result<()> {
    let Bench { device, stream } = Bench::open()?;
    let state = (buffer(&stream, 1.0)?, buffer(&stream, 0.0)?, buffer(&stream, 0.0)?);
    let mut graph = Graph::capture(&stream, state, |stream, (x, y, z)| {
        scaled(stream, 2.0, x, y)?;
        stream.scope(|scope| {
            let (first, second) = (scope.fork()?, scope.fork()?);
            // Both read what the parent wrote, beside each other.
            let mut workspace = DeviceBuffer::zeroed(&first, LEN)?;
            scaled(&first, 3.0, y, &mut workspace)?;
            scaled(&second, 5.0, y, z)?;
            // The second waits for the first automatically, and the first for the second.
            saxpy(&second, 1.0, &workspace, &mut *z)?;
            scaled(&first, 0.5, &*x, &mut workspace)?;
            saxpy(&first, 1.0, &workspace, &mut *z)
        })?;
        // The pool does not give away streams that are still captured.
        let outside = [device.pooled_stream()?, device.pooled_stream()?];
        for other in &outside {
            assert_eq!(buffer(other, 6.0)?.to_vec(other)?, [6.0; LEN]);
        }
        saxpy(stream, 1.0, &*x, z)
    })?;
    for step in 1..6 {
        graph.inputs_mut().0.copy_from_slice(&stream, &[step as f32; LEN])?;
        graph.replay(&stream)?;
        // Meanwhile a stream of the scope is in the pool again and does other work.
        let other = device.pooled_stream()?;
        assert_eq!(buffer(&other, 4.0)?.to_vec(&other)?, [4.0; LEN]);
        assert_eq!(graph.inputs().2.to_vec(&stream)?, [17.5 * step as f32; LEN]);
    }
    Ok(())
}

#[test]
fn a_fork_has_to_be_joined() -> Result<()> {
    let Bench { device, stream } = Bench::open()?;
    let other = device.stream()?;
    let state = (buffer(&stream, 1.0)?, buffer(&stream, 0.0)?);
    let unjoined = Graph::capture(&stream, state, |stream, (x, y)| {
        other.wait_for(stream)?;
        scaled(&other, 2.0, x, y)
    });
    let error = expect_error("unjoined", unjoined, |e| {
        e.driver_error().is_some_and(|d| d.code == driver::code::STREAM_CAPTURE_UNJOINED as i32)
    })?;
    assert!(error.to_string().contains("Stream::scope"), "{error}");
    // Both streams are usual ones again.
    assert_eq!(buffer(&stream, 2.0)?.to_vec(&stream)?, [2.0; LEN]);
    assert_eq!(buffer(&other, 3.0)?.to_vec(&other)?, [3.0; LEN]);
    Ok(())
}

#[test]
fn an_update_changes_scalars_in_place() -> Result<()> {
    let Bench { stream, .. } = Bench::open()?;
    let state = (buffer(&stream, 1.0)?, buffer(&stream, 0.0)?);
    let work = |a: f32, times: usize| {
        move |stream: &Stream, (x, y): &mut (DeviceBuffer<f32>, DeviceBuffer<f32>)| {
            let mut out = DeviceBuffer::zeroed(stream, LEN)?;
            scaled(stream, a, x, y)?;
            (0..times).try_for_each(|_| saxpy(stream, 1.0, &*y, &mut out))?;
            Ok(out)
        }
    };
    let mut graph = Graph::capture(&stream, state, work(1.0, 2))?;
    for a in [2.0, -3.0, 0.5] {
        assert_eq!(graph.update(&stream, work(a, 2))?, Update::InPlace);
        graph.replay(&stream)?;
        assert_eq!(graph.outputs().to_vec(&stream)?, [2.0 * a; LEN]);
    }
    assert_eq!(graph.update(&stream, work(1.0, 5))?, Update::Rebuilt);
    assert_eq!(graph.launches().len(), 6);
    graph.replay(&stream)?;
    assert_eq!(graph.outputs().to_vec(&stream)?, [5.0; LEN]);
    // A failed update leaves the graph as it was.
    let failed = graph.update(&stream, |stream, (x, y)| {
        scaled(stream, 9.0, x, y)?;
        stream.synchronize()?;
        DeviceBuffer::zeroed(stream, LEN)
    });
    expect_error("update", failed, not_capturable)?;
    graph.replay(&stream)?;
    assert_eq!(graph.outputs().to_vec(&stream)?, [5.0; LEN]);
    Ok(())
}

#[test]
fn what_cannot_be_captured_says_so_and_spoils_nothing() -> Result<()> {
    let Bench { device, stream } = Bench::open()?;
    let other = device.stream()?;
    let mut elsewhere = buffer(&stream, 1.0)?;
    let mut another = Graph::capture(&stream, buffer(&stream, 1.0)?, |s, x| x.fill_zero(s))?;
    let mut pinned = PinnedBuffer::<f32>::zeroed(&device, LEN)?;
    let event = Event::untimed(&device)?;
    let state = (buffer(&stream, 1.0)?, buffer(&stream, 0.0)?);
    let mut graph = Graph::capture(&stream, state, |stream, (x, y)| {
        scaled(stream, 2.0, x, y)?;
        let mut made = DeviceBuffer::<f32>::zeroed(stream, LEN)?;
        let refused: [(&str, Result<()>); 13] = [
            ("synchronize", stream.synchronize()),
            ("is_idle", stream.is_idle().map(drop)),
            ("device", device.synchronize()),
            ("to_vec", y.to_vec(stream).map(drop)),
            ("copy_into", y.copy_into(stream, &mut [0.0; LEN])),
            ("copy_from_slice", x.copy_from_slice(stream, &[0.0; LEN])),
            ("from_slice", buffer(stream, 1.0).map(drop)),
            ("from pinned", x.copy_from_pinned(stream, &pinned)),
            ("into pinned", x.copy_into_pinned(stream, &mut pinned)),
            ("capture", Graph::capture(stream, (), |_, ()| Ok(())).map(drop)),
            ("replay", another.replay(stream)),
            (
                "overlap",
                stream.overlap(
                    1,
                    [[1.0f32; 4]],
                    |s, x: &DeviceBuffer<f32>| DeviceBuffer::<f32>::zeroed(s, x.len()),
                    |_| Ok(()),
                ),
            ),
            // Memory of the capture, on a stream outside of it.
            ("on another stream", made.fill_zero(&other)),
        ];
        for (what, result) in refused {
            let error = expect_error(what, result, not_capturable)?;
            assert!(error.is_recoverable() && error.to_string().contains("\nhint: "), "{what}: {error}");
        }
        // Streams outside the capture work on, and so do buffers that it does not use.
        elsewhere.fill_zero(&other)?;
        assert_eq!(buffer(&other, 8.0)?.to_vec(&other)?, [8.0; LEN]);
        // An event recorded inside marks a place in the graph.
        stream.record(&event)?;
        expect_error("event", event.synchronize(), not_capturable)?;
        expect_error("event", event.is_reached(), not_capturable)?;
        Ok(())
    })?;
    graph.replay(&stream)?;
    assert_eq!(graph.inputs().1.to_vec(&stream)?, [2.0; LEN]);
    assert_eq!(graph.inputs().0.to_vec(&stream)?, [1.0; LEN]);
    elsewhere.fill_zero(&other)?;
    // The event is a usual one when it is recorded again.
    other.record(&event)?;
    event.synchronize()
}

#[test]
fn a_failed_capture_leaves_a_usual_stream() -> Result<()> {
    let Bench { stream, .. } = Bench::open()?;
    let mut y = buffer(&stream, 1.0)?;
    let failed = Graph::capture(&stream, buffer(&stream, 2.0)?, |stream, x| {
        y.copy_from_device(stream, x)?;
        x.slice(..LEN + 1).map(drop)
    });
    expect_error("capture", failed, |e| matches!(e, Error::Range { .. }))?;
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        Graph::capture(&stream, buffer(&stream, 2.0)?, |stream, x| -> Result<()> {
            y.copy_from_device(stream, x)?;
            panic!("on purpose")
        })
        .map(drop)
    }));
    assert!(panicked.is_err());
    assert_eq!(y.to_vec(&stream)?, [1.0; LEN]);
    let mut graph =
        Graph::capture(&stream, buffer(&stream, 2.0)?, |stream, x| y.copy_from_device(stream, x))?;
    graph.replay(&stream)?;
    drop(graph);
    assert_eq!(y.to_vec(&stream)?, [2.0; LEN]);
    Ok(())
}

/// Frees put streams in order, and a captured stream cannot be put in order.
#[test]
fn buffers_may_be_dropped_inside_a_capture() -> Result<()> {
    let Bench { device, stream } = Bench::open()?;
    let other = device.stream()?;
    // Written on one stream, read on the other; the last use is on either.
    let (mut first, second) = (buffer(&stream, 1.0)?, buffer(&other, 2.0)?);
    let unused = buffer(&stream, 3.0)?;
    let mut sink = buffer(&other, 0.0)?;
    scaled(&other, 1.0, &first, &mut sink)?;
    first.fill_zero(&stream)?;
    let mut copy = buffer(&stream, 0.0)?;
    scaled(&stream, 1.0, &second, &mut copy)?;
    let mut graph = Graph::capture(&stream, buffer(&stream, 4.0)?, move |stream, x| {
        drop((first, second, unused, sink, copy));
        let mut y = DeviceBuffer::zeroed(stream, LEN)?;
        scaled(stream, 2.0, x, &mut y)?;
        Ok(y)
    })?;
    graph.replay(&other)?;
    assert_eq!(graph.outputs().to_vec(&stream)?, [8.0; LEN]);
    Ok(())
}

#[test]
fn long_chains_and_empty_graphs() -> Result<()> {
    let Bench { stream, .. } = Bench::open()?;
    let mut empty = Graph::capture(&stream, (), |_, ()| Ok(()))?;
    empty.replay(&stream)?;
    let state = (buffer(&stream, 1.0)?, buffer(&stream, 0.0)?);
    let mut graph = Graph::capture(&stream, state, |stream, (x, y)| {
        (0..200).try_for_each(|_| saxpy(stream, 1.0, &*x, &mut *y))
    })?;
    assert_eq!(graph.launches().len(), 200);
    graph.replay(&stream)?;
    graph.replay(&stream)?;
    assert_eq!(graph.inputs().1.to_vec(&stream)?, [400.0; LEN]);
    Ok(())
}

#[test]
fn threads_capture_beside_each_other() -> Result<()> {
    let Bench { device, .. } = Bench::open()?;
    let run = |i: usize| -> Result<()> {
        let stream = device.stream()?;
        for round in 0..8 {
            let value = (i * 8 + round) as f32;
            let mut graph = Graph::capture(&stream, buffer(&stream, value)?, |stream, x| {
                let mut y = DeviceBuffer::zeroed(stream, LEN)?;
                scaled(stream, 2.0, x, &mut y)?;
                Ok(y)
            })?;
            // Eager work beside the captures of the others.
            let eager = buffer(&stream, value)?;
            graph.replay(&stream)?;
            assert_eq!(graph.outputs().to_vec(&stream)?, [2.0 * value; LEN]);
            assert_eq!(eager.to_vec(&stream)?, [value; LEN]);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|i| scope.spawn(move || run(i))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })
}

/// The next step reuses the workspaces of the step before, as outside a capture.
#[test]
fn a_capture_uses_its_memory_again() -> Result<()> {
    let Bench { stream, .. } = Bench::open()?;
    let mut buffers = std::collections::BTreeSet::new();
    let state = (buffer(&stream, 1.0)?, buffer(&stream, 0.0)?);
    let mut graph = Graph::capture(&stream, state, |stream, (x, sum)| {
        for i in 1..=20 {
            let mut workspace = DeviceBuffer::zeroed(stream, LEN)?;
            buffers.insert(workspace.as_ptr().raw());
            scaled(stream, i as f32, x, &mut workspace)?;
            saxpy(stream, 1.0, &workspace, &mut *sum)?;
        }
        Ok(())
    })?;
    graph.replay(&stream)?;
    assert_eq!(graph.inputs().1.to_vec(&stream)?, [210.0; LEN]);
    drop(graph);
    if is_cached() {
        assert_eq!(buffers.len(), 1, "workspaces at {buffers:x?}");
    }
    Ok(())
}

/// Lengths that make no whole words, and parts of tensors, too.
#[test]
fn constants_are_captured() -> Result<()> {
    let Bench { stream, .. } = Bench::open()?;
    let state = Tensor::zeros(&stream, &[3, 5], DType::F32)?;
    let mut graph = Graph::capture(&stream, state, |stream, x| {
        fill_tensor(stream, x.view_mut()?.slice(1, 1..3)?, 2.0f32)?;
        let short = (0..9).map(|len| full(stream, &[len], 7u8)).collect::<Result<Vec<_>>>()?;
        let long = (0..4).map(|len| full(stream, &[len], 0.5f32)).collect::<Result<Vec<_>>>()?;
        Ok((short, long))
    })?;
    graph.replay(&stream)?;
    let (short, long) = graph.outputs();
    for (len, (short, long)) in short.iter().zip(long.iter().cycle()).enumerate() {
        assert_eq!(short.to_vec::<u8>(&stream)?, vec![7; len]);
        assert_eq!(long.to_vec::<f32>(&stream)?, vec![0.5; len % 4]);
    }
    assert_eq!(graph.inputs().to_vec::<f32>(&stream)?, [0.0, 2.0, 2.0, 0.0, 0.0].repeat(3));
    Ok(())
}
