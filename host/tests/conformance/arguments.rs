//! Structs as one argument: every field arrives, and the uses of every buffer in it are kept in order.

use conformance::arguments::{Affine, AffineArgs, Factor, FactorArgs, argument_struct};
use ironwarp::{DeviceBuffer, DevicePtr, LaunchConfig, Result, launch};

use crate::gpu::{Gpu, assert_same};

const LEN: usize = 100;
const OFFSETS: [f32; 3] = [0.5, 1.5, 2.5];

fn want(scale: f32, factor: f32, residual: f32) -> Vec<f32> {
    let mut y: Vec<f32> = (0..LEN).map(|i| scale * (i as f32 * factor + OFFSETS[i % 3] + residual)).collect();
    y[LEN - 1] = f32::from_bits(y[LEN - 1].to_bits() + 1);
    y
}

#[test]
fn every_field_arrives() -> Result<()> {
    let gpu = Gpu::open()?;
    let x: Vec<f32> = (0..LEN).map(|i| i as f32).collect();
    let (x, residual, three) = (gpu.put(&x)?, gpu.put(&[4.0f64; LEN])?, gpu.put(&[3.0f32])?);
    let mut y = gpu.zeros::<f32>(LEN)?;
    let config = LaunchConfig::linear(LEN, 32);
    let common = (LEN as u16, OFFSETS, 1u64);

    let (len, offsets, last) = common;
    let factor = FactorArgs { number: 7.0, from: &three }.pass();
    let affine = AffineArgs { len, x: &x, factor, offsets, residual: Some(&residual), y: &mut y, last };
    // SAFETY: the buffers have as many elements as the fields say.
    unsafe { launch::<argument_struct>(&gpu.stream, config, (2.0, affine.pass()))? };
    assert_same("buffers", &gpu.get(&y)?, want(2.0, 3.0, 4.0));

    // Views, null, and the inner struct by its own type.
    let factor = Factor { number: 7.0, from: std::ptr::null() };
    let none = None::<&DeviceBuffer<f64>>;
    let (x, y_view) = (x.view(), y.view_mut());
    let affine = AffineArgs { len, x, factor, offsets, residual: none, y: y_view, last };
    // SAFETY: as above.
    unsafe { launch::<argument_struct>(&gpu.stream, config, (1.0, affine.pass()))? };
    assert_same("views", &gpu.get(&y)?, want(1.0, 7.0, 0.0));

    // The struct itself, with addresses.
    let address = |pointer: DevicePtr<f32>| pointer.raw() as *mut f32;
    let (x, y_address) = (address(x.as_ptr()), address(y.as_ptr()));
    let affine = Affine { len, x, factor, offsets, residual: std::ptr::null(), y: y_address, last };
    // SAFETY: as above; all work is on one stream, so it is in order.
    unsafe { launch::<argument_struct>(&gpu.stream, config, (3.0, affine))? };
    assert_same("addresses", &gpu.get(&y)?, want(3.0, 7.0, 0.0));
    Ok(())
}
