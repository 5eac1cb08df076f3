//! Engines of norms beside each other, in turns.

use ironwarp::ops::convert::convert;
use ironwarp::ops::dropout::Generator;
use ironwarp::ops::fill::normal;
use ironwarp::ops::gemm::Activation;
use ironwarp::ops::row::trial::{Setting, set};
use ironwarp::ops::row::{Norm, NormKind, softmax};
use ironwarp::{DType, Device, DeviceBuffer, Event, Stream, Tensor};
use std::time::Instant;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

const SHAPES: [[usize; 2]; 6] =
    [[65_536, 768], [16_384, 4096], [8192, 8192], [4096, 16_384], [2048, 32_768], [1024, 65_536]];
const ROUNDS: usize = 20;
const SAMPLE_MS: f64 = 2.5;
const COPY_BYTES_A_MS: f64 = 4.23e9;

struct Run {
    stream: Stream,
    events: [Event; 2],
}

impl Run {
    fn sample(&self, count: usize, run: &mut dyn FnMut() -> ironwarp::Result<()>) -> Outcome<f64> {
        run()?;
        self.stream.record(&self.events[0])?;
        for _ in 0..count {
            run()?;
        }
        self.stream.record(&self.events[1])?;
        Ok(f64::from(Event::elapsed_ms(&self.events[0], &self.events[1])?) / count as f64)
    }
}

fn random(stream: &Stream, shape: &[usize], dtype: DType, seed: u64) -> ironwarp::Result<Tensor> {
    let x = normal(stream, shape, 0.0, 1.0, seed)?;
    if dtype == DType::F32 { Ok(x) } else { convert(stream, &x, dtype) }
}

/// Settings by name; those that the shape has no plan for are left out.
fn settings(dtype: DType, columns: usize, at: u64) -> Vec<(&'static str, Setting)> {
    let (is_full, is_one) = (columns != 768, columns <= 8192);
    let mut all = vec![
        ("rule", Setting::Rule),
        ("held", Setting::Held),
        ("k1", Setting::Kept(1)),
        ("d1", Setting::Drawn(1, 100, at)),
        ("d67", Setting::Drawn(1, 67, at)),
        ("st", Setting::Drawn(1, 100, 0)),
    ];
    if is_one {
        all.push(("d4", Setting::Drawn(4, 100, at)));
    }
    if !is_one {
        all.push(("db", Setting::Ordered(1, 100, at)));
    }
    if is_full && dtype == DType::BF16 {
        all.push(("w1", Setting::Shared(1, 100, at)));
    }
    if is_full {
        all.push(("l", Setting::Loaded));
        all.push(("lc", Setting::LoadedStream));
    }
    all
}

fn main() -> Outcome {
    let device = Device::open(0)?;
    let is_small = device.is_software();
    let stream = device.stream()?;
    let run = Run { stream: stream.clone(), events: [Event::new(&device)?, Event::new(&device)?] };
    let (begun, counter) = (Instant::now(), DeviceBuffer::<u32>::zeroed(&stream, 1)?);
    let generator = Generator::new(&stream, 6)?;
    println!("ms: median/10th percentile of {ROUNDS} rounds in turns; % of 4230 GB/s by the median");
    let mut logs: std::collections::BTreeMap<&str, Vec<f64>> = Default::default();
    for dtype in [DType::BF16, DType::F32] {
        for [rows, columns] in SHAPES {
            let rows = if is_small { 16 } else { rows };
            let shape = [rows, columns];
            let (x, residual) = (random(&stream, &shape, dtype, 1)?, random(&stream, &shape, dtype, 4)?);
            let (weight, bias) =
                (random(&stream, &[columns], dtype, 2)?, random(&stream, &[columns], dtype, 3)?);
            let bytes = rows * columns * dtype.size();
            let from = DeviceBuffer::<u8>::zeroed(&stream, bytes)?;
            let mut to = DeviceBuffer::<u8>::zeroed(&stream, bytes)?;
            let norm = |kind, bias, activation| Norm {
                kind,
                weight: Some(&weight),
                bias,
                eps: 1e-5,
                activation,
            };
            let layer = norm(NormKind::Layer, Some(&bias), Activation::None);
            let of = |name: &str| -> ironwarp::Result<Tensor> {
                Ok(match name {
                    "ln" => layer.run(&stream, &x)?.y,
                    "gelu" => norm(NormKind::Layer, Some(&bias), Activation::GeluTanh).run(&stream, &x)?.y,
                    "rms" => norm(NormKind::Rms, None, Activation::None).run(&stream, &x)?.y,
                    "ln_res" => layer.add_and_run(&stream, &x, &residual, true)?.y,
                    "drop_res" => {
                        layer.dropout(0.1, &generator, 0).add_and_run(&stream, &x, &residual, true)?.y
                    }
                    _ => softmax(&stream, &x, 1)?,
                })
            };
            let copy = {
                let mut run_copy = || to.copy_from_device(&stream, &from);
                let ms = run.sample(1, &mut run_copy)?;
                let count = ((SAMPLE_MS / ms.max(1e-3)).ceil() as usize).clamp(1, 60);
                let mut times = vec![];
                for _ in 0..ROUNDS {
                    times.push(run.sample(count, &mut run_copy)?);
                }
                times.sort_by(f64::total_cmp);
                times[ROUNDS / 2]
            };
            println!(
                "{dtype} {rows}x{columns}: copy {copy:.4} ({:.0} GB/s), {} s",
                2.0 * bytes as f64 / copy / 1e6,
                begun.elapsed().as_secs()
            );
            for (name, tensors) in
                [("ln", 2), ("gelu", 2), ("rms", 2), ("ln_res", 4), ("drop_res", 4), ("softmax", 2)]
            {
                let mut all = settings(dtype, columns, counter.as_ptr().raw());
                if tensors == 4 && name != "ln_res" || name == "softmax" {
                    all.truncate(1);
                }
                let floor = (tensors * bytes) as f64 / COPY_BYTES_A_MS;
                let mut times = vec![vec![]; all.len()];
                let mut want = None;
                let mut notes = String::new();
                for &(label, setting) in &all {
                    set(setting);
                    drop(Tensor::zeros(&stream, &shape, dtype)?);
                    let y = of(name)?;
                    match &want {
                        None => want = Some(y),
                        Some(want) => {
                            let most = (&y - want)?.abs()?.amax_all()?;
                            let most = convert(&stream, &most, DType::F32)?.to_vec::<f32>(&stream)?[0];
                            let limit = if dtype == DType::F32 { 1e-4 } else { 0.07 };
                            if !(most <= limit) {
                                notes += &format!(" WRONG {label} {most}");
                            }
                        }
                    }
                }
                drop(want);
                set(Setting::Rule);
                let ms = run.sample(2, &mut || of(name).map(drop))?;
                let count = ((SAMPLE_MS / ms.max(1e-3)).ceil() as usize).clamp(1, 60);
                let rounds = if is_small { 1 } else { ROUNDS };
                for round in 0..rounds {
                    for turn in 0..all.len() {
                        let which = (turn + round) % all.len();
                        set(all[which].1);
                        times[which].push(run.sample(count, &mut || of(name).map(drop))?);
                    }
                }
                let mut line = format!("{dtype} {columns} {name}:");
                let mut best = (f64::MAX, "");
                let mut of_rule = 0.0;
                for ((label, _), times) in all.iter().zip(&mut times) {
                    times.sort_by(f64::total_cmp);
                    let (median, low) = (times[rounds / 2], times[rounds / 10]);
                    if *label == "rule" {
                        of_rule = median;
                    }
                    logs.entry(*label).or_default().push((median / of_rule).ln());
                    if median < best.0 {
                        best = (median, *label);
                    }
                    line += &format!(" {label} {median:.4}/{low:.4} ({:.0}%)", 100.0 * floor / median);
                }
                println!("{line} | best {} {:.3} of the rule{notes}", best.1, best.0 / of_rule);
            }
            set(Setting::Rule);
        }
    }
    for (label, logs) in logs {
        let mean = (logs.iter().sum::<f64>() / logs.len() as f64).exp();
        println!("{label}: {mean:.4} of the rule in geometric mean of {} lines", logs.len());
    }
    println!("counter {:?}, {} s", counter.to_vec(&stream)?, begun.elapsed().as_secs());
    Ok(())
}
