//! Memory: allocation, page-locked memory, pointer attributes.

use crate::common::*;
use cust_raw::*;
use std::{ffi::c_void, ptr::null_mut};

fn pointer_attribute<T: Default>(
    number: CUpointer_attribute_enum,
    address: CUdeviceptr,
) -> Result<T, Failure> {
    let mut value = T::default();
    ok!(cuPointerGetAttribute((&raw mut value).cast(), number, address));
    Ok(value)
}

#[test]
fn allocations_are_aligned_to_256_bytes() -> Check {
    let gpu = Gpu::new()?;
    let buffers: Result<Vec<Buffer>, Failure> =
        [1, 3, 64, 1000].iter().map(|&words| gpu.buffer(words)).collect();
    for buffer in buffers? {
        equal("address modulo 256", buffer.address % 256, 0)?;
    }
    Ok(())
}

#[test]
fn allocations_do_not_overlap() -> Check {
    let gpu = Gpu::new()?;
    let (a, b) = (gpu.buffer(100)?, gpu.buffer(100)?);
    a.write(&[1; 100])?;
    b.write(&[2; 100])?;
    equal("the first buffer", a.read()?, vec![1; 100])?;
    equal("the second buffer", b.read()?, vec![2; 100])
}

#[test]
fn allocating_nothing_is_refused() -> Check {
    let _gpu = Gpu::new()?;
    let mut address = 0;
    fails!(cuMemAlloc_v2(&mut address, 0), CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

#[test]
fn allocating_through_null_is_refused() -> Check {
    let _gpu = Gpu::new()?;
    fails!(cuMemAlloc_v2(null_out(), 16), CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

#[test]
fn more_memory_than_there_is_gives_out_of_memory_and_disturbs_nothing() -> Check {
    let gpu = Gpu::new()?;
    let (mut free, mut total, mut address) = (0, 0, 0);
    ok!(cuMemGetInfo_v2(&mut free, &mut total));
    fails!(cuMemAlloc_v2(&mut address, total + (1 << 30)), CUDA_ERROR_OUT_OF_MEMORY);
    fails!(cuMemAlloc_v2(&mut address, 1 << 50), CUDA_ERROR_OUT_OF_MEMORY);
    let buffer = gpu.buffer(8)?;
    buffer.write(&[7; 8])?;
    equal("a buffer made afterwards", buffer.read()?, vec![7; 8])
}

#[test]
fn memory_info_is_sound() -> Check {
    let gpu = Gpu::new()?;
    let (mut free, mut total, mut of_device) = (0, 0, 0);
    ok!(cuMemGetInfo_v2(&mut free, &mut total));
    ok!(cuDeviceTotalMem_v2(&mut of_device, gpu.device));
    holds("free memory is at most the total", free <= total && free > 0)?;
    holds("the context sees no more than the device has", total <= of_device)
}

#[test]
fn allocating_takes_memory_and_freeing_gives_it_back() -> Check {
    const BYTES: usize = 64 << 20;
    // A process that ended just before may give memory back meanwhile: then once more.
    const ATTEMPTS: usize = 20;
    let _gpu = Gpu::new()?;
    let (mut before, mut during, mut after, mut total, mut address) = (0, 0, 0, 0, 0);
    for _ in 0..ATTEMPTS {
        ok!(cuMemGetInfo_v2(&mut before, &mut total));
        ok!(cuMemAlloc_v2(&mut address, BYTES));
        ok!(cuMemGetInfo_v2(&mut during, &mut total));
        ok!(cuMemFree_v2(address));
        ok!(cuMemGetInfo_v2(&mut after, &mut total));
        if after == before {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    equal("free memory after the free", after, before)?;
    holds("free memory fell by at least the allocation", during <= before && before - during >= BYTES)
}

#[test]
fn freeing_twice_is_refused() -> Check {
    let _gpu = Gpu::new()?;
    let mut address = 0;
    ok!(cuMemAlloc_v2(&mut address, 64));
    ok!(cuMemFree_v2(address));
    fails!(cuMemFree_v2(address), CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

#[test]
fn freeing_the_middle_of_an_allocation_is_refused() -> Check {
    let gpu = Gpu::new()?;
    let buffer = gpu.buffer(1024)?;
    fails!(cuMemFree_v2(buffer.address + 512), CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

#[test]
fn freeing_host_memory_as_device_memory_is_refused() -> Check {
    let _gpu = Gpu::new()?;
    let local = [0_u64; 8];
    fails!(cuMemFree_v2(local.as_ptr() as u64), CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

#[test]
fn the_range_of_an_inner_pointer_is_its_allocation() -> Check {
    let gpu = Gpu::new()?;
    let buffer = gpu.buffer(1024)?;
    let (mut base, mut bytes) = (0, 0);
    ok!(cuMemGetAddressRange_v2(&mut base, &mut bytes, buffer.address + 100));
    equal("base and length", (base, bytes), (buffer.address, 4096))
}

#[test]
fn pitched_memory_has_room_for_every_row() -> Check {
    let _gpu = Gpu::new()?;
    let (mut address, mut pitch) = (0, 0);
    ok!(cuMemAllocPitch_v2(&mut address, &mut pitch, 1000, 7, 4));
    holds("a pitch holds a row and is aligned", pitch >= 1000 && pitch % 256 == 0)?;
    ok!(cuMemsetD8_v2(address, 3, pitch * 7));
    ok!(cuMemFree_v2(address));
    fails!(cuMemAllocPitch_v2(&mut address, &mut pitch, 1000, 7, 5), CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

#[test]
fn pinned_memory_is_host_memory_that_the_device_knows() -> Check {
    let gpu = Gpu::new()?;
    let pinned = gpu.pinned(64)?;
    pinned.set(|i| i as u32);
    let kind: u32 =
        pointer_attribute(CUpointer_attribute_enum::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pinned.address as u64)?;
    equal("memory type", kind, CUmemorytype_enum::CU_MEMORYTYPE_HOST as u32)?;
    let mut mapped = 0;
    ok!(cuMemHostGetDevicePointer_v2(&mut mapped, pinned.address.cast(), 0));
    equal("device pointer", mapped, pinned.address as u64)
}

#[test]
fn pinned_memory_keeps_its_flags() -> Check {
    let _gpu = Gpu::new()?;
    let mut address: *mut c_void = null_mut();
    let mut flags = 0;
    ok!(cuMemHostAlloc(&mut address, 4096, CU_MEMHOSTALLOC_PORTABLE));
    ok!(cuMemHostGetFlags(&mut flags, address));
    ok!(cuMemFreeHost(address));
    holds("the portable flag is set", flags & CU_MEMHOSTALLOC_PORTABLE != 0)?;
    fails!(cuMemHostAlloc(&mut address, 4096, 0x100), CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

#[test]
fn freeing_pageable_memory_as_pinned_is_refused() -> Check {
    let _gpu = Gpu::new()?;
    let mut local = [0_u64; 8];
    fails!(cuMemFreeHost(local.as_mut_ptr().cast()), CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

#[test]
fn memory_can_be_registered_once_and_unregistered_once() -> Check {
    const PAGE: usize = 4096;
    let _gpu = Gpu::new()?;
    let mut memory = vec![0_u8; 3 * PAGE];
    let start = memory.as_mut_ptr().wrapping_add(memory.as_ptr().align_offset(PAGE)).cast::<c_void>();
    ok!(cuMemHostRegister_v2(start, PAGE, 0));
    fails!(cuMemHostRegister_v2(start, PAGE, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    ok!(cuMemHostUnregister(start));
    fails!(cuMemHostUnregister(start), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    Ok(())
}

#[test]
fn attributes_of_a_device_pointer() -> Check {
    use CUpointer_attribute_enum::*;
    let gpu = Gpu::new()?;
    let buffer = gpu.buffer(1024)?;
    let inner = buffer.address + 128;
    let kind: u32 = pointer_attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inner)?;
    equal("memory type", kind, CUmemorytype_enum::CU_MEMORYTYPE_DEVICE as u32)?;
    equal("ordinal", pointer_attribute::<i32>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, inner)?, gpu.device)?;
    equal("context", pointer_attribute::<usize>(CU_POINTER_ATTRIBUTE_CONTEXT, inner)?, gpu.context as usize)?;
    equal("device pointer", pointer_attribute::<u64>(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, inner)?, inner)?;
    equal("start", pointer_attribute::<u64>(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inner)?, buffer.address)?;
    equal("size", pointer_attribute::<usize>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, inner)?, 4096)?;
    equal("managed", pointer_attribute::<u32>(CU_POINTER_ATTRIBUTE_IS_MANAGED, inner)?, 0)
}

#[test]
fn a_pointer_that_the_driver_does_not_know_has_no_attributes() -> Check {
    let _gpu = Gpu::new()?;
    let local = [0_u64; 4];
    let mut kind = 0_u32;
    let number = CUpointer_attribute_enum::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    fails!(
        cuPointerGetAttribute((&raw mut kind).cast(), number, local.as_ptr() as u64),
        CUDA_ERROR_INVALID_VALUE
    );
    Ok(())
}

#[test]
fn several_attributes_come_in_one_call() -> Check {
    let gpu = Gpu::new()?;
    let buffer = gpu.buffer(16)?;
    let (mut kind, mut ordinal) = (0_u32, -1_i32);
    let mut numbers = [
        CUpointer_attribute_enum::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        CUpointer_attribute_enum::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
    ];
    let mut out: [*mut c_void; 2] = [(&raw mut kind).cast(), (&raw mut ordinal).cast()];
    ok!(cuPointerGetAttributes(2, numbers.as_mut_ptr(), out.as_mut_ptr(), buffer.address));
    equal("both", (kind, ordinal), (CUmemorytype_enum::CU_MEMORYTYPE_DEVICE as u32, gpu.device))
}

#[test]
fn managed_memory_is_read_and_written_by_the_host() -> Check {
    let _gpu = Gpu::new()?;
    let mut address = 0;
    let flags = CUmemAttach_flags_enum::CU_MEM_ATTACH_GLOBAL as u32;
    ok!(cuMemAllocManaged(&mut address, 64, flags));
    ok!(cuMemsetD32_v2(address, 9, 16));
    ok!(cuCtxSynchronize());
    // SAFETY: managed memory of 16 words, and the device is idle.
    let first = unsafe { (address as *const u32).read_volatile() };
    equal(
        "managed",
        pointer_attribute::<u32>(CUpointer_attribute_enum::CU_POINTER_ATTRIBUTE_IS_MANAGED, address)?,
        1,
    )?;
    ok!(cuMemFree_v2(address));
    equal("the first word", first, 9)
}
