//! Modules, functions, launches and their limits.

use crate::common::*;
use cust_raw::*;
use std::{
    ffi::{CString, c_void},
    ptr::null_mut,
};

type LaunchKernelEx =
    unsafe extern "C" fn(*const LaunchConfig, CUfunction, *mut *mut c_void, *mut *mut c_void) -> u32;

/// `CUlaunchConfig`, which cust_raw lacks.
#[repr(C)]
struct LaunchConfig {
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    stream: CUstream,
    attributes: *const Attribute,
    count: u32,
}

/// `CUlaunchAttribute`.
#[repr(C)]
struct Attribute {
    id: u32,
    pad: u32,
    words: [u32; 16],
}

const CLUSTER_DIMENSION: u32 = 4;
const INVALID_CLUSTER_SIZE: u32 = 912;

#[test]
fn a_kernel_writes_its_output() -> Check {
    let gpu = Gpu::new()?;
    let (module, stream, buffer) = (gpu.module()?, gpu.stream()?, gpu.buffer(1000)?);
    launch(module.function(c"count_up")?, stream.0, &buffer, 7)?;
    ok!(cuStreamSynchronize(stream.0));
    equal("the output", buffer.read()?, counting(1000, 7))
}

#[test]
fn kernels_in_a_stream_keep_their_order() -> Check {
    let gpu = Gpu::new()?;
    let (module, stream, buffer) = (gpu.module()?, gpu.stream()?, gpu.buffer(300)?);
    let double = module.function(c"double_and_add")?;
    launch(module.function(c"count_up")?, stream.0, &buffer, 0)?;
    for number in [1, 10, 100] {
        launch(double, stream.0, &buffer, number)?;
    }
    ok!(cuStreamSynchronize(stream.0));
    equal(
        "((2 i + 1) 2 + 10) 2 + 100",
        buffer.read()?,
        (0..300).map(|i| ((2 * i + 1) * 2 + 10) * 2 + 100).collect(),
    )
}

#[test]
fn kernels_run_in_the_legacy_stream() -> Check {
    let gpu = Gpu::new()?;
    let (module, buffer) = (gpu.module()?, gpu.buffer(100)?);
    launch(module.function(c"count_up")?, NULL_STREAM, &buffer, 1)?;
    equal("the output", buffer.read()?, counting(100, 1))
}

#[test]
fn parameters_can_come_in_one_buffer() -> Check {
    #[repr(C)]
    struct Packed {
        address: CUdeviceptr,
        words: u32,
        number: u32,
    }
    let gpu = Gpu::new()?;
    let (module, buffer) = (gpu.module()?, gpu.buffer(64)?);
    let function = module.function(c"count_up")?;
    let packed = Packed { address: buffer.address, words: 64, number: 5 };
    let mut size = size_of::<Packed>();
    let mut extra: [*mut c_void; 5] = [
        std::ptr::without_provenance_mut(1), // CU_LAUNCH_PARAM_BUFFER_POINTER
        (&raw const packed).cast_mut().cast(),
        std::ptr::without_provenance_mut(2), // CU_LAUNCH_PARAM_BUFFER_SIZE
        (&raw mut size).cast(),
        null_mut(),
    ];
    ok!(cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, NULL_STREAM, null_mut(), extra.as_mut_ptr()));
    equal("the output", buffer.read()?, counting(64, 5))
}

#[test]
fn cooperative_launches_run() -> Check {
    let gpu = Gpu::new()?;
    let (module, buffer) = (gpu.module()?, gpu.buffer(64)?);
    let function = module.function(c"count_up")?;
    let mut params = Params::new(&buffer, 2);
    ok!(cuLaunchCooperativeKernel(
        function,
        1,
        1,
        1,
        64,
        1,
        1,
        0,
        NULL_STREAM,
        params.pointers().as_mut_ptr()
    ));
    equal("the output", buffer.read()?, counting(64, 2))
}

#[test]
fn a_cooperative_grid_that_does_not_fit_is_refused() -> Check {
    let gpu = Gpu::new()?;
    let (module, buffer) = (gpu.module()?, gpu.buffer(64)?);
    let function = module.function(c"count_up")?;
    let mut params = Params::new(&buffer, 2);
    fails!(
        cuLaunchCooperativeKernel(
            function,
            1 << 20,
            1,
            1,
            1024,
            1,
            1,
            0,
            NULL_STREAM,
            params.pointers().as_mut_ptr()
        ),
        CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE
    );
    Ok(())
}

fn refused(grid: [u32; 3], block: [u32; 3], shared: u32) -> Check {
    let gpu = Gpu::new()?;
    let (module, buffer) = (gpu.module()?, gpu.buffer(64)?);
    let function = module.function(c"count_up")?;
    let mut params = Params::new(&buffer, 0);
    let ([x, y, z], [u, v, w]) = (grid, block);
    fails!(
        cuLaunchKernel(
            function,
            x,
            y,
            z,
            u,
            v,
            w,
            shared,
            NULL_STREAM,
            params.pointers().as_mut_ptr(),
            null_mut()
        ),
        CUDA_ERROR_INVALID_VALUE
    );
    // A refused launch must not leave a sticky error.
    launch(function, NULL_STREAM, &buffer, 3)?;
    equal("a launch afterwards", buffer.read()?, counting(64, 3))
}

#[test]
fn empty_grids_are_refused() -> Check {
    refused([0, 1, 1], [32, 1, 1], 0)
}

#[test]
fn empty_blocks_are_refused() -> Check {
    refused([1, 1, 1], [32, 0, 1], 0)
}

#[test]
fn blocks_of_more_than_1024_threads_are_refused() -> Check {
    refused([1, 1, 1], [1025, 1, 1], 0)
}

#[test]
fn blocks_whose_sides_multiply_to_too_much_are_refused() -> Check {
    refused([1, 1, 1], [64, 32, 1], 0)
}

#[test]
fn blocks_deeper_than_64_are_refused() -> Check {
    refused([1, 1, 1], [1, 1, 65], 0)
}

#[test]
fn grids_higher_than_65535_are_refused() -> Check {
    refused([1, 65_536, 1], [1, 1, 1], 0)
}

#[test]
fn more_shared_memory_than_opted_in_is_refused() -> Check {
    refused([1, 1, 1], [32, 1, 1], 100 << 10)
}

#[test]
fn shared_memory_can_be_opted_into() -> Check {
    let gpu = Gpu::new()?;
    let (module, buffer) = (gpu.module()?, gpu.buffer(64)?);
    let function = module.function(c"count_up")?;
    let (mut most, mut set) = (0, 0);
    let limit = CUdevice_attribute_enum::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
    ok!(cuDeviceGetAttribute(&mut most, limit, gpu.device));
    let attribute = CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    fails!(cuFuncSetAttribute(function, attribute, most + 1), CUDA_ERROR_INVALID_VALUE);
    ok!(cuFuncSetAttribute(function, attribute, most));
    ok!(cuFuncGetAttribute(&mut set, attribute, function));
    equal("the attribute", set, most)?;
    let mut params = Params::new(&buffer, 4);
    ok!(cuLaunchKernel(
        function,
        1,
        1,
        1,
        64,
        1,
        1,
        most as u32,
        NULL_STREAM,
        params.pointers().as_mut_ptr(),
        null_mut()
    ));
    equal("the output", buffer.read()?, counting(64, 4))
}

#[test]
fn a_kernel_compiled_for_small_blocks_refuses_large_ones() -> Check {
    let gpu = Gpu::new()?;
    let module = gpu.module()?;
    let function = module.function(c"small_blocks")?;
    let mut most = 0;
    ok!(cuFuncGetAttribute(
        &mut most,
        CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
        function
    ));
    equal("threads a block", most, 64)?;
    ok!(cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, NULL_STREAM, null_mut(), null_mut()));
    fails!(
        cuLaunchKernel(function, 1, 1, 1, 128, 1, 1, 0, NULL_STREAM, null_mut(), null_mut()),
        CUDA_ERROR_INVALID_VALUE | CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
    );
    ok!(cuCtxSynchronize());
    Ok(())
}

#[test]
fn a_kernel_has_the_attributes_of_its_device() -> Check {
    use CUfunction_attribute_enum::*;
    let gpu = Gpu::new()?;
    let module = gpu.module()?;
    let function = module.function(c"count_up")?;
    let (mut threads, mut registers, mut local) = (0, 0, 0);
    ok!(cuFuncGetAttribute(&mut threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function));
    ok!(cuFuncGetAttribute(&mut registers, CU_FUNC_ATTRIBUTE_NUM_REGS, function));
    ok!(cuFuncGetAttribute(&mut local, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, function));
    equal("threads a block and local memory", (threads, local), (1024, 0))?;
    holds("it uses registers", registers > 0)
}

#[test]
fn occupancy_of_a_small_kernel() -> Check {
    let gpu = Gpu::new()?;
    let module = gpu.module()?;
    let function = module.function(c"count_up")?;
    let (mut blocks, mut grid, mut block) = (0, 0, 0);
    ok!(cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, function, 256, 0));
    holds("2048 threads or fewer", (1..=8).contains(&blocks))?;
    ok!(cuOccupancyMaxPotentialBlockSize(&mut grid, &mut block, function, None, 0, 0));
    holds("a block of whole warps", block > 0 && block % 32 == 0 && grid > 0)?;
    fails!(
        cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, function, 0, 0),
        CUDA_ERROR_INVALID_VALUE
    );
    Ok(())
}

#[test]
fn functions_that_a_module_lacks_are_not_found() -> Check {
    let gpu = Gpu::new()?;
    let module = gpu.module()?;
    let mut function = null_mut();
    fails!(cuModuleGetFunction(&mut function, module.0, c"no_such_kernel".as_ptr()), CUDA_ERROR_NOT_FOUND);
    Ok(())
}

#[test]
fn variables_that_a_module_lacks_are_not_found() -> Check {
    let gpu = Gpu::new()?;
    let module = gpu.module()?;
    let (mut address, mut bytes) = (0, 0);
    fails!(
        cuModuleGetGlobal_v2(&mut address, &mut bytes, module.0, c"no_such".as_ptr()),
        CUDA_ERROR_NOT_FOUND
    );
    Ok(())
}

#[test]
fn a_function_knows_its_module() -> Check {
    let gpu = Gpu::new()?;
    let module = gpu.module()?;
    let mut of = null_mut();
    ok!(cuFuncGetModule(&mut of, module.function(c"count_up")?));
    equal("module", of, module.0)
}

#[test]
fn text_that_is_not_ptx_is_refused() -> Check {
    let _gpu = Gpu::new()?;
    let mut module = null_mut();
    let image = c"this is not PTX";
    fails!(
        cuModuleLoadData(&mut module, image.as_ptr().cast()),
        CUDA_ERROR_INVALID_IMAGE | CUDA_ERROR_INVALID_PTX
    );
    Ok(())
}

#[test]
fn ptx_for_an_architecture_that_is_none_is_refused_with_a_log() -> Check {
    let _gpu = Gpu::new()?;
    let mut module = null_mut();
    let image = c".version 7.0\n.target sm_bogus\n.address_size 64\n";
    let mut log = [0_u8; 1024];
    let mut options =
        [CUjit_option_enum::CU_JIT_ERROR_LOG_BUFFER, CUjit_option_enum::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    let mut values: [*mut c_void; 2] = [log.as_mut_ptr().cast(), log.len() as *mut c_void];
    fails!(
        cuModuleLoadDataEx(&mut module, image.as_ptr().cast(), 2, options.as_mut_ptr(), values.as_mut_ptr()),
        CUDA_ERROR_INVALID_PTX | CUDA_ERROR_INVALID_IMAGE | CUDA_ERROR_NO_BINARY_FOR_GPU
    );
    holds("the log says something", log[0] != 0)
}

#[test]
fn modules_load_from_files() -> Check {
    let gpu = Gpu::new()?;
    let path = std::env::temp_dir().join(format!("ironwarp-conformance-{}.ptx", std::process::id()));
    std::fs::write(&path, include_str!("../common/kernels.ptx"))
        .map_err(|_| "cannot write the temporary folder")?;
    let name = CString::new(path.to_string_lossy().as_bytes()).map_err(|_| "the path has a NUL")?;
    let mut module = null_mut();
    // SAFETY: the path ends in a NUL.
    let loaded = unsafe { cuModuleLoad(&mut module, name.as_ptr()) };
    std::fs::remove_file(&path).map_err(|_| "cannot remove the file")?;
    expect("cuModuleLoad", loaded, &[cudaError_enum::CUDA_SUCCESS])?;
    let (module, buffer) = (Module(module), gpu.buffer(32)?);
    launch(module.function(c"count_up")?, NULL_STREAM, &buffer, 1)?;
    equal("the output", buffer.read()?, counting(32, 1))
}

#[test]
fn a_file_that_is_not_there_is_not_found() -> Check {
    let _gpu = Gpu::new()?;
    let mut module = null_mut();
    fails!(cuModuleLoad(&mut module, c"/no/such/file.ptx".as_ptr()), CUDA_ERROR_FILE_NOT_FOUND);
    Ok(())
}

fn launch_ex(cluster: [u32; 3], blocks: u32) -> Result<(u32, Vec<u32>), Failure> {
    let gpu = Gpu::new()?;
    let (module, buffer) = (gpu.module()?, gpu.buffer(32 * blocks as usize)?);
    buffer.write(&vec![0; buffer.words])?;
    let address = ironwarp_driver::proc_address("cuLaunchKernelEx").ok_or("cuLaunchKernelEx is missing")?;
    // SAFETY: the driver's function of that name has this type.
    let launch: LaunchKernelEx = unsafe { std::mem::transmute(address) };
    let mut words = [0; 16];
    words[..3].copy_from_slice(&cluster);
    let attributes = [Attribute { id: CLUSTER_DIMENSION, pad: 0, words }];
    let config = LaunchConfig {
        grid: [blocks, 1, 1],
        block: [32, 1, 1],
        shared: 0,
        stream: NULL_STREAM,
        attributes: attributes.as_ptr(),
        count: 1,
    };
    let function = module.function(c"count_up")?;
    let mut params = Params::new(&buffer, 9);
    // SAFETY: configuration and parameters match the function and the kernel.
    let code = unsafe { launch(&config, function, params.pointers().as_mut_ptr(), null_mut()) };
    Ok((code, buffer.read()?))
}

/// Clusters need compute capability 9.0.
fn has_clusters() -> Result<bool, Failure> {
    let gpu = Gpu::new()?;
    let mut major = 0;
    let number = CUdevice_attribute_enum::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR;
    ok!(cuDeviceGetAttribute(&mut major, number, gpu.device));
    Ok(major >= 9)
}

#[test]
fn clusters_can_be_launched() -> Check {
    if !has_clusters()? {
        return Ok(());
    }
    equal("code and output", launch_ex([2, 1, 1], 4)?, (0, counting(128, 9)))
}

#[test]
fn a_grid_that_clusters_do_not_divide_is_refused() -> Check {
    if !has_clusters()? {
        return Ok(());
    }
    let (code, output) = launch_ex([3, 1, 1], 4)?;
    holds(
        "refused",
        code == INVALID_CLUSTER_SIZE || code == cudaError_enum::CUDA_ERROR_INVALID_VALUE as u32,
    )?;
    equal("nothing ran", output, vec![0; 128])
}

type MaxActiveClusters = unsafe extern "C" fn(*mut i32, CUfunction, *const LaunchConfig) -> u32;

/// The result code, and the most clusters of that many blocks that are active at once.
fn active_clusters(blocks: u32) -> Result<(u32, i32), Failure> {
    let gpu = Gpu::new()?;
    let module = gpu.module()?;
    let address =
        ironwarp_driver::proc_address("cuOccupancyMaxActiveClusters").ok_or("the function is missing")?;
    // SAFETY: the driver's function of that name has this type.
    let ask: MaxActiveClusters = unsafe { std::mem::transmute(address) };
    let mut words = [0; 16];
    words[..3].copy_from_slice(&[blocks, 1, 1]);
    let attributes = [Attribute { id: CLUSTER_DIMENSION, pad: 0, words }];
    let config = LaunchConfig {
        grid: [64 * blocks, 1, 1],
        block: [32, 1, 1],
        shared: 0,
        stream: NULL_STREAM,
        attributes: attributes.as_ptr(),
        count: 1,
    };
    let mut clusters = -1;
    // SAFETY: a place to write to, a loaded function and a configuration.
    let code = unsafe { ask(&mut clusters, module.function(c"count_up")?, &config) };
    Ok((code, clusters))
}

#[test]
fn clusters_up_to_8_blocks_can_be_active() -> Check {
    if !has_clusters()? {
        return Ok(());
    }
    for blocks in [1, 2, 4, 8] {
        let (code, clusters) = active_clusters(blocks)?;
        holds("some are", code == 0 && clusters > 0)?;
    }
    let (code, clusters) = active_clusters(32)?;
    holds("32 are too many", code != 0 || clusters == 0)
}
