//! Properties of the software driver alone: it is stricter than a GPU, and every run behaves the same.

mod common;

use common::*;
use cust_raw::*;
use std::{
    ffi::c_void,
    ptr::null_mut,
    sync::{
        Once,
        atomic::{AtomicU32, Ordering},
    },
};

/// Two devices of the software driver, whatever GPU the machine has.
fn soft() -> Result<Gpu, Failure> {
    static CHOOSE: Once = Once::new();
    // SAFETY: done once, before anything in this program loads the driver. Only the driver reads these
    // variables.
    CHOOSE.call_once(|| unsafe {
        std::env::set_var("IRONWARP_DRIVER", "soft");
        std::env::set_var("IRONWARP_SOFT_DEVICES", "2");
        std::env::set_var("IRONWARP_SOFT_MEMORY", "256M");
    });
    Gpu::new()
}

#[test]
fn new_memory_is_nan() -> Check {
    let gpu = soft()?;
    let words = gpu.buffer(1000)?.read()?;
    holds("every word", words.iter().all(|&word| f32::from_bits(word).is_nan()))
}

/// Freed memory waits for a while before it is used again. That must not take the room of new memory.
#[test]
#[cfg(all(unix, target_pointer_width = "64"))]
fn buffers_lie_far_apart_after_many() -> Check {
    let gpu = soft()?;
    for _ in 0..5000 {
        drop(gpu.buffer(1)?);
    }
    let (a, b) = (gpu.buffer(16)?, gpu.buffer(16)?);
    holds("a gigabyte between them", a.address.abs_diff(b.address) >= 1 << 30)
}

#[test]
fn work_waits_until_somebody_asks() -> Check {
    let gpu = soft()?;
    let (stream, buffer, to) = (gpu.stream()?, gpu.buffer(16)?, gpu.pinned(16)?);
    to.set(|_| 0);
    buffer.write(&[6; 16])?;
    ok!(cuMemcpyDtoHAsync_v2(to.address.cast(), buffer.address, 64, stream.0));
    equal("too early", to.get(), vec![0; 16])?;
    ok!(cuStreamSynchronize(stream.0));
    equal("in time", to.get(), vec![6; 16])
}

#[test]
fn pinned_memory_is_read_when_the_stream_comes_to_it() -> Check {
    let gpu = soft()?;
    let (stream, buffer, from) = (gpu.stream()?, gpu.buffer(16)?, gpu.pinned(16)?);
    from.set(|_| 1);
    ok!(cuMemcpyHtoDAsync_v2(buffer.address, from.address.cast(), 64, stream.0));
    from.set(|_| 2);
    ok!(cuStreamSynchronize(stream.0));
    equal("the later value", buffer.read()?, vec![2; 16])
}

#[test]
fn a_stream_that_nobody_waits_for_does_not_run() -> Check {
    let gpu = soft()?;
    let (producer, consumer) = (gpu.stream()?, gpu.stream()?);
    let (a, b) = (gpu.buffer(16)?, gpu.buffer(16)?);
    a.write(&[0; 16])?;
    ok!(cuMemsetD32Async(a.address, 1, 16, producer.0));
    ok!(cuMemcpyDtoDAsync_v2(b.address, a.address, 64, consumer.0));
    ok!(cuStreamSynchronize(consumer.0));
    equal("the forgotten event shows", b.read()?, vec![0; 16])
}

#[test]
fn the_newest_stream_runs_first() -> Check {
    let gpu = soft()?;
    let (producer, consumer) = (gpu.stream()?, gpu.stream()?);
    let (a, b) = (gpu.buffer(16)?, gpu.buffer(16)?);
    a.write(&[0; 16])?;
    ok!(cuMemsetD32Async(a.address, 1, 16, producer.0));
    ok!(cuMemcpyDtoDAsync_v2(b.address, a.address, 64, consumer.0));
    ok!(cuCtxSynchronize());
    equal("the forgotten event shows", (a.read()?[0], b.read()?[0]), (1, 0))
}

#[test]
fn a_non_blocking_stream_does_not_wait_for_the_legacy_stream() -> Check {
    let gpu = soft()?;
    let (stream, a, b) = (gpu.stream()?, gpu.buffer(16)?, gpu.buffer(16)?);
    a.write(&[0; 16])?;
    ok!(cuMemsetD32Async(a.address, 1, 16, NULL_STREAM));
    ok!(cuMemcpyDtoDAsync_v2(b.address, a.address, 64, stream.0));
    ok!(cuStreamSynchronize(stream.0));
    equal("what the stream saw", b.read()?[0], 0)
}

#[test]
fn a_graph_that_lacks_an_edge_goes_wrong() -> Check {
    let gpu = soft()?;
    let (stream, module, buffer) = (gpu.stream()?, gpu.module()?, gpu.buffer(64)?);
    ok!(cuMemsetD32_v2(buffer.address, 7, 64));
    ok!(cuCtxSynchronize());
    let (mut graph, mut exec) = (null_mut(), null_mut());
    ok!(cuGraphCreate(&mut graph, 0));
    for (name, number) in [(c"count_up", 0), (c"double_and_add", 1)] {
        let mut params = Params::new(&buffer, number);
        let mut pointers = params.pointers();
        let kernel = CUDA_KERNEL_NODE_PARAMS {
            func: module.function(name)?,
            gridDimX: 1,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: 64,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: 0,
            kernelParams: pointers.as_mut_ptr(),
            extra: null_mut(),
        };
        let mut node = null_mut();
        ok!(cuGraphAddKernelNode(&mut node, graph, std::ptr::null(), 0, &kernel));
    }
    ok!(cuGraphInstantiateWithFlags(&mut exec, graph, 0));
    ok!(cuGraphLaunch(exec, stream.0));
    ok!(cuStreamSynchronize(stream.0));
    ok!(cuGraphExecDestroy(exec));
    ok!(cuGraphDestroy(graph));
    equal("the doubling went first", buffer.read()?, counting(64, 0))
}

#[test]
fn copies_beyond_an_allocation_are_refused_to_the_byte() -> Check {
    let gpu = soft()?;
    let (a, b, pinned) = (gpu.buffer(16)?, gpu.buffer(17)?, gpu.pinned(16)?);
    let mut local = [0_u32; 32];
    fails!(cuMemcpyDtoD_v2(a.address, b.address, 65), CUDA_ERROR_INVALID_VALUE);
    fails!(cuMemcpyDtoD_v2(a.address + 4, b.address, 64), CUDA_ERROR_INVALID_VALUE);
    fails!(cuMemcpyHtoD_v2(a.address, local.as_ptr().cast(), 65), CUDA_ERROR_INVALID_VALUE);
    fails!(cuMemcpyDtoH_v2(local.as_mut_ptr().cast(), a.address, 65), CUDA_ERROR_INVALID_VALUE);
    fails!(cuMemcpyDtoH_v2(pinned.address.cast(), b.address, 65), CUDA_ERROR_INVALID_VALUE);
    fails!(cuMemsetD8_v2(a.address, 0, 65), CUDA_ERROR_INVALID_VALUE);
    fails!(cuMemcpyHtoD_v2(0, local.as_ptr().cast(), 4), CUDA_ERROR_INVALID_VALUE);
    fails!(cuMemcpyHtoD_v2(a.address, std::ptr::null(), 4), CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

#[test]
fn a_copy_of_memory_that_was_freed_in_another_stream_is_a_fault() -> Check {
    let gpu = soft()?;
    let (one, two, buffer) = (gpu.stream()?, gpu.stream()?, gpu.buffer(16)?);
    let mut address = 0;
    ok!(cuMemAllocAsync(&mut address, 64, one.0));
    ok!(cuMemcpyDtoDAsync_v2(buffer.address, address, 64, two.0));
    ok!(cuMemFreeAsync(address, one.0)); // with no event between
    ok!(cuStreamSynchronize(one.0));
    fails!(cuStreamSynchronize(two.0), CUDA_ERROR_ILLEGAL_ADDRESS);
    let report = ironwarp_driver::soft::last_fault().ok_or("there is no report")?;
    holds("the report says what happened", report.contains("freed"))?;
    std::mem::forget((one, two, buffer));
    ironwarp_driver::soft::reset();
    ok!(cuCtxSynchronize());
    Ok(())
}

#[test]
fn a_write_into_a_red_zone_is_found_when_the_memory_is_freed() -> Check {
    let gpu = soft()?;
    let buffer = std::mem::ManuallyDrop::new(gpu.buffer(16)?);
    // SAFETY: the byte behind the allocation belongs to its red zone, which the driver owns.
    unsafe { (buffer.address as *mut u8).add(64).write_volatile(1) };
    fails!(cuMemFree_v2(buffer.address), CUDA_ERROR_ILLEGAL_ADDRESS);
    let report = ironwarp_driver::soft::last_fault().ok_or("there is no report")?;
    holds("the report says where", report.contains("byte 64 of allocation"))?;
    ironwarp_driver::soft::reset();
    equal("forgotten", ironwarp_driver::soft::last_fault(), None)
}

#[test]
fn stream_ordered_memory_is_freed_once() -> Check {
    let gpu = soft()?;
    let (stream, mut address) = (gpu.stream()?, 0);
    ok!(cuMemAllocAsync(&mut address, 64, stream.0));
    ok!(cuMemFreeAsync(address, stream.0));
    fails!(cuMemFreeAsync(address, stream.0), CUDA_ERROR_INVALID_VALUE);
    fails!(cuMemFree_v2(address), CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

#[test]
fn memory_that_is_still_to_be_freed_in_a_stream_can_be_had() -> Check {
    const MOST: usize = 200 << 20;
    let gpu = soft()?;
    let (stream, mut first, mut second) = (gpu.stream()?, 0, 0);
    ok!(cuMemAllocAsync(&mut first, MOST, stream.0));
    ok!(cuMemFreeAsync(first, stream.0));
    ok!(cuMemAllocAsync(&mut second, MOST, stream.0));
    ok!(cuMemFreeAsync(second, stream.0));
    ok!(cuStreamSynchronize(stream.0));
    Ok(())
}

#[test]
fn handles_that_are_gone_or_of_another_kind_are_refused() -> Check {
    let gpu = soft()?;
    let (stream, event) = (gpu.stream()?, gpu.event()?);
    fails!(cuStreamSynchronize(event.0.cast()), CUDA_ERROR_INVALID_HANDLE);
    fails!(cuEventSynchronize(stream.0.cast()), CUDA_ERROR_INVALID_HANDLE);
    let gone = stream.0;
    drop(stream);
    fails!(cuStreamSynchronize(gone), CUDA_ERROR_INVALID_HANDLE);
    fails!(cuStreamDestroy_v2(gone), CUDA_ERROR_INVALID_HANDLE);
    Ok(())
}

static mut FROM_HOST_FUNCTION: u32 = 0;

/// A host function that calls the driver, which is not allowed.
///
/// # Safety
/// Nothing else accesses `FROM_HOST_FUNCTION` meanwhile.
unsafe extern "C" fn call_the_driver(_data: *mut c_void) {
    let mut address = 0;
    // SAFETY: an out-pointer to a live variable; nothing else accesses the static while the program waits for
    // the stream.
    unsafe { FROM_HOST_FUNCTION = cuMemAlloc_v2(&mut address, 16) as u32 };
}

#[test]
fn host_functions_may_not_call_the_driver() -> Check {
    let gpu = soft()?;
    let stream = gpu.stream()?;
    ok!(cuLaunchHostFunc(stream.0, Some(call_the_driver), null_mut()));
    ok!(cuStreamSynchronize(stream.0));
    // SAFETY: the stream's work is done.
    equal("the code", unsafe { FROM_HOST_FUNCTION }, ironwarp_driver::code::NOT_PERMITTED)
}

#[test]
fn two_threads_can_wait_at_the_same_time() -> Check {
    let gpu = soft()?;
    let context = gpu.context as usize;
    let threads: Vec<_> = (0..4_u32)
        .map(|number| {
            std::thread::spawn(move || -> Result<Vec<u32>, Failure> {
                ok!(cuCtxSetCurrent(context as CUcontext));
                let (mut stream, mut address) = (null_mut(), 0);
                ok!(cuStreamCreate(&mut stream, 1));
                ok!(cuMemAlloc_v2(&mut address, 64));
                let stream = Stream(stream);
                let buffer = Buffer { address, words: 16 };
                for _ in 0..100 {
                    ok!(cuMemsetD32Async(buffer.address, number, 16, stream.0));
                    ok!(cuStreamSynchronize(stream.0));
                }
                buffer.read()
            })
        })
        .collect();
    for (number, thread) in threads.into_iter().enumerate() {
        let words = thread.join().map_err(|_| "a thread panicked")??;
        equal("its own number", words, vec![number as u32; 16])?;
    }
    Ok(())
}

#[test]
fn two_devices_are_peers() -> Check {
    let gpu = soft()?;
    let (mut can, mut other) = (0, null_mut());
    ok!(cuDeviceCanAccessPeer(&mut can, 0, 1));
    equal("access", can, 1)?;
    ok!(cuDevicePrimaryCtxRetain(&mut other, 1));
    ok!(cuCtxEnablePeerAccess(other, 0));
    fails!(cuCtxEnablePeerAccess(other, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    ok!(cuCtxDisablePeerAccess(other));
    fails!(cuCtxDisablePeerAccess(other), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    let here = gpu.buffer(16)?;
    here.write(&[9; 16])?;
    ok!(cuCtxSetCurrent(other));
    let there = gpu.buffer(16)?;
    ok!(cuMemcpyPeer(there.address, other, here.address, gpu.context, 64));
    equal("the copy", there.read()?, vec![9; 16])?;
    drop(there);
    ok!(cuCtxSetCurrent(gpu.context));
    ok!(cuDevicePrimaryCtxRelease_v2(1));
    Ok(())
}

#[test]
fn a_stream_of_another_context_runs_no_kernel_of_this_one() -> Check {
    let gpu = soft()?;
    let (module, buffer, mut other) = (gpu.module()?, gpu.buffer(16)?, null_mut());
    let function = module.function(c"count_up")?;
    ok!(cuDevicePrimaryCtxRetain(&mut other, 1));
    ok!(cuCtxSetCurrent(other));
    let stream = gpu.stream()?;
    let mut params = Params::new(&buffer, 0);
    fails!(
        cuLaunchKernel(function, 1, 1, 1, 16, 1, 1, 0, stream.0, params.pointers().as_mut_ptr(), null_mut()),
        CUDA_ERROR_INVALID_HANDLE
    );
    drop(stream);
    ok!(cuCtxSetCurrent(gpu.context));
    ok!(cuDevicePrimaryCtxRelease_v2(1));
    Ok(())
}

#[test]
fn a_released_primary_context_is_gone_until_it_is_retained_again() -> Check {
    let gpu = soft()?;
    let (mut other, mut again, mut address) = (null_mut(), null_mut(), 0);
    ok!(cuDevicePrimaryCtxRetain(&mut other, 1));
    ok!(cuDevicePrimaryCtxRelease_v2(1));
    fails!(cuDevicePrimaryCtxRelease_v2(1), CUDA_ERROR_INVALID_CONTEXT);
    ok!(cuCtxSetCurrent(other));
    fails!(cuMemAlloc_v2(&mut address, 16), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    ok!(cuDevicePrimaryCtxRetain(&mut again, 1));
    equal("the same handle", again, other)?;
    ok!(cuMemAlloc_v2(&mut address, 16));
    ok!(cuDevicePrimaryCtxRelease_v2(1));
    ok!(cuCtxSetCurrent(gpu.context));
    Ok(())
}

#[test]
fn a_module_of_a_header_line_alone_has_the_familys_kernels() -> Check {
    let gpu = soft()?;
    let mut module = null_mut();
    ok!(cuModuleLoadData(&mut module, c"// ironwarp family=driver_tests arch=sm_90a".as_ptr().cast()));
    let (module, buffer) = (Module(module), gpu.buffer(64)?);
    launch(module.function(c"count_up")?, NULL_STREAM, &buffer, 3)?;
    equal("the output", buffer.read()?, counting(64, 3))
}

#[test]
fn a_fault_goes_when_the_primary_context_is_reset() -> Check {
    let gpu = soft()?;
    let (module, mut context) = (gpu.module()?, null_mut());
    let wild = std::mem::ManuallyDrop::new(Buffer { address: 64, words: 4 });
    launch(module.function(c"count_up")?, NULL_STREAM, &wild, 0)?;
    fails!(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    std::mem::forget(module);
    ok!(cuDevicePrimaryCtxReset_v2(gpu.device));
    ok!(cuDevicePrimaryCtxRetain(&mut context, gpu.device));
    ok!(cuCtxSetCurrent(context));
    let buffer = gpu.buffer(64)?;
    buffer.write(&[1; 64])?;
    equal("memory afterwards", buffer.read()?, vec![1; 64])
}

#[test]
fn a_fault_of_one_context_leaves_another_alone() -> Check {
    let gpu = soft()?;
    let (module, mut other) = (gpu.module()?, null_mut());
    let wild = std::mem::ManuallyDrop::new(Buffer { address: 64, words: 4 });
    launch(module.function(c"count_up")?, NULL_STREAM, &wild, 0)?;
    fails!(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    ok!(cuDevicePrimaryCtxRetain(&mut other, 1));
    ok!(cuCtxSetCurrent(other));
    ok!(cuCtxSynchronize());
    ok!(cuDevicePrimaryCtxRelease_v2(1));
    std::mem::forget(module);
    ironwarp_driver::soft::reset();
    ok!(cuCtxSetCurrent(gpu.context));
    ok!(cuCtxSynchronize());
    Ok(())
}

/// A destructor of a user object: it counts its calls.
///
/// # Safety
/// `count` is that of a static.
unsafe extern "C" fn count_end(count: *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe { &*count.cast::<AtomicU32>() }.fetch_add(1, Ordering::SeqCst);
}

/// A graph with a user object, which `ended` counts at its end.
fn graph_with_object(ended: &'static AtomicU32) -> Result<CUgraph, Failure> {
    let (mut graph, mut object, mut node) = (null_mut(), null_mut(), null_mut());
    ok!(cuGraphCreate(&mut graph, 0));
    ok!(cuGraphAddEmptyNode(&mut node, graph, std::ptr::null(), 0));
    ok!(cuUserObjectCreate(&mut object, (&raw const *ended).cast_mut().cast(), Some(count_end), 2, 1));
    ok!(cuGraphRetainUserObject(graph, object, 3, 0));
    ok!(cuGraphReleaseUserObject(graph, object, 2));
    ok!(cuUserObjectRetain(object, 1));
    ok!(cuUserObjectRelease(object, 3));
    Ok(graph)
}

#[test]
fn graphs_hand_on_their_user_objects() -> Check {
    static ENDED: [AtomicU32; 2] = [const { AtomicU32::new(0) }; 2];
    let ended = || [&ENDED[0], &ENDED[1]].map(|ended| ended.load(Ordering::SeqCst));
    let gpu = soft()?;
    let stream = gpu.stream()?;
    let first = graph_with_object(&ENDED[0])?;
    // By a child to an executable, by that to a capture, and so to another executable.
    let (mut parent, mut node, mut exec) = (null_mut(), null_mut(), null_mut());
    ok!(cuGraphCreate(&mut parent, 0));
    ok!(cuGraphAddChildGraphNode(&mut node, parent, std::ptr::null(), 0, first));
    ok!(cuGraphDestroy(first));
    ok!(cuGraphInstantiateWithFlags(&mut exec, parent, 0));
    ok!(cuGraphDestroy(parent));
    let (mut captured, mut last) = (null_mut(), null_mut());
    ok!(cuStreamBeginCapture_v2(stream.0, CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_RELAXED));
    ok!(cuGraphLaunch(exec, stream.0));
    ok!(cuStreamEndCapture(stream.0, &mut captured));
    ok!(cuGraphExecDestroy(exec));
    ok!(cuGraphInstantiateWithFlags(&mut last, captured, 0));
    ok!(cuGraphDestroy(captured));
    equal("one executable has it", ended(), [0, 0])?;
    // An update is the end of what the executable had.
    let second = graph_with_object(&ENDED[1])?;
    let (mut error, mut result) = (null_mut(), CUgraphExecUpdateResult_enum::CU_GRAPH_EXEC_UPDATE_ERROR);
    ok!(cuGraphExecUpdate(last, second, &mut error, &mut result));
    ok!(cuGraphDestroy(second));
    equal("after an update", ended(), [1, 0])?;
    ok!(cuGraphExecDestroy(last));
    equal("at the end", ended(), [1, 1])
}
