//! `gemm_f32` against its oracle, on whichever driver is there.

use ironwarp::ops::gemm::{Gemm, gemm_f32};
use ironwarp::{Device, DeviceBuffer, Error};
use std::error::Error as StdError;
use testkit::{Family, compare, input, spot_special, tolerance};

type Outcome = Result<(), Box<dyn StdError>>;

/// Around a unit, a block's tile (64 x 128 x 16, 64 x 32 x 32), a k-tile and two; thin, empty.
const SHAPES: [(usize, usize, usize); 16] = [
    (0, 5, 5),
    (5, 0, 5),
    (5, 5, 0),
    (1, 1, 1),
    (1, 130, 17),
    (130, 1, 33),
    (3, 5, 7),
    (16, 16, 16),
    (64, 64, 8),
    (127, 128, 15),
    (128, 128, 16),
    (128, 128, 48),
    (129, 132, 31),
    (131, 129, 20),
    (140, 260, 40),
    (33, 36, 200),
];

/// Many blocks, inside and at both edges, by whichever kernel is chosen.
const LARGE: [(usize, usize, usize); 3] = [(70, 4228, 40), (66, 4227, 17), (4300, 130, 0)];

struct Case {
    family: Family,
    seed: u64,
    shape: (usize, usize, usize),
    alpha: f32,
    beta: f32,
    /// Elements by which A, B and C begin off a 16-byte boundary.
    skip: [usize; 3],
}

const PLAIN: Case =
    Case { family: Family::Normal, seed: 1, shape: (1, 1, 1), alpha: 1.0, beta: 0.0, skip: [0; 3] };

/// Runs the case and compares; returns C for further checks.
fn run(case: &Case) -> Result<Vec<f32>, Box<dyn StdError>> {
    let Case { family, seed, shape: (m, n, k), alpha, beta, skip } = *case;
    let stream = Device::open(0)?.stream()?;
    let a: Vec<f32> = input(family, seed, m * k + skip[0]);
    let b: Vec<f32> = input(family, seed + 1, k * n + skip[1]);
    let mut c: Vec<f32> = input(family, seed + 2, m * n + skip[2]);
    if beta == 0.0 {
        c.fill(f32::NAN); // Must not be read.
    }
    let a_device = DeviceBuffer::from_slice(&stream, &a)?;
    let b_device = DeviceBuffer::from_slice(&stream, &b)?;
    let mut c_device = DeviceBuffer::from_slice(&stream, &c)?;
    let (a_view, b_view) = (a_device.slice(skip[0]..)?, b_device.slice(skip[1]..)?);
    gemm_f32(&stream, Gemm { m, n, k, alpha, beta }, a_view, b_view, c_device.slice_mut(skip[2]..)?)?;
    let got = c_device.to_vec(&stream)?;
    let shape = reference::Gemm { m, n, k, alpha: alpha.into(), beta: beta.into() };
    let want = reference::gemm(shape, &a[skip[0]..], &b[skip[1]..], &c[skip[2]..]);
    let what = format!("gemm_f32 {family:?} {m}x{n}x{k} alpha {alpha} beta {beta} skip {skip:?}");
    compare::bitwise_equal(&what, &got[..skip[2]], &c[..skip[2]])?;
    let got = got[skip[2]..].to_vec();
    // Small integers add up without rounding; else errors grow with k, and alpha and beta add a few.
    let exact = family == Family::SmallIntegers && alpha.fract() == 0.0 && beta.fract() == 0.0;
    let tolerance = if exact { testkit::Tolerance::EXACT } else { tolerance::GEMM_F32.for_terms(k + 2) };
    compare::accumulated(&what, &got, &want.value, &want.magnitude, &[m, n], tolerance)?;
    Ok(got)
}

#[test]
fn any_shape() -> Outcome {
    for shape in SHAPES {
        run(&Case { shape, ..PLAIN })?;
        run(&Case { shape, alpha: -1.5, beta: 0.5, ..PLAIN })?;
    }
    Ok(())
}

#[test]
fn shapes_of_many_blocks() -> Outcome {
    for shape in LARGE {
        run(&Case { shape, ..PLAIN })?;
        run(&Case { shape, alpha: -1.5, beta: 0.5, skip: [1, 0, 0], ..PLAIN })?;
    }
    Ok(())
}

#[test]
fn any_alignment() -> Outcome {
    for skip in [[1, 0, 0], [0, 1, 0], [0, 0, 1], [3, 2, 1]] {
        for shape in [(128, 128, 32), (130, 132, 20)] {
            run(&Case { shape, skip, beta: 2.0, ..PLAIN })?;
        }
    }
    Ok(())
}

#[test]
fn alignment_does_not_change_a_bit() -> Outcome {
    let stream = Device::open(0)?.stream()?;
    let (m, n, k) = (130, 132, 24);
    let a = DeviceBuffer::from_slice(&stream, &input::<f32>(Family::Normal, 8, m * k))?;
    let b = input::<f32>(Family::Normal, 9, k * n);
    let product = |skip: usize| -> Result<Vec<f32>, Error> {
        let padded: Vec<f32> = std::iter::repeat_n(0.0, skip).chain(b.iter().copied()).collect();
        let b = DeviceBuffer::from_slice(&stream, &padded)?;
        let mut c = DeviceBuffer::zeroed(&stream, m * n)?;
        gemm_f32(&stream, Gemm::new(m, n, k), &a, b.slice(skip..)?, &mut c)?;
        c.to_vec(&stream)
    };
    let aligned = product(0)?;
    for skip in [0, 1, 2] {
        compare::bitwise_equal("B off the boundary", &product(skip)?, &aligned)?;
    }
    Ok(())
}

#[test]
fn any_finite_input() -> Outcome {
    for family in Family::FINITE {
        run(&Case { family, shape: (70, 66, 50), alpha: 1.0, beta: 1.0, ..PLAIN })?;
        run(&Case { family, shape: (20, 140, 129), alpha: 2.0, beta: 0.0, ..PLAIN })?;
    }
    Ok(())
}

#[test]
fn special_values_stay_in_their_rows_and_columns() -> Outcome {
    let stream = Device::open(0)?.stream()?;
    let (m, n, k) = (40, 44, 20);
    let (mut a, mut b) = (input::<f32>(Family::Normal, 5, m * k), input::<f32>(Family::Normal, 6, k * n));
    spot_special(&mut a, &[3 * k + 5], f64::NAN);
    spot_special(&mut a, &[9 * k + 1], f64::INFINITY);
    spot_special(&mut b, &[2 * n + 7], f64::NEG_INFINITY);
    let mut c = DeviceBuffer::zeroed(&stream, m * n)?;
    let (a_device, b_device) =
        (DeviceBuffer::from_slice(&stream, &a)?, DeviceBuffer::from_slice(&stream, &b)?);
    gemm_f32(&stream, Gemm::new(m, n, k), &a_device, &b_device, &mut c)?;
    let shape = reference::Gemm { m, n, k, alpha: 1.0, beta: 0.0 };
    let want = reference::gemm(shape, &a, &b, &[]);
    let tolerance = tolerance::GEMM_F32.for_terms(k);
    compare::accumulated("special", &c.to_vec(&stream)?, &want.value, &want.magnitude, &[m, n], tolerance)?;
    Ok(())
}

#[test]
fn repeats_bit_for_bit() -> Outcome {
    let case = Case { family: Family::HugeTiny, shape: (150, 140, 70), beta: 0.5, ..PLAIN };
    let first = run(&case)?;
    for _ in 0..3 {
        compare::bitwise_equal("gemm again", &run(&case)?, &first)?;
    }
    Ok(())
}

#[test]
fn wrong_sizes_are_refused() -> Outcome {
    let stream = Device::open(0)?.stream()?;
    let twelve = DeviceBuffer::from_slice(&stream, &[1f32; 12])?;
    let mut c = DeviceBuffer::from_slice(&stream, &[1f32; 9])?;
    for (m, n, k, wrong) in
        [(3, 3, 5, "A"), (3, 3, 4, ""), (3, 2, 4, "B"), (4, 4, 3, "C"), (usize::MAX, 3, 4, "A")]
    {
        let outcome = gemm_f32(&stream, Gemm::new(m, n, k), &twelve, &twelve, &mut c);
        match outcome {
            Ok(()) => assert_eq!(wrong, ""),
            Err(Error::Length { operation: "gemm", what, .. }) => assert_eq!(what, wrong, "{m} {n} {k}"),
            Err(other) => panic!("{m} {n} {k}: {other}"),
        }
    }
    Ok(())
}
