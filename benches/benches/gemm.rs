//! The f32 matrix product.

use ironwarp::DeviceBuffer;
use ironwarp::ops::gemm::{Gemm, gemm_f32};
use ironwarp_benches::{Outcome, Session, Work};
use serde_json::json;
use testkit::{Family, compare, input, tolerance};

/// Rows of C that are compared with the oracle, evenly spread.
const CHECKED_ROWS: usize = 32;

/// Shapes: square ones, a tall, a wide and a deep one, and one that no tile divides.
const SHAPES: [(usize, usize, usize); 8] = [
    (512, 512, 512),
    (1024, 1024, 1024),
    (2048, 2048, 2048),
    (4096, 4096, 4096),
    (8192, 8192, 8192),
    (16_384, 1024, 4096),
    (2048, 2048, 16_384),
    (4097, 4099, 4101),
];

fn main() -> Outcome {
    Session::run("gemm", |session| {
        let shapes: &[_] = if session.small() { &[(130, 140, 40)] } else { &SHAPES };
        shapes.iter().try_for_each(|&(m, n, k)| bench(session, Gemm::new(m, n, k)))
    })
}

/// One set of operands on the device.
struct Operands {
    a: DeviceBuffer<f32>,
    b: DeviceBuffer<f32>,
    c: DeviceBuffer<f32>,
}

fn bench(session: &mut Session, gemm: Gemm) -> Outcome {
    let Gemm { m, n, k, .. } = gemm;
    if !session.wants("gemm_f32") {
        return Ok(());
    }
    let stream = session.stream.clone();
    let (a, b) = (input::<f32>(Family::Normal, 1, m * k), input::<f32>(Family::Normal, 2, k * n));
    let bytes = size_of::<f32>() * (m * k + k * n + m * n);
    let mut sets = Vec::new();
    for _ in 0..session.rotation(bytes as u64) {
        let (a, b) = (DeviceBuffer::from_slice(&stream, &a)?, DeviceBuffer::from_slice(&stream, &b)?);
        sets.push(Operands { a, b, c: DeviceBuffer::zeroed(&stream, m * n)? });
    }
    let flops = 2 * (m * n * k) as u64;
    let peer = |op| json!({ "prepare": op, "m": m, "n": n, "k": k, "dtype": "f32", "sets": sets.len() });
    let peers = [peer("gemm.torch"), peer("gemm.cublaslt")];
    session.measure_beside("gemm_f32", &format!("{m}x{n}x{k}"), Work::Flops(flops), &peers, |run| {
        let set = run % sets.len();
        let Operands { a, b, c } = &mut sets[set];
        gemm_f32(&stream, gemm, &*a, &*b, c)
    })?;
    check(gemm, &a, &b, &sets[0].c.to_vec(&stream)?)
}

/// Compares some rows of C with the oracle; all of them would take minutes.
fn check(gemm: Gemm, a: &[f32], b: &[f32], c: &[f32]) -> Outcome {
    let Gemm { m, n, k, .. } = gemm;
    let checked = CHECKED_ROWS.min(m);
    let rows = |width: usize, of: &[f32]| -> Vec<f32> {
        (0..checked)
            .map(|row| row * m / checked)
            .flat_map(|row| of[row * width..][..width].to_vec())
            .collect()
    };
    let shape = reference::Gemm { m: checked, n, k, alpha: 1.0, beta: 0.0 };
    let want = reference::gemm(shape, &rows(k, a), b, &[]);
    let limit = tolerance::GEMM_F32.for_terms(k);
    compare::accumulated("gemm_f32", &rows(n, c), &want.value, &want.magnitude, &[checked, n], limit)?;
    Ok(())
}
