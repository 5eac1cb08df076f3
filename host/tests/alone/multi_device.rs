//! Two devices: each refuses objects of the other. Skipped where there is one GPU; the software driver is
//! asked for two. A process of its own, since it sets the variable for that.

use crate::common::{Bench, expect_error, kernels};
use half::bf16;
use ironwarp::ops::attention::{Decode, Heads, HeadsMut};
use ironwarp::ops::elementwise::{BinaryOp, binary};
use ironwarp::ops::gemm::{Activation, Matmul, Matrix, MatrixMut};
use ironwarp::ops::row::{Norm, NormKind};
use ironwarp::{Device, DeviceBuffer, Error, Event, LaunchConfig, PinnedBuffer, Result, Tensor};

/// Operands of ops that lie on the other device.
fn ops_refuse(here: &Bench, there: &Bench) -> Result<()> {
    let near = DeviceBuffer::from_slice(&here.stream, &[1.0f32; 16])?;
    let far = DeviceBuffer::from_slice(&there.stream, &[1.0f32; 16])?;
    let mut c = DeviceBuffer::<f32>::zeroed(&here.stream, 16)?;
    let square = |x| Matrix::new::<f32>(x, 4, 4);
    for (which, a, b) in [("A", &far, &near), ("B", &near, &far)] {
        let product = Matmul::new(square(a), square(b), MatrixMut::new::<f32>(&mut c, 4, 4));
        let is_it =
            |e: &Error| matches!(e, Error::DeviceMismatch { what, expected: 0, got: 1 } if *what == which);
        expect_error(which, product.run(&here.stream), is_it)?;
    }
    let mut far_c = DeviceBuffer::<f32>::zeroed(&there.stream, 16)?;
    let product = Matmul::new(square(&near), square(&near), MatrixMut::new::<f32>(&mut far_c, 4, 4));
    expect_error("C", product.run(&here.stream), |e| matches!(e, Error::DeviceMismatch { what: "C", .. }))?;

    let x = Tensor::from_slice(&here.stream, &[16], &[1.0f32; 16])?;
    let y = Tensor::from_slice(&there.stream, &[16], &[1.0f32; 16])?;
    for (x, y) in [(&x, &y), (&y, &x)] {
        let sum = binary(&here.stream, BinaryOp::Add, x, y);
        expect_error("add", sum, |e| matches!(e, Error::DeviceMismatch { .. }))?;
    }
    bias_refused(here, [&x, &y])?;
    slopes_refuse(here, &far)
}

/// A bias on the other device, also where no activation reads it.
fn bias_refused(here: &Bench, [near, far]: [&Tensor; 2]) -> Result<()> {
    for activation in [Activation::None, Activation::Gelu] {
        let norm = Norm { kind: NormKind::Layer, weight: None, bias: None, eps: 1e-5, activation };
        let moments = norm.run_for_gradient(&here.stream, near)?.moments.expect("a pass for a gradient");
        let norm = Norm { bias: Some(far), ..norm };
        let gradients = norm.backward(near, near, &moments).run(&here.stream);
        let is_it = |e: &Error| matches!(e, Error::DeviceMismatch { what: "the bias", .. });
        expect_error("bias", gradients, is_it)?;
    }
    Ok(())
}

/// Slopes of decode attention that lie on the other device.
fn slopes_refuse(here: &Bench, far: &DeviceBuffer<f32>) -> Result<()> {
    if here.device.arch().major < 8 {
        return Ok(());
    }
    let sides = [1, 1, 16, 8];
    let rows = DeviceBuffer::<bf16>::zeroed(&here.stream, sides.iter().product())?;
    let mut out = DeviceBuffer::<bf16>::zeroed(&here.stream, rows.len())?;
    let heads = Heads::new(&rows, sides);
    let decode = Decode::new(heads, heads, heads, HeadsMut::new(&mut out, sides)).alibi(far)?;
    let is_it = |e: &Error| matches!(e, Error::DeviceMismatch { expected: 0, got: 1, .. });
    expect_error("slopes", decode.run(&here.stream), is_it)?;
    Ok(())
}

#[test]
fn devices_do_not_mix() -> Result<()> {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "2");
    if Device::count()? < 2 {
        testkit::skip("one device");
        return Ok(());
    }
    let (here, there) = (Bench::on(0)?, Bench::on(1)?);
    assert_ne!(here.device, there.device);
    let mut ours = DeviceBuffer::from_slice(&here.stream, &[1.0f32; 8])?;
    let mut theirs = DeviceBuffer::from_slice(&there.stream, &[2.0f32; 8])?;
    let mut pinned = PinnedBuffer::<f32>::zeroed(&here.device, 8)?;
    let config = LaunchConfig::linear(8, 32);
    let mismatch = |e: &Error| matches!(e, Error::DeviceMismatch { .. });

    expect_error("to_vec", theirs.to_vec(&here.stream), mismatch)?;
    expect_error("copy_into", theirs.copy_into(&here.stream, &mut [0.0; 8]), mismatch)?;
    expect_error("copy_from_slice", theirs.copy_from_slice(&here.stream, &[0.0; 8]), mismatch)?;
    expect_error("fill_zero", theirs.fill_zero(&here.stream), mismatch)?;
    expect_error("copy_from_device", ours.copy_from_device(&here.stream, &theirs), mismatch)?;
    expect_error("copy_into_pinned", theirs.copy_into_pinned(&here.stream, &mut pinned), mismatch)?;
    expect_error("copy_from_pinned", theirs.copy_from_pinned(&here.stream, &pinned), mismatch)?;
    expect_error("record", here.stream.record(&Event::new(&there.device)?), mismatch)?;
    let (start, end) = (Event::new(&here.device)?, Event::new(&there.device)?);
    here.stream.record(&start)?;
    there.stream.record(&end)?;
    expect_error("elapsed_ms", Event::elapsed_ms(&start, &end), mismatch)?;
    let kernel = here.device.kernel::<kernels::fill>()?;
    // SAFETY: 8 elements; both are refused anyway.
    unsafe {
        let error = ironwarp::launch::<kernels::fill>(&here.stream, config, (8u32, 1.0, &mut theirs));
        expect_error("launch", error, mismatch)?;
        expect_error("kernel", kernel.launch(&there.stream, config, (8u32, 1.0, &mut theirs)), mismatch)?;
    }

    ops_refuse(&here, &there)?;

    // Pinned memory serves every device, and streams wait for events of other devices.
    there.stream.wait(&start)?;
    theirs.copy_from_pinned(&there.stream, &pinned)?;
    assert_eq!(theirs.to_vec(&there.stream)?, [0.0; 8]);
    assert_eq!(ours.to_vec(&here.stream)?, [1.0; 8]);
    Ok(())
}
