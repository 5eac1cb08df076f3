//! The ops give the same bits in every run and, on the software driver, under every schedule of threads and
//! blocks.
//!
//! A process has one schedule, so the program runs itself again for each.

use crate::common::Outcome;
use half::bf16;
use ironwarp::ops::gemm::{Gemm, Matmul, Matrix, MatrixMut, candidates, gemm_f32};
use ironwarp::ops::index::{Indices, scatter, scatter_add};
use ironwarp::ops::reduce::sum;
use ironwarp::ops::{reduce, saxpy::saxpy, transpose::transpose};
use ironwarp::{DType, Device, DeviceBuffer, Tensor};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::process::Command;
use testkit::{Family, input};

/// Schedules tried.
const SEEDS: u64 = 20;
/// Prefix of the lines with results.
const MARK: &str = "bits of ";
/// The test that prints them.
const PRINTER: &str = "ops_repeat::print_bits";

fn digest(values: &[f32]) -> u64 {
    let mut hasher = DefaultHasher::new();
    values.iter().for_each(|value| value.to_bits().hash(&mut hasher));
    hasher.finish()
}

/// One line for each op, of inputs whose sums depend on the order of the additions.
fn results() -> Outcome<Vec<String>> {
    let stream = Device::open(0)?.stream()?;
    let upload =
        |seed: u64, len: usize| DeviceBuffer::from_slice(&stream, &input::<f32>(Family::HugeTiny, seed, len));
    let mut lines = Vec::new();
    let mut line = |name: &str, values: &[f32]| lines.push(format!("{MARK}{name}: {:016x}", digest(values)));

    let (x, mut y) = (upload(1, 9_001)?, upload(2, 9_001)?);
    saxpy(&stream, 1.5, &x, &mut y)?;
    line("saxpy", &y.to_vec(&stream)?);
    line("reduce_sum", &[reduce::buffer_sum(&stream, &upload(3, 30_001)?)?]);
    line("reduce_max", &[reduce::buffer_amax(&stream, &upload(4, 30_001)?)?]);
    let (x, mut y) = (upload(5, 130 * 70)?, DeviceBuffer::zeroed(&stream, 130 * 70)?);
    transpose(&stream, 130, 70, &x, &mut y)?;
    line("transpose", &y.to_vec(&stream)?);
    let (a, b, mut c) = (upload(6, 140 * 50)?, upload(7, 50 * 132)?, upload(8, 140 * 132)?);
    gemm_f32(&stream, Gemm { m: 140, n: 132, k: 50, alpha: 1.0, beta: 0.5 }, &a, &b, &mut c)?;
    line("gemm_f32", &c.to_vec(&stream)?);
    let half = |seed: u64, len: usize| {
        DeviceBuffer::from_slice(&stream, &input::<bf16>(Family::HugeTiny, seed, len))
    };
    let (a, b, mut c) = (half(9, 70 * 72)?, half(10, 136 * 72)?, upload(11, 70 * 136)?);
    let problem = {
        let (a, b) = (Matrix::new::<bf16>(&a, 70, 72), Matrix::new::<bf16>(&b, 136, 72).transposed());
        Matmul::new(a, b, MatrixMut::new::<f32>(&mut c, 70, 136)).problem()?
    };
    // Of the kernels that differ by their tiles only, those of small ones.
    let offers = candidates(&problem, stream.device());
    for offer in offers.into_iter().filter(|offer| offer.config.tile[0] * offer.config.tile[1] <= 64 * 64) {
        let (a, b) = (Matrix::new::<bf16>(&a, 70, 72), Matrix::new::<bf16>(&b, 136, 72).transposed());
        Matmul::new(a, b, MatrixMut::new::<f32>(&mut c, 70, 136)).run_with(&stream, &offer.config)?;
        line(&offer.config.to_string(), &c.to_vec(&stream)?);
    }
    let x = Tensor::from_slice(&stream, &[30, 1_031], &input::<f32>(Family::HugeTiny, 9, 30 * 1_031))?;
    for (name, axes) in [("all", &[][..]), ("columns", &[0]), ("rows", &[1])] {
        line(&format!("sum of {name}"), &sum(&stream, &x, axes)?.to_vec(&stream)?);
    }
    let chosen: Vec<usize> = (0..30).map(|row| row * row % 7).collect();
    let mut rows = Tensor::zeros(&stream, &[7, 1_031], DType::F32)?;
    scatter_add(&stream, rows.view_mut()?, 0, &Indices::from_slice(&stream, &chosen, 7)?, &x)?;
    line("scatter_add", &rows.to_vec(&stream)?);
    scatter(&stream, rows.view_mut()?, 0, &Indices::from_slice(&stream, &chosen, 7)?, &x)?;
    line("scatter", &rows.to_vec(&stream)?);
    Ok(lines)
}

#[test]
fn print_bits() -> Outcome {
    results()?.iter().for_each(|line| println!("\n{line}"));
    Ok(())
}

#[test]
fn same_bits_under_every_schedule() -> Outcome {
    let want = results()?;
    for seed in 1..=SEEDS {
        let output = Command::new(std::env::current_exe()?)
            .args(["--exact", PRINTER, "--nocapture"])
            .env("IRONWARP_SEED", seed.to_string())
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let got: Vec<&str> = text.lines().filter(|line| line.starts_with(MARK)).collect();
        let log = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "IRONWARP_SEED={seed}: {text}\n{log}");
        assert_eq!(got, want, "IRONWARP_SEED={seed}");
    }
    Ok(())
}
