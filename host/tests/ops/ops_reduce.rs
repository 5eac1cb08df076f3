//! `reduce` (sum, maximum) against its oracles, on whichever driver is there.

use crate::common::Outcome;
use ironwarp::{Device, DeviceBuffer, Error, ops::reduce};
use testkit::{Family, compare, input, spot_special, tolerance};

/// Around a warp, a block's tile (4096), two stages; the longest has several tiles a block on no device, but
/// many partials.
const LENGTHS: [usize; 13] = [0, 1, 2, 31, 33, 255, 1000, 4095, 4096, 4097, 8192, 12_289, 100_003];

fn case(x: &[f32], skip: usize, what: &str) -> Outcome {
    let stream = Device::open(0)?.stream()?;
    let device = DeviceBuffer::from_slice(&stream, x)?;
    let (x, view) = (&x[skip..], device.slice(skip..)?);
    let want = reference::sum(x);
    let sum = reduce::buffer_sum(&stream, view)?;
    let tolerance = tolerance::REDUCE_SUM.for_terms(x.len());
    compare::accumulated(&format!("sum, {what}"), &[sum], &want.value, &want.magnitude, &[1], tolerance)?;
    let max = reduce::buffer_amax(&stream, view)?;
    let want = [reference::max(x)];
    compare::elementwise(&format!("max, {what}"), &[max], &want, &[1], tolerance::REDUCE_MAX.tolerance())?;
    Ok(())
}

#[test]
fn any_length() -> Outcome {
    LENGTHS.iter().try_for_each(|&n| case(&input(Family::Normal, 1, n), 0, &format!("n {n}")))
}

#[test]
fn any_input() -> Outcome {
    for family in Family::ALL {
        for seed in 0..3 {
            case(&input(family, seed, 9000), 0, &format!("{family:?}, seed {seed}"))?;
        }
    }
    Ok(())
}

#[test]
fn alignment_does_not_change_a_bit() -> Outcome {
    let stream = Device::open(0)?.stream()?;
    let x: Vec<f32> = input(Family::Cancelling, 3, 10_000);
    let aligned = reduce::buffer_sum(&stream, &DeviceBuffer::from_slice(&stream, &x)?)?;
    for skip in 1..4 {
        let padded: Vec<f32> = std::iter::repeat_n(9.0, skip).chain(x.iter().copied()).collect();
        case(&padded, skip, &format!("{skip} elements skipped"))?;
        let moved = reduce::buffer_sum(&stream, DeviceBuffer::from_slice(&stream, &padded)?.slice(skip..)?)?;
        compare::bitwise_equal("sum off the boundary", &[moved], &[aligned])?;
    }
    Ok(())
}

#[test]
fn one_special_value_anywhere_decides() -> Outcome {
    for place in [0, 1, 4095, 4096, 9998, 9999] {
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let mut x: Vec<f32> = input(Family::Normal, 4, 10_000);
            spot_special(&mut x, &[place], value);
            case(&x, 0, &format!("{value} at {place}"))?;
        }
    }
    let mut both: Vec<f32> = input(Family::Normal, 4, 10_000);
    spot_special(&mut both, &[7], f64::INFINITY);
    spot_special(&mut both, &[9000], f64::NEG_INFINITY);
    case(&both, 0, "both infinities")
}

#[test]
fn signs_of_zero_and_negative_maxima() -> Outcome {
    let stream = Device::open(0)?.stream()?;
    let max = |x: &[f32]| reduce::buffer_amax(&stream, &DeviceBuffer::from_slice(&stream, x)?);
    compare::bitwise_equal("max of zeros", &[max(&[-0.0, 0.0, -0.0])?], &[0.0])?;
    compare::bitwise_equal("max of -0", &[max(&[-0.0; 70])?], &[-0.0])?;
    compare::bitwise_equal("max below 0", &[max(&[-3.0, -2.0, -5.0])?], &[-2.0])?;
    compare::bitwise_equal("max of nothing", &[max(&[])?], &[f32::NEG_INFINITY])?;
    Ok(())
}

#[test]
fn exact_inputs_give_exact_sums() -> Outcome {
    let stream = Device::open(0)?.stream()?;
    for n in LENGTHS {
        let x: Vec<f32> = input(Family::SmallIntegers, 6, n);
        let want: f64 = x.iter().map(|&v| f64::from(v)).sum();
        let got = reduce::buffer_sum(&stream, &DeviceBuffer::from_slice(&stream, &x)?)?;
        assert_eq!(f64::from(got), want, "n {n}");
    }
    Ok(())
}

#[test]
fn repeats_bit_for_bit() -> Outcome {
    let stream = Device::open(0)?.stream()?;
    let x = DeviceBuffer::from_slice(&stream, &input::<f32>(Family::HugeTiny, 5, 50_001))?;
    let first = reduce::buffer_sum(&stream, &x)?;
    for _ in 0..3 {
        compare::bitwise_equal("sum again", &[reduce::buffer_sum(&stream, &x)?], &[first])?;
    }
    Ok(())
}

#[test]
fn results_on_the_device_and_wrong_outputs() -> Outcome {
    let stream = Device::open(0)?.stream()?;
    let x = DeviceBuffer::from_slice(&stream, &input::<f32>(Family::Normal, 7, 5000))?;
    let mut out = DeviceBuffer::zeroed(&stream, 3)?;
    reduce::buffer_sum_into(&stream, &x, out.slice_mut(1..2)?)?;
    reduce::buffer_amax_into(&stream, &x, out.slice_mut(2..3)?)?;
    let want = [0.0, reduce::buffer_sum(&stream, &x)?, reduce::buffer_amax(&stream, &x)?];
    compare::bitwise_equal("on the device", &out.to_vec(&stream)?, &want)?;
    let refused = reduce::buffer_sum_into(&stream, &x, &mut out);
    assert!(matches!(refused, Err(Error::Length { what: "out", expected: 1, got: 3, .. })), "{refused:?}");
    let refused = reduce::buffer_amax_into(&stream, &x, out.slice_mut(1..1)?);
    assert!(matches!(refused, Err(Error::Length { what: "out", expected: 1, got: 0, .. })), "{refused:?}");
    Ok(())
}
