//! `transpose` against its oracle, on whichever driver is there.

use crate::common::Outcome;
use ironwarp::{Device, DeviceBuffer, Error, ops::transpose::transpose};
use testkit::{Family, compare, input};

/// Around a 16-byte unit, a tile's side (64), two tiles; square, thin and empty.
const SHAPES: [(usize, usize); 20] = [
    (0, 0),
    (0, 7),
    (7, 0),
    (1, 1),
    (1, 1000),
    (1000, 1),
    (3, 5),
    (4, 4),
    (4, 64),
    (63, 64),
    (64, 63),
    (64, 64),
    (65, 64),
    (64, 65),
    (65, 67),
    (128, 256),
    (127, 130),
    (68, 132),
    (200, 36),
    (1100, 70),
];

fn case(family: Family, rows: usize, columns: usize, x_skip: usize, y_skip: usize) -> Outcome {
    let stream = Device::open(0)?.stream()?;
    let x: Vec<f32> = input(family, (rows * 1000 + columns) as u64, rows * columns + x_skip);
    let x_device = DeviceBuffer::from_slice(&stream, &x)?;
    let mut y_device = DeviceBuffer::from_slice(&stream, &vec![7f32; rows * columns + y_skip])?;
    transpose(&stream, rows, columns, x_device.slice(x_skip..)?, y_device.slice_mut(y_skip..)?)?;
    let got = y_device.to_vec(&stream)?;
    let what = format!("transpose {family:?} [{rows}, {columns}], {x_skip} and {y_skip} elements skipped");
    compare::bitwise_equal(&what, &got[..y_skip], &vec![7f32; y_skip])?;
    // Bits, not values: NaN payloads and signs of zero move too.
    compare::bitwise_equal(&what, &got[y_skip..], &reference::transpose(&x[x_skip..], rows, columns))?;
    Ok(())
}

#[test]
fn any_shape() -> Outcome {
    SHAPES.iter().try_for_each(|&(rows, columns)| case(Family::Normal, rows, columns, 0, 0))
}

#[test]
fn any_alignment() -> Outcome {
    for x_skip in 0..4 {
        for y_skip in 0..4 {
            case(Family::Normal, 68, 72, x_skip, y_skip)?;
        }
    }
    Ok(())
}

#[test]
fn any_input() -> Outcome {
    Family::ALL.iter().try_for_each(|&family| case(family, 70, 90, 0, 0))
}

#[test]
fn more_rows_of_tiles_than_a_band() -> Outcome {
    case(Family::SmallIntegers, 64 * 17 + 3, 130, 0, 0)
}

#[test]
fn wrong_sizes_are_refused() -> Outcome {
    let stream = Device::open(0)?.stream()?;
    let x = DeviceBuffer::from_slice(&stream, &[1f32; 12])?;
    let mut y = DeviceBuffer::from_slice(&stream, &[1f32; 11])?;
    let refused = transpose(&stream, 3, 4, &x, &mut y);
    assert!(matches!(refused, Err(Error::Length { what: "y", expected: 12, got: 11, .. })), "{refused:?}");
    let refused = transpose(&stream, 3, 5, &x, &mut y);
    assert!(matches!(refused, Err(Error::Length { what: "x", expected: 15, got: 12, .. })), "{refused:?}");
    let refused = transpose(&stream, usize::MAX, 2, &x, &mut y);
    assert!(matches!(refused, Err(Error::Length { what: "x", .. })), "{refused:?}");
    Ok(())
}
