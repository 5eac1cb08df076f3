//! Steps that are captured automatically: when, for which keys, and steps that cannot be captured.

use std::cell::Cell;

use crate::common::{Bench, expect_error};
use ironwarp::graph::{GraphCache, Mode};
use ironwarp::ops::saxpy::saxpy;
use ironwarp::{DeviceBuffer, Error, Result, Stream};

type Buffer = DeviceBuffer<f32>;

fn zeroed(stream: &Stream, &len: &usize) -> Result<Buffer> {
    DeviceBuffer::zeroed(stream, len)
}

fn double(stream: &Stream, x: &mut Buffer) -> Result<Buffer> {
    let mut y = DeviceBuffer::zeroed(stream, x.len())?;
    saxpy(stream, 2.0, &*x, &mut y)?;
    Ok(y)
}

#[test]
fn a_step_is_captured_when_its_key_comes_again() -> Result<()> {
    let Bench { stream, .. } = Bench::open()?;
    for warm_up in [0, 1, 3] {
        let (prepared, stepped) = (Cell::new(0), Cell::new(0));
        let mut cache = GraphCache::new(
            |stream, len| {
                prepared.set(prepared.get() + 1);
                zeroed(stream, len)
            },
            |stream, x| {
                stepped.set(stepped.get() + 1);
                double(stream, x)
            },
        )
        .warm_up(warm_up);
        let mut runs = [0, 0];
        assert!(cache.mode(&100).is_none());
        for (i, which) in [0, 0, 1, 0, 1, 1, 0, 0, 1, 0].into_iter().enumerate() {
            let (len, value) = ([100, 7][which], i as f32);
            let y = cache.run(&stream, &len, |stream, x| x.copy_from_slice(stream, &vec![value; len]))?;
            assert_eq!(y.to_vec(&stream)?, vec![2.0 * value; len], "run {i}");
            runs[which] += 1;
            match cache.mode(&len) {
                Some(Mode::WarmingUp) => assert!(runs[which] <= warm_up),
                Some(Mode::Captured) => assert!(runs[which] > warm_up),
                other => panic!("{other:?}"),
            }
        }
        // Eager runs and one capture for each key; the rest are replays.
        assert_eq!((prepared.get(), stepped.get()), (2, 2 * (warm_up + 1)), "warm-up {warm_up}");
    }
    Ok(())
}

#[test]
fn the_keys_used_last_keep_their_graphs() -> Result<()> {
    let Bench { stream, .. } = Bench::open()?;
    let mut cache = GraphCache::new(zeroed, double).warm_up(0).capacity(2);
    let run = |cache: &mut GraphCache<'_, usize, Buffer, Buffer>, len: usize| -> Result<()> {
        let y = cache.run(&stream, &len, |stream, x| x.copy_from_slice(stream, &vec![3.0; len]))?;
        assert_eq!(y.to_vec(&stream)?, vec![6.0; len]);
        Ok(())
    };
    for len in [1, 2, 1, 3] {
        run(&mut cache, len)?;
    }
    let known = |cache: &GraphCache<'_, usize, Buffer, Buffer>, len| cache.mode(&len).is_some();
    assert_eq!([1, 2, 3].map(|len| known(&cache, len)), [true, false, true]);
    run(&mut cache, 2)?;
    assert_eq!([1, 2, 3].map(|len| known(&cache, len)), [false, true, true]);
    Ok(())
}

/// Inputs that cannot be made cost no other key its graph.
#[test]
fn a_key_that_cannot_be_prepared_changes_nothing() -> Result<()> {
    let Bench { stream, .. } = Bench::open()?;
    let prepare = |stream: &Stream, len: &usize| {
        if *len > 2 { Err(Error::Range { start: 0, end: *len, len: 2 }) } else { zeroed(stream, len) }
    };
    let mut cache = GraphCache::new(prepare, double).warm_up(0).capacity(2);
    for len in [1, 2] {
        cache.run(&stream, &len, |stream, x| x.fill_zero(stream))?;
    }
    for len in [3, 4, 5] {
        let refused = cache.run(&stream, &len, |stream, x| x.fill_zero(stream)).map(drop);
        expect_error("prepare", refused, |e| matches!(e, Error::Range { .. }))?;
        assert!(cache.mode(&len).is_none());
    }
    assert!([1, 2].iter().all(|len| matches!(cache.mode(len), Some(Mode::Captured))));
    Ok(())
}

#[test]
fn a_step_that_cannot_be_captured_runs_eagerly_and_says_why() -> Result<()> {
    let Bench { stream, .. } = Bench::open()?;
    let stepped = Cell::new(0);
    let mut cache = GraphCache::new(zeroed, |stream: &Stream, x: &mut Buffer| {
        stepped.set(stepped.get() + 1);
        let y = double(stream, x)?;
        // Reads a result back.
        let sum: f32 = y.to_vec(stream)?.iter().sum();
        DeviceBuffer::from_slice(stream, &[sum])
    });
    for i in 1..6 {
        let y = cache.run(&stream, &10, |stream, x| x.copy_from_slice(stream, &[i as f32; 10]))?;
        assert_eq!(y.to_vec(&stream)?, [20.0 * i as f32]);
    }
    match cache.mode(&10) {
        Some(Mode::Eager(Error::NotCapturable { operation, .. })) => {
            assert!(operation.contains("reading results back"), "{operation}")
        }
        other => panic!("{other:?}"),
    }
    // Five runs and the one attempt.
    assert_eq!(stepped.get(), 6);
    Ok(())
}

#[test]
fn errors_of_the_step_are_the_callers() -> Result<()> {
    let Bench { stream, .. } = Bench::open()?;
    let fail = Cell::new(true);
    let mut cache = GraphCache::new(zeroed, |stream: &Stream, x: &mut Buffer| {
        if fail.get() {
            x.slice(..x.len() + 1)?;
        }
        double(stream, x)
    });
    let out_of_range = |e: &Error| matches!(e, Error::Range { .. });
    let mut run = || cache.run(&stream, &4, |stream, x| x.fill_zero(stream)).map(drop);
    expect_error("eager", run(), out_of_range)?;
    fail.set(false);
    run()?;
    fail.set(true);
    expect_error("in the capture", run(), out_of_range)?;
    fail.set(false);
    run()?;
    let wrong = cache.run(&stream, &4, |stream, x| x.copy_from_slice(stream, &[0.0; 5])).map(drop);
    expect_error("fill", wrong, |e| matches!(e, Error::Length { .. }))?;
    assert!(matches!(cache.mode(&4), Some(Mode::Captured)));
    Ok(())
}

/// Inside another capture a step becomes part of that capture.
#[test]
fn a_cache_inside_a_capture() -> Result<()> {
    let Bench { stream, .. } = Bench::open()?;
    let mut cache = GraphCache::new(zeroed, double);
    for _ in 0..3 {
        cache.run(&stream, &5, |stream, x| x.fill_zero(stream))?;
    }
    assert!(matches!(cache.mode(&5), Some(Mode::Captured)));
    let input = DeviceBuffer::from_slice(&stream, &[1.0f32; 5])?;
    let mut graph = ironwarp::graph::Graph::capture(&stream, input, |stream, input| {
        let y = cache.run(stream, &5, |stream, x| x.copy_from_device(stream, input))?;
        let mut out = DeviceBuffer::zeroed(stream, 5)?;
        saxpy(stream, 1.0, y, &mut out)?;
        Ok(out)
    })?;
    graph.inputs_mut().copy_from_slice(&stream, &[4.0; 5])?;
    graph.replay(&stream)?;
    assert_eq!(graph.outputs().to_vec(&stream)?, [8.0; 5]);
    Ok(())
}
