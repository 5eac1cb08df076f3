//! The kernel against its oracle, on either driver. On the software driver the checker watches every access.

mod common;
use common::{device, oracle, run, values};

use ironwarp::{DeviceBuffer, Error};

/// Two roundings of a result that is at most 4 in magnitude.
const TOLERANCE: f64 = 4.0 * f32::EPSILON as f64;

#[test]
fn any_length() -> Result<(), Error> {
    let device = device()?;
    let stream = device.stream()?;
    for len in [0, 1, 31, 255, 256, 257, 10_000] {
        let (x, old) = (values(1, len), values(2, len));
        let x_device = DeviceBuffer::from_slice(&stream, &x)?;
        let mut y = DeviceBuffer::from_slice(&stream, &old)?;
        run(&stream, 3.0, &x_device, &mut y)?;
        let want = oracle(3.0, &x, &old);
        for (i, (got, want)) in y.to_vec(&stream)?.into_iter().zip(want).enumerate() {
            assert!((f64::from(got) - want).abs() <= TOLERANCE, "element {i} of {len}: {got}, wanted {want}");
        }
    }
    Ok(())
}

#[test]
fn the_same_bits_every_time() -> Result<(), Error> {
    let stream = device()?.stream()?;
    let x = DeviceBuffer::from_slice(&stream, &values(3, 5_000))?;
    let result = || {
        let mut y = DeviceBuffer::from_slice(&stream, &values(4, 5_000))?;
        run(&stream, 0.1, &x, &mut y)?;
        y.to_vec(&stream)
    };
    let first = result()?;
    for _ in 0..3 {
        assert_eq!(result()?, first);
    }
    Ok(())
}

#[test]
fn lengths_that_differ_are_refused() -> Result<(), Error> {
    let stream = device()?.stream()?;
    let x = DeviceBuffer::from_slice(&stream, &[1.0; 4])?;
    let mut y = DeviceBuffer::from_slice(&stream, &[1.0; 3])?;
    let refused = run(&stream, 1.0, &x, &mut y);
    assert!(matches!(refused, Err(Error::Length { expected: 4, got: 3, .. })), "{refused:?}");
    Ok(())
}
