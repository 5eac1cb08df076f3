//! Every kernel that the library ships: once, which is what sanitizers are given, and many times, which must
//! not change a bit.
//!
//! With `--nocapture` the first prints a line `bits DIGEST NAME` for each stop, by which a bundle's `run
//! agree` compares the executor with a GPU.

mod stops;

use ironwarp::{Device, Stream};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use stops::{Outcome, Stop};

/// Times that a stop is run in all, and threads with a stream each that share them. The software driver is
/// slow.
const RUNS: (usize, usize) = (100, 4);
const RUNS_IN_SOFTWARE: (usize, usize) = (2, 2);

/// The same bytes have the same, in one build of this program.
fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

/// The first result of a stop in this program, which tests share on the software driver.
fn first(stop: &Stop, stream: &Stream) -> Result<Arc<Vec<u8>>, String> {
    type Slot = Arc<OnceLock<Result<Arc<Vec<u8>>, String>>>;
    static FIRST: Mutex<BTreeMap<String, Slot>> = Mutex::new(BTreeMap::new());
    let run = || stop.run(stream).map(Arc::new).map_err(|error| error.to_string());
    if !stream.device().is_software() {
        return run();
    }
    let slot = FIRST.lock().map_err(|error| error.to_string())?.entry(stop.name.clone()).or_default().clone();
    slot.get_or_init(run).clone()
}

/// Goes once, and sees that no kernel of the families is left out.
fn once(stops: Vec<Stop>, stream: &Stream, families: &[&str]) -> Outcome {
    for stop in &stops {
        println!("{}", stop.name);
        let bytes = first(stop, stream)?;
        println!("bits {:016x} {}", digest(&bytes), stop.name);
    }
    sees_all(stream.device(), families)
}

/// Sees that no kernel of the families was left out.
fn sees_all(device: &Device, families: &[&str]) -> Outcome {
    if !device.is_software() {
        println!("which kernels were launched is known on the software driver only");
        return Ok(());
    }
    let kernels = driver::soft::launches();
    let wanted: Vec<_> = kernels.iter().filter(|kernel| families.contains(&kernel.family)).collect();
    assert!(!wanted.is_empty(), "no kernels of {families:?}");
    let left_out: Vec<_> = wanted.into_iter().filter(|kernel| kernel.times == 0).collect();
    assert!(left_out.is_empty(), "the tour leaves out {left_out:#?}");
    Ok(())
}

#[test]
fn vectors_once() -> Outcome {
    once(stops::vectors(), &Device::open(0)?.stream()?, &["ironwarp_basic", "ironwarp_similarity"])
}

#[test]
fn tensors_once() -> Outcome {
    once(stops::tensors(), &Device::open(0)?.stream()?, &["ironwarp_tensor"])
}

#[test]
fn optimizers_once() -> Outcome {
    once(stops::optimizers(), &Device::open(0)?.stream()?, &["ironwarp_optim"])
}

#[test]
fn convolutions_once() -> Outcome {
    once(stops::convolutions(), &Device::open(0)?.stream()?, &["ironwarp_conv"])
}

#[test]
fn rows_once() -> Outcome {
    once(stops::rows(), &Device::open(0)?.stream()?, &["ironwarp_rows"])
}

#[test]
fn products_once() -> Outcome {
    let stream = Device::open(0)?.stream()?;
    once(stops::products(&stream)?, &stream, &["ironwarp_gemm"])
}

/// For tools that cannot follow the copies of the backward pass.
#[test]
fn attention_forward_once() -> Outcome {
    let stream = Device::open(0)?.stream()?;
    for stop in stops::attention_forward(&stream)? {
        println!("{}", stop.name);
        stop.run(&stream)?;
    }
    Ok(())
}

#[test]
fn attention_once() -> Outcome {
    let stream = Device::open(0)?.stream()?;
    once(stops::attention(&stream)?, &stream, &["ironwarp_attention"])
}

/// Two devices, many times.
#[test]
fn collectives_repeat() -> Outcome {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "2");
    if Device::count()? < 2 {
        testkit::skip("no second GPU");
        return Ok(());
    }
    let devices = [Device::open(0)?, Device::open(1)?];
    let first = stops::collectives(&devices)?;
    println!("bits {:016x} collectives", digest(&first));
    let (runs, _) = if devices[0].is_software() { RUNS_IN_SOFTWARE } else { RUNS };
    for run in 1..runs {
        assert!(stops::collectives(&devices)? == first, "run {run} differs");
    }
    sees_all(&devices[0], &["ironwarp_collective"])
}

/// Streams beside each other must not disturb each other either. Each is compared with a run alone. On the
/// software driver, which is slow, streams run different stops beside each other, each once more.
#[test]
fn every_run_gives_the_same_bits() -> Outcome {
    let device = Device::open(0)?;
    let stream = device.stream()?;
    let mut stops = stops::vectors();
    stops.extend(stops::tensors());
    stops.extend(stops::optimizers());
    stops.extend(stops::convolutions());
    stops.extend(stops::products(&stream)?);
    stops.extend(stops::attention(&stream)?);
    let (runs, threads) = if device.is_software() { RUNS_IN_SOFTWARE } else { RUNS };
    if device.is_software() {
        beside_each_other(threads, |thread| {
            let stream = device.stream().map_err(|error| error.to_string())?;
            let mut own = stops.iter().skip(thread).step_by(threads);
            own.try_for_each(|stop| repeat(stop, &stream, &first(stop, &stream)?, runs - 1))
        })?;
    } else {
        for stop in &stops {
            let want = first(stop, &stream)?;
            beside_each_other(threads, |_| {
                let stream = device.stream().map_err(|error| error.to_string())?;
                repeat(stop, &stream, &want, runs / threads)
            })?;
        }
    }
    println!("{} stops, {runs} runs of each on {threads} streams", stops.len());
    Ok(())
}

/// Runs a stop so many times, for the bits that are wanted.
fn repeat(stop: &Stop, stream: &Stream, want: &[u8], runs: usize) -> Result<(), String> {
    for run in 0..runs {
        let got = stop.run(stream).map_err(|error| error.to_string())?;
        if got != want {
            let at = got.iter().zip(want).position(|(got, want)| got != want);
            return Err(format!("{}: run {run} differs, first at byte {at:?}", stop.name));
        }
    }
    Ok(())
}

/// Runs `work` on so many threads, with the number of each.
fn beside_each_other(
    threads: usize,
    work: impl Fn(usize) -> Result<(), String> + Sync,
) -> Result<(), String> {
    thread::scope(|scope| {
        let work = &work;
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        running.into_iter().try_for_each(|thread| thread.join().expect("no panic in there"))
    })
}
