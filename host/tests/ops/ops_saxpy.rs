//! `saxpy` against its oracle, on whichever driver is there.

use crate::common::Outcome;
use ironwarp::{Device, DeviceBuffer, Error, ops::saxpy::saxpy};
use testkit::{Family, compare, input, tolerance};

/// Around a vector, a block's tile (4096) and two of them.
const LENGTHS: [usize; 12] = [0, 1, 3, 4, 5, 255, 1000, 4095, 4096, 4097, 8191, 10_000];

fn case(family: Family, seed: u64, a: f32, n: usize, x_skip: usize, y_skip: usize) -> Outcome {
    let stream = Device::open(0)?.stream()?;
    let x: Vec<f32> = input(family, seed, n + x_skip);
    let y: Vec<f32> = input(family, seed + 1, n + y_skip);
    let x_device = DeviceBuffer::from_slice(&stream, &x)?;
    let mut y_device = DeviceBuffer::from_slice(&stream, &y)?;
    saxpy(&stream, a, x_device.slice(x_skip..)?, y_device.slice_mut(y_skip..)?)?;
    let got = y_device.to_vec(&stream)?;
    let want = reference::saxpy(a, &x[x_skip..], &y[y_skip..]);
    let what = format!("saxpy {family:?} a {a} n {n}, {x_skip} and {y_skip} elements skipped");
    compare::bitwise_equal(&what, &got[..y_skip], &y[..y_skip])?;
    compare::elementwise(&what, &got[y_skip..], &want, &[n], tolerance::SAXPY.tolerance())?;
    Ok(())
}

#[test]
fn any_length() -> Outcome {
    LENGTHS.iter().try_for_each(|&n| case(Family::Normal, 1, 1.5, n, 0, 0))
}

#[test]
fn any_alignment() -> Outcome {
    for x_skip in 0..4 {
        for y_skip in 0..4 {
            case(Family::Normal, 2, -0.5, 9001, x_skip, y_skip)?;
        }
    }
    case(Family::Normal, 2, -0.5, 2, 1, 1)
}

#[test]
fn any_input() -> Outcome {
    for family in Family::ALL {
        for a in [0.0, -1.0, 3.7, f32::NAN, f32::INFINITY] {
            case(family, 3, a, 5000, 0, 0)?;
        }
    }
    Ok(())
}

#[test]
fn repeats_bit_for_bit() -> Outcome {
    let stream = Device::open(0)?.stream()?;
    let x = DeviceBuffer::from_slice(&stream, &input::<f32>(Family::HugeTiny, 4, 20_001))?;
    let run = || -> Result<Vec<f32>, Error> {
        let mut y = DeviceBuffer::from_slice(&stream, &input::<f32>(Family::Normal, 5, 20_001))?;
        saxpy(&stream, 2.5, &x, &mut y)?;
        y.to_vec(&stream)
    };
    let first = run()?;
    for _ in 0..3 {
        compare::bitwise_equal("saxpy again", &run()?, &first)?;
    }
    Ok(())
}

#[test]
fn lengths_that_differ_are_refused() -> Outcome {
    let stream = Device::open(0)?.stream()?;
    let x = DeviceBuffer::from_slice(&stream, &[1f32; 10])?;
    let mut y = DeviceBuffer::from_slice(&stream, &[1f32; 9])?;
    let refused = saxpy(&stream, 1.0, &x, &mut y);
    assert!(
        matches!(refused, Err(Error::Length { operation: "saxpy", what: "y", expected: 10, got: 9 })),
        "{refused:?}"
    );
    Ok(())
}
