//! Measures the kernel's time by the device's clock.

#[path = "../tests/common/mod.rs"]
mod common;
use common::{device, oracle, run, values};

use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ironwarp::{DeviceBuffer, Event, Result};

fn bench(criterion: &mut Criterion) {
    if let Err(error) = measure(criterion) {
        // A benchmark that cannot run counts as failed.
        eprintln!("{error}");
        std::process::exit(1);
    }
}

fn measure(criterion: &mut Criterion) -> Result<()> {
    let device = device()?;
    let stream = device.stream()?;
    // On a GPU far larger than its caches. The software driver takes a second for its smaller size.
    let len = if device.is_software() { 1 << 14 } else { 1 << 27 };
    let (x, old) = (values(1, len), values(2, len));
    let x_device = DeviceBuffer::from_slice(&stream, &x)?;
    let mut y = DeviceBuffer::from_slice(&stream, &old)?;
    run(&stream, 0.5, &x_device, &mut y)?;
    // Checks that the measured kernel computes the right result.
    let want = oracle(0.5, &x, &old);
    assert!(y.to_vec(&stream)?.iter().zip(want).all(|(&got, want)| (f64::from(got) - want).abs() < 1e-6));

    let (start, end) = (Event::new(&device)?, Event::new(&device)?);
    let mut group = criterion.benchmark_group("hello");
    group.throughput(Throughput::Bytes(12 * len as u64));
    let mut failed = None;
    group.bench_function(len.to_string(), |bencher| {
        bencher.iter_custom(|runs| {
            let mut timed = || -> Result<Duration> {
                stream.record(&start)?;
                for _ in 0..runs {
                    run(&stream, 0.5, &x_device, &mut y)?;
                }
                stream.record(&end)?;
                Ok(Duration::from_secs_f64(f64::from(Event::elapsed_ms(&start, &end)?) / 1e3))
            };
            timed().unwrap_or_else(|error| {
                failed = Some(error);
                Duration::from_secs(1)
            })
        });
    });
    group.finish();
    failed.map_or(Ok(()), Err)
}

criterion_group!(benches, bench);
criterion_main!(benches);
