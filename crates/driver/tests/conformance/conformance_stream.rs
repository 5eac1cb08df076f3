//! Streams and events: order, waiting, time, host functions.

use crate::common::*;
use cust_raw::*;
use std::{
    ffi::c_void,
    ptr::null_mut,
    sync::atomic::{AtomicU32, Ordering},
};

const DEFAULT: CUstream_flags_enum = CUstream_flags_enum::CU_STREAM_DEFAULT;

#[test]
fn streams_have_the_flags_they_were_made_with() -> Check {
    let gpu = Gpu::new()?;
    for flags in [DEFAULT, CUstream_flags_enum::CU_STREAM_NON_BLOCKING] {
        let stream = gpu.stream_with(flags)?;
        let mut got = u32::MAX;
        ok!(cuStreamGetFlags(stream.0, &mut got));
        equal("flags", got, flags as u32)?;
    }
    Ok(())
}

#[test]
fn unknown_stream_flags_are_refused() -> Check {
    let _gpu = Gpu::new()?;
    let mut stream = null_mut();
    fails!(cuStreamCreate(&mut stream, 0x80), CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

#[test]
fn priorities_are_clamped_to_their_range() -> Check {
    let _gpu = Gpu::new()?;
    let (mut least, mut greatest, mut stream, mut got) = (0, 0, null_mut(), 0);
    ok!(cuCtxGetStreamPriorityRange(&mut least, &mut greatest));
    holds("a greater priority is a smaller number", greatest <= least)?;
    ok!(cuStreamCreateWithPriority(&mut stream, 1, greatest - 10));
    let stream = Stream(stream);
    ok!(cuStreamGetPriority(stream.0, &mut got));
    equal("priority", got, greatest)
}

#[test]
fn a_stream_knows_its_context() -> Check {
    let gpu = Gpu::new()?;
    let stream = gpu.stream()?;
    let mut context = null_mut();
    ok!(cuStreamGetCtx(stream.0, &mut context));
    equal("context", context, gpu.context)
}

#[test]
fn an_idle_stream_is_done() -> Check {
    let gpu = Gpu::new()?;
    let stream = gpu.stream()?;
    ok!(cuStreamQuery(stream.0));
    ok!(cuStreamSynchronize(stream.0));
    Ok(())
}

#[test]
fn asking_a_busy_stream_comes_to_an_end() -> Check {
    let gpu = Gpu::new()?;
    let (stream, buffer) = (gpu.stream()?, gpu.buffer(1 << 16)?);
    for value in 0..20 {
        ok!(cuMemsetD32Async(buffer.address, value, 1 << 16, stream.0));
    }
    loop {
        // SAFETY: the stream is alive.
        match unsafe { cuStreamQuery(stream.0) } {
            cudaError_enum::CUDA_SUCCESS => break,
            other => expect("cuStreamQuery", other, &[cudaError_enum::CUDA_ERROR_NOT_READY])?,
        }
    }
    equal("the last fill", buffer.read()?[0], 19)
}

#[test]
fn work_of_a_destroyed_stream_is_done() -> Check {
    let gpu = Gpu::new()?;
    let buffer = gpu.buffer(256)?;
    let stream = gpu.stream()?;
    ok!(cuMemsetD32Async(buffer.address, 4, 256, stream.0));
    drop(stream);
    ok!(cuCtxSynchronize());
    equal("the fill", buffer.read()?, vec![4; 256])
}

#[test]
fn a_blocking_stream_keeps_order_with_the_legacy_stream() -> Check {
    let gpu = Gpu::new()?;
    let (stream, buffer, to) = (gpu.stream_with(DEFAULT)?, gpu.buffer(64)?, gpu.pinned(64)?);
    ok!(cuMemsetD32Async(buffer.address, 1, 64, NULL_STREAM));
    ok!(cuMemcpyDtoHAsync_v2(to.address.cast(), buffer.address, 256, stream.0));
    ok!(cuMemsetD32Async(buffer.address, 2, 64, NULL_STREAM));
    ok!(cuStreamSynchronize(NULL_STREAM));
    equal("what the stream saw", to.get(), vec![1; 64])?;
    equal("what is left", buffer.read()?, vec![2; 64])
}

#[test]
fn a_synchronous_copy_sees_the_work_of_blocking_streams() -> Check {
    let gpu = Gpu::new()?;
    let (stream, buffer) = (gpu.stream_with(DEFAULT)?, gpu.buffer(64)?);
    ok!(cuMemsetD32Async(buffer.address, 6, 64, stream.0));
    equal("the fill", buffer.read()?, vec![6; 64])
}

#[test]
fn an_event_orders_two_streams() -> Check {
    let gpu = Gpu::new()?;
    let (producer, consumer, event) = (gpu.stream()?, gpu.stream()?, gpu.event()?);
    let (a, b) = (gpu.buffer(4096)?, gpu.buffer(4096)?);
    ok!(cuMemsetD32Async(a.address, 11, 4096, producer.0));
    ok!(cuEventRecord(event.0, producer.0));
    ok!(cuStreamWaitEvent(consumer.0, event.0, 0));
    ok!(cuMemcpyDtoDAsync_v2(b.address, a.address, 4 * 4096, consumer.0));
    ok!(cuStreamSynchronize(consumer.0));
    equal("the copy", b.read()?, vec![11; 4096])
}

#[test]
fn a_wait_is_for_the_record_before_it() -> Check {
    let gpu = Gpu::new()?;
    let (producer, consumer, event) = (gpu.stream()?, gpu.stream()?, gpu.event()?);
    let (a, b, c) = (gpu.buffer(64)?, gpu.buffer(64)?, gpu.buffer(64)?);
    ok!(cuMemsetD32Async(a.address, 1, 64, producer.0));
    ok!(cuEventRecord(event.0, producer.0));
    ok!(cuStreamWaitEvent(consumer.0, event.0, 0));
    ok!(cuMemcpyDtoDAsync_v2(b.address, a.address, 256, consumer.0));
    ok!(cuEventRecord(event.0, consumer.0));
    ok!(cuStreamWaitEvent(producer.0, event.0, 0));
    ok!(cuMemsetD32Async(a.address, 2, 64, producer.0));
    ok!(cuMemcpyDtoDAsync_v2(c.address, a.address, 256, producer.0));
    ok!(cuStreamSynchronize(producer.0));
    equal("before and after", (b.read()?[0], c.read()?[0]), (1, 2))
}

#[test]
fn an_event_that_was_never_recorded_is_done() -> Check {
    let gpu = Gpu::new()?;
    let (stream, event) = (gpu.stream()?, gpu.event()?);
    ok!(cuEventQuery(event.0));
    ok!(cuEventSynchronize(event.0));
    ok!(cuStreamWaitEvent(stream.0, event.0, 0));
    Ok(())
}

#[test]
fn an_event_is_done_after_its_stream() -> Check {
    let gpu = Gpu::new()?;
    let (stream, event, buffer) = (gpu.stream()?, gpu.event()?, gpu.buffer(64)?);
    ok!(cuMemsetD32Async(buffer.address, 3, 64, stream.0));
    ok!(cuEventRecord(event.0, stream.0));
    ok!(cuEventSynchronize(event.0));
    ok!(cuEventQuery(event.0));
    equal("the fill", buffer.read()?, vec![3; 64])
}

#[test]
fn asking_an_event_comes_to_an_end() -> Check {
    let gpu = Gpu::new()?;
    let (stream, event, buffer) = (gpu.stream()?, gpu.event()?, gpu.buffer(1 << 16)?);
    for _ in 0..10 {
        ok!(cuMemsetD32Async(buffer.address, 3, 1 << 16, stream.0));
    }
    ok!(cuEventRecord(event.0, stream.0));
    // SAFETY: the event is alive.
    while unsafe { cuEventQuery(event.0) } == cudaError_enum::CUDA_ERROR_NOT_READY {}
    ok!(cuEventQuery(event.0));
    Ok(())
}

#[test]
fn time_goes_forward_between_events() -> Check {
    let gpu = Gpu::new()?;
    let (stream, start, end, buffer) = (gpu.stream()?, gpu.event()?, gpu.event()?, gpu.buffer(1 << 20)?);
    ok!(cuEventRecord(start.0, stream.0));
    ok!(cuMemsetD32Async(buffer.address, 3, 1 << 20, stream.0));
    ok!(cuEventRecord(end.0, stream.0));
    ok!(cuEventSynchronize(end.0));
    let (mut there, mut back) = (0.0, 0.0);
    ok!(cuEventElapsedTime(&mut there, start.0, end.0));
    ok!(cuEventElapsedTime(&mut back, end.0, start.0));
    holds("the fill took some time, less than ten seconds", there > 0.0 && there < 1e4)?;
    holds("the other way around", (back + there).abs() <= 0.01 * there)
}

#[test]
fn events_without_timing_give_no_time() -> Check {
    let gpu = Gpu::new()?;
    let (timed, mut untimed, mut time) = (gpu.event()?, null_mut(), 0.0);
    ok!(cuEventCreate(&mut untimed, CUevent_flags_enum::CU_EVENT_DISABLE_TIMING as u32));
    let untimed = Event(untimed);
    ok!(cuEventRecord(timed.0, NULL_STREAM));
    ok!(cuEventRecord(untimed.0, NULL_STREAM));
    ok!(cuCtxSynchronize());
    fails!(cuEventElapsedTime(&mut time, timed.0, untimed.0), CUDA_ERROR_INVALID_HANDLE);
    Ok(())
}

#[test]
fn events_that_were_not_recorded_give_no_time() -> Check {
    let gpu = Gpu::new()?;
    let (a, b, mut time) = (gpu.event()?, gpu.event()?, 0.0);
    fails!(cuEventElapsedTime(&mut time, a.0, b.0), CUDA_ERROR_INVALID_HANDLE);
    Ok(())
}

#[test]
fn unknown_event_flags_are_refused() -> Check {
    let _gpu = Gpu::new()?;
    let mut event = null_mut();
    fails!(cuEventCreate(&mut event, 0x100), CUDA_ERROR_INVALID_VALUE);
    // Interprocess events cannot have timing.
    fails!(
        cuEventCreate(&mut event, CUevent_flags_enum::CU_EVENT_INTERPROCESS as u32),
        CUDA_ERROR_INVALID_VALUE
    );
    Ok(())
}

/// A host function that reads what the copy before it wrote.
///
/// # Safety
/// `data` points to a [`Seen`] whose memory no device writes meanwhile.
unsafe extern "C" fn note_value(data: *mut c_void) {
    // SAFETY: the test passes a `Seen` that outlives the stream's work.
    let seen = unsafe { &*data.cast::<Seen>() };
    // SAFETY: page-locked memory that lives as long; the device does not touch it now.
    seen.value.store(unsafe { seen.memory.read_volatile() }, Ordering::SeqCst);
}

struct Seen {
    memory: *const u32,
    value: AtomicU32,
}

#[test]
fn a_host_function_runs_between_the_work_around_it() -> Check {
    let gpu = Gpu::new()?;
    let (stream, buffer, to) = (gpu.stream()?, gpu.buffer(1)?, gpu.pinned(1)?);
    to.set(|_| 0);
    let seen = Seen { memory: to.address, value: AtomicU32::new(0) };
    for value in [21, 22] {
        ok!(cuMemsetD32Async(buffer.address, value, 1, stream.0));
        ok!(cuMemcpyDtoHAsync_v2(to.address.cast(), buffer.address, 4, stream.0));
        if value == 21 {
            ok!(cuLaunchHostFunc(stream.0, Some(note_value), (&raw const seen).cast_mut().cast()));
        }
    }
    ok!(cuStreamSynchronize(stream.0));
    equal("what the function saw", seen.value.load(Ordering::SeqCst), 21)?;
    equal("what came last", to.get(), vec![22])
}

/// A stream callback that keeps the status.
///
/// # Safety
/// `data` points to an `AtomicU32`.
unsafe extern "C" fn note_status(_stream: CUstream, status: CUresult, data: *mut c_void) {
    // SAFETY: the test passes an `AtomicU32` that outlives the stream's work.
    unsafe { &*data.cast::<AtomicU32>() }.store(status as u32 + 100, Ordering::SeqCst);
}

#[test]
fn a_stream_callback_hears_that_all_is_well() -> Check {
    let gpu = Gpu::new()?;
    let stream = gpu.stream()?;
    let status = AtomicU32::new(0);
    ok!(cuStreamAddCallback(stream.0, Some(note_status), (&raw const status).cast_mut().cast(), 0));
    ok!(cuStreamSynchronize(stream.0));
    equal("status", status.load(Ordering::SeqCst), 100)
}

#[test]
fn a_missing_host_function_is_refused() -> Check {
    let gpu = Gpu::new()?;
    let stream = gpu.stream()?;
    fails!(cuLaunchHostFunc(stream.0, None, null_mut()), CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

#[test]
fn streams_work_from_other_threads() -> Check {
    let gpu = Gpu::new()?;
    let (stream, buffer) = (gpu.stream()?, gpu.buffer(128)?);
    let (context, raw, address) = (gpu.context as usize, stream.0 as usize, buffer.address);
    let result = std::thread::spawn(move || -> Check {
        ok!(cuCtxSetCurrent(context as CUcontext));
        ok!(cuMemsetD32Async(address, 8, 128, raw as CUstream));
        Ok(())
    })
    .join();
    result.map_err(|_| Failure::from("the thread panicked"))??;
    ok!(cuStreamSynchronize(stream.0));
    equal("the fill", buffer.read()?, vec![8; 128])
}
