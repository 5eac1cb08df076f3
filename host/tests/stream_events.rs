//! Events are inserted where a stream has to wait for another, and nowhere else. A program of its own, since it counts calls.

mod common;

use common::{Bench, kernels};
use driver::fault::{Rule, Times};
use ironwarp::{DeviceBuffer, LaunchConfig, Result, Stream};

const LEN: usize = 100;

/// Waits between streams that `work` queues.
fn waits(work: impl FnOnce() -> Result<()>) -> Result<u64> {
    const WAIT: &str = "cuStreamWaitEvent";
    let count = || driver::fault::calls().into_iter().find(|(f, _)| *f == WAIT).map_or(0, |(_, calls)| calls);
    // A rule that never fires: NVIDIA's driver is counted only while there is one.
    let rule = Rule { function: WAIT, nth: u64::MAX, code: driver::code::INVALID_VALUE, times: Times::Once };
    let _counting = driver::fault::scoped(&[rule]).expect("a rule that fits");
    let before = count();
    work()?;
    Ok(count() - before)
}

fn scale(stream: &Stream, x: &DeviceBuffer<f32>, y: &mut DeviceBuffer<f32>) -> Result<()> {
    // SAFETY: both have LEN elements.
    unsafe { ironwarp::launch::<kernels::scale>(stream, LaunchConfig::linear(LEN, 32), (2.0, x, y)) }
}

#[test]
fn events_where_they_are_needed() -> Result<()> {
    let Bench { device, stream } = Bench::open()?;
    let other = device.stream()?;
    let buffer = |stream| DeviceBuffer::from_slice(stream, &[1.0f32; LEN]);
    let (mut a, mut b, mut c) = (buffer(&stream)?, buffer(&stream)?, buffer(&stream)?);
    let mut d = buffer(&other)?;
    stream.synchronize()?;
    other.synchronize()?;

    assert_eq!(waits(|| scale(&stream, &a, &mut b))?, 0, "one stream");
    assert_eq!(waits(|| scale(&other, &b, &mut d))?, 1, "written on one, read on the other");
    assert_eq!(waits(|| scale(&other, &b, &mut d))?, 0, "read there again");
    assert_eq!(waits(|| scale(&other, &a, &mut d))?, 0, "nothing new on the first since that wait");
    assert_eq!(waits(|| scale(&stream, &a, &mut c))?, 0, "read by both");
    assert_eq!(waits(|| scale(&other, &c, &mut d))?, 1, "new work on the first");
    assert_eq!(waits(|| scale(&stream, &a, &mut b))?, 1, "written while the other may read it");
    stream.synchronize()?;
    assert_eq!(waits(|| scale(&other, &b, &mut d))?, 0, "the first was waited for");
    other.synchronize()?;
    assert_eq!(waits(|| scale(&stream, &d, &mut a))?, 0, "the other was waited for");
    assert_eq!((a.to_vec(&stream)?, b.to_vec(&stream)?), (vec![8.0; LEN], vec![2.0; LEN]));

    // Explicit waits keep the same books.
    assert_eq!(waits(|| stream.wait_for(&other))?, 0, "nothing queued there");
    scale(&other, &b, &mut d)?;
    assert_eq!(waits(|| stream.wait_for(&other))?, 1);
    assert_eq!(waits(|| stream.wait_for(&other))?, 0, "nothing new");
    assert_eq!(waits(|| stream.wait_for(&stream))?, 0);
    // Work that nobody sees may be there once the handle is out.
    other.raw();
    assert_eq!(waits(|| stream.wait_for(&other))?, 1);
    assert_eq!(waits(|| stream.wait_for(&other))?, 1);
    Ok(())
}
