//! cust's buffers and ours.

use crate::common::{Bench, expect_error};
use cust::memory::CopyDestination;
use ironwarp::graph::Graph;
use ironwarp::{DeviceBuffer, DevicePtr, Error, Result};

#[test]
fn a_buffer_of_custs_becomes_ours() -> Result<()> {
    let Bench { stream, .. } = Bench::open()?;
    let theirs = cust::memory::DeviceBuffer::from_slice(&[1.0f32, 2.0, 3.0])?;
    let address = theirs.as_slice().as_device_ptr();
    // SAFETY: the device's primary context is current, as `Bench::open` left it, and cust's copy is done.
    let ours = unsafe { DeviceBuffer::from_cust(&stream, theirs) };
    assert_eq!(ours.as_ptr().raw(), DevicePtr::from(address).raw());
    assert_eq!(ours.to_vec(&stream)?, [1.0, 2.0, 3.0]);
    Ok(())
}

#[test]
fn our_buffer_becomes_custs() -> Result<()> {
    let Bench { stream, .. } = Bench::open()?;
    let ours = DeviceBuffer::from_slice(&stream, &[1u32, 2, 3])?;
    let theirs = ours.into_cust()?;
    let mut out = [0u32; 3];
    theirs.copy_to(&mut out)?;
    assert_eq!(out, [1, 2, 3]);
    Ok(())
}

#[test]
fn our_buffer_is_lent_without_a_copy() -> Result<()> {
    let Bench { stream, .. } = Bench::open()?;
    let mut ours = DeviceBuffer::from_slice(&stream, &[1u32, 2, 3])?;
    let address = ours.as_ptr().raw();
    let mut loan = ours.lend_to_cust()?;
    assert_eq!((loan.len(), loan.as_slice().as_device_ptr().as_raw()), (3, address));
    // SAFETY: elements are written.
    unsafe { loan.get_mut() }.copy_from(&[4, 5, 6])?;
    drop(loan);
    assert_eq!(ours.to_vec(&stream)?, [4, 5, 6]);
    // The buffer is still only ours: it is freed once.
    drop(ours);
    assert_eq!(DeviceBuffer::from_slice(&stream, &[7u32])?.to_vec(&stream)?, [7]);
    Ok(())
}

#[test]
fn a_buffer_of_custs_comes_back_where_it_was() -> Result<()> {
    let Bench { stream, .. } = Bench::open()?;
    let theirs = cust::memory::DeviceBuffer::from_slice(&[7u32; 5])?;
    let address = theirs.as_slice().as_device_ptr();
    // SAFETY: as above.
    let ours = unsafe { DeviceBuffer::from_cust(&stream, theirs) };
    assert_eq!(ours.into_cust()?.as_slice().as_device_ptr(), address);
    Ok(())
}

#[test]
fn nothing_is_a_buffer_too() -> Result<()> {
    let Bench { stream, .. } = Bench::open()?;
    let theirs = DeviceBuffer::<u8>::zeroed(&stream, 0)?.into_cust()?;
    // SAFETY: there is no memory.
    let ours = unsafe { DeviceBuffer::from_cust(&stream, theirs) };
    assert!(ours.to_vec(&stream)?.is_empty());
    Ok(())
}

#[test]
fn a_capture_hands_none_of_its_buffers_to_cust() -> Result<()> {
    // A capture forbids other tests to wait for the device or to take memory from it.
    testkit::own_process!();
    let Bench { stream, .. } = Bench::open()?;
    let mut nothing = DeviceBuffer::<f32>::zeroed(&stream, 0)?;
    let other = DeviceBuffer::from_slice(&stream, &[1u32, 2, 3])?;
    let mut graph = Graph::capture(&stream, (), |stream, ()| {
        // The capture does not use this buffer.
        assert_eq!(other.into_cust()?.as_host_vec()?, [1, 2, 3]);
        let buffer = DeviceBuffer::<u32>::zeroed(stream, 3)?;
        let given = buffer.into_cust().map(drop);
        expect_error("into_cust", given, |e| matches!(e, Error::NotCapturable { .. }))?;
        nothing.fill_zero(stream)
    })?;
    graph.replay(&stream)?;
    stream.synchronize()?;
    // A buffer without elements can be handed over, even if a graph has used it.
    assert_eq!(nothing.into_cust()?.len(), 0);
    Ok(())
}

#[test]
fn errors_of_custs_keep_their_code() {
    let error = Error::from(cust::error::CudaError::IllegalAddress);
    assert!(!error.is_recoverable());
    assert!(error.to_string().contains("700"), "{error}");
}
