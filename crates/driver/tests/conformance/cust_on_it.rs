//! cust on either driver: a program links it without CUDA, and its calls work.

use cust::{
    context::{CacheConfig, CurrentContext},
    event::{Event, EventFlags},
    function::FunctionAttribute,
    launch,
    link::Linker,
    memory::{
        AsyncCopyDestination, CopyDestination, DeviceBox, DeviceBuffer, LockedBuffer, UnifiedBuffer,
        mem_get_info,
    },
    module::Module,
    prelude::{Context, Device, DevicePointer},
    stream::{Stream, StreamFlags},
};
use std::{
    error::Error,
    sync::{MutexGuard, mpsc},
};

type Check = Result<(), Box<dyn Error>>;

const PTX: &str = include_str!("../common/kernels.ptx");

/// A context, and the lock that lets one test run at a time.
fn start() -> Result<(Context, MutexGuard<'static, ()>), Box<dyn Error>> {
    let turn = crate::common::turn();
    Ok((cust::quick_init()?, turn))
}

#[test]
fn a_kernel_is_launched_with_the_launch_macro() -> Check {
    let _context = start()?;
    let module = Module::from_ptx(PTX, &[])?;
    let stream = Stream::new(StreamFlags::NON_BLOCKING, None)?;
    let out = DeviceBuffer::from_slice(&[0_u32; 1000])?;
    let function = module.get_function("count_up")?;
    // SAFETY: the parameters match the kernel.
    unsafe { launch!(function<<<8, 128, 0, stream>>>(out.as_device_ptr(), 1000_u32, 5_u32))? };
    stream.synchronize()?;
    assert_eq!(out.as_host_vec()?, (5..1005).collect::<Vec<u32>>());
    assert_eq!(function.get_attribute(FunctionAttribute::MaxThreadsPerBlock)?, 1024);
    let (_, block) = function.suggested_launch_configuration(0, 0.into())?;
    assert!(block > 0 && block % 32 == 0, "{block}");
    assert!(module.get_function("no_such_kernel").is_err());
    Ok(())
}

#[test]
fn buffers_copy_synchronously_and_in_streams() -> Check {
    let _context = start()?;
    let stream = Stream::new(StreamFlags::NON_BLOCKING, Some(0))?;
    let from = LockedBuffer::new(&7_u32, 64)?;
    let mut to = LockedBuffer::new(&0_u32, 64)?;
    let mut a = DeviceBuffer::<u32>::zeroed(64)?;
    assert_eq!(a.as_host_vec()?, vec![0; 64]);
    // SAFETY: the page-locked buffers live until the stream is waited for.
    unsafe {
        a.async_copy_from(&from, &stream)?;
        a.async_copy_to(&mut to, &stream)?;
    }
    stream.synchronize()?;
    assert_eq!(to.as_slice(), [7; 64]);
    let mut part = [0_u32; 4];
    a.index(10..14).copy_to(&mut part)?;
    assert_eq!(part, [7; 4]);
    a.set_32(9)?;
    assert_eq!(a.as_host_vec()?, vec![9; 64]);
    Ok(())
}

#[test]
fn boxes_and_unified_memory() -> Check {
    let _context = start()?;
    let mut value = 0_u32;
    DeviceBox::new(&77_u32)?.copy_to(&mut value)?;
    assert_eq!(value, 77);
    let mut unified = UnifiedBuffer::new(&3_u32, 16)?;
    unified[5] = 4;
    assert_eq!(unified.iter().sum::<u32>(), 3 * 16 + 1);
    Ok(())
}

#[test]
fn memory_in_stream_order() -> Check {
    let _context = start()?;
    let stream = Stream::new(StreamFlags::NON_BLOCKING, None)?;
    // SAFETY: the buffer is used and dropped in the order of its stream.
    let buffer = unsafe { DeviceBuffer::<u32>::uninitialized_async(64, &stream)? };
    let pointer: DevicePointer<u32> = buffer.as_device_ptr();
    assert!(!pointer.is_null());
    buffer.drop_async(&stream)?;
    stream.synchronize()?;
    Ok(())
}

#[test]
fn events_and_callbacks() -> Check {
    let _context = start()?;
    let stream = Stream::new(StreamFlags::NON_BLOCKING, None)?;
    let (start, end) = (Event::new(EventFlags::DEFAULT)?, Event::new(EventFlags::DEFAULT)?);
    let (sender, receiver) = mpsc::channel();
    start.record(&stream)?;
    stream.add_callback(Box::new(move || sender.send(11).unwrap_or_default()))?;
    end.record(&stream)?;
    end.synchronize()?;
    assert_eq!(receiver.recv()?, 11);
    assert!(end.elapsed_time_f32(&start)? >= 0.0);
    stream.wait_event(end, cust::stream::StreamWaitEventFlags::DEFAULT)?;
    stream.synchronize()?;
    Ok(())
}

#[test]
fn devices_and_contexts() -> Check {
    let (context, _turn) = start()?;
    let device = Device::get_device(0)?;
    assert!(!device.name()?.is_empty());
    assert!(device.total_memory()? > 0);
    assert!(mem_get_info()?.0 > 0);
    assert!(Device::num_devices()? >= 1);
    assert!(context.get_api_version()?.major() >= 3);
    CurrentContext::set_cache_config(CacheConfig::PreferL1)?;
    CurrentContext::get_stream_priority_range()?;
    CurrentContext::synchronize()?;
    Ok(())
}

#[test]
fn linked_ptx_is_a_module() -> Check {
    let _context = start()?;
    let mut linker = Linker::new()?;
    linker.add_ptx(format!("{PTX}\0"))?;
    let image = linker.complete()?;
    let module = Module::from_cubin(&image, &[])?;
    let stream = Stream::new(StreamFlags::NON_BLOCKING, None)?;
    let out = DeviceBuffer::from_slice(&[0_u32; 64])?;
    let function = module.get_function("count_up")?;
    // SAFETY: the parameters match the kernel.
    unsafe { launch!(function<<<1, 64, 0, stream>>>(out.as_device_ptr(), 64_u32, 0_u32))? };
    stream.synchronize()?;
    assert_eq!(out.as_host_vec()?, (0..64).collect::<Vec<u32>>());
    Ok(())
}

#[test]
fn errors_have_a_text() -> Check {
    let _context = start()?;
    let error = Device::get_device(4711).expect_err("there is no such device");
    assert!(error.to_string().contains("invalid device ordinal"), "{error}");
    Ok(())
}
