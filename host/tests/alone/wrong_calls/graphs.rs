//! Captures and graphs.

use ironwarp::graph::{Graph, GraphCache};
use ironwarp::{DeviceBuffer, Error, Event, LaunchConfig, PinnedBuffer, Result, Stream, launch};

use super::{Calls, LEN};
use crate::common::Bench;
use crate::common::kernels::fill;

fn not_capturable(error: &Error) -> bool {
    matches!(error, Error::NotCapturable { .. })
}

/// `call` on a stream that is being captured.
fn captured<T>(bench: &Bench, call: impl FnOnce(&Stream, &mut DeviceBuffer<f32>) -> Result<T>) -> Result<()> {
    Graph::capture(&bench.stream, Calls::ten(bench)?, |stream, x| call(stream, x).map(drop)).map(drop)
}

pub(crate) fn table(calls: &mut Calls) {
    waits(calls);
    copies(calls);
    nested(calls);
    inside(calls);
}

fn waits(calls: &mut Calls) {
    calls.wrong("synchronize", |b| captured(b, |s, _| s.synchronize()), not_capturable);
    calls.wrong("is_idle", |b| captured(b, |s, _| s.is_idle()), not_capturable);
    calls.wrong("device", |b| captured(b, |s, _| s.device().synchronize()), not_capturable);
    let recorded = |b: &Bench, s: &Stream| -> Result<Event> {
        let event = Event::new(&b.device)?;
        s.record(&event)?;
        Ok(event)
    };
    calls.wrong("wait", |b| captured(b, |s, _| recorded(b, s)?.synchronize()), not_capturable);
    calls.wrong("ask", |b| captured(b, |s, _| recorded(b, s)?.is_reached()), not_capturable);
    calls.wrong(
        "time",
        |b| captured(b, |s, _| Event::elapsed_ms(&recorded(b, s)?, &recorded(b, s)?)),
        not_capturable,
    );
}

fn copies(calls: &mut Calls) {
    calls.wrong("to_vec", |b| captured(b, |s, x| x.to_vec(s)), not_capturable);
    calls.wrong("copy_into", |b| captured(b, |s, x| x.copy_into(s, &mut [0.0; LEN])), not_capturable);
    calls.wrong("upload", |b| captured(b, |s, x| x.copy_from_slice(s, &[0.0; LEN])), not_capturable);
    calls.wrong("from_slice", |b| captured(b, |s, _| DeviceBuffer::from_slice(s, &[0.0f32])), not_capturable);
    calls.wrong(
        "from pinned",
        |b| captured(b, |s, x| x.copy_from_pinned(s, &PinnedBuffer::zeroed(&b.device, LEN)?)),
        not_capturable,
    );
    calls.wrong(
        "into pinned",
        |b| captured(b, |s, x| x.copy_into_pinned(s, &mut PinnedBuffer::zeroed(&b.device, LEN)?)),
        not_capturable,
    );
}

fn nested(calls: &mut Calls) {
    calls.wrong("a capture", |b| captured(b, |s, _| Graph::capture(s, (), |_, ()| Ok(()))), not_capturable);
    calls.wrong(
        "a replay",
        |b| {
            let mut other = Graph::capture(&b.stream, Calls::ten(b)?, |s, x| x.fill_zero(s))?;
            captured(b, |s, _| other.replay(s))
        },
        not_capturable,
    );
    calls.wrong(
        "an update",
        |b| {
            let mut other = Graph::capture(&b.stream, Calls::ten(b)?, |s, x| x.fill_zero(s))?;
            captured(b, |s, _| other.update(s, |_, _| Ok(())))
        },
        not_capturable,
    );
    calls.wrong(
        "outside, memory of the capture",
        |b| {
            let other = b.device.stream()?;
            captured(b, |s, _| DeviceBuffer::<f32>::zeroed(s, LEN)?.fill_zero(&other))
        },
        not_capturable,
    );
    calls.wrong(
        "a fork that is not joined",
        |b| {
            let other = b.device.stream()?;
            captured(b, |s, _| {
                other.wait_for(s)?;
                DeviceBuffer::<f32>::zeroed(&other, LEN)
            })
        },
        |e| e.driver_error().is_some_and(|d| d.code == driver::code::STREAM_CAPTURE_UNJOINED as i32),
    );
}

/// Wrong calls inside a capture return the same errors as outside.
fn inside(calls: &mut Calls) {
    calls.wrong(
        "range",
        |b| captured(b, |_, x| x.slice(11..).map(drop)),
        |e| matches!(e, Error::Range { .. }),
    );
    calls.wrong(
        "length",
        |b| captured(b, |s, x| x.copy_from_device(s, &DeviceBuffer::zeroed(s, LEN + 1)?)),
        |e| matches!(e, Error::Length { .. }),
    );
    calls.wrong(
        "memory",
        |b| captured(b, |s, _| DeviceBuffer::<u8>::zeroed(s, 1 << 46)),
        |e| matches!(e, Error::OutOfMemory { .. }),
    );
    let config = LaunchConfig::new([1, 1, 1], [2048, 1, 1]);
    calls.wrong(
        "limit",
        // SAFETY: refused before anything runs.
        |b| captured(b, |s, x| unsafe { launch::<fill>(s, config, (LEN as u32, 0.0, x)) }),
        |e| matches!(e, Error::LaunchLimit { .. }),
    );
    calls.wrong(
        "a step's input",
        |b| {
            let mut cache = GraphCache::new(
                |stream, &len: &usize| DeviceBuffer::<f32>::zeroed(stream, len),
                |stream, x: &mut DeviceBuffer<f32>| x.fill_zero(stream),
            );
            cache.run(&b.stream, &LEN, |stream, x| x.copy_from_slice(stream, &[0.0; LEN - 1])).map(drop)
        },
        |e| matches!(e, Error::Length { .. }),
    );
}
