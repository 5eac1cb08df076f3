//! Layer norms of rows in registers whose first exchange does not give the deviations, which are computed
//! anew: means far from 0, NaN and infinities. Then gates of what is not finite.

use crate::common::{Outcome, stream, tests};
use crate::lying::exact;
use crate::norms::{EPS, plain};
use half::{bf16, f16};
use ironwarp::Tensor;
use ironwarp::ops::gemm::Activation;
use ironwarp::ops::row::{Norm, NormKind};
use ironwarp::tensor::Element;
use rows::plan::{KEPT_RESIDENT, KEPT_WARPS};
use testkit::{Family, input};

/// Three vectors a thread in 16 bits, four, some threads with less, several warps, and clusters.
const COLUMNS: [usize; 6] = [768, 1024, 1000, 8192, 14_000, 16_384];
/// Rows of different kinds.
const KINDS: usize = 11;

/// The sum of some hundred squares of it is more than an f32 holds.
const HUGE: f64 = (1u64 << 60) as f64;

/// A number of a row of that kind. All of them are exact in 16 bits.
fn number<T: Element + testkit::Element + Into<f64>>(kind: usize, columns: usize, at: usize, x: T) -> T {
    let near = [0.0, 8.0, -8.0, 8.0, 0.0, 16.0, -16.0][(at * 5 + at / 11) % 7];
    let value = match kind {
        1 => 1024.0 + near,
        2 => -2048.0 + 2.0 * near,
        3 => 3.0,
        4 if at == columns / 3 => f64::NAN,
        5 if at == 1 => f64::INFINITY,
        6 if at == columns - 1 => f64::NEG_INFINITY,
        // In clusters, blocks that go different ways.
        7 if at < columns / 2 => 1024.0 + near,
        // The mean's square is near 64 times the variance.
        8 => 77.0 + near,
        // The squares overflow, where the type has such numbers.
        9 | 10 if T::from_f64(HUGE).into().is_finite() => {
            HUGE * (1.0 + if kind == 9 { near / 1024.0 } else { 0.0 })
        }
        _ => return x,
    };
    T::from_f64(value)
}

/// The norm of a row, its mean, and the inverse of its deviation.
fn normed(x: &[f64]) -> (Vec<f64>, f64, f64) {
    let of = |terms: &dyn Fn(f64) -> f64| x.iter().map(|&x| terms(x)).sum::<f64>() / x.len() as f64;
    let mean = of(&|x| x);
    let factor = 1.0 / (of(&|x| (x - mean) * (x - mean)) + EPS).sqrt();
    (x.iter().map(|x| (x - mean) * factor).collect(), mean, factor)
}

fn deviations_are_exact<T: Element + testkit::Element + Into<f64>>() -> Outcome {
    let stream = stream()?;
    let warps = stream.device().properties().sm_count * KEPT_RESIDENT * KEPT_WARPS;
    let unit = if <T as Element>::DTYPE == bf16::DTYPE { 2f64.powi(-8) } else { 2f64.powi(-11) };
    for columns in COLUMNS {
        // Few, which have blocks of their own, and more than run at once, which long ones draw.
        for rows in [KINDS, KINDS.max(warps as usize / columns.div_ceil(1024) + 3)] {
            let random = input::<T>(Family::Normal, 1, rows * columns);
            let of = |(i, &x): (usize, &T)| number(i / columns % KINDS, columns, i % columns, x);
            let values: Vec<T> = random.iter().enumerate().map(of).collect();
            let x = Tensor::from_slice(&stream, &[rows, columns], &values)?;
            let lies = |value| Tensor::from_slice(&stream, &[columns], &vec![T::from_f64(value); columns]);
            let (weight, bias) = (lies(1.0)?, lies(0.0)?);
            let norm = Norm { weight: Some(&weight), bias: Some(&bias), ..plain(NormKind::Layer) };
            let result = norm.run_for_gradient(&stream, &x)?;
            let y = exact(&result.y.to_vec::<T>(&stream)?);
            let moments = result.moments.ok_or("moments were wanted")?.to_vec::<f32>(&stream)?;
            for (row, (x, y)) in exact(&values).chunks(columns).zip(y.chunks(columns)).enumerate() {
                let what = format!("row {row} of {rows} x {columns}");
                let [mean, factor] = [moments[row], moments[rows + row]].map(f64::from);
                let (want, of_row, inverse) = normed(x);
                if inverse.is_nan() {
                    assert!(factor.is_nan() && y.iter().all(|y| y.is_nan()), "{what}: {mean} {factor}");
                    continue;
                }
                assert!((mean - of_row).abs() * inverse < 4e-5, "{what}: mean {mean}, not {of_row}");
                assert!((factor / inverse - 1.0).abs() < 1e-5, "{what}: factor {factor}, not {inverse}");
                for (y, want) in y.iter().zip(want) {
                    assert!((y - want).abs() <= unit * want.abs() + 1e-4, "{what}: {y}, not {want}");
                }
            }
        }
    }
    Ok(())
}

tests!(deviations_are_exact: f16_deviations_are_exact = f16, bf16_deviations_are_exact = bf16);

/// Whether a result is the one of a gate: minus infinity, infinity, NaN, a number that leaves nothing.
fn is_of_gate(at: usize, y: f32, of_minus_infinity: f32) -> bool {
    match at % 4 {
        0 if of_minus_infinity.is_nan() => y.is_nan(),
        0 => y == of_minus_infinity,
        1 => y == f32::INFINITY,
        2 => y.is_nan(),
        _ => y == 0.0,
    }
}

fn gates_of_what_is_not_finite<T: Element + testkit::Element + Into<f64>>() -> Outcome {
    let stream = stream()?;
    let biases = [f64::NEG_INFINITY, f64::INFINITY, f64::NAN, -1e4];
    // PyTorch's of minus infinity are NaN too; f32 keeps the limit.
    let limit = if size_of::<T>() == 4 { 0.0 } else { f32::NAN };
    // The last one is no whole vectors, so it lies in shared memory.
    for columns in COLUMNS.into_iter().chain([4100]) {
        let x = Tensor::from_slice(&stream, &[2, columns], &input::<T>(Family::Normal, 1, 2 * columns))?;
        let weight = Tensor::from_slice(&stream, &[columns], &vec![T::from_f64(1.0); columns])?;
        let bias: Vec<T> = (0..columns).map(|at| T::from_f64(biases[at % 4])).collect();
        let bias = Tensor::from_slice(&stream, &[columns], &bias)?;
        for (activation, of_minus_infinity) in [
            (Activation::GeluTanh, limit),
            (Activation::Silu, limit),
            (Activation::Gelu, 0.0),
            (Activation::Relu, 0.0),
        ] {
            let norm =
                Norm { weight: Some(&weight), bias: Some(&bias), activation, ..plain(NormKind::Layer) };
            for (at, y) in exact(&norm.run(&stream, &x)?.y.to_vec::<T>(&stream)?).into_iter().enumerate() {
                let is = is_of_gate(at % columns, y as f32, of_minus_infinity);
                assert!(is, "{activation:?} of {} in {columns} columns: {y}", biases[at % columns % 4]);
            }
        }
    }
    Ok(())
}

tests!(
    gates_of_what_is_not_finite:
        f32_gates_of_what_is_not_finite = f32,
        f16_gates_of_what_is_not_finite = f16,
        bf16_gates_of_what_is_not_finite = bf16
);
