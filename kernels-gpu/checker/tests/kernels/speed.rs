//! Times a launch under the checker: `cargo test -p ironwarp-checker speed -- --ignored --nocapture`.

use std::ffi::c_void;
use std::time::{Duration, Instant};

use checker::speed::TILE;
use simt::memory::Tracked;
use simt::{LaunchConfig, Options};

/// Launches `timed_product` of `n` cubed, on that many threads.
fn product(n: usize, workers: usize) -> (Vec<f32>, Duration) {
    let mut data: Vec<f32> = (0..3 * n * n).map(|i| (i % 7) as f32).collect();
    let tracked = Tracked::new(&mut data, "data");
    let (pointer, aux, size) = (tracked.as_ptr(), std::ptr::null_mut::<u32>(), n as u32);
    let params: [*const c_void; 3] =
        [(&raw const pointer).cast(), (&raw const aux).cast(), (&raw const size).cast()];
    let (blocks, threads) = ((n / TILE) as u32, TILE as u32);
    let config =
        LaunchConfig { grid: [blocks, blocks, 1], block: [threads, threads, 1], ..LaunchConfig::default() };
    let entry = simt::registry::find(Some("checker"), "timed_product").unwrap();
    let started = Instant::now();
    let options = Options { check: true, workers, ..Options::default() };
    // SAFETY: three matrices of `n` rows, as the kernel asks.
    unsafe { simt::launch(entry, &config, params.as_ptr(), &options) }.unwrap();
    let took = started.elapsed();
    drop(tracked);
    (data, took)
}

#[test]
fn a_product_is_right() {
    let n = 32;
    let (data, _) = product(n, 1);
    for (row, column) in (0..n).flat_map(|row| (0..n).map(move |column| (row, column))) {
        let expected: f32 = (0..n).map(|k| data[row * n + k] * data[n * n + k * n + column]).sum();
        assert_eq!(data[2 * n * n + row * n + column], expected, "row {row}, column {column}");
    }
}

#[test]
#[ignore = "measures"]
fn speed() {
    for workers in [1, 2] {
        let times = [(); 3].map(|()| product(512, workers).1.as_secs_f64());
        println!("512 cubed on {workers} cores: {times:.2?} s");
    }
}
