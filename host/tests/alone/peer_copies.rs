//! Copies from one device to another: values, order with the streams of both, captures, devices that died.
//! Skipped where there is one GPU; the software driver is asked for two. Each test is a process of its own,
//! since it sets the variable for that.

use crate::common::{Bench, expect_error, kernels};
use ironwarp::graph::Graph;
use ironwarp::ops::peer::copy_to_peer;
use ironwarp::{DType, Device, Error, Event, LaunchConfig, Result, Stream, Tensor, TensorError};
use std::time::Duration;

/// Elements that take a block of the allocator for themselves.
const MANY: usize = 1 << 18;
/// Sums that keep a stream busy.
const QUEUED: usize = 8;
/// Waits of a millisecond, at most, until somebody notices that a device died.
const TRIES: usize = 1000;

fn two() -> Result<Option<[Bench; 2]>> {
    if Device::count()? < 2 {
        testkit::skip("one device");
        return Ok(None);
    }
    Ok(Some([Bench::on(0)?, Bench::on(1)?]))
}

#[test]
fn tensors_move_between_devices() -> Result<()> {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "2");
    let Some([here, there]) = two()? else { return Ok(()) };
    let x = Tensor::arange(&here.stream, 0, 1000, 1, DType::F32)?.view_as(&[8, 125])?;
    let far = here.stream.scope(|_| {
        let shared = |e: &Error| matches!(e.tensor_error(), Some(TensorError::Shared { .. }));
        expect_error("the tensor itself", x.to_device(&here.device)?.view_mut(), shared)?;
        there.stream.scope(|_| {
            let doubled = x.mul(2)?.to_device(&there.device)?;
            let turned = x.t()?.to_device(&there.device)?;
            assert!(turned.is_contiguous() && *turned.device() == there.device);
            assert!(x.slice(0, ..0)?.to_device(&there.device)?.is_empty());
            doubled.t()?.sub(&turned)
        })
    })?;
    assert_eq!(far.tolist::<f32>()?, x.t()?.tolist::<f32>()?);
    assert_eq!(far.to_device(&here.device)?.t()?.tolist::<f32>()?, x.tolist::<f32>()?);
    let one = copy_to_peer(&here.stream, &x, &here.device.stream()?);
    expect_error("one device", one, |e| matches!(e, Error::InvalidArgument { argument: "theirs", .. }))?;
    let far = copy_to_peer(&there.stream, &x, &here.stream);
    expect_error("another's stream", far, |e| matches!(e, Error::DeviceMismatch { .. }))?;
    Ok(())
}

/// Blocks whose last uses are still queued are given out again, on both sides of the copy.
#[test]
fn copies_are_in_order_with_both_streams() -> Result<()> {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "2");
    let Some([here, there]) = two()? else { return Ok(()) };
    for round in 0..2 {
        // Sums of a tensor of `there`, whose block the copy then gets, and work before the copy on `here`.
        let old = Tensor::full(&there.stream, &[MANY], 1.0, DType::F32)?;
        let busy = Tensor::full(&here.stream, &[MANY], 1.0, DType::F32)?;
        let sums = |stream: &Stream, x: &Tensor| {
            stream.scope(|_| (0..QUEUED).map(|_| x.sum_all()).collect::<Result<Vec<_>>>())
        };
        let (there_sums, here_sums) = (sums(&there.stream, &old)?, sums(&here.stream, &busy)?);
        drop(old);
        // The source is written on a stream of its own, and its block is written again behind the copy.
        let side = here.device.stream()?;
        let source = Tensor::full(&side, &[MANY], round as f32, DType::F32)?;
        let copied = copy_to_peer(&here.stream, &source, &there.stream)?;
        drop(source);
        let over = Tensor::full(&side, &[MANY], -1.0, DType::F32)?;
        let total = there.stream.scope(|_| copied.sum_all())?;
        assert_eq!(total.item::<f32>()?, (round * MANY) as f32);
        for sum in there_sums.iter().chain(&here_sums) {
            assert_eq!(sum.item::<f32>()?, MANY as f32);
        }
        drop(over);
    }
    Ok(())
}

#[test]
fn captures_refuse_copies_between_devices() -> Result<()> {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "2");
    let Some([here, there]) = two()? else { return Ok(()) };
    let refused = |e: &Error| matches!(e, Error::NotCapturable { .. });
    let x = Tensor::zeros(&here.stream, &[8], DType::F32)?;
    let read =
        Graph::capture(&here.stream, (), |stream, _| copy_to_peer(stream, &x, &there.stream).map(drop));
    expect_error("the source's stream", read, refused)?;
    let written =
        Graph::capture(&there.stream, (), |stream, _| copy_to_peer(&here.stream, &x, stream).map(drop));
    expect_error("the target's stream", written, refused)?;
    assert_eq!(copy_to_peer(&here.stream, &x, &there.stream)?.tolist::<f32>()?, [0.0; 8]);
    Ok(())
}

/// The device holds what it held, or, with NVIDIA's driver, died with the other one, for which it waited.
fn holds(bench: &Bench, tensor: &Tensor, what: &str) -> Result<()> {
    match tensor.to_vec::<f32>(&bench.stream) {
        Err(Error::Sticky { .. }) if !bench.device.is_software() => {}
        got => assert_eq!(got?, [2.0; 8], "{what}"),
    }
    Ok(())
}

/// A wait for a mark of a dead device fails; the software driver leaves the device that would wait alive.
#[test]
fn waits_for_a_dead_device_fail() -> Result<()> {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "2");
    let Some([here, there]) = two()? else { return Ok(()) };
    let far = Tensor::full(&there.stream, &[8], 2.0, DType::F32)?;
    let mark = Event::untimed(&here.device)?;
    // SAFETY: the kernel dies and touches nothing.
    unsafe { ironwarp::launch::<kernels::die>(&here.stream, LaunchConfig::new([1, 1, 1], [32, 1, 1]), ())? };
    here.stream.record(&mark)?;
    // Whoever waits notices first, on a GPU perhaps never. Before the kernel dies, a wait is queued.
    let side = there.device.stream()?;
    let mut refused = None;
    for _ in 0..TRIES {
        refused = side.wait(&mark).err();
        if refused.is_some() || side.is_idle().is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(refused.is_some() || !here.device.is_software(), "nobody noticed");
    let died = |e: &Error| matches!(e, Error::Sticky { .. });
    assert!(refused.iter().all(died), "{refused:?}");
    holds(&there, &far, "behind a wait")?;
    expect_error("synchronize", here.stream.synchronize(), died)?;
    let again = there.stream.wait(&mark);
    assert!(again.as_ref().err().iter().all(|e| died(e)), "{again:?}");
    holds(&there, &far, "after all")
}

/// Copies to and from a device whose context died fail, also where nobody has noticed yet; the software
/// driver leaves the other device alive.
#[test]
fn copies_beside_a_dead_device_fail() -> Result<()> {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "2");
    let Some([here, there]) = two()? else { return Ok(()) };
    let near = Tensor::full(&here.stream, &[8], 1.0, DType::F32)?;
    let far = Tensor::full(&there.stream, &[8], 2.0, DType::F32)?;
    here.device.synchronize()?;
    // SAFETY: the kernel dies and touches nothing.
    unsafe { ironwarp::launch::<kernels::die>(&here.stream, LaunchConfig::new([1, 1, 1], [32, 1, 1]), ())? };
    let died = |e: &Error| matches!(e, Error::Sticky { .. });
    // Whether these notice depends on when the kernel dies: they may also be queued before it does.
    for _ in 0..100 {
        let _ = copy_to_peer(&there.stream, &far, &here.stream);
        holds(&there, &far, "written to a device that is dying")?;
        let _ = copy_to_peer(&here.stream, &near, &there.stream);
        holds(&there, &far, "read from a device that is dying")?;
    }
    expect_error("synchronize", here.stream.synchronize(), died)?;
    expect_error("to a dead device", copy_to_peer(&there.stream, &far, &here.stream), died)?;
    expect_error("from a dead device", copy_to_peer(&here.stream, &near, &there.stream), died)?;
    holds(&there, &far, "after all")
}
