//! Engines of norms beside each other, in turns.

use ironwarp::ops::convert::convert;
use ironwarp::ops::dropout::Generator;
use ironwarp::ops::fill::normal;
use ironwarp::ops::gemm::Activation;
use ironwarp::ops::row::trial::{Setting, set, set_code};
use ironwarp::ops::row::{Norm, NormBackward, NormKind, softmax, softmax_backward};
use ironwarp::{DType, Device, DeviceBuffer, Event, Stream, Tensor};
use std::time::Instant;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

const SHAPES: [[usize; 2]; 6] =
    [[65_536, 768], [16_384, 4096], [8192, 8192], [4096, 16_384], [2048, 32_768], [1024, 65_536]];
const ROUNDS: usize = 40;
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

/// Code and setting by name; those that the shape has no plan for are left out.
fn settings(dtype: DType, columns: usize, name: &str) -> Vec<(&'static str, usize, Setting)> {
    let mut all = vec![("old", 2, Setting::Rule), ("oldcs", 3, Setting::Rule)];
    if is_norm(name) {
        all.push(("plain", 1, Setting::Rule));
        all.push(("cs", 0, Setting::Rule));
        all.push(("held", 0, Setting::Held));
        all.push(("k1", 0, Setting::Kept(1)));
        all.push(("d1", 0, Setting::Drawn));
        if columns != 768 && dtype == DType::BF16 {
            all.push(("w1", 0, Setting::Shared));
        }
    }
    all
}

fn is_norm(name: &str) -> bool {
    matches!(name, "ln" | "gelu" | "rms" | "ln_res")
}

/// Takes code and setting.
fn take((_, code, setting): (&str, usize, Setting)) {
    set_code(code);
    set(setting);
}

fn main() -> Outcome {
    let device = Device::open(0)?;
    let is_small = device.is_software();
    let stream = device.stream()?;
    let run = Run { stream: stream.clone(), events: [Event::new(&device)?, Event::new(&device)?] };
    let begun = Instant::now();
    let generator = Generator::new(&stream, 6)?;
    println!("ms: median/10th percentile of {ROUNDS} rounds in turns; % of 4230 GB/s by the median");
    let mut logs: std::collections::BTreeMap<String, Vec<f64>> = Default::default();
    for dtype in [DType::BF16, DType::F32] {
        for [rows, columns] in SHAPES {
            let rows = if is_small { 16 } else { rows };
            let shape = [rows, columns];
            let (x, residual) = (random(&stream, &shape, dtype, 1)?, random(&stream, &shape, dtype, 4)?);
            let (weight, bias) =
                (random(&stream, &[columns], dtype, 2)?, random(&stream, &[columns], dtype, 3)?);
            let dy = random(&stream, &shape, dtype, 5)?;
            let parts = [8, 4].map(|part| x.slice(0, ..(rows / part).max(1)));
            let [eighth, quarter] = parts;
            let (eighth, quarter) = (eighth?, quarter?);
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
            let moments = layer.run_for_gradient(&stream, &x)?.moments.ok_or("moments")?;
            let back = NormBackward {
                kind: NormKind::Layer,
                x: &x,
                dy: &dy,
                moments: &moments,
                weight: Some(&weight),
                residual: None,
                of_shared: [true, true],
            };
            let of_input = NormBackward { of_shared: [false; 2], ..back };
            let y = softmax(&stream, &x, 1)?;
            let of = |name: &str| -> ironwarp::Result<Tensor> {
                Ok(match name {
                    "ln" => layer.run(&stream, &x)?.y,
                    "gelu" => norm(NormKind::Layer, Some(&bias), Activation::GeluTanh).run(&stream, &x)?.y,
                    "rms" => norm(NormKind::Rms, None, Activation::None).run(&stream, &x)?.y,
                    "ln_res" => layer.add_and_run(&stream, &x, &residual, true)?.y,
                    "drop_res" => {
                        layer.dropout(0.1, &generator, 0).add_and_run(&stream, &x, &residual, true)?.y
                    }
                    "soft_back" => softmax_backward(&stream, &y, &dy, 1)?,
                    "ln_back" => back.run(&stream)?.x,
                    "ln_back_x" => of_input.run(&stream)?.x,
                    "chain8" => softmax(&stream, &layer.run(&stream, &eighth)?.y, 1)?,
                    "chain4" => softmax(&stream, &layer.run(&stream, &quarter)?.y, 1)?,
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
            for (name, tensors) in [
                ("ln", 2.0),
                ("gelu", 2.0),
                ("rms", 2.0),
                ("ln_res", 4.0),
                ("drop_res", 4.0),
                ("softmax", 2.0),
                ("soft_back", 3.0),
                ("ln_back", 3.0),
                ("ln_back_x", 3.0),
                ("chain8", 0.5),
                ("chain4", 1.0),
            ] {
                let all = settings(dtype, columns, name);
                let floor = tensors * bytes as f64 / COPY_BYTES_A_MS;
                let mut times = vec![vec![]; all.len()];
                let mut want = None;
                let mut notes = String::new();
                for &each in &all {
                    let label = each.0;
                    take(each);
                    drop(Tensor::zeros(&stream, &shape, dtype)?);
                    let y = of(name)?;
                    set_code(0);
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
                take(all[0]);
                let ms = run.sample(2, &mut || of(name).map(drop))?;
                let count = ((SAMPLE_MS / ms.max(1e-3)).ceil() as usize).clamp(1, 60);
                let rounds = if is_small { 1 } else { ROUNDS };
                for round in 0..rounds {
                    for turn in 0..all.len() {
                        let which = (turn + round) % all.len();
                        take(all[which]);
                        times[which].push(run.sample(count, &mut || of(name).map(drop))?);
                    }
                }
                let mut line = format!("{dtype} {columns} {name}:");
                let mut best = (f64::MAX, "");
                let mut of_rule = 0.0;
                for ((label, ..), times) in all.iter().zip(&mut times) {
                    times.sort_by(f64::total_cmp);
                    let (median, low) = (times[rounds / 2], times[rounds / 10]);
                    if *label == "old" {
                        of_rule = median;
                    }
                    logs.entry(format!("{dtype} {} {label}", if is_norm(name) { "norms" } else { name })).or_default().push((median / of_rule).ln());
                    if median < best.0 {
                        best = (median, *label);
                    }
                    line += &format!(" {label} {median:.4}/{low:.4} ({:.0}%)", 100.0 * floor / median);
                }
                println!("{line} | best {} {:.3} of the old{notes}", best.1, best.0 / of_rule);
            }
            take(("", 0, Setting::Rule));
        }
    }
    for (label, logs) in logs {
        let mean = (logs.iter().sum::<f64>() / logs.len() as f64).exp();
        println!("{label}: {mean:.4} of the old in geometric mean of {} lines", logs.len());
    }
    println!("{} s", begun.elapsed().as_secs());
    Ok(())
}
