//! Devices, memory, launches, modules, events and streams.

use std::ops::Bound;

use ironwarp::{
    Device, DeviceBuffer, Error, Event, LaunchConfig, Limit, Module, PinnedBuffer, PtxSource, Result, launch,
};

use super::{Calls, LEN};
use crate::common::kernels::{PTX, bounded, fill, last_of_dynamic_shared};
use crate::common::{Bench, load_kernels};

pub(crate) fn table(calls: &mut Calls) {
    devices(calls);
    ranges(calls);
    lengths(calls);
    sizes(calls);
    limits(calls);
    modules(calls);
    events(calls);
    streams(calls);
}

fn devices(calls: &mut Calls) {
    for ordinal in [1000, u32::MAX] {
        calls.wrong("open", |_| Device::open(ordinal), |e| matches!(e, Error::NoSuchDevice { .. }));
    }
}

fn ranges(calls: &mut Calls) {
    let out_of_range = |e: &Error| matches!(e, Error::Range { len: LEN, .. });
    let ranges = [
        (Bound::Included(11), Bound::Unbounded),
        (Bound::Included(0), Bound::Excluded(11)),
        (Bound::Included(5), Bound::Excluded(3)),
        (Bound::Unbounded, Bound::Included(10)),
        (Bound::Included(usize::MAX), Bound::Unbounded),
        (Bound::Unbounded, Bound::Included(usize::MAX)),
        (Bound::Excluded(usize::MAX), Bound::Unbounded),
        (Bound::Excluded(10), Bound::Unbounded),
    ];
    for range in ranges {
        let what = format!("{range:?}");
        calls.wrong(&what, |b| Calls::ten(b)?.slice(range).map(drop), out_of_range);
        calls.wrong(&what, |b| Calls::ten(b)?.slice_mut(range).map(drop), out_of_range);
    }
    calls.wrong("split", |b| Calls::ten(b)?.view_mut().split_at_mut(11).map(drop), out_of_range);
    calls.wrong(
        "part of a part",
        |b| Calls::ten(b)?.slice(5..)?.slice(..6).map(drop),
        |e| matches!(e, Error::Range { len: 5, .. }),
    );
}

fn lengths(calls: &mut Calls) {
    for len in [0, LEN - 1, LEN + 1] {
        let wrong = |e: &Error| matches!(e, Error::Length { expected: LEN, got, .. } if *got == len);
        calls.wrong("from slice", |b| Calls::ten(b)?.copy_from_slice(&b.stream, &vec![0.0; len]), wrong);
        calls.wrong("into slice", |b| Calls::ten(b)?.copy_into(&b.stream, &mut vec![0.0; len]), wrong);
        calls.wrong(
            "from device",
            |b| Calls::ten(b)?.copy_from_device(&b.stream, &DeviceBuffer::zeroed(&b.stream, len)?),
            wrong,
        );
        calls.wrong(
            "from pinned",
            |b| Calls::ten(b)?.copy_from_pinned(&b.stream, &PinnedBuffer::zeroed(&b.device, len)?),
            wrong,
        );
        calls.wrong(
            "into pinned",
            |b| Calls::ten(b)?.copy_into_pinned(&b.stream, &mut PinnedBuffer::zeroed(&b.device, len)?),
            wrong,
        );
        calls.wrong(
            "expect",
            |b| DeviceBuffer::<u8>::zeroed(&b.stream, len)?.expect_len("op", "x", LEN),
            wrong,
        );
    }
}

fn sizes(calls: &mut Calls) {
    let overflow = |e: &Error| matches!(e, Error::SizeOverflow { .. });
    for len in [usize::MAX, usize::MAX / 2, isize::MAX as usize / 4 + 1] {
        calls.wrong("buffer", |b| DeviceBuffer::<f32>::zeroed(&b.stream, len), overflow);
        calls.wrong("pinned", |b| PinnedBuffer::<f32>::zeroed(&b.device, len), overflow);
    }
    let out_of_memory = |e: &Error| matches!(e, Error::OutOfMemory(_));
    calls.wrong("2^46 bytes", |b| DeviceBuffer::<u8>::zeroed(&b.stream, 1 << 46), out_of_memory);
    calls.wrong("2^46 floats", |b| DeviceBuffer::<f32>::zeroed(&b.stream, 1 << 46), out_of_memory);
    calls.wrong(
        "2^46 bytes pinned",
        |b| PinnedBuffer::<u8>::zeroed(&b.device, 1 << 46),
        |e| matches!(e, Error::PinnedMemory { .. }),
    );
}

fn limits(calls: &mut Calls) {
    let cases = [
        ([1, 1, 1], [1025, 1, 1], Limit::BlockAxis(0)),
        ([1, 1, 1], [1, 1025, 1], Limit::BlockAxis(1)),
        ([1, 1, 1], [1, 1, 65], Limit::BlockAxis(2)),
        ([1, 1, 1], [u32::MAX, u32::MAX, u32::MAX], Limit::BlockAxis(0)),
        ([1, 1, 1], [1024, 2, 1], Limit::ThreadsPerBlock),
        ([1, 1, 1], [32, 32, 2], Limit::ThreadsPerBlock),
        ([u32::MAX, 1, 1], [1, 1, 1], Limit::GridAxis(0)),
        ([1, 65_536, 1], [1, 1, 1], Limit::GridAxis(1)),
        ([1, 1, 65_536], [1, 1, 1], Limit::GridAxis(2)),
        ([1, 1, 1], [0, 1, 1], Limit::NoThreads),
        ([1, 1, 1], [1, 0, 1], Limit::NoThreads),
        ([1, 1, 1], [1, 1, 0], Limit::NoThreads),
    ];
    for (grid, block, expected) in cases {
        let config = LaunchConfig::new(grid, block);
        let exceeded = |e: &Error| matches!(e, Error::LaunchLimit { limit, .. } if *limit == expected);
        // SAFETY: refused before anything runs.
        let call = |b: &Bench| unsafe { launch::<fill>(&b.stream, config, (0u32, 0.0, &mut Calls::ten(b)?)) };
        calls.wrong(&config.to_string(), call, exceeded);
    }
    // Threads that an index of 32 bits does not tell apart.
    for (len, block) in [((1 << 32) + 1, 256), (1 << 32, 96), (usize::MAX, 1)] {
        let config = LaunchConfig::linear(len, block);
        // SAFETY: refused before anything runs.
        let call = |b: &Bench| unsafe { launch::<fill>(&b.stream, config, (0u32, 0.0, &mut Calls::ten(b)?)) };
        calls.wrong("linear", call, |e| {
            matches!(e, Error::LaunchLimit { limit: Limit::GridAxis(0), .. })
                && e.to_string().contains("2^32")
        });
    }
    for threads in [65, 128, 1024] {
        let config = LaunchConfig::new([1, 1, 1], [threads, 1, 1]);
        // SAFETY: refused before anything runs.
        let call = |b: &Bench| unsafe {
            launch::<bounded>(&b.stream, config, (&mut DeviceBuffer::<u32>::zeroed(&b.stream, 1)?,))
        };
        calls.wrong("launch bounds", call, |e| {
            matches!(e, Error::LaunchLimit { limit: Limit::KernelThreads, max: 64, got, .. } if *got == u64::from(threads))
        });
    }
    let most = calls.bench.device.properties().shared_per_block_optin;
    for bytes in [most + 1, u32::MAX] {
        let config = LaunchConfig::new([1, 1, 1], [1, 1, 1]).with_shared(bytes);
        // SAFETY: refused before anything runs.
        let call = |b: &Bench| unsafe {
            launch::<last_of_dynamic_shared>(
                &b.stream,
                config,
                (4u32, &mut DeviceBuffer::<u32>::zeroed(&b.stream, 1)?),
            )
        };
        calls.wrong("shared memory", call, |e| {
            matches!(e, Error::LaunchLimit { limit: Limit::SharedBytes, .. })
        });
    }
    for cluster in [[0, 1, 1], [17, 1, 1], [4, 4, 2], [u32::MAX; 3]] {
        let config = LaunchConfig::new([4, 4, 4], [64, 1, 1]).cluster(cluster);
        // SAFETY: refused before anything runs.
        let call = |b: &Bench| unsafe { launch::<fill>(&b.stream, config, (0u32, 0.0, &mut Calls::ten(b)?)) };
        calls.wrong("cluster", call, |e| matches!(e, Error::LaunchLimit { limit: Limit::ClusterBlocks, .. }));
    }
    if calls.bench.device.properties().clusters {
        let config = LaunchConfig::new([4, 3, 4], [64, 1, 1]).cluster([2, 2, 2]);
        // SAFETY: refused before anything runs.
        let call = |b: &Bench| unsafe { launch::<fill>(&b.stream, config, (0u32, 0.0, &mut Calls::ten(b)?)) };
        calls.wrong("uneven clusters", call, |e| {
            matches!(e, Error::InvalidArgument { argument: "the grid", .. })
        });
    }
    let config = LaunchConfig::new([1_000_000, 1, 1], [64, 1, 1]).cooperative();
    // SAFETY: refused before anything runs.
    let call = |b: &Bench| unsafe {
        launch::<bounded>(&b.stream, config, (&mut DeviceBuffer::<u32>::zeroed(&b.stream, 1)?,))
    };
    calls.wrong("cooperative", call, |e| {
        matches!(e, Error::LaunchLimit { limit: Limit::CooperativeBlocks, .. })
    });
}

fn modules(calls: &mut Calls) {
    let missing = std::env::temp_dir().join("ironwarp-no-such-file.ptx");
    calls.wrong(
        "missing file",
        |b| Module::from_file(&b.device, &missing),
        |e| matches!(e, Error::File { .. }),
    );
    calls.wrong(
        "folder",
        |b| Module::from_file(&b.device, std::env::temp_dir()),
        |e| matches!(e, Error::File { .. }),
    );
    let binary = std::env::temp_dir().join(format!("ironwarp-wrong-calls-{}.ptx", std::process::id()));
    std::fs::write(&binary, [0xff, 0xfe, 0, 1]).expect("the temporary folder is writable");
    calls.wrong(
        "binary file",
        |b| Module::from_file(&b.device, &binary),
        |e| matches!(e, Error::File { .. }),
    );
    std::fs::remove_file(&binary).expect("written above");
    calls.wrong(
        "NUL",
        |b| Module::from_ptx(&b.device, "// a\0b"),
        |e| matches!(e, Error::PtxText { position: 4, .. }),
    );
    for text in ["", "this is no PTX", ".version 7.0\n.target sm_999\n"] {
        calls.wrong(
            "no PTX",
            |b| Module::from_ptx(&b.device, text),
            |e| matches!(e, Error::InvalidModule { .. }),
        );
    }
    for family in ["", "../basic", "a b", "1st", "a\0b", "ä"] {
        let source = PtxSource::Text(String::new());
        calls.wrong(
            family,
            |b| Module::from_source(&b.device, family, source),
            |e| matches!(e, Error::BadName { what: "family", .. }),
        );
    }
    for own in [
        "ironwarp_attention",
        "ironwarp_basic",
        "ironwarp_conv",
        "ironwarp_gemm",
        "ironwarp_optim",
        "ironwarp_rows",
        "ironwarp_similarity",
        "ironwarp_tensor",
    ] {
        calls.wrong(
            own,
            // SAFETY: it is refused, whatever the text.
            |b| unsafe { Module::load_family(&b.device, own, PtxSource::Text(PTX.to_owned())) },
            |e| matches!(e, Error::OwnFamily { family } if family == own),
        );
    }
    for name in ["", "no_such_kernel", "Fill", "fill ", "füll"] {
        calls.wrong(
            name,
            |b| load_kernels(&b.device)?.function(name),
            |e| matches!(e, Error::NoSuchKernel { kernel, .. } if kernel == name),
        );
    }
    calls.wrong(
        "NUL in a name",
        |b| load_kernels(&b.device)?.function("a\0b"),
        |e| matches!(e, Error::BadName { what: "kernel", .. }),
    );
}

fn recorded(bench: &Bench, event: Event) -> Result<Event> {
    bench.stream.record(&event)?;
    Ok(event)
}

fn events(calls: &mut Calls) {
    let fresh = |b: &Bench| Event::new(&b.device);
    let timed = |b: &Bench| recorded(b, Event::new(&b.device)?);
    let untimed = |b: &Bench| recorded(b, Event::untimed(&b.device)?);
    calls.wrong(
        "start",
        |b| Event::elapsed_ms(&fresh(b)?, &timed(b)?),
        |e| matches!(e, Error::EventNotRecorded { which: "start" }),
    );
    calls.wrong(
        "end",
        |b| Event::elapsed_ms(&timed(b)?, &fresh(b)?),
        |e| matches!(e, Error::EventNotRecorded { which: "end" }),
    );
    calls.wrong(
        "neither",
        |b| Event::elapsed_ms(&fresh(b)?, &fresh(b)?),
        |e| matches!(e, Error::EventNotRecorded { which: "start" }),
    );
    calls.wrong(
        "untimed",
        |b| Event::elapsed_ms(&untimed(b)?, &timed(b)?),
        |e| matches!(e, Error::Driver(d) if d.function == "cuEventElapsedTime"),
    );
}

fn streams(calls: &mut Calls) {
    let levels = calls.bench.device.priority_levels().expect("the device answers");
    for level in [levels, levels + 1, u32::MAX] {
        let wrong = |e: &Error| matches!(e, Error::InvalidArgument { argument: "the level", .. });
        calls.wrong("priority", |b| b.device.stream_with_priority(level), wrong);
        calls.wrong("pooled priority", |b| b.device.pooled_stream_with_priority(level), wrong);
    }
    for bytes in [(512 << 10) + 1, usize::MAX] {
        calls.wrong(
            "stack",
            |b| b.device.set_stack_limit(bytes),
            |e| matches!(e, Error::InvalidArgument { argument: "bytes", .. }),
        );
    }
    calls.wrong(
        "no slots",
        |b| {
            let identity = |stream: &ironwarp::Stream, x: &DeviceBuffer<f32>| {
                DeviceBuffer::<f32>::zeroed(stream, x.len())
            };
            b.stream.overlap(0, [[1.0f32]], identity, |_| Ok(()))
        },
        |e| matches!(e, Error::InvalidArgument { argument: "slots", .. }),
    );
    calls.wrong(
        "a task",
        |b| b.stream.parallel([|_: &ironwarp::Stream| Calls::ten(b)?.slice(11..).map(drop)]),
        |e| matches!(e, Error::Range { .. }),
    );
    calls.wrong(
        "a scope",
        |b| b.stream.scope(|scope| Calls::ten(b)?.copy_from_slice(&scope.fork()?, &[0.0; LEN + 1])),
        |e| matches!(e, Error::Length { .. }),
    );
}
