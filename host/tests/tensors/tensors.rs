//! Tensors: to and from the host and buffers, views, write access, text, and wrong calls. On whichever driver
//! is there.

use half::{bf16, f16};
use ironwarp::graph::Graph;
use ironwarp::ops::elementwise::{CompareOp, compare};
use ironwarp::tensor::safetensors::save;
use ironwarp::{DType, Device, DeviceBuffer, Error, Stream, Tensor, TensorError, tensor::Element};
use num::{E4M3, E5M2};
use std::error::Error as StdError;

type Outcome = Result<(), Box<dyn StdError>>;

fn stream() -> Result<Stream, Error> {
    Device::open(0)?.stream()
}

fn wrong<T: std::fmt::Debug>(result: Result<T, Error>, is_it: impl Fn(&TensorError) -> bool) {
    let error = result.unwrap_err();
    assert!(error.tensor_error().is_some_and(is_it), "{error:?}");
    assert!(error.to_string().contains("\nhint: ") && error.is_recoverable(), "{error}");
}

fn round_trip<T: Element + PartialEq + std::fmt::Debug>(stream: &Stream, values: &[T]) -> Outcome {
    let x = Tensor::from_slice(stream, &[2, values.len() / 2], values)?;
    assert_eq!((x.dtype(), x.shape().sides()), (T::DTYPE, &[2, values.len() / 2][..]));
    assert_eq!(x.to_vec::<T>(stream)?, values);
    assert_eq!(x.select(0, 1)?.select(0, 0)?.item_on::<T>(stream)?, values[values.len() / 2]);
    Ok(())
}

#[test]
fn every_element_type_goes_there_and_back() -> Outcome {
    let stream = stream()?;
    round_trip(&stream, &[1.5f64, -0.0, f64::MAX, 1e-310])?;
    round_trip(&stream, &[1.5f32, -0.0, f32::INFINITY, 1e-40])?;
    round_trip(&stream, &[1.5, -2.0, 65504.0, 6e-8].map(f16::from_f32))?;
    round_trip(&stream, &[1.5, -2.0, 3e38, 1e-40].map(bf16::from_f32))?;
    round_trip(&stream, &[1.5, -2.0, 448.0, 0.002].map(E4M3::from_f32))?;
    round_trip(&stream, &[1.5, -2.0, 57344.0, 1e-5].map(E5M2::from_f32))?;
    round_trip(&stream, &[i64::MIN, -1, 0, i64::MAX])?;
    round_trip(&stream, &[i32::MIN, -1, 0, i32::MAX])?;
    round_trip(&stream, &[0u8, 1, 127, 255])?;
    round_trip(&stream, &[true, false, false, true])?;
    Ok(())
}

#[test]
fn what_the_host_cannot_hold_and_what_nothing_has_written() -> Outcome {
    // A capture forbids others to wait for the device or to take memory from it.
    testkit::own_process!();
    let stream = stream()?;
    let x = Tensor::from_slice(&stream, &[4], &[1.0f32, 2.0, 3.0, 4.0])?;
    for huge in [1 << 60, 1 << 62] {
        let x = x.select(0, 0)?.broadcast_to(&[huge])?;
        wrong(x.to_vec::<f32>(&stream), |e| matches!(e, TensorError::HostMemory { .. }));
        wrong(save(&stream, "/nowhere", &[("x", &x)]), |e| matches!(e, TensorError::HostMemory { .. }));
    }
    let mut graph = Graph::capture(&stream, (), |stream, ()| compare(stream, CompareOp::Lt, &x, &x))?;
    // The contents are up to NVIDIA's driver.
    if stream.device().is_software() {
        let unwritten = |e: &TensorError| matches!(e, TensorError::Unwritten { .. });
        wrong(graph.outputs().to_vec::<bool>(&stream), unwritten);
        wrong(save(&stream, "/nowhere", &[("x", graph.outputs())]), unwritten);
    }
    graph.replay(&stream)?;
    assert_eq!(graph.outputs().to_vec::<bool>(&stream)?, [false; 4]);
    Ok(())
}

#[test]
fn views_show_the_same_memory() -> Outcome {
    let stream = stream()?;
    let x = Tensor::from_slice(&stream, &[2, 3, 4], &(0..24).collect::<Vec<i32>>())?;
    let turned = x.permute(&[2, 0, 1])?;
    assert_eq!(turned.to_vec::<i32>(&stream)?[..7], [0, 4, 8, 12, 16, 20, 1]);
    assert_eq!(x.slice_by(2, 1.., 2)?.slice(1, 2..)?.to_vec::<i32>(&stream)?, [9, 11, 21, 23]);
    assert_eq!(x.view_as(&[6, 4])?.select(0, 5)?.to_vec::<i32>(&stream)?, [20, 21, 22, 23]);
    let repeated = x.slice(0, 1..)?.slice(1, ..1)?.broadcast_to(&[2, 2, 4])?;
    assert_eq!(repeated.to_vec::<i32>(&stream)?, [12, 13, 14, 15].repeat(4));
    assert_eq!(x.slice(1, 3..)?.to_vec::<i32>(&stream)?, [0i32; 0]);
    // A view outlives what it was made from.
    let row = { Tensor::from_slice(&stream, &[2, 2], &[1u8, 2, 3, 4])?.select(0, 1)? };
    assert_eq!(row.to_vec::<u8>(&stream)?, [3, 4]);
    Ok(())
}

#[test]
fn zeros_padding_and_scalars() -> Outcome {
    let stream = stream()?;
    for &dtype in DType::ALL {
        let x = Tensor::zeros(&stream, &[3, 5], dtype)?;
        assert_eq!((x.elements(), x.dtype(), x.is_contiguous()), (15, dtype, true));
        let padded = Tensor::zeros_padded(&stream, &[3, 5], dtype, 128)?;
        assert_eq!((padded.layout().strides()[0] * dtype.size() % 128, padded.is_contiguous()), (0, false));
    }
    let padded = Tensor::zeros_padded(&stream, &[3, 5], DType::F16, 16)?;
    assert_eq!(padded.to_vec::<f16>(&stream)?, [f16::ZERO; 15]);
    let scalar = Tensor::from_slice(&stream, &[], &[7i64])?;
    assert_eq!((scalar.rank(), scalar.item_on::<i64>(&stream)?), (0, 7));
    let empty = Tensor::zeros(&stream, &[4, 0], DType::F32)?;
    assert!(empty.is_empty() && empty.to_vec::<f32>(&stream)?.is_empty());
    Ok(())
}

#[test]
fn buffers_come_and_go_without_a_copy() -> Outcome {
    let stream = stream()?;
    let buffer = DeviceBuffer::from_slice(&stream, &[1.0f32, 2.0, 3.0, 4.0])?;
    let address = buffer.as_ptr().raw();
    let x = Tensor::from_buffer(buffer, &[2, 2])?;
    assert_eq!(x.as_view::<f32>()?.as_ptr().raw(), address);
    assert_eq!(x.select(0, 1)?.as_view::<f32>()?.as_ptr().raw(), address + 8);
    let buffer = x.into_buffer::<f32>()?;
    assert_eq!((buffer.as_ptr().raw(), buffer.to_vec(&stream)?), (address, vec![1.0, 2.0, 3.0, 4.0]));

    let mut buffer = Tensor::from_buffer(buffer, &[4])?.into_buffer::<f32>()?;
    assert_eq!(buffer.lend_to_cust()?.as_slice().as_device_ptr().as_raw(), address);
    let theirs = buffer.into_cust()?;
    let address = theirs.as_slice().as_device_ptr().as_raw();
    // SAFETY: it came from this stream, and nothing uses it.
    let back = Tensor::from_buffer(unsafe { DeviceBuffer::from_cust(&stream, theirs) }, &[4])?;
    assert_eq!(back.to_vec::<f32>(&stream)?, [1.0, 2.0, 3.0, 4.0]);
    assert_eq!(back.as_view::<f32>()?.as_ptr().raw(), address);
    assert_eq!(back.into_buffer::<f32>()?.into_cust()?.as_slice().as_device_ptr().as_raw(), address);
    Ok(())
}

#[test]
fn writing_needs_the_memory_for_itself() -> Outcome {
    let stream = stream()?;
    let mut x = Tensor::zeros(&stream, &[2, 3], DType::F32)?;
    x.view_mut()?.slice(0, 1..)?.copy_from_slice(&stream, &[1.0f32, 2.0, 3.0])?;
    assert_eq!(x.to_vec::<f32>(&stream)?, [0.0, 0.0, 0.0, 1.0, 2.0, 3.0]);

    let other = x.transpose(0, 1)?;
    wrong(x.view_mut(), |e| matches!(e, TensorError::Shared { tensors: 2, .. }));
    wrong(x.clone().into_buffer::<f32>(), |e| matches!(e, TensorError::Shared { tensors: 3, .. }));
    drop(other);
    let mut view = x.view_mut()?;
    wrong(view.copy_from_slice(&stream, &[1.0f32; 5]), |e| {
        matches!(e, TensorError::Elements { wanted: 6, got: 5, .. })
    });
    wrong(view.copy_from_slice(&stream, &[1i32; 6]), |e| {
        matches!(e, TensorError::DType { got: DType::F32, .. })
    });
    let mut column = view.view_mut().select(1, 0)?;
    wrong(column.copy_from_slice(&stream, &[1.0f32; 2]), |e| matches!(e, TensorError::NotContiguous { .. }));
    wrong(column.into_view::<f32>(), |e| matches!(e, TensorError::NotContiguous { .. }));
    let mut row = view.select(0, 0)?.into_view::<f32>()?;
    row.copy_from_slice(&stream, &[7.0, 8.0, 9.0])?;
    assert_eq!(x.to_vec::<f32>(&stream)?, [7.0, 8.0, 9.0, 1.0, 2.0, 3.0]);

    let mut repeated = Tensor::from_slice(&stream, &[1, 2], &[1i32, 2])?.broadcast_to(&[3, 2])?;
    wrong(repeated.view_mut(), |e| matches!(e, TensorError::Overlapping { .. }));
    wrong(repeated.into_buffer::<i32>(), |e| matches!(e, TensorError::NotContiguous { .. }));
    Ok(())
}

#[test]
fn wrong_calls_say_what_to_do() -> Outcome {
    let stream = stream()?;
    let x = Tensor::zeros(&stream, &[2, 3, 4], DType::F32)?;
    wrong(Tensor::zeros(&stream, &[1; 9], DType::F32), |e| matches!(e, TensorError::Rank { got: 9, .. }));
    wrong(Tensor::zeros(&stream, &[1 << 40, 1 << 40], DType::U8), |e| {
        matches!(e, TensorError::TooLarge { .. })
    });
    wrong(Tensor::from_slice(&stream, &[2, 3], &[0.0f32; 5]), |e| {
        matches!(e, TensorError::Elements { wanted: 6, .. })
    });
    wrong(x.to_vec::<i32>(&stream), |e| matches!(e, TensorError::DType { got: DType::F32, .. }));
    wrong(x.as_view::<f16>(), |e| matches!(e, TensorError::DType { .. }));
    wrong(x.item_on::<f32>(&stream), |e| matches!(e, TensorError::Shape { .. }));
    wrong(x.permute(&[0, 1]), |e| matches!(e, TensorError::Axes { .. }));
    wrong(x.permute(&[0, 1, 1]), |e| matches!(e, TensorError::Axes { .. }));
    wrong(x.transpose(0, 3), |e| matches!(e, TensorError::Axis { axis: 3, rank: 3, .. }));
    wrong(x.slice(3, ..), |e| matches!(e, TensorError::Axis { .. }));
    wrong(x.slice(1, 1..5), |e| matches!(e, TensorError::Slice { start: 1, end: 5, len: 3, .. }));
    #[allow(clippy::reversed_empty_ranges)]
    wrong(x.slice(1, 2..1), |e| matches!(e, TensorError::Slice { .. }));
    wrong(x.slice_by(1, .., 0), |e| matches!(e, TensorError::Slice { step: 0, .. }));
    wrong(x.slice(1, ..=usize::MAX), |e| matches!(e, TensorError::Slice { .. }));
    wrong(x.select(2, 4), |e| matches!(e, TensorError::Place { place: 4, len: 4, .. }));
    wrong(x.select(2, usize::MAX), |e| matches!(e, TensorError::Place { place: isize::MAX, .. }));
    wrong(x.squeeze(0), |e| matches!(e, TensorError::Shape { .. }));
    wrong(x.unsqueeze(4), |e| matches!(e, TensorError::Axis { axis: 4, .. }));
    wrong(x.broadcast_to(&[2, 3, 5]), |e| matches!(e, TensorError::Broadcast { .. }));
    wrong(x.broadcast_to(&[3, 4]), |e| matches!(e, TensorError::Broadcast { .. }));
    wrong(x.view_as(&[5, 5]), |e| matches!(e, TensorError::Shape { .. }));
    wrong(x.transpose(0, 1)?.view_as(&[24]), |e| matches!(e, TensorError::NotContiguous { .. }));
    wrong(x.transpose(0, 1)?.as_view::<f32>(), |e| matches!(e, TensorError::NotContiguous { .. }));
    wrong(x.slice(0, 1..)?.into_buffer::<f32>(), |e| matches!(e, TensorError::NotContiguous { .. }));
    let huge = Tensor::zeros(&stream, &[1 << 61, 8], DType::F64);
    assert!(huge.is_err_and(|e| e.to_string().contains("\nhint: ")));
    Ok(())
}

#[test]
fn text_shows_the_ends() -> Outcome {
    let stream = stream()?;
    let x = Tensor::from_slice(&stream, &[2, 2, 2], &[1.0f32, -2.0, 0.5, 4.0, f32::NAN, 0.0, 7.25, -0.125])?;
    let want = "\
[[[ 1.0000, -2.0000],
  [ 0.5000,  4.0000]],

 [[    nan,  0.0000],
  [ 7.2500, -0.1250]]]
f32 [2, 2, 2]";
    assert_eq!(x.to_text(&stream)?, want);
    let tiny = Tensor::from_slice(&stream, &[2], &[1e-9f64, 2.0])?;
    assert_eq!(tiny.to_text(&stream)?, "[1.0000e-09, 2.0000e+00]\nf64 [2]");
    let long = Tensor::from_slice(&stream, &[7, 200], &(0..1400).collect::<Vec<i64>>())?;
    let want = "\
[[   0,    1,    2,  ...,  197,  198,  199],
 [ 200,  201,  202,  ...,  397,  398,  399],
 [ 400,  401,  402,  ...,  597,  598,  599],
 ...,
 [ 800,  801,  802,  ...,  997,  998,  999],
 [1000, 1001, 1002,  ..., 1197, 1198, 1199],
 [1200, 1201, 1202,  ..., 1397, 1398, 1399]]
i64 [7, 200]";
    assert_eq!(long.to_text(&stream)?, want);
    assert_eq!(Tensor::from_slice(&stream, &[], &[true])?.to_text(&stream)?, "true\nbool []");
    assert_eq!(Tensor::zeros(&stream, &[0, 3], DType::U8)?.to_text(&stream)?, "u8 [0, 3]");
    assert_eq!(format!("{:?}", x.transpose(0, 2)?), "Tensor(f32 [2, 2, 2], strides [1, 2, 4], device 0)");
    Ok(())
}
