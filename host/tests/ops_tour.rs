//! Every kernel that the library ships: once, which is what sanitizers are given, and many times, which must not change a bit.

mod tour;

use ironwarp::Device;
use std::thread;
use tour::{FAMILIES, Outcome, Stop, stops};

/// Times that a stop is run in all, by threads with a stream each. The software driver is slow, and has few threads of its own.
const RUNS: usize = 100;
const RUNS_IN_SOFTWARE: usize = 2;
const THREADS: usize = 2;

#[test]
fn every_kernel_is_launched() -> Outcome {
    let stream = Device::open(0)?.stream()?;
    let stops = stops(&stream)?;
    for stop in &stops {
        stop.run(&stream)?;
    }
    println!("{} stops", stops.len());
    if !stream.device().is_software() {
        println!("which kernels were launched is only known on the software driver");
        return Ok(());
    }
    let kernels = driver::soft::launches();
    let left_out: Vec<_> =
        kernels.iter().filter(|kernel| FAMILIES.contains(&kernel.family) && kernel.times == 0).collect();
    assert!(left_out.is_empty(), "the tour leaves out {left_out:#?}");
    Ok(())
}

/// Streams beside each other must not disturb each other either.
#[test]
fn every_run_gives_the_same_bits() -> Outcome {
    let device = Device::open(0)?;
    let runs = if device.is_software() { RUNS_IN_SOFTWARE } else { RUNS };
    let stream = device.stream()?;
    let stops = stops(&stream)?;
    let repeat = |stop: &Stop, want: &[u8]| -> Result<(), String> {
        let stream = device.stream().map_err(|error| error.to_string())?;
        for run in 0..runs / THREADS {
            let got = stop.run(&stream).map_err(|error| error.to_string())?;
            if got != want {
                let at = got.iter().zip(want).position(|(got, want)| got != want);
                return Err(format!("{}: run {run} differs, first at byte {at:?}", stop.name));
            }
        }
        Ok(())
    };
    for stop in &stops {
        let want = stop.run(&stream)?;
        thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(|| repeat(stop, &want))).collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("no panic in there"))
        })?;
    }
    println!("{} stops, {runs} runs of each on {THREADS} streams", stops.len());
    Ok(())
}
