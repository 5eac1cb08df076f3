//! Stream-ordered memory, and pools.

use crate::common::*;
use cust_raw::*;
use std::ptr::null_mut;

struct Pool(CUmemoryPool);

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: made by the test, and destroyed once.
        unsafe { cuMemPoolDestroy(self.0) };
    }
}

fn own_pool(gpu: &Gpu) -> Result<Pool, Failure> {
    let properties = CUmemPoolProps {
        allocType: CUmemAllocationType_enum::CU_MEM_ALLOCATION_TYPE_PINNED,
        handleTypes: CUmemAllocationHandleType_enum::CU_MEM_HANDLE_TYPE_NONE,
        location: CUmemLocation {
            type_: CUmemLocationType_enum::CU_MEM_LOCATION_TYPE_DEVICE,
            id: gpu.device,
        },
        win32SecurityAttributes: null_mut(),
        reserved: [0; 64],
    };
    let mut pool = null_mut();
    ok!(cuMemPoolCreate(&mut pool, &properties));
    Ok(Pool(pool))
}

fn amount(pool: CUmemoryPool, attribute: CUmemPool_attribute_enum) -> Result<u64, Failure> {
    let mut value = 0_u64;
    ok!(cuMemPoolGetAttribute(pool, attribute, (&raw mut value).cast()));
    Ok(value)
}

#[test]
fn memory_can_be_used_in_stream_order() -> Check {
    let gpu = Gpu::new()?;
    let (stream, to) = (gpu.stream()?, gpu.pinned(64)?);
    let mut address = 0;
    ok!(cuMemAllocAsync(&mut address, 256, stream.0));
    ok!(cuMemsetD32Async(address, 12, 64, stream.0));
    ok!(cuMemcpyDtoHAsync_v2(to.address.cast(), address, 256, stream.0));
    ok!(cuMemFreeAsync(address, stream.0));
    ok!(cuStreamSynchronize(stream.0));
    equal("what went through it", to.get(), vec![12; 64])
}

#[test]
fn stream_ordered_memory_can_be_freed_at_once() -> Check {
    let gpu = Gpu::new()?;
    let stream = gpu.stream()?;
    let mut address = 0;
    ok!(cuMemAllocAsync(&mut address, 256, stream.0));
    ok!(cuStreamSynchronize(stream.0));
    ok!(cuMemFree_v2(address));
    Ok(())
}

#[test]
fn allocating_nothing_in_stream_order() -> Check {
    let gpu = Gpu::new()?;
    let (stream, mut address) = (gpu.stream()?, 0);
    // SAFETY: an out-pointer to a live variable, and a live stream.
    let code = unsafe { cuMemAllocAsync(&mut address, 0, stream.0) };
    expect("no bytes", code, &[cudaError_enum::CUDA_ERROR_INVALID_VALUE, cudaError_enum::CUDA_SUCCESS])?;
    equal("nothing came", address, 0)
}

#[test]
fn more_than_there_is_in_stream_order() -> Check {
    let gpu = Gpu::new()?;
    let (stream, mut address) = (gpu.stream()?, 0);
    fails!(cuMemAllocAsync(&mut address, 1 << 50, stream.0), CUDA_ERROR_OUT_OF_MEMORY);
    ok!(cuStreamSynchronize(stream.0));
    Ok(())
}

#[test]
fn a_device_has_a_default_pool_that_is_current() -> Check {
    let gpu = Gpu::new()?;
    let (mut default, mut current) = (null_mut(), null_mut());
    ok!(cuDeviceGetDefaultMemPool(&mut default, gpu.device));
    ok!(cuDeviceGetMemPool(&mut current, gpu.device));
    equal("the current pool", current, default)?;
    fails!(cuMemPoolDestroy(default), CUDA_ERROR_INVALID_VALUE | CUDA_ERROR_NOT_PERMITTED);
    Ok(())
}

#[test]
fn an_own_pool_counts_what_is_used_of_it() -> Check {
    use CUmemPool_attribute_enum::*;
    let gpu = Gpu::new()?;
    let (stream, pool) = (gpu.stream()?, own_pool(&gpu)?);
    let mut address = 0;
    ok!(cuMemAllocFromPoolAsync(&mut address, 1 << 20, pool.0, stream.0));
    ok!(cuStreamSynchronize(stream.0));
    holds("used", amount(pool.0, CU_MEMPOOL_ATTR_USED_MEM_CURRENT)? >= 1 << 20)?;
    holds("reserved", amount(pool.0, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)? >= 1 << 20)?;
    ok!(cuMemFreeAsync(address, stream.0));
    ok!(cuStreamSynchronize(stream.0));
    equal("used after the free", amount(pool.0, CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?, 0)?;
    holds("the high mark stays", amount(pool.0, CU_MEMPOOL_ATTR_USED_MEM_HIGH)? >= 1 << 20)
}

#[test]
fn trimming_a_pool_gives_back_what_is_not_used() -> Check {
    let gpu = Gpu::new()?;
    let (stream, pool) = (gpu.stream()?, own_pool(&gpu)?);
    let mut address = 0;
    ok!(cuMemAllocFromPoolAsync(&mut address, 1 << 20, pool.0, stream.0));
    ok!(cuMemFreeAsync(address, stream.0));
    ok!(cuStreamSynchronize(stream.0));
    ok!(cuMemPoolTrimTo(pool.0, 0));
    equal("reserved", amount(pool.0, CUmemPool_attribute_enum::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?, 0)
}

#[test]
fn a_release_threshold_can_be_set() -> Check {
    let gpu = Gpu::new()?;
    let pool = own_pool(&gpu)?;
    let attribute = CUmemPool_attribute_enum::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
    equal("at first", amount(pool.0, attribute)?, 0)?;
    let mut threshold = 1_u64 << 24;
    ok!(cuMemPoolSetAttribute(pool.0, attribute, (&raw mut threshold).cast()));
    equal("then", amount(pool.0, attribute)?, threshold)
}

#[test]
fn an_own_pool_can_become_current() -> Check {
    let gpu = Gpu::new()?;
    let (mut default, mut current) = (null_mut(), null_mut());
    ok!(cuDeviceGetDefaultMemPool(&mut default, gpu.device));
    let (stream, pool) = (gpu.stream()?, own_pool(&gpu)?);
    ok!(cuDeviceSetMemPool(gpu.device, pool.0));
    ok!(cuDeviceGetMemPool(&mut current, gpu.device));
    let mut address = 0;
    ok!(cuMemAllocAsync(&mut address, 1 << 16, stream.0));
    let used = amount(pool.0, CUmemPool_attribute_enum::CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?;
    ok!(cuMemFreeAsync(address, stream.0));
    ok!(cuStreamSynchronize(stream.0));
    ok!(cuDeviceSetMemPool(gpu.device, default));
    equal("the current pool", current, pool.0)?;
    holds("it gave the memory", used >= 1 << 16)
}

#[test]
fn a_pool_on_a_device_that_is_not_there_is_refused() -> Check {
    let gpu = Gpu::new()?;
    let mut absent = gpu;
    absent.device = 4711;
    holds("refused", own_pool(&absent).is_err())
}
