//! saxpy, reduce, hash and transpose, with a device-to-device copy in the same run.

use std::process::ExitCode;

use ironwarp::ops::{hash::hash_bytes, reduce, saxpy::saxpy, transpose::transpose};
use ironwarp::{DeviceBuffer, Tensor};
use ironwarp_benches::{Outcome, Session, Work};
use serde_json::{Value, json};
use testkit::{Family, compare, input, tolerance};

/// Bytes per element.
const F32: u64 = size_of::<f32>() as u64;
/// Elements compared with the oracle in one step.
const CHUNK: usize = 1 << 20;

fn main() -> ExitCode {
    Session::run("basic", |session| {
        // 1 GiB per vector. That is far beyond every cache, so the operands need no rotation.
        let elements: usize = if session.small() { 1 << 16 } else { 1 << 28 };
        let x: Vec<f32> = input(Family::Uniform, 1, elements);
        bench_copy(session, &x)?;
        bench_saxpy(session, &x)?;
        bench_reduce(session, &x)?;
        bench_hash(session, &x)?;
        let sides: &[(usize, usize)] = if session.small() {
            &[(256, 256)]
        } else {
            &[(16_384, 16_384), (8_192, 32_768), (10_000, 20_004), (16_383, 16_385)]
        };
        sides.iter().try_for_each(|&(rows, columns)| bench_transpose(session, &x, rows, columns))
    })
}

/// PyTorch's op of that name on a vector of `len`.
fn torch(op: &str, len: usize) -> [Value; 1] {
    [json!({ "prepare": format!("basic.{op}"), "shape": [len], "dtype": "f32" })]
}

fn bench_copy(session: &mut Session, x: &[f32]) -> Outcome {
    let stream = session.stream.clone();
    let from = DeviceBuffer::from_slice(&stream, x)?;
    let mut to = DeviceBuffer::<f32>::zeroed(&stream, x.len())?;
    let bytes = 2 * F32 * x.len() as u64;
    session.measure_beside(
        "copy",
        &x.len().to_string(),
        Work::Bytes(bytes),
        &torch("copy", x.len()),
        |_| to.copy_from_device(&stream, &from),
    )?;
    compare::bitwise_equal("copy", &to.to_vec(&stream)?, x)?;
    Ok(())
}

fn bench_saxpy(session: &mut Session, x: &[f32]) -> Outcome {
    if !session.wants("saxpy") {
        return Ok(());
    }
    let (a, stream) = (0.5, session.stream.clone());
    let x_device = DeviceBuffer::from_slice(&stream, x)?;
    let old: Vec<f32> = input(Family::Uniform, 2, x.len());
    let mut y = DeviceBuffer::from_slice(&stream, &old)?;
    saxpy(&stream, a, &x_device, &mut y)?;
    let got = y.to_vec(&stream)?;
    for ((got, x), old) in got.chunks(CHUNK).zip(x.chunks(CHUNK)).zip(old.chunks(CHUNK)) {
        let want = reference::saxpy(a, x, old);
        compare::elementwise("saxpy", got, &want, &[want.len()], tolerance::SAXPY.tolerance())?;
    }
    let bytes = 3 * F32 * x.len() as u64;
    session.measure_beside(
        "saxpy",
        &x.len().to_string(),
        Work::Bytes(bytes),
        &torch("saxpy", x.len()),
        |_| saxpy(&stream, a, &x_device, &mut y),
    )
}

fn bench_reduce(session: &mut Session, x: &[f32]) -> Outcome {
    if !session.wants("reduce") {
        return Ok(());
    }
    let stream = session.stream.clone();
    let device = DeviceBuffer::from_slice(&stream, x)?;
    let want = reference::sum(x);
    let limit = tolerance::REDUCE_SUM.for_terms(x.len());
    let got = reduce::buffer_sum(&stream, &device)?;
    compare::accumulated("reduce_sum", &[got], &want.value, &want.magnitude, &[1], limit)?;
    let got = reduce::buffer_amax(&stream, &device)?;
    compare::elementwise(
        "reduce_max",
        &[got],
        &[reference::max(x)],
        &[1],
        tolerance::REDUCE_MAX.tolerance(),
    )?;

    let (work, shape) = (Work::Bytes(F32 * x.len() as u64), x.len().to_string());
    let mut out = DeviceBuffer::zeroed(&stream, 1)?;
    let (sum, max) = (torch("sum", x.len()), torch("max", x.len()));
    session.measure_beside("reduce_sum", &shape, work, &sum, |_| {
        reduce::buffer_sum_into(&stream, &device, &mut out)
    })?;
    session.measure_beside("reduce_max", &shape, work, &max, |_| {
        reduce::buffer_amax_into(&stream, &device, &mut out)
    })
}

fn bench_hash(session: &mut Session, x: &[f32]) -> Outcome {
    if !session.wants("hash_bytes") {
        return Ok(());
    }
    let stream = session.stream.clone();
    let device = Tensor::from_slice(&stream, &[x.len()], x)?;
    let (got, want) =
        (hash_bytes(&stream, &[&device])?.to_vec(&stream)?, reference::hash(bytemuck::cast_slice(x)));
    if got != [want as i64] {
        return Err(format!("hash_bytes: {:#x}, wanted {want:#x}", got[0]).into());
    }
    let bytes = Work::Bytes(F32 * x.len() as u64);
    session.measure("hash_bytes", &x.len().to_string(), bytes, |_| hash_bytes(&stream, &[&device]).map(drop))
}

fn bench_transpose(session: &mut Session, x: &[f32], rows: usize, columns: usize) -> Outcome {
    if !session.wants("transpose") || rows * columns > x.len() {
        return Ok(());
    }
    let stream = session.stream.clone();
    let x = &x[..rows * columns];
    let device = DeviceBuffer::from_slice(&stream, x)?;
    let mut y = DeviceBuffer::zeroed(&stream, x.len())?;
    transpose(&stream, rows, columns, &device, &mut y)?;
    compare::bitwise_equal("transpose", &y.to_vec(&stream)?, &reference::transpose(x, rows, columns))?;
    let bytes = 2 * F32 * x.len() as u64;
    let torch = [json!({ "prepare": "basic.transpose", "shape": [rows, columns], "dtype": "f32" })];
    session.measure_beside("transpose", &format!("{rows}x{columns}"), Work::Bytes(bytes), &torch, |_| {
        transpose(&stream, rows, columns, &device, &mut y)
    })
}
